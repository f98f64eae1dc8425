//! What another job has added to this one's output is kept when that goes back. This program has the number of a job, and so only
//! this test.

use criu::relay::{self, Relay};
use std::fs::{self, OpenOptions};
use std::os::fd::AsFd;

#[test]
fn what_another_job_has_added_to_the_output_is_kept() {
    // SAFETY: this is the only test of its program, and nobody else reads the environment meanwhile.
    unsafe { std::env::set_var("SLURM_JOB_ID", "4711") };
    let dir = tempfile::tempdir().unwrap();
    for (name, is_kept) in [("campaign.log", true), ("slurm-4711.out", false)] {
        let (log, run) = (dir.path().join(name), dir.path().join(format!("run with {name}")));
        fs::create_dir(&run).unwrap();
        let begins = || {
            let to = OpenOptions::new().append(true).open(&log).unwrap();
            let mut relays = [Relay::new(to.as_fd()).unwrap()];
            relay::begin(&mut relays, &run.join(relay::BEGAN)).unwrap();
            fs::read_to_string(&log).unwrap()
        };
        let kept = || {
            let all = fs::read_dir(run.join(relay::CUT_OFF)).into_iter().flatten().flatten();
            all.map(|entry| entry.path()).collect::<Vec<_>>()
        };
        fs::write(&log, "before\n").unwrap();
        assert_eq!(begins(), "before\n");
        fs::write(&log, "before\nof another job\n").unwrap();
        let said = begins();
        if !is_kept {
            assert_eq!((said.as_str(), kept().len()), ("before\n", 0));
            continue;
        }
        let all = kept();
        let [tail] = &all[..] else { panic!("{all:?}") };
        assert_eq!(fs::read_to_string(tail).unwrap(), "of another job\n");
        assert_eq!((said.as_str(), begins().as_str(), kept().len()), ("before\n", "before\n", 1));
    }
}

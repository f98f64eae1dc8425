//! A log to which other tasks of an array add stays as it is, and of any other what is cut off is kept.

use std::fs;
use steps::calls::{Calls, Output};
use steps::redirects::{Input, Redirects};
use steps::streams::Streams;

#[test]
fn a_step_that_goes_back_takes_no_lines_of_others_away() {
    let dir = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
    let log = dir.path().join("common.log");
    let calls = Calls::open(dir.path(), &[]).unwrap();
    let files = [Some(log.clone()), None];
    let call = Redirects { words: Vec::new(), input: Input::Apart, files, appends: true, labels: false };
    let streams = Streams::open(&call, &calls, "a.1", &[]).unwrap();
    fs::write(&log, "ours\nof another task\n").unwrap();
    let put_back = || {
        let line = Output { descriptor: 1, start: 0, end: 5, saved: None };
        assert_eq!(streams.put_back(&[line], dir.path(), dir.path()).unwrap(), [(1, 0)]);
        fs::read_to_string(&log).unwrap()
    };
    // SAFETY: this process has one test, and no other thread that reads variables.
    unsafe { std::env::set_var("SLURM_ARRAY_TASK_ID", "4711") };
    assert_eq!(put_back(), "ours\nof another task\n");
    // SAFETY: as above.
    unsafe { std::env::remove_var("SLURM_ARRAY_TASK_ID") };
    assert_eq!(put_back(), "ours\n");
    let kept = fs::read_dir(dir.path().join(criu::relay::CUT_OFF)).unwrap().flatten();
    assert!(kept.map(|entry| fs::read(entry.path()).unwrap()).any(|kept| kept == b"of another task\n"));
}

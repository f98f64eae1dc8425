//! A program under SCR is halted in time before the walltime ends. Alone in its file: it changes the `PATH`.

use driver::ports::Engine;
use engines::scr::{Halting, Scr};
use host::mail::{now_s, queue};
use run::Checkpoints;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use steps::calls::Calls;

#[test]
fn the_program_is_told_to_end_when_the_next_checkpoint_has_to_be_its_last() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    for (name, text) in [("scr_halt", format!("echo \"$*\" >> {}", log.display())), ("scr_index", String::new())] {
        fs::write(dir.path().join(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    // SAFETY: this process has one test, and no other thread yet reads the environment.
    unsafe { std::env::set_var("PATH", format!("{}:/usr/bin:/bin", dir.path().display())) };
    let (post, _clock) = queue();
    let calls = Calls::open(dir.path(), &[]).unwrap();
    let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
    let end_s = now_s() + 6.0;
    let halting = Halting { end_s, calls: Some(calls.clone()) };
    let mut engine = Scr::new(post, checkpoints, dir.path().to_path_buf(), Some(halting));
    let environment = engine.prepare(None, 3600.0).unwrap();
    let given = environment.iter().find(|(name, _)| name == "SCR_CHECKPOINT_SECONDS").unwrap().1.parse::<u32>();
    assert!(given.is_ok_and(|s| (1..=3).contains(&s)), "at most half of what is left: {environment:?}");
    assert!(!(engine.halted() || calls.is_closed()) || now_s() >= end_s - 3.0, "halted too early");
    let limit_s = now_s() + 60.0;
    let asked = format!("--remove {0}\n--checkpoints 1 {0}\n", dir.path().display());
    while fs::read_to_string(&log).unwrap_or_default() != asked {
        assert!(now_s() < limit_s, "{:?}", fs::read_to_string(&log));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(engine.halted() && calls.is_closed(), "steps that are halted have not ended");
}

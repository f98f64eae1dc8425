//! A relay's socket that no file system has: nothing of it is left, and only its user's programs and relays meet at it.

mod run;

use mlog::Endpoint;
use run::{Run, wait_for};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

/// A name that no other test has.
fn name(of: &str) -> String {
    format!("@joulepoint-test-{}-{of}", std::process::id())
}

#[test]
fn a_socket_without_a_file_is_gone_with_a_killed_relay_and_the_next_one_takes_it() {
    let run = Run::new(2, "disk");
    let doors = ["0", "1"].map(name);
    let relay = |group: usize| run.relay_with(group, &["--socket", &doors[group]]);
    let (mut first, _other) = (relay(0), relay(1));
    (0..2).for_each(|g| drop(wait_for("a relay", || run.status(g))));
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut endpoint = Endpoint::connect(Path::new(&doors[0]), 0).expect("joined");
            endpoint.recv(1, 1).expect("received")
        });
        wait_for("the program", || run.status(0).filter(|s| s.program));
        assert!(run.ask("rest", 0, &[]).status.success());
        first.kill();
        let _second = relay(0);
        wait_for("the program again", || run.status(0).filter(|s| s.program));
        let mut sender = Endpoint::connect(Path::new(&doors[1]), 0).expect("joined");
        sender.send(0, 1, b"word").expect("sent");
        assert_eq!(waits.join().expect("no panic"), b"word");
    });
    let files = fs::read_dir(run.path("relays")).expect("a folder").flatten();
    let left: Vec<String> = files.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|f| f.ends_with(".sock") || f.ends_with(".rest")), "{left:?}");
}

#[test]
fn a_relay_of_another_user_is_not_spoken_to() {
    if !nix::unistd::geteuid().is_root() {
        println!("skipped: only root can start a relay of another user");
        return;
    }
    const NOBODY: u32 = 65534;
    let run = Run::new(1, "memory");
    fs::create_dir(run.path("relays")).expect("a folder");
    for folder in [run.folder.path(), &run.path("relays")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("a folder for all");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-relay"));
    command.args(["serve", "--group", "0", "--groups", "1", "--socket", &name("foreign"), "--run"]);
    command.arg(run.folder.path()).uid(NOBODY).gid(NOBODY).stderr(Stdio::null());
    let mut relay = command.spawn().expect("a relay");
    let said = wait_for("a refusal", || {
        let output = run.ask("status", 0, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success() || said.contains("another user's")).then_some(said)
    });
    relay.kill().and_then(|()| relay.wait()).expect("ended");
    assert!(said.contains("another user's"), "{said}");
}

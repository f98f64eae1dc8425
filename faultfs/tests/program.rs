//! The program mounts, takes commands at its socket, and leaves nothing behind when it ends.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

#[test]
fn faults_are_scripted_by_hand_while_it_is_mounted() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for name in ["a", "b"] {
        fs::create_dir(path(name)).unwrap();
    }
    let mut program = Command::new(env!("CARGO_BIN_EXE_faultfs"))
        .arg("--at")
        .arg(path("a"))
        .arg("--at")
        .arg(path("b"))
        .arg("--control")
        .arg(path("control"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "mounted\n");
    let mut control = UnixStream::connect(path("control")).unwrap();
    let mut answers = BufReader::new(control.try_clone().unwrap()).lines();
    let mut say = |line: &str| {
        writeln!(control, "{line}").unwrap();
        answers.next().unwrap().unwrap()
    };
    fs::write(path("a").join("file"), "content").unwrap();
    assert_eq!(say("fault error=EIO op=read mount=1 times=1"), "ok");
    assert!(fs::read(path("b").join("file")).is_err());
    assert_eq!(fs::read(path("b").join("file")).unwrap(), b"content");
    assert_eq!(say("rot /file"), "ok");
    assert_ne!(fs::read(path("b").join("file")).unwrap(), b"content");
    assert!(say("counts").contains("; EIO 1; rot 1"));
    assert!(say("burn").starts_with("error: no command: \"burn\""));
    assert_eq!(say("renew 7"), "error: ENODEV: No such device");
    kill(Pid::from_raw(program.id() as i32), Signal::SIGTERM).unwrap();
    assert!(program.wait().unwrap().success());
    assert_eq!(fs::read_dir(path("a")).unwrap().count(), 0);
    assert!(!path("control").exists());
}

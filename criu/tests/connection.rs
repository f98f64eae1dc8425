//! The connection between a task of a step and the driver of its job: only who knows the secret of the run is heard.

use criu::line::{ADDRESS, FOLDER, Hello, Member, answer, call, secret};
use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

/// A run whose address file names this port.
fn run(port: u16) -> tempfile::TempDir {
    let run = tempfile::tempdir().unwrap();
    fs::create_dir(run.path().join(FOLDER)).unwrap();
    fs::write(run.path().join(FOLDER).join(ADDRESS), format!("127.0.0.1:{port}\n")).unwrap();
    run
}

fn step() -> Hello {
    Hello::Step { call: "a.1".into(), words: "prog".into(), outside: None, together: None, goes_on: false }
}

#[test]
fn a_label_is_as_wide_as_the_highest_rank() {
    let label =
        |rank, tasks| Member { call: "a.1".into(), rank, tasks, node: "n".into(), step: None, ranks: None }.label();
    assert_eq!([label(0, 1), label(9, 10), label(9, 11)], ["0: ", "9: ", "09: "]);
}

#[test]
fn a_driver_hears_who_knows_the_secret_and_no_other() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (ours, other) = (run(port), run(port));
    let secret = secret(ours.path()).unwrap();
    let driver = thread::spawn(move || [(); 2].map(|()| answer(listener.accept().unwrap().0, &secret)));
    call(ours.path(), &step()).unwrap();
    assert!(call(other.path(), &step()).unwrap_err().contains("not the wrapper"));
    let [first, second] = driver.join().unwrap();
    assert_eq!(first.unwrap().0, step());
    second.unwrap_err();
}

#[test]
fn who_passes_on_what_both_sides_say_is_trusted_by_neither() {
    let (driver, between) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let run = run(between.local_addr().unwrap().port());
    let secret = secret(run.path()).unwrap();
    let address = driver.local_addr().unwrap();
    let answered = thread::spawn(move || answer(driver.accept().unwrap().0, &secret).map(drop));
    thread::spawn(move || {
        let (task, driver) = (between.accept().unwrap().0, TcpStream::connect(address).unwrap());
        let (mut from, mut to) = (driver.try_clone().unwrap(), task.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut from, &mut to));
        let _ = io::copy(&mut &task, &mut &driver);
        let _ = driver.shutdown(Shutdown::Both);
    });
    assert!(call(run.path(), &step()).unwrap_err().contains("not the wrapper"));
    answered.join().unwrap().unwrap_err();
}

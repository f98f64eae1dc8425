//! What people's commands do where standard output takes nothing, and what their exit status says.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

fn joulepoint(arguments: &[&str], out: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    command.args(arguments).env("JOULEPOINT_CONF", "/dev/null").env("JOULEPOINT_LOG", "off");
    command.stdin(Stdio::null()).stdout(out).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap()
}

/// A pipe that nobody reads.
fn left() -> Stdio {
    let (read, write) = nix::unistd::pipe().unwrap();
    drop(read);
    File::from(write).into()
}

fn full() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").unwrap().into()
}

const TALKING: [&[&str]; 8] = [
    &["report", "-e"],
    &["completion", "bash"],
    &["man"],
    &["model", "young_daly", "--json", r#"{"mu":18000,"C":40}"#],
    &["plan", "--published", "-N4"],
    &["plan", "--published", "--json"],
    &["doctor", "--side", "login"],
    &["simulate", "sweep", "--synthetic", "exponential", "--failures", "50", "--csv"],
];

#[test]
fn a_reader_that_leaves_ends_a_command_as_sigpipe_would_and_a_full_disk_is_told() {
    for arguments in TALKING {
        for (out, code, word) in [(left(), 141, ""), (full(), 1, "standard output: No space left")] {
            let output = joulepoint(arguments, out);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
            assert!(said.contains(word) && !said.contains("panicked"), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn a_job_runs_and_a_plan_is_told_where_standard_error_takes_nothing() {
    let cases = [(&["run", "--", "echo", "hello"][..], full(), "hello"), (&["plan", "-N4"], left(), "interval")];
    for (arguments, err, word) in cases {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
        command.args(arguments).env("JOULEPOINT_CONF", "/dev/null").env("JOULEPOINT_LOG", "debug");
        let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(err).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
        assert!(String::from_utf8_lossy(&output.stdout).contains(word), "{arguments:?}");
    }
}

#[test]
fn only_wrong_usage_and_wrong_input_exit_with_two() {
    let cases: [(&[&str], i32, &str); 13] = [
        (&["calibrate", "predict", "1G", "--ghz", "nan"], 2, "'nan'"),
        (&["calibrate", "run", "--within", "0"], 2, "'0'"),
        (&["simulate", "--synthetic", "exponential", "--failures", "9", "--plot", "/nonexistent/x.svg"], 1, "x.svg"),
        (&["man", "nope"], 2, "'nope'"),
        (&["loans", "-j", "abc"], 2, "'abc' is not a job id"),
        (&["report", "-j", "abc"], 2, "'abc' is not a job id"),
        (&["report", "-o", ""], 2, "no field"),
        (&["--conf", "/nonexistent", "plan"], 2, "/nonexistent"),
        (&["simulate", "--trace", "/nonexistent.csv"], 2, "/nonexistent.csv"),
        (&["simulate", "--history"], 1, "cannot be reached"),
        (&["report"], 1, "cannot be reached"),
        (&["calibrate", "export"], 1, "cannot be reached"),
        (&["run", "--", "/nonexistent/prog"], 127, "/nonexistent/prog: No such file"),
    ];
    for (arguments, code, word) in cases {
        let output = joulepoint(arguments, Stdio::null());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(!said.contains("Slurm cannot be asked"), "{arguments:?}: {said}");
    }
}

/// A user who is nobody, where this one is root; a command that such a user may run.
fn as_an_ordinary_user(dir: &std::path::Path) -> Command {
    let own = dir.join("joulepoint");
    std::fs::copy(env!("CARGO_BIN_EXE_joulepoint"), &own).unwrap();
    std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new(own);
    if nix::unistd::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command
}

#[test]
fn what_only_root_may_see_is_no_fault_to_the_doctor_of_an_ordinary_user() {
    let dir = tempfile::tempdir().unwrap();
    let hidden = dir.path().join("service");
    std::fs::create_dir(&hidden).unwrap();
    std::fs::write(hidden.join("store.sqlite"), "").unwrap();
    let conf = dir.path().join("joulepoint.toml");
    std::fs::write(&conf, format!("[controller]\nstore = {:?}\n", hidden.join("store.sqlite"))).unwrap();
    std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o500)).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::fs::set_permissions(&hidden, PermissionsExt::from_mode(0o700)).unwrap();
    }
    let mut command = as_an_ordinary_user(dir.path());
    command.args(["doctor", "--json", "--side", "controller", "--conf"]).arg(&conf).env("JOULEPOINT_LOG", "off");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = told["findings"].as_array().unwrap().iter().find(|f| f["check"] == "store").unwrap();
    assert_eq!(found["level"], "skipped", "{found}");
    assert!(found["found"].as_str().unwrap().ends_with("not looked at (as root only)"), "{found}");
}

#[test]
fn input_that_is_no_text_is_refused_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("binary");
    std::fs::write(&path, [0x7f, 0xff, 0x00]).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    let output = command.args(["model", "aupy"]).stdin(File::open(&path).unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = error["error"].as_str().unwrap();
    assert!(
        told.starts_with("the standard input cannot be read: ") && told.ends_with("UTF-8 text is needed"),
        "{told}"
    );
}

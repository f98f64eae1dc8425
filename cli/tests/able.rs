//! `joulepoint able` before real processes that hold what cannot be dumped.

use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::net::TcpListener;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A process that ends with its test.
struct Sleeper(Child);

impl Sleeper {
    fn start(command: &mut Command) -> Sleeper {
        Sleeper(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn with(stdin: impl Into<Stdio>) -> Sleeper {
        Sleeper::start(Command::new("sleep").arg("60").stdin(stdin))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn joulepoint(args: &[&str]) -> (Option<i32>, Value, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_joulepoint")).arg("able").args(args).output().unwrap();
    let json = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), json, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Exit code and kinds of obstacles.
fn able(pids: &[&str]) -> (Option<i32>, Vec<String>) {
    let (code, said, _) = joulepoint(&[&["--json", "--"], pids].concat());
    let kinds = said["obstacles"].as_array().unwrap().iter().map(|o| o["kind"].as_str().unwrap().to_string());
    (code, kinds.collect())
}

fn not(kind: &str) -> (Option<i32>, Vec<String>) {
    (Some(1), vec![kind.to_string()])
}

#[test]
fn nothing_stands_in_the_way_of_a_plain_program() {
    let sleeper = Sleeper::with(Stdio::null());
    assert_eq!(able(&[&sleeper.pid()]), (Some(0), vec![]));
    let (code, said, _) = joulepoint(&["--", &sleeper.pid()]);
    assert_eq!((code, said), (Some(0), Value::Null), "a table is no JSON");
}

#[test]
fn a_connection_to_outside_is_foreign_and_one_to_inside_needs_a_network_of_its_own() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; echo >&3; sleep 60", listener.local_addr().unwrap().port());
    let shell = Sleeper::start(Command::new("bash").args(["-c", &script]).stdin(Stdio::null()));
    let (mut theirs, _) = listener.accept().unwrap();
    // From then on it has the one descriptor only.
    theirs.read_exact(&mut [0]).unwrap();
    assert_eq!(able(&[&shell.pid()]), not("socket"));
    let other_end = Sleeper::with(OwnedFd::from(theirs));
    assert_eq!(able(&[&shell.pid(), &other_end.pid()]), (Some(1), vec!["tcp".to_string(); 2]));
}

#[test]
fn a_unix_socket_is_followed_to_its_other_end() {
    let (one, other) = UnixStream::pair().unwrap();
    let (first, second) = (Sleeper::with(OwnedFd::from(one)), Sleeper::with(OwnedFd::from(other)));
    assert_eq!(able(&[&first.pid()]), not("socket"));
    assert_eq!(able(&[&first.pid(), &second.pid()]), (Some(0), vec![]));
}

#[test]
fn an_io_uring_is_found() {
    let mut parameters = [0u8; 120];
    // SAFETY: io_uring_setup writes at most 120 bytes (struct io_uring_params) and returns a descriptor or -1.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
    if ring < 0 {
        println!("skipped: this kernel refuses io_uring: {}", std::io::Error::last_os_error());
        return;
    }
    // SAFETY: a new descriptor that nobody else owns.
    let ring = unsafe { OwnedFd::from_raw_fd(ring as i32) };
    assert_eq!(able(&[&Sleeper::with(ring).pid()]), not("io_uring"));
}

#[test]
fn a_nameless_file_that_criu_does_not_know_and_a_device_are_found() {
    // SAFETY: epoll_create1 and userfaultfd return a descriptor or -1.
    let faults = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1) };
    if faults >= 0 {
        // SAFETY: a new descriptor that nobody else owns.
        let faults = unsafe { OwnedFd::from_raw_fd(faults as i32) };
        assert_eq!(able(&[&Sleeper::with(faults).pid()]), not("anon_inode"));
    }
    match File::open("/dev/kmsg").or_else(|_| File::open("/dev/fuse")) {
        Ok(device) => assert_eq!(able(&[&Sleeper::with(device).pid()]), not("device")),
        Err(e) => println!("skipped: no device may be opened here: {e}"),
    }
}

#[test]
fn a_tracer_is_found() {
    let sleeper = Sleeper::with(Stdio::null());
    // SAFETY: seizes our own child; no pointers are read.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, sleeper.0.id() as i32, 0, 0) };
    assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
    assert_eq!(able(&[&sleeper.pid()]), not("tracer"));
}

#[test]
fn system_v_shared_memory_is_found() {
    // SAFETY: a private segment is made, mapped where the kernel likes, and removed when nobody maps it.
    unsafe {
        let id = libc::shmget(libc::IPC_PRIVATE, 4096, 0o600);
        assert!(id >= 0 && libc::shmat(id, std::ptr::null(), 0) as isize != -1);
        libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut());
    }
    let answer = able::look(std::path::Path::new("/proc"), &[std::process::id() as i32], false);
    assert!(answer.obstacles.iter().any(|o| o.kind == "sysv_shm"), "{answer:?}");
}

#[test]
fn a_job_is_known_by_its_processes() {
    let job = format!("{}", 1_000_000_000 + std::process::id());
    let start =
        |name: &str| Sleeper::start(Command::new(name).arg("60").env("SLURM_JOB_ID", &job).stdin(Stdio::null()));
    let sleeper = start("sleep");
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let (code, said, _) = joulepoint(&["--json", &job]);
        if code == Some(0) && said["pids"] == serde_json::json!([sleeper.0.id()]) {
            break;
        }
        assert!(Instant::now() < limit, "{said}");
    }
}

#[test]
fn wrong_usage_is_told() {
    for (args, word) in [
        (&["4294967295"][..], "srun --overlap"),
        (&["--", "2147483647"], "no process 2147483647"),
        (&[], "JOB"),
        (&["heat"], "heat"),
        (&["7", "--", "8"], "cannot be used"),
    ] {
        let (code, _, text) = joulepoint(args);
        assert_eq!(code, Some(2), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
    }
}

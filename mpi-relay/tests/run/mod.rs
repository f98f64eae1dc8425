//! A run of real relays in a folder of its own, with ranks as threads of the test.
#![allow(dead_code, reason = "each test file uses a part of it")]

use mpi_relay::status::Status;
use mpi_relay::{Client, Envelope, Error};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// For anything that should happen.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A log may be so much longer than it should be, bytes: what a rank holds by itself, or a few readings bring.
pub const BEYOND_BYTES: u64 = 17_000_000;

/// A relay that does not outlive the test.
pub struct Process(Child);

impl Process {
    pub fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited for");
    }

    pub fn ended(&mut self) -> Option<bool> {
        self.0.try_wait().expect("waited for").map(|s| s.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub struct Run {
    pub folder: tempfile::TempDir,
    pub ranks: &'static str,
    pub log: &'static str,
}

impl Run {
    pub fn new(ranks: &'static str, log: &'static str) -> Run {
        Run { folder: tempfile::tempdir().expect("a folder"), ranks, log }
    }

    pub fn groups(&self) -> usize {
        self.ranks.split('/').count()
    }

    pub fn world(&self) -> usize {
        mpi_relay::Layout::parse(self.ranks).expect("a layout").world()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn relay(&self, group: usize) -> Process {
        self.relay_with(group, &[])
    }

    pub fn relay_with(&self, group: usize, more: &[&str]) -> Process {
        let errors = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{group}.err")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-mpi-relay"));
        command.args(["serve", "--group", &group.to_string(), "--groups", &self.groups().to_string()]);
        command.args(["--ranks", self.ranks, "--log", self.log, "--listen", "127.0.0.1:0"]);
        command.arg("--run").arg(self.folder.path()).args(more);
        Process(command.stderr(errors.expect("a file")).spawn().expect("a relay"))
    }

    pub fn relays(&self) -> Vec<Process> {
        let relays = (0..self.groups()).map(|g| self.relay(g)).collect();
        (0..self.groups()).for_each(|g| drop(wait_for("a relay", || self.status(g))));
        relays
    }

    pub fn ask(&self, what: &str, group: usize, more: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-mpi-relay"));
        command.arg(what).arg("--run").arg(self.folder.path()).args(["--group", &group.to_string()]).args(more);
        command.output().expect("an answer")
    }

    pub fn order(&self, what: &str, group: usize, more: &[&str]) {
        let output = self.ask(what, group, more);
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
    }

    pub fn status(&self, group: usize) -> Option<Status> {
        serde_json::from_slice(&self.ask("status", group, &[]).stdout).ok()
    }

    pub fn errors(&self, group: usize) -> String {
        fs::read_to_string(self.path(&format!("{group}.err"))).unwrap_or_default()
    }

    pub fn socket(&self, group: usize) -> PathBuf {
        self.path(&format!("relays/{group}.sock"))
    }

    pub fn client(&self, rank: u32) -> Client {
        let layout = mpi_relay::Layout::parse(self.ranks).expect("a layout");
        let group = layout.group_of(rank as usize).expect("a group");
        Client::connect(&self.socket(group), rank, self.world()).expect("joined")
    }
}

pub fn letter(source: u32, tag: i32) -> Envelope {
    Envelope { source, context: 77, tag, comm_source: source, kind: 1, sync: 0 }
}

/// Waits for the next message.
pub fn next(client: &Client) -> Result<(Envelope, Vec<u8>), Error> {
    let start = Instant::now();
    loop {
        if let Some((envelope, body)) = client.receive()? {
            return Ok((envelope, body.to_vec()));
        }
        assert!(start.elapsed() < PATIENCE, "no message came");
        client.wait(Duration::from_secs(5))?;
    }
}

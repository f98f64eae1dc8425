//! A run of real relays and real programs in a folder of its own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use mlog::Status;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// For anything that should happen.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A relay or a program that does not outlive the test.
pub struct Process(Child);

impl Process {
    pub fn kill(&mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("waited for");
    }

    pub fn ended(&mut self) -> Option<bool> {
        self.0.try_wait().expect("waited for").map(|s| s.success())
    }

    pub fn code(&mut self) -> Option<i32> {
        wait_for("the end of a program", || self.0.try_wait().expect("waited for")).code()
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as i32), signal).expect("signalled");
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
    pub groups: usize,
    pub log: &'static str,
}

impl Run {
    pub fn new(groups: usize, log: &'static str) -> Run {
        Run { folder: tempfile::tempdir().expect("a folder"), groups, log }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn relay(&self, group: usize) -> Process {
        self.relay_with(group, &[])
    }

    pub fn relay_with(&self, group: usize, more: &[&str]) -> Process {
        let errors = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{group}.err")));
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-relay"));
        command.args(["serve", "--group", &group.to_string(), "--groups", &self.groups.to_string()]);
        command.arg("--run").arg(self.folder.path()).args(["--log", self.log, "--listen", "127.0.0.1:0"]).args(more);
        Process(command.stderr(errors.expect("a file")).spawn().expect("a relay"))
    }

    pub fn relays(&self) -> Vec<Process> {
        (0..self.groups).map(|g| self.relay(g)).collect()
    }

    pub fn ask(&self, what: &str, group: usize, more: &[&str]) -> std::process::Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-relay"));
        command.arg(what).arg("--run").arg(self.folder.path()).args(["--group", &group.to_string()]).args(more);
        command.output().expect("an answer")
    }

    /// What a relay that runs says of itself; a busy one may need a second question.
    pub fn known(&self, group: usize) -> Status {
        wait_for("a status", || self.status(group))
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

    pub fn stencil(&self, group: usize, more: &[&str]) -> Process {
        let mut command = Command::new(stencil());
        command.args(["--group", &group.to_string(), "--dir"]).arg(self.folder.path()).args(more);
        self.spawn(&mut command, group)
    }

    pub fn spawn(&self, command: &mut Command, group: usize) -> Process {
        let errors = fs::OpenOptions::new().create(true).append(true).open(self.path(&format!("{group}.program")));
        command.env("FT_ENERGY_RELAY", self.socket(group)).env("FT_ENERGY_RELAY_WAIT", "60");
        command.stdout(Stdio::null()).stderr(errors.expect("a file"));
        Process(command.spawn().expect("a program"))
    }

    /// The results of all groups, once they are there.
    pub fn results(&self) -> Vec<String> {
        (0..self.groups).map(|g| fs::read_to_string(self.path(&format!("{g}.out"))).expect("a result")).collect()
    }

    pub fn has_checkpoint(&self, group: usize) -> Option<()> {
        self.path(&format!("{group}.ckpt")).exists().then_some(())
    }
}

/// Folder and newest file of the static library that belongs to this test.
fn library() -> PathBuf {
    let built = Path::new(env!("CARGO_BIN_EXE_joulepoint-relay")).parent().expect("a folder");
    let candidates =
        [built.to_path_buf(), built.join("deps")].into_iter().flat_map(|f| fs::read_dir(f).expect("a folder"));
    let libraries = candidates.flatten().map(|e| e.path()).filter(|p| {
        let name = p.file_name().and_then(|n| n.to_str()).unwrap_or("");
        name.starts_with("libmlog") && name.ends_with(".a")
    });
    libraries.max_by_key(|p| p.metadata().and_then(|m| m.modified()).expect("a time")).expect("libmlog.a")
}

/// Builds the C program in the way its Makefile does, and gives its path.
pub fn build(target: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../apps/stencil");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    fs::copy(library(), folder.join("libmlog.a")).expect("a copy");
    let mut make = Command::new("make");
    make.arg("-C").arg(source).arg(format!("BUILD={}", folder.display())).arg(format!("MLOG={}", folder.display()));
    let output = make.arg(folder.join(target)).output().expect("make");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::remove_file(folder.join("libmlog.a")).expect("removed");
    folder.join(target)
}

fn stencil() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build("stencil"))
}

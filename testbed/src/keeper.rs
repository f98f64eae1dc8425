//! Holds the namespaces that end with the caller: one for all, and one inside it for each node.

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A set of namespaces and the first process in it; its death is the death of all.
#[derive(Debug)]
pub struct Namespace {
    /// `unshare`, or the `nsenter` around it.
    outer: Child,
    /// The first process of the PID namespace, as seen from here.
    pub init: Pid,
    /// Which namespaces programs enter, as words for `nsenter`.
    entered: &'static [&'static str],
    /// What a shell does there before it becomes the program; nothing, if empty.
    entry: String,
}

/// The namespaces of a cluster or of hosts.
const SHARED: [&str; 4] = ["--pid", "--mount", "--uts", "--net"];
/// A node has its own clock and its own System V memory, too.
const OF_NODE: [&str; 6] = ["--pid", "--mount", "--uts", "--net", "--ipc", "--time"];

/// Longest wait for a process that was killed.
const GONE: Duration = Duration::from_secs(5);

/// A program that runs inside a namespace.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The `nsenter` that waits for it.
    outer: Child,
    /// The program itself, as seen from here.
    pub(crate) pid: Pid,
    pub(crate) what: String,
    log: PathBuf,
}

impl Namespace {
    /// The cluster's own: ends as soon as the pipe that this value holds is closed, even by our SIGKILL; then a shell
    /// outside runs `after`. `place` puts the command where it belongs.
    pub(crate) fn cluster(
        place: impl FnOnce(&mut Command) -> Result<()>,
        setup: &str,
        after: &str,
        log: &Path,
    ) -> Result<Namespace> {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("\"$@\"\n{after}"), "keeper", "unshare"]);
        place(&mut command)?;
        Namespace::launch(held(command, &[], setup), 2, &SHARED, log)
    }

    /// Namespaces that end with this value, or with the process that holds it; `more` of them, such as `--net`.
    ///
    /// # Errors
    /// What the shell commands of `setup` wrote to `log`, or that namespaces cannot be made here.
    pub fn outermost(more: &[&str], setup: &str, log: &Path) -> Result<Namespace> {
        Namespace::launch(held(Command::new("unshare"), more, setup), 1, &SHARED, log)
    }

    /// A node's, inside the cluster's, whose clocks count from now. `place` puts it into its network; a shell runs `entry`
    /// before everything that runs there.
    pub(crate) fn node(
        &self,
        place: impl FnOnce(&mut Command) -> Result<()>,
        entry: String,
        setup: &str,
        log: &Path,
    ) -> Result<Namespace> {
        let script = format!("set -e\n{entry}\n{setup}\necho ready\nwhile :; do sleep 3600; done\n");
        let before_s = uptime_s()?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string(), "--pid", "--mount", "--", "unshare"]);
        command.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts", "--ipc", "--time"]);
        command.arg(format!("--boottime=-{before_s}")).arg(format!("--monotonic=-{before_s}"));
        command.args(["sh", "-c", &script]).stdin(Stdio::null());
        place(&mut command)?;
        let mut node = Namespace::launch(command, 2, &OF_NODE, log)?;
        node.entry = entry;
        Ok(node)
    }

    /// A namespace inside this one: `program` becomes an `unshare --fork`, whose first process says `ready`.
    ///
    /// # Errors
    /// That it did not; its words are in `log`.
    pub fn inside(&self, program: &str, args: &[&str], log: &Path) -> Result<Namespace> {
        let mut command = self.enter(program);
        command.args(args).stdin(Stdio::null());
        Namespace::launch(command, 2, &SHARED, log)
    }

    /// Starts `command` and follows its only child `depth` times to the first process of the new namespace.
    fn launch(mut command: Command, depth: u32, entered: &'static [&'static str], log: &Path) -> Result<Namespace> {
        command.stdout(Stdio::piped()).stderr(append(log)?).process_group(0);
        let mut outer = command.spawn().context("unshare")?;
        let mut said = [0; 6];
        let answered = outer.stdout.take().map(|mut out| out.read_exact(&mut said));
        if !matches!(answered, Some(Ok(()))) || &said != b"ready\n" {
            let _ = killpg(pid_of(&outer), Signal::SIGKILL);
            let _ = outer.wait();
            bail!("a namespace could not be made; see {}", log.display());
        }
        let mut pid = pid_of(&outer);
        for _ in 0..depth {
            pid = only_child(pid)?;
        }
        Ok(Namespace { outer, init: pid, entered, entry: String::new() })
    }

    /// A command that will run `program` inside these namespaces.
    pub(crate) fn enter(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.init.to_string()]).args(self.entered).arg("--");
        if !self.entry.is_empty() {
            command.args(["sh", "-c", &format!("{} && exec \"$0\" \"$@\"", self.entry)]);
        }
        command.arg(program);
        command
    }

    /// Starts a daemon inside, its output appended to `log`.
    pub(crate) fn spawn(&self, argv: &[String], env: &[(String, String)], log: &Path) -> Result<Daemon> {
        let (program, args) = argv.split_first().context("an empty command")?;
        let mut command = self.enter(program);
        command.args(args).envs(env.iter().cloned());
        command.stdin(Stdio::null()).stdout(append(log)?).stderr(append(log)?).process_group(0);
        let outer = command.spawn().with_context(|| format!("nsenter {program}"))?;
        let pid = only_child(pid_of(&outer)).with_context(|| format!("{program}; see {}", log.display()))?;
        Ok(Daemon { outer, pid, what: program.clone(), log: log.to_path_buf() })
    }

    /// Whether the first process still runs.
    pub fn alive(&self) -> bool {
        runs(&self.outer)
    }

    /// Host pids of all processes in the PID namespace.
    pub(crate) fn pids(&self) -> Result<Vec<i32>> {
        let ours = pid_namespace(self.init.as_raw()).context("the node is dead")?;
        let mut pids = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            if pid_namespace(pid).as_ref() == Some(&ours) {
                pids.push(pid);
            }
        }
        Ok(pids)
    }

    /// The power cut: returns when every process inside is gone, as [`gone`] says.
    pub fn kill(&mut self) {
        // The first process can be reaped, and its number reused, only after `outer` ended.
        if self.alive() {
            let _ = kill(self.init, Signal::SIGKILL);
        }
        gone(&mut self.outer);
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Daemon {
    /// Whether it still runs.
    pub(crate) fn alive(&self) -> bool {
        runs(&self.outer)
    }

    /// An error if it ended, for waits that would wait in vain.
    pub(crate) fn check(&self) -> Result<()> {
        if self.alive() {
            return Ok(());
        }
        bail!("{} ended by itself; see {}", self.what, self.log.display())
    }

    /// SIGKILL of this process alone; returns when it is gone.
    pub(crate) fn kill(&mut self) {
        let _ = self.signal(Signal::SIGKILL);
        self.reap();
    }

    /// A signal to this process alone; to none, if it has ended.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        self.check()?;
        Ok(kill(self.pid, signal)?)
    }

    /// SIGSTOP to this process alone. Its `nsenter` stops itself, too: that is waited for, so that a SIGCONT finds it.
    pub(crate) fn stop(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while state(pid_of(&self.outer))? != 'T' {
            self.check()?;
            if Instant::now() > deadline {
                bail!("{} does not stop", self.what);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// SIGCONT to this process alone.
    pub(crate) fn go_on(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        Ok(kill(pid_of(&self.outer), Signal::SIGCONT)?)
    }

    /// Waits for a daemon whose namespace was killed.
    pub(crate) fn reap(&mut self) {
        gone(&mut self.outer);
    }
}

/// Waits for a process that was killed. One that waits for a storage that hangs stays as long as it hangs, and runs nothing
/// more: it is not waited for.
fn gone(killed: &mut Child) {
    let until = Instant::now() + GONE;
    while matches!(killed.try_wait(), Ok(None)) && Instant::now() < until {
        // An `nsenter` stops with what it waits for, and maybe only now.
        let _ = kill(pid_of(killed), Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The letter of a process's state (proc(5)).
fn state(pid: Pid) -> Result<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).with_context(|| format!("process {pid}: {stat:?}"))
}

/// Lets `command` end with `unshare`'s words: its first process lives until our end of a pipe is closed.
fn held(mut command: Command, more: &[&str], setup: &str) -> Command {
    // `cat` ends when our end of the pipe is gone; meanwhile the shell reaps orphans, as an init must.
    let script = format!("set -e\n{setup}\necho ready\ncat >/dev/null\n");
    command.args(["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--uts"]).args(more);
    command.args(["sh", "-c", &script]).stdin(Stdio::piped());
    command
}

/// Seconds since this machine was started.
fn uptime_s() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    let whole = text.split('.').next().unwrap_or_default();
    whole.parse().with_context(|| format!("/proc/uptime says {text:?}"))
}

/// Looks without reaping: the number stays ours until the value is dropped or waited for.
fn runs(child: &Child) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    matches!(waitid(Id::Pid(pid_of(child)), flags), Ok(WaitStatus::StillAlive))
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

fn pid_namespace(pid: i32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// The one child of `pid`, as soon as it has one.
fn only_child(pid: Pid) -> Result<Pid> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        let Ok(children) = std::fs::read_to_string(&path) else {
            break;
        };
        if let Some(child) = children.split_whitespace().next() {
            return Ok(Pid::from_raw(child.parse()?));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    bail!("process {pid} started nothing")
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().create(true).append(true).open(path).with_context(|| path.display().to_string())
}

//! Holds a network namespace by a descriptor, so that it ends with the process that made it, and runs commands in it.

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns, unshare};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// A network namespace that lives as long as this value, or anything that runs in it.
#[derive(Clone, Debug)]
pub(crate) struct NetNs(Arc<File>);

impl NetNs {
    /// A new one, with nothing in it but a loopback interface that is down.
    pub(crate) fn new() -> Result<NetNs> {
        // Only the thread that asks for it moves there.
        let made = std::thread::spawn(|| -> Result<File> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open("/proc/thread-self/ns/net")?)
        });
        let file = made.join().map_err(|_| anyhow::anyhow!("the thread of a network namespace panicked"))?;
        Ok(NetNs(Arc::new(file.context("a network namespace")?)))
    }

    /// A path of it for other programs, as long as this process lives.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd()))
    }

    /// Lets a command run here.
    pub(crate) fn enter(&self, command: &mut Command) {
        let file = self.0.clone();
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(move || Ok(setns(file.as_fd(), CloneFlags::CLONE_NEWNET)?));
        }
    }

    /// Runs `f` here: sockets that it opens stay here.
    pub(crate) fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        let inside = || -> Result<T> {
            setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(f())
        };
        let joined = std::thread::scope(|scope| scope.spawn(inside).join());
        joined.map_err(|panic| std::panic::resume_unwind(panic)).and_then(|result| result)
    }

    /// Runs a program here that reads what it has to do from its standard input.
    pub(crate) fn feed(&self, argv: &[&str], text: &str) -> Result<()> {
        let mut command = Command::new(argv[0]);
        command.args(&argv[1..]);
        self.enter(&mut command);
        feed(command, text)
    }

    /// Lines for `ip`, one call each.
    pub(crate) fn ip(&self, lines: &str) -> Result<()> {
        self.feed(&["ip", "-batch", "-"], lines)
    }
}

/// Runs a command with `text` as its standard input.
pub(crate) fn feed(mut command: Command, text: &str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{name} (packaging/test-packages.sh has it)"))?;
    // One that ends early is asked for its reason below.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{name}: {}\n{text}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

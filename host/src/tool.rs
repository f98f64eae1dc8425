//! Commands of engines, each bounded in time: one that hangs is killed with its whole process group.

use crate::processes;
use crate::supervise::unblocked;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at a command that runs.
const LOOK: Duration = Duration::from_millis(50);

/// A program of the `PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let runs = |p: &PathBuf| p.is_file() && nix::unistd::access(p, nix::unistd::AccessFlags::X_OK).is_ok();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs)
}

/// Runs a command to its end and gives what it printed.
///
/// # Errors
/// A sentence: it could not be started, failed, or took longer than `limit`.
pub fn output(command: &mut Command, limit: Duration) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let spawned = unblocked(command).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0).spawn();
    let mut child = spawned.map_err(|e| format!("{name}: {e}"))?;
    let printed = child.stdout.take().map(|mut pipe| {
        threads::start(move || {
            let mut text = Vec::new();
            // What could not be read is not there.
            let _ = pipe.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    finish(child, &name, limit, || true)?;
    Ok(printed.and_then(|p| p.join().ok()).unwrap_or_default())
}

/// Runs a command to its end.
///
/// # Errors
/// A sentence: it could not be started, failed, took longer than `limit`, or was not wanted any more.
pub fn run(command: &mut Command, name: &str, limit: Duration, wanted: impl Fn() -> bool) -> Result<(), String> {
    let child = unblocked(command).process_group(0).spawn().map_err(|e| format!("'{name}': {e}"))?;
    finish(child, name, limit, wanted)
}

fn finish(mut child: Child, name: &str, limit: Duration, wanted: impl Fn() -> bool) -> Result<(), String> {
    let started = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("'{name}' ended with {status}")),
            Ok(None) if started.elapsed() < limit && wanted() => thread::sleep(LOOK),
            Ok(None) => {
                processes::signal(-(child.id() as i32), libc::SIGKILL);
                let _ = child.wait();
                return Err(format!("'{name}' was ended after {:.0} s", started.elapsed().as_secs_f64()));
            }
            Err(e) => return Err(format!("'{name}': {e}")),
        }
    }
}

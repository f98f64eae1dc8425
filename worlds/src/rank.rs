//! Stands before a rank whose launcher does not tell how the ranks have ended: Hydra gives a mixture of the codes of all of
//! them, and of the signals by which it ended the others.

use criu::task::{FIRST_FAILED, RANKS_FOLDER};
use host::supervise::{exit_code, unblocked};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Signals of which Hydra would die, though it is the ranks that they are for: it ignores them, and the ranks do not.
const DEADLY: [Signal; 2] = [Signal::SIGHUP, Signal::SIGUSR2];

/// Has a command begin with them handled so.
pub(crate) fn handle_deadly(command: &mut Command, by: SigHandler) {
    // SAFETY: only system calls, and before exec.
    unsafe {
        command.pre_exec(move || {
            DEADLY.iter().try_for_each(|deadly| signal(*deadly, by).map(drop).map_err(io::Error::from))
        });
    }
}

/// Runs a rank, and says why if it cannot; its exit code.
pub fn stand_before(command: &[OsString]) -> i32 {
    run(command, Path::new(RANKS_FOLDER)).unwrap_or_else(|e| {
        let name = command.first().map(|name| name.to_string_lossy()).unwrap_or_default();
        protocol::say!("joulepoint: {name}: {e}");
        127
    })
}

/// Runs a rank, and tells its exit code, which the first of them that fails leaves in this folder of the sandbox. While it
/// runs, a file there is called after its process id: signals for ranks go to those processes.
fn run(command: &[OsString], folder: &Path) -> io::Result<i32> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    // The launcher signals a rank by its process group, to which this process belongs.
    SigSet::all().thread_block()?;
    let mut command = Command::new(program);
    handle_deadly(&mut command, SigHandler::SigDfl);
    let mut child = unblocked(command.args(arguments)).spawn()?;
    let pid = folder.join(child.id().to_string());
    // Where memory is full, the rank runs all the same.
    let _ = fs::create_dir_all(folder).and_then(|()| fs::write(&pid, ""));
    let code = exit_code(child.wait()?);
    let _ = fs::remove_file(pid);
    if code != 0 {
        let _ = File::create_new(folder.join(FIRST_FAILED)).and_then(|mut first| writeln!(first, "{code}"));
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(line: &str, folder: &Path) -> i32 {
        run(&["sh", "-c", line].map(OsString::from), folder).unwrap()
    }

    #[test]
    fn a_rank_that_was_killed_is_told_from_one_that_ended_with_a_code() {
        let dir = tempfile::tempdir().unwrap();
        for (line, code, said) in [("exit 0", 0, None), ("exit 9", 9, Some("9\n")), ("kill -9 $$", 137, Some("137\n"))]
        {
            let folder = dir.path().join(line);
            assert_eq!(rank(line, &folder), code, "{line}");
            let first = || fs::read_to_string(folder.join(FIRST_FAILED)).ok();
            assert_eq!(first().as_deref(), said, "{line}");
            rank("exit 77", &folder);
            assert_eq!(first().as_deref(), said.or(Some("77\n")), "only the first counts");
        }
    }

    #[test]
    fn a_rank_is_known_by_its_process_and_gets_signals_that_its_launcher_does_not() {
        let dir = tempfile::tempdir().unwrap();
        // A launcher that blocks signals, and ignores others.
        SigSet::all().thread_block().unwrap();
        let line = format!("[ -e '{}'/$$ ] || exit 4; kill -USR1 $$; exit 5", dir.path().display());
        assert_eq!(rank(&format!("sleep 0.2; {line}"), dir.path()), 128 + libc::SIGUSR1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a process that has ended is no rank");
    }
}

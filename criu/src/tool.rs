//! The command lines of CRIU, and why one of them failed.

use crate::marks::Of;
use crate::sandbox::{all_descriptors, keep_number, unblock_signals};
use crate::task::Task;
use able::limits;
use able::unpatched::{self, Lost};
use nix::sys::signal::{SigHandler, Signal, signal};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// Folder of the images within a checkpoint's folder.
pub const IMAGES: &str = "images";

/// Largest deleted file that goes into the images, bytes.
const GHOST_BYTES: u64 = 1 << 30;

/// Longest time to bring all threads to a stop, s.
const FREEZE_LIMIT_S: u32 = 60;

/// The script that CRIU runs at each stage of a dump. A file, since CRIU's option takes no arguments; CRIU has closed
/// all other descriptors, so the pipes are reached through `/proc` of the sandbox's first process.
const HOOK: &str = "#!/bin/sh
[ \"$CRTOOLS_SCRIPT_ACTION\" = post-dump ] || exit 0
echo >/proc/1/fd/$JOULEPOINT_FROZEN
read -r word </proc/1/fd/$JOULEPOINT_THAW
[ \"$word\" = go ]
";

/// Whether CRIU is one that `packaging/criu.sh` has built with our patch: the script says so beside it, with its number.
pub fn is_patched(criu: &Path) -> bool {
    patch(criu) >= unpatched::KEEPS_FILES
}

/// Refuses a program of which this CRIU would lose something that our patch keeps; `tree` finds its processes.
///
/// # Errors
/// What it would lose.
pub fn refuse_lost(criu: &Path, tree: impl FnOnce() -> Vec<i32>) -> Result<(), Lost> {
    unpatched::refuse_lost(patch(criu), tree)
}

/// The number of the patch with which CRIU was built; 0 if with none.
fn patch(criu: &Path) -> u32 {
    let real = fs::canonicalize(criu).unwrap_or_else(|_| criu.to_path_buf());
    let number = fs::read_to_string(real.with_file_name("root").join("patch")).unwrap_or_default();
    number.trim().parse().unwrap_or(0)
}

/// Makes a dump of the tree of `pid` into `folder`, while the program stays; the caller's pipes `frozen` and `thaw` are
/// written to and read from meanwhile.
///
/// # Errors
/// What the file system says.
pub fn dump(task: &Task, pid: i32, folder: &Path, frozen: RawFd, thaw: RawFd) -> io::Result<Command> {
    let hook = hook(folder);
    OpenOptions::new().write(true).create_new(true).mode(0o700).open(&hook)?.write_all(HOOK.as_bytes())?;
    let mut command = base(task, "dump", folder, "dump.log");
    command
        .args(["--tree", &pid.to_string(), "--leave-running", "--ghost-limit", &GHOST_BYTES.to_string()])
        .args(["--timeout", &FREEZE_LIMIT_S.to_string(), "--action-script"])
        .arg(hook)
        .env("JOULEPOINT_FROZEN", frozen.to_string())
        .env("JOULEPOINT_THAW", thaw.to_string());
    // A write beyond the file size limit that `hinder` sets must be an error, not a death. Slurm sends a user's
    // signals to all processes.
    let unheeded = [
        Signal::SIGXFSZ,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    // SAFETY: system calls between fork and exec.
    unsafe {
        command.pre_exec(move || Ok(unheeded.iter().try_for_each(|s| signal(*s, SigHandler::SigIgn).map(drop))?))
    };
    Ok(command)
}

/// Makes a CRIU that dumps into `folder` fail at its next write or its next image.
pub fn hinder(criu: i32, folder: &Path) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both pointers are good for the call, and the limit is that of another process.
    unsafe { libc::prlimit(criu, libc::RLIMIT_FSIZE, &none, std::ptr::null_mut()) };
    let images = folder.join(IMAGES);
    // In a thread, so that a hanging file system does not block us.
    let _ = thread::Builder::new().spawn(move || fs::remove_dir_all(images));
}

/// The path of the hook script; useless after the dump.
pub fn hook(folder: &Path) -> PathBuf {
    folder.join("hook")
}

/// Restores what is in `folder`; each pipe of the program's output is replaced by another one.
pub fn restore(task: &Task, folder: &Path, pipes: &[(u64, OwnedFd)]) -> Command {
    let mut command = base(task, "restore", folder, "restore.log");
    command.arg("--restore-detached");
    // SAFETY: system calls between fork and exec.
    unsafe { command.pre_exec(keep_number) };
    for (inode, write_end) in pipes {
        command.args(["--inherit-fd", &format!("fd[{}]:pipe:[{inode}]", write_end.as_raw_fd())]);
    }
    command
}

fn base(task: &Task, verb: &str, folder: &Path, log: &str) -> Command {
    let mut command = Command::new(&task.criu);
    command
        .args([verb, "--unprivileged", "--manage-cgroups=ignore", "--file-locks"])
        // Without --ext-unix-sk, which would dump sockets that cannot be restored.
        .args(["--network-lock", "skip", "-v1", "--images-dir"])
        .arg(folder.join(IMAGES))
        // A folder without plugins: the one for NVIDIA's GPUs needs root, and what it does is done by us.
        .arg("--libdir")
        .arg(folder.join(IMAGES))
        .args(["--log-file", log])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if task.own_network {
        command.arg("--tcp-established");
    }
    // SAFETY: system calls between fork and exec.
    unsafe { command.pre_exec(|| unblock_signals().and_then(|()| all_descriptors())) };
    command
}

/// Why CRIU failed, by its log, with a cure where one is known.
pub fn reason(folder: &Path, log: &str) -> String {
    explain(&errors(&read(folder, log)))
}

/// What CRIU says where the node is to blame for a restore that failed, and what helps.
const OF_NODE: [(&[&str], &str); 3] = [
    (
        &["): cpu: ", "FPU feature", "instruction capabilities"],
        "the CPU of this node is of another kind than the one on which the program began; it goes on where it is of the same \
         (scontrol update JobId=JOB Features=...)",
    ),
    (&["Cannot allocate memory"], "this node, or the memory limit of the job, has too little room for it now"),
    (
        &["No space left", "Disk quota exceeded", "Input/output error", "Stale file handle"],
        "a storage that it needs is full, or fails, on this node",
    ),
];

/// Why CRIU could not restore what is in a folder, with a cure where one is known, and what is to blame.
pub(crate) fn not_restored(folder: &Path) -> (String, Of) {
    blamed(&errors(&read(folder, "restore.log")))
}

fn blamed(said: &[&str]) -> (String, Of) {
    let shows = |signs: &[&str]| signs.iter().any(|sign| said.iter().any(|line| line.contains(sign)));
    let of_node = OF_NODE.iter().find(|(signs, _)| shows(signs));
    match of_node {
        _ if limits::of_log(said) == Some(limits::TAKEN) => (explain(said), Of::Taken),
        Some((_, cure)) => (format!("{}: {cure}", plain(said)), Of::Node),
        None => (explain(said), Of::Unclear),
    }
}

fn read(folder: &Path, log: &str) -> String {
    let text = fs::read(folder.join(IMAGES).join(log)).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

fn errors(log: &str) -> Vec<&str> {
    // CRIU prints these two whenever it has no privilege; they mean nothing.
    let noise = |l: &str| l.contains("rlimit: Can't setup") || l.contains("net: Unexpected error");
    log.lines().filter(|l| l.contains("Error (") && !noise(l)).collect()
}

fn explain(said: &[&str]) -> String {
    match limits::of_log(said) {
        Some(limit) => format!("{}: {}", plain(said), limit.cure),
        None => plain(said),
    }
}

/// The first error in CRIU's own words.
fn plain(said: &[&str]) -> String {
    let Some(first) = said.first() else { return "criu left no reason in its log".to_string() };
    format!("criu: {}", first.split_once("): ").map_or(*first, |(_, rest)| rest).trim())
}

/// Time for which a dump made the program stand still, s, as CRIU's own `stats-dump` tells it; 0 if it does not.
pub fn frozen_s(folder: &Path) -> f64 {
    let image = fs::read(folder.join(IMAGES).join("stats-dump")).unwrap_or_default();
    frozen_us(&image).map_or(0.0, |us| us as f64 / 1e6)
}

/// Field 2, `frozen_time`, of the message `dump_stats_entry` in field 1 of `stats_entry` (CRIU's images/stats.proto),
/// after two magic numbers and a length of four bytes each.
fn frozen_us(image: &[u8]) -> Option<u64> {
    let field = |bytes: &[u8], wanted: u64| -> Option<(u64, usize)> {
        let mut at = 0;
        while at < bytes.len() {
            let key = varint(bytes, &mut at)?;
            let value = varint(bytes, &mut at)?;
            if key >> 3 == wanted {
                return Some((value, at));
            }
            // Wire type 2 has a length; the other fields here are plain numbers (protobuf).
            at += if key & 7 == 2 { value as usize } else { 0 };
        }
        None
    };
    let message = image.get(12..)?;
    let (length, at) = field(message, 1)?;
    let (frozen_us, _) = field(message.get(at..at + length as usize)?, 2)?;
    Some(frozen_us)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The CRIU to use: the site's, or the first one on `PATH` or in a system folder.
///
/// # Errors
/// A sentence.
pub fn find(named: Option<&Path>, path: Option<OsString>) -> Result<PathBuf, String> {
    if let Some(named) = named {
        let there = named.is_file().then(|| named.to_path_buf());
        return there.ok_or_else(|| format!("{} is not there ([criu] command)", named.display()));
    }
    let folders = path.unwrap_or_default();
    let system = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    let found = std::env::split_paths(&folders).chain(system).map(|f| f.join("criu")).find(|c| c.is_file());
    found.ok_or_else(|| "there is no criu on PATH; install it, or name it as [criu] command".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_that_means_something_is_told_with_its_cure() {
        let log = "(00.01) Error (criu/net.c:1253): net: Unexpected error: -1(Operation not permitted)\n\
                   (00.02) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self\n\
                   (00.02) Error (criu/files-reg.c:1790): Can't lookup mount=24 for fd=10 path=/dev/null\n\
                   (00.03) Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
        let text = explain(&errors(log));
        assert!(text.starts_with("criu: Can't lookup mount=24 for fd=10 path=/dev/null: a file was opened"), "{text}");
        assert_eq!(explain(&errors("(00.1) Warn (x): y")), "criu left no reason in its log");
    }

    #[test]
    fn what_the_node_lacks_is_told_from_what_may_be_wrong_with_an_image() {
        for (line, of, told) in [
            ("(00.1) Error (criu/cpu.c:1): cpu: capabilities do not match run time", Of::Node, "Features"),
            ("(00.1) Error (criu/pie/restorer.c:1): Can't map: Cannot allocate memory", Of::Node, "memory limit"),
            ("(00.1) Error (criu/files-reg.c:1): Can't open ghost: No space left on device", Of::Node, "storage"),
            ("(00.1) Error (criu/sk-inet.c:1): inet: Can't bind: Address already in use", Of::Taken, "port"),
            ("(00.1) Error (criu/cr-restore.c:1): Restoring FAILED.", Of::Unclear, "criu: Restoring FAILED."),
        ] {
            let (reason, found) = blamed(&errors(line));
            assert!(found == of && reason.contains(told), "{found:?} {reason}");
        }
        assert_eq!(blamed(&[]), ("criu left no reason in its log".to_string(), Of::Unclear));
    }

    #[test]
    fn a_patched_criu_is_known_by_the_number_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let criu = dir.path().join("criu");
        assert!(!is_patched(&criu));
        fs::create_dir(dir.path().join("root")).unwrap();
        for (text, number) in [("1", 1), ("2\n", 2), ("3", 3), ("x", 0)] {
            fs::write(dir.path().join("root/patch"), text).unwrap();
            assert_eq!((patch(&criu), is_patched(&criu)), (number, number >= 2), "{text}");
        }
    }

    #[test]
    fn a_command_that_the_site_names_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let criu = dir.path().join("criu");
        assert!(find(Some(&criu), None).unwrap_err().contains("[criu] command"));
        fs::write(&criu, "").unwrap();
        assert_eq!(find(None, Some(dir.path().into())).unwrap(), criu);
    }
}

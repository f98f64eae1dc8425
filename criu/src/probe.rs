//! Tells whether CRIU works on this machine for this user: by a real dump and restore, never by its version.

use crate::client::{self, Ask};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of each part.
const LIMIT: Duration = Duration::from_secs(20);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// The way sandboxes are made, as a part of the cache's key: another way must be tried anew.
const SANDBOX: &str = "own-numbers";

/// Exit code of the program that is dumped and restored.
const EXIT: i32 = 7;

/// Tells why `criu` cannot be used here, by trying it; what worked once, with this kernel and this very command, is
/// kept in `cache` and not tried again.
///
/// `supervisor` is a command that runs a [`crate::task::Task`], as [`arguments`] writes it.
///
/// # Errors
/// A sentence: CRIU cannot be used, for this reason.
pub fn usable(criu: &Path, supervisor: &dyn Fn() -> Command, cache: &Path) -> Result<(), String> {
    let worked = fingerprint(criu);
    if fs::read_to_string(cache).is_ok_and(|known| known == worked) {
        return Ok(());
    }
    let attempt = || attempt(criu, supervisor, &cache.with_extension(format!("{}.try", std::process::id())));
    // A second try, since the node may have been busy: a job that trusts a wrong answer runs without checkpoints.
    attempt().or_else(|_| attempt())?;
    // Without the cache the next job tries again.
    let _ = fs::write(cache, worked);
    Ok(())
}

fn fingerprint(criu: &Path) -> String {
    let kernel = nix::sys::utsname::uname().map(|u| u.release().to_string_lossy().into_owned()).unwrap_or_default();
    let (size, time) = fs::metadata(criu).map(|m| (m.len(), m.mtime())).unwrap_or_default();
    let user = nix::unistd::getuid();
    format!("{} {size} {time} {kernel} {user} {SANDBOX} {}", criu.display(), env!("CARGO_PKG_VERSION"))
}

/// Arguments of a supervisor, after its subcommand's name.
pub fn arguments(criu: &Path, run: &Path, restore: Option<&Path>, limit_s: f64) -> Vec<std::ffi::OsString> {
    let mut all = vec!["--criu".into(), criu.into(), "--run".into(), run.into()];
    if let Some(folder) = restore {
        all.extend(["--restore".into(), folder.into()]);
    }
    all.extend(["--limit-s".into(), limit_s.to_string().into(), "--".into()]);
    all
}

/// Dumps a small program, kills it, restores it, and asks for its exit code.
fn attempt(criu: &Path, supervisor: &dyn Fn() -> Command, run: &Path) -> Result<(), String> {
    let own = |e: io::Error| format!("{}: {e}", run.display());
    check(criu)?;
    match fs::remove_dir_all(run) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(own(e)),
        _ => fs::DirBuilder::new().mode(0o700).recursive(true).create(run).map_err(own)?,
    }
    let dump = run.join("dump");
    fs::create_dir(&dump).map_err(own)?;
    let result = first(criu, supervisor, run, &dump).and_then(|()| second(criu, supervisor, run, &dump));
    let _ = fs::remove_dir_all(run);
    result
}

fn check(criu: &Path) -> Result<(), String> {
    let child =
        Command::new(criu).args(["check", "--unprivileged"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|e| format!("{}: {e}", criu.display()))?;
    match ended(&mut child)? {
        // Without privilege the verdict of `criu check` is partial: only a crash or a hang counts, and the trial
        // decides.
        code if code < 128 => Ok(()),
        code => Err(format!("'{} check' ended with {code}", criu.display())),
    }
}

fn first(criu: &Path, supervisor: &dyn Fn() -> Command, run: &Path, dump: &Path) -> Result<(), String> {
    let mut child = start(criu, supervisor, run, None)?;
    let socket = run.join("warden.socket");
    let limit = Instant::now() + LIMIT;
    // The program is started after the socket is there, and says so.
    while !(socket.exists() && run.join("running").exists()) {
        if let Ok(Some(status)) = child.try_wait() {
            return Err(format!("the sandbox ended at once ({status}){}", said(run)));
        }
        if Instant::now() > limit {
            stop(&mut child);
            return Err("the sandbox does not start".to_string());
        }
        thread::sleep(LOOK);
    }
    let ask = Ask {
        folder: dump.to_path_buf(),
        limit_s: LIMIT.as_secs_f64(),
        memory_share: 0.5,
        compress: false,
        increments: None,
        overwritten_bytes: 0,
        keeps_leftovers: true,
        tells_going_on: false,
    };
    let dumped = client::dump(run, &ask, || true, || {});
    stop(&mut child);
    dumped.map(drop).map_err(|e| e.to_string())
}

fn second(criu: &Path, supervisor: &dyn Fn() -> Command, run: &Path, dump: &Path) -> Result<(), String> {
    fs::write(run.join("go"), "").map_err(|e| e.to_string())?;
    let mut child = start(criu, supervisor, run, Some(dump))?;
    match ended(&mut child)? {
        EXIT => Ok(()),
        code => Err(format!("a restored program ended with {code} in place of {EXIT}{}", said(run))),
    }
}

fn start(criu: &Path, supervisor: &dyn Fn() -> Command, run: &Path, restore: Option<&Path>) -> Result<Child, String> {
    let script = format!("echo >running; while [ ! -e go ]; do sleep 0.05; done; exit {EXIT}");
    let error = fs::File::create(said_path(run)).map_err(|e| e.to_string())?;
    supervisor()
        .args(arguments(criu, run, restore, LIMIT.as_secs_f64()))
        .args(["/bin/sh", "-c", &script])
        .current_dir(run)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(error)
        .spawn()
        .map_err(|e| e.to_string())
}

fn said_path(run: &Path) -> PathBuf {
    run.join("said")
}

/// What the supervisor wrote to standard error, if anything.
fn said(run: &Path) -> String {
    let text = fs::read_to_string(said_path(run)).unwrap_or_default();
    text.lines().last().map_or_else(String::new, |l| format!(": {}", l.trim_start_matches("joulepoint: ")))
}

fn ended(child: &mut Child) -> Result<i32, String> {
    let limit = Instant::now() + LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.code().unwrap_or(128)),
            Ok(None) if Instant::now() < limit => thread::sleep(LOOK),
            Ok(None) => {
                stop(child);
                return Err(format!("no end within {} s", LIMIT.as_secs()));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}

fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

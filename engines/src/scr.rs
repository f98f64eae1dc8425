//! Engine `scr`: SCR decides in the program, by the interval that it is given; its index tells what is complete.
//!
//! The checkpoint stays where SCR keeps it; ours holds its name. SCR must flush each one to the prefix folder
//! (`SCR_FLUSH=1`), since a cache on a node dies with it.

use driver::ports::{Engine, Happening, Saved, Unprepared};
use host::mail::{Post, Tries, now_s};
use host::tool;
use protocol::Manifest;
use run::{Checkpoints, survey};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use steps::calls::Calls;

/// Longest time of one of SCR's commands.
const LIMIT: Duration = Duration::from_secs(60);

/// Time between two looks at the index.
const WATCH: Duration = Duration::from_secs(1);

/// File of our checkpoint with the name of SCR's.
const NAME: &str = "dataset";

/// The engine.
pub struct Scr {
    post: Post,
    checkpoints: Checkpoints,
    prefix: PathBuf,
    halting: Option<Halting>,
    halted: Arc<AtomicBool>,
    tries: Tries,
    watches: Tries,
}

/// What ends the program with its last checkpoint before the walltime does.
#[derive(Clone, Debug)]
pub struct Halting {
    /// End of the walltime without the margin.
    pub end_s: f64,
    /// Steps that are halted have not ended.
    pub calls: Option<Calls>,
}

impl Scr {
    /// An engine over the prefix folder of the program; it halts the program only if it can be requeued.
    pub fn new(post: Post, checkpoints: Checkpoints, prefix: PathBuf, halting: Option<Halting>) -> Scr {
        let halting = halting.filter(|_| tool::find("scr_halt").is_some());
        Scr {
            post,
            checkpoints,
            prefix,
            halting,
            halted: Arc::default(),
            tries: Tries::default(),
            watches: Tries::default(),
        }
    }

    /// Watches the index, and halts the program when the next checkpoint has to be its last.
    fn watch(&self, interval_s: f64) {
        let (post, prefix, halting) = (self.post.clone(), self.prefix.clone(), self.halting.clone());
        let (watch, halted) = (self.watches.begin(), self.halted.clone());
        halted.store(false, Ordering::SeqCst);
        let mut known = newest(&self.prefix).ok().flatten();
        thread::spawn(move || {
            let (mut seen, mut asked) = (None, false);
            while watch.is_current() {
                let due = halting.as_ref().filter(|h| now_s() >= h.end_s - interval_s);
                if let Some(halting) = due.filter(|_| !std::mem::replace(&mut asked, true)) {
                    // The program may end before the command does.
                    halted.store(true, Ordering::SeqCst);
                    halted.store(halt(halting, &prefix), Ordering::SeqCst);
                }
                let now = fs::metadata(prefix.join(".scr/index.scr")).and_then(|m| m.modified()).ok();
                if now != seen {
                    seen = now;
                    let newest = newest(&prefix).ok().flatten();
                    if newest.is_some() && newest != known {
                        known = newest;
                        post.tell_of(&watch, Happening::Appeared);
                    }
                }
                thread::sleep(WATCH);
            }
        });
    }
}

impl Engine for Scr {
    fn name(&self) -> &str {
        "scr"
    }

    fn on_demand(&self) -> bool {
        false
    }

    fn halted(&self) -> bool {
        self.halted.load(Ordering::SeqCst)
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        if tool::find("scr_halt").is_some() {
            // A halt of the record before, or of SCR_Finalize, would end the program at once.
            let removed = tool::output(Command::new("scr_halt").arg("--remove").arg(&self.prefix), LIMIT);
            removed.map_or_else(|e| tracing::warn!(%e, "an earlier halt may end the program"), drop);
        }
        if let Some(manifest) = from {
            let name =
                fs::read_to_string(self.checkpoints.path(manifest.number).join(NAME)).map_err(|e| e.to_string())?;
            tool::output(index(&self.prefix).arg(format!("--current={name}")), LIMIT)?;
        }
        let left_s = self.halting.as_ref().map_or(f64::INFINITY, |h| h.end_s - now_s());
        let interval_s = interval_s.min(left_s / 2.0).max(1.0);
        self.watch(interval_s);
        let mut environment = vec![("SCR_CHECKPOINT_SECONDS".to_string(), format!("{interval_s:.0}"))];
        let prefix = self.prefix.to_string_lossy().into_owned();
        for (name, value) in [("SCR_PREFIX", prefix), ("SCR_FLUSH", "1".to_string())] {
            if std::env::var_os(name).is_none() {
                environment.push((name.to_string(), value));
            }
        }
        environment.push(("FT_ENERGY_RESTART".to_string(), u8::from(from.is_some()).to_string()));
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        let (post, prefix, one) = (self.post.clone(), self.prefix.clone(), self.tries.begin());
        thread::spawn(move || {
            let named = newest(&prefix).and_then(|n| n.ok_or_else(|| "SCR has no complete checkpoint".to_string()));
            let written = named.and_then(|name| fs::write(into.join(NAME), name).map_err(|e| e.to_string()));
            // SCR has written it, and the program goes on.
            let files = written.and_then(|()| survey(&into).map_err(|e| e.to_string()));
            let saved = files.map(|files| Saved { files, still_s: Some(0.0) });
            post.tell_of(&one, Happening::Checkpointed(saved));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

impl Drop for Scr {
    fn drop(&mut self) {
        self.watches.void();
    }
}

/// Tells SCR to halt the program; whether it will.
fn halt(halting: &Halting, prefix: &Path) -> bool {
    halting.calls.iter().for_each(Calls::close);
    let told = tool::output(Command::new("scr_halt").args(["--checkpoints", "1"]).arg(prefix), LIMIT);
    if let Err(e) = &told {
        tracing::warn!(%e, "the program cannot be halted before the walltime ends");
        halting.calls.iter().for_each(Calls::reopen);
    }
    told.is_ok()
}

fn index(prefix: &Path) -> Command {
    let mut command = Command::new("scr_index");
    command.arg(format!("--prefix={}", prefix.display()));
    command
}

/// The newest checkpoint that is complete and flushed.
fn newest(prefix: &Path) -> Result<Option<String>, String> {
    tool::output(index(prefix).arg("--list"), LIMIT).map(|text| parse_newest(&text))
}

/// Reads `scr_index --list`: number, YES or NO, time of the flush if there was one, a star beside the current one
/// (its column differs between versions of SCR), and the name.
fn parse_newest(text: &str) -> Option<String> {
    let complete = |line: &str| {
        let mut words = line.split_whitespace().filter(|w| *w != "*");
        let number: u64 = words.next()?.parse().ok()?;
        let valid = words.next()? == "YES";
        let flushed = words.next()?;
        let is_time = flushed.len() == 19 && flushed.as_bytes()[10] == b'T';
        let name = words.collect::<Vec<_>>().join(" ");
        (valid && is_time && !name.is_empty()).then_some((number, name))
    };
    text.lines().filter_map(complete).max().map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::ports::Clock;
    use host::mail::{MailClock, queue};

    #[test]
    fn only_complete_and_flushed_checkpoints_of_either_version_count() {
        let of_1 = "   DSET VALID FLUSHED             DIRECTORY\n*    18 YES   2014-01-14T14:23:07 ckpt 18\n     \
            20 NO    2014-01-14T14:25:07 ckpt.20\n     19 YES                       ckpt.19\n";
        let of_3 = "   DSET VALID FLUSHED             CUR NAME\n      6 YES   2026-11-20T10:00:00   * ckpt.6\n      \
            5 YES   2026-11-20T09:00:00     ckpt.5\n";
        assert_eq!(parse_newest(of_1).as_deref(), Some("ckpt 18"));
        assert_eq!(parse_newest(of_3).as_deref(), Some("ckpt.6"));
        assert_eq!(parse_newest("scr_index: no index\n"), None);
    }

    /// An engine over a scripted SCR, whose commands live in a folder that is put into the `PATH`.
    fn engine(halting: Option<Halting>) -> (tempfile::TempDir, Scr, MailClock) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".scr")).unwrap();
        let (post, clock) = queue();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
        let engine = Scr::new(post, checkpoints, dir.path().to_path_buf(), halting);
        (dir, engine, clock)
    }

    #[test]
    fn without_scrs_commands_no_checkpoint_is_claimed() {
        let (dir, mut engine, mut clock) = engine(None);
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        engine.begin(into);
        let said = clock.wait(now_s() + 30.0);
        assert!(matches!(said, Some(Happening::Checkpointed(Err(ref e))) if e.contains("scr_index")), "{said:?}");
        assert!(!engine.on_demand() && !engine.halted());
    }
}

//! Engine `scr`: SCR decides in the program, by the interval that it is given; its log tells what is complete.
//!
//! The checkpoint stays where SCR keeps it; ours holds its name. SCR must flush each one to the prefix folder
//! (`SCR_FLUSH=1`), since a cache on a node dies with it. All is said to SCR by its environment, and none of its commands is
//! needed: a script may load SCR itself.

mod log;

use driver::ports::{Engine, Happening, Kept, NotSaved, Saved, Unprepared};
use host::mail::{Post, Tries, now_s};
use log::Log;
use openfiles::patiently::patiently;
use protocol::Manifest;
use run::{Checkpoints, survey};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use steps::calls::Calls;

/// Time between two looks at the log.
const WATCH: Duration = Duration::from_secs(1);

/// The same when SCR may halt the program: the script must not go on as if that had ended.
const WATCH_HALT: Duration = Duration::from_millis(200);

/// File of our checkpoint with the name of SCR's.
const NAME: &str = "dataset";

/// Exit code that stands for a program that SCR has halted.
const HALTED: i32 = 1;

/// Longest wait for the last flush of a program that SCR has halted.
const LAST_FLUSH: Duration = Duration::from_secs(15);

/// Longest wait for the log where the driver itself waits for it.
const READ_LIMIT: Duration = Duration::from_secs(10);

/// The engine.
pub struct Scr {
    post: Post,
    checkpoints: Checkpoints,
    of: Of,
    halting: Option<Halting>,
    /// Where in the log this start of the program begins, bytes.
    since_bytes: u64,
    tries: Tries,
    watches: Tries,
}

/// Whose log it is.
#[derive(Clone)]
struct Of {
    prefix: PathBuf,
    job: Option<String>,
}

/// What ends the program with its last checkpoint before the walltime does.
#[derive(Clone, Debug)]
pub struct Halting {
    /// End of the walltime without the margin.
    pub end_s: f64,
    /// Steps that are halted have not ended.
    pub calls: Option<Calls>,
}

impl Of {
    /// The log, with all that is there; what is said of the program only from `since_bytes` on.
    fn read(&self, since_bytes: u64) -> io::Result<Log> {
        let mut log = Log::of(&self.prefix, self.job.clone(), since_bytes);
        log.read()?;
        Ok(log)
    }

    /// The same for who must not wait for a storage that hangs.
    fn read_in_time(&self, since_bytes: u64) -> io::Result<Log> {
        let (of, (tell, heard)) = (self.clone(), mpsc::channel());
        threads::start(move || drop(tell.send(of.read(since_bytes))));
        let late = |_| Err(io::Error::new(ErrorKind::TimedOut, "the storage does not answer"));
        heard.recv_timeout(READ_LIMIT).unwrap_or_else(late)
    }
}

impl Scr {
    /// An engine over the prefix folder of the program; it halts the program only if it can be requeued.
    pub fn new(
        post: Post,
        checkpoints: Checkpoints,
        prefix: PathBuf,
        job: Option<u32>,
        halting: Option<Halting>,
    ) -> Scr {
        let of = Of { prefix, job: job.map(|job| job.to_string()) };
        Scr { post, checkpoints, of, halting, since_bytes: 0, tries: Tries::default(), watches: Tries::default() }
    }

    /// Watches the log from now on. `closing_s`: when SCR begins to halt the program at its next checkpoint.
    fn watch(&self, mut log: Log, closing_s: f64) {
        let (post, halting, watch) = (self.post.clone(), self.halting.clone(), self.watches.begin());
        let mut seen = log.newest.clone();
        threads::start(move || {
            let (mut is_closed, mut is_cache_told, mut is_unread) = (false, false, false);
            let mut halted: Option<Instant> = None;
            while watch.is_current() {
                let is_closing = halting.is_some() && now_s() >= closing_s;
                if is_closing && !std::mem::replace(&mut is_closed, true) {
                    halting.iter().filter_map(|halting| halting.calls.as_ref()).for_each(Calls::close);
                }
                let read = log.read();
                match &read {
                    Err(e) if !is_unread => tracing::warn!(%e, "SCR's log cannot be read"),
                    _ => {}
                }
                is_unread = read.is_err();
                if log.newest != seen {
                    seen = log.newest.clone();
                    post.tell_of(&watch, Happening::Appeared);
                }
                if log.is_from_cache() && !std::mem::replace(&mut is_cache_told, true) {
                    protocol::say!(
                        "joulepoint: SCR goes on from its cache on the nodes, from a checkpoint that it has not flushed: \
                         less is computed again than the report says"
                    );
                }
                if log.is_halted && halting.is_some() {
                    let since = *halted.get_or_insert_with(Instant::now);
                    if log.is_flushed() || since.elapsed() > LAST_FLUSH {
                        post.tell_of(&watch, Happening::Exited { code: HALTED });
                        return;
                    }
                }
                thread::sleep(if is_closing { WATCH_HALT } else { WATCH });
            }
        });
    }
}

/// What is said of a log that cannot be read.
fn unread(e: &io::Error) -> String {
    format!("SCR's log: {e}")
}

/// The job's own value of a variable.
fn own(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

impl Engine for Scr {
    fn name(&self) -> &str {
        "scr"
    }

    fn on_demand(&self) -> bool {
        false
    }

    fn halted(&self) -> bool {
        self.halting.is_some() && self.of.read_in_time(self.since_bytes).is_ok_and(|log| log.is_halted)
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        // A halt of the record before would end the program at once.
        let halt = self.of.prefix.join(".scr/halt.scr");
        match fs::remove_file(&halt) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                tracing::warn!(%e, path = %halt.display(), "an earlier halt may end the program");
            }
            _ => {}
        }
        let mut environment: Vec<(String, String)> = Vec::new();
        let mut tell = |name: &str, value: String| environment.push((name.to_string(), value));
        let mut log = patiently(|| self.of.read_in_time(0)).map_err(|e| Unprepared::Storage(unread(&e)))?;
        self.since_bytes = log.begin();
        if let Some(manifest) = from {
            let kept = self.checkpoints.path(manifest.number).join(NAME);
            let name = patiently(|| fs::read_to_string(&kept))
                .map_err(|e| Unprepared::Storage(format!("{}: {e}", kept.display())))?;
            if log.newest.as_ref().is_none_or(|newest| newest.name != name) {
                // Its cache would come first, and its newest one.
                tell("SCR_CURRENT", name);
                tell("SCR_CACHE_PURGE", "1".to_string());
            }
        }
        let is_resumed = from.is_some() || log.written > 0;
        let left_s = self.halting.as_ref().map_or(f64::INFINITY, |h| h.end_s - now_s());
        let interval_s = interval_s.min(left_s / 2.0).max(1.0);
        // Never rarer than the program would have made them.
        let wanted = own("SCR_CHECKPOINT_SECONDS").and_then(|s| s.parse::<f64>().ok()).filter(|s| *s > 0.0);
        tell("SCR_CHECKPOINT_SECONDS", format!("{:.0}", wanted.map_or(interval_s, |own| own.min(interval_s))));
        let end_s = self.halting.as_ref().map(|h| h.end_s);
        let defaults = [
            ("SCR_PREFIX", Some(self.of.prefix.to_string_lossy().into_owned())),
            ("SCR_FLUSH", Some("1".to_string())),
            ("SCR_LOG_ENABLE", Some("1".to_string())),
            ("SCR_LOG_SYSLOG_ENABLE", Some("0".to_string())),
            ("SCR_HALT_EXIT", end_s.map(|_| "1".to_string())),
            ("SCR_END_TIME", end_s.map(|end_s| format!("{end_s:.0}"))),
            ("SCR_HALT_SECONDS", end_s.map(|_| format!("{interval_s:.0}"))),
        ];
        for (name, value) in defaults {
            value.filter(|_| own(name).is_none()).into_iter().for_each(|value| tell(name, value));
        }
        if let Some(flush) = own("SCR_FLUSH").filter(|flush| flush != "1") {
            protocol::say!(
                "joulepoint: SCR_FLUSH={flush} of the job: only checkpoints that SCR flushes to {} count as made",
                self.of.prefix.display()
            );
        }
        if own("SCR_LOG_ENABLE").is_some_and(|enable| enable == "0") {
            protocol::say!("joulepoint: SCR_LOG_ENABLE=0 of the job: without SCR's log no checkpoint is seen");
        }
        tell("FT_ENERGY_RESTART", u8::from(is_resumed).to_string());
        self.watch(log, end_s.map_or(f64::INFINITY, |end_s| end_s - interval_s));
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        let (post, of, one) = (self.post.clone(), self.of.clone(), self.tries.begin());
        threads::start(move || {
            let saved = of.read(0).map_err(|e| unread(&e)).and_then(|log| {
                let made = log.newest.ok_or_else(|| "SCR has no complete checkpoint".to_string())?;
                fs::write(into.join(NAME), &made.name).map_err(|e| e.to_string())?;
                let files = survey(&into).map_err(|e| e.to_string())?;
                let kept = Some(Kept { bytes: made.bytes, took_s: made.took_s });
                Ok(Saved { files, still_s: Some(made.still_s), kept })
            });
            post.tell_of(&one, Happening::Checkpointed(saved.map_err(NotSaved::from)));
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

#[cfg(test)]
mod tests {
    use super::*;
    use driver::ports::Clock;
    use host::mail::{MailClock, queue};

    /// An engine over an empty prefix folder with a log.
    fn engine(halting: Option<Halting>) -> (tempfile::TempDir, Scr, MailClock) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".scr")).unwrap();
        let (post, clock) = queue();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
        let engine = Scr::new(post, checkpoints, dir.path().to_path_buf(), Some(7), halting);
        (dir, engine, clock)
    }

    fn flushed(name: &str, number: u32) -> String {
        let head = "2026-11-27T11:22:07: host=n1, jobid=7";
        format!(
            "{head}, event=CHECKPOINT_END, dset={number}, name=\"{name}\", secs=4.0\n\
             {head}, xfer=CHECKPOINT, dset={number}, name=\"{name}\", secs=4.0, bytes=1000.0, files=1\n\
             {head}, event=FLUSH_SUCCESS, dset={number}, name=\"{name}\", secs=1.0\n"
        )
    }

    fn value(environment: &[(String, String)], name: &str) -> Option<String> {
        environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone())
    }

    #[test]
    fn what_scr_has_flushed_is_taken_with_its_size_and_time_and_gone_back_to_by_name() {
        let (dir, mut engine, mut clock) = engine(None);
        let log = dir.path().join(".scr/log");
        fs::write(&log, flushed("ckpt.1", 1)).unwrap();
        let environment = engine.prepare(None, 90.0).unwrap();
        assert_eq!(value(&environment, "SCR_CHECKPOINT_SECONDS").as_deref(), Some("90"));
        assert_eq!(value(&environment, "SCR_LOG_ENABLE").as_deref(), Some("1"));
        assert_eq!(value(&environment, "SCR_HALT_EXIT"), None, "nobody requeues it");
        assert_eq!(clock.wait(now_s() + 1.5), None, "what was there is not new");
        fs::write(&log, flushed("ckpt.1", 1) + &flushed("ckpt.2", 2)).unwrap();
        assert_eq!(clock.wait(now_s() + 30.0), Some(Happening::Appeared));
        let (number, into) = engine.checkpoints.room().unwrap();
        engine.begin(into.clone());
        let Some(Happening::Checkpointed(Ok(saved))) = clock.wait(now_s() + 30.0) else { panic!("no checkpoint") };
        assert_eq!((saved.still_s, saved.kept), (Some(5.0), Some(Kept { bytes: 1000, took_s: 5.0 })));
        assert_eq!(fs::read_to_string(into.join(NAME)).unwrap(), "ckpt.2");
        let manifest = Manifest { number, ..Manifest::default() };
        let environment = engine.prepare(Some(&manifest), 90.0).unwrap();
        assert_eq!(value(&environment, "FT_ENERGY_RESTART").as_deref(), Some("1"));
        assert_eq!(value(&environment, "SCR_CURRENT"), None, "it is SCR's newest: its cache may be used");
        fs::write(into.join(NAME), "ckpt.1").unwrap();
        let environment = engine.prepare(Some(&manifest), 90.0).unwrap();
        assert_eq!(value(&environment, "SCR_CURRENT").as_deref(), Some("ckpt.1"));
        assert_eq!(value(&environment, "SCR_CACHE_PURGE").as_deref(), Some("1"));
    }

    #[test]
    fn a_storage_that_fails_before_the_program_starts_makes_no_checkpoint_unusable() {
        let (dir, mut engine, _clock) = engine(None);
        let manifest = Manifest { number: 1, ..Manifest::default() };
        let gone = engine.prepare(Some(&manifest), 90.0).unwrap_err();
        assert!(matches!(&gone, Unprepared::Storage(why) if why.contains(NAME)), "{gone}");
        fs::remove_dir(dir.path().join(".scr")).unwrap();
        fs::write(dir.path().join(".scr"), "no folder").unwrap();
        let unread = engine.prepare(None, 90.0).unwrap_err();
        assert!(matches!(&unread, Unprepared::Storage(why) if why.contains("SCR's log")), "{unread}");
    }

    #[test]
    fn without_a_complete_checkpoint_none_is_claimed() {
        let (dir, mut engine, mut clock) = engine(None);
        let into = dir.path().join("into");
        fs::create_dir(&into).unwrap();
        engine.begin(into);
        let said = clock.wait(now_s() + 30.0);
        assert!(
            matches!(said, Some(Happening::Checkpointed(Err(ref e))) if e.to_string().contains("no complete")),
            "{said:?}"
        );
        assert!(!engine.on_demand() && !engine.halted());
    }

    #[test]
    fn steps_that_end_when_scr_may_halt_them_are_not_remembered_as_ended() {
        let at = tempfile::tempdir().unwrap();
        let calls = Calls::open(at.path(), &[]).unwrap();
        let (_dir, mut engine, _clock) = engine(Some(Halting { end_s: now_s() + 2.0, calls: Some(calls.clone()) }));
        engine.prepare(None, 3600.0).unwrap();
        let limit_s = now_s() + 30.0;
        while !calls.is_closed() {
            assert!(now_s() < limit_s, "they are remembered to the end");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn a_program_that_scr_has_halted_is_told_at_once_and_one_that_has_ended_is_not_halted() {
        let at = tempfile::tempdir().unwrap();
        let calls = Calls::open(at.path(), &[]).unwrap();
        let halting = Halting { end_s: now_s() + 100.0, calls: Some(calls.clone()) };
        let (dir, mut engine, mut clock) = engine(Some(halting));
        fs::write(dir.path().join(".scr/halt.scr"), "an earlier one").unwrap();
        let environment = engine.prepare(None, 3600.0).unwrap();
        assert!(!calls.is_closed());
        assert!(!dir.path().join(".scr/halt.scr").exists());
        assert_eq!(value(&environment, "SCR_HALT_EXIT").as_deref(), Some("1"));
        assert_eq!(value(&environment, "SCR_HALT_SECONDS").as_deref(), Some("50"));
        let log = dir.path().join(".scr/log");
        let halt = |note: &str| format!("2026-11-27T11:22:07: host=n1, jobid=7, event=HALT, note=\"{note}\"\n");
        fs::write(&log, halt("SCR_FINALIZE_CALLED")).unwrap();
        assert_eq!(clock.wait(now_s() + 1.5), None);
        assert!(!engine.halted());
        fs::write(&log, halt("SCR_FINALIZE_CALLED") + &halt("TIME_LIMIT")).unwrap();
        assert_eq!(clock.wait(now_s() + 30.0), Some(Happening::Exited { code: HALTED }));
        assert!(engine.halted());
    }
}

//! SCR's log: what it has written, how long that took, and whether it has halted the program.
//!
//! One line for each event (SCR 3, `scr_log.c`), the newest last:
//!
//! ```text
//! 2026-11-27T11:22:07: host=n1, jobid=77, event=CHECKPOINT_END, note="/dev/shm", dset=1, name="ckpt.19", secs=0.087040
//! 2026-11-27T11:22:07: host=n1, jobid=77, xfer=CHECKPOINT, from=/dev/shm, to=/tmp/1, dset=1, name="ckpt.19", secs=0.08, bytes=9.0
//! 2026-11-27T11:22:07: host=n1, jobid=77, event=FLUSH_SUCCESS, dset=1, name="ckpt.19", secs=0.107342
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// The log within SCR's prefix folder.
const FILE: &str = ".scr/log";

/// Why SCR halts a program whose time is up; other halts are somebody's wish, or the program's own end.
const TIME_LIMIT: &str = "TIME_LIMIT";

/// A checkpoint that is complete and where no node's death reaches it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dataset {
    /// Its name in SCR.
    pub name: String,
    /// Its size, bytes; 0 if the log does not tell.
    pub bytes: u64,
    /// For how long the program stood still for it, s.
    pub still_s: f64,
    /// How long it took until it was complete, s.
    pub took_s: f64,
}

/// A reader that goes on where it has stopped.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    /// Slurm's number of this job: lines of other jobs in the same folder are not ours.
    job: Option<String>,
    read_bytes: u64,
    /// What is said of the program before this is said of an earlier start of it, bytes.
    since_bytes: u64,
    /// Those that are not flushed yet, by SCR's number.
    made: BTreeMap<u64, Made>,
    /// The newest complete one.
    pub newest: Option<Dataset>,
    /// How many this job has written, flushed or not.
    pub written: u64,
    /// SCR ends the program since its time is up; it may still flush its last checkpoint.
    pub is_halted: bool,
    /// From which number the program went on last.
    pub restarted: Option<u64>,
    /// Number of the newest complete one, and of the newest that was written.
    newest_number: Option<u64>,
    last_number: Option<u64>,
}

#[derive(Debug)]
struct Made {
    seconds: f64,
    bytes: u64,
}

impl Log {
    /// The log of a prefix folder, from its beginning; `since_bytes` is where this start of the program begins.
    pub fn of(prefix: &Path, job: Option<String>, since_bytes: u64) -> Log {
        Log {
            path: prefix.join(FILE),
            job,
            read_bytes: 0,
            since_bytes,
            made: BTreeMap::new(),
            newest: None,
            written: 0,
            is_halted: false,
            restarted: None,
            newest_number: None,
            last_number: None,
        }
    }

    /// Reads what has come; what is not there is nothing.
    ///
    /// # Errors
    /// What the file system says.
    pub fn read(&mut self) -> io::Result<()> {
        let mut file = match File::open(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        if file.metadata()?.len() < self.read_bytes {
            // Somebody has emptied it.
            (self.read_bytes, self.since_bytes) = (0, 0);
        }
        file.seek(SeekFrom::Start(self.read_bytes))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        // A line that is not whole is read the next time.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
            self.line(&String::from_utf8_lossy(line), self.read_bytes >= self.since_bytes);
            self.read_bytes += line.len() as u64;
        }
        Ok(())
    }

    /// The program starts now: what was said of it before is of an earlier start. Where that is in the log, bytes.
    pub fn begin(&mut self) -> u64 {
        (self.since_bytes, self.is_halted, self.restarted) = (self.read_bytes, false, None);
        self.since_bytes
    }

    /// Whether the last checkpoint that was written is complete, too.
    pub fn is_flushed(&self) -> bool {
        self.last_number == self.newest_number
    }

    /// Whether the program went on from something newer than what is complete: from SCR's cache on the nodes.
    pub fn is_from_cache(&self) -> bool {
        self.restarted.is_some() && self.restarted > self.newest_number
    }

    fn line(&mut self, line: &str, is_of_this_start: bool) {
        let fields = fields(line.trim_end());
        let field = |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let is_others = |job: &str| self.job.as_deref().is_some_and(|own| own != job) && job.parse::<u64>().is_ok();
        if field("jobid").is_some_and(is_others) {
            return;
        }
        let number = field("dset").and_then(|n| n.parse::<u64>().ok());
        let seconds = field("secs").and_then(|s| s.parse::<f64>().ok()).unwrap_or(0.0);
        match (field("event").or(field("xfer")), number) {
            (Some("CHECKPOINT_END"), Some(number)) => {
                self.written += 1;
                self.last_number = Some(number);
                self.made.insert(number, Made { seconds, bytes: 0 });
            }
            (Some("CHECKPOINT"), Some(number)) => {
                let bytes = field("bytes").and_then(|b| b.parse::<f64>().ok()).unwrap_or(0.0);
                self.made.entry(number).and_modify(|made| made.bytes = bytes as u64);
            }
            (Some(event @ ("FLUSH_SUCCESS" | "ASYNC_FLUSH_SUCCESS")), Some(number)) => {
                // What is flushed may also be output of the program, from which nothing goes on.
                let Some((name, made)) = field("name").zip(self.made.remove(&number)) else { return };
                let flush_s = if event == "FLUSH_SUCCESS" { seconds } else { 0.0 };
                let (still_s, took_s) = (made.seconds + flush_s, made.seconds + seconds);
                self.newest = Some(Dataset { name: name.to_string(), bytes: made.bytes, still_s, took_s });
                self.newest_number = Some(number);
            }
            (Some("RESTART_SUCCESS"), Some(number)) if is_of_this_start => self.restarted = Some(number),
            (Some("HALT"), _) if is_of_this_start => self.is_halted |= field("note") == Some(TIME_LIMIT),
            _ => {}
        }
    }
}

/// The fields of a line; a value in quotation marks may have commas.
fn fields(line: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let mut rest = line.split_once(": ").map_or(line, |(_, rest)| rest);
    while let Some((key, after)) = rest.split_once('=') {
        let quoted = after.strip_prefix('"').and_then(|after| after.split_once('"'));
        let (value, after) = quoted.unwrap_or_else(|| after.split_at(after.find(", ").unwrap_or(after.len())));
        all.push((key, value));
        rest = after.strip_prefix(", ").unwrap_or("");
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    const ONE: &str = "2026-11-27T11:22:05: host=vm, jobid=77, event=START, procs=2, nodes=1\n\
        2026-11-27T11:22:07: host=vm, jobid=77, event=CHECKPOINT_END, note=\"/dev/shm\", dset=1, name=\"ck, 19\", secs=4.0\n\
        2026-11-27T11:22:07: host=vm, jobid=77, xfer=CHECKPOINT, from=/dev/shm, to=/x, dset=1, name=\"ck, 19\", secs=4.0, bytes=200020.000000, files=2\n";
    const FLUSHED: &str =
        "2026-11-27T11:22:07: host=vm, jobid=77, event=FLUSH_SUCCESS, dset=1, name=\"ck, 19\", secs=0.5\n";

    fn log() -> (tempfile::TempDir, Log, impl Fn(&str)) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(".scr")).unwrap();
        let (log, path) = (Log::of(dir.path(), Some("77".to_string()), 0), dir.path().join(FILE));
        let append = move |text: &str| {
            let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        (dir, log, append)
    }

    #[test]
    fn only_what_is_flushed_counts_with_its_size_and_its_time() {
        let (_dir, mut log, append) = log();
        log.read().unwrap();
        assert_eq!(log.newest, None);
        append(ONE);
        append(&FLUSHED[..60]);
        log.read().unwrap();
        assert_eq!((log.newest.clone(), log.written), (None, 1), "a line that is not whole");
        append(&FLUSHED[60..]);
        log.read().unwrap();
        let wanted = Dataset { name: "ck, 19".into(), bytes: 200_020, still_s: 4.5, took_s: 4.5 };
        assert_eq!(log.newest, Some(wanted.clone()));
        append(&ONE.replace("dset=1", "dset=2").replace("19", "36"));
        append(&FLUSHED.replace("dset=1", "dset=2").replace("19", "36").replace("FLUSH_S", "ASYNC_FLUSH_S"));
        log.read().unwrap();
        let newest = log.newest.clone().unwrap();
        assert_eq!((newest.name.as_str(), newest.still_s, newest.took_s), ("ck, 36", 4.0, 4.5));
        // Numbers begin again after the program has gone back: the latest counts, not the highest.
        append(&format!("{ONE}{FLUSHED}"));
        log.read().unwrap();
        assert_eq!(log.newest, Some(wanted));
    }

    #[test]
    fn lines_of_other_jobs_in_the_folder_are_not_ours() {
        let (_dir, mut log, append) = log();
        append(&format!("{ONE}{FLUSHED}").replace("jobid=77", "jobid=78"));
        log.read().unwrap();
        assert_eq!((log.newest.clone(), log.written), (None, 0));
        append(&format!("{ONE}{FLUSHED}").replace("jobid=77", "jobid=none"));
        log.read().unwrap();
        assert!(log.newest.is_some(), "an SCR that knows no job");
    }

    #[test]
    fn a_halt_is_told_from_an_end_and_a_restart_from_the_cache_from_one_of_a_flushed_one() {
        let (dir, mut log, append) = log();
        let event = |rest: &str| append(&format!("2026-11-27T11:22:12: host=vm, jobid=77, event={rest}\n"));
        append(&format!("{ONE}{FLUSHED}"));
        event("HALT, note=\"SCR_FINALIZE_CALLED\"");
        event("HALT, note=\"NO_CHECKPOINTS_LEFT\"");
        event("RESTART_SUCCESS, dset=1, secs=0.004728");
        log.read().unwrap();
        assert!(!log.is_halted && !log.is_from_cache());
        append(&ONE.replace("dset=1", "dset=2"));
        event("RESTART_SUCCESS, dset=2, secs=0.004728");
        event("HALT, note=\"TIME_LIMIT\"");
        log.read().unwrap();
        assert!(log.is_halted && log.is_from_cache() && !log.is_flushed(), "its last flush comes after the halt");
        append(&FLUSHED.replace("dset=1", "dset=2"));
        log.read().unwrap();
        assert!(log.is_flushed());
        // The same, read for the next start of the program.
        let mut next = Log::of(dir.path(), Some("77".to_string()), log.begin());
        next.read().unwrap();
        assert!(!next.is_halted && next.restarted.is_none() && next.newest == log.newest);
    }

    #[test]
    fn output_of_the_program_is_no_checkpoint() {
        let (_dir, mut log, append) = log();
        append(&format!("{ONE}{FLUSHED}"));
        append(&ONE.replace("CHECKPOINT", "OUTPUT").replace("dset=1", "dset=2"));
        append(&FLUSHED.replace("dset=1", "dset=2").replace("ck, 19", "plot"));
        log.read().unwrap();
        assert_eq!((log.newest.clone().unwrap().name.as_str(), log.written, log.is_flushed()), ("ck, 19", 1, true));
    }
}

//! Removes the leftovers of ended runs by the ages that the site states, and never of a run that may come back.
//!
//! A folder is renamed before it is removed, so that of two processes that clean at once only one does it, and nobody
//! finds half a run. Links are never followed.

use crate::{Error, Patience, Result, history, storage};
use protocol::{Event, Record};
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Prefix of folders that are being removed.
const REMOVED: &str = ".removed-";

/// The file whose time says when a folder of runs was cleaned last.
const STAMP: &str = ".cleaned";

/// Clocks that differ by more than this are not trusted, s.
const MOST_APART_S: f64 = 3600.0;

/// How long leftovers of an ended run are kept after its last sign of life, s; absent: for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Keep {
    /// Checkpoints of a run that has ended well.
    pub completed_s: Option<f64>,
    /// Checkpoints of any other run.
    pub failed_s: Option<f64>,
    /// Everything else: plan and journal.
    pub records_s: Option<f64>,
}

/// How a run has ended, by its own records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its script ended with 0.
    Completed,
    /// It failed or was cancelled.
    Failed,
    /// It goes on elsewhere, or nobody could write down how it ended.
    Open,
}

/// What may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// The folders within: checkpoints, and what belongs to them.
    Checkpoints,
    /// The run's folder.
    All,
}

/// What may be removed of a run whose last sign of life was at `last_s`; now is `now_s` (s since the epoch).
pub fn due(end: End, has_checkpoints: bool, last_s: f64, now_s: f64, keep: &Keep) -> Due {
    let is_older = |kept_s: Option<f64>| kept_s.is_some_and(|kept_s| now_s - last_s > kept_s);
    let may_go = is_older(if end == End::Completed { keep.completed_s } else { keep.failed_s });
    match (has_checkpoints, may_go, is_older(keep.records_s)) {
        (true, false, _) | (false, _, false) => Due::Nothing,
        (true, true, false) => Due::Checkpoints,
        (_, _, true) => Due::All,
    }
}

/// The earliest of some clocks, s since the epoch; none if they differ too much, so that one must be wrong.
pub fn agreed(clocks_s: &[f64]) -> Option<f64> {
    let earliest = clocks_s.iter().copied().reduce(f64::min)?;
    clocks_s.iter().all(|clock_s| clock_s - earliest <= MOST_APART_S).then_some(earliest)
}

/// Marks a folder of runs as cleaned now, unless it was cleaned within `every_s`. Returns the storage's clock, and
/// its value at the mark before, s since the epoch.
///
/// # Errors
/// What the file system says.
pub fn stamp(runs: &Path, every_s: f64) -> Result<(f64, Option<f64>)> {
    let path = runs.join(STAMP);
    let told = || -> io::Result<(f64, Option<f64>)> {
        let before = fs::symlink_metadata(&path).ok();
        let marked = before.as_ref().and_then(|m| m.modified().ok());
        let before = before.map(|m| written_s(&m));
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(&path)?;
        // Written content carries the server's clock.
        file.write_all(b"\n")?;
        file.sync_all()?;
        let now_s = written_s(&file.metadata()?);
        if let (Some(marked), Some(_)) = (marked, before.filter(|before| (now_s - before).abs() < every_s)) {
            file.set_modified(marked)?;
        }
        Ok((now_s, before))
    };
    told().map_err(Error::at(&path))
}

/// A run of which something may go.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Its folder.
    pub path: PathBuf,
    /// Slurm job id; none outside Slurm.
    pub job: Option<u32>,
    /// How it ended.
    pub end: End,
    /// What may go.
    pub due: Due,
    /// Its last sign of life, s since the epoch.
    pub last_s: f64,
}

/// The runs below a folder of which something may be removed at `now_s`. At most `most` folders are looked at; which
/// ones changes every hour.
///
/// # Errors
/// What the file system says of the folder itself; a run that cannot be read stays.
pub fn find(runs: &Path, now_s: f64, keep: &Keep, most: usize) -> Result<Vec<Candidate>> {
    let names = storage::names(runs, Patience::NONE)?;
    let mut names: Vec<&str> = names.iter().filter_map(|n| n.to_str()).filter(|n| of_run(n).is_some()).collect();
    if names.len() > most {
        let hour = (now_s / 3600.0).max(0.0) as usize;
        let first = hour.wrapping_mul(most) % names.len();
        names.rotate_left(first);
    }
    Ok(names.into_iter().take(most).filter_map(|n| look(&runs.join(n), now_s, keep)).collect())
}

/// The job of a run by the name of its folder, `JOB.BEGAN` or `local-NAME.BEGAN`.
fn of_run(name: &str) -> Option<Option<u32>> {
    let (id, began) = name.rsplit_once('.')?;
    began.parse::<u64>().ok()?;
    match id.parse() {
        Ok(job) => Some(Some(job)),
        Err(_) => id.starts_with("local-").then_some(None),
    }
}

fn look(path: &Path, now_s: f64, keep: &Keep) -> Option<Candidate> {
    let job = of_run(path.file_name()?.to_str()?)?;
    let own = fs::symlink_metadata(path).ok().filter(is_own_folder)?;
    let mut last_s = changed_s(&own);
    let (mut folders, mut has_journal) = (0, false);
    for entry in fs::read_dir(path).ok()? {
        let entry = entry.ok()?;
        let metadata = fs::symlink_metadata(entry.path()).ok()?;
        last_s = last_s.max(changed_s(&metadata));
        has_journal |= metadata.is_file() && crate::holder::of_journal(entry.file_name().to_str()?).is_some();
        folders += usize::from(metadata.is_dir());
    }
    // For most runs nothing is due, and their journals need not be read: not even the shortest rule has passed.
    let all = [End::Completed, End::Failed].map(|end| due(end, folders > 0, last_s, now_s, keep));
    if !has_journal || all == [Due::Nothing; 2] {
        return None;
    }
    let records = history::read(path, Patience::NONE).ok()?.records;
    let end = end(&records);
    last_s = records.iter().map(|record| record.at_s).fold(last_s, f64::max);
    let due = due(end, folders > 0, last_s, now_s, keep);
    (due != Due::Nothing).then(|| Candidate { path: path.to_path_buf(), job, end, due, last_s })
}

fn end(records: &[Record]) -> End {
    match records.last().map(|record| &record.event) {
        Some(Event::Ended { state, .. }) if state == "completed" => End::Completed,
        Some(Event::Ended { state, .. }) if state != "requeued" => End::Failed,
        _ => End::Open,
    }
}

fn is_own_folder(metadata: &Metadata) -> bool {
    metadata.is_dir() && metadata.uid() == nix::unistd::geteuid().as_raw()
}

/// The later one of the times of the last change of content and attributes, s since the epoch.
fn changed_s(metadata: &Metadata) -> f64 {
    written_s(metadata).max(metadata.ctime() as f64 + metadata.ctime_nsec() as f64 / 1e9)
}

/// Time of the last change of the content, s since the epoch.
fn written_s(metadata: &Metadata) -> f64 {
    metadata.mtime() as f64 + metadata.mtime_nsec() as f64 / 1e9
}

impl Candidate {
    /// Removes what is due, unless the run has shown a sign of life since it was found. Returns whether something was
    /// removed.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(&self, now_s: f64, keep: &Keep) -> Result<bool> {
        if look(&self.path, now_s, keep).as_ref() != Some(self) {
            return Ok(false);
        }
        match self.due {
            Due::Nothing => Ok(false),
            Due::All => take_away(&self.path),
            Due::Checkpoints => {
                for name in storage::names(&self.path, Patience::NONE)? {
                    let folder = self.path.join(name);
                    if fs::symlink_metadata(&folder).is_ok_and(|m| is_own_folder(&m)) {
                        take_away(&folder)?;
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Removes folders that an earlier cleaning renamed and did not remove.
///
/// # Errors
/// What the file system says.
pub fn finish(runs: &Path) -> Result<()> {
    for name in storage::names(runs, Patience::NONE)? {
        let path = runs.join(&name);
        let is_left = name.to_str().is_some_and(|name| name.starts_with(REMOVED));
        if is_left && fs::symlink_metadata(&path).is_ok_and(|m| is_own_folder(&m)) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Renames a folder and removes it; returns whether it existed.
fn take_away(folder: &Path) -> Result<bool> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_prefix(REMOVED).unwrap_or(&name);
    let away = folder.with_file_name(format!("{REMOVED}{name}-{}-{:x}", std::process::id(), since.as_nanos()));
    match fs::rename(folder, &away) {
        Ok(()) => remove(&away).map(|()| true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::at(folder)(e)),
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::at(path)(e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;

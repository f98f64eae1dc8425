//! Records that the controller could not take, kept on a node until it has them.
//!
//! One file for each run and user, named by its number in order of arrival; a line is a checksum and a batch. A batch
//! is synced before it counts, and its file goes when the controller has stored all of it. What the controller itself
//! refuses for good goes to a folder beside the spool; a refusal without its proof is nobody's, and loses nothing.

use crate::refused::RefusedFolder;
use anyhow::{Context, Result};
use listener::{Lines, now_s};
use parking_lot::{Mutex, MutexGuard};
use protocol::{Batch, Delivered, Event, Record, RunKey};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::{Client, Error};

/// The part of the spool that one user may fill: nobody keeps the others out.
const SHARE_OF_ONE_USER: u64 = 4;

/// Most files, and those of one user: each run has one.
const MOST_FILES: usize = 8192;
const MOST_FILES_OF_ONE: usize = MOST_FILES / SHARE_OF_ONE_USER as usize;

/// The part of the spool's room that refused records may take beside it.
const SHARE_OF_REFUSED: u64 = 4;

/// Time between two looks for something to deliver; doubled after a failure up to [`LONGEST_PAUSE`].
const LOOK: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

const _: () = assert!(LONGEST_PAUSE.as_secs() < watch::runs::LATE_WORD_S as u64);

/// The spool of a node.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    limit_bytes: u64,
    kept: Mutex<BTreeMap<u64, Kept>>,
    refused: RefusedFolder,
    /// What is said of batches that the controller refuses.
    lines: Lines,
}

/// What one file holds.
#[derive(Clone, Debug, PartialEq)]
struct Kept {
    uid: u32,
    key: RunKey,
    upto: u64,
    bytes: u64,
    /// Whether the run ended: such runs are delivered first.
    complete: bool,
}

/// Why a batch is not kept.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// There is no room for it.
    #[error(
        "the spool of this node is full: {used} of {limit} bytes are used (node.spool_bytes), and a user may fill a quarter"
    )]
    Full {
        /// Bytes that are used.
        used: u64,
        /// Bytes that may be used.
        limit: u64,
    },
    /// There are too many runs in it.
    #[error(
        "the spool of this node holds {files} runs, {own} of them of user {uid}: it takes {MOST_FILES}, and a quarter of \
         them from one user; they are delivered when the controller is back"
    )]
    Crowded {
        /// Runs in it.
        files: usize,
        /// Those of this user.
        own: usize,
        /// User id.
        uid: u32,
    },
    /// The disk does not take it.
    #[error("the spool cannot be written: {0}")]
    Disk(#[from] io::Error),
}

impl Spool {
    /// Opens or creates a spool; a damaged end of a file is cut off, and logged.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(folder: &Path, limit_bytes: u64) -> Result<Spool> {
        let name = || format!("node.spool = {}", folder.display());
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(name)?;
        let mut kept = BTreeMap::new();
        for entry in fs::read_dir(folder).with_context(name)? {
            let path = entry?.path();
            let Some((number, uid)) = parse(&path) else {
                tracing::warn!(file = %path.display(), "a file in the spool is none of ours");
                continue;
            };
            match look_through(&path, uid)? {
                Some(whole) => drop(kept.insert(number, whole)),
                None => fs::remove_file(&path)?,
            }
        }
        let refused = RefusedFolder::new(beside(folder), limit_bytes / SHARE_OF_REFUSED);
        Ok(Spool { folder: folder.to_path_buf(), limit_bytes, kept: Mutex::new(kept), refused, lines: Lines::new() })
    }

    /// Keeps what of a user's batch is new; the position up to which the spool holds the run.
    ///
    /// # Errors
    /// Why it is not kept; nothing of it is, then.
    pub fn keep(&self, uid: u32, batch: &Batch) -> Result<u64, Refused> {
        let mut kept = self.kept();
        let known = kept.iter().find(|(_, k)| k.uid == uid && k.key == batch.key).map(|(n, k)| (*n, k.upto));
        let records: Vec<_> =
            batch.records.iter().filter(|r| known.is_none_or(|(_, upto)| r.seq > upto)).cloned().collect();
        let Some(last) = records.last() else { return Ok(known.map_or(0, |(_, upto)| upto)) };
        let (upto, complete) = (last.seq, is_end(&last.event));
        let line = encode(&Batch { records, ..batch.clone() })?;
        let (used, own) =
            kept.values().fold((0, 0), |(used, own), k| (used + k.bytes, own + if k.uid == uid { k.bytes } else { 0 }));
        let length = line.len() as u64;
        if used + length > self.limit_bytes || own + length > self.limit_bytes / SHARE_OF_ONE_USER {
            return Err(Refused::Full { used, limit: self.limit_bytes });
        }
        let (files, own) = (kept.len(), kept.values().filter(|k| k.uid == uid).count());
        if known.is_none() && (files >= MOST_FILES || own >= MOST_FILES_OF_ONE) {
            return Err(Refused::Crowded { files, own, uid });
        }
        let number = known.map_or_else(|| kept.keys().next_back().map_or(1, |last| last + 1), |(number, _)| number);
        let bytes = kept.get(&number).map_or(0, |k| k.bytes);
        self.append(&self.path(number, uid), bytes, &line)?;
        kept.insert(number, Kept { uid, key: batch.key.clone(), upto, bytes: bytes + length, complete });
        Ok(upto)
    }

    /// Appends a line and syncs it, with the folder if the file is new; nothing of it stays after an error.
    fn append(&self, path: &Path, length: u64, line: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        let written = file.write_all(line).and_then(|()| file.sync_data());
        let written = if length == 0 { written.and_then(|()| File::open(&self.folder)?.sync_all()) } else { written };
        if written.is_err() {
            file.set_len(length)?;
        }
        written
    }

    /// Bytes that are used.
    pub fn used_bytes(&self) -> u64 {
        self.kept().values().map(|k| k.bytes).sum()
    }

    /// Delivers for ever.
    pub fn deliver_for_ever(&self, controller: &Client) {
        let mut pause = LOOK;
        loop {
            std::thread::sleep(pause);
            pause = if self.deliver(controller) { LOOK } else { (pause * 2).min(LONGEST_PAUSE) };
        }
    }

    /// Delivers what is there: complete runs first, oldest first; whether nobody is left whom it could not reach.
    pub fn deliver(&self, controller: &Client) -> bool {
        let mut order: Vec<(bool, u64, u32)> = self.kept().iter().map(|(n, k)| (!k.complete, *n, k.uid)).collect();
        order.sort_unstable();
        let mut waiting = Waiting::default();
        for (_, number, uid) in order {
            match self.deliver_run(number, controller) {
                Ok(()) => {}
                Err(Undelivered::Away(e)) => {
                    tracing::debug!(%e, "the controller is away; records stay in the spool");
                    return false;
                }
                Err(Undelivered::Other(reason)) => waiting.note(uid, reason),
            }
        }
        for (uid, (runs, reason)) in &waiting.0 {
            tracing::warn!(uid, runs, reason, "records stay in the spool; the reason is that of the first run");
        }
        waiting.0.is_empty()
    }

    /// Delivers one file, line by line, and removes it.
    fn deliver_run(&self, number: u64, controller: &Client) -> Result<(), Undelivered> {
        let Some(Kept { uid, key, complete, .. }) = self.kept().get(&number).cloned() else { return Ok(()) };
        let path = self.path(number, uid);
        let mut done = 0;
        loop {
            let bytes = fs::read(&path).map_err(|e| Undelivered::Other(e.to_string()))?;
            for line in bytes[done..].split_inclusive(|b| *b == b'\n') {
                let batch = decode(line).ok_or_else(|| Undelivered::Other("a line is damaged".into()))?;
                self.hand_over(uid, &batch, complete, controller)?;
                done += line.len();
            }
            let mut kept = self.kept();
            // What came meanwhile is delivered as well before the file may go.
            if kept.get(&number).is_none_or(|k| k.bytes <= done as u64) {
                fs::remove_file(&path).map_err(|e| Undelivered::Other(e.to_string()))?;
                kept.remove(&number);
                tracing::info!(run = key.run, uid, bytes = done, "records of the spool are delivered");
                return Ok(());
            }
        }
    }

    /// Hands one batch to the controller, until it says that it has all of it; in parts, where it is more than a service
    /// takes at once. Of a run that is `over` nobody brings what is missing before it.
    fn hand_over(&self, uid: u32, batch: &Batch, over: bool, controller: &Client) -> Result<(), Undelivered> {
        let size = serde_json::to_vec(batch).map_or(0, |json| json.len());
        if size > wire::LARGEST_BODY && batch.records.len() > 1 {
            let (first, rest) = batch.records.split_at(batch.records.len() / 2);
            let part = |records: &[Record]| Batch { records: records.to_vec(), ..batch.clone() };
            self.hand_over(uid, &part(first), over, controller)?;
            return self.hand_over(uid, &part(rest), over, controller);
        }
        // No service reads it, and nobody's records wait behind it.
        if size > wire::LARGEST_BODY {
            return self.set_aside(uid, batch, &format!("one record of {size} bytes, more than a service takes"));
        }
        let seq = |record: Option<&Record>| record.map_or(0, |r| r.seq);
        let (first, last) = (seq(batch.records.first()), seq(batch.records.last()));
        match controller.post::<Batch, Delivered>(&format!("/v1/records?uid={uid}"), batch) {
            Ok(Delivered { upto }) if upto >= last => Ok(()),
            Ok(Delivered { upto }) if over && first > upto + 1 && is_old(batch) => self.set_aside(
                uid,
                batch,
                &format!("the controller has lost the records after {upto} that came before"),
            ),
            Ok(Delivered { upto }) => Err(Undelivered::Other(format!(
                "run {}: the controller has records up to {upto}, the spool those up to {last}",
                batch.key.run
            ))),
            // Whoever is not the run's user, or sends what nobody understands, is not waited for.
            Err(e) if e.is_final() => self.set_aside(uid, batch, &e.to_string()),
            // Too much of this user for the moment; whoever says so loses nothing.
            Err(e @ (Error::Refused { .. } | Error::Unproven { status: 429, .. })) => {
                Err(Undelivered::Other(e.to_string()))
            }
            Err(e) => Err(Undelivered::Away(e)),
        }
    }

    /// Takes what the controller has refused out of the way of the rest.
    fn set_aside(&self, uid: u32, batch: &Batch, text: &str) -> Result<(), Undelivered> {
        let (run, last) = (&batch.key.run, batch.records.last().map_or(0, |r| r.seq));
        let kept = self.refused.keep(now_s(), uid, batch, text);
        let file = kept.map_err(|e| Undelivered::Other(format!("refused ({text}), and cannot be set aside: {e}")))?;
        let Some(unlogged) = self.lines.take(now_s()) else { return Ok(()) };
        match file {
            Some(file) => {
                let file = file.display();
                tracing::error!(run, uid, last, text, unlogged, %file, "the controller refuses records; they are set aside");
            }
            None => {
                tracing::error!(
                    run,
                    uid,
                    last,
                    text,
                    unlogged,
                    "the controller refuses records, too many to set aside"
                );
            }
        }
        Ok(())
    }

    fn path(&self, number: u64, uid: u32) -> PathBuf {
        self.folder.join(format!("{number:020}.{uid}"))
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<u64, Kept>> {
        self.kept.lock()
    }
}

/// How long a store may be away before the copy of it is back that knows the beginning of a run, s.
const STORE_S: f64 = 86_400.0;

fn is_old(batch: &Batch) -> bool {
    batch.records.last().is_some_and(|last| now_s() - last.at_s > STORE_S)
}

/// What could not be delivered at one look: of how many runs of each user, and why that of the first of them.
#[derive(Debug, Default)]
struct Waiting(BTreeMap<u32, (usize, String)>);

impl Waiting {
    fn note(&mut self, uid: u32, reason: String) {
        self.0.entry(uid).or_insert((0, reason)).0 += 1;
    }
}

/// Why something was not delivered.
enum Undelivered {
    /// Nobody answers: the others need not be tried.
    Away(Error),
    /// This run cannot be delivered now.
    Other(String),
}

/// The folder of what was refused, beside a spool's.
fn beside(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_os_string();
    name.push(".refused");
    folder.with_file_name(name)
}

/// Number and user of a file.
fn parse(path: &Path) -> Option<(u64, u32)> {
    let (number, uid) = path.file_name()?.to_str()?.split_once('.')?;
    Some((number.parse().ok()?, uid.parse().ok()?))
}

/// What a file holds, after its damaged end is cut off; none if nothing is left.
fn look_through(path: &Path, uid: u32) -> io::Result<Option<Kept>> {
    let bytes = fs::read(path)?;
    let mut kept: Option<Kept> = None;
    let mut whole = 0;
    for line in bytes.split_inclusive(|b| *b == b'\n') {
        let Some(batch) = decode(line) else { break };
        whole += line.len();
        if let Some(last) = batch.records.last() {
            let (upto, complete) = (last.seq, is_end(&last.event));
            kept = Some(Kept { uid, key: batch.key, upto, bytes: whole as u64, complete });
        }
    }
    if whole < bytes.len() {
        let cut = bytes.len() - whole;
        tracing::warn!(file = %path.display(), cut_bytes = cut, "the end of a spool file was damaged and is cut off");
        let file = OpenOptions::new().write(true).open(path)?;
        file.set_len(whole as u64)?;
        file.sync_all()?;
    }
    Ok(kept)
}

fn is_end(event: &Event) -> bool {
    matches!(event, Event::Ended { .. })
}

fn encode(batch: &Batch) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(batch)?;
    let mut line = format!("{:08x} ", crc32fast::hash(&json)).into_bytes();
    line.extend_from_slice(&json);
    line.push(b'\n');
    Ok(line)
}

/// A batch, if its line is whole and unchanged.
fn decode(line: &[u8]) -> Option<Batch> {
    let (sum, json) = line.strip_suffix(b"\n")?.split_at_checked(9)?;
    let sum = u32::from_str_radix(std::str::from_utf8(&sum[..8]).ok()?, 16).ok()?;
    if crc32fast::hash(json) != sum {
        return None;
    }
    serde_json::from_slice(json).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_many_runs_that_cannot_be_delivered_is_told_of_once() {
        let mut waiting = Waiting::default();
        (0..1500).for_each(|n| waiting.note(7, format!("run {n}")));
        waiting.note(8, "another".into());
        let told: Vec<(u32, (usize, String))> = waiting.0.into_iter().collect();
        assert_eq!(told, [(7, (1500, "run 0".to_string())), (8, (1, "another".to_string()))]);
    }
}

//! Keeps what the controller has refused for good beside the spool, with the reason, until its room is needed.

use protocol::Batch;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Most files; each takes a block, however small it is.
const MOST_FILES: usize = 1024;

/// The folder of what was refused.
#[derive(Debug)]
pub struct RefusedFolder {
    folder: PathBuf,
    limit_bytes: u64,
}

/// What one file holds.
#[derive(Serialize)]
struct Page<'a> {
    /// When it was refused, s since the epoch.
    at_s: f64,
    /// Whose records they are.
    uid: u32,
    /// The controller's words.
    reason: &'a str,
    batch: &'a Batch,
}

/// A file, as its name and its size tell.
#[derive(Clone, Debug)]
struct Kept {
    number: u64,
    uid: u32,
    bytes: u64,
}

impl RefusedFolder {
    /// A folder that is made when something is to be kept in it.
    pub fn new(folder: PathBuf, limit_bytes: u64) -> RefusedFolder {
        RefusedFolder { folder, limit_bytes }
    }

    /// Keeps a batch with the reason for which it was refused, and makes room for it: first to go is the oldest of who
    /// has the most there. The file's name; none of a batch that is larger than all the room.
    ///
    /// # Errors
    /// What the file system says.
    pub fn keep(&self, at_s: f64, uid: u32, batch: &Batch, reason: &str) -> io::Result<Option<PathBuf>> {
        let mut text = serde_json::to_vec_pretty(&Page { at_s, uid, reason, batch })?;
        text.push(b'\n');
        let bytes = text.len() as u64;
        if bytes > self.limit_bytes {
            return Ok(None);
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut kept = self.kept()?;
        let number = kept.iter().map(|k| k.number).max().unwrap_or(0) + 1;
        while kept.len() >= MOST_FILES || kept.iter().map(|k| k.bytes).sum::<u64>() + bytes > self.limit_bytes {
            let Some(at) = first_to_go(&kept) else { break };
            let gone = kept.remove(at);
            fs::remove_file(self.path(gone.number, gone.uid))?;
        }
        let path = self.path(number, uid);
        let part = self.folder.join("part");
        let mut file = File::create(&part)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(&self.folder)?.sync_all()?;
        Ok(Some(path))
    }

    fn kept(&self) -> io::Result<Vec<Kept>> {
        let mut kept = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Some((number, uid)) = parse(&entry.path()) {
                kept.push(Kept { number, uid, bytes: entry.metadata()?.len() });
            }
        }
        kept.sort_by_key(|k| k.number);
        Ok(kept)
    }

    fn path(&self, number: u64, uid: u32) -> PathBuf {
        self.folder.join(format!("{number:020}.{uid}.json"))
    }
}

/// The place of the oldest file of the user who has the most bytes; files come oldest first.
fn first_to_go(kept: &[Kept]) -> Option<usize> {
    let mut of: BTreeMap<u32, u64> = BTreeMap::new();
    kept.iter().for_each(|k| *of.entry(k.uid).or_default() += k.bytes);
    let (most, _) = of.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    kept.iter().position(|k| k.uid == most)
}

fn parse(path: &Path) -> Option<(u64, u32)> {
    let (number, uid) = path.file_name()?.to_str()?.strip_suffix(".json")?.split_once('.')?;
    Some((number.parse().ok()?, uid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Event, Record, RunKey};

    fn batch(run: &str, bytes: usize) -> Batch {
        let event = Event::CheckpointFailed { reason: "x".repeat(bytes) };
        let key = RunKey { cluster: "c".into(), run: run.into() };
        Batch { version: protocol::VERSION, key, holder: None, records: vec![Record { seq: 1, at_s: 1.0, event }] }
    }

    #[test]
    fn what_was_refused_is_there_with_its_reason_and_who_has_the_most_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let refused = RefusedFolder::new(dir.path().join("n1.refused"), 10_000);
        let first = refused.keep(5.0, 7, &batch("7.1", 1000), "job 7 is not yours").unwrap().unwrap();
        let text = fs::read_to_string(&first).unwrap();
        assert!(text.contains("job 7 is not yours") && text.contains("\"run\": \"7.1\""), "{text}");
        for n in 0..20 {
            refused.keep(6.0, 8, &batch(&format!("8.{n}"), 1000), "too much").unwrap().unwrap();
        }
        assert!(first.exists(), "one user's flood does not push out what is kept of another");
        let kept = refused.kept().unwrap();
        assert!(kept.iter().map(|k| k.bytes).sum::<u64>() <= 10_000 && kept.len() > 5, "{kept:?}");
        assert_eq!(refused.keep(7.0, 8, &batch("8.x", 20_000), "too large").unwrap(), None);
        let again = RefusedFolder::new(dir.path().join("n1.refused"), 10_000);
        assert_eq!(again.kept().unwrap().len(), kept.len());
    }
}

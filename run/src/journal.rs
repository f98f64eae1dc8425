//! A holder's append-only journal: one checksummed line a record, synced before it counts.

use crate::holder::Holder;
use crate::line::encode;
use crate::{Error, Result};
use protocol::{Event, Record};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The journal of one holder, which nobody else writes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    holder: Holder,
    /// Absent after an error: then an open file can no longer be trusted.
    file: Option<File>,
    /// Length of the valid content, bytes.
    length: u64,
    next_seq: u64,
    /// Whether an incomplete line may follow the valid content.
    is_torn: bool,
    /// Events that are not written yet.
    waiting: Vec<(f64, Event)>,
    /// Records that are written, but not yet known to precede a newer holder.
    unconfirmed: Vec<Record>,
}

/// Most events that wait while the storage takes none.
const MOST_WAITING: usize = 100_000;

impl Journal {
    /// The journal of a holder that has written `length` bytes of it, and whose next record has this number.
    pub fn of(path: &Path, holder: Holder, length: u64, next_seq: u64) -> Journal {
        Journal {
            path: path.to_path_buf(),
            holder,
            file: None,
            length,
            next_seq,
            is_torn: false,
            waiting: Vec::new(),
            unconfirmed: Vec::new(),
        }
    }

    /// Appends events as records in one write and one sync; each event comes with its time. Returns the records that
    /// count from now on.
    ///
    /// # Errors
    /// A newer holder is there, or the file system says no: then the events wait for the next call.
    pub fn append(&mut self, events: Vec<(f64, Event)>) -> Result<Vec<Record>> {
        let room = MOST_WAITING.saturating_sub(self.waiting.len());
        if events.len() > room {
            tracing::error!(lost = events.len() - room, "the journal has taken nothing for long; events are lost");
        }
        self.waiting.extend(events.into_iter().take(room));
        self.holder.show()?;
        let record = |(seq, (at_s, event)): (u64, &(f64, Event))| Record { seq, at_s: *at_s, event: event.clone() };
        let records: Vec<Record> = (self.next_seq..).zip(&self.waiting).map(record).collect();
        let mut lines = Vec::new();
        for record in &records {
            encode(record, &mut lines).map_err(Error::at(&self.path))?;
        }
        self.write(lines)?;
        self.waiting.clear();
        self.next_seq += records.len() as u64;
        self.unconfirmed.extend(records);
        // A newer holder may have read the journal without these records. If there is none, every later holder will
        // read them.
        self.holder.show()?;
        Ok(std::mem::take(&mut self.unconfirmed))
    }

    /// Appends lines, all or none.
    pub(crate) fn write(&mut self, mut lines: Vec<u8>) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.reopen().map_err(Error::at(&self.path))?,
        };
        if self.is_torn {
            lines.insert(0, b'\n');
        }
        match file.write_all(&lines).and_then(|()| file.sync_data()) {
            Ok(()) => {
                self.length += lines.len() as u64;
                self.is_torn = false;
                self.file = Some(file);
                Ok(())
            }
            Err(e) => {
                // An incomplete line would hide what follows it, and after a failed sync the content on disk is
                // unknown: cut the file back.
                self.is_torn |= file.set_len(self.length).and_then(|()| file.sync_data()).is_err();
                Err(Error::at(&self.path)(e))
            }
        }
    }

    fn reopen(&mut self) -> io::Result<File> {
        let file = OpenOptions::new().append(true).open(&self.path)?;
        let length = file.metadata()?.len();
        if length != self.length {
            self.is_torn = true;
            self.length = length;
        }
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history;
    use crate::patience::Patience;

    fn event(n: u64) -> (f64, Event) {
        (n as f64, Event::CheckpointFailed { reason: format!("reason {n}") })
    }

    fn journal(run: &Path) -> Journal {
        let path = crate::holder::journal(run, 1);
        std::fs::write(&path, "").unwrap();
        Journal::of(&path, Holder::new(run, 1, Patience::NONE), 0, 1)
    }

    fn numbers(run: &Path) -> Vec<u64> {
        let bytes = std::fs::read(crate::holder::journal(run, 1)).unwrap();
        history::records(&bytes).iter().map(|r| r.seq).collect()
    }

    #[test]
    fn records_are_numbered_and_each_call_tells_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        assert_eq!(journal.append(vec![event(1), event(2)]).unwrap().len(), 2);
        assert_eq!(journal.append(vec![event(3)]).unwrap()[0].seq, 3);
        assert_eq!(numbers(dir.path()), [1, 2, 3]);
    }

    #[test]
    fn a_holder_that_another_has_followed_appends_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        journal.append(vec![event(1)]).unwrap();
        std::fs::write(crate::holder::journal(dir.path(), 2), "").unwrap();
        assert!(journal.append(vec![event(2)]).unwrap_err().is_superseded());
        assert_eq!(numbers(dir.path()), [1]);
    }

    #[test]
    fn after_an_error_the_file_is_opened_anew_and_part_of_a_line_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = journal(dir.path());
        journal.append(vec![event(1)]).unwrap();
        // As after a write that failed half way and could not be cut back either.
        let path = journal.path.clone();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"00000000 {\"seq\":2,").unwrap();
        journal.file = None;
        journal.append(vec![event(2)]).unwrap();
        assert_eq!(numbers(dir.path()), [1, 2]);
        std::fs::remove_file(&path).unwrap();
        journal.file = None;
        assert!(matches!(journal.append(vec![event(3)]), Err(Error::Storage { .. })));
        assert!(!path.exists(), "a journal that is gone is not begun anew");
        std::fs::write(&path, "").unwrap();
        let records = journal.append(vec![event(4)]).unwrap();
        assert_eq!(records.iter().map(|r| (r.seq, r.at_s)).collect::<Vec<_>>(), [(3, 3.0), (4, 4.0)]);
    }
}

//! The holder of a run. Everything that writes into the run's folder checks the fencing token first; an older holder
//! stops.

use crate::patience::Patience;
use crate::{Error, Result, storage};
use fencing::Token;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Journal of a run's first holder; names of later ones have the holder's number after a dot.
const JOURNAL: &str = "journal";

/// The number of a run's first holder.
pub const FIRST: u64 = 1;

/// One holder of a run.
#[derive(Clone, Debug)]
pub struct Holder {
    held: Option<Arc<Held>>,
    patience: Patience,
}

#[derive(Debug)]
struct Held {
    run: PathBuf,
    number: u64,
    /// The number of a newer holder that was seen; 0 until then.
    newer: AtomicU64,
}

/// The journal of a holder.
pub fn journal(run: &Path, holder: u64) -> PathBuf {
    run.join(if holder == FIRST { JOURNAL.to_string() } else { format!("{JOURNAL}.{holder}") })
}

/// The holder whose journal has this name.
pub(crate) fn of_journal(name: &str) -> Option<u64> {
    match name.strip_prefix(JOURNAL)? {
        "" => Some(FIRST),
        number => number.strip_prefix('.')?.parse().ok(),
    }
}

impl Holder {
    /// The holder with this number; a token that cannot be read is tried again with `patience`.
    pub fn new(run: &Path, number: u64, patience: Patience) -> Holder {
        let held = Held { run: run.to_path_buf(), number, newer: AtomicU64::new(0) };
        Holder { held: Some(Arc::new(held)), patience }
    }

    /// The holder of a folder that belongs to no run: nobody can take it over.
    pub fn alone() -> Holder {
        Holder { held: None, patience: Patience::NONE }
    }

    /// The same with another patience towards the storage.
    pub fn patient(&self, patience: Patience) -> Holder {
        Holder { patience, ..self.clone() }
    }

    /// Its number.
    pub fn number(&self) -> Option<u64> {
        self.held.as_ref().map(|held| held.number)
    }

    /// Checks the token: writing is allowed only if there is no newer holder.
    ///
    /// # Errors
    /// There is one, or the file system gives no answer.
    pub fn show(&self) -> Result<()> {
        let Some(held) = &self.held else { return Ok(()) };
        if held.newer.load(Ordering::SeqCst) == 0 {
            let newer = held.newer(self.patience)?;
            held.newer.fetch_max(newer.unwrap_or(0), Ordering::SeqCst);
        }
        match held.newer.load(Ordering::SeqCst) {
            0 => Ok(()),
            newer => Err(Error::Superseded { newer }),
        }
    }
}

impl Held {
    /// The number of a newer holder, if there is one: by the tokens, and by the journal of the next holder.
    fn newer(&self, patience: Patience) -> Result<Option<u64>> {
        for name in [fencing::FILE, fencing::OLDER_FILE] {
            let file = self.run.join(name);
            let Some(content) = storage::read_if_there(&file, patience)? else { continue };
            // A damaged token is skipped; the journals decide.
            let token = serde_json::from_slice::<Token>(&content).ok();
            if let Some(token) = token.filter(|token| token.holder > self.number) {
                return Ok(Some(token.holder));
            }
        }
        let next = self.number + 1;
        Ok(storage::is_there(&journal(&self.run, next), patience)?.then_some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn whose_a_journal_is_stands_in_its_name() {
        let run = Path::new("/r");
        for (holder, name) in [(1, "/r/journal"), (2, "/r/journal.2"), (1_790_000_000_003, "/r/journal.1790000000003")]
        {
            assert_eq!(journal(run, holder), Path::new(name));
            assert_eq!(of_journal(&name[3..]), Some(holder));
        }
        for other in ["journal.", "journal.x", "journals", "plan.json"] {
            assert_eq!(of_journal(other), None, "{other}");
        }
    }

    #[test]
    fn a_holder_stops_at_each_sign_of_a_newer_one_and_stays_stopped() {
        let token = |holder: u64| format!(r#"{{"version":1,"holder":{holder},"over":{{}}}}"#);
        for (name, text) in
            [(fencing::FILE, token(4)), (fencing::OLDER_FILE, token(1_790_000_000_000)), ("journal.4", String::new())]
        {
            let dir = tempfile::tempdir().unwrap();
            let holder = Holder::new(dir.path(), 3, Patience::NONE);
            for (fine, text) in [("journal.3", ""), (fencing::FILE, &token(3)), (fencing::OLDER_FILE, &token(2))] {
                fs::write(dir.path().join(fine), text).unwrap();
                holder.show().unwrap();
            }
            fs::write(dir.path().join(name), text).unwrap();
            assert!(matches!(holder.show(), Err(Error::Superseded { newer: 4.. })), "{name}");
            fs::remove_file(dir.path().join(name)).unwrap();
            assert!(holder.show().is_err(), "{name}");
        }
    }

    #[test]
    fn a_token_that_cannot_be_read_is_no_leave_to_write() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join(fencing::FILE)).unwrap();
        let shown = Holder::new(dir.path(), 3, Patience::NONE).show();
        assert!(matches!(shown, Err(Error::Storage { .. })), "{shown:?}");
        Holder::alone().show().unwrap();
    }
}

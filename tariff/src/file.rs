//! The file of a tariff, read again whenever it has changed.

use crate::{Rates, Tariff, Wrong};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

/// The largest file that is read, bytes: ten years of quarters of an hour.
const LARGEST_BYTES: u64 = 32 << 20;

/// A file that the site's own means write, such as a command that asks an electricity market each day.
pub struct TariffFile {
    path: PathBuf,
    otherwise: Rates,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// When the file that was read last was written, and its bytes.
    of: Option<(SystemTime, u64)>,
    tariff: Option<Arc<Tariff>>,
    is_told: bool,
}

impl TariffFile {
    /// A file, and the rates of all times that it does not have.
    pub fn new(path: &Path, otherwise: Rates) -> TariffFile {
        TariffFile { path: path.to_path_buf(), otherwise, known: Mutex::default() }
    }

    /// What the file says now. While it cannot be read the log says so, and what it said before holds; without any, only the
    /// rates of other times.
    pub fn tariff(&self) -> Arc<Tariff> {
        let mut known = self.known.lock();
        match self.read(&mut known.of) {
            Ok(None) => {}
            Ok(Some(tariff)) => {
                tracing::info!(path = %self.path.display(), "the tariff is read");
                (known.tariff, known.is_told) = (Some(Arc::new(tariff)), false);
            }
            Err(e) => {
                if !std::mem::replace(&mut known.is_told, true) {
                    let (path, holds) = (self.path.display(), known.holds());
                    tracing::error!(%path, %e, "accounting.tariff cannot be read: {holds}");
                }
            }
        }
        known.told(self.otherwise)
    }

    /// Reads it if it is another file than the one that was read last.
    fn read(&self, last: &mut Option<(SystemTime, u64)>) -> Result<Option<Tariff>, Unread> {
        let metadata = fs::metadata(&self.path)?;
        let of = (metadata.modified()?, metadata.len());
        if *last == Some(of) {
            return Ok(None);
        }
        if of.1 > LARGEST_BYTES {
            return Err(Unread::TooLarge(of.1));
        }
        let text = fs::read_to_string(&self.path)?;
        *last = Some(of);
        Ok(Some(Tariff::parse(&text, self.otherwise)?))
    }
}

/// Why a tariff is not read.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("{0}")]
    File(#[from] io::Error),
    #[error("it has {0} bytes, and {LARGEST_BYTES} are read")]
    TooLarge(u64),
    #[error("{0}")]
    Wrong(#[from] Wrong),
}

impl Known {
    fn told(&self, otherwise: Rates) -> Arc<Tariff> {
        let only = || Arc::new(Tariff { otherwise, ..Tariff::default() });
        self.tariff.clone().unwrap_or_else(only)
    }

    /// What holds while the file cannot be read, in words.
    fn holds(&self) -> &'static str {
        match self.tariff {
            Some(_) => "what it said before holds",
            None => {
                "until it can be, price_per_kwh and co2_g_per_kwh hold for all hours, or nothing where they are not set"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_what_it_said_holds_while_it_is_wrong() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tariff.csv");
        let otherwise = Rates { price_per_kwh: Some(0.5), co2_g_per_kwh: None };
        let file = TariffFile::new(&path, otherwise);
        let now = || file.tariff().mean(1_796_083_200.0, 1_796_083_260.0).0.price_per_kwh;
        assert_eq!(now(), Some(0.5), "there is none yet");
        assert!(file.known.lock().holds().contains("price_per_kwh"), "it has said nothing before");
        let write = |price: &str| {
            let text = format!("start,end,price_per_kwh\n2026-12-01T00:00Z,2026-12-01T01:00Z,{price}\n");
            fs::write(&path, text).unwrap();
        };
        write("1");
        assert_eq!(now(), Some(1.0));
        write("dear");
        assert_eq!(now(), Some(1.0));
        assert_eq!(file.known.lock().holds(), "what it said before holds");
        write("2.75");
        assert_eq!(now(), Some(2.75));
        fs::remove_file(&path).unwrap();
        assert_eq!(now(), Some(2.75));
    }
}

//! Says in the run's folder whose turn is over, for those whom Slurm may not be able to end any more ([`::criu::turn`]).

use crate::checkpoints::write_durably;
use crate::mail::now_s;
use ::criu::turn::{FILE, LOOK, Turn, Turns as Said};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one whose turn is over needs to notice it and to end.
const NOTICED: Duration = LOOK.saturating_add(Duration::from_secs(1));

/// The turns that one driver gives.
#[derive(Clone)]
pub struct Turns {
    file: PathBuf,
    since: Instant,
    said: Arc<Mutex<Said>>,
}

impl Turns {
    /// Takes a run up: all turns that drivers before have given are over. If that cannot be written, the run goes on, and
    /// only what Slurm has forgotten does, too.
    pub fn take_up(run: &Path) -> Turns {
        let file = run.join(FILE);
        // The first is numbered by the clock, so that one after a damaged file has a higher number, too.
        let holder = Said::read(&file).map_or_else(|_| (now_s() * 1e3) as u64, |before| before.holder + 1);
        let said = Said { version: protocol::VERSION, holder, ..Said::default() };
        write(&file, &said);
        Turns { file, since: Instant::now(), said: Arc::new(Mutex::new(said)) }
    }

    /// The turn of whoever is started in a place now.
    pub fn of(&self, place: &str) -> Turn {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let number = said.over.get(place).copied().unwrap_or(0);
        Turn { holder: said.holder, number, place: place.to_string(), file: self.file.clone() }
    }

    /// Whoever has a turn of this driver has to end, and who had one before it in its place.
    pub fn over(&self, turn: &Turn) {
        self.change(|said| {
            // The run may have ended meanwhile.
            if said.holder == turn.holder {
                let over = said.over.entry(turn.place.clone()).or_default();
                *over = (*over).max(turn.number + 1);
            }
        });
    }

    /// The run has ended, or goes back to the queue: all have to end.
    pub fn end(&self) {
        self.change(|said| *said = Said { version: said.version, holder: said.holder + 1, ..Said::default() });
    }

    /// Waits until those that drivers before have started have had the time to end.
    pub fn wait_for_others(&self) {
        thread::sleep(NOTICED.saturating_sub(self.since.elapsed()));
    }

    fn change(&self, f: impl FnOnce(&mut Said)) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        // A driver that another one has followed without its knowledge says nothing any more.
        if Said::read(&self.file).is_ok_and(|now| now.holder > said.holder) {
            return;
        }
        let before = said.clone();
        f(&mut said);
        if *said != before {
            write(&self.file, &said);
        }
    }
}

fn write(file: &Path, said: &Said) {
    let written = serde_json::to_vec(said).map_err(io::Error::from).and_then(|text| write_durably(file, &text));
    if let Err(e) = written {
        tracing::warn!(%e, "who was started before is not told that its turn is over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_with_the_next_in_its_place_with_the_next_driver_and_with_the_run() {
        let run = tempfile::tempdir().unwrap();
        let first = Turns::take_up(run.path());
        let (share, other) = (first.of("0.g0"), first.of("0.g1"));
        first.over(&share);
        first.over(&share);
        let anew = first.of("0.g0");
        assert_eq!([&share, &other, &anew].map(Turn::is_over), [true, false, false]);
        let second = Turns::take_up(run.path());
        let again = second.of("0.g0");
        assert_eq!([&share, &other, &anew, &again].map(Turn::is_over), [true, true, true, false]);
        // The one before does not know it yet.
        first.over(&first.of("0.g0"));
        first.end();
        assert!(!again.is_over() && other.is_over());
        second.end();
        assert!(again.is_over());
        std::fs::write(run.path().join(FILE), "").unwrap();
        let third = Turns::take_up(run.path());
        assert!(again.is_over() && !third.of("0.g0").is_over());
    }
}

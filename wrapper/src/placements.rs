//! Says in the run's folder which of its processes have to end, for those whom Slurm may not be able to end any more.

use crate::checkpoints::write_durably;
use crate::mail::now_s;
use fencing::{FILE, LOOK, OLDER_FILE, Placement, Token};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long one whose placement is over needs to notice it and to end.
const NOTICED: Duration = LOOK.saturating_add(Duration::from_secs(1));

/// The placements that one driver gives.
#[derive(Clone)]
pub struct Placements {
    file: PathBuf,
    since: Instant,
    token: Arc<Mutex<Token>>,
}

impl Placements {
    /// Takes a run up: all placements that drivers before have given are over. If that cannot be written, the run goes on,
    /// and only what Slurm has forgotten does, too.
    pub fn take_up(run: &Path) -> Placements {
        let file = run.join(FILE);
        // The first is numbered by the clock, so that one after a damaged file has a higher number, too.
        let before = Token::read(&file).or_else(|_| Token::read(&run.join(OLDER_FILE)));
        let holder = before.map_or_else(|_| (now_s() * 1e3) as u64, |before| before.holder + 1);
        let token = Token { version: protocol::VERSION, holder, ..Token::default() };
        write(&file, &token);
        Placements { file, since: Instant::now(), token: Arc::new(Mutex::new(token)) }
    }

    /// The placement of whoever is started in a place now.
    pub fn of(&self, place: &str) -> Placement {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let number = token.over.get(place).copied().unwrap_or(0);
        Placement { holder: token.holder, number, place: place.to_string(), file: self.file.clone() }
    }

    /// Whoever has a placement of this driver has to end, and who had one before it in its place.
    pub fn over(&self, placement: &Placement) {
        self.change(|token| {
            // The run may have ended meanwhile.
            if token.holder == placement.holder {
                let over = token.over.entry(placement.place.clone()).or_default();
                *over = (*over).max(placement.number + 1);
            }
        });
    }

    /// The run has ended, or goes back to the queue: all have to end.
    pub fn end(&self) {
        self.change(|token| token.left = true);
    }

    /// Waits until those that drivers before have started have had the time to end.
    pub fn wait_for_others(&self) {
        thread::sleep(NOTICED.saturating_sub(self.since.elapsed()));
    }

    fn change(&self, f: impl FnOnce(&mut Token)) {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        // A driver that another one has followed without its knowledge says nothing any more.
        if Token::read(&self.file).is_ok_and(|now| now.holder > token.holder) {
            return;
        }
        let before = token.clone();
        f(&mut token);
        if *token != before {
            write(&self.file, &token);
        }
    }
}

fn write(file: &Path, token: &Token) {
    let written = serde_json::to_vec(token).map_err(io::Error::from).and_then(|text| write_durably(file, &text));
    if let Err(e) = written {
        tracing::warn!(%e, "who was started before is not told that its placement is over");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placement_ends_with_the_next_in_its_place_with_the_next_driver_and_with_the_run() {
        let run = tempfile::tempdir().unwrap();
        let first = Placements::take_up(run.path());
        let (share, other) = (first.of("0.g0"), first.of("0.g1"));
        first.over(&share);
        first.over(&share);
        let anew = first.of("0.g0");
        assert_eq!([&share, &other, &anew].map(Placement::is_over), [true, false, false]);
        let second = Placements::take_up(run.path());
        let again = second.of("0.g0");
        assert_eq!([&share, &other, &anew, &again].map(Placement::is_over), [true, true, true, false]);
        // The one before does not know it yet.
        first.over(&first.of("0.g0"));
        first.end();
        assert!(!again.is_over() && other.is_over());
        second.end();
        assert!(again.is_over());
        std::fs::write(run.path().join(FILE), "").unwrap();
        let third = Placements::take_up(run.path());
        assert!(again.is_over() && !third.of("0.g0").is_over());
    }
}

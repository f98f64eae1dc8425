//! Writes into a run's token which of its processes have to end, for those that Slurm may no longer be able to end.

use crate::take_up::write_token;
use crate::{Holder, Patience, Worker};
use fencing::{FILE, LOOK, Placement, Token};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time in which a process notices that its placement is over, and ends.
const NOTICED: Duration = LOOK.saturating_add(Duration::from_secs(1));

/// How long the end of a placement waits for a storage that does not get on.
const LIMIT: Duration = Duration::from_secs(60);

/// The placements that one holder gives out.
#[derive(Clone)]
pub struct Placements {
    run: PathBuf,
    holder: Holder,
    since: Instant,
    token: Arc<Mutex<Token>>,
    /// Writes the token.
    worker: Worker,
    limit: Duration,
}

impl Placements {
    /// The placements of a holder that has just taken the run up: those of earlier holders are over.
    pub fn of_holder(run: &Path, holder: &Holder) -> Placements {
        let number = holder.number().unwrap_or(0);
        let token = Token { version: protocol::VERSION, holder: number, ..Token::default() };
        let (run, holder) = (run.to_path_buf(), holder.clone());
        let token = Arc::new(Mutex::new(token));
        Placements { run, holder, since: Instant::now(), token, worker: Worker::start(), limit: LIMIT }
    }

    /// A placement for a process that is started in a place now.
    pub fn of(&self, place: &str) -> Placement {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let number = token.over.get(place).copied().unwrap_or(0);
        Placement { holder: token.holder, number, place: place.to_string(), file: self.run.join(FILE) }
    }

    /// Ends a placement, and all before it in its place.
    pub fn over(&self, placement: &Placement) {
        self.change(|token| {
            // The run may have ended meanwhile.
            if token.holder == placement.holder && !token.left {
                let over = token.over.entry(placement.place.clone()).or_default();
                *over = (*over).max(placement.number + 1);
            }
        });
    }

    /// Ends all placements: the run has ended, or goes back to the queue.
    pub fn end(&self) {
        self.change(|token| token.left = true);
    }

    /// Waits until processes of earlier holders have had the time to end.
    pub fn wait_for_others(&self) {
        thread::sleep(NOTICED.saturating_sub(self.since.elapsed()));
    }

    fn change(&self, f: impl FnOnce(&mut Token)) {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let before = token.clone();
        f(&mut token);
        if *token == before {
            return;
        }
        let (run, holder, token) = (self.run.clone(), self.holder.clone(), token.clone());
        let write = move || holder.show().and_then(|()| write_token(&run, FILE, &token, Patience::SHORT));
        if let Err(e) =
            self.worker.ask("telling that a placement is over", self.limit, write).and_then(|written| written)
        {
            tracing::warn!(%e, "who was started before is not told that its placement is over");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Claim;
    use crate::take_up;

    fn placements(run: &Path) -> Placements {
        let taken = take_up(run, &Claim::default(), Patience::NONE).unwrap();
        Placements::of_holder(run, &taken.holder)
    }

    #[test]
    fn a_placement_ends_with_the_next_in_its_place_with_the_next_holder_and_with_the_run() {
        let run = tempfile::tempdir().unwrap();
        let first = placements(run.path());
        let (share, other) = (first.of("0.g0"), first.of("0.g1"));
        first.over(&share);
        first.over(&share);
        let anew = first.of("0.g0");
        assert_eq!([&share, &other, &anew].map(Placement::is_over), [true, false, false]);
        let second = placements(run.path());
        let again = second.of("0.g0");
        assert_eq!([&share, &other, &anew, &again].map(Placement::is_over), [true, true, true, false]);
        // The earlier holder does not know yet that it was superseded.
        first.over(&first.of("0.g0"));
        first.end();
        assert!(!again.is_over() && other.is_over());
        second.end();
        assert!(again.is_over());
        std::fs::write(run.path().join(FILE), "").unwrap();
        let third = placements(run.path());
        assert!(again.is_over() && !third.of("0.g0").is_over());
    }

    #[test]
    fn a_storage_that_hangs_keeps_no_run_from_its_end() {
        let run = tempfile::tempdir().unwrap();
        let own = Placements { limit: Duration::from_millis(200), ..placements(run.path()) };
        let token = run.path().join(FILE);
        std::fs::remove_file(&token).unwrap();
        // Whoever opens it waits for a writer.
        nix::unistd::mkfifo(&token, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let begun = Instant::now();
        own.end();
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
}

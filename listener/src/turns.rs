//! Gives each user a bounded number of turns at what waits for a disk, Slurm or another process, so that one who asks for
//! much waits for himself.

use crate::refusal::Refusal;
use axum::http::StatusCode;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of how many users turns are remembered before those who rest are forgotten.
const MOST_REMEMBERED: usize = 1024;

/// So many turns of each user at the same time; root's are not counted.
#[derive(Debug)]
pub struct Turns {
    each: usize,
    of: Mutex<HashMap<u32, Arc<Semaphore>>>,
}

/// A user's turns.
pub type Own = Arc<Semaphore>;

impl Turns {
    /// So many for each.
    pub fn new(each: usize) -> Turns {
        Turns { each, of: Mutex::default() }
    }

    /// The turns of a user; none of root, who waits for nobody.
    pub fn of(&self, uid: u32) -> Option<Own> {
        if uid == 0 {
            return None;
        }
        let mut of = self.of.lock();
        if of.len() >= MOST_REMEMBERED {
            of.retain(|_, turns| Arc::strong_count(turns) > 1);
        }
        Some(of.entry(uid).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone())
    }

    /// Waits for one of a user's turns; it ends when what is given is dropped.
    pub async fn take(&self, uid: u32) -> Option<OwnedSemaphorePermit> {
        match self.of(uid) {
            // It is never closed.
            Some(own) => own.acquire_owned().await.ok(),
            None => None,
        }
    }
}

tokio::task_local! {
    /// The turns of who asks, while a request is answered.
    static OWN: Option<Own>;
}

/// Answers a request as one of a user's turns.
pub async fn in_turn<T>(own: Option<Own>, answer: impl Future<Output = T>) -> T {
    OWN.scope(own, answer).await
}

/// Does something that waits for a disk or another process, without holding the others up: as one of the turns of who
/// asks.
///
/// # Errors
/// When it panics.
pub async fn blocking<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let own = OWN.try_with(Clone::clone).ok().flatten();
    let _turn = match own {
        Some(own) => own.acquire_owned().await.ok(),
        None => None,
    };
    tokio::task::spawn_blocking(f).await.map_err(|e| Refusal(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn who_has_taken_all_turns_waits_and_nobody_else_does() {
        let turns = Turns::new(2);
        let held = [turns.take(7).await, turns.take(7).await];
        let third = tokio::time::timeout(Duration::from_millis(20), turns.take(7)).await;
        assert!(third.is_err(), "a third at the same time");
        assert!(turns.take(8).await.is_some() && turns.take(0).await.is_none());
        drop(held);
        assert!(turns.take(7).await.is_some());
    }

    #[test]
    fn users_who_rest_are_forgotten() {
        let turns = Turns::new(2);
        let kept = turns.of(1);
        for uid in 2..5000 {
            turns.of(uid);
        }
        assert!(turns.of.lock().len() <= MOST_REMEMBERED && turns.of.lock().contains_key(&1));
        drop(kept);
    }
}

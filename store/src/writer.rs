//! Writes to the store from one thread: what waits at the same time shares one transaction and one sync.

use crate::error::{Error, Result};
use crate::store::{Store, Write};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Most writes that may wait; more are turned away and sent again later.
const MOST_WAITING: usize = 8192;

/// Most writes of one transaction.
const MOST_TOGETHER: usize = 1024;

/// Writes that are not stored: said when that begins and when it is over, however many there are.
#[derive(Debug, Default)]
struct Unstored {
    since: Option<Instant>,
    writes: usize,
}

impl Unstored {
    /// So many more are not stored; whether that begins.
    fn more(&mut self, writes: usize) -> bool {
        self.writes += writes;
        writes > 0 && self.since.replace(self.since.unwrap_or_else(Instant::now)).is_none()
    }

    /// Everything of a transaction is stored; for how long and how many writes were not, if any.
    fn over(&mut self) -> Option<(Duration, usize)> {
        Some((self.since.take()?.elapsed(), std::mem::take(&mut self.writes)))
    }
}

/// A write on its way, and who waits for its answer.
type Waiting = (Write, Option<oneshot::Sender<Result<u64>>>);

/// The way to the writing thread.
#[derive(Clone, Debug)]
pub struct Writer {
    sender: SyncSender<Waiting>,
    unstored: Arc<Mutex<Unstored>>,
}

impl Writer {
    /// Starts the thread; it ends with the last `Writer`.
    pub fn start(store: Arc<Mutex<Store>>) -> Writer {
        let (sender, receiver) = sync_channel(MOST_WAITING);
        let unstored = Arc::<Mutex<Unstored>>::default();
        let counting = unstored.clone();
        std::thread::spawn(move || write_for_ever(&store, &receiver, &counting));
        Writer { sender, unstored }
    }

    /// Writes, and waits until it is on disk.
    ///
    /// # Errors
    /// What the store says, or that too much waits.
    pub async fn write(&self, write: Write) -> Result<u64> {
        let (answer, answered) = oneshot::channel();
        self.send(write, Some(answer))?;
        answered.await.map_err(|_| Error::NoWriter)?
    }

    /// Writes when there is room, and waits for nothing.
    pub fn note(&self, write: Write) {
        if let Err(e) = self.send(write, None) {
            say_unstored(&self.unstored, 1, &e);
        }
    }

    fn send(&self, write: Write, answer: Option<oneshot::Sender<Result<u64>>>) -> Result<()> {
        self.sender.try_send((write, answer)).map_err(|e| match e {
            TrySendError::Full(_) => Error::Busy(MOST_WAITING),
            TrySendError::Disconnected(_) => Error::NoWriter,
        })
    }
}

fn write_for_ever(store: &Mutex<Store>, receiver: &Receiver<Waiting>, unstored: &Mutex<Unstored>) {
    while let Ok(first) = receiver.recv() {
        let (mut writes, mut answers) = (vec![first.0], vec![first.1]);
        while writes.len() < MOST_TOGETHER
            && let Ok((write, answer)) = receiver.try_recv()
        {
            writes.push(write);
            answers.push(answer);
        }
        let written = store.lock().write(&writes);
        match written {
            Ok(results) => {
                let is_whole = results.iter().all(Result::is_ok);
                let lost: Vec<Error> =
                    results.into_iter().zip(answers).filter_map(|(result, answer)| tell(answer, result)).collect();
                match lost.first() {
                    Some(e) => say_unstored(unstored, lost.len(), e),
                    None if is_whole => say_over(unstored),
                    None => {}
                }
            }
            Err(e) => {
                say_unstored(unstored, writes.len(), &e);
                for answer in answers {
                    let _ = tell(answer, Err(Error::NotWritten(e.to_string())));
                }
            }
        }
    }
}

/// Answers whoever waits for a write; of one for which nobody waits, what went wrong.
fn tell(answer: Option<oneshot::Sender<Result<u64>>>, result: Result<u64>) -> Option<Error> {
    match answer {
        // Whoever no longer waits sends again: what is stored is stored once.
        Some(answer) => {
            let _ = answer.send(result);
            None
        }
        None => result.err(),
    }
}

fn say_unstored(unstored: &Mutex<Unstored>, writes: usize, e: &Error) {
    if unstored.lock().more(writes) {
        tracing::error!(%e, "the store cannot be written; said once. What is to be written is sent again");
    }
}

fn say_over(unstored: &Mutex<Unstored>) {
    if let Some((after, writes)) = unstored.lock().over() {
        let after_s = after.as_secs_f64();
        tracing::info!(after_s, unstored = writes, "the store can be written again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_nothing_can_be_stored_is_said_when_it_begins_and_when_it_is_over() {
        let mut unstored = Unstored::default();
        assert!(unstored.over().is_none());
        assert_eq!([5, 1, 7].map(|writes| unstored.more(writes)), [true, false, false]);
        assert_eq!(unstored.over().map(|(_, writes)| writes), Some(13));
        assert!(unstored.over().is_none());
        assert!(unstored.more(1), "it begins again");
    }
}

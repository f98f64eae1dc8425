//! Writes to the store from one thread: what waits at the same time shares one transaction and one sync.

use crate::error::{Error, Result};
use crate::store::{Store, Write};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use tokio::sync::oneshot;

/// Most writes that may wait; more are turned away and sent again later.
const MOST_WAITING: usize = 8192;

/// Most writes of one transaction.
const MOST_TOGETHER: usize = 1024;

/// A write on its way, and who waits for its answer.
type Waiting = (Write, Option<oneshot::Sender<Result<u64>>>);

/// The way to the writing thread.
#[derive(Clone, Debug)]
pub struct Writer {
    sender: SyncSender<Waiting>,
}

impl Writer {
    /// Starts the thread; it ends with the last `Writer`.
    pub fn start(store: Arc<Mutex<Store>>) -> Writer {
        let (sender, receiver) = sync_channel(MOST_WAITING);
        std::thread::spawn(move || write_for_ever(&store, &receiver));
        Writer { sender }
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
            tracing::warn!(%e, "counters are not stored; the next heartbeat brings them again");
        }
    }

    fn send(&self, write: Write, answer: Option<oneshot::Sender<Result<u64>>>) -> Result<()> {
        self.sender.try_send((write, answer)).map_err(|e| match e {
            TrySendError::Full(_) => Error::Busy(MOST_WAITING),
            TrySendError::Disconnected(_) => Error::NoWriter,
        })
    }
}

fn write_for_ever(store: &Mutex<Store>, receiver: &Receiver<Waiting>) {
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
                for (result, answer) in results.into_iter().zip(answers) {
                    tell(answer, result);
                }
            }
            Err(e) => {
                tracing::error!(%e, "the store cannot be written");
                for answer in answers {
                    tell(answer, Err(Error::NotWritten(e.to_string())));
                }
            }
        }
    }
}

fn tell(answer: Option<oneshot::Sender<Result<u64>>>, result: Result<u64>) {
    match answer {
        // Whoever no longer waits sends again: what is stored is stored once.
        Some(answer) => drop(answer.send(result)),
        None => {
            if let Err(e) = result {
                tracing::error!(%e, "counters could not be stored");
            }
        }
    }
}

//! Brings the journal's records to the controller, in order, until it says that it has them; to this node's spool
//! meanwhile, so that they arrive also when no wrapper is left to bring them.

use crate::cluster::Controller;
use protocol::{Batch, Delivered, Record, RunKey};
use run::Patience;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use wire::{Client, Error};

/// Most records in one request.
const BATCH: usize = 500;

/// Most of their bytes, while there is more than one: a quarter of what a service takes.
const BATCH_BYTES: usize = wire::LARGEST_BODY / 4;

/// Pause after a failed try; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the controller answers to new records of a holder that another has followed.
const SUPERSEDED: u16 = 409;

/// The node service on this node, if it is known where it answers.
pub type Spool = Box<dyn Fn() -> Option<Client> + Send>;

/// All records that the run's journals hold.
pub type Recall = Box<dyn Fn() -> Vec<Record> + Send>;

/// Reads them from the folder of a run.
pub fn recall(run: &Path) -> Recall {
    let run = run.to_path_buf();
    Box::new(move || {
        let history = run::history::read(&run, Patience::SHORT);
        history.inspect_err(|e| tracing::warn!(%e, "the journals cannot be read")).unwrap_or_default().records
    })
}

/// Delivers records in the background.
pub struct Courier {
    shared: Arc<(Mutex<Queue>, Condvar)>,
    superseded: Arc<AtomicBool>,
}

/// Whose records they are.
struct Sender {
    key: RunKey,
    /// Number of the run's holder; absent for a controller of a version that knows none.
    holder: Option<u64>,
    /// The controller has said that there is a newer one.
    superseded: Arc<AtomicBool>,
}

#[derive(Default)]
struct Queue {
    /// What the controller has not acknowledged.
    waiting: VecDeque<Record>,
    /// Position up to which this node's spool has it.
    spooled: u64,
    hurry: bool,
}

impl Queue {
    /// Whether everything is in other hands.
    fn is_safe(&self) -> bool {
        self.waiting.back().is_none_or(|r| r.seq <= self.spooled)
    }

    /// Puts back what comes after a position and before what waits; how many records.
    fn take_back(&mut self, all: Vec<Record>, after: u64) -> usize {
        let first = self.waiting.front().map_or(u64::MAX, |r| r.seq);
        let lost: Vec<Record> = all.into_iter().filter(|r| after < r.seq && r.seq < first).collect();
        let count = lost.len();
        lost.into_iter().rev().for_each(|record| self.waiting.push_front(record));
        count
    }

    /// The first records after a position.
    fn batch(&self, of: &Sender, after: u64) -> Batch {
        let mut bytes = 0;
        let fits = |r: &&Record| {
            let is_first = bytes == 0;
            bytes += serde_json::to_vec(r).map_or(0, |json| json.len());
            is_first || bytes <= BATCH_BYTES
        };
        let records = self.waiting.iter().filter(|r| r.seq > after).take(BATCH).take_while(fits).cloned().collect();
        Batch { version: protocol::VERSION, key: of.key.clone(), holder: of.holder, records }
    }
}

impl Courier {
    /// A courier for one run and its holder; `earlier` are the records that the journals hold already. They are asked again
    /// (`recall`) if the controller has lost what it had.
    pub fn start(
        controller: Arc<Controller>,
        spool: Spool,
        recall: Recall,
        key: RunKey,
        holder: Option<u64>,
        earlier: Vec<Record>,
    ) -> Courier {
        let queue = Queue { waiting: earlier.into(), ..Queue::default() };
        let shared = Arc::new((Mutex::new(queue), Condvar::new()));
        let superseded = Arc::new(AtomicBool::new(false));
        let courier = Courier { shared: shared.clone(), superseded: superseded.clone() };
        let of = Sender { key, holder, superseded };
        threads::start(move || deliver(&shared, &controller, &spool, &recall, of));
        courier
    }

    /// Whether the controller knows a newer holder of the run.
    pub fn is_superseded(&self) -> bool {
        self.superseded.load(Ordering::SeqCst)
    }

    /// Takes up records that are in the journal.
    pub fn take(&self, records: Vec<Record>) {
        let (queue, changed) = &*self.shared;
        if let Ok(mut queue) = queue.lock() {
            queue.waiting.extend(records);
            changed.notify_all();
        }
    }

    /// Waits until everything is delivered or in this node's spool, at most for `limit`; true if it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let (queue, changed) = &*self.shared;
        let end = Instant::now() + limit;
        let Ok(mut queue) = queue.lock() else { return false };
        queue.hurry = true;
        changed.notify_all();
        while !queue.is_safe() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            match changed.wait_timeout(queue, left) {
                Ok((after, _)) => queue = after,
                Err(_) => return false,
            }
        }
        true
    }
}

fn deliver(shared: &(Mutex<Queue>, Condvar), controller: &Controller, spool: &Spool, recall: &Recall, mut of: Sender) {
    let (queue, changed) = shared;
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    loop {
        let batch = {
            let Ok(queue) = queue.lock() else { return };
            let Ok(queue) = changed.wait_while(queue, |q| q.waiting.is_empty()) else { return };
            queue.batch(&of, 0)
        };
        let first = batch.records.first().map_or(0, |r| r.seq);
        match controller.client.post::<Batch, Delivered>("/v1/records", &batch) {
            Ok(Delivered { upto }) if upto >= first => {
                pause = FIRST_PAUSE;
                let Ok(mut queue) = queue.lock() else { return };
                while queue.waiting.front().is_some_and(|r| r.seq <= upto) {
                    queue.waiting.pop_front();
                }
                changed.notify_all();
                continue;
            }
            // Its store was lost, or is an older copy.
            Ok(Delivered { upto }) => {
                let all = recall();
                let Ok(mut queue) = queue.lock() else { return };
                let again = queue.take_back(all, upto);
                tracing::warn!(upto, again, "the controller has lost records of this run; they are brought again");
                if again > 0 {
                    continue;
                }
            }
            Err(Error::Refused { status: SUPERSEDED, text }) => {
                tracing::warn!(text, "another wrapper has taken the run up; nothing more is delivered");
                return of.superseded.store(true, Ordering::SeqCst);
            }
            Err(Error::Refused { status: 400, text }) if of.holder.is_some() && text.contains("`holder`") => {
                // An older controller knows no holders. Whatever else it refuses, the holder's number stays: without it
                // the store could not tell this wrapper from one that was followed.
                of.holder = None;
                continue;
            }
            // They stay in the journal, and are tried again: a site may mend what it refuses.
            Err(e) if e.is_final() => {
                let text = e.to_string();
                if text != told {
                    tracing::error!(
                        text,
                        first,
                        "the controller refuses records of this run; they wait in its journal"
                    );
                    told = text;
                }
            }
            Err(e) => {
                tracing::debug!(%e, "records wait for the controller");
                if into_spool(shared, spool, &of).is_none() {
                    return;
                }
            }
        }
        let Ok(queue) = queue.lock() else { return };
        let wait = if queue.hurry { FIRST_PAUSE } else { pause };
        if changed.wait_timeout(queue, wait).is_err() {
            return;
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Hands what waits to this node's spool, as much as it takes; none if another thread has panicked.
fn into_spool(shared: &(Mutex<Queue>, Condvar), spool: &Spool, of: &Sender) -> Option<()> {
    let (queue, changed) = shared;
    let Some(client) = spool() else { return Some(()) };
    loop {
        let batch = {
            let queue = queue.lock().ok()?;
            queue.batch(of, queue.spooled)
        };
        if batch.records.is_empty() {
            return Some(());
        }
        match client.post::<Batch, Delivered>("/v1/records", &batch) {
            Ok(Delivered { upto }) => {
                let mut queue = queue.lock().ok()?;
                if upto <= queue.spooled {
                    return Some(());
                }
                queue.spooled = upto;
                changed.notify_all();
            }
            Err(e) => {
                tracing::debug!(%e, "this node's spool does not take them either");
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Event;

    #[test]
    fn a_batch_is_no_larger_than_a_service_takes_and_never_empty() {
        let record = |seq: u64, bytes: usize| {
            let event = Event::CheckpointFailed { reason: "x".repeat(bytes) };
            Record { seq, at_s: 1.0, event }
        };
        let key = RunKey { cluster: "c".into(), run: "7.1".into() };
        let of = Sender { key, holder: None, superseded: Arc::default() };
        let small: Vec<Record> = (1..=10).map(|seq| record(seq, BATCH_BYTES / 4)).collect();
        let queue = Queue { waiting: small.into(), ..Queue::default() };
        assert_eq!(queue.batch(&of, 0).records.len(), 3);
        assert_eq!(queue.batch(&of, 9).records.len(), 1);
        let queue = Queue { waiting: [record(1, 2 * BATCH_BYTES), record(2, 1)].into(), ..Queue::default() };
        assert_eq!(queue.batch(&of, 0).records.len(), 1);
        let queue = Queue { waiting: (1..=1000).map(|seq| record(seq, 1)).collect(), ..Queue::default() };
        assert_eq!(queue.batch(&of, 0).records.len(), BATCH);
    }
}

//! Brings the journal's records to the controller, in order, until it says that it has them.

use crate::job::Controller;
use protocol::{Batch, Delivered, Record, RunKey};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Most records in one request.
const BATCH: usize = 500;

/// Pause after a failed try; doubled up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Delivers records in the background.
pub struct Courier {
    shared: Arc<(Mutex<Queue>, Condvar)>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Record>,
    hurry: bool,
}

impl Courier {
    /// A courier for one run; `earlier` are the records that the journal holds already.
    pub fn start(controller: Arc<Controller>, key: RunKey, earlier: Vec<Record>) -> Courier {
        let queue = Queue { waiting: earlier.into(), hurry: false };
        let shared = Arc::new((Mutex::new(queue), Condvar::new()));
        let courier = Courier { shared: shared.clone() };
        thread::spawn(move || deliver(&shared, &controller, &key));
        courier
    }

    /// Takes up records that are in the journal.
    pub fn take(&self, records: Vec<Record>) {
        let (queue, changed) = &*self.shared;
        if let Ok(mut queue) = queue.lock() {
            queue.waiting.extend(records);
            changed.notify_all();
        }
    }

    /// Waits until everything is delivered, at most for `limit`; true if it is.
    pub fn flush(&self, limit: Duration) -> bool {
        let (queue, changed) = &*self.shared;
        let end = Instant::now() + limit;
        let Ok(mut queue) = queue.lock() else { return false };
        queue.hurry = true;
        changed.notify_all();
        while !queue.waiting.is_empty() {
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

fn deliver(shared: &(Mutex<Queue>, Condvar), controller: &Controller, key: &RunKey) {
    let (queue, changed) = shared;
    let mut pause = FIRST_PAUSE;
    loop {
        let batch = {
            let Ok(mut queue) = queue.lock() else { return };
            while queue.waiting.is_empty() {
                queue = match changed.wait(queue) {
                    Ok(queue) => queue,
                    Err(_) => return,
                };
            }
            let records = queue.waiting.iter().take(BATCH).cloned().collect();
            Batch { version: protocol::VERSION, key: key.clone(), records }
        };
        match controller.client.post::<Batch, Delivered>("/v1/records", &batch) {
            Ok(Delivered { upto }) => {
                pause = FIRST_PAUSE;
                let Ok(mut queue) = queue.lock() else { return };
                while queue.waiting.front().is_some_and(|r| r.seq <= upto) {
                    queue.waiting.pop_front();
                }
                changed.notify_all();
            }
            Err(e) => {
                tracing::debug!(%e, "records wait for the controller");
                let Ok(queue) = queue.lock() else { return };
                let wait = if queue.hurry { FIRST_PAUSE } else { pause };
                if changed.wait_timeout(queue, wait).is_err() {
                    return;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

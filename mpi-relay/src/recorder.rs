//! Makes outcomes durable in a thread of its own: what came while one batch was synced is the next batch.

use crate::Error;
use crate::outcomes::Outcomes;
use mlog::book::replace;
use mlog::system;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause after a write that failed: what waits for it waits on, since it may not leave before.
const PAUSE: Duration = Duration::from_secs(1);

enum Work {
    Append(Vec<u8>, u64),
    Rewrite(Vec<u8>),
}

/// The thread and what it has done.
pub(crate) struct Recorder {
    work: Option<Sender<Work>>,
    safe: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Opens a file of records and takes in those that are whole.
    pub(crate) fn open(path: PathBuf, outcomes: &mut Outcomes, wake: UnixStream) -> Result<Recorder, Error> {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(system(path.display())(e).into()),
        };
        let good = outcomes.restore(&bytes);
        if good < bytes.len() {
            tracing::warn!(path = %path.display(), good, bytes = bytes.len(), "torn records of outcomes are cut off");
        }
        replace(&path, &bytes[..good])?;
        let (work, todo) = channel();
        let safe = Arc::new(AtomicU64::new(0));
        let done = safe.clone();
        let thread = threads::start(move || record(&path, &todo, &done, wake));
        Ok(Recorder { work: Some(work), safe, thread: Some(thread) })
    }

    /// Appends records; `count` is how many there will be since the start.
    pub(crate) fn append(&self, bytes: Vec<u8>, count: u64) {
        self.give(Work::Append(bytes, count));
    }

    /// Replaces all records by these.
    pub(crate) fn rewrite(&self, bytes: Vec<u8>) {
        self.give(Work::Rewrite(bytes));
    }

    /// How many records since the start are durable.
    pub(crate) fn safe(&self) -> u64 {
        self.safe.load(Ordering::Acquire)
    }

    /// Ends when all is written, if it can be.
    pub(crate) fn end(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn give(&self, work: Work) {
        // The thread ends only after this end is dropped.
        let _ = self.work.as_ref().map(|to| to.send(work));
    }
}

fn record(path: &Path, todo: &Receiver<Work>, safe: &AtomicU64, mut wake: UnixStream) {
    while let Ok(first) = todo.recv() {
        let mut count = 0;
        let mut batch: Vec<u8> = Vec::new();
        let mut whole = None;
        for work in std::iter::once(first).chain(todo.try_iter()) {
            match work {
                Work::Append(bytes, upto) => {
                    batch.extend(bytes);
                    count = upto;
                }
                // It holds all that was appended before it was made.
                Work::Rewrite(bytes) => {
                    whole = Some(bytes);
                    batch.clear();
                }
            }
        }
        if let Some(bytes) = whole {
            persist(path, || replace(path, &bytes).map_err(io::Error::other));
        }
        if !batch.is_empty() {
            append(path, &batch);
        }
        if count > 0 {
            safe.store(count, Ordering::Release);
            // The relay reads it when it wakes; a full pipe wakes it as well.
            let _ = wake.write(&[1]);
        }
    }
}

fn append(path: &Path, batch: &[u8]) {
    let length = || Ok::<u64, io::Error>(std::fs::metadata(path)?.len());
    let before = persist(path, length);
    persist(path, || {
        let mut file = OpenOptions::new().write(true).open(path)?;
        // A try that failed half way left a part.
        file.set_len(before)?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(before))?;
        file.write_all(batch)?;
        File::sync_data(&file)
    });
}

/// Tries until it works. Nothing leaves meanwhile, and that is said.
fn persist<T>(path: &Path, mut act: impl FnMut() -> io::Result<T>) -> T {
    loop {
        match act() {
            Ok(done) => return done,
            Err(e) => {
                tracing::error!(path = %path.display(), "outcomes cannot be kept, and messages wait for it: {e}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

//! A rank's end: it sends to ranks of other groups and receives from them, through its group's relay.
//!
//! Any thread of the rank may call, one at a time. One thread of our own, the keeper, closes the sockets when the relay
//! asks for it, whatever the program does, waits without a socket until the dump is over, and reaches the relay again.

mod body;
mod keeper;
mod reach;
pub mod repeat;
mod state;

use crate::envelope::PREFIX_BYTES;
use crate::words::Progress;
use crate::{Envelope, Error, Outcome};
pub use body::Body;
use mlog::frame::PART_BYTES;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use state::{Shared, State};
use std::path::{Path, PathBuf};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

/// Held for a relay that may have to come again; a send waits beyond it, bytes.
const UNLOGGED_BYTES: usize = 16 << 20;

/// How long a relay may be away, unless `FT_ENERGY_RELAY_WAIT` says otherwise [s].
const RELAY_WAIT_S: u64 = 60;

/// Longest sleep of one wait; nothing depends on it.
const NAP: Duration = Duration::from_secs(1);

/// The file beside a relay's socket that keeps ranks away while it is there.
pub fn rest_file(socket: &Path) -> PathBuf {
    socket.with_extension("rest")
}

/// A rank's connection to its relay.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

impl Client {
    /// Joins at the relay with this socket, as one of so many world ranks. Waits for the relay as long as
    /// `FT_ENERGY_RELAY_WAIT` says, 60 s by default; a rest does not count.
    ///
    /// # Errors
    /// [`Error::Away`], or what the relay says.
    pub fn connect(socket: &Path, rank: u32, ranks: usize) -> Result<Client, Error> {
        Client::connect_at(socket, rank, &Progress::start(ranks))
    }

    /// As [`Client::connect`], for a rank that was restored without its memory, and was as far as [`Client::progress`] said.
    ///
    /// # Errors
    /// As there.
    pub fn connect_at(socket: &Path, rank: u32, progress: &Progress) -> Result<Client, Error> {
        let wait = std::env::var("FT_ENERGY_RELAY_WAIT").ok().and_then(|s| s.parse().ok());
        let shared = Shared::new(socket, rank, wait.unwrap_or(RELAY_WAIT_S), progress)?;
        let shared = Arc::new(shared);
        let questions = keeper::join(&shared)?;
        keeper::start(&shared, questions)?;
        Ok(Client { shared })
    }

    /// Sends a message. The bytes are copied; when this returns the system or this client holds them, and the order for
    /// each receiver is kept. While it waits for room it takes in what comes.
    ///
    /// # Errors
    /// What the relay says.
    pub fn send(&self, to: u32, envelope: Envelope, body: &[u8]) -> Result<(), Error> {
        let mut state = self.lock()?;
        let mut rest = body;
        loop {
            let (part, after) = rest.split_at(rest.len().min(PART_BYTES - PREFIX_BYTES));
            state.send(to as usize, &envelope, part, after.len())?;
            state = self.write_out(state)?;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }

    /// The next message that has come; does not wait. After the last one it says once that there is none without a look.
    ///
    /// # Errors
    /// What the relay says.
    pub fn receive(&self) -> Result<Option<(Envelope, Body)>, Error> {
        let mut state = self.lock()?;
        if state.inbox.is_empty() && !std::mem::take(&mut state.emptied) {
            state.read()?;
        }
        let next = state.inbox.pop_front();
        // Who asks on until there is nothing need not ask the system for what it has just said.
        state.emptied = next.is_some() && state.inbox.is_empty() && state.is_drained();
        Ok(next)
    }

    /// Sleeps until something may be there to receive, but not longer than this. Whether there is.
    ///
    /// # Errors
    /// What the relay says.
    pub fn wait(&self, at_most: Duration) -> Result<bool, Error> {
        let begun = Instant::now();
        let mut state = self.lock()?;
        loop {
            if state.inbox.is_empty() {
                state.read()?;
            }
            let left = at_most.saturating_sub(begun.elapsed());
            if !state.inbox.is_empty() || left.is_zero() {
                return Ok(!state.inbox.is_empty());
            }
            state = self.sleep(state, left);
            state.check()?;
        }
    }

    /// What this rank does depends on when messages come: restored alone, it would not send the same again.
    ///
    /// # Errors
    /// What the relay says.
    pub fn varies(&self) -> Result<(), Error> {
        let mut state = self.lock()?;
        state.vary();
        self.write_out(state).map(drop)
    }

    /// Keeps an outcome: durable before any later message of this group leaves it.
    ///
    /// # Errors
    /// [`Error::Repeating`], or what the relay says.
    pub fn record(&self, outcome: Outcome) -> Result<(), Error> {
        let mut state = self.lock()?;
        while state.link.is_none() {
            // Another rank may depend on it by the group's own MPI, and be back at the relay before this one.
            state = self.sleep(state, NAP);
            state.check()?;
        }
        state.record(outcome)?;
        self.write_out(state).map(drop)
    }

    /// The next outcome that a restored rank must repeat; `None` when it may see for itself. Waits while the rank is away
    /// from its relay: whether it was restored it learns when it is back.
    pub fn replayed(&self) -> Option<Outcome> {
        let mut state = self.shared.lock();
        while state.link.is_none() && state.ended.is_none() && !state.finished {
            state = self.sleep(state, NAP);
        }
        state.next_repeated()
    }

    /// How far this rank is, for a checkpoint that does not keep its memory. What has come must have been received.
    ///
    /// # Errors
    /// [`Error::Usage`] if something was not received.
    pub fn progress(&self) -> Result<Progress, Error> {
        let mut state = self.lock()?;
        state.read()?;
        state.whole_progress()
    }

    /// Ends the program everywhere.
    pub fn abort(&self, code: i32) {
        let mut state = self.shared.lock();
        if state.ended.is_none() {
            state.say_abort(code);
            // Whoever waits for this rank sees that it is gone, too.
            drop(self.write_out(state));
        }
    }

    /// Says goodbye, when all that was sent is logged. Nothing can be sent or received afterwards.
    ///
    /// # Errors
    /// What the relay says.
    pub fn finish(&self) -> Result<(), Error> {
        let mut state = self.lock()?;
        state.say_goodbye()?;
        loop {
            state.read()?;
            if state.finished {
                return Ok(());
            }
            state = self.sleep(state, NAP);
            state.check()?;
        }
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        let state = self.shared.lock();
        state.check().map(|()| state)
    }

    /// Writes all that waits, and takes in meanwhile what comes: the relay may wait for this rank to do so.
    fn write_out<'a>(&'a self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>, Error> {
        loop {
            state.write();
            let away = state.link.is_none();
            if (away || state.out_bytes() == 0) && state.unlogged_bytes <= UNLOGGED_BYTES {
                return Ok(state);
            }
            state.read()?;
            if state.out_bytes() > 0 || state.unlogged_bytes > UNLOGGED_BYTES {
                state = self.sleep(state, NAP);
                state.check()?;
            }
        }
    }

    /// Sleeps without the lock, so that the keeper can close the socket; it closes it only when nobody sleeps on it.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>, at_most: Duration) -> MutexGuard<'a, State> {
        let at_most = at_most.min(NAP);
        if state.link.is_none() && !state.leaving {
            // It broke: the keeper reaches the relay again.
            self.shared.rouse();
        }
        let Some(link) = state.link.as_ref().filter(|_| !state.leaving) else {
            let waited = self.shared.changed.wait_timeout(state, at_most);
            return waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        };
        let writing = if link.out_bytes() > 0 { PollFlags::POLLOUT } else { PollFlags::empty() };
        // SAFETY: the descriptor stays open while `sleepers` counts this thread: the keeper waits for that, and others
        // do not close it without the lock and a look at it.
        let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(std::os::fd::AsRawFd::as_raw_fd(&link.fd())) };
        state.sleepers += 1;
        drop(state);
        let mut fds = [PollFd::new(socket, PollFlags::POLLIN | writing), self.shared.roused()];
        let timeout = PollTimeout::try_from(at_most.as_millis().max(1)).unwrap_or(PollTimeout::MAX);
        // An interrupt is as good as a message: the caller looks again.
        let _ = poll(&mut fds, timeout);
        let mut state = self.shared.lock();
        state.sleepers -= 1;
        if state.sleepers == 0 {
            self.shared.changed.notify_all();
        }
        state
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.lock().ended = Some(Error::Usage("this rank has left its relay".into()));
        self.shared.rouse();
    }
}

//! The keeper: a thread of the client that leaves the relay for a dump at any moment, and reaches it again.

use super::reach::{Reached, reach};
use super::state::{Shared, State};
use crate::Error;
use mlog::Link;
use mlog::frame::{Frame, Kind};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

/// For the last words before a dump, on a connection that the relay reads.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Reaches the relay and goes on from what it knows. The connection for questions.
pub(super) fn join(shared: &Shared) -> Result<Link, Error> {
    let progress = shared.lock().progress();
    let Reached { messages, questions, welcome } = reach(shared, &progress)?;
    let mut state = shared.lock();
    // What was sent while the rank was away goes along: it is in what the relay does not know.
    let outcome = state.joined(messages, welcome);
    state.leaving = false;
    shared.calm();
    shared.changed.notify_all();
    outcome.map(|()| questions)
}

/// Starts the keeper. It takes no signal: those are the program's.
pub(super) fn start(shared: &Arc<Shared>, questions: Link) -> Result<(), Error> {
    let shared = shared.clone();
    let system = |e: &dyn std::fmt::Display| Error::System(format!("a thread: {e}"));
    let (all, mut before) = (SigSet::all(), SigSet::empty());
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&all), Some(&mut before)).map_err(|e| system(&e))?;
    let started = std::thread::Builder::new().name("joulepoint".into()).stack_size(256 << 10).spawn(move || {
        keep(&shared, questions);
    });
    pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(|e| system(&e))?;
    started.map(drop).map_err(|e| system(&e))
}

fn keep(shared: &Shared, mut questions: Link) {
    loop {
        let asked = listen(shared, &mut questions);
        let mut state = leave(shared, asked);
        drop(questions);
        if state.ended.is_some() {
            state.link = None;
            return;
        }
        drop(state);
        match join(shared) {
            Ok(link) => questions = link,
            Err(e) => {
                let mut state = shared.lock();
                state.ended.get_or_insert(e);
                return shared.rouse();
            }
        }
    }
}

/// Waits until the relay asks this rank to leave, or is gone. How many frames it has logged, if it asks.
fn listen(shared: &Shared, questions: &mut Link) -> Option<u64> {
    loop {
        if let Ok(Some(frame)) = questions.next_frame() {
            return (frame.header.kind == Kind::Rest).then_some(frame.header.number);
        }
        let mut fds = [PollFd::new(questions.fd(), PollFlags::POLLIN), shared.roused()];
        // An interrupt is looked at as anything else.
        let _ = poll(&mut fds, PollTimeout::NONE);
        let state = shared.lock();
        let is_over = state.ended.is_some() || state.link.is_none();
        drop(state);
        if is_over || !questions.receive().unwrap_or(false) {
            return None;
        }
    }
}

/// Closes the connection for messages, with its last words if there is somebody to hear them.
fn leave(shared: &Shared, asked: Option<u64>) -> MutexGuard<'_, State> {
    let mut state = shared.lock();
    state.leaving = true;
    shared.rouse();
    while state.sleepers > 0 {
        state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    if let Some((logged, mut link)) = asked.zip(state.link.take()) {
        // It was told so on the connection for messages, too, of which a rank that computes reads nothing.
        state.logged(logged);
        // What has come and was not read comes again; what was written in part is written whole.
        if let Ok(frame) = Frame::json(Kind::Leave, 0, &state.progress()) {
            link.push(frame);
        }
        state.has_left();
        let begun = std::time::Instant::now();
        while link.flush().is_ok() && link.out_bytes() > 0 && begun.elapsed() < LAST_WORDS {
            let mut fds = [PollFd::new(link.fd(), PollFlags::POLLOUT)];
            let _ = poll(&mut fds, PollTimeout::from(100u16));
        }
    }
    state.link = None;
    state
}

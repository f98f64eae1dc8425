//! Hears the signal that asks for a checkpoint, as the processes of a run do.

use anyhow::Result;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// The signal: one that changes nothing in a process that does not listen.
pub const SIGNAL: Signal = Signal::SIGCONT;

static HEARD: AtomicU64 = AtomicU64::new(0);

extern "C" fn heard(_: nix::libc::c_int) {
    HEARD.fetch_add(1, Ordering::Relaxed);
}

/// Listens from now on, in a thread of its own: nodes that measure together hear each other's signals at any moment, and a
/// signal breaks off what its thread reads, such as a counter. This thread, and those it starts, are left alone.
///
/// # Errors
/// When the kernel refuses.
pub fn listen() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(heard), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
    unsafe { sigaction(SIGNAL, &action) }?;
    thread::Builder::new().name("asked".into()).spawn(|| {
        loop {
            thread::park();
        }
    })?;
    Ok(SigSet::from(SIGNAL).thread_block()?)
}

/// How often it was heard.
pub fn count() -> u64 {
    HEARD.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::kill;
    use nix::unistd::Pid;

    #[test]
    fn a_signal_is_counted_and_never_reaches_the_threads_that_measure() {
        listen().unwrap();
        let is_left_alone = || SigSet::thread_get_mask().unwrap().contains(SIGNAL);
        assert!(is_left_alone() && thread::spawn(is_left_alone).join().unwrap());
        let before = count();
        kill(Pid::this(), SIGNAL).unwrap();
        while count() == before {
            thread::yield_now();
        }
    }
}

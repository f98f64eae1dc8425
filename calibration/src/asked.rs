//! Hears the signal that asks for a checkpoint, as the processes of a run do.

use anyhow::Result;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicU64, Ordering};

/// The signal: one that changes nothing in a process that does not listen.
pub const SIGNAL: Signal = Signal::SIGCONT;

static HEARD: AtomicU64 = AtomicU64::new(0);

extern "C" fn heard(_: nix::libc::c_int) {
    HEARD.fetch_add(1, Ordering::Relaxed);
}

/// Listens from now on.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn listen() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(heard), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only adds to an atomic, which is async-signal-safe.
    unsafe { sigaction(SIGNAL, &action) }?;
    Ok(())
}

/// How often it was heard.
pub fn count() -> u64 {
    HEARD.load(Ordering::Relaxed)
}

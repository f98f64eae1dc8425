//! Hears that the job is to end, so that what was set is put back before Slurm kills.

use anyhow::Result;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicBool, Ordering};

static TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn told(_: nix::libc::c_int) {
    TOLD.store(true, Ordering::Relaxed);
}

/// Listens from now on.
///
/// # Errors
/// When the kernel refuses the handler.
pub fn listen() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(told), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        // SAFETY: the handler only stores into an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Whether it was told.
pub fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

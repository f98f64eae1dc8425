//! Hears that the job is to end, so that what was set is put back before Slurm kills.

use anyhow::Result;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks during a pause.
const LOOK: Duration = Duration::from_millis(100);

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

/// Waits, unless it was told.
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    while !is_told() && Instant::now() < until {
        thread::sleep(LOOK.min(time));
    }
}

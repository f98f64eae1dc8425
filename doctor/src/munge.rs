//! Whether munged answers, and agrees about the time.

use crate::Findings;
use wire::{Munge, MungeError};

/// Makes a credential and reads it back.
pub(crate) fn examine(site: &config::Site, findings: &mut Findings) {
    let munge = Munge::new(site.munge_socket.clone());
    match munge.encode(b"doctor").and_then(|credential| munge.decode(&credential)) {
        Ok(_) => findings.ok("munge", "munged makes and accepts credentials"),
        Err(e @ MungeError::NoDaemon(_)) => {
            findings.fault("munge", e.to_string(), "start it: systemctl start munge; or set munge_socket");
        }
        Err(e @ MungeError::Time(_)) => {
            findings.fault("munge", e.to_string(), "set the clock: run chrony or systemd-timesyncd on all hosts");
        }
        Err(e) => findings.fault("munge", e.to_string(), "see munged's log; all hosts need the same munge.key"),
    }
}

//! Says when a service is to end.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch::{Receiver, channel};

/// Becomes true at SIGTERM or SIGINT.
pub fn stopping() -> Receiver<bool> {
    let (sender, receiver) = channel(false);
    tokio::spawn(async move {
        stop_signal().await;
        sender.send_replace(true);
    });
    receiver
}

async fn stop_signal() {
    let mut term = match signal(SignalKind::terminate()) {
        Ok(term) => term,
        Err(e) => {
            tracing::error!(%e, "SIGTERM cannot be waited for");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

//! `joulepointd`: on the controller it plans, stores and watches; on a node it meters and beats.

pub mod account;
mod apply;
mod comment;
pub mod controller;
mod energy_tres;
mod history;
mod http;
mod metrics;
pub mod node;
pub mod store;
mod store_report;
pub mod watch;
mod writer;

/// Waits for SIGTERM or SIGINT.
pub(crate) async fn told_to_stop() {
    let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
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

/// Seconds since the Unix epoch.
pub(crate) fn now_s() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

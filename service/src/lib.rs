//! `joulepointd`: on the controller it plans, stores and watches; on a node it meters and beats.

mod access;
mod bucket;
mod calibrations;
mod capabilities;
mod claim;
mod comment;
pub mod controller;
mod energy_tres;
pub mod frequency;
mod gpus;
mod health;
mod history;
mod http;
mod latency;
mod lease;
mod leavings;
mod lives;
mod loans;
mod metrics;
pub mod node;
mod open_files;
mod orders;
mod plausible;
mod pmix;
mod reach;
mod refused;
mod routes;
mod signal;
pub mod spool;
mod users;
mod watching;
mod words;

/// The limits of a site, by which controller and nodes agree.
pub(crate) fn limits(site: &config::Site) -> watch::Limits {
    let config::Watch { freeze_s, lease_s, set_down_per_minute, .. } = site.watch;
    watch::Limits { detect_s: site.controller.detect_s, freeze_s, lease_s, set_down_per_minute }
}

/// Method and path of every route of both roles, for the test that holds `docs/openapi.json` to them.
pub fn routes() -> Vec<(&'static str, &'static str)> {
    let of_controller = routes::controller().into_iter().map(|r| (r.method, r.path));
    of_controller.chain(crate::node::routes().into_iter().map(|r| (r.method, r.path))).collect()
}

/// Becomes true at SIGTERM or SIGINT.
pub(crate) fn told_to_stop() -> tokio::sync::watch::Receiver<bool> {
    let (sender, receiver) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        stop_signal().await;
        sender.send_replace(true);
    });
    receiver
}

async fn stop_signal() {
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

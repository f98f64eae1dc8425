//! What the errors of the store, the broker and Slurm are to who has asked.

use axum::http::StatusCode;
use listener::Refusal;

/// The store's: the log says what it was.
pub(crate) fn of_store(e: store::Error) -> Refusal {
    Refusal::from(anyhow::Error::from(e))
}

/// Slurm's.
pub(crate) fn of_slurm(e: slurm::Error) -> Refusal {
    Refusal(StatusCode::SERVICE_UNAVAILABLE, e.to_string())
}

/// The broker's.
pub(crate) fn of_broker(e: broker::Error) -> Refusal {
    match e {
        broker::Error::Refused(why) => Refusal(StatusCode::CONFLICT, why),
        broker::Error::LateReturn { .. } => Refusal(StatusCode::BAD_REQUEST, e.to_string()),
        broker::Error::Slurm(e) => of_slurm(e),
        other => Refusal::from(anyhow::Error::from(other)),
    }
}

//! Calibrations of the cluster: taken to the plans, and told to whoever asks.

use crate::access::Access;
use anyhow::Result;
use audit::By;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use listener::{Document, Refusal, blocking, forbidden};
use parking_lot::Mutex;
use planner::{Known, calibrated, sound};
use protocol::{Calibration, Fingerprint, StoredCalibration};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Readers, Store};
use wire::Peer;

/// `?node_type=T&history=true`
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    node_type: Option<String>,
    #[serde(default)]
    history: bool,
}

/// `GET /v1/calibrations`: the newest of every node type, or all of them, newest first. The one that was stored last is the
/// newest, whenever it was measured: who imports an old one wants it back.
pub(crate) async fn tell(
    State(c): State<Arc<Calibrations>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Vec<StoredCalibration>>, Refusal> {
    let Query(wanted) = wanted?;
    let all = blocking(move || -> Result<_> {
        let mut all = c.readers.free().calibrations(wanted.node_type.as_deref(), wanted.history)?;
        c.mark_stale(&mut all);
        Ok(all)
    });
    Ok(Json(all.await??))
}

/// `POST /v1/calibrations`: keeps one more; for operators.
pub(crate) async fn keep(
    State(c): State<Arc<Calibrations>>,
    Extension(peer): Extension<Peer>,
    Document(new): Document<Calibration>,
) -> Result<Json<StoredCalibration>, Refusal> {
    if !c.access.is_operator(peer.uid) {
        return Err(forbidden(peer, "store calibrations"));
    }
    if let Err(why) = sound::check(&new) {
        return Err(Refusal(StatusCode::BAD_REQUEST, format!("the calibration makes no sense: {why}")));
    }
    let id = blocking({
        let new = new.clone();
        move || {
            let id = c.store.lock().keep_calibration(&new)?;
            c.refresh()?;
            anyhow::Ok(id)
        }
    });
    let id = audit::note(By::User(peer), audit::Act::Calibration, (0, ""), &new.node_type, id.await?)?;
    Ok(Json(StoredCalibration { id, calibration: new, corrections: Vec::new(), stale: Vec::new() }))
}

/// What is known of how the cluster was calibrated.
pub(crate) struct Calibrations {
    pub store: Arc<Mutex<Store>>,
    pub reader: Arc<Mutex<Store>>,
    pub readers: Arc<Readers>,
    pub access: Arc<Access>,
    /// The newest, with what plans have fitted to them.
    pub known: Mutex<Vec<Known>>,
    /// What nodes are made of, as their services told last.
    pub fingerprints: Mutex<BTreeMap<String, Fingerprint>>,
}

impl Calibrations {
    /// Takes what the store has to the plans; a calibration that has not changed keeps what was fitted to it.
    pub(crate) fn refresh(&self) -> Result<()> {
        let mut stored = self.reader.lock().calibrations(None, false)?;
        self.mark_stale(&mut stored);
        let mut known = self.known.lock();
        if known.iter().map(|k| &*k.stored).ne(&stored) {
            let renewed = |s: StoredCalibration| match known.iter().find(|k| k.stored.id == s.id) {
                Some(k) => k.corrected(s),
                None => Known::new(s),
            };
            *known = stored.into_iter().map(renewed).collect();
        }
        Ok(())
    }

    /// Says what has changed on the nodes since they were measured.
    fn mark_stale(&self, all: &mut [StoredCalibration]) {
        let fingerprints = self.fingerprints.lock();
        all.iter_mut().for_each(|s| s.stale = calibrated::stale_on(&s.calibration, &fingerprints));
    }
}

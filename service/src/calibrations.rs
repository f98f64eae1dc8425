//! Calibrations of the cluster: kept with their history, corrected by what runs show, told to whoever asks.

use crate::controller::Controller;
use crate::http::{Document, Refusal, blocking, forbidden};
use crate::lock;
use crate::store::{Connection, Store, params};
use anyhow::Result;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use planner::{Known, calibrated};
use policy::estimate::At;
use policy::refine;
use protocol::{CALIBRATION_VERSION, Calibration, Correction, Operation, Storage, StoredCalibration};
use std::sync::Arc;
use wire::Peer;

/// What the table's column `target` says of a calibration, and of the corrections that followed it.
const MEASURED: &str = "measured";
const CORRECTIONS: &str = "corrections";

/// `?node_type=T&history=true`
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    node_type: Option<String>,
    #[serde(default)]
    history: bool,
}

/// `GET /v1/calibrations`: the newest of every node type, or all of them, newest first.
pub(crate) async fn tell(
    State(c): State<Arc<Controller>>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Json<Vec<StoredCalibration>>, Refusal> {
    let Query(wanted) = wanted?;
    let all = blocking(move || -> Result<_> {
        let mut all = lock(&c.reader).calibrations(wanted.node_type.as_deref(), wanted.history)?;
        c.mark_stale(&mut all);
        Ok(all)
    });
    Ok(Json(all.await??))
}

/// `POST /v1/calibrations`: keeps one more; for operators.
pub(crate) async fn keep(
    State(c): State<Arc<Controller>>,
    Extension(peer): Extension<Peer>,
    Document(new): Document<Calibration>,
) -> Result<Json<StoredCalibration>, Refusal> {
    if !c.access.is_operator(peer.uid) {
        return Err(forbidden(peer, "store calibrations"));
    }
    if new.version != CALIBRATION_VERSION {
        let text = format!("calibration version {} is not known here, only {CALIBRATION_VERSION}", new.version);
        return Err(Refusal(StatusCode::BAD_REQUEST, text));
    }
    let id = blocking({
        let new = new.clone();
        move || {
            let id = lock(&c.reader).keep_calibration(&new)?;
            c.refresh_calibrations()?;
            anyhow::Ok(id)
        }
    });
    Ok(Json(StoredCalibration { id: id.await??, calibration: new, corrections: Vec::new(), stale: Vec::new() }))
}

impl Controller {
    /// Takes what the store has to the plans; a calibration that has not changed keeps what was fitted to it.
    pub(crate) fn refresh_calibrations(&self) -> Result<()> {
        let mut stored = lock(&self.reader).calibrations(None, false)?;
        self.mark_stale(&mut stored);
        let mut known = lock(&self.known);
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
        let fingerprints = lock(&self.fingerprints);
        all.iter_mut().for_each(|s| s.stale = calibrated::stale_on(&s.calibration, &fingerprints));
    }
}

impl Store {
    /// Keeps a calibration beside the earlier ones of its node type; corrections begin anew.
    ///
    /// # Errors
    /// What the database says.
    pub fn keep_calibration(&self, new: &Calibration) -> Result<u64> {
        let c = self.connection();
        c.prepare_cached("INSERT INTO calibrations (node_type, target, at_s, json) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![new.node_type, MEASURED, new.at_s, serde_json::to_string(new)?])?;
        c.prepare_cached("DELETE FROM calibrations WHERE node_type = ?1 AND target = ?2")?
            .execute(params![new.node_type, CORRECTIONS])?;
        let mut last = c.prepare_cached("SELECT max(id) FROM calibrations WHERE node_type = ?1 AND target = ?2")?;
        last.query_row(params![new.node_type, MEASURED], |r| r.get(0))
    }

    /// Calibrations, newest first: the newest of every node type, or with `history` all; of one type if named.
    ///
    /// # Errors
    /// What the database says, or a document of another version.
    pub fn calibrations(&self, node_type: Option<&str>, history: bool) -> Result<Vec<StoredCalibration>> {
        calibrations(self.connection(), node_type, history)
    }
}

fn calibrations(c: &Connection, node_type: Option<&str>, history: bool) -> Result<Vec<StoredCalibration>> {
    let mut found: Vec<StoredCalibration> = Vec::new();
    for (id, calibration) in measured(c, node_type, history)? {
        // What runs have shown since belongs to the newest.
        let of = &calibration.node_type;
        let first = !found.iter().any(|f| f.calibration.node_type == *of);
        let corrections = if first { corrections(c, of)? } else { Vec::new() };
        let calibration = Calibration::clone(&calibration);
        found.push(StoredCalibration { id, calibration, corrections, stale: Vec::new() });
    }
    Ok(found)
}

/// The documents with their ids, newest first; each is read from the database once.
fn measured(c: &Connection, node_type: Option<&str>, history: bool) -> Result<Vec<(u64, Arc<Calibration>)>> {
    let mut statement = c.prepare_cached(
        "SELECT id FROM calibrations c WHERE target = ?1 AND (?2 IS NULL OR node_type = ?2) AND (?3
         OR NOT EXISTS (SELECT 1 FROM calibrations n WHERE n.target = c.target AND n.node_type = c.node_type
                        AND (n.at_s > c.at_s OR (n.at_s = c.at_s AND n.id > c.id))))
         ORDER BY at_s DESC, id DESC",
    )?;
    let ids = statement.query_map(params![MEASURED, node_type, history], |r| r.get(0))?;
    let one = |id: u64| {
        if let Some(kept) = c.calibrations().borrow().get(&id) {
            return Ok((id, kept.clone()));
        }
        let mut statement = c.prepare_cached("SELECT json FROM calibrations WHERE id = ?1")?;
        let json: String = statement.query_row(params![id], |r| r.get(0))?;
        let read = Arc::new(serde_json::from_str::<Calibration>(&json)?);
        c.calibrations().borrow_mut().insert(id, read.clone());
        Ok((id, read))
    };
    ids.map(|id| one(id?)).collect()
}

fn corrections(c: &Connection, node_type: &str) -> Result<Vec<Correction>> {
    let mut statement = c.prepare_cached("SELECT json FROM calibrations WHERE node_type = ?1 AND target = ?2")?;
    let json: Option<String> =
        statement.query_map(params![node_type, CORRECTIONS], |r| r.get(0))?.next().transpose()?;
    Ok(json.map(|j| serde_json::from_str(&j)).transpose()?.unwrap_or_default())
}

/// Learns from a checkpoint that a run has committed: its first node wrote `bytes` to the shared file system.
///
/// # Errors
/// What the database says.
pub(crate) fn learn(c: &Connection, node: &str, at_s: f64, bytes: f64, measured_s: f64) -> Result<()> {
    let has_node = |(_, known): &(u64, Arc<Calibration>)| known.power.idle_w.contains_key(node);
    let Some((_, of_node)) = measured(c, None, false)?.into_iter().find(has_node) else { return Ok(()) };
    let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
    let at = At { nodes: 1.0, processes: 1.0, bytes };
    let Ok(cost) = calibrated::measured_cost(&of_node, operation, storage, at, None, c.fits()) else { return Ok(()) };
    let mut corrections = corrections(c, &of_node.node_type)?;
    let is_ours = |k: &Correction| k.operation == operation && k.storage == storage;
    let before = corrections.iter().find(|k| is_ours(k)).map_or_else(refine::Correction::default, |k| {
        refine::Correction { factor: k.factor, spread: k.spread, count: k.count }
    });
    let Ok(after) = before.learn(measured_s, cost.time_s.value) else { return Ok(()) };
    corrections.retain(|k| !is_ours(k));
    let refine::Correction { factor, spread, count } = after;
    corrections.push(Correction { operation, storage, factor, spread, count });
    let (node_type, json) = (&of_node.node_type, serde_json::to_string(&corrections)?);
    let changed = c
        .prepare_cached("UPDATE calibrations SET at_s = ?3, json = ?4 WHERE node_type = ?1 AND target = ?2")?
        .execute(params![node_type, CORRECTIONS, at_s, json])?;
    if changed == 0 {
        c.prepare_cached("INSERT INTO calibrations (node_type, target, at_s, json) VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![node_type, CORRECTIONS, at_s, json])?;
    }
    Ok(())
}

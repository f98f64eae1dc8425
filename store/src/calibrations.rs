//! Calibrations of the cluster: kept with their history, and corrected by what runs show.

use crate::database::{Connection, Row};
use crate::error::Result;
use crate::value::params;
use options::Engine;
use planner::calibrated;
use policy::refine;
use protocol::{Calibration, Correction, Operation, Plan, Quantity, Storage, StoredCalibration};
use std::sync::Arc;

/// What the table's column `target` says of a calibration, and of the corrections that followed it.
const MEASURED: &str = "measured";
const CORRECTIONS: &str = "corrections";

/// What it says of corrections by the runs of one user.
fn corrections_of(uid: u32) -> String {
    format!("{CORRECTIONS}/{uid}")
}

/// An extra power that was measured counts as this part of the estimate at least.
const LEAST_POWER: f64 = 0.1;

/// Keeps a calibration beside the earlier ones of its node type; corrections begin anew.
pub(crate) fn keep(c: &Connection, new: &Calibration) -> Result<u64> {
    c.execute(
        "INSERT INTO calibrations (node_type, target, at_s, json) VALUES (?1, ?2, ?3, ?4)",
        params![new.node_type, MEASURED, new.at_s, serde_json::to_string(new)?],
    )?;
    c.execute(
        "DELETE FROM calibrations WHERE node_type = ?1 AND target LIKE ?2",
        params![new.node_type, format!("{CORRECTIONS}%")],
    )?;
    c.query_row(
        "SELECT max(id) FROM calibrations WHERE node_type = ?1 AND target = ?2",
        params![new.node_type, MEASURED],
        |r| r.get(0),
    )
}

/// Calibrations, newest first: the newest of every node type, or with `history` all; of one type if named.
pub(crate) fn all(c: &Connection, node_type: Option<&str>, history: bool) -> Result<Vec<StoredCalibration>> {
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
    let ids = c.query_map(
        "SELECT id FROM calibrations c WHERE target = ?1 AND (?2 IS NULL OR node_type = ?2) AND (?3
         OR NOT EXISTS (SELECT 1 FROM calibrations n WHERE n.target = c.target AND n.node_type = c.node_type
                        AND n.id > c.id))
         ORDER BY id DESC",
        params![MEASURED, node_type, history],
        |r| r.get(0),
    )?;
    let one = |id: u64| {
        if let Some(kept) = c.calibrations().borrow().get(&id) {
            return Ok((id, kept.clone()));
        }
        let json: String = c.query_row("SELECT json FROM calibrations WHERE id = ?1", params![id], |r| r.get(0))?;
        let read = Arc::new(serde_json::from_str::<Calibration>(&json)?);
        c.calibrations().borrow_mut().insert(id, read.clone());
        Ok((id, read))
    };
    ids.into_iter().map(one).collect()
}

/// What the runs of all users have shown, each user having one voice.
fn corrections(c: &Connection, node_type: &str) -> Result<Vec<Correction>> {
    let sql = "SELECT json FROM calibrations WHERE node_type = ?1 AND target LIKE ?2";
    let rows = c.query_map(sql, params![node_type, format!("{CORRECTIONS}%")], |r| r.get::<String>(0))?;
    let of_users = rows.into_iter().map(|json| Ok(serde_json::from_str::<Vec<Correction>>(&json)?));
    Ok(together(of_users.collect::<Result<Vec<_>>>()?.into_iter().flatten()))
}

/// The corrections of one user.
fn own_corrections(c: &Connection, node_type: &str, uid: u32) -> Result<Vec<Correction>> {
    let sql = "SELECT json FROM calibrations WHERE node_type = ?1 AND target = ?2";
    let read = |r: &Row<'_>| r.get::<String>(0);
    let json = c.query_optional(sql, params![node_type, corrections_of(uid)], read)?;
    Ok(json.map(|j| serde_json::from_str(&j)).transpose()?.unwrap_or_default())
}

/// The median of the users' corrections of each figure: whatever the runs of one of many users show, it lies between what
/// those of the others do.
fn together(all: impl Iterator<Item = Correction>) -> Vec<Correction> {
    let mut figures: Vec<Vec<Correction>> = Vec::new();
    for one in all {
        let same = |of: &&mut Vec<Correction>| {
            of.first().is_some_and(|f| (f.operation, f.storage, f.of) == (one.operation, one.storage, one.of))
        };
        match figures.iter_mut().find(same) {
            Some(of) => of.push(one),
            None => figures.push(vec![one]),
        }
    }
    figures.into_iter().filter_map(median).collect()
}

/// The middle one by its factor; of two in the middle, what lies between them.
fn median(mut of: Vec<Correction>) -> Option<Correction> {
    of.sort_by(|a, b| a.factor.total_cmp(&b.factor));
    let (low, high) = (of.get((of.len().max(1) - 1) / 2)?, of.get(of.len() / 2)?);
    let count = of.iter().fold(0_u32, |sum, one| sum.saturating_add(one.count));
    Some(Correction {
        factor: (low.factor * high.factor).sqrt(),
        spread: low.spread.max(high.spread),
        count,
        ..low.clone()
    })
}

/// The mean checkpoint that a run has made, or the one that it brought back.
pub(crate) struct Measured {
    pub operation: Operation,
    /// Volume on all nodes.
    pub bytes: f64,
    pub time_s: f64,
    /// Energy of all nodes.
    pub joules: Option<f64>,
}

/// Learns from the checkpoints or the restart of a user's run, if they were the kind that is measured: of the engine
/// `app`, of one group. `nodes` are the run's.
pub(crate) fn learn(
    c: &Connection,
    (at_s, uid): (f64, u32),
    plan: &Plan,
    nodes: &[String],
    seen: &Measured,
) -> Result<()> {
    let operation = seen.operation;
    let engine = planner::engine_named(&plan.engine).filter(|e| *e == Engine::App);
    let (Some(choice), Some(_)) = (&plan.choice, engine.filter(|_| plan.protocol == "coordinated")) else {
        return Ok(());
    };
    let has = |known: &Calibration| !nodes.is_empty() && nodes.iter().all(|n| known.power.idle_w.contains_key(n));
    let has_nodes = |(_, known): &(u64, Arc<Calibration>)| has(known);
    let Some((_, of_nodes)) = measured(c, None, false)?.into_iter().find(has_nodes) else { return Ok(()) };
    let (n, p) = (nodes.len().max(1) as f64, f64::from(choice.processes.max(1)));
    let (storage, place) = (calibrated::target(&of_nodes), calibrated::place(engine, n, p, seen.bytes / n));
    let hz = plan.checkpoint_hz.filter(|_| operation == Operation::CheckpointWrite);
    let Ok(cost) = calibrated::measured_cost(&of_nodes, operation, storage, place, hz, c.fits()) else { return Ok(()) };
    let mut all = own_corrections(c, &of_nodes.node_type, uid)?;
    refined(&mut all, (operation, storage, Quantity::TimeS), seen.time_s, cost.time_s.value);
    if let Some(joules) = seen.joules.filter(|_| seen.time_s > 0.0) {
        let idle_w: f64 = nodes.iter().filter_map(|n| of_nodes.power.idle_w.get(n)).sum();
        let estimated_w = place.nodes * cost.delta_w.value;
        // So near to idle that it is noise, it counts as little power, not as none.
        let extra_w = (joules / seen.time_s - idle_w).max(LEAST_POWER * estimated_w);
        refined(&mut all, (operation, storage, Quantity::DeltaW), extra_w, estimated_w);
    }
    keep_corrections(c, &of_nodes.node_type, (at_s, uid), &all)
}

fn keep_corrections(c: &Connection, node_type: &str, (at_s, uid): (f64, u32), all: &[Correction]) -> Result<()> {
    let (json, target) = (serde_json::to_string(all)?, corrections_of(uid));
    let changed = c.execute(
        "UPDATE calibrations SET at_s = ?3, json = ?4 WHERE node_type = ?1 AND target = ?2",
        params![node_type, target, at_s, json],
    )?;
    if changed == 0 {
        c.execute(
            "INSERT INTO calibrations (node_type, target, at_s, json) VALUES (?1, ?2, ?3, ?4)",
            params![node_type, target, at_s, json],
        )?;
    }
    Ok(())
}

/// Refines the correction of one figure; figures that make no sense change nothing.
fn refined(all: &mut Vec<Correction>, key: (Operation, Option<Storage>, Quantity), measured: f64, estimated: f64) {
    let at = all.iter().position(|k| (k.operation, k.storage, k.of) == key);
    let before = at.map(|i| &all[i]).map_or_else(refine::Correction::default, |k| refine::Correction {
        factor: k.factor,
        spread: k.spread,
        count: k.count,
    });
    let Ok(refine::Correction { factor, spread, count }) = before.learn(measured, estimated) else { return };
    let (operation, storage, of) = key;
    let after = Correction { operation, storage, of, factor, spread, count };
    match at {
        Some(i) => all[i] = after,
        None => all.push(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn correction(factor: f64, count: u32, of: Quantity) -> Correction {
        let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Local));
        Correction { operation, storage, of, factor, spread: 0.1, count }
    }

    #[test]
    fn one_user_of_many_cannot_move_the_sites_figures_alone() {
        let honest = [0.9, 1.0, 1.1, 1.2].map(|factor| correction(factor, 5, Quantity::TimeS));
        let hostile = correction(10.0, 1_000_000, Quantity::TimeS);
        let found = together(honest.iter().cloned().chain([hostile]));
        assert_eq!((found.len(), found[0].factor), (1, 1.1));
    }

    #[test]
    fn one_user_alone_counts_as_is_and_of_two_the_middle() {
        let one = together([correction(1.5, 3, Quantity::TimeS)].into_iter());
        assert_eq!((one[0].count, one[0].spread), (3, 0.1));
        assert!((one[0].factor - 1.5).abs() < 1e-12);
        let both = [correction(4.0, 3, Quantity::TimeS), correction(1.0, 4, Quantity::TimeS)];
        let other = correction(2.0, 1, Quantity::DeltaW);
        let two = together(both.into_iter().chain([other]));
        assert_eq!(two.iter().map(|c| (c.factor, c.count)).collect::<Vec<_>>(), [(2.0, 7), (2.0, 1)]);
        assert!(together(std::iter::empty()).is_empty());
    }
}

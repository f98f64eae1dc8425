//! Puts the choice of a protocol into the words of a plan.

use crate::Wanted;
use crate::capability::{Capabilities, enacts};
use crate::figures::Figures;
use crate::known::{Calibrated, Known};
use policy::choice::{Decision, Outcome, Parts, Protocol};
use policy::estimate::Estimate;
use protocol::{Alternative, ProtocolChoice, ProtocolFigures, ProtocolRow, Range};
use std::collections::BTreeMap;

/// Which calibration the figures come from, and what it lacks.
pub(crate) fn calibration_reason(known: &Known, calibrated: &Calibrated) -> String {
    let fast = if known.stored.calibration.fast { ", measured fast" } else { "" };
    let notes: String = calibrated.costs.notes.iter().map(|n| format!("; {n}")).collect();
    format!("calibration {} of node type '{}'{fast}{notes}", known.stored.id, calibrated.node_type)
}

/// Says of protocols that could not be estimated what is missing.
pub(crate) fn explain_unknown_logs(decision: &mut Decision, known: bool, calibrated: Option<&Calibrated>) {
    for row in decision.rows.iter_mut().filter(|r| r.outcome.is_none()) {
        let log = match row.protocol {
            Protocol::DiskLog | Protocol::DiskLogLent => calibrated.map(|c| &c.costs.disk_log),
            Protocol::MemoryLog | Protocol::MemoryLogLent => calibrated.map(|c| &c.costs.memory_log),
            Protocol::Coordinated | Protocol::Shadow => continue,
        };
        let why = match log {
            Some(Err(why)) => Some(why.as_str()),
            Some(Ok(_)) => None,
            None => (!known).then_some("there is no calibration that holds"),
        };
        if let (Some(why), Some(refused)) = (why, &mut row.refused) {
            refused.push_str(&format!("; {why}"));
        }
    }
}

/// The protocols that are not taken, as short as other alternatives.
pub(crate) fn alternatives(decision: &Decision) -> Vec<Alternative> {
    let rows = decision.rows.iter().filter(|r| r.protocol != decision.protocol);
    rows.map(|row| {
        let expected = row.outcome.as_ref().map(Outcome::expected);
        Alternative {
            what: format!("protocol={}", row.protocol.as_str()),
            interval_s: row.outcome.as_ref().and_then(|o| o.interval_s),
            time_overhead: expected.map(|e| e.time_overhead),
            energy_overhead: expected.map(|e| e.energy_overhead),
            refused: row.refused.clone().unwrap_or_default(),
        }
    })
    .collect()
}

/// The whole table.
pub(crate) fn choice(
    decision: &Decision,
    wanted: &Wanted<'_>,
    figures: &Figures,
    calibrated: Option<&Calibrated>,
    capabilities: &Capabilities,
) -> ProtocolChoice {
    let row = |r: &policy::choice::Row| ProtocolRow {
        protocol: r.protocol.as_str().to_string(),
        enacted: enacts(capabilities, wanted.settings.engine, r.protocol),
        figures: r.outcome.as_ref().map(protocol_figures),
        refused: r.refused.clone(),
    };
    ProtocolChoice {
        unhindered: decision.unhindered.as_str().to_string(),
        work_s: figures.work_s.clone(),
        groups: wanted.groups(),
        node_type: calibrated.map(|c| c.node_type.clone()),
        rows: decision.rows.iter().map(row).collect(),
    }
}

fn protocol_figures(outcome: &Outcome) -> ProtocolFigures {
    let range = |e: &Estimate| Range { value: e.value, low: e.low, high: e.high };
    let parts = |p: &Parts| p.named().map(|(n, x)| (n.to_string(), x)).into_iter().collect::<BTreeMap<_, _>>();
    ProtocolFigures {
        interval_s: outcome.interval_s,
        checkpoints: outcome.checkpoints,
        failures: outcome.failures,
        time_s: range(&outcome.time_s),
        energy_j: range(&outcome.energy_j),
        time_parts_s: parts(&outcome.time_parts),
        energy_parts_j: parts(&outcome.energy_parts),
        break_even_energy: outcome.break_even.and_then(|b| b.energy),
        break_even_time: outcome.break_even.and_then(|b| b.time),
    }
}

//! Puts the choice of a protocol into the words of a plan.

use crate::Wanted;
use crate::capability::{Capabilities, asked, is_enacted};
use crate::figures::Figures;
use crate::known::Calibrated;
use policy::Invalid;
use policy::choice::{Decision, Outcome, Parts, Protocol};
use policy::estimate::Estimate;
use protocol::{Alternative, ProtocolChoice, ProtocolFigures, ProtocolRow, Range};
use std::collections::BTreeMap;

/// The protocol that a plan takes, and what it tells of the others.
pub(crate) struct Taken {
    pub protocol: Protocol,
    /// What is expected of it, unless it is coordinated, whose interval is chosen apart.
    pub other: Option<Outcome>,
    pub choice: Option<ProtocolChoice>,
    pub alternatives: Vec<Alternative>,
    pub reasons: Vec<String>,
}

/// Puts a decision into words; without one, coordinated is taken.
pub(crate) fn taken(
    decision: Result<Decision, Invalid>,
    wanted: &Wanted<'_>,
    figures: &Figures,
    calibrated: Option<&Calibrated>,
    capabilities: &Capabilities,
) -> Taken {
    let mut decision = match decision {
        Ok(decision) => decision,
        Err(invalid) => {
            return Taken {
                protocol: Protocol::Coordinated,
                other: None,
                choice: None,
                alternatives: Vec::new(),
                reasons: vec![format!("no protocol can be compared: {invalid}; coordinated is taken")],
            };
        }
    };
    explain_unknown_logs(&mut decision, calibrated);
    let protocol = decision.protocol;
    let is_other = |p: Protocol| p == protocol && p != Protocol::Coordinated;
    let other = decision.rows.iter().find(|r| is_other(r.protocol)).and_then(|r| r.outcome.clone());
    if wanted.recovers_by_groups() {
        as_asked(&mut decision, asked(wanted.settings));
    }
    Taken {
        protocol,
        other,
        choice: Some(choice(&decision, wanted, figures, calibrated, capabilities)),
        alternatives: alternatives(&decision),
        reasons: decision.reasons,
    }
}

/// Puts the protocol that was asked for in the place of the one that was chosen; groups without a log send no
/// messages, and are reckoned as coordinated.
fn as_asked(decision: &mut Decision, asked: Option<Protocol>) {
    let asked = asked.unwrap_or(Protocol::Coordinated);
    decision.reasons.clear();
    for row in &mut decision.rows {
        let why = row.refused.take();
        if row.protocol == asked {
            let unknown = why.filter(|_| row.outcome.is_none());
            decision.reasons.extend(unknown.map(|why| format!("{} is not estimated: {why}", row.protocol.as_str())));
        } else {
            row.refused = why.or_else(|| Some("uncoordinated was asked for".to_string()));
        }
    }
    decision.protocol = asked;
}

/// Says of protocols that could not be estimated what is missing.
fn explain_unknown_logs(decision: &mut Decision, calibrated: Option<&Calibrated>) {
    for row in decision.rows.iter_mut().filter(|r| r.outcome.is_none()) {
        let log = match row.protocol {
            Protocol::DiskLog | Protocol::DiskLogLent => calibrated.map(|c| &c.costs.disk_log),
            Protocol::MemoryLog | Protocol::MemoryLogLent => calibrated.map(|c| &c.costs.memory_log),
            Protocol::Coordinated | Protocol::Shadow => continue,
        };
        let why = match log {
            Some(Err(why)) => why,
            Some(Ok(_)) => continue,
            None => "there is no calibration that holds",
        };
        if let Some(refused) = &mut row.refused {
            refused.push_str(&format!("; {why}"));
        }
    }
}

/// The protocols that are not taken, as short as other alternatives.
fn alternatives(decision: &Decision) -> Vec<Alternative> {
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
fn choice(
    decision: &Decision,
    wanted: &Wanted<'_>,
    figures: &Figures,
    calibrated: Option<&Calibrated>,
    capabilities: &Capabilities,
) -> ProtocolChoice {
    let row = |r: &policy::choice::Row| ProtocolRow {
        protocol: r.protocol.as_str().to_string(),
        enacted: is_enacted(capabilities, wanted, r.protocol).is_ok()
            || wanted.recovers_by_groups() && asked(wanted.settings) == Some(r.protocol),
        figures: r.outcome.as_ref().map(protocol_figures),
        refused: r.refused.clone(),
    };
    ProtocolChoice {
        unhindered: decision.unhindered.as_str().to_string(),
        work_s: figures.work_s.clone(),
        groups: wanted.groups(),
        processes: wanted.processes,
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

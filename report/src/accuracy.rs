//! `report --accuracy`: how far plans were from what was measured.

use crate::accounted::JSON_VERSION;
use planner::{Deviation, accuracy};
use protocol::RunAccount;
use serde_json::{Value, json};

/// Tells mean and worst error by operation and node type.
pub fn tell(runs: &[RunAccount], as_json: bool) -> String {
    let found = accuracy(runs);
    if as_json {
        let told = |d: &Option<Deviation>| match d {
            Some(d) => json!({ "mean": d.mean, "worst": d.worst, "runs": d.runs }),
            None => Value::Null,
        };
        let rows = found.iter().map(|a| {
            json!({ "version": JSON_VERSION, "operation": a.operation, "node_type": a.node_type, "time": told(&a.time), "energy": told(&a.energy) })
        });
        return json!(rows.collect::<Vec<_>>()).to_string() + "\n";
    }
    let mut text = format!(
        "{:<11} {:<20} {:>6} {:>10} {:>11} {:>12} {:>13}\n",
        "Operation", "NodeType", "Runs", "MeanTime%", "WorstTime%", "MeanEnergy%", "WorstEnergy%"
    );
    for a in found {
        let percent = |d: &Option<Deviation>, of: fn(&Deviation) -> f64| {
            d.as_ref().map_or_else(|| "-".to_string(), |d| format!("{:.1}", of(d) * 100.0))
        };
        let runs = a.time.or(a.energy).map_or(0, |d| d.runs);
        text += &format!(
            "{:<11} {:<20} {runs:>6} {:>10} {:>11} {:>12} {:>13}\n",
            a.operation,
            a.node_type,
            percent(&a.time, |d| d.mean),
            percent(&a.time, |d| d.worst),
            percent(&a.energy, |d| d.mean),
            percent(&a.energy, |d| d.worst)
        );
    }
    text
}

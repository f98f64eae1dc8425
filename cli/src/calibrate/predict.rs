//! `joulepoint calibrate predict`: what a checkpoint of some volume costs, and how sure that is.

use super::PredictArgs;
use crate::out;
use planner::predicted::{Checkpoint, predict as predicted};
use policy::estimate::Estimate;
use protocol::StoredCalibration;
use serde_json::{Value, json};

/// Prints duration, mean power of a node, and energy of all nodes.
pub(super) fn predict(args: &PredictArgs, stored: &StoredCalibration) -> anyhow::Result<()> {
    let wanted = Checkpoint {
        bytes: args.bytes as f64,
        nodes: args.nodes,
        processes: args.processes,
        engine: Some(args.engine),
        storage: args.storage,
        frequency_hz: args.ghz.map(|g| g * 1e9),
    };
    let found = predicted(stored, &wanted).map_err(|invalid| match args.ghz {
        Some(ghz) => anyhow::anyhow!("{ghz} GHz: checkpoints were not measured at three CPU frequencies ({invalid})"),
        None => anyhow::anyhow!("no checkpoint was measured on this storage ({invalid})"),
    })?;
    out::warn_stale(&format!("the calibration of '{}'", stored.calibration.node_type), &stored.stale);
    let power_w = found.energy_j.value / found.time_s.value / f64::from(args.nodes);
    if args.json {
        let range = |e: &Estimate| json!({ "value": e.value, "low": e.low, "high": e.high });
        let told: Value = json!({
            "node_type": stored.calibration.node_type, "storage": found.storage.as_str(), "time_s": range(&found.time_s),
            "node_w": power_w, "energy_j": range(&found.energy_j), "extrapolated": found.extrapolated,
            "stale": stored.stale,
        });
        return out::json(&told);
    }
    let line = |name: &str, e: &Estimate, unit: &str| {
        format!("{name:<12}{:.3} {unit} ({:.3} to {:.3})\n", e.value, e.low, e.high)
    };
    let mut text =
        format!("{:<12}{} on storage '{}'\n", "node type", stored.calibration.node_type, found.storage.as_str());
    text += &line("time", &found.time_s, "s");
    text += &format!("{:<12}{power_w:.1} W\n", "each node");
    text += &line("energy", &found.energy_j, "J");
    if found.extrapolated {
        text += "this lies beyond what was measured: the intervals are wider, and the curve may bend there\n";
    }
    Ok(out::print(text)?)
}

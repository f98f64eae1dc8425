//! Answers `ecofit_*` (Aupy15 §1.3).

use policy::calibration::{self, Curve, Fit, Fits, Method, Path, ProtocolEnergy, TwoWay, VolumeModel};
use serde_json::{Map, Value, json};

use crate::answer::{n, optional, whole};
use crate::parameters::{Parameters, words};

pub(super) fn ecofit_points(p: &Parameters<'_>) -> Result<Value, String> {
    let max = p.number("max")?;
    let points = calibration::points(max).map_err(words)?;
    let half_up = calibration::points_half_up(max).map_err(words)?;
    let mut unique = points.to_vec();
    unique.dedup();
    let unique: Vec<Value> = unique.into_iter().map(whole).collect();
    Ok(json!({ "points": points.map(whole), "unique": unique, "half_up": half_up.map(whole) }))
}

fn fitted(f: &Fit) -> Value {
    json!({
        "model": f.curve.name(),
        "alpha": n(f.alpha), "beta": n(f.beta),
        "r2": n(f.r2), "sse": n(f.sse), "sst": n(f.sst),
        "r2_log": optional(f.r2_log),
    })
}

pub(super) fn ecofit_fit(p: &Parameters<'_>) -> Result<Value, String> {
    let method = match p.text_or("method", "nls", &["nls", "linearized"])? {
        "linearized" => Method::Linearized,
        _ => Method::LeastSquares,
    };
    let with_mult = p.flag("exponential_mult")?;
    let all = calibration::best_of(&p.list("x")?, &p.list("y")?, method, with_mult).map_err(words)?;
    let asked = Curve::PAPER.into_iter().chain(with_mult.then_some(Curve::ExponentialMult));
    // A curve that the points rule out is null.
    let found = |curve| all.fits.iter().find(|f| f.curve == curve).map_or(Value::Null, fitted);
    let fits: Map<String, Value> = asked.map(|curve| (curve.name().to_owned(), found(curve))).collect();
    let mut out = json!({ "best": fitted(&all.best), "fits": fits });
    if all.degenerate {
        out["degenerate"] = json!("constant y (R2 undefined, reported as 1 for an exact fit)");
    }
    if p.has("at") {
        out["predict"] = p.list("at")?.iter().map(|x| n(all.best.at(*x))).collect();
    }
    Ok(out)
}

pub(super) fn ecofit_bilinear(p: &Parameters<'_>) -> Result<Value, String> {
    let model = match p.text_or("v_model", "linear", &["linear", "best4"])? {
        "best4" => VolumeModel::BestOf,
        _ => VolumeModel::Linear,
    };
    let (nodes, volumes, table) = (p.list("p_values")?, p.list("V_values")?, p.table("t")?);
    let at = (p.number("p0")?, p.number("V0")?);
    let estimate = calibration::two_way(&nodes, &volumes, &table, at, model, &[], &Fits::default()).map_err(words)?;
    let (a, b, b_is_better) = match estimate {
        TwoWay::Measured(value) => return Ok(json!({ "value": n(value), "path": "measured" })),
        TwoWay::Estimated { a, b, b_is_better } => (a, b, b_is_better),
    };
    let path = |path: &Path| {
        json!({
            "inputs": path.inputs.iter().map(|x| n(*x)).collect::<Vec<_>>(),
            "fit": fitted(&path.fit),
            "value": n(path.value),
        })
    };
    let mut path_b = path(&b);
    if model == VolumeModel::Linear {
        path_b["fit"]["t_access"] = n(b.fit.beta);
        path_b["fit"]["rate"] = if b.fit.alpha == 0.0 { Value::Null } else { n(1.0 / b.fit.alpha) };
    }
    let (value, name) =
        if b_is_better { (b.value, "B: model in V at fixed p0") } else { (a.value, "A: model in p at fixed V0") };
    Ok(json!({ "value": n(value), "path": name, "A": path(&a), "B": path_b }))
}

pub(super) fn ecofit_energy(p: &Parameters<'_>) -> Result<Value, String> {
    let nodes = p.positive("N")?;
    let idle_w = match p.fields.get("idle") {
        Some(Value::Array(_)) => {
            let idle = p.list("idle")?;
            if idle.len() as f64 != nodes {
                return p.refuse("idle", "one value for each of N nodes, or one number");
            }
            idle.iter().sum()
        }
        _ => nodes * p.non_negative("idle")?,
    };
    let switches_w: f64 = match p.fields.get("switches") {
        Some(Value::Array(_)) => p.list("switches")?.iter().sum(),
        _ => p.number_or("switches", 0.0)?,
    };
    let mut energies = Map::new();
    let mut energy_of = |name: &str| -> Result<Option<f64>, String> {
        let time = format!("t_{name}");
        if !p.has(&time) {
            return Ok(None);
        }
        let delta_w = p.non_negative(&format!("drho_{name}"))?;
        let energy_j = calibration::operation_j(p.non_negative(&time)?, nodes, delta_w, idle_w, switches_w);
        energies.insert(name.to_owned(), n(energy_j));
        Ok(Some(energy_j))
    };
    let checkpoint_j = energy_of("checkpointing")?;
    let logging_j = energy_of("logging")?;
    let (polling_j, synchro_j) = (energy_of("polling")?, energy_of("synchro")?);
    let coordination_j = match (polling_j, synchro_j) {
        (None, None) => None,
        (x, y) => Some(x.unwrap_or(0.0) + y.unwrap_or(0.0)),
    };
    if let Some(energy_j) = coordination_j {
        energies.insert("coordination".to_owned(), n(energy_j));
    }
    let mut out = json!({ "sum_idle": n(idle_w), "E": energies });
    let checkpoints = if p.has("n_checkpoints") { Some(p.non_negative("n_checkpoints")?) } else { None };
    if let Some(count) = checkpoints {
        out["n_checkpoints"] = n(count);
    }
    if let (Some(coordination_j), Some(logging_j)) = (coordination_j, logging_j) {
        let energy = ProtocolEnergy { checkpoint_j: checkpoint_j.unwrap_or(0.0), coordination_j, logging_j };
        let break_even = energy.break_even();
        out["breakeven_checkpoints"] = n(break_even);
        out["largest_n_coordinated_not_worse"] =
            if break_even.is_finite() { whole(break_even.floor()) } else { Value::Null };
        if let Some(count) = checkpoints {
            out["choice"] = json!(if count < break_even { "coordinated" } else { "uncoordinated" });
            if checkpoint_j.is_some() {
                out["E_coordinated_total"] = n(energy.coordinated_j(count));
                out["E_uncoordinated_total"] = n(energy.uncoordinated_j(count));
            }
        }
    }
    if p.has("total_memory") && p.has("p") {
        out["V_memory_mean"] = n(p.non_negative("total_memory")? / (nodes * p.positive("p")?));
    }
    if p.has("total_message_bytes") {
        let bytes = p.non_negative("total_message_bytes")?;
        out["V_data_mean_per_node"] = n(bytes / nodes);
        if p.has("n_messages") {
            out["V_message_mean"] = n(bytes / p.positive("n_messages")?);
        }
    }
    Ok(out)
}

pub(super) fn ecofit_published(p: &Parameters<'_>) -> Result<Value, String> {
    let names = ["t_checkpointing_1000MB", "t_logging_HDD", "t_synchro_p4"];
    let (name, x) = (p.text_or("name", "", &names)?, p.number("x")?);
    let value = match name {
        "t_checkpointing_1000MB" => calibration::published_checkpointing_1000mb_s(x),
        "t_logging_HDD" => calibration::published_logging_hdd_s(x),
        _ => calibration::published_synchro_p4_s(x),
    }
    .map_err(words)?;
    Ok(json!({ "name": name, "x": n(x), "value": n(value) }))
}

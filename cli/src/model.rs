//! Answers `joulepoint model NAME`: parameters in as JSON, the model's keys out as JSON.

use policy::Invalid;
use policy::bounds::{ElSayed, Waste as Interval};
use policy::calibration::{self, Fit, Method, ProtocolEnergy, TwoWay, VolumeModel};
use policy::frequency::{self, PUBLISHED_POWER, PUBLISHED_TIME, PowerModel, TimeModel};
use policy::periods::{self, Aupy, Evaluation, Meneses, MenesesEvaluation, Quadratic};
use policy::shadow::Shadow;
use policy::waste::{Bouteiller, Scope, Storage, Waste};
use serde_json::{Map, Value, json};

/// The names that [`run`] knows.
pub const NAMES: [&str; 16] = [
    "young_daly",
    "aupy",
    "aupy_eval",
    "meneses",
    "ecofit_points",
    "ecofit_fit",
    "ecofit_bilinear",
    "ecofit_energy",
    "ecofit_published",
    "elsayed",
    "bouteiller",
    "bouteiller_eval",
    "balladini_predict",
    "balladini_power_fit",
    "balladini_time_fit",
    "shadow",
];

/// Runs one model on one JSON object, or on each of an array; the error is a JSON object too.
pub fn run(name: &str, input: &str) -> Result<String, String> {
    let refuse = |message: String| json!({ "error": message }).to_string();
    if !NAMES.contains(&name) {
        return Err(refuse(format!("NAME = {name:?} is outside its range: one of {}", NAMES.join(", "))));
    }
    let input: Value = serde_json::from_str(input)
        .map_err(|e| refuse(format!("input is not JSON: {e}; valid: an object of parameters, or an array of them")))?;
    let answer = match &input {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, item)| one(name, item).map_err(|e| format!("item {i}: {e}")))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        item => one(name, item),
    };
    answer.map(|a| a.to_string()).map_err(refuse)
}

fn one(name: &str, input: &Value) -> Result<Value, String> {
    let Value::Object(fields) = input else {
        return Err(format!("parameters = {input} is outside its range: a JSON object"));
    };
    let p = Parameters { fields };
    let mut answer = match name {
        "young_daly" => young_daly(&p)?,
        "aupy" => aupy(&p)?,
        "aupy_eval" => evaluation(&aupy_parameters(&p)?.evaluate(p.positive("T")?)),
        "meneses" => meneses(&p)?,
        "ecofit_points" => ecofit_points(&p)?,
        "ecofit_fit" => ecofit_fit(&p)?,
        "ecofit_bilinear" => ecofit_bilinear(&p)?,
        "ecofit_energy" => ecofit_energy(&p)?,
        "ecofit_published" => ecofit_published(&p)?,
        "elsayed" => elsayed(&p)?,
        "bouteiller" => bouteiller(&p)?,
        "bouteiller_eval" => bouteiller_eval(&p)?,
        "balladini_predict" => balladini_predict(&p)?,
        "balladini_power_fit" => balladini_power_fit(&p)?,
        "balladini_time_fit" => balladini_time_fit(&p)?,
        _ => shadow(&p)?,
    };
    let mut lost = Vec::new();
    blank_non_finite(&mut answer, "", &mut lost);
    if let (false, Value::Object(answer)) = (lost.is_empty(), &mut answer) {
        answer.insert("non_finite".to_owned(), json!(lost));
    }
    Ok(answer)
}

/// A number as JSON; one that is not finite becomes a mark that [`blank_non_finite`] turns into null and a flag.
fn n(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::String(NON_FINITE.to_owned()) }
}

const NON_FINITE: &str = "\u{0}non-finite";

fn blank_non_finite(value: &mut Value, path: &str, lost: &mut Vec<String>) {
    match value {
        Value::String(s) if s == NON_FINITE => {
            lost.push(path.to_owned());
            *value = Value::Null;
        }
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                blank_non_finite(field, &path, lost);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                blank_non_finite(item, &format!("{path}[{i}]"), lost);
            }
        }
        _ => {}
    }
}

fn optional(x: Option<f64>) -> Value {
    x.map_or(Value::Null, n)
}

fn words(e: Invalid) -> String {
    e.to_string()
}

/// The parameters of one call.
struct Parameters<'a> {
    fields: &'a Map<String, Value>,
}

impl Parameters<'_> {
    fn refuse<T>(&self, name: &str, range: &str) -> Result<T, String> {
        let value = self.fields.get(name).map_or_else(|| "missing".to_owned(), Value::to_string);
        Err(format!("{name} = {value} is outside its range: {range}"))
    }

    fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|v| !v.is_null())
    }

    fn number(&self, name: &str) -> Result<f64, String> {
        match self.fields.get(name).and_then(Value::as_f64).filter(|x| x.is_finite()) {
            Some(x) => Ok(x),
            None => self.refuse(name, "a finite number"),
        }
    }

    fn number_or(&self, name: &str, otherwise: f64) -> Result<f64, String> {
        if self.has(name) { self.number(name) } else { Ok(otherwise) }
    }

    fn positive(&self, name: &str) -> Result<f64, String> {
        let x = self.number(name)?;
        if x > 0.0 { Ok(x) } else { self.refuse(name, "finite, > 0") }
    }

    fn non_negative(&self, name: &str) -> Result<f64, String> {
        let x = self.number(name)?;
        if x >= 0.0 { Ok(x) } else { self.refuse(name, "finite, >= 0") }
    }

    fn text_or<'s>(&'s self, name: &str, otherwise: &'s str, allowed: &[&str]) -> Result<&'s str, String> {
        let text = match self.fields.get(name) {
            None | Some(Value::Null) => otherwise,
            Some(v) => v.as_str().unwrap_or(""),
        };
        if allowed.contains(&text) { Ok(text) } else { self.refuse(name, &format!("one of {}", allowed.join(", "))) }
    }

    fn list(&self, name: &str) -> Result<Vec<f64>, String> {
        let items = self.fields.get(name).and_then(Value::as_array);
        let numbers = items.and_then(|items| items.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
        match numbers {
            Some(numbers) => Ok(numbers),
            None => self.refuse(name, "a list of finite numbers"),
        }
    }

    fn table(&self, name: &str) -> Result<Vec<Vec<f64>>, String> {
        let rows = self.fields.get(name).and_then(Value::as_array);
        let rows = rows.and_then(|rows| {
            rows.iter()
                .map(|row| row.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>())
                .collect::<Option<Vec<_>>>()
        });
        match rows {
            Some(rows) => Ok(rows),
            None => self.refuse(name, "a list of lists of finite numbers"),
        }
    }
}

fn young_daly(p: &Parameters<'_>) -> Result<Value, String> {
    let y = periods::young_daly(p.number("mu")?, p.number("C")?, p.number_or("D", 0.0)?, p.number_or("R", 0.0)?)
        .map_err(words)?;
    Ok(json!({
        "young_interval": n(y.young_interval_s),
        "young_period_paper": n(y.young_period_s),
        "daly_period_paper": n(y.daly_period_s),
        "daly2006_first_order_interval": n(y.daly_first_order_interval_s),
        "daly2006_higher_order_interval": n(y.daly_higher_order_interval_s),
    }))
}

fn aupy_parameters(p: &Parameters<'_>) -> Result<Aupy, String> {
    let parameters = Aupy {
        mtbf_s: p.number("mu")?,
        checkpoint_s: p.number("C")?,
        restart_s: p.number("R")?,
        down_s: p.number("D")?,
        overlap: p.number_or("omega", 0.0)?,
        static_w: p.number("P_static")?,
        compute_w: p.number("P_cal")?,
        io_w: p.number("P_io")?,
        down_w: p.number_or("P_down", 0.0)?,
        base_s: p.number_or("T_base", 1.0)?,
    };
    parameters.check().map_err(words)?;
    Ok(parameters)
}

fn quadratic(q: &Quadratic) -> Value {
    json!({ "q2": n(q.q2), "q1": n(q.q1), "q0": n(q.q0) })
}

fn evaluation(e: &Evaluation) -> Value {
    json!({
        "T": n(e.period_s),
        "valid": e.valid,
        "period_ge_checkpoint": e.period_ge_checkpoint,
        "T_ff": n(e.failure_free_s),
        "T_final": n(e.final_s),
        "T_fails": n(e.failures_s),
        "waste_time": n(e.waste),
        "failures": n(e.failures),
        "checkpoints": n(e.checkpoints),
        "T_lost_per_failure": n(e.lost_per_failure_s),
        "T_reexec_per_failure": n(e.reexecution_per_failure_s),
        "T_cal": n(e.compute_s),
        "T_io": n(e.io_s),
        "T_down": n(e.down_s),
        "E_final": n(e.energy_j),
    })
}

fn aupy(p: &Parameters<'_>) -> Result<Value, String> {
    let m = aupy_parameters(p)?;
    let young = periods::young_daly(m.mtbf_s, m.checkpoint_s, m.down_s, m.restart_s).map_err(words)?;
    let mut out = json!({
        "a": n(m.a()), "b": n(m.b()),
        "alpha": n(m.alpha()), "beta": n(m.beta()), "gamma": n(m.gamma()), "rho": n(m.rho()),
        "T_upper_limit": n(m.upper_limit_s()),
        "feasible": m.feasible(),
        "young_period_paper": n(young.young_period_s),
        "daly_period_paper": n(young.daly_period_s),
        "quadratic": quadratic(&m.energy_quadratic()),
        "T_time_opt": optional(m.time_period_s()),
        "T_energy_opt": optional(m.energy_period_s()),
    });
    let (time, energy) = (m.time_period_unclamped_s(), m.energy_period_unclamped_s());
    out["T_time_opt_unclamped"] = if m.b() > 0.0 { n(time) } else { Value::Null };
    out["T_energy_opt_unclamped"] = if m.b() > 0.0 { optional(energy) } else { Value::Null };
    let (Some(t), Some(e)) = (m.time_period_s(), m.energy_period_s()) else {
        out["reason"] = json!("infeasible: no period holds a checkpoint and lets the run end (needs 2 mu b > C)");
        return Ok(out);
    };
    out["clamped_to_C"] =
        json!({ "time": time < m.checkpoint_s, "energy": energy.is_some_and(|e| e < m.checkpoint_s) });
    out["T_energy_opt_printed_formula"] = optional(m.printed_energy_period_s());
    out["T_energy_opt_numeric_argmin"] = optional(m.energy_period_by_search_s());
    out["T_time_opt_numeric_argmin"] = optional(m.time_period_by_search_s());
    let (at_time, at_energy) = (m.evaluate(t), m.evaluate(e));
    out["AlgoT"] = evaluation(&at_time);
    out["AlgoE"] = evaluation(&at_energy);
    out["AlgoYoung"] = evaluation(&m.evaluate(young.young_period_s));
    out["AlgoDaly"] = evaluation(&m.evaluate(young.daly_period_s));
    let (time_ratio, energy_ratio) = (at_energy.final_s / at_time.final_s, at_time.energy_j / at_energy.energy_j);
    out["time_ratio_AlgoE_over_AlgoT"] = n(time_ratio);
    out["energy_ratio_AlgoT_over_AlgoE"] = n(energy_ratio);
    out["time_overhead"] = n(time_ratio - 1.0);
    out["energy_saving"] = n(1.0 - 1.0 / energy_ratio);
    if let Some(energy) = energy {
        let (at_time, at_energy) = (m.evaluate(time), m.evaluate(energy));
        if at_time.valid && at_energy.valid {
            out["unclamped"] = json!({
                "time_ratio": n(at_energy.final_s / at_time.final_s),
                "energy_ratio": n(at_time.energy_j / at_energy.energy_j),
            });
        }
    }
    Ok(out)
}

fn meneses_evaluation(e: &MenesesEvaluation) -> Value {
    json!({
        "T": n(e.period_s),
        "valid": e.valid,
        "T_final": n(e.final_s),
        "T_cal": n(e.compute_s),
        "T_io": n(e.io_s),
        "E_final": n(e.energy_j),
        "reexecution_nonnegative": e.reexecution_nonnegative,
    })
}

fn meneses(p: &Parameters<'_>) -> Result<Value, String> {
    let m = Meneses::new(aupy_parameters(p)?).map_err(words)?;
    let base = m.parameters();
    let mut out = json!({
        "feasible": base.feasible(),
        "quadratic": quadratic(&m.energy_quadratic()),
        "T_energy_opt": optional(m.energy_period_s()),
        "T_time_opt": optional(base.time_period_s()),
        "T_energy_opt_unclamped": optional(m.energy_period_unclamped_s()),
        "T_energy_opt_numeric_argmin": optional(m.energy_period_by_search_s()),
    });
    if let (Some(e), Some(t)) = (m.energy_period_s(), base.time_period_s()) {
        let (at_energy, at_time) = (m.evaluate(e), m.evaluate(t));
        out["AlgoE"] = meneses_evaluation(&at_energy);
        out["AlgoT"] = meneses_evaluation(&at_time);
        out["energy_ratio_AlgoT_over_AlgoE"] = n(at_time.energy_j / at_energy.energy_j);
        out["time_ratio_AlgoE_over_AlgoT"] = n(at_energy.final_s / at_time.final_s);
    }
    if p.has("T") {
        out["at_T"] = meneses_evaluation(&m.evaluate(p.positive("T")?));
    }
    Ok(out)
}

fn ecofit_points(p: &Parameters<'_>) -> Result<Value, String> {
    let max = p.number("max")?;
    let whole = |points: [f64; 5]| points.map(|x| x as i64).to_vec();
    let points = whole(calibration::points(max).map_err(words)?);
    let mut unique = points.clone();
    unique.dedup();
    let half_up = whole(calibration::points_half_up(max).map_err(words)?);
    Ok(json!({ "points": points, "unique": unique, "half_up": half_up }))
}

fn fitted(f: &Fit) -> Value {
    json!({
        "model": f.curve.name(),
        "alpha": n(f.alpha), "beta": n(f.beta),
        "r2": n(f.r2), "sse": n(f.sse), "sst": n(f.sst),
        "r2_log": optional(f.r2_log),
    })
}

fn ecofit_fit(p: &Parameters<'_>) -> Result<Value, String> {
    let method = match p.text_or("method", "nls", &["nls", "linearized"])? {
        "linearized" => Method::Linearized,
        _ => Method::LeastSquares,
    };
    let with_mult = p.fields.get("exponential_mult").and_then(Value::as_bool).unwrap_or(false);
    let all = calibration::best_of(&p.list("x")?, &p.list("y")?, method, with_mult).map_err(words)?;
    let fits: Map<String, Value> = all.fits.iter().map(|f| (f.curve.name().to_owned(), fitted(f))).collect();
    let mut out = json!({ "best": fitted(&all.best), "fits": fits });
    if all.degenerate {
        out["degenerate"] = json!("constant y (R2 undefined, reported as 1 for an exact fit)");
    }
    if p.has("at") {
        out["predict"] = p.list("at")?.iter().map(|x| n(all.best.at(*x))).collect();
    }
    Ok(out)
}

fn ecofit_bilinear(p: &Parameters<'_>) -> Result<Value, String> {
    let model = match p.text_or("v_model", "linear", &["linear", "best4"])? {
        "best4" => VolumeModel::BestOf,
        _ => VolumeModel::Linear,
    };
    let (nodes, volumes, table) = (p.list("p_values")?, p.list("V_values")?, p.table("t")?);
    let estimate =
        calibration::two_way(&nodes, &volumes, &table, p.number("p0")?, p.number("V0")?, model).map_err(words)?;
    let (a, b, b_is_better) = match estimate {
        TwoWay::Measured(value) => return Ok(json!({ "value": n(value), "path": "measured" })),
        TwoWay::Estimated { a, b, b_is_better } => (a, b, b_is_better),
    };
    let path = |path: &calibration::Path| {
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

fn ecofit_energy(p: &Parameters<'_>) -> Result<Value, String> {
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
    out["n_checkpoints"] = optional(checkpoints);
    if checkpoints.is_none()
        && let Some(out) = out.as_object_mut()
    {
        out.remove("n_checkpoints");
    }
    if let (Some(coordination_j), Some(logging_j)) = (coordination_j, logging_j) {
        let energy = ProtocolEnergy { checkpoint_j: checkpoint_j.unwrap_or(0.0), coordination_j, logging_j };
        let break_even = energy.break_even();
        out["breakeven_checkpoints"] = n(break_even);
        out["largest_n_coordinated_not_worse"] =
            if break_even.is_finite() { json!(break_even.floor() as i64) } else { Value::Null };
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

fn ecofit_published(p: &Parameters<'_>) -> Result<Value, String> {
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

fn interval(w: &Interval) -> Value {
    json!({
        "interval": n(w.interval_s),
        "waste_time": n(w.time),
        "waste_energy_norm": n(w.energy),
        "io_fraction": n(w.io),
        "time_overhead_vs_runtime": n(w.time_overhead),
        "energy_saving_vs_runtime": n(w.energy_saving),
    })
}

fn elsayed(p: &Parameters<'_>) -> Result<Value, String> {
    let m = ElSayed { checkpoint_s: p.number("C")?, mttf_s: p.number("MTTF")?, ratio: p.number_or("ratio", 1.0)? };
    m.check().map_err(words)?;
    let reach = m.threshold_reaching_energy_optimum();
    let mut out = json!({
        "Delta_runtime": interval(&m.waste(m.time_interval_s())),
        "Delta_energy": interval(&m.waste(m.energy_interval_s())),
        "threshold_reaching_energy_optimum": n(reach),
    });
    if p.has("runtime_threshold") {
        let t = p.number("runtime_threshold")?;
        out["Delta_bound"] = interval(&m.waste(m.bound_interval_s(t).map_err(words)?));
        out["Delta_bound_upper"] = n(m.bound_upper_interval_s(t).map_err(words)?);
        out["Delta_energy_bounded"] = interval(&m.waste(m.energy_interval_bounded_s(t).map_err(words)?));
        out["bound_overshoots_energy_optimum"] = json!(m.bound_interval_s(t).map_err(words)? < m.energy_interval_s());
    }
    if p.has("io_bound") {
        let b = p.number("io_bound")?;
        out["Delta_energy_io"] = interval(&m.waste(m.energy_interval_io_s(b).map_err(words)?));
    }
    Ok(out)
}

fn bouteiller_parameters(p: &Parameters<'_>) -> Result<Bouteiller, String> {
    let checkpoint_s = p.number("C0")?;
    let parameters = Bouteiller {
        mtbf_s: p.number("mu_p")?,
        groups: p.number("G")?,
        checkpoint_s,
        down_s: p.number("D")?,
        restart_s: p.number_or("R", checkpoint_s)?,
        alpha: p.number("alpha")?,
        lambda: p.number("lam")?,
        rho: p.number("rho")?,
        beta: p.number_or("beta", 0.0)?,
        load_s: p.number_or("L", checkpoint_s)?,
        save_s: p.number_or("S", checkpoint_s)?,
        cap_s: p.number_or("T_cap", 1e9)?,
        storage: match p.text_or("storage", "remote", &["remote", "local"])? {
            "local" => Storage::Local,
            _ => Storage::Remote,
        },
    };
    parameters.check().map_err(words)?;
    Ok(parameters)
}

fn waste(w: &Waste) -> Value {
    json!({ "waste": n(w.waste), "waste_ff": n(w.failure_free), "waste_fail": n(w.failures) })
}

fn validity(w: &Waste) -> Value {
    json!({
        "T_ge_C": w.period_ge_checkpoint,
        "D_le_C": w.down_le_checkpoint,
        "lost_lt_mu": w.lost_lt_mtbf,
    })
}

fn bouteiller(p: &Parameters<'_>) -> Result<Value, String> {
    let m = bouteiller_parameters(p)?;
    let mut out = json!({
        "T_app_opt_unclamped": n(m.app_period_unclamped_s()),
        "T_min_app": n(m.shortest_period_s(Scope::App)),
        "T_min_plat": n(m.shortest_period_s(Scope::Plat)),
        "L": n(m.load_s),
        "S": n(m.save_s),
    });
    let (Some(app_s), Some((plat_s, unbounded))) = (m.app_period_s(), m.plat_period_s()) else {
        out["feasible"] = json!(false);
        out["T_app_opt"] = optional(m.app_period_s());
        out["T_plat_opt"] = optional(m.plat_period_s().map(|x| x.0));
        out["T_plat_unbounded"] = json!(m.plat_period_s().is_some_and(|x| x.1));
        return Ok(out);
    };
    out["T_app_opt"] = n(app_s);
    out["T_plat_opt"] = n(plat_s);
    out["T_plat_unbounded"] = json!(unbounded);
    for (scope, name) in [(Scope::App, "app"), (Scope::Plat, "plat")] {
        for (period_s, at) in [(app_s, "T_app"), (plat_s, "T_plat")] {
            let w = m.waste(scope, period_s);
            out[format!("waste_{name}_at_{at}")] = waste(&w);
            out[format!("valid_{name}_at_{at}")] = validity(&w);
            if (name, at) != ("app", "T_plat") {
                out[format!("C_{name}_at_{at}")] = n(w.checkpoint_s);
            }
        }
    }
    let usable = |w: Waste| w.period_ge_checkpoint && w.lost_lt_mtbf && w.waste < 1.0;
    out["feasible"] = json!(usable(m.waste(Scope::App, app_s)) && usable(m.waste(Scope::Plat, plat_s)));
    if let Some(overlap_s) = m.overlap_period_s() {
        out["app_exact_overlap"] = json!({
            "T_opt": n(overlap_s),
            "waste_at_T_opt": n(m.overlap_waste(overlap_s)),
            "waste_at_T_app": n(m.overlap_waste(app_s)),
        });
    }
    let longest_s = 100.0 * app_s.max(plat_s);
    out["T_app_opt_numeric"] = optional(m.period_by_search_s(Scope::App, longest_s));
    out["T_plat_opt_numeric_on_range"] =
        if unbounded { n(plat_s) } else { optional(m.period_by_search_s(Scope::Plat, longest_s)) };
    Ok(out)
}

fn bouteiller_eval(p: &Parameters<'_>) -> Result<Value, String> {
    let m = bouteiller_parameters(p)?;
    let period_s = p.positive("T")?;
    let one = |scope| {
        let w = m.waste(scope, period_s);
        let mut out = waste(&w);
        out["C"] = n(w.checkpoint_s);
        out["W"] = n(w.work_s);
        out["valid"] = validity(&w);
        (out, w)
    };
    let ((app, _), (mut plat, w)) = (one(Scope::App), one(Scope::Plat));
    plat["X"] = n(w.x_s);
    plat["Y"] = n(w.y_s);
    plat["Z"] = n(w.z_s);
    plat["Z_clamped"] = n(w.z_clamped_s);
    Ok(json!({ "app": app, "plat": plat }))
}

fn balladini_predict(p: &Parameters<'_>) -> Result<Value, String> {
    let e =
        frequency::predict(&PUBLISHED_POWER, &PUBLISHED_TIME, p.number("tam")?, p.number("f_hz")?).map_err(words)?;
    let half_up = |x: f64| (x * 100.0 + 0.5).floor() / 100.0;
    let truncated = |x: f64| (x * 100.0).trunc() / 100.0;
    let mut out = json!({
        "T_check": n(e.time_s),
        "P_check": n(e.power_w),
        "E_check": n(e.energy_j),
        "E_check_from_2_decimals_half_up": n(half_up(e.time_s) * half_up(e.power_w)),
        "E_check_from_2_decimals_trunc": n(truncated(e.time_s) * truncated(e.power_w)),
    });
    if p.has("T_app") || p.has("CheckInt") {
        let (app_s, interval_s) = (p.non_negative("T_app")?, p.positive("CheckInt")?);
        let (nodes, app_j) = (p.number_or("nNodes", 1.0)?, p.number_or("E_app", 0.0)?);
        let floor = (app_s / interval_s).floor();
        let (floor_j, printed_j) = (floor * nodes * e.energy_j, (floor + 1.0) * nodes * e.energy_j);
        out["n_checks_floor"] = json!(floor as i64);
        out["n_checks_as_printed_sum"] = json!((floor as i64).saturating_add(1));
        out["E_checks_floor"] = n(floor_j);
        out["E_checks_as_printed_sum"] = n(printed_j);
        out["E_total_floor"] = n(app_j + floor_j);
        out["E_total_as_printed_sum"] = n(app_j + printed_j);
    }
    Ok(out)
}

fn least_squares<const N: usize>(fit: &frequency::Fit<N>) -> Value {
    json!({
        "coeff": fit.coefficients.iter().map(|c| n(*c)).collect::<Vec<_>>(),
        "sse": n(fit.sse),
        "r2": n(fit.r2),
    })
}

fn balladini_power_fit(p: &Parameters<'_>) -> Result<Value, String> {
    Ok(least_squares(&PowerModel::fit(&p.list("f_hz")?, &p.list("P")?).map_err(words)?))
}

fn balladini_time_fit(p: &Parameters<'_>) -> Result<Value, String> {
    let name = ["T", "t", "T_check", "t_check"].into_iter().find(|name| p.has(name)).unwrap_or("T");
    Ok(least_squares(&TimeModel::fit(&p.list("tam")?, &p.list("f_hz")?, &p.list(name)?).map_err(words)?))
}

fn shadow(p: &Parameters<'_>) -> Result<Value, String> {
    let m = Shadow {
        work: p.number("W")?,
        speed_max: p.number_or("sigma_max", 1.0)?,
        laxity: p.number("laxity")?,
        mtbf_s: p.number("mtbf")?,
    };
    m.check().map_err(words)?;
    let (unconstrained, bound) = (m.speed_unconstrained(), m.speed_work_bound());
    let (optimal, stretched) = (m.speed_optimal(), m.speed_stretched());
    let pure = m.energy_pure_replication();
    let parts = m.energy(optimal);
    let (e_optimal, e_stretched, e_min) = (parts.total(), m.energy(stretched).total(), m.energy(bound).total());
    let saving = |e: f64| 1.0 - e / pure;
    Ok(json!({
        "t_c": n(m.completion_s()),
        "R": n(m.response_s()),
        "laxity": n(m.laxity),
        "P_fail": n(m.failure_probability()),
        "sigma_b_unconstrained": n(unconstrained),
        "sigma_b_work_bound": n(bound),
        "sigma_b_optimal": n(optimal),
        "sigma_b_min_work": n(bound),
        "sigma_stretched": n(stretched),
        "work_constraint_active": bound > unconstrained,
        "sigma_a_at_tc_optimal": optional(m.speed_after(optimal, m.completion_s())),
        "E_pure_replication": n(pure),
        "E_optimal": n(e_optimal),
        "E_stretched": n(e_stretched),
        "E_min_work": n(e_min),
        "saving_optimal": n(saving(e_optimal)),
        "saving_stretched": n(saving(e_stretched)),
        "saving_min_work": n(saving(e_min)),
        "gap_stretched": n(saving(e_optimal) - saving(e_stretched)),
        "gap_min_work": n(saving(e_optimal) - saving(e_min)),
        "E_optimal_parts": {
            "main": n(parts.main),
            "shadow_before": n(parts.shadow_before),
            "shadow_after": n(parts.shadow_after),
            "total": n(e_optimal),
        },
        "sigma_b_quadrature": n(unconstrained),
    }))
}

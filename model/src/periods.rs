//! Answers `young_daly`, `aupy`, `aupy_eval` and `meneses` (Aupy15 §1.2).

use policy::periods::{self, Aupy, Evaluation, Meneses, MenesesEvaluation, Quadratic};
use serde_json::{Value, json};

use crate::answer::{n, optional, set_null};
use crate::parameters::{Parameters, words};

pub(super) fn young_daly(p: &Parameters<'_>) -> Result<Value, String> {
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

pub(super) fn aupy_eval(p: &Parameters<'_>) -> Result<Value, String> {
    Ok(evaluation(&aupy_parameters(p)?.evaluate(p.positive("T")?)))
}

const INFEASIBLE: &str = "infeasible: no period holds a checkpoint and lets the run end (needs 2 mu b > C)";

/// Keys of `aupy` that only a feasible platform has.
const AT_THE_OPTIMA: [&str; 12] = [
    "clamped_to_C",
    "T_energy_opt_printed_formula",
    "T_energy_opt_numeric_argmin",
    "T_time_opt_numeric_argmin",
    "AlgoT",
    "AlgoE",
    "AlgoYoung",
    "AlgoDaly",
    "time_ratio_AlgoE_over_AlgoT",
    "energy_ratio_AlgoT_over_AlgoE",
    "time_overhead",
    "energy_saving",
];

pub(super) fn aupy(p: &Parameters<'_>) -> Result<Value, String> {
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
        set_null(&mut out, &AT_THE_OPTIMA);
        out["reason"] = json!(INFEASIBLE);
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

pub(super) fn meneses(p: &Parameters<'_>) -> Result<Value, String> {
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
    set_null(&mut out, &["AlgoE", "AlgoT", "energy_ratio_AlgoT_over_AlgoE", "time_ratio_AlgoE_over_AlgoT"]);
    if let (Some(e), Some(t)) = (m.energy_period_s(), base.time_period_s()) {
        let (at_energy, at_time) = (m.evaluate(e), m.evaluate(t));
        out["AlgoE"] = meneses_evaluation(&at_energy);
        out["AlgoT"] = meneses_evaluation(&at_time);
        out["energy_ratio_AlgoT_over_AlgoE"] = n(at_time.energy_j / at_energy.energy_j);
        out["time_ratio_AlgoE_over_AlgoT"] = n(at_energy.final_s / at_time.final_s);
    }
    if m.energy_period_s().is_none() {
        out["reason"] = json!(if base.feasible() {
            "no period minimises energy: near T = C the re-execution (T - 2C)/2 is negative and its energy falls without end"
        } else {
            INFEASIBLE
        });
    }
    if p.has("T") {
        out["at_T"] = meneses_evaluation(&m.evaluate(p.positive("T")?));
    }
    Ok(out)
}

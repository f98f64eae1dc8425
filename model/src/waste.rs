//! Answers `bouteiller` and `bouteiller_eval` (Bouteiller13).

use policy::waste::{Bouteiller, Scope, Storage, Waste};
use serde_json::{Value, json};

use crate::answer::{n, optional, set_null};
use crate::parameters::{Parameters, words};

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

/// A platform cannot waste more than it has: beyond, the closed form says nothing.
fn waste(scope: Scope, w: &Waste) -> Value {
    let all = if scope == Scope::Plat && w.waste > 1.0 { Value::Null } else { n(w.waste) };
    json!({ "waste": all, "waste_ff": n(w.failure_free), "waste_fail": n(w.failures) })
}

fn validity(w: &Waste) -> Value {
    json!({
        "T_ge_C": w.period_ge_checkpoint,
        "D_le_C": w.down_le_checkpoint,
        "lost_lt_mu": w.lost_lt_mtbf,
    })
}

/// Keys of `bouteiller` that need both optima.
const AT_THE_OPTIMA: [&str; 7] = [
    "waste_app_at_T_app",
    "waste_app_at_T_plat",
    "waste_plat_at_T_app",
    "waste_plat_at_T_plat",
    "app_exact_overlap",
    "T_app_opt_numeric",
    "T_plat_opt_numeric_on_range",
];

pub(super) fn bouteiller(p: &Parameters<'_>) -> Result<Value, String> {
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
        set_null(&mut out, &AT_THE_OPTIMA);
        out["reason"] =
            json!("infeasible: failures cost all the time (p >= 1), or no period holds its checkpoint (k1 >= 1)");
        return Ok(out);
    };
    out["T_app_opt"] = n(app_s);
    out["T_plat_opt"] = n(plat_s);
    out["T_plat_unbounded"] = json!(unbounded);
    for (scope, name) in [(Scope::App, "app"), (Scope::Plat, "plat")] {
        for (period_s, at) in [(app_s, "T_app"), (plat_s, "T_plat")] {
            let w = m.waste(scope, period_s);
            out[format!("waste_{name}_at_{at}")] = waste(scope, &w);
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

pub(super) fn bouteiller_eval(p: &Parameters<'_>) -> Result<Value, String> {
    let m = bouteiller_parameters(p)?;
    let period_s = p.positive("T")?;
    let one = |scope| {
        let w = m.waste(scope, period_s);
        let mut out = waste(scope, &w);
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

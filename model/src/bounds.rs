//! Answers `elsayed` (ElSayed14).

use policy::bounds::{ElSayed, Waste};
use serde_json::{Value, json};

use crate::answer::n;
use crate::parameters::{Parameters, words};

fn interval(w: &Waste) -> Value {
    json!({
        "interval": n(w.interval_s),
        "waste_time": n(w.time),
        "waste_energy_norm": n(w.energy),
        "io_fraction": n(w.io),
        "time_overhead_vs_runtime": n(w.time_overhead),
        "energy_saving_vs_runtime": n(w.energy_saving),
    })
}

pub(super) fn elsayed(p: &Parameters<'_>) -> Result<Value, String> {
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

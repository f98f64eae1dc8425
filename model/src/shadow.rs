//! Answers `shadow` (Mills).

use policy::shadow::Shadow;
use serde_json::{Value, json};

use crate::answer::{n, optional};
use crate::parameters::{Parameters, words};

pub(super) fn shadow(p: &Parameters<'_>) -> Result<Value, String> {
    if p.has("n") {
        return p.refuse("n", "absent: one task and its one shadow are reckoned");
    }
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

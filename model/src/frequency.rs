//! Answers `balladini_*` (Balladini).

use policy::frequency::{self, PUBLISHED_POWER, PUBLISHED_TIME, PowerModel, TimeModel};
use serde_json::{Value, json};

use crate::answer::{n, whole};
use crate::parameters::{Parameters, words};

pub(super) fn balladini_predict(p: &Parameters<'_>) -> Result<Value, String> {
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
        out["n_checks_floor"] = whole(floor);
        out["n_checks_as_printed_sum"] = whole(floor + 1.0);
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

pub(super) fn balladini_power_fit(p: &Parameters<'_>) -> Result<Value, String> {
    Ok(least_squares(&PowerModel::fit(&p.list("f_hz")?, &p.list("P")?).map_err(words)?))
}

pub(super) fn balladini_time_fit(p: &Parameters<'_>) -> Result<Value, String> {
    let name = ["T", "t", "T_check", "t_check"].into_iter().find(|name| p.has(name)).unwrap_or("T");
    Ok(least_squares(&TimeModel::fit(&p.list("tam")?, &p.list("f_hz")?, &p.list(name)?).map_err(words)?))
}

//! Balladini's Tables 3 and 4: one checkpoint of one node, from the published fits.
//!
//! The paper cuts its figures at two decimals; those here are rounded.

use policy::Invalid;
use policy::frequency::{PUBLISHED_POWER, PUBLISHED_TIME, predict};

use super::{Cell, Paper};

pub(super) fn cells() -> Result<Vec<Cell>, Invalid> {
    let mut cells = Vec::new();
    for (place, side, frequency_hz, time_s, power_w, energy_j) in [
        ("Tables 3 and 4, 6000², 2.399 GHz", 6_000.0_f64, 2.399e9, 24.18, 79.37, 1_919.17),
        ("Tables 3 and 4, 12000², 1.599 GHz", 12_000.0, 1.599e9, 87.06, 71.76, 6_247.46),
    ] {
        let ours = predict(&PUBLISHED_POWER, &PUBLISHED_TIME, side * side, frequency_hz)?;
        let cell = |quantity, known, ours| Cell::mended(Paper::Balladini, place, quantity, known, ours).within(5e-3);
        cells.push(cell("duration, s", time_s, ours.time_s));
        cells.push(cell("power, W", power_w, ours.power_w));
        cells.push(cell("energy, J", energy_j, ours.energy_j));
    }
    // An hour of application, a checkpoint every ten minutes.
    let (run_s, interval_s) = (3_600.0_f64, 600.0);
    let count = (run_s / interval_s).floor();
    cells.push(
        Cell::printed(Paper::Balladini, "eq. 2, 1 h at 10 min", "checkpoints", count + 1.0, count)
            .erratum("E2: the sum counts one at t = 0"),
    );
    let turning = -PUBLISHED_TIME.0[2] / PUBLISHED_TIME.0[3];
    cells.push(
        Cell::mended(Paper::Balladini, "time fit (erratum E3)", "cells below which time rises with f", 8.6e7, turning)
            .within(5e5),
    );
    Ok(cells)
}

//! Mills's Table 1 and the savings of shadow replication.

use policy::shadow::Shadow;

use super::{Cell, Paper};

const DAY_S: f64 = 86_400.0;
const YEAR_S: f64 = 365.0 * DAY_S;

fn shadow(work_s: f64, laxity: f64, mtbf_s: f64) -> Shadow {
    Shadow { work: work_s, speed_max: 1.0, laxity, mtbf_s }
}

/// Energy saved over two processes at full speed, in per cent.
fn saving(m: &Shadow, speed: f64) -> f64 {
    100.0 * (1.0 - m.energy(speed).total() / m.energy_pure_replication())
}

pub(super) fn cells() -> Vec<Cell> {
    let mut cells = speeds();
    cells.extend(savings());
    cells
}

/// Erratum F5: Table 1 holds for W / MTBF = 24 over the MTBF in days.
fn speeds() -> Vec<Cell> {
    let speed = |years: f64, laxity| shadow(24.0 * DAY_S, laxity, years * YEAR_S).speed_unconstrained();
    let place = "Table 1, W = 24 d";
    let quantity = |years, laxity| format!("shadow's speed, MTBF {years} years, laxity {laxity}");
    let mut cells = vec![
        Cell::mended(Paper::Mills, format!("{place} (erratum F5)"), quantity(3.0, 2.0), 0.0084, speed(3.0, 2.0))
            .within(1e-4),
    ];
    for (years, laxity) in [(3.0, 1.5), (5.0, 1.5), (5.0, 2.0)] {
        cells.push(Cell::ours(Paper::Mills, place, quantity(years, laxity), speed(years, laxity)));
    }
    cells
}

/// A task of 12 hours.
fn savings() -> Vec<Cell> {
    let task = |laxity, days| shadow(0.5 * DAY_S, laxity, days * DAY_S);
    let mut cells = Vec::new();
    for (laxity, optimal, stretched) in [(1.25, 21.74, 17.93), (2.0, 49.56, 37.44)] {
        let m = task(laxity, 25.0);
        let place = format!("12 h task, MTBF 25 d, laxity {laxity}");
        let cell = |quantity, known, speed| {
            Cell::mended(Paper::Mills, &*place, quantity, known, saving(&m, speed)).within(5e-3)
        };
        cells.push(cell("saved at the optimum, %", optimal, m.speed_optimal()));
        cells.push(cell("saved stretched, %", stretched, m.speed_stretched()));
    }
    let m = task(2.0, 10.0);
    let gap = saving(&m, m.speed_optimal()) - saving(&m, m.speed_stretched());
    let place = "12 h task, MTBF 10 d, laxity 2";
    cells.push(
        Cell::printed(Paper::Mills, place, "gap to stretched, %", 13.0, gap).within(0.5).erratum("F6: it is 11.6 %"),
    );
    let m = task(5.0, 25.0);
    cells.push(
        Cell::printed(
            Paper::Mills,
            "12 h task, MTBF 25 d, laxity 5",
            "saved, at most, %",
            50.0,
            saving(&m, m.speed_optimal()),
        )
        .erratum("F7: 50 % is no upper bound"),
    );
    cells
}

//! Sets ElSayed14's printed figures beside the replay's.

use policy::bounds::ElSayed;
use policy::interval::Objective;

use crate::Error;
use crate::comparison::against_young;
use crate::replay::{Rule, Setting};
use crate::trace::Trace;

/// One printed figure and ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Where it is printed.
    pub place: &'static str,
    /// What it is.
    pub quantity: &'static str,
    /// The printed figure.
    pub printed: f64,
    /// Ours.
    pub found: f64,
    /// How far apart they may be.
    pub tolerance: f64,
}

impl Cell {
    /// Whether the figure is reproduced.
    pub fn reproduced(&self) -> bool {
        (self.printed - self.found).abs() <= self.tolerance
    }
}

const TABLE_2: &str = "ElSayed14 Table II";
const TABLE_4: &str = "ElSayed14 Table IV";

/// The cells for one system; none for a system without a landmark. C = 10 min, 3X.
pub fn elsayed_cells(system: u32, trace: &Trace) -> Result<Vec<Cell>, Error> {
    let setting = Setting { checkpoint_s: 600.0, ratio: 3.0, runtime_bound: None, io_bound: None, prior_s: None };
    let trace = trace.rounded_as_published();
    let model = ElSayed { checkpoint_s: 600.0, mttf_s: trace.mean_s(), ratio: 3.0 };
    let mut cells = Vec::new();
    let mut add = |place, quantity, printed, found, tolerance| {
        cells.push(Cell { place, quantity, printed, found, tolerance });
    };
    if system == 20 {
        add(TABLE_2, "Young, min", 127.70, model.time_interval_s() / 60.0, 0.005);
    }
    let bounds: &[(u32, f64, f64, f64, f64)] =
        &[(20, 0.03, 100.02, 2.41, -8.06), (20, 0.10, 81.95, 7.97, -11.42), (21, 0.05, 123.75, -1.68, -16.78)];
    for (_, bound, minutes, time, energy) in bounds.iter().filter(|b| b.0 == system) {
        let bounded = Setting { runtime_bound: Some(*bound), ..setting };
        let row = against_young(&trace, "young", Rule::named("young")?, Objective::Energy, &bounded)?;
        add(TABLE_2, "bounded interval, min", *minutes, model.energy_interval_bounded_s(*bound)? / 60.0, 0.005);
        add(TABLE_2, "wasted time, %", *time, row.time * 100.0, 0.1);
        add(TABLE_2, "wasted energy, %", *energy, row.energy * 100.0, 0.1);
    }
    if system == 2 {
        let bounded = Setting { io_bound: Some(0.10), ..setting };
        let row = against_young(&trace, "young", Rule::named("young")?, Objective::Energy, &bounded)?;
        add(TABLE_4, "interval at I/O 10 %, min", 90.0, model.energy_interval_io_s(0.10)? / 60.0, 0.005);
        add(TABLE_4, "wasted time, %", 5.31, row.time * 100.0, 0.02);
        add(TABLE_4, "wasted energy, %", -10.39, row.energy * 100.0, 0.02);
        add(TABLE_4, "I/O share, %", 9.49, row.outcome.io_share() * 100.0, 0.02);
    }
    Ok(cells)
}

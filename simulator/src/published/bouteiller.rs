//! Bouteiller13's four wastes: the application's and the platform's, each at the period that is best for either.

use policy::waste::{Bouteiller, Scope, Storage, Waste};

use super::{Cell, Paper};

const YEAR_S: f64 = 365.25 * 86_400.0;

/// A machine and an application: processors, groups, C0 = R = L = S, and beta.
struct Machine {
    name: &'static str,
    processors: f64,
    groups: f64,
    checkpoint_s: f64,
    growth_per_s: f64,
}

const K_MATMUL: Machine = Machine {
    name: "k-computer matmul io",
    processors: 88_128.0,
    groups: 296.0,
    checkpoint_s: 49.621_621_621_621_62,
    growth_per_s: 1.113_898_971_554_216_7e-3,
};
const K_STENCIL: Machine =
    Machine { name: "k-computer stencil2d io", growth_per_s: 2.858_266_093_674_996e-4, ..K_MATMUL };
const K_STENCIL_PORT: Machine = Machine {
    name: "k-computer stencil2d port",
    groups: 17_626.0,
    checkpoint_s: 0.833_314_421_876_773,
    growth_per_s: 5.716_532_187_349_992e-4,
    ..K_MATMUL
};
const FAT_STENCIL: Machine = Machine {
    name: "exascale-fat stencil2d io",
    processors: 1e5,
    groups: 316.0,
    checkpoint_s: 202.531_645_569_620_25,
    growth_per_s: 8.220_587_019_282_157e-5,
};
const SLIM_STENCIL_PORT: Machine = Machine {
    name: "exascale-slim stencil2d port",
    processors: 1e6,
    groups: 200_000.0,
    checkpoint_s: 0.32,
    growth_per_s: 5.199_155_736_909_226e-4,
};

/// One machine at one MTBF of a processor, with the four wastes of the mended model: of the application at its own and
/// at the platform's period, of the platform at the application's and at its own.
struct Scenario(&'static Machine, f64, Storage, [f64; 4]);

const SCENARIOS: [Scenario; 8] = [
    Scenario(&K_MATMUL, 5.0, Storage::Local, [0.26135, 0.31167, 0.22287, 0.20582]),
    Scenario(&K_STENCIL, 1.0, Storage::Remote, [0.60767, 0.60947, 0.48277, 0.48076]),
    Scenario(&K_STENCIL, 20.0, Storage::Local, [0.12176, 0.23808, 0.09696, 0.07426]),
    Scenario(&K_STENCIL_PORT, 1.0, Storage::Remote, [0.22827, 0.78889, 0.05387, 0.03117]),
    Scenario(&K_STENCIL_PORT, 5.0, Storage::Remote, [0.07366, 0.32613, 0.03254, 0.02296]),
    Scenario(&FAT_STENCIL, 2.0, Storage::Remote, [0.80677, 0.80813, 0.75055, 0.74909]),
    Scenario(&SLIM_STENCIL_PORT, 50.0, Storage::Remote, [0.07079, 0.36217, 0.02777, 0.02121]),
    Scenario(&SLIM_STENCIL_PORT, 100.0, Storage::Remote, [0.04828, 0.25436, 0.02532, 0.02072]),
];

impl Machine {
    fn model(&self, processor_mtbf_s: f64, storage: Storage) -> Bouteiller {
        Bouteiller {
            mtbf_s: processor_mtbf_s / self.processors,
            groups: self.groups,
            checkpoint_s: self.checkpoint_s,
            down_s: 60.0,
            restart_s: self.checkpoint_s,
            alpha: 0.3,
            lambda: 0.98,
            rho: 1.5,
            beta: self.growth_per_s,
            load_s: self.checkpoint_s,
            save_s: self.checkpoint_s,
            cap_s: CAP_S,
            storage,
        }
    }
}

/// Where the platform's period is cut if none is best.
const CAP_S: f64 = 1e9;

pub(super) fn cells() -> Vec<Cell> {
    let mut cells: Vec<Cell> = SCENARIOS.iter().flat_map(wastes).collect();
    cells.push(without_logging());
    cells
}

fn wastes(Scenario(machine, years, storage, known): &Scenario) -> Vec<Cell> {
    let m = machine.model(years * YEAR_S, *storage);
    let (Some(app_s), Some((plat_s, _))) = (m.app_period_s(), m.plat_period_s()) else { return Vec::new() };
    let place = format!("{}, {years} years, {storage:?}", machine.name).to_lowercase();
    let ours = [
        ("waste of application at its own period", m.waste(Scope::App, app_s)),
        ("waste of application at platform's period", m.waste(Scope::App, plat_s)),
        ("waste of platform at application's period", m.waste(Scope::Plat, app_s)),
        ("waste of platform at its own period", m.waste(Scope::Plat, plat_s)),
    ];
    let cell = |((quantity, ours), known): ((&str, Waste), &f64)| {
        Cell::mended(Paper::Bouteiller13, &*place, quantity, *known, ours.waste).within(5e-6)
    };
    ours.into_iter().zip(known).map(cell).collect()
}

fn without_logging() -> Cell {
    let m = Bouteiller { beta: 0.0, ..K_STENCIL.model(20.0 * YEAR_S, Storage::Remote) };
    let (period_s, unbounded) = m.plat_period_s().unwrap_or((f64::NAN, false));
    let why =
        if unbounded { "erratum D3: no finite period is best; ours is the cap" } else { "a finite period is best" };
    Cell::ours(Paper::Bouteiller13, "k-computer stencil2d io, 20 years, beta = 0", "platform's period, s", period_s)
        .incomparable(why)
}

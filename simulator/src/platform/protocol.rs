//! Says what each protocol does with a job: its period, its groups, its shadow.

use policy::Invalid;
use policy::memoryless::time_work_s;
use policy::periods::Aupy;
use policy::shadow::Shadow;
use policy::waste::Scope;

use super::machine::Machine;
use super::phase::Phase;

/// How jobs are protected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Protocol {
    /// All nodes checkpoint together and roll back together.
    Coordinated,
    /// Groups checkpoint by themselves and log messages; at a failure one group re-executes and the others wait.
    Uncoordinated,
    /// The same, and the survivors are lent to waiting jobs when that pays (Bouteiller13).
    Lending,
    /// A slower shadow follows each job on as many nodes again, and takes over when the job fails (Mills).
    Shadow(Shadowing),
}

/// How shadows run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shadowing {
    /// Speed of the main processes, s.
    pub speed: f64,
    /// Response time promised, over the failure-free time.
    pub laxity: f64,
    /// How fast the shadow runs.
    pub shadow: ShadowSpeed,
}

/// The speed of a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowSpeed {
    /// What costs the least expected energy within the response time.
    Optimal,
    /// W / R, before and after a failure.
    Stretched,
    /// As fast as the main processes.
    Full,
}

/// How long a period is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Period {
    /// The best for the application.
    Application,
    /// The best for a platform that lends nodes; coordinated checkpoints have the application's.
    Platform,
    /// The best for energy; only coordinated checkpoints have one (Aupy15), others have the application's.
    Energy,
    /// This many seconds, checkpoint included.
    Given(f64),
}

/// What is done with a job of a given size that takes checkpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// From checkpoint to checkpoint, T.
    pub period_s: f64,
    /// Duration of a checkpoint at that period, C.
    pub checkpoint_s: f64,
    /// Work speed, lambda.
    pub lambda: f64,
    /// Groups that recover by themselves.
    pub groups: u32,
    /// Whether the job computes again what was lost, instead of replaying it from logs.
    pub rolls_back: bool,
    /// Whether nodes are lent.
    pub lend: bool,
    /// Share of its time in which a borrower makes progress: it pays for its own protection.
    pub borrower_rate: f64,
}

/// Plans a job on `nodes` nodes that is protected by checkpoints.
pub fn plan(machine: &Machine, protocol: Protocol, period: Period, nodes: u32) -> Result<Plan, Invalid> {
    match protocol {
        Protocol::Coordinated | Protocol::Shadow(_) => coordinated(machine, period, nodes),
        Protocol::Uncoordinated | Protocol::Lending => {
            uncoordinated(machine, period, nodes, protocol == Protocol::Lending)
        }
    }
}

fn coordinated(machine: &Machine, period: Period, nodes: u32) -> Result<Plan, Invalid> {
    let c = &machine.costs;
    let model = aupy(machine, nodes);
    model.check()?;
    let best_s = match period {
        Period::Given(period_s) => Some(period_s),
        Period::Energy => model.energy_period_s(),
        Period::Application | Period::Platform => model.time_period_s(),
    };
    // Where Aupy15's expansion has no solution the exact renewal has one.
    let period_s = best_s.unwrap_or_else(|| time_work_s(model.mtbf_s, c.checkpoint_s) + c.checkpoint_s);
    let work_s = period_s - (1.0 - c.alpha) * c.checkpoint_s;
    check(period_s, c.checkpoint_s, work_s)?;
    Ok(Plan {
        period_s,
        checkpoint_s: c.checkpoint_s,
        lambda: 1.0,
        groups: 1,
        rolls_back: true,
        lend: false,
        borrower_rate: work_s / period_s,
    })
}

fn uncoordinated(machine: &Machine, period: Period, nodes: u32, lend: bool) -> Result<Plan, Invalid> {
    let model = machine.bouteiller(nodes);
    let application = || model.app_period_s().unwrap_or_else(|| model.shortest_period_s(Scope::App));
    let period_s = match period {
        Period::Given(period_s) => period_s,
        Period::Platform => model.plat_period_s().map_or_else(application, |(t, _)| t),
        _ => application(),
    };
    let at = model.waste(Scope::App, period_s);
    if period_s.is_infinite() {
        let range = "below 1 / (alpha beta lambda), or its growth with the logs leaves no time for work";
        return Err(Invalid { parameter: "checkpoint", value: machine.costs.checkpoint_s, range });
    }
    check(period_s, at.checkpoint_s, at.work_s)?;
    Ok(Plan {
        period_s,
        checkpoint_s: at.checkpoint_s,
        lambda: machine.costs.lambda,
        groups: machine.groups_of(nodes),
        rolls_back: false,
        lend,
        borrower_rate: 1.0 - at.failure_free,
    })
}

fn check(period_s: f64, checkpoint_s: f64, work_s: f64) -> Result<(), Invalid> {
    let valid = period_s.is_finite() && period_s >= checkpoint_s * (1.0 - 1e-9) && work_s > 0.0;
    if valid {
        Ok(())
    } else {
        Err(Invalid { parameter: "period", value: period_s, range: "finite, and long enough for its checkpoint" })
    }
}

/// Aupy15's parameters for a job on `nodes` nodes, per second of work and node.
pub(super) fn aupy(machine: &Machine, nodes: u32) -> Aupy {
    let (c, watts) = (&machine.costs, &machine.watts);
    let static_w = watts.at(Phase::Survivor);
    Aupy {
        mtbf_s: machine.mtbf_of_s(nodes),
        checkpoint_s: c.checkpoint_s,
        restart_s: c.restart_s,
        down_s: c.down_s,
        overlap: c.alpha,
        static_w,
        compute_w: watts.compute_w,
        io_w: (watts.at(Phase::Restart) - static_w).max(0.0),
        down_w: (watts.at(Phase::Down) - static_w).max(0.0),
        base_s: 1.0,
    }
}

impl Shadowing {
    /// Mills's parameters for work of `work_s` at speed 1 on `nodes` nodes.
    pub fn model(&self, machine: &Machine, nodes: u32, work_s: f64) -> Shadow {
        Shadow { work: work_s, speed_max: self.speed, laxity: self.laxity, mtbf_s: machine.mtbf_of_s(nodes) }
    }

    /// The shadow's speed until the failure.
    pub fn before(&self, model: &Shadow) -> f64 {
        match self.shadow {
            ShadowSpeed::Optimal => model.speed_optimal(),
            ShadowSpeed::Stretched => model.speed_stretched(),
            ShadowSpeed::Full => self.speed,
        }
    }

    /// The shadow's speed after a failure at `failure_s`, and how long it then needs.
    pub fn after(&self, model: &Shadow, before: f64, failure_s: f64) -> (f64, f64) {
        let left = (model.work - before * failure_s).max(0.0);
        let speed = match self.shadow {
            ShadowSpeed::Full => self.speed,
            _ => model.speed_after(before, failure_s).unwrap_or(self.speed),
        };
        (speed, if left > 0.0 { left / speed } else { 0.0 })
    }
}

//! Gives what the closed forms expect of a protocol, to set beside what the simulation found.

use policy::Invalid;
use policy::interval::Costs;
use policy::memoryless;
use policy::waste::Scope;

use super::job::Task;
use super::machine::Machine;
use super::phase::Phase;
use super::protocol::{Period, Plan, Protocol, ShadowSpeed, Shadowing, aupy, plan};

/// What the closed forms expect of one application on all nodes in service.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Application waste: exact renewal (coordinated, alpha = 0), Aupy15 (coordinated), Bouteiller13, or Mills.
    pub application: f64,
    /// Platform waste: Bouteiller13's with lending; else the application's, and the spare nodes.
    pub platform: f64,
    /// Application waste where failures may overlap (erratum D5), for the protocols of Bouteiller13.
    pub overlapping: Option<f64>,
    /// Energy per node and second of work with coordinated checkpoints, idle spare nodes included, in joules.
    pub energy_j: Option<f64>,
    /// Energy of a task in Mills's unit.
    pub task_energy: Option<f64>,
}

/// Evaluates the closed form that belongs to the protocol.
pub fn expected(machine: &Machine, protocol: Protocol, period: Period, task: Task) -> Result<Expected, Invalid> {
    machine.check()?;
    let in_service = f64::from(machine.nodes) / f64::from(machine.nodes + machine.spares);
    let platform = |application: f64| 1.0 - in_service * (1.0 - application);
    if let Protocol::Shadow(rule) = protocol {
        let busy = f64::from(2 * task.nodes * task.fitting(machine.nodes)) / f64::from(machine.nodes);
        let (application, energy) = shadow(machine, rule, task)?;
        return Ok(Expected {
            application,
            platform: platform(1.0 - busy * (1.0 - application)),
            overlapping: None,
            energy_j: None,
            task_energy: Some(energy),
        });
    }
    let plan = plan(machine, protocol, period, machine.nodes)?;
    if protocol == Protocol::Coordinated {
        let (application, energy_j) = coordinated(machine, &plan);
        return Ok(Expected {
            application,
            platform: platform(application),
            overlapping: None,
            energy_j: Some(energy_j),
            task_energy: None,
        });
    }
    let model = machine.bouteiller(machine.nodes);
    let application = model.waste(Scope::App, plan.period_s).waste;
    Ok(Expected {
        application,
        platform: if plan.lend { model.waste(Scope::Plat, plan.period_s).waste } else { platform(application) },
        overlapping: Some(model.overlap_waste(plan.period_s)),
        energy_j: None,
        task_energy: None,
    })
}

/// Waste, and energy per second of work of a node.
fn coordinated(machine: &Machine, plan: &Plan) -> (f64, f64) {
    let model = aupy(machine, machine.nodes);
    let (time, energy_j) = if model.overlap > 0.0 {
        let at = model.evaluate(plan.period_s);
        (at.final_s, at.energy_j)
    } else {
        let costs = Costs {
            checkpoint_s: model.checkpoint_s,
            restart_s: model.restart_s,
            down_s: model.down_s,
            overlap: 0.0,
            static_w: model.static_w,
            compute_w: model.compute_w,
            checkpoint_w: model.io_w,
            down_w: model.down_w,
        };
        let at = memoryless::evaluate(model.mtbf_s, &costs, plan.period_s - plan.checkpoint_s);
        (at.time, at.energy_j)
    };
    let spares = f64::from(machine.spares) / f64::from(machine.nodes);
    (1.0 - 1.0 / time, energy_j + spares * time * machine.watts.at(Phase::Spare))
}

/// Waste of the nodes of both processes, and energy of a task.
fn shadow(machine: &Machine, rule: Shadowing, task: Task) -> Result<(f64, f64), Invalid> {
    let model = rule.model(machine, task.nodes, task.work_s);
    model.check()?;
    let completion_s = model.completion_s();
    // After a failure the shadow takes all the time that was promised, unless it runs at full speed.
    let (mean_s, energy) = match rule.shadow {
        ShadowSpeed::Full => (completion_s, model.energy_pure_replication()),
        _ => (
            model.survival() * completion_s + model.failure_probability() * model.response_s(),
            model.energy(rule.before(&model)).total(),
        ),
    };
    Ok((1.0 - task.work_s / (2.0 * mean_s), energy))
}

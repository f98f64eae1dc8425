//! `simulate platform`: a machine whose nodes fail, under each protocol, beside the closed forms.

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use simulator::platform::{
    Costs, Expected, Failures, Job, Machine, Outcome, Period, Phase, Protocol, QueueFile, Scenario, ShadowSpeed,
    Shadowing, Task, Watts, Workload, expected, parse_queue, plan,
};
use simulator::trace::{Distribution, Trace};

use super::forms::{self, distribution, positive_time, time, within};
use super::platform_report::{self, Format};

/// Simulated time over the MTBF, and over what a queue needs without failures.
const HORIZON_OVER_MTBF: f64 = 1_000.0;
const HORIZON_OVER_NEED: f64 = 20.0;

/// Groups of Bouteiller13's K computer.
const GROUPS: u32 = 296;

/// The most failures that are expected of a run.
const MOST_FAILURES: f64 = 1e7;

/// A machine, its costs, its protocols and its work.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct PlatformArgs {
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    costs: CostArgs,
    #[command(flatten)]
    power: PowerArgs,
    #[command(flatten)]
    protocol: ProtocolArgs,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    format: Format,
}

/// The machine and its failures.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Machine")]
struct MachineArgs {
    /// Nodes in service; with --queue, as many as the file says or the widest job needs.
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,
    /// Spare nodes besides them; one group if absent.
    #[arg(long, value_name = "N")]
    spares: Option<u32>,
    /// Groups of a job that checkpoint and recover by themselves; 296 if absent, or one for each node.
    #[arg(long, value_name = "G")]
    groups: Option<u32>,
    /// Mean time between failures of the nodes in service together.
    #[arg(long, value_name = "TIME", value_parser = positive_time, default_value = "2:00:00")]
    mtbf: f64,
    /// Gaps between a node's failures: exponential, weibull[:SHAPE] or lognormal[:SIGMA].
    #[arg(long, value_name = "NAME", value_parser = distribution, default_value = "exponential")]
    distribution: Distribution,
    /// Failures of the machine from a log (CSV with a column failure_start or time) instead; they strike any node.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["distribution", "mtbf"])]
    trace: Option<PathBuf>,
    /// How long a failed node is away; as long as --downtime if absent.
    #[arg(long, value_name = "TIME", value_parser = time)]
    repair: Option<f64>,
    /// Put failures off that would strike a job before it has recovered, as the closed forms do.
    #[arg(long)]
    no_overlap: bool,
}

/// What fault tolerance costs.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Costs")]
struct CostArgs {
    /// Duration of a checkpoint, C.
    #[arg(long, value_name = "TIME", value_parser = positive_time, default_value = "50")]
    checkpoint: f64,
    /// Restart, R.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "50")]
    restart: f64,
    /// Time until a replacement for a failed node is there, D.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60")]
    downtime: f64,
    /// Work speed during a checkpoint, alpha.
    #[arg(long, value_name = "SHARE", value_parser = within(0.0..=1.0, "0 to 1"), default_value_t = 0.3)]
    alpha: f64,
    /// Work speed under message logging, lambda.
    #[arg(long, value_name = "SHARE", value_parser = within(1e-6..=1.0, "1e-6 to 1"), default_value_t = 0.98)]
    lam: f64,
    /// Speed-up of re-execution from logs, rho.
    #[arg(long, value_name = "FACTOR", value_parser = within(1e-6..=1e6, "1e-6 to 1e6"), default_value_t = 1.5)]
    rho: f64,
    /// Growth of a checkpoint with logged messages, beta, per second.
    #[arg(long, value_name = "RATE", value_parser = within(0.0..=1e6, "0 to 1e6"), default_value_t = 2.86e-4)]
    beta: f64,
    /// Loading a borrower, L.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "50")]
    load: f64,
    /// Saving a borrower, S.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "50")]
    save: f64,
    /// What the scheduler needs to lend nodes.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0")]
    schedule: f64,
}

/// Power of a node.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Power of a node, in watts (Aupy15's exascale figures)")]
struct PowerArgs {
    /// Power at rest, P_static.
    #[arg(long, value_name = "W", value_parser = watts, default_value_t = 10.0)]
    p_static: f64,
    /// What computing adds, P_cal.
    #[arg(long, value_name = "W", value_parser = watts, default_value_t = 10.0)]
    p_cal: f64,
    /// What checkpoint and restart add, P_io.
    #[arg(long, value_name = "W", value_parser = watts, default_value_t = 100.0)]
    p_io: f64,
    /// What being down adds, P_down.
    #[arg(long, value_name = "W", value_parser = watts, default_value_t = 0.0)]
    p_down: f64,
    /// Power of one phase, in place of the model's; may be repeated.
    #[arg(long, value_name = "PHASE=W", value_parser = phase_watts)]
    watts: Vec<(Phase, f64)>,
}

/// Protocols and periods.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Protocol")]
struct ProtocolArgs {
    /// Which protocols.
    #[arg(long, value_name = "NAME", value_enum, value_delimiter = ',', default_value = "all")]
    protocol: Vec<Name>,
    /// From checkpoint to checkpoint: TIME, or auto: the best for the application, and for energy (coordinated) or
    /// the platform (groups).
    #[arg(long, value_name = "TIME", value_parser = period, default_value = "auto")]
    period: PeriodArg,
    /// Shadow replication: response time promised, over the failure-free time.
    #[arg(long, value_name = "FACTOR", value_parser = within(1.0..=1e6, "1 to 1e6"), default_value_t = 1.5)]
    laxity: f64,
    /// Shadow replication: speed of the main processes.
    #[arg(long, value_name = "SPEED", value_parser = within(1e-6..=1e6, "1e-6 to 1e6"), default_value_t = 1.0)]
    speed: f64,
    /// Shadow replication: work of a task at speed 1.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "12:00:00")]
    task: f64,
    /// Shadow replication: nodes of a task, and as many for its shadow; one group if absent.
    #[arg(long, value_name = "N")]
    task_nodes: Option<u32>,
}

/// What there is to do.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Work")]
struct WorkArgs {
    /// Jobs: a log in the Standard Workload Format, or what
    /// `sacct -aXP -o JobID,Submit,Elapsed,AllocNodes,Timelimit` prints. Without it one application fills the
    /// machine, and there is always a job to lend nodes to.
    #[arg(long, value_name = "FILE")]
    queue: Option<PathBuf>,
    /// Processors of a node in a log of the Standard Workload Format; from its header if absent.
    #[arg(long, value_name = "N", requires = "queue")]
    processors_per_node: Option<u32>,
    /// Simulated time; 1000 times the MTBF if absent. With --queue it ends with the last job, or after 20 times what
    /// the jobs need without failures.
    #[arg(long, value_name = "TIME", value_parser = time)]
    horizon: Option<f64>,
    /// Runs, with seeds from --seed on.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// First seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    All,
    Coordinated,
    Uncoordinated,
    Lending,
    Shadow,
}

#[derive(Clone, Copy, Debug)]
enum PeriodArg {
    Auto,
    Given(f64),
}

/// One line of the report.
pub struct Row {
    /// The protocol.
    pub name: &'static str,
    /// Its period on the whole machine, or what the shadow does.
    pub variant: String,
    /// Its period on the whole machine.
    pub period_s: Option<f64>,
    /// One for each seed.
    pub outcomes: Vec<Outcome>,
    /// The closed form, for the application that fills the machine.
    pub expected: Option<Expected>,
}

/// Simulates and reports.
pub fn run(args: &PlatformArgs) -> anyhow::Result<()> {
    let queue = args.work.queue.as_ref().map(|path| read_queue(path, args.work.processors_per_node)).transpose()?;
    let machine = machine(args, queue.as_ref())?;
    let task = Task { work_s: args.protocol.task, nodes: args.protocol.task_nodes.unwrap_or(group_nodes(&machine)) };
    let horizon_s = args.work.horizon.unwrap_or_else(|| match &queue {
        Some(queue) => HORIZON_OVER_NEED * needed_s(&queue.jobs, machine.nodes),
        None => HORIZON_OVER_MTBF * machine.mtbf_s,
    });
    let failures = horizon_s / machine.mtbf_s;
    ensure!(failures <= MOST_FAILURES, "{failures:.0e} failures are expected until --horizon: at most 1e7");
    let skipped = queue.as_ref().map_or(0, |q| q.skipped);
    let workload = queue.map_or(Workload::Backlog(task), |q| Workload::Jobs(q.jobs));
    let seeds = args.work.seed..args.work.seed.saturating_add(u64::from(args.work.runs));
    let mut rows = Vec::new();
    let mut chosen = variants(args);
    if args.protocol.protocol.contains(&Name::All) && !shadows_fit(&machine, &workload) {
        protocol::say!("joulepoint: shadow replication left out: the widest job and its shadow exceed the machine");
        chosen.retain(|(protocol, _)| !matches!(protocol, Protocol::Shadow(_)));
    }
    for (protocol, period) in chosen {
        rows.push(Row {
            name: name(protocol),
            variant: variant(protocol, period),
            period_s: period_s(&machine, protocol, period)?,
            outcomes: Scenario { machine: &machine, protocol, period, workload: &workload, horizon_s }
                .runs(seeds.clone())?,
            expected: match workload {
                Workload::Backlog(task) => Some(expected(&machine, protocol, period, task)?),
                Workload::Jobs(_) => None,
            },
        });
    }
    platform_report::print(&args.format, &machine, &workload, skipped, &rows)
}

fn machine(args: &PlatformArgs, queue: Option<&QueueFile>) -> anyhow::Result<Machine> {
    let (m, c, p) = (&args.machine, &args.costs, &args.power);
    let widest = |q: &QueueFile| q.jobs.iter().map(|j| j.nodes).max().unwrap_or(1);
    let nodes = m.nodes.unwrap_or_else(|| queue.map_or(88_800, |q| q.nodes.unwrap_or(0).max(widest(q))));
    let groups = m.groups.unwrap_or(GROUPS.min(nodes));
    let (failures, mtbf_s) = match &m.trace {
        None => (Failures::Drawn(m.distribution), m.mtbf),
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let trace = Trace::parse("trace", &text).with_context(|| format!("in {}", path.display()))?;
            let mtbf_s = trace.mean_s();
            (Failures::Logged(trace.gaps_s), mtbf_s)
        }
    };
    let mut watts = Watts::of(p.p_static, p.p_cal, p.p_io, p.p_down, c.alpha);
    p.watts.iter().for_each(|(phase, w)| watts.set(*phase, *w));
    let machine = Machine {
        nodes,
        spares: m.spares.unwrap_or(nodes / groups.max(1)),
        groups,
        mtbf_s,
        failures,
        repair_s: m.repair.unwrap_or(c.downtime),
        overlap: !m.no_overlap,
        costs: Costs {
            checkpoint_s: c.checkpoint,
            restart_s: c.restart,
            down_s: c.downtime,
            alpha: c.alpha,
            lambda: c.lam,
            rho: c.rho,
            beta: c.beta,
            load_s: c.load,
            save_s: c.save,
            scheduler_s: c.schedule,
        },
        watts,
    };
    machine.check()?;
    Ok(machine)
}

fn group_nodes(machine: &Machine) -> u32 {
    (machine.nodes / machine.groups).max(1)
}

fn read_queue(path: &PathBuf, processors_per_node: Option<u32>) -> anyhow::Result<QueueFile> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let queue = parse_queue(&text, processors_per_node).with_context(|| format!("in {}", path.display()))?;
    ensure!(!queue.jobs.is_empty(), "{} has no job that ran", path.display());
    Ok(queue)
}

/// The time that the jobs need at most without failures.
fn needed_s(jobs: &[Job], nodes: u32) -> f64 {
    let last_s = jobs.iter().map(|j| j.submit_s + j.work_s).fold(0.0, f64::max);
    last_s + jobs.iter().map(|j| f64::from(j.nodes) * j.work_s).sum::<f64>() / f64::from(nodes)
}

/// The protocols to simulate, each at its periods.
fn variants(args: &PlatformArgs) -> Vec<(Protocol, Period)> {
    let wanted = |name| args.protocol.protocol.iter().any(|p| *p == Name::All || *p == name);
    let with_queue = args.work.queue.is_some();
    let periods = |other| match args.protocol.period {
        PeriodArg::Given(period_s) => vec![Period::Given(period_s)],
        PeriodArg::Auto => vec![Period::Application, other],
    };
    let mut variants = Vec::new();
    for (name, protocol, other) in [
        (Name::Coordinated, Protocol::Coordinated, Period::Energy),
        (Name::Uncoordinated, Protocol::Uncoordinated, Period::Platform),
        (Name::Lending, Protocol::Lending, Period::Platform),
    ] {
        if wanted(name) {
            variants.extend(periods(other).into_iter().map(|period| (protocol, period)));
        }
    }
    // A platform's period is for lending; beside it the backlog shows what that period costs without.
    variants.retain(|v| !with_queue || *v != (Protocol::Uncoordinated, Period::Platform));
    if wanted(Name::Shadow) {
        for shadow in [ShadowSpeed::Optimal, ShadowSpeed::Stretched, ShadowSpeed::Full] {
            let rule = Shadowing { speed: args.protocol.speed, laxity: args.protocol.laxity, shadow };
            variants.push((Protocol::Shadow(rule), Period::Application));
        }
    }
    variants
}

/// Whether the widest job and its shadow fit into the machine.
fn shadows_fit(machine: &Machine, workload: &Workload) -> bool {
    match workload {
        Workload::Jobs(jobs) => jobs.iter().all(|j| j.nodes <= machine.nodes / 2),
        Workload::Backlog(task) => task.nodes <= machine.nodes / 2,
    }
}

fn name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Coordinated => "coordinated",
        Protocol::Uncoordinated => "uncoordinated",
        Protocol::Lending => "lending",
        Protocol::Shadow(_) => "shadow",
    }
}

fn variant(protocol: Protocol, period: Period) -> String {
    match (protocol, period) {
        (Protocol::Shadow(rule), _) => match rule.shadow {
            ShadowSpeed::Optimal => "optimal",
            ShadowSpeed::Stretched => "stretched",
            ShadowSpeed::Full => "full speed",
        },
        (_, Period::Application) => "T_app",
        (_, Period::Platform) => "T_plat",
        (_, Period::Energy) => "T_energy",
        (_, Period::Given(_)) => "given",
    }
    .to_owned()
}

fn period_s(machine: &Machine, protocol: Protocol, period: Period) -> anyhow::Result<Option<f64>> {
    Ok(match protocol {
        Protocol::Shadow(_) => None,
        protocol => Some(plan(machine, protocol, period, machine.nodes)?.period_s),
    })
}

fn period(text: &str) -> Result<PeriodArg, String> {
    if text == "auto" { Ok(PeriodArg::Auto) } else { time(text).map(PeriodArg::Given) }
}

/// Power of a node.
fn watts(text: &str) -> Result<f64, String> {
    within(0.0..=1e9, "0 to 1e9 W")(text)
}

fn phase_watts(text: &str) -> anyhow::Result<(Phase, f64)> {
    let (name, watts) = text.split_once('=').context("is not PHASE=W")?;
    let Some(phase) = Phase::ALL.into_iter().find(|p| p.name() == name) else {
        bail!("no phase is called {name:?}; there are {}", Phase::ALL.map(Phase::name).join(", "));
    };
    Ok((phase, self::watts(watts).map_err(anyhow::Error::msg)?))
}

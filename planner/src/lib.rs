//! Makes the plan of a run from what was asked, what the site says, and what earlier runs showed.
//!
//! The controller calls it with the store's history, a wrapper whose controller is away without: the same
//! function, so that both say the same for the same input. It reads no file, no clock and no store.

mod accuracy;
mod alone;
pub mod calibrated;
pub mod cap;
pub mod capability;
mod figures;
pub mod groups;
mod known;
mod loans;
pub mod past;
pub mod predicted;
pub mod published;
pub mod restart;
pub mod sound;
mod table;

pub use accuracy::{Accuracy, Deviation, accuracy, checkpoint_power_w, expected_checkpoint_j};
pub use groups::{NOT_ALONE, TOGETHER};
pub use known::Known;
pub use loans::{CAUGHT_UP, Lent, Modelled, Pair, Party, lent, modelled, parties};

use alone::{Alone, Together};
use capability::{CAPABILITIES, Capabilities};
use config::Site;
use figures::Figures;
use known::Calibrated;
use options::size::too_few;
use options::{Engine, Objective, Refusal, Settings};
use policy::adaptive::{Adaptive, AdaptiveParameters};
use policy::choice::{Protocol, choose};
use policy::interval::{self, Bounds, Choice, choose_interval};
use protocol::{Alternative, Plan, PlanRequest};

/// The protocol of a plan whose nodes all go back.
pub const COORDINATED: &str = "coordinated";

/// The protocol of a plan whose groups recover alone.
pub const UNCOORDINATED: &str = "uncoordinated";

/// Expected time beyond the work, as a fraction of it, above which a run is said to make no progress.
const HOPELESS: f64 = 100.0;

/// What the store knows that bears on a new run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// True failures of nodes seen on this cluster.
    pub node_failures: u32,
    /// Time for which nodes were watched, summed over the nodes, s.
    pub node_seconds: f64,
    /// The newest of these failures.
    pub failures: past::FailureLog,
    /// Mean duration of a checkpoint in earlier runs of this user and job name, s.
    pub checkpoint_s: Option<f64>,
    /// Mean duration of a restart in earlier runs of this user and job name, s.
    pub restart_s: Option<f64>,
    /// Mean power of a computing node in earlier runs of this user and job name, W.
    pub busy_w: Option<f64>,
    /// Mean power of a node whose program stood still for a checkpoint in earlier runs of this user and job name, W.
    pub checkpoint_w: Option<f64>,
    /// For which part of the time of these checkpoints the program stood still, where that was seen.
    pub still_share: Option<f64>,
    /// Mean volume of a checkpoint of all nodes in earlier runs of this user and job name, bytes.
    pub checkpoint_bytes: Option<f64>,
    /// Mean work of earlier completed runs of this user and job name, s.
    pub work_s: Option<f64>,
    /// Engine of the newest run of this user and job name that made a checkpoint.
    pub engine: Option<String>,
    /// The newest run of this user and job name whose program did not repeat itself when one group went back alone.
    pub not_alone: Option<String>,
    /// What the nodes of the newest runs of this user and job name have told each other, the newest first.
    pub messages: Vec<protocol::Messages>,
    /// The calibrations of this cluster.
    pub calibrations: Vec<Known>,
}

/// A run that wants a plan.
pub(crate) struct Wanted<'a> {
    settings: &'a Settings,
    /// The engine that was asked for, or that earlier runs made checkpoints with.
    engine: Option<Engine>,
    nodes: u32,
    processes: u32,
    /// Tasks of the job, if it says how many.
    tasks: Option<u32>,
    node_names: &'a [String],
    node_type: Option<&'a str>,
    work_s: Option<f64>,
    groups: Option<u32>,
    walltime_s: Option<f64>,
    local_s: Option<f64>,
    /// Whether nodes may have their CPU frequency set for the checkpoint phase.
    cpufreq: bool,
    /// An earlier run of this name whose program did not repeat itself when one group went back alone.
    not_alone: Option<&'a str>,
    /// Whether its nodes may recover one by one though nobody has asked for it.
    alone: Result<Alone, Together>,
    /// Number and bytes of its messages, as it was told or was seen.
    messages: Option<(u64, u64)>,
}

impl Wanted<'_> {
    /// How much longer a checkpoint may take at a lower CPU frequency, as a fraction.
    fn slowdown(&self) -> f64 {
        match self.settings.objective {
            Some(Objective::Time) => 0.0,
            _ => self.settings.bounds.runtime.unwrap_or(f64::INFINITY),
        }
    }

    /// What is to be said of groups that recover alone, if they were asked for; an error says why they cannot be had.
    fn groups_said(&self) -> Option<Result<Vec<String>, String>> {
        let asked = self.settings.protocol == Some(options::Protocol::Uncoordinated);
        asked.then(|| match self.not_alone {
            Some(run) => Err(format!("in run {run} of this name {NOT_ALONE}")),
            None => groups::remarks(self.settings, self.nodes as usize, self.tasks),
        })
    }

    /// Whether groups that recover alone were asked for, and can be had.
    fn recovers_by_groups(&self) -> bool {
        matches!(self.groups_said(), Some(Ok(_)))
    }

    /// Groups of the uncoordinated alternatives: one for each node unless told, at most one for each process.
    fn groups(&self) -> u32 {
        let alone = || self.alone.as_ref().ok().map(|alone| alone.groups);
        self.groups.or_else(alone).unwrap_or(self.nodes).clamp(1, self.nodes.saturating_mul(self.processes.max(1)))
    }
}

/// The plan for a request.
///
/// # Errors
/// The [`Refusal`] of a request that does not resolve.
pub fn make_plan(request: &PlanRequest, history: &History, site: &Site) -> Result<Plan, Refusal> {
    let settings = options::resolve(&request.request, &site.defaults)?;
    let wanted = Wanted {
        settings: &settings,
        engine: settings.engine.or_else(|| engine_named(history.engine.as_deref()?)),
        nodes: request.nodes.max(1),
        processes: request.tasks.map_or(request.cpus_per_node, |tasks| tasks.div_ceil(request.nodes.max(1))),
        tasks: request.tasks,
        node_names: &request.node_names,
        node_type: request.node_type.as_deref(),
        work_s: request.work_s,
        walltime_s: request.walltime_s,
        local_s: request.local_s,
        groups: request.groups.or((settings.groups > 1).then_some(settings.groups)),
        cpufreq: site.node.cpufreq,
        not_alone: history.not_alone.as_deref(),
        alone: Alone::of(request, &settings, history),
        messages: settings.messages.or_else(|| {
            let work_s = figures::work(request.work_s, history).value;
            alone::messages(request, &settings, history, work_s)
        }),
    };
    Ok(plan(&wanted, history, site, CAPABILITIES, "controller"))
}

/// The engine of a name, as plans have it.
pub fn engine_named(name: &str) -> Option<Engine> {
    Engine::ALL.into_iter().find(|e| e.as_str() == name)
}

/// The plan that a wrapper makes while the controller is away.
pub fn plan_without_history(settings: &Settings, request: &PlanRequest, site: &Site) -> Plan {
    let nodes = request.nodes.max(1);
    let (node_names, node_type, work_s) = (&[], None, None);
    let wanted = Wanted {
        settings,
        engine: settings.engine,
        nodes,
        processes: 1,
        tasks: None,
        node_names,
        node_type,
        work_s,
        groups: None,
        walltime_s: request.walltime_s,
        local_s: request.local_s,
        cpufreq: site.node.cpufreq,
        not_alone: None,
        alone: Err(Together::Away),
        messages: settings.messages,
    };
    plan(&wanted, &History::default(), site, CAPABILITIES, "wrapper")
}

/// Why a run does not wait for other hours at a site that has none.
pub const NO_TARIFF: &str = "--ft-energy-flexible has no effect: the site has no tariff (accounting.tariff)";

fn plan(wanted: &Wanted<'_>, history: &History, site: &Site, capabilities: &Capabilities, made_by: &str) -> Plan {
    let settings = wanted.settings;
    let calibrated = known::find(&history.calibrations, wanted)
        .map(|known| Calibrated::of(known, wanted, figures::bytes(wanted, history)));
    let figures = Figures::gather(wanted, history, site, calibrated.as_ref().ok());
    let objective = match settings.objective {
        Some(Objective::Time) => interval::Objective::Time,
        _ => interval::Objective::Energy,
    };
    let longest_interval_s = cap::of_walltime(wanted.walltime_s, site.wrapper.longest_interval_s);
    let bounds = cap::bounds(settings, longest_interval_s);
    let past = past::of(wanted, history, site);
    let paced = paced(wanted, &figures, past.as_ref(), objective, &bounds);
    let Paced { interval_s, expected, mut reasons, alternatives } = paced;
    reasons.push(calibrated.as_ref().map_or_else(|missing| missing.why.clone(), Calibrated::describe));
    let stale = calibrated.as_ref().err().map(|missing| missing.stale.clone()).unwrap_or_default();
    let calibrated = calibrated.as_ref().ok();
    let costs = figures.choice_costs(wanted.nodes, calibrated.map(|c| &c.costs));
    let hindrance = |p| capability::hindrance(capabilities, wanted, p);
    let decision = choose(objective, &figures.run(wanted), &costs, &bounds, hindrance);
    let taken = table::taken(decision, wanted, &figures, calibrated, capabilities);
    reasons.extend(taken.reasons);
    let alternatives = taken.alternatives.into_iter().chain(alternatives).collect();
    let (interval_s, expected) = match &taken.other {
        Some(outcome) => (outcome.interval_s.unwrap_or(interval_s), Some(outcome.expected())),
        // The interval is that of a program that stands still for all of a checkpoint: what copying beside it costs it is
        // not known. What is expected of that interval is what was seen of checkpoints.
        None => {
            let seen = figures.seen_costs();
            let of_seen = seen.and_then(|costs| interval::expected_at(interval_s, figures.mtbf_s.value, &costs).ok());
            (interval_s, expected.map(|expected| of_seen.unwrap_or(expected)))
        }
    };
    let proven = history.engine.as_deref().filter(|_| settings.engine.is_none());
    let engine = settings.engine.map(Engine::as_str).or(proven).unwrap_or("auto");
    let asked = wanted.recovers_by_groups();
    let alone = wanted.alone.as_ref().ok().filter(|_| !asked && taken.protocol == Protocol::DiskLog);
    reasons.extend(alone.map(Alone::said));
    reasons.extend(on_groups(wanted));
    reasons.extend(on_shared_nodes(&figures));
    reasons.extend(flexible_s(settings, site).err().map(str::to_owned));
    reasons.extend(proven.map(|e| format!("the last run of this name that made checkpoints made them by {e}")));
    Plan {
        version: protocol::VERSION,
        objective: if objective == interval::Objective::Time { "time" } else { "energy" }.to_string(),
        protocol: if asked || alone.is_some() { UNCOORDINATED } else { taken.protocol.as_str() }.to_string(),
        engine: engine.to_string(),
        options: alone.map(Alone::options).unwrap_or_default(),
        policy: settings.policy.clone(),
        interval_s,
        longest_interval_s,
        interval_fixed: settings.interval.is_some(),
        mtbf_s: figures.mtbf_s,
        past,
        local_s: wanted.local_s,
        checkpoint_s: figures.checkpoint_s,
        restart_s: figures.restart_s,
        node_share: figures.node_share,
        idle_w: figures.idle_w,
        busy_w: figures.busy_w,
        checkpoint_w: figures.checkpoint_w,
        still_share: figures.still_share,
        checkpoint_hz: calibrated.and_then(|c| c.costs.checkpoint_hz),
        expected_time_overhead: expected.map_or(0.0, |e| e.time_overhead),
        expected_energy_overhead: expected.map_or(0.0, |e| e.energy_overhead),
        expected_io_share: expected.map_or(0.0, |e| e.io_share),
        flexible_s: flexible_s(settings, site).ok().flatten(),
        alternatives,
        choice: taken.choice,
        stale,
        reasons,
        made_by: made_by.to_string(),
    }
}

/// The interval of a run that checkpoints as a whole.
struct Paced {
    interval_s: f64,
    /// What it is expected to cost; absent if nothing can be computed.
    expected: Option<interval::Expected>,
    reasons: Vec<String>,
    alternatives: Vec<Alternative>,
}

/// Chooses the interval by the policy that was asked for, or takes the user's own.
fn paced(
    wanted: &Wanted<'_>,
    figures: &Figures,
    past: Option<&protocol::Past>,
    objective: interval::Objective,
    bounds: &Bounds,
) -> Paced {
    let (settings, costs, mtbf_s) = (wanted.settings, figures.costs(), figures.mtbf_s.value);
    let parameters = AdaptiveParameters::for_objective(objective);
    let (chosen, started) = match past {
        _ if settings.policy != "auto" => (choose_interval(objective, mtbf_s, &costs, bounds), None),
        None => (Adaptive::new(parameters, mtbf_s, wanted.local_s).choose(0.0, objective, &costs, bounds), None),
        Some(past) => {
            let now_s = past.until_s;
            let (auto, from_s) = Adaptive::with_past(parameters, &past::lived(past), now_s, wanted.local_s);
            (auto.choose(now_s - from_s, objective, &costs, bounds), Some(past::said(past, &auto)))
        }
    };
    let mut reasons = vec![figures.mtbf_reason.clone()];
    if let Some(overhead) = chosen.as_ref().ok().map(|c| c.expected.time_overhead).filter(|o| *o > HOPELESS) {
        reasons.push(format!(
            "no interval makes progress: failures come every {mtbf_s:.1} s and a checkpoint takes {:.1} s, so that the run \
             would take {overhead:.0e} times its work",
            figures.checkpoint_s.value
        ));
    }
    let fixed_s = settings.interval.map(|i| i.as_secs_f64());
    let (interval_s, expected) = match (&chosen, fixed_s) {
        (Ok(choice), None) => {
            reasons.push(choice.reason.clone());
            (choice.interval_s, Some(choice.expected))
        }
        (Ok(choice), Some(fixed_s)) => {
            reasons.push(format!(
                "the interval of {fixed_s:.0} s is the user's own; {:.0} s would have been chosen",
                choice.interval_s
            ));
            (fixed_s, interval::expected_at(fixed_s, mtbf_s, &costs).ok())
        }
        (Err(invalid), fixed_s) => {
            reasons.push(format!("no interval can be computed: {invalid}; one hour is taken"));
            (fixed_s.unwrap_or(3600.0), None)
        }
    };
    reasons.extend(started);
    let mut alternatives = Vec::new();
    if let Ok(choice) = &chosen {
        alternatives.push(other_objective(objective, choice));
        alternatives.extend(choice.limited_by.map(|limit| Alternative {
            what: "the optimum without bounds".to_string(),
            interval_s: Some(choice.optimum_s),
            time_overhead: None,
            energy_overhead: None,
            refused: format!("limited by {limit:?}"),
        }));
    }
    Paced { interval_s, expected, reasons, alternatives }
}

/// What becomes of the groups and spares that were asked for.
fn on_groups(wanted: &Wanted<'_>) -> Vec<String> {
    let settings = wanted.settings;
    match wanted.groups_said() {
        Some(Ok(remarks)) => {
            let groups = settings.groups;
            let each = format!(
                "uncoordinated was asked for: each of {groups} groups keeps this interval by itself, reckoned as coordinated"
            );
            [each].into_iter().chain(remarks).collect()
        }
        Some(Err(refused)) => {
            vec![format!("uncoordinated was asked for and cannot be: {refused}: the run is coordinated")]
        }
        None => {
            let short = too_few(settings.groups, settings.spare, wanted.nodes);
            short.map(|short| format!("{short}: fewer nodes are kept as spares")).into_iter().collect()
        }
    }
}

/// For how long a run may wait for other hours, s.
///
/// # Errors
/// Why it will not, though it may.
fn flexible_s(settings: &Settings, site: &Site) -> Result<Option<f64>, &'static str> {
    match (settings.flexible, &site.accounting.tariff) {
        (Some(_), None) => Err(NO_TARIFF),
        (flexible, _) => Ok(flexible.map(|flexible| flexible.as_secs_f64())),
    }
}

/// Powers of runs that shared their nodes with others are those of their part.
fn on_shared_nodes(figures: &Figures) -> Option<String> {
    let part = 100.0 * figures.node_share?;
    Some(format!(
        "earlier runs drew less than an idle node (they shared theirs, or energy.idle_w is too high): all powers are \
         those of the job's part of a node, {part:.0}%"
    ))
}

fn other_objective(objective: interval::Objective, choice: &Choice) -> Alternative {
    let what = match objective {
        interval::Objective::Energy => "objective=time",
        interval::Objective::Time => "objective=energy",
    };
    Alternative {
        what: what.to_string(),
        interval_s: None,
        time_overhead: Some(choice.expected_alternative.time_overhead),
        energy_overhead: Some(choice.expected_alternative.energy_overhead),
        refused: "not asked for".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::choice::Protocol;
    use protocol::{Request, Setting, Source};
    use std::collections::BTreeMap;

    fn request(pairs: &[(&str, &str)], nodes: u32) -> PlanRequest {
        let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
        let settings = pairs.iter().map(|(n, v)| (n.to_string(), setting(v))).collect::<BTreeMap<_, _>>();
        PlanRequest {
            request: Request { settings },
            nodes,
            cpus_per_node: 2,
            user: "u".into(),
            job_name: "j".into(),
            ..PlanRequest::default()
        }
    }

    /// A site that lets the expected failures alone say how often checkpoints are made.
    fn uncapped() -> Site {
        let mut site = Site::default();
        site.wrapper.longest_interval_s = 0.0;
        site
    }

    #[test]
    fn more_nodes_fail_more_often_and_checkpoint_more_often() {
        let site = uncapped();
        let plan = |n| make_plan(&request(&[("ft-energy", "")], n), &History::default(), &site).unwrap();
        assert!(plan(100).mtbf_s.value < plan(1).mtbf_s.value);
        assert!(plan(100).interval_s < plan(1).interval_s);
    }

    #[test]
    fn history_is_preferred_and_said() {
        let history = History { node_failures: 9, node_seconds: 9e5, checkpoint_s: Some(4.0), ..History::default() };
        let plan = make_plan(&request(&[("ft-energy", "")], 4), &history, &Site::default()).unwrap();
        assert_eq!((plan.checkpoint_s.value, plan.checkpoint_s.from.as_str()), (4.0, "history"));
        assert_eq!(plan.mtbf_s.from, "history");
        assert!(plan.reasons[0].contains("9 failures"), "{:?}", plan.reasons);
    }

    #[test]
    fn powers_are_all_of_the_whole_node_or_all_of_the_jobs_part_of_it() {
        let site = Site::default();
        let of = |busy_w| {
            let history = History { busy_w, ..History::default() };
            let plan = make_plan(&request(&[("ft-energy", "")], 1), &history, &site).unwrap();
            let rises = plan.idle_w.value < plan.checkpoint_w.value && plan.checkpoint_w.value < plan.busy_w.value;
            assert!(rises, "{plan:?}");
            (plan.node_share, plan.idle_w.value, plan.busy_w.value, plan.reasons.join("\n"))
        };
        let whole = |busy_w: f64| (None, site.energy.idle_w, busy_w);
        let (share, idle_w, busy_w, _) = of(None);
        assert_eq!((share, idle_w, busy_w), whole(site.energy.busy_w));
        let (share, idle_w, busy_w, _) = of(Some(250.0));
        assert_eq!((share, idle_w, busy_w), whole(250.0));
        // It shared its node: a sixth of the power of a busy one was its own.
        let (share, idle_w, busy_w, why) = of(Some(50.0));
        assert_eq!((share, busy_w), (Some(50.0 / site.energy.busy_w), 50.0));
        assert!((idle_w - site.energy.idle_w / 6.0).abs() < 1e-9, "{idle_w}");
        assert!(why.contains("the job's part of a node, 17%"), "{why}");
    }

    #[test]
    fn an_engine_that_has_worked_is_planned_unless_another_is_asked_for() {
        let history = History { engine: Some("dmtcp".into()), ..History::default() };
        let plan =
            |options: &[(&str, &str)], history| make_plan(&request(options, 1), history, &Site::default()).unwrap();
        let again = plan(&[("ft-energy", "")], &history);
        assert_eq!(again.engine, "dmtcp");
        assert!(again.reasons.iter().any(|r| r.contains("by dmtcp")), "{:?}", again.reasons);
        assert_eq!(plan(&[("ft-energy", ""), ("ft-energy-engine", "scr")], &history).engine, "scr");
        assert_eq!(plan(&[("ft-energy", "")], &History::default()).engine, "auto");
    }

    #[test]
    fn a_checkpoint_costs_what_the_engine_that_has_worked_costs() {
        let with = |options: &[(&str, &str)], engine: Option<&str>| {
            let mut options = options.to_vec();
            options.extend([("ft-energy", ""), ("ft-energy-memory", "8G")]);
            let engine = engine.map(str::to_string);
            let history = History { calibrations: vec![published::calibration(100.0)], engine, ..History::default() };
            make_plan(&request(&options, 4), &history, &Site::default()).unwrap().checkpoint_s
        };
        let asked = with(&[("ft-energy-engine", "criu")], None);
        assert_eq!(asked, with(&[], Some("criu")));
        assert_ne!(asked, with(&[], None), "one node copies the files of a program that writes its own");
        assert_eq!(with(&[], None), with(&[("ft-energy-engine", "app")], Some("criu")), "who asks is heard");
    }

    #[test]
    fn a_row_of_the_capability_table_opens_a_protocol() {
        const NONE_LOGS: &Capabilities = &[(Engine::App, &[Protocol::Coordinated])];
        let options = [("ft-energy", ""), ("ft-energy-memory", "8G")];
        let settings = options::resolve(&request(&options, 8).request, &Default::default()).unwrap();
        let wanted = Wanted {
            settings: &settings,
            engine: None,
            nodes: 8,
            processes: 4,
            tasks: None,
            node_names: &[],
            node_type: None,
            work_s: None,
            groups: Some(32),
            walltime_s: None,
            local_s: None,
            cpufreq: false,
            not_alone: None,
            alone: Ok(Alone::default()),
            messages: Some((1000, 1 << 20)),
        };
        let history = History { calibrations: vec![published::calibration(100.0)], ..History::default() };
        let with = |table| plan(&wanted, &history, &uncapped(), table, "test");
        let (closed, later) = (with(NONE_LOGS), with(CAPABILITIES));
        assert_eq!((closed.protocol.as_str(), later.protocol.as_str()), ("coordinated", UNCOORDINATED));
        assert!(closed.options.is_empty() && later.options["ft-energy-log"] == "disk");
        let row = later.choice.unwrap().rows.into_iter().find(|r| r.protocol == "uncoordinated-disk").unwrap();
        assert!(row.enacted && row.refused.is_none());
        assert_eq!(row.figures.unwrap().interval_s, Some(later.interval_s));
    }

    #[test]
    fn a_fixed_interval_stays_and_the_better_one_is_named() {
        let plan = make_plan(
            &request(&[("ft-energy", "time"), ("ft-energy-interval", "10")], 1),
            &History::default(),
            &Site::default(),
        )
        .unwrap();
        assert_eq!((plan.interval_s, plan.interval_fixed), (600.0, true));
        assert!(plan.reasons[1].contains("would have been chosen"));
    }
}

//! Makes the plan of a run from what was asked, what the site says, and what earlier runs showed.
//!
//! The controller calls it with the store's history, a wrapper whose controller is away without: the same
//! function, so that both say the same for the same input. It reads no file, no clock and no store.

pub mod calibrated;

use config::Site;
use options::{Engine, Objective, Refusal, Settings};
use policy::adaptive::{Adaptive, AdaptiveParameters};
use policy::interval::{self, Bounds, Choice, Costs, choose_interval};
use protocol::{Alternative, Figure, Plan, PlanRequest};

/// What the store knows that bears on a new run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// True failures of nodes seen on this cluster.
    pub node_failures: u32,
    /// Time for which nodes were watched, summed over the nodes, s.
    pub node_seconds: f64,
    /// Mean duration of a checkpoint in earlier runs of this user and job name, s.
    pub checkpoint_s: Option<f64>,
    /// Mean duration of a restart in earlier runs of this user and job name, s.
    pub restart_s: Option<f64>,
    /// Mean power of a computing node in earlier runs of this user and job name, W.
    pub busy_w: Option<f64>,
    /// Mean power of a node in checkpoints of earlier runs of this user and job name, W.
    pub checkpoint_w: Option<f64>,
}

/// The plan for a request.
///
/// # Errors
/// The [`Refusal`] of a request that does not resolve.
pub fn make_plan(request: &PlanRequest, history: &History, site: &Site) -> Result<Plan, Refusal> {
    let settings = options::resolve(&request.request, &site.defaults)?;
    Ok(plan(&settings, request.nodes, history, site, "controller"))
}

/// The plan that a wrapper makes while the controller is away.
pub fn plan_without_history(settings: &Settings, nodes: u32, site: &Site) -> Plan {
    plan(settings, nodes, &History::default(), site, "wrapper")
}

fn plan(settings: &Settings, nodes: u32, history: &History, site: &Site, made_by: &str) -> Plan {
    let nodes = nodes.max(1);
    let figures = Figures::gather(settings, nodes, history, site);
    let objective = match settings.objective {
        Some(Objective::Time) => interval::Objective::Time,
        _ => interval::Objective::Energy,
    };
    let bounds = Bounds { runtime: settings.bounds.runtime, io: settings.bounds.io, energy: settings.bounds.energy };
    let costs = figures.costs();
    let chosen = if settings.policy == "auto" {
        // The calendar enters when the run starts: a plan knows no clock.
        let auto = Adaptive::new(AdaptiveParameters::for_objective(objective), figures.mtbf_s.value, None);
        auto.choose(0.0, objective, &costs, &bounds)
    } else {
        choose_interval(objective, figures.mtbf_s.value, &costs, &bounds)
    };
    let mut reasons = vec![figures.mtbf_reason.clone()];
    let mut alternatives = protocols_not_taken();
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
            (fixed_s, interval::expected_at(fixed_s, figures.mtbf_s.value, &costs).ok())
        }
        (Err(invalid), fixed_s) => {
            reasons.push(format!("no interval can be computed: {invalid}; one hour is taken"));
            (fixed_s.unwrap_or(3600.0), None)
        }
    };
    if let Ok(choice) = &chosen {
        alternatives.push(other_objective(objective, choice));
        if let Some(limit) = choice.limited_by {
            alternatives.push(Alternative {
                what: "the optimum without bounds".to_string(),
                interval_s: Some(choice.optimum_s),
                time_overhead: None,
                energy_overhead: None,
                refused: format!("limited by {limit:?}"),
            });
        }
    }
    Plan {
        version: protocol::VERSION,
        objective: if objective == interval::Objective::Time { "time" } else { "energy" }.to_string(),
        protocol: "coordinated".to_string(),
        engine: match settings.engine {
            Some(Engine::App) => "app",
            Some(Engine::Hook) => "hook",
            None => "auto",
        }
        .to_string(),
        policy: settings.policy.clone(),
        interval_s,
        interval_fixed: fixed_s.is_some(),
        mtbf_s: figures.mtbf_s,
        checkpoint_s: figures.checkpoint_s,
        restart_s: figures.restart_s,
        idle_w: figures.idle_w,
        busy_w: figures.busy_w,
        checkpoint_w: figures.checkpoint_w,
        expected_time_overhead: expected.map_or(0.0, |e| e.time_overhead),
        expected_energy_overhead: expected.map_or(0.0, |e| e.energy_overhead),
        expected_io_share: expected.map_or(0.0, |e| e.io_share),
        alternatives,
        reasons,
        made_by: made_by.to_string(),
    }
}

/// The figures that a plan rests on, each with the place it comes from.
struct Figures {
    mtbf_s: Figure,
    mtbf_reason: String,
    checkpoint_s: Figure,
    restart_s: Figure,
    idle_w: Figure,
    busy_w: Figure,
    checkpoint_w: Figure,
}

impl Figures {
    fn gather(settings: &Settings, nodes: u32, history: &History, site: &Site) -> Figures {
        let e = &site.estimates;
        // The site's figure counts as one failure seen in one MTBF: measured failures soon outweigh it.
        let node_mtbf_s = (history.node_seconds + e.node_mtbf_s) / f64::from(history.node_failures + 1);
        let mtbf_s = policy::mtbf::combine_prior(node_mtbf_s, nodes);
        let mtbf_reason = format!(
            "MTBF of {nodes} nodes {:.1} h: {} failures in {:.1} node-hours seen, and the site's {:.0} h a node counted as one failure",
            mtbf_s / 3600.0,
            history.node_failures,
            history.node_seconds / 3600.0,
            e.node_mtbf_s / 3600.0
        );
        let or_history = |seen: Option<f64>, otherwise: Figure| match seen {
            Some(value) if value.is_finite() && value > 0.0 => figure(value, "history"),
            _ => otherwise,
        };
        let by_volume = match settings.memory_bytes {
            Some(bytes) => figure((bytes as f64 / e.write_bytes_per_s).max(0.1), "ft-energy-memory"),
            None => figure(e.checkpoint_s, "site"),
        };
        let idle_w = site.energy.idle_w * f64::from(nodes);
        let above_w = (site.energy.busy_w - site.energy.idle_w) * f64::from(nodes);
        let whole = |w: Option<f64>| w.map(|w| w * f64::from(nodes));
        let busy_w = or_history(whole(history.busy_w), figure(idle_w + above_w, "site"));
        let checkpoint_w =
            or_history(whole(history.checkpoint_w), figure(idle_w + e.checkpoint_power_share * above_w, "site"));
        let per_node = |f: Figure| Figure { value: f.value / f64::from(nodes), ..f };
        Figures {
            mtbf_s: figure(mtbf_s, if history.node_failures > 0 { "history" } else { "site" }),
            mtbf_reason,
            checkpoint_s: or_history(history.checkpoint_s, by_volume),
            restart_s: or_history(history.restart_s, figure(e.restart_s, "site")),
            idle_w: figure(site.energy.idle_w, "site"),
            busy_w: per_node(busy_w),
            checkpoint_w: per_node(checkpoint_w),
        }
    }

    fn costs(&self) -> Costs {
        let above = |f: &Figure| (f.value - self.idle_w.value).max(0.0);
        Costs {
            checkpoint_s: self.checkpoint_s.value,
            restart_s: self.restart_s.value,
            down_s: 0.0,
            overlap: 0.0,
            static_w: self.idle_w.value,
            compute_w: above(&self.busy_w),
            checkpoint_w: above(&self.checkpoint_w),
            down_w: 0.0,
        }
    }
}

fn figure(value: f64, from: &str) -> Figure {
    Figure { value, from: from.to_string() }
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

fn protocols_not_taken() -> Vec<Alternative> {
    let refused = |what: &str, why: &str| Alternative {
        what: what.to_string(),
        interval_s: None,
        time_overhead: None,
        energy_overhead: None,
        refused: why.to_string(),
    };
    vec![
        refused("protocol=uncoordinated", "not enacted in this version"),
        refused("protocol=shadow", "not enacted in this version; estimated by `joulepoint model shadow`"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Request, Setting, Source};
    use std::collections::BTreeMap;

    fn request(pairs: &[(&str, &str)], nodes: u32) -> PlanRequest {
        let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
        let settings = pairs.iter().map(|(n, v)| (n.to_string(), setting(v))).collect::<BTreeMap<_, _>>();
        PlanRequest { request: Request { settings }, nodes, cpus_per_node: 2, user: "u".into(), job_name: "j".into() }
    }

    #[test]
    fn more_nodes_fail_more_often_and_checkpoint_more_often() {
        let site = Site::default();
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

//! A job that starts with the failures from before it paces as the policy that lived through them.

use driver::adapt::Adaptation;
use policy::adaptive::{Adaptive, AdaptiveParameters};
use policy::interval::Objective;
use protocol::{Past, Plan, PlanRequest, Request, Source};
use std::collections::BTreeMap;

const DAY_S: f64 = 86_400.0;
const NOW_S: f64 = 1.7e9;

/// A plan of `auto` for energy, on four nodes, and its settings.
fn planned(history: &planner::History, local_s: Option<f64>) -> (Plan, options::Settings) {
    let setting = protocol::Setting { value: "energy".into(), source: Source::Option };
    let request = Request { settings: BTreeMap::from([("ft-energy".to_string(), setting)]) };
    let settings = options::resolve(&request, &BTreeMap::new()).expect("valid");
    let node_names = (0..4).map(|i| format!("n{i}")).collect();
    let question = PlanRequest {
        request,
        nodes: 4,
        cpus_per_node: 1,
        user: "u".into(),
        job_name: "j".into(),
        node_names,
        local_s,
        ..PlanRequest::default()
    };
    let mut site = config::Site::default();
    site.wrapper.longest_interval_s = 0.0;
    (planner::make_plan(&question, history, &site).expect("a plan"), settings)
}

/// Bursts of three failures of the run's nodes, a few minutes apart, every ten days; the last two hours ago.
fn bursts() -> Vec<f64> {
    let starts = (0..12).map(|i| NOW_S - 7_200.0 - 110.0 * DAY_S + 10.0 * DAY_S * f64::from(i));
    starts.flat_map(|t| [t - 900.0, t - 300.0, t]).collect()
}

fn seen(failed_s: &[f64], nodes: u32) -> planner::History {
    let newest = failed_s.iter().rev().map(|at_s| protocol::NodeFailure { node: "n1".into(), at_s: *at_s }).collect();
    planner::History {
        node_failures: failed_s.len() as u32,
        node_seconds: 120.0 * DAY_S * f64::from(nodes),
        failures: planner::past::FailureLog { nodes, newest, now_s: NOW_S },
        ..planner::History::default()
    }
}

#[test]
fn a_job_that_is_handed_the_log_expects_what_the_filter_does_that_lived_through_it() {
    let failed_s = bursts();
    let (plan, settings) = planned(&seen(&failed_s, 4), Some(NOW_S));
    let past = plan.past.clone().expect("a past");
    assert_eq!((past.of.as_str(), past.nodes, past.share, past.failed_s.len()), ("these nodes", 4, 1.0, 36));
    let parameters = AdaptiveParameters::for_objective(Objective::Energy);
    let mut lived = Adaptive::new(parameters, past.prior_mtbf_s, Some(past.since_s));
    let mut last_s = past.since_s;
    for at_s in &failed_s {
        lived.observe_gap(at_s - last_s);
        last_s = *at_s;
    }
    let mut job = Adaptation::new(NOW_S, NOW_S, &settings, &plan);
    let checkpoint_s = job.checkpoint_s();
    for after_s in [0.0, 600.0, 40_000.0] {
        let now_s = NOW_S + after_s;
        job.checkpointed(now_s, checkpoint_s, None);
        let ratio = (plan.busy_w.value / planner::checkpoint_power_w(&plan)).max(1.0);
        let (interval_s, mtbf_s) = lived.pace(now_s - last_s, checkpoint_s, ratio);
        assert!((job.interval_s() / interval_s - 1.0).abs() < 1e-6, "{} s and {interval_s} s", job.interval_s());
        assert!((job.mtbf_s(now_s) / mtbf_s - 1.0).abs() < 1e-6, "{} s and {mtbf_s} s", job.mtbf_s(now_s));
    }
    // A failure of the run is the end of the gap that began before it.
    job.failed(NOW_S + 50_000.0, NOW_S + 50_000.0);
    lived.observe_gap(NOW_S + 50_000.0 - last_s);
    let hazard_s = lived.pace(0.0, checkpoint_s, plan.busy_w.value / planner::checkpoint_power_w(&plan)).1;
    assert!((job.mtbf_s(NOW_S + 50_000.0) / hazard_s - 1.0).abs() < 1e-6);
}

#[test]
fn the_job_begins_with_the_interval_that_its_plan_tells() {
    for history in [seen(&bursts(), 4), seen(&bursts(), 400), planner::History::default()] {
        let (plan, settings) = planned(&history, Some(NOW_S));
        let job = Adaptation::new(NOW_S + 5.0, NOW_S + 5.0, &settings, &plan);
        assert_eq!(job.interval_s(), plan.interval_s);
    }
}

#[test]
fn a_plan_of_an_older_controller_has_no_past_and_starts_as_ever() {
    let (plan, settings) = planned(&seen(&bursts(), 4), Some(NOW_S));
    let mut older = serde_json::to_value(&plan).expect("JSON");
    let fields = older.as_object_mut().expect("an object");
    assert!(fields.remove("past").is_some() && fields.remove("local_s").is_some());
    let older: Plan = serde_json::from_value(older).expect("a plan");
    assert_eq!((older.past.as_ref(), older.local_s), (None, None));
    let job = Adaptation::new(NOW_S, NOW_S, &settings, &older);
    let parameters = AdaptiveParameters::for_objective(Objective::Energy);
    let cold = Adaptive::new(parameters, older.mtbf_s.value, Some(NOW_S));
    let ratio = older.busy_w.value / planner::checkpoint_power_w(&older);
    let interval_s = cold.interval_s(0.0, older.checkpoint_s.value, ratio);
    assert!((job.interval_s() / interval_s - 1.0).abs() < 1e-6, "{} s and {interval_s} s", job.interval_s());
}

#[test]
fn a_clock_that_differs_and_a_past_that_is_nonsense_do_no_harm() {
    let (plan, settings) = planned(&seen(&bursts(), 4), Some(NOW_S));
    let past = plan.past.clone().expect("a past");
    let odd = [
        Past { failed_s: vec![f64::NAN, NOW_S + 1e9, -1.0], ..past.clone() },
        Past { share: f64::NAN, earlier_s: f64::INFINITY, since_s: f64::NAN, prior_mtbf_s: -3.0, ..past.clone() },
        Past { share: 0.0, earlier_failures: u32::MAX, ..past },
    ];
    for past in odd {
        let plan = Plan { past: Some(past), local_s: None, ..plan.clone() };
        for now_s in [0.0, NOW_S - DAY_S, NOW_S + 1e6] {
            let mut job = Adaptation::new(now_s, now_s, &settings, &plan);
            job.failed(now_s + 10.0, now_s + 10.0);
            let (interval_s, mtbf_s) = (job.interval_s(), job.mtbf_s(now_s + 20.0));
            assert!(interval_s.is_finite() && interval_s > 0.0 && mtbf_s.is_finite() && mtbf_s > 0.0);
        }
    }
}

//! What a plan is handed of the failures that the controller has seen.

use planner::past::FailureLog;
use planner::{History, Known, make_plan, published};
use protocol::{NodeFailure, Plan, PlanRequest, Request, Setting, Source};
use std::collections::BTreeMap;

const DAY_S: f64 = 86_400.0;
const NOW_S: f64 = 1.7e9;

fn question(names: &[&str]) -> PlanRequest {
    let setting = Setting { value: String::new(), source: Source::Option };
    PlanRequest {
        request: Request { settings: BTreeMap::from([("ft-energy".to_string(), setting)]) },
        nodes: 2,
        cpus_per_node: 4,
        user: "alice".into(),
        job_name: "heat".into(),
        node_names: names.iter().map(|name| name.to_string()).collect(),
        local_s: Some(NOW_S),
        ..PlanRequest::default()
    }
}

/// A day between failures, each of the next of the given nodes; a hundred nodes are watched for a year.
fn history(failed: &[&str]) -> History {
    let newest = failed
        .iter()
        .enumerate()
        .map(|(i, node)| NodeFailure { node: node.to_string(), at_s: NOW_S - DAY_S * (i + 1) as f64 });
    History {
        node_failures: failed.len() as u32,
        node_seconds: 100.0 * 365.0 * DAY_S,
        failures: FailureLog { nodes: 100, newest: newest.collect(), now_s: NOW_S },
        ..History::default()
    }
}

fn plan(history: &History, names: &[&str]) -> Plan {
    make_plan(&question(names), history, &config::Site::default()).unwrap()
}

#[test]
fn the_narrowest_set_of_nodes_with_enough_failures_is_asked() {
    let past = |failed: &[&str], names: &[&str]| plan(&history(failed), names).past.unwrap();
    let own = past(&["a"; 8], &["a", "b"]);
    assert_eq!((own.of.as_str(), own.nodes, own.share, own.failed_s.len()), ("these nodes", 2, 1.0, 8));
    let all = past(&["a", "z", "y", "x", "w", "v", "u", "t"], &["a", "b"]);
    assert_eq!((all.of.as_str(), all.nodes, all.share, all.failed_s.len()), ("the cluster", 100, 0.02, 8));
    assert!(all.failed_s.is_sorted(), "{all:?}");
    let mut stored = (*published::calibration(100.0).stored).clone();
    stored.calibration.power.idle_w = (0..5).map(|i| (format!("t{i}"), 100.0)).collect();
    let failed = ["t3", "t4", "t3", "t4", "t3", "t4", "t3", "t4"];
    let known = History { calibrations: vec![Known::new(stored)], ..history(&failed) };
    let of_type = plan(&known, &["t0", "t1"]).past.unwrap();
    assert!(of_type.of.starts_with("node type"), "{of_type:?}");
    assert_eq!((of_type.nodes, of_type.share), (5, 0.4));
}

#[test]
fn without_a_failure_or_under_another_policy_a_plan_is_as_ever() {
    assert_eq!(plan(&history(&[]), &["a", "b"]).past, None);
    let mut named = question(&["a", "b"]);
    let setting = Setting { value: "young".into(), source: Source::Option };
    named.request.settings.insert("ft-energy-policy".into(), setting);
    let young = make_plan(&named, &history(&["a"; 20]), &config::Site::default()).unwrap();
    assert_eq!((young.policy.as_str(), young.past), ("young", None));
}

#[test]
fn a_long_log_is_handed_over_in_bounds_and_counted_in_full() {
    let failed: Vec<&str> = std::iter::repeat_n("z", 500).collect();
    let seen = History { node_failures: 9_000, ..history(&failed) };
    let past = plan(&seen, &["a", "b"]).past.unwrap();
    assert_eq!(past.failed_s.len(), policy::adaptive::MOST_FAILURES);
    assert_eq!(past.earlier_failures as usize + past.failed_s.len(), 9_000);
    assert!(serde_json::to_string(&past).unwrap().len() < 4_000);
}

#[test]
fn the_plan_says_from_what_it_starts() {
    let reasons = plan(&history(&["a"; 14]), &["a", "b"]).reasons.join("\n");
    assert!(reasons.contains("auto starts from 14 failures of 2 nodes (these nodes)"), "{reasons}");
}

#[test]
fn many_failures_a_while_ago_count_less_than_the_same_of_late() {
    let aged = |days: f64| {
        let mut seen = history(&["a"; 30]);
        seen.failures.newest.iter_mut().for_each(|failure| failure.at_s -= days * DAY_S);
        plan(&seen, &["a", "b"]).interval_s
    };
    assert!(aged(200.0) > 1.3 * aged(0.0), "{} s and {} s", aged(200.0), aged(0.0));
}

//! What can be true and what cannot, field by field.

use super::*;
use protocol::{FailureKind, JobReading, Phase, RunKey};

const NOW_S: f64 = 1_800_000_000.0;

fn batch(events: Vec<Event>) -> Batch {
    let key = RunKey { cluster: "c".into(), run: "7.1799990000".into() };
    let records = (1..).zip(events).map(|(seq, event)| Record { seq, at_s: NOW_S - 10.0, event }).collect();
    Batch { version: protocol::VERSION, key, holder: None, records }
}

fn of(nodes: &[&str]) -> BTreeSet<String> {
    nodes.iter().map(|n| n.to_string()).collect()
}

fn known(nodes: &BTreeSet<String>) -> Known<'_> {
    Known {
        now_s: NOW_S,
        since_s: Some(NOW_S - 10_000.0),
        until_s: None,
        nodes: Some(nodes),
        most_nodes: 4,
        max_node_w: 1000.0,
    }
}

fn phase(start_s: f64, end_s: f64, joules: Option<f64>) -> Event {
    Event::Phase { phase: Phase::Compute, node: "n1".into(), start_s, end_s, joules, source: "rapl".into() }
}

fn why(event: Event) -> String {
    let nodes = of(&["n1", "n2"]);
    check(&batch(vec![event]), &known(&nodes)).expect_err("it cannot be true").to_string()
}

#[track_caller]
fn is_fine(event: Event) {
    let nodes = of(&["n1", "n2"]);
    assert_eq!(check(&batch(vec![event]), &known(&nodes)), Ok(()));
}

#[test]
fn a_phase_from_one_end_of_numbers_to_the_other_is_refused_with_its_record() {
    let text = why(phase(-1e308, 1e308, None));
    assert!(text.starts_with("record 1: start_s = -1000000"), "{text}");
    assert!(text.ends_with("it must be from 1799903600 to 1800086400"), "{text}");
    for (from, to) in [(0.0, NOW_S), (NOW_S, 4e9), (f64::NAN, NOW_S), (NOW_S, f64::INFINITY)] {
        assert!(why(phase(from, to, None)).contains("is not within a day"), "{from} {to}");
    }
    is_fine(phase(NOW_S - 20.0, NOW_S - 10.0, None));
}

#[test]
fn a_clock_that_was_set_loses_nothing() {
    is_fine(phase(NOW_S + 3600.0, NOW_S, Some(5.0)));
    is_fine(phase(NOW_S - 40_000.0, NOW_S, Some(5.0)));
    is_fine(Event::RolledBack { to: None, kept_until_s: 0.0 });
}

#[test]
fn a_batch_does_not_take_back_the_work_of_more_nodes_than_a_run_has() {
    let back = || Event::InGroup {
        group: 0,
        nodes: vec!["n1".into(); 4],
        of: Box::new(Event::RolledBack { to: None, kept_until_s: 0.0 }),
    };
    let nodes = of(&["n1"]);
    let check = |count: usize| check(&batch((0..count).map(|_| back()).collect()), &known(&nodes));
    assert_eq!(check(252), Ok(()));
    assert_eq!(check(253), Err(Implausible::RolledBack(1012)));
}

#[test]
fn energy_is_what_a_node_could_have_used() {
    is_fine(phase(NOW_S - 20.0, NOW_S - 19.0, Some(9e6)));
    for joules in [-1.0, 1e12, f64::NAN, f64::INFINITY] {
        let text = why(phase(NOW_S - 20.0, NOW_S, Some(joules)));
        assert!(text.contains("joules = ") && text.contains("energy.max_node_w = 1000 W"), "{text}");
    }
    let reading = |joules, cpu_s, source: &str| Event::Reading {
        node: "n1".into(),
        reading: JobReading { job: 7, joules, cpu_s, source: source.into(), since_s: NOW_S - 100.0 },
    };
    is_fine(reading(1e5, 3.0, "rapl,nvml"));
    assert!(why(reading(1e15, 3.0, "rapl")).contains("joules"));
    assert!(why(reading(1.0, -3.0, "rapl")).contains("cpu_s = -3"));
    assert!(why(reading(1.0, 3.0, "=cmd()")).contains("is no source"));
}

#[test]
fn checkpoints_failures_and_decisions_are_in_range() {
    let committed = |begun_s, ended_s, bytes, joules, still_s| Event::Committed {
        number: 1,
        begun_s,
        ended_s,
        bytes,
        written_bytes: None,
        joules,
        still_s,
    };
    let at = NOW_S - 50.0;
    is_fine(committed(at, at + 4.0, 1 << 40, Some(4000.0), Some(0.5)));
    assert!(why(committed(at, f64::MIN, 0, None, None)).contains("ended_s"));
    assert!(why(committed(at, at, u64::MAX, None, None)).contains("bytes"));
    let shared = |written_bytes| match committed(at, at, 9, None, None) {
        Event::Committed { number, begun_s, ended_s, bytes, joules, still_s, .. } => {
            Event::Committed { number, begun_s, ended_s, bytes, written_bytes: Some(written_bytes), joules, still_s }
        }
        other => other,
    };
    is_fine(shared(9));
    assert!(why(shared(10)).contains("written_bytes"), "more than all of it");
    assert!(why(committed(at, at, 0, Some(-1.0), None)).contains("joules"));
    assert!(why(committed(at, at, 0, None, Some(-1.0))).contains("still_s"));
    let failure = |failed_s, reason: String| Event::Failure {
        kind: FailureKind::Node,
        node: Some("n2".into()),
        failed_s,
        detected_s: at,
        reason,
    };
    is_fine(failure(at - 3.0, "it fell silent".into()));
    assert!(why(failure(1e300, String::new())).contains("failed_s"));
    assert!(why(failure(at, "x".repeat(20_000))).contains("20000 bytes"));
    let decided = |interval_s| Event::Decided { action: "interval".into(), reason: "r".into(), interval_s };
    is_fine(decided(3.6e46));
    assert!(why(decided(1e300)).contains("interval_s"));
    assert!(why(Event::Ended { state: "x\ncompleted".into(), exit_code: 0 }).contains("must be one word"));
}

#[test]
fn nodes_are_the_jobs_and_no_more_than_there_are() {
    let started = |nodes: Vec<String>| Event::Started {
        job: 7,
        restart_count: 0,
        user: "alice".into(),
        account: String::new(),
        partition: String::new(),
        job_name: "heat".into(),
        nodes,
        resumed_from: None,
        dir: "/home/alice".into(),
    };
    is_fine(started(vec!["n1".into(), "n2".into()]));
    assert!(why(started(vec!["n9".into()])).contains("node 'n9' is not of this job"));
    assert!(why(started(vec!["n1".into(); 500_000])).contains("number of nodes = 500000 must be from 0 to 4"));
    for name in ["n1\r\nX: y", "n[1-9999999]", "", "n 1", "né", &"n".repeat(300)] {
        assert!(why(started(vec![name.into()])).contains("is no name of a node"), "{name}");
    }
    let group = |of: Event| Event::InGroup { group: 0, nodes: vec!["n1".into()], of: Box::new(of) };
    is_fine(group(phase(NOW_S, NOW_S, None)));
    assert!(why(group(group(phase(NOW_S, NOW_S, None)))).contains("another of its kind"));
    assert!(why(group(phase(-1e308, 1e308, None))).contains("start_s"));
}

#[test]
fn records_follow_each_other() {
    let nodes = of(&["n1"]);
    let mut two = batch(vec![phase(NOW_S, NOW_S, None), phase(NOW_S, NOW_S, None)]);
    assert_eq!(check(&two, &known(&nodes)), Ok(()));
    two.records[1].seq = 5;
    assert_eq!(check(&two, &known(&nodes)), Err(Implausible::Order { seq: 5, wanted: 2 }));
    two.records.truncate(1);
    two.records[0].seq = 0;
    assert!(check(&two, &known(&nodes)).is_err());
    let many = batch(vec![phase(NOW_S, NOW_S, None); MOST_RECORDS + 1]);
    assert_eq!(check(&many, &known(&nodes)), Err(Implausible::Records(MOST_RECORDS + 1)));
    let mut last = batch(vec![phase(NOW_S, NOW_S, None)]);
    last.records[0].seq = u64::MAX;
    assert_eq!(check(&last, &known(&nodes)), Ok(()), "no overflow");
}

//! The accuracy of plans is the error of what they predicted against what runs measured.

use planner::{History, accuracy, expected_checkpoint_j, make_plan, published, restart};
use protocol::{
    CheckpointAccount, Phase, PhaseAccount, PhaseSpan, PlanRequest, RecordAccount, Request, RunAccount, Setting,
    Source, Totals,
};

fn question() -> PlanRequest {
    let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
    let settings = [("ft-energy", "energy"), ("ft-energy-memory", "8G")].map(|(n, v)| (n.to_string(), setting(v)));
    let request = Request { settings: settings.into() };
    PlanRequest { request, nodes: 2, cpus_per_node: 4, ..PlanRequest::default() }
}

fn plan(calibrated: bool) -> protocol::Plan {
    let question = question();
    let calibrations = if calibrated { vec![published::calibration(100.0)] } else { Vec::new() };
    make_plan(&question, &History { calibrations, ..History::default() }, &config::Site::default()).unwrap()
}

/// Two nodes that are given back to the queue, restart with the second record, and once more in place.
fn spans() -> Vec<PhaseSpan> {
    let phases = [
        (Phase::Compute, 0.0, 10.0),
        (Phase::Restart, 10.0, 17.0),
        (Phase::Idle, 17.0, 18.0),
        (Phase::Restart, 30.0, 80.0),
        (Phase::LostWork, 80.0, 90.0),
        (Phase::Restart, 90.0, 99.0),
        (Phase::Compute, 99.0, 100.0),
    ];
    let of_node = |node: &str| {
        let span = |(phase, start_s, end_s): &(Phase, f64, f64)| PhaseSpan {
            node: node.into(),
            phase: *phase,
            start_s: *start_s,
            end_s: *end_s,
            joules: None,
            source: "rapl".into(),
        };
        phases.iter().map(span).collect::<Vec<_>>()
    };
    ["n1", "n2"].map(of_node).concat()
}

fn record(restart_count: u32, start_s: f64, end_s: Option<f64>) -> RecordAccount {
    let nodes = vec!["n1".into(), "n2".into()];
    RecordAccount { job: 1, restart_count, start_s, end_s, state: "completed".into(), nodes, metered_j: None }
}

/// A run whose checkpoints took `seconds` and the energy that its nodes draw meanwhile by plan, times `energy`.
fn run(plan: protocol::Plan, seconds: &[f64], energy: f64) -> RunAccount {
    let joules = |s: f64| energy * s * 2.0 * plan.checkpoint_w.value;
    let checkpoints = seconds.iter().enumerate().map(|(i, s)| CheckpointAccount {
        number: i as u64,
        begun_s: 0.0,
        seconds: *s,
        bytes: 8 << 30,
        written_bytes: None,
        joules: Some(joules(*s)),
        still_s: None,
    });
    RunAccount {
        cluster: "c".into(),
        run: "r".into(),
        job: 1,
        job_id: "1".into(),
        partition: "all".into(),
        user: "u".into(),
        account: "a".into(),
        job_name: "j".into(),
        state: "completed".into(),
        waits: false,
        start_s: 0.0,
        end_s: Some(100.0),
        total: Totals { failures: 1, ..Totals::default() },
        phases: [(Phase::Restart, 100.0, 2.0 * plan.checkpoint_w.value * 50.0), (Phase::Compute, 100.0, 40_000.0)]
            .map(|(phase, node_seconds, joules)| PhaseAccount {
                phase,
                joules: Some(joules),
                node_seconds,
                source: "rapl".into(),
            })
            .to_vec(),
        records: vec![record(0, 0.0, Some(18.0)), record(1, 30.1, Some(100.0))],
        failures: Vec::new(),
        spans: spans(),
        decisions: Vec::new(),
        loans: Vec::new(),
        checkpoints: checkpoints.collect(),
        protection: None,
        plan: Some(plan),
        verified: true,
        trouble: String::new(),
    }
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn a_checkpoint_beside_which_the_program_goes_on_uses_what_was_measured_of_both() {
    let history = |still_share| History {
        checkpoint_s: Some(100.0),
        checkpoint_w: Some(150.0),
        busy_w: Some(350.0),
        still_share,
        ..History::default()
    };
    let of = |still_share| make_plan(&question(), &history(still_share), &config::Site::default()).unwrap();
    let (still, beside) = (of(None), of(Some(0.2)));
    // 20 s at 150 W, 80 s at 350 W, on two nodes.
    let measured_j = 2.0 * (20.0 * 150.0 + 80.0 * 350.0);
    assert!((expected_checkpoint_j(&run(beside.clone(), &[100.0], 1.0), &beside) - measured_j).abs() < 1e-6);
    assert!((expected_checkpoint_j(&run(still.clone(), &[100.0], 1.0), &still) - 2.0 * 100.0 * 150.0).abs() < 1e-6);
    let mut seen = run(beside.clone(), &[100.0], 1.0);
    seen.checkpoints[0].joules = Some(measured_j);
    let checkpoint = accuracy(&[seen]).into_iter().find(|a| a.operation == "checkpoint").unwrap();
    assert!(checkpoint.energy.unwrap().worst < 1e-9);
    // What stands still for a fifth costs less time; how often it is done is not changed for it.
    assert!(beside.expected_time_overhead < 0.5 * still.expected_time_overhead, "{beside:?}");
    assert!(beside.expected_energy_overhead < still.expected_energy_overhead);
}

#[test]
fn where_groups_recover_alone_a_checkpoint_is_of_one_group() {
    let coordinated = plan(true);
    let of_one_node = coordinated.checkpoint_s.value * coordinated.checkpoint_w.value;
    let mut alone = plan(true);
    alone.protocol = "uncoordinated-disk".into();
    let groups = |groups: u32| {
        let mut plan = alone.clone();
        plan.choice.as_mut().unwrap().groups = groups;
        plan
    };
    let expected = |plan: &protocol::Plan| expected_checkpoint_j(&run(plan.clone(), &[], 1.0), plan) / of_one_node;
    let shares = [expected(&coordinated), expected(&groups(1)), expected(&groups(2)), expected(&groups(3))];
    assert_eq!(shares, [2.0, 2.0, 1.0, 1.0]);
}

#[test]
fn the_error_is_relative_to_the_measurement_by_operation_and_node_type() {
    let p = plan(true);
    let c = p.checkpoint_s.value;
    let runs = [run(p.clone(), &[c, c], 1.0), run(p.clone(), &[c / 2.0], 1.0), run(plan(false), &[1.0], 1.0)];
    let all = accuracy(&runs);
    let names: Vec<(&str, &str)> = all.iter().map(|a| (a.operation, a.node_type.as_str())).collect();
    assert_eq!(names, ["checkpoint", "compute", "restart"].map(|o| [(o, "aupy15"), (o, "uncalibrated")]).concat());
    let time = all[0].time.unwrap();
    assert!(near(time.mean, 0.5) && near(time.worst, 1.0) && time.runs == 2, "{time:?}");
    let energy = all[0].energy.unwrap();
    assert!(near(energy.mean, 0.5) && near(energy.worst, 1.0), "{energy:?}");
    // The site says 60 s for a restart, and it took 50; computing took 400 W.
    let restart = &all[5];
    assert!(near(restart.time.unwrap().worst, 0.2) && restart.energy.is_none(), "{restart:?}");
    assert!(all[3].time.is_none() && near(all[3].energy.unwrap().mean, 1.0 - 300.0 / 400.0), "{:?}", all[3]);
}

#[test]
fn a_restart_begins_with_its_record_and_the_wait_in_the_queue_is_another_figure() {
    let run = run(plan(true), &[1.0], 1.0);
    assert_eq!(restart::restart_s(&run), Some(50.0), "neither the way into the queue nor a stop in place");
    assert!(near(restart::requeued_s(&run), 12.1));
    let never = RunAccount { records: vec![record(0, 0.0, None)], ..run };
    assert_eq!((restart::restart_s(&never), restart::requeued_s(&never)), (None, 0.0));
    assert!(restart::requeued_s(&never).is_sign_positive(), "it is shown to people");
}

#[test]
fn what_was_not_measured_or_not_planned_does_not_count() {
    let unplanned = RunAccount { plan: None, ..run(plan(true), &[1.0], 1.0) };
    let mut silent = run(plan(true), &[f64::NAN, 0.0], 1.0);
    silent.phases.clear();
    silent.spans.clear();
    assert!(accuracy(&[unplanned, silent]).is_empty());
    assert!(accuracy(&[]).is_empty());
}

//! A plan estimates every protocol from the calibration of its nodes, and says what it does not know.

use config::Site;
use planner::{History, Known, make_plan, published};
use proptest::prelude::*;
use protocol::{
    Calibration, Correction, Measured, Operation, Plan, PlanRequest, Point, ProtocolFigures, ProtocolRow, Request,
    Setting, Source, Storage,
};

fn question(options: &[(&str, &str)], nodes: u32) -> PlanRequest {
    let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
    let on = [("ft-energy", "energy")];
    let settings = on.iter().chain(options).map(|(n, v)| (n.to_string(), setting(v))).collect();
    PlanRequest {
        request: Request { settings },
        nodes,
        cpus_per_node: 4,
        user: "u".into(),
        job_name: "j".into(),
        work_s: Some(86_400.0),
        ..PlanRequest::default()
    }
}

/// A site whose nodes hardly fail, so that the failure-free part of the models is seen.
fn calm() -> Site {
    let mut site = Site::default();
    site.estimates.node_mtbf_s = 1e13;
    site
}

fn on_published() -> History {
    History { calibrations: vec![published::calibration(100.0)], ..History::default() }
}

fn row<'a>(plan: &'a Plan, protocol: &str) -> &'a ProtocolRow {
    plan.choice.as_ref().unwrap().rows.iter().find(|r| r.protocol == protocol).unwrap()
}

fn figures<'a>(plan: &'a Plan, protocol: &str) -> &'a ProtocolFigures {
    row(plan, protocol).figures.as_ref().unwrap_or_else(|| panic!("{:?}", row(plan, protocol)))
}

fn unhindered(plan: &Plan) -> &str {
    &plan.choice.as_ref().unwrap().unhindered
}

/// Two programs made from the formulas, not from figures of the paper: one sends 4 TB in a million messages as SP, BT
/// and CM1 are said to be message-heavy, one almost nothing, as EP.
const HEAVY: [(&str, &str); 2] = [("ft-energy-memory", "64G"), ("ft-energy-messages", "1000000:4T")];
const PARALLEL: [(&str, &str); 2] = [("ft-energy-memory", "64G"), ("ft-energy-messages", "320:32K")];

fn published_plan(program: &[(&str, &str)], interval: &str) -> Plan {
    let mut options = program.to_vec();
    options.push(("ft-energy-interval", interval));
    let question = PlanRequest { groups: Some(32), ..question(&options, 8) };
    make_plan(&question, &on_published(), &calm()).unwrap()
}

#[test]
fn on_published_coefficients_a_message_heavy_program_is_coordinated_and_a_parallel_one_is_not() {
    assert_eq!(unhindered(&published_plan(&HEAVY, "60")), "coordinated");
    let parallel = published_plan(&PARALLEL, "60");
    assert_eq!(unhindered(&parallel), "uncoordinated-disk");
    assert_eq!(parallel.protocol, "coordinated");
    let row = row(&parallel, "uncoordinated-disk");
    assert!(
        !row.enacted && row.refused.as_ref().unwrap().contains("only with --ft-energy-protocol=uncoordinated"),
        "{row:?}"
    );
}

#[test]
fn the_choice_flips_at_the_number_of_checkpoints_that_the_model_gives() {
    // E_log / E_coord by hand: M accesses and the transfer on each of 8 nodes, over t_synchro(8, 4); powers are equal.
    let (messages, bytes) = (1e6 / 8.0, 4.0 * 1024f64.powi(4) / 8.0);
    let n = (messages * 8.58e-5 + bytes / 1.0552e9) / (0.010_375_7 * 8f64.ln() + 0.004_459_45);
    let plan = published_plan(&HEAVY, "60");
    let found = figures(&plan, "uncoordinated-disk").break_even_energy.unwrap();
    assert!((found / n - 1.0).abs() < 1e-4, "{found} {n}");
    let at = |checkpoints: f64| {
        let work_s = 60.0 * checkpoints;
        let mut options = HEAVY.to_vec();
        options.push(("ft-energy-interval", "1"));
        let question = PlanRequest { groups: Some(32), work_s: Some(work_s), ..question(&options, 8) };
        // A program that writes next to nothing: the longer run of the log then costs no more checkpoints.
        let mut question = question;
        question
            .request
            .settings
            .insert("ft-energy-memory".into(), Setting { value: "1M".into(), source: Source::Option });
        unhindered(&make_plan(&question, &on_published(), &calm()).unwrap()).to_string()
    };
    assert_eq!(at(0.97 * n), "coordinated");
    assert_eq!(at(1.03 * n), "uncoordinated-disk");
}

#[test]
fn a_plan_and_a_submitted_job_decide_alike_for_the_same_input() {
    let asked = PlanRequest { node_type: Some(published::NODE_TYPE.into()), ..question(&HEAVY, 8) };
    let sent: PlanRequest = serde_json::from_str(&serde_json::to_string(&asked).unwrap()).unwrap();
    // The wrapper names its nodes instead of their type.
    let submitted = PlanRequest { node_type: None, node_names: vec![published::NODE_TYPE.into()], ..sent };
    let plan = |q| make_plan(q, &on_published(), &Site::default()).unwrap();
    assert_eq!(plan(&asked), plan(&submitted));
}

#[test]
fn more_groups_or_spares_than_nodes_are_a_reason_and_no_refusal() {
    let groups = [("ft-energy-protocol", "uncoordinated"), ("ft-energy-groups", "9"), ("ft-energy-log", "disk")];
    for (options, protocol, why) in [
        (&groups[..], "coordinated", "and the job has 8; ask for more nodes (-N), or for fewer groups"),
        (&[("ft-energy-spare", "8")][..], "coordinated", "too few to keep 8 spares: fewer nodes are kept"),
    ] {
        let plan = make_plan(&question(options, 8), &on_published(), &Site::default()).unwrap();
        assert_eq!(plan.protocol, protocol);
        assert!(plan.reasons.iter().any(|r| r.contains(why)), "{why}: {:?}", plan.reasons);
        assert!(row(&plan, "coordinated").refused.is_none());
    }
}

#[test]
fn a_program_that_did_not_repeat_itself_is_not_run_in_groups_again_and_the_plan_says_why() {
    let groups = [("ft-energy-protocol", "uncoordinated"), ("ft-energy-groups", "4"), ("ft-energy-log", "disk")];
    let history = planner::History { not_alone: Some("7.100".into()), ..on_published() };
    let plan = make_plan(&question(&groups, 8), &history, &Site::default()).unwrap();
    assert_eq!(plan.protocol, "coordinated");
    let why = "in run 7.100 of this name the program does not repeat itself";
    assert!(plan.reasons.iter().any(|r| r.contains(why)), "{:?}", plan.reasons);
}

#[test]
fn the_row_that_was_asked_for_is_enacted_and_the_others_say_why_not() {
    for (log, lend, taken) in [
        ("disk", "no", "uncoordinated-disk"),
        ("disk", "yes", "uncoordinated-disk-lent"),
        ("memory", "no", "uncoordinated-memory"),
    ] {
        let asked = [
            ("ft-energy-protocol", "uncoordinated"),
            ("ft-energy-groups", "4"),
            ("ft-energy-log", log),
            ("ft-energy-lend", lend),
        ];
        let plan = make_plan(&question(&[&HEAVY[..], &asked].concat(), 8), &on_published(), &Site::default()).unwrap();
        assert_eq!(plan.protocol, "uncoordinated");
        for row in plan.choice.as_ref().unwrap().rows.iter() {
            let is_asked = row.protocol == taken;
            assert_eq!((row.refused.is_none(), row.enacted), (is_asked, is_asked || row.protocol == "coordinated"));
        }
        assert!(plan.reasons.iter().all(|r| !r.contains("of what can be taken")), "{:?}", plan.reasons);
    }
}

#[test]
fn the_coordinated_row_is_the_plan_itself() {
    for options in [vec![], HEAVY.to_vec(), vec![("ft-energy-runtime-bound", "5%"), ("ft-energy-memory", "9G")]] {
        // `auto` leans a little from the model's optimum; the rows are compared at theirs.
        let options = [options, vec![("ft-energy-policy", "young")]].concat();
        let plan = make_plan(&question(&options, 8), &on_published(), &Site::default()).unwrap();
        let figures = figures(&plan, "coordinated");
        assert!((figures.interval_s.unwrap() / plan.interval_s - 1.0).abs() < 1e-9);
        let overhead = figures.time_s.value / 86_400.0 - 1.0;
        assert!((overhead / plan.expected_time_overhead - 1.0).abs() < 1e-2, "{overhead} {plan:?}");
    }
}

#[test]
fn without_a_calibration_that_holds_the_site_s_estimates_serve_and_the_plan_says_so() {
    let mut stale = published::calibration(100.0);
    std::sync::Arc::make_mut(&mut stale.stored).stale = vec!["kernel changed: 'a' is now 'b'".into()];
    let mut other = published::calibration(100.0);
    std::sync::Arc::make_mut(&mut other.stored).calibration.node_type = "other".into();
    let two = vec![published::calibration(100.0), other];
    for (calibrations, node_type, word) in [
        (vec![], None, "nothing is calibrated"),
        (vec![stale], None, "stale (kernel changed"),
        (two.clone(), None, "several node types"),
        (two, Some("third"), "'third' is not calibrated, only aupy15, other"),
    ] {
        let question = PlanRequest { node_type: node_type.map(str::to_string), ..question(&HEAVY, 8) };
        let history = History { calibrations, ..History::default() };
        let plan = make_plan(&question, &history, &Site::default()).unwrap();
        assert!(plan.reasons.iter().any(|r| r.contains(word)), "{word}: {:?}", plan.reasons);
        assert_eq!(plan.checkpoint_s.from, "ft-energy-memory");
        assert_eq!(plan.stale, if word.starts_with("stale") { vec!["kernel changed: 'a' is now 'b'"] } else { vec![] });
        assert!(row(&plan, "uncoordinated-disk").refused.as_ref().unwrap().contains("no calibration that holds"));
        assert!(row(&plan, "coordinated").figures.is_some());
    }
}

#[test]
fn unknown_messages_leave_logging_unknown_and_the_cure_is_named() {
    let plan = make_plan(&question(&[], 8), &on_published(), &Site::default()).unwrap();
    assert!(row(&plan, "uncoordinated-disk").refused.as_ref().unwrap().contains("--ft-energy-messages"));
    assert!(plan.reasons.iter().any(|r| r.contains("--ft-energy-memory")), "{:?}", plan.reasons);
}

#[test]
fn earlier_runs_win_over_the_calibration_and_the_user_s_word_over_their_work() {
    let history =
        History { checkpoint_s: Some(4.0), checkpoint_bytes: Some(8e9), work_s: Some(7200.0), ..on_published() };
    let told = make_plan(&question(&[], 8), &history, &Site::default()).unwrap();
    assert_eq!((told.checkpoint_s.value, told.checkpoint_s.from.as_str()), (4.0, "history"));
    assert_eq!(told.choice.unwrap().work_s.from, "told");
    let silent = PlanRequest { work_s: None, ..question(&[], 8) };
    let plan = make_plan(&silent, &history, &Site::default()).unwrap();
    assert_eq!(
        (plan.choice.as_ref().unwrap().work_s.value, plan.choice.as_ref().unwrap().work_s.from.as_str()),
        (7200.0, "history")
    );
}

#[test]
fn what_earlier_runs_measured_counts_whatever_volume_is_told() {
    let history = History {
        checkpoint_s: Some(4.0),
        restart_s: Some(2.0),
        checkpoint_w: Some(150.0),
        checkpoint_bytes: Some(8.0 * 1024f64.powi(3)),
        ..on_published()
    };
    for size in ["9G", "800G"] {
        let plan = make_plan(&question(&[("ft-energy-memory", size)], 8), &history, &Site::default()).unwrap();
        for (figure, value) in [(&plan.checkpoint_s, 4.0), (&plan.restart_s, 2.0), (&plan.checkpoint_w, 150.0)] {
            assert_eq!((figure.value, figure.from.as_str()), (value, "history"), "{size}");
        }
    }
}

#[test]
fn a_busy_switch_costs_energy_and_is_in_no_figure_of_a_node() {
    let plan = |delta_w: f64| {
        let mut known = published::calibration(100.0);
        let c = &mut std::sync::Arc::make_mut(&mut known.stored).calibration;
        (c.power.switches_idle_w, c.power.switch_delta_w) = (vec![50.0; 2], delta_w);
        let write = c.measured.iter_mut().find(|m| m.operation == Operation::CheckpointWrite).unwrap();
        write.storage = Some(Storage::Shared);
        let history = History { calibrations: vec![known], ..History::default() };
        let options = [HEAVY[0], HEAVY[1], ("ft-energy-interval", "60")];
        make_plan(&question(&options, 8), &history, &calm()).unwrap()
    };
    let (idle, busy) = (plan(0.0), plan(7.0));
    assert_eq!(idle.checkpoint_w, busy.checkpoint_w);
    let (before, after) = (figures(&idle, "coordinated"), figures(&busy, "coordinated"));
    let more_j: f64 =
        ["checkpoint", "coordination"].map(|p| after.energy_parts_j[p] - before.energy_parts_j[p]).iter().sum();
    let busy_s: f64 = ["checkpoint", "coordination"].map(|p| after.time_parts_s[p]).iter().sum();
    assert!((more_j / (2.0 * 7.0 * busy_s) - 1.0).abs() < 1e-6, "{more_j} J in {busy_s} s");
}

#[test]
fn nodes_that_no_calibration_has_are_named() {
    let mut other = published::calibration(100.0);
    let c = std::sync::Arc::make_mut(&mut other.stored);
    c.calibration.node_type = "other".into();
    c.calibration.power.idle_w = [("n9".to_string(), 90.0), ("n8".to_string(), 90.0)].into();
    let said = |calibrations: &[&Known], names: &[&str]| {
        let calibrations = calibrations.iter().copied().cloned().collect();
        let node_names = names.iter().map(|n| n.to_string()).collect();
        let history = History { calibrations, ..History::default() };
        make_plan(&PlanRequest { node_names, ..question(&[], 2) }, &history, &Site::default())
            .unwrap()
            .reasons
            .join("\n")
    };
    let one = published::calibration(100.0);
    let mixed = said(&[&one, &other], &["n9", published::NODE_TYPE]);
    assert!(mixed.contains("no calibration has the nodes n9,aupy15 (calibrated: aupy15, other)"), "{mixed}");
    assert!(said(&[&one, &other], &[]).contains("--nodelist, or --node-type"));
    assert!(said(&[&other], &["g1"]).contains("no calibration has the nodes g1"), "another type of node");
    assert!(said(&[&other], &["n9", "new"]).contains("calibration 0 of node type 'other'"), "a new one among them");
}

#[test]
fn the_newest_calibration_of_the_nodes_is_taken() {
    let mut old = published::calibration(50.0);
    std::sync::Arc::make_mut(&mut old.stored).id = 1;
    let mut new = published::calibration(70.0);
    std::sync::Arc::make_mut(&mut new.stored).id = 2;
    let mut other = published::calibration(90.0);
    let changed = std::sync::Arc::make_mut(&mut other.stored);
    (changed.id, changed.calibration.node_type) = (3, "other".into());
    std::sync::Arc::make_mut(&mut other.stored).calibration.power.idle_w = [("n9".to_string(), 90.0)].into();
    let history = History { calibrations: vec![new, old, other], ..History::default() };
    let idle = |names: &[&str]| {
        let node_names = names.iter().map(|n| n.to_string()).collect();
        make_plan(&PlanRequest { node_names, ..question(&[], 1) }, &history, &Site::default()).unwrap().idle_w.value
    };
    assert_eq!((idle(&[published::NODE_TYPE]), idle(&["n9"])), (70.0, 90.0));
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(-1.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        any::<f64>(),
        (-9.0_f64..14.0).prop_map(|x| 10_f64.powf(x)),
    ]
}

fn any_point() -> impl Strategy<Value = Point> {
    (0u32..20, 0u32..9, any_number(), any_number(), any_number(), any_number(), proptest::option::of(any_number()))
        .prop_map(|(nodes, processes, bytes, time_s, time_ci_s, delta_w, delta_ci_w)| Point {
            nodes,
            processes,
            bytes,
            intensity: 1.0,
            frequency_hz: None,
            time_s,
            time_ci_s,
            delta_w,
            delta_ci_w,
            count: 3,
            outliers: 0,
        })
}

fn any_calibration() -> impl Strategy<Value = Known> {
    let measured = |operation: Operation| {
        proptest::collection::vec(any_point(), 0..5).prop_map(move |points| Measured {
            operation,
            storage: matches!(operation, Operation::CheckpointWrite | Operation::CheckpointRead)
                .then_some(Storage::Shared),
            points,
            fits: Vec::new(),
        })
    };
    let all: Vec<_> = Operation::ALL.into_iter().map(measured).collect();
    (all, any_number(), any_number(), any_number()).prop_map(|(measured, idle_w, switch_w, factor)| {
        let mut stored = (*published::calibration(idle_w).stored).clone();
        let power = protocol::BasePower { switches_idle_w: vec![switch_w], ..stored.calibration.power };
        stored.calibration = Calibration { measured, power, ..stored.calibration };
        let correction = |operation| Correction {
            operation,
            storage: None,
            of: protocol::Quantity::TimeS,
            factor,
            spread: 0.1,
            count: 2,
        };
        stored.corrections = Operation::ALL.into_iter().map(correction).collect();
        Known::new(stored)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_calibration_panics_and_every_plan_can_be_read_again(
        known in any_calibration(),
        nodes in 0u32..40,
        groups in proptest::option::of(0u32..50),
        work_s in proptest::option::of(any_number()),
        history in (any_number(), any_number(), any_number()),
        messages in "[1-9][0-9]{0,6}:[1-9][0-9]{0,2}[KMGT]",
    ) {
        let question = PlanRequest { groups, work_s, ..question(&[("ft-energy-memory", "8G"), ("ft-energy-messages", &messages)], nodes) };
        let history = History {
            checkpoint_s: Some(history.0),
            checkpoint_bytes: Some(history.1),
            busy_w: Some(history.2),
            calibrations: vec![known],
            ..History::default()
        };
        let plan = make_plan(&question, &history, &Site::default()).unwrap();
        prop_assert_eq!(&plan.protocol, "coordinated");
        let json = serde_json::to_string(&plan).unwrap();
        let again: Plan = serde_json::from_str(&json).map_err(|e| TestCaseError::fail(format!("{e}: {json}")))?;
        prop_assert!((again.interval_s / plan.interval_s - 1.0).abs() < 1e-12);
    }
}

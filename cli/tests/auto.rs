//! The policy `auto` does the same in a job as in the simulator.

use std::collections::BTreeMap;

use driver::adapt::Adaptation;
use policy::interval::Objective;
use protocol::{PlanRequest, Request, Source};
use simulator::replay::{Outcome, Rule, Setting, replay};
use simulator::trace::Trace;

const CHECKPOINT_S: f64 = 600.0;
const DAY_S: f64 = 86_400.0;

/// The plan and settings of a job without a policy, at the powers of ElSayed14's "3X".
fn job(objective: &str) -> (protocol::Plan, options::Settings) {
    let setting = protocol::Setting { value: objective.into(), source: Source::Option };
    let request = Request { settings: BTreeMap::from([("ft-energy".to_string(), setting)]) };
    let mut site = config::Site::default();
    site.wrapper.longest_interval_s = 0.0;
    let settings = options::resolve(&request, &BTreeMap::new()).expect("valid");
    let asked = PlanRequest {
        request,
        nodes: 1,
        cpus_per_node: 1,
        user: "u".into(),
        job_name: "j".into(),
        ..PlanRequest::default()
    };
    let mut plan = planner::make_plan(&asked, &planner::History::default(), &site).expect("a plan");
    plan.mtbf_s.value = DAY_S;
    plan.checkpoint_s.value = CHECKPOINT_S;
    (plan.idle_w.value, plan.busy_w.value, plan.checkpoint_w.value) = (100.0, 300.0, 110.0);
    (plan, settings)
}

/// Lives through a trace as the driver does: an interval after each checkpoint and each failure.
fn live(trace: &Trace, objective: &str) -> Outcome {
    let (plan, settings) = job(objective);
    assert_eq!(plan.policy, "auto");
    let mut now_s = trace.first_s;
    let mut adaptation = Adaptation::new(now_s, now_s, &settings, &plan);
    let mut outcome = Outcome::default();
    for gap_s in &trace.gaps_s {
        let failure_s = now_s + gap_s;
        loop {
            let work_s = adaptation.interval_s();
            let end_s = now_s + work_s + CHECKPOINT_S;
            if end_s >= failure_s {
                let part_s = (failure_s - now_s - work_s).max(0.0);
                outcome.checkpoint_s += part_s;
                outcome.lost_s += failure_s - now_s - part_s;
                break;
            }
            outcome.checkpoints += 1.0;
            outcome.checkpoint_s += CHECKPOINT_S;
            now_s = end_s;
            adaptation.checkpointed(now_s, CHECKPOINT_S, None);
        }
        now_s = failure_s;
        adaptation.failed(now_s, now_s);
    }
    outcome
}

#[test]
fn the_same_failures_give_the_same_intervals_in_a_job_and_in_the_simulator() {
    let text = include_str!("../../tests/data/lanl/system-12.csv");
    let trace = Trace::parse("system-12", text).expect("a trace");
    for (name, objective) in [("time", Objective::Time), ("energy", Objective::Energy)] {
        let setting = Setting {
            checkpoint_s: CHECKPOINT_S,
            ratio: 3.0,
            runtime_bound: None,
            io_bound: None,
            prior_s: Some(DAY_S),
        };
        let simulated = replay(&trace, Rule::Auto(None), objective, &setting).expect("valid");
        let lived = live(&trace, name);
        assert_eq!(lived.checkpoints, simulated.checkpoints, "{name}");
        for (in_job, in_simulator) in [(lived.checkpoint_s, simulated.checkpoint_s), (lived.lost_s, simulated.lost_s)] {
            assert!((in_job / in_simulator - 1.0).abs() < 1e-6, "{name}: {in_job} s and {in_simulator} s");
        }
    }
}

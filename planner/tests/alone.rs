//! Nodes go back one by one, though nobody has asked for it, where earlier runs of the same script show that it pays, and the
//! job can.

use config::Site;
use planner::{History, UNCOORDINATED, make_plan, published};
use protocol::{Counted, Messages, Plan, PlanRequest, Request, Setting, Source};

const SCRIPT: &str = "5eed";

/// A job of two nodes and a spare, whose script is known.
fn question(options: &[(&str, &str)]) -> PlanRequest {
    let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
    let on = [("ft-energy", "energy"), ("ft-energy-spare", "1"), ("ft-energy-memory", "8G")];
    let settings = on.iter().chain(options).map(|(n, v)| (n.to_string(), setting(v))).collect();
    let request = Request { settings };
    let script = Some(SCRIPT.to_string());
    PlanRequest { request, nodes: 3, cpus_per_node: 4, work_s: Some(86_400.0), script, ..PlanRequest::default() }
}

/// Few messages, counted in an earlier run of the same script on as many nodes.
fn counted() -> Messages {
    of(100, 800)
}

fn of(count: u64, bytes: u64) -> Messages {
    let counted = Some(Counted { count, bytes, over_s: 100.0 });
    Messages { script: SCRIPT.into(), nodes: 2, counted, together: None }
}

fn after(messages: Vec<Messages>) -> History {
    History { calibrations: vec![published::calibration(100.0)], messages, ..History::default() }
}

fn plan(question: &PlanRequest, history: &History) -> Plan {
    make_plan(question, history, &Site::default()).expect("a plan")
}

/// Why a plan does not have the nodes go back one by one.
fn refused(plan: &Plan) -> String {
    assert_eq!(plan.protocol, "coordinated", "{:?}", plan.options);
    assert!(plan.options.is_empty());
    let rows = &plan.choice.as_ref().expect("a table").rows;
    rows.iter().find(|r| r.protocol == "uncoordinated-disk").and_then(|r| r.refused.clone()).expect("a reason")
}

#[test]
fn a_script_whose_messages_are_few_is_planned_by_groups_and_the_plan_sets_what_they_need() {
    let plan = plan(&question(&[]), &after(vec![counted()]));
    assert_eq!(plan.protocol, UNCOORDINATED, "{:?}", plan.reasons);
    let set: Vec<(&str, &str)> = plan.options.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let expected = [("ft-energy-groups", "2"), ("ft-energy-log", "disk"), ("ft-energy-protocol", "uncoordinated")];
    assert_eq!(set, expected);
    assert!(
        plan.reasons.iter().any(|r| r.contains("100 messages of 800 bytes between its nodes")),
        "{:?}",
        plan.reasons
    );
    // The day has 864 times as many as the run in which they were counted.
    let choice = plan.choice.expect("a table");
    assert_eq!(choice.groups, 2);
    let row = choice.rows.into_iter().find(|r| r.protocol == "uncoordinated-disk").expect("a row");
    assert!(row.enacted && row.refused.is_none(), "{row:?}");
}

#[test]
fn a_message_heavy_script_stays_coordinated() {
    let heavy = of(1_000_000, 1 << 40);
    assert!(refused(&plan(&question(&[]), &after(vec![heavy]))).contains("more than coordinated"));
}

#[test]
fn what_is_not_known_to_be_safe_is_not_chosen_and_says_why() {
    let known = || vec![counted()];
    let changed = Messages { script: "other".into(), ..counted() };
    let larger = Messages { nodes: 7, ..counted() };
    let by_mpirun = Messages { together: Some("an MPI launcher starts it".into()), ..counted() };
    let native = Messages { together: Some("it reads a pipe".into()), counted: None, nodes: 0, ..counted() };
    let nothing = Messages { counted: None, ..counted() };
    let asked = PlanRequest { together: Some("the run began together".into()), ..question(&[]) };
    let not_alone = History { not_alone: Some("9.1".into()), ..after(known()) };
    for (question, history, why) in [
        (question(&[]), after(Vec::new()), "no earlier run of this name"),
        (question(&[]), after(vec![changed]), "this script have not been counted"),
        (question(&[]), after(vec![larger]), "counted on 7 nodes, and it has 2"),
        (question(&[]), after(vec![by_mpirun, counted()]), "an MPI launcher starts it"),
        (question(&[]), after(vec![counted(), native, counted()]), "it reads a pipe"),
        (question(&[]), after(vec![nothing]), "this script have not been counted"),
        (question(&[]), not_alone, "in run 9.1 of this name the program does not repeat itself"),
        (asked, after(known()), "the run began together"),
        (question(&[("ft-energy-protocol", "coordinated")]), after(known()), "coordinated was asked for"),
        (question(&[("ft-energy-engine", "dmtcp")]), after(known()), "the engine dmtcp cannot enact it"),
        (question(&[("ft-energy-resume", "script")]), after(known()), "--ft-energy-resume"),
    ] {
        let said = refused(&plan(&question, &history));
        assert!(said.contains(why), "{why}: {said}");
    }
    let spares = Messages { nodes: 3, ..counted() };
    let said = refused(&plan(&question(&[("ft-energy-spare", "0")]), &after(vec![spares])));
    assert!(said.contains("no node is spare") && said.contains("--no-kill"), "{said}");
}

#[test]
fn a_script_that_is_not_known_yet_is_taken_for_the_one_of_its_name() {
    let unknown = PlanRequest { script: None, ..question(&[]) };
    assert_eq!(plan(&unknown, &after(vec![counted()])).protocol, UNCOORDINATED);
}

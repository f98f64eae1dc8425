//! `joulepoint plan` shows every protocol with its figures, without a controller where it is given a calibration.

use planner::{History, make_plan, published};
use protocol::{Plan, PlanRequest};
use std::process::{Command, Output};

fn plan(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    command.args(["--conf", "/nonexistent", "plan", "-N8", "-c4", "--groups=32", "--work=1-0"]).args(arguments);
    command.output().expect("joulepoint runs")
}

fn read(output: &Output) -> Plan {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("a plan as JSON")
}

/// An engine that writes on every node at once, as in the paper.
const BY_NODE: &str = "-oft-energy-engine=scr";
const HEAVY: [&str; 3] = [BY_NODE, "-oft-energy-memory=64G", "-oft-energy-messages=1000000:4T"];

#[test]
fn published_coefficients_give_each_kind_of_program_its_protocol() {
    let unhindered = |options: &[&str]| {
        let plan = read(&plan(&[&["--published", "--json"], options].concat()));
        assert_eq!((plan.protocol.as_str(), plan.made_by.as_str()), ("coordinated", "plan"));
        plan.choice.expect("a choice").unhindered
    };
    assert_eq!(unhindered(&HEAVY), "coordinated");
    assert_eq!(unhindered(&[BY_NODE, "-oft-energy-memory=64G", "-oft-energy-messages=320:32K"]), "uncoordinated-disk");
}

#[test]
fn an_exported_calibration_decides_as_the_planner_does() {
    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("calibration.json");
    let known = published::calibration(100.0);
    std::fs::write(&file, serde_json::to_string(&known.stored.calibration).expect("JSON")).expect("written");
    let path = file.to_str().expect("UTF-8");
    let told = read(&plan(&[&["--calibration", path, "--json"], &HEAVY[..]].concat()));
    let setting = |v: &str| protocol::Setting { value: v.into(), source: protocol::Source::Option };
    let options = [
        ("ft-energy", "energy"),
        ("ft-energy-engine", "scr"),
        ("ft-energy-memory", "64G"),
        ("ft-energy-messages", "1000000:4T"),
    ];
    let question = PlanRequest {
        request: protocol::Request { settings: options.map(|(n, v)| (n.to_string(), setting(v))).into() },
        nodes: 8,
        cpus_per_node: 4,
        work_s: Some(86_400.0),
        groups: Some(32),
        ..PlanRequest::default()
    };
    let history = History { calibrations: vec![known], ..History::default() };
    let made = make_plan(&question, &history, &config::Site::default()).expect("a plan");
    let text = |p: &Plan| serde_json::to_string(&p.choice).expect("JSON");
    // Figures of the one have gone through JSON, which rounds the last digit.
    let again: Plan = serde_json::from_str(&serde_json::to_string(&made).expect("JSON")).expect("a plan");
    assert_eq!(text(&told), text(&again));
    assert!((told.interval_s / made.interval_s - 1.0).abs() < 1e-12);
}

#[test]
fn the_table_names_alternatives_shares_break_even_and_what_stands_against_them() {
    let output = plan(&[&["--published"], &HEAVY[..]].concat());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    for word in ["* coordinated", "uncoordinated-disk", "shadow", "n* energy", "20423.3", "lost work", "logging"] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    assert!(text.contains("not taken: estimated only: the engine scr cannot enact it"), "{text}");
    assert!(text.contains("log_memory was not calibrated"), "{text}");
}

#[test]
fn a_file_that_is_no_calibration_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("folder");
    let file = dir.path().join("old.json");
    let mut calibration = published::calibration(100.0).stored.calibration.clone();
    calibration.version = 99;
    std::fs::write(&file, serde_json::to_string(&calibration).expect("JSON")).expect("written");
    for (path, word) in [(file.to_str().expect("UTF-8"), "version 99"), ("/nonexistent/c.json", "/nonexistent/c.json")]
    {
        let output = plan(&["--calibration", path]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains(word), "{output:?}");
    }
}

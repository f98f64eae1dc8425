//! `joulepoint plan` shows every protocol with its figures, without a controller where it is given a calibration.

use planner::{History, make_plan, published};
use protocol::{Plan, PlanRequest};
use std::path::Path;
use std::process::{Command, Output};

fn plan(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    command.args(["--conf", "/dev/null", "plan", "-N8", "-c4", "--groups=32", "--work=1-0"]).args(arguments);
    command.args(full(arguments)).output().expect("joulepoint runs")
}

/// All that a plan says, where it is not wanted as JSON.
fn full(arguments: &[&str]) -> Option<&'static str> {
    (!arguments.contains(&"--json")).then_some("--full")
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
    let is_row = |l: &&str| l.starts_with("* ") || l.starts_with("  uncoordinated") || l.starts_with("  shadow");
    let rows: Vec<&str> = text.lines().filter(is_row).collect();
    assert!(rows.len() == 6 && rows.iter().all(|l| l.chars().count() <= 80), "a terminal has 80 columns:\n{text}");
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

/// `plan`, with no more than what is said.
fn plain(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    let command = command.args(["--conf", "/dev/null", "plan", "--published"]).args(full(arguments));
    command.args(arguments).output().expect("joulepoint runs")
}

const GROUPS: [&str; 4] = [
    "-oft-energy-protocol=uncoordinated",
    "-oft-energy-groups=4",
    "-oft-energy-memory=64G",
    "-oft-energy-messages=9:4T",
];

#[test]
fn groups_that_were_asked_for_are_marked_and_nothing_else_is_said_to_be_taken() {
    for (log, row, others) in [
        ("-oft-energy-log=disk", "uncoordinated-disk", "not taken: uncoordinated was asked for"),
        ("-oft-energy-keep=2", "coordinated", "not taken: only with --ft-energy-protocol=uncoordinated"),
    ] {
        let asked = [&["-N4"], &GROUPS[..], &[log]].concat();
        let text = String::from_utf8(plain(&asked).stdout).expect("UTF-8");
        assert!(text.contains("protocol              uncoordinated\n"), "{text}");
        let marked: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("* ")?.split_whitespace().next()).collect();
        assert_eq!(marked, [row], "{text}");
        assert!(text.contains(others), "{text}");
        assert!(!text.contains("of what can be taken") && !text.contains("disk: only with"), "{text}");
    }
    let unasked = String::from_utf8(plain(&[&["-N4"], &GROUPS[2..]].concat()).stdout).expect("UTF-8");
    assert!(unasked.contains("only with --ft-energy-protocol=uncoordinated"), "{unasked}");
}

#[test]
fn a_submission_is_planned_with_its_own_options() {
    let dir = tempfile::tempdir().expect("folder");
    let script = dir.path().join("job.sh");
    std::fs::write(&script, "#!/bin/sh\n#SBATCH --ft-energy=time --ft-energy-interval=10 # ten minutes\n")
        .expect("written");
    let script = script.to_str().expect("UTF-8");
    for (words, objective, interval_s) in [
        (vec!["--json", "--", "sbatch", "-N4", script], "time", 600.0),
        (vec!["--json", "--", "sbatch", "-N4", "--ft-energy-interval", "20", script], "time", 1200.0),
        (vec!["--json", "-oft-energy=energy", "--", "sbatch", "--ft-energy-interval=5", script], "energy", 300.0),
    ] {
        let plan = read(&plain(&words));
        assert_eq!((plan.objective.as_str(), plan.interval_s), (objective, interval_s), "{words:?}");
    }
}

#[test]
fn what_cannot_be_planned_is_refused_and_says_why() {
    let too_many = [&["-N3"], &GROUPS[..]].concat();
    for (words, why) in [
        (vec!["-N0"], "--nodes"),
        (vec!["-w", "n[1-"], "node list 'n[1-'"),
        (vec!["-w", "n[1-4]", "-N2"], "'n[1-4]' names 4 nodes, and the job has 2"),
        (vec!["-N4", "-oft-energy-spare=9"], "4 nodes are too few to keep 9 spares"),
        (too_many, "3 nodes are too few to make 4 groups"),
        (vec!["-oft-energy=off"], "is not to be protected"),
        (vec!["--", "sbatch", "--ft-energy=nonsense", "job.sh"], "'nonsense' is not known"),
        (vec!["--", "sbatch", "--ft-energy-keeps=3", "job.sh"], "did you mean 'ft-energy-keep'"),
    ] {
        let output = plain(&words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    let unsaid = plain(&[&GROUPS[..], &["--", "sbatch", "-n8", "job.sh"]].concat());
    assert!(unsaid.status.success(), "Slurm finds the nodes: {unsaid:?}");
}

#[test]
fn a_machine_that_always_fails_is_told_in_words_and_not_in_digits() {
    let text = String::from_utf8(plain(&["-N999999999"]).stdout).expect("UTF-8");
    assert!(text.contains("no interval makes progress") && text.contains("more than 10000%"), "{text}");
    assert!(text.lines().all(|line| !line.contains(&"0".repeat(30)) && line.len() < 400), "{text}");
}

#[test]
fn the_commands_of_the_page_on_the_choice_run_as_written_and_give_what_it_says() {
    let page = include_str!("../../docs/choice.md");
    let (_, examples) = page.split_once("## Aupy15's examples").expect("the examples");
    let block: Vec<&str> = examples.lines().filter(|l| l.starts_with("    ")).map(str::trim).collect();
    let (commands, names): (Vec<&str>, Vec<&str>) = block.iter().copied().partition(|l| l.starts_with('$'));
    assert_eq!(commands.len(), 4, "{block:?}");
    let folder = Path::new(env!("CARGO_BIN_EXE_joulepoint")).parent().expect("a folder");
    for command in commands {
        let script = format!("PATH={}:$PATH\n{}\n{command}", folder.display(), names.join("\n"));
        let output = Command::new("sh").args(["-c", &script]).env("JOULEPOINT_CONF", "/dev/null").output().expect("sh");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{command}: {output:?}");
        let (_, promised) = command.split_once('#').expect("what it gives");
        assert_eq!(said.contains("would be taken"), promised.contains("would be taken"), "{command}: {said}");
        assert!(!promised.contains("n* =") || said.contains("20423.3"), "{command}: {said}");
        assert!(said.contains("protocol              coordinated"), "{said}");
    }
}

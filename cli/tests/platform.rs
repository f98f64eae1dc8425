//! Runs `joulepoint simulate platform` as a user does.

use serde_json::Value;
use std::process::{Command, Output};

fn platform(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_joulepoint")).args(["simulate", "platform"]).args(arguments).output().unwrap()
}

fn sample(name: &str) -> String {
    format!("{}/../simulator/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn json(arguments: &[&str]) -> Value {
    let output = platform(&[&["--json"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_four_wastes_stand_beside_their_closed_forms() {
    let answer = json(&["--runs", "5"]);
    let rows = answer["rows"].as_array().unwrap();
    let place = |r: &Value| format!("{} {}", r["protocol"].as_str().unwrap(), r["variant"].as_str().unwrap());
    let places: Vec<String> = rows.iter().map(place).collect();
    let expected = [
        "coordinated T_app",
        "coordinated T_energy",
        "uncoordinated T_app",
        "uncoordinated T_plat",
        "lending T_app",
        "lending T_plat",
        "shadow optimal",
        "shadow stretched",
        "shadow full speed",
    ];
    assert_eq!(places, expected);
    for row in rows {
        for waste in ["application_waste", "platform_waste"] {
            let (found, form) = (row[waste]["mean"].as_f64().unwrap(), row[waste]["closed_form"].as_f64().unwrap());
            // With lending the application fares better than its form: lent groups have fresh checkpoints.
            assert!((form / found - 1.0).abs() < 0.25, "{} {waste}: {found}, closed form {form}", place(row));
        }
        let phases = row["phases"].as_object().unwrap();
        let node_s: f64 = phases.values().map(|p| p["node_s"].as_f64().unwrap()).sum();
        assert!((node_s / (89_100.0 * row["elapsed_s"].as_f64().unwrap()) - 1.0).abs() < 1e-9, "{}", place(row));
    }
    let platform = |index: usize| rows[index]["platform_waste"]["mean"].as_f64().unwrap();
    assert!(platform(5) < platform(4) && platform(4) < platform(2) && platform(2) < platform(3));
}

#[test]
fn queues_of_both_forms_run_with_times_in_slurms_forms() {
    for (file, jobs) in [("sample.swf", 3.0), ("sample-sacct.txt", 3.0)] {
        let answer = json(&["--queue", &sample(file), "--mtbf", "1-00:00:00", "--checkpoint", "30s", "--runs", "2"]);
        assert_eq!(answer["machine"]["mtbf_s"], 86_400.0);
        assert_eq!(answer["machine"]["checkpoint_s"], 30.0);
        for row in answer["rows"].as_array().unwrap() {
            assert_eq!((row["jobs_finished"].as_f64(), row["jobs_unfinished"].as_f64()), (Some(jobs), Some(0.0)));
        }
    }
}

#[test]
fn the_table_and_the_csv_have_a_line_for_each_protocol() {
    let arguments = ["--protocol", "coordinated,uncoordinated", "--period", "900", "--runs", "2"];
    for (form, header) in [(&["--csv"][..], "protocol,variant,period_s"), (&[], "     protocol")] {
        let output = platform(&[&arguments, form].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let named = |line: &&str| line.contains("coordinated") && line.contains("given");
        assert_eq!(text.lines().filter(named).count(), 2, "{text}");
        assert!(text.lines().any(|l| l.starts_with(header)), "{text}");
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_with_its_cure() {
    let queue = sample("provenance.md");
    for (arguments, expected) in [
        (&["--nodes", "0"][..], "nodes = 0"),
        (&["--mtbf", "soon"], "is not a time"),
        (&["--period", "10"], "long enough for its checkpoint"),
        (&["--queue", "/no/such/queue"], "cannot read /no/such/queue"),
        (&["--queue", &queue], "line 1: "),
        (&["--watts", "sleeping=3"], "no phase is called"),
        (&["--distribution", "normal"], "valid are exponential"),
        (&["--lam", "2"], "'2' for '--lam <SHARE>': valid is 1e-6 to 1"),
        (&["--p-io", "-1"], "'-1' for '--p-io <W>': valid is 0 to 1e9 W"),
        (&["--mtbf", "0"], "'0' for '--mtbf <TIME>'"),
        (&["--checkpoint", "-5"], "'-5' for '--checkpoint <TIME>'"),
        (&["--checkpoint", "9999999"], "checkpoint = 9999999 is outside its range: below 1 / (alpha beta lambda)"),
        (&["--nodes", "8", "--groups", "16"], "groups = 16 is outside its range: 1 to the number of nodes"),
        (&["--nodes", "8", "--groups", "0"], "groups = 0"),
        (&["--horizon", "1e12", "--mtbf", "1"], "1e12 failures are expected until --horizon"),
        (&["--distribution", "weibull:99"], "valid is a shape or sigma of 0.1 to 10"),
        (&["--nodes", "100", "--groups", "10", "--protocol", "shadow", "--task-nodes", "60"], "widest job"),
    ] {
        let output = platform(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

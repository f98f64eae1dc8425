//! `joulepoint simulate` as people call it: forms of logs, answers, exit codes, the same answer every time.

use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn log(system: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/data/lanl/system-{system}.csv"))
}

fn simulate(args: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    command.arg("simulate").args(args).env("JOULEPOINT_CONF", "/nonexistent");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command");
    // A command that refuses its arguments closes its input before it is written.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    child.wait_with_output().expect("its end")
}

#[track_caller]
fn answer(args: &[&str], input: &str) -> String {
    let output = simulate(args, input);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "no bar where nobody looks: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn json(args: &[&str]) -> Value {
    serde_json::from_str(&answer(args, "")).expect("JSON")
}

#[track_caller]
fn refusal(args: &[&str], input: &str) -> String {
    let output = simulate(args, input);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn times_are_taken_as_people_write_them_and_an_error_names_the_forms() {
    let with = |mtbf: &str, checkpoint: &str| {
        let synthetic = ["--synthetic", "exponential", "--failures", "50", "--policy", "young"];
        json(&[&synthetic[..], &["--mtbf", mtbf, "--checkpoint", checkpoint, "--json"]].concat())["rows"].clone()
    };
    assert_eq!(with("2h", "5min"), with("7200", "300"));
    assert_eq!(with("0-02", "300s"), with("7200", "300"));
    let refused = refusal(&["--synthetic", "exponential", "--mtbf", "2 fortnights"], "");
    assert!(refused.contains("is not a time; accepted: ") && refused.contains("2h"), "{refused}");
}

#[test]
fn a_grid_of_lists_gives_every_combination_with_the_same_keys() {
    let log = log(21);
    let args = ["--trace", log.to_str().expect("text"), "--json", "--policy", "young,constant:7200"];
    let lists = ["--checkpoint", "300,600", "--ratio", "2,3", "--runtime-bound", "3,10", "--io-bound", "5,20"];
    let answer = json(&[args.as_slice(), lists.as_slice()].concat());
    let rows = answer["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2 * 2 * 2 * 2 * 4);
    let keys: Vec<_> = rows[0].as_object().expect("object").keys().map(String::as_str).collect();
    let expected = "checkpoint_s,checkpoints,failures,io_bound,io_share,objective,policy,ratio,runtime_bound,trace,\
                    wasted_energy_idle_s,wasted_energy_vs_young,wasted_time_s,wasted_time_vs_young";
    assert_eq!(keys.join(","), expected);
    assert_eq!(answer["means"].as_array().expect("means").len(), 16 * 4);
    assert!(answer["acknowledgement"].as_str().expect("text").contains("Los Alamos"));
    for row in rows.iter().filter(|row| row["policy"] == "young") {
        assert!(row["io_share"].as_f64().expect("share") <= row["io_bound"].as_f64().expect("bound") + 1e-12);
    }
}

#[test]
fn an_answer_does_not_depend_on_the_cores_or_the_hour() {
    let args = ["--synthetic", "lognormal:1.1", "--runs", "6", "--failures", "300", "--seed", "5", "--csv"];
    let first = answer(&args, "");
    assert_eq!(first.lines().count(), 1 + 6 * 20);
    assert!(first.starts_with("trace,policy,objective,checkpoint_s,ratio,runtime_bound,io_bound,"), "{first}");
    let alone = Command::new(env!("CARGO_BIN_EXE_joulepoint"))
        .arg("simulate")
        .args(args)
        .env("RAYON_NUM_THREADS", "1")
        .output()
        .expect("the command");
    assert_eq!(first.as_bytes(), alone.stdout);
    assert_ne!(first, answer(&[&args[..6], &["--seed", "6", "--csv"]].concat(), ""));
}

#[test]
fn repeated_runs_narrow_the_confidence_interval() {
    let width = |runs: &str| {
        let args = ["--synthetic", "weibull:0.7", "--runs", runs, "--failures", "200", "--policy", "ema", "--json"];
        json(&args)["means"][0]["wasted_time_vs_young_half_width_95"].as_f64().expect("a width")
    };
    assert!(width("200") < 0.5 * width("10"));
}

#[test]
fn a_log_comes_by_the_standard_input_or_from_accounting() {
    let table = answer(&["--trace", "-", "--policy", "young"], "0,n1\n90000,n2\n100000,n1\n200000,n3\n");
    assert!(table.lines().any(|line| line.starts_with("stdin ") && line.contains("young")), "{table}");

    let dir = tempfile::tempdir().expect("folder");
    let asked = dir.path().join("asked");
    let script = format!(
        "#!/bin/sh\necho \"$@\" > {}\nprintf 'JobID|End|NodeList\\n1|0|n1\\n2|7200|n2\\n3|90000|n1\\n'\n",
        asked.display()
    );
    std::fs::write(dir.path().join("sacct"), script).expect("script");
    std::fs::set_permissions(dir.path().join("sacct"), PermissionsExt::from_mode(0o755)).expect("executable");
    let conf = dir.path().join("joulepoint.toml");
    std::fs::write(&conf, format!("slurm_bin = {:?}\n", dir.path())).expect("conf");
    let conf = conf.to_str().expect("text");
    let answer = json(&["--conf", conf, "--sacct", "-S", "2026-01-01", "--policy", "young", "--json"]);
    assert_eq!(answer["rows"][0]["failures"], 2.0);
    let asked = std::fs::read_to_string(asked).expect("asked");
    assert_eq!(asked.trim(), "-a -X -D -P -s NF -S 2026-01-01 -E now --format=JobID,End,NodeList");
}

#[test]
fn drawings_are_sound_markup_whatever_a_trace_is_called() {
    let dir = tempfile::tempdir().expect("folder");
    let log = dir.path().join("<b>&\"\u{1b}.csv");
    std::fs::write(&log, "0\n50000\n90000\n200000\n210000\n").expect("log");
    let (svg, html) = (dir.path().join("a.svg"), dir.path().join("a.html"));
    let drawn = ["--plot", svg.to_str().expect("text"), "--html", html.to_str().expect("text")];
    let trace = ["--trace", log.to_str().expect("text")];
    for args in [
        [trace.as_slice(), drawn.as_slice()].concat(),
        [trace.as_slice(), drawn.as_slice(), &["--runtime-bound", "1,5,20"]].concat(),
        [&["sweep"], trace.as_slice(), drawn.as_slice()].concat(),
    ] {
        answer(&args, "");
        let svg = std::fs::read_to_string(&svg).expect("drawn");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{args:?}");
        assert!(!svg.contains("<b>") && !svg.contains("NaN") && !svg.contains("inf") && !svg.contains('\u{1b}'));
        assert_eq!(svg.matches("<g").count(), svg.matches("</g>").count(), "{args:?}");
        let page = std::fs::read_to_string(&html).expect("written");
        assert!(page.contains(&svg) && !page.contains("<b>"), "{args:?}");
    }
}

#[test]
fn a_sweep_marks_young_and_the_energy_optimal_interval() {
    let answer = json(&["sweep", "--trace", log(20).to_str().expect("text"), "--points", "11", "--json"]);
    let sweep = &answer["sweeps"][0];
    let minutes = |point: &Value| point["interval_s"].as_f64().expect("interval") / 60.0;
    assert!((minutes(&sweep["young"]) - 127.70).abs() < 0.01, "ElSayed14 Table II: {}", sweep["young"]);
    assert!((minutes(&sweep["young"]) / minutes(&sweep["energy_optimal"]) - 3f64.sqrt()).abs() < 1e-9);
    assert_eq!(sweep["points"].as_array().expect("points").len(), 11);
}

#[test]
fn bad_input_is_refused_with_its_place_and_exit_code_2() {
    for (args, input, expected) in [
        (vec![], "", "nothing to simulate: give --trace FILE"),
        (vec!["--trace", "-"], "time,node\n0,a\nsoon,b\n", "line 3: \"soon\" is no time"),
        (vec!["--trace", "/nonexistent.csv"], "", "cannot read /nonexistent.csv"),
        (vec!["--trace", "-", "--system", "3"], "0\n1\n3\n", "the log has no column System"),
        (vec!["--trace", "-", "--policy", "yuong"], "0\n1\n3\n", "no policy is called \"yuong\""),
        (vec!["--trace", "-", "--policy", "constant:-1"], "0\n1\n3\n", "no policy is called \"constant:-1\""),
        (vec!["--trace", "-", "--policy", "constant:0"], "0\n1\n3\n", "constant:SECONDS (above 0)"),
        (vec!["--trace", "-", "--io-bound", "120"], "", "'120' for '--io-bound <PCT>': valid is 1e-6 to 100 per cent"),
        (vec!["--trace", "-", "--io-bound=-5"], "", "'-5' for '--io-bound <PCT>'"),
        (
            vec!["--trace", "-", "--runtime-bound=-5"],
            "",
            "'-5' for '--runtime-bound <PCT>': valid is 0 to 1e6 per cent",
        ),
        (
            vec!["--trace", "-", "--checkpoint", "0"],
            "",
            "'0' for '--checkpoint <SECONDS>': valid is 0.001 to 1e12 seconds",
        ),
        (vec!["--trace", "-", "--checkpoint", "-5"], "", "'-5' for '--checkpoint <SECONDS>'"),
        (vec!["sweep", "--trace", "-", "--checkpoint", "-5"], "", "'-5' for '--checkpoint <SECONDS>'"),
        (vec!["compare", "--trace", "-", "--ratio", "-5"], "", "'-5' for '--ratio <X>'"),
        (vec!["--trace", "-", "--ratio", "1e300"], "", "'1e300' for '--ratio <X>': valid is 1e-6 to 1e6"),
        (vec!["--synthetic", "exponential", "--checkpoint", "1e-300"], "", "'1e-300' for '--checkpoint <SECONDS>'"),
        (vec!["--synthetic", "exponential", "--mtbf", "0"], "", "'0' for '--mtbf <SECONDS>'"),
        (vec!["--synthetic", "exponential", "--mtbf", "1e300"], "", "'1e300' for '--mtbf <SECONDS>'"),
        (vec!["--synthetic", "exponential", "--runs", "0"], "", "'0' for '--runs <N>'"),
        (vec!["--synthetic", "weibull:1e300"], "", "valid is a shape or sigma of 0.1 to 10"),
        (vec!["--trace", "-"], "", "in -: the log is empty"),
        (vec!["--trace", "-"], "\u{7f}ELF\u{1}\u{2}", "in -: line 1: \"ELF\" is no time"),
        (vec!["--synthetic", "gamma"], "", "valid are exponential"),
        (vec!["--synthetic", "weibull:x"], "", "\"x\" is no number"),
        (vec!["--synthetic", "exponential", "--runs", "4000000000"], "", "at most"),
        (vec!["sweep", "--trace", "-", "--reach", "0.5"], "0\n1\n3\n", "reach"),
    ] {
        let text = refusal(&args, input);
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

#[test]
fn a_system_that_is_left_out_is_named() {
    let log = "System,time\n2,0\n2,100000\n2,300000\n3,50\n";
    let output = simulate(&["--trace", "-", "--policy", "young"], log);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("system-2"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("in -: system 3 is left out: there is no gap between failures"), "{told}");
}

#[test]
fn a_comparison_draws_every_policy_over_the_same_traces() {
    let dir = tempfile::tempdir().expect("folder");
    let svg = dir.path().join("a.svg");
    let logs = [3, 12, 21].map(log);
    let mut args = vec!["compare", "--trace"];
    args.extend(logs.iter().map(|log| log.to_str().expect("text")));
    args.extend(["--checkpoint", "600", "--plot", svg.to_str().expect("text")]);
    answer(&args, "");
    let svg = std::fs::read_to_string(svg).expect("drawn");
    // `auto` and the seven published policies, for time and for energy.
    assert_eq!(svg.matches("mean of 3").count(), 16);
    assert_eq!(svg.matches("mean of").count(), 16);
}

#[test]
fn auto_is_not_shown_on_what_it_was_fitted_on_without_a_word() {
    let caveat = "`simulate compare` judges it on systems that it was not fitted on";
    let (log, elsewhere) = (log(21), "0\n50000\n90000\n200000\n");
    let fitted = ["--trace", log.to_str().expect("text")];
    for (args, input, told) in [
        ([&fitted[..], &["--policy", "young,auto"]].concat(), "", true),
        ([&fitted[..], &["--policy", "young"]].concat(), "", false),
        ([&fitted[..], &["--csv"]].concat(), "", false),
        ([&fitted[..], &["--json"]].concat(), "", false),
        (vec!["--trace", "-"], elsewhere, false),
    ] {
        assert_eq!(answer(&args, input).contains(caveat), told, "{args:?}");
    }
}

#[test]
fn the_ends_of_the_ranges_are_replayed_and_printed_in_columns() {
    for end in [
        &["--mtbf", "1e12", "--policy", "young"][..],
        &["--mtbf", "0.001"],
        &["--checkpoint", "1e12"],
        &["--ratio", "1e-6"],
        &["--ratio", "1e6"],
        &["--runtime-bound", "1e6"],
        &["--io-bound", "1e-6"],
    ] {
        let table = answer(&[&["--synthetic", "lognormal:2", "--failures", "50"], end].concat(), "");
        assert!(table.lines().all(|line| line.chars().count() < 130), "{end:?}: {table}");
        assert!(!table.contains("NaN") && !table.contains("inf"), "{end:?}: {table}");
    }
}

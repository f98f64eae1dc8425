//! Runs `joulepoint simulate tables` in each of its forms.

use std::process::{Command, Output};

use serde_json::Value;

fn tables(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint"));
    command.args(["simulate", "tables"]).args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = tables(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const SYSTEM_20: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/lanl/system-20.csv");

#[test]
fn without_a_trace_every_other_paper_is_printed() {
    let all = text(&[]);
    for paper in ["aupy15", "bouteiller13", "balladini", "mills"] {
        assert!(all.lines().any(|line| line.starts_with(paper)), "{paper}");
    }
    assert!(all.contains("no: erratum A1"));
    assert!(all.contains("ElSayed14's tables need failure logs: --trace"));
}

#[test]
fn json_and_csv_have_the_same_cells() {
    let arguments = ["--paper", "elsayed14", "--trace", SYSTEM_20];
    let json: Value = serde_json::from_str(&text(&[&arguments[..], &["--json"]].concat())).unwrap();
    let cells = json["cells"].as_array().unwrap();
    let csv = text(&[&arguments[..], &["--csv"]].concat());
    assert_eq!(csv.lines().count(), cells.len() + 1);
    let young = cells.iter().find(|c| c["quantity"] == "Young, min").unwrap();
    assert_eq!((&young["printed"], &young["verdict"]), (&Value::from(127.7), &Value::from("yes")));
    assert!(cells.iter().all(|c| c["paper"] == "elsayed14"));
}

#[test]
fn an_unknown_paper_and_a_nameless_system_are_refused() {
    let refused = tables(&["--paper", "nobody"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("elsayed14"));
    let refused = tables(&["--synthetic", "exponential"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("call the file system-N.csv"));
}

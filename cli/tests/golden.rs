//! Compares every golden case with `joulepoint model`'s answer, key by key.

#[path = "../src/model.rs"]
mod model;

use serde_json::Value;
use std::path::PathBuf;

/// Relative tolerance of closed forms, and of keys whose reference came from a numeric search.
const CLOSED: f64 = 1e-9;
const NUMERIC: f64 = 1e-6;
/// References below these keys came from a search too: they scatter by up to 2e-7 about the exact stationary point.
const SEARCHED: [&str; 6] = ["app_exact_overlap", "fit", "best", "power", "exponential", "predict"];
/// Differences below this are none: references of exact zeros carry rounding or the bracket of a search.
const ABSOLUTE: f64 = 1e-9;

fn cases() -> Vec<(String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/golden");
    let mut cases = Vec::new();
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    for path in paths.into_iter().filter(|p| p.extension().is_some_and(|e| e == "json")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let Value::Array(items) = serde_json::from_str(&text).unwrap() else { panic!("{path:?} is no array") };
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        cases.extend(items.into_iter().enumerate().map(|(i, item)| (format!("{stem}[{i}]"), item)));
    }
    cases
}

fn compare(path: &str, tolerance: f64, expected: &Value, found: &Value, wrong: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for (key, value) in expected {
                let tolerance =
                    if key.contains("numeric") || SEARCHED.contains(&key.as_str()) { NUMERIC } else { tolerance };
                let found = found.get(key).unwrap_or(&Value::String("missing".to_owned())).clone();
                compare(&format!("{path}.{key}"), tolerance, value, &found, wrong);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (i, (e, f)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{path}[{i}]"), tolerance, e, f, wrong);
            }
        }
        (Value::Number(e), Value::Number(f)) => {
            let (e, f) = (e.as_f64().unwrap(), f.as_f64().unwrap());
            if (e - f).abs() > tolerance * e.abs()
                && (e - f).abs()
                    > ABSOLUTE * e.abs().min(1.0) + 1e-12_f64.max(if tolerance == NUMERIC { 1e-9 } else { 0.0 })
            {
                wrong.push(format!("{path}: {e} expected, {f} found, relative {:.1e}", (f - e) / e));
            }
        }
        _ if expected == found => {}
        _ => wrong.push(format!("{path}: {expected} expected, {found} found")),
    }
}

#[test]
fn golden_cases_hold() {
    let cases = cases();
    assert!(cases.len() > 70, "only {} cases", cases.len());
    let mut wrong = Vec::new();
    for (name, case) in &cases {
        let model = case["model"].as_str().unwrap();
        match model::run(model, &case["params"].to_string()) {
            Ok(answer) => compare(name, CLOSED, &case["expect"], &serde_json::from_str(&answer).unwrap(), &mut wrong),
            Err(e) => wrong.push(format!("{name}: {e}")),
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_array_gives_an_array_in_order() {
    let answer = model::run("young_daly", r#"[{"mu":18000,"C":4000},{"mu":1e6,"C":30}]"#).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer[0]["young_interval"], 12_000.0);
    assert_eq!(answer.as_array().unwrap().len(), 2);
}

#[test]
fn a_refusal_names_parameter_value_and_range() {
    let error = model::run("elsayed", r#"{"C":600,"MTTF":-5,"ratio":3}"#).unwrap_err();
    assert_eq!(error, r#"{"error":"MTTF = -5 is outside its range: finite, > 0"}"#);
    let error = model::run("elsayed", r#"{"MTTF":5}"#).unwrap_err();
    assert_eq!(error, r#"{"error":"C = missing is outside its range: a finite number"}"#);
    assert!(model::run("nothing", "{}").unwrap_err().contains("one of young_daly"));
    assert!(model::run("aupy", "[").is_err());
}

#[test]
fn what_is_not_finite_is_null_with_a_flag() {
    let answer = model::run(
        "ecofit_energy",
        r#"{"N":1,"idle":0,"t_logging":1,"drho_logging":1,"t_polling":0,"drho_polling":0}"#,
    );
    let answer: Value = serde_json::from_str(&answer.unwrap()).unwrap();
    assert_eq!(answer["breakeven_checkpoints"], Value::Null);
    assert_eq!(answer["non_finite"][0], "breakeven_checkpoints");
}

//! Compares every golden case with `joulepoint model`'s answer, key by key.

use serde_json::{Map, Value};
use std::path::PathBuf;

/// Relative tolerance of closed forms.
const CLOSED: f64 = 1e-9;
/// Relative tolerance where the reference came from a search: its figures scatter by up to 6e-7 about the optimum.
/// That ours do not is what `searched_figures_are_the_optimum_itself` shows.
const SEARCHED: f64 = 1e-6;

/// Whether the reference of `key` came from a search: keys with `numeric`, the optimum of `app_exact_overlap`, the
/// parameters of curves that have no closed-form fit, and the two-way estimates that rest on such curves.
fn searched(key: &str, of: &Map<String, Value>) -> bool {
    let curve = of.get("model").and_then(Value::as_str);
    match key {
        "T_opt" | "A" | "B" => true,
        "alpha" | "beta" => matches!(curve, Some("power" | "exponential")),
        key => key.contains("numeric"),
    }
}

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
                let tolerance = if searched(key, expected) { SEARCHED } else { tolerance };
                match found.get(key) {
                    Some(found) => compare(&format!("{path}.{key}"), tolerance, value, found, wrong),
                    None => wrong.push(format!("{path}.{key} is missing")),
                }
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (i, (e, f)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{path}[{i}]"), tolerance, e, f, wrong);
            }
        }
        (Value::Number(e), Value::Number(f)) => {
            let (e, f) = (e.as_f64().unwrap(), f.as_f64().unwrap());
            if (e - f).abs() > tolerance * e.abs() {
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

/// The optimum of each searched figure to 16 digits, from a root of the derivative at 40 digits.
#[test]
fn searched_figures_are_the_optimum_itself() {
    let curves = r#"{"x":[1,4,6,9,12],"y":[13,22,28,37,46]}"#;
    let small = r#"{"x":[1,4,6,9,12],"y":[0.0182,0.019100000000000002,0.02,0.0221,0.0256]}"#;
    let cases = cases();
    let label = "k-computer matmul io proc MTBF 5 y local";
    let (_, overlap) = cases.iter().find(|(_, case)| case["label"] == label).unwrap();
    let overlap = overlap["params"].to_string();
    for (model, params, pointer, exact) in [
        ("ecofit_fit", curves, "/fits/exponential/alpha", 1.324_812_517_346_982),
        ("ecofit_fit", curves, "/fits/exponential/beta", 18.876_974_553_551_55),
        ("ecofit_fit", small, "/fits/power/alpha", 0.132_857_384_176_064_1),
        ("ecofit_fit", small, "/fits/power/beta", 0.016_926_281_450_123_84),
        ("bouteiller", &overlap, "/app_exact_overlap/T_opt", 437.571_354_505_915_6),
    ] {
        let answer: Value = serde_json::from_str(&model::run(model, params).unwrap()).unwrap();
        let found = answer.pointer(pointer).and_then(Value::as_f64).unwrap();
        assert!((found / exact - 1.0).abs() < 1e-12, "{pointer}: {found} instead of {exact}");
    }
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
    assert_eq!(error, r#"{"error":"C is missing; valid: a finite number"}"#);
    assert_eq!(model::run("elsayed", r#"{"C":null}"#).unwrap_err(), error);
    let error = model::run("ecofit_fit", r#"{"x":[1],"y":[1]}"#).unwrap_err();
    assert_eq!(error, r#"{"error":"length of x = 1 is outside its range: two points or more"}"#);
    let error = model::run("elsayed", r#"{"C":-1e300,"MTTF":5}"#).unwrap_err();
    assert!(error.contains("C = -1e300 is outside"), "{error}");
    assert!(model::run("nothing", "{}").unwrap_err().contains("one of young_daly"));
    assert!(model::run("aupy", "[").is_err());
    let error = model::run("ecofit_points", r#"[{"max":8},{"max":0}]"#).unwrap_err();
    assert!(error.contains("item 1: max = 0"), "{error}");
    let error = model::run("ecofit_fit", r#"{"x":[1,2],"y":[1,2],"exponential_mult":3}"#).unwrap_err();
    assert!(error.contains("exponential_mult = 3 is outside its range: true or false"), "{error}");
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

#[test]
fn an_infeasible_platform_answers_every_key() {
    let platform = r#"{"mu":MU,"C":600,"R":600,"D":60,"P_static":10,"P_cal":10,"P_io":100,"P_down":0}"#;
    let groups = r#"{"mu_p":MU,"G":10,"C0":60,"D":60,"R":60,"alpha":0.3,"lam":0.98,"rho":1.5,"beta":1e-4}"#;
    for (name, params) in [("aupy", platform), ("meneses", platform), ("bouteiller", groups)] {
        let answer = |mu: &str| -> Value {
            serde_json::from_str(&model::run(name, &params.replace("MU", mu)).unwrap()).unwrap()
        };
        let (rare, constant) = (answer("1e6"), answer("30"));
        assert_eq!((&rare["feasible"], &constant["feasible"]), (&Value::Bool(true), &Value::Bool(false)), "{name}");
        let optional = |key: &str| key == "unclamped" || key.starts_with("valid_") || key.starts_with("C_");
        for key in rare.as_object().unwrap().keys().filter(|key| !optional(key)) {
            assert!(constant.get(key).is_some(), "{name}: {key} is missing");
        }
    }
}

#[test]
fn curves_that_the_points_rule_out_are_null() {
    let answer = model::run("ecofit_fit", r#"{"x":[0,4,6],"y":[1,2,3],"at":[5]}"#).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["fits"]["logarithmic"], Value::Null);
    assert_eq!(answer["fits"]["power"], Value::Null);
    assert!(answer["fits"]["linear"]["r2"].as_f64().unwrap() > 0.9);
}

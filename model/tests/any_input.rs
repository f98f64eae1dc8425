//! Throws any JSON at every model: it answers or refuses by name, and never panics or prints what is not a number.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Every parameter that some model takes as a number.
const NUMBERS: [&str; 58] = [
    "mu",
    "C",
    "R",
    "D",
    "omega",
    "P_static",
    "P_cal",
    "P_io",
    "P_down",
    "T_base",
    "T",
    "max",
    "p0",
    "V0",
    "N",
    "idle",
    "switches",
    "t_checkpointing",
    "drho_checkpointing",
    "t_logging",
    "drho_logging",
    "t_polling",
    "drho_polling",
    "t_synchro",
    "drho_synchro",
    "n_checkpoints",
    "total_memory",
    "p",
    "total_message_bytes",
    "n_messages",
    "x",
    "MTTF",
    "ratio",
    "runtime_threshold",
    "io_bound",
    "mu_p",
    "G",
    "C0",
    "alpha",
    "lam",
    "rho",
    "beta",
    "L",
    "S",
    "T_cap",
    "tam",
    "f_hz",
    "T_app",
    "CheckInt",
    "nNodes",
    "E_app",
    "W",
    "sigma_max",
    "laxity",
    "mtbf",
    "P",
    "y",
    "at",
];
const LISTS: [&str; 9] = ["x", "y", "at", "p_values", "V_values", "idle", "f_hz", "P", "tam"];
const MODELS: [&str; 16] = [
    "young_daly",
    "aupy",
    "aupy_eval",
    "meneses",
    "ecofit_points",
    "ecofit_fit",
    "ecofit_bilinear",
    "ecofit_energy",
    "ecofit_published",
    "elsayed",
    "bouteiller",
    "bouteiller_eval",
    "balladini_predict",
    "balladini_power_fit",
    "balladini_time_fit",
    "shadow",
];

/// Brings a number into the range that its parameter has, so that the model itself is reached.
fn tamed(key: &str, x: f64) -> f64 {
    match key {
        "omega" | "alpha" | "lam" | "io_bound" | "runtime_threshold" => x.abs().min(1.0),
        "laxity" | "G" => 1.0 + x.abs(),
        "max" => (1.0 + x.abs()).floor(),
        _ => x.abs(),
    }
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => (-12.0_f64..12.0).prop_map(|x| 10_f64.powf(x)),
        2 => 0.0_f64..1.0,
        1 => prop::sample::select(vec![
            0.0, -0.0, 1.0, -1.0, 2.0, 1e308, -1e308, f64::MIN_POSITIVE, 5e-324, f64::MAX, f64::EPSILON, 1e15, 1e16,
        ]),
        1 => any::<f64>().prop_filter("JSON has no others", |x| x.is_finite()),
    ]
}

fn parameters() -> impl Strategy<Value = Map<String, Value>> {
    let numbers = prop::collection::vec(number(), NUMBERS.len());
    let lists = prop::collection::vec(prop::collection::vec(number(), 0..6), LISTS.len());
    let table = prop::collection::vec(prop::collection::vec(number(), 2..4), 2..4);
    let words =
        prop::sample::select(vec!["remote", "local", "nls", "linearized", "best4", "t_synchro_p4", "t_logging_HDD"]);
    (numbers, lists, table, words, any::<bool>(), any::<bool>()).prop_map(
        |(numbers, lists, table, word, as_lists, tame)| {
            let mut all: Map<String, Value> = NUMBERS
                .iter()
                .zip(numbers)
                .map(|(k, x)| ((*k).to_owned(), json!(if tame { tamed(k, x) } else { x })))
                .collect();
            if as_lists {
                all.extend(LISTS.iter().zip(lists).map(|(k, x)| ((*k).to_owned(), json!(x))));
                all.insert("p_values".to_owned(), json!([1.0, 2.0, 4.0][..table.len()]));
                all.insert("V_values".to_owned(), json!([0.0, 1e9, 2e9][..table[0].len()]));
            }
            all.insert("t".to_owned(), json!(table));
            for (key, fits) in [
                ("storage", ["remote", "local"]),
                ("method", ["nls", "linearized"]),
                ("v_model", ["best4", "best4"]),
                ("name", ["t_synchro_p4", "t_logging_HDD"]),
            ] {
                if fits.contains(&word) {
                    all.insert(key.to_owned(), json!(word));
                }
            }
            all
        },
    )
}

/// The keys of an answer that are null without being meant so are listed under `non_finite`.
fn numbers_are_finite(value: &Value) -> bool {
    match value {
        Value::Number(x) => x.as_f64().is_some_and(f64::is_finite),
        Value::Array(items) => items.iter().all(numbers_are_finite),
        Value::Object(fields) => fields.values().all(numbers_are_finite),
        Value::String(text) => !text.contains('\0') && !text.contains("NaN") && !text.contains("inf,"),
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_numbers_are_answered_or_refused(parameters in parameters(), dropped in prop::option::of(0..NUMBERS.len())) {
        let mut parameters = parameters;
        if let Some(i) = dropped {
            parameters.remove(NUMBERS[i]);
        }
        let input = Value::Object(parameters).to_string();
        for name in MODELS {
            match model::run(name, &input) {
                Ok(answer) => {
                    let answer: Value = serde_json::from_str(&answer).unwrap();
                    prop_assert!(answer.is_object() && numbers_are_finite(&answer), "{name} {input}: {answer}");
                }
                Err(error) => {
                    let error: Value = serde_json::from_str(&error).unwrap();
                    let text = error["error"].as_str().unwrap();
                    let told = text.contains("outside its range") || text.contains("is missing; valid: ");
                    prop_assert!(told, "{name} {input}: {text}");
                }
            }
        }
    }

    #[test]
    fn any_text_is_answered_or_refused(input in ".{0,40}") {
        for name in MODELS {
            if let Err(error) = model::run(name, &input) {
                let error: Value = serde_json::from_str(&error).unwrap();
                prop_assert!(error["error"].is_string());
            }
        }
    }
}

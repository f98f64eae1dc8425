//! Writes the figures of a model as JSON, in which nothing that is not finite may appear.

use serde_json::{Value, json};

/// A number as JSON; one that is not finite becomes a mark that [`blank_non_finite`] turns into null.
pub(super) fn n(x: f64) -> Value {
    if x.is_finite() { json!(x) } else { Value::String(NON_FINITE.to_owned()) }
}

const NON_FINITE: &str = "\u{0}non-finite";

fn blank_non_finite(value: &mut Value, path: &str, lost: &mut Vec<String>) {
    match value {
        Value::String(s) if s == NON_FINITE => {
            lost.push(path.to_owned());
            *value = Value::Null;
        }
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                blank_non_finite(field, &path, lost);
            }
        }
        Value::Array(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                blank_non_finite(item, &format!("{path}[{i}]"), lost);
            }
        }
        _ => {}
    }
}

/// Turns what is not finite into null and names it under `non_finite`.
pub(super) fn flag_non_finite(mut answer: Value) -> Value {
    let mut lost = Vec::new();
    blank_non_finite(&mut answer, "", &mut lost);
    if !lost.is_empty() {
        answer["non_finite"] = json!(lost);
    }
    answer
}

/// A number as JSON, null if there is none.
pub(super) fn optional(x: Option<f64>) -> Value {
    x.map_or(Value::Null, n)
}

/// A whole number as JSON; beyond what a float counts exactly it stays a float.
pub(super) fn whole(x: f64) -> Value {
    if x.abs() < 9e15 { json!(x as i64) } else { n(x) }
}

/// Sets keys to null, so that an answer has the same keys whether its model has a solution or not.
pub(super) fn set_null(answer: &mut Value, keys: &[&str]) {
    for key in keys {
        answer[*key] = Value::Null;
    }
}

//! Answers questions about the models of the literature, `joulepoint model NAME`: parameters in as JSON, the model's keys
//! out as JSON.

mod answer;
mod bounds;
mod calibration;
mod frequency;
mod parameters;
mod periods;
mod shadow;
mod waste;

use serde_json::{Value, json};

use parameters::Parameters;

/// A model: parameters in, its keys out, or a refusal in words.
type Model = fn(&Parameters<'_>) -> Result<Value, String>;

const MODELS: [(&str, Model); 16] = [
    ("young_daly", periods::young_daly),
    ("aupy", periods::aupy),
    ("aupy_eval", periods::aupy_eval),
    ("meneses", periods::meneses),
    ("ecofit_points", calibration::ecofit_points),
    ("ecofit_fit", calibration::ecofit_fit),
    ("ecofit_bilinear", calibration::ecofit_bilinear),
    ("ecofit_energy", calibration::ecofit_energy),
    ("ecofit_published", calibration::ecofit_published),
    ("elsayed", bounds::elsayed),
    ("bouteiller", waste::bouteiller),
    ("bouteiller_eval", waste::bouteiller_eval),
    ("balladini_predict", frequency::balladini_predict),
    ("balladini_power_fit", frequency::balladini_power_fit),
    ("balladini_time_fit", frequency::balladini_time_fit),
    ("shadow", shadow::shadow),
];

/// Runs one model on one JSON object, or on each of an array; the error is a JSON object too. One invalid item of an
/// array refuses the array: an answer is never mistaken for that of its neighbour.
///
/// # Errors
/// `{"error": ...}`: an unknown name, or the parameter that is wrong.
pub fn run(name: &str, input: &str) -> Result<String, String> {
    let answer = find(name).and_then(|model| match parse(input)? {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(i, item)| one(model, item).map_err(|e| format!("item {i}: {e}")))
            .collect::<Result<Vec<_>, _>>()
            .map(Value::Array),
        item => one(model, &item),
    });
    answer.map(|a| a.to_string()).map_err(|message| json!({ "error": message }).to_string())
}

fn find(name: &str) -> Result<Model, String> {
    let names = || MODELS.map(|(name, _)| name).join(", ");
    let found = MODELS.iter().find(|(known, _)| *known == name);
    found.map(|(_, model)| *model).ok_or_else(|| format!("NAME = {name:?} is outside its range: one of {}", names()))
}

fn parse(input: &str) -> Result<Value, String> {
    serde_json::from_str(input)
        .map_err(|e| format!("input is not JSON: {e}; valid: an object of parameters, or an array of them"))
}

fn one(model: Model, input: &Value) -> Result<Value, String> {
    let Value::Object(fields) = input else {
        return Err(format!("parameters = {input} is outside its range: a JSON object"));
    };
    Ok(answer::flag_non_finite(model(&Parameters { fields })?))
}

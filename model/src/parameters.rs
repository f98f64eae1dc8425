//! Reads the parameters of a model from JSON and refuses them by name, value and range.

use policy::Invalid;
use serde_json::{Map, Value};

/// The parameters of one call.
pub(super) struct Parameters<'a> {
    pub(super) fields: &'a Map<String, Value>,
}

impl Parameters<'_> {
    pub(super) fn refuse<T>(&self, name: &str, range: &str) -> Result<T, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Err(format!("{name} is missing; valid: {range}")),
            Some(value) => Err(format!("{name} = {value} is outside its range: {range}")),
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|v| !v.is_null())
    }

    pub(super) fn number(&self, name: &str) -> Result<f64, String> {
        match self.fields.get(name).and_then(Value::as_f64).filter(|x| x.is_finite()) {
            Some(x) => Ok(x),
            None => self.refuse(name, "a finite number"),
        }
    }

    pub(super) fn number_or(&self, name: &str, otherwise: f64) -> Result<f64, String> {
        if self.has(name) { self.number(name) } else { Ok(otherwise) }
    }

    pub(super) fn positive(&self, name: &str) -> Result<f64, String> {
        let x = self.number(name)?;
        if x > 0.0 { Ok(x) } else { self.refuse(name, "finite, > 0") }
    }

    pub(super) fn non_negative(&self, name: &str) -> Result<f64, String> {
        let x = self.number(name)?;
        if x >= 0.0 { Ok(x) } else { self.refuse(name, "finite, >= 0") }
    }

    pub(super) fn text_or<'s>(&'s self, name: &str, otherwise: &'s str, allowed: &[&str]) -> Result<&'s str, String> {
        let text = match self.fields.get(name) {
            None | Some(Value::Null) => otherwise,
            Some(v) => v.as_str().unwrap_or(""),
        };
        if allowed.contains(&text) { Ok(text) } else { self.refuse(name, &format!("one of {}", allowed.join(", "))) }
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.fields.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => self.refuse(name, "true or false"),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<Vec<f64>, String> {
        let items = self.fields.get(name).and_then(Value::as_array);
        let numbers = items.and_then(|items| items.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>());
        match numbers {
            Some(numbers) => Ok(numbers),
            None => self.refuse(name, "a list of finite numbers"),
        }
    }

    pub(super) fn table(&self, name: &str) -> Result<Vec<Vec<f64>>, String> {
        let rows = self.fields.get(name).and_then(Value::as_array);
        let rows = rows.and_then(|rows| {
            rows.iter()
                .map(|row| row.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>())
                .collect::<Option<Vec<_>>>()
        });
        match rows {
            Some(rows) => Ok(rows),
            None => self.refuse(name, "a list of lists of finite numbers"),
        }
    }
}

/// A refusal of the model itself, in words.
pub(super) fn words(e: Invalid) -> String {
    e.to_string()
}

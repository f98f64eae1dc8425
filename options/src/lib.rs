//! What a user may ask for: the table of options, their forms, and what they mean together.
//!
//! The plugin registers this table and checks single values at submit; the wrapper and the controller resolve
//! a whole request into [`Settings`]. What the user wrote ([`protocol::Request`]) and what it means after
//! defaults are two types. Nothing here reads a file, the environment or a clock.

mod forms;
mod prospect;
mod settings;
pub mod size;
mod submission;
mod table;
mod wrong;

pub use forms::{
    Signal, TIMES, counted, format_time, parse_hours, parse_percent, parse_signal, parse_size, parse_time, spoken,
    time_argument,
};
pub use prospect::{CHECKPOINT_COMMAND, Job, prospect};
pub use settings::{Bounds, Engine, Log, Network, Objective, Protocol, Resume, Settings, resolve};
pub use submission::{submitted, written};
pub use table::{Form, OPTIONS, REQUIRE, Spec, Takes, find, nearest};
pub use wrong::{Wrong, WrongArgument};

use std::fmt;

/// Why a value is refused: everything a person needs to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Where it was written: `--ft-energy-io-bound` or `FT_ENERGY_IO_BOUND`.
    pub place: String,
    /// The value as written, cut to a readable length.
    pub value: String,
    /// What is wrong with it.
    pub reason: String,
    /// What would be accepted; empty where no value would be.
    pub accepted: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}: {}", self.place, self.reason)?;
        } else {
            write!(f, "{}: '{}' {}", self.place, self.value, self.reason)?;
        }
        if !self.accepted.is_empty() {
            write!(f, "; accepted: {}", self.accepted)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// The environment twin of an option: `ft-energy-io-bound` is `FT_ENERGY_IO_BOUND`.
pub fn env_twin(name: &str) -> String {
    name.to_uppercase().replace('-', "_")
}

/// Checks one value as written on the command line; an empty value stands for an option without one.
///
/// # Errors
/// A [`Refusal`] naming the option, the value, the reason and the accepted form.
pub fn check(spec: &Spec, value: &str) -> Result<(), Refusal> {
    check_at(spec, &format!("--{}", spec.name), value)
}

/// Like [`check`], for a value that was written at `place` (such as an environment variable).
///
/// # Errors
/// A [`Refusal`] naming the place, the value, the reason and the accepted form.
pub fn check_at(spec: &Spec, place: &str, value: &str) -> Result<(), Refusal> {
    let refuse = |reason: String| Refusal {
        place: place.to_string(),
        value: printable(value),
        reason,
        accepted: spec.form.accepted().to_string(),
    };
    if value.is_empty() {
        return match spec.takes {
            Takes::Required => Err(refuse("needs a value".to_string())),
            Takes::None | Takes::Optional => Ok(()),
        };
    }
    if value.len() > MAX_VALUE_BYTES {
        return Err(refuse(format!("is longer than {MAX_VALUE_BYTES} bytes")));
    }
    if value.chars().any(char::is_control) {
        return Err(refuse("contains a control character".to_string()));
    }
    spec.form.check(value).map_err(|wrong| refuse(wrong.to_string()))
}

/// Longest value of any option, bytes.
pub const MAX_VALUE_BYTES: usize = 4096;

/// A value fit for a message: no control characters, at most 60 characters.
fn printable(value: &str) -> String {
    let clean: String = value.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect();
    if value.chars().count() > 60 { format!("{clean}...") } else { clean }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_twin_and_a_short_enough_name() {
        for spec in OPTIONS {
            assert!(spec.name.len() <= 75, "Slurm cuts longer names");
            assert!(spec.name == "ft-energy" || spec.name.starts_with("ft-energy-"));
            assert!(env_twin(spec.name).starts_with("FT_ENERGY"));
        }
    }

    #[test]
    fn a_refusal_names_place_value_reason_and_cure() {
        let spec = find("ft-energy-io-bound").unwrap();
        let text = check(spec, "lots").unwrap_err().to_string();
        assert_eq!(
            text,
            "--ft-energy-io-bound: 'lots' is not a percentage; accepted: a percentage above 0% and up to 100%, such as 5%"
        );
    }

    #[test]
    fn hostile_values_are_refused_and_printed_safely() {
        let spec = find("ft-energy-dir").unwrap();
        assert!(check(spec, &"x".repeat(5000)).is_err());
        let text = check(spec, "/a\u{1b}[2Jb").unwrap_err().to_string();
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn ten_wrong_values_get_ten_different_messages() {
        let wrong = [
            ("ft-energy", "power"),
            ("ft-energy-runtime-bound", "-5%"),
            ("ft-energy-io-bound", "0"),
            ("ft-energy-energy-bound", "ten"),
            ("ft-energy-protocol", "magic"),
            ("ft-energy-engine", "blcr"),
            ("ft-energy-interval", "1:99"),
            ("ft-energy-policy", "oracle"),
            ("ft-energy-keep", "0"),
            ("ft-energy-signal", "SIGFOO"),
            ("ft-energy-memory", "12Q"),
            ("ft-energy-messages", "many"),
            ("ft-energy-laxity", "0.5"),
            ("ft-energy-lend", "perhaps"),
        ];
        let mut messages = std::collections::BTreeSet::new();
        for (name, value) in wrong {
            let refusal = check(find(name).unwrap(), value).unwrap_err();
            assert!(refusal.to_string().contains(value), "{refusal}");
            messages.insert(refusal.to_string());
        }
        assert_eq!(messages.len(), wrong.len());
    }
}

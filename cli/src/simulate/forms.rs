//! Reads what the options of simulations take, and refuses what no machine has.

use std::ops::RangeInclusive;

use simulator::replay::{PRACTICAL_RATIO, PRACTICAL_S};
use simulator::trace::{DISTRIBUTION_SHAPE, Distribution};

/// Lets an option take negative numbers, so that a wrong one is refused by its range, not as an unknown option.
pub fn numbers(arg: clap::Arg) -> clap::Arg {
    let takes_values = arg.get_action().takes_values();
    arg.allow_negative_numbers(takes_values)
}

/// A number in a range, which `words` tell.
pub fn within(
    range: RangeInclusive<f64>,
    words: &'static str,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync {
    move |text| match text.parse() {
        Ok(x) if range.contains(&x) => Ok(x),
        _ => Err(format!("valid is {words}")),
    }
}

/// The duration of a checkpoint or a mean gap: plain seconds, or one of the forms of a time.
pub fn seconds(text: &str) -> Result<f64, String> {
    positive_time(text)
}

/// Compute power over idle power.
pub fn ratio(text: &str) -> Result<f64, String> {
    within(PRACTICAL_RATIO, "1e-6 to 1e6")(text)
}

/// Plain seconds, or one of Slurm's forms.
pub fn time(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(_) => within(0.0..=1e12, "0 to 1e12 seconds, or a time such as 1-12:00:00, 30s or 2h")(text),
        Err(_) => {
            let why = |why| format!("{why}; accepted: plain seconds, hh:mm:ss, d-hh, d-hh:mm:ss, or 30s, 5min, 2h, 3d");
            options::parse_time(text).map(|t| t.as_secs_f64()).map_err(why)
        }
    }
}

/// The same, of at least a millisecond.
pub fn positive_time(text: &str) -> Result<f64, String> {
    let seconds = time(text)?;
    if PRACTICAL_S.contains(&seconds) {
        Ok(seconds)
    } else {
        Err("valid is 0.001 to 1e12 seconds, or a time such as 2h".to_owned())
    }
}

/// A distribution of gaps, with its shape or the usual one.
pub fn distribution(text: &str) -> Result<Distribution, String> {
    let (name, shape) = text.split_once(':').unwrap_or((text, ""));
    let shape = |otherwise: f64| match shape {
        "" => Ok(otherwise),
        s => match s.parse::<f64>() {
            Ok(shape) if DISTRIBUTION_SHAPE.contains(&shape) => Ok(shape),
            Ok(_) => Err("valid is a shape or sigma of 0.1 to 10".to_owned()),
            Err(_) => Err(format!("{s:?} is no number")),
        },
    };
    match name {
        "exponential" => Ok(Distribution::Exponential),
        "weibull" => shape(0.7).map(Distribution::Weibull),
        "lognormal" => shape(1.0).map(Distribution::Lognormal),
        _ => Err("valid are exponential, weibull[:SHAPE] and lognormal[:SIGMA]".to_owned()),
    }
}

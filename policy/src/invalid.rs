//! Names the parameter, the value and the valid range when a model refuses its input.

use std::fmt;

/// A parameter outside the range in which a model holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Invalid {
    /// Name of the parameter, as the caller knows it.
    pub parameter: &'static str,
    /// The value that was refused.
    pub value: f64,
    /// The accepted range, for people.
    pub range: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Invalid { parameter, value, range } = self;
        if *value == 0.0 || (1e-4..1e15).contains(&value.abs()) {
            write!(f, "{parameter} = {value} is outside its range: {range}")
        } else {
            write!(f, "{parameter} = {value:e} is outside its range: {range}")
        }
    }
}

impl std::error::Error for Invalid {}

/// Refuses `value` unless `holds`.
pub(crate) fn require(holds: bool, parameter: &'static str, value: f64, range: &'static str) -> Result<(), Invalid> {
    if holds && value.is_finite() { Ok(()) } else { Err(Invalid { parameter, value, range }) }
}

/// Refuses anything but a finite number above zero.
pub(crate) fn positive(parameter: &'static str, value: f64) -> Result<(), Invalid> {
    require(value > 0.0, parameter, value, "finite, > 0")
}

/// Refuses anything but a finite number of at least zero.
pub(crate) fn non_negative(parameter: &'static str, value: f64) -> Result<(), Invalid> {
    require(value >= 0.0, parameter, value, "finite, >= 0")
}

/// Refuses anything but a number in `[0, 1]`.
pub(crate) fn fraction(parameter: &'static str, value: f64) -> Result<(), Invalid> {
    require((0.0..=1.0).contains(&value), parameter, value, "0 to 1")
}

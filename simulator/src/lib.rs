//! Replays failure traces and whole platforms against the policies.
//!
//! Nothing here reads a clock or a file: traces come as text, and reports leave as text.

pub mod chart;
pub mod comparison;
pub mod fitting;
pub mod published;
pub mod replay;
pub mod trace;

use std::fmt;

/// What a simulation refuses.
#[derive(Clone, Debug, PartialEq)]
pub enum Error {
    /// A line of a trace that cannot be read.
    Line {
        /// Its number, from 1.
        number: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// A trace with too few failures.
    TooShort {
        /// How many gaps it has.
        gaps: usize,
    },
    /// A parameter outside its range.
    Invalid(policy::Invalid),
    /// A name that no policy has.
    UnknownPolicy(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Line { number, problem } => write!(f, "line {number}: {problem}"),
            Error::TooShort { gaps } => write!(f, "the trace has {gaps} gaps between failures; 2 or more are needed"),
            Error::Invalid(e) => e.fmt(f),
            Error::UnknownPolicy(name) => {
                write!(f, "no policy is called {name:?}; there are {}", replay::Rule::NAMES.join(", "))
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<policy::Invalid> for Error {
    fn from(e: policy::Invalid) -> Self {
        Error::Invalid(e)
    }
}

//! Replays failure traces and whole platforms against the policies.
//!
//! Nothing here reads a clock or a file: traces come as text, and reports leave as text.

pub mod chart;
pub mod comparison;
pub mod failure_log;
pub mod figure;
pub mod grid;
pub mod platform;
pub mod published;
pub mod replay;
pub mod sweep;
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
    /// A log without the wanted system, or with several where one is wanted.
    System {
        /// Those that it has.
        known: Vec<u32>,
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
            Error::System { known } => {
                let known: Vec<_> = known.iter().map(u32::to_string).collect();
                write!(f, "the log's systems are [{}]; one of them is needed", known.join(", "))
            }
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

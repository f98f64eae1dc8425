//! Replays failure traces and whole platforms against the policies.
//!
//! Nothing here reads a clock or a file: traces come as text, and reports leave as text.

pub mod chart;
pub mod comparison;
pub mod failure_log;
pub mod figure;
pub mod fitting;
pub mod grid;
pub mod jobs;
pub mod platform;
pub mod published;
pub mod regret;
pub mod replay;
pub mod schedule;
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
    /// A log without a line.
    Empty,
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
            Error::Empty => write!(f, "the log is empty; a line for each failure is needed, with its time"),
            Error::TooShort { gaps } => {
                let failures = if *gaps == 1 { "one gap" } else { "no gap" };
                write!(f, "there is {failures} between failures; three failures at different times are needed")
            }
            Error::System { known } if known.is_empty() => {
                write!(f, "the log has no column System; a system can only be chosen from one that has")
            }
            Error::System { known } => {
                let known: Vec<_> = known.iter().map(u32::to_string).collect();
                write!(f, "the log's systems are [{}]; one of them is needed", known.join(", "))
            }
            Error::Invalid(e) => e.fmt(f),
            Error::UnknownPolicy(name) => {
                write!(
                    f,
                    "no policy is called {name:?}; there are {}, {}",
                    replay::Rule::NAMES.join(", "),
                    replay::Rule::FORMS
                )
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

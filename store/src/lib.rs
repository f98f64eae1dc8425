//! Keeps every record of every run exactly once, in SQLite or MariaDB, and adds up what the runs cost.
//!
//! Whatever gives a [`Result`] gives what the database says as its [`Error`]; only other errors are named beside it.

pub mod account;
mod apply;
mod calibrations;
mod database;
mod error;
mod failures;
mod history;
mod holders;
mod keeping;
mod lending;
mod nodes;
mod ordering;
mod readers;
mod report;
mod rows;
mod runs;
mod store;
mod value;
mod writer;

pub use database::leadership::Leadership;
pub use database::{Connection, Row, shown};
pub use error::{Error, Result};
pub use nodes::{Before, NodeWatch};
pub use ordering::{KeptOrder, concerns_orders};
pub use readers::Readers;
pub use runs::{FlexibleRun, OpenRun, RunRow};
pub use rusqlite::types::Value;
pub use store::{Store, Write};
pub use writer::Writer;

//! `[limits]`: what one user may ask of the services.

use serde::Deserialize;

/// `[limits]`
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Requests a second in the long run; ten times as many may come at once.
    pub requests_per_s: f64,
    /// Bytes of records within a day.
    pub bytes_per_day: u64,
    /// Runs that have not ended.
    pub open_runs: u32,
    /// Runs that begin within a day.
    pub runs_per_day: u32,
    /// Commands to Slurm that the controller runs for the user's records, orders and loans, a minute.
    pub slurm_commands_per_minute: u32,
    /// Bytes of records that the store keeps of the user's runs; the oldest that have ended make room.
    pub stored_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            requests_per_s: 100.0,
            bytes_per_day: 1 << 30,
            open_runs: 20_000,
            runs_per_day: 100_000,
            slurm_commands_per_minute: 600,
            stored_bytes: 10 << 30,
        }
    }
}

impl Limits {
    /// What is wrong with them: the key, and what it must be.
    pub(crate) fn wrong(&self) -> Option<String> {
        if !(self.requests_per_s.is_finite() && self.requests_per_s >= 1.0) {
            return Some(format!("limits.requests_per_s = {} must be a number from 1", self.requests_per_s));
        }
        let counts = [
            ("bytes_per_day", self.bytes_per_day),
            ("open_runs", self.open_runs.into()),
            ("runs_per_day", self.runs_per_day.into()),
            ("slurm_commands_per_minute", self.slurm_commands_per_minute.into()),
            ("stored_bytes", self.stored_bytes),
        ];
        let zero = counts.into_iter().find(|(_, value)| *value == 0);
        zero.map(|(key, _)| format!("limits.{key} = 0 would let no user in: write a number above 0"))
    }
}

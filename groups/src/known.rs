//! What outlives a driver of the script's calls in groups: which shares have ended for good and how, and in each line
//! what the open ones had written.
//!
//! Nothing that a script wrote down counts for another script.

use host::mail::now_s;
use run::write_durably;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use steps::calls::DOUBT_S;

/// What is known of calls, by name.
pub(super) type Known<T> = BTreeMap<String, T>;

/// What a call had written to standard output and standard error, bytes.
pub(super) type Written = [u64; 2];

/// How a group's share of a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) code: i32,
    at_s: f64,
    /// A call that is alike is open: nobody could tell which of them has ended.
    #[serde(skip)]
    pub(super) is_indistinct: bool,
}

impl Ended {
    pub(super) fn now(code: i32, is_indistinct: bool) -> Ended {
        Ended { code, at_s: now_s(), is_indistinct }
    }

    /// Whether it counts in a run that was last seen well at `well_s`: a dying node fails what runs on it.
    pub(super) fn counts(&self, well_s: f64) -> bool {
        self.code == 0 || self.at_s + DOUBT_S <= well_s
    }
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct Record<T> {
    script: String,
    calls: Known<T>,
}

/// What a file tells of this script's calls; nothing if it is of another script, or torn.
pub(super) fn read<T: DeserializeOwned>(path: &Path, script: &str) -> Known<T> {
    let record = fs::read(path).ok().and_then(|text| serde_json::from_slice::<Record<T>>(&text).ok());
    record.filter(|r| r.script == script).map(|r| r.calls).unwrap_or_default()
}

/// The text of such a file.
pub(super) fn text<T: Serialize>(script: &str, calls: Known<T>) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&Record { script: script.to_string(), calls })?)
}

/// Keeps durably which shares have ended.
pub(super) fn keep(path: &Path, script: &str, ended: &Known<Ended>) -> io::Result<()> {
    let distinct = ended.iter().filter(|(_, e)| !e.is_indistinct).map(|(name, e)| (name.clone(), *e));
    write_durably(path, &text(script, distinct.collect())?)
}

//! To which groups the calls went that do not need all: when the script begins anew they go there again, to their files and
//! checkpoints.

use crate::known::Known;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use steps::groups::split::Call;

/// File in a run's folder, to which each call adds a line: a sweep may have thousands.
const FILE: &str = "dealt.jsonl";

/// What is known of a run's calls.
#[derive(Clone)]
pub struct Dealt {
    file: PathBuf,
    /// Fingerprint of the script.
    script: String,
    state: Arc<Mutex<State>>,
}

struct State {
    /// How many calls there were that are alike, since the script began.
    alike: BTreeMap<String, u32>,
    groups: Known<Vec<usize>>,
}

impl Dealt {
    /// What was dealt in the run of this folder, to the script with this fingerprint.
    pub fn open(run: &Path, script: String) -> Dealt {
        let file = run.join(FILE);
        let text = fs::read_to_string(&file).unwrap_or_default();
        let told = text.lines().filter_map(|line| serde_json::from_str::<(String, String, Vec<usize>)>(line).ok());
        let groups = told.filter(|(of, ..)| *of == script).map(|(_, name, groups)| (name, groups)).collect();
        Dealt { file, script, state: Arc::new(Mutex::new(State { alike: BTreeMap::new(), groups })) }
    }

    /// Fingerprint of the script.
    pub(super) fn script(&self) -> &str {
        &self.script
    }

    /// Has the next call with this key go where it went before, or else to the groups that have the least to do. One that
    /// cannot be known again goes to the first groups.
    pub(super) fn deal(&self, key: Option<&str>, call: &mut Call, load: impl Fn(usize) -> usize) {
        let Some(key) = key.filter(|_| call.may_choose()) else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let count = state.alike.entry(key.to_string()).or_default();
        *count += 1;
        let name = format!("{key}.{count}");
        let before = state.groups.get(&name).cloned().unwrap_or_default();
        call.prefer(|group| (!before.contains(group), load(*group)));
        if before != call.groups() {
            if let Err(e) = self.keep(&name, &call.groups()) {
                tracing::warn!(%e, "it is not kept to which group a call went");
            }
            state.groups.insert(name, call.groups());
        }
    }

    fn keep(&self, name: &str, groups: &[usize]) -> io::Result<()> {
        // A line that was torn before spoils no other.
        let line = format!("\n{}", serde_json::to_string(&(&self.script, name, groups))?);
        let mut file = File::options().create(true).append(true).open(&self.file)?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_goes_to_the_same_groups_again_in_whatever_order_calls_come() {
        let run = tempfile::tempdir().unwrap();
        let dealt = |script: &str, calls: &[(&str, &str)]| -> Vec<Vec<usize>> {
            let dealt = Dealt::open(run.path(), script.to_string());
            let mut loads = [0, 0, 0];
            let mut deal = |(key, words): &(&str, &str)| {
                let words: Vec<String> = words.split(' ').map(str::to_string).collect();
                let mut call = Call::read(&words, &[1, 1, 1], |_| None).unwrap();
                dealt.deal(Some(key).filter(|key| !key.is_empty()).copied(), &mut call, |group| loads[group]);
                call.groups().iter().for_each(|group| loads[*group] += call.load_of(*group));
                call.groups()
            };
            calls.iter().map(&mut deal).collect()
        };
        let [a, b, c, pair, all] = [("a", "-n1 a"), ("b", "-n1 b"), ("c", "-n1 c"), ("d", "-N2 -n2 d"), ("e", "-n3 e")];
        assert_eq!(
            dealt("s", &[a, b, c, a, pair, all]),
            [vec![0], vec![1], vec![2], vec![0], vec![1, 2], vec![0, 1, 2]]
        );
        let kept = run.path().join(FILE);
        fs::write(&kept, fs::read_to_string(&kept).unwrap() + "\n[\"s\", \"c.1\", [0").unwrap();
        assert_eq!(dealt("s", &[c, a, b, pair, a]), [vec![2], vec![0], vec![1], vec![1, 2], vec![0]]);
        assert_eq!(dealt("s", &[("", "-n1 a"), ("", "-n1 b"), ("f", "-n1 f")]), [vec![0], vec![0], vec![1]]);
        assert_eq!(dealt("another", &[c, b]), [vec![0], vec![1]]);
    }
}

//! Names what changed between two calibrations beyond their errors.

use planner::calibrated::stale;
use protocol::{Calibration, Measured, Operation, Point, Storage};
use serde::Serialize;

/// A figure that changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Of what.
    pub what: String,
    /// Before.
    pub old: f64,
    /// After.
    pub new: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// What both errors explain, together.
    pub error: f64,
}

/// What two calibrations differ in.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Differences {
    /// Hardware and software that changed.
    pub fingerprint: Vec<String>,
    /// Figures that changed beyond their errors.
    pub changes: Vec<Change>,
    /// Figures that are in both.
    pub compared: usize,
    /// Points that only the old one has, and only the new one.
    pub only_old: usize,
    /// The same of the new one.
    pub only_new: usize,
}

/// Compares.
pub fn differences(old: &Calibration, new: &Calibration) -> Differences {
    let mut found = Differences { fingerprint: stale(&old.fingerprint, &new.fingerprint), ..Differences::default() };
    for (node, old_w) in &old.power.idle_w {
        if let Some(new_w) = new.power.idle_w.get(node) {
            let error = 2.0 * (old.noise.delta_w + new.noise.delta_w);
            found.compare(format!("idle power of {node}"), *old_w, *new_w, "W", error);
        }
    }
    let (before, after) = (points(old), points(new));
    for (key, was) in &before {
        let Some((_, is)) = after.iter().find(|(k, p)| k == key && is_same_place(p, was)) else {
            found.only_old += 1;
            continue;
        };
        let name = name(*key, was);
        found.compare(format!("time of {name}"), was.time_s, is.time_s, "s", was.time_ci_s + is.time_ci_s);
        // Without an interval of its own a power is as uncertain as a single repetition.
        let error_w = |p: &Point, c: &Calibration| p.delta_ci_w.unwrap_or(2.0 * c.noise.delta_w);
        let error = error_w(was, old) + error_w(is, new);
        found.compare(format!("extra power of {name}"), was.delta_w, is.delta_w, "W", error);
    }
    let known = |key, p: &Point| before.iter().any(|(k, b)| *k == key && is_same_place(b, p));
    found.only_new = after.iter().filter(|(k, p)| !known(*k, p)).count();
    found
}

type Key = (Operation, Option<Storage>);

fn points(c: &Calibration) -> Vec<(Key, &Point)> {
    let of = |m: &'_ Measured| (m.operation, m.storage);
    c.measured.iter().flat_map(|m| m.points.iter().map(move |p| (of(m), p))).collect()
}

fn is_same_place(a: &Point, b: &Point) -> bool {
    (a.nodes, a.processes, a.bytes, a.intensity, a.frequency_hz)
        == (b.nodes, b.processes, b.bytes, b.intensity, b.frequency_hz)
}

fn name((operation, storage): Key, p: &Point) -> String {
    let storage = storage.map_or(String::new(), |s| format!(" ({})", s.as_str()));
    let volume = if p.bytes > 0.0 { format!(", {:.1} MiB", p.bytes / 1_048_576.0) } else { String::new() };
    let hz = p.frequency_hz.map_or(String::new(), |f| format!(", {:.2} GHz", f / 1e9));
    let part = if p.intensity < 1.0 { format!(", {:.0} %", 100.0 * p.intensity) } else { String::new() };
    format!("{}{storage} at N={}, p={}{volume}{part}{hz}", operation.as_str(), p.nodes, p.processes)
}

impl Differences {
    fn compare(&mut self, what: String, old: f64, new: f64, unit: &'static str, error: f64) {
        self.compared += 1;
        if (new - old).abs() > error {
            self.changes.push(Change { what, old, new, unit, error });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::tests::generated;

    #[test]
    fn only_what_changed_beyond_the_error_is_named() {
        let (old, mut new) = (generated(1), generated(2));
        let calm = differences(&old, &new);
        assert!(calm.changes.len() * 10 <= calm.compared, "{} of {}", calm.changes.len(), calm.compared);
        assert!(differences(&old, &old).changes.is_empty());
        new.measured[0].points[3].time_s *= 2.0;
        new.fingerprint.kernel = "6.9".into();
        new.measured[0].points.pop();
        let found = differences(&old, &new);
        assert_eq!((found.fingerprint.len(), found.only_old, found.only_new), (1, 1, 0));
        let named = found.changes.iter().any(|c| c.what.starts_with("time of checkpoint_write (local) at N=1, p=4"));
        assert!(named, "{:?}", found.changes);
    }
}

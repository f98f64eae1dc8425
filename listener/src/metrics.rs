//! `/metrics` in OpenMetrics: base units, and labels with few values.

use axum::response::{IntoResponse, Response};
use std::fmt::Write;

/// A metric family being written: `name` without `_total`, a type, a unit that the name ends with, and a help text.
pub struct Family {
    text: String,
    name: &'static str,
    suffix: &'static str,
}

impl Family {
    /// A value that goes up only, since the service began.
    pub fn counter(name: &'static str, unit: &str, help: &str) -> Family {
        Family::new(name, "counter", "_total", unit, help)
    }

    /// A value that goes up and down.
    pub fn gauge(name: &'static str, unit: &str, help: &str) -> Family {
        Family::new(name, "gauge", "", unit, help)
    }

    /// Facts as labels.
    pub fn info(name: &'static str, help: &str) -> Family {
        Family::new(name, "info", "_info", "", help)
    }

    /// Samples in steps, already written; without a unit line, at which some readers of histograms stop.
    pub fn histogram(name: &'static str, help: &str, samples: &str) -> Family {
        let mut family = Family::new(name, "histogram", "", "", help);
        family.text += samples;
        family
    }

    fn new(name: &'static str, kind: &str, suffix: &'static str, unit: &str, help: &str) -> Family {
        let unit = if unit.is_empty() { String::new() } else { format!("# UNIT {name} {unit}\n") };
        Family { text: format!("# TYPE {name} {kind}\n{unit}# HELP {name} {help}\n"), name, suffix }
    }

    /// One sample; labels as pairs.
    pub fn sample(mut self, labels: &[(&str, &str)], value: f64) -> Family {
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.text, "{}{}{labels} {value}", self.name, self.suffix);
        self
    }
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The families as one exposition.
pub fn exposition(families: Vec<Family>) -> Response {
    let mut text: String = families.into_iter().map(|f| f.text).collect();
    text.push_str("# EOF\n");
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

/// What every role tells of itself: its version, its CPU time and its memory.
pub fn process(role: &str) -> Vec<Family> {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("role", role)];
    let mut families = vec![Family::info("joulepoint", "This service.").sample(&labels, 1.0)];
    if let Ok(time) = nix::time::clock_gettime(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID) {
        let cpu_s = time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9;
        let help = "CPU time of this service.";
        families.push(Family::counter("process_cpu_seconds", "seconds", help).sample(&[], cpu_s));
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Memory of this service.";
        families.push(Family::gauge("process_resident_memory_bytes", "bytes", help).sample(&[], bytes));
    }
    families
}

fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib: f64 = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}

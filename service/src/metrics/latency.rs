//! Counts how long something took, in the steps of an OpenMetrics histogram.

use listener::metrics::Family;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the steps, microseconds.
const BOUNDS_US: [u64; 12] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 1_000_000];

/// A histogram.
#[derive(Debug, Default)]
pub struct Latency {
    steps: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Counts one.
    pub fn took(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let step = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        self.steps[step].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// A metric family that ends in `_seconds`.
    pub fn family(&self, name: &'static str, help: &str) -> Family {
        let mut text = String::new();
        let mut count = 0;
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string()).chain(["+Inf".to_string()]);
        for (bound, step) in bounds.zip(&self.steps) {
            count += step.load(Ordering::Relaxed);
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let sum_s = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_count {count}\n{name}_sum {sum_s}");
        Family::histogram(name, help, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_add_up_and_end_in_all() {
        let latency = Latency::default();
        for us in [1, 50, 51, 700, 5_000_000] {
            latency.took(Duration::from_micros(us));
        }
        let text = latency.family("x_seconds", "Time.").to_string();
        for line in ["le=\"0.00005\"} 2", "le=\"0.0001\"} 3", "le=\"0.001\"} 4", "le=\"1\"} 4", "le=\"+Inf\"} 5"] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(text.ends_with("x_seconds_count 5\nx_seconds_sum 5.000802\n"), "{text}");
    }
}

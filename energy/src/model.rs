//! Estimates the node's energy from configured watts and CPU time, where nothing can be measured.

use crate::{Load, Model};

/// A straight line from idle to busy.
pub(crate) struct Reckoned {
    model: Model,
    last: Option<(f64, f64)>,
}

impl Reckoned {
    /// A model that describes no machine is replaced by the built-in one.
    pub(crate) fn new(model: Model) -> Reckoned {
        let model = if model.is_sane() { model } else { Model::default() };
        Reckoned { model, last: None }
    }

    /// The joules since the call before; a load that falls or exceeds the CPUs is held within what is possible.
    pub(crate) fn advance(&mut self, now_s: f64, load: &Load) -> f64 {
        let Some((last_s, last_cpu_s)) = self.last.replace((now_s, load.cpu_s)) else { return 0.0 };
        let dt_s = (now_s - last_s).max(0.0);
        let possible_s = f64::from(load.cpus.max(1)) * dt_s;
        let share = if possible_s > 0.0 { ((load.cpu_s - last_cpu_s) / possible_s).clamp(0.0, 1.0) } else { 0.0 };
        dt_s * (self.model.idle_w + (self.model.busy_w - self.model.idle_w) * share)
    }

    /// The parameters of the estimate, in words.
    pub(crate) fn describe(&self) -> String {
        format!("model: {} W idle, {} W with all CPUs busy", self.model.idle_w, self.model.busy_w)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cpu_s: f64) -> Load {
        Load { cpu_s, cpus: 4 }
    }

    #[test]
    fn a_straight_line_held_within_the_possible() {
        let mut m = Reckoned::new(Model { idle_w: 100.0, busy_w: 300.0 });
        assert_eq!(m.advance(0.0, &at(50.0)), 0.0);
        assert_eq!(m.advance(1.0, &at(50.0)), 100.0);
        assert_eq!(m.advance(2.0, &at(52.0)), 200.0);
        assert_eq!(m.advance(3.0, &at(99.0)), 300.0, "no more than busy");
        assert_eq!(m.advance(4.0, &at(0.0)), 100.0, "no less than idle");
        assert_eq!(m.advance(2.0, &at(9.0)), 0.0, "no time, no energy");
    }

    #[test]
    fn an_impossible_model_is_replaced() {
        for (idle_w, busy_w) in [(0.0, 0.0), (-1.0, 5.0), (300.0, 100.0), (f64::NAN, 5.0)] {
            let mut m = Reckoned::new(Model { idle_w, busy_w });
            m.advance(0.0, &at(0.0));
            assert_eq!(m.advance(1.0, &at(0.0)), Model::default().idle_w, "{idle_w} {busy_w}");
        }
    }
}

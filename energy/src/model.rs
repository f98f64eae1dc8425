//! Reckons the node's energy from configured watts and the CPU time used, where nothing can be measured.

use crate::{Config, Error, Load, Model, Source, SourceKind};

/// A straight line from idle to busy.
pub(crate) struct Reckoned {
    model: Model,
    last: Option<(f64, f64)>,
    joules: f64,
}

impl Reckoned {
    pub(crate) fn open(config: &Config) -> Result<Reckoned, Error> {
        if !config.model.is_sane() {
            let Model { idle_w, busy_w } = config.model;
            return Err(Error::refused(format!(
                "idle_w = {idle_w} and busy_w = {busy_w} describe no node (0 <= idle_w <= busy_w, busy_w > 0)"
            )));
        }
        Ok(Reckoned::with(config.model))
    }

    pub(crate) fn with(model: Model) -> Reckoned {
        Reckoned { model, last: None, joules: 0.0 }
    }

    /// The joules so far; a load that falls or exceeds the CPUs is held within what is possible.
    pub(crate) fn advance(&mut self, now_s: f64, load: &Load) -> f64 {
        if let Some((last_s, last_cpu_s)) = self.last {
            let dt_s = (now_s - last_s).max(0.0);
            let possible_s = f64::from(load.cpus.max(1)) * dt_s;
            let share = if possible_s > 0.0 { ((load.cpu_s - last_cpu_s) / possible_s).clamp(0.0, 1.0) } else { 0.0 };
            self.joules += dt_s * (self.model.idle_w + (self.model.busy_w - self.model.idle_w) * share);
        }
        self.last = Some((now_s, load.cpu_s));
        self.joules
    }
}

impl Source for Reckoned {
    fn kind(&self) -> SourceKind {
        SourceKind::Model
    }

    fn joules(&mut self, now_s: f64, load: &Load) -> Result<f64, Error> {
        Ok(self.advance(now_s, load))
    }

    fn describe(&self) -> String {
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
        let mut m = Reckoned::with(Model { idle_w: 100.0, busy_w: 300.0 });
        assert_eq!(m.advance(0.0, &at(50.0)), 0.0);
        assert_eq!(m.advance(1.0, &at(50.0)), 100.0);
        assert_eq!(m.advance(2.0, &at(52.0)), 300.0);
        assert_eq!(m.advance(3.0, &at(99.0)), 600.0, "no more than busy");
        assert_eq!(m.advance(4.0, &at(0.0)), 700.0, "no less than idle");
        assert_eq!(m.advance(2.0, &at(9.0)), 700.0, "no time, no energy");
    }

    #[test]
    fn an_impossible_model_is_refused() {
        for (idle_w, busy_w) in [(0.0, 0.0), (-1.0, 5.0), (300.0, 100.0), (f64::NAN, 5.0)] {
            let config = Config { model: Model { idle_w, busy_w }, ..Config::default() };
            assert!(Reckoned::open(&config).is_err(), "{idle_w} {busy_w}");
        }
    }
}

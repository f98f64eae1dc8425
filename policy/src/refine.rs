//! Corrects calibrated estimates by what real runs show, without letting one odd run spoil them.
//!
//! The correction is a factor, learnt as a logarithm: an exponentially forgetting mean whose every step is clipped
//! at a few times the usual distance of a measurement from it (Huber's idea).

use crate::invalid::{Invalid, positive};

/// Weight of a new measurement: that of the calibration itself is that of the first ten.
const WEIGHT: f64 = 0.1;

/// A measurement moves the mean as if it lay at most this many usual distances away.
const CLIP: f64 = 2.0;

/// Distance that is usual before anything is known, of a logarithm: a factor of 1.1.
const FIRST_SPREAD: f64 = 0.1;

/// The usual distance is never taken for less, so that a calm series does not lock the factor.
const LEAST_SPREAD: f64 = 0.02;

/// The factor stays within this and its inverse: beyond, the calibration is wrong, not the run.
const LIMIT: f64 = 10.0;

/// A factor for one operation and storage target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Correction {
    /// Measured over estimated.
    pub factor: f64,
    /// Mean distance of the logarithm of a measurement from that of the factor.
    pub spread: f64,
    /// Measurements so far.
    pub count: u32,
}

impl Default for Correction {
    fn default() -> Self {
        Correction { factor: 1.0, spread: FIRST_SPREAD, count: 0 }
    }
}

impl Correction {
    /// The correction after one more run.
    ///
    /// # Errors
    /// When either figure is not above zero.
    pub fn learn(self, measured: f64, estimated: f64) -> Result<Correction, Invalid> {
        positive("measured", measured)?;
        positive("estimated", estimated)?;
        let distance = (measured / estimated).ln() - self.factor.ln();
        let usual = self.spread.max(LEAST_SPREAD);
        let clipped = distance.clamp(-CLIP * usual, CLIP * usual);
        let limit = LIMIT.ln();
        let log = (self.factor.ln() + WEIGHT * clipped).clamp(-limit, limit);
        // The spread may double by one odd run, so that a true change is followed after a few.
        let spread = self.spread + WEIGHT * (distance.abs().min(2.0 * CLIP * usual) - self.spread);
        Ok(Correction { factor: log.exp(), spread, count: self.count.saturating_add(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ratios: impl IntoIterator<Item = f64>) -> Correction {
        ratios.into_iter().fold(Correction::default(), |c, r| c.learn(r, 1.0).unwrap())
    }

    #[test]
    fn one_odd_run_does_not_spoil_it() {
        let calm = [1.2, 1.22, 1.18, 1.21].into_iter().cycle().take(40);
        let before = after(calm.clone());
        assert!((before.factor - 1.2).abs() < 0.03, "{before:?}");
        for odd in [100.0, 1e-6, 1e9] {
            let then = before.learn(odd, 1.0).unwrap();
            assert!((then.factor / before.factor).ln().abs() < 0.02, "{odd}: {then:?}");
            let later =
                [1.2, 1.22, 1.18, 1.21].into_iter().cycle().take(20).fold(then, |c, r| c.learn(r, 1.0).unwrap());
            assert!((later.factor - 1.2).abs() < 0.03, "{odd}: {later:?}");
        }
    }

    #[test]
    fn the_first_run_may_be_the_odd_one() {
        let c = after([50.0]);
        assert!(c.factor < 1.12, "{c:?}");
    }

    #[test]
    fn a_lasting_change_is_followed() {
        let c = after(std::iter::repeat_n(1.0, 30).chain(std::iter::repeat_n(2.0, 60)));
        assert!((c.factor - 2.0).abs() < 0.1, "{c:?}");
    }

    #[test]
    fn it_stays_within_its_limits_and_refuses_nonsense() {
        let c = after(std::iter::repeat_n(1e6, 500));
        assert!(c.factor <= LIMIT * (1.0 + 1e-12), "{c:?}");
        assert!(Correction::default().learn(0.0, 1.0).is_err());
        assert!(Correction::default().learn(1.0, f64::NAN).is_err());
    }
}

//! Finds the speed of a shadow that follows a main process and takes over when it fails (Mills).
//!
//! Power is the square of the speed, failures are exponential, and one failure at most strikes. Errata: F1 R_min and
//! t_c are W / s; F2 the density lacks lambda; F3 eq. 10 has the wrong sign; F4 t_r and the work constraint use t_f;
//! F5 Table 1 holds for W / MTBF = 24 over the MTBF in days, and its entry for 3 years, 2.00 should be 0.0084; F6 the
//! gap to stretched at laxity 2 is 11.6 %, not 13 %; F7 50 % is not an upper bound.

use crate::invalid::{Invalid, positive, require};
use crate::special::ei_scaled;

/// Parameters of Mills's model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shadow {
    /// Work, W > 0, in seconds at speed 1.
    pub work: f64,
    /// The main process's speed, s > 0.
    pub speed_max: f64,
    /// The response time promised, over the failure-free time; at least 1.
    pub laxity: f64,
    /// Mean time between failures of the main process, > 0.
    pub mtbf_s: f64,
}

/// Expected energy of one shadow speed, in units of speed squared times seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShadowEnergy {
    /// The main process until it ends or fails.
    pub main: f64,
    /// The shadow until then.
    pub shadow_before: f64,
    /// The shadow after the failure.
    pub shadow_after: f64,
}

impl ShadowEnergy {
    /// Main and shadow together.
    pub fn total(&self) -> f64 {
        self.main + self.shadow_before + self.shadow_after
    }
}

impl Shadow {
    /// Refuses parameters for which the model has no meaning.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("W", self.work)?;
        positive("sigma_max", self.speed_max)?;
        require(self.laxity >= 1.0, "laxity", self.laxity, "finite, >= 1")?;
        positive("mtbf", self.mtbf_s)
    }

    /// t_c = W / s.
    pub fn completion_s(&self) -> f64 {
        self.work / self.speed_max
    }

    /// R = laxity W / s.
    pub fn response_s(&self) -> f64 {
        self.laxity * self.completion_s()
    }

    /// S = exp(-t_c / MTBF).
    pub fn survival(&self) -> f64 {
        (-self.completion_s() / self.mtbf_s).exp()
    }

    /// 1 - S.
    pub fn failure_probability(&self) -> f64 {
        -(-self.completion_s() / self.mtbf_s).exp_m1()
    }

    /// lam R e^(-lam R) [Ei(lam R) - Ei(lam (R - t_c))], finite for laxity > 1.
    fn integral(&self) -> f64 {
        let rate = 1.0 / self.mtbf_s;
        let (r, rest) = (rate * self.response_s(), rate * (self.response_s() - self.completion_s()));
        r * (ei_scaled(r) - self.survival() * ei_scaled(rest))
    }

    /// The corrected eq. 10: the speed before the failure that minimises expected energy, W I / (R I + S t_c).
    pub fn speed_unconstrained(&self) -> f64 {
        let i = self.integral() - self.failure_probability();
        if self.laxity <= 1.0 || !i.is_finite() {
            return self.work / self.response_s();
        }
        let i = i.max(0.0);
        self.work * i / (self.response_s() * i + self.survival() * self.completion_s())
    }

    /// max(0, s (2 - laxity)): at lower speeds the shadow could not finish in time at speed s.
    pub fn speed_work_bound(&self) -> f64 {
        (self.speed_max * (2.0 - self.laxity)).max(0.0)
    }

    /// The larger of the unconstrained speed and the work bound.
    pub fn speed_optimal(&self) -> f64 {
        self.speed_unconstrained().max(self.speed_work_bound())
    }

    /// W / R: one speed throughout.
    pub fn speed_stretched(&self) -> f64 {
        self.work / self.response_s()
    }

    /// sigma_a(t) = (W - sigma_b t) / (R - t): the speed after a failure at `t`; none where no time is left.
    pub fn speed_after(&self, speed_before: f64, failure_s: f64) -> Option<f64> {
        let left_s = self.response_s() - failure_s;
        (left_s > 0.0).then(|| (self.work - speed_before * failure_s) / left_s)
    }

    /// E[min(t, t_c)].
    fn expected_main_s(&self) -> f64 {
        self.failure_probability() * self.mtbf_s
    }

    /// Energy of two processes at full speed: s^2 (E[min(t, t_c)] + t_c).
    pub fn energy_pure_replication(&self) -> f64 {
        self.speed_max * self.speed_max * (self.expected_main_s() + self.completion_s())
    }

    /// Expected energy with the shadow at `speed_before` until the failure.
    pub fn energy(&self, speed_before: f64) -> ShadowEnergy {
        let main_s = self.expected_main_s();
        let fails = self.failure_probability();
        let response_s = self.response_s();
        // (W - sigma t)^2 / (R - t) = d^2 / u + 2 d sigma + sigma^2 u with u = R - t and d = W - sigma R.
        let d = self.work - speed_before * response_s;
        let d = if d.abs() <= 1e-14 * self.work { 0.0 } else { d };
        let inverse = if d == 0.0 { 0.0 } else { d * d * self.integral() / response_s };
        let mean_left = response_s * fails - (main_s - self.completion_s() * self.survival());
        ShadowEnergy {
            main: self.speed_max * self.speed_max * main_s,
            shadow_before: speed_before * speed_before * main_s,
            shadow_after: inverse + 2.0 * d * speed_before * fails + speed_before * speed_before * mean_left,
        }
    }
}

//! Gives energy-optimal intervals with runtime and I/O bounds in closed form (ElSayed14).
//!
//! Intervals exclude the checkpoint. The closed forms hold for C much smaller than the MTTF and for failures whose
//! restart costs nothing. Errata: C1 the runtime bound alone overshoots the energy optimum when
//! 1 + t > (sqrt r + 1 / sqrt r) / 2; C2 eq. 4 is strict, equality is used here; C3 the I/O share is C / Delta in
//! eq. 5 and C / (Delta + C) in eq. 6, which is used here.

use crate::invalid::{Invalid, non_negative, positive, require};

/// Parameters of ElSayed14's model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ElSayed {
    /// Duration of a checkpoint, C > 0.
    pub checkpoint_s: f64,
    /// Mean time to failure, M > 0.
    pub mttf_s: f64,
    /// Power of computing over power of checkpointing, r > 0.
    pub ratio: f64,
}

/// Waste of one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waste {
    /// The interval.
    pub interval_s: f64,
    /// Wasted share of time, C/D + D/(2M).
    pub time: f64,
    /// Wasted energy over N P_comp, C/(r D) + D/(2M).
    pub energy: f64,
    /// I/O share, C / (D + C).
    pub io: f64,
    /// Wasted time over that of the time optimum, minus one.
    pub time_overhead: f64,
    /// One minus wasted energy over that of the time optimum.
    pub energy_saving: f64,
}

impl ElSayed {
    /// Refuses parameters for which the model has no meaning.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("C", self.checkpoint_s)?;
        positive("MTTF", self.mttf_s)?;
        positive("ratio", self.ratio)
    }

    /// Delta_R = sqrt(2 C M).
    pub fn time_interval_s(&self) -> f64 {
        (2.0 * self.checkpoint_s * self.mttf_s).sqrt()
    }

    /// Delta_E = sqrt(2 C M / r).
    pub fn energy_interval_s(&self) -> f64 {
        (2.0 * self.checkpoint_s * self.mttf_s / self.ratio).sqrt()
    }

    /// Delta_R ((1 + t) - sqrt((1 + t)^2 - 1)): the shortest interval whose wasted time is at most (1 + t) times the
    /// least (eq. 4 with equality, erratum C2). Refuses t < 0.
    pub fn bound_interval_s(&self, threshold: f64) -> Result<f64, Invalid> {
        non_negative("runtime_threshold", threshold)?;
        // (1 + t) - sqrt((1 + t)^2 - 1), written without cancellation.
        let (u, root) = (1.0 + threshold, (threshold * (2.0 + threshold)).sqrt());
        Ok(self.time_interval_s() / (u + root))
    }

    /// The longest interval whose wasted time is at most (1 + t) times the least: Delta_R^2 / Delta_bound.
    pub fn bound_upper_interval_s(&self, threshold: f64) -> Result<f64, Invalid> {
        non_negative("runtime_threshold", threshold)?;
        let (u, root) = (1.0 + threshold, (threshold * (2.0 + threshold)).sqrt());
        Ok(self.time_interval_s() * (u + root))
    }

    /// Energy under the runtime bound: max(Delta_E, Delta_bound) (erratum C1: the bound alone overshoots). For r >= 1;
    /// below, Delta_E lies above Delta_R and may pass the upper end, which [`crate::interval::choose_interval`] keeps.
    pub fn energy_interval_bounded_s(&self, threshold: f64) -> Result<f64, Invalid> {
        Ok(self.energy_interval_s().max(self.bound_interval_s(threshold)?))
    }

    /// Energy under a bound b on C / (Delta + C): max(Delta_E, C/b - C) (eq. 6, erratum C3). Refuses b outside (0, 1].
    pub fn energy_interval_io_s(&self, io_bound: f64) -> Result<f64, Invalid> {
        require(io_bound > 0.0 && io_bound <= 1.0, "io_bound", io_bound, "> 0, <= 1")?;
        Ok(self.energy_interval_s().max(self.checkpoint_s / io_bound - self.checkpoint_s))
    }

    /// (sqrt r + 1 / sqrt r) / 2 - 1: from this threshold on, the runtime bound no longer binds (erratum C1).
    pub fn threshold_reaching_energy_optimum(&self) -> f64 {
        let root = self.ratio.sqrt();
        (root + 1.0 / root) / 2.0 - 1.0
    }

    /// Waste of one interval.
    pub fn waste(&self, interval_s: f64) -> Waste {
        let parts = |d: f64| {
            let (io, lost) = (self.checkpoint_s / d, d / (2.0 * self.mttf_s));
            (io + lost, io / self.ratio + lost)
        };
        let (time, energy) = parts(interval_s);
        let (least_time, reference_energy) = parts(self.time_interval_s());
        Waste {
            interval_s,
            time,
            energy,
            io: self.checkpoint_s / (interval_s + self.checkpoint_s),
            time_overhead: time / least_time - 1.0,
            energy_saving: 1.0 - energy / reference_energy,
        }
    }
}

//! Gives application and platform waste of uncoordinated checkpointing, and when lending pays (Bouteiller13).
//!
//! Times in seconds; T is the period, checkpoint included, and must hold its checkpoint. The closed forms hold for
//! failures that do not overlap, so for wastes well below one. Errata: D1 eq. 10's left side is (1 - w_ff)(1 -
//! w_fail) T_final; D2 eq. 12 needs Z clamped to [0, T]; D3 with beta = 0 the platform optimum can be infinite, so it
//! is capped and flagged; D4 X uses C where max(C, D) is right; D5 overlapping failures make the closed form
//! overestimate by 1 to 7 % ([`Bouteiller::overlap_waste`] counts them).

use crate::calibration::falling_to_rising;
use crate::invalid::{Invalid, fraction, non_negative, positive, require};
use crate::memoryless::golden_section;

/// Where checkpoints are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// On a file system outside the groups.
    Remote,
    /// On the groups' own disks: the spare group's share is lost, C0 grows by (G + 1) / G on the platform.
    Local,
}

/// Whose waste is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The application alone.
    App,
    /// The platform, which lends the survivors while one group re-executes.
    Plat,
}

/// Parameters of Bouteiller13.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bouteiller {
    /// MTBF of the platform, mu_p > 0.
    pub mtbf_s: f64,
    /// Number of groups, G >= 1.
    pub groups: f64,
    /// Checkpoint duration at the start, C0 > 0.
    pub checkpoint_s: f64,
    /// Down time, D >= 0; the paper assumes D <= C (erratum D4).
    pub down_s: f64,
    /// Restart, R >= 0.
    pub restart_s: f64,
    /// Work speed during a checkpoint, alpha in [0, 1].
    pub alpha: f64,
    /// Work speed under message logging, lambda in (0, 1].
    pub lambda: f64,
    /// Speed-up of re-execution, rho > 0.
    pub rho: f64,
    /// Growth of the checkpoint with logged messages, beta >= 0, per second of work.
    pub beta: f64,
    /// Loading a borrower, L >= 0.
    pub load_s: f64,
    /// Saving a borrower, S >= 0.
    pub save_s: f64,
    /// Cap on the platform's period where no finite one is best.
    pub cap_s: f64,
    /// Where checkpoints are stored.
    pub storage: Storage,
}

/// Waste at one period, as shares of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waste {
    /// w_ff + w_fail - w_ff w_fail; on the platform 1 / (G + 1) + G / (G + 1) times it.
    pub waste: f64,
    /// w_ff = (T - W) / T: without failures.
    pub failure_free: f64,
    /// w_fail: by failures.
    pub failures: f64,
    /// Checkpoint duration at this period.
    pub checkpoint_s: f64,
    /// W = lambda (T - (1 - alpha) C): work of a period.
    pub work_s: f64,
    /// X = Y + R: node time lost by lending (platform only).
    pub x_s: f64,
    /// Y = C + L + S (platform only).
    pub y_s: f64,
    /// Z = rho Y - alpha C: until then the survivors wait; before it is clamped (platform only, erratum D2).
    pub z_s: f64,
    /// Z in [0, T] (platform only).
    pub z_clamped_s: f64,
    /// T >= C.
    pub period_ge_checkpoint: bool,
    /// D <= C (erratum D4).
    pub down_le_checkpoint: bool,
    /// The failures' waste is below one.
    pub lost_lt_mtbf: bool,
}

impl Bouteiller {
    /// Refuses parameters for which the model has no meaning.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("mu_p", self.mtbf_s)?;
        require(self.groups >= 1.0, "G", self.groups, "finite, >= 1")?;
        positive("C0", self.checkpoint_s)?;
        non_negative("D", self.down_s)?;
        non_negative("R", self.restart_s)?;
        fraction("alpha", self.alpha)?;
        require(self.lambda > 0.0 && self.lambda <= 1.0, "lam", self.lambda, "> 0, <= 1")?;
        positive("rho", self.rho)?;
        non_negative("beta", self.beta)?;
        non_negative("L", self.load_s)?;
        non_negative("S", self.save_s)?;
        positive("T_cap", self.cap_s)
    }

    fn c0(&self, scope: Scope) -> f64 {
        match (scope, self.storage) {
            (Scope::Plat, Storage::Local) => self.checkpoint_s * (self.groups + 1.0) / self.groups,
            _ => self.checkpoint_s,
        }
    }

    /// k0 and k1 of C(T) = C0 (1 + beta lambda T) / (1 + C0 beta lambda (1 - alpha)) = k0 + k1 T.
    pub fn growth(&self, scope: Scope) -> (f64, f64) {
        let c0 = self.c0(scope);
        let denominator = 1.0 + c0 * self.beta * self.lambda * (1.0 - self.alpha);
        (c0 / denominator, c0 * self.beta * self.lambda / denominator)
    }

    /// The shortest period that holds its checkpoint, k0 / (1 - k1); infinite where none does.
    pub fn shortest_period_s(&self, scope: Scope) -> f64 {
        let (k0, k1) = self.growth(scope);
        if k1 < 1.0 { k0 / (1.0 - k1) } else { f64::INFINITY }
    }

    /// Waste at a period (eq. 10 and 12 with errata D1 and D2 mended). Below the shortest period, and where failures
    /// cost everything, the figures are what the formulas give; the flags of [`Waste`] say so.
    pub fn waste(&self, scope: Scope, period_s: f64) -> Waste {
        let (k0, k1) = self.growth(scope);
        let (t, mu) = (period_s, self.mtbf_s);
        let c = k0 + k1 * t;
        let work_s = self.lambda * (t - (1.0 - self.alpha) * c);
        let ff = (t - work_s) / t;
        let y = c + self.load_s + self.save_s;
        let z = self.rho * y - self.alpha * c;
        let z_clamped = z.min(t).max(0.0);
        let (fail, waste) = match scope {
            Scope::App => {
                let fail = (self.down_s + self.restart_s + (t / 2.0 + self.alpha * c) / self.rho) / mu;
                (fail, ff + fail - ff * fail)
            }
            Scope::Plat => {
                let x = y + self.restart_s;
                let kept = self.restart_s + (self.alpha * c + z_clamped / 2.0) / self.rho;
                let fail = ((t - z_clamped) / t * x + z_clamped / t * kept) / mu;
                let g = self.groups;
                (fail, 1.0 / (g + 1.0) + g / (g + 1.0) * (ff + fail - ff * fail))
            }
        };
        Waste {
            waste,
            failure_free: ff,
            failures: fail,
            checkpoint_s: c,
            work_s,
            x_s: y + self.restart_s,
            y_s: y,
            z_s: z,
            z_clamped_s: z_clamped,
            // The shortest period holds its checkpoint up to rounding.
            period_ge_checkpoint: t >= c * (1.0 - 1e-12),
            down_le_checkpoint: self.down_s <= c,
            lost_lt_mtbf: fail < 1.0,
        }
    }

    /// sqrt(v (1 - p) / ((1 - u) q)) with or without the down time.
    fn closed_form_s(&self, scope: Scope, down_s: f64) -> f64 {
        let (k0, k1) = self.growth(scope);
        let kept = self.lambda * (1.0 - (1.0 - self.alpha) * k1);
        let v = self.lambda * (1.0 - self.alpha) * k0;
        let p = (down_s + self.restart_s + self.alpha * k0 / self.rho) / self.mtbf_s;
        let q = (0.5 + self.alpha * k1) / (self.rho * self.mtbf_s);
        (v * (1.0 - p) / (kept * q)).sqrt()
    }

    /// sqrt(v (1 - p) / ((1 - u) q)), the application's best period before it is clamped to the shortest; NaN where
    /// failures cost everything (p > 1).
    pub fn app_period_unclamped_s(&self) -> f64 {
        self.closed_form_s(Scope::App, self.down_s)
    }

    /// The application's best period of at least the shortest; none where failures cost everything.
    pub fn app_period_s(&self) -> Option<f64> {
        let (t, least) = (self.app_period_unclamped_s(), self.shortest_period_s(Scope::App));
        (t.is_finite() && least.is_finite()).then(|| t.max(least))
    }

    /// The platform's best period, and whether it is unbounded and was cut to [`Bouteiller::cap_s`] (erratum D3): the
    /// least waste among the shortest period, the best with T <= Z, the best with T >= Z, and where the two meet.
    pub fn plat_period_s(&self) -> Option<(f64, bool)> {
        let least = self.shortest_period_s(Scope::Plat);
        if !least.is_finite() {
            return None;
        }
        let clamp = |t: f64| t.max(least);
        let mut candidates = vec![(least, false), (clamp(self.crossing_s()), false)];
        let short = self.closed_form_s(Scope::Plat, 0.0);
        if short.is_finite() {
            candidates.push((clamp(short), false));
        }
        match self.long_period_s() {
            Some(t) if t <= self.cap_s => candidates.push((clamp(t), false)),
            _ => candidates.push((clamp(self.cap_s), true)),
        }
        candidates
            .into_iter()
            .filter(|(t, _)| t.is_finite())
            .min_by(|(x, _), (y, _)| self.waste(Scope::Plat, *x).waste.total_cmp(&self.waste(Scope::Plat, *y).waste))
    }

    /// The period at which Z(T) = T; infinite where Z always exceeds T.
    fn crossing_s(&self) -> f64 {
        let (k0, k1) = self.growth(Scope::Plat);
        let z0 = self.rho * (k0 + self.load_s + self.save_s) - self.alpha * k0;
        let z1 = (self.rho - self.alpha) * k1;
        if z1 < 1.0 { (z0 / (1.0 - z1)).max(0.0) } else { f64::INFINITY }
    }

    /// The positive root of A k T^3 + (A m - v B) T - 2 v m = 0; none where the waste falls for ever.
    fn long_period_s(&self) -> Option<f64> {
        let (k0, k1) = self.growth(Scope::Plat);
        let mu = self.mtbf_s;
        let kept = self.lambda * (1.0 - (1.0 - self.alpha) * k1);
        let v = self.lambda * (1.0 - self.alpha) * k0;
        let z0 = self.rho * (k0 + self.load_s + self.save_s) - self.alpha * k0;
        let z1 = (self.rho - self.alpha) * k1;
        let b = 1.0 - (k0 + self.load_s + self.save_s + self.restart_s) / mu + z0 * z1 / (self.rho * mu);
        let k = (k1 - z1 * z1 / (2.0 * self.rho)) / mu;
        let m = z0 * z0 / (2.0 * self.rho * mu);
        let (cubic, linear, constant) = (kept * k, kept * m - v * b, -2.0 * v * m);
        let value = |t: f64| (cubic * t * t + linear) * t + constant;
        if cubic <= 0.0 {
            return (cubic == 0.0 && linear > 0.0).then(|| -constant / linear);
        }
        let (mut low, mut high) = (0.0, 1.0);
        while value(high) < 0.0 {
            high *= 2.0;
            if high > 1e30 {
                return None;
            }
        }
        for _ in 0..200 {
            let t = 0.5 * (low + high);
            if value(t) < 0.0 {
                low = t;
            } else {
                high = t;
            }
        }
        Some(0.5 * (low + high))
    }

    /// The period of least waste found by direct search between the shortest period and `longest_s`.
    pub fn period_by_search_s(&self, scope: Scope, longest_s: f64) -> Option<f64> {
        let least = self.shortest_period_s(scope);
        if !(least.is_finite() && least < longest_s) {
            return None;
        }
        let waste = |x: f64| self.waste(scope, x.exp()).waste;
        // The platform's waste may have two minima, on either side of T = Z.
        const STEPS: i32 = 400;
        let width = (longest_s / least).ln() / f64::from(STEPS);
        let at = |i: i32| least.ln() + width * f64::from(i);
        let best = (0..=STEPS).min_by(|i, j| waste(at(*i)).total_cmp(&waste(at(*j))))?;
        let found = golden_section(waste, at((best - 1).max(0)), at((best + 1).min(STEPS)));
        // Golden section resolves the square root of the precision only; the slope resolves more, except at a corner.
        const NEAR: f64 = 1e-4;
        let slope = |x: f64| waste(x + NEAR) - waste(x - NEAR);
        let refined = falling_to_rising(&slope, found - 10.0 * NEAR, found + 10.0 * NEAR).unwrap_or(found);
        Some(if waste(refined) <= waste(found) + 1e-15 { refined } else { found }.exp().max(least))
    }

    /// The application's waste when failures may strike during recovery (erratum D5): the recovery, of D + R +
    /// (alpha C + t1) / rho after a failure at t1, starts again with each of them, so that a period takes
    /// T E[exp(recovery / mu)].
    pub fn overlap_waste(&self, period_s: f64) -> f64 {
        let w = self.waste(Scope::App, period_s);
        let fixed = (self.down_s + self.restart_s + self.alpha * w.checkpoint_s / self.rho) / self.mtbf_s;
        let x = period_s / (self.rho * self.mtbf_s);
        let stretch = fixed.exp() * if x > 0.0 { x.exp_m1() / x } else { 1.0 };
        1.0 - (1.0 - w.failure_free) / stretch
    }

    /// The period of least [`Bouteiller::overlap_waste`].
    pub fn overlap_period_s(&self) -> Option<f64> {
        let least = self.shortest_period_s(Scope::App);
        let longest = 1e3 * (self.mtbf_s + least);
        if !least.is_finite() {
            return None;
        }
        let (k0, k1) = self.growth(Scope::App);
        let kept = self.lambda * (1.0 - (1.0 - self.alpha) * k1);
        let v = self.lambda * (1.0 - self.alpha) * k0;
        // The derivative of ln E[exp(recovery / mu)] - ln(1 - w_ff).
        let slope = |t: f64| {
            let x = t / (self.rho * self.mtbf_s);
            let stretch = if x < 1e-4 { 0.5 + x / 12.0 } else { 1.0 / -(-x).exp_m1() - 1.0 / x };
            (self.alpha * k1 + stretch) / (self.rho * self.mtbf_s) - v / (t * (kept * t - v))
        };
        Some(falling_to_rising(&slope, least.max(v / kept * (1.0 + 1e-12)), longest).unwrap_or(least))
    }
}

/// What to do with the survivors at a failure, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Lending {
    /// Whether lending pays.
    pub lend: bool,
    /// How long the survivors would idle.
    pub idle_s: f64,
    /// The shortest idle time that pays.
    pub break_even_s: f64,
    /// One sentence.
    pub reason: String,
}

/// Decides on lending (Bouteiller13), `since_line_s` (t1) after the last checkpoint, when one of `checkpoint_s` was
/// under way with work speed `alpha`: it pays if the re-execution, (alpha C + t1) / rho, lasts at least C + L + S and
/// what the scheduler needs. Refuses negative times, alpha outside [0, 1] and rho <= 0.
pub fn lending(
    since_line_s: f64,
    checkpoint_s: f64,
    alpha: f64,
    rho: f64,
    load_save_s: f64,
    scheduler_s: f64,
) -> Result<Lending, Invalid> {
    non_negative("t1", since_line_s)?;
    non_negative("C", checkpoint_s)?;
    fraction("alpha", alpha)?;
    positive("rho", rho)?;
    non_negative("L + S", load_save_s)?;
    non_negative("scheduler", scheduler_s)?;
    let idle_s = (alpha * checkpoint_s + since_line_s) / rho;
    let break_even_s = checkpoint_s + load_save_s + scheduler_s;
    let lend = idle_s >= break_even_s;
    let (idle, needed) = (crate::phrase::duration(idle_s), crate::phrase::duration(break_even_s));
    let reason = if lend {
        format!("lent: the survivors would idle {idle}, and saving, loading and scheduling take {needed}")
    } else {
        format!("kept: the survivors idle only {idle}, and saving, loading and scheduling would take {needed}")
    };
    Ok(Lending { lend, idle_s, break_even_s, reason })
}

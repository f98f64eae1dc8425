//! Jobs one after the other over a failure trace: what it is worth that a job knows the failures from before it.

use std::fmt::Write as _;

use policy::adaptive::{Adaptive, AdaptiveParameters, Past};
use policy::interval::Objective;
use policy::mtbf::{Estimator, EstimatorKind};
use rayon::prelude::*;

use crate::replay::{CHECKPOINT_OVER_IDLE, DAY_S, Outcome};
use crate::trace::Trace;

/// What a job knows when it starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Young's interval with the trace's mean.
    Young,
    /// `auto` that knows the mean gap so far and no failure.
    Cold,
    /// `auto` that is handed the newest failures.
    Warm,
    /// `auto` that lived through all of the trace before.
    Lived,
    /// A published estimator that lived through all of it.
    Published(EstimatorKind),
}

impl Start {
    /// All that are compared.
    pub const ALL: [Start; 9] = [
        Start::Cold,
        Start::Warm,
        Start::Lived,
        Start::Published(EstimatorKind::Sma),
        Start::Published(EstimatorKind::Wma),
        Start::Published(EstimatorKind::Ema),
        Start::Published(EstimatorKind::Ar),
        Start::Published(EstimatorKind::HazardDynamic),
        Start::Published(EstimatorKind::HazardShape),
    ];

    /// The name that tables use.
    pub fn name(self) -> &'static str {
        match self {
            Start::Young => "young",
            Start::Cold => "auto, cold",
            Start::Warm => "auto, handed",
            Start::Lived => "auto, lived",
            Start::Published(kind) => kind.name(),
        }
    }
}

/// Jobs on a trace, and their costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jobs {
    /// Length of each job.
    pub job_s: f64,
    /// Duration of a checkpoint.
    pub checkpoint_s: f64,
    /// Compute power over idle power.
    pub ratio: f64,
    /// What they minimise.
    pub objective: Objective,
}

/// Waste of all jobs on a trace against Young's, minus one.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The trace.
    pub trace: String,
    /// The jobs.
    pub jobs: Jobs,
    /// What they know at their start.
    pub start: Start,
    /// Wasted time.
    pub time: f64,
    /// Wasted energy.
    pub energy: f64,
}

/// Who paces a job.
enum Pacer {
    Constant(f64),
    Auto(Box<Adaptive>),
    Estimator(Estimator),
}

impl Pacer {
    fn interval_s(&self, age_s: f64, jobs: &Jobs) -> f64 {
        let young = |mean_s: f64| (2.0 * jobs.checkpoint_s * mean_s / jobs.nominal()).sqrt();
        match self {
            Pacer::Constant(interval_s) => *interval_s,
            Pacer::Auto(policy) => policy.interval_s(age_s, jobs.checkpoint_s, jobs.accounted()),
            Pacer::Estimator(estimator) => young(estimator.estimate_s(age_s)),
        }
    }

    fn observe_gap(&mut self, gap_s: f64) {
        match self {
            Pacer::Constant(_) => {}
            Pacer::Auto(policy) => policy.observe_gap(gap_s),
            Pacer::Estimator(estimator) => estimator.observe_gap(gap_s),
        }
    }
}

impl Jobs {
    fn nominal(&self) -> f64 {
        if self.objective == Objective::Time { 1.0 } else { self.ratio }
    }

    fn accounted(&self) -> f64 {
        if self.objective == Objective::Time { 1.0 } else { self.ratio / CHECKPOINT_OVER_IDLE }
    }

    /// Every start on a trace.
    pub fn rows(&self, trace: &Trace) -> Vec<Row> {
        let young = Jobs { objective: Objective::Time, ..*self }.run(trace, Start::Young);
        let row = |start: &Start| {
            let own = self.run(trace, *start);
            Row {
                trace: trace.name.clone(),
                jobs: *self,
                start: *start,
                time: own.wasted_s() / young.wasted_s() - 1.0,
                energy: own.wasted_energy(self.ratio) / young.wasted_energy(self.ratio) - 1.0,
            }
        };
        Start::ALL.par_iter().map(row).collect()
    }

    /// What the jobs of a trace spend: they follow each other from its first failure to its last.
    pub fn run(&self, trace: &Trace, start: Start) -> Outcome {
        let mut at_s = trace.first_s;
        let mut failed_s: Vec<f64> = vec![at_s];
        failed_s.extend(trace.gaps_s.iter().map(|gap_s| {
            at_s += gap_s;
            at_s
        }));
        let mut outcome = Outcome::default();
        let (mut begin_s, mut seen) = (trace.first_s, 1);
        let mut lived = self.paced_from_start(trace, start);
        while begin_s + self.job_s <= at_s {
            let (mut pacer, mut from_s) = match start {
                Start::Cold | Start::Warm => self.begun(trace, start, &failed_s[..seen], begin_s),
                _ => (lived.take().unwrap_or(Pacer::Constant(self.job_s)), failed_s[seen - 1]),
            };
            let end_s = begin_s + self.job_s;
            let mut computing_s = begin_s;
            while let Some(fails_s) = failed_s.get(seen).copied().filter(|t| *t < end_s) {
                self.compute(&mut outcome, &pacer, from_s, computing_s, fails_s, true);
                pacer.observe_gap(fails_s - from_s);
                (from_s, computing_s) = (fails_s, fails_s);
                seen += 1;
            }
            self.compute(&mut outcome, &pacer, from_s, computing_s, end_s, false);
            lived = Some(pacer);
            begin_s = end_s;
        }
        outcome
    }

    fn paced_from_start(&self, trace: &Trace, start: Start) -> Option<Pacer> {
        let parameters = AdaptiveParameters::for_objective(self.objective);
        match start {
            Start::Young => Some(Pacer::Constant((2.0 * self.checkpoint_s * trace.mean_s() / self.nominal()).sqrt())),
            Start::Published(kind) => Some(Pacer::Estimator(Estimator::new(kind, trace.mean_s()))),
            Start::Lived => Some(Pacer::Auto(Box::new(Adaptive::new(parameters, DAY_S, trace.local_start_s())))),
            Start::Cold | Start::Warm => None,
        }
    }

    /// A job that begins with a plan: cold, all that it knows is the mean so far, with a day counted as one failure.
    fn begun(&self, trace: &Trace, start: Start, failed_s: &[f64], now_s: f64) -> (Pacer, f64) {
        let parameters = AdaptiveParameters::for_objective(self.objective);
        let local_s = trace.local_start_s().map(|_| now_s);
        let (policy, from_s) = if start == Start::Cold {
            let mtbf_s = (now_s - trace.first_s + DAY_S) / (failed_s.len() as f64);
            (Adaptive::new(parameters, mtbf_s, local_s), now_s)
        } else {
            let past = Past::watched(DAY_S, trace.first_s, failed_s.iter().copied(), now_s, 1.0);
            Adaptive::with_past(parameters, &past, now_s, local_s)
        };
        (Pacer::Auto(Box::new(policy)), from_s)
    }

    /// Computes until a failure, or the end of the job, where nothing is lost.
    fn compute(&self, outcome: &mut Outcome, pacer: &Pacer, from_s: f64, begin_s: f64, end_s: f64, fails: bool) {
        let mut now_s = begin_s;
        loop {
            let interval_s = pacer.interval_s(now_s - from_s, self).max(1e-3);
            if now_s + interval_s + self.checkpoint_s >= end_s {
                let part_s = (end_s - now_s - interval_s).max(0.0);
                outcome.checkpoint_s += part_s;
                outcome.lost_s += if fails { end_s - now_s - part_s } else { 0.0 };
                outcome.failures += f64::from(fails);
                outcome.total_s += end_s - begin_s;
                return;
            }
            outcome.checkpoints += 1.0;
            outcome.checkpoint_s += self.checkpoint_s;
            now_s += interval_s + self.checkpoint_s;
        }
    }
}

/// The rows as people read them: a line for each start, a column for each trace.
pub fn table(rows: &[Row]) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    let mut traces: Vec<&str> = rows.iter().map(|r| r.trace.as_str()).collect();
    traces.dedup();
    write!(text, "{:<16}", "")?;
    for trace in &traces {
        write!(text, "{trace:<18}")?;
    }
    writeln!(text, "mean")?;
    for start in Start::ALL {
        let own: Vec<&Row> = rows.iter().filter(|r| r.start == start).collect();
        write!(text, "{:<16}", start.name())?;
        for r in &own {
            write!(text, "{:<18}", format!("{:+.2} / {:+.2}", 100.0 * r.time, 100.0 * r.energy))?;
        }
        let mean = |of: fn(&Row) -> f64| 100.0 * own.iter().map(|r| of(r)).sum::<f64>() / own.len() as f64;
        writeln!(text, "{:+.2} / {:+.2}", mean(|r| r.time), mean(|r| r.energy))?;
    }
    Ok(text)
}

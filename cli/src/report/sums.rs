//! Sums of runs, by who or what they are summed, with a line for all.

use super::accounted::Joined;
use super::columns::{Sheet, joules_of, percent, share};
use super::moment::shown;
use planner::Lent;
use protocol::Phase;
use serde::Serialize;
use std::collections::BTreeMap;

/// What sums are made by.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum By {
    /// User name.
    User,
    /// Slurm account.
    Account,
    /// Slurm job id.
    Job,
    /// Day on which the run began.
    Day,
}

/// Sums over some runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// User, account or job; `total` for all.
    pub of: String,
    /// Number of runs.
    pub runs: u32,
    /// Failures that count into the MTBF.
    pub failures: u32,
    /// Complete checkpoints.
    pub checkpoints: u32,
    /// Measured energy, J.
    pub joules: f64,
    /// Energy of all phases but compute, J.
    pub resilience_j: f64,
    /// Energy of checkpoints, J.
    pub checkpoint_j: f64,
    /// Energy of logging messages, J.
    pub logging_j: f64,
    /// Energy of restarts, J.
    pub restart_j: f64,
    /// Energy of lost work, J.
    pub lost_work_j: f64,
    /// Energy of idle nodes, J.
    pub idle_j: f64,
    /// What was lent; its energy is the borrowers'.
    pub lending: Lent,
    /// What the plans expected to save against the other objective, J; absent if no plan says.
    pub expected_saving_j: Option<f64>,
}

impl Sum {
    fn add(&mut self, line: &Joined) {
        let run = &line.run;
        if let Some(lending) = &line.lending {
            self.lending.add(&lending.lent);
        }
        self.runs += 1;
        self.failures += run.total.failures;
        self.checkpoints += run.total.checkpoints;
        self.joules += run.total.joules;
        self.resilience_j += run.total.resilience_j;
        self.checkpoint_j += joules_of(run, Phase::Checkpoint);
        self.logging_j += joules_of(run, Phase::Logging);
        self.restart_j += joules_of(run, Phase::Restart);
        self.lost_work_j += joules_of(run, Phase::LostWork);
        self.idle_j += joules_of(run, Phase::Idle);
        if let Some(saving_j) = run.total.expected_saving_j {
            *self.expected_saving_j.get_or_insert(0.0) += saving_j;
        }
    }

    /// Energy of a phase of resilience, J.
    pub fn of_phase(&self, phase: Phase) -> f64 {
        match phase {
            Phase::Compute => self.joules - self.resilience_j,
            Phase::Checkpoint => self.checkpoint_j,
            Phase::Logging => self.logging_j,
            Phase::Restart => self.restart_j,
            Phase::LostWork => self.lost_work_j,
            Phase::Idle => self.idle_j,
        }
    }
}

/// The sums, the largest resilience first.
pub fn sums(lines: &[Joined], by: By) -> Vec<Sum> {
    let mut sums: BTreeMap<String, Sum> = BTreeMap::new();
    for line in lines {
        let run = &line.run;
        let key = match by {
            By::User => run.user.clone(),
            By::Account => run.account.clone(),
            By::Job => run.job.to_string(),
            By::Day => shown(run.start_s).chars().take(10).collect(),
        };
        sums.entry(key).or_default().add(line);
    }
    let mut sums: Vec<Sum> = sums.into_iter().map(|(of, sum)| Sum { of, ..sum }).collect();
    sums.sort_by(|a, b| b.resilience_j.total_cmp(&a.resilience_j));
    sums
}

/// The sum of all runs.
pub fn total(lines: &[Joined]) -> Sum {
    let mut total = Sum { of: "total".to_string(), ..Sum::default() };
    lines.iter().for_each(|l| total.add(l));
    total
}

/// The sums as a table.
pub fn sheet(sums: &[Sum], by: By) -> Sheet {
    let first = match by {
        By::User => "User",
        By::Account => "Account",
        By::Job => "JobID",
        By::Day => "Day",
    };
    let head = [
        (first, 16),
        ("Runs", 6),
        ("Failures", 8),
        ("Checkpoints", 11),
        ("Energy(J)", 14),
        ("Resilience(J)", 14),
        ("Share", 8),
        ("Checkpoint(J)", 14),
        ("Restart(J)", 14),
        ("LostWork(J)", 14),
        ("Idle(J)", 14),
        ("Lent(node-s)", 12),
        ("Used(node-s)", 12),
        ("Used(J)", 14),
        ("Saved(J)", 12),
    ];
    let row = |s: &Sum| {
        let joules = |j: f64| format!("{j:.1}");
        vec![
            s.of.clone(),
            s.runs.to_string(),
            s.failures.to_string(),
            s.checkpoints.to_string(),
            joules(s.joules),
            joules(s.resilience_j),
            percent(share(s.resilience_j, s.joules)),
            joules(s.checkpoint_j),
            joules(s.restart_j),
            joules(s.lost_work_j),
            joules(s.idle_j),
            joules(s.lending.node_seconds),
            joules(s.lending.used_node_seconds),
            s.lending.used_j.map(joules).unwrap_or_default(),
            s.expected_saving_j.map(joules).unwrap_or_default(),
        ]
    };
    Sheet {
        head: head.map(|(name, width)| (name.to_string(), width, name == first)).to_vec(),
        rows: sums.iter().map(row).collect(),
    }
}

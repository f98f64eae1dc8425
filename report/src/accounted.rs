//! What others know of the runs: Slurm's own accounting, by one `sacct` for all of them, and the broker of loans.

use crate::cost::Costs;
use crate::words::counted;
use config::Accounting;
use planner::{Lent, Modelled};
use protocol::{Loan, RunAccount};
use serde::Serialize;
use slurm::{Accounted, OfJob, Slurm};
use std::collections::{HashMap, HashSet};

/// Clocks of hosts and the moment between a job's start and its wrapper's, s.
const SLACK_S: f64 = 300.0;

/// A run's job, all its requeued lives together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlurmSide {
    /// Slurm's word for how it ended, or what it does.
    pub state: String,
    /// `code:signal` of its script.
    pub exit_code: String,
    /// When it was first submitted, s since the epoch.
    pub submit_s: Option<f64>,
    /// Seconds in which it had nodes and was not suspended.
    pub elapsed_s: f64,
    /// Number of its nodes.
    pub nodes: usize,
    /// Energy of its steps by Slurm's own plugin, J; absent without one.
    pub consumed_j: Option<f64>,
    /// Quality of service.
    pub qos: String,
}

/// The version of what `report --json` prints: it changes where a key goes or means something else.
pub const JSON_VERSION: u32 = 1;

/// A run with what Slurm knows of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Joined {
    /// [`JSON_VERSION`].
    pub version: u32,
    /// What the store knows.
    #[serde(flatten)]
    pub run: RunAccount,
    /// What sacct knows; absent if it knows nothing.
    pub slurm: Option<SlurmSide>,
    /// What its loans came to, and its model; absent if it lent nothing and its groups never waited.
    pub lending: Option<Lending>,
    /// What its energy costs.
    pub cost: Costs,
}

/// What a run lent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lending {
    /// Sums over its loans.
    #[serde(flatten)]
    pub lent: Lent,
    /// The run beside Bouteiller13's model; absent in lists, and where the account does not suffice.
    pub model: Option<Modelled>,
    /// The loans, for the time line.
    #[serde(skip)]
    pub loans: Vec<Loan>,
}

/// Runs of which only the store's side is known.
pub fn alone(runs: Vec<RunAccount>, site: &Accounting) -> Vec<Joined> {
    let joined = |run: RunAccount| Joined {
        version: JSON_VERSION,
        cost: Costs::of(&run.total, site),
        run,
        slurm: None,
        lending: None,
    };
    runs.into_iter().map(joined).collect()
}

/// Adds what the runs lent.
pub fn add_loans(lines: &mut [Joined], loans: &[Loan], now_s: f64) {
    for line in lines {
        let run = &line.run;
        let its = |l: &&Loan| l.key.cluster == run.cluster && l.key.run == run.run && l.lent_s.is_some();
        let loans: Vec<Loan> = loans.iter().filter(its).cloned().collect();
        let (lent, model) = (planner::lent(&loans, now_s), planner::modelled(run, &loans, now_s));
        line.lending = (!loans.is_empty() || model.is_some()).then_some(Lending { lent, model, loans });
    }
}

/// Adds what sacct knows; without it, says so on standard error and goes on.
pub fn add_slurm(lines: &mut [Joined], slurm: &Slurm, now_s: f64) {
    let jobs: Vec<u32> = lines.iter().map(|l| l.run.job).filter(|job| *job > 0).collect();
    let lives = if jobs.is_empty() { Ok(Vec::new()) } else { slurm.accounted_jobs(&jobs) };
    let lives = lives.unwrap_or_else(|e| {
        protocol::say!("joulepoint: Slurm's accounting does not answer ({e}): its columns are empty");
        Vec::new()
    });
    let mut by_job: HashMap<u32, Vec<Accounted>> = HashMap::new();
    for life in lives {
        by_job.entry(life.job).or_default().push(life);
    }
    for line in lines {
        let Some(lives) = by_job.get(&line.run.job) else { continue };
        let lives = lives_of(&line.run, lives, now_s);
        // A store of an earlier version does not know what Slurm calls the job.
        let job = line.run.job.to_string();
        if let Some(named) = lives.last().filter(|l| !l.name.is_empty() && line.run.job_id == job) {
            line.run.job_id.clone_from(&named.name);
        }
        line.slurm = side(&lives, now_s);
    }
}

/// The jobs without protection that had nodes between two moments, as far as Slurm has measured their energy. Where it has
/// measured none, that is said on standard error.
pub fn other_jobs(lines: &[Joined], slurm: &Slurm, (start_s, end_s): (f64, f64)) -> Option<Vec<OfJob>> {
    let said = |why: &str| protocol::say!("joulepoint: the energy of all jobs is not told: {why}");
    let all = slurm
        .consumed(start_s, end_s)
        .inspect_err(|e| said(&format!("Slurm's accounting does not answer ({e})")))
        .ok()?;
    let ours: HashSet<u32> = lines.iter().map(|l| l.run.job).collect();
    let others: Vec<OfJob> = all.by_job.into_iter().filter(|(job, _)| !ours.contains(job)).map(|(_, of)| of).collect();
    if others.is_empty() {
        said("Slurm has measured none of a job without protection (AcctGatherEnergyType)");
        return None;
    }
    if all.unmeasured > 0 {
        let jobs = counted(all.unmeasured, "job");
        protocol::say!("joulepoint: of {jobs} Slurm has measured no energy: they are not in that of all jobs");
    }
    Some(others)
}

/// Only lives of the run, from that of its first wrapper to that of its last: job ids are used again, and a job that has
/// completed and is requeued begins another run.
fn lives_of<'a>(run: &RunAccount, lives: &'a [Accounted], now_s: f64) -> Vec<&'a Accounted> {
    let end_s = run.end_s.unwrap_or(now_s) + SLACK_S;
    let within = |l: &&Accounted| {
        l.end_s.unwrap_or(f64::INFINITY) >= run.start_s - SLACK_S && l.start_s.is_none_or(|s| s <= end_s)
    };
    let lives: Vec<&Accounted> = lives.iter().filter(within).collect();
    let from = run.records.first().and_then(|r| nearest(lives.iter(), r.start_s)).unwrap_or(0);
    let last = run.records.last().filter(|_| run.end_s.is_some());
    let behind = last.and_then(|r| nearest(lives.iter().rev(), r.start_s)).unwrap_or(0);
    lives[from..(lives.len() - behind).max(from)].to_vec()
}

/// The first life that began the least time away from a moment.
fn nearest<'a, 'b: 'a>(lives: impl Iterator<Item = &'a &'b Accounted>, at_s: f64) -> Option<usize> {
    let away = lives.enumerate().filter_map(|(i, life)| Some((i, (life.start_s? - at_s).abs())));
    away.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
}

fn side(lives: &[&Accounted], now_s: f64) -> Option<SlurmSide> {
    let last = lives.last()?;
    let consumed: Vec<f64> = lives.iter().filter_map(|l| l.consumed_j).collect();
    Some(SlurmSide {
        state: last.state_text.clone(),
        exit_code: format!("{}:{}", last.exit.code, last.exit.signal),
        submit_s: lives[0].submit_s,
        elapsed_s: elapsed_s(lives, now_s),
        nodes: last.nodes.len(),
        consumed_j: (!consumed.is_empty()).then(|| consumed.iter().sum()),
        qos: last.qos.clone(),
    })
}

/// Seconds in which the job had nodes and was not suspended: what a resized job was before and after may overlap.
fn elapsed_s(lives: &[&Accounted], now_s: f64) -> f64 {
    let time = |l: &&Accounted| {
        let (start_s, end_s) = (l.start_s?, l.end_s.unwrap_or(now_s));
        Some((start_s, l.elapsed_s.map_or(end_s, |elapsed_s| end_s.min(start_s + elapsed_s))))
    };
    let mut times: Vec<(f64, f64)> = lives.iter().filter_map(time).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum_s, mut until_s) = (0.0, f64::NEG_INFINITY);
    for (start_s, end_s) in times {
        sum_s += (end_s - start_s.max(until_s)).max(0.0);
        until_s = until_s.max(end_s);
    }
    sum_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_the_lives_from_its_first_wrapper_to_its_last_and_no_time_in_which_it_was_suspended() {
        let text = "7|COMPLETED|0:0|0|100|110|1000|alice|n1||7|q|10\n7|REQUEUED|0:0|120|130|150|1000|alice|n1||7|q|15\n\
                    7|NODE_FAIL|0:0|150|151|152|1000|alice|n1||7|q|1\n7|COMPLETED|0:0|152|160|190|1000|alice|n1||7|q|30\n\
                    7|FAILED|0:0|200|210|220|1000|alice|n1||7|q|10\n";
        let all = slurm::parse_accounting(text).unwrap();
        let elapsed_s = |begun_s: &[f64], end_s: Option<f64>| {
            let records: Vec<_> = begun_s
                .iter()
                .map(|start_s| {
                    serde_json::json!({ "job": 7, "restart_count": 0, "start_s": start_s, "end_s": null, "state": "",
                        "nodes": [] })
                })
                .collect();
            let run = serde_json::json!({
                "cluster": "c", "run": "7.1", "job": 7, "user": "alice", "account": "", "job_name": "j", "state": "",
                "start_s": begun_s[0], "end_s": end_s, "total": protocol::Totals::default(), "phases": [],
                "records": records, "failures": [], "checkpoints": [], "plan": null
            });
            elapsed_s(&lives_of(&serde_json::from_value(run).unwrap(), &all, 230.0), 230.0)
        };
        assert_eq!(elapsed_s(&[101.0], Some(110.0)), 10.0);
        assert_eq!(elapsed_s(&[131.0, 161.0], Some(190.0)), 46.0, "with one whose wrapper never came to begin");
        assert_eq!(elapsed_s(&[131.0, 161.0], None), 56.0, "it has not ended");
        assert_eq!(elapsed_s(&[211.0], Some(220.0)), 10.0);
    }

    #[test]
    fn the_time_of_a_resized_job_counts_once() {
        let text = "7|RESIZING|0:0|0|100|150|1000|alice|n[1-4]|\n7|NODE_FAIL|0:0|0|100|180|1000|alice|n[1-3]|\n\
                    7|COMPLETED|0:0|200|200|Unknown|1000|alice|n[1-4]|\n";
        let lives = slurm::parse_accounting(text).unwrap();
        assert_eq!(elapsed_s(&lives.iter().collect::<Vec<_>>(), 230.0), 110.0);
    }
}

//! What the runs cost that have ended, as `/metrics` of the controller tell it.

pub mod exposed;
pub mod latency;

use listener::metrics::Family;
use parking_lot::Mutex;
use planner::Lent;
use protocol::{FailureKind, Loan, Phase, RunAccount, RunKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many ended runs are remembered, so that one that is told twice counts once.
const REMEMBERED: usize = 10_000;

/// What the runs cost that ended since the service began.
#[derive(Debug, Default)]
pub struct Ended(Mutex<Sums>);

#[derive(Debug, Default)]
struct Sums {
    told: VecDeque<RunKey>,
    unverified: f64,
    unreadable: BTreeSet<RunKey>,
    runs: BTreeMap<String, f64>,
    joules: BTreeMap<Phase, f64>,
    node_seconds: BTreeMap<Phase, f64>,
    failures: BTreeMap<&'static str, f64>,
    detection_s: f64,
    checkpoints: f64,
    checkpoint_bytes: f64,
    checkpoint_s: f64,
    lent: Lent,
}

/// Most runs that are named because their records cannot be added up.
const MOST_NAMED: usize = 20;

/// How much more than the node services counted a run's phases may show, as a fraction: the last beat of a job is a
/// moment before its end.
const BEYOND_BEATS: f64 = 0.1;

/// Which part of the energy of a run's phases, which its user tells, the node services have counted themselves.
fn vouched_share(run: &RunAccount) -> f64 {
    let told: f64 = run.phases.iter().filter_map(|p| p.joules).map(|j| j.max(0.0)).sum();
    match run.total.metered_j {
        Some(metered_j) if told > metered_j * (1.0 + BEYOND_BEATS) => metered_j / told,
        Some(_) => 1.0,
        None => 0.0,
    }
}

/// The states in which runs end; others are counted as `other`.
const STATES: [&str; 4] = ["completed", "failed", "cancelled", "timeout"];

impl Ended {
    /// Adds a run, if it has ended and was not told before. Of one whose job is not known to be its user's only that.
    pub fn add(&self, run: &RunAccount) {
        let key = RunKey { cluster: run.cluster.clone(), run: run.run.clone() };
        self.name(run);
        let mut sums = self.0.lock();
        if run.end_s.is_none() || !run.trouble.is_empty() || sums.told.contains(&key) {
            return;
        }
        sums.told.push_back(key);
        if sums.told.len() > REMEMBERED {
            sums.told.pop_front();
        }
        if !run.verified || run.job == 0 {
            sums.unverified += 1.0;
            return;
        }
        let share = vouched_share(run);
        let state = STATES.iter().find(|s| **s == run.state).copied().unwrap_or("other");
        *sums.runs.entry(state.to_string()).or_default() += 1.0;
        for phase in &run.phases {
            *sums.joules.entry(phase.phase).or_default() += share * phase.joules.unwrap_or(0.0).max(0.0);
            *sums.node_seconds.entry(phase.phase).or_default() += phase.node_seconds.max(0.0);
        }
        for failure in &run.failures {
            let kind = FailureKind::ALL.into_iter().map(FailureKind::as_str).find(|k| *k == failure.kind);
            *sums.failures.entry(kind.unwrap_or("other")).or_default() += 1.0;
            sums.detection_s += failure.detection_s.max(0.0);
        }
        for checkpoint in &run.checkpoints {
            sums.checkpoints += 1.0;
            sums.checkpoint_bytes += checkpoint.bytes as f64;
            sums.checkpoint_s += checkpoint.seconds.max(0.0);
        }
    }

    /// Remembers a run whose records cannot be added up, and logs it once.
    pub fn name(&self, run: &RunAccount) {
        if run.trouble.is_empty() {
            return;
        }
        let key = RunKey { cluster: run.cluster.clone(), run: run.run.clone() };
        let mut sums = self.0.lock();
        if sums.unreadable.len() < MOST_NAMED && sums.unreadable.insert(key) {
            tracing::error!(run = run.run, user = run.user, trouble = run.trouble, "a run is left out of all sums");
        }
    }

    /// Adds a loan that is over.
    pub fn add_loan(&self, loan: &Loan) {
        // No part of it is still out.
        self.0.lock().lent.add(&planner::lent([loan], loan.state_s));
    }

    /// The sums as metrics.
    pub fn families(&self) -> Vec<Family> {
        let sums = self.0.lock();
        let labelled = |family: Family, label: &str, values: Vec<(&str, f64)>| {
            values.into_iter().fold(family, |family, (name, value)| family.sample(&[(label, name)], value))
        };
        let phases = |of: &BTreeMap<Phase, f64>| {
            Phase::ALL.into_iter().map(|p| (p.as_str(), of.get(&p).copied().unwrap_or(0.0))).collect()
        };
        let runs = STATES.into_iter().chain(["other"]);
        let runs = runs.map(|s| (s, sums.runs.get(s).copied().unwrap_or(0.0))).collect();
        let kinds = FailureKind::ALL.into_iter().map(FailureKind::as_str).chain(["other"]);
        let kinds = kinds.map(|k| (k, sums.failures.get(k).copied().unwrap_or(0.0))).collect();
        let plain = |name, unit, help, value| Family::counter(name, unit, help).sample(&[], value);
        let unreadable = sums.unreadable.len() as f64;
        let families = vec![
            Family::gauge(
                "joulepoint_runs_unreadable",
                "",
                "Runs that are in no sum: their records cannot be added up.",
            )
            .sample(&[], unreadable),
            plain(
                "joulepoint_runs_unverified",
                "",
                "Runs that ended and of whose owner Slurm said nothing.",
                sums.unverified,
            ),
            labelled(Family::counter("joulepoint_runs_ended", "", "Runs that ended, by state."), "state", runs),
            labelled(
                Family::counter("joulepoint_run_energy_joules", "joules", "Energy of ended runs, by phase."),
                "phase",
                phases(&sums.joules),
            ),
            labelled(
                Family::counter("joulepoint_run_node_seconds", "seconds", "Node-time of ended runs, by phase."),
                "phase",
                phases(&sums.node_seconds),
            ),
            labelled(Family::counter("joulepoint_failures", "", "Failures of ended runs, by kind."), "kind", kinds),
            plain(
                "joulepoint_failure_detection_seconds",
                "seconds",
                "Time from failures of ended runs until they were noticed.",
                sums.detection_s,
            ),
            plain("joulepoint_checkpoints", "", "Complete checkpoints of ended runs.", sums.checkpoints),
            plain("joulepoint_checkpoint_bytes", "bytes", "Volume of these checkpoints.", sums.checkpoint_bytes),
            plain("joulepoint_checkpoint_seconds", "seconds", "Time that they took.", sums.checkpoint_s),
            plain("joulepoint_loans", "", "Loans that are over and whose nodes had left.", sums.lent.loans.into()),
            plain("joulepoint_lent_node_seconds", "seconds", "Node-time of these loans.", sums.lent.node_seconds),
            plain(
                "joulepoint_borrowed_node_seconds",
                "seconds",
                "Node-time of it in which others used the nodes.",
                sums.lent.used_node_seconds,
            ),
            plain(
                "joulepoint_borrowed_energy_joules",
                "joules",
                "Energy that these used there.",
                sums.lent.used_j.unwrap_or(0.0),
            ),
            plain(
                "joulepoint_lent_would_idle_joules",
                "joules",
                "What the nodes would have drawn idle, by the site's power of an idle node.",
                sums.lent.would_idle_j,
            ),
        ];
        families.into_iter().chain(named(&sums.unreadable)).collect()
    }
}

/// Which runs cannot be added up, by name; nothing where there are none.
fn named(unreadable: &BTreeSet<RunKey>) -> Option<Family> {
    let family = Family::gauge("joulepoint_run_unreadable", "", "Runs whose records cannot be added up, by name.");
    let sample = |family: Family, key: &RunKey| family.sample(&[("cluster", &key.cluster), ("run", &key.run)], 1.0);
    (!unreadable.is_empty()).then(|| unreadable.iter().fold(family, sample))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{PhaseAccount, Totals};

    fn run(state: &str, end_s: Option<f64>) -> RunAccount {
        let account = |phase| PhaseAccount { phase, joules: Some(10.0), node_seconds: 2.0, source: "rapl".into() };
        RunAccount {
            cluster: "c".into(),
            run: "7.1".into(),
            job: 7,
            job_id: "7".into(),
            user: "alice".into(),
            account: "physics".into(),
            partition: "all".into(),
            job_name: "heat".into(),
            state: state.into(),
            waits: false,
            start_s: 0.0,
            end_s,
            total: Totals { metered_j: Some(1000.0), ..Totals::default() },
            phases: Phase::ALL.map(account).to_vec(),
            records: Vec::new(),
            failures: Vec::new(),
            checkpoints: Vec::new(),
            spans: Vec::new(),
            decisions: Vec::new(),
            loans: Vec::new(),
            protection: None,
            plan: None,
            verified: true,
            trouble: String::new(),
        }
    }

    #[test]
    fn a_run_counts_once_and_only_when_it_has_ended() {
        let ended = Ended::default();
        ended.add(&run("running", None));
        ended.add(&run("completed", Some(9.0)));
        ended.add(&run("completed", Some(9.0)));
        let text: String = ended.families().into_iter().map(|f| f.to_string()).collect();
        assert!(text.contains("joulepoint_runs_ended_total{state=\"completed\"} 1\n"), "{text}");
        assert!(text.contains("joulepoint_run_energy_joules_total{phase=\"lost_work\"} 10\n"), "{text}");
    }

    #[test]
    fn the_energy_in_the_sums_is_what_node_services_counted() {
        // Six phases of 10 J each.
        for (metered_j, expected) in [(None, "0"), (Some(12.0), "2"), (Some(55.0), "10"), (Some(1e9), "10")] {
            let ended = Ended::default();
            let mut run = run("completed", Some(9.0));
            run.total.metered_j = metered_j;
            ended.add(&run);
            let text: String = ended.families().into_iter().map(|f| f.to_string()).collect();
            let line = format!("joulepoint_run_energy_joules_total{{phase=\"lost_work\"}} {expected}\n");
            assert!(text.contains(&line), "{metered_j:?}: {text}");
        }
    }

    #[test]
    fn what_nobody_vouches_for_is_in_no_sum_and_what_cannot_be_added_up_is_named() {
        let ended = Ended::default();
        ended.add(&RunAccount { verified: false, ..run("completed", Some(9.0)) });
        ended.add(&RunAccount { run: "8.1".into(), trouble: "no number".into(), ..run("completed", Some(9.0)) });
        let text: String = ended.families().into_iter().map(|f| f.to_string()).collect();
        for line in [
            "joulepoint_runs_ended_total{state=\"completed\"} 0\n",
            "joulepoint_runs_unverified_total 1\n",
            "joulepoint_run_unreadable{cluster=\"c\",run=\"8.1\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }

    #[test]
    fn a_loan_that_is_over_counts_with_what_was_used_of_it() {
        let ended = Ended::default();
        ended.add_loan(&serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap());
        let text: String = ended.families().into_iter().map(|f| f.to_string()).collect();
        for line in [
            "joulepoint_loans_total 1\n",
            "joulepoint_lent_node_seconds_total 180\n",
            "joulepoint_borrowed_node_seconds_total 30\n",
            "joulepoint_borrowed_energy_joules_total 9000\n",
            "joulepoint_lent_would_idle_joules_total 18000\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}

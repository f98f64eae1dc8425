//! Sums of runs, by who or what they are summed, with a line for all.

use crate::accounted::{JSON_VERSION, Joined};
use crate::columns::{joules_of, share};
use crate::cost::Costs;
use crate::moment::shown;
use crate::sheet::{Cell, Head, Sheet};
use crate::words::{WIDTH, energy};
use config::Accounting;
use planner::Lent;
use protocol::Phase;
use serde::Serialize;
use slurm::OfJob;
use std::collections::BTreeMap;

/// What sums are made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// User name.
    User,
    /// Slurm account.
    Account,
    /// Slurm job.
    Job,
    /// Day on which the run began.
    Day,
    /// Month in which the run began.
    Month,
    /// Slurm partition.
    Partition,
    /// Quality of service, by Slurm's accounting.
    Qos,
    /// Slurm cluster.
    Cluster,
}

impl By {
    fn heading(self) -> &'static str {
        match self {
            By::User => "User",
            By::Account => "Account",
            By::Job => "JobID",
            By::Day => "Day",
            By::Month => "Month",
            By::Partition => "Partition",
            By::Qos => "QOS",
            By::Cluster => "Cluster",
        }
    }

    fn of(self, line: &Joined) -> String {
        let run = &line.run;
        let date = |characters: usize| shown(run.start_s).chars().take(characters).collect();
        match self {
            By::User => run.user.clone(),
            By::Account => run.account.clone(),
            By::Job => run.job_id.clone(),
            By::Day => date(10),
            By::Month => date(7),
            By::Partition => run.partition.clone(),
            By::Qos => line.slurm.as_ref().map(|s| s.qos.clone()).unwrap_or_default(),
            By::Cluster => run.cluster.clone(),
        }
    }

    fn of_other(self, job: &OfJob, cluster: &str) -> String {
        let date =
            |characters: usize| job.start_s.map(|s| shown(s).chars().take(characters).collect()).unwrap_or_default();
        match self {
            By::User => job.user.clone(),
            By::Account => job.account.clone(),
            By::Job => job.name.clone(),
            By::Day => date(10),
            By::Month => date(7),
            By::Partition => job.partition.clone(),
            By::Qos => job.qos.clone(),
            By::Cluster => cluster.to_string(),
        }
    }
}

/// The jobs without protection beside the runs.
pub struct Others {
    /// Each with its energy.
    pub jobs: Vec<OfJob>,
    /// Where they ran.
    pub cluster: String,
}

/// Sums over some runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// [`JSON_VERSION`].
    pub version: u32,
    /// User, account, job, ..., with commas between several; `total` for all.
    pub of: String,
    /// The same, each by what it is; empty for all.
    pub by: BTreeMap<By, String>,
    /// Number of runs.
    pub runs: u32,
    /// Runs of whose energy nothing is known yet: they are in no sum of energy.
    pub runs_without_energy: u32,
    /// Failures that count into the MTBF.
    pub failures: u32,
    /// Complete checkpoints.
    pub checkpoints: u32,
    /// Energy, J; absent if that of no run is known yet.
    pub joules: Option<f64>,
    /// Energy of all phases but compute, J.
    pub resilience_j: Option<f64>,
    /// Energy of checkpoints, J.
    pub checkpoint_j: Option<f64>,
    /// Energy of logging messages, J.
    pub logging_j: Option<f64>,
    /// Energy of restarts, J.
    pub restart_j: Option<f64>,
    /// Energy of lost work, J.
    pub lost_work_j: Option<f64>,
    /// Energy of idle nodes, J.
    pub idle_j: Option<f64>,
    /// What was lent; its energy is the borrowers'.
    pub lending: Lent,
    /// What the plans expected to save against the other objective, J; absent if no plan says.
    pub expected_saving_j: Option<f64>,
    /// What this energy costs.
    pub cost: Costs,
    /// Energy of all jobs of the window, those without protection too, J; absent where it was not asked for, or where
    /// Slurm measures none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_jobs_j: Option<f64>,
}

/// Adds what is known.
fn add(sum: &mut Option<f64>, joules: Option<f64>) {
    if let Some(joules) = joules {
        *sum.get_or_insert(0.0) += joules;
    }
}

impl Sum {
    fn add(&mut self, line: &Joined) {
        let run = &line.run;
        if let Some(lending) = &line.lending {
            self.lending.add(&lending.lent);
        }
        self.runs += 1;
        self.cost.add(&line.cost);
        self.runs_without_energy += u32::from(run.total.joules.is_none());
        self.failures += run.total.failures;
        self.checkpoints += run.total.checkpoints;
        add(&mut self.joules, run.total.joules);
        add(&mut self.resilience_j, run.total.resilience_j);
        add(&mut self.checkpoint_j, joules_of(run, Phase::Checkpoint));
        add(&mut self.logging_j, joules_of(run, Phase::Logging));
        add(&mut self.restart_j, joules_of(run, Phase::Restart));
        add(&mut self.lost_work_j, joules_of(run, Phase::LostWork));
        add(&mut self.idle_j, joules_of(run, Phase::Idle));
        add(&mut self.expected_saving_j, run.total.expected_saving_j);
    }

    /// The energy of all jobs in a line, if it is known.
    ///
    /// Root alone is sure to see all runs and all jobs, so that others are told no share.
    pub fn all_jobs_told(&self, sees_all: bool) -> Option<String> {
        let (all_j, resilience_j) = (self.all_jobs_j?, self.resilience_j?);
        let (all, resilience) = (energy(all_j), energy(resilience_j));
        Some(match share(Some(resilience_j), Some(all_j)).filter(|_| sees_all) {
            Some(share) => {
                format!("All jobs of this time, protected or not: {all}; {:.2}% of it was resilience\n", 100.0 * share)
            }
            None => {
                format!("All jobs of this time that Slurm shows you: {all}; resilience of these runs: {resilience}\n")
            }
        })
    }

    /// Energy of a phase of resilience, J.
    pub fn of_phase(&self, phase: Phase) -> Option<f64> {
        match phase {
            Phase::Compute => self.joules.zip(self.resilience_j).map(|(all, resilience)| all - resilience),
            Phase::Checkpoint => self.checkpoint_j,
            Phase::Logging => self.logging_j,
            Phase::Restart => self.restart_j,
            Phase::LostWork => self.lost_work_j,
            Phase::Idle => self.idle_j,
        }
    }
}

/// The sums, the largest resilience first; those of whom only others are known, last.
pub fn sums(lines: &[Joined], others: Option<&Others>, by: &[By]) -> Vec<Sum> {
    let mut sums: BTreeMap<Vec<String>, Sum> = BTreeMap::new();
    for line in lines {
        sums.entry(by.iter().map(|by| by.of(line)).collect()).or_default().add(line);
    }
    if let Some(Others { jobs, cluster }) = others {
        for job in jobs {
            let sum = sums.entry(by.iter().map(|by| by.of_other(job, cluster)).collect()).or_default();
            add(&mut sum.all_jobs_j, Some(job.joules));
        }
        sums.values_mut().for_each(|sum| add(&mut sum.all_jobs_j, sum.joules));
    }
    let named = |(names, sum): (Vec<String>, Sum)| Sum {
        version: JSON_VERSION,
        of: names.join(", "),
        by: by.iter().copied().zip(names).collect(),
        ..sum
    };
    let mut sums: Vec<Sum> = sums.into_iter().map(named).collect();
    let resilience_j = |s: &Sum| s.resilience_j.unwrap_or(-1.0);
    sums.sort_by(|a, b| resilience_j(b).total_cmp(&resilience_j(a)));
    sums
}

/// The sum of all runs.
pub fn total(lines: &[Joined], others: Option<&Others>) -> Sum {
    let mut total = Sum { version: JSON_VERSION, of: "total".to_string(), ..Sum::default() };
    lines.iter().for_each(|l| total.add(l));
    total.all_jobs_j = others.map(|others| {
        let others_j = others.jobs.iter().map(|job| job.joules).sum::<f64>();
        others_j + total.joules.unwrap_or(0.0)
    });
    total
}

/// A column of sums.
struct Column {
    head: Head,
    value: fn(&Sum) -> Cell,
}

/// The columns behind the names, those first that say the most.
fn columns(site: &Accounting, has_all_jobs: bool) -> Vec<Column> {
    let column = |name: &str, width, value| Column {
        head: Head { name: name.to_string(), csv_unit: "", width, left: false },
        value,
    };
    let mut share_column = column("Share", 7, |s| Cell::Percent(share(s.resilience_j, s.joules)));
    share_column.head.csv_unit = "%";
    let mut columns = vec![
        column("Runs", 5, |s| Cell::Count(s.runs)),
        column("Energy(J)", 13, |s| Cell::joules(s.joules)),
        column("Resilience(J)", 13, |s| Cell::joules(s.resilience_j)),
        share_column,
    ];
    if has_all_jobs {
        columns.push(column("AllJobs(J)", 13, |s| Cell::joules(s.all_jobs_j)));
    }
    if site.has_prices() {
        let price = |s: &Sum| Cell::Number(s.cost.resilience.and_then(|c| c.price), 2);
        columns.push(column(&format!("Cost({})", site.currency), 10, |s| {
            Cell::Number(s.cost.whole.and_then(|c| c.price), 2)
        }));
        columns.push(column(&format!("ResilienceCost({})", site.currency), 19, price));
    }
    if site.co2_g_per_kwh.is_some() || site.tariff.is_some() {
        columns.push(column("CO2(g)", 10, |s| Cell::Number(s.cost.whole.and_then(|c| c.co2_g), 0)));
    }
    columns.extend([
        column("Failures", 8, |s| Cell::Count(s.failures)),
        column("Checkpoints", 11, |s| Cell::Count(s.checkpoints)),
        column("Energy(kWh)", 12, |s| Cell::Number(s.cost.whole.map(|c| c.kwh), 4)),
        column("Checkpoint(J)", 14, |s| Cell::joules(s.checkpoint_j)),
        column("Logging(J)", 14, |s| Cell::joules(s.logging_j)),
        column("Restart(J)", 14, |s| Cell::joules(s.restart_j)),
        column("LostWork(J)", 14, |s| Cell::joules(s.lost_work_j)),
        column("Idle(J)", 14, |s| Cell::joules(s.idle_j)),
        column("Lent(node-s)", 12, |s| Cell::joules(Some(s.lending.node_seconds))),
        column("Used(node-s)", 12, |s| Cell::joules(Some(s.lending.used_node_seconds))),
        column("Used(J)", 14, |s| Cell::joules(s.lending.used_j)),
        column("Saved(J)", 12, |s| Cell::joules(s.expected_saving_j)),
    ]);
    columns
}

/// The sums as a table: all columns if `wide`, else as many as a terminal holds.
pub fn sheet(sums: &[Sum], by: &[By], site: &Accounting, wide: bool) -> Sheet {
    let width = if by.len() > 1 { 12 } else { 16 };
    let name = |by: &By| Head { name: by.heading().to_string(), csv_unit: "", width, left: true };
    let mut head: Vec<Head> = by.iter().map(name).collect();
    let mut used = head.len() * (width + 1) - 1;
    let mut values: Vec<fn(&Sum) -> Cell> = Vec::new();
    for column in columns(site, sums.iter().any(|s| s.all_jobs_j.is_some())) {
        if wide || used + 1 + column.head.width <= WIDTH {
            used += 1 + column.head.width;
            head.push(column.head);
            values.push(column.value);
        }
    }
    let row = |s: &Sum| {
        let name = |(n, by): (usize, &By)| {
            let rest = if n == 0 { s.of.as_str() } else { "" };
            Cell::Text(s.by.get(by).map_or(rest, String::as_str).to_string())
        };
        let names = by.iter().enumerate().map(name);
        names.chain(values.iter().map(|value| value(s))).collect()
    };
    Sheet { head, rows: sums.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounted::alone;
    use crate::sheet::Form;
    use protocol::{RunAccount, Totals};

    fn run(account: &str, start_s: f64, joules: Option<f64>) -> RunAccount {
        let total = Totals { joules, resilience_j: joules.map(|j| j / 10.0), ..Totals::default() };
        let run = serde_json::json!({
            "cluster": "c", "run": "7.1", "job": 7, "job_id": "7", "user": "alice", "account": account,
            "partition": "all", "job_name": "j", "state": "completed", "start_s": start_s, "end_s": start_s + 1.0,
            "total": total, "phases": [], "records": [], "failures": [], "checkpoints": [], "plan": null
        });
        serde_json::from_value(run).expect("a run")
    }

    fn priced() -> Accounting {
        Accounting {
            price_per_kwh: Some(0.5),
            currency: "EUR".into(),
            co2_g_per_kwh: Some(100.0),
            ..Accounting::default()
        }
    }

    #[test]
    fn sums_are_made_by_several_things_at_once_and_what_is_not_known_is_no_zero() {
        let november_s = 1_795_400_000.0;
        let runs = vec![
            run("physics", 0.0, Some(7.2e6)),
            run("physics", november_s, None),
            run("physics", november_s, Some(3.6e6)),
            run("chemistry", november_s, None),
        ];
        let lines = alone(runs, &priced());
        let by = [By::Account, By::Month];
        let all = sums(&lines, None, &by);
        assert_eq!(all.iter().map(|s| s.runs).collect::<Vec<_>>(), [1, 2, 1]);
        assert_eq!((all[0].joules, all[0].cost.whole.and_then(|c| c.price)), (Some(7.2e6), Some(1.0)));
        assert_eq!((all[1].joules, all[1].runs_without_energy), (Some(3.6e6), 1));
        assert_eq!((all[2].of.as_str(), all[2].joules), ("chemistry, 2026-11", None));
        assert_eq!(all[2].by[&By::Account], "chemistry");
        let json = serde_json::to_value(&all[2]).expect("JSON");
        assert_eq!((&json["by"]["month"], &json["joules"]), (&"2026-11".into(), &serde_json::Value::Null));
    }

    fn other(account: &str, joules: f64) -> OfJob {
        let [name, user, partition, qos] = ["8", "bob", "all", "normal"].map(String::from);
        OfJob { joules, name, user, account: account.into(), partition, qos, start_s: Some(1_795_400_000.0) }
    }

    #[test]
    fn the_energy_of_all_jobs_is_parted_as_that_of_the_runs_is() {
        let lines = alone(vec![run("physics", 0.0, Some(100.0)), run("biology", 0.0, None)], &priced());
        let jobs = vec![other("chemistry", 40.0), other("physics", 7.0), other("chemistry", 2.0)];
        let others = Others { jobs, cluster: "c".into() };
        let all = |by: By| {
            let sums = sums(&lines, Some(&others), &[by]);
            sums.into_iter().map(|s| (s.of, s.runs, s.all_jobs_j)).collect::<Vec<_>>()
        };
        let named = |name: &str, runs, joules| (name.to_string(), runs, joules);
        assert_eq!(
            all(By::Account),
            [named("physics", 1, Some(107.0)), named("biology", 1, None), named("chemistry", 0, Some(42.0))]
        );
        assert_eq!(all(By::Cluster), [named("c", 2, Some(149.0))]);
        assert_eq!(all(By::Month), [named("1970-01", 2, Some(100.0)), named("2026-11", 0, Some(49.0))]);
        assert_eq!(total(&lines, Some(&others)).all_jobs_j, Some(149.0));
        assert_eq!(total(&lines, None).all_jobs_j, None);
    }

    #[test]
    fn a_table_of_sums_fits_a_terminal_unless_more_is_asked_for() {
        let lines = alone(vec![run("physics", 0.0, Some(1e9))], &priced());
        for by in [vec![By::User], vec![By::Account, By::Month], vec![By::Cluster, By::Partition, By::Qos]] {
            for site in [Accounting::default(), priced()] {
                let others = Others { jobs: vec![other("chemistry", 5e8)], cluster: "c".into() };
                let others = Some(&others).filter(|_| site.price_per_kwh.is_none());
                let sums = [sums(&lines, others, &by), vec![total(&lines, others)]].concat();
                let text = sheet(&sums, &by, &site, false).text(&Form::Aligned, true);
                assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
                assert!(text.contains("Resilience(J)") && text.contains("total"), "{text}");
                let wide = sheet(&sums, &by, &site, true).text(&Form::Csv, true);
                assert!(wide.contains("LostWork(J)"), "{wide}");
            }
        }
    }
}

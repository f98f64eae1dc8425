//! What a run cost, as the store tells it and the report prints it.

use crate::{Phase, Plan, Protection};
use serde::{Deserialize, Serialize};

/// Energy and time of one phase, summed over a run's nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseAccount {
    /// Which phase.
    pub phase: Phase,
    /// Energy, J; absent if nothing was read of it yet.
    #[serde(default)]
    pub joules: Option<f64>,
    /// Node-seconds spent in it.
    pub node_seconds: f64,
    /// Where the energy figures come from, such as `rapl` or `model,rapl`.
    pub source: String,
}

/// One Slurm job record of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordAccount {
    /// Slurm job id.
    pub job: u32,
    /// SLURM_RESTART_COUNT.
    pub restart_count: u32,
    /// When its wrapper began.
    pub start_s: f64,
    /// When it ended; absent while it runs.
    pub end_s: Option<f64>,
    /// How it ended.
    pub state: String,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// What the node services themselves have told of its counters, J; absent where they told nothing.
    #[serde(default)]
    pub metered_j: Option<f64>,
}

/// One failure of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailureAccount {
    /// `node`, `step`, `preempted`, ...
    pub kind: String,
    /// Which node.
    pub node: Option<String>,
    /// When it happened, as far as known.
    pub at_s: f64,
    /// Seconds until it was noticed.
    pub detection_s: f64,
    /// Whether it counts into the MTBF.
    pub counts: bool,
    /// What was seen.
    pub reason: String,
}

/// One complete checkpoint of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointAccount {
    /// Its number.
    pub number: u64,
    /// When it was begun.
    pub begun_s: f64,
    /// How long it took, s.
    pub seconds: f64,
    /// Volume, bytes.
    pub bytes: u64,
    /// How much of it was written for this checkpoint, bytes; the rest shares copies of an earlier one. Absent where a
    /// version before wrote it, which wrote all.
    #[serde(default)]
    pub written_bytes: Option<u64>,
    /// Energy, J; absent if nothing could be read.
    pub joules: Option<f64>,
    /// For how long of this the program stood still, s; absent if nobody could tell.
    pub still_s: Option<f64>,
}

/// What one node of a run did for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSpan {
    /// Node name.
    pub node: String,
    /// What it was doing.
    pub phase: Phase,
    /// Beginning.
    pub start_s: f64,
    /// End.
    pub end_s: f64,
    /// Energy, J; absent if nothing could be read.
    pub joules: Option<f64>,
    /// Where the energy figure comes from.
    pub source: String,
}

/// One decision of a run's policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionAccount {
    /// When.
    pub at_s: f64,
    /// What.
    pub action: String,
    /// Why.
    pub reason: String,
    /// Checkpoint interval in force, s.
    pub interval_s: f64,
}

/// One node of a run that another job had for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoanAccount {
    /// Node name.
    pub node: String,
    /// Slurm job id of the borrower; absent if nobody came.
    pub borrower: Option<u32>,
    /// When the node was given away.
    pub start_s: f64,
    /// When it was back; absent while it is lent.
    pub end_s: Option<f64>,
    /// Energy that the borrower used on it, J: not the run's.
    pub joules: Option<f64>,
}

/// What energy costs by the site's tariff, at the times at which it was used; absent where a rate was not known for all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bill {
    /// Its price, in the site's currency.
    pub price: Option<f64>,
    /// Carbon dioxide, g.
    pub co2_g: Option<f64>,
    /// Whether the tariff has all of these times; else the rates for all times stand for some of them.
    pub is_by_hours: bool,
}

/// Sums over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Energy by the nodes' counters, J; measured or estimated, as the phases' sources say. Absent if none was read yet.
    #[serde(default)]
    pub joules: Option<f64>,
    /// Energy of all phases but compute, J; absent where `joules` is.
    #[serde(default)]
    pub resilience_j: Option<f64>,
    /// Energy of work that had to be done again, J; absent where `joules` is.
    #[serde(default)]
    pub recomputed_j: Option<f64>,
    /// Node-seconds of work that had to be done again.
    pub recomputed_node_s: f64,
    /// Seconds from the first start to the end, waiting in the queue included.
    pub elapsed_s: f64,
    /// Seconds in which the run held nodes.
    pub held_s: f64,
    /// Number of failures that count.
    pub failures: u32,
    /// Number of complete checkpoints.
    pub checkpoints: u32,
    /// Number of Slurm job records.
    #[serde(default)]
    pub records: u32,
    /// Energy beyond a failure-free run without checkpoints, as a fraction of it.
    pub energy_overhead: Option<f64>,
    /// Node-time beyond a failure-free run without checkpoints, as a fraction of it.
    pub time_overhead: Option<f64>,
    /// What the plan expected of `energy_overhead`.
    #[serde(default)]
    pub expected_energy_overhead: Option<f64>,
    /// Energy that the plan expected to save against the other objective's interval, J; negative if it costs more.
    #[serde(default)]
    pub expected_saving_j: Option<f64>,
    /// What the node services themselves have told of the job's counters, J: no user's word is in it. Absent where they
    /// told nothing.
    #[serde(default)]
    pub metered_j: Option<f64>,
    /// What `joules` costs, where the site has a tariff: an estimate, as if power were constant within each phase.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bill: Option<Bill>,
    /// What `resilience_j` costs of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resilience_bill: Option<Bill>,
}

/// What a run cost. A brief account has empty lists, except `phases`, and no plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunAccount {
    /// Slurm cluster name.
    pub cluster: String,
    /// Name of the run.
    pub run: String,
    /// Slurm job id.
    pub job: u32,
    /// The job as Slurm's commands name it: `12`, `9_2` in an array, `9+0` in a heterogeneous job.
    #[serde(default)]
    pub job_id: String,
    /// User name.
    pub user: String,
    /// Slurm account.
    pub account: String,
    /// Slurm partition.
    #[serde(default)]
    pub partition: String,
    /// Job name.
    pub job_name: String,
    /// `running`, `completed`, `failed`, ...
    pub state: String,
    /// Whether it goes on and has no record now: it waits in the queue.
    #[serde(default)]
    pub waits: bool,
    /// Beginning of the first record.
    pub start_s: f64,
    /// End of the last record; absent while it runs.
    pub end_s: Option<f64>,
    /// Sums.
    pub total: Totals,
    /// By phase, all phases, in the order of [`Phase::ALL`].
    pub phases: Vec<PhaseAccount>,
    /// Slurm job records.
    pub records: Vec<RecordAccount>,
    /// What stopped it before its end: failures of nodes, which count, and others.
    pub failures: Vec<FailureAccount>,
    /// Complete checkpoints.
    pub checkpoints: Vec<CheckpointAccount>,
    /// What each node did, in order of time.
    #[serde(default)]
    pub spans: Vec<PhaseSpan>,
    /// Decisions, in order of time.
    #[serde(default)]
    pub decisions: Vec<DecisionAccount>,
    /// Nodes that were lent.
    #[serde(default)]
    pub loans: Vec<LoanAccount>,
    /// How far it is protected, or was at its end; absent if its wrapper did not say.
    #[serde(default)]
    pub protection: Option<Protection>,
    /// The prediction to hold beside the measurement.
    pub plan: Option<Plan>,
    /// Whether Slurm said that the job is the user's: else all of this is the user's word, and Slurm is told nothing of it.
    #[serde(default = "yes")]
    pub verified: bool,
    /// Why the run's records cannot be added up; empty if they can. Its sums and lists are empty then.
    #[serde(default)]
    pub trouble: String,
}

/// Older stores held no other runs.
fn yes() -> bool {
    true
}

/// The short form that goes into Slurm's AdminComment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdminSummary {
    /// Who wrote it.
    pub joulepoint: u32,
    /// Name of the run.
    pub run: String,
    /// Energy of the run so far, J; absent if nothing was read of it yet.
    #[serde(default)]
    pub joules: Option<f64>,
    /// Energy of resilience so far, J; absent likewise.
    #[serde(default)]
    pub resilience_j: Option<f64>,
    /// Energy of lost work so far, J; absent likewise.
    #[serde(default)]
    pub lost_work_j: Option<f64>,
    /// Complete checkpoints so far.
    pub checkpoints: u32,
    /// Failures so far.
    pub failures: u32,
    /// How far it was protected: `protected`, `unproven` or `not protected`; empty if its wrapper did not say.
    #[serde(default)]
    pub protection: String,
    /// Where the energy figures come from.
    pub source: String,
}

/// How figures of energy with these sources are to be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Counters were read.
    Measured,
    /// The model of the node's power was asked, since there is no counter.
    Estimated,
    /// Some of each.
    Both,
    /// Nothing has said anything yet.
    NotYet,
}

impl Told {
    /// By the sources of a figure, separated by commas.
    pub fn by<'a>(sources: impl IntoIterator<Item = &'a str>) -> Told {
        let all = sources.into_iter().flat_map(|s| s.split(',')).filter(|s| !s.is_empty());
        all.fold(Told::NotYet, |told, source| {
            let this = if source == "model" { Told::Estimated } else { Told::Measured };
            match told {
                Told::NotYet => this,
                told if told == this => told,
                _ => Told::Both,
            }
        })
    }

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Told::Measured => "measured",
            Told::Estimated => "estimated",
            Told::Both => "partly estimated",
            Told::NotYet => "not yet known",
        }
    }
}

impl RunAccount {
    /// Gives the job the name that its number makes, where a controller of a version before tells none.
    pub fn name_job(&mut self) {
        if self.job_id.is_empty() {
            self.job_id = self.job.to_string();
        }
    }

    /// How the energy of this run is to be called.
    pub fn told(&self) -> Told {
        Told::by(self.phases.iter().map(|p| p.source.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn only_counters_are_called_measured() {
        for (sources, told) in [
            (vec![], Told::NotYet),
            (vec!["", ""], Told::NotYet),
            (vec!["model", "", "model"], Told::Estimated),
            (vec!["rapl", "nvml,rapl"], Told::Measured),
            (vec!["model,rapl"], Told::Both),
            (vec!["rapl", "model"], Told::Both),
        ] {
            assert_eq!(Told::by(sources.iter().copied()), told, "{sources:?}");
        }
    }

    fn account() -> Value {
        json!({
            "cluster": "c", "run": "7.1", "job": 7, "user": "alice", "account": "physics", "job_name": "heat",
            "state": "running", "start_s": 1.0, "end_s": null,
            "total": {
                "joules": null, "resilience_j": null, "recomputed_j": null, "recomputed_node_s": 0.0, "elapsed_s": 1.0,
                "failures": 0, "checkpoints": 1, "energy_overhead": null, "time_overhead": null
            },
            "phases": [{ "phase": "compute", "joules": null, "node_seconds": 1.0, "source": "" }],
            "records": [{
                "job": 7, "restart_count": 0, "start_s": 1.0, "end_s": null, "state": "running", "nodes": ["n1"]
            }],
            "failures": [],
            "checkpoints": [{
                "number": 1, "begun_s": 1.0, "seconds": 1.0, "bytes": 9, "joules": null, "still_s": null
            }],
            "plan": null
        })
    }

    #[test]
    fn the_account_of_an_older_controller_is_read() {
        let run: RunAccount = serde_json::from_value(account()).unwrap();
        assert_eq!((run.waits, run.verified, run.checkpoints[0].written_bytes), (false, true, None));
        assert_eq!((run.total.joules, run.phases[0].joules), (None, None), "what nobody has read is absent");
    }

    #[test]
    fn what_a_newer_controller_tells_beside_it_is_left_aside() {
        fn grown(value: Value) -> Value {
            match value {
                Value::Object(map) => {
                    let mut map: serde_json::Map<String, Value> = map.into_iter().map(|(k, v)| (k, grown(v))).collect();
                    map.insert("of_a_newer_version".into(), json!({ "value": 1 }));
                    Value::Object(map)
                }
                Value::Array(all) => Value::Array(all.into_iter().map(grown).collect()),
                other => other,
            }
        }
        let [now, newer] = [account(), grown(account())].map(|v| serde_json::from_value::<RunAccount>(v).unwrap());
        assert_eq!(now, newer);
    }
}

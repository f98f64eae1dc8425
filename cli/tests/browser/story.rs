//! Runs as their wrappers tell them, put into a real store.

use protocol::{Batch, Event, FailureKind, JobReading, Loan, Phase, Plan, Record, RunKey};
use std::collections::BTreeMap;
use store::Store;

/// When the first run began: 20 November 2026, UTC.
pub const BEGIN_S: f64 = 1_795_165_200.0;

/// A name that would run if it were not escaped.
pub const NAME: &str = "<script>document.title='broken'</script>";

/// Watts by phase.
const POWERS: [(Phase, f64); 5] = [
    (Phase::Compute, 310.0),
    (Phase::Checkpoint, 180.0),
    (Phase::Restart, 150.0),
    (Phase::LostWork, 310.0),
    (Phase::Idle, 95.0),
];

/// A journal being written.
pub struct Journal {
    key: RunKey,
    job: u32,
    records: Vec<Record>,
    counters: BTreeMap<String, f64>,
    since_s: f64,
    /// Now, s since the epoch.
    pub at_s: f64,
}

impl Journal {
    /// A run of a job that begins `after_s` after the story.
    pub fn new(job: u32, after_s: f64) -> Journal {
        let key = RunKey { cluster: "c".into(), run: format!("{job}.{BEGIN_S}") };
        let at_s = BEGIN_S + after_s;
        Journal { key, job, records: Vec::new(), counters: BTreeMap::new(), since_s: at_s, at_s }
    }

    fn note(&mut self, event: Event) {
        self.records.push(Record { seq: self.records.len() as u64 + 1, at_s: self.at_s, event });
    }

    fn start(&mut self, (user, account, job_name): (&str, &str, &str), restart_count: u32, nodes: &[&str]) {
        (self.counters, self.since_s) = (BTreeMap::new(), self.at_s);
        self.note(Event::Started {
            job: self.job,
            restart_count,
            user: user.into(),
            account: account.into(),
            partition: "all".into(),
            job_name: job_name.into(),
            nodes: nodes.iter().map(|n| n.to_string()).collect(),
            resumed_from: (restart_count > 0).then_some(1),
            dir: "/tmp".into(),
        });
    }

    fn phase(&mut self, phase: Phase, seconds: f64, nodes: &[&str]) {
        let watts = POWERS.iter().find(|p| p.0 == phase).expect("a power").1;
        let start_s = self.at_s;
        self.at_s += seconds;
        for node in nodes {
            let joules = seconds * watts * if *node == "n2" { 1.1 } else { 1.0 };
            let (end_s, source) = (self.at_s, "rapl".to_string());
            self.note(Event::Phase { phase, node: node.to_string(), start_s, end_s, joules: Some(joules), source });
            let counter = self.counters.entry(node.to_string()).or_default();
            *counter += joules;
            let reading = JobReading {
                job: self.job,
                joules: *counter,
                cpu_s: seconds,
                source: "rapl".into(),
                since_s: self.since_s,
            };
            self.note(Event::Reading { node: node.to_string(), reading });
        }
    }

    fn checkpoint(&mut self, number: u64, nodes: &[&str]) {
        let begun_s = self.at_s;
        self.phase(Phase::Checkpoint, 45.0, nodes);
        let (ended_s, joules) = (self.at_s, Some(45.0 * 180.0 * nodes.len() as f64));
        self.note(Event::Committed {
            number,
            begun_s,
            ended_s,
            bytes: 12_000_000_000,
            written_bytes: None,
            joules,
            still_s: None,
        });
    }

    fn end(&mut self, state: &str) {
        self.note(Event::Ended { state: state.into(), exit_code: 0 });
    }

    /// Puts the run into the store, as the service does with what arrives.
    pub fn store(self, store: &mut Store) {
        let count = self.records.len() as u64;
        let batch = Batch { version: protocol::VERSION, key: self.key, holder: None, records: self.records };
        assert_eq!(store.append(&batch, 1000).expect("stored"), count);
    }
}

/// Two nodes, checkpoints, a node that dies, a node that is lent meanwhile, and a good end on another node.
pub fn with_a_death_and_a_loan(plan: Plan) -> Journal {
    let mut j = Journal::new(7, 0.0);
    let who = ("alice", "physics", NAME);
    let (first, second) = (["n1", "n2"], ["n1", "n3"]);
    j.start(who, 0, &first);
    j.note(Event::Planned(Box::new(plan)));
    for (group, node) in first.iter().enumerate() {
        let reason = format!("group {group} on {node}: has its nodes");
        j.note(Event::Decided { action: "place group".into(), reason, interval_s: 1200.0 });
    }
    j.phase(Phase::Compute, 1200.0, &first);
    j.checkpoint(1, &first);
    let reason = "a checkpoint took 45.0 s, 60.0 s were expected: the interval shrinks".to_string();
    j.note(Event::Decided { action: "interval".into(), reason, interval_s: 1040.0 });
    j.phase(Phase::Compute, 1040.0, &first);
    let kept_until_s = j.at_s;
    j.checkpoint(2, &first);
    j.phase(Phase::Compute, 700.0, &first);
    let (failed_s, kind) = (j.at_s, FailureKind::Node);
    j.at_s += 3.0;
    let (detected_s, node) = (j.at_s, Some("n2".to_string()));
    let reason = "node n2 died: no slurmd and no heartbeat for 3.0 s".to_string();
    j.note(Event::Failure { kind, node, failed_s, detected_s, reason });
    j.end("requeued");
    j.at_s += 60.0;
    j.start(who, 1, &second);
    j.note(Event::RolledBack { to: Some(2), kept_until_s });
    let reason = "group 1 on n3: starts again from checkpoint 2; the others go on".to_string();
    j.note(Event::Decided { action: "restart group".into(), reason, interval_s: 1040.0 });
    j.phase(Phase::Idle, 30.0, &["n1"]);
    let (start_s, end_s) = (j.at_s, j.at_s + 500.0);
    j.phase(Phase::Restart, 120.0, &["n3"]);
    j.phase(Phase::Compute, 380.0, &["n3"]);
    j.note(Event::Lent { node: "n1".into(), borrower: Some(9), start_s, end_s, joules: Some(1.2e5) });
    j.phase(Phase::Compute, 1040.0, &second);
    j.checkpoint(3, &second);
    j.phase(Phase::Compute, 640.0, &second);
    j.end("completed");
    j
}

/// The broker's side of that loan.
pub fn loan() -> Loan {
    let (lent_s, back_s) = (BEGIN_S + 3123.0, BEGIN_S + 3623.0);
    let stay = serde_json::json!({ "node": "n1", "job": 9, "user": "carol", "account": "physics", "start_s": lent_s,
                                   "end_s": back_s, "joules": 1.2e5 });
    let loan = serde_json::json!({
        "id": "a", "name": "joulepoint_a", "key": { "cluster": "c", "run": format!("7.{BEGIN_S}") }, "job": 7,
        "restart_count": 1, "uid": 0, "user": "alice", "account": "physics", "mode": "window", "state": "closed",
        "state_s": back_s, "reason": "it pays", "nodes": ["n1"], "kept": ["n3"], "asked_s": lent_s, "return_s": back_s,
        "promised_s": back_s, "lent_s": lent_s, "back_s": back_s, "back": ["n1"], "time_limit_s": null,
        "idle_w": 100.0, "stays": [stay]
    });
    serde_json::from_value(loan).expect("a loan")
}

/// A run without failures.
pub fn quiet(job: u32, (user, account, job_name): (&str, &str, &str), hours: u32, plan: Plan) -> Journal {
    let mut j = Journal::new(job, f64::from(job) * 600.0);
    j.start((user, account, job_name), 0, &["n4"]);
    j.note(Event::Planned(Box::new(plan)));
    for hour in 1..=hours {
        j.phase(Phase::Compute, 3555.0, &["n4"]);
        j.checkpoint(hour.into(), &["n4"]);
    }
    j.end("completed");
    j
}

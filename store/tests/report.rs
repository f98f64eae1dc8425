//! What a report asks of the store: a fixed number of queries, and the same sums in brief as in full.

use protocol::{Batch, Event, Phase, Record, RunKey};
use store::Store;
use store::account::{Wanted, accounts};

/// A run of `job` with a checkpoint, a loan, and a decision.
fn run(job: u32) -> Batch {
    let nodes = vec!["n1".to_string(), "n2".to_string()];
    let phase = |phase, node: &str, start_s, joules| Event::Phase {
        phase,
        node: node.into(),
        start_s,
        end_s: start_s + 10.0,
        joules: Some(joules),
        source: "rapl".into(),
    };
    let lent = Event::Lent { node: "n2".into(), borrower: None, start_s: 121.0, end_s: 130.0, joules: None };
    let events = vec![
        Event::Started {
            job,
            restart_count: 0,
            user: format!("user{}", job % 3),
            account: "physics".into(),
            partition: "all".into(),
            job_name: "heat".into(),
            nodes,
            resumed_from: None,
            dir: "/tmp".into(),
        },
        phase(Phase::Compute, "n1", 100.0, 50.0),
        phase(Phase::Checkpoint, "n2", 110.0, 5.0),
        Event::Committed {
            number: 1,
            begun_s: 110.0,
            ended_s: 120.0,
            bytes: 9,
            written_bytes: None,
            joules: Some(5.0),
            still_s: None,
        },
        Event::Decided { action: "interval".into(), reason: "why".into(), interval_s: 9.0 },
        lent,
    ];
    let records = (1..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0, event }).collect();
    let key = RunKey { cluster: "c".into(), run: format!("{job}.1") };
    Batch { version: protocol::VERSION, key, holder: None, records }
}

#[test]
fn a_window_asks_no_more_of_the_store_than_a_run() {
    let dir = tempfile::tempdir().expect("folder");
    let mut store = Store::open(&dir.path().join("store.sqlite")).expect("store");
    let queries = |store: &Store, wanted: &Wanted| {
        let before = store.connection().reads();
        let found = accounts(store.connection(), wanted, None, None).expect("accounts").len();
        (found, store.connection().reads() - before)
    };
    for brief in [true, false] {
        let wanted = Wanted { brief, ..Wanted::default() };
        let job = if brief { 1000 } else { 2000 };
        let before = queries(&store, &wanted).0;
        store.append(&run(job), 0).expect("stored");
        let (_, of_few) = queries(&store, &wanted);
        for more in 1..=40 {
            store.append(&run(job + more), 0).expect("stored");
        }
        assert_eq!(queries(&store, &wanted), (before + 41, of_few));
        assert!((5..=12).contains(&of_few), "{of_few} queries");
    }
}

#[test]
fn a_brief_account_has_the_sums_of_the_full_one() {
    let dir = tempfile::tempdir().expect("folder");
    let mut store = Store::open(&dir.path().join("store.sqlite")).expect("store");
    for job in 1..=4 {
        store.append(&run(job), 0).expect("stored");
    }
    let told = |wanted: Wanted| accounts(store.connection(), &wanted, None, None).expect("accounts");
    let (full, brief) = (told(Wanted::default()), told(Wanted { brief: true, ..Wanted::default() }));
    assert_eq!(full.len(), 4);
    for (full, brief) in full.iter().zip(&brief) {
        let occurred: Vec<_> = full.phases.iter().filter(|p| p.node_seconds > 0.0).cloned().collect();
        assert_eq!((&full.total, &occurred), (&brief.total, &brief.phases));
        assert_eq!((full.total.checkpoints, full.total.records, full.total.resilience_j), (1, 1, Some(5.0)));
        assert_eq!((full.spans.len(), full.decisions.len(), full.loans.len()), (2, 1, 1));
        assert_eq!((brief.spans.len(), brief.records.len(), brief.checkpoints.len()), (0, 0, 0));
    }
    let jobs = |job: Vec<u32>| told(Wanted { job, ..Wanted::default() }).iter().map(|r| r.job).collect::<Vec<_>>();
    assert_eq!(jobs(vec![2, 4]), [2, 4]);
    let users = told(Wanted { user: Some("user1,user2".into()), ..Wanted::default() });
    assert_eq!(users.iter().map(|r| r.job).collect::<Vec<_>>(), [1, 2, 4]);
}

//! Records arrive: each is stored once and in order, whatever is sent twice, lost or refused.

use super::{UID, batch, both, ended, records, run_with_a_death, started, told};
use protocol::{Batch, Event, Record, RunAccount};
use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use store::account::{Wanted, accounts};
use store::{Error, Write};

#[test]
fn what_is_sent_twice_is_stored_once() {
    both(|store| {
        let batch = batch("7.1", records(1, run_with_a_death()));
        assert_eq!(store.append(&batch, UID).expect("first"), 27);
        let once = told(store, "7.1");
        assert_eq!(store.append(&batch, UID).expect("again"), 27);
        assert_eq!(told(store, "7.1"), once);
        assert_eq!(once.checkpoints.len(), 1);
    });
}

#[test]
fn a_holder_that_another_has_followed_may_repeat_what_is_stored_and_adds_nothing() {
    both(|store| {
        let all = records(1, run_with_a_death());
        let of = |holder, records: &[Record]| Batch { holder: Some(holder), ..batch("7.1", records.to_vec()) };
        assert_eq!(store.append(&of(1, &all[..5]), UID).expect("the first"), 5);
        assert_eq!(store.append(&of(2, &all[..8]), UID).expect("the second"), 8);
        assert_eq!(store.append(&of(1, &all[..8]), UID).expect("nothing new"), 8);
        let late = store.append(&of(1, &all[..9]), UID).expect_err("something new");
        assert!(matches!(late, Error::Superseded { holder: 1, newer: 2 }), "{late}");
        assert_eq!(store.append(&of(2, &all[8..10]), UID).expect("the second goes on"), 10);
        // Another run has holders of its own, and a sender of a version before says nothing.
        assert_eq!(store.append(&Batch { holder: Some(1), ..batch("8.1", all.clone()) }, UID).expect("stored"), 27);
        assert_eq!(store.append(&batch("7.1", all.clone()), UID).expect("stored"), 27);
        store.forget(1e12, 10).expect("forgotten");
        assert_eq!(store.append(&of(1, &all), UID).expect("nothing is known of it"), 27);
    });
}

#[test]
fn every_event_reads_back_as_it_was_sent() {
    both(|store| {
        let mut events = run_with_a_death();
        events.insert(1, Event::CheckpointFailed { reason: "disk full".into() });
        events.insert(1, Event::Decided { action: "interval".into(), reason: "why".into(), interval_s: 9.5 });
        let sent = records(1, events);
        store.append(&batch("7.1", sent.clone()), UID).expect("stored");
        let texts = store
            .connection()
            .query_map("SELECT json FROM events ORDER BY seq", &[], |r| r.get::<String>(0))
            .expect("rows");
        let read: Vec<Record> =
            texts.iter().map(|t| serde_json::from_str(t).unwrap_or_else(|e| panic!("{t}: {e}"))).collect();
        assert_eq!(read, sent);
    });
}

#[test]
fn a_gap_is_answered_with_what_is_stored() {
    both(|store| {
        let mut all = records(1, run_with_a_death());
        let late = all.remove(2);
        assert_eq!(store.append(&batch("7.1", all.clone()), UID).expect("with a gap"), 2);
        let rest: Vec<Record> = std::iter::once(late).chain(all.into_iter().skip(2)).collect();
        assert_eq!(store.append(&batch("7.1", rest), UID).expect("the rest"), 27);
    });
}

#[test]
fn any_order_of_deliveries_gives_the_same_account() {
    both(|store| {
        let all = records(1, run_with_a_death());
        store.append(&batch("7.1", all.clone()), UID).expect("in order");
        let wanted = told(store, "7.1");
        for seed in 0..40 {
            let (mut rng, run) = (ChaCha8Rng::seed_from_u64(seed), format!("{seed}.2"));
            let mut upto = 0;
            while upto < 27 {
                let from = rng.random_range(0..=upto as usize);
                let to = rng.random_range(from..=27);
                let mut some = all[from..to].to_vec();
                if rng.random_bool(0.2) {
                    some.shuffle(&mut rng);
                }
                upto = store.append(&batch(&run, some), UID).unwrap_or_else(|e| panic!("seed {seed}: {e:#}")).max(upto);
            }
            assert_eq!(RunAccount { run: "7.1".into(), ..told(store, &run) }, wanted, "seed {seed}");
        }
    });
}

#[test]
fn a_write_that_cannot_be_done_does_not_hold_up_the_others() {
    both(|store| {
        let good = |run: &str| Write::Batch {
            batch: batch(run, records(1, vec![started(7, 0, &["n1"])])),
            uid: UID,
            verified: true,
        };
        let headless =
            Write::Batch { batch: batch("8.1", records(1, vec![ended("completed")])), uid: UID, verified: true };
        let answers = store.write(&[good("7.1"), headless, good("9.1")]).expect("commits");
        let upto: Vec<Option<u64>> = answers.into_iter().map(Result::ok).collect();
        assert_eq!(upto, [Some(1), None, Some(1)]);
        assert_eq!(accounts(store.connection(), &Wanted::default(), None, None).expect("accounts").len(), 2);
    });
}

#[test]
fn what_one_database_refuses_does_not_hold_up_the_others() {
    both(|store| {
        let good = |run: &str| Write::Batch {
            batch: batch(run, records(1, vec![started(7, 0, &["n1"])])),
            uid: UID,
            verified: true,
        };
        let answers = store.write(&[good("7.1"), good(&"x".repeat(5000)), good("9.1")]).expect("commits");
        let upto: Vec<Option<u64>> = answers.into_iter().map(Result::ok).collect();
        assert_eq!((upto[0], upto[2]), (Some(1), Some(1)));
    });
}

#[test]
fn names_longer_than_a_column_are_cut_not_refused() {
    both(|store| {
        let mut first = started(7, 0, &["n1"]);
        let Event::Started { job_name, .. } = &mut first else { panic!("a start") };
        *job_name = "ü".repeat(5000);
        store.append(&batch("7.1", records(1, vec![first, ended("completed")])), UID).expect("stored");
        assert_eq!(told(store, "7.1").job_name, "ü".repeat(255));
    });
}

#[test]
fn what_runs_outside_slurm_is_not_watched_and_is_closed_when_nothing_was_heard_of_it() {
    both(|store| {
        let batch = batch("local-x.1", records(1, vec![started(0, 0, &["n1"])]));
        store.write(&[Write::Batch { batch, uid: UID, verified: false }]).expect("stored");
        let open = store.open_runs().expect("read");
        assert!(open.is_empty(), "Slurm knows nothing of it, and closes nothing: {open:?}");
        assert_eq!(told(store, "local-x.1").state, "running");
        assert_eq!(store.close_unverified(1.0).expect("looked"), 0, "it was heard of since");
        assert_eq!(store.close_unverified(1e12).expect("closed"), 1);
        assert_eq!(told(store, "local-x.1").state, "unknown");
    });
}

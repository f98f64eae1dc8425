//! What is told of runs: phases that sum to the total, failures, decisions, loans, and what the next run learns.

use super::{
    UID, batch, both, ended, joules, key, node_failure, phase, reading, records, run_with_a_death, started, sums, told,
};
use protocol::{
    DecisionAccount, Event, FailureKind, JobReading, LoanAccount, Messages, Phase, Protection, ProtectionState, Told,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use slurm::JobName;
use store::account::{Wanted, accounts, asked, summary};
use store::{Store, Value, Write};

#[test]
fn the_account_of_a_run_that_lost_a_node() {
    both(|store| {
        store.append(&batch("7.1", records(1, run_with_a_death())), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!(run.total.joules, Some(95.0 + 105.0 + 54.0 + 55.5));
        assert_eq!(joules(&run, Phase::LostWork), 80.0);
        assert_eq!((run.total.recomputed_j, run.total.recomputed_node_s), (Some(80.0), 80.0));
        assert_eq!((joules(&run, Phase::Checkpoint), joules(&run, Phase::Restart)), (10.0, 8.0));
        assert_eq!((run.total.failures, run.total.checkpoints, run.records.len()), (1, 1, 2));
        assert_eq!((run.state.as_str(), run.records[0].state.as_str()), ("completed", "requeued"));
        let overhead = run.total.energy_overhead.expect("there is computing");
        assert!((overhead - (309.5 - 211.5) / 211.5).abs() < 1e-12, "{overhead}");
        let short = summary(&run);
        assert_eq!(
            (short.joules, short.lost_work_j, short.failures, short.source.as_str()),
            (Some(309.5), Some(80.0), 1, "model")
        );
    });
}

#[test]
fn energy_that_nobody_has_read_is_absent_and_never_a_zero() {
    both(|store| {
        let unread = |phase, span: (f64, f64)| Event::Phase {
            phase,
            node: "n1".into(),
            start_s: span.0,
            end_s: span.1,
            joules: None,
            source: String::new(),
        };
        let begun = vec![started(7, 0, &["n1"]), unread(Phase::Compute, (100.0, 110.0))];
        store.append(&batch("7.1", records(1, begun)), UID).expect("stored");
        let run = told(store, "7.1");
        let total = &run.total;
        assert_eq!(
            (total.joules, total.resilience_j, total.recomputed_j, total.energy_overhead),
            (None, None, None, None)
        );
        assert!(run.phases.iter().all(|p| p.joules.is_none()), "{:?}", run.phases);
        assert_eq!(run.told(), Told::NotYet);
        let short = summary(&run);
        assert_eq!((short.joules, short.resilience_j, short.lost_work_j), (None, None, None));
        let json = serde_json::to_value(&run).expect("JSON");
        assert!(json["total"]["joules"].is_null() && json["phases"][0]["joules"].is_null(), "{json:#}");
        // What was read is told, and what may still be going on is not called nothing.
        let read = vec![phase(Phase::Compute, "n1", (110.0, 120.0), 7.0), reading("n1", 7.0, 99.0)];
        store.append(&batch("7.1", records(3, read)), UID).expect("stored");
        let run = told(store, "7.1");
        assert_eq!((run.total.joules, run.total.resilience_j, run.told()), (Some(7.0), Some(0.0), Told::Estimated));
        let idle =
            |run: &protocol::RunAccount| run.phases.iter().find(|p| p.phase == Phase::Idle).expect("idle").joules;
        assert_eq!(idle(&run), None);
        store.append(&batch("7.1", records(5, vec![ended("completed")])), UID).expect("stored");
        assert_eq!(idle(&told(store, "7.1")), Some(0.0), "what did not occur took nothing");
    });
}

#[test]
fn a_job_that_was_ended_from_outside_is_billed_no_resilience_for_its_end() {
    for state in ["cancelled", "timeout", "completed"] {
        both(|store| {
            let events = vec![
                started(7, 0, &["n1"]),
                phase(Phase::Compute, "n1", (100.0, 150.0), 50.0),
                reading("n1", 60.0, 99.0),
                ended(state),
            ];
            store.append(&batch("7.1", records(1, events)), UID).expect("stored");
            let run = told(store, "7.1");
            sums(&run);
            let waited_j = if state == "completed" { 10.0 } else { 0.0 };
            assert_eq!((run.total.joules, run.total.resilience_j), (Some(60.0), Some(waited_j)), "{state}");
        });
    }
    // Its wrapper could not even say that it ended.
    both(|store| {
        let events =
            vec![started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (100.0, 150.0), 50.0), reading("n1", 60.0, 99.0)];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let open = store.open_run(&key("7.1")).expect("answer").expect("an open run");
        store.close(&open, 170.0, "cancelled").expect("closed");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!((run.total.joules, run.total.resilience_j), (Some(60.0), Some(0.0)));
    });
}

#[test]
fn the_number_of_an_array_stands_for_all_its_tasks_and_each_bears_slurms_name() {
    both(|store| {
        for (run, job, task) in [("11.1", 11, 1), ("12.1", 12, 2), ("9.1", 9, 3)] {
            store.append(&batch(run, records(1, vec![started(job, 0, &["n1"])])), UID).expect("stored");
            let named = JobName { job, array: Some((9, task)), het: None };
            store.write(&[Write::Named { key: key(run), named }]).expect("named");
        }
        store.append(&batch("13.1", records(1, vec![started(13, 0, &["n1"])])), UID).expect("stored");
        let asked = |store: &Store, job: Vec<u32>, task: Vec<u32>| {
            let wanted = Wanted { job, task, ..Wanted::default() };
            let runs = accounts(store.connection(), &wanted, None, None).expect("accounts");
            let mut names: Vec<String> = runs.into_iter().map(|r| r.job_id).collect();
            names.sort();
            names
        };
        assert_eq!(asked(store, vec![9], vec![]), ["9_1", "9_2", "9_3"]);
        assert_eq!(asked(store, vec![], vec![9]), ["9_3"], "the task that has the array's number");
        assert_eq!(asked(store, vec![13], vec![12]), ["13", "9_2"]);
        let het = JobName { job: 13, array: None, het: Some(12) };
        store.write(&[Write::Named { key: key("13.1"), named: het }]).expect("named");
        assert_eq!(asked(store, vec![13], vec![]), ["12+1"]);
    });
}

#[test]
fn an_interval_that_spans_the_line_is_cut_in_proportion() {
    both(|store| {
        let events = vec![
            started(7, 0, &["n1"]),
            phase(Phase::Compute, "n1", (100.0, 200.0), 100.0),
            reading("n1", 100.0, 99.0),
            Event::RolledBack { to: Some(1), kept_until_s: 130.0 },
            ended("completed"),
        ];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert!((joules(&run, Phase::Compute) - 30.0).abs() < 1e-9);
        assert!((joules(&run, Phase::LostWork) - 70.0).abs() < 1e-9);
    });
}

#[test]
fn only_the_work_of_the_group_that_went_back_is_lost() {
    both(|store| {
        let of = Box::new(Event::RolledBack { to: Some(1), kept_until_s: 130.0 });
        let events = vec![
            started(7, 0, &["n1", "n2", "n3"]),
            phase(Phase::Compute, "n1", (100.0, 200.0), 100.0),
            phase(Phase::Compute, "n2", (100.0, 200.0), 100.0),
            Event::InGroup { group: 1, nodes: vec!["n2".into(), "n3".into()], of },
            Event::InGroup { group: 1, nodes: vec!["n3".into()], of: Box::new(node_failure("n2", 195.0)) },
            ended("completed"),
        ];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let run = told(store, "7.1");
        assert!((joules(&run, Phase::Compute) - 130.0).abs() < 1e-9);
        assert!((joules(&run, Phase::LostWork) - 70.0).abs() < 1e-9);
        assert_eq!(run.total.failures, 1);
    });
}

#[test]
fn what_a_dead_node_used_last_is_lost_work_and_late_counters_do_not_count() {
    both(|store| {
        let events =
            vec![started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (100.0, 110.0), 10.0), reading("n1", 10.0, 99.0)];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let counters = |restart_count, joules, at_s| Write::Counters {
            key: key("7.1"),
            restart_count,
            node: "n1".into(),
            at_s,
            reading: JobReading { job: 7, joules, cpu_s: 0.0, source: "model".into(), since_s: 99.0 },
        };
        store.write(&[counters(0, 25.0, 120.0)]).expect("counted");
        let resumed = vec![started(7, 1, &["n2"]), Event::RolledBack { to: None, kept_until_s: 0.0 }];
        store.append(&batch("7.1", records(4, resumed)), UID).expect("stored");
        store.write(&[counters(0, 99.0, 130.0)]).expect("ignored");
        store.append(&batch("7.1", records(6, vec![ended("completed")])), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!((run.total.joules, joules(&run, Phase::LostWork)), (Some(25.0), 25.0));
        assert_eq!(run.records[0].state, "interrupted");
    });
}

/// What a node service tells of job 7 on n1.
fn counted(restart_count: u32, joules: f64, since_s: f64, at_s: f64) -> Write {
    let reading = JobReading { job: 7, joules, cpu_s: 0.0, source: "model".into(), since_s };
    Write::Counters { key: key("7.1"), restart_count, node: "n1".into(), at_s, reading }
}

#[test]
fn what_a_node_tells_of_an_earlier_life_does_not_count_for_the_next() {
    both(|store| {
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"])])), UID).expect("stored");
        store.write(&[counted(0, 40.0, 99.0, 120.0)]).expect("counted");
        store.append(&batch("7.1", records(2, vec![started(7, 1, &["n1"])])), UID).expect("stored");
        // The node has not heard yet that the job has begun again there.
        store.write(&[counted(1, 41.0, 99.0, 130.0), counted(1, 5.0, 131.0, 140.0)]).expect("counted");
        store.append(&batch("7.1", records(3, vec![ended("completed")])), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!(run.total.joules, Some(46.0));
    });
}

#[test]
fn what_lives_used_that_did_not_take_the_run_up_is_not_booked_on_the_one_before_and_said_to_be_unknown() {
    both(|store| {
        let begun = vec![started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (100.0, 110.0), 10.0)];
        store.append(&batch("7.1", records(1, begun)), UID).expect("stored");
        store.write(&[counted(0, 25.0, 99.0, 120.0)]).expect("counted");
        // Slurm says that the next life has begun on the same node; that one waits for the storage, and is held.
        let open = store.open_run(&key("7.1")).expect("answer").expect("an open run");
        store.life_is_over(&open, 150.0).expect("noted");
        store.write(&[counted(0, 90.0, 150.0, 200.0)]).expect("ignored");
        store.life_is_over(&open, 300.0).expect("as before");
        let waiting = told(store, "7.1");
        assert!(waiting.waits, "it waits in the queue");
        assert_eq!(waiting.records[0].end_s, Some(120.0));
        let mut resumed = records(3, vec![started(7, 3, &["n1"]), ended("completed")]);
        resumed.iter_mut().for_each(|record| record.at_s += 400.0);
        store.append(&batch("7.1", resumed), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!((run.total.joules, joules(&run, Phase::LostWork)), (Some(25.0), 15.0));
        assert_eq!((run.records[0].state.as_str(), run.records[0].end_s), ("interrupted", Some(120.0)));
        let [unknown] = &run.decisions[..] else { panic!("{:?}", run.decisions) };
        assert!(unknown.reason.starts_with("restarts 1 to 2 did not"), "{unknown:?}");
    });
    // It is cancelled while it is held.
    both(|store| {
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"])])), UID).expect("stored");
        store.write(&[counted(0, 25.0, 99.0, 120.0)]).expect("counted");
        let open = store.open_run(&key("7.1")).expect("answer").expect("an open run");
        store.life_is_over(&open, 150.0).expect("noted");
        store.close(&open, 900.0, "cancelled").expect("closed");
        let run = told(store, "7.1");
        assert_eq!((run.records[0].end_s, run.end_s), (Some(120.0), Some(900.0)));
    });
}

#[test]
fn what_a_job_has_used_is_told_of_what_it_did_though_its_counters_could_not_be_read_then() {
    both(|store| {
        let unread = Event::Phase {
            phase: Phase::Compute,
            node: "n1".into(),
            start_s: 100.0,
            end_s: 110.0,
            joules: None,
            source: String::new(),
        };
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"]), unread])), UID).expect("stored");
        store.write(&[counted(0, 25.0, 99.0, 111.0)]).expect("counted");
        store.append(&batch("7.1", records(3, vec![ended("completed")])), UID).expect("stored");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!((joules(&run, Phase::Compute), joules(&run, Phase::Idle)), (25.0, 0.0));
    });
}

#[test]
fn what_arrives_of_a_run_after_it_was_closed_counts_once() {
    both(|store| {
        let begun =
            vec![started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (100.0, 110.0), 10.0), reading("n1", 10.0, 99.0)];
        store.append(&batch("7.1", records(1, begun)), UID).expect("stored");
        let counted = Write::Counters {
            key: key("7.1"),
            restart_count: 0,
            node: "n1".into(),
            at_s: 125.0,
            reading: JobReading { job: 7, joules: 25.0, cpu_s: 0.0, source: "model".into(), since_s: 99.0 },
        };
        store.write(&[counted]).expect("counted");
        // Slurm says that its job is over, while its wrapper cannot reach the controller.
        let open = store.open_runs().expect("read");
        store.close(&open[0], 130.0, "completed").expect("closed");
        let run = told(store, "7.1");
        sums(&run);
        assert_eq!((run.total.joules, joules(&run, Phase::Compute)), (Some(25.0), 25.0));
        let late = [
            phase(Phase::Checkpoint, "n1", (110.0, 115.0), 8.0),
            reading("n1", 18.0, 99.0),
            phase(Phase::Compute, "n1", (115.0, 130.0), 12.0),
            reading("n1", 30.0, 99.0),
            ended("completed"),
        ];
        for (seq, events) in (4..).step_by(2).zip(late.chunks(2)) {
            store.append(&batch("7.1", records(seq, events.to_vec())), UID).expect("stored");
            sums(&told(store, "7.1"));
        }
        let run = told(store, "7.1");
        assert_eq!((run.total.joules, joules(&run, Phase::Compute)), (Some(30.0), 22.0));
        assert_eq!((joules(&run, Phase::Checkpoint), run.state.as_str()), (8.0, "completed"));
    });
}

#[test]
fn a_death_that_both_sides_tell_is_one_failure() {
    let death = |store: &mut Store, controller_first: bool| {
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1", "n2"])])), UID).expect("stored");
        let tell = |store: &mut Store| store.node_died("n2", 195.0, 198.0, "silent", |_| true).expect("noted");
        if controller_first {
            assert_eq!(tell(store).len(), 1);
        }
        store.append(&batch("7.1", records(2, vec![node_failure("n2", 195.4)])), UID).expect("stored");
        if !controller_first {
            tell(store);
        }
        assert_eq!(told(store, "7.1").total.failures, 1, "controller first: {controller_first}");
        assert_eq!(store.history("alice", "heat").expect("history").node_failures, 1);
        let deaths = store.node_failures().expect("deaths");
        assert_eq!(deaths.iter().map(|d| d.node.as_str()).collect::<Vec<_>>(), ["n2"]);
    };
    both(|store| death(store, true));
    both(|store| death(store, false));
}

#[test]
fn cancelled_runs_and_timeouts_do_not_count_into_the_mtbf() {
    both(|store| {
        let other = |kind| Event::Failure { kind, node: None, failed_s: 1.0, detected_s: 1.0, reason: "asked".into() };
        let kinds = [FailureKind::Timeout, FailureKind::Cancelled, FailureKind::Preempted, FailureKind::Requeued];
        let events = std::iter::once(started(7, 0, &["n1"])).chain(kinds.map(other)).collect();
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let run = told(store, "7.1");
        assert_eq!((run.failures.len(), run.total.failures), (4, 0));
        assert_eq!(store.history("alice", "heat").expect("history").node_failures, 0);
    });
}

#[test]
fn failures_are_counted_by_kind() {
    both(|store| {
        let other = |kind| Event::Failure { kind, node: None, failed_s: 1.0, detected_s: 1.0, reason: "asked".into() };
        let kinds = [FailureKind::Step, FailureKind::Timeout, FailureKind::Step];
        let of_node = Event::Failure {
            kind: FailureKind::Step,
            node: Some("n1".into()),
            failed_s: 1.0,
            detected_s: 1.0,
            reason: "started again there".into(),
        };
        let events = std::iter::once(started(7, 0, &["n1"])).chain(kinds.map(other)).chain([of_node]).collect();
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let count = |kind| store.failures(&key("7.1"), kind).expect("counted");
        assert_eq!([FailureKind::Step, FailureKind::Timeout, FailureKind::Node].map(count), [2, 1, 0]);
    });
}

#[test]
fn random_runs_sum_to_their_counters() {
    both(|store| {
        for seed in 0..150 {
            let run = format!("{seed}.1");
            let events = random_run(&mut ChaCha8Rng::seed_from_u64(seed));
            let (count, heard) = (events.len(), seed as usize % events.len());
            let (mut events, mut upto) = (records(1, events), 0);
            // Some are closed by the controller before it has heard all.
            let late = events.split_off(heard + 1);
            for (part, records) in [events, late].into_iter().enumerate() {
                upto =
                    store.append(&batch(&run, records), UID).unwrap_or_else(|e| panic!("seed {seed}: {e:#}")).max(upto);
                let open = store.open_runs().expect("read");
                if let Some(open) = open.iter().find(|open| open.key.run == run && part == 0) {
                    store.close(open, 1e6, "completed").expect("closed");
                }
            }
            assert_eq!(upto, count as u64);
            println!("seed {seed}");
            sums(&told(store, &run));
        }
    });
}

/// Records with random phases, counters that begin anew, deaths, roll-backs and wrappers that vanish.
fn random_run(rng: &mut ChaCha8Rng) -> Vec<Event> {
    let mut events = Vec::new();
    let mut t = 100.0;
    for restart_count in 0..rng.random_range(1..4) {
        events.push(started(7, restart_count, &["n1", "n2"]));
        if restart_count > 0 {
            events.push(Event::RolledBack { to: None, kept_until_s: rng.random_range(0.0..t) });
        }
        let mut counters = [(0.0, t); 2];
        for _ in 0..rng.random_range(0..12) {
            let span = (t, t + rng.random_range(0.0..50.0));
            let which = Phase::ALL[rng.random_range(0..5)];
            for (node, counter) in ["n1", "n2"].into_iter().zip(&mut counters) {
                if rng.random_bool(0.1) {
                    *counter = (0.0, t);
                }
                let used = rng.random_range(0.0..1e4);
                counter.0 += used;
                events.push(phase(which, node, span, used));
                events.push(reading(node, counter.0, counter.1));
            }
            t = span.1;
            if rng.random_bool(0.1) {
                events.push(Event::RolledBack { to: None, kept_until_s: rng.random_range(0.0..t) });
            }
            if rng.random_bool(0.1) {
                let more = counters[0].0 + rng.random_range(0.0..100.0);
                counters[0].0 = more;
                events.push(reading("n1", more, counters[0].1));
                events.push(phase(Phase::Idle, "n1", (t, t), 0.0));
            }
        }
        if rng.random_bool(0.7) {
            events.push(ended("requeued"));
        }
    }
    events.push(ended("completed"));
    events
}

#[test]
fn energy_is_kept_by_phase_node_and_source() {
    both(|store| {
        let mut events = run_with_a_death();
        let rapl = Event::Phase {
            phase: Phase::Idle,
            node: "n3".into(),
            start_s: 255.0,
            end_s: 256.0,
            joules: Some(0.1),
            source: "rapl".into(),
        };
        events.insert(26, rapl);
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let sql = "SELECT node, phase, source, sum(joules) FROM phases WHERE run = ?1
                   GROUP BY node, phase, source ORDER BY node, phase, source";
        let rows = store.connection().query_map(sql, &[Value::Text("7.1".into())], |r| {
            Ok((r.get::<String>(0)?, r.get::<String>(1)?, r.get::<String>(2)?, r.get::<f64>(3)?))
        });
        let rows = rows.expect("rows");
        let wanted = [
            ("n1", "checkpoint", "model", 5.0),
            ("n1", "compute", "model", 100.0),
            ("n1", "lost_work", "model", 40.0),
            ("n1", "restart", "model", 4.0),
            ("n2", "checkpoint", "model", 5.0),
            ("n2", "compute", "model", 60.0),
            ("n2", "lost_work", "model", 40.0),
            ("n3", "compute", "model", 51.5),
            ("n3", "idle", "rapl", 0.1),
            ("n3", "restart", "model", 4.0),
        ];
        let told: Vec<_> = rows.iter().map(|(n, p, s, j)| (n.as_str(), p.as_str(), s.as_str(), *j)).collect();
        assert_eq!(told, wanted);
    });
}

#[test]
fn decisions_and_loans_read_back() {
    both(|store| {
        let decided =
            |action: &str, interval_s| Event::Decided { action: action.into(), reason: "why".into(), interval_s };
        let events = vec![started(7, 0, &["n1"]), decided("interval", 9.5), decided("requeue", 0.1 + 0.2)];
        store.append(&batch("7.1", records(1, events)), UID).expect("stored");
        let of = |at_s, action: &str, interval_s| DecisionAccount {
            at_s,
            action: action.into(),
            reason: "why".into(),
            interval_s,
        };
        let decisions = told(store, "7.1").decisions;
        assert_eq!(decisions, [of(102.0, "interval", 9.5), of(103.0, "requeue", 0.1 + 0.2)]);

        let away = LoanAccount { node: "n1".into(), borrower: Some(9), start_s: 5.0, end_s: None, joules: None };
        let back = LoanAccount { end_s: Some(8.0), joules: Some(12.5), ..away.clone() };
        // A second job may begin on the node in the same second, and nobody come to another.
        let beside = LoanAccount { borrower: Some(10), ..back.clone() };
        let empty = LoanAccount { node: "n2".into(), borrower: None, ..away.clone() };
        for loan in [&away, &empty, &beside, &back, &empty] {
            store.note_loan(&key("7.1"), loan).expect("noted");
        }
        let again = Event::Lent { node: "n1".into(), borrower: Some(9), start_s: 5.0, end_s: 8.0, joules: Some(12.5) };
        store.append(&batch("7.1", records(4, vec![again])), UID).expect("stored");
        assert_eq!(told(store, "7.1").loans, [back, beside, empty]);
        store.append(&batch("8.1", records(1, vec![started(8, 0, &["n1"])])), UID).expect("stored");
        assert_eq!(told(store, "8.1").loans, []);
    });
}

#[test]
fn how_far_a_run_is_protected_is_what_its_wrapper_said_last() {
    both(|store| {
        let said = |state, reason: &str| {
            let (engine, reason) = ("app".to_string(), reason.to_string());
            Event::Protection(Box::new(Protection { state, engine, reason, ..Protection::default() }))
        };
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"])])), UID).expect("stored");
        assert_eq!(told(store, "7.1").protection, None);
        let states = |store: &Store| store.open_run(&key("7.1")).expect("asked").map(|run| run.protection);
        assert_eq!(states(store).as_deref(), Some(""));
        let events = vec![said(ProtectionState::NotProtected, "no file"), said(ProtectionState::Protected, "")];
        store.append(&batch("7.1", records(2, events)), UID).expect("stored");
        let protection = told(store, "7.1").protection.expect("said");
        assert_eq!((protection.state, protection.engine.as_str()), (ProtectionState::Protected, "app"));
        assert_eq!(states(store).as_deref(), Some("protected"));
    });
}

#[test]
fn reports_are_restricted_to_what_is_asked_and_may_be_seen() {
    both(|store| {
        for (run, uid) in [("7.1", 1000), ("8.1", 1001)] {
            store.append(&batch(run, records(1, vec![started(7, 0, &["n1"])])), uid).expect("stored");
        }
        let count = |wanted: Wanted, uid| accounts(store.connection(), &wanted, uid, None).expect("accounts").len();
        assert_eq!(count(Wanted::default(), None), 2);
        assert_eq!(count(Wanted::default(), Some(1001)), 1);
        assert_eq!(count(Wanted { user: Some("nobody'; DROP TABLE runs; --".into()), ..Wanted::default() }, None), 0);
        assert_eq!(count(Wanted { end: Some(50.0), ..Wanted::default() }, None), 0);
        assert_eq!(count(Wanted { start: Some(50.0), state: Some("running".into()), ..Wanted::default() }, None), 2);
        let size = |uid| asked(store.connection(), &Wanted::default(), uid).expect("their size");
        assert_eq!((size(None).runs, size(Some(1001)).runs), (2, 1));
        assert_eq!(size(None).bytes, 2 * size(Some(1001)).bytes);
        assert!(size(Some(1001)).bytes > 0);
    });
}

fn plan_by(engine: &str) -> protocol::Plan {
    let settings = options::resolve(&protocol::Request::default(), &Default::default()).expect("settings");
    let plan = planner::plan_without_history(&settings, &protocol::PlanRequest::default(), &config::Site::default());
    protocol::Plan { engine: engine.into(), ..plan }
}

#[test]
fn a_new_run_is_told_which_engine_made_checkpoints() {
    both(|store| {
        let planned = |engine: &str| Event::Planned(Box::new(plan_by(engine)));
        let committed = Event::Committed {
            number: 1,
            begun_s: 101.0,
            ended_s: 102.0,
            bytes: 9,
            written_bytes: None,
            joules: None,
            still_s: None,
        };
        let engine = |store: &mut Store| store.history("alice", "heat").expect("history").engine;
        store.append(&batch("7.1", records(1, vec![started(7, 0, &["n1"]), planned("app")])), UID).expect("stored");
        assert_eq!(engine(store), None, "it made no checkpoint");
        let made = vec![started(8, 0, &["n1"]), planned("scr"), committed];
        store.append(&batch("8.1", records(1, made)), UID).expect("stored");
        store.append(&batch("9.1", records(1, vec![started(9, 0, &["n1"]), planned("app")])), UID).expect("stored");
        assert_eq!(engine(store).as_deref(), Some("scr"));
    });
}

#[test]
fn a_new_run_is_told_in_which_run_its_program_did_not_repeat_itself() {
    both(|store| {
        let back = |why: &str| Event::Decided {
            action: planner::TOGETHER.into(),
            reason: format!("rank 0 of group 0 sends rank 1 other messages: {why}; all go back"),
            interval_s: 1.0,
        };
        let of = |store: &mut Store, name: &str| store.history("alice", name).expect("history").not_alone;
        let lost = vec![started(6, 0, &["n1"]), back("a log is lost")];
        store.append(&batch("6.1", records(1, lost)), UID).expect("stored");
        assert_eq!(of(store, "heat"), None, "that was not the program");
        for job in [7, 8] {
            let events = vec![started(job, 0, &["n1"]), back(planner::NOT_ALONE)];
            store.append(&batch(&format!("{job}.1"), records(1, events)), UID).expect("stored");
        }
        store.append(&batch("9.1", records(1, vec![started(9, 0, &["n1"])])), UID).expect("stored");
        assert!(of(store, "heat").is_some_and(|run| ["7.1", "8.1"].contains(&run.as_str())));
        assert_eq!(of(store, "other"), None);
    });
}

#[test]
fn a_new_run_is_told_what_nodes_of_earlier_ones_have_told_each_other_the_newest_first() {
    both(|store| {
        let counted = |nodes: u32| Messages { script: "5eed".into(), nodes, ..Messages::default() };
        let of = |store: &mut Store, name: &str| store.history("alice", name).expect("history").messages;
        assert_eq!(of(store, "heat"), []);
        for (job, count) in [(7, Some(70)), (8, None), (9, Some(90))] {
            let events = [Some(started(job, 0, &["n1"])), count.map(|count| Event::Messages(counted(count)))];
            let mut records = records(1, events.into_iter().flatten().collect());
            records.iter_mut().for_each(|record| record.at_s = f64::from(job));
            store.append(&batch(&format!("{job}.1"), records), UID).expect("stored");
        }
        assert_eq!(of(store, "heat"), [counted(90), counted(70)]);
        assert_eq!(of(store, "other"), []);
    });
}

#[test]
fn a_run_that_waits_in_the_queue_does_so_in_lists_and_alone() {
    both(|store| {
        let waits = |store: &Store| {
            let of = |brief| {
                accounts(store.connection(), &Wanted { brief, ..Wanted::default() }, None, None).expect("accounts")
            };
            [true, false].map(|brief| of(brief)[0].waits)
        };
        let events = [started(7, 0, &["n1"]), phase(Phase::Compute, "n1", (0.0, 1.0), 5.0), ended("requeued")];
        store.append(&batch("7.1", records(1, events[..2].to_vec())), UID).expect("stored");
        assert_eq!(waits(store), [false; 2]);
        store.append(&batch("7.1", records(3, events[2..].to_vec())), UID).expect("stored");
        assert_eq!(waits(store), [true; 2]);
        store.append(&batch("7.1", records(4, vec![started(7, 1, &["n2"])])), UID).expect("stored");
        assert_eq!(waits(store), [false; 2]);
        store.append(&batch("7.1", records(5, vec![ended("completed")])), UID).expect("stored");
        assert_eq!(waits(store), [false; 2]);
    });
}

#[test]
fn a_new_run_is_told_for_which_part_of_checkpoints_programs_stood_still() {
    both(|store| {
        let committed = |number: u64, seconds: f64, still_s| {
            let begun_s = 100.0 * number as f64;
            let (written_bytes, joules) = (None, None);
            Event::Committed { number, begun_s, ended_s: begun_s + seconds, bytes: 9, written_bytes, joules, still_s }
        };
        let share = |store: &mut Store| store.history("alice", "heat").expect("history").still_share;
        let unknown = vec![started(7, 0, &["n1"]), committed(1, 10.0, None)];
        store.append(&batch("7.1", records(1, unknown)), UID).expect("stored");
        assert_eq!(share(store), None, "nobody could tell");
        let known = [started(8, 0, &["n1"]), committed(1, 10.0, Some(5.0)), committed(2, 30.0, Some(5.0))];
        store.append(&batch("8.1", records(1, known.into())), UID).expect("stored");
        assert_eq!(share(store), Some(0.25), "of those alone of which it is known");
    });
}

#[test]
fn a_new_run_is_told_the_work_and_the_volume_of_earlier_ones() {
    both(|store| {
        assert_eq!(store.history("alice", "heat").expect("history").work_s, None);
        store.append(&batch("7.1", records(1, run_with_a_death())), UID).expect("stored");
        let history = store.history("alice", "heat").expect("history");
        assert_eq!((history.work_s, history.checkpoint_bytes), (Some(100.0), Some(1000.0)));
        assert_eq!(store.history("alice", "other").expect("history").work_s, None);
    });
}

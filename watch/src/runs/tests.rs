//! What is done about the jobs of runs, one case at a time and through random histories.

use super::*;
use crate::Limits;
use crate::nodes::Heard;
use protocol::{Seen, Testimony};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

fn run() -> Run {
    let nodes = vec!["n1".to_string(), "n2".to_string()];
    Run { job: 7, restart_count: 0, uid: 1000, nodes, is_requeued: false, is_running: true }
}

fn job(doing: Doing) -> Job {
    let nodes = vec!["n1".to_string(), "n2".to_string()];
    let batch_host = Some("n1".to_string());
    Job { uid: 1000, doing, batch: true, batch_host, nodes, requeue: true, began_ago_s: Some(50.0), delayed_s: 0.0 }
}

fn no_nodes() -> Nodes {
    Nodes::new(Limits::default(), 0.0, [])
}

/// Eight nodes, of which the first is found dead at 14 s.
fn first_is_dead() -> Nodes {
    let mut nodes = no_nodes();
    let beat = |nodes: &mut Nodes, at_s: f64, n: usize| {
        let name = format!("n{n}");
        let epoch = nodes.known(&name).map(|k| k.epoch).or(Some(0));
        nodes.heard(
            at_s,
            Heard {
                node: name.clone(),
                boot_id: "b".into(),
                slurmd_up: true,
                epoch,
                jobs: BTreeSet::new(),
                pause_s: 0.0,
                up_s: None,
            },
        );
        nodes.word(at_s, &name);
    };
    for at_s in [8.0, 9.0, 10.0, 13.0] {
        (1..=8).filter(|n| *n > 1 || at_s < 11.0).for_each(|n| beat(&mut nodes, at_s, n));
    }
    let looks = nodes.look(13.5);
    let Some(crate::nodes::Action::Look { node, epoch, witnesses, .. }) = looks.last() else { panic!("{looks:?}") };
    let all = witnesses.iter().map(|w| (w.clone(), Testimony::default())).collect();
    nodes.looked(14.0, node, *epoch, Seen::default(), &all);
    assert!(nodes.is_dead("n1"));
    nodes
}

#[test]
fn a_job_requeued_by_a_death_starts_at_once_and_one_requeued_by_hand_does_not() {
    let (nodes, pending) = (no_nodes(), job(Doing::Delayed));
    let mut runs = Runs::new(0.0);
    assert_eq!(runs.answered(100.0, &run(), Some(&pending), &nodes), None);
    runs.hit(100.0, [7]);
    assert_eq!(runs.answered(101.0, &run(), Some(&pending), &nodes), Some(Action::StartNow));
    assert_eq!(runs.answered(102.0, &run(), Some(&pending), &nodes), None, "not again at once");
    assert_eq!(runs.answered(107.0, &run(), Some(&pending), &nodes), Some(Action::StartNow));
    let mut runs = Runs::new(0.0);
    let handed_back = Run { is_requeued: true, is_running: false, ..run() };
    assert_eq!(runs.answered(100.0, &handed_back, Some(&pending), &nodes), Some(Action::StartNow));
    assert_eq!(runs.answered(110.0, &handed_back, Some(&job(Doing::Waiting)), &nodes), None, "it waits for nodes");
}

#[test]
fn a_requeued_job_that_somebody_delays_is_left_to_wait() {
    let nodes = no_nodes();
    let handed_back = Run { is_requeued: true, is_running: false, ..run() };
    let delayed = |delayed_s| Job { delayed_s, ..job(Doing::Delayed) };
    let mut runs = Runs::new(0.0);
    assert_eq!(runs.answered(10.0, &handed_back, Some(&delayed(600.0)), &nodes), None, "before it was helped");
    assert_eq!(runs.answered(15.0, &handed_back, Some(&delayed(121.0)), &nodes), None, "its moment has come near");
    let mut runs = Runs::new(0.0);
    assert_eq!(runs.answered(20.0, &handed_back, Some(&delayed(121.0)), &nodes), Some(Action::StartNow));
    assert_eq!(runs.answered(30.0, &handed_back, Some(&job(Doing::Waiting)), &nodes), None);
    assert_eq!(runs.waits_for_s(35.0, 7), Some(5.0));
    assert_eq!(
        runs.answered(40.0, &handed_back, Some(&delayed(60.0)), &nodes),
        None,
        "it has waited for its nodes before"
    );
    assert_eq!(runs.answered(50.0, &run(), Some(&job(Doing::Running)), &nodes), None);
    assert_eq!(runs.waits_for_s(55.0, 7), None);
    assert_eq!(
        runs.answered(60.0, &handed_back, Some(&delayed(121.0)), &nodes),
        Some(Action::StartNow),
        "the next life"
    );
}

#[test]
fn a_job_without_a_script_is_requeued() {
    let mut runs = Runs::new(0.0);
    assert_eq!(runs.answered(14.0, &run(), Some(&job(Doing::Running)), &no_nodes()), None);
    let requeue = Some(Action::Requeue(Cause::ScriptLost));
    assert_eq!(runs.answered(15.0, &run(), Some(&job(Doing::Running)), &first_is_dead()), requeue);
    let later = Job { began_ago_s: Some(1.0), ..job(Doing::Running) };
    assert_eq!(Runs::new(0.0).answered(15.0, &run(), Some(&later), &first_is_dead()), None, "it began after the death");
    let taken_out = Job { nodes: vec!["n2".into()], ..job(Doing::Running) };
    assert_eq!(Runs::new(0.0).answered(15.0, &run(), Some(&taken_out), &no_nodes()), requeue, "while nobody watched");
}

#[test]
fn a_job_that_its_node_has_forgotten_by_a_boot_is_requeued_if_slurm_does_not() {
    let mut nodes = no_nodes();
    let beat = |nodes: &mut Nodes, at_s: f64, boot_id: &str| {
        let (node, boot_id) = ("n1".to_string(), boot_id.to_string());
        nodes.heard(
            at_s,
            Heard { node, boot_id, slurmd_up: true, epoch: Some(0), jobs: BTreeSet::from([7]), ..Heard::default() },
        );
    };
    beat(&mut nodes, 90.0, "b");
    beat(&mut nodes, 100.0, "c");
    let began = |ago_s| Job { began_ago_s: Some(ago_s), ..job(Doing::Running) };
    let requeue = Some(Action::Requeue(Cause::ScriptLost));
    assert_eq!(Runs::new(0.0).answered(105.0, &run(), Some(&began(50.0)), &nodes), None, "Slurm may still do it");
    assert_eq!(Runs::new(0.0).answered(111.0, &run(), Some(&began(50.0)), &nodes), requeue);
    assert_eq!(Runs::new(0.0).answered(111.0, &run(), Some(&began(15.0)), &nodes), None, "it began after the boot");
    let allocation = Job { batch: false, ..began(50.0) };
    assert_eq!(Runs::new(0.0).answered(111.0, &run(), Some(&allocation), &nodes), None, "it has no script");
    let stays = Job { requeue: false, ..began(50.0) };
    assert_eq!(Runs::new(0.0).answered(111.0, &run(), Some(&stays), &nodes), None, "Slurm would refuse");
    let mut attended = Runs::new(0.0);
    attended.due(104.0, &[run()], &nodes);
    attended.attended(105.0, 7);
    assert_eq!(attended.answered(112.0, &run(), Some(&began(50.0)), &nodes), None, "its wrapper lives");
    // A boot of which this controller saw the end only, hours ago perhaps.
    let known = nodes.known("n1").expect("known").clone();
    let mut kept = Nodes::new(Limits::default(), 200.0, [("n1".to_string(), known)]);
    beat(&mut kept, 201.0, "d");
    assert_eq!(Runs::new(0.0).answered(220.0, &run(), Some(&began(50.0)), &kept), None, "it may have begun since");
    // The node tells how long it has been up: what began before is gone, whoever has seen the boot.
    let (node, boot_id) = ("n1".to_string(), "d".to_string());
    kept.heard(230.0, Heard { node, boot_id, slurmd_up: true, epoch: Some(0), up_s: Some(30.0), ..Heard::default() });
    assert_eq!(Runs::new(0.0).answered(231.0, &run(), Some(&began(50.0)), &kept), requeue);
    assert_eq!(Runs::new(0.0).answered(231.0, &run(), Some(&began(29.0)), &kept), None, "it began in this boot");
}

#[test]
fn a_killed_wrapper_is_told_from_a_job_that_ended() {
    let nodes = no_nodes();
    let mut runs = Runs::new(0.0);
    assert_eq!(
        runs.answered(100.0, &run(), Some(&job(Doing::Killed)), &nodes),
        None,
        "its last words may be on their way"
    );
    let requeue = Some(Action::Requeue(Cause::WrapperKilled));
    assert_eq!(runs.answered(106.0, &run(), Some(&job(Doing::Killed)), &nodes), requeue);
    for (doing, ended) in [
        (Doing::Cancelled, Ended::Cancelled),
        (Doing::Completed, Ended::Completed),
        (Doing::Timeout, Ended::Timeout),
        (Doing::Failed, Ended::Failed),
    ] {
        let mut runs = Runs::new(0.0);
        runs.answered(100.0, &run(), Some(&job(doing)), &nodes);
        assert_eq!(runs.answered(106.0, &run(), Some(&job(doing)), &nodes), Some(Action::Close(ended)));
    }
}

#[test]
fn a_job_of_somebody_else_gets_nothing_done() {
    for doing in [Doing::Running, Doing::Delayed, Doing::Killed] {
        let mut runs = Runs::new(0.0);
        let strangers = Job { uid: 1001, ..job(doing) };
        runs.hit(10.0, [7]);
        for at_s in [100.0, 110.0] {
            let action = runs.answered(at_s, &run(), Some(&strangers), &first_is_dead());
            assert!(matches!(action, None | Some(Action::Close(Ended::Unknown))), "{action:?}");
        }
    }
}

#[test]
fn slurm_is_asked_rarely_about_a_job_that_runs_and_at_once_when_its_wrapper_goes_away() {
    let nodes = no_nodes();
    let asked_in_an_hour = |run: &Run| {
        let (mut runs, mut asked) = (Runs::new(0.0), 0);
        for tenth in 0..36_000 {
            let now_s = f64::from(tenth) / 10.0;
            runs.attended(now_s, 7);
            for _ in runs.due(now_s, std::slice::from_ref(run), &nodes) {
                asked += 1;
                runs.answered(now_s, run, Some(&job(Doing::Running)), &nodes);
            }
        }
        (runs, asked)
    };
    let alone = Run { nodes: vec!["n1".to_string()], ..run() };
    assert_eq!(asked_in_an_hour(&alone).1, 12, "every five minutes");
    let run = run();
    let (mut runs, asked) = asked_in_an_hour(&run);
    assert_eq!(asked, 60, "once a minute where it may give a node back");
    runs.answered(3600.0, &run, Some(&job(Doing::Running)), &nodes);
    assert!(runs.due(3600.5, std::slice::from_ref(&run), &nodes).is_empty());
    runs.left(3601.0, 7);
    assert_eq!(runs.due(3601.0, std::slice::from_ref(&run), &nodes), [7]);
    runs.answered(3601.0, &run, Some(&job(Doing::Running)), &nodes);
    assert_eq!(runs.due(3602.1, std::slice::from_ref(&run), &nodes), [7], "and often for a while");
    runs.answered(3800.0, &run, Some(&job(Doing::Running)), &nodes);
    runs.attended(3801.0, 7);
    assert!(runs.due(3801.5, std::slice::from_ref(&run), &nodes).is_empty());
    let next = Run { restart_count: 1, ..run.clone() };
    assert_eq!(runs.due(3801.5, std::slice::from_ref(&next), &nodes), [7], "at once when another life begins");
    assert!(runs.due(4000.0, &[], &nodes).is_empty());
}

#[test]
fn what_waits_in_the_queue_is_asked_about_less_and_less() {
    let nodes = no_nodes();
    let (mut runs, run) = (Runs::new(0.0), Run { is_requeued: true, is_running: false, ..run() });
    let mut asked = Vec::new();
    for tenth in 0..36_000 {
        let now_s = f64::from(tenth) / 10.0;
        for _ in runs.due(now_s, std::slice::from_ref(&run), &nodes) {
            asked.push(now_s);
            runs.answered(now_s, &run, Some(&job(Doing::Waiting)), &nodes);
        }
    }
    let soon = asked.iter().filter(|s| **s < 180.0).count();
    assert!(soon > 100 && asked.len() - soon < 250, "{soon} of {}", asked.len());
}

#[test]
fn a_job_whose_launch_failed_is_let_go_a_few_times_and_not_for_ever() {
    let (nodes, held) = (no_nodes(), job(Doing::NotLaunched));
    let mut runs = Runs::new(0.0);
    let release = |tenth: u32| {
        let now_s = f64::from(tenth) / 10.0;
        (runs.answered(now_s, &run(), Some(&held), &nodes) == Some(Action::Release)).then_some(now_s)
    };
    let released: Vec<f64> = (1000..9000).filter_map(release).collect();
    assert_eq!(released, [100.0, 130.0, 190.0]);
}

#[test]
fn random_histories_of_a_job() {
    let all = [
        Doing::Running,
        Doing::Completing,
        Doing::Delayed,
        Doing::Waiting,
        Doing::NotLaunched,
        Doing::Killed,
        Doing::Failed,
        Doing::Cancelled,
        Doing::Timeout,
        Doing::Completed,
    ];
    let nodes = no_nodes();
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut runs = Runs::new(0.0);
        let hit = rng.random_bool(0.5);
        if hit {
            runs.hit(1000.0, [7]);
        }
        let (mut state, mut since_s, mut helped_s) = (0, 1000.0, f64::NEG_INFINITY);
        for tick in 0..800 {
            let now_s = 1000.0 + f64::from(tick) * 0.5;
            if rng.random_bool(0.03) {
                (state, since_s) = (rng.random_range(0..all.len()), now_s);
            }
            let doing = all[state];
            match runs.answered(now_s, &run(), Some(&job(doing)), &nodes) {
                Some(Action::StartNow) => assert!(hit && doing == Doing::Delayed, "seed {seed}: {doing:?}"),
                Some(Action::Requeue(cause)) => {
                    assert_eq!((cause, doing), (Cause::WrapperKilled, Doing::Killed), "seed {seed}");
                }
                Some(Action::Release) => assert_eq!(doing, Doing::NotLaunched, "seed {seed}"),
                Some(Action::Close(_)) => assert!(state >= 5, "seed {seed}: {doing:?}"),
                None => {
                    let over = state >= 6 && now_s - since_s > 6.0;
                    assert!(!over, "seed {seed}: {doing:?} for {} s and nothing done", now_s - since_s);
                    continue;
                }
            }
            if state < 6 {
                assert!(now_s - helped_s >= 5.0, "seed {seed}: helped twice at once");
                helped_s = now_s;
            }
        }
    }
}

#[test]
fn the_many_jobs_of_one_user_do_not_make_the_job_of_another_wait() {
    let nodes = no_nodes();
    let of = |job: u32, uid: u32| Run { job, uid, ..run() };
    let mut all: Vec<Run> = (1..=5000).map(|job| of(job, 1000)).collect();
    all.push(of(9000, 1001));
    all.push(of(9001, 1001));
    let mut runs = Runs::new(0.0);
    let due = runs.due(10.0, &all, &nodes);
    assert_eq!(due.len(), 5002, "all are new");
    assert!(due[..4].contains(&9000) && due[..4].contains(&9001), "{:?}", &due[..4]);
    // All run, and nothing is expected of them; then one is hit.
    for run in &all {
        runs.answered(10.0, run, Some(&Job { uid: run.uid, ..job(Doing::Running) }), &nodes);
    }
    assert!(runs.due(30.0, &all, &nodes).is_empty());
    runs.hit(71.0, [4711]);
    let due = runs.due(75.0, &all, &nodes);
    assert_eq!(due.len(), 5002);
    assert_eq!(due.iter().position(|j| *j == 4711), Some(0), "what was hit is its user's first");
    assert!(due[..4].contains(&9000));
}

#[test]
fn a_job_about_which_slurm_gives_no_answer_does_not_stand_before_the_others() {
    let nodes = no_nodes();
    let all: Vec<Run> = (1..=3).map(|job| Run { job, ..run() }).collect();
    let mut runs = Runs::new(0.0);
    let first = runs.due(10.0, &all, &nodes)[0];
    runs.unanswered(10.0, first);
    let due = runs.due(11.5, &all, &nodes);
    assert_eq!((due.len(), due[2]), (3, first), "{due:?}");
}

#[test]
fn two_runs_of_one_job_are_one_question() {
    let all = [run(), Run { restart_count: 1, ..run() }];
    assert_eq!(Runs::new(0.0).due(10.0, &all, &no_nodes()), [7]);
}

#[test]
fn after_a_start_a_kill_is_believed_only_when_spools_were_emptied() {
    let (nodes, mut runs) = (no_nodes(), Runs::new(100.0));
    let mut at = |now_s| runs.answered(now_s, &run(), Some(&job(Doing::Killed)), &nodes);
    assert_eq!([at(100.0), at(106.0), at(144.0)], [const { None }; 3]);
    assert_eq!(at(146.0), Some(Action::Requeue(Cause::WrapperKilled)));
}

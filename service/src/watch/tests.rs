//! The watch through one case at a time, and what its tests have in common.

use super::*;
use protocol::RunKey;

/// A heartbeat of a node on which job 7 runs.
pub fn beat(node: &str, slurmd_up: bool) -> Beat {
    Beat {
        version: protocol::VERSION,
        node: node.into(),
        at_s: 0.0,
        started_s: 0.0,
        url: String::new(),
        slurmd_up,
        node_joules: 0.0,
        source: "model".into(),
        jobs: vec![protocol::JobReading { job: 7, joules: 1.0, cpu_s: 0.0, source: "model".into(), since_s: 0.0 }],
        fingerprint: None,
    }
}

/// A run on two nodes, as job 7.
pub fn run() -> OpenRun {
    OpenRun {
        key: RunKey { cluster: "c".into(), run: "7.1".into() },
        uid: 1000,
        job: 7,
        restart_count: 0,
        nodes: vec!["n1".into(), "n2".into()],
        record_state: "running".into(),
    }
}

/// Job 7 as Slurm tells of it.
pub fn job(text: &str) -> BTreeMap<u32, Job> {
    let line = format!("JobId=7 JobName=j UserId=u(1000) GroupId=u(1000) {text}");
    BTreeMap::from([(7, slurm::parse_job(&line, 7).expect("parses").expect("a job"))])
}

#[test]
fn a_silent_node_is_looked_at_and_a_dead_one_is_fenced_and_comes_back() {
    let mut watch = Watch::new(3.0, 0.0);
    watch.heard(10.0, beat("n1", true));
    assert!(watch.look(12.0, &[], &BTreeMap::new()).is_empty());
    assert_eq!(watch.look(13.5, &[], &BTreeMap::new()), [Act::Verify { node: "n1".into() }]);
    assert_eq!(watch.dead("n1"), Some(10.0));
    assert!(watch.health(14.0, &["n1".into()], 7)[0].dead);
    assert!(watch.heard(19.0, beat("n1", false)).1.is_empty(), "a job that is not protected");
    watch.hit(19.5, &[run()]);
    assert_eq!(watch.heard(20.0, beat("n1", false)).1, [7]);
    assert!(watch.look(20.1, &[run()], &BTreeMap::new()).is_empty());
    assert!(watch.heard(21.0, beat("n1", true)).1.is_empty(), "what begins there now is new");
    assert_eq!(watch.look(21.1, &[run()], &BTreeMap::new()), [Act::Resume { node: "n1".into() }]);
    assert!(watch.look(21.2, &[run()], &BTreeMap::new()).is_empty(), "once");
    assert!(watch.heard(24.0, beat("n1", true)).1.is_empty());
}

#[test]
fn a_node_whose_slurmd_is_gone_is_looked_at_while_it_beats() {
    let mut watch = Watch::new(3.0, 0.0);
    for t in [10.0, 11.0, 12.0, 13.0] {
        watch.heard(t, beat("n1", t < 10.5));
        assert!(watch.look(t, &[], &BTreeMap::new()).is_empty(), "{t}");
    }
    watch.heard(14.5, beat("n1", false));
    assert_eq!(watch.look(14.5, &[], &BTreeMap::new()), [Act::Verify { node: "n1".into() }]);
}

#[test]
fn a_job_requeued_by_a_death_starts_at_once_and_one_requeued_by_hand_does_not() {
    let pending = job("JobState=PENDING Reason=BeginTime Requeue=1 Restarts=1");
    let mut watch = Watch::new(3.0, 0.0);
    assert!(watch.look(100.0, &[run()], &pending).is_empty());
    watch.hit(100.0, &[run()]);
    assert_eq!(watch.look(101.0, &[run()], &pending), [Act::StartNow { run: run() }]);
    assert!(watch.look(102.0, &[run()], &pending).is_empty(), "not again at once");
    assert_eq!(watch.look(107.0, &[run()], &pending).len(), 1);
}

#[test]
fn a_job_without_a_script_is_requeued() {
    let running = job("JobState=RUNNING Reason=None Requeue=1 Restarts=0 NodeList=n[1-2] BatchHost=n1");
    let mut watch = Watch::new(3.0, 0.0);
    watch.heard(10.0, beat("n1", true));
    assert!(watch.look(11.0, &[run()], &running).is_empty());
    watch.dead("n1");
    assert!(matches!(&watch.look(14.0, &[run()], &running)[..], [Act::Requeue { wrapper_killed: false, .. }]));
}

#[test]
fn a_job_that_lost_its_script_before_the_service_began_is_requeued() {
    let running = |nodes: &str| {
        let text = "JobState=RUNNING Reason=None Requeue=1 Restarts=0 StartTime=50 BatchFlag=1 BatchHost=n1";
        job(&format!("{text} NodeList={nodes}"))
    };
    let mut watch = Watch::new(3.0, 100.0);
    assert!(watch.look(101.0, &[run()], &running("n[1-2]")).is_empty());
    assert!(matches!(&watch.look(102.0, &[run()], &running("n2"))[..], [Act::Requeue { wrapper_killed: false, .. }]));
}

#[test]
fn a_killed_wrapper_is_told_from_a_job_that_ended() {
    let mut watch = Watch::new(3.0, 0.0);
    let killed = job("JobState=FAILED Reason=NonZeroExitCode Requeue=1 Restarts=0 ExitCode=0:9");
    assert!(watch.look(100.0, &[run()], &killed).is_empty(), "its last words may be on their way");
    assert!(matches!(&watch.look(106.0, &[run()], &killed)[..], [Act::Requeue { wrapper_killed: true, .. }]));
    let mut watch = Watch::new(3.0, 0.0);
    let done = job("JobState=CANCELLED Reason=None Requeue=1 Restarts=0 ExitCode=0:15");
    watch.look(100.0, &[run()], &done);
    assert_eq!(watch.look(106.0, &[run()], &done), [Act::Close { run: run(), state: "cancelled" }]);
}

#[test]
fn a_run_that_claims_somebody_elses_job_gets_nothing_done() {
    let stranger = OpenRun { uid: 1001, ..run() };
    let mut watch = Watch::new(3.0, 0.0);
    watch.heard(10.0, beat("n1", true));
    watch.dead("n1");
    watch.hit(10.0, std::slice::from_ref(&stranger));
    for state in ["RUNNING BatchHost=n1", "PENDING Reason=BeginTime", "FAILED ExitCode=0:9"] {
        let jobs = job(&format!("JobState={state} Requeue=1 Restarts=0"));
        let acts = watch.look(100.0, std::slice::from_ref(&stranger), &jobs);
        assert!(acts.iter().all(|a| matches!(a, Act::Verify { .. } | Act::Close { .. })), "{acts:?}");
    }
}

#[test]
fn most_nodes_silent_at_once_is_doubted_for_a_while() {
    let mut watch = Watch::new(3.0, 0.0);
    let beats = |watch: &mut Watch, t: f64, nodes: &[&str]| {
        for node in nodes {
            watch.heard(t, beat(node, true));
        }
    };
    beats(&mut watch, 10.0, &["n1", "n2", "n3", "n4", "n5"]);
    assert!(watch.look(20.0, &[], &BTreeMap::new()).is_empty());
    assert_eq!(watch.look(41.0, &[], &BTreeMap::new()).len(), 5, "they really are gone");
    beats(&mut watch, 50.0, &["n1", "n2", "n3", "n4", "n5"]);
    beats(&mut watch, 54.0, &["n1", "n2", "n3"]);
    assert_eq!(watch.look(54.5, &[], &BTreeMap::new()).len(), 2);
}

#[test]
fn jobs_hold_their_nodes_between_steps() {
    let running = job("JobState=RUNNING Reason=None Requeue=1 Restarts=0 NodeList=n[1-2] BatchHost=n1 NumCPUs=5");
    let mut watch = Watch::new(3.0, 0.0);
    watch.look(10.0, &[run()], &running);
    assert_eq!(watch.heard(11.0, beat("n2", true)).0, [Held { job: 7, restart_count: 0, cpus: 3 }]);
    watch.look(12.0, &[], &running);
    assert!(watch.heard(13.0, beat("n2", true)).0.is_empty());
}

#[test]
fn a_node_that_died_while_the_service_was_away_is_found_dead_after_a_full_grace() {
    let text = "JobState=RUNNING Reason=None Requeue=1 Restarts=0 NodeList=n[1-2] BatchHost=n1";
    let running = job(&format!("{text} StartTime=50"));
    let mut watch = Watch::new(3.0, 100.0);
    watch.heard(100.2, beat("n1", true));
    assert!(watch.look(100.5, &[run()], &running).is_empty());
    assert_eq!((watch.beating(100.5), watch.is_well(100.5, "n2")), (1, false), "it was not heard");
    assert_eq!(watch.health(100.5, &["n2".into()], 7)[0].silent_s, None);
    watch.heard(102.0, beat("n1", true));
    assert!(watch.look(103.0, &[run()], &running).is_empty(), "a full grace");
    assert_eq!(watch.look(104.0, &[run()], &running), [Act::Verify { node: "n2".into() }]);
    assert_eq!(watch.dead("n2"), Some(100.5));
    assert!(watch.health(104.0, &["n2".into()], 7)[0].dead);
    watch.wait_for(104.0, &["lent".to_string(), "n1".to_string()]);
    assert_eq!(watch.look(107.5, &[], &BTreeMap::new()).len(), 2, "n1, which beat last at 102, and the lent one");
    let mut watch = Watch::new(3.0, 40.0);
    watch.look(100.5, &[run()], &running);
    assert!(watch.look(110.0, &[run()], &running).is_empty(), "nobody says that a node of a later run ever beats");
}

#[test]
fn a_node_without_a_node_service_is_forgotten_with_the_run_that_it_was_awaited_for() {
    let text = "JobState=RUNNING Reason=None Requeue=1 Restarts=0 NodeList=n[1-2] BatchHost=n1 StartTime=50";
    let verify = |node: &str| Act::Verify { node: node.into() };
    let mut watch = Watch::new(3.0, 100.0);
    watch.look(100.0, &[run()], &job(text));
    assert_eq!(watch.look(104.0, &[run()], &job(text)), [verify("n1"), verify("n2")]);
    watch.answers("n1");
    watch.dead("n2");
    assert!(watch.look(104.5, &[run()], &job(text)).is_empty());
    assert_eq!(watch.look(108.0, &[run()], &job(text)), [verify("n1")], "as long as the run has it");
    assert!(watch.health(108.0, &run().nodes, 7)[1].dead);
    watch.answers("n1");
    assert!(watch.look(112.0, &[], &BTreeMap::new()).is_empty());
    assert!(!watch.health(112.0, &run().nodes, 7)[1].dead, "another run may have it by now");
}

#[test]
fn nobody_is_dead_before_anybody_was_heard() {
    let text = "JobState=RUNNING Reason=None Requeue=1 Restarts=0 NodeList=n[1-2] BatchHost=n1 StartTime=50";
    for beats in [true, false] {
        let mut watch = Watch::new(3.0, 100.0);
        watch.look(100.0, &[run()], &job(text));
        assert_eq!(watch.look(199.0, &[run()], &job(text)).len(), 2);
        assert_eq!((watch.dead("n1"), watch.dead("n2")), (None, None), "this host may have no network yet");
        assert!(!watch.health(199.0, &run().nodes, 7).iter().any(|h| h.dead));
        if beats {
            watch.heard(200.0, beat("n9", true));
        } else {
            watch.answers("n1");
        }
        assert!(watch.look(203.0, &[run()], &job(text)).contains(&Act::Verify { node: "n2".into() }));
        assert_eq!(watch.dead("n2"), Some(100.0));
    }
}

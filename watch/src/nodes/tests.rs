//! The controller's view of nodes, one case at a time.

use super::*;

mod looks;

const LIMITS: Limits = Limits { detect_s: 3.0, freeze_s: 5.0, lease_s: 8.0, set_down_per_minute: 10 };
const JOB: Incarnation = Incarnation { job: 7, restart_count: 0 };
const NOTHING: Seen = Seen { service: false, slurmd: false, host: false };
const SLURMD: Seen = Seen { service: false, slurmd: true, host: true };

fn name(n: usize) -> String {
    format!("n{n}")
}

fn heard(nodes: &mut Nodes, now_s: f64, n: usize, boot: &str, jobs: &[u32]) -> Vec<Action> {
    let epoch = nodes.known(&name(n)).map_or(0, |k| k.epoch);
    let heard = Heard {
        node: name(n),
        boot_id: boot.to_string(),
        slurmd_up: true,
        epoch: Some(epoch),
        jobs: jobs.iter().copied().collect(),
        pause_s: 0.0,
        up_s: None,
    };
    let actions = nodes.heard(now_s, heard);
    nodes.word(now_s, &name(n));
    actions
}

/// Eight nodes that have been heard twice, so that each has its witnesses and has said so; job 7 runs on n2.
fn cluster() -> Nodes {
    let mut nodes = Nodes::new(LIMITS, 0.0, []);
    for at_s in [8.0, 9.0, 10.0] {
        for n in 1..=8 {
            heard(&mut nodes, at_s, n, "boot", if n == 2 { &[7] } else { &[] });
        }
    }
    let holds = Held { job: JOB.job, restart_count: JOB.restart_count, cpus: 1 };
    nodes.set_held(BTreeMap::from([(name(2), vec![holds])]));
    nodes
}

/// All but one are heard.
fn others_are_heard(nodes: &mut Nodes, now_s: f64, silent: &[usize]) {
    for n in (1..=8).filter(|n| !silent.contains(n)) {
        heard(nodes, now_s, n, "boot", &[]);
    }
}

fn look_of(actions: &[Action]) -> (u64, BTreeSet<String>) {
    let look = |a: &Action| {
        if let Action::Look { epoch, witnesses, .. } = a { Some((*epoch, witnesses.clone())) } else { None }
    };
    actions.iter().find_map(look).expect("a look")
}

fn testimony(seen: Seen, granted_age_s: Option<f64>) -> Testimony {
    Testimony { seen, granted_age_s, ended: BTreeSet::new() }
}

#[test]
fn every_node_has_seven_witnesses_and_says_so() {
    let nodes = cluster();
    for n in 1..=8 {
        let known = nodes.known(&name(n)).unwrap();
        assert_eq!((known.named.len(), known.witnesses().len()), (1, 7), "{known:?}");
    }
}

#[test]
fn a_silent_node_is_dead_when_nobody_reaches_it_and_its_run_begins_again_when_its_lease_is_over() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 13.0, &[2]);
    assert!(nodes.look(13.0).is_empty());
    let (epoch, witnesses) = look_of(&nodes.look(13.1));
    let all: BTreeMap<_, _> = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
    assert_eq!(nodes.released(13.2, "n2", JOB), Released::No(Unsure::Suspected));
    let dead = nodes.looked(14.1, "n2", epoch, NOTHING, &all);
    assert!(
        matches!(&dead[..], [Action::Dead { node, silent_s }] if node == "n2" && (4.0..4.2).contains(silent_s)),
        "{dead:?}"
    );
    assert_eq!(nodes.released(17.5, "n2", JOB), Released::No(Unsure::Lease { for_s: 0.5 }));
    assert_eq!(nodes.released(18.0, "n2", JOB), Released::Yes(Proof::LeaseOver));
    assert_eq!(nodes.known("n2").unwrap().ended, BTreeSet::from([JOB]));
    let back = heard(&mut nodes, 60.0, 2, "boot", &[7]);
    assert!(back.contains(&Action::Back { node: "n2".into() }));
    let word = nodes.word(60.0, "n2");
    assert_eq!((word.ended, word.held), (vec![JOB], vec![]), "what came back must end, and holds nothing");
    heard(&mut nodes, 61.0, 2, "boot", &[]);
    assert_eq!(nodes.known("n2").unwrap().ended, BTreeSet::new());
    assert_eq!(nodes.released(61.5, "n2", JOB), Released::Yes(Proof::Ended));
}

#[test]
fn a_dead_node_is_looked_at_again_when_slurm_begins_a_job_on_it() {
    for (here, expected) in [(NOTHING, vec![Action::StillDead { node: name(2) }]), (SLURMD, vec![])] {
        let mut nodes = cluster();
        others_are_heard(&mut nodes, 13.0, &[2]);
        let (epoch, witnesses) = look_of(&nodes.look(13.1));
        let all: BTreeMap<_, _> = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
        nodes.looked(14.1, "n2", epoch, NOTHING, &all);
        nodes.give_up("n2", [JOB]);
        others_are_heard(&mut nodes, 15.0, &[2]);
        assert_eq!(nodes.look(15.0), [], "the life that died with it is none");
        let again = Held { job: JOB.job, restart_count: 1, cpus: 1 };
        nodes.set_held(BTreeMap::from([(name(2), vec![again])]));
        assert_eq!(look_of(&nodes.look(15.2)), (epoch, witnesses.clone()));
        assert_eq!(nodes.looked(15.5, "n2", epoch, here, &all), expected);
        others_are_heard(&mut nodes, 17.0, &[2]);
        assert_eq!(nodes.look(17.0), [], "once for each life");
    }
}

#[test]
fn a_lease_that_a_witness_granted_late_is_waited_for() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 13.0, &[2]);
    let (epoch, witnesses) = look_of(&nodes.look(13.1));
    let mut all: BTreeMap<_, _> = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
    all.entry(witnesses.first().unwrap().clone()).and_modify(|t| t.granted_age_s = Some(2.5));
    nodes.looked(14.0, "n2", epoch, NOTHING, &all);
    assert_eq!(nodes.released(18.0, "n2", JOB), Released::No(Unsure::Lease { for_s: 1.5 }));
}

#[test]
fn whoever_is_reached_by_anybody_is_not_dead() {
    for (here, there) in [(SLURMD, NOTHING), (NOTHING, SLURMD)] {
        let mut nodes = cluster();
        others_are_heard(&mut nodes, 13.0, &[2]);
        let (epoch, witnesses) = look_of(&nodes.look(13.1));
        let mut all: BTreeMap<_, _> = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
        all.entry(witnesses.last().unwrap().clone()).and_modify(|t| t.seen = there);
        assert!(nodes.looked(14.0, "n2", epoch, here, &all).is_empty());
        assert!(!nodes.is_dead("n2"));
        assert!(matches!(nodes.released(100.0, "n2", JOB), Released::No(Unsure::Reached { .. })));
        others_are_heard(&mut nodes, 16.0, &[2]);
        let (again, _) = look_of(&nodes.look(16.0));
        assert_eq!(again, epoch, "the same silence");
    }
}

#[test]
fn without_a_majority_of_witnesses_nobody_is_dead() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 13.0, &[2]);
    let (epoch, witnesses) = look_of(&nodes.look(13.1));
    let one = BTreeMap::from([(witnesses.first().unwrap().clone(), testimony(NOTHING, None))]);
    assert!(nodes.looked(14.0, "n2", epoch, NOTHING, &one).is_empty());
    assert_eq!(nodes.released(30.0, "n2", JOB), Released::No(Unsure::Crowd), "the others were not heard either");
    others_are_heard(&mut nodes, 30.0, &[2]);
    assert_eq!(nodes.released(30.0, "n2", JOB), Released::No(Unsure::NoMajority { answered: 1, of: 7 }));
    assert_eq!(look_of(&nodes.look(30.0)).0, epoch, "they are asked again");
}

#[test]
fn an_answer_to_an_earlier_silence_says_nothing() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 13.0, &[2]);
    let (epoch, witnesses) = look_of(&nodes.look(13.1));
    let all: BTreeMap<_, _> = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
    heard(&mut nodes, 13.5, 2, "boot", &[7]);
    assert!(nodes.looked(14.0, "n2", epoch, NOTHING, &all).is_empty());
    others_are_heard(&mut nodes, 17.0, &[2]);
    let (later, _) = look_of(&nodes.look(17.0));
    assert!(later > epoch);
    assert!(nodes.looked(18.0, "n2", epoch, NOTHING, &all).is_empty());
    assert!(!nodes.is_dead("n2"));
}

#[test]
fn when_about_half_of_the_nodes_are_silent_nobody_is_looked_at_however_long_it_lasts() {
    for (silent, is_crowd) in [(&[1, 2, 3][..], false), (&[1, 2, 3, 4], true), (&[1, 2, 3, 4, 5, 6, 7, 8], true)] {
        let mut nodes = cluster();
        for at_s in 11..4000 {
            others_are_heard(&mut nodes, f64::from(at_s), silent);
            assert_eq!(nodes.look(f64::from(at_s)).is_empty(), is_crowd || at_s < 14, "{silent:?} at {at_s}");
            if !is_crowd && at_s > 20 {
                break;
            }
        }
        assert!(!is_crowd || nodes.released(4000.0, "n2", JOB) == Released::No(Unsure::Crowd));
    }
}

#[test]
fn nodes_that_slurm_has_out_of_service_are_not_missed() {
    let mut nodes = cluster();
    let out: BTreeSet<String> = [4, 5, 6].map(name).into();
    nodes.set_out(&out);
    others_are_heard(&mut nodes, 14.0, &[2, 4, 5, 6]);
    let looks: Vec<Action> = nodes.look(14.0).into_iter().filter(|a| matches!(a, Action::Look { .. })).collect();
    assert!(matches!(&looks[..], [Action::Look { node, .. }] if node == "n2"), "{looks:?}");
    // One of them had a run, which waits for the word on it.
    assert_eq!(nodes.released(15.0, "n4", JOB), Released::No(Unsure::Suspected));
    let looks = |nodes: &mut Nodes| nodes.look(15.5).into_iter().filter(|a| matches!(a, Action::Look { .. })).collect();
    let looks: Vec<Action> = looks(&mut nodes);
    assert!(looks.iter().any(|a| matches!(a, Action::Look { node, .. } if node == "n4")), "{looks:?}");
}

#[test]
fn a_new_boot_is_a_death_and_ends_whatever_had_to_end() {
    let mut nodes = cluster();
    nodes.released(10.5, "n2", JOB);
    assert_eq!(nodes.released(10.5, "n2", JOB), Released::No(Unsure::Ending));
    let actions = heard(&mut nodes, 12.0, 2, "next", &[7]);
    assert!(
        matches!(&actions[0], Action::Rebooted { node, silent_s } if node == "n2" && *silent_s == 2.0),
        "{actions:?}"
    );
    assert!(nodes.known("n2").unwrap().ended.is_empty(), "job 7 has begun there again");
}

#[test]
fn a_later_life_of_the_controller_waits_for_everybody_and_knows_whom_to_ask() {
    let before = cluster();
    let kept: Vec<(String, Known)> = (1..=8).map(|n| (name(n), before.known(&name(n)).unwrap().clone())).collect();
    let mut nodes = Nodes::new(LIMITS, 100.0, kept);
    assert!(nodes.look(103.5).is_empty(), "nobody is heard: this host may have no network yet");
    others_are_heard(&mut nodes, 103.5, &[2]);
    let (epoch, witnesses) = look_of(&nodes.look(103.6));
    assert_eq!(witnesses, before.known("n2").unwrap().witnesses());
    assert!(epoch > before.known("n2").unwrap().epoch);
    let all = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, Some(4.0)))).collect();
    nodes.looked(104.0, "n2", epoch, NOTHING, &all);
    assert_eq!(nodes.released(107.9, "n2", JOB), Released::No(Unsure::Lease { for_s: 108.0 - 107.9 }));
    assert_eq!(nodes.released(108.0, "n2", JOB), Released::Yes(Proof::LeaseOver));
}

#[test]
fn a_later_life_of_the_controller_takes_nobody_for_gone_whom_it_waits_for() {
    for heard_s in [100.5, 110.0] {
        let before = cluster();
        let kept: Vec<(String, Known)> = (1..=8).map(|n| (name(n), before.known(&name(n)).unwrap().clone())).collect();
        let mut nodes = Nodes::new(LIMITS, 100.0, kept);
        others_are_heard(&mut nodes, heard_s, &[8]);
        for n in 1..=8 {
            assert_eq!(nodes.known(&name(n)), before.known(&name(n)), "heard at {heard_s}");
        }
    }
}

#[test]
fn a_later_life_keeps_the_witnesses_of_a_large_cluster_as_its_nodes_are_heard_one_by_one() {
    let beat = |nodes: &mut Nodes, at_s: f64| (1..=16).for_each(|n| drop(heard(nodes, at_s, n, "boot", &[])));
    let mut before = Nodes::new(LIMITS, 0.0, []);
    [8.0, 9.0, 10.0].iter().for_each(|at_s| beat(&mut before, *at_s));
    let kept: Vec<(String, Known)> = (1..=16).map(|n| (name(n), before.known(&name(n)).unwrap().clone())).collect();
    let mut nodes = Nodes::new(LIMITS, 100.0, kept);
    beat(&mut nodes, 100.5);
    assert!((1..=16).all(|n| nodes.known(&name(n)) == before.known(&name(n))));
}

#[test]
fn witnesses_before_the_last_are_asked_until_the_node_has_heard_of_the_last() {
    let mut nodes = cluster();
    let gone: String = nodes.known("n2").unwrap().witnesses().first().unwrap().clone();
    let n: usize = gone[1..].parse().unwrap();
    for at_s in [11.0, 12.0, 13.0] {
        others_are_heard(&mut nodes, at_s, &[n, 2]);
        heard(&mut nodes, at_s, 9, "boot", &[]);
    }
    // The heartbeat arrives; its answer, with a witness in place of the one that is silent, is lost.
    let old = nodes.known("n2").unwrap().epoch;
    let beat = Heard {
        node: name(2),
        boot_id: "boot".into(),
        slurmd_up: true,
        epoch: Some(old),
        jobs: BTreeSet::from([7]),
        pause_s: 0.0,
        up_s: None,
    };
    nodes.heard(13.5, beat.clone());
    nodes.word(13.5, "n2");
    let asked = nodes.known("n2").unwrap().witnesses();
    assert!(asked.len() == 8 && asked.contains(&gone));
    let told = nodes.known("n2").unwrap().epoch;
    nodes.heard(14.0, Heard { epoch: Some(told), ..beat });
    let asked = nodes.known("n2").unwrap().witnesses();
    assert!(asked.len() == 7 && !asked.contains(&gone));
}

#[test]
fn nodes_that_die_one_after_the_other_are_all_found_dead_and_leave_the_others_a_majority() {
    let mut nodes = cluster();
    let mut gone: Vec<usize> = Vec::new();
    let mut now_s = 10.0;
    for n in [8, 7, 6, 5, 4, 3] {
        gone.push(n);
        for _ in 0..6 {
            now_s += 1.0;
            others_are_heard(&mut nodes, now_s, &gone);
        }
        let looks = nodes.look(now_s);
        let Some(Action::Look { epoch, witnesses, .. }) =
            looks.iter().find(|a| matches!(a, Action::Look { node, .. } if *node == name(n)))
        else {
            // Half of those that are left cannot be told from a broken network.
            assert!(nodes.is_crowd(now_s), "{n}: {looks:?}");
            break;
        };
        let alive = witnesses.iter().filter(|w| !gone.iter().any(|n| name(*n) == **w));
        let said = alive.map(|w| (w.clone(), testimony(NOTHING, None))).collect();
        let dead = nodes.looked(now_s, &name(n), *epoch, NOTHING, &said);
        assert!(matches!(&dead[..], [Action::Dead { .. }]), "{n}: {dead:?}");
        for n in (1..=8).filter(|n| !gone.contains(n)) {
            let now = nodes.known(&name(n)).unwrap().named_last();
            let alive = now.iter().filter(|w| !gone.iter().any(|n| name(*n) == **w)).count();
            assert!(alive >= majority(now.len()), "{n} of {now:?}, gone {gone:?}");
        }
    }
    assert!(gone.len() >= 4);
}

#[test]
fn power_that_is_off_is_proof_at_once() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 14.0, &[2]);
    let (epoch, _) = look_of(&nodes.look(14.0));
    let n3 = nodes.known("n3").unwrap().epoch;
    assert!(nodes.powered_off(14.0, "n3", n3).is_empty(), "it is heard: the power controller means another");
    assert!(matches!(&nodes.powered_off(14.0, "n2", epoch)[..], [Action::Dead { .. }]));
    assert_eq!(nodes.released(14.0, "n2", JOB), Released::Yes(Proof::PoweredOff));
}

#[test]
fn a_power_controller_is_not_believed_of_a_node_that_is_reached_or_was_heard_since_it_was_asked() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 14.0, &[2]);
    let (epoch, _) = look_of(&nodes.look(14.0));
    nodes.looked(14.5, "n2", epoch, SLURMD, &BTreeMap::new());
    assert!(nodes.powered_off(15.0, "n2", epoch).is_empty(), "its slurmd answers");
    heard(&mut nodes, 16.0, 2, "next", &[]);
    assert!(nodes.powered_off(21.0, "n2", epoch).is_empty(), "it has booted since");
    others_are_heard(&mut nodes, 21.0, &[2]);
    let (later, _) = look_of(&nodes.look(21.0));
    assert!(nodes.powered_off(21.5, "n2", epoch).is_empty(), "the answer is to the look before");
    assert!(!nodes.is_dead("n2"));
    assert!(matches!(&nodes.powered_off(21.5, "n2", later)[..], [Action::Dead { .. }]));
}

#[test]
fn a_person_may_say_of_a_silent_node_alone_that_it_has_no_power() {
    let mut nodes = cluster();
    let off = |nodes: &mut Nodes, n: &str| nodes.confirmed_off(30.0, n);
    assert_eq!(off(&mut nodes, "n9"), Err(NotOff::Unknown));
    others_are_heard(&mut nodes, 30.0, &[2, 3, 4, 5]);
    assert_eq!(off(&mut nodes, "n1"), Err(NotOff::Heard { ago_s: 0.0 }));
    assert_eq!(nodes.released(30.0, "n2", JOB), Released::No(Unsure::Crowd));
    let said = off(&mut nodes, "n2").unwrap();
    assert!(matches!(&said[..], [Action::Dead { node, .. }] if node == "n2"), "{said:?}");
    assert_eq!(nodes.released(30.0, "n2", JOB), Released::Yes(Proof::PoweredOff));
    assert_eq!(off(&mut nodes, "n2"), Ok(Vec::new()), "said again");
    // Without it the others are no crowd any more, and are looked at.
    let (epoch, witnesses) = look_of(&nodes.look(30.0));
    let reached = witnesses.iter().map(|w| (w.clone(), testimony(SLURMD, None))).collect();
    nodes.looked(30.0, "n3", epoch, NOTHING, &reached);
    assert!(matches!(off(&mut nodes, "n3"), Err(NotOff::Reached { .. })));
}

#[test]
fn a_node_of_a_service_that_does_not_fence_itself_is_never_presumed_frozen() {
    let mut nodes = cluster();
    let beat = |epoch| Heard {
        node: name(2),
        boot_id: "boot".into(),
        slurmd_up: true,
        epoch,
        jobs: BTreeSet::from([7]),
        pause_s: 0.0,
        up_s: None,
    };
    nodes.heard(11.0, beat(None));
    others_are_heard(&mut nodes, 14.5, &[2]);
    let (epoch, witnesses) = look_of(&nodes.look(14.5));
    let all = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
    nodes.looked(15.0, "n2", epoch, NOTHING, &all);
    assert_eq!(nodes.released(1000.0, "n2", JOB), Released::No(Unsure::Unfenced));
    assert_eq!(nodes.released(1000.0, "no-service", JOB), Released::Yes(Proof::SlurmsWord));
}

#[test]
fn a_node_whose_service_was_away_when_it_fell_silent_is_never_presumed_frozen() {
    let mut nodes = cluster();
    others_are_heard(&mut nodes, 13.5, &[2]);
    let (epoch, witnesses) = look_of(&nodes.look(13.5));
    let all: BTreeMap<_, _> = witnesses.iter().map(|w| (w.clone(), testimony(NOTHING, None))).collect();
    assert!(nodes.looked(14.0, "n2", epoch, SLURMD, &all).is_empty(), "its slurmd answers, its service does not");
    others_are_heard(&mut nodes, 21.0, &[2]);
    nodes.looked(21.0, "n2", epoch, NOTHING, &all);
    assert!(nodes.is_dead("n2"));
    assert_eq!(nodes.released(1000.0, "n2", JOB), Released::No(Unsure::Unfenced));
    nodes.powered_off(1000.0, "n2", epoch);
    assert_eq!(nodes.released(1000.0, "n2", JOB), Released::Yes(Proof::PoweredOff));
}

#[test]
fn a_node_of_which_nothing_is_left_is_forgotten_after_a_day() {
    let mut nodes = cluster();
    let later_s = 10.0 + FORGOTTEN_S + 1.0;
    others_are_heard(&mut nodes, later_s, &[2, 3]);
    let forgotten: Vec<Action> =
        nodes.look(later_s).into_iter().filter(|a| matches!(a, Action::Forget { .. })).collect();
    assert_eq!(forgotten, [Action::Forget { node: "n3".into() }], "n2 is held by a job");
}

/// 40 nodes that rest since 10 s, and of which those in `busy` beat each second up to 20 s.
fn resting(busy: &[usize]) -> Nodes {
    let mut nodes = Nodes::new(LIMITS, 0.0, []);
    for n in 1..=40 {
        let heard =
            Heard { node: name(n), boot_id: "boot".into(), slurmd_up: true, epoch: Some(0), ..Heard::default() };
        nodes.heard(10.0, Heard { pause_s: 30.0, ..heard });
    }
    busy.iter().for_each(|n| drop(heard(&mut nodes, 20.0, *n, "boot", &[7])));
    nodes
}

fn woken(actions: &[Action]) -> Vec<String> {
    let named = |a: &Action| if let Action::Wake { node } = a { Some(node.clone()) } else { None };
    actions.iter().filter_map(named).collect()
}

/// Looks each 0.1 s; what is asked of those that rest is heard of all for which `answers` holds.
fn looks(nodes: &mut Nodes, [from_s, to_s]: [f64; 2], answers: impl Fn(&str) -> bool) -> Vec<Action> {
    let mut all = Vec::new();
    let mut now_s = from_s;
    while now_s < to_s {
        let actions = nodes.look(now_s);
        for node in woken(&actions).into_iter().filter(|n| answers(n)) {
            let beat = Heard { node, boot_id: "boot".into(), slurmd_up: true, epoch: Some(0), ..Heard::default() };
            nodes.heard(now_s + 0.05, Heard { pause_s: 30.0, ..beat });
        }
        all.extend(actions);
        now_s += 0.1;
    }
    all
}

fn is_looked_at(actions: &[Action], n: usize) -> bool {
    actions.iter().any(|a| matches!(a, Action::Look { node, .. } if *node == name(n)))
}

#[test]
fn nobody_misses_a_node_that_rests_and_one_that_has_to_hear_something_is_woken_once() {
    let mut nodes = resting(&[]);
    assert!(looks(&mut nodes, [20.0, 39.0], |_| true).is_empty());
    let mut nodes = resting(&[]);
    let holds = Held { job: JOB.job, restart_count: JOB.restart_count, cpus: 1 };
    nodes.set_held(BTreeMap::from([(name(3), vec![holds])]));
    assert_eq!(woken(&looks(&mut nodes, [20.0, 21.7], |_| false)), [name(3)]);
    let actions = looks(&mut nodes, [21.7, 23.3], |_| true);
    assert!(is_looked_at(&actions, 3), "it is held, and was not heard when it was asked");
}

#[test]
fn one_node_that_dies_among_those_that_rest_is_looked_at_as_soon_as_if_all_were_busy() {
    let mut nodes = resting(&[2]);
    let actions = looks(&mut nodes, [20.0, 23.3], |_| true);
    assert!(is_looked_at(&actions, 2) && woken(&actions).len() == 32, "{}", woken(&actions).len());
}

#[test]
fn a_rack_with_all_protected_jobs_is_no_crowd_and_a_switch_with_half_of_those_that_rest_is_one() {
    let busy = [1, 2, 3, 4, 5, 6];
    let mut nodes = resting(&busy);
    let actions = looks(&mut nodes, [20.0, 24.0], |_| true);
    assert!(busy.iter().all(|n| is_looked_at(&actions, *n)), "34 others answer");
    let mut nodes = resting(&busy);
    let is_behind = |node: &str| node[1..].parse::<usize>().is_ok_and(|n| n <= 24);
    looks(&mut nodes, [20.0, 24.0], |node| !is_behind(node));
    assert!(nodes.is_crowd(24.0));
}

#[test]
fn a_third_of_all_that_dies_while_all_rest_is_no_crowd() {
    let is_dead = |n: usize| n.is_multiple_of(3);
    let mut nodes = resting(&[3]);
    let actions = looks(&mut nodes, [20.0, 45.0], |node| !node[1..].parse().is_ok_and(is_dead));
    assert!((1..=40).all(|n| is_looked_at(&actions, n) == is_dead(n)), "{actions:?}");
}

#[test]
fn a_node_that_has_rested_is_fenced_only_when_what_may_have_begun_there_since_is_frozen() {
    let mut nodes = resting(&[]);
    let witnesses: BTreeSet<String> = [name(8), name(9)].into();
    if let Some(node) = nodes.nodes.get_mut(&name(2)) {
        node.known.fences_itself = true;
        node.known.named = vec![Named { epoch: 0, witnesses: witnesses.clone(), among: 0 }];
    }
    let beat = Heard { boot_id: "boot".into(), slurmd_up: true, epoch: Some(0), pause_s: 30.0, ..Heard::default() };
    (1..=40).filter(|n| *n != 2).for_each(|n| drop(nodes.heard(39.0, Heard { node: name(n), ..beat.clone() })));
    let actions = looks(&mut nodes, [40.0, 43.3], |_| true);
    assert!(is_looked_at(&actions, 2));
    let said = witnesses.into_iter().map(|w| (w, Testimony::default())).collect();
    let epoch = nodes.known(&name(2)).map_or(0, |k| k.epoch);
    assert!(matches!(nodes.looked(44.0, &name(2), epoch, NOTHING, &said)[..], [Action::Dead { .. }]));
    assert!(!nodes.is_fenced(51.9, &name(2)) && nodes.is_fenced(52.1, &name(2)), "8 s from now, not from 10 s on");
}

/// Nodes of racks, which are heard one rack after the other, as they are switched on.
fn racks(racks: usize, of: usize) -> Nodes {
    let mut nodes = Nodes::new(LIMITS, 0.0, []);
    let mut on = Vec::new();
    for rack in 1..=racks {
        for node in 1..=of {
            on.push(format!("r{rack:02}n{node:02}"));
            beat(&mut nodes, rack as f64 * 0.1, on.last().expect("it"));
        }
        on.iter().for_each(|node| beat(&mut nodes, rack as f64 * 0.1 + 0.05, node));
    }
    nodes
}

fn beat(nodes: &mut Nodes, now_s: f64, name: &str) {
    let epoch = nodes.known(name).map(|k| k.epoch).or(Some(0));
    let node = name.to_string();
    let boot_id = "boot".to_string();
    nodes.heard(now_s, Heard { node, boot_id, slurmd_up: true, epoch, ..Heard::default() });
    nodes.word(now_s, name);
}

#[test]
fn a_rack_that_is_heard_first_is_found_dead_when_it_loses_its_power_as_a_whole() {
    let mut nodes = racks(8, 16);
    let is_on = |name: &String| !name.starts_with("r01");
    let names: Vec<String> = nodes.nodes.keys().cloned().collect();
    for at_s in [1.0, 2.0, 3.0, 4.0, 5.0] {
        names.iter().filter(|name| is_on(name) || at_s < 2.0).for_each(|name| beat(&mut nodes, at_s, name));
    }
    let mut dead = 0;
    for action in nodes.look(5.0) {
        let Action::Look { node, epoch, witnesses, .. } = action else { continue };
        let answers = witnesses.into_iter().filter(is_on).map(|w| (w, testimony(NOTHING, None))).collect();
        let seen = nodes.looked(5.1, &node, epoch, NOTHING, &answers);
        dead += usize::from(seen.iter().any(|a| matches!(a, Action::Dead { .. })));
    }
    assert_eq!(dead, 16);
}

#[test]
fn witnesses_are_named_anew_a_few_times_as_a_cluster_comes_up_and_then_no_more() {
    let mut nodes = racks(8, 16);
    let first = nodes.known("r01n01").expect("it").epoch;
    assert!(first <= 9, "{first}");
    let names: Vec<String> = nodes.nodes.keys().cloned().collect();
    for at_s in [1.0, 2.0, 3.0] {
        names.iter().for_each(|name| beat(&mut nodes, at_s, name));
    }
    assert_eq!(nodes.known("r01n01").expect("it").epoch, first);
    // A new life of the controller hears one node after the other again.
    let kept: Vec<(String, Known)> = nodes.nodes.iter().map(|(name, n)| (name.clone(), n.known.clone())).collect();
    let mut nodes = Nodes::new(LIMITS, 10.0, kept);
    names.iter().for_each(|name| beat(&mut nodes, 10.1, name));
    assert_eq!(nodes.known("r01n01").expect("it").epoch, first);
}

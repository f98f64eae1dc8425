//! What is kept before it is told or acted upon, and how many nodes are looked at at once.

use super::*;

/// Takes all for kept.
fn keep_all(nodes: &mut Nodes) {
    let unkept: Vec<(String, Known)> = nodes.unkept().map(|(name, known)| (name.clone(), known.clone())).collect();
    unkept.into_iter().for_each(|(name, known)| nodes.kept(&name, known));
}

#[test]
fn what_could_not_be_kept_stays_unkept_however_often_it_is_asked_for() {
    let mut nodes = cluster();
    assert!(nodes.is_unkept("n2") && !nodes.is_unkept("n9"));
    keep_all(&mut nodes);
    heard(&mut nodes, 11.0, 2, "boot", &[7]);
    assert_eq!(nodes.unkept().count(), 0, "nothing new");
    let before = nodes.known("n2").unwrap().clone();
    for _ in 0..3 {
        nodes.released(11.5, "n2", JOB);
        heard(&mut nodes, 12.0, 2, "boot", &[7]);
        assert!(nodes.is_unkept("n2"), "that job 7 is to end there");
    }
    nodes.kept("n2", before);
    assert!(nodes.is_unkept("n2"), "what was kept is what it was before");
    keep_all(&mut nodes);
    others_are_heard(&mut nodes, 15.5, &[2]);
    keep_all(&mut nodes);
    look_of(&nodes.look(15.5));
    assert!(nodes.is_unkept("n2"), "the epoch in which witnesses are asked");
    let kept = nodes.known("n2").unwrap().clone();
    nodes.kept("n2", kept.clone());
    assert!(!nodes.is_unkept("n2"));
    let again = Nodes::new(LIMITS, 0.0, [("n2".to_string(), kept)]);
    assert!(!again.is_unkept("n2"));
}

#[test]
fn no_more_nodes_are_looked_at_at_once_than_there_is_room_for_and_none_is_passed_over() {
    let mut nodes = Nodes::new(LIMITS, 0.0, []);
    (1..=200).for_each(|n| drop(heard(&mut nodes, 10.0, n, "boot", &[])));
    let holds = Held { job: JOB.job, restart_count: JOB.restart_count, cpus: 1 };
    nodes.set_held(BTreeMap::from([(name(90), vec![holds])]));
    let mut looked: BTreeSet<String> = BTreeSet::new();
    for round in 0..8 {
        let now_s = 14.0 + 2.0 * f64::from(round);
        (91..=200).for_each(|n| drop(heard(&mut nodes, now_s, n, "boot", &[])));
        // Half of the looks before are still under way.
        let looking: BTreeSet<String> = looked.iter().take(16).cloned().collect();
        nodes.set_looking(looking.clone());
        let named = |a: Action| if let Action::Look { node, .. } = a { Some(node) } else { None };
        let names: Vec<String> = nodes.look(now_s).into_iter().filter_map(named).collect();
        assert_eq!(names.len(), LOOKS - looking.len(), "round {round}");
        assert!(names.iter().all(|name| !looking.contains(name)), "{names:?}");
        assert!(round > 0 || names[0] == name(90), "a run waits for it");
        looked.extend(names);
    }
    assert_eq!(looked.len(), 90);
}

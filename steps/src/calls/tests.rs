//! What is remembered of calls, and what a recovery line makes of it.

use super::*;

/// A call of `key` that began and ended (with a code) then.
fn call(key: &str, begun_s: f64, ended: Option<(f64, i32)>) -> Call {
    let ended = ended.map(|(at_s, code)| End { at_s, code, outputs: Vec::new() });
    Call { number: 1, key: key.into(), command: key.into(), begun_s, ended, targets: Vec::new() }
}

/// Which calls count as ended, and whether the line is needed.
fn settled(mut calls: Vec<Call>, line_s: Option<f64>, well_s: f64) -> (Vec<bool>, bool) {
    let needed = settle(&mut calls, line_s, well_s, |_| false);
    (calls.iter().map(|c| c.ended.is_some()).collect(), needed)
}

#[test]
fn a_line_of_an_ended_step_is_not_brought_back_over_a_later_one() {
    let calls = || vec![call("a", 0.0, Some((10.0, 0))), call("b", 10.0, None)];
    assert_eq!(settled(calls(), Some(5.0), 99.0), (vec![true, false], false));
    assert_eq!(settled(calls(), Some(15.0), 99.0), (vec![true, false], true));
    assert_eq!(settled(calls(), None, 99.0), (vec![true, false], true));
}

#[test]
fn a_step_that_ended_after_the_line_that_another_needs_has_not_ended() {
    let beside = vec![call("a", 0.0, Some((10.0, 0))), call("b", 0.0, None)];
    assert_eq!(settled(beside, Some(5.0), 99.0), (vec![false, false], true));
    let of_the_script_itself = vec![call("a", 10.0, Some((20.0, 0))), call("b", 20.0, None)];
    assert_eq!(settled(of_the_script_itself, Some(5.0), 99.0), (vec![false, false], true));
}

#[test]
fn an_error_counts_only_if_the_run_went_on_for_a_minute() {
    for (well_s, counts) in [(10.0, false), (69.0, false), (70.0, true)] {
        assert_eq!(settled(vec![call("a", 0.0, Some((10.0, 1)))], None, well_s).0, [counts], "{well_s}");
    }
    assert_eq!(settled(vec![call("a", 0.0, Some((10.0, 0)))], None, 5.0).0, [true]);
}

#[test]
fn steps_that_are_alike_and_ran_together_have_ended_only_together() {
    let both = |end| vec![call("a", 0.0, Some((10.0, 0))), call("a", 1.0, end)];
    assert_eq!(settled(both(None), None, 99.0).0, [false, false]);
    assert_eq!(settled(both(Some((12.0, 0))), None, 99.0).0, [true, true]);
    let turns = vec![call("a", 0.0, Some((10.0, 0))), call("a", 10.0, None)];
    assert_eq!(settled(turns, None, 99.0).0, [true, false]);
}

#[test]
fn a_step_that_lacks_what_it_left_runs_again_and_does_not_bring_another_line_back() {
    let lacking = |calls: &[Call], line_s, lacks: &[usize]| {
        let mut calls = calls.to_vec();
        let needed = settle(&mut calls, line_s, 99.0, |i| lacks.contains(&i));
        (calls.iter().map(|c| c.ended.is_some()).collect::<Vec<_>>(), needed)
    };
    // Stage-in, a step with the line, and one that was interrupted.
    let calls = [call("in", 0.0, Some((1.0, 0))), call("a", 1.0, Some((10.0, 0))), call("b", 10.0, None)];
    assert_eq!(lacking(&calls, Some(5.0), &[0]), (vec![false, true, false], false));
    assert_eq!(lacking(&calls, Some(15.0), &[0]), (vec![false, true, false], true));
    // What the step with the line left is not there: it goes on from its line.
    assert_eq!(lacking(&calls, Some(5.0), &[1]), (vec![true, false, false], true));
}

#[test]
fn what_a_step_has_left_is_known_of_the_time_that_it_ended_last() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::open(dir.path(), &[]).unwrap();
    let elsewhere = Present { nodes: vec!["n2".into()], ..Present::default() };
    let left = |node: &str| NodeLeft { node: node.into(), boot_id: "b".into(), in_memory: false };
    for (name, nodes) in [("a.1", vec![]), ("b.1", vec![left("n1")]), ("c.1", vec![left("n2")])] {
        calls.write(name, &call(name, 1.0, Some((2.0, 0)))).unwrap();
        calls.unsettle(name).unwrap();
        assert_eq!(calls.unsettled().unwrap(), [name]);
        calls.keep_left(name, 2.0, Some(nodes)).unwrap();
        assert_eq!(calls.unsettled().unwrap(), Vec::<String>::new());
    }
    calls.write("d.1", &call("d", 1.0, Some((3.0, 0)))).unwrap();
    calls.keep_left("d.1", 2.0, Some(vec![])).unwrap();
    let settled = calls.settle(None, 99.0, Some(&elsewhere)).unwrap();
    let ended = |name: &str| calls.read(name).unwrap().unwrap().ended.is_some();
    assert_eq!(["a.1", "b.1", "c.1", "d.1"].map(ended), [true, false, true, false]);
    assert_eq!(settled.again.len(), 2);
    assert!(settled.again.iter().any(|s| s.contains("it has left files on n1")), "{:?}", settled.again);
}

#[test]
fn what_began_after_the_line_has_never_been() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::open(dir.path(), &[]).unwrap();
    calls.write("a.1", &call("a", 1.0, Some((2.0, 0)))).unwrap();
    calls.write("b.1", &call("b", 3.0, None)).unwrap();
    calls.write("c.1", &call("c", 5.0, Some((6.0, 0)))).unwrap();
    let settled = calls.settle(Some(4.0), 99.0, None).unwrap();
    assert_eq!(settled, Settled { line_is_needed: true, kept_until_s: Some(2.0), again: Vec::new() });
    assert!(calls.read("a.1").unwrap().is_some_and(|c| c.ended.is_some()) && calls.read("b.1").unwrap().is_some());
    assert_eq!(calls.read("c.1").unwrap(), None);
}

#[test]
fn a_script_is_known_by_its_content_wherever_it_lies() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let print = |name: &str, text: &str| {
        fs::write(path(name), text).unwrap();
        fingerprint(&[path(name), "7".into()])
    };
    let first = print("node1", "srun a");
    assert_eq!(print("node2", "srun a"), first);
    assert_ne!(print("node1", "srun b"), first);
    assert_ne!(fingerprint(&[path("node2"), "8".into()]), first);
}

#[test]
fn what_stands_in_the_files_of_its_arguments_does_not_change_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    let print = |argv: &[&str], log: &str| {
        fs::write(path("job.sh"), "#!/bin/sh\nsrun a").unwrap();
        fs::write(path("log"), log).unwrap();
        fingerprint(
            &argv.iter().map(|word| if word.contains('/') { (*word).into() } else { path(word) }).collect::<Vec<_>>(),
        )
    };
    assert_eq!(print(&["job.sh", "log"], "one"), print(&["job.sh", "log"], "one two"));
    assert_ne!(print(&["/bin/sh", "log"], "srun a"), print(&["/bin/sh", "log"], "srun b"));
    assert_eq!(print(&["/bin/sh", "job.sh", "log"], "one"), print(&["/bin/sh", "job.sh", "log"], "two"));
}

#[test]
fn a_torn_record_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::open(dir.path(), &[]).unwrap();
    fs::write(calls.folder.join("a.1.json"), "{\"number\":1,").unwrap();
    assert_eq!(calls.read("a.1").unwrap(), None);
    assert_eq!(calls.settle(None, 0.0, None).unwrap().kept_until_s, None);
}

#[test]
fn a_stand_in_of_an_earlier_beginning_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::open(dir.path(), &[]).unwrap();
    calls.begin().unwrap();
    let of_stand_in = Calls { life: calls.now_living(PATIENCE), ..calls.clone() };
    assert!(!of_stand_in.is_closed() && !calls.is_closed());
    calls.begin().unwrap();
    assert!(of_stand_in.is_closed() && !calls.is_closed());
}

#[test]
fn numbers_and_turns_are_counted_together() {
    let dir = tempfile::tempdir().unwrap();
    let calls = Calls::open(dir.path(), &[]).unwrap();
    let claimed: Vec<_> = ["a", "b", "a", "a"].iter().map(|key| calls.claim(key).unwrap()).collect();
    assert_eq!(claimed, [(1, 0), (2, 0), (3, 1), (4, 2)]);
    calls.begin().unwrap();
    assert_eq!(calls.claim("a").unwrap(), (1, 0));
    // One of a version before.
    std::os::unix::fs::symlink("b/1.1", calls.claims().join("2")).unwrap();
    assert_eq!((calls.claim("b").unwrap(), calls.claim("a").unwrap()), ((3, 1), (4, 1)));
}

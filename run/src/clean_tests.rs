//! What is removed of ended runs, and what never is.

use super::*;
use crate::line::Claim;
use std::os::unix::fs::symlink;
use std::thread;

const DAY_S: f64 = 86_400.0;

fn keep() -> Keep {
    Keep { completed_s: Some(DAY_S), failed_s: Some(14.0 * DAY_S), records_s: Some(90.0 * DAY_S) }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// A run with a checkpoint that wrote this state last; none: it was lost without a word.
fn run(runs: &Path, name: &str, state: Option<&str>) -> PathBuf {
    let path = runs.join(name);
    let mut taken = crate::take_up(&path, &Claim::default(), Patience::NONE).unwrap();
    fs::create_dir_all(path.join("checkpoints/1")).unwrap();
    fs::write(path.join("checkpoints/1/image"), "x").unwrap();
    fs::write(path.join("checkpoints/1/manifest.json"), "{}").unwrap();
    fs::write(path.join("plan.json"), "{}").unwrap();
    let ended = |state: &str| (now_s(), Event::Ended { state: state.into(), exit_code: 0 });
    taken.journal.append(state.map(ended).into_iter().collect()).unwrap();
    path
}

fn names(found: &[Candidate]) -> Vec<(String, Due)> {
    let mut names: Vec<_> =
        found.iter().map(|c| (c.path.file_name().unwrap().to_str().unwrap().to_string(), c.due)).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    names
}

#[test]
fn what_goes_and_when_follows_from_how_a_run_ended() {
    let all = |end, has, days: f64| due(end, has, 0.0, days * DAY_S, &keep());
    for (end, has, days, expected) in [
        (End::Completed, true, 0.5, Due::Nothing),
        (End::Completed, true, 2.0, Due::Checkpoints),
        (End::Completed, false, 2.0, Due::Nothing),
        (End::Failed, true, 13.0, Due::Nothing),
        (End::Open, true, 13.0, Due::Nothing),
        (End::Open, true, 15.0, Due::Checkpoints),
        (End::Failed, true, 91.0, Due::All),
        (End::Completed, false, 91.0, Due::All),
        (End::Failed, true, -5000.0, Due::Nothing),
    ] {
        assert_eq!(all(end, has, days), expected, "{end:?} {has} {days}");
    }
    let ever = Keep { failed_s: None, ..keep() };
    assert_eq!(due(End::Failed, true, 0.0, 1e12, &ever), Due::Nothing, "its checkpoints are kept, so all of it is");
    assert_eq!(due(End::Failed, true, 0.0, 1e12, &Keep { records_s: None, ..keep() }), Due::Checkpoints);
}

#[test]
fn the_checkpoints_of_a_run_go_first_and_its_records_stay() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path();
    run(runs, "7.100", Some("completed"));
    run(runs, "8.100", Some("failed"));
    run(runs, "9.100", Some("requeued"));
    run(runs, "local-a.b.100", None);
    let at = |days: f64| find(runs, now_s() + days * DAY_S, &keep(), 100).unwrap();
    assert_eq!(names(&at(0.0)), []);
    assert_eq!(names(&at(2.0)), [("7.100".to_string(), Due::Checkpoints)]);
    let later_s = now_s() + 2.0 * DAY_S;
    let found = find(runs, later_s, &keep(), 100).unwrap();
    assert!(found[0].remove(later_s, &keep()).unwrap());
    assert!(!runs.join("7.100/checkpoints").exists() && runs.join("7.100/journal").exists());
    assert!(runs.join("7.100/plan.json").exists());
    assert_eq!(names(&at(2.0)), [], "nothing is left to do");
    let late = at(15.0);
    assert_eq!(late.len(), 3);
    assert!(late.iter().all(|c| c.due == Due::Checkpoints && c.end != End::Completed));
    let later_s = now_s() + 91.0 * DAY_S;
    for one in find(runs, later_s, &keep(), 100).unwrap() {
        assert!(one.remove(later_s, &keep()).unwrap());
    }
    assert_eq!(fs::read_dir(runs).unwrap().count(), 0);
}

#[test]
fn a_run_that_was_taken_up_since_it_was_looked_at_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(dir.path(), "7.100", Some("failed"));
    let later_s = now_s() + 15.0 * DAY_S;
    let one = find(dir.path(), later_s, &keep(), 9).unwrap().remove(0);
    crate::take_up(&path, &Claim::default(), Patience::NONE).unwrap();
    assert!(!one.remove(later_s, &keep()).unwrap());
    assert!(path.join("checkpoints/1/image").exists());
}

#[test]
fn records_that_are_newer_than_the_files_say_keep_a_run_and_so_do_files_that_are_newer_than_the_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("7.100");
    let mut taken = crate::take_up(&path, &Claim::default(), Patience::NONE).unwrap();
    fs::create_dir(path.join("checkpoints")).unwrap();
    // The node's clock was a year ahead of the storage's.
    let ended = |at_s| vec![(at_s, Event::Ended { state: "completed".into(), exit_code: 0 })];
    taken.journal.append(ended(now_s() + 365.0 * DAY_S)).unwrap();
    assert_eq!(find(dir.path(), now_s() + 100.0 * DAY_S, &keep(), 9).unwrap(), []);
    // It was years behind.
    let path = dir.path().join("8.100");
    let mut taken = crate::take_up(&path, &Claim::default(), Patience::NONE).unwrap();
    fs::create_dir(path.join("checkpoints")).unwrap();
    taken.journal.append(ended(0.0)).unwrap();
    assert_eq!(find(dir.path(), now_s() + 0.5 * DAY_S, &keep(), 9).unwrap(), []);
    assert_eq!(agreed(&[100.0, 3000.0]), Some(100.0));
    assert_eq!((agreed(&[100.0, 3000.0, 9000.0]), agreed(&[])), (None, None), "one is wrong, and nobody knows which");
}

#[test]
fn links_and_what_is_no_run_are_never_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, other) = (dir.path().join("c"), dir.path().join("other"));
    let path = run(&runs, "7.100", Some("completed"));
    run(&other, "8.100", Some("completed"));
    fs::create_dir_all(other.join("data")).unwrap();
    fs::write(other.join("data/file"), "dear").unwrap();
    symlink(other.join("8.100"), runs.join("8.100")).unwrap();
    symlink(other.join("data"), path.join("linked")).unwrap();
    symlink(other.join("data"), path.join("checkpoints/1/linked")).unwrap();
    symlink(other.join("data"), runs.join(".removed-x")).unwrap();
    for name in ["9.100", "thesis", "10.x", "results.5"] {
        fs::create_dir_all(runs.join(name).join("checkpoints")).unwrap();
    }
    let later_s = now_s() + 1000.0 * DAY_S;
    let found = find(&runs, later_s, &keep(), 100).unwrap();
    assert_eq!(names(&found), [("7.100".to_string(), Due::All)]);
    assert!(found[0].remove(later_s, &keep()).unwrap());
    finish(&runs).unwrap();
    assert!(other.join("data/file").exists() && other.join("8.100/checkpoints/1/image").exists());
    assert!(runs.join("9.100").exists() && runs.join("thesis").exists());
}

#[test]
fn of_many_that_clean_at_once_each_run_is_removed_by_one() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..20 {
        run(dir.path(), &format!("{n}.100"), Some("completed"));
    }
    let later_s = now_s() + 100.0 * DAY_S;
    let found = find(dir.path(), later_s, &keep(), 100).unwrap();
    assert_eq!(found.len(), 20);
    let clean = || found.iter().filter(|one| one.remove(later_s, &keep()).is_ok_and(|was_there| was_there)).count();
    let removed: usize = thread::scope(|scope| {
        let all: Vec<_> = (0..4).map(|_| scope.spawn(clean)).collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert_eq!(removed, 20);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_one_who_was_killed_has_left_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let path = run(dir.path(), "7.100", Some("completed"));
    fs::rename(path, dir.path().join(".removed-7.100-1-2")).unwrap();
    finish(dir.path()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_is_stamped_with_the_clock_of_its_storage() {
    let dir = tempfile::tempdir().unwrap();
    let (first_s, before) = stamp(dir.path(), 0.0).unwrap();
    assert!((first_s - now_s()).abs() < 10.0 && before.is_none());
    assert_eq!(stamp(dir.path(), 60.0).unwrap().1, Some(first_s));
    assert_eq!(stamp(dir.path(), 0.0).unwrap().1, Some(first_s), "who only looks does not put off the next");
    fs::remove_file(dir.path().join(STAMP)).unwrap();
    symlink("/etc/passwd", dir.path().join(STAMP)).unwrap();
    assert!(stamp(dir.path(), 0.0).is_err());
}

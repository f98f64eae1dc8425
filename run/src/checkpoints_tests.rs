//! What a run keeps of its checkpoints, and what it never uses.

use super::*;
use crate::copy::take;
use crate::restore::bring_back;

fn run() -> (tempfile::TempDir, Checkpoints, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints { patience: Patience::NONE, ..open(&dir) };
    let original = dir.path().join("state.cpt");
    (dir, checkpoints, original)
}

fn open(dir: &tempfile::TempDir) -> Checkpoints {
    Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap()
}

fn manifest(number: u64, files: Vec<protocol::ManifestFile>) -> Manifest {
    Manifest { version: protocol::VERSION, number, engine: "app".into(), files, ..Manifest::default() }
}

/// A checkpoint that is complete, and not verified yet.
fn committed(checkpoints: &Checkpoints, original: &Path, content: &str) -> Manifest {
    fs::write(original, content).unwrap();
    let (number, folder) = checkpoints.room().unwrap();
    let manifest = manifest(number, take(&[original.to_path_buf()], &folder).unwrap());
    checkpoints.commit(&manifest).unwrap();
    manifest
}

fn checkpoint(checkpoints: &Checkpoints, original: &Path, content: &str) -> Manifest {
    let manifest = committed(checkpoints, original, content);
    assert_eq!(checkpoints.settle(manifest.number).unwrap(), Verdict::Good);
    manifest
}

/// The newest one's number, and what was said.
fn newest(checkpoints: &Checkpoints) -> (Option<u64>, Vec<String>) {
    let (manifest, notes) = checkpoints.newest().unwrap();
    (manifest.map(|m| m.number), notes)
}

#[test]
fn the_last_n_are_kept_and_the_newest_is_found() {
    let (_dir, checkpoints, original) = run();
    for content in ["one", "two", "three"] {
        checkpoint(&checkpoints, &original, content);
    }
    assert!(!checkpoints.path(1).exists());
    assert_eq!(newest(&checkpoints), (Some(3), vec![]));
}

#[test]
fn a_damaged_one_is_never_used() {
    let (_dir, checkpoints, original) = run();
    checkpoint(&checkpoints, &original, "good");
    let bad = checkpoint(&checkpoints, &original, "will rot");
    let copy = checkpoints.path(bad.number).join(&bad.files[0].copy);
    fs::write(&copy, "w1ll rot").unwrap();
    let (number, notes) = newest(&checkpoints);
    assert_eq!(number, Some(1));
    assert!(notes[0].contains("has changed"), "{notes:?}");
    let next = checkpoint(&checkpoints, &original, "new");
    assert_eq!(next.number, 3);
}

#[test]
fn a_half_written_one_is_not_complete_and_its_place_is_cleared() {
    let (_dir, checkpoints, original) = run();
    checkpoint(&checkpoints, &original, "good");
    let (number, folder) = checkpoints.room().unwrap();
    fs::write(folder.join("0000-state.cpt"), "half").unwrap();
    assert_eq!(newest(&checkpoints).0, Some(1));
    let next = checkpoint(&checkpoints, &original, "next");
    assert_eq!(next.number, number + 1);
    assert!(!folder.exists());
    assert_eq!(fs::read_dir(checkpoints.folder.join("sealed")).unwrap().count(), 0);
}

#[test]
fn files_come_back_as_they_were() {
    let (dir, checkpoints, original) = run();
    let manifest = checkpoint(&checkpoints, &original, "state at the line");
    let back = || bring_back(&manifest, &checkpoints.path(manifest.number), Patience::NONE).unwrap();
    fs::write(&original, "later, unverified").unwrap();
    back();
    assert_eq!(fs::read_to_string(&original).unwrap(), "state at the line");
    fs::remove_file(&original).unwrap();
    back();
    assert_eq!(fs::read_to_string(&original).unwrap(), "state at the line");
    drop(dir);
}

#[test]
fn none_goes_before_as_many_newer_ones_as_are_kept_were_read_back() {
    let (_dir, checkpoints, original) = run();
    for content in ["one", "two", "three", "four"] {
        committed(&checkpoints, &original, content);
    }
    let there = || [1, 2, 3, 4].map(|n| checkpoints.path(n).join(MANIFEST).exists());
    assert_eq!(there(), [true; 4]);
    // Its copy did not reach the disk.
    let copy = fs::read_dir(checkpoints.path(4)).unwrap().map(|e| e.unwrap().path()).find(|p| !p.ends_with(MANIFEST));
    fs::write(copy.unwrap(), "fo").unwrap();
    assert!(matches!(checkpoints.settle(4).unwrap(), Verdict::Damaged(_)));
    assert_eq!(there(), [true, true, true, false]);
    checkpoints.settle(3).unwrap();
    assert_eq!(there(), [true, true, true, false]);
    checkpoints.settle(2).unwrap();
    assert_eq!(there(), [false, true, true, false]);
}

#[test]
fn an_error_of_storage_is_no_damage_the_one_before_is_used_and_nothing_is_removed() {
    let (_dir, checkpoints, original) = run();
    checkpoint(&checkpoints, &original, "one");
    let two = checkpoint(&checkpoints, &original, "two");
    // A folder in the place of the copy: reading it is an error that is neither absence nor another content.
    let copy = checkpoints.path(2).join(&two.files[0].copy);
    fs::remove_file(&copy).unwrap();
    fs::create_dir(&copy).unwrap();
    let (number, notes) = newest(&checkpoints);
    assert_eq!(number, Some(1));
    assert!(notes[0].starts_with("checkpoint 2 cannot be read"), "{notes:?}");
    assert!(checkpoints.path(2).join(MANIFEST).exists());
    checkpoints.room().unwrap();
    assert!(checkpoints.path(2).join(MANIFEST).exists());
}

#[test]
fn a_run_does_not_begin_anew_because_no_checkpoint_can_be_read() {
    let (_dir, checkpoints, original) = run();
    let one = checkpoint(&checkpoints, &original, "one");
    let copy = checkpoints.path(1).join(&one.files[0].copy);
    fs::remove_file(&copy).unwrap();
    fs::create_dir(&copy).unwrap();
    assert!(matches!(checkpoints.newest(), Err(Error::Unreadable(_))));
    fs::remove_dir(&copy).unwrap();
    fs::write(&copy, "one").unwrap();
    assert_eq!(newest(&checkpoints).0, Some(1));
}

#[test]
fn a_manifest_of_a_later_version_is_neither_used_nor_taken_for_damaged() {
    let (_dir, checkpoints, original) = run();
    checkpoint(&checkpoints, &original, "one");
    checkpoint(&checkpoints, &original, "two");
    let path = checkpoints.path(2).join(MANIFEST);
    let text = fs::read_to_string(&path).unwrap();
    for newer in
        [text.replacen("\"number\"", "\"fresh\": 1, \"number\"", 1), text.replace("\"version\": 1", "\"version\": 3")]
    {
        fs::write(&path, newer).unwrap();
        let (number, notes) = newest(&checkpoints);
        assert!(number == Some(1) && notes[0].contains("version"), "{notes:?}");
        assert!(path.exists());
    }
    fs::write(&path, "{").unwrap();
    assert!(newest(&checkpoints).1[0].contains("is damaged") && !path.exists());
}

#[test]
fn one_in_blocks_has_a_version_that_those_before_do_not_take_for_damaged() {
    let (_dir, checkpoints, _) = run();
    let (number, folder) = checkpoints.room().unwrap();
    fs::create_dir_all(folder.join("a.1.0/blocks")).unwrap();
    fs::write(folder.join("a.1.0/blocks/0.pack"), "memory").unwrap();
    let files = crate::survey(&folder).unwrap();
    checkpoints.commit(&Manifest { version: protocol::VERSION, number, files, ..Manifest::default() }).unwrap();
    assert!(fs::read_to_string(folder.join(MANIFEST)).unwrap().contains("\"version\": 2"));
    assert_eq!(checkpoints.settle(number).unwrap(), Verdict::Good);
    assert_eq!(newest(&checkpoints).0, Some(number));
}

#[test]
fn one_that_could_not_be_restored_stays_and_is_tried_again_when_no_other_can_be() {
    let (dir, checkpoints, original) = run();
    checkpoint(&checkpoints, &original, "one");
    checkpoint(&checkpoints, &original, "two");
    let mark = |number| fs::write(checkpoints.path(number).join(protocol::NOT_RESTORED), "a socket is in use").unwrap();
    mark(2);
    let (number, notes) = newest(&checkpoints);
    assert!(number == Some(1) && notes[0].contains("a socket is in use"), "{notes:?}");
    assert!(checkpoints.path(2).join(MANIFEST).exists() && !checkpoints.is_verified(2));
    let next_life = || seal::seal(dir.path(), &Owners::default(), 2, Patience::NONE).unwrap();
    next_life();
    assert_eq!(newest(&checkpoints).0, Some(1), "the run has gone on from it");
    // It is whole, so that the run does not begin anew although there is no other.
    mark(1);
    let held = checkpoints.newest().unwrap_err();
    assert!(matches!(held, Error::NotRestored(_)) && held.to_string().contains("does not begin anew"), "{held}");
    assert!(matches!(checkpoints.is_complete(2), Err(Error::NotRestored(_))));
    next_life();
    assert_eq!(newest(&checkpoints), (Some(2), vec![]));
    assert!(checkpoints.is_complete(2).unwrap());
}

#[test]
fn what_was_forgotten_is_never_used_and_goes_with_those_of_its_age() {
    let (_dir, checkpoints, original) = run();
    checkpoint(&checkpoints, &original, "one");
    checkpoint(&checkpoints, &original, "two");
    checkpoints.forget_from(2).unwrap();
    assert_eq!(newest(&checkpoints).0, Some(1));
    for (content, left) in [("three", true), ("four", false)] {
        checkpoint(&checkpoints, &original, content);
        assert_eq!(checkpoints.path(2).exists(), left, "{content}");
    }
}

#[test]
fn a_holder_that_another_has_followed_makes_completes_sets_aside_and_removes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let holder = Holder::new(dir.path(), 1, Patience::NONE);
    let mut owners = Owners::default();
    owners.add(1, 1);
    let of = |holder: &Holder, owners: &Owners| {
        let folder = dir.path().join("checkpoints");
        Checkpoints::of_run(folder, 1, holder.clone(), Arc::new(owners.clone()), Patience::NONE).unwrap()
    };
    let (old, original) = (of(&holder, &owners), dir.path().join("state"));
    let one = checkpoint(&old, &original, "one");
    let two = committed(&old, &original, "two");
    let (number, into) = old.room().unwrap();
    fs::write(crate::holder::journal(dir.path(), 2), "").unwrap();
    let late = manifest(number, take(std::slice::from_ref(&original), &into).unwrap());
    for result in [
        old.room().map(drop),
        old.commit(&late),
        old.settle(two.number).map(drop),
        old.forget_from(1),
        old.newest().map(drop),
    ] {
        assert!(result.unwrap_err().is_superseded());
    }
    assert!(old.path(one.number).join(MANIFEST).exists() && !into.join(MANIFEST).exists());

    // Had it looked before: what it completes then is told, kept and not used.
    owners.add(2, number);
    let new = of(&Holder::new(dir.path(), 2, Patience::NONE), &owners);
    let stale = Manifest { holder: Some(1), ..late };
    fs::write(into.join(MANIFEST), serde_json::to_vec(&stale).unwrap()).unwrap();
    let (found, notes) = newest(&new);
    assert!(found == Some(two.number) && notes[0].contains("after another had taken the run up"), "{notes:?}");
    assert!(dir.path().join(format!("checkpoints/sealed/{number}.2")).join(MANIFEST).exists());
    let next = checkpoint(&new, &original, "three");
    assert_eq!(next.number, number + 1);
    assert_eq!(newest(&new), (Some(next.number), vec![]));
}

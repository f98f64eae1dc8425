//! What checkpoints share, and what no fault can take from two that follow each other.

use crate::checkpoint::Verdict;
use crate::{Checkpoints, survey_new, take_new};
use protocol::Manifest;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const STAYS: &str = "weights that stay as they are";

struct Run {
    dir: tempfile::TempDir,
    checkpoints: Checkpoints,
}

impl Run {
    fn keeping(keep: u32) -> Run {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("stays"), STAYS).unwrap();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), keep).unwrap();
        Run { dir, checkpoints }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A checkpoint of one file that stays and of one that is new, not read back yet.
    fn committed(&self) -> Manifest {
        let (number, folder) = self.checkpoints.room().unwrap();
        fs::write(self.file("new"), format!("step {number}")).unwrap();
        let earlier = self.checkpoints.earlier();
        let files = take_new(&[self.file("stays"), self.file("new")], &folder, &earlier).unwrap();
        let bytes = files.iter().map(|file| file.bytes).sum();
        let manifest = Manifest { version: protocol::VERSION, number, bytes, files, ..Manifest::default() };
        self.checkpoints.commit(&manifest).unwrap();
        manifest
    }

    fn checkpoint(&self) -> Manifest {
        let manifest = self.committed();
        assert_eq!(self.checkpoints.settle(manifest.number).unwrap(), Verdict::Good);
        manifest
    }

    fn stored(&self, number: u64) -> PathBuf {
        self.checkpoints.path(number).join("0000-stays")
    }

    fn inode(&self, number: u64) -> u64 {
        inode(&self.stored(number))
    }
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

#[test]
fn only_what_is_new_is_written_and_two_that_follow_each_other_share_nothing() {
    let run = Run::keeping(3);
    let written: Vec<u64> = (0..6).map(|_| run.checkpoint().written_bytes()).collect();
    let (all, new) = ((STAYS.len() + "step 1".len()) as u64, "step 1".len() as u64);
    assert_eq!(written, [all, all, new, new, new, new]);
    assert!(!run.checkpoints.path(3).exists(), "those before are gone, and have taken nothing with them");
    assert_eq!(run.inode(4), run.inode(6));
    assert_ne!(run.inode(5), run.inode(6));
    assert_ne!(run.inode(6), inode(&run.file("stays")), "the program's own file is never linked");
    let manifest = run.checkpoints.newest().unwrap().0.unwrap();
    assert_eq!((manifest.number, manifest.bytes, manifest.files[0].copied_for), (6, all, Some(2)));
}

#[test]
fn a_program_that_writes_in_place_changes_no_stored_copy_and_is_copied_anew() {
    let run = Run::keeping(2);
    (0..3).for_each(|_| drop(run.checkpoint()));
    let changed = STAYS.replace("stay", "STAY");
    fs::write(run.file("stays"), &changed).unwrap();
    let next = run.checkpoint();
    assert_eq!(next.written_bytes(), next.bytes);
    assert_eq!(fs::read_to_string(run.stored(3)).unwrap(), STAYS);
    assert_eq!(fs::read_to_string(run.stored(4)).unwrap(), changed);
    // Another file in its place, with the size and the time of the one before.
    let modified = fs::metadata(run.file("stays")).unwrap().modified().unwrap();
    (0..2).for_each(|_| drop(run.checkpoint()));
    fs::write(run.file("other"), STAYS).unwrap();
    fs::File::options().write(true).open(run.file("other")).unwrap().set_modified(modified).unwrap();
    fs::rename(run.file("other"), run.file("stays")).unwrap();
    let last = run.checkpoint();
    assert_eq!(last.written_bytes(), last.bytes);
    assert_eq!(fs::read_to_string(run.stored(last.number)).unwrap(), STAYS);
}

#[test]
fn a_damaged_copy_takes_no_two_that_follow_each_other_and_is_not_shared_again() {
    let run = Run::keeping(2);
    (0..3).for_each(|_| drop(run.checkpoint()));
    // It is the copy of the next, too.
    let rotten = STAYS.replace("weights", "we1ghts");
    fs::write(run.stored(2), &rotten).unwrap();
    let next = run.committed();
    assert_eq!(next.files[0].copied_for, Some(2));
    assert!(matches!(run.checkpoints.settle(next.number).unwrap(), Verdict::Damaged(_)));
    assert_eq!(run.checkpoints.newest().unwrap().0.map(|m| m.number), Some(3));
    assert!(run.checkpoints.path(2).exists(), "nothing goes on the word of what was read before the damage");
    let whole = [run.checkpoint(), run.checkpoint()];
    assert!(whole.iter().all(|manifest| fs::read_to_string(run.stored(manifest.number)).unwrap() == STAYS));
    assert_ne!(run.inode(whole[0].number), run.inode(whole[1].number));
}

#[test]
fn nothing_is_shared_where_one_is_kept_or_where_none_was_read_back() {
    let run = Run::keeping(1);
    for _ in 0..4 {
        let manifest = run.checkpoint();
        assert_eq!(manifest.written_bytes(), manifest.bytes);
    }
    let run = Run::keeping(2);
    for _ in 0..4 {
        let manifest = run.committed();
        assert_eq!(manifest.written_bytes(), manifest.bytes);
    }
}

#[test]
fn a_name_that_a_lost_answer_has_left_is_not_written_to() {
    let run = Run::keeping(2);
    (0..3).for_each(|_| drop(run.checkpoint()));
    let (_, folder) = run.checkpoints.room().unwrap();
    // The link was made, and the answer was that it was not.
    fs::hard_link(run.stored(2), folder.join("0000-stays")).unwrap();
    fs::write(run.file("stays"), "something else").unwrap();
    for earlier in [run.checkpoints.earlier(), crate::Earlier::default()] {
        let files = take_new(&[run.file("stays")], &folder, &earlier).unwrap();
        assert_eq!((files[0].bytes, files[0].copied_for), (14, None));
        assert_eq!(fs::read_to_string(run.stored(2)).unwrap(), STAYS);
    }
    let files = run.checkpoints.earlier();
    fs::write(run.file("stays"), STAYS).unwrap();
    fs::remove_file(folder.join("0000-stays")).unwrap();
    fs::hard_link(run.stored(2), folder.join("0000-stays")).unwrap();
    take_new(&[run.file("stays")], &folder, &files).unwrap();
    assert_ne!(inode(&folder.join("0000-stays")), run.inode(2), "a link that fails is a copy");
}

/// A checkpoint as an engine leaves it, which gives a file of an earlier one a further name where it may.
fn left_by_an_engine(run: &Run) -> Manifest {
    let (number, folder) = run.checkpoints.room().unwrap();
    let earlier = run.checkpoints.earlier();
    let (pack, at) = ("task/0.pack", folder.join("task/0.pack"));
    fs::create_dir(folder.join("task")).unwrap();
    match earlier.base() {
        Some(base) => fs::hard_link(base.join(pack), at).unwrap(),
        None => fs::write(at, STAYS).unwrap(),
    }
    fs::write(folder.join("task/new"), format!("step {number}")).unwrap();
    let files = survey_new(&folder, &earlier).unwrap();
    let bytes = files.iter().map(|file| file.bytes).sum();
    let manifest = Manifest { version: protocol::VERSION, number, bytes, files, ..Manifest::default() };
    run.checkpoints.commit(&manifest).unwrap();
    manifest
}

#[test]
fn what_an_engine_has_left_gets_further_names_and_two_that_follow_each_other_share_nothing() {
    let run = Run::keeping(2);
    let pack = |number: u64| run.checkpoints.path(number).join("task/0.pack");
    for number in 1..=6 {
        let manifest = left_by_an_engine(&run);
        assert_eq!(run.checkpoints.settle(number).unwrap(), Verdict::Good);
        let of_pack = &manifest.files[0];
        assert_eq!((of_pack.bytes, of_pack.copied_for), (STAYS.len() as u64, (number > 2).then(|| 2 - number % 2)));
        assert_eq!(manifest.written_bytes() == manifest.bytes, number <= 2);
        assert!(number == 1 || inode(&pack(number)) != inode(&pack(number - 1)));
    }
}

#[test]
fn files_that_the_newest_checkpoint_has_are_not_given_on() {
    let run = Run::keeping(3);
    for (number, copied_for) in [(1, None), (2, None), (3, Some(1))] {
        assert_eq!(left_by_an_engine(&run).files[0].copied_for, copied_for);
        run.checkpoints.settle(number).unwrap();
    }
    run.checkpoints.forget(2).unwrap();
    assert_eq!(left_by_an_engine(&run).files[0].copied_for, None);
}

#[test]
fn a_file_that_an_engine_has_written_anew_under_an_old_name_is_read() {
    let run = Run::keeping(2);
    for number in 1..=2 {
        left_by_an_engine(&run);
        run.checkpoints.settle(number).unwrap();
    }
    let (_, folder) = run.checkpoints.room().unwrap();
    fs::create_dir(folder.join("task")).unwrap();
    fs::write(folder.join("task/0.pack"), "other").unwrap();
    let files = survey_new(&folder, &run.checkpoints.earlier()).unwrap();
    assert_eq!((files[0].bytes, files[0].copied_for), (5, None));
}

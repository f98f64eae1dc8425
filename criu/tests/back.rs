//! What was saved of a program is put back: a storage that fails at that is no fault of the checkpoint.

use criu::dumping::flush::Failed;
use criu::frozen::{Frozen, put_back};
use criu::line::Member;
use criu::task::Task;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// An archive of one file.
fn archive(at: &Path, of: &Path) {
    let mut builder = tar::Builder::new(File::create(at).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o600);
    header.set_uid(nix::unistd::getuid().as_raw().into());
    builder.append_data(&mut header, of.strip_prefix("/").unwrap(), &b"kept"[..]).unwrap();
    builder.into_inner().unwrap();
}

/// Puts back what a dump has of a program that had written so many bytes to a file.
fn back(dump: &Path, written: &Path, bytes: u64) -> Result<Frozen, Failed> {
    let written = serde_json::json!([{ "path": written, "bytes": bytes }]);
    let record = serde_json::json!({ "program": 2, "last_pid": 3, "pipes": [], "written": written });
    fs::write(dump.join("sandbox.json"), record.to_string()).unwrap();
    put_back(dump, &dump.with_file_name("cut-off"), &Task::default())
}

#[test]
fn a_checkpoint_is_blamed_for_what_is_wrong_with_it_and_not_for_a_storage_that_fails() {
    // In no folder that is lost with its node.
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (dump, file) = (dir.path().join("dump"), dir.path().join("file"));
    fs::create_dir(&dump).unwrap();
    fs::write(&file, "abc").unwrap();
    back(&dump, &file, 3).unwrap();
    assert!(back(&dump, &file, 5).unwrap_err().is_of_checkpoint(), "the file has become shorter");
    // Nothing can be below a file.
    let below = file.join("below");
    let unseen = back(&dump, &below, 3).unwrap_err();
    assert!(!unseen.is_of_checkpoint() && unseen.to_string().contains("below"), "{unseen}");
    archive(&dump.join("open.tar"), &below);
    let not_copied = back(&dump, &file, 3).unwrap_err();
    assert!(!not_copied.is_of_checkpoint() && not_copied.to_string().contains("below"), "{not_copied}");
    fs::rename(dump.join("open.tar"), dump.join("shm.tar")).unwrap();
    let not_unpacked = back(&dump, &file, 3).unwrap_err();
    assert!(!not_unpacked.is_of_checkpoint() && not_unpacked.to_string().contains("shm.tar"), "{not_unpacked}");
    fs::write(dump.join("shm.tar"), "no archive").unwrap();
    assert!(back(&dump, &file, 3).unwrap_err().is_of_checkpoint(), "an archive is damaged");
    for damaged in ["{", "no record"] {
        fs::write(dump.join("sandbox.json"), damaged).unwrap();
        let back = put_back(&dump, &dir.path().join("cut-off"), &Task::default());
        assert!(back.unwrap_err().is_of_checkpoint(), "{damaged}");
    }
}

#[test]
fn what_another_user_has_put_in_the_way_is_no_fault_of_the_checkpoint_and_nothing_is_written() {
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let dump = dir.path().join("dump");
    for (name, held) in [("tmp.tar", "own/data"), ("open.tar", "held"), ("open.tar", "folder/held")] {
        fs::create_dir(&dump).unwrap();
        let (path, first) = (dir.path().join(held), dir.path().join(held.split('/').next().unwrap()));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "secret").unwrap();
        let pack = |tar: &mut archive::Archive<File>| {
            if name == "tmp.tar" { tar.append_below(&first) } else { tar.append(&path) }
        };
        archive::pack(File::create(dump.join(name)).unwrap(), pack).unwrap();
        let with_record = || back(&dump, &dump.join(name), fs::metadata(dump.join(name)).unwrap().len());
        fs::write(&path, "since").unwrap();
        with_record().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
        fs::write(&path, "theirs").unwrap();
        for of_others in [&first, &path] {
            if let Err(e) = std::os::unix::fs::chown(of_others, Some(65533), None) {
                assert!(!nix::unistd::geteuid().is_root(), "{e}");
                println!("skipped: only root can give files away");
                return;
            }
            fs::set_permissions(of_others, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let failed = with_record().unwrap_err();
        assert!(!failed.is_of_checkpoint(), "{failed}");
        assert!(failed.to_string().contains(&format!("{} is in the way", first.display())), "{failed}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs");
        fs::remove_dir_all(&dump).unwrap();
    }
}

/// A task of a step that comes back in a beginning of its script.
fn task(run: &Path, call: &str, beginning: u32) -> Task {
    let member = Member { call: call.into(), rank: 0, tasks: 1, node: "n".into(), step: None, ranks: None };
    let placement = format!("1:{beginning}:steps:{}", run.join("fencing-token").display()).parse().unwrap();
    let own = run.join("tasks").join(member.folder());
    fs::create_dir_all(&own).unwrap();
    Task { run: own, member: Some(member), placement: Some(placement), ..Task::default() }
}

#[test]
fn of_the_steps_that_share_a_temporary_folder_only_the_first_to_come_back_writes_over_what_is_there() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let (dump, tmp, run) = (dir.path().join("dump"), dir.path().join("tmp"), dir.path().join("run"));
    [&dump, &tmp, &run].iter().for_each(|folder| fs::create_dir(folder).unwrap());
    fs::write(tmp.join("state"), "at the checkpoint").unwrap();
    archive::pack(File::create(dump.join("tmp.tar")).unwrap(), |tar| tar.append_below(&tmp)).unwrap();
    let record = serde_json::json!({ "program": 2, "last_pid": 3, "pipes": [], "written": [] });
    fs::write(dump.join("sandbox.json"), record.to_string()).unwrap();
    let back = |call, beginning| put_back(&dump, &dir.path().join("cut-off"), &task(&run, call, beginning)).unwrap();
    let state = || fs::read_to_string(tmp.join("state")).unwrap_or_default();
    fs::write(tmp.join("state"), "of the life before").unwrap();
    back("a.1", 0);
    assert_eq!(state(), "at the checkpoint");
    fs::write(tmp.join("state"), "a has gone on").unwrap();
    back("a.2", 0);
    assert_eq!(state(), "a has gone on");
    fs::remove_file(tmp.join("state")).unwrap();
    back("a.3", 0);
    assert_eq!(state(), "at the checkpoint", "what is missing is put back");
    fs::write(tmp.join("state"), "a has gone on").unwrap();
    back("a.2", 1);
    assert_eq!(state(), "at the checkpoint", "all go back once more");
}

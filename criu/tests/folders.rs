//! Folders of a run in its node's `/tmp` are there as long as somebody holds them.

use criu::temporary::{Held, Temporary};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn each_run_has_a_folder_of_its_own_that_is_empty_and_gone_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let first = Temporary::make(&run).unwrap();
    let path = first.path().to_path_buf();
    fs::write(path.join("a"), "").unwrap();
    std::mem::forget(first);
    let again = Temporary::make(&run).unwrap();
    let other = Temporary::make(dir.path()).unwrap();
    assert_eq!(again.path(), path);
    assert_ne!(other.path(), path);
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    drop(again);
    assert!(!path.exists());
    fs::write(&path, "").unwrap();
    assert!(Temporary::make(&run).unwrap_err().contains("set TMPDIR"));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    if std::os::unix::fs::chown(&path, Some(65533), None).is_ok() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(path.join("theirs"), "").unwrap();
        let said = Temporary::make(&run).unwrap_err();
        let expected = format!("{} is in the way: it belongs to user", path.display());
        assert!(said.starts_with(&expected), "{said}");
        assert!(path.join("theirs").exists(), "another user's folder is left alone");
    }
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_folder_that_several_hold_goes_with_the_last_and_is_there_for_whoever_comes_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("held");
    let (first, second) = (Held::hold(&path).unwrap(), Held::hold(&path).unwrap());
    drop(first);
    assert!(path.is_dir());
    drop(second);
    assert!(!path.exists());
    let users: Vec<_> = (0..4).map(|n| (n, path.clone())).collect();
    let users = users.into_iter().map(|(n, path)| {
        std::thread::spawn(move || {
            for _ in 0..200 {
                let _held = Held::hold(&path).unwrap();
                let own = path.join(n.to_string());
                fs::write(&own, "").unwrap();
                fs::remove_file(own).unwrap();
            }
        })
    });
    users.collect::<Vec<_>>().into_iter().for_each(|user| user.join().unwrap());
    assert!(!path.exists());
}

#[test]
fn a_link_or_a_file_is_not_held() {
    let dir = tempfile::tempdir().unwrap();
    let (link, file) = (dir.path().join("link"), dir.path().join("file"));
    std::os::unix::fs::symlink(dir.path(), &link).unwrap();
    fs::write(&file, "").unwrap();
    assert!(Held::hold(&link).is_err() && Held::hold(&file).is_err());
    assert!(dir.path().exists());
}

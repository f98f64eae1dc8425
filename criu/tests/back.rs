//! What was saved of a program is put back: a storage that fails at that is no fault of the checkpoint.

use criu::dumping::flush::Failed;
use criu::frozen::{Frozen, put_back};
use std::fs::{self, File};
use std::path::Path;

/// An archive of one file.
fn archive(at: &Path, of: &Path) {
    let mut builder = tar::Builder::new(File::create(at).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(4);
    header.set_mode(0o600);
    builder.append_data(&mut header, of.strip_prefix("/").unwrap(), &b"kept"[..]).unwrap();
    builder.into_inner().unwrap();
}

/// Puts back what a dump has of a program that had written so many bytes to a file.
fn back(dump: &Path, written: &Path, bytes: u64) -> Result<Frozen, Failed> {
    let written = serde_json::json!([{ "path": written, "bytes": bytes }]);
    let record = serde_json::json!({ "program": 2, "last_pid": 3, "pipes": [], "written": written });
    fs::write(dump.join("sandbox.json"), record.to_string()).unwrap();
    put_back(dump, &dump.with_file_name("cut-off"))
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
        assert!(put_back(&dump, &dir.path().join("cut-off")).unwrap_err().is_of_checkpoint(), "{damaged}");
    }
}

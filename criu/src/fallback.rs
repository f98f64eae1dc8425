//! A step whose tasks no sandbox can hold after all is started again without: what is in the way is noted in a file of its
//! call, which the stand-in for `srun` reads when the step has failed.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Names the file for programs: the library for MPI notes there what it does not serve.
pub const VARIABLE: &str = "JOULEPOINT_FALLBACK";

/// Folder of a run with the files of all such calls.
pub const FOLDER: &str = "fallback";

/// How a file of a node is called which holds no task: another node may, when the step begins again.
pub const HERE: &str = "here";

/// The file of a call.
pub fn file(run: &Path, call: &str) -> PathBuf {
    run.join(FOLDER).join(call)
}

/// Notes why no sandbox on this node can hold a task of the call with this file. Whether it is noted.
pub fn note_here(file: &Path, reason: &str) -> bool {
    let opened = OpenOptions::new().append(true).create(true).open(file.with_added_extension(HERE));
    opened.and_then(|mut file| writeln!(file, "{reason}")).is_ok()
}

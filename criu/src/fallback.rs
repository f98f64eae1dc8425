//! A step whose tasks no sandbox can hold after all is started again without: what is in the way is noted in a file of its
//! call, which the stand-in for `srun` reads when the step has failed.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the file for programs: the library for MPI notes there what it does not serve.
pub const VARIABLE: &str = "JOULEPOINT_FALLBACK";

/// Folder of a run with a file for each such call.
const FOLDER: &str = "fallback";

/// What the file is called in which the library for MPI notes what only some programs need: these end as soon as they have
/// seen that they do not have it.
const EARLY: &str = "early";

/// A program that has lived for so long can do without what was noted so.
const EARLY_LIMIT: Duration = Duration::from_secs(60);

/// The file of a call.
pub fn file(run: &Path, call: &str) -> PathBuf {
    run.join(FOLDER).join(call)
}

/// Makes room for what may be noted of a call; what is known of earlier lives of it stays.
///
/// # Errors
/// What the file system says.
pub fn prepare(run: &Path, call: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(run.join(FOLDER))?;
    match fs::remove_file(early(&file(run, call))) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Notes in this file why no sandbox can hold a task whose program has not begun. Whether it is noted.
pub fn note(file: &Path, reason: &str) -> bool {
    let opened = OpenOptions::new().append(true).create(true).open(file);
    opened.and_then(|mut file| writeln!(file, "{reason}")).is_ok()
}

/// What is in the way of the call with this file, as was noted in any of its lives.
pub fn noted(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().next().filter(|line| !line.is_empty()).map(str::to_string)
}

/// The same of a call that has failed after it `lasted` so long.
pub fn noted_of_failed(file: &Path, lasted: Duration) -> Option<String> {
    let early = || {
        noted(&early(file)).filter(|_| lasted < EARLY_LIMIT).inspect(|reason| {
            // Else the next life tries it once more.
            let _ = note(file, reason);
        })
    };
    noted(file).or_else(early)
}

fn early(file: &Path) -> PathBuf {
    file.with_added_extension(EARLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_known_in_later_lives_and_what_only_some_need_if_they_fail_at_once() {
        let run = tempfile::tempdir().unwrap();
        let [one, other] = ["a.1", "b.1"].map(|call| file(run.path(), call));
        assert!(!note(&one, "nobody has made room"));
        prepare(run.path(), "a.1").unwrap();
        assert_eq!(noted_of_failed(&one, Duration::ZERO), None);
        assert!(early(&one).ends_with("fallback/a.1.early"), "so the library for MPI calls it");
        fs::write(early(&one), "it asks for threads\n").unwrap();
        assert_eq!(noted_of_failed(&one, EARLY_LIMIT), None, "it can do without");
        assert_eq!(noted(&one), None);
        assert_eq!(noted_of_failed(&one, Duration::ZERO).as_deref(), Some("it asks for threads"));
        assert_eq!(noted(&one).as_deref(), Some("it asks for threads"), "the next life need not try");
        prepare(run.path(), "b.1").unwrap();
        assert!(note(&other, "no namespaces") && note(&other, "of another node"));
        prepare(run.path(), "b.1").unwrap();
        assert_eq!(noted(&other).as_deref(), Some("no namespaces"));
    }
}

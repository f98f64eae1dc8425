//! When a call that has failed is started again without sandboxes ([`::criu::fallback`]).
//!
//! What a program meets is no reason as long as it goes on: a note counts only if the step has ended soon after it, and only then
//! the call has no sandboxes in later lives either.

pub use ::criu::fallback::file;
use ::criu::fallback::{FOLDER, HERE};
use run::{Patience, storage, storage::gone};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How the mark of a call is called that runs without sandboxes in all its lives.
const NATIVE: &str = "native";

/// How the file is called that shows what time it is for the storage.
const ENDED: &str = "ended";

/// A step that has gone on for so long after a note has not ended for it.
const SOON: Duration = Duration::from_secs(60);

/// The same of one whose tasks somebody seems to have ended: so it looks, too, when Slurm ends the others for the first that fails.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Makes room for what may be noted of a call, and forgets what was noted of its earlier lives.
///
/// # Errors
/// What the file system says.
pub fn prepare(file: &Path) -> io::Result<()> {
    storage::make_folder(file.parent().unwrap_or(Path::new("/")), Patience::LONG).map_err(io::Error::other)?;
    let notes = [file.to_path_buf(), file.with_added_extension(HERE)];
    notes.iter().try_for_each(|note| gone(Patience::LONG.with(|| fs::remove_file(note))))
}

/// Forgets all of a run: its script is another one.
///
/// # Errors
/// What the file system says.
pub fn forget(run: &Path) -> io::Result<()> {
    gone(fs::remove_dir_all(run.join(FOLDER)))
}

/// Why the call with this file runs without sandboxes, if it does.
pub fn native(file: &Path) -> Option<String> {
    first_line(&file.with_added_extension(NATIVE))
}

/// Why the call with this file, which has just failed, is to be started again without sandboxes, if so.
pub fn of_failed(file: &Path, was_ended: bool) -> Option<String> {
    let within = if was_ended { AT_ONCE } else { SOON };
    // A node that changes a folder asks the server for what is in it.
    let ended = file.with_added_extension(ENDED);
    let now = Patience::LONG.with(|| {
        fs::write(&ended, "")?;
        fs::metadata(&ended)?.modified()
    });
    let _ = fs::remove_file(&ended);
    let now = now.ok()?;
    let of = |note: &Path| {
        let at = Patience::LONG.with(|| fs::metadata(note)?.modified()).ok()?;
        now.duration_since(at).unwrap_or_default().lt(&within).then(|| first_line(note))?
    };
    let of_program = of(file).inspect(|reason| {
        // Else the next life tries it once more.
        let _ = fs::write(file.with_added_extension(NATIVE), format!("{reason}\n"));
    });
    of_program.or_else(|| of(&file.with_added_extension(HERE)))
}

fn first_line(file: &Path) -> Option<String> {
    let text = storage::read_if_there(file, Patience::LONG).ok()??;
    String::from_utf8_lossy(&text).lines().next().filter(|line| !line.is_empty()).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::criu::fallback::note_here;
    use std::fs::File;
    use std::time::SystemTime;

    #[test]
    fn what_a_step_has_ended_for_is_known_in_later_lives_unless_it_is_a_nodes() {
        let run = tempfile::tempdir().unwrap();
        let [one, other] = ["a.1", "b.1"].map(|call| file(run.path(), call));
        prepare(&one).unwrap();
        assert_eq!(of_failed(&one, false), None);
        fs::write(&one, "it calls MPI_Win_create\n").unwrap();
        assert_eq!(native(&one), None, "it may go on");
        let noted = File::options().write(true).open(&one).unwrap();
        noted.set_modified(SystemTime::now() - 2 * SOON).unwrap();
        assert_eq!(of_failed(&one, false), None, "it has gone on");
        noted.set_modified(SystemTime::now()).unwrap();
        assert_eq!(of_failed(&one, false).as_deref(), Some("it calls MPI_Win_create"));
        prepare(&one).unwrap();
        assert_eq!(native(&one).as_deref(), Some("it calls MPI_Win_create"));
        prepare(&other).unwrap();
        assert!(note_here(&other, "no namespaces") && note_here(&other, "nor on another node"));
        assert_eq!(of_failed(&other, false).as_deref(), Some("no namespaces"));
        prepare(&other).unwrap();
        assert_eq!((of_failed(&other, false), native(&other)), (None, None), "the next life may be on other nodes");
        forget(run.path()).unwrap();
        assert_eq!(native(&one), None);
    }
}

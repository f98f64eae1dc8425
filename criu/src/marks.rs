//! What the folder of a checkpoint says of restores of it that failed.
//!
//! A checkpoint whose files are whole is not to blame for what its node lacks. What nobody can tell counts for the node's
//! fault, until the same has happened on another one.

use crate::frozen::host;
use crate::task::Task;
use crate::{NOT_NOW, NOT_RESTORED};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// File in a task's dump: it could not be restored once.
const TRIED: &str = "tried";

/// File in a dump: the hosts on which CRIU could not restore it for a reason that nobody knows, one a line.
const HOSTS: &str = "not-restored-on";

/// What is to blame for a restore that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// What the checkpoint holds, or a file of the program that is not what it needs.
    Checkpoint,
    /// What this node lacks: a storage that is full, fails or is not here, memory, a CPU of the same kind.
    Node,
    /// The images or the node: CRIU does not say.
    Unclear,
    /// Another program of the node, which has a port or a socket's name of this one's.
    Taken,
    /// Missing tasks of the step, or whatever else may go well the next time.
    Chance,
}

/// Leaves a mark that says why the checkpoint in `folder`, or a task's part of one, could not be restored: for good, or here and
/// now. A task of a step is tried once more first, since a part of CRIU may only have been killed.
pub(crate) fn leave(task: &Task, folder: &Path, of: Of, reason: &str) {
    let name = match of {
        Of::Taken | Of::Chance => return,
        Of::Unclear if has_failed_elsewhere(folder, &host()) => NOT_RESTORED,
        Of::Unclear | Of::Node => NOT_NOW,
        Of::Checkpoint => NOT_RESTORED,
    };
    let is_first = task.member.is_some() && of != Of::Node && File::create_new(folder.join(TRIED)).is_ok();
    if !is_first {
        let _ = fs::remove_file(folder.join(TRIED));
        // Without a mark the driver still knows that the program was not back.
        let line = folder.parent().filter(|_| task.member.is_some()).unwrap_or(folder);
        let _ = fs::write(line.join(name), reason);
    }
}

/// What was restored has shown that it can be.
pub(crate) fn forget(folder: &Path) {
    for name in [TRIED, HOSTS] {
        let _ = fs::remove_file(folder.join(name));
    }
}

/// Whether the same dump could not be restored on another host either; this one is remembered.
fn has_failed_elsewhere(folder: &Path, host: &str) -> bool {
    let file = folder.join(HOSTS);
    let known = fs::read_to_string(&file).unwrap_or_default();
    if !known.lines().any(|one| one == host) {
        let opened = OpenOptions::new().append(true).create(true).open(&file);
        let _ = opened.and_then(|mut file| file.write_all(format!("{host}\n").as_bytes()));
    }
    known.lines().any(|one| one != host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Member;

    #[test]
    fn a_checkpoint_is_blamed_for_what_is_known_of_it_or_has_happened_on_two_nodes() {
        for (of, elsewhere, mark) in [
            (Of::Checkpoint, "", Some(NOT_RESTORED)),
            (Of::Node, "n7\n", Some(NOT_NOW)),
            (Of::Unclear, "", Some(NOT_NOW)),
            (Of::Unclear, "n7\n", Some(NOT_RESTORED)),
            (Of::Taken, "n7\n", None),
            (Of::Chance, "n7\n", None),
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(HOSTS), elsewhere).unwrap();
            leave(&Task::default(), dir.path(), of, "why");
            let found = [NOT_RESTORED, NOT_NOW].into_iter().find(|name| dir.path().join(name).exists());
            assert_eq!(found, mark, "{of:?} {elsewhere}");
        }
    }

    #[test]
    fn the_same_node_again_is_no_second_one() {
        let dir = tempfile::tempdir().unwrap();
        let failed = |host| has_failed_elsewhere(dir.path(), host);
        assert!(!failed("n1") && !failed("n1") && failed("n2") && failed("n1"));
        forget(dir.path());
        assert!(!failed("n2"));
    }

    #[test]
    fn a_task_of_a_step_is_tried_twice_before_its_line_has_a_mark() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("a.1.0");
        fs::create_dir(&folder).unwrap();
        let member = Member { call: "a.1".into(), rank: 0, tasks: 1, node: "n".into(), step: None, ranks: None };
        let task = Task { member: Some(member), ..Task::default() };
        let mark = dir.path().join(NOT_NOW);
        for is_marked in [false, true] {
            leave(&task, &folder, Of::Unclear, "why");
            assert_eq!(mark.exists(), is_marked);
        }
        assert!(!folder.join(TRIED).exists(), "the next life has two tries as well");
    }
}

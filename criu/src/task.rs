//! What a supervisor runs, and how it ended.

use crate::line::Member;
use crate::world::World;
use fencing::Placement;
use nix::sys::signal::Signal;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What a supervisor runs.
#[derive(Clone, Debug, Default)]
pub struct Task {
    /// CRIU's command.
    pub criu: PathBuf,
    /// Folder of the run, for its user only; the socket is here, or the address of the driver if it is a task of a step.
    pub run: PathBuf,
    /// Which task of which step it is, if it is one.
    pub member: Option<Member>,
    /// Its placement, where Slurm may have forgotten it: it ends when that is over.
    pub placement: Option<Placement>,
    /// File in which is noted why its step is to be started again without sandboxes, if it is one of a step.
    pub fallback: Option<PathBuf>,
    /// The checkpoint to go on from.
    pub restore: Option<PathBuf>,
    /// Longest time of a restore, s.
    pub limit_s: f64,
    /// Whether the program has a network of its own, without a way outside.
    pub own_network: bool,
    /// What it has of an MPI world over several nodes, if it has ranks of one.
    pub world: Option<World>,
    /// Its standard input: a file, and the offset at which it begins, bytes.
    pub stdin: Option<(PathBuf, u64)>,
    /// Whether each line of its output begins with its rank.
    pub labels: bool,
    /// The program and its arguments.
    pub command: Vec<OsString>,
}

impl Task {
    /// A place of this task alone below the run's folder, which all tasks of a step share on all nodes.
    pub(crate) fn own_place(&self, name: &str) -> PathBuf {
        match &self.member {
            Some(member) => self.run.join(format!("{name}.{}", member.folder())),
            None => self.run.join(name),
        }
    }

    /// The run's folder; a task of a step has one of its own two folders below.
    pub(crate) fn whole_run(&self) -> &Path {
        let above = self.member.as_ref().and_then(|_| self.run.parent()?.parent());
        above.unwrap_or(&self.run)
    }

    /// Whether it is a task of a step as Slurm starts it, without ranks of MPI, which have what they share in their sandbox.
    pub(crate) fn is_plain(&self) -> bool {
        let has_no_ranks = self.member.as_ref().is_some_and(|member| member.ranks.is_none());
        has_no_ranks && self.world.is_none() && !self.own_network
    }

    /// How many tasks of its step are on its node, itself counted; of all nodes, where Slurm does not say.
    pub(crate) fn beside(&self) -> u32 {
        let of = |name| std::env::var(name).ok();
        let Some(member) = &self.member else { return 1 };
        let here = of("SLURM_STEP_TASKS_PER_NODE").and_then(|list| on_node(&list, of("SLURM_NODEID")?.parse().ok()?));
        here.unwrap_or(member.tasks).max(1)
    }
}

/// The number of tasks on a node, from what Slurm says of all: `2(x3),1` are two on each of three nodes, and one.
fn on_node(list: &str, mut node: usize) -> Option<u32> {
    for part in list.split(',') {
        let (tasks, times) = part.split_once("(x").unwrap_or((part, "1"));
        let times: usize = times.trim_end_matches(')').parse().ok()?;
        if node < times {
            return tasks.parse().ok();
        }
        node -= times;
    }
    None
}

/// Where the ranks of an MPI program, each by a file that is called after its process id, say that they run, if their launcher
/// does not start them itself; each sandbox has its own.
pub const RANKS_FOLDER: &str = "/dev/shm/joulepoint-ranks";

/// File there with the code of the first of them that has failed, if their launcher does not tell it.
pub const FIRST_FAILED: &str = "first-failed";

/// By these UCX, through which ranks of MPICH talk, holds nothing that a dump does not: POSIX shared memory, and no watch on
/// files, System V memory or device.
pub const UCX: [(&str, &str); 2] = [("UCX_TLS", "posix,self"), ("UCX_VFS_ENABLE", "n")];

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with a code.
    Code(i32),
    /// A signal killed it.
    Signal(Signal),
}

impl Ended {
    /// The exit code as a shell tells it: 128 + signal if a signal killed it.
    pub fn exit_code(self) -> i32 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(signal) => 128 + signal as i32,
        }
    }

    /// The exit code of who ends alike, which ends by a signal through `by`.
    pub fn leave(self, by: impl FnOnce(Signal) -> i32) -> i32 {
        match self {
            Ended::Code(code) => code,
            Ended::Signal(signal) => by(signal),
        }
    }

    /// What a launcher tells by its exit code of the ranks that it has started: 128 + signal if one was killed.
    pub(crate) fn of_ranks(self) -> Ended {
        match self {
            Ended::Code(code) => Signal::try_from(code - 128).map_or(self, Ended::Signal),
            killed => killed,
        }
    }

    /// Likewise of ranks that may have said in this file with which code the first of them failed.
    pub(crate) fn of_first_failed(self, first_failed: &Path) -> Ended {
        let said = std::fs::read_to_string(first_failed).ok().filter(|_| self != Ended::Code(0));
        said.and_then(|code| code.trim().parse().ok()).map_or(self, Ended::Code).of_ranks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_of_a_node_are_read_as_slurm_writes_them() {
        let on = |node| on_node("2(x3),1,4(x2)", node);
        assert_eq!((0..7).map(on).collect::<Vec<_>>(), [Some(2), Some(2), Some(2), Some(1), Some(4), Some(4), None]);
        assert_eq!((on_node("8", 0), on_node("", 0), on_node("2(x", 0)), (Some(8), None, None));
    }

    #[test]
    fn what_the_first_failed_rank_said_counts_if_the_launcher_has_failed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("first");
        let code = |ended: Ended| ended.of_first_failed(&file).exit_code();
        assert_eq!([code(Ended::Code(9)), code(Ended::Signal(Signal::SIGKILL))], [9, 137]);
        for (said, expected) in [("", 9), ("137\n", 137), ("x", 9)] {
            std::fs::write(&file, said).unwrap();
            assert_eq!([code(Ended::Code(9)), code(Ended::Code(0))], [expected, 0], "{said}");
        }
    }
}

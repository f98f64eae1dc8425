//! Signals from outside, who gets them, and whether one of them has ended the program.

use super::{Ended, Init};
use crate::line::EXPLAINS;
use crate::supervisor::passed_in;
use crate::task::{FIRST_FAILED, RANKS_FOLDER};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Signals that ask a program to end.
pub const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

/// Within this time those who signal all processes of a job do so.
const AT_ONCE: Duration = Duration::from_millis(200);

impl Init<'_> {
    /// Hears of signals that have come: those that the supervisor tells of are given to the program.
    pub(super) fn hear_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            match (passed_in(&info), Signal::try_from(info.ssi_signo as i32)) {
                (Some((number, for_all)), _) => self.signalled(number, for_all),
                // Whoever signals all processes has signalled the program, too.
                (None, Ok(signal)) if info.ssi_code == libc::SI_USER => {
                    if self.runs {
                        self.of_all.insert(signal as i32, Instant::now());
                    }
                    self.note(signal);
                }
                _ => {}
            }
        }
    }

    /// Gives a signal from outside to the program, to its process group if it is `for_all`, or to the ranks that it has
    /// started: a launcher that gets SIGTERM kills them a second later, and they may have something to save.
    pub(super) fn give(&mut self, signal: Signal, for_all: bool) {
        self.note(signal);
        let has_it = || self.of_all.get(&(signal as i32)).is_some_and(|at| at.elapsed() < AT_ONCE);
        if for_all && !self.starts_ranks() && has_it() {
            return;
        }
        let ranks = match (self.starts_ranks(), for_all) {
            (true, _) => ranks(Path::new(RANKS_FOLDER)).unwrap_or_else(|| children(Path::new("/proc"), self.program)),
            // It leads its process group.
            (false, true) => vec![-self.program],
            (false, false) => vec![self.program],
        };
        // Before its ranks are there, nobody else can heed the wish.
        let (to, signal) = match ranks.is_empty() && ENDING.contains(&signal) {
            true => (vec![self.program], Signal::SIGKILL),
            false => (ranks, signal),
        };
        for pid in to {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    fn note(&mut self, signal: Signal) {
        self.given.insert(signal as i32, Instant::now());
        if ENDING.contains(&signal) {
            let _ = self.asked.compare_exchange(0, signal as i32, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    /// How the program of a user has ended, of which this is the process that we have started.
    pub(super) fn of_program(&self, ended: Ended) -> Ended {
        let first = Signal::try_from(self.asked.load(Ordering::SeqCst)).ok().filter(|signal| self.was_given(*signal));
        match (ended, first) {
            _ if !self.starts_ranks() => ended,
            _ if self.ends_as.is_some() => self.ends_as.map_or(ended, Ended::Code),
            (Ended::Signal(Signal::SIGKILL), Some(signal)) => Ended::Signal(signal),
            _ => ended.of_first_failed(&Path::new(RANKS_FOLDER).join(FIRST_FAILED)),
        }
    }

    /// Whether a signal from outside explains this end.
    pub(super) fn is_asked(&self, ended: Ended) -> bool {
        matches!(ended, Ended::Signal(signal) if self.was_given(signal))
    }

    fn was_given(&self, signal: Signal) -> bool {
        self.given.get(&(signal as i32)).is_some_and(|at| at.elapsed() < EXPLAINS)
    }

    fn starts_ranks(&self) -> bool {
        let of_nodes = self.task.member.as_ref().is_some_and(|member| member.ranks.is_some());
        // Those of a group say so themselves.
        of_nodes || Path::new(RANKS_FOLDER).exists()
    }
}

/// The ranks that say in this folder that they run; none if there is no such folder, since their launcher starts them itself.
fn ranks(folder: &Path) -> Option<Vec<i32>> {
    let files = fs::read_dir(folder).ok()?.flatten();
    Some(files.filter_map(|file| file.file_name().to_str()?.parse().ok()).collect())
}

/// The children of a process, by the numbers that they have here.
fn children(proc: &Path, pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(proc.join(format!("{pid}/task"))).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, id};

    #[test]
    fn the_children_of_all_threads_of_a_process_are_found() {
        let start = || Command::new("sleep").arg("60").spawn().unwrap();
        let mut here = start();
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(start()).unwrap();
            let _ = ended.recv();
        });
        let mut there = told.recv().unwrap();
        let found = children(Path::new("/proc"), id() as i32);
        assert!([&here, &there].iter().all(|child| found.contains(&(child.id() as i32))), "{found:?}");
        for child in [&mut here, &mut there] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn ranks_that_say_so_are_known_by_their_process_ids() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ranks(&dir.path().join("none")), None);
        ["17", FIRST_FAILED].iter().for_each(|name| fs::write(dir.path().join(name), "").unwrap());
        assert_eq!(ranks(dir.path()), Some(vec![17]));
    }

    #[test]
    fn a_launcher_tells_the_signal_of_a_rank_by_its_exit_code() {
        assert_eq!(Ended::Code(143).of_ranks(), Ended::Signal(Signal::SIGTERM));
        for other in [0, 1, 126, 128, 255] {
            assert_eq!(Ended::Code(other).of_ranks(), Ended::Code(other));
        }
    }
}

//! Reads the process tree again and again, and of what is in no step only now and then.

use std::collections::HashMap;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::PathBuf;

use crate::process::{Process, parse_stat};
use crate::procs::{gather, is_whole, read_into};
use crate::{Error, Processes};

/// How long a reading of a process that is in no step holds, and of one of the kernel's threads, s.
const OUTSIDE_HOLDS_S: f64 = 10.0;
const KERNEL_HOLDS_S: f64 = 60.0;

/// How long a process has to be in no step before that: one that has just begun may still become a step's, s.
const SETTLED_S: f64 = 3.0;

/// Reads the process tree. A node has some hundred processes that are in no step, and thousands of the kernel's own
/// threads; the more of them are left alone, the less the meter costs.
pub struct Scanner {
    proc_root: PathBuf,
    tick_hz: u32,
    seen: HashMap<i32, Seen>,
    scans: u64,
}

/// What was read last of a process.
struct Seen {
    process: Process,
    /// The number of its folder: whoever gets its own number later has another folder.
    folder: u64,
    read_s: f64,
    /// Since when every reading has shown it outside of all steps. It stays outside, since only children are born
    /// into a step.
    outside_s: Option<f64>,
    /// The last scan that found it.
    scan: u64,
}

impl Seen {
    /// Whether the last reading is still valid: not after the clock has fallen, nor where the node's CPU time is a
    /// sum over its processes.
    fn holds(&self, now_s: f64, is_whole: bool) -> bool {
        let is_settled = self.outside_s.is_some_and(|since_s| self.read_s - since_s >= SETTLED_S);
        let holds_s = match self.process.kernel {
            true => KERNEL_HOLDS_S,
            false if is_settled && is_whole => OUTSIDE_HOLDS_S,
            false => 0.0,
        };
        (0.0..holds_s).contains(&(now_s - self.read_s))
    }
}

impl Scanner {
    /// Of the tree at `proc_root`, whose times are in ticks.
    pub fn new(proc_root: impl Into<PathBuf>, tick_hz: u32) -> Scanner {
        Scanner { proc_root: proc_root.into(), tick_hz, seen: HashMap::new(), scans: 0 }
    }

    /// Reads the tree as it is at `now_s`.
    ///
    /// # Errors
    /// When the tree itself cannot be read; a process that ends meanwhile is left out.
    pub fn scan(&mut self, now_s: f64) -> Result<Processes, Error> {
        let owner = std::fs::metadata(&self.proc_root).map_err(|e| Error::io(&self.proc_root, e))?.uid();
        let mut processes = self.read(now_s)?;
        let found = gather(&self.proc_root, owner, f64::from(self.tick_hz.max(1)), &mut processes);
        for process in processes {
            if let Some(seen) = self.seen.get_mut(&process.pid) {
                let is_outside = !(process.in_step || process.stepd || process.slurmd);
                seen.outside_s = is_outside.then(|| seen.outside_s.unwrap_or(now_s));
            }
        }
        Ok(found)
    }

    /// All processes, without the kernel's threads.
    fn read(&mut self, now_s: f64) -> Result<Vec<Process>, Error> {
        self.scans += 1;
        let (proc_root, scan, is_whole) = (&self.proc_root, self.scans, is_whole(&self.proc_root));
        let (mut path, mut buffer, mut processes) = (proc_root.clone(), Vec::new(), Vec::new());
        for entry in std::fs::read_dir(proc_root).map_err(|e| Error::io(proc_root, e))?.flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            let folder = entry.ino();
            let known = self.seen.get_mut(&pid).filter(|seen| seen.folder == folder);
            let outside_s = known.as_ref().and_then(|seen| seen.outside_s);
            let process = match known.filter(|seen| seen.holds(now_s, is_whole)) {
                Some(seen) => {
                    seen.scan = scan;
                    // Its parent may have ended since, and another have got the number.
                    Process { ppid: 0, ..seen.process }
                }
                None => {
                    path.push(&name);
                    path.push("stat");
                    let process = read_into(&path, &mut buffer).and_then(|()| parse_stat(pid, &buffer));
                    path.pop();
                    path.pop();
                    // A process may end at any moment between two reads; then it is simply not there.
                    let Some(process) = process else { continue };
                    self.seen.insert(pid, Seen { process, folder, read_s: now_s, outside_s, scan });
                    process
                }
            };
            processes.extend((!process.kernel).then_some(process));
        }
        self.seen.retain(|_, seen| seen.scan == scan);
        Ok(processes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The tree of a whole machine with the step 7.0, whose process is 10.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("self/ns")).unwrap();
        std::os::unix::fs::symlink("pid:[4026531836]", dir.path().join("self/ns/pid")).unwrap();
        write(dir.path(), 10, 1, "slurmstepd", 0, 0);
        fs::write(dir.path().join("10/cmdline"), "slurmstepd: [7.0]\0").unwrap();
        let status = format!("Uid:\t{}\t0\t0\t0\n", nix::unistd::geteuid());
        fs::write(dir.path().join("10/status"), status).unwrap();
        dir
    }

    /// A process that has used so many ticks; the kernel's threads have a flag of their own.
    fn write(tree: &Path, pid: i32, ppid: i32, comm: &str, flag: u64, ticks: u64) {
        let folder = tree.join(pid.to_string());
        fs::create_dir_all(&folder).unwrap();
        let stat = format!("{pid} ({comm}) S {ppid} 1 1 0 -1 {flag} 1 2 3 4 {ticks} 0 0 0 20 0 1 0 5 6 7\n");
        fs::write(folder.join("stat"), stat).unwrap();
    }

    /// CPU seconds of everybody and of job 7.
    fn cpu_s(scanner: &mut Scanner, now_s: f64) -> (f64, f64) {
        let found = scanner.scan(now_s).unwrap();
        (found.node_cpu_s, found.jobs[0].cpu_s)
    }

    #[test]
    fn what_is_in_no_step_is_read_now_and_then_and_a_step_always() {
        let tree = tree();
        let mut scanner = Scanner::new(tree.path(), 100);
        let readings = [
            (100.0, 100, 1.0),
            (101.0, 200, 2.0),
            (103.0, 300, 3.0),
            (104.0, 400, 3.0),
            (112.9, 500, 3.0),
            (113.0, 600, 6.0),
            // The clock has fallen.
            (50.0, 700, 7.0),
        ];
        for (now_s, ticks, outside_s) in readings {
            write(tree.path(), 11, 10, "a.out", 0, ticks);
            write(tree.path(), 12, 1, "sshd", 0, ticks);
            let job_s = ticks as f64 / 100.0;
            assert_eq!(cpu_s(&mut scanner, now_s), (outside_s + job_s, job_s), "at {now_s} s");
        }
    }

    #[test]
    fn in_a_process_namespace_whose_cpu_time_is_summed_up_all_is_read_always() {
        let tree = tree();
        fs::remove_dir_all(tree.path().join("self")).unwrap();
        let mut scanner = Scanner::new(tree.path(), 100);
        for (now_s, ticks) in [(0.0, 100), (3.0, 300), (4.0, 400)] {
            write(tree.path(), 12, 1, "sshd", 0, ticks);
            assert_eq!(cpu_s(&mut scanner, now_s), (ticks as f64 / 100.0, 0.0));
        }
    }

    #[test]
    fn who_gets_the_number_of_one_outside_may_be_in_a_step() {
        let tree = tree();
        write(tree.path(), 12, 1, "sshd", 0, 100);
        let mut scanner = Scanner::new(tree.path(), 100);
        for now_s in [0.0, 3.0, 4.0] {
            assert_eq!(cpu_s(&mut scanner, now_s), (1.0, 0.0));
        }
        // Its folder is another: both exist for a moment.
        write(tree.path(), 13, 10, "a.out", 0, 200);
        fs::remove_dir_all(tree.path().join("12")).unwrap();
        fs::rename(tree.path().join("13"), tree.path().join("12")).unwrap();
        assert_eq!(cpu_s(&mut scanner, 5.0), (2.0, 2.0));
    }

    #[test]
    fn a_parent_that_has_ended_leaves_nobody_to_who_gets_its_number() {
        let tree = tree();
        write(tree.path(), 12, 11, "orphan", 0, 100);
        let mut scanner = Scanner::new(tree.path(), 100);
        for now_s in [0.0, 3.0] {
            assert_eq!(cpu_s(&mut scanner, now_s), (1.0, 0.0));
        }
        write(tree.path(), 11, 10, "a.out", 0, 200);
        assert_eq!(cpu_s(&mut scanner, 4.0), (3.0, 2.0));
    }

    #[test]
    fn what_becomes_a_step_just_after_it_has_begun_is_seen_at_once() {
        let tree = tree();
        write(tree.path(), 12, 1, "slurmd-thread", 0, 0);
        let mut scanner = Scanner::new(tree.path(), 100);
        assert_eq!(scanner.scan(0.0).unwrap().jobs.len(), 1);
        write(tree.path(), 12, 1, "slurmstepd", 0, 0);
        fs::copy(tree.path().join("10/status"), tree.path().join("12/status")).unwrap();
        fs::write(tree.path().join("12/cmdline"), "slurmstepd: [8.0]\0").unwrap();
        assert_eq!(scanner.scan(1.0).unwrap().jobs.len(), 2);
    }

    #[test]
    fn the_kernels_threads_are_left_out_and_looked_at_once_a_minute() {
        let tree = tree();
        write(tree.path(), 12, 2, "kworker/0:1", 0x0020_0000, 900);
        let mut scanner = Scanner::new(tree.path(), 100);
        assert_eq!(cpu_s(&mut scanner, 0.0), (0.0, 0.0));
        assert_eq!(scanner.scan(0.5).unwrap().count, 1);
        write(tree.path(), 12, 10, "a.out", 0, 200);
        assert_eq!(cpu_s(&mut scanner, 59.0), (0.0, 0.0));
        assert_eq!(cpu_s(&mut scanner, 60.0), (2.0, 2.0));
    }
}

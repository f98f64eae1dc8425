//! What a script does by itself beside its steps, which no checkpoint of steps holds.

use host::processes::{self, Process};
use nix::unistd::{SysconfVar, sysconf};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use steps::script::Tree;
use steps::srun;

/// Part of a CPU from which on a script works by itself, and does not only wait for its steps.
const WORK: f64 = 0.2;

/// Looks at a script's own processes now and then.
pub struct Beside {
    tree: Tree,
    looked: Instant,
    /// CPU time at the last look, by process id, s.
    used_s: BTreeMap<i32, f64>,
}

impl Beside {
    /// A script that begins now.
    pub fn new(tree: Tree) -> Beside {
        Beside { tree, looked: Instant::now(), used_s: BTreeMap::new() }
    }

    /// The program that has worked most, if the script has worked by itself since the last look.
    pub fn look(&mut self) -> Option<String> {
        let script = self.tree.script();
        let (all, hz) = (processes::below(script), sysconf(SysconfVar::CLK_TCK).ok()??);
        let own = without_steps(&all);
        let used = |pid: i32| Some((pid, processes::own_cpu_s(pid, hz as f64)?));
        let now_s: BTreeMap<i32, f64> = own.iter().map(|p| p.pid).chain([script]).filter_map(used).collect();
        let names = own.iter().map(|p| (p.pid, p.name.as_str())).collect();
        let found = worked(&self.used_s, &now_s, self.looked.elapsed().as_secs_f64(), &names);
        (self.looked, self.used_s) = (Instant::now(), now_s);
        found.filter(|_| script != 0)
    }
}

/// What has worked most between two looks at CPU times by process id, s, if all together have worked.
fn worked(
    before_s: &BTreeMap<i32, f64>,
    now_s: &BTreeMap<i32, f64>,
    between_s: f64,
    names: &BTreeMap<i32, &str>,
) -> Option<String> {
    // A number may be another process's by now.
    let since = |pid: &i32, s: f64| s - before_s.get(pid).copied().unwrap_or(0.0).min(s);
    let more: Vec<(i32, f64)> = now_s.iter().map(|(pid, s)| (*pid, since(pid, *s))).collect();
    let sum: f64 = more.iter().map(|(_, s)| s).sum();
    let (busiest, most) = more.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    // The script's own time is that of commands that have ended.
    let name = names.get(&busiest).filter(|_| 2.0 * most > sum).map_or("its own commands", |name| *name);
    (sum >= WORK * between_s).then(|| name.to_string())
}

/// The processes that are neither launchers nor below one; nearest first.
fn without_steps(all: &[Process]) -> Vec<&Process> {
    let mut steps: BTreeSet<i32> = BTreeSet::new();
    let mut is_step = |p: &Process| {
        let is_step = steps.contains(&p.parent) || srun::names().any(|name| p.name == name);
        is_step && steps.insert(p.pid)
    };
    all.iter().filter(|p| !is_step(p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_launcher_is_a_steps() {
        let process = |pid, parent, name: &str| Process { pid, parent, name: name.into(), start_ticks: 0 };
        let all = [process(2, 1, "srun"), process(3, 1, "python3"), process(4, 2, "srun"), process(5, 4, "sleep")];
        assert_eq!(without_steps(&all).iter().map(|p| p.pid).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn who_works_between_two_looks_is_named_and_who_waits_is_not() {
        let names = [(3, "python3"), (4, "tail")].into();
        let look = |before: &[(i32, f64)], now: &[(i32, f64)]| {
            worked(&before.iter().copied().collect(), &now.iter().copied().collect(), 10.0, &names)
        };
        assert_eq!(look(&[(1, 9.0), (3, 50.0)], &[(1, 9.5), (3, 51.0)]), None);
        assert_eq!(look(&[(4, 50.0)], &[(3, 8.0), (4, 50.1)]).as_deref(), Some("python3"));
        assert_eq!(look(&[(1, 1.0), (4, 9.0)], &[(1, 6.0), (4, 9.0)]).as_deref(), Some("its own commands"));
        assert_eq!(look(&[(1, 90.0)], &[(1, 1.0)]), None, "another process has the number");
    }
}

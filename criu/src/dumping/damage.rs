//! Tells whether a CRIU that was killed while it wrote images has killed processes of the program.
//!
//! CRIU makes each process run code of its own; one that reaches the end of that code without CRIU dies of SIGTRAP.
//! If only a worker dies so, the program may end with a wrong result: all of it must go back to the last checkpoint.

use crate::frozen;
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// A process older than this is taken to be a lasting part of the program, s.
const LONG_S: f64 = 1.0;

/// Longest time that a busy machine needs until processes left by a killed CRIU have died.
const AFTERMATH: Duration = Duration::from_secs(2);

/// Time between two looks at the processes.
const LOOK: Duration = Duration::from_millis(20);

/// Processes of a program that have run for a while.
#[derive(Default)]
pub struct LongRunning(Vec<i32>);

impl LongRunning {
    /// The long-running processes of the tree of `program`.
    pub fn of(program: i32) -> LongRunning {
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let now_s: f64 = uptime.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
        let is_long_running = |pid: &i32| begun_s(*pid).is_some_and(|begun_s| now_s - begun_s > LONG_S);
        LongRunning(frozen::tree(program).into_iter().filter(is_long_running).collect())
    }

    /// Removes processes that have ended by themselves.
    pub fn forget_ended(&mut self) {
        self.0.retain(|pid| begun_s(*pid).is_some());
    }

    /// Whether one of them dies within 2 s, long enough on a busy machine.
    pub fn has_losses(&self) -> bool {
        let until = Instant::now() + AFTERMATH;
        loop {
            let is_lost = self.0.iter().any(|pid| begun_s(*pid).is_none());
            if is_lost || Instant::now() > until {
                return is_lost;
            }
            thread::sleep(LOOK);
        }
    }
}

/// When a process began, s after the machine (proc(5)); none if it has ended.
fn begun_s(pid: i32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let is_dead = matches!(fields.next()?, "Z" | "X");
    let ticks: f64 = fields.nth(18)?.parse().ok()?;
    let hz = sysconf(SysconfVar::CLK_TCK).ok()?? as f64;
    (!is_dead).then_some(ticks / hz)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_worker_that_is_gone_is_a_loss_and_one_that_had_just_begun_is_none() {
        let mut worker = Command::new("sleep").arg("100").spawn().unwrap();
        thread::sleep(Duration::from_secs_f64(LONG_S + 0.2));
        // On a busy machine the young process may have grown old before it is looked at: try again.
        let (mut young, mut long_running) = loop {
            let (begun, mut young) = (Instant::now(), Command::new("sleep").arg("100").spawn().unwrap());
            let long_running = LongRunning::of(std::process::id() as i32);
            if begun.elapsed().as_secs_f64() < LONG_S {
                break (young, long_running);
            }
            young.kill().unwrap();
            young.wait().unwrap();
        };
        // Other tests of this process have children too.
        long_running.0.retain(|pid| [worker.id() as i32, young.id() as i32].contains(pid));
        young.kill().unwrap();
        assert!(long_running.0.contains(&(worker.id() as i32)) && !long_running.has_losses());
        worker.kill().unwrap();
        // It is a zombie: nobody has waited for it yet.
        assert!(long_running.has_losses());
        long_running.forget_ended();
        assert!(!long_running.has_losses());
        worker.wait().unwrap();
        young.wait().unwrap();
    }
}

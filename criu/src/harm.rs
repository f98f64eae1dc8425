//! Tells whether a CRIU that was killed while it wrote images took processes of the program with it.
//!
//! CRIU has each of them run a piece of its own code; whoever comes to the end of that without CRIU dies of a SIGTRAP.
//! A worker that dies so may end the program with a wrong result, where all of it should go back.

use crate::frozen;
use nix::unistd::{SysconfVar, sysconf};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Age of a process that does not end by itself just now, s.
const SETTLED_S: f64 = 1.0;

/// What a busy machine may take to run, and so to end, what CRIU had hold of.
const AFTERMATH: Duration = Duration::from_secs(2);

/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(20);

/// Processes of a program that have run for a while.
pub struct Settled(Vec<i32>);

impl Settled {
    /// Those of the tree of `program`.
    pub fn of(program: i32) -> Settled {
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        let now_s: f64 = uptime.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0);
        let is_settled = |pid: &i32| begun_s(*pid).is_some_and(|begun_s| now_s - begun_s > SETTLED_S);
        Settled(frozen::tree(program).into_iter().filter(is_settled).collect())
    }

    /// Forgets those that have ended by themselves until now.
    pub fn forget_ended(&mut self) {
        self.0.retain(|pid| begun_s(*pid).is_some());
    }

    /// Whether one of them goes within a moment.
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
        thread::sleep(Duration::from_secs_f64(SETTLED_S + 0.2));
        // On a busy machine it may not be young any more when it is looked at.
        let (mut young, mut settled) = loop {
            let (begun, mut young) = (Instant::now(), Command::new("sleep").arg("100").spawn().unwrap());
            let settled = Settled::of(std::process::id() as i32);
            if begun.elapsed().as_secs_f64() < SETTLED_S {
                break (young, settled);
            }
            young.kill().unwrap();
            young.wait().unwrap();
        };
        // Other tests have children, too.
        settled.0.retain(|pid| [worker.id() as i32, young.id() as i32].contains(pid));
        young.kill().unwrap();
        assert!(settled.0.contains(&(worker.id() as i32)) && !settled.has_losses());
        worker.kill().unwrap();
        // Nobody has taken it in yet.
        assert!(settled.has_losses());
        settled.forget_ended();
        assert!(!settled.has_losses());
        worker.wait().unwrap();
        young.wait().unwrap();
    }
}

//! The processes below the job script, as `/proc` shows them.

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fs;

/// One process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Process id.
    pub pid: i32,
    /// Parent's process id.
    pub parent: i32,
    /// Name of the program, cut by the kernel to 15 bytes.
    pub name: String,
    /// When it began, clock ticks since the boot: its number may be another's later.
    pub start_ticks: u64,
}

/// All descendants of `root`, nearest first, without `root` itself.
pub fn below(root: i32) -> Vec<Process> {
    let mut children: BTreeMap<i32, Vec<Process>> = BTreeMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        if let Some(process) = fs::read_to_string(format!("/proc/{pid}/stat")).ok().and_then(|s| parse_stat(pid, &s)) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let mut found: Vec<Process> = children.remove(&root).unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        let of = found[next].pid;
        found.extend(children.remove(&of).unwrap_or_default());
        next += 1;
    }
    found
}

/// A process that has not ended yet; zombies have.
fn parse_stat(pid: i32, stat: &str) -> Option<Process> {
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut rest = stat.get(close + 2..)?.split(' ');
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    // `rest` goes on with field 5; starttime is field 22.
    let start_ticks = rest.nth(17)?.trim().parse().ok()?;
    (state != "Z").then(|| Process { pid, parent, name: stat[open + 1..close].to_string(), start_ticks })
}

/// CPU time of `root` and everything below it, children that have ended included, s.
pub fn cpu_s(root: i32, tick_hz: f64) -> f64 {
    below(root).iter().map(|p| p.pid).chain([root]).filter_map(|pid| own_cpu_s(pid, tick_hz)).sum()
}

/// CPU time of a process and its children that have ended, s.
pub fn own_cpu_s(pid: i32, tick_hz: f64) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = stat.get(stat.rfind(')')? + 2..)?;
    // utime, stime, cutime, cstime are fields 14 to 17; `rest` begins with field 3.
    let ticks = rest.split(' ').skip(11).take(4).filter_map(|t| t.parse::<f64>().ok());
    Some(ticks.sum::<f64>() / tick_hz)
}

/// Whether a process has a handler for a signal, so that sending it does not kill it.
pub fn catches(pid: i32, signal: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let mask = status.lines().find_map(|l| l.strip_prefix("SigCgt:")).map(str::trim);
    let mask = mask.and_then(|m| u64::from_str_radix(m, 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// Sends a signal to a process that was seen before, and to no other that has its number since; one that is gone is no
/// error.
pub fn signal_seen(process: &Process, signal: i32) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let (Ok(fd), Some(signal)) = (pidfd_open(pid, PidfdFlags::empty()), Signal::from_named_raw(signal)) else { return };
    // Whoever has the number now keeps it for as long as the descriptor refers to it.
    let now = fs::read_to_string(format!("/proc/{}/stat", process.pid)).ok().and_then(|s| parse_stat(process.pid, &s));
    if now.is_some_and(|now| now.start_ticks == process.start_ticks) {
        let _ = pidfd_send_signal(&fd, signal);
    }
}

/// Sends a signal to a child that was not waited for; one that has ended is no error.
pub fn signal(pid: i32, signal: i32) {
    if let Ok(signal) = nix::sys::signal::Signal::try_from(signal) {
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_brackets_are_read() {
        let p = parse_stat(7, "7 (a) (b c) S 3 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 512 0 0").unwrap();
        assert_eq!((p.parent, p.name.as_str(), p.start_ticks), (3, "a) (b c", 512));
        assert!(parse_stat(7, "7 (dead) Z 3 7").is_none());
        assert!(parse_stat(7, "garbage").is_none());
    }

    #[test]
    fn a_child_is_found_below_us() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let us = std::process::id() as i32;
        assert!(below(us).iter().any(|p| p.pid == child.id() as i32));
        assert!(!catches(child.id() as i32, 10));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_has_anothers_number_gets_no_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let seen = below(std::process::id() as i32).into_iter().find(|p| p.pid == child.id() as i32).unwrap();
        signal_seen(&Process { start_ticks: seen.start_ticks - 1, ..seen.clone() }, libc::SIGKILL);
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(child.try_wait().unwrap().is_none());
        signal_seen(&seen, libc::SIGKILL);
        assert!(!child.wait().unwrap().success());
    }
}

//! Finds the processes of a run on all nodes, sandboxes included, by what the kernel shows of them.

use super::history::Process;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// A process that may be gone, or another, when it is looked at again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its number, as this machine sees it.
    pub pid: i32,
    /// When it began, in ticks: with the number, it names one process for ever.
    begun: String,
    /// Its command line, for people.
    pub words: String,
}

/// The processes of a job that are of a kind, in order of their numbers; of programs their first processes only: a
/// script need not notice that a part of a pipe was killed, and would end wrong without us, too.
pub fn of_job(conf: &Path, job: u32, kind: Process) -> Vec<Found> {
    let mut found = all(conf, &format!("SLURM_JOB_ID={job}"));
    found.retain(|f| kind_of(f) == Some(kind));
    if kind == Process::Program {
        let all: BTreeSet<i32> = found.iter().map(|f| f.pid).collect();
        found.retain(|f| parent(f.pid).is_none_or(|parent| !all.contains(&parent)));
    }
    found
}

/// Every process of this cluster's jobs in whose environment a word stands.
pub fn all(conf: &Path, word: &str) -> Vec<Found> {
    let ours = format!("SLURM_CONF={}", conf.display());
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut found: Vec<Found> = pids
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = environment(*pid);
            let has = |word: &str| environment.split('\0').any(|w| w == word);
            has(&ours) && has(word)
        })
        .filter_map(look)
        .collect();
    found.sort_by_key(|f| f.pid);
    found
}

/// slurmstepd of a job: its environment is slurmd's, its title names the job.
pub fn stepds(node_pids: &[i32], job: u32) -> Vec<Found> {
    let begins = format!("slurmstepd: [{job}.");
    node_pids.iter().filter_map(|pid| look(*pid)).filter(|f| f.words.starts_with(&begins)).collect()
}

impl Found {
    /// Sends a signal, if it still is what it was; whether it was.
    pub fn signal(&self, signal: i32) -> bool {
        let is_it = look(self.pid).is_some_and(|now| now.begun == self.begun);
        // SAFETY: a plain kill of a process of this cluster.
        is_it && unsafe { libc::kill(self.pid, signal) } == 0
    }
}

/// What a process is called, and since when it runs; none, if it is gone or dead.
fn look(pid: i32) -> Option<Found> {
    let stat = read(pid, "stat");
    let after = stat.rsplit(") ").next()?;
    let fields: Vec<&str> = after.split(' ').collect();
    let words = read(pid, "cmdline").replace('\0', " ").trim().to_string();
    (fields.first() != Some(&"Z")).then_some(())?;
    Some(Found { pid, begun: (*fields.get(19)?).to_string(), words })
}

fn parent(pid: i32) -> Option<i32> {
    read(pid, "stat").rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

/// The letter of a process's state (proc(5)).
pub fn state(pid: i32) -> Option<char> {
    read(pid, "stat").rsplit(") ").next()?.chars().next()
}

fn kind_of(found: &Found) -> Option<Process> {
    let mut words = found.words.split(' ');
    let program = words.next()?.rsplit('/').next()?;
    let verb = words.next().unwrap_or("");
    match program {
        // A driver is started as /proc/self/exe.
        "joulepoint" | "exe" => match verb {
            "wrap" if environment(found.pid).contains("JOULEPOINT_DRIVER_ATTEMPT=") => Some(Process::Driver),
            "wrap" => Some(Process::Supervisor),
            "warden" => Some(Process::Warden),
            _ => Some(Process::StandIn),
        },
        "srun" if is_ours(found.pid) => Some(Process::StandIn),
        "srun" => Some(Process::Srun),
        "criu" => Some(Process::Criu),
        _ if found.words.starts_with("slurmstepd") => None,
        "bash" | "sh" if found.words.contains("slurm_script") => None,
        _ => Some(Process::Program),
    }
}

/// Whether it runs our program under another name.
fn is_ours(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("joulepoint"))
}

/// None of a process that holds the lock of its memory while its storage hangs.
fn environment(pid: i32) -> String {
    let bytes = energy::environ(Path::new(&format!("/proc/{pid}")));
    String::from_utf8_lossy(&bytes.told().unwrap_or_default()).into_owned()
}

fn read(pid: i32, what: &str) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default()).into_owned()
}

//! Slurm, reached through its commands: one locale, one form of time, a limit in time, and what it says of itself.

use crate::budget::{Budget, Urgency, Usage};
use crate::job::EXCLUSIVE;
use crate::run::run;
use crate::{Error, Job};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a command may take before it is killed.
const LIMIT: Duration = Duration::from_secs(20);

/// Commands that ask slurmctld; the others ask slurmdbd, or nobody.
const ASKING: [&str; 3] = ["squeue", "scontrol", "scancel"];

/// Of how many jobs it is remembered whether they are tasks of an array.
const MOST_REMEMBERED: usize = 20_000;

/// Variables by which a user's or a job's environment would change what the commands print.
const UNWANTED: [&str; 11] = [
    "SLURM_BITSTR_LEN",
    "SLURM_CLUSTERS",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SCONTROL_ALL",
    "SCONTROL_FEDERATION",
    "SCONTROL_FUTURE",
    "SCONTROL_LOCAL",
    "SCONTROL_SIBLING",
    "SACCT_FORMAT",
    "SACCT_FEDERATION",
];

/// The same, of whole families.
const UNWANTED_FAMILIES: [&str; 2] = ["SQUEUE_", "SCANCEL_"];

/// Slurm, reached through its commands.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    /// Where the commands are; the `PATH` if absent.
    pub bin_dir: Option<PathBuf>,
    /// The `slurm.conf` to use; the environment's or Slurm's own if absent.
    pub conf: Option<PathBuf>,
    known: Arc<Known>,
    budget: Arc<Budget>,
    urgency: Urgency,
    leave: Leave,
}

/// Whether anything may be done to jobs and nodes at this moment.
#[derive(Clone, Default)]
struct Leave(Option<Arc<dyn Fn() -> bool + Send + Sync>>);

impl std::fmt::Debug for Leave {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Leave")
    }
}

/// An answer that is asked for once.
#[derive(Debug, Default)]
struct Once<T> {
    value: OnceLock<T>,
    asking: Mutex<()>,
}

/// What is asked once and kept.
#[derive(Debug, Default)]
struct Known {
    series: Once<(u32, u32)>,
    has_exclusive: Once<bool>,
    /// Array and task of jobs that were looked at; those that are in no array are there, too.
    tasks: Mutex<BTreeMap<u32, Option<(u32, u32)>>>,
}

impl Slurm {
    /// Slurm with its commands in `bin_dir`, or in the `PATH`.
    pub fn new(bin_dir: Option<PathBuf>) -> Self {
        Slurm { bin_dir, ..Slurm::default() }
    }

    /// The same with an allowance of calls a minute, which all its clones share.
    pub fn with_budget(self, per_minute: u32) -> Self {
        Slurm { budget: Arc::new(Budget::new(f64::from(per_minute))), ..self }
    }

    /// The same that does nothing to jobs and nodes while `may` denies it: its acts fail with [`Error::NoLeave`].
    pub fn that_acts_while(self, may: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Slurm { leave: Leave(Some(Arc::new(may))), ..self }
    }

    /// Whether anything may be done to jobs and nodes at this moment.
    pub fn may_act(&self) -> bool {
        self.leave.0.as_ref().is_none_or(|may| may())
    }

    /// The same for what can wait: its calls fail with [`Error::Postponed`] while nothing is left of the allowance.
    pub fn when_idle(&self) -> Self {
        Slurm { urgency: Urgency::CanWait, ..self.clone() }
    }

    /// What was asked so far, and how slurmctld answers.
    pub fn usage(&self) -> Usage {
        self.budget.usage()
    }

    /// The cluster's name.
    pub fn cluster_name(&self) -> Result<String, Error> {
        self.config_value("ClusterName")?.ok_or_else(|| Error::unreadable("ClusterName", "(absent)"))
    }

    /// Name and controllers of the cluster: each with its port, as `ctl(10.0.0.1):6817`.
    pub fn cluster(&self) -> Result<(String, Vec<String>), Error> {
        let mut config = self.config()?;
        let absent = |key| Error::unreadable(key, "(absent)");
        let name = config.remove("clustername").ok_or_else(|| absent("ClusterName"))?;
        let port = config.remove("slurmctldport").ok_or_else(|| absent("SlurmctldPort"))?;
        let hosts = config.iter().filter(|(key, host)| key.starts_with("slurmctldhost[") && !host.is_empty());
        Ok((name, hosts.map(|(_, host)| format!("{host}:{port}")).collect()))
    }

    /// One value of `scontrol show config`.
    pub fn config_value(&self, key: &str) -> Result<Option<String>, Error> {
        Ok(self.config()?.remove(&key.to_ascii_lowercase()))
    }

    /// `scontrol show config`, by lower-case key.
    pub fn config(&self) -> Result<BTreeMap<String, String>, Error> {
        let text = self.output("scontrol", &["show", "config"])?;
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        Ok(pairs.map(|(key, value)| (key.trim().to_ascii_lowercase(), value.trim().to_owned())).collect())
    }

    /// When slurmctld began, s since the epoch.
    pub fn booted_s(&self) -> Result<Option<f64>, Error> {
        self.config_value("BOOT_TIME")?.map_or(Ok(None), |value| crate::fields::time("BOOT_TIME", &value))
    }

    /// What `sbatch --help` prints, the options of plugins included.
    pub fn submit_help(&self) -> Result<String, Error> {
        self.output("sbatch", &["--help"])
    }

    /// Slurm's version, such as `22.05.8`.
    pub fn version(&self) -> Result<String, Error> {
        let text = self.output("scontrol", &["--version"])?;
        let version = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
        version.map(str::to_owned).ok_or_else(|| Error::unreadable("version", &text))
    }

    /// Slurm's series, such as (22, 5); asked once.
    pub fn series(&self) -> Result<(u32, u32), Error> {
        kept(&self.known.series, || {
            let version = self.version()?;
            let mut parts = version.split('.').map_while(|p| p.parse().ok());
            parts.next().zip(parts.next()).ok_or_else(|| Error::unreadable("version", &version))
        })
    }

    /// Whether `squeue` has a column that says whose nodes a job's are; asked once.
    pub(crate) fn has_exclusive(&self) -> Result<bool, Error> {
        kept(&self.known.has_exclusive, || {
            match self.output("squeue", &["--helpFormat"]) {
                Ok(columns) => Ok(columns.split_whitespace().any(|column| column.eq_ignore_ascii_case(EXCLUSIVE))),
                // 22.05 does not list its columns, and knows none of this name.
                Err(Error::Refused { text, .. }) if text.contains("--help") => Ok(false),
                Err(e) => Err(e),
            }
        })
    }

    /// The number by which commands mean one job and no other: by the id of an array's last task, which is the array's
    /// own, they would mean all of its tasks.
    pub(crate) fn number(&self, id: u32) -> Result<String, Error> {
        let known = self.tasks().get(&id).copied();
        let task = match known {
            Some(task) => task,
            None => self.job(id)?.and_then(|job| job.array),
        };
        Ok(task.map_or_else(|| id.to_string(), |(array, task)| format!("{array}_{task}")))
    }

    /// Remembers of which array a job is.
    pub(crate) fn remember(&self, job: &Job) {
        let mut tasks = self.tasks();
        if tasks.len() >= MOST_REMEMBERED {
            tasks.clear();
        }
        tasks.insert(job.id, job.array);
    }

    fn tasks(&self) -> MutexGuard<'_, BTreeMap<u32, Option<(u32, u32)>>> {
        self.known.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of Slurm's commands, with one locale and one form of time.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = match &self.bin_dir {
            Some(dir) => dir.join(program),
            None => PathBuf::from(program),
        };
        let mut command = Command::new(path);
        command.env("LC_ALL", "C").env("SLURM_TIME_FORMAT", "%s");
        let of_family = |name: &String| UNWANTED_FAMILIES.iter().any(|family| name.starts_with(family));
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(of_family);
        names.chain(UNWANTED.map(str::to_owned)).for_each(|name| {
            command.env_remove(name);
        });
        if let Some(conf) = &self.conf {
            command.env("SLURM_CONF", conf);
        }
        command
    }

    /// Runs a command and gives its standard output.
    pub(crate) fn output(&self, program: &str, args: &[&str]) -> Result<String, Error> {
        let mut command = self.command(program);
        command.args(args);
        if is_act(program, args) && !self.may_act() {
            return Err(Error::NoLeave);
        }
        let asks_slurmctld =
            ASKING.contains(&program) && !args.iter().any(|a| a.starts_with("--help") || *a == "--version");
        if asks_slurmctld && !self.budget.take(self.urgency) {
            return Err(Error::Postponed);
        }
        let begun = Instant::now();
        let answer = run(command, &format!("{program} {}", args.join(" ")), LIMIT);
        if asks_slurmctld {
            self.budget.answered(begun.elapsed());
        }
        answer
    }
}

/// Whether a command changes anything: all that does not ask for something by its first words.
fn is_act(program: &str, args: &[&str]) -> bool {
    let asks = |words: &[&str]| args.iter().any(|arg| words.contains(arg));
    match program {
        "scontrol" => !asks(&["show", "write", "--version"]),
        "sacctmgr" => !asks(&["show", "list"]),
        "scancel" => true,
        _ => false,
    }
}

/// What a cell holds, or what `ask` says, which is then kept; an error is not.
fn kept<T: Copy>(cell: &Once<T>, ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    if let Some(value) = cell.value.get() {
        return Ok(*value);
    }
    // One asks, the others wait for its answer.
    let _asking = cell.asking.lock().unwrap_or_else(PoisonError::into_inner);
    match cell.value.get() {
        Some(value) => Ok(*value),
        None => ask().map(|value| *cell.value.get_or_init(|| value)),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Slurm with one more command, a script of the shell.
    pub(crate) fn with(dir: &tempfile::TempDir, command: &str, script: &str) -> Slurm {
        let text = dir.path().join("text");
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("written");
        // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
        let copied = Command::new("install").arg(text).arg(dir.path().join(command)).status();
        assert!(copied.expect("install").success());
        Slurm::new(Some(dir.path().into()))
    }

    #[test]
    fn a_missing_command_is_named() {
        let slurm = Slurm::new(Some("/nonexistent".into()));
        let e = slurm.version().expect_err("no such folder").to_string();
        assert!(e.starts_with("cannot run scontrol --version:"), "{e}");
    }

    #[test]
    fn without_leave_everything_is_asked_and_nothing_is_done() {
        let dir = tempfile::tempdir().expect("a folder");
        let asked = dir.path().join("asked");
        let script = format!("echo \"$*\" >> {}", asked.display());
        let slurm = ["scontrol", "scancel", "sacctmgr"].map(|name| with(&dir, name, &script))[0].clone();
        with(&dir, "squeue", "echo 'Invalid job id specified' >&2; exit 1");
        let without = slurm.clone().that_acts_while(|| false);
        let acts = |slurm: &Slurm| {
            let (nodes, window) = (vec!["n1".to_owned()], crate::Window { start_s: None, minutes: 1, users: &[] });
            [
                slurm.node_down("n1", "x"),
                slurm.node_resume("n1"),
                slurm.requeue(1),
                slurm.requeue_held(1),
                slurm.release(1),
                slurm.start_now(1),
                slurm.admin_comment(1, "show"),
                slurm.cancel(1),
                slurm.signal_steps(1, "TERM"),
                slurm.cancel_step("1.0"),
                slurm.reserve("r", &nodes, window),
                slurm.unreserve("r"),
                slurm.shrink(1, &nodes),
            ]
        };
        assert!(acts(&without.when_idle()).iter().all(|act| matches!(act, Err(Error::NoLeave))));
        assert!(!asked.exists());
        without.partitions().expect("asked");
        without.operators().expect("asked");
        for act in acts(&slurm.that_acts_while(|| true)) {
            act.expect("done");
        }
    }

    #[test]
    fn the_series_is_asked_for_once_and_an_error_is_asked_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let asked = dir.path().join("asked");
        let slurm = with(&dir, "scontrol", &format!("echo x >> {}; exit 1", asked.display()));
        assert!(slurm.series().is_err());
        with(&dir, "scontrol", &format!("echo x >> {}; echo slurm-wlm 24.11.5", asked.display()));
        assert_eq!([slurm.series().expect("now"), slurm.clone().series().expect("kept")], [(24, 11); 2]);
        assert_eq!(std::fs::read_to_string(asked).expect("a count").lines().count(), 2);
    }
}

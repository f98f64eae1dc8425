//! Runs Slurm's commands, each with a limit in time, in one locale and with one form of time.

use crate::{
    Accounted, Error, Job, Node, NodeEvent, NodeHistory, Partition, Step, parse_accounting, parse_events, parse_gpus,
    parse_job, parse_jobs, parse_named_step, parse_nodes, parse_operators, parse_partitions, parse_steps,
};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a command may take before it is killed.
const LIMIT: Duration = Duration::from_secs(20);

/// The longest AdminComment that is handed over, bytes; one argument of a command may be 128 KiB.
const LONGEST_COMMENT: usize = 100_000;

/// How many jobs one `sacct` is asked for: their ids fit into one argument.
const MOST_ASKED: usize = 10_000;

/// How many doubtful records of a listing are asked for one by one.
const MOST_DOUBTFUL: usize = 100;

/// Variables by which a user's or a job's environment would change what the commands print.
const UNWANTED: [&str; 12] = [
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
    "SCANCEL_STATE",
];

/// Slurm, reached through its commands.
#[derive(Clone, Debug, Default)]
pub struct Slurm {
    /// Where the commands are; the `PATH` if absent.
    pub bin_dir: Option<PathBuf>,
    /// The `slurm.conf` to use; the environment's or Slurm's own if absent.
    pub conf: Option<PathBuf>,
}

/// A job that holds a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobOn {
    /// Slurm job id.
    pub job: u32,
    /// User id of its owner.
    pub uid: u32,
}

impl Slurm {
    /// Slurm with its commands in `bin_dir`, or in the `PATH`.
    pub fn new(bin_dir: Option<PathBuf>) -> Self {
        Slurm { bin_dir, conf: None }
    }

    /// A job as slurmctld knows it; nothing once slurmctld has forgotten it.
    pub fn job(&self, id: u32) -> Result<Option<Job>, Error> {
        match self.output("scontrol", &["show", "job", "-o", &id.to_string()]) {
            Ok(text) => parse_job(&text, id),
            Err(e) if e.is_unknown_job() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// All jobs that slurmctld knows, without those whose texts forge a field.
    ///
    /// A user's comment may hold a whole record, with the id of somebody else's job: an id that is claimed twice is
    /// asked for by itself, which shows the true record first.
    pub fn jobs(&self) -> Result<Vec<Job>, Error> {
        let (mut jobs, doubtful) = parse_jobs(&self.output("scontrol", &["show", "job", "-o"])?);
        for id in doubtful.into_iter().take(MOST_DOUBTFUL) {
            match self.job(id) {
                Ok(job) => jobs.extend(job),
                Err(Error::Ambiguous { .. } | Error::Unreadable { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(jobs)
    }

    /// The GPUs of a node that a running job holds, as Slurm counts them there; nothing where it does not say which.
    pub fn gpus(&self, job: u32, node: &str) -> Result<Option<Vec<u32>>, Error> {
        parse_gpus(&self.output("scontrol", &["show", "job", "-d", "-o", &job.to_string()])?, job, node)
    }

    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        parse_nodes(&self.output("scontrol", &["show", "node", "-o"])?)
    }

    /// A node; none if Slurm does not know it.
    pub fn node(&self, name: &str) -> Result<Option<Node>, Error> {
        match self.output("scontrol", &["show", "node", "-o", name]) {
            Ok(text) => Ok(parse_nodes(&text)?.into_iter().find(|n| n.name == name)),
            Err(Error::Refused { text, .. }) if text.contains("not found") => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The jobs that hold a node now, by fields that no user writes.
    pub fn jobs_on(&self, node: &str) -> Result<Vec<JobOn>, Error> {
        let (nodes, states) =
            (format!("--nodelist={node}"), "--states=RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED");
        let text = self.output("squeue", &["--noheader", "--all", &nodes, states, "--format=%A|%U"])?;
        let read = |line: &str| -> Result<JobOn, Error> {
            let wrong = || Error::unreadable("job on a node", line);
            let (job, uid) = line.trim().split_once('|').ok_or_else(wrong)?;
            Ok(JobOn { job: job.parse().map_err(|_| wrong())?, uid: uid.parse().map_err(|_| wrong())? })
        };
        text.lines().filter(|l| !l.trim().is_empty()).map(read).collect()
    }

    /// The partitions that this user may see.
    pub fn partitions(&self) -> Result<Vec<Partition>, Error> {
        parse_partitions(&self.output("scontrol", &["show", "partition", "-o"])?)
    }

    /// Takes a node out of service at once: its steps end, its jobs are requeued or shrink.
    pub fn node_down(&self, node: &str, reason: &str) -> Result<(), Error> {
        self.update_node(node, "DOWN", Some(reason))
    }

    /// Puts a node back into service.
    pub fn node_resume(&self, node: &str) -> Result<(), Error> {
        self.update_node(node, "RESUME", None)
    }

    fn update_node(&self, node: &str, state: &str, reason: Option<&str>) -> Result<(), Error> {
        let (name, state) = (format!("NodeName={node}"), format!("State={state}"));
        let reason = reason.map(|r| format!("Reason={r}"));
        let mut args = vec!["update", &name, &state];
        args.extend(reason.as_deref());
        self.output("scontrol", &args).map(drop)
    }

    /// Puts a job back into the queue; one that somebody else has just put there is there.
    pub fn requeue(&self, job: u32) -> Result<(), Error> {
        match self.output("scontrol", &["requeue", &job.to_string()]) {
            Err(Error::Refused { text, .. }) if text.contains("Job is pending execution") => Ok(()),
            asked => asked.map(drop),
        }
    }

    /// Puts a job back into the queue, where it waits until its user or an operator releases it.
    pub fn requeue_held(&self, job: u32) -> Result<(), Error> {
        self.output("scontrol", &["requeuehold", &job.to_string()]).map(drop)
    }

    /// Lets a requeued job start without the two minutes that Slurm makes it wait; for jobs that are pending.
    ///
    /// Not at this very moment: its old credential is revoked by the second, and a start within the same second
    /// is refused on the node and loses the job.
    pub fn start_now(&self, job: u32) -> Result<(), Error> {
        self.update_job(job, "StartTime=now+2seconds")
    }

    /// Writes a job's AdminComment; works for operators, and until the job has ended.
    pub fn admin_comment(&self, job: u32, text: &str) -> Result<(), Error> {
        if text.len() > LONGEST_COMMENT {
            return Err(Error::unreadable("admin comment", text));
        }
        self.update_job(job, &format!("AdminComment={text}"))
    }

    pub(crate) fn update_job(&self, job: u32, what: &str) -> Result<(), Error> {
        self.output("scontrol", &["update", &format!("JobId={job}"), what]).map(drop)
    }

    /// The running steps of a job, the batch step included.
    pub fn steps(&self, job: u32) -> Result<Vec<Step>, Error> {
        let asked = self.output("scontrol", &["show", "step", "-o", &job.to_string()]);
        match asked {
            Ok(text) => parse_steps(&text, job),
            Err(e) if e.is_unknown_job() => Ok(Vec::new()),
            Err(e) => Err(e),
        }
    }

    /// Signals all steps of a job, but not its batch script. `KILL` would end the job: end its steps one by one
    /// with [`Slurm::cancel_step`].
    pub fn signal_steps(&self, job: u32, signal: &str) -> Result<(), Error> {
        if matches!(signal.trim_start_matches("SIG"), "KILL" | "9") {
            return Err(Error::unreadable("signal for steps", signal));
        }
        self.output("scancel", &[&format!("--signal={signal}"), &job.to_string()]).map(drop)
    }

    /// Ends one step, such as `12.0`; one that has ended meanwhile is no error.
    pub fn cancel_step(&self, step: &str) -> Result<(), Error> {
        if !step.contains('.') {
            return Err(Error::unreadable("step", step)); // a bare number would cancel the whole job
        }
        match self.output("scancel", &[step]) {
            Err(e) if !e.is_over() => Err(e),
            _ => Ok(()),
        }
    }

    /// What accounting knows of a job, each of its requeued lives by itself, oldest first.
    pub fn accounted(&self, job: u32) -> Result<Vec<Accounted>, Error> {
        self.accounted_jobs(&[job])
    }

    /// The same of many jobs, with one `sacct` for ten thousand of them.
    pub fn accounted_jobs(&self, jobs: &[u32]) -> Result<Vec<Accounted>, Error> {
        let fields = format!("--format={}", Accounted::FIELDS);
        let mut lives = Vec::new();
        for jobs in jobs.chunks(MOST_ASKED) {
            let ids = jobs.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            let text = self.output("sacct", &["-n", "-P", "-X", "-D", "-j", &ids, &fields])?;
            lives.extend(parse_accounting(&text)?);
        }
        Ok(lives)
    }

    /// The command line by which a job was submitted, as accounting keeps it; none if it does not know the job.
    pub fn submit_line(&self, job: u32) -> Result<Option<String>, Error> {
        let text = self.output("sacct", &["-n", "-P", "-X", "-j", &job.to_string(), "--format=JobIDRaw,SubmitLine"])?;
        // A line break in a user's command begins no record of another job: only the first line counts.
        let line = text.lines().next().and_then(|l| l.strip_prefix(&format!("{job}|")));
        Ok(line.filter(|l| !l.is_empty()).map(str::to_string))
    }

    /// A job's batch script; for its owner and operators.
    pub fn batch_script(&self, job: u32) -> Result<String, Error> {
        self.output("scontrol", &["write", "batch_script", &job.to_string(), "-"])
    }

    /// Accounting's word for a step such as `12.0`, for instance `CANCELLED by 1000`; none if it does not know it yet.
    /// The life of its job goes on after `since_s`: an earlier one has steps of the same numbers.
    pub fn step_state(&self, step: &str, since_s: f64) -> Result<Option<String>, Error> {
        let since = format!("--starttime=uts{:.0}", since_s.floor());
        let text = self.output("sacct", &["-n", "-P", "-j", step, &since, "--format=State"])?;
        Ok(text.lines().map(str::trim).find(|state| !state.is_empty()).map(str::to_string))
    }

    /// The same for the newest step of that name which began at `since_s` or later.
    pub fn named_step_state(&self, job: u32, name: &str, since_s: f64) -> Result<Option<String>, Error> {
        let (job, since) = (job.to_string(), format!("--starttime=uts{:.0}", since_s.floor()));
        let text = self.output("sacct", &["-n", "-P", "-j", &job, &since, "--format=Start,State,JobName"])?;
        parse_named_step(&text, name, since_s)
    }

    /// Sets the energy of a job that has ended in accounting, J: 25.11 and later let an operator do it
    /// (`sacctmgr modify job set TRES=`, which leaves the job's other resources as they are).
    pub fn set_energy(&self, job: u32, joules: f64) -> Result<(), Error> {
        let (which, what) = (format!("jobid={job}"), format!("TRES=energy={joules:.0}"));
        self.output("sacctmgr", &["-i", "modify", "job", "where", &which, "set", &what]).map(drop)
    }

    /// What accounting knows of the nodes' times out of service in the last `seconds`.
    pub fn node_events(&self, seconds: u64) -> Result<NodeHistory, Error> {
        let (start, fields) = (format!("Start=now-{seconds}seconds"), format!("format={}", NodeEvent::FIELDS));
        parse_events(&self.output("sacctmgr", &["-n", "-P", "show", "event", &start, &fields])?)
    }

    /// The lives of jobs that ended by the failure of a node since `start` (a time as sacct takes it), a heading first;
    /// the text, as sites keep such records in files. Without an end sacct finds no failure at all, and neither does it
    /// from 1970-01-01 on, which it takes for no start.
    pub fn node_failures(&self, start: &str) -> Result<String, Error> {
        self.output(
            "sacct",
            &["-a", "-X", "-D", "-P", "-s", "NF", "-S", start, "-E", "now", "--format=JobID,End,NodeList"],
        )
    }

    /// Names of users whom accounting knows as operators or administrators.
    pub fn operators(&self) -> Result<Vec<String>, Error> {
        Ok(parse_operators(&self.output("sacctmgr", &["-n", "-P", "show", "user", "format=User,AdminLevel"])?))
    }

    /// The job id of a task of an array, `ARRAY_TASK` as people write it; accounting knows one that has long ended.
    pub fn array_task(&self, array: u32, task: u32) -> Result<Option<u32>, Error> {
        let name = format!("{array}_{task}");
        match self.output("scontrol", &["show", "job", "-o", &name]) {
            // A record begins with its id; whatever a user wrote comes later.
            Ok(text) => Ok(text.strip_prefix("JobId=").and_then(|t| t.split(' ').next()).and_then(|t| t.parse().ok())),
            Err(e) if e.is_unknown_job() => {
                let text = self.output("sacct", &["-n", "-P", "-X", "-j", &name, "--format=JobIDRaw"])?;
                Ok(text.lines().next().and_then(|id| id.trim().parse().ok()))
            }
            Err(e) => Err(e),
        }
    }

    /// The cluster's name.
    pub fn cluster_name(&self) -> Result<String, Error> {
        self.config_value("ClusterName")?.ok_or_else(|| Error::unreadable("ClusterName", "(absent)"))
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

    /// Slurm's series, such as (22, 5).
    pub fn series(&self) -> Result<(u32, u32), Error> {
        let version = self.version()?;
        let mut parts = version.split('.').map_while(|p| p.parse().ok());
        parts.next().zip(parts.next()).ok_or_else(|| Error::unreadable("version", &version))
    }

    /// One of Slurm's commands, with one locale and one form of time.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = match &self.bin_dir {
            Some(dir) => dir.join(program),
            None => PathBuf::from(program),
        };
        let mut command = Command::new(path);
        command.env("LC_ALL", "C").env("SLURM_TIME_FORMAT", "%s");
        UNWANTED.iter().for_each(|name| {
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
        run(command, &format!("{program} {}", args.join(" ")), LIMIT)
    }
}

/// Runs a command to its end, or kills it at the limit.
fn run(mut command: Command, name: &str, limit: Duration) -> Result<String, Error> {
    let short: String = name.chars().take(120).collect();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|cause| Error::Start { command: short.clone(), cause })?;
    let out = read_aside(child.stdout.take());
    let err = read_aside(child.stderr.take());
    let deadline = Instant::now() + limit;
    let left = || deadline.saturating_duration_since(Instant::now());
    let texts = out.recv_timeout(left()).ok().zip(err.recv_timeout(left()).ok());
    let status = texts.is_some().then(|| wait_until(&mut child, deadline)).flatten();
    let (Some((stdout, stderr)), Some(status)) = (texts, status) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(Error::TimedOut { command: short, seconds: limit.as_secs() });
    };
    if status.success() {
        return Ok(stdout);
    }
    let said = stderr.lines().chain(stdout.lines()).rev().find(|l| !l.trim().is_empty());
    let text = said.map_or_else(|| status.to_string(), |l| l.trim().chars().take(300).collect());
    Err(Error::Refused { command: short, text })
}

/// Reads a pipe to its end on a thread of its own, so that neither pipe can block the other.
fn read_aside<R: Read + Send + 'static>(pipe: Option<R>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Waits for the end of a child that has already closed its pipes: almost always at once.
fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_command_that_hangs_is_killed_at_its_limit() {
        let begun = Instant::now();
        let e = run(shell("exec sleep 3600"), "x", Duration::from_millis(50)).expect_err("limit");
        assert!(matches!(e, Error::TimedOut { .. }), "{e}");
        assert!(begun.elapsed() < Duration::from_secs(600));
    }

    #[test]
    fn a_refusal_carries_slurms_last_words() {
        let e = run(shell("echo first >&2; echo last >&2; exit 1"), "x", LIMIT).expect_err("rc 1");
        assert_eq!(e.to_string(), "x: last");
    }

    #[test]
    fn large_output_on_both_pipes_does_not_block() {
        let script = "i=0; while [ $i -lt 3000 ]; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; \
                      echo bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb >&2; i=$((i+1)); done";
        assert_eq!(run(shell(script), "x", LIMIT).expect("rc 0").lines().count(), 3000);
    }

    #[test]
    fn a_missing_command_is_named() {
        let slurm = Slurm::new(Some("/nonexistent".into()));
        let e = slurm.version().expect_err("no such folder").to_string();
        assert!(e.starts_with("cannot run scontrol --version:"), "{e}");
    }

    /// Slurm with one more command, a script of the shell.
    fn with(dir: &tempfile::TempDir, command: &str, script: &str) -> Slurm {
        let text = dir.path().join("text");
        std::fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("written");
        // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
        let copied = Command::new("install").arg(text).arg(dir.path().join(command)).status();
        assert!(copied.expect("install").success());
        Slurm::new(Some(dir.path().into()))
    }

    #[test]
    fn a_job_that_somebody_else_has_requeued_is_requeued() {
        let dir = tempfile::tempdir().expect("a folder");
        for (says, is_fine) in [("Job is pending execution for job 6", true), ("Access/permission denied", false)] {
            let slurm = with(&dir, "scontrol", &format!("echo '{says}' >&2; exit 1"));
            assert_eq!(slurm.requeue(6).is_ok(), is_fine, "{says}");
        }
    }

    #[test]
    fn a_step_that_ends_while_it_is_cancelled_is_cancelled() {
        let dir = tempfile::tempdir().expect("a folder");
        let says = "scancel: error: Kill job error on job step id 10.0";
        for (why, is_fine) in [
            ("Invalid job id specified", true),
            ("Job/step already completing or completed", true),
            ("Unable to contact slurm controller (connect failure)", false),
        ] {
            let slurm = with(&dir, "scancel", &format!("echo '{says}: {why}' >&2; exit 1"));
            assert_eq!(slurm.cancel_step("10.0").is_ok(), is_fine, "{why}");
        }
    }

    #[test]
    fn accounting_is_asked_for_the_task_of_an_array_of_which_slurm_knows_only_others() {
        let dir = tempfile::tempdir().expect("a folder");
        with(&dir, "scontrol", "echo 'Job 2_7 not found' >&2; exit 1");
        assert_eq!(with(&dir, "sacct", "echo 9").array_task(2, 7).expect("an answer"), Some(9));
        assert_eq!(with(&dir, "sacct", "true").array_task(2, 7).expect("an answer"), None);
        let slurm = with(&dir, "scontrol", "echo '/usr/bin/scontrol: 3: exec: /opt/scontrol: not found' >&2; exit 127");
        assert!(slurm.job(2).is_err(), "a Slurm that cannot be asked knows nothing of the job");
    }

    #[test]
    fn dangerous_forms_are_refused_before_slurm_sees_them() {
        let slurm = Slurm::new(Some("/nonexistent".into()));
        assert!(matches!(slurm.signal_steps(1, "SIGKILL"), Err(Error::Unreadable { .. })));
        assert!(matches!(slurm.cancel_step("12"), Err(Error::Unreadable { .. })));
    }
}

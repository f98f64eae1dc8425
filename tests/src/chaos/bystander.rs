//! Another user's jobs that never asked for us, and what of the harness's own blows plain Slurm would have ended, too.

use super::queue::{Queue, Seen};
use crate::Site;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use testbed::BOB;

/// How many short jobs come, one after the other, and how far apart, s.
const SHORT: u32 = 6;
const APART_S: u32 = 7;

/// What plain Slurm does not survive either, without us.
#[derive(Clone, Debug)]
pub struct Harm {
    /// These nodes; all, if absent.
    pub nodes: Option<Vec<String>>,
    /// From when on.
    pub from: Instant,
    /// Until it was mended; not yet, if absent.
    pub until: Option<Instant>,
    /// What it ends.
    pub ends: Ends,
}

/// Which jobs a blow of the harness may end or put back into the queue in a cluster without us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// What runs on the nodes: they lost their power.
    Running,
    /// What begins there meanwhile: slurmctld cannot hand it over, or has not written down yet that it did.
    Beginning,
}

/// slurmctld writes its state five seconds after a change; and looks after nodes and launches now and then.
const UNWRITTEN: Duration = Duration::from_secs(12);
const AFTERWARDS: Duration = Duration::from_secs(15);

impl Harm {
    /// Whether it excuses a job that was seen like this.
    pub fn excuses(&self, seen: &[Seen]) -> bool {
        let is_there = |s: &Seen| self.nodes.as_ref().is_none_or(|nodes| s.nodes.iter().any(|n| nodes.contains(n)));
        let (from, until) = (self.from - UNWRITTEN, self.until.map(|until| until + AFTERWARDS));
        let is_meanwhile = |at: Instant| at >= from && until.is_none_or(|until| at <= until);
        let runs = |s: &Seen| ["RUNNING", "COMPLETING", "SUSPENDED"].contains(&s.state.as_str());
        match self.ends {
            Ends::Running => seen.iter().any(|s| runs(s) && is_there(s) && is_meanwhile(s.at)),
            Ends::Beginning => {
                let first = seen.iter().enumerate().filter(|(i, s)| runs(s) && (*i == 0 || !runs(&seen[i - 1])));
                let mut first = first.map(|(_, s)| s).peekable();
                // One that was never seen to run began and ended between two looks.
                first.peek().is_none() || first.any(|s| is_there(s) && is_meanwhile(s.at))
            }
        }
    }
}

/// The other user's jobs of one history.
pub struct Bystander {
    jobs: Vec<(u32, PathBuf)>,
    idle: u32,
}

impl Bystander {
    /// Submits two long jobs, one that shares its node and one that does not, some short ones, and an allocation in which
    /// nothing runs.
    ///
    /// # Errors
    /// What sbatch says.
    pub fn begin(site: &Site, name: &str) -> Result<Bystander> {
        let folder = site.folder(BOB, name)?;
        let mut jobs = Vec::new();
        let mut submit = |what: String, more: &[&str], seconds: u32| -> Result<()> {
            let own = folder.join(&what);
            let output = format!("--output={}", own.display());
            let args = [&["-N1", "-n1", "-t5", "--open-mode=append", &output], more].concat();
            let id = site.submit(BOB, &folder, &args, &format!("echo begin\nsleep {seconds}\necho end"))?;
            jobs.push((id, own));
            Ok(())
        };
        submit("shared".into(), &[], 45)?;
        submit("alone".into(), &["--exclusive"], 45)?;
        for n in 0..SHORT {
            submit(format!("short-{n}"), &[&format!("--begin=now+{}", 1 + n * APART_S)], 2)?;
        }
        Ok(Bystander { jobs, idle: idle(site, &folder)? })
    }

    /// Slurm's numbers of all.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        self.jobs.iter().map(|(job, _)| *job).chain([self.idle])
    }

    /// Ends the idle allocation and waits for the jobs, but for those that Slurm has `lost`; what was done to any of them
    /// without an excuse.
    ///
    /// # Errors
    /// Slurm does not tell.
    pub fn judge(
        &self,
        site: &Site,
        queue: &Queue,
        harms: &[Harm],
        lost: &[u32],
        limit: Duration,
    ) -> Result<Vec<String>> {
        let mut touched = Vec::new();
        let excused = |job: u32| harms.iter().any(|harm| harm.excuses(&queue.of(job)));
        if !lost.contains(&self.idle) {
            if site.state(self.idle)? != "RUNNING" && !excused(self.idle) {
                touched.push(format!("the idle allocation {} is {}", self.idle, site.state(self.idle)?));
            }
            site.cluster.output(site.cluster.command("scancel").arg(self.idle.to_string()))?;
        }
        for (job, file) in self.jobs.iter().filter(|(job, _)| !lost.contains(job)) {
            let over = ["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "BOOT_FAIL"];
            let waited = site.wait(&format!("job {job} in {over:?}"), limit, |site| {
                let state = site.state(*job)?;
                if state == "PENDING" {
                    go_on(site, *job, excused(*job))?;
                }
                Ok(over.contains(&state.as_str()).then_some(state))
            });
            let restarts = site.cluster.job(*job)?.get("Restarts").cloned().context("restarts")?;
            let said = fs::read_to_string(file).unwrap_or_default();
            // A slurmctld that is killed before it has written down a job's end takes it for running when it is back.
            let may_be_forgotten = harms.iter().any(|harm| harm.ends == Ends::Beginning);
            if waited.is_err() && may_be_forgotten && site.state(*job)? == "RUNNING" && said == "begin\nend\n" {
                site.cluster.output(site.cluster.command("scancel").arg(job.to_string()))?;
                continue;
            }
            let state = waited?;
            // Its slurmstepd found no munged when it had ended.
            let said =
                said.split("slurmstepd-").next().filter(|_| said.contains("authentication error")).unwrap_or(&said);
            let is_right = state == "COMPLETED" && said == "begin\nend\n";
            // One that begins a second time and has written once had not begun when a launch failed.
            let may_restart = harms.iter().any(|harm| harm.ends == Ends::Beginning);
            let is_untouched = is_right && (restarts == "0" || may_restart);
            if !is_untouched && !excused(*job) {
                let seen: Vec<String> =
                    queue.of(*job).iter().map(|s| format!("{} on {:?}", s.state, s.nodes)).collect();
                touched
                    .push(format!("bystander {job} ended as {state}, {restarts} restarts, {said:?}; seen: {seen:?}"));
            }
        }
        Ok(touched)
    }
}

/// Does for a job that Slurm has put back into the queue what its user would: it begins at once, and not after two minutes.
/// A slurmctld that was killed and has forgotten that the job ran launches it a second time, which its node refuses, and
/// holds it for ever: it is cancelled, if that is `excused`.
fn go_on(site: &Site, job: u32, excused: bool) -> Result<()> {
    let reason = site.cluster.job(job)?.remove("Reason").unwrap_or_default();
    let mut command = site.cluster.command(if reason == "BeginTime" { "scontrol" } else { "scancel" });
    match reason.as_str() {
        "BeginTime" => command.args(["update", &format!("jobid={job}"), "starttime=now"]),
        "launch_failed_requeued_held" if excused => command.arg(job.to_string()),
        _ => return Ok(()),
    };
    site.cluster.output(&mut command).map(drop)
}

/// An allocation without steps.
fn idle(site: &Site, folder: &std::path::Path) -> Result<u32> {
    let mut command = site.user_command(BOB, "salloc", folder);
    let output = command.args(["--no-shell", "-N1", "-n1", "-t10"]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "salloc: {said}");
    let id = said.split("job allocation ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    id.with_context(|| format!("salloc: {said}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(at: Instant, state: &str, node: &str) -> Seen {
        Seen { at, job: 1, state: state.into(), nodes: vec![node.into()] }
    }

    #[test]
    fn a_lost_node_excuses_what_ran_there_then_and_nothing_else() {
        let now = Instant::now() + Duration::from_secs(1000);
        let s = Duration::from_secs(1);
        let harm = Harm { nodes: Some(vec!["n1".into()]), from: now, until: Some(now + 20 * s), ends: Ends::Running };
        assert!(harm.excuses(&[seen(now + s, "RUNNING", "n1")]));
        assert!(!harm.excuses(&[seen(now + s, "RUNNING", "n2")]));
        assert!(!harm.excuses(&[seen(now - 100 * s, "RUNNING", "n1"), seen(now + s, "PENDING", "n1")]));
    }

    #[test]
    fn a_slurmd_that_is_away_excuses_what_begins_there_and_not_what_runs() {
        let now = Instant::now() + Duration::from_secs(1000);
        let s = Duration::from_secs(1);
        let harm = Harm { nodes: Some(vec!["n1".into()]), from: now, until: Some(now + 20 * s), ends: Ends::Beginning };
        assert!(!harm.excuses(&[seen(now - 30 * s, "RUNNING", "n1"), seen(now + s, "RUNNING", "n1")]));
        assert!(harm.excuses(&[seen(now - 30 * s, "PENDING", ""), seen(now + s, "RUNNING", "n1")]));
    }
}

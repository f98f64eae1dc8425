//! What is done to jobs, steps and nodes, each by one command.

use crate::{Accounted, Error, Slurm};
use std::time::{SystemTime, UNIX_EPOCH};

/// The longest AdminComment that is handed over, bytes; one argument of a command may be 128 KiB.
const LONGEST_COMMENT: usize = 100_000;

impl Slurm {
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
        match self.output("scontrol", &["requeue", &self.number(job)?]) {
            Err(Error::Refused { text, .. }) if text.contains("Job is pending execution") => Ok(()),
            asked => asked.map(drop),
        }
    }

    /// Puts a job back into the queue, where it waits until its user or an operator releases it.
    pub fn requeue_held(&self, job: u32) -> Result<(), Error> {
        self.output("scontrol", &["requeuehold", &self.number(job)?]).map(drop)
    }

    /// Lets a job go that is held.
    pub fn release(&self, job: u32) -> Result<(), Error> {
        self.output("scontrol", &["release", &self.number(job)?]).map(drop)
    }

    /// Lets a requeued job start without the two minutes that Slurm makes it wait; for jobs that are pending.
    ///
    /// Not at this very moment: its old credential is revoked by the second, and a start within the same second
    /// is refused on the node and loses the job.
    pub fn start_now(&self, job: u32) -> Result<(), Error> {
        self.update_job(job, "StartTime=now+2seconds")
    }

    /// Lets a job that is pending start at a moment and not before, s since the epoch.
    pub fn start_at(&self, job: u32, at_s: f64) -> Result<(), Error> {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        if at_s <= now_s + 2.0 { self.start_now(job) } else { self.update_job(job, &format!("StartTime=uts{at_s:.0}")) }
    }

    /// Writes a job's AdminComment; works for operators, and until the job has ended.
    pub fn admin_comment(&self, job: u32, text: &str) -> Result<(), Error> {
        if text.len() > LONGEST_COMMENT {
            return Err(Error::unreadable("admin comment", text));
        }
        self.update_job(job, &format!("AdminComment={text}"))
    }

    pub(crate) fn update_job(&self, job: u32, what: &str) -> Result<(), Error> {
        self.output("scontrol", &["update", &format!("JobId={}", self.number(job)?), what]).map(drop)
    }

    /// Cancels a job.
    pub fn cancel(&self, job: u32) -> Result<(), Error> {
        self.output("scancel", &[&self.number(job)?]).map(drop)
    }

    /// Signals all steps of a job, but not its batch script. `KILL` would end the job: end its steps one by one
    /// with [`Slurm::cancel_step`].
    pub fn signal_steps(&self, job: u32, signal: &str) -> Result<(), Error> {
        if matches!(signal.trim_start_matches("SIG"), "KILL" | "9") {
            return Err(Error::unreadable("signal for steps", signal));
        }
        self.output("scancel", &[&format!("--signal={signal}"), &self.number(job)?]).map(drop)
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

    /// Sets the energy of a life of a job that has ended in accounting, J: 25.11 and later let an operator do it
    /// (`sacctmgr modify job set TRES=`, which leaves the job's other resources as they are). Owner and start are named
    /// with the number, which Slurm uses again.
    pub fn set_energy(&self, life: &Accounted, joules: f64) -> Result<(), Error> {
        let start_s = life.start_s.ok_or_else(|| Error::unreadable("start of a job that is over", "(absent)"))?;
        let start = format!("starttime=uts{start_s:.0}");
        let (which, whose) = (format!("jobid={}", life.job), format!("user={}", life.user));
        let what = format!("TRES=energy={joules:.0}");
        self.output("sacctmgr", &["-i", "modify", "job", "where", &which, &whose, &start, "set", &what]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::tests::with;

    #[test]
    fn a_job_that_somebody_else_has_requeued_is_requeued() {
        let dir = tempfile::tempdir().expect("a folder");
        with(&dir, "squeue", "[ $# = 1 ] || { echo 'Invalid job id specified' >&2; exit 1; }");
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
    fn dangerous_forms_are_refused_before_slurm_sees_them() {
        let slurm = Slurm::new(Some("/nonexistent".into()));
        assert!(matches!(slurm.signal_steps(1, "SIGKILL"), Err(Error::Unreadable { .. })));
        assert!(matches!(slurm.cancel_step("12"), Err(Error::Unreadable { .. })));
    }
}

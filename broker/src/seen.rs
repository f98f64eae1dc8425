//! What Slurm shows at one moment, of everything and of one loan.

use crate::error::{Error, Result};
use crate::machine::World;
use protocol::Loan;
use slurm::{Job, JobState, Jobs, Node, Reservation, Slurm};
use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

/// What names of our reservations and helper jobs begin with; the loan's id follows.
pub(crate) const PREFIX: &str = "joulepoint_";

/// Seconds since the Unix epoch.
pub(crate) fn now_s() -> f64 {
    UNIX_EPOCH.elapsed().map_or(0.0, |d| d.as_secs_f64())
}

/// What Slurm shows of everything, at one moment.
#[derive(Default)]
pub(crate) struct Seen {
    pub jobs: Vec<Job>,
    /// Whether there are jobs whose lines were not understood: one that is not among `jobs` may be there all the same.
    pub is_incomplete: bool,
    /// Jobs that bear a loan's name and are of its user, by the loan's id: a name is a user's text, and is asked for by
    /// itself.
    pub helpers: BTreeMap<String, Vec<Job>>,
    /// Loans of whose helpers not every line was understood.
    pub unclear: BTreeSet<String>,
    pub nodes: Vec<Node>,
    pub reservations: Vec<Reservation>,
}

impl Seen {
    /// Looks at Slurm, for loans that are open.
    pub fn look(slurm: &Slurm, open: &BTreeMap<String, Loan>) -> Result<Seen, slurm::Error> {
        // Jobs first: a helper that is asked for meanwhile would be taken for a borrower if it were no helper yet.
        let listed = slurm.jobs()?;
        let mut seen =
            Seen { is_incomplete: !listed.unreadable.is_empty(), jobs: understood(listed), ..Seen::default() };
        for loan in open.values() {
            let named = slurm.jobs_named(loan.uid, &[&loan.name])?;
            if !named.unreadable.is_empty() {
                seen.unclear.insert(loan.id.clone());
            }
            seen.helpers.insert(loan.id.clone(), understood(named));
        }
        Ok(Seen { nodes: slurm.nodes()?, reservations: slurm.reservations()?, ..seen })
    }

    /// A job; none only if Slurm does not know it: where not every line was understood, it is asked about this one alone.
    pub fn job(&self, slurm: &Slurm, id: u32) -> Result<Option<Job>, slurm::Error> {
        match self.jobs.iter().find(|j| j.id == id) {
            None if self.is_incomplete => slurm.job(id),
            listed => Ok(listed.cloned()),
        }
    }

    /// The jobs that bear a loan's name.
    pub fn helpers_of(&self, loan: &Loan) -> impl Iterator<Item = &Job> {
        self.helpers.get(&loan.id).into_iter().flatten().filter(|j| j.uid == loan.uid)
    }
}

/// The jobs of a listing; a line that is not understood is told, and hides no other.
pub(crate) fn understood(listed: Jobs) -> Vec<Job> {
    if let Some(e) = listed.unreadable.first() {
        tracing::warn!(%e, lines = listed.unreadable.len(), "jobs of Slurm's queue are not understood and left out");
    }
    listed.jobs
}

pub(crate) fn is_there(job: &Job) -> bool {
    matches!(job.state, JobState::Pending | JobState::Running | JobState::Suspended)
}

/// Whether a job began on lent nodes while they were lent.
pub(crate) fn is_borrower(job: &Job, loan: &Loan, lent_s: f64, seen: &Seen) -> bool {
    let ours = job.id == loan.job || seen.helpers_of(loan).any(|helper| helper.id == job.id);
    // Slurm's times are whole seconds.
    let began = job.start_s.is_some_and(|s| s >= lent_s.floor() - 1.0);
    !ours && began && job.state != JobState::Pending && job.nodes.iter().any(|n| loan.nodes.contains(n))
}

/// What Slurm shows of one loan.
///
/// # Errors
/// When its lender or its helpers may be there and are not understood.
pub(crate) fn world(slurm: &Slurm, loan: &Loan, seen: &Seen) -> Result<World> {
    if seen.unclear.contains(&loan.id) {
        return Err(Error::Unclear(loan.name.clone()));
    }
    let on_nodes = |j: &&Job| {
        let runs = matches!(j.state, JobState::Running | JobState::Suspended | JobState::Completing);
        runs && is_borrower(j, loan, loan.lent_s.unwrap_or(f64::INFINITY), seen)
    };
    let lost = |n: &&Node| {
        loan.nodes.contains(&n.name)
            && (matches!(n.state.as_str(), "DOWN" | "ERROR" | "FAIL") || n.has_flag("DRAIN") || n.has_flag("FAIL"))
    };
    Ok(World {
        lender: seen.job(slurm, loan.job)?,
        // One that a slurmctld has remembered again may wait beside the one that was asked for since.
        helper: seen.helpers_of(loan).filter(|j| is_there(j)).max_by_key(|j| j.nodes.len()).cloned(),
        reservation: seen.reservations.iter().find(|r| r.name == loan.name).cloned(),
        borrowers: seen.jobs.iter().filter(on_nodes).cloned().collect(),
        chosen: BTreeMap::new(),
        down: seen.nodes.iter().filter(lost).map(|n| n.name.clone()).collect::<BTreeSet<_>>(),
        unheard: seen.nodes.iter().any(|n| loan.nodes.contains(&n.name) && n.state == "UNKNOWN"),
        booted_s: 0.0,
        longest_limit_s: None,
        counts_from_s: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::example;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    /// Slurm whose `squeue` is a script, and which shows neither nodes nor reservations.
    fn slurm(dir: &Path, squeue: &str) -> Slurm {
        for (name, script) in [("squeue", squeue), ("scontrol", "#!/bin/sh\n")] {
            fs::write(dir.join(name), script).unwrap();
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Slurm::new(Some(dir.to_path_buf()))
    }

    #[test]
    fn a_lender_or_helper_that_is_not_understood_is_not_gone() {
        let dir = tempfile::tempdir().unwrap();
        let jobs = dir.path().join("jobs");
        let slurm = slurm(dir.path(), &format!("#!/bin/sh\n{}", slurm::example::squeue(&jobs)));
        let loan = Loan { lent_s: Some(1000.0), ..example() };
        let open = BTreeMap::from([(loan.id.clone(), loan.clone())]);
        let line = |id: u32, state: &str, name: &str| {
            format!("JobId={id} JobName={name} UserId=alice(1000) JobState={state}\n")
        };
        let look = |lines: &[String]| {
            fs::write(&jobs, lines.concat()).unwrap();
            world(&slurm, &loan, &Seen::look(&slurm, &open).unwrap())
        };
        let strange = line(99, "UNHEARD_OF", "j");
        let found = look(&[line(7, "RUNNING", "j"), strange.clone()]).unwrap();
        assert_eq!(found.lender.map(|j| j.id), Some(7));
        assert!(look(&[strange]).unwrap().lender.is_none(), "it is another that is not understood");
        assert!(look(&[line(7, "UNHEARD_OF", "j")]).is_err());
        let unclear = look(&[line(7, "RUNNING", "j"), line(9, "UNHEARD_OF", &loan.name)]);
        assert!(matches!(unclear, Err(Error::Unclear(name)) if name == loan.name));
    }

    #[test]
    fn a_helper_that_is_asked_for_while_slurm_is_looked_at_is_no_borrower() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let line =
            |id: u32, rest: &str| format!("JobId={id} UserId=alice(1000) JobState=RUNNING StartTime=1000 {rest}\n");
        let loan = Loan { lent_s: Some(1000.0), ..example() };
        fs::write(file("jobs"), line(7, "JobName=j NodeList=n[1-2]")).unwrap();
        fs::write(file("later"), line(9, &format!("JobName={} NodeList=n[3-4]", loan.name))).unwrap();
        // Who has asked once finds the helper the next time.
        let answer = slurm::example::squeue(&file("seen"));
        let (jobs, later, seen) = (file("jobs"), file("later"), file("seen"));
        let (jobs, later, seen) = (jobs.display(), later.display(), seen.display());
        let next = format!("[ \"$1\" = --helpFormat ] || {{ cat {jobs} >{seen}; cat {later} >>{jobs}; : >{later}; }}");
        let slurm = slurm(dir.path(), &format!("#!/bin/sh\n{next}\n{answer}"));
        let open = BTreeMap::from([(loan.id.clone(), loan.clone())]);
        for look in 1..=2 {
            let seen = Seen::look(&slurm, &open).unwrap();
            assert_eq!(seen.helpers_of(&loan).map(|j| j.id).collect::<Vec<_>>(), [9], "look {look}");
            let borrowers: Vec<u32> =
                seen.jobs.iter().filter(|j| is_borrower(j, &loan, 1000.0, &seen)).map(|j| j.id).collect();
            assert!(borrowers.is_empty(), "look {look}: {borrowers:?}");
        }
    }
}

//! The queue as Slurm listed it a moment ago: one listing for all runs that think of lending.

use crate::seen::{now_s, understood};
use parking_lot::Mutex;
use slurm::{Job, JobState, Slurm};
use std::sync::Arc;

/// For how long a listing answers the next question as well, s.
const KEPT_S: f64 = 5.0;

/// When the queue was listed last, s since the epoch, and what it held.
#[derive(Default)]
pub(crate) struct Listing(Mutex<Option<(f64, Arc<Vec<Job>>)>>);

impl Listing {
    /// All jobs, as they were listed a moment ago.
    pub(crate) fn jobs(&self, slurm: &Slurm) -> Result<Arc<Vec<Job>>, slurm::Error> {
        let mut listed = self.0.lock();
        let now_s = now_s();
        if let Some((_, jobs)) = listed.as_ref().filter(|(at_s, _)| (0.0..KEPT_S).contains(&(now_s - at_s))) {
            return Ok(jobs.clone());
        }
        let before = listed.as_ref().map(|(_, jobs)| jobs.clone());
        let jobs = match (slurm.when_idle().jobs(), before) {
            (Ok(jobs), _) => Arc::new(understood(jobs)),
            (Err(slurm::Error::Postponed), Some(before)) => return Ok(before),
            (Err(e), _) => return Err(e),
        };
        *listed = Some((now_s, jobs.clone()));
        Ok(jobs)
    }
}

/// The jobs that wait for nodes, and for which so many CPUs of a partition are enough.
pub(crate) fn waiting<'a>(jobs: &'a [Job], partition: &str, cpus: u32) -> Vec<&'a Job> {
    let could = |j: &&Job| {
        let waits_for_nodes = matches!(j.reason.as_str(), "Resources" | "Priority" | "");
        j.state == JobState::Pending
            && waits_for_nodes
            && j.reservation.is_empty()
            && j.num_cpus <= cpus
            && j.partition.split(',').any(|p| p == partition)
    };
    jobs.iter().filter(could).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_jobs_that_wait_for_nodes_could_borrow() {
        let job = |id: u32, more: &str| {
            let line = format!("JobId={id} JobName=j UserId=u(1) GroupId=g(1) {more} Partition=all,gpu");
            slurm::parse_job(&line, id).unwrap().unwrap()
        };
        let jobs = [
            job(1, "JobState=PENDING Reason=Dependency TimeLimit=00:01:00 NumCPUs=1"),
            job(2, "JobState=PENDING Reason=Priority TimeLimit=00:02:00 NumCPUs=16"),
            job(3, "JobState=PENDING Reason=Resources TimeLimit=00:05:00 NumCPUs=2"),
            job(4, "JobState=PENDING Reason=Priority TimeLimit=UNLIMITED NumCPUs=1"),
            job(5, "JobState=RUNNING Reason=None TimeLimit=00:01:00 NumCPUs=1"),
            job(6, "JobState=PENDING Reason=Resources TimeLimit=00:01:00 NumCPUs=1 Reservation=school"),
        ];
        let ids = |partition, cpus| waiting(&jobs, partition, cpus).iter().map(|j| j.id).collect::<Vec<_>>();
        assert_eq!(ids("all", 8), [3, 4]);
        assert_eq!(ids("all", 1), [4]);
        assert!(ids("debug", 8).is_empty());
    }
}

//! Tells a run that thinks of lending what waits in the queue: one listing for all of them.

use crate::controller::Controller;
use crate::http::{Answer, Refusal, blocking};
use crate::now_s;
use crate::routes::{Shared, no_slurm};
use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::{Extension, Json};
use protocol::{LoanMode, Queue};
use slurm::{Job, JobState};
use std::sync::Arc;
use wire::Peer;

/// For how long a listing answers the next question as well, s.
const KEPT_S: f64 = 5.0;

/// Of how many waiting jobs it is found out for one question what they asked for.
const MOST_ASKED: usize = 8;

/// When the queue was listed last, s since the epoch, and what it held.
pub(super) type Listed = Option<(f64, Arc<Vec<Job>>)>;

/// `?partition=P&cpus=N`: for such nodes.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    partition: String,
    cpus: u32,
}

/// `GET /v1/queue`: what waits for so many CPUs of a partition.
pub(crate) async fn tell(
    state: Shared,
    Extension(peer): Extension<Peer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Answer<Queue> {
    let (axum::extract::State(c), Query(which)) = (state, which?);
    c.users.command(now_s(), peer.uid)?;
    blocking(move || c.queued(&which)).await?.map(Json)
}

impl Controller {
    fn queued(&self, which: &Which) -> Result<Queue, Refusal> {
        let jobs = self.listed().map_err(no_slurm)?;
        let waiting = waiting(&jobs, &which.partition, which.cpus);
        let shortest_s = waiting.iter().filter_map(|j| j.time_limit_s).min().map(|s| s as f64);
        let lend = &self.site.lend;
        let is_short = shortest_s.is_some_and(|s| s <= lend.shortest_s);
        let may = |j: &&&Job| j.batch && j.requeue && j.alone && j.time_limit_s.is_some();
        let preempts = lend.mode == LoanMode::Preempt && !is_short;
        let mut long = waiting.iter().filter(|_| preempts).filter(may).take(MOST_ASKED);
        let mut asked = 0;
        let suits = long.any(|j| self.suits(j, &mut asked).is_ok_and(|unlisted| unlisted.is_some()));
        Ok(Queue { shortest_s: if suits { Some(lend.shortest_s) } else { shortest_s } })
    }

    /// All jobs, as they were listed a moment ago.
    fn listed(&self) -> Result<Arc<Vec<Job>>, slurm::Error> {
        let mut listed = self.loans.listed.lock();
        let now_s = now_s();
        if let Some((_, jobs)) = listed.as_ref().filter(|(at_s, _)| (0.0..KEPT_S).contains(&(now_s - at_s))) {
            return Ok(jobs.clone());
        }
        let jobs = Arc::new(super::understood(self.slurm.jobs()?));
        *listed = Some((now_s, jobs.clone()));
        Ok(jobs)
    }
}

/// The jobs that wait for nodes, and for which so many CPUs of a partition are enough.
fn waiting<'a>(jobs: &'a [Job], partition: &str, cpus: u32) -> Vec<&'a Job> {
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

//! What Slurm says of the jobs that users send records of: slurmctld first, then accounting; asked once for a while, and
//! on the account of who causes it.

use axum::http::StatusCode;
use listener::now_s;
use listener::{Refusal, Users};
use parking_lot::Mutex;
use slurm::{Accounted, Job, JobName, JobState, JobText, Slurm};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// For how long an answer about a job holds, s.
const KEPT_S: f64 = 30.0;

/// For how long the cluster's nodes do.
const NODES_KEPT_S: f64 = 600.0;

/// Of how many jobs answers are kept.
const MOST_KEPT: usize = 10_000;

/// As many nodes a run may name while Slurm does not say which there are.
const MOST_NODES: usize = 20_000;

/// A life of a job: from a start to its end, or to a requeue.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Life {
    pub uid: u32,
    pub user: String,
    /// Empty where only accounting knows the job.
    pub partition: String,
    pub start_s: Option<f64>,
    pub end_s: Option<f64>,
    pub nodes: Vec<String>,
    /// How often the job was restarted before.
    pub restarts: u32,
    /// What Slurm's commands call the job; absent where only accounting knows it.
    pub name: Option<JobName>,
}

impl From<Job> for Life {
    fn from(job: Job) -> Life {
        let name = Some(job.name());
        let has_begun = job.state != JobState::Pending;
        Life {
            uid: job.uid,
            user: job.user,
            partition: if has_begun { job.partition } else { String::new() },
            // What waits is expected to start at some time.
            start_s: job.start_s.filter(|_| has_begun),
            end_s: job.end_s.filter(|_| job.state.is_over()),
            nodes: job.nodes,
            restarts: job.restarts,
            name,
        }
    }
}

impl From<Accounted> for Life {
    fn from(life: Accounted) -> Life {
        let Accounted { uid, user, start_s, end_s, nodes, .. } = life;
        Life { uid, user, partition: String::new(), start_s, end_s, nodes, restarts: 0, name: None }
    }
}

/// What was heard of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heard {
    /// Its lives, the oldest first; those of other jobs that had its number before are among them.
    pub lives: Vec<Life>,
    /// Whether accounting could not be asked: there may have been more.
    pub is_without_accounting: bool,
}

impl Heard {
    fn of(&self, uid: u32) -> impl Iterator<Item = &Life> {
        self.lives.iter().filter(move |life| life.uid == uid)
    }

    /// The nodes that a user's job of this number had.
    pub fn nodes_of(&self, uid: u32) -> impl Iterator<Item = String> {
        self.of(uid).flat_map(|life| life.nodes.iter().cloned())
    }

    /// When it began first, s since the epoch.
    pub fn since_s(&self, uid: u32) -> Option<f64> {
        self.of(uid).filter_map(|life| life.start_s).reduce(f64::min)
    }

    /// When it ended for good, s since the epoch; none while it may go on.
    pub fn until_s(&self, uid: u32) -> Option<f64> {
        let ends: Option<Vec<f64>> = self.of(uid).map(|life| life.end_s).collect();
        ends?.into_iter().reduce(f64::max)
    }
}

#[derive(Clone, Debug)]
struct Kept {
    at_s: f64,
    /// Whether accounting was asked, too.
    is_wide: bool,
    heard: Heard,
    account: Option<String>,
}

type Nodes = Arc<BTreeSet<String>>;

/// Most questions to slurmctld at once about jobs whose records come.
const MOST_ASKING: usize = 8;

/// One of them.
struct Asking<'a>(&'a AtomicUsize);

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Slurm's answers of the last moments.
pub(crate) struct Words {
    slurm: Slurm,
    users: Arc<Users>,
    jobs: Mutex<BTreeMap<u32, Kept>>,
    /// How many ask slurmctld at this moment.
    asking: AtomicUsize,
    /// Those of the cluster, if Slurm has said so, and until when that holds.
    nodes: Mutex<Option<(f64, Option<Nodes>)>>,
}

impl Words {
    /// Nothing was asked yet.
    pub fn new(slurm: Slurm, users: Arc<Users>) -> Words {
        Words { slurm, users, jobs: Mutex::default(), asking: AtomicUsize::new(0), nodes: Mutex::default() }
    }

    /// A place among those that ask slurmctld. Whoever gets none comes again: where a thousand jobs begin at once, neither slurmctld
    /// nor what else this service has to answer may wait behind a thousand commands.
    fn ask(&self) -> Result<Asking<'_>, Refusal> {
        let asking = Asking(&self.asking);
        if self.asking.fetch_add(1, Ordering::SeqCst) < MOST_ASKING {
            return Ok(asking);
        }
        let text = format!("Slurm is being asked about {MOST_ASKING} other jobs: ask again");
        Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, text))
    }

    /// What Slurm says of a job, on the account of `uid`; accounting is asked if slurmctld's word is not `enough`, or
    /// if `wide`. What was heard before `since_s` does not count: a job has other nodes after a requeue.
    ///
    /// # Errors
    /// That the user has caused too many commands, or that neither of the two answers.
    pub fn hear(
        &self,
        uid: u32,
        job: u32,
        wide: bool,
        since_s: f64,
        enough: &dyn Fn(&[Life]) -> bool,
    ) -> Result<Heard, Refusal> {
        let now_s = now_s();
        let is_fresh = |kept: &&Kept| (0.0..KEPT_S).contains(&(now_s - kept.at_s)) && kept.at_s >= since_s;
        let is_enough = |kept: &&Kept| kept.is_wide || (!wide && enough(&kept.heard.lives));
        if let Some(kept) = self.jobs.lock().get(&job).filter(is_fresh).filter(is_enough) {
            return Ok(kept.heard.clone());
        }
        let _asking = self.ask()?;
        self.users.command(now_s, uid)?;
        let now = self.slurm.job(job);
        let current: Option<Life> = now.as_ref().ok().and_then(Clone::clone).map(Life::from);
        let mut heard = Heard { lives: current.into_iter().collect(), is_without_accounting: false };
        let is_wide = wide || !enough(&heard.lives);
        if is_wide {
            self.users.command(now_s, uid)?;
            match self.slurm.accounted(job) {
                Ok(lives) => {
                    // slurmctld's word is the newest, and stands last.
                    heard.lives.splice(0..0, lives.into_iter().map(Life::from));
                }
                Err(e) => {
                    tracing::debug!(job, %e, "accounting does not say what it knows of a job");
                    heard.is_without_accounting = true;
                }
            }
        }
        if let (Err(e), true) = (now, heard.lives.is_empty()) {
            return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, e.to_string()));
        }
        let mut jobs = self.jobs.lock();
        if jobs.len() >= MOST_KEPT {
            jobs.clear();
        }
        jobs.insert(job, Kept { at_s: now_s, is_wide, heard: heard.clone(), account: None });
        Ok(heard)
    }

    /// The account of a job that was heard of; empty if Slurm does not say.
    pub fn account(&self, uid: u32, job: u32) -> String {
        if let Some(account) = self.jobs.lock().get(&job).and_then(|kept| kept.account.clone()) {
            return account;
        }
        let asked = || -> Result<String, slurm::Error> {
            match self.slurm.job(job)? {
                Some(known) => self.slurm.text(&known, JobText::Account),
                None => Ok(self.slurm.accounted_account(job)?.unwrap_or_default()),
            }
        };
        let is_allowed = self.users.command(now_s(), uid).is_ok();
        let account = if is_allowed { asked().unwrap_or_default() } else { String::new() };
        if let Some(kept) = self.jobs.lock().get_mut(&job) {
            kept.account = Some(account.clone());
        }
        account
    }

    /// The names of the cluster's nodes; none while Slurm does not say.
    pub fn cluster(&self) -> Option<Nodes> {
        let now_s = now_s();
        let before = {
            let mut kept = self.nodes.lock();
            if let Some((_, nodes)) = kept.as_ref().filter(|(until_s, _)| now_s < *until_s) {
                return nodes.clone();
            }
            // Whoever asks in the meantime has what was known before.
            let before = kept.take().and_then(|(_, nodes)| nodes);
            *kept = Some((now_s + KEPT_S, before.clone()));
            before
        };
        let (nodes, holds_s) = match self.slurm.when_idle().nodes() {
            Ok(nodes) => (Some(Arc::new(nodes.into_iter().map(|n| n.name).collect())), NODES_KEPT_S),
            Err(e) => {
                tracing::debug!(%e, "Slurm does not say which nodes there are");
                (before, KEPT_S)
            }
        };
        *self.nodes.lock() = Some((now_s + holds_s, nodes.clone()));
        nodes
    }

    /// How many nodes a run may name.
    pub fn most_nodes(&self) -> usize {
        self.cluster().map_or(MOST_NODES, |nodes| nodes.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(uid: u32, start_s: f64, end_s: Option<f64>, node: &str) -> Life {
        Life {
            uid,
            user: "alice".into(),
            partition: String::new(),
            start_s: Some(start_s),
            end_s,
            nodes: vec![node.into()],
            restarts: 0,
            name: None,
        }
    }

    #[test]
    fn a_job_of_somebody_else_with_the_same_number_lends_neither_nodes_nor_times() {
        let lives =
            vec![life(7, 100.0, Some(200.0), "n1"), life(8, 300.0, Some(400.0), "n2"), life(7, 500.0, None, "n3")];
        let heard = Heard { lives, is_without_accounting: false };
        assert_eq!(heard.nodes_of(7).collect::<Vec<_>>(), ["n1", "n3"]);
        assert_eq!((heard.since_s(7), heard.until_s(7)), (Some(100.0), None));
        assert_eq!((heard.since_s(8), heard.until_s(8)), (Some(300.0), Some(400.0)));
        assert_eq!((heard.since_s(9), heard.until_s(9)), (None, None));
    }

    #[test]
    fn what_waits_has_not_begun() {
        let job = |state: &str| {
            let line = format!("JobId=7 UserId=a(7) JobState={state} StartTime=900 EndTime=1000 Partition=all,gpu");
            Life::from(slurm::parse_job(&line, 7).unwrap().unwrap())
        };
        let [waits, runs, over] = ["PENDING", "RUNNING", "COMPLETED"].map(job);
        assert_eq!((waits.start_s, waits.end_s, waits.partition.as_str()), (None, None, ""));
        assert_eq!((runs.start_s, runs.end_s, runs.partition.as_str()), (Some(900.0), None, "all,gpu"));
        assert_eq!(over.end_s, Some(1000.0));
    }
}

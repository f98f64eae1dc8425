//! What the cluster knows of this job: dead nodes from the controller, the reason of an end from Slurm.

use driver::ports::{Cluster, Happening, Standing};
use host::mail::Post;
use protocol::{FailureKind, NodeHealth, RunHealth};
use slurm::{JobState, Slurm};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use wire::Client;

/// Silence from which a node is suspected, s.
const SUSPECT_S: f64 = 2.0;

/// How long the controller may hold its answer back when there is no news, s.
const NEWS_S: u64 = 30;

/// The same while a node is doomed, s.
const DOOMED_S: u64 = 1;

/// How much longer its answer may take then.
const NEWS_LIMIT: Duration = Duration::from_secs(NEWS_S + 10);

/// Pause before the first question, and after one that was not answered.
const PAUSE: Duration = Duration::from_secs(2);

/// Longest wait for accounting to tell how this record ended; shorter than any KillWait.
const ACCOUNTED_LIMIT: Duration = Duration::from_millis(1500);

/// Slurm's KillWait where nothing else is configured, s.
const KILL_WAIT_S: f64 = 30.0;

/// Time between two looks at accounting.
const LOOK: Duration = Duration::from_millis(100);

/// How often a daemon is asked on which the run depends, and the time between.
const TRIES: u32 = 6;
const TRY_PAUSE: Duration = Duration::from_secs(3);

/// After how many of them a user is told for what the job waits.
const SAID: u32 = 2;

/// This job.
pub struct Job {
    slurm: Arc<Slurm>,
    job: u32,
    restart_count: u32,
    since: Since,
    controller: Arc<Controller>,
    /// The node of this process, which does not run on a dead one.
    here: Option<String>,
    /// Whether Slurm requeued the job when it was asked last.
    requeues: Option<bool>,
}

/// The beginning of this record.
#[derive(Clone, Copy)]
struct Since {
    /// By this host's clock.
    started_s: f64,
    /// By a clock that nobody sets.
    begun: Instant,
    /// Whether a node that boots is lost, though Slurm leaves it to the job.
    counts_boots: bool,
}

/// The controller service, and what it said last.
pub struct Controller {
    /// The connection.
    pub client: Client,
    /// Path of the run: `cluster/run`.
    pub run: String,
    /// Which record of the run asks.
    restart_count: u32,
    last: Mutex<Vec<NodeHealth>>,
}

impl Controller {
    /// A controller that has not been asked yet.
    pub fn new(client: Client, run: String, restart_count: u32) -> Controller {
        Controller { client: client.impatient("the controller"), run, restart_count, last: Mutex::default() }
    }

    /// Health of the run's nodes; what was said last if the controller is away.
    pub fn health(&self) -> RunHealth {
        self.ask(&self.client, "").unwrap_or_else(|| RunHealth { nodes: self.last(), ..RunHealth::default() })
    }

    /// The same as soon as it is other than what was told with `since`, or after half a minute.
    fn news(&self, since: u64) -> Option<RunHealth> {
        // The end of a doomed node's lease is no news, but a matter of time.
        let is_doomed = self.last().iter().any(|node| node.doomed && !node.dead);
        let wait_s = if is_doomed { DOOMED_S } else { NEWS_S };
        self.ask(&self.client.within(NEWS_LIMIT), &format!("&since={since}&wait_s={wait_s}"))
    }

    fn ask(&self, client: &Client, more: &str) -> Option<RunHealth> {
        let Controller { run, restart_count, .. } = self;
        let path = format!("/v1/runs/{run}/health");
        let asked = client.get::<RunHealth>(&format!("{path}?restart_count={restart_count}{more}"));
        let heard = match asked {
            // An older controller knows no records here, and refuses.
            Err(wire::Error::Refused { status: 400, .. }) => client.get(&format!("{path}?{more}")),
            other => other,
        };
        match heard {
            Ok(health) => {
                if let Ok(mut last) = self.last.lock() {
                    last.clone_from(&health.nodes);
                }
                Some(health)
            }
            Err(e) => {
                tracing::debug!(%e, "the controller cannot be asked");
                None
            }
        }
    }

    /// Nodes that are dead.
    pub fn dead(&self) -> Vec<String> {
        self.health().nodes.into_iter().filter(|h| h.dead).map(|h| h.node).collect()
    }

    /// What the controller said last.
    pub fn last(&self) -> Vec<NodeHealth> {
        self.last.lock().map(|l| l.clone()).unwrap_or_default()
    }
}

impl Job {
    /// A job in its current record.
    pub fn new(
        slurm: Arc<Slurm>,
        job: u32,
        restart_count: u32,
        controller: Arc<Controller>,
        here: Option<String>,
    ) -> Job {
        let since = Since { started_s: host::mail::now_s(), begun: Instant::now(), counts_boots: false };
        Job { slurm, job, restart_count, since, controller, here, requeues: None }
    }

    /// A node that boots is lost from now on: no part of the run begins again there in this record.
    pub fn count_boots(&mut self) {
        self.since.counts_boots = true;
    }

    /// Tells the driver of every node that dies and every order that comes from now on.
    pub fn watch(&self, post: &Post) {
        let (controller, post, of) = (self.controller.clone(), post.clone(), self.since);
        threads::start(move || {
            let (mut told, mut since) = (Vec::new(), 0);
            // The controller must have the first record to know whose run this is.
            thread::sleep(PAUSE);
            loop {
                let Some(health) = controller.news(since) else {
                    thread::sleep(PAUSE);
                    continue;
                };
                since = health.news;
                for (node, at_s) in dead(&health.nodes, &of) {
                    if !told.contains(&node) {
                        told.push(node.clone());
                        post.tell(Happening::NodeLost { node, at_s });
                    }
                }
                // The driver knows which of them it has heard before.
                health.orders.into_iter().for_each(|order| post.tell(Happening::Ordered(order)));
            }
        });
    }
}

impl Job {
    /// Slurm's word on the job; none outside Slurm, and where it does not say.
    fn asked(&self) -> Option<slurm::Job> {
        if self.job == 0 {
            return None;
        }
        let asked = self.slurm.job(self.job);
        asked.inspect_err(|e| tracing::warn!(%e, "Slurm cannot be asked about the job")).ok().flatten()
    }

    /// Why a job is being ended, if it is.
    fn cause_of(&self, job: &slurm::Job) -> Option<FailureKind> {
        // While it is being ended, Slurm hides the state below COMPLETING; a restart counted already means the queue.
        let requeued = job.restarts > self.restart_count;
        match job.state {
            JobState::Running => None,
            _ if failed_alone(job) => None,
            _ if job.preempted => Some(FailureKind::Preempted),
            _ if self.has_lost_a_node() => Some(FailureKind::Node),
            JobState::Timeout | JobState::Deadline => Some(FailureKind::Timeout),
            JobState::Preempted => Some(FailureKind::Preempted),
            JobState::NodeFail | JobState::BootFail => Some(FailureKind::Node),
            _ if requeued => Some(self.why_requeued()),
            _ if job.reason == "TimeLimit" || job.time_is_up(host::mail::now_s()) => Some(FailureKind::Timeout),
            JobState::Cancelled | JobState::Completing => Some(FailureKind::Cancelled),
            _ => None,
        }
    }

    /// Whether a node of this record is dead, or found to be, since the record began.
    fn has_lost_a_node(&self) -> bool {
        let nodes = self.controller.health().nodes;
        let doomed = |h: NodeHealth| NodeHealth { dead: h.dead || h.doomed, ..h };
        !dead(&nodes.into_iter().map(doomed).collect::<Vec<_>>(), &self.since).is_empty()
    }

    /// Slurm forgets that it requeued a job for another one's sake; only accounting tells, a moment later.
    fn why_requeued(&self) -> FailureKind {
        let limit = Instant::now() + ACCOUNTED_LIMIT;
        loop {
            let lives = self.slurm.accounted(self.job).unwrap_or_default();
            let ended = lives.iter().find(|l| l.end_s.is_some_and(|end_s| end_s >= self.since.started_s.floor()));
            match ended {
                Some(life) if life.state == JobState::Preempted => return FailureKind::Preempted,
                None if Instant::now() < limit => thread::sleep(LOOK),
                _ => return FailureKind::Requeued,
            }
        }
    }
}

/// Nodes that died since the job began, or were found dead since, with when they were heard last. One that was found dead
/// before may be on its way back: Slurm has given it to us. One that has booted since then runs nothing of ours any more,
/// which Slurm need not notice, and `srun` ends with 0.
fn dead(health: &[NodeHealth], of: &Since) -> Vec<(String, f64)> {
    let (now_s, began_ago_s) = (host::mail::now_s(), of.begun.elapsed().as_secs_f64());
    let last_heard_s = |h: &NodeHealth| now_s - h.silent_s.unwrap_or(0.0);
    let is_found_since = |h: &NodeHealth| h.found_dead_s.is_some_and(|found_s| now_s - found_s >= of.started_s);
    let died = |h: &NodeHealth| h.dead && (last_heard_s(h) >= of.started_s || is_found_since(h));
    let booted_s = |h: &NodeHealth| h.booted_s.filter(|ago_s| of.counts_boots && *ago_s <= began_ago_s);
    let at_s = |h: &NodeHealth| match booted_s(h) {
        _ if died(h) => Some(last_heard_s(h)),
        booted_s => booted_s.map(|ago_s| now_s - ago_s),
    };
    health.iter().filter_map(|h| Some((h.node.clone(), at_s(h)?))).collect()
}

impl Cluster for Job {
    fn dead_nodes(&mut self) -> Vec<(String, f64)> {
        dead(&self.controller.health().nodes, &self.since)
    }

    fn suspects(&mut self) -> bool {
        self.controller
            .health()
            .nodes
            .iter()
            .filter(|h| Some(&h.node) != self.here.as_ref())
            .any(|h| !h.dead && (h.doomed || h.silent_s.is_some_and(|s| s > SUSPECT_S)))
    }

    fn cause(&mut self) -> Option<FailureKind> {
        self.asked().and_then(|job| self.cause_of(&job))
    }

    fn runs_on(&mut self) -> bool {
        self.asked().is_some_and(|job| job.state == JobState::Running && job.restarts == self.restart_count)
    }

    fn standing(&mut self) -> Standing {
        let Some(job) = self.asked() else { return Standing::Unknown };
        match self.cause_of(&job) {
            // The time that its preemption leaves it.
            None if job.state == JobState::Running && job.preempted => Standing::Ends(FailureKind::Preempted),
            None if job.state == JobState::Running && job.restarts == self.restart_count => Standing::Runs,
            None if failed_alone(&job) => Standing::FailedAlone,
            cause => cause.map_or(Standing::Unknown, Standing::Ends),
        }
    }

    fn kill_wait_s(&mut self) -> f64 {
        let told = self.slurm.config_value("KillWait").ok().flatten();
        // `30 sec`
        told.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(KILL_WAIT_S)
    }

    fn end_s(&mut self) -> Option<f64> {
        if self.job == 0 {
            return None;
        }
        let job = self.slurm.job(self.job).ok().flatten().filter(|job| job.state == JobState::Running)?;
        if self.requeues.replace(job.requeue).is_some_and(|before| before != job.requeue) {
            protocol::say!("joulepoint: {}", if job.requeue { REQUEUED } else { NOT_REQUEUED });
        }
        job.end_s.map(host::mail::of_wall_s)
    }

    fn requeue(&mut self) -> Result<(), String> {
        back_into_the_queue(TRY_PAUSE, || self.slurm.requeue(self.job)).map_err(|e| e.to_string())
    }

    fn requeue_held(&mut self) -> Result<(), String> {
        requeue_held(&self.slurm, self.job).map_err(|e| e.to_string())
    }
}

/// What a user hears when somebody has changed what becomes of a job whose node is lost.
const NOT_REQUEUED: &str =
    "Slurm does not requeue this job any more (scontrol update Requeue=0): the loss of a node ends it for good";
const REQUEUED: &str = "Slurm requeues this job again if it loses a node (scontrol update Requeue=1)";

/// Slurm's reason for the end of a job whose script had an exit code.
const BY_EXIT_CODE: &str = "NonZeroExitCode";

/// Whether Slurm says that the job's script has failed: this wrapper, which asks, is it and has not ended. slurmctld says so
/// where a slurmd refuses a launch, such as that of the life before on a node that is back.
fn failed_alone(job: &slurm::Job) -> bool {
    matches!(job.state, JobState::Failed | JobState::Completing) && job.reason == BY_EXIT_CODE
}

/// Asks a daemon without which the run would end here: one that starts again is back in seconds.
///
/// # Errors
/// The last one of its.
pub fn persistently<T, E: std::fmt::Display>(ask: impl Fn() -> Result<T, E>) -> Result<T, E> {
    for _ in 1..TRIES {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(e) => tracing::warn!(%e, "Slurm or the controller did not do what it was asked for; it is asked again"),
        }
        thread::sleep(TRY_PAUSE);
    }
    ask()
}

/// Puts a held run back, as [`back_into_the_queue`] does.
///
/// # Errors
/// Why Slurm refuses.
pub fn requeue_held(slurm: &Slurm, job: u32) -> Result<(), slurm::Error> {
    back_into_the_queue(TRY_PAUSE, || slurm.requeue_held(job))
}

/// Puts a job back into the queue, however long slurmctld does not answer: without that the job would be over, and while it
/// waits it has nothing else to do.
fn back_into_the_queue(pause: Duration, ask: impl Fn() -> Result<(), slurm::Error>) -> Result<(), slurm::Error> {
    let mut waits = false;
    for tries in 1.. {
        match ask() {
            Ok(()) => break,
            Err(e) if e.is_no_answer() => {
                if tries == SAID {
                    protocol::say!(
                        "joulepoint: Slurm does not answer ({e}): the job goes back into the queue when it does"
                    );
                    waits = true;
                }
            }
            Err(e) if tries >= TRIES => {
                protocol::say!("joulepoint: the job could not be requeued: {e}");
                return Err(e);
            }
            Err(e) => tracing::warn!(%e, "Slurm did not requeue the job; it is asked again"),
        }
        thread::sleep(pause);
    }
    if waits {
        protocol::say!("joulepoint: Slurm answers again: the job goes back into the queue");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(silent_s: f64, found_dead_s: Option<f64>) -> NodeHealth {
        NodeHealth {
            node: "n1".into(),
            url: String::new(),
            silent_s: Some(silent_s),
            slurmd_up: false,
            dead: true,
            doomed: true,
            found_dead_s,
            booted_s: None,
            job: None,
        }
    }

    fn since(ago_s: u64, counts_boots: bool) -> Since {
        let begun = Instant::now().checked_sub(Duration::from_secs(ago_s)).unwrap();
        Since { started_s: host::mail::now_s() - ago_s as f64, begun, counts_boots }
    }

    #[test]
    fn a_node_that_slurm_gives_to_a_job_before_it_is_known_to_be_dead_is_lost() {
        let is_lost = |silent_s, found_dead_s| !dead(&[node(silent_s, found_dead_s)], &since(10, false)).is_empty();
        assert!(is_lost(5.0, Some(1.0)) && is_lost(5.0, None) && is_lost(12.0, Some(7.0)));
        assert!(!is_lost(60.0, Some(50.0)) && !is_lost(60.0, None), "it may be on its way back");
    }

    #[test]
    fn a_node_that_has_booted_in_this_record_is_lost_where_boots_count() {
        let booted = |ago_s| NodeHealth { dead: false, doomed: false, booted_s: Some(ago_s), ..node(0.1, None) };
        let lost = dead(&[booted(6.0)], &since(10, true));
        assert!(matches!(&lost[..], [(node, at_s)] if node == "n1" && (host::mail::now_s() - at_s - 6.0).abs() < 0.5));
        assert!(dead(&[booted(6.0)], &since(10, false)).is_empty(), "a group may have begun there again");
        assert!(dead(&[booted(60.0)], &since(10, true)).is_empty(), "the record began after it");
    }

    #[test]
    fn a_job_waits_for_a_slurmctld_that_is_away_and_not_for_one_that_refuses() {
        let refused = |text: &str| Err(slurm::Error::Refused { command: "scontrol".into(), text: text.into() });
        let asked = |answer: &dyn Fn(u32) -> Result<(), slurm::Error>| {
            let count = std::cell::Cell::new(0);
            let done = back_into_the_queue(Duration::ZERO, || {
                count.set(count.get() + 1);
                answer(count.get())
            });
            (count.get(), done.is_ok())
        };
        let away =
            |n: u32| if n < 50 { refused("Unable to contact slurm controller (connect failure)") } else { Ok(()) };
        assert_eq!(asked(&away), (50, true));
        assert_eq!(asked(&|_| refused("Requested operation is presently disabled")), (TRIES, false));
        assert_eq!(asked(&|n| if n < 3 { refused("Job violates accounting policy") } else { Ok(()) }), (3, true));
    }
}

//! Watches over nodes and runs: takes in heartbeats, asks Slurm about our own jobs, and does what the watch says.
//!
//! What to conclude is the room `watch`'s; this room looks, keeps what must outlive the service, and acts. Everything is
//! counted on the monotonic clock; only what is stored is told by the wall.

mod acts;
mod begin;
mod looks;
mod power;

pub(crate) use begin::begin;

use crate::controller::Controller;
use anyhow::Result;
use config::Site;
use listener::{Bucket, Rate};
use parking_lot::Mutex;
use protocol::{Beat, BeatReply, Held, NodeHealth, Witness};
use slurm::{Job, JobState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{NodeWatch, OpenRun};
use watch::nodes::{Action, Heard, Known};
use watch::runs::{self, Doing};
use watch::{Limits, Nodes, Runs, SetDowns};

/// Time between two looks.
pub(crate) const LOOK: Duration = Duration::from_millis(200);

/// Longest time for which one look asks Slurm about jobs: a slow slurmctld does not keep deaths of nodes from being seen.
const ASKING: Duration = Duration::from_secs(1);

/// So many questions about jobs may come at once after a pause, as seconds' worth of `watch.questions_per_minute`.
const BURST_S: f64 = 6.0;

/// Time between two questions about all nodes while many of them are silent, s.
const ASK_OUT_S: f64 = 30.0;

/// Most silent nodes that are named where people read.
const MOST_NAMED: usize = 10;

/// Signal of a job whose script was killed.
const SIGKILL: i32 = 9;

/// What a heartbeat brought beside its place in the watch.
#[derive(Clone, Debug, Default)]
struct LastBeat {
    url: String,
    slurmd_up: bool,
    jobs: Vec<protocol::JobReading>,
}

/// The watch of a controller.
pub(crate) struct Watching {
    began: Instant,
    limits: Limits,
    nodes: Mutex<Nodes>,
    downs: Mutex<SetDowns>,
    runs: Mutex<Runs>,
    /// Slurm's last word on the jobs of open runs, and when it came, s.
    words: Mutex<BTreeMap<u32, (f64, Job)>>,
    beats: Mutex<BTreeMap<String, LastBeat>>,
    /// What heartbeats brought about, for the thread that acts.
    news: Mutex<Vec<Action>>,
    /// Nodes that are being looked at.
    looking: Mutex<BTreeSet<String>>,
    /// Nodes whose power is being taken away.
    cutting: Mutex<BTreeSet<String>>,
    /// Where slurmds are reached, as Slurm told last.
    slurmds: Mutex<BTreeMap<String, String>>,
    /// Nodes about whose slurmd Slurm is being asked.
    asking: Mutex<BTreeSet<String>>,
    out_asked_s: Mutex<f64>,
    keeping: Mutex<()>,
    /// Questions about jobs that slurmctld may still be asked.
    questions: Mutex<Bucket>,
    rate: Rate,
    power: Option<power::Controller>,
    pub(crate) asked: AtomicU64,
}

impl Watching {
    /// The watch, with what an earlier life of it has kept.
    pub(crate) fn new(site: &Site, kept: Vec<NodeWatch>) -> Watching {
        let limits = node::limits(site);
        let per_s = f64::from(site.watch.questions_per_minute) / 60.0;
        let rate = Rate { per_s, burst: (per_s * BURST_S).max(1.0) };
        let known = |k: &NodeWatch| (k.node.clone(), k.known.clone());
        let beat = |k: &NodeWatch| (k.node.clone(), LastBeat { url: k.url.clone(), slurmd_up: true, jobs: Vec::new() });
        Watching {
            began: Instant::now(),
            limits,
            nodes: Mutex::new(Nodes::new(limits, 0.0, kept.iter().map(known))),
            downs: Mutex::new(SetDowns::new(kept.iter().filter(|k| k.is_down).map(|k| k.node.clone()))),
            runs: Mutex::new(Runs::new(0.0)),
            words: Mutex::default(),
            beats: Mutex::new(kept.iter().map(beat).collect()),
            news: Mutex::default(),
            looking: Mutex::default(),
            cutting: Mutex::default(),
            slurmds: Mutex::default(),
            asking: Mutex::default(),
            out_asked_s: Mutex::new(f64::NEG_INFINITY),
            keeping: Mutex::default(),
            questions: Mutex::new(Bucket::full(rate)),
            rate,
            power: power::Controller::new(&site.watch),
            asked: AtomicU64::new(0),
        }
    }

    /// Seconds since this service began, on the monotonic clock.
    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Whether a life of a run's job ends with a node, by Slurm's last word.
    fn ends_with(&self, run: &OpenRun, node: &str) -> bool {
        self.words.lock().get(&run.job).is_some_and(|(_, job)| ends_with(job, run.restart_count, node))
    }

    /// How many nodes are heard.
    pub(crate) fn heard(&self) -> usize {
        self.nodes.lock().heard_now(self.now_s()).count()
    }

    /// Nodes that are heard, for the time that they were watched.
    pub(crate) fn heard_names(&self) -> Vec<String> {
        self.nodes.lock().heard_now(self.now_s()).map(str::to_string).collect()
    }

    /// Nodes from which heartbeats are to come from now on.
    pub(crate) fn wait_for(&self, names: &[String]) {
        self.nodes.lock().wait_for(self.now_s(), names);
    }

    /// Runs that were hit by a death, or are being helped.
    pub(crate) fn hit(&self, runs: &[OpenRun]) {
        self.runs.lock().hit(self.now_s(), runs.iter().map(|r| r.job));
    }

    /// Whether a node is heard, has its slurmd, and nothing speaks against it.
    pub(crate) fn is_well(&self, node: &str) -> bool {
        self.nodes.lock().is_well(self.now_s(), node)
    }

    /// Energy that a job has used on a node, as its last heartbeat told, J.
    pub(crate) fn joules(&self, node: &str, job: u32) -> Option<f64> {
        self.beats.lock().get(node)?.jobs.iter().find(|r| r.job == job).map(|r| r.joules)
    }

    /// A run's wrapper waits for news of it, until the value is dropped.
    pub(crate) fn attend(self: &std::sync::Arc<Self>, job: u32) -> Attending {
        self.runs.lock().attended(self.now_s(), job);
        Attending { watching: self.clone(), job, has_answered: false }
    }

    /// Health of some nodes, with the last counters of a job.
    pub(crate) fn health(&self, names: &[String], job: u32) -> Vec<NodeHealth> {
        let now_s = self.now_s();
        let (nodes, downs, beats) = (self.nodes.lock(), self.downs.lock(), self.beats.lock());
        let of = |name: &String| {
            let beat = beats.get(name).filter(|_| nodes.silent_s(now_s, name).is_some());
            let doomed = nodes.is_dead(name);
            NodeHealth {
                node: name.clone(),
                url: beat.map(|b| b.url.clone()).unwrap_or_default(),
                silent_s: nodes.dead_for_s(now_s, name).or(nodes.silent_s(now_s, name)),
                slurmd_up: beat.is_none_or(|b| b.slurmd_up),
                dead: downs.is_down(name) && nodes.is_fenced(now_s, name),
                doomed,
                job: beat.and_then(|b| b.jobs.iter().find(|j| j.job == job).cloned()),
            }
        };
        names.iter().map(of).collect()
    }

    /// How nodes stand, for people: how many are heard, and each that is not.
    pub(crate) fn in_words(&self) -> String {
        let now_s = self.now_s();
        let (nodes, downs) = (self.nodes.lock(), self.downs.lock());
        let mut text = format!("{} heard", nodes.heard_now(now_s).count());
        let silent: Vec<(&str, &str)> = nodes.silent(now_s).collect();
        for (name, stands) in silent.iter().take(MOST_NAMED) {
            let down = downs.stands(name).map(|d| format!(", {d}")).unwrap_or_default();
            text.push_str(&format!("; {name} {stands}{down}"));
        }
        if silent.len() > MOST_NAMED {
            text.push_str(&format!("; and {} more", silent.len() - MOST_NAMED));
        }
        if nodes.is_crowd(now_s) {
            text.push_str("; so many are silent that none is taken for dead");
        }
        text
    }
}

/// A wrapper that waits for news of its run; it has gone away if this is dropped without an answer.
pub(crate) struct Attending {
    watching: std::sync::Arc<Watching>,
    job: u32,
    has_answered: bool,
}

impl Attending {
    /// It gets its answer, and will ask again.
    pub(crate) fn answered(mut self) {
        self.has_answered = true;
    }
}

impl Drop for Attending {
    fn drop(&mut self) {
        if !self.has_answered {
            self.watching.runs.lock().left(self.watching.now_s(), self.job);
        }
    }
}

impl Controller {
    /// Takes in a heartbeat; what the node is told, and whether what is known of it is to be kept before.
    pub(crate) fn heard(&self, beat: &Beat) -> (BeatReply, bool) {
        let watching = &self.watching;
        let now_s = watching.now_s();
        let heard = Heard {
            node: beat.node.clone(),
            boot_id: beat.boot_id.clone(),
            slurmd_up: beat.slurmd_up,
            epoch: beat.epoch,
            jobs: beat.jobs.iter().map(|j| j.job).collect(),
        };
        let last = LastBeat { url: beat.url.clone(), slurmd_up: beat.slurmd_up, jobs: beat.jobs.clone() };
        watching.beats.lock().insert(beat.node.clone(), last);
        let (actions, word, has_changed) = {
            let mut nodes = watching.nodes.lock();
            let actions = nodes.heard(now_s, heard);
            let (word, has_changed) = nodes.word(now_s, &beat.node);
            (actions, word, has_changed)
        };
        let must_keep = has_changed || actions.iter().any(|a| matches!(a, Action::Keep { .. }));
        watching.news.lock().extend(actions.into_iter().filter(|a| !matches!(a, Action::Keep { .. })));
        let beats = watching.beats.lock();
        let url = |node: &String| beats.get(node).map(|b| b.url.clone()).unwrap_or_default();
        let reply = BeatReply {
            held: word.held,
            fence: word.ended.iter().map(|of| of.job).collect(),
            ended: word.ended,
            epoch: word.epoch,
            witnesses: word.witnesses.iter().map(|node| Witness { node: node.clone(), url: url(node) }).collect(),
            capabilities: None,
        };
        (reply, must_keep)
    }

    /// Writes down what must outlive this service of a node, before anything rests on it.
    pub(crate) fn keep_node(&self, node: &str) -> store::Result<()> {
        self.keep_nodes(&[node])
    }

    /// Likewise of several.
    pub(crate) fn keep_nodes(&self, nodes: &[&str]) -> store::Result<()> {
        // What is read first must not be written last.
        let _keeping = self.watching.keeping.lock();
        let watched = |node: &&str| {
            let known: Known = self.watching.nodes.lock().known(node).cloned()?;
            let is_down = self.watching.downs.lock().is_down_by_us(node);
            let url = self.watching.beats.lock().get(*node).map(|b| b.url.clone()).unwrap_or_default();
            Some(NodeWatch { node: node.to_string(), known, is_down, url })
        };
        let watched: Vec<NodeWatch> = nodes.iter().filter_map(watched).collect();
        self.store.lock().keep_nodes(&watched)
    }

    /// Looks at everything once, and does what follows.
    pub(crate) fn watch_once(self: &std::sync::Arc<Self>) -> Result<()> {
        let watching = &self.watching;
        let runs = self.reader.lock().open_runs_kept()?;
        let now_s = watching.now_s();
        let mut actions = std::mem::take(&mut *watching.news.lock());
        actions.extend(watching.nodes.lock().look(now_s));
        if watching.nodes.lock().is_crowd(now_s) {
            self.ask_who_is_out(now_s);
        }
        self.act_on_nodes(actions);
        // First: Slurm requeues the jobs of a node that is down at once, and one that we requeue waits for its epilog there.
        self.set_down_due(&runs);
        let asked = self.ask_about_jobs(&runs);
        self.note_held(&runs);
        asked
    }

    /// Asks Slurm about those of our own jobs to which something may have happened, and helps them; no more often than
    /// the site allows, however many there are.
    fn ask_about_jobs(self: &std::sync::Arc<Self>, runs: &[OpenRun]) -> Result<()> {
        let watching = &self.watching;
        let known: Vec<runs::Run> = runs.iter().map(run).collect();
        let open: BTreeSet<u32> = known.iter().map(|r| r.job).collect();
        watching.words.lock().retain(|job, _| open.contains(job));
        let due = watching.runs.lock().due(watching.now_s(), &known, &watching.nodes.lock());
        let begun = Instant::now();
        let mut asked = Ok(());
        for job in due {
            let may_ask = watching.questions.lock().take(watching.now_s(), watching.rate, 1.0);
            if !may_ask || begun.elapsed() > ASKING {
                break;
            }
            let answer = self.slurm.job(job);
            watching.asked.fetch_add(1, Ordering::Relaxed);
            let now_s = watching.now_s();
            match answer {
                Ok(answer) => self.hear_of(now_s, job, answer, runs.iter().zip(&known).filter(|(r, _)| r.job == job)),
                Err(e) => {
                    // Whatever it is about this one job, the others are asked about.
                    watching.runs.lock().unanswered(now_s, job);
                    asked = Err(e.into());
                }
            }
        }
        asked
    }

    /// Does what follows from Slurm's word on a job for the runs that are of it.
    fn hear_of<'a>(
        self: &std::sync::Arc<Self>,
        now_s: f64,
        job: u32,
        answer: Option<Job>,
        of: impl Iterator<Item = (&'a OpenRun, &'a runs::Run)>,
    ) {
        let watching = &self.watching;
        let word = answer.as_ref().map(|j| word(j, listener::now_s()));
        match answer {
            Some(answer) => drop(watching.words.lock().insert(job, (now_s, answer))),
            None => drop(watching.words.lock().remove(&job)),
        }
        for (open, known) in of {
            let action = watching.runs.lock().answered(now_s, known, word.as_ref(), &watching.nodes.lock());
            if let Some(action) = action {
                self.act_on_run(open, action);
            }
        }
    }

    /// Notes which protected jobs hold which nodes, and which runs are their owners' by Slurm's word.
    fn note_held(&self, runs: &[OpenRun]) {
        let words = self.watching.words.lock();
        let theirs = |r: &&OpenRun| words.get(&r.job).is_some_and(|(_, j)| j.uid == r.uid);
        let mut held: BTreeMap<String, Vec<Held>> = BTreeMap::new();
        for run in runs.iter().filter(theirs) {
            let Some((_, job)) = words.get(&run.job) else { continue };
            if job.state != JobState::Running || job.restarts != run.restart_count {
                continue;
            }
            // Slurm's short record has the sum only: the nodes of a job are mostly alike.
            let cpus = job.num_cpus.div_ceil(job.nodes.len().max(1) as u32);
            for node in &job.nodes {
                let holds = Held { job: run.job, restart_count: run.restart_count, cpus };
                held.entry(node.clone()).or_default().push(holds);
            }
        }
        let open = runs.iter().filter(theirs).cloned().collect();
        drop(words);
        *self.open.lock() = std::sync::Arc::new(open);
        self.watching.nodes.lock().set_held(held);
    }

    /// Asks Slurm which nodes nobody misses, while so many are silent that it matters; the only question about all nodes.
    fn ask_who_is_out(&self, now_s: f64) {
        let mut asked_s = self.watching.out_asked_s.lock();
        if now_s - *asked_s < ASK_OUT_S {
            return;
        }
        *asked_s = now_s;
        match self.slurm.nodes() {
            Ok(nodes) => {
                let is_out = |n: &&slurm::Node| {
                    n.state == "DOWN" || n.has_flag("POWERED_DOWN") || n.has_flag("DRAIN") && n.state == "IDLE"
                };
                let out = nodes.iter().filter(is_out).map(|n| n.name.clone()).collect();
                self.watching.nodes.lock().set_out(&out);
            }
            Err(e) => tracing::debug!(%e, "Slurm does not say which nodes are out of service"),
        }
    }
}

fn run(open: &OpenRun) -> runs::Run {
    runs::Run {
        job: open.job,
        restart_count: open.restart_count,
        uid: open.uid,
        nodes: open.nodes.clone(),
        is_requeued: open.record_state == "requeued",
        is_running: open.record_state == "running",
    }
}

/// What a job is doing, by Slurm's word at `now_s`.
fn word(job: &Job, now_s: f64) -> runs::Job {
    let doing = match job.state {
        // Its nodes may still boot for it: as little is to be done as while its end is cleaned up.
        JobState::Running if job.has_flag("COMPLETING") || job.has_flag("CONFIGURING") => Doing::Completing,
        JobState::Running => Doing::Running,
        JobState::Completing => Doing::Completing,
        JobState::Suspended => Doing::Suspended,
        JobState::Pending if job.reason == "BeginTime" || job.eligible_s.is_some_and(|at_s| at_s > now_s + 1.0) => {
            Doing::Delayed
        }
        JobState::Pending => Doing::Waiting,
        JobState::Completed => Doing::Completed,
        JobState::Cancelled => Doing::Cancelled,
        JobState::Timeout | JobState::Deadline => Doing::Timeout,
        JobState::Failed if job.exit.signal == SIGKILL || job.exit.code == 128 + SIGKILL => Doing::Killed,
        _ => Doing::Failed,
    };
    runs::Job {
        uid: job.uid,
        doing,
        batch: job.batch,
        batch_host: job.batch_host.clone(),
        nodes: job.nodes.clone(),
        requeue: job.requeue,
        began_ago_s: job.start_s.map(|at_s| (now_s - at_s).max(0.0)),
    }
}

/// Whether a life of a job ends with a node: its script is there, and Slurm requeues it. Another life may be elsewhere.
fn ends_with(job: &Job, restart_count: u32, node: &str) -> bool {
    let is_requeued = job.batch && job.requeue;
    is_requeued && job.restarts == restart_count && job.batch_host.as_deref() == Some(node)
}

#[cfg(test)]
mod tests {
    use super::ends_with;

    #[test]
    fn a_life_ends_with_the_node_of_its_own_script_if_slurm_requeues_it() {
        let job = |more: &str| {
            let text = "JobId=7 JobName=j UserId=u(9) GroupId=g(9) JobState=RUNNING NodeList=n[1-2] BatchHost=n1";
            slurm::parse_job(&format!("{text} {more}"), 7).expect("understood").expect("a job")
        };
        let usual = job("Restarts=1 BatchFlag=1 Requeue=1");
        assert!(ends_with(&usual, 1, "n1"));
        assert!(!ends_with(&usual, 1, "n2"), "its script lives");
        assert!(!ends_with(&usual, 2, "n1"), "the word is of the life before");
        assert!(!ends_with(&job("Restarts=1 BatchFlag=0 Requeue=1"), 1, "n1"), "its script is elsewhere");
        assert!(!ends_with(&job("Restarts=1 BatchFlag=1 Requeue=0"), 1, "n1"), "it may go on without the node");
    }
}

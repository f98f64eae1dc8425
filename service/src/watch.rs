//! Decides from heartbeats and Slurm's job list what has to be done: which node is dead, which job must be helped.
//!
//! Pure: time and observations are arguments, acts are the answer. `controller.rs` carries them out.

use crate::store::OpenRun;
use protocol::{Beat, Held, NodeHealth};
use slurm::{Job, JobState};
use std::collections::BTreeMap;

/// How long a job may look ended before its run is closed without its wrapper's word, s.
const LAST_WORD_S: f64 = 5.0;

/// How long slurmctld may not know a job before its run is closed, s.
const FORGOTTEN_S: f64 = 60.0;

/// Time between two tries of the same help, s.
const AGAIN_S: f64 = 5.0;

/// How long after a node's death a requeued job is taken to be requeued because of it, s.
const BECAUSE_S: f64 = 900.0;

/// From this number of nodes on, most of them do not die at one moment.
const CROWD: usize = 4;

/// How many times longer silence may last when most nodes are silent.
const CROWD_PATIENCE: f64 = 10.0;

/// Signal of a job whose script was killed.
const SIGKILL: i32 = 9;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Look whether the node's slurmd answers.
    Verify {
        /// Node name.
        node: String,
    },
    /// Put a node that we had set down back into service.
    Resume {
        /// Node name.
        node: String,
    },
    /// Let a requeued job start now.
    StartNow {
        /// The run.
        run: OpenRun,
    },
    /// Put a job back into the queue that nobody else would.
    Requeue {
        /// The run.
        run: OpenRun,
        /// What happened.
        reason: String,
        /// Whether its wrapper was killed while its node lived.
        wrapper_killed: bool,
    },
    /// Close a run whose wrapper can no longer do it.
    Close {
        /// The run.
        run: OpenRun,
        /// How it ended.
        state: &'static str,
    },
}

/// What is known of one node.
#[derive(Clone, Debug)]
struct Node {
    /// The last; none yet of a node that is waited for since `heard_s`.
    beat: Option<Beat>,
    heard_s: f64,
    slurmd_gone_s: Option<f64>,
    dead: bool,
    verified_s: f64,
    is_back: bool,
}

impl Node {
    fn awaited(now_s: f64) -> Node {
        Node { beat: None, heard_s: now_s, slurmd_gone_s: None, dead: false, verified_s: 0.0, is_back: false }
    }

    fn beats(&self, now_s: f64, detect_s: f64) -> bool {
        self.beat.is_some() && !self.dead && now_s - self.heard_s <= detect_s
    }
}

/// The watch over nodes and jobs.
#[derive(Debug)]
pub struct Watch {
    detect_s: f64,
    started_s: f64,
    /// Whether any node was heard or answered since the start.
    hears: bool,
    nodes: BTreeMap<String, Node>,
    odd_since_s: BTreeMap<u32, f64>,
    helped_s: BTreeMap<u32, f64>,
    last_death_s: BTreeMap<u32, f64>,
    held: BTreeMap<String, Vec<Held>>,
}

impl Watch {
    /// A watch that takes a node for silent after `detect_s`.
    pub fn new(detect_s: f64, now_s: f64) -> Watch {
        Watch {
            detect_s,
            started_s: now_s,
            hears: false,
            nodes: BTreeMap::new(),
            odd_since_s: BTreeMap::new(),
            helped_s: BTreeMap::new(),
            last_death_s: BTreeMap::new(),
            held: BTreeMap::new(),
        }
    }

    /// Takes in a heartbeat. The answer: which jobs hold the node, and which must not go on there.
    pub fn heard(&mut self, now_s: f64, beat: Beat) -> (Vec<Held>, Vec<u32>) {
        self.hears = true;
        let name = beat.node.clone();
        let gone_since = |before: Option<f64>| if beat.slurmd_up { None } else { before.or(Some(now_s)) };
        let node = self.nodes.entry(name.clone()).or_insert_with(|| Node::awaited(now_s));
        node.slurmd_gone_s = gone_since(node.slurmd_gone_s);
        node.heard_s = now_s;
        if node.dead && beat.slurmd_up {
            // Slurm may use it again at once, so nothing of what begins there now may be taken for lost.
            node.dead = false;
            node.is_back = true;
        }
        // Only runs that were hit: jobs that never asked for protection are left to Slurm.
        let hit = |job: &u32| self.last_death_s.contains_key(job);
        let fence = if node.dead { beat.jobs.iter().map(|j| j.job).filter(hit).collect() } else { Vec::new() };
        node.beat = Some(beat);
        let held = if node.dead { Vec::new() } else { self.held.get(&name).cloned().unwrap_or_default() };
        (held, fence)
    }

    /// How many nodes beat and are not dead.
    pub fn beating(&self, now_s: f64) -> usize {
        self.nodes.values().filter(|n| n.beats(now_s, self.detect_s)).count()
    }

    /// Nodes that beat, for the time that they were watched.
    pub fn watched(&self, now_s: f64) -> Vec<String> {
        let beating = self.nodes.iter().filter(|(_, n)| n.beats(now_s, self.detect_s));
        beating.map(|(name, _)| name.clone()).collect()
    }

    /// Health of some nodes, with the last counters of a job.
    pub fn health(&self, now_s: f64, nodes: &[String], job: u32) -> Vec<NodeHealth> {
        let of = |name: &String| {
            let known = self.nodes.get(name);
            let beat = known.and_then(|n| n.beat.as_ref());
            NodeHealth {
                node: name.clone(),
                url: beat.map(|b| b.url.clone()).unwrap_or_default(),
                silent_s: known.filter(|_| beat.is_some()).map(|n| now_s - n.heard_s),
                slurmd_up: beat.is_none_or(|b| b.slurmd_up),
                dead: known.is_some_and(|n| n.dead),
                job: beat.and_then(|b| b.jobs.iter().find(|j| j.job == job).cloned()),
            }
        };
        nodes.iter().map(of).collect()
    }

    /// Energy that a job has used on a node, as its last heartbeat told, J.
    pub fn joules(&self, node: &str, job: u32) -> Option<f64> {
        let readings = &self.nodes.get(node)?.beat.as_ref()?.jobs;
        readings.iter().find(|r| r.job == job).map(|r| r.joules)
    }

    /// A look at a node said that its slurmd answers: one that never beat has no node service, and is not waited for.
    pub fn answers(&mut self, node: &str) {
        self.hears = true;
        self.nodes.retain(|name, n| name != node || n.beat.is_some());
    }

    /// A look at a node said that its slurmd does not answer: it is dead. The moment of its last heartbeat; none as long
    /// as nobody at all was heard: then it is more likely this host that has no network yet.
    pub fn dead(&mut self, node: &str) -> Option<f64> {
        if !self.hears {
            return None;
        }
        let node = self.nodes.get_mut(node)?;
        node.dead = true;
        node.is_back = false;
        Some(node.slurmd_gone_s.unwrap_or(node.heard_s))
    }

    /// Runs that were hit by a death.
    pub fn hit(&mut self, now_s: f64, runs: &[OpenRun]) {
        self.last_death_s.extend(runs.iter().map(|r| (r.job, now_s)));
    }

    /// Looks at everything once.
    pub fn look(&mut self, now_s: f64, runs: &[OpenRun], jobs: &BTreeMap<u32, Job>) -> Vec<Act> {
        self.held = held(runs, jobs);
        self.wait_for_older(now_s, jobs);
        self.forget_silent(runs);
        let mut acts = self.look_at_nodes(now_s);
        for run in runs {
            if let Some(act) = self.look_at_run(now_s, run, jobs.get(&run.job)) {
                acts.push(act);
            }
        }
        let open = |job: &u32| runs.iter().any(|r| r.job == *job);
        self.odd_since_s.retain(|job, _| open(job));
        self.helped_s.retain(|job, _| open(job));
        self.last_death_s.retain(|job, _| open(job));
        acts
    }

    /// Whether a node beats, has its slurmd, and was not found dead.
    pub fn is_well(&self, now_s: f64, node: &str) -> bool {
        let has_slurmd = |n: &Node| n.beat.as_ref().is_some_and(|b| b.slurmd_up);
        self.nodes.get(node).is_some_and(|n| n.beats(now_s, self.detect_s) && has_slurmd(n))
    }

    /// Nodes are to beat from now on, though they were not heard of yet: one that died while nobody listened never will.
    pub fn wait_for<'a>(&mut self, now_s: f64, nodes: impl IntoIterator<Item = &'a String>) {
        for name in nodes {
            self.nodes.entry(name.clone()).or_insert_with(|| Node::awaited(now_s));
        }
    }

    /// Waits for the nodes of runs that began before this service did.
    fn wait_for_older(&mut self, now_s: f64, jobs: &BTreeMap<u32, Job>) {
        let is_older =
            |held: &Held| jobs.get(&held.job).and_then(|j| j.start_s).is_some_and(|start_s| start_s < self.started_s);
        let older = self.held.iter().filter(|(_, held)| held.iter().any(is_older));
        let names: Vec<String> = older.map(|(name, _)| name.clone()).collect();
        self.wait_for(now_s, &names);
    }

    /// Forgets dead nodes that never beat, as soon as no run has them: nobody would say that they are back.
    fn forget_silent(&mut self, runs: &[OpenRun]) {
        let has = |name: &String| self.held.contains_key(name) || runs.iter().any(|r| r.nodes.contains(name));
        self.nodes.retain(|name, n| n.beat.is_some() || !n.dead || has(name));
    }

    /// How long a node may be silent: longer when most of them fall silent together, since then it is more likely
    /// this host that is cut off, and setting the whole cluster down would end every job.
    fn patience_s(&self, now_s: f64) -> f64 {
        let alive: Vec<&Node> = self.nodes.values().filter(|n| !n.dead).collect();
        let silent = alive.iter().filter(|n| now_s - n.heard_s > self.detect_s).count();
        if alive.len() >= CROWD && silent * 2 > alive.len() { self.detect_s * CROWD_PATIENCE } else { self.detect_s }
    }

    fn look_at_nodes(&mut self, now_s: f64) -> Vec<Act> {
        let mut acts = Vec::new();
        let patience_s = self.patience_s(now_s);
        for (name, node) in &mut self.nodes {
            let silent = now_s - node.heard_s > patience_s;
            let without_slurmd = node.slurmd_gone_s.is_some_and(|since| now_s - since > self.detect_s);
            if std::mem::take(&mut node.is_back) {
                acts.push(Act::Resume { node: name.clone() });
            } else if node.dead {
                // Nothing can be done for it.
            } else if (silent || without_slurmd) && now_s - node.verified_s >= self.detect_s {
                node.verified_s = now_s;
                acts.push(Act::Verify { node: name.clone() });
            }
        }
        acts
    }

    fn look_at_run(&mut self, now_s: f64, run: &OpenRun, job: Option<&Job>) -> Option<Act> {
        let Some(job) = job else {
            return self.lasting(now_s, run, FORGOTTEN_S).then(|| Act::Close { run: run.clone(), state: "unknown" });
        };
        if job.uid != run.uid {
            // The id is used again, or the run claims somebody else's job: nothing is done to it.
            return self.lasting(now_s, run, LAST_WORD_S).then(|| Act::Close { run: run.clone(), state: "unknown" });
        }
        let running = job.state == JobState::Running && !job.has_flag("COMPLETING");
        if running || job.state == JobState::Completing {
            self.odd_since_s.remove(&run.job);
            let died_s = |n: &Node| n.dead.then(|| n.slurmd_gone_s.unwrap_or(n.heard_s));
            let died_s = job.batch_host.as_ref().and_then(|h| self.nodes.get(h)).and_then(died_s);
            // A job that began after the death is on a node that is just coming back.
            let died = died_s.is_some_and(|died_s| job.start_s.is_none_or(|start_s| start_s < died_s));
            // Slurm has taken it out of a job that runs on without it: we may have died before we could help.
            let taken_out = |h: &String| run.nodes.contains(h) && !job.nodes.contains(h);
            let orphaned = died || (job.batch && job.batch_host.as_ref().is_some_and(taken_out));
            return (running && orphaned && self.may_help(now_s, run)).then(|| Act::Requeue {
                run: run.clone(),
                reason: "the node of the batch script died; the job would stay without a script for ever".into(),
                wrapper_killed: false,
            });
        }
        if job.state == JobState::Pending {
            self.odd_since_s.remove(&run.job);
            let ours = run.record_state == "requeued"
                || self.last_death_s.get(&run.job).is_some_and(|at| now_s - at < BECAUSE_S);
            let waits = job.eligible_s.is_some_and(|at| at > now_s + 1.0) || job.reason == "BeginTime";
            return (ours && waits && self.may_help(now_s, run)).then(|| Act::StartNow { run: run.clone() });
        }
        if !job.state.is_over() || !self.lasting(now_s, run, LAST_WORD_S) {
            return None;
        }
        let state = match job.state {
            JobState::Completed => "completed",
            JobState::Cancelled => "cancelled",
            JobState::Timeout | JobState::Deadline => "timeout",
            JobState::Failed if job.exit.signal == SIGKILL || job.exit.code == 128 + SIGKILL => {
                return (job.requeue && self.may_help(now_s, run)).then(|| Act::Requeue {
                    run: run.clone(),
                    reason: "the wrapper was killed".into(),
                    wrapper_killed: true,
                });
            }
            _ => "failed",
        };
        Some(Act::Close { run: run.clone(), state })
    }

    /// Whether something odd about a job has lasted.
    fn lasting(&mut self, now_s: f64, run: &OpenRun, limit_s: f64) -> bool {
        // After a restart of ours, wrappers get time to deliver what they kept.
        let since_s = *self.odd_since_s.entry(run.job).or_insert(now_s);
        now_s - since_s >= limit_s && now_s - self.started_s >= limit_s
    }

    fn may_help(&mut self, now_s: f64, run: &OpenRun) -> bool {
        let last_s = self.helped_s.get(&run.job).copied().unwrap_or(f64::NEG_INFINITY);
        if now_s - last_s < AGAIN_S {
            return false;
        }
        self.helped_s.insert(run.job, now_s);
        true
    }
}

/// Which protected jobs hold which nodes.
fn held(runs: &[OpenRun], jobs: &BTreeMap<u32, Job>) -> BTreeMap<String, Vec<Held>> {
    let mut held: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    for run in runs {
        let Some(job) = jobs
            .get(&run.job)
            .filter(|j| j.uid == run.uid && j.state == JobState::Running && j.restarts == run.restart_count)
        else {
            continue;
        };
        // Slurm's short record has the sum only: the nodes of a job are mostly alike.
        let cpus = job.num_cpus.div_ceil(job.nodes.len().max(1) as u32);
        for node in &job.nodes {
            let holds = Held { job: run.job, restart_count: run.restart_count, cpus };
            held.entry(node.clone()).or_default().push(holds);
        }
    }
    held
}

#[cfg(test)]
mod histories;
#[cfg(test)]
mod tests;

//! What is known of nodes and runs, from heartbeats and from Slurm.

use super::marks::Marks;
use super::power;
use config::Site;
use listener::{Bucket, Rate};
use parking_lot::Mutex;
use protocol::{Beat, BeatReply, NodeHealth, Witness};
use slurm::Job;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use store::{NodeWatch, OpenRun, Store};
use watch::nodes::{Action, Heard, Known, NotOff};
use watch::{Deaths, Limits, Nodes, Runs, SetDowns};

/// So many questions about jobs may come at once after a pause, as seconds' worth of `watch.questions_per_minute`.
const BURST_S: f64 = 6.0;

/// Slurm may hear of a node's end so much earlier than its last heartbeat, s.
const EARLY_WORD_S: f64 = 5.0;

/// Most silent nodes that are named where people read.
const MOST_NAMED: usize = 10;

/// What a heartbeat brought beside its place in the watch.
#[derive(Clone, Debug, Default)]
pub(super) struct LastBeat {
    pub(super) url: String,
    slurmd_up: bool,
    jobs: Vec<protocol::JobReading>,
}

/// The watch of a controller.
pub(crate) struct Watching {
    began: Instant,
    pub(super) limits: Limits,
    pub(super) nodes: Mutex<Nodes>,
    pub(super) downs: Mutex<SetDowns>,
    pub(super) runs: Mutex<Runs>,
    /// Slurm's last word on the jobs of open runs, and when it came, s.
    pub(super) words: Mutex<BTreeMap<u32, (f64, Job)>>,
    /// Nodes that jobs have given back while they lived: by job and SLURM_RESTART_COUNT.
    pub(super) given_back: Mutex<BTreeMap<(u32, u32), BTreeSet<String>>>,
    pub(super) beats: Mutex<BTreeMap<String, LastBeat>>,
    /// What heartbeats brought about, for the thread that looks.
    pub(super) news: Mutex<Vec<Action>>,
    pub(super) deaths: Mutex<Deaths>,
    /// One at a time notes them.
    pub(super) noting: Mutex<()>,
    /// Nodes that are being looked at.
    pub(super) looking: Marks,
    /// Nodes whose power is being taken away.
    pub(super) cutting: Marks,
    /// Where slurmds are reached, as Slurm told last.
    pub(super) slurmds: Mutex<BTreeMap<String, String>>,
    /// When Slurm was asked for some that a look did not know, s.
    pub(super) slurmds_asked_s: Mutex<f64>,
    /// Nodes of which that may have changed.
    pub(super) moved: Mutex<BTreeSet<String>>,
    pub(super) out_asked_s: Mutex<f64>,
    /// Until when Slurm is not asked about dead nodes again, s.
    pub(super) judging: Mutex<f64>,
    keeping: Mutex<()>,
    /// Questions about jobs that slurmctld may still be asked.
    pub(super) questions: Mutex<Bucket>,
    pub(super) rate: Rate,
    pub(super) power: Option<power::Controller>,
    pub(crate) asked: AtomicU64,
    /// Open runs whose job Slurm knows as their owner's, at the last look, with all their nodes.
    pub(crate) open: Mutex<Arc<Vec<OpenRun>>>,
    /// The connection that writes.
    store: Arc<Mutex<Store>>,
}

impl Watching {
    /// The watch, with what an earlier life of it has kept.
    pub(crate) fn new(site: &Site, store: Arc<Mutex<Store>>) -> store::Result<Watching> {
        let kept = store.lock().kept_nodes()?;
        let limits = node::limits(site);
        let per_s = f64::from(site.watch.questions_per_minute) / 60.0;
        let rate = Rate { per_s, burst: (per_s * BURST_S).max(1.0) };
        let known = |k: &NodeWatch| (k.node.clone(), k.known.clone());
        let beat = |k: &NodeWatch| (k.node.clone(), LastBeat { url: k.url.clone(), slurmd_up: true, jobs: Vec::new() });
        Ok(Watching {
            began: Instant::now(),
            limits,
            nodes: Mutex::new(Nodes::new(limits, 0.0, kept.iter().map(known)).resting(site.node.idle_beat_s)),
            downs: Mutex::new(SetDowns::new(kept.iter().filter(|k| k.is_down).map(|k| k.node.clone()))),
            runs: Mutex::new(Runs::new(0.0)),
            words: Mutex::default(),
            given_back: Mutex::default(),
            beats: Mutex::new(kept.iter().map(beat).collect()),
            news: Mutex::default(),
            deaths: Mutex::default(),
            noting: Mutex::default(),
            looking: Marks::default(),
            cutting: Marks::default(),
            slurmds: Mutex::default(),
            slurmds_asked_s: Mutex::new(f64::NEG_INFINITY),
            moved: Mutex::default(),
            out_asked_s: Mutex::new(f64::NEG_INFINITY),
            judging: Mutex::new(f64::NEG_INFINITY),
            keeping: Mutex::default(),
            questions: Mutex::new(Bucket::full(rate)),
            rate,
            power: power::Controller::new(&site.watch),
            asked: AtomicU64::new(0),
            open: Mutex::default(),
            store,
        })
    }

    /// Seconds since this service began, on the monotonic clock.
    pub(crate) fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The nodes of a run: those of its record, and those that have joined its job since, by Slurm's last word.
    pub(crate) fn nodes_of(&self, run: &OpenRun) -> Vec<String> {
        nodes_of(run, self.words.lock().get(&run.job).map(|(_, job)| job))
    }

    /// The nodes of all open runs.
    pub(super) fn used(&self) -> BTreeSet<String> {
        let mut used: BTreeSet<String> = self.open.lock().iter().flat_map(|run| run.nodes.clone()).collect();
        used.extend(self.words.lock().values().flat_map(|(_, job)| job.nodes.clone()));
        used
    }

    /// Runs with all their nodes.
    pub(super) fn whole<'a>(&self, runs: impl IntoIterator<Item = &'a OpenRun>) -> Vec<OpenRun> {
        runs.into_iter().map(|run| OpenRun { nodes: self.nodes_of(run), ..run.clone() }).collect()
    }

    /// Whether a life of a run's job ends with a node, by Slurm's last word.
    pub(super) fn ends_with(&self, run: &OpenRun, node: &str) -> bool {
        self.words.lock().get(&run.job).is_some_and(|(_, job)| ends_with(job, run.restart_count, node))
    }

    /// Slurm has told the nodes of a run's job: notes which it has given back, by `scontrol update` or to a loan. Slurm does not
    /// list them any more, and they are well and in service; those that are down it takes from jobs that may lose a node.
    pub(super) fn note_given_back(&self, run: &OpenRun, job: &Job, is_in_service: impl Fn(&str) -> bool) {
        let key = (run.job, run.restart_count);
        let before = self.given_back.lock().get(&key).cloned().unwrap_or_default();
        let has_shrunk = job.restarts == run.restart_count && (1..run.nodes.len()).contains(&job.nodes.len());
        if !has_shrunk && before.is_empty() {
            return;
        }
        let listed: BTreeSet<&String> = job.nodes.iter().collect();
        let missing = run.nodes.iter().filter(|node| has_shrunk && !listed.contains(node));
        let is_back = |node: &&String| before.contains(*node) || self.is_well(node) && is_in_service(node);
        let back: BTreeSet<String> = missing.filter(is_back).cloned().collect();
        self.given_back.lock().insert(key, back);
    }

    /// Whether a run's job has given a node back.
    pub(crate) fn has_given_back(&self, run: &OpenRun, node: &str) -> bool {
        self.given_back.lock().get(&(run.job, run.restart_count)).is_some_and(|back| back.contains(node))
    }

    /// Whether a run's job was back in the queue before a node of it fell silent so long ago, s.
    pub(crate) fn has_left(&self, run: &OpenRun, silent_s: f64) -> bool {
        self.runs.lock().waits_for_s(self.now_s(), run.job).is_some_and(|waits_s| waits_s > silent_s + EARLY_WORD_S)
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
    pub(crate) fn attend(self: &Arc<Self>, job: u32) -> Attending {
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
                found_dead_s: nodes.found_dead_s(now_s, name),
                booted_s: nodes.seen_to_boot_s(now_s, name),
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

    /// Takes in a heartbeat; what the node is told once what is known of it is kept, and whether that is to be done yet.
    pub(crate) fn take_in(&self, beat: &Beat) -> (BeatReply, bool) {
        let now_s = self.now_s();
        let heard = Heard {
            node: beat.node.clone(),
            boot_id: beat.boot_id.clone(),
            slurmd_up: beat.slurmd_up,
            epoch: beat.epoch,
            jobs: beat.jobs.iter().map(|j| j.job).collect(),
            pause_s: beat.pause_s.unwrap_or(0.0),
            up_s: beat.up_s.filter(|up_s| *up_s >= 0.0),
        };
        let last = LastBeat { url: beat.url.clone(), slurmd_up: beat.slurmd_up, jobs: beat.jobs.clone() };
        self.beats.lock().insert(beat.node.clone(), last);
        let (actions, word, must_keep) = {
            let mut nodes = self.nodes.lock();
            let actions = nodes.heard(now_s, heard);
            let word = nodes.word(now_s, &beat.node);
            (actions, word, nodes.is_unkept(&beat.node))
        };
        self.news.lock().extend(actions);
        let beats = self.beats.lock();
        let url = |node: &String| beats.get(node).map(|b| b.url.clone()).unwrap_or_default();
        let reply = BeatReply {
            held: word.held,
            fence: word.ended.iter().map(|of| of.job).collect(),
            ended: word.ended,
            epoch: word.epoch,
            witnesses: word.witnesses.iter().map(|node| Witness { node: node.clone(), url: url(node) }).collect(),
            capabilities: None,
            may_rest: true,
            boots: true,
        };
        (reply, must_keep)
    }

    /// A person says that a silent node has no power; whether that was not known.
    ///
    /// # Errors
    /// What speaks against it.
    pub(super) fn confirm_off(&self, node: &str) -> Result<bool, NotOff> {
        let mut nodes = self.nodes.lock();
        let was_off = nodes.is_off(node);
        let actions = nodes.confirmed_off(self.now_s(), node)?;
        drop(nodes);
        self.news.lock().extend(actions);
        Ok(!was_off)
    }

    /// Writes down what must outlive this service of a node, before anything rests on it. Of many that wait for that, the first
    /// writes for all.
    pub(crate) fn keep(&self, node: &str) -> store::Result<()> {
        let _keeping = self.keeping.lock();
        let is_unkept = self.nodes.lock().is_unkept(node);
        if is_unkept { self.write([]) } else { Ok(()) }
    }

    /// Writes down whatever is not kept yet, and how some nodes stand.
    pub(crate) fn keep_all(&self, and: &[&str]) -> store::Result<()> {
        let _keeping = self.keeping.lock();
        self.write(and.iter().copied())
    }

    /// What is read first must not be written last: for one that keeps.
    fn write<'a>(&self, and: impl IntoIterator<Item = &'a str>) -> store::Result<()> {
        let known: BTreeMap<String, Known> = {
            let nodes = self.nodes.lock();
            let named = and.into_iter().filter_map(|name| Some((name.to_string(), nodes.known(name)?.clone())));
            nodes.unkept().map(|(name, known)| (name.clone(), known.clone())).chain(named).collect()
        };
        if known.is_empty() {
            return Ok(());
        }
        let watched = |(node, known): (String, Known)| {
            let is_down = self.downs.lock().is_down_by_us(&node);
            let url = self.beats.lock().get(&node).map(|b| b.url.clone()).unwrap_or_default();
            NodeWatch { node, known, is_down, url }
        };
        let watched: Vec<NodeWatch> = known.into_iter().map(watched).collect();
        self.store.lock().keep_nodes(&watched)?;
        let mut nodes = self.nodes.lock();
        watched.into_iter().for_each(|of| nodes.kept(&of.node, of.known));
        Ok(())
    }
}

/// A wrapper that waits for news of its run; it has gone away if this is dropped without an answer.
pub(crate) struct Attending {
    watching: Arc<Watching>,
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

/// The nodes of a run's record, and those that Slurm tells of the same life of its job.
fn nodes_of(run: &OpenRun, told: Option<&Job>) -> Vec<String> {
    let mut nodes = run.nodes.clone();
    if let Some(job) = told.filter(|job| job.is_life(run.uid, run.restart_count) && job.nodes != run.nodes) {
        let known: BTreeSet<&String> = run.nodes.iter().collect();
        nodes.extend(job.nodes.iter().filter(|node| !known.contains(node)).cloned());
    }
    nodes
}

/// Whether a life of a job ends with a node: its script is there, and Slurm requeues it. Another life may be elsewhere.
fn ends_with(job: &Job, restart_count: u32, node: &str) -> bool {
    let is_requeued = job.batch && job.requeue;
    is_requeued && job.restarts == restart_count && job.batch_host.as_deref() == Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_joined_a_job_later_is_the_runs_for_the_same_life() {
        let key = protocol::RunKey { cluster: "c".into(), run: "7.1".into() };
        let nodes = ["n1", "n3"].map(str::to_string).to_vec();
        let (record_state, protection) = ("running".to_string(), String::new());
        let run = OpenRun { key, uid: 9, job: 7, restart_count: 1, nodes, record_state, protection };
        let text = "JobId=7 JobName=j UserId=u(9) GroupId=g(9) JobState=RUNNING NodeList=n1,n9 Restarts=1";
        let job = slurm::parse_job(text, 7).expect("understood").expect("a job");
        assert_eq!(nodes_of(&run, Some(&job)), ["n1", "n3", "n9"]);
        assert_eq!(nodes_of(&run, None), run.nodes);
        for other in [OpenRun { restart_count: 2, ..run.clone() }, OpenRun { uid: 10, ..run.clone() }] {
            assert_eq!(nodes_of(&other, Some(&job)), run.nodes, "the word is of another life");
        }
    }

    #[test]
    fn a_node_hears_nothing_that_the_store_does_not_hold_however_often_it_asks() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = Arc::new(Mutex::new(Store::open(&dir.path().join("store.sqlite")).expect("a store")));
        let watching = Watching::new(&Site::default(), store.clone()).expect("a watch");
        let beat: Beat = serde_json::from_value(serde_json::json!({
            "version": protocol::VERSION, "node": "n1", "at_s": 0.0, "started_s": 0.0, "url": "http://n1:1",
            "slurmd_up": true, "node_joules": 0.0, "source": "model", "jobs": [], "boot_id": "b", "epoch": 0
        }))
        .expect("a heartbeat");
        let rename = |from: &str, to: &str| {
            let renamed = store.lock().connection().execute(&format!("ALTER TABLE {from} RENAME TO {to}"), &[]);
            renamed.expect("renamed");
        };
        rename("node_watch", "away");
        for _ in 0..3 {
            assert!(watching.take_in(&beat).1, "to be kept before it is said");
            watching.keep("n1").expect_err("the store has no such table");
            watching.keep_all(&[]).expect_err("nor then");
        }
        rename("away", "node_watch");
        watching.keep("n1").expect("kept");
        assert!(!watching.take_in(&beat).1);
        let kept = store.lock().kept_nodes().expect("read");
        assert_eq!(kept.iter().map(|k| k.known.boot_id.as_str()).collect::<Vec<_>>(), ["b"]);
    }

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

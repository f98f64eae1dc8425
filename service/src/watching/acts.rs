//! Does what the watch says: sets nodes down and back in service, requeues and starts jobs, closes runs.

use super::looks::Looks;
use super::power;
use super::state::Watching;
use crate::accounting::Accounting;
use anyhow::{Context, Result, anyhow, bail};
use audit::{Act, By};
use broker::Broker;
use listener::now_s;
use orders::Orders;
use parking_lot::Mutex;
use protocol::{FailureKind, Incarnation};
use slurm::{Job, JobState, Slurm};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::account;
use store::{OpenRun, Store};
use watch::Death;
use watch::nodes;
use watch::runs::{Action, Cause, Ended};
use watch::set_down::{Fate, JobOn, judge};

/// How often a run whose wrapper is killed is put back into the queue.
const MOST_WRAPPER_DEATHS: u32 = 3;

/// What our reasons for setting a node down begin with.
const OURS: &str = "joulepoint:";

/// What stands before the reason that a node had before its death.
const BEFORE: &str = "before: ";

/// What others have said of a node whose reason in Slurm may be ours.
fn said_by_others(reason: &str) -> &str {
    match reason.strip_prefix(OURS) {
        Some(ours) => ours.split_once(BEFORE).map_or("", |(_, first)| first),
        None => reason,
    }
}

/// The flag of a node on which no job is to begin.
const DRAIN: &str = "DRAIN";

/// What Slurm's reason for draining a node begins with whose slurmd takes an earlier life of a job for running.
const DUPLICATE: &str = "Duplicate jobid";

/// After Slurm was asked about dead nodes, it is left alone for so many times as long as it took to answer, and no longer
/// than a while.
const REST: u32 = 10;
const LONGEST_REST: Duration = Duration::from_secs(30);

/// For how long its answer counts.
const CURRENT: Duration = Duration::from_secs(2);

/// What Slurm says of some dead nodes.
struct Told {
    nodes: Vec<slurm::Node>,
    /// The jobs that hold one of them.
    holders: Vec<slurm::Holder>,
    /// What would become of those that were looked at.
    fates: BTreeMap<u32, Fate>,
}

fn is_running(run: &OpenRun) -> bool {
    run.record_state == "running"
}

/// What acts on nodes and runs.
pub(crate) struct Acts {
    pub watching: Arc<Watching>,
    pub looks: Arc<Looks>,
    pub slurm: Slurm,
    pub store: Arc<Mutex<Store>>,
    /// For the looks at the cluster.
    pub reader: Arc<Mutex<Store>>,
    pub broker: Arc<Broker>,
    pub orders: Arc<Orders>,
    pub accounting: Arc<Accounting>,
    pub start_requeued_at_once: bool,
}

impl Acts {
    /// Does what follows from what is known of nodes.
    pub(super) fn on_nodes(self: &Arc<Self>, actions: Vec<nodes::Action>) {
        let (woken, actions): (Vec<_>, Vec<_>) =
            actions.into_iter().partition(|a| matches!(a, nodes::Action::Wake { .. }));
        self.looks.wake(woken);
        for action in actions {
            match action {
                nodes::Action::Wake { .. } => {}
                nodes::Action::Forget { node } => self.forget(&node),
                nodes::Action::Look { node, epoch, witnesses, ended } => {
                    // What witnesses are asked rests on what is kept.
                    let is_unkept = self.watching.nodes.lock().is_unkept(&node);
                    if !is_unkept {
                        self.look(node, epoch, witnesses, ended);
                    }
                }
                nodes::Action::Dead { node, silent_s } => {
                    let seen = if self.watching.nodes.lock().is_off(&node) {
                        format!("it has no power; silent for {silent_s:.1} s")
                    } else {
                        format!("neither this host nor its witnesses have reached it for {silent_s:.1} s")
                    };
                    self.node_died(&node, silent_s, seen);
                    self.watching.downs.lock().want(self.watching.now_s(), &node);
                }
                nodes::Action::StillDead { node } => {
                    tracing::warn!(node, "Slurm has begun a protected job on a node that is dead");
                    self.watching.downs.lock().want(self.watching.now_s(), &node);
                }
                nodes::Action::Rebooted { node, silent_s } => {
                    self.node_died(&node, silent_s, format!("it has booted, after {silent_s:.1} s of silence"));
                }
                nodes::Action::Back { node } => {
                    tracing::info!(node, "a node that was dead is heard again");
                    self.watching.downs.lock().back(&node);
                    // It may have booted, which is news if Slurm has left it to its jobs.
                    let open = self.watching.open.lock().clone();
                    open.iter().filter(|run| run.nodes.contains(&node)).for_each(|run| self.orders.tell(&run.key));
                }
            }
        }
    }

    /// Nothing is to be known of a node any more, unless it is ours to put back into service.
    fn forget(&self, node: &str) {
        let is_ours = self.watching.downs.lock().is_down_by_us(node);
        if !is_ours && let Err(e) = self.store.lock().forget_node(node) {
            tracing::error!(node, %e, "a node is not forgotten");
        }
    }

    /// Looks at a silent node beside everything else, and does what follows from what is seen.
    fn look(self: &Arc<Self>, node: String, epoch: u64, witnesses: BTreeSet<String>, ended: BTreeSet<Incarnation>) {
        let (acts, name) = (self.clone(), node.clone());
        self.watching.looking.begin(&name, move || {
            let actions = acts.looks.look(&node, epoch, &witnesses, &ended);
            acts.on_nodes(actions);
            if let Err(e) = acts.note_deaths() {
                tracing::error!(node, %e, "the death of a node is not noted yet");
            }
        });
    }

    fn node_died(&self, node: &str, silent_s: f64, seen: String) {
        tracing::warn!(node, silent_s, seen, "a node is dead");
        self.watching.deaths.lock().add(now_s(), node, silent_s, seen);
    }

    /// Notes deaths while the runs are still open there, before Slurm ends them.
    ///
    /// # Errors
    /// What the store says; they are noted later.
    pub(super) fn note_deaths(&self) -> store::Result<()> {
        let _noting = self.watching.noting.lock();
        if self.watching.deaths.lock().nodes().is_empty() {
            return Ok(());
        }
        let used = self.watching.used();
        let due = self.watching.deaths.lock().due(&used);
        for death in due {
            let noted = self.note_death(&death);
            let mut deaths = self.watching.deaths.lock();
            match noted {
                Ok(()) => deaths.noted(&death),
                Err(e) => {
                    deaths.failed(&death);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn note_death(&self, death: &Death) -> store::Result<()> {
        let (node, silent_s) = (death.node.as_str(), now_s() - death.at_s);
        // Asked before the store is locked, for which everybody waits.
        let open = self.watching.open.lock().clone();
        let spared: Vec<_> = open.iter().filter(|run| self.broker.has_lent(run, node)).map(|run| &run.key).collect();
        let is_hit = |run: &OpenRun| {
            let is_there = self.watching.nodes_of(run).iter().any(|n| n == node)
                && !self.watching.has_given_back(run, node)
                && !self.watching.has_left(run, silent_s);
            is_there && !spared.contains(&&run.key)
        };
        let text = format!("node {node} died: {}", death.seen);
        let hit = self.store.lock().node_died(node, death.at_s, death.detected_s, &text, is_hit)?;
        self.watching.hit(&hit);
        hit.iter().for_each(|run| self.orders.tell(&run.key));
        Ok(())
    }

    /// Asks Slurm, by one question, which nodes without a run were not in service any more when they died: an update, an empty
    /// rack, power saving. That is no failure.
    pub(super) fn judge_deaths(&self) {
        if self.watching.deaths.lock().nodes().is_empty() {
            return;
        }
        let used = self.watching.used();
        let nodes = self.watching.deaths.lock().unjudged(&used);
        let asked = self.slurm.when_idle().known_nodes(&nodes);
        if matches!(asked, Err(slurm::Error::Postponed)) {
            return;
        }
        let known = asked.unwrap_or_else(|e| {
            let nodes = nodes.len();
            tracing::warn!(nodes, %e, "Slurm does not say whether nodes were in service; their deaths count as failures");
            Vec::new()
        });
        self.watching.deaths.lock().judge(&nodes, |death| {
            let was_out = known.iter().any(|n| n.name == death.node && n.was_out_of_service(death.at_s));
            if was_out {
                tracing::info!(node = death.node, "it was out of service: that is no failure");
            }
            !was_out
        });
    }

    /// Sets those dead nodes down on which every job is ours to recover, a few at a time. All of them are asked about by one
    /// question about nodes and one about jobs, however many have died at once.
    pub(super) fn set_down_due(self: &Arc<Self>, runs: &[OpenRun]) {
        let now_s = self.watching.now_s();
        let mut rests = self.watching.judging.lock();
        if now_s < *rests {
            return;
        }
        let (due, mut room) = {
            let words = self.watching.words.lock();
            let of_ours = || -> BTreeSet<&str> {
                let started = runs.iter().filter(|r| is_running(r)).flat_map(|r| &r.nodes);
                // Nodes that joined a job later are in Slurm's word only.
                started.chain(words.values().flat_map(|(_, job)| &job.nodes)).map(String::as_str).collect()
            };
            let ours = OnceCell::new();
            let mut downs = self.watching.downs.lock();
            downs.due(now_s, &self.watching.limits, |node| ours.get_or_init(of_ours).contains(node))
        };
        let (mut due, gone): (Vec<String>, Vec<String>) = {
            let nodes = self.watching.nodes.lock();
            due.into_iter().partition(|node| nodes.is_dead(node))
        };
        for node in gone {
            self.watching.downs.lock().back(&node);
        }
        // Slurm ends the runs there at once, which would not be seen to be hit then.
        let unnoted = self.watching.deaths.lock().nodes();
        due.retain(|node| !unnoted.contains(node));
        if due.is_empty() {
            return;
        }
        let runs = &self.watching.whole(runs);
        let asked = Instant::now();
        let mut told = self.told(&due);
        let answered = Instant::now();
        for node in due {
            if answered.elapsed() > CURRENT {
                // The others are asked about again.
                break;
            }
            let done = match &mut told {
                Ok(told) => self.set_down(&node, told, runs, &mut room),
                Err(e) => Err(anyhow!("{e}")),
            };
            if let Err(e) = done {
                tracing::error!(node, error = format!("{e:#}"), "a dead node is not down yet; it will be tried again");
                self.watching.downs.lock().failed(self.watching.now_s(), &node);
            }
        }
        let rest = ((answered - asked) * REST).min(LONGEST_REST);
        *rests = self.watching.now_s() + rest.as_secs_f64();
    }

    /// What Slurm says of dead nodes, and of who holds them.
    fn told(&self, names: &[String]) -> Result<Told, slurm::Error> {
        Ok(Told { nodes: self.slurm.known_nodes(names)?, holders: self.slurm.jobs_on(names)?, fates: BTreeMap::new() })
    }

    fn set_down(self: &Arc<Self>, node: &str, told: &mut Told, runs: &[OpenRun], room: &mut usize) -> Result<()> {
        let now_s = self.watching.now_s();
        let known = told.nodes.iter().find(|n| n.name == node);
        let known = known.with_context(|| format!("Slurm does not know node {node}"))?;
        if known.state == "DOWN" {
            // Whoever has set it down brings it back.
            let by_us = known.reason.starts_with(OURS);
            return self.is_down(node, runs, by_us);
        }
        let mut jobs = Vec::new();
        for on in told.holders.iter().filter(|h| h.nodes.iter().any(|n| n == node)) {
            let fate = match told.fates.get(&on.job) {
                Some(fate) => *fate,
                None => self.fate(on, runs)?,
            };
            told.fates.insert(on.job, fate);
            // From one that is only cleaned up there the node takes nothing; but a requeued one of ours waits for that.
            if on.is_completing && fate != Fate::Recovers {
                continue;
            }
            jobs.push(JobOn { job: on.job, fate });
        }
        if jobs.iter().any(|j| j.fate != Fate::Unprotected) && self.watching.nodes.lock().is_unfenced(node) {
            self.fence_by_power(node);
        }
        let is_off = self.watching.nodes.lock().is_off(node);
        if let Err(why) = judge(&jobs, is_off) {
            let is_news = self.watching.downs.lock().left_to_slurm(now_s, node, why.clone());
            if is_news {
                tracing::warn!(node, %why, "a dead node is left to Slurm");
            }
            return Ok(());
        }
        if *room == 0 || !self.watching.nodes.lock().is_dead(node) {
            return Ok(());
        }
        *room -= 1;
        // Slurm keeps one reason: what an operator has said of the node is not to be lost.
        let first = said_by_others(&known.reason);
        let before = match known.has_flag(DRAIN) {
            _ if first.is_empty() => String::new(),
            true => format!("; drained {BEFORE}{first}"),
            false => format!("; said {BEFORE}{first}"),
        };
        let reason = format!("{OURS} reached by nobody{before}");
        tracing::warn!(node, jobs = ?jobs.iter().map(|j| j.job).collect::<Vec<_>>(), "a dead node is set down");
        audit::note(By::Service, Act::NodeDown, (0, node), &reason, self.slurm.node_down(node, &reason))?;
        self.is_down(node, runs, true)
    }

    /// A dead node is down in Slurm: what ran there has to end if it comes back, and its runs learn of it.
    fn is_down(&self, node: &str, runs: &[OpenRun], by_us: bool) -> Result<()> {
        let on_it = |r: &&OpenRun| is_running(r) && r.nodes.iter().any(|n| n == node);
        let on_it: Vec<&OpenRun> = runs.iter().filter(on_it).collect();
        let lives = on_it.iter().map(|r| Incarnation { job: r.job, restart_count: r.restart_count });
        self.watching.nodes.lock().give_up(node, lives);
        self.watching.keep(node)?;
        match by_us {
            true => self.watching.downs.lock().done(self.watching.now_s(), node),
            false => self.watching.downs.lock().others(node),
        }
        self.watching.keep_all(&[node])?;
        on_it.iter().for_each(|run| self.orders.tell(&run.key));
        let mut ending = on_it.iter().filter(|run| self.watching.ends_with(run, node));
        ending.try_for_each(|run| self.script_is_lost(run, node))
    }

    /// With its script, a life is over on its other nodes, too. Slurm ends it there as well, but a slurmstepd tells an `srun`
    /// that died with the script for 12 s that its tasks have ended, and the job does not begin again before.
    fn script_is_lost(&self, run: &OpenRun, node: &str) -> Result<()> {
        let life = Incarnation { job: run.job, restart_count: run.restart_count };
        let others: Vec<&str> = run.nodes.iter().map(String::as_str).filter(|other| *other != node).collect();
        others.iter().for_each(|other| self.watching.nodes.lock().give_up(other, [life]));
        Ok(self.watching.keep_all(&[])?)
    }

    /// What would become of a job if its node were set down.
    fn fate(&self, on: &slurm::Holder, runs: &[OpenRun]) -> Result<Fate> {
        let is_its = |r: &&OpenRun| r.job == on.job && r.uid == on.uid && (is_running(r) || on.is_completing);
        let Some(run) = runs.iter().find(is_its) else {
            return Ok(Fate::Unprotected);
        };
        let job = self.look_again(run)?;
        // Whether a job goes on without a node (`--no-kill`) Slurm does not say. Of one with several parts it would requeue one.
        Ok(if job.requeue && job.batch && job.het.is_none() { Fate::Recovers } else { Fate::Ends })
    }

    /// Takes the power of a dead node away, where the site allows it.
    fn fence_by_power(self: &Arc<Self>, node: &str) {
        let Some(power) = self.watching.power.clone().filter(|p| p.may_cut && self.slurm.may_act()) else { return };
        let epoch = self.watching.nodes.lock().known(node).map_or(0, |known| known.epoch);
        let (acts, name) = (self.clone(), node.to_string());
        self.watching.cutting.begin(node, move || {
            let node = name;
            tracing::warn!(node, "a dead node's power is taken away");
            let cut =
                audit::note(By::Service, Act::PowerOff, (0, &node), "a run waits for its fence", power.off(&node));
            let off = cut.and_then(|()| power.status(&node));
            match off {
                Ok(power::Status::Off) => {
                    let now_s = acts.watching.now_s();
                    let actions = acts.watching.nodes.lock().powered_off(now_s, &node, epoch);
                    acts.on_nodes(actions);
                }
                Ok(power::Status::On) => tracing::error!(node, "it has power all the same"),
                Err(e) => tracing::error!(node, %e, "the power controller did not take it away"),
            }
        });
    }

    /// Puts nodes that we have set down back into service that are well, for a while; the others, and those that failed to be,
    /// are tried again.
    pub(super) fn resume_well(&self) {
        let mut well: Vec<String> = self.watching.downs.lock().down().map(str::to_string).collect();
        well.retain(|name| self.watching.is_well(name));
        let known = match self.slurm.known_nodes(&well) {
            Ok(known) => known,
            Err(e) => {
                tracing::error!(nodes = well.len(), %e, "nodes are not back in service yet; tried again");
                return;
            }
        };
        let answered = Instant::now();
        for name in well.iter().take_while(|_| answered.elapsed() < CURRENT) {
            if let Err(e) = self.resume(name, known.iter().find(|n| n.name == *name)) {
                tracing::error!(
                    node = name,
                    error = format!("{e:#}"),
                    "a node is not back in service yet; tried again"
                );
            }
        }
    }

    fn resume(&self, name: &str, known: Option<&slurm::Node>) -> Result<()> {
        match known {
            Some(node) if node.has_flag(DRAIN) => {
                tracing::warn!(
                    node = name,
                    "a node that was set down is well again, and stays drained, as it was before"
                );
            }
            Some(node) if node.state == "DOWN" && node.reason.starts_with(OURS) => {
                tracing::info!(node = name, "a node that was set down is well again");
                audit::note(By::Service, Act::NodeResume, (0, name), "it is well", self.slurm.node_resume(name))?;
            }
            _ => {}
        }
        self.watching.downs.lock().forget(name);
        Ok(self.watching.keep_all(&[name])?)
    }

    /// Does what follows from Slurm's word on a run's job.
    pub(super) fn on_run(&self, run: &OpenRun, action: Action) {
        tracing::debug!(job = run.job, ?action, "acting");
        let done = match action {
            Action::StartNow => self.start(run),
            Action::Release => self.release(run),
            Action::Requeue(cause) => self.requeue(run, cause),
            Action::Close(ended) => self.close(run, ended),
        };
        if let Err(e) = done {
            tracing::error!(job = run.job, ?action, error = format!("{e:#}"), "failed; it will be tried again");
        }
    }

    /// Lets a requeued job start when it is to, in place of the two minutes that Slurm makes it wait.
    fn start(&self, run: &OpenRun) -> Result<()> {
        match self.told_begin(run) {
            Some(told) => told,
            None if self.start_requeued_at_once => self.start_now(run),
            None => Ok(()),
        }
    }

    /// Tells Slurm when a vacated job is to begin again, if somebody said when.
    pub(super) fn tell_begin(&self, run: &OpenRun) {
        if let Some(Err(e)) = self.told_begin(run) {
            tracing::warn!(job = run.job, error = format!("{e:#}"), "Slurm does not know yet when the job begins");
        }
    }

    fn told_begin(&self, run: &OpenRun) -> Option<Result<()>> {
        self.orders.tell_begin(&run.key, run.restart_count, |at_s| {
            self.look_again(run)?;
            let told = self.slurm.start_at(run.job, at_s);
            Ok(audit::note(By::Service, Act::StartAt, (run.job, ""), "vacated until then", told)?)
        })
    }

    fn start_now(&self, run: &OpenRun) -> Result<()> {
        self.look_again(run)?;
        tracing::info!(job = run.job, "a requeued job starts at once");
        let started = self.slurm.start_now(run.job);
        Ok(audit::note(By::Service, Act::StartNow, (run.job, ""), "its nodes are there", started)?)
    }

    /// A slurmd that was unreachable when a life of a job ended does not launch another one: its node is drained, the job is
    /// held, and only then it is told of that end. So the node is put back into service if it is well, and the job let go.
    /// After a launch that failed for another reason the job stays held, as Slurm wants it.
    fn release(&self, run: &OpenRun) -> Result<()> {
        let job = self.look_again(run)?;
        if !job.launch_failed() {
            return Ok(());
        }
        let been_on: Vec<String> = self.store.lock().nodes_of(&run.key)?.into_iter().collect();
        let refused = |n: &slurm::Node| n.has_flag(DRAIN) && n.reason.starts_with(DUPLICATE);
        let drained: Vec<slurm::Node> = self.slurm.known_nodes(&been_on)?.into_iter().filter(refused).collect();
        if drained.is_empty() {
            tracing::warn!(job = run.job, reason = job.reason, "the launch of a job has failed: it stays held");
            return Ok(());
        }
        for node in drained.iter().filter(|n| self.watching.is_well(&n.name)) {
            let resumed = self.slurm.node_resume(&node.name);
            audit::note(By::Service, Act::NodeResume, (run.job, &node.name), &node.reason, resumed)?;
        }
        tracing::warn!(job = run.job, reason = job.reason, "a job whose launch failed is let go");
        Ok(audit::note(By::Service, Act::Release, (run.job, ""), &job.reason, self.slurm.release(run.job))?)
    }

    fn close(&self, run: &OpenRun, ended: Ended) -> Result<()> {
        let state = match ended {
            Ended::Completed => "completed",
            Ended::Cancelled => "cancelled",
            Ended::Timeout => "timeout",
            Ended::Failed => "failed",
            Ended::Unknown => self.accounted(run).unwrap_or("unknown"),
        };
        tracing::warn!(job = run.job, state, "a run ended without its wrapper's word");
        self.orders.close(now_s(), &run.key);
        let ended_s = self.ended_s(run).unwrap_or_else(now_s);
        self.store.lock().close(run, ended_s, state)?;
        // Slurm takes no AdminComment of a job that is over.
        self.accounting.ended(&account::ended(self.reader.lock().connection(), &run.key)?);
        Ok(())
    }

    /// Asks Slurm for the one job before anything is done to it.
    pub(crate) fn look_again(&self, run: &OpenRun) -> Result<Job> {
        let job = self.slurm.job(run.job)?.with_context(|| format!("Slurm no longer knows job {}", run.job))?;
        if job.uid != run.uid {
            bail!("job {} belongs to user {}, not to the run's user {}", run.job, job.uid, run.uid);
        }
        Ok(job)
    }

    /// When this life of a job ended, by Slurm's word.
    fn ended_s(&self, run: &OpenRun) -> Option<f64> {
        let job = self.slurm.job(run.job).ok().flatten();
        let known =
            job.filter(|job| job.state.is_over() && job.restarts == run.restart_count).and_then(|job| job.end_s);
        known.or_else(|| self.slurm.accounted(run.job).ok()?.pop()?.end_s).filter(|end_s| *end_s <= now_s())
    }

    /// How a job ended that slurmctld has forgotten, as accounting knows it.
    fn accounted(&self, run: &OpenRun) -> Option<&'static str> {
        let last = self.slurm.accounted(run.job).ok()?.pop()?;
        Some(match last.state {
            JobState::Completed => "completed",
            JobState::Cancelled => "cancelled",
            JobState::Timeout | JobState::Deadline => "timeout",
            state if state.is_over() => "failed",
            _ => return None,
        })
    }

    pub(crate) fn requeue(&self, run: &OpenRun, cause: Cause) -> Result<()> {
        self.look_again(run)?;
        let now_s = now_s();
        let reason = match cause {
            Cause::ScriptLost => "the node of the batch script died; the job would stay without a script for ever",
            Cause::WrapperKilled => "the wrapper was killed",
            Cause::CountedAgain => "slurmctld has counted the lives of the job anew; the next has a new number",
        };
        if cause == Cause::WrapperKilled {
            let deaths = self.store.lock().failures(&run.key, FailureKind::Wrapper)?;
            if deaths >= MOST_WRAPPER_DEATHS {
                tracing::error!(job = run.job, deaths, "its wrapper is killed again and again: the run is given up");
                return self.close(run, Ended::Failed);
            }
            self.store.lock().failed(&run.key, FailureKind::Wrapper, now_s, reason)?;
        }
        tracing::warn!(job = run.job, reason, "requeueing");
        self.watching.hit(std::slice::from_ref(run));
        Ok(audit::note(By::Service, Act::Requeue, (run.job, ""), reason, self.slurm.requeue(run.job))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_has_said_is_kept_whole_and_ours_is_not_repeated() {
        for (reason, first) in [
            ("", ""),
            ("fan, as before: see ticket 7", "fan, as before: see ticket 7"),
            ("joulepoint: reached by nobody", ""),
            (
                "joulepoint: reached by nobody; drained before: fan, as before: see ticket 7",
                "fan, as before: see ticket 7",
            ),
        ] {
            assert_eq!(said_by_others(reason), first, "{reason}");
        }
    }
}

//! What the controller knows of each node, and what it concludes from heartbeats, its own looks and testimonies.
//!
//! A silent node is looked at: by the controller (its service, its slurmd, its host) and by its witnesses. Whoever of
//! them reaches it keeps it alive. It is dead when the controller reaches nothing of it and a majority of its witnesses says
//! the same; their testimony binds them ([`crate::testimony`]). When about half of all nodes are silent, it is this host that is
//! cut off, or a switch that is away: then nobody is looked at, and nobody is dead, however long it lasts.

use crate::lease::Word;
use crate::testimony::{is_reached, reaching};
use crate::witnesses::majority;
use crate::{Limits, life};
use protocol::{Held, Incarnation, Seen, Testimony, Unsure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub use named::Named;

/// Most nodes that are looked at at the same time: each look takes ten to twenty threads, one for each witness that is asked.
const LOOKS: usize = 64;

/// Time between two looks at a node that is silent and about which not enough is known, s.
const AGAIN_S: f64 = 1.0;

/// Longest time between two looks at a node that is silent and yet reached, s.
const LONGEST_PAUSE_S: f64 = 15.0;

/// How long a node may be silent before it is forgotten, if nothing of a run is there, s.
const FORGOTTEN_S: f64 = 86_400.0;

/// The longest pause that a node may announce, s.
pub const LONGEST_REST_S: f64 = 60.0;

/// What a heartbeat says of its node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Heard {
    /// Name of the node.
    pub node: String,
    /// The kernel's number of this boot; empty from services that tell none.
    pub boot_id: String,
    /// Whether a slurmd runs there.
    pub slurmd_up: bool,
    /// The epoch in which it asks its witnesses; none from services that do not fence themselves.
    pub epoch: Option<u64>,
    /// Jobs that have processes there.
    pub jobs: BTreeSet<u32>,
    /// For how long it may be silent from now on, since nothing protected is there, s.
    pub pause_s: f64,
    /// For how long it has been up, s; none from services that do not tell.
    pub up_s: Option<f64>,
}

/// How it is known that nothing of a run goes on at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Its service has said that nothing is left.
    Ended,
    /// A power controller says that it is off.
    PoweredOff,
    /// The controller and a majority of its witnesses reach nothing of it, and its lease is over.
    LeaseOver,
    /// It has no node service that fences it; Slurm has taken the job away from it.
    SlurmsWord,
}

/// Whether a run may begin again, as far as one of its former nodes goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Released {
    /// It may.
    Yes(Proof),
    /// Not yet.
    No(Unsure),
}

/// What speaks against a node being off.
#[derive(Clone, Debug, PartialEq)]
pub enum NotOff {
    /// Nothing is known of such a node.
    Unknown,
    /// It was to be heard so lately, s, that nobody misses it.
    Heard {
        /// How long ago it was heard, or began to be waited for.
        ago_s: f64,
    },
    /// It is silent, but this witness, or the controller, reaches it.
    Reached {
        /// Who does.
        by: String,
    },
}

impl std::fmt::Display for NotOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotOff::Unknown => f.write_str("nothing was ever heard of it"),
            NotOff::Heard { ago_s } => write!(f, "it is not missed: it was heard or asked for {ago_s:.0} s ago"),
            NotOff::Reached { by } => write!(f, "{by} reaches it"),
        }
    }
}

/// What is to be done about nodes.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Look at a node from here, and ask its witnesses what they see; [`Nodes::looked`] takes the answers. Not before what is
    /// known of it is kept ([`Nodes::is_unkept`]): it will be due again.
    Look {
        /// The node.
        node: String,
        /// The epoch below which witnesses grant it nothing from now on.
        epoch: u64,
        /// Whom to ask.
        witnesses: BTreeSet<String>,
        /// What a witness that reaches the node is to have ended there.
        ended: BTreeSet<Incarnation>,
    },
    /// A node is dead.
    Dead {
        /// The node.
        node: String,
        /// For how long nobody has heard of it, s.
        silent_s: f64,
    },
    /// A node on which Slurm has begun another job although it is dead, is.
    StillDead {
        /// The node.
        node: String,
    },
    /// A node has booted without anybody having seen it die.
    Rebooted {
        /// The node.
        node: String,
        /// For how long it had been silent when it was heard again, s.
        silent_s: f64,
    },
    /// A node that was dead is heard again.
    Back {
        /// The node.
        node: String,
    },
    /// Ask a node that rests for a heartbeat now.
    Wake {
        /// The node.
        node: String,
    },
    /// Nothing is to be known of a node any more.
    Forget {
        /// The node.
        node: String,
    },
}

/// What must outlive the controller of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Its boot.
    pub boot_id: String,
    /// Its epoch: grows with each look at it, and with each change of its witnesses.
    pub epoch: u64,
    /// The witnesses from which it may hold its lease: those named last, and those before as long as it may not have heard
    /// of the last.
    pub named: Vec<Named>,
    /// Whether it freezes what is protected when it is cut off.
    pub fences_itself: bool,
    /// What must end there.
    pub ended: BTreeSet<Incarnation>,
}

impl Known {
    /// All of them.
    pub fn witnesses(&self) -> BTreeSet<String> {
        self.named.iter().flat_map(|n| &n.witnesses).cloned().collect()
    }

    fn named_last(&self) -> BTreeSet<String> {
        self.named.last().map(|n| n.witnesses.clone()).unwrap_or_default()
    }
}

/// The state of a node.
#[derive(Clone, Debug, Default, PartialEq)]
enum State {
    /// It is heard, or has not been silent for long.
    #[default]
    Well,
    /// It is silent and being looked at.
    Suspected { asked_s: f64, answered: usize },
    /// It is silent, but reached.
    Reached { by: String, again_s: f64, pause_s: f64 },
    /// It is dead.
    Dead(Fence),
}

/// How it is known that a dead node runs nothing that is protected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fence {
    /// It is frozen or gone from a moment on, s.
    Lease { over_s: f64 },
    /// It has no power.
    PoweredOff,
    /// It is not known: its service was away, or of a version that freezes nothing, when it fell silent.
    None,
}

/// One node.
#[derive(Clone, Debug, Default)]
struct Node {
    known: Known,
    /// What of that is on disk.
    kept: Known,
    state: State,
    /// When it was heard last, or began to be waited for, s.
    heard_s: f64,
    /// When it was heard last in the boot before this one, and first in this one, s; absent if that was not seen.
    booted: Option<(f64, f64)>,
    /// When it booted, by its own word, s; below 0 if that was before this life of the controller.
    boot_s: Option<f64>,
    /// When it was heard first in this life of the controller, s.
    first_s: Option<f64>,
    /// Whether it was heard in this life of the controller.
    is_heard: bool,
    slurmd_up: bool,
    jobs: BTreeSet<u32>,
    /// For how long it may be silent after it was heard, s.
    pause_s: f64,
    /// Whether it said so itself when it was heard last: something may have begun there since.
    has_rested: bool,
    /// When it was asked to beat last, s.
    woken_s: Option<f64>,
    /// Its host was reached while its service was not: nothing there freezes anything.
    service_away: bool,
    /// When a look at it was asked for last, s.
    asked_s: f64,
    /// Slurm has it down, or out of service without jobs: it is not missed.
    is_out: bool,
    /// What was seen when it was found dead last.
    death: Death,
}

/// What was seen when a node was found dead.
#[derive(Clone, Debug, Default)]
struct Death {
    /// The protected lives that held it, by Slurm's word.
    lives: BTreeSet<Incarnation>,
    /// When that was, s.
    found_s: f64,
    /// When it was looked at last since then, s.
    looked_s: f64,
}

impl Node {
    /// Whether a life began here after the node was found dead.
    fn is_new(&self, of: &Incarnation) -> bool {
        !self.death.lives.contains(of) && !self.known.ended.contains(of)
    }

    fn is_well(&self, now_s: f64, limits: &Limits) -> bool {
        self.is_heard && self.state == State::Well && self.overdue_s(now_s) <= limits.detect_s
    }

    /// Whether this life of the controller has not heard it yet, and has not missed it either.
    fn is_to_come(&self) -> bool {
        !self.is_heard && !self.is_out && self.state == State::Well
    }
}

/// The nodes of a cluster, as its controller knows them.
#[derive(Clone, Debug)]
pub struct Nodes {
    limits: Limits,
    nodes: BTreeMap<String, Node>,
    held: BTreeMap<String, Vec<Held>>,
    /// Nodes that are being looked at.
    looking: BTreeSet<String>,
    /// How many nodes this life of the controller has heard.
    heard: usize,
}

impl Nodes {
    /// The nodes that an earlier life of the controller has kept; each is waited for from now on.
    pub fn new(limits: Limits, now_s: f64, kept: impl IntoIterator<Item = (String, Known)>) -> Nodes {
        let node = |known: Known| Node { kept: known.clone(), known, heard_s: now_s, ..Node::default() };
        let nodes = kept.into_iter().map(|(name, known)| (name, node(known))).collect();
        Nodes { limits, nodes, held: BTreeMap::new(), looking: BTreeSet::new(), heard: 0 }
    }

    /// The protected jobs that hold each node, by Slurm's word.
    pub fn set_held(&mut self, held: BTreeMap<String, Vec<Held>>) {
        self.held = held;
    }

    /// The nodes that are being looked at: no look at them is asked for, and so many fewer at others.
    pub fn set_looking(&mut self, looking: BTreeSet<String>) {
        self.looking = looking;
    }

    /// Nodes that Slurm has down, or out of service without any job: nobody misses their heartbeats.
    pub fn set_out(&mut self, out: &BTreeSet<String>) {
        self.nodes.iter_mut().for_each(|(name, node)| node.is_out = out.contains(name));
    }

    /// Takes in a heartbeat; what follows from it.
    pub fn heard(&mut self, now_s: f64, heard: Heard) -> Vec<Action> {
        let is_held = self.held.contains_key(&heard.node);
        let node = self.nodes.entry(heard.node.clone()).or_insert_with(|| Node { heard_s: now_s, ..Node::default() });
        let silent_s = now_s - node.heard_s;
        let is_new_boot = !node.known.boot_id.is_empty() && node.known.boot_id != heard.boot_id;
        let was_dead = matches!(node.state, State::Dead(_));
        let mut actions = Vec::new();
        if is_new_boot && !was_dead {
            actions.push(Action::Rebooted { node: heard.node.clone(), silent_s });
        }
        if was_dead {
            actions.push(Action::Back { node: heard.node.clone() });
        }
        if is_new_boot {
            // What began before this controller heard of the node may have begun in either boot.
            node.booted = (node.is_heard && !heard.boot_id.is_empty()).then_some((node.heard_s, now_s));
        }
        self.heard += usize::from(!node.is_heard);
        node.boot_s = heard.up_s.map(|up_s| now_s - up_s);
        node.first_s.get_or_insert(now_s);
        (node.known.boot_id, node.known.fences_itself) = (heard.boot_id, heard.epoch.is_some());
        // Nothing of what ran in the boot before is left, nor of a job without processes.
        node.known.ended.retain(|of| !is_new_boot && heard.jobs.contains(&of.job));
        if let Some(newest) = node.known.named.iter().rposition(|n| heard.epoch.is_some_and(|epoch| epoch >= n.epoch)) {
            node.known.named.drain(..newest);
        }
        (node.state, node.heard_s, node.is_heard, node.is_out) = (State::Well, now_s, true, false);
        (node.slurmd_up, node.jobs, node.service_away) = (heard.slurmd_up, heard.jobs, false);
        node.has_rested = heard.pause_s > 0.0;
        // It will hear that it may not.
        let may_rest = !is_held && node.known.ended.is_empty();
        node.pause_s = if may_rest { heard.pause_s.clamp(0.0, LONGEST_REST_S) } else { 0.0 };
        actions
    }

    /// What a node is told in answer to its heartbeat, once what is known of it is kept ([`Nodes::is_unkept`]).
    pub fn word(&mut self, now_s: f64, name: &str) -> Word {
        self.name_witnesses(now_s, name);
        let Some(node) = self.nodes.get(name) else { return Word::default() };
        let mut held = self.held.get(name).cloned().unwrap_or_default();
        held.retain(|h| !node.known.ended.contains(&life(h)));
        let ended = node.known.ended.iter().copied().collect();
        Word { held, ended, epoch: node.known.epoch, witnesses: node.known.named_last() }
    }

    /// Looks at everything once.
    pub fn look(&mut self, now_s: f64) -> Vec<Action> {
        let mut actions = self.forget(now_s);
        actions.extend(self.wake(now_s));
        if self.is_crowd(now_s) {
            return actions;
        }
        let due = |name: &String, node: &Node| match node.state {
            State::Well => node.overdue_s(now_s) > self.limits.detect_s,
            State::Suspected { asked_s, .. } => now_s - asked_s >= AGAIN_S,
            State::Reached { again_s, .. } => now_s >= again_s,
            // A late answer of its slurmd has Slurm take a node for alive that is down.
            State::Dead(_) => now_s - node.death.looked_s >= AGAIN_S && self.lives(name).any(|of| node.is_new(&of)),
        };
        // Of one that Slurm has out of service it is to be known whether it is dead, where a run waits for that.
        let is_missed = |node: &Node| !node.is_out || !node.known.ended.is_empty();
        let is_due = |name: &String, n: &Node| is_missed(n) && due(name, n) && !self.looking.contains(name);
        let has_run = |name: &String, n: &Node| self.held.contains_key(name) || !n.known.ended.is_empty();
        let due = self.nodes.iter().filter(|(name, n)| is_due(name, n));
        let mut due: Vec<(bool, f64, &String)> = due.map(|(name, n)| (!has_run(name, n), n.asked_s, name)).collect();
        // Those first that runs wait for, and of them those that have waited longest.
        due.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let room = LOOKS.saturating_sub(self.looking.len());
        let names: Vec<String> = due.into_iter().take(room).map(|(_, _, name)| name.clone()).collect();
        for name in names {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            node.asked_s = now_s;
            let answered = if let State::Suspected { answered, .. } = node.state { answered } else { 0 };
            match &mut node.state {
                State::Reached { again_s, pause_s, .. } => *again_s = now_s + *pause_s,
                State::Dead(_) => node.death.looked_s = now_s,
                state => {
                    // Later looks at the same silence are of the same epoch.
                    if *state == State::Well {
                        node.known.epoch += 1;
                    }
                    *state = State::Suspected { asked_s: now_s, answered };
                }
            }
            actions.push(Action::Look {
                node: name,
                epoch: node.known.epoch,
                witnesses: node.known.witnesses(),
                ended: node.known.ended.clone(),
            });
        }
        actions
    }

    /// The protected lives that hold a node, by Slurm's word.
    fn lives(&self, name: &str) -> impl Iterator<Item = Incarnation> {
        self.held.get(name).into_iter().flatten().map(life)
    }

    /// Forgets nodes that were silent for a day, unless something of a run may be there.
    fn forget(&mut self, now_s: f64) -> Vec<Action> {
        let is_old = |name: &String, n: &Node| {
            now_s - n.heard_s > FORGOTTEN_S && !self.held.contains_key(name) && n.known.ended.is_empty()
        };
        let old: Vec<String> =
            self.nodes.iter().filter(|(name, n)| is_old(name, n)).map(|(name, _)| name.clone()).collect();
        let gone = old.iter().filter_map(|name| self.nodes.remove(name)).filter(|n| n.is_heard).count();
        self.heard -= gone;
        old.into_iter().map(|node| Action::Forget { node }).collect()
    }

    /// What a look has shown: from here, and by the witnesses that answered, to the question of that epoch.
    pub fn looked(
        &mut self,
        now_s: f64,
        name: &str,
        epoch: u64,
        here: Seen,
        testimonies: &BTreeMap<String, Testimony>,
    ) -> Vec<Action> {
        let is_crowd = self.is_crowd(now_s);
        let limits = self.limits;
        let lives: BTreeSet<Incarnation> = self.lives(name).collect();
        let Some(node) = self.nodes.get_mut(name) else { return Vec::new() };
        // It was heard meanwhile, or this is an old answer.
        if node.known.epoch != epoch || node.state == State::Well {
            return Vec::new();
        }
        let was_dead = matches!(node.state, State::Dead(_));
        let mut actions = Vec::new();
        let ended: BTreeSet<Incarnation> = testimonies.values().flat_map(|t| &t.ended).copied().collect();
        if node.known.ended.iter().any(|of| ended.contains(of)) {
            node.known.ended.retain(|of| !ended.contains(of));
            node.jobs.retain(|job| !ended.iter().any(|of| of.job == *job));
        }
        if let Some(by) = is_reached(here).then(|| "controller".to_string()).or_else(|| reaching(testimonies)) {
            let pause_s = if let State::Reached { pause_s, .. } = node.state { pause_s * 2.0 } else { AGAIN_S };
            let pause_s = pause_s.min(LONGEST_PAUSE_S);
            if was_dead {
                // What Slurm has begun there may go on. What else does is not known before the node is heard.
                (node.death.lives, node.death.looked_s) = (lives, now_s);
                return actions;
            }
            node.service_away = !here.service && !testimonies.values().any(|t| t.seen.service);
            node.state = State::Reached { by, again_s: now_s + pause_s, pause_s };
            return actions;
        }
        let answered = |named: &Named| named.witnesses.iter().filter(|w| testimonies.contains_key(*w)).count();
        let has_majority = |named: &Named| answered(named) >= majority(named.witnesses.len());
        let is_dead = !node.known.named.is_empty() && node.known.named.iter().all(has_majority);
        if !is_dead || is_crowd {
            if !was_dead {
                node.state = State::Suspected { asked_s: now_s, answered: testimonies.len() };
            }
            return actions;
        }
        node.death = Death { lives, found_s: now_s, looked_s: now_s };
        if was_dead {
            actions.push(Action::StillDead { node: name.to_string() });
            return actions;
        }
        let granted_s = testimonies.values().filter_map(|t| t.granted_age_s).map(|age_s| now_s - age_s.max(0.0));
        // What began while it rested is frozen by a proof that may be younger than its last heartbeat.
        let heard_s = if node.has_rested { now_s } else { node.heard_s };
        let proven_s = granted_s.fold(heard_s, f64::max);
        let fences_itself = node.known.fences_itself && !node.service_away;
        node.state =
            State::Dead(if fences_itself { Fence::Lease { over_s: proven_s + limits.lease_s } } else { Fence::None });
        actions.push(Action::Dead { node: name.to_string(), silent_s: now_s - node.heard_s });
        actions
    }

    /// A power controller says that a node is off that was looked at in that epoch. It may mean another one, or a time before
    /// this boot: it counts only of a node that is still silent since then, and that nobody reaches.
    pub fn powered_off(&mut self, now_s: f64, name: &str, epoch: u64) -> Vec<Action> {
        let is_unreached = |n: &&Node| matches!(n.state, State::Suspected { .. } | State::Dead(_));
        match self.nodes.get(name).filter(is_unreached).is_some_and(|n| n.known.epoch == epoch) {
            true => self.is_without_power(now_s, name),
            false => Vec::new(),
        }
    }

    fn is_without_power(&mut self, now_s: f64, name: &str) -> Vec<Action> {
        let lives: BTreeSet<Incarnation> = self.lives(name).collect();
        let Some(node) = self.nodes.get_mut(name) else { return Vec::new() };
        let was_dead = matches!(node.state, State::Dead(_));
        if !was_dead {
            node.death = Death { lives, found_s: now_s, looked_s: now_s };
        }
        node.state = State::Dead(Fence::PoweredOff);
        if was_dead {
            Vec::new()
        } else {
            vec![Action::Dead { node: name.to_string(), silent_s: now_s - node.heard_s }]
        }
    }

    /// A person says that a silent node is off, where no power controller can.
    ///
    /// # Errors
    /// What speaks against it.
    pub fn confirmed_off(&mut self, now_s: f64, name: &str) -> Result<Vec<Action>, NotOff> {
        let node = self.nodes.get(name).ok_or(NotOff::Unknown)?;
        if node.overdue_s(now_s) <= self.limits.detect_s {
            return Err(NotOff::Heard { ago_s: now_s - node.heard_s });
        }
        if let State::Reached { by, .. } = &node.state {
            return Err(NotOff::Reached { by: by.clone() });
        }
        let actions = self.is_without_power(now_s, name);
        if let Some(node) = self.nodes.get_mut(name).filter(|_| !actions.is_empty()) {
            // What a look shows that began before is over with it.
            node.known.epoch += 1;
        }
        Ok(actions)
    }

    /// Whether nothing of an incarnation that has to end goes on at a node. From now on the node is told to end it, which is to be
    /// kept ([`Nodes::is_unkept`]) before anybody acts on a yes.
    pub fn released(&mut self, now_s: f64, name: &str, of: Incarnation) -> Released {
        let is_crowd = self.is_crowd(now_s);
        let Some(node) = self.nodes.get_mut(name) else { return Released::Yes(Proof::SlurmsWord) };
        let silent_s = now_s - node.heard_s;
        if node.is_heard
            && node.state == State::Well
            && silent_s <= self.limits.detect_s
            && !node.jobs.contains(&of.job)
        {
            return Released::Yes(Proof::Ended);
        }
        // A node ends all lives up to the one that it is told: the last stands for those before it.
        if !node.known.ended.iter().any(|e| e.job == of.job && e.restart_count >= of.restart_count) {
            node.known.ended.retain(|e| e.job != of.job);
            node.known.ended.insert(of);
        }
        match &node.state {
            State::Dead(Fence::PoweredOff) => Released::Yes(Proof::PoweredOff),
            State::Dead(Fence::None) => Released::No(Unsure::Unfenced),
            State::Dead(Fence::Lease { over_s }) if now_s >= *over_s => Released::Yes(Proof::LeaseOver),
            State::Dead(Fence::Lease { over_s }) => Released::No(Unsure::Lease { for_s: over_s - now_s }),
            State::Reached { by, .. } => Released::No(Unsure::Reached { by: by.clone() }),
            State::Well if silent_s <= self.limits.detect_s && node.is_heard => Released::No(Unsure::Ending),
            _ if is_crowd => Released::No(Unsure::Crowd),
            State::Suspected { answered, .. } => {
                let of = node.known.witnesses().len();
                Released::No(if now_s - node.heard_s > self.limits.lease_s {
                    Unsure::NoMajority { answered: *answered, of }
                } else {
                    Unsure::Suspected
                })
            }
            State::Well => Released::No(Unsure::Suspected),
        }
    }

    /// Slurm has taken a dead node out of service: what ran there has to end, should it come back; to be kept
    /// ([`Nodes::is_unkept`]) before anybody acts upon it.
    pub fn give_up(&mut self, name: &str, lives: impl IntoIterator<Item = Incarnation>) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.known.ended.extend(lives);
        }
    }

    /// Waits for heartbeats of nodes that were not heard yet: one that died while nobody listened will never send one.
    pub fn wait_for<'a>(&mut self, now_s: f64, names: impl IntoIterator<Item = &'a String>) {
        for name in names {
            self.nodes.entry(name.clone()).or_insert_with(|| Node { heard_s: now_s, ..Node::default() });
        }
    }
}

mod answers;
mod kept;
mod named;
mod rest;
#[cfg(test)]
mod tests;

//! The relays of MPI programs that are one world over all groups: those of each call of `srun` are its own, and last as
//! long as it does.

use crate::gathering::{Gathering, saved};
use crate::kinds::World;
use crate::relays::{Carried, Relay, Steps};
use driver::groups::ports::{NoLine, Relays};
use host::mail::{Post, Tries, now_s};
use options::Log;
use run::Placements;
use slurm::Slurm;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// Folder of a run with a folder for the relays of each call.
pub const MEETINGS: &str = "worlds";

/// Folder of a call with a folder for each life of its relays in which all groups went back together.
const TOGETHER: &str = "together";

/// Where the sockets are: sandboxes see it as it is, and names of sockets are short.
const SOCKETS: &str = "/tmp";

/// The folder of the sockets of a run's relays, on each node.
pub fn sockets(run: &Path) -> PathBuf {
    Path::new(SOCKETS).join(format!("joulepoint-{:016x}", xxh3_64(run.as_os_str().as_encoded_bytes())))
}

/// Pause before ranks are told again to come back to their relay: a slurmctld that has just started refuses steps.
const WAKE_PAUSE: Duration = Duration::from_secs(5);

/// Longest time for ranks to let their relay go, s.
const REST_LIMIT_S: u64 = 60;

/// What relays are started with.
pub struct Base {
    /// The real `srun`.
    pub srun: PathBuf,
    /// Where nodes answer.
    pub slurm: Arc<Slurm>,
    /// The run's folder, which all nodes see.
    pub run: PathBuf,
    /// Where the logs are kept.
    pub log: Log,
    /// Checkpoints to which a group must be able to go back.
    pub keep: u32,
    /// Until when each relay is wanted.
    pub placements: Placements,
    /// CPUs of a node.
    pub cpus: u32,
    /// Where news go.
    pub post: Post,
}

struct State {
    base: Base,
    /// The node of each group.
    nodes: Vec<String>,
    /// The relays of open calls.
    open: BTreeMap<String, Steps>,
    /// All groups went back together last: to the checkpoints in these folders, by group, or to the beginning.
    together: Option<Option<Vec<PathBuf>>>,
    /// The checkpoint of all groups that is on its way.
    gathering: Option<Arc<Gathering>>,
    /// How often the ranks of each group have let their relays go.
    rests: Vec<u64>,
}

/// The relays of all open calls, as seen from any thread.
#[derive(Clone)]
pub struct Worlds(Arc<Mutex<State>>);

impl Worlds {
    /// None yet, of so many groups.
    pub fn new(base: Base, groups: usize) -> Worlds {
        let (nodes, open, rests) = (vec![String::new(); groups], BTreeMap::new(), vec![0; groups]);
        Worlds(Arc::new(Mutex::new(State { base, nodes, open, together: None, gathering: None, rests })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the relay of a group run for a call; the path of its socket, which is the same on each node and in each life
    /// of the run: images have it.
    pub fn serve(&self, call: &str, world: &World, ranks: &str, group: usize) -> PathBuf {
        let mut state = self.state();
        let node = state.nodes[group].clone();
        if !state.open.contains_key(call) {
            let steps = state.steps(call, world, ranks);
            if state.together.is_some() {
                state.forget_before(call, &steps.run);
            }
            steps.watch();
            state.open.insert(call.to_string(), steps);
        }
        let Some(steps) = state.open.get_mut(call) else { return PathBuf::new() };
        steps.place(group, &node);
        PathBuf::from(steps.socket(group))
    }

    /// Ends the relays of a call.
    pub fn end(&self, call: &str) {
        let steps = self.state().open.remove(call);
        steps.into_iter().for_each(|mut steps| steps.stop());
    }

    /// How many groups there are, if all of them go back together.
    pub fn together(&self) -> Option<usize> {
        let state = self.state();
        state.together.as_ref().map(|_| state.nodes.len())
    }

    /// Has the ranks of a group close their connections to its relay, for a dump in this folder; they come back when the
    /// result is dropped. If it is part of one of all groups, those of all are away now, and what the relays hold is saved.
    ///
    /// # Errors
    /// A sentence: they go on as before.
    pub fn rest(&self, calls: &[&str], group: usize, into: &Path) -> Result<Resting, String> {
        let gathering = self.gathering(into);
        // A call of which one group has all ranks has no relays.
        let has_relays = |call: &&&str| self.state().open.contains_key(**call);
        let calls = calls.iter().filter(has_relays).map(|call| (*call).to_string()).collect();
        let number = self.begin_rest(group);
        let resting = Resting { of: self.clone(), calls, group, number };
        let checkpoint = gathering.as_ref().map_or(0, |all| all.number()).to_string();
        let limit = REST_LIMIT_S.to_string();
        for call in &resting.calls {
            self.ask(call, group, &["rest", "--checkpoint", &checkpoint, "--limit", &limit])?;
        }
        if let Some(all) = gathering {
            all.meet(group, |folder| {
                let save = |call: &String| {
                    let to = saved(folder, call);
                    let asked = self.ask(call, group, &["save", "--to", &to.to_string_lossy()]);
                    asked.map_err(|reason| NoLine::Missing(group, reason))
                };
                resting.calls.iter().try_for_each(save)
            });
        }
        Ok(resting)
    }

    /// Counts the rests of a group, of which the last counts.
    fn begin_rest(&self, group: usize) -> u64 {
        let mut state = self.state();
        state.rests[group] += 1;
        state.rests[group]
    }

    /// The last rest of a group in a call that goes on.
    fn rests(&self, call: &str, group: usize) -> Option<u64> {
        let state = self.state();
        state.open.contains_key(call).then(|| state.rests[group])
    }

    /// A group makes no checkpoint in this folder: if it was to be part of one of all groups, the others go on.
    pub fn leave(&self, group: usize, into: &Path, why: &str) {
        self.gathering(into).into_iter().for_each(|all| all.fail(NoLine::Missing(group, why.to_string())));
    }

    /// The checkpoint of all groups of which the one in this folder is a part.
    fn gathering(&self, into: &Path) -> Option<Arc<Gathering>> {
        self.state().gathering.clone().filter(|all| all.has(into))
    }

    /// A group has a checkpoint in this folder, whose name is its number, to which it can go back.
    pub fn committed(&self, group: usize, line: &Path) {
        let calls: Vec<String> = self.state().open.keys().cloned().collect();
        let number = line.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let worlds = self.clone();
        threads::start(move || {
            for call in calls {
                if let Err(e) = worlds.ask(&call, group, &["commit", "--checkpoint", &number]) {
                    // Logs are kept for longer than they are needed.
                    tracing::warn!(group, e, "a relay does not know of a checkpoint");
                }
            }
        });
    }

    fn ask(&self, call: &str, group: usize, verb: &[&str]) -> Result<(), String> {
        let command = match self.state().open.get(call) {
            None => return Err("the call has ended".to_string()),
            Some(steps) => steps.ask(group, verb),
        };
        let output = command?.stdout(Stdio::null()).stderr(Stdio::piped()).output();
        let output = output.map_err(|e| format!("the relay of group {group}: srun: {e}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason").trim().to_string();
        Err(format!("the relay of group {group} does not {}: {last}", verb[0]))
    }
}

impl State {
    fn steps(&self, call: &str, world: &World, ranks: &str) -> Steps {
        let base = &self.base;
        let (sockets, home) = (sockets(&base.run), base.run.join(MEETINGS).join(call));
        let run = match &self.together {
            None => home,
            // A meeting of their own, where no relay of before finds them, whatever it was that had to be taken back.
            Some(_) => home.join(TOGETHER).join(format!("{:.3}", now_s())),
        };
        let line = self.together.as_ref().and_then(Option::as_ref);
        let relay = |group: usize| match line {
            Some(folders) => Relay::from_line(saved(&folders[group], call)),
            None => Relay::default(),
        };
        Steps {
            srun: base.srun.clone(),
            slurm: base.slurm.clone(),
            run,
            log: base.log,
            keep: base.keep,
            placements: base.placements.clone(),
            sockets: sockets.join(call).to_string_lossy().into_owned(),
            world: Some(Carried {
                program: world.relay.clone(),
                sockets,
                name: call.to_string(),
                ranks: ranks.to_string(),
            }),
            cpus: base.cpus,
            post: base.post.clone(),
            all: (0..self.nodes.len()).map(relay).collect(),
            told: Tries::default(),
        }
    }

    /// Removes what relays of earlier lives of a call have kept: nobody goes back to it.
    fn forget_before(&self, call: &str, life: &Path) {
        let home = self.base.run.join(MEETINGS).join(call);
        let life = life.to_path_buf();
        threads::start(move || {
            let lives = fs::read_dir(home.join(TOGETHER)).into_iter().flatten().flatten().map(|entry| entry.path());
            for old in lives.filter(|path| *path < life).chain([home.join("relays")]).filter(|path| path.exists()) {
                if let Err(e) = fs::remove_dir_all(&old) {
                    tracing::warn!(%e, path = %old.display(), "messages of an earlier life are still there");
                }
            }
        });
    }
}

/// Removes from a run what the relays of all calls have kept, but for these.
pub fn forget_but(run: &Path, kept: &BTreeSet<String>) {
    let entries = fs::read_dir(run.join(MEETINGS)).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| !entry.file_name().to_str().is_some_and(|name| kept.contains(name))) {
        if let Err(e) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%e, path = %entry.path().display(), "messages of an earlier life are still there");
        }
    }
}

/// The ranks of a group hold no connection to its relay.
pub struct Resting {
    of: Worlds,
    calls: Vec<String>,
    group: usize,
    /// Tells it from other rests of the group.
    number: u64,
}

impl Resting {
    /// The ranks have ended: nobody comes back.
    pub fn forget(mut self) {
        self.calls.clear();
    }
}

impl Drop for Resting {
    fn drop(&mut self) {
        let (of, calls, group, number) = (self.of.clone(), std::mem::take(&mut self.calls), self.group, self.number);
        let wake = move |call: &String| {
            let told = of.ask(call, group, &["wake"]);
            told.inspect_err(|reason| tracing::error!(reason, group, "ranks wait for their relay")).is_err()
        };
        let mut left: Vec<String> = calls.into_iter().filter(&wake).collect();
        if left.is_empty() {
            return;
        }
        let of = self.of.clone();
        threads::start(move || {
            while !left.is_empty() {
                thread::sleep(WAKE_PAUSE);
                // Of a call that has ended, or ranks that rest for another dump, nothing is wanted any more.
                left.retain(|call| of.rests(call, group) == Some(number) && wake(call));
            }
        });
    }
}

impl Relays for Worlds {
    fn place(&mut self, group: usize, node: &str) {
        let mut state = self.state();
        state.nodes[group] = node.to_string();
        state.open.values_mut().for_each(|steps| steps.place(group, node));
    }

    fn starts(&mut self, group: usize) {
        self.state().open.values_mut().for_each(|steps| steps.starts(group));
    }

    fn variables(&self, _: usize) -> Vec<(String, String)> {
        Vec::new()
    }

    fn behind(&mut self, group: usize) -> Option<u64> {
        let mut state = self.state();
        let all: Vec<u64> = state.open.values_mut().filter_map(|steps| steps.behind(group)).collect();
        all.into_iter().reduce(u64::saturating_add)
    }

    fn logged_node_s(&mut self, group: usize) -> f64 {
        self.state().open.values_mut().map(|steps| steps.logged_node_s(group)).sum()
    }

    fn gathers(&self) -> bool {
        !self.state().open.is_empty()
    }

    fn gather(&mut self, number: u64, folders: &[PathBuf]) {
        let mut state = self.state();
        let ranks = |(call, steps): (&String, &Steps)| Some((call.clone(), steps.world.as_ref()?.ranks.clone()));
        let calls = state.open.iter().filter_map(ranks).collect();
        state.gathering = Some(Arc::new(Gathering::new(number, folders, calls)));
    }

    fn disperse(&mut self, why: NoLine) {
        if let Some(all) = &self.state().gathering {
            all.fail(why);
        }
    }

    fn gathered(&mut self, number: u64) -> Result<(), NoLine> {
        let all = self.state().gathering.take().filter(|all| all.number() == number);
        all.map_or(Err(NoLine::Late), |all| all.outcome())
    }

    fn all_back(&mut self, line: Option<Vec<PathBuf>>) {
        Relays::stop(self);
        self.state().together = Some(line);
    }

    fn stop(&mut self) {
        let open = std::mem::take(&mut self.state().open);
        open.into_values().for_each(|mut steps| steps.stop());
    }
}

/// Options of `srun` for a step with one task on each of these nodes, which has so many CPUs.
pub fn one_on_each(nodes: &[String], cpus: usize) -> Vec<String> {
    vec![
        format!("--nodes={}", nodes.len()),
        format!("--ntasks={}", nodes.len()),
        "--ntasks-per-node=1".to_string(),
        format!("--nodelist={}", nodes.join(",")),
        // What it starts has the CPUs of all ranks, whatever each node has of them.
        format!("--cpus-per-task={cpus}"),
        "--mpi=none".to_string(),
        // As MPI launchers do: the other ranks would wait for those that are gone.
        "--kill-on-bad-exit=1".to_string(),
    ]
}

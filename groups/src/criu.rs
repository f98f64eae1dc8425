//! Engine `criu` for groups that do not talk: the tasks of each below wardens of its own, dumped into its own lines.
//!
//! All groups write to the script's standard output, where nothing of one of them can be taken back when it goes back.
//! So each writes to files of its own, and what they have is printed when a line has it, or the call is over: nothing
//! is printed that will be written again.

use crate::board::{Seat, Seats, Way, Within, tell};
use crate::known::{self, Ended, Known, Written};
use crate::lines::Reach;
use crate::shared::{self, Shared};
use driver::groups::ports::{News, Varies};
use driver::ports::{Engine, Happening, NotSaved, Unprepared};
use engines::app::interval_variables;
use engines::criu::{Restores, is_trusted};
use engines::criu_steps::length_from;
use engines::wardens::{Callbacks, Dump, Standing, Wardens};
use host::mail::{Post, Tries};
use protocol::Manifest;
use run::Checkpoints;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use steps::groups::words::{Outputs, Told};
use worlds::calls::{self, Resting, Worlds};
use worlds::kinds::World;

/// Names the line from which a group starts.
const LINE: &str = "JOULEPOINT_LINE";

/// File in a line that tells what the open calls had written.
const CALLS: &str = "calls.json";

/// File in a group's folder that tells which of its shares have ended, and how.
const ENDED: &str = "ended.json";

/// A call, as lines know it.
#[derive(Clone, Debug)]
pub struct DumpedCall {
    name: String,
    /// The same for calls that are alike.
    key: String,
    words: String,
    /// Why its tasks are in no sandbox, if so.
    outside: Option<String>,
    /// What makes one MPI world of its ranks in all groups, if it is one.
    pub(super) world: Option<World>,
}

impl DumpedCall {
    /// Tells it from all others of the run.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// A call in which a group has a step, and what its output files had when that was started, bytes.
type Open = (DumpedCall, Written);

/// What the driver knows of the calls of one group.
#[derive(Default)]
struct Share {
    ended: Known<Ended>,
    /// Calls of the line before that the script, begun anew, has not reached yet.
    unreached: BTreeSet<String>,
}

/// What puts the tasks of all groups into sandboxes.
#[derive(Clone)]
pub struct Dumped {
    criu: PathBuf,
    run: PathBuf,
    limit_s: f64,
    /// Fingerprint of the script.
    script: String,
    /// When the run was last seen well before this driver, s.
    well_s: f64,
    /// How many calls there were that are alike.
    alike: Arc<Mutex<BTreeMap<String, u32>>>,
    /// What is known of each group.
    shares: Arc<Mutex<BTreeMap<usize, Share>>>,
    /// The relays of MPI programs that are one world over all groups, if there may be some.
    pub(super) worlds: Option<Worlds>,
    /// Groups whose ranks stay away from their relays after their next dump, and what keeps them so.
    away: Arc<Mutex<BTreeMap<usize, Option<Resting>>>>,
    /// What each group writes.
    written: shared::Written,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dumped {
    /// Sandboxes below this command, for the run in this folder, of the script with this fingerprint; a dump or restore
    /// takes `limit_s` at most, and the run was last seen well at `well_s`.
    pub fn new(criu: &Path, run: &Path, limit_s: f64, script: String, well_s: f64) -> Dumped {
        let (criu, run) = (criu.to_path_buf(), run.to_path_buf());
        let (alike, shares, away, written) =
            (Arc::default(), Arc::default(), Arc::default(), shared::Written::default());
        Dumped { criu, run, limit_s, script, well_s, alike, shares, worlds: None, away, written }
    }

    /// With relays for MPI programs that are one world over all groups.
    #[must_use]
    pub fn talking(self, worlds: Option<Worlds>) -> Dumped {
        Dumped { worlds, ..self }
    }

    /// The next call with this key, after every beginning of the script; `outside` says why no sandbox can hold it, and
    /// `world` what makes one MPI world of its ranks.
    pub fn call(&self, args: &[String], key: &str, outside: Option<String>, world: Option<World>) -> DumpedCall {
        let words = args.join(" ");
        let mut alike = locked(&self.alike);
        let count = alike.entry(key.to_string()).or_default();
        *count += 1;
        if let Some(why) = &outside {
            protocol::say!("joulepoint: no checkpoint while srun {words} runs: {why}");
        }
        DumpedCall { name: format!("{key}.{count}"), key: key.to_string(), words, outside, world }
    }

    /// Whether a call of this name has been since the script began.
    fn has_been(&self, name: &str) -> bool {
        let Some((key, number)) = name.rsplit_once('.') else { return false };
        let been = locked(&self.alike).get(key).copied().unwrap_or(0);
        number.parse().is_ok_and(|number: u32| number <= been)
    }

    /// Forgets the messages of an earlier driver's calls that begin anew in all groups: none of their ranks has sent or
    /// received any, and what they send now may be something else.
    pub fn forget_messages(&self, groups: usize) {
        if self.worlds.is_none() {
            return;
        }
        let lines = glob::glob(&self.run.join("checkpoints/g*/*").join(CALLS).to_string_lossy());
        let lines = lines.into_iter().flatten().flatten();
        let mut kept: BTreeSet<String> =
            lines.filter_map(|file| Some(self.written(file.parent()?).into_keys())).flatten().collect();
        for group in 0..groups {
            self.with(group, |share| kept.extend(share.ended.keys().cloned()));
        }
        calls::forget_but(&self.run, &kept);
    }

    /// Does something with what is known of a group.
    fn with<T>(&self, group: usize, f: impl FnOnce(&mut Share) -> T) -> T {
        let mut shares = locked(&self.shares);
        let read = || {
            let mut ended: Known<Ended> = known::read(&self.folder(group).join(ENDED), &self.script);
            ended.retain(|_, e| e.counts(self.well_s));
            Share { ended, unreached: BTreeSet::new() }
        };
        f(shares.entry(group).or_insert_with(read))
    }

    /// A group goes on from a line, or from the beginning.
    fn goes_on(&self, group: usize, line: Option<&Path>) {
        let of_line = line.map(|line| self.written(line)).unwrap_or_default();
        let unreached = |share: &Share, name: &String| !share.ended.contains_key(name) && !self.has_been(name);
        self.with(group, |share| {
            share.unreached = of_line.into_keys().filter(|name| unreached(share, name)).collect();
        });
    }

    /// What the open calls of a line had written.
    fn written(&self, line: &Path) -> Known<Written> {
        known::read(&line.join(CALLS), &self.script)
    }

    /// The folder in which the wardens of a group find its engine.
    fn folder(&self, group: usize) -> PathBuf {
        self.run.join("groups").join(format!("g{group}"))
    }

    fn outputs(&self, group: usize, of: &DumpedCall) -> Outputs {
        ["out", "err"].map(|stream| self.folder(group).join(format!("{}.{stream}", of.name)))
    }

    /// How a group's share is started, or the exit code with which it had ended.
    pub(super) fn way(
        &self,
        group: usize,
        of: &DumpedCall,
        tasks: usize,
        environment: &[(String, String)],
    ) -> Result<Way, i32> {
        // What was put aside before and was not told to come back has ended with its call.
        self.is_gone(group);
        let line = environment.iter().find(|(name, _)| name == LINE).map(|(_, line)| Path::new(line));
        let written = line.and_then(|line| self.written(line).remove(&of.name));
        if let Some(Ended { code, .. }) = self.had_ended(group, of) {
            let words = &of.words;
            protocol::say!(
                "joulepoint: srun {words} had ended with {code} in group {group} before; not run again there"
            );
            return Err(code);
        }
        self.with(group, |share| {
            share.unreached.remove(&of.name);
            if written.is_none() {
                // The script goes another way than before.
                share.unreached.clear();
            }
        });
        let outputs = self.outputs(group, of);
        let mut from_bytes = written.unwrap_or_default();
        for (path, bytes) in outputs.iter().zip(&mut from_bytes) {
            *bytes = cut(path, *bytes).unwrap_or_else(|e| {
                protocol::say!("joulepoint: what group {group} wrote is not put back: {}: {e}", path.display());
                0
            });
        }
        let words = self.words(group, of, tasks, line.filter(|_| written.is_some()));
        Ok(Way { words, outputs: Some(outputs), from_bytes, ..Way::default() })
    }

    /// The words of a task's warden.
    fn words(&self, group: usize, of: &DumpedCall, tasks: usize, line: Option<&Path>) -> Vec<String> {
        if of.outside.is_some() {
            return Vec::new();
        }
        let path = |p: &Path| p.to_string_lossy().into_owned();
        let pairs = [("--criu", path(&self.criu)), ("--run", path(&self.folder(group))), ("--call", of.name.clone())];
        let pairs = pairs.into_iter().chain(line.map(|line| ("--restore", path(line))));
        // The ranks and numbers that a task sees are those of all groups.
        let pairs = pairs.chain([("--tasks", tasks.to_string()), ("--limit-s", self.limit_s.to_string())]);
        let words = pairs.flat_map(|(name, value)| [name.to_string(), value]);
        // Launchers and ranks hold connections to each other.
        let network = of.world.iter().map(|_| "--own-network".to_string());
        words.chain(network).chain(["--".to_string()]).collect()
    }

    /// A share has ended for good while the group has one in these `others`: that is kept, and what it wrote.
    pub(super) fn over(&self, group: usize, of: &DumpedCall, code: i32, others: &[DumpedCall]) {
        let path = self.folder(group).join(ENDED);
        let synced = self.outputs(group, of).iter().try_for_each(|path| File::open(path)?.sync_all());
        let written = synced.and_then(|()| {
            self.with(group, |share| {
                let is_indistinct = others.iter().any(|o| o.key == of.key && !share.ended.contains_key(&o.name));
                share.ended.insert(of.name.clone(), Ended::now(code, is_indistinct));
                if !is_indistinct {
                    let alike = share.ended.iter_mut().filter(|(name, _)| name.starts_with(&of.key));
                    alike.for_each(|(_, e)| e.is_indistinct = false);
                }
                known::keep(&path, &self.script, &share.ended)
            })
        });
        if let Err(e) = written {
            protocol::say!("joulepoint: the end of srun {} cannot be remembered: {}: {e}", of.words, path.display());
        }
    }

    /// Nobody wants anything of a call any more.
    pub(super) fn end(&self, of: &DumpedCall) {
        self.written.forget();
        if let Some(worlds) = self.worlds.as_ref().filter(|_| of.world.is_some()) {
            worlds.end(&of.name);
        }
    }

    /// Has what a group wrote printed, up to so many bytes.
    pub(super) fn print(&self, group: usize, of: &DumpedCall, upto_bytes: Written, to: &UnixStream) {
        tell(to, &Told::Print { outputs: self.outputs(group, of), upto_bytes });
    }

    /// Has the ranks of a group let their relays go, if it has some.
    fn rest(&self, group: usize, open: &[Open], into: &Path) -> Result<Option<Resting>, String> {
        let calls: Vec<&str> = open.iter().filter(|(of, _)| of.world.is_some()).map(|(of, _)| &*of.name).collect();
        let worlds = self.worlds.as_ref().filter(|_| !calls.is_empty());
        worlds.map(|worlds| worlds.rest(&calls, group, into)).transpose()
    }

    /// A group's program is to stand still after its next dump: its ranks reach no other group then.
    pub(super) fn stays_away(&self, group: usize) {
        locked(&self.away).insert(group, None);
    }

    /// The program of a group is dumped: its ranks come back to their relays, unless they are to stay away.
    fn dumped(&self, group: usize, resting: Option<Resting>) {
        if let Some(kept) = locked(&self.away).get_mut(&group) {
            *kept = resting;
        }
    }

    /// The program of a group that was to be put aside goes on.
    pub(super) fn comes_back(&self, group: usize) {
        let kept = locked(&self.away).remove(&group);
        // Slurm may not begin the step by which their relays are told for a while.
        threads::start(move || drop(kept));
    }

    /// The program of a group that was put aside has ended, and with it all that its relays knew of it.
    fn is_gone(&self, group: usize) {
        locked(&self.away).remove(&group).flatten().into_iter().for_each(Resting::forget);
    }

    /// Whether a group's share of a call had ended, and how. One of a program whose groups go back together counts only if
    /// all of them had ended: else it is needed again.
    fn had_ended(&self, group: usize, of: &DumpedCall) -> Option<Ended> {
        let ended = |group: usize| self.with(group, |share| share.ended.get(&of.name).copied());
        let groups = self.worlds.as_ref().filter(|_| of.world.is_some()).and_then(Worlds::together);
        let (own, count) = (ended(group)?, groups.unwrap_or(0));
        if (0..count).all(|other| ended(other).is_some()) {
            return Some(own);
        }
        self.with(group, |share| {
            share.ended.remove(&of.name);
            if let Err(e) = known::keep(&self.folder(group).join(ENDED), &self.script, &share.ended) {
                tracing::warn!(%e, group, "a share that runs again is still remembered as ended");
            }
        });
        None
    }

    /// Whether a group can go back alone to its dump in this folder. The groups of one MPI program whose files are not its
    /// own go back together from now on, which the driver is told.
    ///
    /// # Errors
    /// Why not.
    fn alone(&self, group: usize, open: &[Open], into: &Path, post: &Post) -> Result<(), NotSaved> {
        let Some(Shared { path, with }) = self.written.take_up(group, into) else { return Ok(()) };
        if open.iter().any(|(of, _)| of.world.is_some()) {
            post.tell(Happening::Group(News::Varies { group, why: Varies::File { path, with } }));
            return Ok(());
        }
        let cure = "give each group files of its own ($FT_ENERGY_GROUP)";
        let path = path.display();
        let why =
            format!("group {with} writes to {path}, too, and would lose what it has written when this one goes back");
        Err(format!("{why}: {cure}").into())
    }

    /// Keeps in a line what it knows of the calls, when all tasks of a group stand still or have ended.
    fn keep(&self, group: usize, open: &[Open], all: &[Standing], into: &Path) -> Result<(), String> {
        if self.with(group, |share| !share.unreached.is_empty()) {
            return Err("the script has not reached all steps that the checkpoint before holds".to_string());
        }
        let mut known: Known<Written> = Known::new();
        for (of, from_bytes) in open {
            let mut tasks = all.iter().filter(|s| s.member.call == of.name).peekable();
            if tasks.peek().is_none() {
                return Err(format!("srun {} has not started its tasks yet", of.words));
            }
            let add = |[out, err]: [u64; 2], s: &Standing| [out + s.carried_bytes[0], err + s.carried_bytes[1]];
            let carried = tasks.fold(*from_bytes, add);
            let mut written_bytes = [0; 2];
            for (stream, path) in self.outputs(group, of).iter().enumerate() {
                written_bytes[stream] = File::open(path)
                    .and_then(|file| length_from(&file, carried[stream], stream == 1))
                    .map_err(|e| format!("{}: {e}", path.display()))?;
            }
            known.insert(of.name.clone(), written_bytes);
        }
        let path = into.join(CALLS);
        let written = known::text(&self.script, known).and_then(|text| fs::write(&path, text));
        written.map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Forgets what was written to a file beyond so many bytes; how many it has then.
fn cut(path: &Path, bytes: u64) -> io::Result<u64> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let bytes = bytes.min(file.metadata()?.len());
    file.set_len(bytes).map(|()| bytes)
}

impl Seats {
    /// The open calls in which a group has a step.
    fn open_of(&self, group: usize) -> Vec<Open> {
        let open = |seat: &Seat| Some((seat.dumped.clone()?, seat.running.get(&group)?.from_bytes));
        self.with(|all| all.values().filter_map(open).collect())
    }

    /// A task of a group was lost in this call: unless its step ends anyhow, the steps of the group are stopped. Whether
    /// they are.
    fn stop_all_of(&self, group: usize, call: &str) -> bool {
        let works = |s: &Seat| s.running.get(&group).is_some_and(|r| !r.is_stopped && !r.ends) && !s.is_ending;
        let is_it = |s: &Seat| s.dumped.as_ref().is_some_and(|of| of.name == call);
        self.with(|all| {
            let goes_back = all.values().any(|s| is_it(s) && works(s));
            all.values_mut().filter(|s| goes_back && works(s)).for_each(|s| s.stop(group));
            goes_back
        })
    }

    /// A signal from outside has ended a task of a group's share of a call.
    fn note_asked(&self, group: usize, call: &str) {
        let is_it = |s: &&mut Seat| s.dumped.as_ref().is_some_and(|of| of.name == call);
        let shares = |s: &mut Seat| s.running.get_mut(&group).into_iter().for_each(|r| r.is_asked = true);
        self.with(|all| all.values_mut().filter(is_it).for_each(shares));
    }

    /// Has printed what a checkpoint of a group has, if the group alone would not go back to before it: while an MPI program
    /// of all groups runs, only what a line of all has will not be written again.
    pub fn print(&self, group: usize, line: &Path, reach: Reach) {
        let Within::Dumped(within) = &self.within else { return };
        let written = within.written(line);
        self.with(|all| {
            let is_world = |s: &Seat| s.dumped.as_ref().is_some_and(|of| of.world.is_some());
            if reach == Reach::Own && all.values().any(is_world) {
                return;
            }
            for seat in all.values() {
                if let Some((of, written)) = seat.dumped.as_ref().and_then(|of| Some((of, written.get(&of.name)?))) {
                    within.print(group, of, *written, &seat.to);
                }
            }
        });
    }
}

/// The engine of one group.
pub struct GroupCriu {
    group: usize,
    post: Post,
    checkpoints: Checkpoints,
    seats: Seats,
    within: Dumped,
    wardens: Wardens,
    dumps: config::Criu,
    tries: Tries,
    restores: Restores,
}

impl GroupCriu {
    /// An engine that listens for the tasks of a group on this host, which other nodes know as `host`.
    ///
    /// # Errors
    /// What the file system or the network says.
    pub fn listen(
        group: usize,
        post: Post,
        checkpoints: Checkpoints,
        seats: &Seats,
        within: &Dumped,
        host: &str,
        dumps: &config::Criu,
    ) -> io::Result<GroupCriu> {
        let folder = within.folder(group);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let ending = seats.clone();
        let lost = move |member: &::criu::line::Member, _, _: &dyn Fn() -> bool| {
            if ending.stop_all_of(group, &member.call) {
                let (task, node) = (member.rank, &member.node);
                protocol::say!("joulepoint: task {task} on {node} was killed or is missing; group {group} goes back");
            }
            false
        };
        let ended = seats.clone();
        let asked = move |member: &::criu::line::Member, _: i32| {
            let is_wish = steps::cancelled::is_left_in_peace(ended.steps.as_ref());
            if is_wish {
                ended.note_asked(group, &member.call);
            }
            is_wish
        };
        let wardens = Wardens::listen(&folder, host, Callbacks::new(lost, asked))?;
        let (seats, within, dumps) = (seats.clone(), within.clone(), dumps.clone());
        let (tries, restores) = (Tries::default(), Restores::default());
        Ok(GroupCriu { group, post, checkpoints, seats, within, wardens, dumps, tries, restores })
    }
}

impl Engine for GroupCriu {
    fn name(&self) -> &str {
        "criu"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        is_trusted(&self.within.run)?;
        let line = from.map(|manifest| self.checkpoints.path(manifest.number));
        // Where nobody has asked yet why the group had ended.
        let _ = self.restores.failed();
        self.restores.begin(line.clone())?;
        self.wardens.forget();
        let mut environment = interval_variables(interval_s);
        self.within.goes_on(self.group, line.as_deref());
        environment.extend(line.map(|line| (LINE.to_string(), line.to_string_lossy().into_owned())));
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (group, post, wardens) = (self.group, self.post.clone(), self.wardens.clone());
        let (seats, within, dumps) = (self.seats.clone(), self.within.clone(), self.dumps.clone());
        let checkpoints = self.checkpoints.clone();
        threads::start(move || {
            let open = seats.open_of(group);
            let outside = open.iter().find_map(|(of, _)| Some((of, of.outside.as_ref()?)));
            let saved = match outside {
                Some((of, why)) => Err(format!("srun {} runs in no sandbox: {why}", of.words).into()),
                None => match within.rest(group, &open, &into) {
                    Err(reason) => Err(reason.into()),
                    Ok(resting) => {
                        wardens.forget_ended(&|name| open.iter().any(|(of, _)| of.name == name));
                        let still = |all: &[Standing]| {
                            within.keep(group, &seats.open_of(group), all, &into).map_err(NotSaved::from)
                        };
                        let (limit_s, wanted) = (within.limit_s, || one.is_current());
                        let resting = Cell::new(resting);
                        wardens.dump(&Dump {
                            into: &into,
                            earlier: &checkpoints.earlier(),
                            limit_s,
                            dumps: &dumps,
                            has_others: true,
                            wanted: &wanted,
                            still: &still,
                            goes_on: &|| {
                                post.tell_of(&one, Happening::GoesOn);
                                within.dumped(group, resting.take());
                            },
                        })
                    }
                },
            };
            let saved = saved.and_then(|saved| within.alone(group, &open, &into, &post).map(|()| saved));
            if let (Err(why), Some(worlds)) = (&saved, &within.worlds) {
                worlds.leave(group, &into, &why.to_string());
            }
            post.tell_of(&one, Happening::Checkpointed(saved));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }

    fn has_killed(&mut self) -> Option<String> {
        self.restores.failed()
    }
}

impl Drop for GroupCriu {
    fn drop(&mut self) {
        self.tries.void();
    }
}

#[cfg(test)]
mod tests;

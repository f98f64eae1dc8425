//! The driver's hand in the script's `srun` calls: a socket at which the programs that stand in for `srun` report.

use crate::criu::{Dumped, DumpedCall};
use crate::dealt::Dealt;
use crate::folder::Folder;
use driver::groups::ports::{News, Shares};
use driver::ports::Happening;
use fencing::Placement;
use host::mail::{Post, now_s};
use protocol::Messages;
use run::Placements;
use slurm::{Job, JobState, Slurm};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use steps::cancelled;
use steps::groups::split::{CPUS, Call, Unsplit};
use steps::groups::words::{Outputs, SOCKET, Said, Told};
use steps::script::Steps;
use steps::slurmd::{self, Outlived};
use worlds::kinds::World;

/// Longest wait for Slurm to report a step as ended.
const STEP_LIMIT: Duration = Duration::from_secs(30);

/// Exit code of what was killed.
const KILLED: i32 = 128 + libc::SIGKILL;

/// Time between two looks at a step.
const LOOK: Duration = Duration::from_millis(200);

/// The folder that comes first in the script's `PATH`, with a socket and an `srun`.
pub struct Board {
    folder: Folder,
    seats: Seats,
}

/// The open calls, as seen from any thread.
#[derive(Clone)]
pub struct Seats {
    /// The open calls, by number.
    pub(super) all: Arc<Mutex<BTreeMap<u64, Seat>>>,
    /// Where news go.
    pub(super) post: Post,
    /// The job's steps.
    pub(super) steps: Option<Steps>,
    pub(super) placements: Placements,
    /// Whether the output files of a call are emptied that does not say it itself; none if the run goes on, and all of them
    /// are kept.
    pub(super) empties: Option<bool>,
    pub(super) dealt: Dealt,
    pub(super) within: Within,
    /// Why a call of the script runs without groups, if one does: the first.
    pub(super) without: Arc<Mutex<Option<String>>>,
}

/// One open call.
pub(super) struct Seat {
    pub(super) to: UnixStream,
    pub(super) call: Call,
    /// What the engine `criu` must know of it.
    pub(super) dumped: Option<DumpedCall>,
    /// The script has asked it to end.
    pub(super) is_ending: bool,
    /// The steps that run, by group.
    pub(super) running: BTreeMap<usize, Running>,
    /// The groups that have begun it.
    begun: BTreeSet<usize>,
}

/// A group's step.
#[derive(Clone)]
pub(super) struct Running {
    name: String,
    placement: Placement,
    nodes: Vec<String>,
    /// When it was to be started.
    since_s: f64,
    /// Accounting does not tell a person's wish from its own end.
    may_cancel_itself: bool,
    /// Folder of the sandbox in which its only task runs.
    sandbox: Option<PathBuf>,
    /// What its output files had when it was started, bytes.
    pub(super) from_bytes: [u64; 2],
    /// Its `srun` has ended; what that means is being found out.
    pub(super) ends: bool,
    /// It was asked to end.
    pub(super) is_stopped: bool,
    /// A signal from outside, not of ours, has ended a task of it.
    pub(super) is_asked: bool,
}

/// What programs run in.
#[derive(Clone)]
pub enum Within {
    /// Nothing of ours.
    Nothing,
    /// A sandbox for each group of one task, so that it can be put aside.
    Parkable(Sandboxes),
    /// A sandbox for each task, for the engine `criu`.
    Dumped(Dumped),
}

/// How a group's share of a call is started.
#[derive(Default)]
pub(super) struct Way {
    /// Words of the warden that is to start the program, if one is.
    pub(super) words: Vec<String>,
    pub(super) sandbox: Option<PathBuf>,
    pub(super) outputs: Option<Outputs>,
    pub(super) from_bytes: [u64; 2],
}

/// What programs run in so that they can be put aside.
#[derive(Clone)]
pub struct Sandboxes {
    /// CRIU's command.
    pub criu: PathBuf,
    /// Folder for the folders of sandboxes, which all nodes see.
    pub folder: PathBuf,
    /// Longest time of a restore, s.
    pub limit_s: f64,
}

impl Board {
    /// Puts a program in place of `srun`, for a run with that folder; `sizes` are the nodes of each group.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(run: &Path, sizes: Vec<usize>, seats: Seats) -> io::Result<Board> {
        let folder = Folder::make(run)?;
        symlink(std::env::current_exe()?, folder.path().join(steps::srun::NAME))?;
        let listener = UnixListener::bind(folder.path().join("socket"))?;
        let of_listener = seats.clone();
        threads::start(move || {
            for (number, stream) in (0..).zip(listener.incoming().map_while(Result::ok)) {
                let (seats, sizes) = (of_listener.clone(), sizes.clone());
                threads::start(move || seats.serve(number, stream, &sizes));
            }
        });
        Ok(Board { folder, seats })
    }

    /// What the script must see to find the program in place of `srun`.
    pub fn variables(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").unwrap_or_else(|_| steps::calls::PATH.to_string());
        vec![
            ("PATH".to_string(), format!("{}:{path}", self.folder.path().display())),
            (SOCKET.to_string(), self.folder.path().join("socket").display().to_string()),
        ]
    }

    /// A name that nothing else on this node has.
    pub fn name(&self) -> String {
        self.folder.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// The open calls.
    pub fn seats(&self) -> Seats {
        self.seats.clone()
    }
}

impl Seats {
    /// Serves one program that stands in for `srun`.
    fn serve(&self, number: u64, stream: UnixStream, sizes: &[usize]) {
        let Ok(to) = stream.try_clone() else { return };
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Said::Called { args, variables, key, unfit, world }) => {
                    // The script sees a list that is made of the batch host's CPUs alone.
                    let own = |name: &str| std::env::var(name).ok().filter(|_| name == CPUS);
                    let variable = |name: &str| own(name).or_else(|| variables.get(name).cloned());
                    unfit.iter().for_each(|why| self.runs_without(why));
                    let call = Call::read(&args, sizes, variable);
                    let gathered = call.and_then(|call| self.within.gathered(call, world, unfit.as_deref()));
                    let call = gathered.and_then(|(call, world)| {
                        let dumped = self.within.dumped(&args, key.clone(), unfit, world)?;
                        Ok((call, dumped))
                    });
                    if !self.open(number, &to, key, call) {
                        return;
                    }
                }
                Ok(Said::Ending) => {
                    self.with(|all| all.get_mut(&number).into_iter().for_each(|s| s.is_ending = true));
                    self.post.tell(Happening::Group(News::Ending { call: number }));
                }
                Ok(Said::Ended { group, code, is_killed }) => self.ended(number, group, code, is_killed),
                Err(e) => tracing::warn!(%e, "a call of srun is not understood"),
            }
        }
        self.dropped(number);
    }

    pub(super) fn open(
        &self,
        number: u64,
        to: &UnixStream,
        key: Option<String>,
        call: Result<(Call, Option<DumpedCall>), Unsplit>,
    ) -> bool {
        let pass = |why: Option<String>| {
            why.iter().for_each(|why| self.runs_without(why));
            tell(to, &Told::Pass { why });
            false
        };
        let (mut call, dumped) = match call {
            Ok(call) => call,
            Err(Unsplit::Answer) => return pass(None),
            Err(Unsplit::Whole(why)) => return pass(Some(why)),
            Err(Unsplit::Refused(why)) => {
                self.runs_without(&why);
                tell(to, &Told::Refuse { why });
                return false;
            }
        };
        if call.groups().is_empty() {
            return pass(Some("it has no tasks".to_string()));
        }
        let Ok(own) = to.try_clone() else { return pass(Some("its socket is broken".to_string())) };
        let groups = self.with(|all| {
            let load = |group: usize| all.values().map(|seat| seat.call.load_of(group)).sum::<usize>();
            self.dealt.deal(key.as_deref(), &mut call, load);
            let groups = call.groups();
            all.insert(number, Seat::new(own, call, dumped));
            groups
        });
        self.post.tell(Happening::Group(News::Called { call: number, groups }));
        true
    }

    /// A call has no groups, or no checkpoints.
    fn runs_without(&self, why: &str) {
        self.without.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| why.to_string());
    }

    /// A share ended: the driver learns it as soon as its step is gone. Nobody has cancelled it whose `srun` `is_killed`.
    fn ended(&self, call: u64, group: usize, code: i32, is_killed: bool) {
        let begin = |all: &mut BTreeMap<u64, Seat>| {
            let step = all.get_mut(&call)?.running.get_mut(&group)?;
            step.ends = true;
            Some(step.clone())
        };
        let Some(step) = self.with(begin) else { return };
        let seats = self.clone();
        threads::start(move || {
            let steps = seats.steps.as_ref();
            // In a job with --no-kill, srun says 0 of a task that died with its node.
            let (lost, is_over) = if code == 0 { lost_nodes(steps, &step) } else { (Vec::new(), false) };
            let has_lost = is_over || !lost.is_empty();
            // Before the controller has said so, the group would begin again where the job has no node any more.
            for node in lost {
                seats.post.tell(Happening::NodeLost { node, at_s: now_s() });
            }
            // A program that ends well because it was asked to end has not done its work.
            let code = if has_lost || code == 0 && step.is_stopped { KILLED } else { code };
            if code != 0 {
                // Slurm may have forgotten the step.
                seats.placements.over(&step.placement);
            }
            let by_somebody = || step.is_asked || !step.may_cancel_itself && is_cancelled(steps, &step);
            let is_cancelled = code != 0 && !step.is_stopped && !is_killed && by_somebody();
            if code != 0 {
                clear(steps, &step.name);
            }
            seats.with(|all| all.get_mut(&call).and_then(|seat| seat.running.remove(&group)));
            seats.post.tell(Happening::Group(News::Ended { call, group, code, is_cancelled }));
        });
    }

    /// Nobody wants what runs of a call any more, whether or not Slurm knows it.
    fn leave(&self, seat: &Seat) {
        seat.running.values().for_each(|step| self.placements.over(&step.placement));
        seat.running.values().for_each(|step| clear(self.steps.as_ref(), &step.name));
    }

    /// The program in place of `srun` is gone: what it started must not go on without it.
    fn dropped(&self, call: u64) {
        let Some(seat) = self.with(|all| all.remove(&call)) else { return };
        self.leave(&seat);
        if let (Within::Dumped(within), Some(of)) = (&self.within, &seat.dumped) {
            within.end(of);
        }
        self.post.tell(Happening::Group(News::Dropped { call }));
    }

    /// The nodes on which a group has steps now.
    pub fn nodes_of(&self, group: usize) -> Vec<String> {
        let of = |seat: &Seat| seat.running.get(&group).filter(|r| !r.ends).map(|r| r.nodes.clone());
        let nodes: BTreeSet<String> = self.with(|all| all.values().filter_map(of).flatten().collect());
        nodes.into_iter().collect()
    }

    /// The sandbox of a group's program, if it is one program, in one.
    pub fn sandbox(&self, group: usize) -> Option<PathBuf> {
        self.with(|all| {
            let mut running = all.values().filter_map(|s| s.running.get(&group)).filter(|r| !r.ends);
            let only = running.next().filter(|_| running.next().is_none());
            only.and_then(|r| r.sandbox.clone())
        })
    }

    pub(super) fn with<T>(&self, f: impl FnOnce(&mut BTreeMap<u64, Seat>) -> T) -> T {
        f(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Seat {
    fn new(to: UnixStream, call: Call, dumped: Option<DumpedCall>) -> Seat {
        Seat { to, call, dumped, is_ending: false, running: BTreeMap::new(), begun: BTreeSet::new() }
    }

    /// Asks a group's step to end.
    pub(super) fn stop(&mut self, group: usize) {
        self.running.get_mut(&group).into_iter().for_each(|r| r.is_stopped = true);
        tell(&self.to, &Told::Stop { group });
    }
}

impl Shares for Seats {
    fn messages(&self) -> Option<Messages> {
        let together = self.without.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(Messages { script: self.dealt.script().to_string(), together: Some(together), ..Messages::default() })
    }

    fn start(
        &mut self,
        call: u64,
        group: usize,
        places: &[Vec<String>],
        environment: &[(String, String)],
    ) -> Option<i32> {
        self.with(|all| {
            let seat = all.get_mut(&call)?;
            let ranks = self.within.ranks(group, seat);
            let way = match self.within.way(group, seat, environment) {
                Ok(way) => way,
                Err(code) => return Some(code),
            };
            let placement = self.placements.of(&format!("{call}.g{group}"));
            let empties = self.empties.is_some_and(|by_site| seat.call.appends().map_or(by_site, |appends| !appends));
            let first = if empties && seat.begun.is_empty() { seat.call.emptied(call) } else { String::new() };
            let is_first = seat.begun.insert(group);
            let within = [words(&way.words, &placement), ranks].concat();
            let mut share = seat.call.share(call, group, places, &within, empties && is_first);
            if !is_first || self.empties.is_none() {
                // Slurm forgets to free the CPUs of a step that ends after the job has lost a node, and would begin no other.
                share.args.insert(0, "--overlap".to_string());
            }
            let Way { sandbox, outputs, from_bytes, .. } = way;
            let running = Running {
                name: share.step,
                placement,
                nodes: share.nodes,
                since_s: now_s(),
                may_cancel_itself: seat.call.may_cancel_itself(),
                sandbox,
                from_bytes,
                ends: false,
                is_stopped: false,
                is_asked: false,
            };
            seat.running.insert(group, running);
            let environment = environment.to_vec();
            tell(&seat.to, &Told::Start { group, first, args: share.args, environment, outputs });
            None
        })
    }

    fn over(&mut self, call: u64, group: usize, code: i32) {
        let Within::Dumped(within) = &self.within else { return };
        let others = |all: &BTreeMap<u64, Seat>| -> Vec<DumpedCall> {
            all.iter()
                .filter(|(n, s)| **n != call && s.call.groups().contains(&group))
                .filter_map(|(_, s)| s.dumped.clone())
                .collect()
        };
        if let Some((of, others)) = self.with(|all| Some((all.get(&call)?.dumped.clone()?, others(all)))) {
            within.over(group, &of, code, &others);
        }
    }

    fn stop(&mut self, call: u64, group: usize) {
        self.with(|all| all.get_mut(&call).into_iter().for_each(|s| s.stop(group)));
    }

    fn end(&mut self, call: u64, code: i32) {
        if let Some(seat) = self.with(|all| all.remove(&call)) {
            if let (Within::Dumped(within), Some(of)) = (&self.within, &seat.dumped) {
                seat.call.groups().into_iter().for_each(|group| within.print(group, of, [u64::MAX; 2], &seat.to));
                within.end(of);
            }
            tell(&seat.to, &Told::End { code });
            if !seat.running.is_empty() {
                let seats = self.clone();
                threads::start(move || seats.leave(&seat));
            }
        }
    }
}

impl Within {
    /// What the engine `criu` must know of a call.
    ///
    /// # Errors
    /// A sentence: it cannot be known again.
    fn dumped(
        &self,
        args: &[String],
        key: Option<String>,
        unfit: Option<String>,
        world: Option<World>,
    ) -> Result<Option<DumpedCall>, String> {
        let Within::Dumped(within) = self else { return Ok(None) };
        let key = key.ok_or("it starts a daemon of an MPI launcher, or in a folder that is gone")?;
        Ok(Some(within.call(args, &key, unfit, world)))
    }

    /// How a group's share of a call is started, or the exit code with which it had ended before.
    fn way(&self, group: usize, seat: &Seat, environment: &[(String, String)]) -> Result<Way, i32> {
        match (self, &seat.dumped) {
            (Within::Parkable(sandboxes), _) if seat.call.is_single(group) => {
                let (sandbox, words) = sandboxes.make(group).unzip();
                Ok(Way { words: words.unwrap_or_default(), sandbox, ..Way::default() })
            }
            (Within::Dumped(within), Some(of)) => {
                let tasks = if of.world.is_some() { 1 } else { seat.call.tasks_of(group) };
                within.way(group, of, tasks, environment)
            }
            _ => Ok(Way::default()),
        }
    }
}

impl Sandboxes {
    /// A fresh sandbox for a group's program, and the words of its warden; without one it runs as it is.
    fn make(&self, group: usize) -> Option<(PathBuf, Vec<String>)> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .and_then(|()| Ok(nix::unistd::mkdtemp(&self.folder.join(format!("g{group}.XXXXXX")))?));
        let folder = made.inspect_err(|e: &io::Error| tracing::warn!(%e, group, "no sandbox")).ok()?;
        let arguments = ::criu::probe::arguments(&self.criu, &folder, None, self.limit_s);
        let words = arguments.iter().map(|a| a.to_string_lossy().into_owned()).collect();
        Some((folder, words))
    }
}

/// The words that go before a program's, if a warden with these words starts it.
fn words(of_warden: &[String], placement: &Placement) -> Vec<String> {
    let Some(us) = std::env::current_exe().ok().filter(|_| !of_warden.is_empty()) else { return Vec::new() };
    let first =
        [us.to_string_lossy().into_owned(), "warden".to_string(), "--placement".to_string(), placement.to_string()];
    first.into_iter().chain(of_warden.iter().cloned()).collect()
}

/// A program that does not listen any more is noticed by its end.
pub(super) fn tell(mut to: &UnixStream, word: &Told) {
    let line = serde_json::to_vec(word).map(|mut line| {
        line.push(b'\n');
        line
    });
    if let Err(e) = line.map_err(io::Error::from).and_then(|line| to.write_all(&line)) {
        tracing::debug!(%e, "a call of srun does not listen");
    }
}

/// Whether a person has cancelled a step that has ended.
fn is_cancelled(steps: Option<&Steps>, step: &Running) -> bool {
    let Some(Steps { slurm, job }) = steps.cloned() else { return false };
    let (name, since_s) = (step.name.clone(), step.since_s);
    if site_cancels(&slurm) {
        return false;
    }
    cancelled::is_cancelled(move || slurm.named_step_state(job, &name, since_s))
}

/// Whether `srun` cancels a step by itself at this site, when a task ends badly or much earlier than the others; also if
/// Slurm does not say.
fn site_cancels(slurm: &Slurm) -> bool {
    let config = slurm.config().unwrap_or_default();
    ["killonbadexit", "waittime"].iter().any(|key| config.get(*key).is_none_or(|value| !value.starts_with('0')))
}

/// How many of these nodes the job still has: Slurm takes dead ones out of it. All of them if Slurm does not say.
fn still_of(steps: Option<&Steps>, nodes: &[String]) -> usize {
    let Some(Steps { slurm, job }) = steps else { return nodes.len() };
    let known = slurm.job(*job).inspect_err(|e| tracing::warn!(%e, "the job's nodes cannot be listed")).ok().flatten();
    known.map_or(nodes.len(), |job| nodes.iter().filter(|n| job.nodes.contains(n)).count())
}

/// The nodes of a step that have not outlived it, or whether all of the job is being ended: a group that is taken for done would
/// leave its result out. Where slurmctld does not answer it is asked again for a while.
fn lost_nodes(steps: Option<&Steps>, step: &Running) -> (Vec<String>, bool) {
    let Some(Steps { slurm, job }) = steps else { return (Vec::new(), false) };
    let mut taken = taken_nodes(slurm, *job, &step.nodes);
    let is_none = |(nodes, is_over): &(Vec<String>, bool)| nodes.is_empty() && !is_over;
    if !is_none(&taken) {
        return taken;
    }
    let wanted = |pause| {
        thread::sleep(pause);
        // Where slurmctld does not answer just now, the next look asks again.
        if let Ok(Some(known)) = slurm.job(*job) {
            taken = taken_from(&known, &step.nodes);
        }
        is_none(&taken)
    };
    match slurmd::outlived(slurm, &step.nodes, step.since_s, wanted) {
        Outlived::Yes => (Vec::new(), false),
        Outlived::Booted(node) => (vec![node], false),
        Outlived::NotKnown => {
            tracing::warn!(?taken, name = step.name, "a step has ended well, and its nodes say nothing");
            taken
        }
    }
}

/// Those of these nodes that Slurm has taken from the job, or whether all of it is being ended.
fn taken_nodes(slurm: &Slurm, job: u32, nodes: &[String]) -> (Vec<String>, bool) {
    let waits =
        |e: &slurm::Error| tracing::warn!(%e, "slurmctld has to say whether the nodes of a step are still there");
    let pause = |pause| {
        thread::sleep(pause);
        true
    };
    let known = slurm.job_in_the_end(job, pause, waits);
    known.map_or((Vec::new(), false), |job| taken_from(&job, nodes))
}

/// The same of a job of which Slurm has told this.
fn taken_from(job: &Job, nodes: &[String]) -> (Vec<String>, bool) {
    if !matches!(job.state, JobState::Running | JobState::Suspended) || job.nodes.is_empty() {
        return (Vec::new(), true);
    }
    (nodes.iter().filter(|node| !job.nodes.contains(node)).cloned().collect(), false)
}

/// Ends the step of that name, if it is still there, and waits for that; bounded in time.
fn clear(steps: Option<&Steps>, name: &str) {
    let Some(Steps { slurm, job }) = steps else { return };
    let limit = Instant::now() + STEP_LIMIT;
    let (mut is_asked, mut trouble) = (false, String::new());
    while Instant::now() < limit {
        let all = match slurm.steps(*job) {
            Ok(all) => all,
            Err(e) => {
                tracing::warn!(%e, "the job's steps cannot be listed");
                return;
            }
        };
        let Some(step) = all.into_iter().find(|s| s.name == name) else { return };
        if !step.nodes.is_empty() && still_of(steps, &step.nodes) == 0 {
            // Slurm shows it until its dead nodes are back.
            return;
        }
        if !is_asked {
            let asked = slurm.cancel_step(&step.id);
            (is_asked, trouble) =
                (asked.is_ok(), asked.map_or_else(|e| e.to_string(), |()| "it does not end".to_string()));
        }
        thread::sleep(LOOK);
    }
    tracing::warn!(trouble, name, "a step still runs");
}

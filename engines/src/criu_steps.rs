//! Engine `criu` for scripts that start steps: the tasks of each `srun` in sandboxes on their nodes, dumped as one.
//!
//! The script itself begins anew after a failure: steps that have ended are only told of by the stand-in for `srun`,
//! and the tasks of the one that was interrupted go on from their images.

use crate::app::interval_variables;
use crate::beside::Beside;
use crate::criu::{Restores, is_trusted};
use crate::repeated::From;
use crate::wardens::{Callbacks, Dump, Loss, Standing, Wardens};
use ::criu::line::{Member, Sent};
use ::criu::relay;
use ::criu::world::{SAVED, saved};
use driver::Repeated;
use driver::ports::{Engine, Happening, NotSaved, Unprepared};
use host::mail::{Post, Tries, Try, now_s};
use mpi_relay::{Layout, line};
use openfiles::by_size::may_be_shared;
use openfiles::patiently::patiently;
use protocol::{Counted, Manifest, Messages};
use run::Checkpoints;
use run::Placements;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use steps::calls::{Calls, Output, Target};
use steps::cancelled;
use steps::gathered::forget_meetings;
use steps::sandboxes::{Sandboxes, own_job, record};
use steps::script::Steps;
use steps::streams;
use steps::wishes::Wishes;

/// Exit code that stands for a script whose tasks were killed: it begins anew from the newest line.
const KILLED: i32 = 128 + libc::SIGKILL;

/// Where the steps of the script take their placements, with each beginning of it.
const PLACE: &str = "steps";

/// Head start of who watches nodes over the news that a task on another node is gone.
const NODES_FIRST: Duration = Duration::from_secs(3);

/// Longest wait for output that `srun` carries to a file.
const OUTPUT_LIMIT: Duration = Duration::from_secs(10);

/// How long standard error has to stand still: what `srun` and the wardens say comes on top of what they carry.
const STANDS_STILL: Duration = Duration::from_millis(100);

/// Time between two looks at it.
const LOOK: Duration = Duration::from_millis(10);

/// The engine.
pub struct CriuSteps {
    post: Post,
    checkpoints: Checkpoints,
    calls: Option<Calls>,
    sandboxes: Sandboxes,
    /// The job's folder.
    folder: PathBuf,
    wardens: Wardens,
    attempt: Arc<Mutex<Option<Attempt>>>,
    attempts: Tries,
    tries: Tries,
    restores: Restores,
    placements: Placements,
    dumps: config::Criu,
    /// The cluster's `MpiDefault`, as calls see it.
    mpi: Option<(String, String)>,
    /// Launchers of MPI that the script names.
    launchers: Vec<&'static str>,
    of: Script,
}

/// Which script the steps are of.
pub struct Script {
    /// Its fingerprint.
    pub fingerprint: String,
    /// How many nodes it sees.
    pub nodes: u32,
    /// What it does by itself.
    pub beside: Beside,
}

/// A run of the script.
struct Attempt {
    one: Try,
    begun: Instant,
    /// Calls of which a task was lost, with Slurm's numbers: a step that an earlier driver began may end late.
    lost: BTreeSet<(String, Option<u32>)>,
    /// How the first of them was lost.
    loss: Option<Loss>,
}

impl Attempt {
    /// A task is lost; absent if another one of its step was before.
    fn loses(&mut self, member: &Member, loss: Loss) -> Option<Try> {
        self.loss = self.loss.or(Some(loss));
        self.lost.insert((member.call.clone(), member.step)).then(|| self.one.clone())
    }
}

/// What the engine is made of.
pub struct Parts {
    /// Where its happenings go.
    pub post: Post,
    /// Where its checkpoints go.
    pub checkpoints: Checkpoints,
    /// What is remembered of the script's calls.
    pub calls: Option<Calls>,
    /// The job's steps as Slurm knows them.
    pub steps: Option<Steps>,
    /// CRIU's command.
    pub criu: PathBuf,
    /// Folder of the run.
    pub run: PathBuf,
    /// The job's folder.
    pub folder: PathBuf,
    /// Name or address of this node for others.
    pub host: String,
    /// This node as Slurm calls it.
    pub node: String,
    /// Longest time of a dump or restore, s.
    pub limit_s: f64,
    /// The placements of tasks.
    pub placements: Placements,
    /// What the site says of dumps.
    pub dumps: config::Criu,
    /// Whether `srun` keeps what an output file has, if Slurm says so.
    pub appends: Option<bool>,
    /// The cluster's `MpiDefault`, as calls see it.
    pub mpi: Option<(String, String)>,
    /// Launchers of MPI that the script names.
    pub launchers: Vec<&'static str>,
    /// Which signals somebody has given to the script or its steps.
    pub wishes: Wishes,
    /// Which script they are of.
    pub of: Script,
}

impl CriuSteps {
    /// An engine that listens for tasks.
    ///
    /// # Errors
    /// What the file system or the network says.
    pub fn listen(parts: Parts) -> io::Result<CriuSteps> {
        let Parts {
            post,
            checkpoints,
            calls,
            steps,
            criu,
            run,
            folder,
            host,
            node,
            limit_s,
            placements,
            dumps,
            appends,
            mpi,
            launchers,
            wishes,
            of,
        } = parts;
        let attempt: Arc<Mutex<Option<Attempt>>> = Arc::default();
        let (by_somebody, job, of_job) = (wishes.clone(), own_job(), steps.clone());
        let (told, current, record, since_s) = (post.clone(), attempt.clone(), calls.clone(), now_s());
        let lost = move |member: &Member, loss: Loss, is_killed: &dyn Fn() -> bool| {
            if record.as_ref().is_some_and(Calls::is_closed) {
                // The script is being stopped.
                return false;
            }
            let mut attempt = current.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(of) = attempt.as_mut().and_then(|a| a.loses(member, loss)) else { return false };
            drop(attempt);
            let (begun, task) = (Instant::now(), format!("task {} on {}", member.rank, member.node));
            if steps.as_ref().is_some_and(|steps| is_cancelled(steps, member, since_s)) && !is_killed() {
                by_somebody.asks(libc::SIGKILL);
                protocol::say!("joulepoint: the step of {task} was cancelled; it does not go back");
                return true;
            }
            let ends = member.step.map(|step| format!(" (to end it: scancel {job}.{step})")).unwrap_or_default();
            let how = match loss {
                Loss::Gone => "was killed or is missing",
                Loss::NotRestored => "could not be restored",
            };
            protocol::say!("joulepoint: {task} {how}; its step goes back{ends}");
            if member.node != node {
                thread::sleep(NODES_FIRST.saturating_sub(begun.elapsed()));
            }
            by_somebody.forgets();
            told.tell_of(&of, Happening::Exited { code: KILLED });
            false
        };
        let asked = move |_: &Member, code: i32| {
            let is_wish = cancelled::is_left_in_peace(of_job.as_ref());
            if is_wish {
                wishes.asks(code - 128);
            }
            is_wish
        };
        let wardens = Wardens::listen(&run, &host, Callbacks::new(lost, asked))?;
        let common = [1, 2].into_iter().filter_map(streams::regular).map(|(m, _)| (m.dev(), m.ino())).collect();
        let sandboxes =
            Sandboxes { criu, run, placement: None, restore: None, limit_s, common, appends, job: own_job() };
        Ok(CriuSteps {
            post,
            checkpoints,
            calls,
            sandboxes,
            folder,
            wardens,
            attempt,
            attempts: Tries::default(),
            tries: Tries::default(),
            restores: Restores::default(),
            placements,
            dumps,
            mpi,
            launchers,
            of,
        })
    }
}

impl Engine for CriuSteps {
    fn name(&self) -> &str {
        "criu"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        is_trusted(&self.sandboxes.run)?;
        let from = from.map(|manifest| self.checkpoints.path(manifest.number));
        self.restores.begin(from.clone())?;
        self.wardens.forget();
        self.placements.over(&self.placements.of(PLACE));
        self.sandboxes.placement = Some(self.placements.of(PLACE).to_string());
        *self.attempt.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Attempt { one: self.attempts.begin(), begun: Instant::now(), lost: BTreeSet::new(), loss: None });
        // The script writes again what it has written itself, and the stand-in what its steps have.
        let began = self.sandboxes.run.join(relay::BEGAN);
        patiently(|| relay::standard().and_then(|mut o| relay::begin(&mut o, &began)))
            .map_err(|e| Unprepared::Storage(format!("the output of the job: {e}")))?;
        if let Err(e) = forget_meetings(&self.sandboxes.run) {
            tracing::warn!(%e, "what relays of an earlier life have left is still there");
        }
        self.sandboxes.restore = from;
        let mut environment = interval_variables(interval_s);
        environment.push(self.sandboxes.variable());
        environment.extend(self.mpi.clone());
        if let Some(calls) = &self.calls {
            let stand_ins = patiently(|| calls.launchers(&self.launchers));
            environment.extend(stand_ins.map_err(|e| Unprepared::Storage(format!("stand-ins for mpirun: {e}")))?);
        }
        Ok(environment)
    }

    fn beside(&mut self) -> Option<String> {
        self.of.beside.look()
    }

    /// A step that has ended since is not run again, but what it has changed cannot be told from what others have.
    fn repeated(&self, from: &Manifest) -> Repeated {
        let folder = self.checkpoints.path(from.number);
        let outputs = self.calls.as_ref().map(Calls::targets).unwrap_or_default();
        let (since_s, run) = (from.begun_s, self.sandboxes.run.clone());
        From { since_s, frozen: of_tasks(from, &folder), run, outputs }.look(&self.folder).within_limit()
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (post, wardens, calls) = (self.post.clone(), self.wardens.clone(), self.calls.clone());
        let (limit_s, dumps, checkpoints) = (self.sandboxes.limit_s, self.dumps.clone(), self.checkpoints.clone());
        threads::start(move || {
            let still = |standing: &[Standing]| match &calls {
                Some(calls) => check_worlds(standing, &into)
                    .map_err(|e| e.to_string().into())
                    .and_then(|()| keep_outputs(calls, standing, &into)),
                None => Err("the steps of the script are not remembered".to_string().into()),
            };
            let dump = Dump {
                into: &into,
                earlier: &checkpoints.earlier(),
                limit_s,
                dumps: &dumps,
                has_others: false,
                wanted: &|| one.is_current(),
                still: &still,
                goes_on: &|| post.tell_of(&one, Happening::GoesOn),
            };
            post.tell_of(&one, Happening::Checkpointed(wardens.dump(&dump)));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }

    fn messages(&self) -> Option<Messages> {
        let begun = self.attempt.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.begun;
        let over_s = begun.elapsed().as_secs_f64();
        let counted = self.wardens.sent().map(|Sent { messages, bytes }| Counted { count: messages, bytes, over_s });
        let (fingerprint, nodes) = (self.of.fingerprint.clone(), self.of.nodes);
        Some(Messages { script: fingerprint, nodes, counted, together: self.wardens.together() })
    }

    fn has_killed(&mut self) -> Option<String> {
        self.restores.failed()
    }

    fn is_unrestored(&self) -> bool {
        let attempt = self.attempt.lock().unwrap_or_else(PoisonError::into_inner);
        attempt.as_ref().is_some_and(|attempt| attempt.loss == Some(Loss::NotRestored))
    }
}

impl Drop for CriuSteps {
    fn drop(&mut self) {
        self.tries.void();
        self.attempts.void();
    }
}

/// The folders of the tasks within a checkpoint.
fn of_tasks(from: &Manifest, folder: &Path) -> Vec<PathBuf> {
    let first = |file: &protocol::ManifestFile| Some(file.copy.split_once('/')?.0.to_string());
    let names: BTreeSet<String> = from.files.iter().filter_map(first).filter(|name| !name.ends_with(SAVED)).collect();
    names.into_iter().map(|name| folder.join(name)).collect()
}

/// Whether its user or an operator has ended a task's step. This life of the job goes on after `since_s`.
fn is_cancelled(steps: &Steps, member: &Member, since_s: f64) -> bool {
    let Some(step) = member.step else { return false };
    let (slurm, step) = (steps.slurm.clone(), format!("{}.{step}", steps.job));
    cancelled::is_cancelled(move || slurm.step_state(&step, since_s))
}

/// Why what the relays of MPI programs have saved is no line.
#[derive(Debug, thiserror::Error)]
enum NoLine {
    /// Some ranks do not know of each other yet.
    #[error("the ranks of an MPI program have not all met yet")]
    NotMet,
    /// It cannot be read.
    #[error(transparent)]
    Unread(#[from] mpi_relay::Error),
}

/// Whether all can go back to what the relays of each MPI program have saved: no rank has got a message that its sender
/// would send only later.
fn check_worlds(standing: &[Standing], into: &Path) -> Result<(), NoLine> {
    let number = into.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0);
    let worlds = standing.iter().filter_map(|s| Some((s.member.call.as_str(), s.member.ranks.as_deref()?)));
    for (call, ranks) in worlds.collect::<BTreeSet<_>>() {
        let layout = Layout::parse(ranks)?;
        if layout.groups() == 1 {
            continue;
        }
        let of_call = standing.iter().filter(|s| s.member.call == call);
        let folders: BTreeMap<u32, PathBuf> =
            of_call.map(|s| (s.member.rank, saved(&into.join(s.member.folder())))).collect();
        let folders: Vec<&Path> = folders.values().map(PathBuf::as_path).collect();
        if !line::is_line(&layout, &folders, number)? {
            return Err(NoLine::NotMet);
        }
    }
    Ok(())
}

/// Keeps what each call has written until all its tasks stood still or had ended.
fn keep_outputs(calls: &Calls, standing: &[Standing], into: &Path) -> Result<(), NotSaved> {
    let names: BTreeSet<&str> = standing.iter().map(|s| s.member.call.as_str()).collect();
    let mut done: BTreeMap<PathBuf, &str> = BTreeMap::new();
    for name in names {
        let read = |name: &str| calls.read(name).map_err(|e| format!("call {name}: {e}"));
        let call = read(name)?.ok_or_else(|| format!("nothing is known of call {name}"))?;
        let of_call = || standing.iter().filter(|s| s.member.call == name);
        let carried = |descriptor: i32| of_call().map(|s| s.carried_bytes[(descriptor - 1) as usize]).sum::<u64>();
        let mut outputs: Vec<Output> = Vec::new();
        for target in &call.targets {
            match done.insert(target.path.clone(), name) {
                None => {}
                Some(call) if call == name => continue,
                // Nobody knows which bytes are whose.
                Some(_) => {
                    let path = target.path.display();
                    return Err(
                        format!("two steps write to {path} at once; write each step to a file of its own").into()
                    );
                }
            }
            let same = call.targets.iter().filter(|t| t.path == target.path);
            let has_error = same.clone().any(|t| t.descriptor == 2);
            let end = target.from + same.map(|t| carried(t.descriptor)).sum::<u64>();
            // What is spooled stays where it is.
            let is_spooled = target.path.starts_with(calls.folder());
            let saved = (!is_spooled).then(|| format!("{name}.out{}", target.descriptor));
            let copy = saved.as_ref().map(|saved| into.join(saved));
            let end =
                keep(target, end, has_error, copy.as_deref()).map_err(|e| format!("{}: {e}", target.path.display()))?;
            outputs.push(Output { descriptor: target.descriptor, start: target.start, end, saved });
        }
        let text = serde_json::to_vec(&outputs).map_err(|e| e.to_string())?;
        fs::write(into.join(record(name)), text).map_err(|e| e.to_string())?;
        // What comes after it may be in the copy.
        if read(name)?.is_some_and(|call| call.ended.is_some()) {
            return Err(NotSaved::Ended(format!("{} has ended meanwhile", call.command)));
        }
    }
    Ok(())
}

/// Copies a call's part of a file as soon as the file has it up to `end`, or syncs it; where the part ends.
fn keep(target: &Target, end: u64, has_error: bool, copy: Option<&Path>) -> io::Result<u64> {
    let mut file = File::open(&target.path)?;
    // Others may write to it, too, and `srun` last: then `end` says nothing. What tasks of an array share is not cut at a restore.
    let waits = |length: u64| has_error || length > end && !may_be_shared(&target.path);
    let length = length_when(&file, end, waits)?;
    match copy {
        Some(copy) => {
            file.seek(io::SeekFrom::Start(target.start))?;
            io::copy(&mut file.take(length.saturating_sub(target.start)), &mut File::create(copy)?)?;
        }
        None => file.sync_data()?,
    }
    Ok(length.max(target.start))
}

/// The length of a file as soon as it has so many bytes, which `srun` carries there, and stands still if it takes
/// standard error.
///
/// # Errors
/// What the file system says, or that they do not arrive.
pub fn length_from(file: &File, bytes: u64, has_error: bool) -> io::Result<u64> {
    length_when(file, bytes, |_| has_error)
}

/// The same, where a file of a length that `waits` has to stand still.
fn length_when(file: &File, bytes: u64, waits: impl Fn(u64) -> bool) -> io::Result<u64> {
    let limit = Instant::now() + OUTPUT_LIMIT;
    let (mut before, mut since) = (file.metadata()?.len(), Instant::now());
    loop {
        let length = file.metadata()?.len();
        if length != before {
            (before, since) = (length, Instant::now());
        }
        let is_late = Instant::now() > limit;
        if length >= bytes && (!waits(length) || is_late || since.elapsed() >= STANDS_STILL) {
            return Ok(length);
        }
        if is_late {
            return Err(io::Error::other(format!("{} bytes of the step's output have not arrived", bytes - length)));
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use steps::calls::{Call, End};

    #[test]
    fn what_tasks_put_back_is_no_repeated_work_and_what_they_changed_since_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let dump = path("run/checkpoints/1");
        fs::create_dir_all(path("job/done")).unwrap();
        for (rank, name) in [(0, "state.0"), (1, "state.1")] {
            let (task, file) = (dump.join(format!("a.1.{rank}")), path("job").join(name));
            fs::create_dir_all(&task).unwrap();
            fs::write(&file, "x").unwrap();
            let record = serde_json::json!({
                "program": 2, "last_pid": 3, "pipes": [], "written": [{ "path": file, "bytes": 1 }]
            });
            fs::write(task.join("sandbox.json"), record.to_string()).unwrap();
        }
        fs::write(path("job/step.out"), "a line").unwrap();
        fs::write(path("job/done/7"), "").unwrap();
        let file = |copy: &str| protocol::ManifestFile { copy: copy.into(), ..protocol::ManifestFile::default() };
        let files = ["a.1.0/sandbox.json", "a.1.0/images/core", "a.1.1/sandbox.json", "a.1.json"].map(file).to_vec();
        let manifest = Manifest { number: 1, begun_s: now_s() - 10.0, files, ..Manifest::default() };
        let frozen = of_tasks(&manifest, &dump);
        assert_eq!(frozen, [dump.join("a.1.0"), dump.join("a.1.1")]);
        let calls = Calls::open(dir.path(), &[]).unwrap();
        let targets = vec![Target { descriptor: 1, path: path("job/step.out"), start: 0, from: 0 }];
        let call = Call { number: 1, key: "a".into(), command: "prog".into(), begun_s: 1.0, ended: None, targets };
        calls.note("a.1", &call).unwrap();
        let from = From { since_s: manifest.begun_s, frozen, run: path("run"), outputs: calls.targets() };
        let found = from.look(&path("job")).now();
        assert_eq!((found.names, found.count), (vec!["done/".to_string(), "done/7".to_string()], 2));
    }

    #[test]
    fn the_output_of_a_step_is_kept_when_all_of_it_has_arrived() {
        let dir = tempfile::tempdir().unwrap();
        let calls = Calls::open(dir.path(), &[]).unwrap();
        let (path, into) = (dir.path().join("out"), dir.path().join("into"));
        fs::create_dir(&into).unwrap();
        fs::write(&path, "begin\nbefore\n").unwrap();
        let target = |descriptor| Target { descriptor, path: path.clone(), start: 6, from: 13 };
        let call = Call {
            number: 1,
            key: "a".into(),
            command: "prog".into(),
            begun_s: 1.0,
            ended: None,
            targets: vec![target(1), target(2)],
        };
        calls.note("a.1", &call).unwrap();
        let member = |rank| Member { call: "a.1".into(), rank, tasks: 2, node: "n".into(), step: None, ranks: None };
        let standing: Vec<_> = [(0, [4, 0]), (1, [2, 1])]
            .map(|(rank, carried_bytes)| Standing { member: member(rank), carried_bytes })
            .to_vec();
        let late = path.clone();
        let writer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            fs::write(&late, "begin\nbefore\nafter7\n").unwrap();
        });
        keep_outputs(&calls, &standing, &into).unwrap();
        writer.join().unwrap();
        let outputs: Vec<Output> = serde_json::from_slice(&fs::read(into.join("a.1.json")).unwrap()).unwrap();
        assert_eq!(outputs, [Output { descriptor: 1, start: 6, end: 20, saved: Some("a.1.out1".into()) }]);
        assert_eq!(fs::read_to_string(into.join("a.1.out1")).unwrap(), "before\nafter7\n");

        let kept = |end| {
            let begun = Instant::now();
            (keep(&target(1), end, false, None).unwrap(), begun.elapsed() >= STANDS_STILL)
        };
        assert_eq!(kept(20).0, 20);
        assert_eq!(kept(17), (20, true), "others have written: the last bytes of the step may still come");

        let mut other = standing[0].clone();
        other.member.call = "b.1".into();
        calls.note("b.1", &call).unwrap();
        let shared = keep_outputs(&calls, &[standing[0].clone(), other], &into).unwrap_err();
        assert!(shared.to_string().contains("to a file of its own"), "{shared}");
        let ended = Some(End { at_s: 2.0, code: 0, outputs: Vec::new() });
        calls.note("a.1", &Call { ended, ..call }).unwrap();
        assert!(matches!(keep_outputs(&calls, &standing, &into), Err(NotSaved::Ended(_))));
    }
}

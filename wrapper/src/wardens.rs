//! Has all tasks of a job's running steps dumped as one: freeze all, dump all, and one recovery line or none.
//!
//! Each task runs below a warden ([`::criu::warden`]), which calls the driver when it begins. A dump has three phases,
//! and each waits for all tasks: they stand still and write their images; while all stand still the rest is saved; they
//! go on. So there is a moment at which all stood still, and the line is the state of that moment. A warden that hears
//! no more of the driver lets its program go on; nothing of the dump counts then.

use crate::checkpoints::{survey, write_durably};
use ::criu::client::Ask;
use ::criu::line::{self, ADDRESS, FOLDER, Hello, Line, Member, Order, Said};
use ::criu::warden::ENDED;
use config::Compress;
use protocol::ManifestFile;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at whether a dump is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// Longest wait for tasks to go on after a dump that failed.
const THAW_LIMIT: Duration = Duration::from_secs(20);

/// Why a dump ended that its caller, or the clock, wants no more.
const LATE: &str = "given up, or not done in time";

/// How long a task that could be restored waits for another one of its step that has not called yet: its warden was
/// killed before it could.
const MEETING_LIMIT: Duration = Duration::from_secs(30);

/// What is told when a task is gone and nobody knows how it ended: it, its warden, or its node was killed.
pub type Lost = dyn Fn(&Member) + Send + Sync;

/// The driver's end of the lines to all wardens of a job.
#[derive(Clone)]
pub struct Wardens(Arc<Shared>);

/// A dump that is asked for.
pub struct Dump<'a> {
    /// The group whose tasks are dumped while others run; all tasks if absent.
    pub of: Option<usize>,
    /// An empty folder; each task gets one in it ([`Member::folder`]).
    pub into: &'a Path,
    /// Longest time, s.
    pub limit_s: f64,
    /// What the site says of dumps.
    pub dumps: &'a config::Criu,
    /// Whether the dump is still wanted.
    pub wanted: &'a dyn Fn() -> bool,
    /// What else belongs to the line: called while all stand still, with what each task has written; also for tasks
    /// that have ended while their step is still there.
    pub still: &'a dyn Fn(&[Standing]) -> Result<(), String>,
}

/// A task that stands still, or has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Which.
    pub member: Member,
    /// How much its warden has carried on of standard output and standard error since it began, bytes.
    pub carried_bytes: [u64; 2],
}

struct Shared {
    /// Held by the dump that is on its way.
    dump: Mutex<()>,
    state: Mutex<State>,
    changed: Condvar,
    lost: Box<Lost>,
}

#[derive(Default)]
struct State {
    last: u64,
    tasks: BTreeMap<u64, Task>,
    steps: BTreeMap<u64, Step>,
}

/// A task, by the number of its line.
struct Task {
    member: Member,
    teller: Line,
    said: Option<Said>,
    /// Whether it waits to be restored.
    ready: bool,
    ended: Option<i32>,
    /// What it had carried on when it ended.
    carried_bytes: [u64; 2],
}

/// Tasks that run, by the numbers of their lines.
type Running = BTreeMap<u64, Member>;

/// A step that runs.
struct Step {
    call: String,
    words: String,
    outside: Option<String>,
    /// Whether the script ends it.
    is_ending: bool,
}

impl Wardens {
    /// Listens for the tasks of a run on this host, which other nodes know by the name or address `host`; `lost` is
    /// told of each task that goes without a word.
    ///
    /// # Errors
    /// What the file system or the network says.
    pub fn listen(run: &Path, host: &str, lost: Box<Lost>) -> io::Result<Wardens> {
        let folder = run.join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let secret = line::secret(run).map_err(io::Error::other)?;
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        let address = format!("{host}:{}\n", listener.local_addr()?.port());
        write_durably(&folder.join(ADDRESS), address.as_bytes())?;
        let shared =
            Arc::new(Shared { dump: Mutex::default(), state: Mutex::default(), changed: Condvar::new(), lost });
        let wardens = Wardens(shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (shared, secret) = (shared.clone(), secret.clone());
                thread::spawn(move || match line::answer(stream, &secret) {
                    Ok((Hello::Task(member), line)) => shared.serve(member, line),
                    Ok((Hello::Step { call, words, outside }, line)) => {
                        shared.hold(Step { call, words, outside, is_ending: false }, line)
                    }
                    Err(e) => tracing::warn!(%e, "one that called is no task of this run"),
                });
            }
        });
        Ok(wardens)
    }

    /// The tasks that run, of one group or all.
    pub fn tasks(&self, of: Option<usize>) -> Vec<Member> {
        let state = self.0.state();
        let running = state.tasks.values().filter(|t| t.ended.is_none() && t.is_of(of));
        running.map(|t| t.member.clone()).collect()
    }

    /// Ends and forgets all tasks: the script begins anew, and what is left of the steps before must not run beside it.
    pub fn forget(&self) {
        let mut state = self.0.state();
        for task in state.tasks.values_mut() {
            let _ = task.teller.tell(&Order::End);
            task.teller.hang_up();
        }
        state.tasks.clear();
        state.steps.clear();
    }

    /// Ends the tasks of one group or all; their `srun` tells how they ended.
    pub fn end(&self, of: Option<usize>) {
        let mut state = self.0.state();
        for task in state.tasks.values_mut().filter(|t| t.ended.is_none() && t.is_of(of)) {
            // A line that is broken has no task any more.
            let _ = task.teller.tell(&Order::End);
        }
    }

    /// Dumps all tasks into one recovery line; its files, synced.
    ///
    /// # Errors
    /// A sentence: no line, and all tasks go on.
    pub fn dump(&self, dump: &Dump) -> Result<Vec<ManifestFile>, String> {
        let _alone = match self.0.dump.try_lock() {
            Err(TryLockError::WouldBlock) => return Err("another dump is on its way".to_string()),
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Ok(lock) => lock,
        };
        let (running, ended) = self.0.state().complete(dump.of)?;
        let frozen = self.freeze_and_save(dump, &running, &ended);
        // The line counts only if all go on with it, and bring it from memory to disk.
        let until = Instant::now() + if frozen.is_ok() { seconds(dump.limit_s) } else { THAW_LIMIT };
        let wanted = || Instant::now() < until;
        let thawed = self.phase(&running, &|_| Order::Thaw { keep: frozen.is_ok() }, &wanted, |said| match said {
            Said::Dumped { frozen_s } => Some(Ok(*frozen_s)),
            // A task that had failed before has gone on already.
            Said::Failed(_) if frozen.is_err() => Some(Ok(0.0)),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        });
        frozen?;
        let frozen_s = thawed?.into_values().fold(0.0, f64::max);
        tracing::info!(frozen_s, tasks = running.len(), "the program stood still for a dump");
        for (task, code) in ended {
            let folder = folder(dump.into, &task.member)?;
            write_durably(&folder.join(ENDED), code.to_string().as_bytes()).map_err(|e| e.to_string())?;
        }
        survey(dump.into)
    }

    fn freeze_and_save(&self, dump: &Dump, running: &Running, ended: &[(Standing, i32)]) -> Result<(), String> {
        for member in running.values() {
            folder(dump.into, member)?;
        }
        let until = Instant::now() + seconds(dump.limit_s);
        let wanted = || (dump.wanted)() && Instant::now() < until;
        let freeze = |m: &Member| {
            // The tasks of a node share its memory.
            let beside = running.values().filter(|other| other.node == m.node).count().max(1);
            Order::Freeze(Ask {
                folder: dump.into.join(m.folder()),
                limit_s: dump.limit_s,
                memory_share: dump.dumps.memory_share / beside as f64,
                compress: dump.dumps.compress == Compress::Zstd,
            })
        };
        self.phase(running, &freeze, &wanted, |said| match said {
            Said::Frozen => Some(Ok(())),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        })?;
        let saved = self.phase(running, &|_| Order::Save, &wanted, |said| match said {
            Said::Saved { carried_bytes } => Some(Ok(*carried_bytes)),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        })?;
        let standing = |(id, carried_bytes)| Standing { member: running[&id].clone(), carried_bytes };
        let ended = ended.iter().map(|(task, _)| task.clone());
        (dump.still)(&saved.into_iter().map(standing).chain(ended).collect::<Vec<_>>())?;
        if wanted() { Ok(()) } else { Err(LATE.to_string()) }
    }

    /// Tells all tasks an order and waits until each has answered as `answer` understands it; the answers.
    fn phase<T>(
        &self,
        of: &Running,
        order: &dyn Fn(&Member) -> Order,
        wanted: &dyn Fn() -> bool,
        answer: impl Fn(&Said) -> Option<Result<T, String>>,
    ) -> Result<BTreeMap<u64, T>, String> {
        let named = |member: &Member, reason: &str| match of.len() {
            1 => reason.to_string(),
            _ => format!("task {} on {}: {reason}", member.rank, member.node),
        };
        let mut state = self.0.state();
        for (id, member) in of {
            if let Some(task) = state.tasks.get_mut(id) {
                let order = order(member);
                // A dump that has failed is over, whenever it failed: no answer follows.
                if matches!(order, Order::Freeze(_)) || !matches!(task.said, Some(Said::Failed(_))) {
                    task.said = None;
                }
                // A line that is broken is noticed by who reads it.
                let _ = task.teller.tell(&order);
            }
        }
        let mut answers = BTreeMap::new();
        loop {
            for (id, member) in of.iter().filter(|(id, _)| !answers.contains_key(*id)).collect::<Vec<_>>() {
                let task = state.tasks.get_mut(id).filter(|t| t.ended.is_none());
                let task = task.ok_or_else(|| named(member, "it ended meanwhile"))?;
                if let Some(result) = task.said.as_ref().and_then(&answer) {
                    answers.insert(*id, result.map_err(|reason| named(member, &reason))?);
                }
            }
            if answers.len() == of.len() {
                return Ok(answers);
            }
            if !wanted() {
                return Err(LATE.to_string());
            }
            state = self.0.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A limit that a clock can hold.
fn seconds(limit_s: f64) -> Duration {
    Duration::from_secs_f64(limit_s.clamp(0.0, 1e6))
}

fn folder(into: &Path, member: &Member) -> Result<PathBuf, String> {
    let folder = into.join(member.folder());
    DirBuilder::new().mode(0o700).create(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears a task until its line ends.
    fn serve(self: &Arc<Self>, member: Member, line: Line) {
        let Ok(teller) = line.teller() else { return };
        let id = self.state().number();
        let task =
            Task { member: member.clone(), teller, said: None, ready: false, ended: None, carried_bytes: [0, 0] };
        self.state().tasks.insert(id, task);
        for said in line.words::<Said>() {
            let mut state = self.state();
            let Some(task) = state.tasks.get_mut(&id) else { return };
            match said {
                Said::Ended { code, carried_bytes } => {
                    task.ended = Some(code);
                    task.carried_bytes = carried_bytes;
                    task.teller.hang_up();
                }
                Said::Ready => {
                    task.ready = true;
                    self.expect_others(id, &member);
                }
                said => task.said = Some(said),
            }
            state.restore(&member);
            drop(state);
            self.changed.notify_all();
        }
        let is_lost = self.state().gone(id);
        self.changed.notify_all();
        if is_lost {
            (self.lost)(&member);
        }
    }

    /// Tells that a step is lost if a task of it has not called in time.
    fn expect_others(self: &Arc<Self>, id: u64, member: &Member) {
        let (shared, member) = (self.clone(), member.clone());
        thread::spawn(move || {
            thread::sleep(MEETING_LIMIT);
            if shared.state().waits_in_vain(id) {
                (shared.lost)(&member);
            }
        });
    }

    /// Knows of a step until its line ends.
    fn hold(&self, step: Step, line: Line) {
        let call = step.call.clone();
        let mut state = self.state();
        let id = state.number();
        state.steps.insert(id, step);
        drop(state);
        for _ending in line.words::<Said>().filter(|said| *said == Said::Ending) {
            if let Some(step) = self.state().steps.get_mut(&id) {
                step.is_ending = true;
            }
        }
        let mut state = self.state();
        if state.steps.remove(&id).is_some() {
            state.tasks.retain(|_, t| t.member.call != call);
        }
    }
}

impl Task {
    fn is_of(&self, group: Option<usize>) -> bool {
        group.is_none() || self.member.group == group
    }
}

impl State {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Lets the tasks of a call be restored when all of them are ready.
    fn restore(&mut self, of: &Member) {
        let of_call = |t: &Task| (&t.member.call, t.member.group) == (&of.call, of.group);
        let is_ready = |t: &Task| t.ended.is_some() || t.ready;
        if self.tasks.values().filter(|t| of_call(t) && is_ready(t)).count() < of.tasks as usize {
            return;
        }
        for task in self.tasks.values_mut().filter(|t| of_call(t) && t.ready) {
            task.ready = false;
            // A line that is broken is noticed by who reads it.
            let _ = task.teller.tell(&Order::Restore);
        }
    }

    /// Whether a task that could be restored waits for one that has not called.
    fn waits_in_vain(&self, id: u64) -> bool {
        let Some(task) = self.tasks.get(&id).filter(|t| t.ready) else { return false };
        let of_call = |t: &&Task| (&t.member.call, t.member.group) == (&task.member.call, task.member.group);
        self.tasks.values().filter(of_call).count() < task.member.tasks as usize
    }

    /// A line has ended. Whether its task is lost: not if it told its end, or another one's or the script explains it.
    fn gone(&mut self, id: u64) -> bool {
        let Some(task) = self.tasks.get(&id).filter(|t| t.ended.is_none()) else { return false };
        let call = task.member.call.clone();
        self.tasks.remove(&id);
        let explains = |t: &Task| t.member.call == call && t.ended.is_some_and(|code| code != 0);
        let is_ending = self.steps.values().any(|s| s.is_ending && s.call == call);
        !is_ending && !self.tasks.values().any(explains)
    }

    /// The tasks of the line to come, running ones by their numbers, and ended ones with their codes, if all are there.
    fn complete(&self, of: Option<usize>) -> Result<(Running, Vec<(Standing, i32)>), String> {
        let known: Vec<(&u64, &Task)> = self.tasks.iter().filter(|(_, t)| t.is_of(of)).collect();
        if known.iter().any(|(_, t)| t.ready) {
            return Err("the tasks of a step are being restored".to_string());
        }
        for step in self.steps.values().filter(|_| of.is_none()) {
            if let Some(reason) = &step.outside {
                return Err(format!("srun {} runs in no sandbox: {reason}", step.words));
            }
            if !known.iter().any(|(_, t)| t.member.call == step.call) {
                return Err(format!("srun {} has not started its tasks yet", step.words));
            }
        }
        let calls: BTreeSet<(&str, Option<usize>)> =
            known.iter().map(|(_, t)| (t.member.call.as_str(), t.member.group)).collect();
        for call in calls {
            let of_call: Vec<&Member> =
                known.iter().map(|(_, t)| &t.member).filter(|m| (m.call.as_str(), m.group) == call).collect();
            let (here, all) = (of_call.len(), of_call[0].tasks as usize);
            if here != all {
                return Err(format!("{here} of {all} tasks of a step are in their sandboxes: it begins or ends"));
            }
        }
        let standing = |t: &Task| Standing { member: t.member.clone(), carried_bytes: t.carried_bytes };
        let ended = known.iter().filter_map(|(_, t)| Some((standing(t), t.ended?))).collect();
        let running: Running =
            known.iter().filter(|(_, t)| t.ended.is_none()).map(|(id, t)| (**id, t.member.clone())).collect();
        match running.is_empty() {
            true => Err("no task of a step runs now: there is nothing to dump".to_string()),
            false => Ok((running, ended)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    fn member(call: &str, group: Option<usize>, rank: u32, tasks: u32) -> Member {
        Member { call: call.into(), group, rank, tasks, node: format!("n{rank}") }
    }

    /// A run's wardens, and who was lost.
    fn listen(run: &Path) -> (Wardens, Receiver<u32>) {
        let (sender, lost) = channel();
        let sender = Mutex::new(sender);
        let told = move |m: &Member| sender.lock().unwrap().send(m.rank).unwrap();
        (Wardens::listen(run, "localhost", Box::new(told)).unwrap(), lost)
    }

    /// A task that says this to each order in turn, and tells the orders that it heard when its line ends.
    fn task(run: &Path, member: Member, answers: Vec<Said>) -> thread::JoinHandle<Vec<Order>> {
        let line = line::call(run, &Hello::Task(member)).unwrap();
        thread::spawn(move || {
            let mut teller = line.teller().unwrap();
            let mut answers = answers.into_iter();
            let mut heard = Vec::new();
            for order in line.words::<Order>() {
                heard.push(order);
                match answers.next() {
                    Some(answer) => teller.tell(&answer).unwrap(),
                    None => return heard,
                }
            }
            heard
        })
    }

    fn good() -> Vec<Said> {
        vec![Said::Frozen, Said::Saved { carried_bytes: [7, 0] }, Said::Dumped { frozen_s: 0.5 }]
    }

    fn ended(code: i32) -> Said {
        Said::Ended { code, carried_bytes: [7, 0] }
    }

    fn wait_for(wardens: &Wardens, count: usize) {
        let limit = Instant::now() + Duration::from_secs(20);
        while wardens.tasks(None).len() != count {
            assert!(Instant::now() < limit, "{:?}", wardens.tasks(None));
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn dump(wardens: &Wardens, of: Option<usize>, into: &Path) -> Result<Vec<ManifestFile>, String> {
        let still = |standing: &[Standing]| {
            assert!(standing.iter().all(|s| s.carried_bytes == [7, 0]));
            Ok(())
        };
        wardens.dump(&Dump {
            of,
            into,
            limit_s: 20.0,
            dumps: &config::Criu::default(),
            wanted: &|| true,
            still: &still,
        })
    }

    #[test]
    fn all_tasks_stand_still_before_any_is_saved_and_all_go_on_with_the_line() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, _) = listen(run.path());
        let tasks: Vec<_> = (0..3).map(|rank| task(run.path(), member("a.1", None, rank, 3), good())).collect();
        wait_for(&wardens, 3);
        assert_eq!(dump(&wardens, None, into.path()).unwrap(), []);
        wardens.forget();
        for (rank, task) in tasks.into_iter().enumerate() {
            let folder = into.path().join(format!("a.1.{rank}"));
            let expected = [
                Order::Freeze(Ask { folder, limit_s: 20.0, memory_share: 0.5, compress: false }),
                Order::Save,
                Order::Thaw { keep: true },
                Order::End,
            ];
            assert_eq!(task.join().unwrap(), expected);
        }
    }

    #[test]
    fn one_task_that_fails_leaves_no_line_and_lets_all_go_on() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, _) = listen(run.path());
        let given_up = Said::Failed("given up".into());
        let one = task(run.path(), member("a.1", None, 0, 2), vec![Said::Frozen, given_up]);
        let other = task(run.path(), member("a.1", None, 1, 2), vec![Said::Failed("a GPU".into())]);
        wait_for(&wardens, 2);
        assert_eq!(dump(&wardens, None, into.path()).unwrap_err(), "task 1 on n1: a GPU");
        wardens.forget();
        for task in [one, other] {
            assert_eq!(task.join().unwrap().get(1), Some(&Order::Thaw { keep: false }));
        }
    }

    #[test]
    fn a_task_that_fails_between_two_orders_is_heard() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, _) = listen(run.path());
        let one = line::call(run.path(), &Hello::Task(member("a.1", None, 0, 2))).unwrap();
        let other = line::call(run.path(), &Hello::Task(member("a.1", None, 1, 2))).unwrap();
        wait_for(&wardens, 2);
        let late = thread::spawn(move || {
            let mut teller = other.teller().unwrap();
            let mut orders = other.words::<Order>();
            orders.next().unwrap();
            // The first one has failed by then.
            thread::sleep(Duration::from_millis(100));
            teller.tell(&Said::Frozen).unwrap();
            assert_eq!(orders.next(), Some(Order::Save));
            assert_eq!(orders.next(), Some(Order::Thaw { keep: false }));
            teller.tell(&Said::Failed("given up".into())).unwrap();
            orders.next()
        });
        let first = thread::spawn(move || {
            let mut teller = one.teller().unwrap();
            let mut orders = one.words::<Order>();
            orders.next().unwrap();
            teller.tell(&Said::Frozen).unwrap();
            thread::sleep(Duration::from_millis(50));
            teller.tell(&Said::Failed("criu was ended".into())).unwrap();
            assert_eq!(orders.last(), Some(Order::End));
        });
        assert_eq!(dump(&wardens, None, into.path()).unwrap_err(), "task 0 on n0: criu was ended");
        wardens.forget();
        assert!(late.join().is_ok() && first.join().is_ok());
    }

    #[test]
    fn dumps_do_not_overlap_and_one_that_nobody_wants_any_more_is_none() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, _) = listen(run.path());
        let answers = vec![Said::Frozen, Said::Saved { carried_bytes: [7, 0] }, Said::Failed("given up".into())];
        let one = task(run.path(), member("a.1", None, 0, 1), answers);
        wait_for(&wardens, 1);
        let is_wanted = AtomicBool::new(true);
        let still = |_: &[Standing]| {
            assert_eq!(dump(&wardens, None, into.path()).unwrap_err(), "another dump is on its way");
            is_wanted.store(false, Ordering::SeqCst);
            Ok(())
        };
        let wanted = || is_wanted.load(Ordering::SeqCst);
        let dumps = &config::Criu::default();
        let asked = Dump { of: None, into: into.path(), limit_s: 20.0, dumps, wanted: &wanted, still: &still };
        assert_eq!(wardens.dump(&asked).unwrap_err(), LATE);
        wardens.forget();
        assert!(one.join().unwrap().contains(&Order::Thaw { keep: false }));
    }

    #[test]
    fn a_task_that_is_missing_fails_the_dump_and_one_that_has_ended_is_part_of_it() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, lost) = listen(run.path());
        assert!(dump(&wardens, None, into.path()).unwrap_err().contains("no task of a step runs"));
        let _one = task(run.path(), member("a.1", None, 0, 2), good());
        wait_for(&wardens, 1);
        assert!(dump(&wardens, None, into.path()).unwrap_err().contains("1 of 2 tasks"));
        line::call(run.path(), &Hello::Task(member("a.1", None, 1, 2))).unwrap().leave(&ended(3));
        let files = dump(&wardens, None, into.path()).unwrap();
        assert_eq!(files.iter().map(|f| f.copy.as_str()).collect::<Vec<_>>(), ["a.1.1/ended"]);
        assert!(lost.try_recv().is_err());
    }

    #[test]
    fn no_task_is_restored_before_all_have_put_their_files_back() {
        let run = tempfile::tempdir().unwrap();
        let (wardens, _) = listen(run.path());
        let mut one = line::call(run.path(), &Hello::Task(member("a.1", None, 0, 3))).unwrap();
        let mut other = line::call(run.path(), &Hello::Task(member("a.1", None, 1, 3))).unwrap();
        line::call(run.path(), &Hello::Task(member("a.1", None, 2, 3))).unwrap().leave(&ended(0));
        wait_for(&wardens, 2);
        one.tell(&Said::Ready).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(one.hear::<Order>().unwrap(), None);
        other.tell(&Said::Ready).unwrap();
        for line in [one, other] {
            assert_eq!(line.words::<Order>().next(), Some(Order::Restore));
        }
    }

    #[test]
    fn a_group_is_dumped_alone() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, _) = listen(run.path());
        let _other = task(run.path(), member("a.1", Some(0), 0, 1), vec![]);
        let one = task(run.path(), member("a.1", Some(1), 1, 1), good());
        wait_for(&wardens, 2);
        dump(&wardens, Some(1), into.path()).unwrap();
        assert_eq!(wardens.tasks(Some(0)).len(), 1);
        wardens.end(Some(1));
        assert_eq!(one.join().unwrap().last(), Some(&Order::End));
    }

    #[test]
    fn a_task_without_a_word_is_lost_and_a_step_outside_forbids_the_dump() {
        let (run, into) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, lost) = listen(run.path());
        drop(line::call(run.path(), &Hello::Task(member("a.1", None, 4, 5))).unwrap());
        assert_eq!(lost.recv_timeout(Duration::from_secs(20)), Ok(4));
        let outside = Some("it reads a pipe".to_string());
        let step = Hello::Step { call: "b.1".into(), words: "cat".into(), outside };
        let _line = line::call(run.path(), &step).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while !dump(&wardens, None, into.path()).unwrap_err().contains("srun cat runs in no sandbox: it reads a pipe") {
            assert!(Instant::now() < limit);
        }
    }

    #[test]
    fn a_step_that_the_script_ends_loses_no_task() {
        let run = tempfile::tempdir().unwrap();
        let (wardens, lost) = listen(run.path());
        let step = Hello::Step { call: "a.1".into(), words: "prog".into(), outside: None };
        let mut step = line::call(run.path(), &step).unwrap();
        let one = line::call(run.path(), &Hello::Task(member("a.1", None, 0, 1))).unwrap();
        wait_for(&wardens, 1);
        step.tell(&Said::Ending).unwrap();
        let limit = Instant::now() + Duration::from_secs(20);
        while !wardens.0.state().steps.values().any(|s| s.is_ending) {
            assert!(Instant::now() < limit);
        }
        drop(one);
        wait_for(&wardens, 0);
        assert!(lost.recv_timeout(Duration::from_millis(100)).is_err());
    }

    #[test]
    fn who_does_not_know_the_secret_is_no_task() {
        let (run, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (wardens, _) = listen(run.path());
        let (_others, _) = listen(other.path());
        let there = run.path().join(FOLDER).join(ADDRESS);
        std::fs::copy(there, other.path().join(FOLDER).join(ADDRESS)).unwrap();
        let refused = line::call(other.path(), &Hello::Task(member("a.1", None, 0, 1))).unwrap_err();
        assert!(refused.contains("is not the wrapper of the job"), "{refused}");
        assert_eq!(wardens.tasks(None), []);
    }
}

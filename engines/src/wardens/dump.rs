//! The three phases of a common dump.

use super::Wardens;
use super::tasks::Running;
use ::criu::client::Ask;
use ::criu::line::{Member, Order, Said};
use ::criu::seconds;
use ::criu::supervisor::ENDED;
use config::Compress;
use driver::ports::{NotSaved, Saved};
use increments::Increments;
use openfiles::held::{ADDED_TO_BYTES, OVERWRITTEN_BYTES};
use run::{Earlier, survey_new, write_durably};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Time between two looks at whether a dump is still wanted.
const LOOK: Duration = Duration::from_millis(200);

/// Longest wait for tasks to go on after a dump that failed.
const THAW_LIMIT: Duration = Duration::from_secs(20);

/// Why a dump ended that its caller, or the clock, wants no more.
pub(super) const LATE: &str = "given up, or not done in time";

/// A dump that is asked for.
pub struct Dump<'a> {
    /// An empty folder; each task gets one in it ([`Member::folder`]).
    pub into: &'a Path,
    /// The checkpoint whose files may get further names, where the site allows it.
    pub earlier: &'a Earlier,
    /// Longest time, s.
    pub limit_s: f64,
    /// What the site says of dumps.
    pub dumps: &'a config::Criu,
    /// Whether programs that are not in this dump may write to the same files, and go on from where they are.
    pub has_others: bool,
    /// Whether the dump is still wanted.
    pub wanted: &'a dyn Fn() -> bool,
    /// What else belongs to the line: called while all stand still, with what each task has written; also for tasks
    /// that have ended while their step is still there.
    pub still: &'a dyn Fn(&[Standing]) -> Result<(), NotSaved>,
    /// Called when all tasks go on, which is before the dump is where it stays.
    pub goes_on: &'a dyn Fn(),
}

/// A task that stands still, or has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// Which.
    pub member: Member,
    /// How much its warden has carried on of standard output and standard error since it began, bytes.
    pub carried_bytes: [u64; 2],
}

impl Wardens {
    /// Dumps all tasks into one recovery line; its files are synced.
    ///
    /// # Errors
    /// Why there is no line; all tasks go on.
    pub fn dump(&self, dump: &Dump) -> Result<Saved, NotSaved> {
        let _alone = match self.0.dump.try_lock() {
            Err(TryLockError::WouldBlock) => return Err("another dump is on its way".to_string().into()),
            Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
            Ok(lock) => lock,
        };
        let (running, ended) = self.0.state().complete()?;
        let frozen = self.freeze_and_save(dump, &running, &ended);
        // The line counts only if all go on with it, and bring it from memory to disk.
        let until = Instant::now() + if frozen.is_ok() { seconds(dump.limit_s) } else { THAW_LIMIT };
        let wanted = || Instant::now() < until;
        let thaw = |_: &Member| Order::Thaw { keep: frozen.is_ok() };
        let thawed = self.phase(&running, Some(&thaw), &wanted, |said| match said {
            Said::GoesOn | Said::Dumped { .. } => Some(Ok(())),
            // A task that had failed before has gone on already.
            Said::Failed(_) if frozen.is_err() => Some(Ok(())),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        });
        frozen?;
        thawed?;
        (dump.goes_on)();
        let dumped = self.phase(&running, None, &wanted, |said| match said {
            Said::Dumped { frozen_s } => Some(Ok(*frozen_s)),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        });
        let frozen_s = dumped?.into_values().fold(0.0, f64::max);
        tracing::info!(frozen_s, tasks = running.len(), "the program stood still for a dump");
        for (task, code) in ended {
            let folder = folder(dump.into, &task.member)?;
            write_durably(&folder.join(ENDED), code.to_string().as_bytes()).map_err(|e| e.to_string())?;
        }
        let files = survey_new(dump.into, dump.earlier).map_err(|e| e.to_string())?;
        Ok(Saved { files, still_s: Some(frozen_s), kept: None })
    }

    fn freeze_and_save(&self, dump: &Dump, running: &Running, ended: &[(Standing, i32)]) -> Result<(), NotSaved> {
        for member in running.values() {
            folder(dump.into, member)?;
        }
        let until = Instant::now() + seconds(dump.limit_s);
        let wanted = || (dump.wanted)() && Instant::now() < until;
        let base = dump.earlier.base();
        let first_on_node = |m: &Member| {
            let of_call = running.values().filter(|one| (&one.call, &one.node) == (&m.call, &m.node));
            of_call.map(|one| one.rank).min()
        };
        let freeze = |m: &Member| {
            // The tasks of a node share its memory.
            let beside = running.values().filter(|other| other.node == m.node).count().max(1);
            Order::Freeze(Ask {
                folder: dump.into.join(m.folder()),
                limit_s: dump.limit_s,
                memory_share: dump.dumps.memory_share / beside as f64,
                compress: dump.dumps.compress == Compress::Zstd,
                increments: dump.dumps.increments.then(|| Increments { base: base.map(|base| base.join(m.folder())) }),
                overwritten_bytes: match (dump.has_others, running.len()) {
                    (true, _) => 0,
                    // Each keeps a file that they share.
                    (false, tasks) => (OVERWRITTEN_BYTES / tasks as u64).max(ADDED_TO_BYTES),
                },
                keeps_leftovers: first_on_node(m) == Some(m.rank),
                tells_going_on: true,
            })
        };
        self.phase(running, Some(&freeze), &wanted, |said| match said {
            Said::Frozen => Some(Ok(())),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        })?;
        if let Some(Member { call, .. }) = self.0.state().newcomer(running, ended) {
            return Err(format!("tasks of call {call} have begun meanwhile").into());
        }
        let saved = self.phase(running, Some(&|_| Order::Save), &wanted, |said| match said {
            Said::Saved { carried_bytes } => Some(Ok(*carried_bytes)),
            Said::Failed(reason) => Some(Err(reason.clone())),
            _ => None,
        })?;
        let standing = |(id, carried_bytes)| Standing { member: running[&id].clone(), carried_bytes };
        let ended = ended.iter().map(|(task, _)| task.clone());
        (dump.still)(&saved.into_iter().map(standing).chain(ended).collect::<Vec<_>>())?;
        if wanted() { Ok(()) } else { Err(LATE.to_string().into()) }
    }

    /// Tells all tasks an order, if there is one, and waits until each has answered as `answer` understands it; the answers.
    fn phase<T>(
        &self,
        of: &Running,
        order: Option<&dyn Fn(&Member) -> Order>,
        wanted: &dyn Fn() -> bool,
        answer: impl Fn(&Said) -> Option<Result<T, String>>,
    ) -> Result<BTreeMap<u64, T>, NotSaved> {
        let named = |member: &Member, reason: &str| {
            let reason = able::limits::of_step(reason);
            if of.len() == 1 { reason } else { format!("task {} on {}: {reason}", member.rank, member.node) }
        };
        let mut state = self.0.state();
        for (id, member) in of {
            if let Some((task, order)) = state.tasks.get_mut(id).zip(order) {
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
                let task = task.ok_or_else(|| NotSaved::Ended(named(member, "it ended meanwhile")))?;
                if let Some(result) = task.said.as_ref().and_then(&answer) {
                    answers.insert(*id, result.map_err(|reason| named(member, &reason))?);
                }
            }
            if answers.len() == of.len() {
                return Ok(answers);
            }
            if !wanted() {
                return Err(LATE.to_string().into());
            }
            state = self.0.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn folder(into: &Path, member: &Member) -> Result<PathBuf, String> {
    let folder = into.join(member.folder());
    DirBuilder::new().mode(0o700).create(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(folder)
}

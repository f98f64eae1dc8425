//! The folder of a run, `DIR/<cluster>/<run>/`: plan, journal and checkpoints, as the driver's store.
//!
//! The driver's thread never waits for a storage that hangs: another thread touches it ([`Worker`]).

use crate::changed::Look;
use crate::deliver::Courier;
use driver::Repeated;
use driver::ports::{Happening, Store};
use fencing::LOOK;
use host::mail::{Post, now_s};
use options::Resume;
use protocol::{Event, Manifest, Plan, Record};
use run::checkpoint::{MANIFEST, Verdict};
use run::journal::Journal;
use run::line::Claim;
use run::owners::Owners;
use run::{Checkpoints, Error, Holder, Patience, Placements, TakenUp, Worker, seal, storage, write_durably};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use steps::calls::{Calls, Present};

/// How long the driver waits for a record to be written; it is written later if need be.
const APPEND_LIMIT: Duration = Duration::from_secs(10);

/// The same of a look that nothing depends on.
const LOOK_LIMIT: Duration = Duration::from_secs(5);

/// A file that is made now has the time of the kernel's last tick: as long ago at most, s.
const TICK_S: f64 = 0.01;

/// How long it waits for anything else that does not get on.
pub const LIMIT: Duration = Duration::from_secs(120);

/// The folder of one run.
pub struct RunFolder {
    path: PathBuf,
    keep: u32,
    holder: Holder,
    owners: Arc<Owners>,
    placements: Placements,
    journal: Arc<Mutex<Journal>>,
    checkpoints: Checkpoints,
    worker: Worker,
    /// Reads checkpoints back, while the others go on.
    verifier: Worker,
    /// What the journal has to be told beside what the driver tells.
    pending: Arc<Mutex<Vec<Event>>>,
    courier: Option<Arc<Courier>>,
    resume: Resume,
    calls: Option<Calls>,
    /// Where the script begins again; absent outside Slurm.
    present: Option<Where>,
    seen: Seen,
    finished_s: f64,
    /// When the first life of the run began.
    began_s: f64,
}

/// Tells where a script begins again.
pub type Where = Arc<dyn Fn() -> Present + Send + Sync>;

/// When a run was last seen well: what ended with an error after that may have been ended by the failure.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    well_s: f64,
    failed: bool,
}

impl Seen {
    fn event(&mut self, at_s: f64, event: &Event) {
        match event {
            Event::Failure { failed_s, .. } => *self = Seen { well_s: *failed_s, failed: true },
            Event::Started { .. } | Event::RolledBack { .. } => *self = Seen { well_s: at_s, failed: false },
            _ if self.failed => {}
            _ => self.well_s = at_s,
        }
    }
}

impl RunFolder {
    /// Takes the run of a folder up, for its owner only; what the journals of its holders hold is given back.
    ///
    /// # Errors
    /// A later life of the job has the run, or what the file system says.
    pub fn take_up(path: &Path, keep: u32, me: &Claim) -> run::Result<(RunFolder, Vec<Record>)> {
        let worker = Worker::start();
        let (folder, claim) = (path.to_path_buf(), me.clone());
        let taken =
            worker.call("taking the run up", LIMIT, move || run::take_up(&folder, &claim, Patience::LONG))??;
        let TakenUp { holder, journal, history } = taken;
        let holder = holder.patient(Patience::SHORT);
        let owners = Arc::new(history.owners);
        let checkpoints = path.join(seal::CHECKPOINTS);
        let mut folder = RunFolder {
            path: path.to_path_buf(),
            keep,
            placements: Placements::of_holder(path, &holder),
            checkpoints: Checkpoints::of_run(checkpoints, keep, holder.clone(), owners.clone(), Patience::SHORT)?,
            holder,
            owners,
            journal: Arc::new(Mutex::new(journal)),
            worker,
            verifier: Worker::start(),
            pending: Arc::default(),
            courier: None,
            resume: Resume::Script,
            calls: None,
            present: None,
            seen: Seen::default(),
            finished_s: 0.0,
            began_s: history.records.first().map_or_else(now_s, |record| record.at_s),
        };
        history.records.iter().for_each(|r| folder.seen.event(r.at_s, &r.event));
        folder.tell_conflicts(&history.records, history.conflicts);
        Ok((folder, history.records))
    }

    /// Tells of records that do not count, once.
    fn tell_conflicts(&self, records: &[Record], conflicts: Vec<String>) {
        let is_told = |conflict: &String| {
            records.iter().any(|r| matches!(&r.event, Event::Decided { reason, .. } if reason == conflict))
        };
        for reason in conflicts.into_iter().filter(|conflict| !is_told(conflict)) {
            protocol::say!("joulepoint: {reason}");
            let event = Event::Decided { action: "journal conflict".to_string(), reason, interval_s: 0.0 };
            lock(&self.pending).push(event);
        }
    }

    /// How the run goes on when its script is started again, and where; the record of the script's steps, if one is kept.
    pub fn resume_by(&mut self, resume: Resume, argv: &[String], present: Option<Where>) -> Option<Calls> {
        (self.resume, self.present) = (resume, present);
        if resume == Resume::Steps {
            let opened = Calls::open(&self.path, argv);
            self.calls = opened.inspect_err(|e| protocol::say!("joulepoint: steps are not remembered: {e}")).ok();
        }
        self.calls.clone()
    }

    /// Delivers every record from now on to the controller.
    pub fn deliver_by(&mut self, courier: Courier) {
        self.courier = Some(Arc::new(courier));
    }

    /// The holder of the run that this wrapper is.
    pub fn holder(&self) -> Holder {
        self.holder.clone()
    }

    /// The placements of all that is started in steps.
    pub fn placements(&self) -> Placements {
        self.placements.clone()
    }

    /// The checkpoints, for an engine.
    pub fn checkpoints(&self) -> Checkpoints {
        self.checkpoints.clone()
    }

    /// The checkpoints of one group, for an engine.
    ///
    /// # Errors
    /// What the file system says.
    pub fn checkpoints_of(&self, group: usize) -> run::Result<Checkpoints> {
        let folder = self.path.join(seal::CHECKPOINTS).join(format!("g{group}"));
        Checkpoints::of_run(folder, self.keep, self.holder.clone(), self.owners.clone(), Patience::SHORT)
    }

    /// When the run was last seen to go on.
    pub fn well_s(&self) -> f64 {
        self.seen.well_s
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells the driver as soon as another wrapper has taken the run up.
    pub fn watch(&self, post: Post) {
        let (holder, courier) = (self.holder.clone(), self.courier.clone());
        threads::start(move || {
            loop {
                thread::sleep(LOOK);
                let refused = courier.as_ref().is_some_and(|courier| courier.is_superseded());
                if refused || holder.show().is_err_and(|e| e.is_superseded()) {
                    return post.tell(Happening::Superseded);
                }
            }
        });
    }

    /// Writes the plan down.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_plan(&self, plan: &Plan) -> io::Result<()> {
        let (file, text) = (self.path.join("plan.json"), serde_json::to_vec_pretty(plan)?);
        let written = self.worker.call("writing the plan", LIMIT, move || write_durably(&file, &text));
        written.map_err(io::Error::other)?
    }

    /// What is done to the groups' checkpoints goes through the same thread.
    pub fn worker(&self) -> Worker {
        self.worker.clone()
    }

    /// Has a complete checkpoint read back; older ones go then.
    pub fn verify(&self) -> impl Fn(Checkpoints, u64) + use<> {
        let (verifier, pending) = (self.verifier.clone(), self.pending.clone());
        move |checkpoints, number| {
            let pending = pending.clone();
            verifier.post(move || {
                let Some(reason) = note(number, checkpoints.settle(number)) else { return };
                protocol::say!("joulepoint: {reason}");
                lock(&pending).push(Event::CheckpointFailed { reason });
            });
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is to be told of a checkpoint that was read back.
fn note(number: u64, settled: run::Result<Verdict>) -> Option<String> {
    match settled {
        Ok(Verdict::Good) => None,
        Ok(Verdict::Damaged(reason)) => Some(format!("checkpoint {number} is damaged and not used: {reason}")),
        Ok(Verdict::Unread(reason)) => {
            Some(format!("checkpoint {number} cannot be read back; older ones stay: {reason}"))
        }
        Err(e) if e.is_superseded() => None,
        Err(e) => Some(format!("checkpoint {number} cannot be read back; older ones stay: {e}")),
    }
}

impl Store for RunFolder {
    fn append(&mut self, at_s: f64, events: Vec<Event>) -> run::Result<()> {
        events.iter().for_each(|event| self.seen.event(at_s, event));
        let pending = std::mem::take(&mut *lock(&self.pending));
        let events = events.into_iter().chain(pending).map(|event| (at_s, event)).collect();
        let (journal, courier) = (self.journal.clone(), self.courier.clone());
        self.worker.ask("writing the journal", APPEND_LIMIT, move || {
            let records = lock(&journal).append(events)?;
            courier.iter().for_each(|courier| courier.take(records.clone()));
            Ok(())
        })?
    }

    fn room(&mut self) -> run::Result<(u64, PathBuf)> {
        let checkpoints = self.checkpoints.clone();
        self.worker.call("making room for a checkpoint", LIMIT, move || checkpoints.room())?
    }

    fn commit(&mut self, manifest: &Manifest) -> run::Result<()> {
        let (checkpoints, manifest, number) = (self.checkpoints.clone(), manifest.clone(), manifest.number);
        self.worker.call("completing a checkpoint", LIMIT, move || checkpoints.commit(&manifest))??;
        self.verify()(self.checkpoints.clone(), number);
        Ok(())
    }

    fn has_any(&mut self) -> Option<bool> {
        let folder = self.path.join(seal::CHECKPOINTS);
        let look = move || -> run::Result<bool> {
            let names = storage::names(&folder, Patience::NONE)?;
            let complete = |name| storage::is_there(&folder.join(name).join(MANIFEST), Patience::NONE);
            names.iter().try_fold(false, |any, name| Ok(any || complete(name)?))
        };
        self.worker.call("looking for checkpoints", LOOK_LIMIT, look).ok()?.ok()
    }

    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        if self.resume == Resume::None {
            return self.show().map(|()| (None, Vec::new()));
        }
        let checkpoints = self.checkpoints.patient(Patience::LONG);
        let found = self.worker.call("reading the checkpoints", LIMIT, move || checkpoints.newest())?;
        let (line, notes) = found?;
        let Some(calls) = self.calls.clone() else { return Ok((line, notes)) };
        let (line_s, well_s) = (line.as_ref().map(|l| l.begun_s), self.seen.well_s);
        let present = self.present.clone();
        let settle = move || calls.settle(line_s, well_s, present.map(|present| present()).as_ref());
        match self.worker.call("reading the steps", LIMIT, settle)? {
            Ok(settled) => {
                self.finished_s = settled.kept_until_s.unwrap_or(0.0);
                for reason in settled.again {
                    protocol::say!("joulepoint: {reason}");
                    let event = Event::Decided { action: "run step again".to_string(), reason, interval_s: 0.0 };
                    lock(&self.pending).push(event);
                }
                Ok((line.filter(|_| settled.line_is_needed), notes))
            }
            // By a record that does not agree with the line, steps that must run again would count as ended.
            Err(source) => Err(Error::Storage { path: self.path.join("calls"), source }),
        }
    }

    fn look(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let checkpoints = self.checkpoints.patient(Patience::LONG);
        self.worker.call("reading the checkpoints", LIMIT, move || checkpoints.newest())?
    }

    fn show(&mut self) -> run::Result<()> {
        let holder = self.holder.patient(Patience::LONG);
        self.worker.call("reading the fencing token", LIMIT, move || holder.show())?
    }

    fn finished_s(&self) -> f64 {
        self.finished_s
    }

    fn left(&self) -> Repeated {
        let (folder, run) = (std::env::current_dir().unwrap_or_default(), self.path.clone());
        Look { folder, since_s: self.began_s - TICK_S, run, ..Look::default() }.within_limit()
    }

    fn flush(&mut self, limit_s: f64) {
        let limit = Duration::from_secs_f64(limit_s);
        // What the storage did not take before is tried once more.
        let is_written = match self.append(now_s(), Vec::new()) {
            Err(Error::Superseded { .. }) => return,
            written => written.is_ok(),
        };
        let is_delivered = self.courier.as_ref().is_none_or(|courier| courier.flush(limit));
        if !is_written || !is_delivered {
            tracing::warn!(
                folder = %self.path.display(),
                is_written,
                "neither the controller nor this node's spool took all records; the run's next wrapper delivers them from the journal"
            );
        }
    }
}

/// The folder that holds runs when nothing else is said.
pub fn expand(dir: &str, home: &str, user: &str) -> PathBuf {
    PathBuf::from(dir.replace("{home}", home).replace("{user}", user))
}

/// Images are run: nobody else may have written them.
pub fn is_own(run: &Path) -> Result<(), String> {
    let m = fs::symlink_metadata(run).map_err(|e| format!("{}: {e}", run.display()))?;
    if m.is_dir() && m.uid() == nix::unistd::geteuid().as_raw() && m.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(format!("{} is open to others; its images are not trusted (chmod 700, and be its owner)", run.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn images_in_a_folder_that_is_open_to_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        is_own(dir.path()).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o770)).unwrap();
        assert!(is_own(dir.path()).unwrap_err().contains("not trusted"));
    }
}

//! The folder of a run, `DIR/<cluster>/<run>/`: plan, journal and checkpoints, as the driver's store.

use crate::calls::Calls;
use crate::checkpoints::{Checkpoints, write_durably};
use crate::deliver::Courier;
use crate::journal::Journal;
use crate::ports::Store;
use options::Resume;
use protocol::{Event, Manifest, Plan, Record};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of one run.
pub struct RunFolder {
    path: PathBuf,
    journal: Journal,
    checkpoints: Checkpoints,
    courier: Option<Courier>,
    resume: Resume,
    calls: Option<Calls>,
    seen: Seen,
    finished_s: f64,
}

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
    /// Opens or creates the folder, for its owner only; what the journal holds is given back.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(path: &Path, keep: u32) -> io::Result<(RunFolder, Vec<Record>)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let (journal, records) = Journal::open(&path.join("journal"))?;
        let checkpoints = Checkpoints::open(path.join("checkpoints"), keep)?;
        let mut seen = Seen::default();
        records.iter().for_each(|r| seen.event(r.at_s, &r.event));
        let folder = RunFolder {
            path: path.to_path_buf(),
            journal,
            checkpoints,
            courier: None,
            resume: Resume::Script,
            calls: None,
            seen,
            finished_s: 0.0,
        };
        Ok((folder, records))
    }

    /// How the run goes on when its script is started again; the record of the script's steps, if one is kept.
    pub fn resume_by(&mut self, resume: Resume, argv: &[String]) -> Option<Calls> {
        self.resume = resume;
        if resume == Resume::Steps {
            let opened = Calls::open(&self.path, argv);
            self.calls = opened.inspect_err(|e| protocol::say!("joulepoint: steps are not remembered: {e}")).ok();
        }
        self.calls.clone()
    }

    /// Delivers every record from now on to the controller.
    pub fn deliver_by(&mut self, courier: Courier) {
        self.courier = Some(courier);
    }

    /// The checkpoints, for an engine.
    pub fn checkpoints(&self) -> Checkpoints {
        self.checkpoints.clone()
    }

    /// When the run was last seen to go on.
    pub fn well_s(&self) -> f64 {
        self.seen.well_s
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the plan down.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write_plan(&self, plan: &Plan) -> io::Result<()> {
        write_durably(&self.path.join("plan.json"), &serde_json::to_vec_pretty(plan)?)
    }
}

impl Store for RunFolder {
    fn append(&mut self, at_s: f64, events: Vec<Event>) -> Result<(), String> {
        events.iter().for_each(|event| self.seen.event(at_s, event));
        let records = self.journal.append(at_s, events).map_err(|e| e.to_string())?;
        if let Some(courier) = &self.courier {
            courier.take(records);
        }
        Ok(())
    }

    fn room(&mut self) -> Result<(u64, PathBuf), String> {
        self.checkpoints.room().map_err(|e| e.to_string())
    }

    fn commit(&mut self, manifest: &Manifest) -> Result<(), String> {
        self.checkpoints.commit(manifest).map_err(|e| e.to_string())
    }

    fn newest(&mut self) -> (Option<Manifest>, Vec<String>) {
        if self.resume == Resume::None {
            return (None, Vec::new());
        }
        let (line, mut notes) = self.checkpoints.newest();
        let Some(calls) = &self.calls else { return (line, notes) };
        match calls.settle(line.as_ref().map(|l| l.begun_s), self.seen.well_s) {
            Ok(settled) => {
                self.finished_s = settled.kept_until_s.unwrap_or(0.0);
                (line.filter(|_| settled.line_is_needed), notes)
            }
            Err(e) => {
                notes.push(format!("the record of finished steps cannot be used: {e}"));
                (line, notes)
            }
        }
    }

    fn finished_s(&self) -> f64 {
        self.finished_s
    }

    fn flush(&mut self, limit_s: f64) {
        if let Some(courier) = &self.courier
            && !courier.flush(Duration::from_secs_f64(limit_s))
        {
            tracing::warn!(
                folder = %self.path.display(),
                "neither the controller nor this node's spool took all records; the run's next wrapper delivers them from the journal"
            );
        }
    }
}

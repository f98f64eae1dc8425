//! The folder of a run, `DIR/<cluster>/<run>/`: plan, journal and checkpoints, as the driver's store.

use crate::checkpoints::{Checkpoints, write_durably};
use crate::deliver::Courier;
use crate::journal::Journal;
use crate::ports::Store;
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
        let folder = RunFolder { path: path.to_path_buf(), journal, checkpoints, courier: None };
        Ok((folder, records))
    }

    /// Delivers every record from now on to the controller.
    pub fn deliver_by(&mut self, courier: Courier) {
        self.courier = Some(courier);
    }

    /// The checkpoints, for an engine.
    pub fn checkpoints(&self) -> Checkpoints {
        self.checkpoints.clone()
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
        self.checkpoints.newest()
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

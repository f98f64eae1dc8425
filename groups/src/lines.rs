//! The groups' checkpoints in the run's folder: `checkpoints/gN/NUMBER/`, numbered through the whole run.

use driver::groups::ports::Lines;
use job::run_folder::{LIMIT, RunFolder};
use protocol::Manifest;
use run::{Checkpoints, Patience, Worker};
use std::path::{Path, PathBuf};

/// Is told of each line of a group, with its folder.
pub type Told = dyn Fn(usize, &Path);

/// Has a complete checkpoint read back, so that older ones may go.
pub type Verify = dyn Fn(Checkpoints, u64);

/// The folders of all groups.
pub struct Folders {
    all: Vec<Checkpoints>,
    worker: Worker,
    verify: Box<Verify>,
    told: Option<Box<Told>>,
}

impl Folders {
    /// Opens or creates the folders of so many groups in a run's folder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(run: &RunFolder, groups: usize) -> run::Result<Folders> {
        let all = (0..groups).map(|group| run.checkpoints_of(group)).collect::<run::Result<_>>()?;
        Ok(Folders { all, worker: run.worker(), verify: Box::new(run.verify()), told: None })
    }

    /// Tells of each line that is complete from now on.
    pub fn tell(&mut self, told: Box<Told>) {
        self.told = Some(told);
    }

    /// The checkpoints of one group, for its engine.
    pub fn of(&self, group: usize) -> Checkpoints {
        self.all[group].clone()
    }
}

impl Lines for Folders {
    fn room(&mut self, group: usize) -> run::Result<(u64, PathBuf)> {
        let all = self.all.clone();
        self.worker.call("making room for a checkpoint", LIMIT, move || {
            let last = all.iter().map(Checkpoints::last).collect::<run::Result<Vec<_>>>()?;
            all[group].room_after(last.into_iter().max().unwrap_or(0))
        })?
    }

    fn commit(&mut self, group: usize, manifest: &Manifest) -> run::Result<()> {
        let (checkpoints, made) = (self.of(group), manifest.clone());
        self.worker.call("completing a checkpoint", LIMIT, move || checkpoints.commit(&made))??;
        (self.verify)(self.of(group), manifest.number);
        self.told.iter().for_each(|told| told(group, &self.all[group].path(manifest.number)));
        Ok(())
    }

    fn forget_from(&mut self, group: usize, number: u64) -> run::Result<()> {
        let checkpoints = self.of(group);
        self.worker.call("setting checkpoints aside", LIMIT, move || checkpoints.forget_from(number))?
    }

    fn newest(&mut self, group: usize) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let checkpoints = self.all[group].patient(Patience::LONG);
        self.worker.call("reading the checkpoints", LIMIT, move || checkpoints.newest())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_in_the_run_and_each_group_has_its_own_newest() {
        let dir = tempfile::tempdir().unwrap();
        let open = |g| Checkpoints::open(dir.path().join("checkpoints").join(format!("g{g}")), 1).unwrap();
        let (all, worker) = ((0..2).map(open).collect(), Worker::start());
        let mut lines = Folders { all, worker, verify: Box::new(|lines, n| drop(lines.settle(n))), told: None };
        for group in [0, 1, 0] {
            let (number, _) = lines.room(group).unwrap();
            let manifest = Manifest {
                version: protocol::VERSION,
                number,
                begun_s: 0.0,
                ended_s: 1.0,
                joules: None,
                bytes: 0,
                step: String::new(),
                engine: "app".into(),
                holder: None,
                files: Vec::new(),
            };
            lines.commit(group, &manifest).unwrap();
        }
        let newest: Vec<_> = (0..2).map(|g| lines.newest(g).unwrap().0.map(|m| m.number)).collect();
        assert_eq!(newest, [Some(3), Some(2)]);
        assert!(dir.path().join("checkpoints/g0/3/manifest.json").exists());
        lines.forget_from(0, 3).unwrap();
        assert_eq!(lines.newest(0).unwrap().0, None);
        assert_eq!(lines.room(0).unwrap().0, 4, "a number is not used twice");
    }
}

//! The groups' checkpoints in the run's folder: `checkpoints/gN/NUMBER/`, numbered through the whole run.

use crate::one_line;
use driver::groups::ports::Lines;
use job::run_folder::{LIMIT, RunFolder};
use protocol::Manifest;
use run::{Checkpoints, Patience, Worker};
use std::path::{Path, PathBuf};

/// How far a checkpoint reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// It is of one group.
    Own,
    /// It is part of a line of all groups.
    All,
}

/// Is told of each checkpoint of a group that is complete, with its folder; of one that is part of a line a second time.
pub type Told = dyn Fn(usize, &Path, Reach);

/// Has a complete checkpoint read back, so that older ones may go.
pub type Verify = dyn Fn(Checkpoints, u64);

/// The folders of all groups.
pub struct Folders {
    all: Vec<Checkpoints>,
    common: one_line::Lines,
    /// Whether there may be lines: those of programs that have ended go once.
    has_lines: bool,
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
        let all: Vec<Checkpoints> = (0..groups).map(|group| run.checkpoints_of(group)).collect::<run::Result<_>>()?;
        let common = one_line::Lines::open(&run.path().join(run::seal::CHECKPOINTS), &all)?;
        Ok(Folders { all, common, has_lines: true, worker: run.worker(), verify: Box::new(run.verify()), told: None })
    }

    /// Does something with the lines.
    fn with<T: Send + 'static>(
        &self,
        what: &'static str,
        act: impl FnOnce(&one_line::Lines) -> run::Result<T> + Send + 'static,
    ) -> run::Result<T> {
        let common = self.common.clone();
        self.worker.call(what, LIMIT, move || act(&common))?
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
        self.told.iter().for_each(|told| told(group, &self.all[group].path(manifest.number), Reach::Own));
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

    fn rooms(&mut self) -> run::Result<(u64, Vec<PathBuf>)> {
        let all = self.all.clone();
        self.has_lines = true;
        self.with("making room for a checkpoint", move |common| {
            let last = all.iter().map(Checkpoints::last).collect::<run::Result<Vec<_>>>()?;
            common.rooms(last.into_iter().max().unwrap_or(0))
        })
    }

    fn join(&mut self, number: u64) -> run::Result<()> {
        self.with("completing a line", move |common| common.join(number))?;
        for (group, checkpoints) in self.all.iter().enumerate() {
            self.told.iter().for_each(|told| told(group, &checkpoints.path(number), Reach::All));
        }
        Ok(())
    }

    fn part(&mut self, number: u64) -> run::Result<()> {
        self.with("setting checkpoints aside", move |common| common.part(number))
    }

    fn over(&mut self) -> run::Result<()> {
        if self.has_lines {
            self.with("forgetting lines", one_line::Lines::over)?;
            self.has_lines = false;
        }
        Ok(())
    }

    fn all_back(&mut self, anew: bool) -> run::Result<Option<u64>> {
        self.with("reading the lines", move |common| common.all_back(anew))
    }

    fn folder(&self, group: usize, number: u64) -> PathBuf {
        self.all[group].path(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_in_the_run_and_each_group_has_its_own_newest() {
        let dir = tempfile::tempdir().unwrap();
        let open = |g| Checkpoints::open(dir.path().join("checkpoints").join(format!("g{g}")), 1).unwrap();
        let (all, worker) = ((0..2).map(open).collect::<Vec<_>>(), Worker::start());
        let common = one_line::Lines::open(&dir.path().join("checkpoints"), &all).unwrap();
        let verify = Box::new(|lines: Checkpoints, n| drop(lines.settle(n)));
        let mut lines = Folders { all, common, has_lines: true, worker, verify, told: None };
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

//! The groups' checkpoints in the run's folder: `checkpoints/gN/NUMBER/`, numbered through the whole run.

use super::ports::Lines;
use crate::checkpoints::Checkpoints;
use protocol::Manifest;
use std::io;
use std::path::{Path, PathBuf};

/// Is told of each line of a group, with its folder.
pub type Told = dyn Fn(usize, &Path);

/// The folders of all groups.
pub struct Folders {
    all: Vec<Checkpoints>,
    told: Option<Box<Told>>,
}

impl Folders {
    /// Opens or creates the folders of so many groups in a run's folder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(run: &Path, groups: usize, keep: u32) -> io::Result<Folders> {
        let open = |g| Checkpoints::open(run.join("checkpoints").join(format!("g{g}")), keep);
        Ok(Folders { all: (0..groups).map(open).collect::<io::Result<_>>()?, told: None })
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
    fn room(&mut self, group: usize) -> Result<(u64, PathBuf), String> {
        let last = self.all.iter().map(Checkpoints::last).collect::<io::Result<Vec<_>>>();
        let last = last.map_err(|e| e.to_string())?.into_iter().max().unwrap_or(0);
        self.all[group].room_after(last).map_err(|e| e.to_string())
    }

    fn commit(&mut self, group: usize, manifest: &Manifest) -> Result<(), String> {
        self.all[group].commit(manifest).map_err(|e| e.to_string())?;
        self.told.iter().for_each(|told| told(group, &self.all[group].path(manifest.number)));
        Ok(())
    }

    fn forget_from(&mut self, group: usize, number: u64) -> Result<(), String> {
        self.all[group].forget_from(number).map_err(|e| e.to_string())
    }

    fn newest(&mut self, group: usize) -> (Option<Manifest>, Vec<String>) {
        self.all[group].newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_in_the_run_and_each_group_has_its_own_newest() {
        let dir = tempfile::tempdir().unwrap();
        let mut lines = Folders::open(dir.path(), 2, 1).unwrap();
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
                files: Vec::new(),
            };
            lines.commit(group, &manifest).unwrap();
        }
        let newest: Vec<_> = (0..2).map(|g| lines.newest(g).0.map(|m| m.number)).collect();
        assert_eq!(newest, [Some(3), Some(2)]);
        assert!(dir.path().join("checkpoints/g0/3/manifest.json").exists());
        lines.forget_from(0, 3).unwrap();
        assert_eq!(lines.newest(0).0, None);
        assert_eq!(lines.room(0).unwrap().0, 4, "a number is not used twice");
    }
}

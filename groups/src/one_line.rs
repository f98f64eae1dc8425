//! Which checkpoints of all groups are one line: `checkpoints/lines/NUMBER.json` in the run's folder for each that is, and a file
//! `NUMBER.begun` for one that may become one.

use run::{Checkpoints, Error, Result, write_durably};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// How many lines are kept: the newest may be damaged.
const KEPT: usize = 2;

/// What a line is made of.
#[derive(Serialize, Deserialize)]
struct Manifest {
    version: u32,
    number: u64,
    /// The groups' parts; what the relays held is in them.
    parts: Vec<PathBuf>,
}

/// The lines of a run.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    folder: PathBuf,
    all: Vec<Checkpoints>,
}

impl Lines {
    /// The lines of groups with these checkpoints.
    pub(super) fn open(checkpoints: &Path, all: &[Checkpoints]) -> Result<Lines> {
        let folder = checkpoints.join("lines");
        fs::create_dir_all(&folder).map_err(at(&folder))?;
        let lines = Lines { folder, all: all.to_vec() };
        lines.hold()?;
        Ok(lines)
    }

    /// Numbers of the files that end so, the highest first.
    fn numbers(&self, ending: &str) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(at(&self.folder))? {
            let name = entry.map_err(at(&self.folder))?.file_name();
            let number: Option<u64> = name.to_str().and_then(|name| name.strip_suffix(ending)?.parse().ok());
            numbers.extend(number);
        }
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        Ok(numbers)
    }

    /// The checkpoints of lines stay: from the newest to the newest of which all was read back.
    fn hold(&self) -> Result<()> {
        let numbers = self.numbers(".json")?;
        let whole = |number: &&u64| self.all.iter().all(|of| of.is_verified(**number));
        let end = numbers.iter().position(|number| whole(&number)).map_or(numbers.len(), |at| at + 1);
        self.all.iter().for_each(|of| of.hold(numbers.iter().take(end).copied()));
        numbers.into_iter().skip(end.max(KEPT)).try_for_each(|old| self.remove(&format!("{old}.json")))
    }

    /// Shows that no newer holder has the run.
    fn show(&self) -> Result<()> {
        self.all.iter().try_for_each(Checkpoints::show)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.show()?;
        let path = self.folder.join(name);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(at(&path)(e)),
            _ => Ok(()),
        }
    }

    /// Folders for the parts of a checkpoint of all groups, with a number above `last`.
    pub(super) fn rooms(&self, last: u64) -> Result<(u64, Vec<PathBuf>)> {
        self.hold()?;
        let first = self.all.first().ok_or_else(|| at(&self.folder)(io::Error::other("there are no groups")))?;
        let (number, folder) = first.room_after(last)?;
        let path = self.folder.join(format!("{number}.begun"));
        write_durably(&path, b"").map_err(at(&path))?;
        let others = self.all[1..].iter().map(|of| of.room_of(number));
        Ok((number, [Ok(folder)].into_iter().chain(others).collect::<Result<_>>()?))
    }

    /// The checkpoints with this number are one line.
    pub(super) fn join(&self, number: u64) -> Result<()> {
        let parts = self.all.iter().map(|of| of.path(number)).collect();
        let path = self.folder.join(format!("{number}.json"));
        self.show()?;
        let text = serde_json::to_vec(&Manifest { version: protocol::VERSION, number, parts });
        write_durably(&path, &text.map_err(|e| at(&path)(e.into()))?).map_err(at(&path))?;
        // It is a line, whatever becomes of what it makes needless.
        let tidied = self.hold().and_then(|()| self.remove(&format!("{number}.begun")));
        match tidied {
            Err(e) if !e.is_superseded() => {
                tracing::warn!(%e, "what a line has made needless is still there");
                Ok(())
            }
            tidied => tidied,
        }
    }

    /// The checkpoints with this number are never used.
    pub(super) fn part(&self, number: u64) -> Result<()> {
        self.all.iter().try_for_each(|of| of.forget(number))?;
        self.remove(&format!("{number}.begun"))
    }

    /// Nothing is left to go back to.
    pub(super) fn over(&self) -> Result<()> {
        for (ending, all) in [(".json", self.numbers(".json")?), (".begun", self.numbers(".begun")?)] {
            all.into_iter().try_for_each(|number| self.remove(&format!("{number}{ending}")))?;
        }
        self.hold()
    }

    /// The newest line of which all parts are there; what is no part of it is forgotten. Without one, all is if the program
    /// begins `anew`, or its lines are lost, and else what was begun and did not become one.
    pub(super) fn all_back(&self, anew: bool) -> Result<Option<u64>> {
        self.show()?;
        let numbers = self.numbers(".json")?;
        let anew = anew || !numbers.is_empty();
        let mut unrestored = None;
        for number in numbers {
            let parts: Vec<bool> = match self.all.iter().map(|of| of.is_complete(number)).collect() {
                Err(e @ Error::NotRestored(_)) => {
                    unrestored.get_or_insert(e);
                    continue;
                }
                parts => parts?,
            };
            if parts.iter().all(|part| *part) {
                self.all.iter().try_for_each(|of| of.forget_from(number + 1))?;
                return Ok(Some(number));
            }
            self.remove(&format!("{number}.json"))?;
        }
        if let Some(e) = unrestored {
            return Err(e);
        }
        if anew {
            self.all.iter().try_for_each(|of| of.forget_from(0))?;
        }
        self.numbers(".begun")?.into_iter().try_for_each(|number| self.part(number))?;
        Ok(None)
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Storage { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Manifest as Checkpoint;

    fn made(of: &Checkpoints, number: u64) {
        of.commit(&Checkpoint { version: protocol::VERSION, number, engine: "criu".into(), ..Checkpoint::default() })
            .unwrap();
        of.settle(number).unwrap();
    }

    fn of_two(keep: u32) -> (tempfile::TempDir, Vec<Checkpoints>, Lines) {
        let dir = tempfile::tempdir().unwrap();
        let open = |g| Checkpoints::open(dir.path().join(format!("g{g}")), keep).unwrap();
        let all: Vec<Checkpoints> = (0..2).map(open).collect();
        let lines = Lines::open(dir.path(), &all).unwrap();
        (dir, all, lines)
    }

    fn newest(of: &Checkpoints) -> Option<u64> {
        of.newest().unwrap().0.map(|m| m.number)
    }

    #[test]
    fn a_line_outlives_newer_checkpoints_of_its_groups_and_all_go_back_to_it() {
        let (_dir, all, lines) = of_two(1);
        let (number, folders) = lines.rooms(4).unwrap();
        assert!(number == 5 && folders.iter().all(|f| f.ends_with("5")));
        all.iter().for_each(|of| made(of, 5));
        lines.join(5).unwrap();
        for of in &all {
            for _ in 0..3 {
                let (number, _) = of.room().unwrap();
                made(of, number);
            }
        }
        assert_eq!((newest(&all[0]), newest(&all[1])), (Some(8), Some(8)));
        assert_eq!(lines.all_back(true).unwrap(), Some(5));
        assert_eq!((newest(&all[0]), newest(&all[1])), (Some(5), Some(5)));
    }

    #[test]
    fn a_line_that_lost_a_part_is_none_and_the_one_before_stays_until_all_of_the_newer_was_read_back() {
        let (_dir, all, lines) = of_two(1);
        for number in [1, 2] {
            lines.rooms(number - 1).unwrap();
            all.iter().for_each(|of| made(of, number));
            lines.join(number).unwrap();
        }
        // The second part of the newest is found to be damaged before it was read back.
        fs::rename(all[1].path(2).join("manifest.json"), all[1].path(2).join("manifest.damaged")).unwrap();
        let back = lines.all_back(true).unwrap();
        assert!(back == Some(1) || back.is_none(), "{back:?}");
        assert_eq!((newest(&all[0]), newest(&all[1])), (back, back));
    }

    #[test]
    fn a_line_of_which_a_part_could_not_be_restored_stays_and_the_one_before_is_gone_back_to() {
        let (_dir, all, lines) = of_two(2);
        for number in [1, 2] {
            lines.rooms(number - 1).unwrap();
            all.iter().for_each(|of| made(of, number));
            lines.join(number).unwrap();
        }
        fs::write(all[1].path(2).join(protocol::NOT_RESTORED), "").unwrap();
        assert_eq!(lines.all_back(true).unwrap(), Some(1));
        fs::write(all[0].path(1).join(protocol::NOT_RESTORED), "").unwrap();
        assert!(matches!(lines.all_back(true), Err(Error::NotRestored(_))), "never anew while there is one");
    }

    #[test]
    fn what_was_begun_and_became_no_line_is_never_used_and_with_no_line_all_begin_anew() {
        let (_dir, all, lines) = of_two(2);
        all.iter().for_each(|of| {
            of.room().unwrap();
            made(of, 1);
        });
        let (number, _) = lines.rooms(1).unwrap();
        made(&all[0], number);
        assert_eq!(lines.all_back(false).unwrap(), None);
        assert_eq!((newest(&all[0]), newest(&all[1])), (Some(1), Some(1)));
        assert_eq!(lines.all_back(true).unwrap(), None);
        assert_eq!((newest(&all[0]), newest(&all[1])), (None, None));
        // A program that has ended is gone back to by nobody.
        lines.rooms(7).unwrap();
        all.iter().for_each(|of| made(of, 8));
        lines.join(8).unwrap();
        lines.over().unwrap();
        assert_eq!(lines.all_back(false).unwrap(), None);
        assert_eq!(newest(&all[0]), Some(8));
    }
}

//! What a program did to files since its checkpoint that a restore does not undo: it will do that again.

use ::criu::frozen;

use job::changed::Look;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where a run goes on from, and what in it is no work that is done again.
#[derive(Clone, Debug, Default)]
pub struct From {
    /// When the checkpoint was begun, s since the epoch.
    pub since_s: f64,
    /// Folders of its programs: that of a whole script, or one for each task of steps. What they put back does not count.
    pub frozen: Vec<PathBuf>,
    /// The folder of the run.
    pub run: PathBuf,
    /// Files that are ours to put back.
    pub outputs: Vec<PathBuf>,
}

impl From {
    /// What is in the job's `folder` and was changed after a checkpoint, but for what that puts back, the job's own output
    /// and the folder of the run.
    pub fn look(self, folder: &Path) -> Look {
        let (mut own, mut others): (BTreeSet<PathBuf>, _) = (self.outputs.iter().cloned().collect(), BTreeSet::new());
        for frozen in self.frozen.iter().filter_map(|program| frozen::read(program).ok()) {
            own.extend(frozen.written.into_iter().filter(|file| !file.stays).map(|file| file.path));
            own.extend(frozen.read.into_iter().map(|file| file.path));
            own.extend(frozen.pipes.into_iter().filter_map(|pipe| pipe.file));
            others.extend(frozen.folders);
            others.extend(frozen.needed.iter().map(|folder| folder.path().to_path_buf()));
        }
        Look { folder: folder.to_path_buf(), others, since_s: self.since_s, run: self.run, own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::Repeated;
    use std::fs;

    fn since(folder: &Path, from: &From) -> Repeated {
        from.clone().look(folder).now()
    }

    #[test]
    fn what_was_changed_since_is_named_and_what_the_checkpoint_puts_back_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir_all(path("job/queue")).unwrap();
        fs::create_dir_all(path("job/.joulepoint/run")).unwrap();
        fs::write(path("job/log"), "a line").unwrap();
        let (job, run) = (path("job"), path("job/.joulepoint/run"));
        let now_s = host::mail::now_s();
        let from = |since_s| From { since_s, run: run.clone(), ..From::default() };
        assert_eq!(since(&job, &from(now_s)), Repeated::default());
        let found = since(&job, &from(now_s - 10.0));
        assert_eq!((found.names.len(), found.count), (2, 2), "{found:?}");
        assert!(found.line(true).is_some_and(|line| line.contains("queue/") && line.contains("log")), "{found:?}");
        for n in 0..9 {
            fs::write(path(&format!("job/queue/{n}")), "").unwrap();
        }
        let line = since(&job, &from(now_s - 10.0)).line(true).unwrap();
        assert!(line.contains("and 6 more"), "{line}");
        fs::create_dir(path("elsewhere")).unwrap();
        fs::write(path("elsewhere/log"), "").unwrap();
        let mut look = from(now_s - 10.0).look(&job);
        look.others = [PathBuf::from("/"), dir.path().to_path_buf(), path("elsewhere"), path("job/queue")].into();
        let found = look.now();
        assert_eq!(found.count, 12, "the other folder, and nothing twice: {found:?}");
        let outputs = vec![path("job/log")];
        assert_eq!(since(&job, &From { outputs, ..from(now_s - 10.0) }).count, 10, "the output of a step is put back");
    }
}

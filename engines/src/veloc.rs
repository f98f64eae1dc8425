//! Engine `veloc`: VELOC writes in the program; a version is taken once it is whole in VELOC's persistent folder.
//!
//! VELOC goes on from the newest version of which any rank has a file (`VELOC_Restart_test`), whole or not, on the nodes or in
//! the persistent folder. So before a restart newer files than those of the checkpoint are set aside, and the program gets
//! another scratch folder on its nodes.

mod setup;
mod versions;

pub use setup::{LIBRARY, Setup, of_script};

use crate::app::{Announced, App, put_aside};
use driver::ports::{Engine, Happening, Unprepared};
use host::mail::{Post, Tries, Try, now_s};
use job::writers;
use protocol::Manifest;
use run::storage::{gone, is_there, read_if_there};
use run::{Patience, Worker, write_durably};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use versions::{Key, Looks, Ranks, Versions, adds_up, file_name, look, newest_whole, part, path};

/// Time between two looks at the persistent folder.
const WATCH: Duration = Duration::from_secs(1);

/// The same, where a look takes long.
const LONGEST_WATCH: Duration = Duration::from_secs(60);

/// Longest wait for the storage where the driver itself waits for it.
const LIMIT: Duration = Duration::from_secs(120);

/// File of the run with what was in the persistent folder before the run began.
const FOUND: &str = "veloc-found";

/// File in the persistent folder that a run holds locked.
const LOCK: &str = ".joulepoint-lock";

/// How long it is waited for it by a run that goes on.
const LOCKED: Duration = Duration::from_secs(100);

/// What a scratch folder of ours has behind the program's own, before the name of the run.
const OURS: &str = ".joulepoint-";

/// The engine.
pub struct Veloc {
    /// Copies versions that are whole, and brings them back.
    app: App,
    announced: Announced,
    post: Post,
    of: Of,
    /// Held as long as no other run may use the persistent folder.
    lock: Option<File>,
    watches: Tries,
    worker: Worker,
}

/// Which checkpoints it looks at.
#[derive(Clone)]
pub struct Of {
    /// Where VELOC keeps them.
    pub setup: Setup,
    /// Folder of the run.
    pub run: PathBuf,
    /// Says who may still write to them.
    pub writers: writers::Ask,
}

/// What was in the persistent folder before the run, by the names of the files.
type Found = BTreeMap<String, Looks>;

impl Veloc {
    /// An engine whose `app` takes what is `announced`, and looks for nothing itself.
    pub fn new(app: App, announced: Announced, post: Post, of: Of) -> Veloc {
        Veloc { app, announced, post, of, lock: None, watches: Tries::default(), worker: Worker::start() }
    }

    /// Watches the persistent folder from now on; versions that the program has been given are not new.
    fn watch(&self, found: Found, given: BTreeMap<String, u64>) {
        let (of, announced, watch) = (self.of.clone(), self.announced.clone(), self.watches.begin());
        threads::start(move || of.watch(&found, &given, &announced, &watch));
    }
}

impl Of {
    fn watch(&self, found: &Found, given: &BTreeMap<String, u64>, announced: &Announced, watch: &Try) {
        let (mut before, mut told, mut ranks) = (Versions::new(), None, Ranks::default());
        while watch.is_current() {
            let begun = Instant::now();
            let now = self.look(found).unwrap_or_else(|e| {
                tracing::warn!(%e, path = %self.setup.persistent.display(), "VELOC's folder cannot be read");
                before.clone()
            });
            ranks.learn(&now);
            let whole: Versions = newest_whole(&now, &ranks)
                .into_iter()
                .filter_map(|key| Some((key.clone(), now.get(key)?.clone())))
                .collect();
            let is_given = |(name, version): &Key| given.get(name) == Some(version);
            let known = told.get_or_insert_with(|| {
                let given = whole.iter().filter(|(key, _)| is_given(key));
                given.map(|(key, files)| (key.clone(), files.clone())).collect::<Versions>()
            });
            let is_still = whole.keys().all(|key| before.get(key) == now.get(key));
            if whole != *known
                && is_still
                && let Some(files) = self.finished(&whole)
            {
                announced.files(files);
                *known = whole;
            }
            before = now;
            thread::sleep((begun.elapsed() * 9).clamp(WATCH, LONGEST_WATCH));
        }
    }

    /// What is there, but what was there before the run.
    fn look(&self, found: &Found) -> io::Result<Versions> {
        let mut versions = look(&self.setup.persistent)?;
        for (key, files) in &mut versions {
            files.retain(|rank, looks| found.get(&file_name(key, *rank)) != Some(looks));
        }
        versions.retain(|_, files| !files.is_empty());
        Ok(versions)
    }

    /// The files of versions, with their checksums, if all are finished.
    fn finished(&self, versions: &Versions) -> Option<Vec<PathBuf>> {
        let of = |(key, files): (&Key, &BTreeMap<u64, Looks>)| {
            files.keys().map(|rank| path(&self.setup.persistent, key, *rank)).collect::<Vec<_>>()
        };
        let mut files: Vec<PathBuf> = versions.iter().flat_map(of).collect();
        if !files.iter().all(|file| adds_up(file).unwrap_or(false)) {
            return None;
        }
        if let Some(folder) = &self.setup.checksums {
            let sums: Vec<PathBuf> = files.iter().filter_map(|file| sum_of(folder, file)).collect();
            // VELOC makes them last.
            if !sums.iter().all(|sum| sum.is_file()) {
                return None;
            }
            files.extend(sums);
        }
        (self.writers)(&files).is_nobody().then_some(files)
    }

    /// What was there before the run, as its first start has noted it, and whether this is that start.
    fn found(&self) -> Result<(Found, bool), Unprepared> {
        let note = self.run.join(FOUND);
        if let Some(text) = read_if_there(&note, Patience::LONG)? {
            let unknown = |e: serde_json::Error| format!("{}: {e}: submit the job again", note.display());
            let found = serde_json::from_slice(&text).map_err(|e| Unprepared::Unusable(unknown(e)))?;
            return Ok((found, false));
        }
        let there = Patience::LONG.with(|| look(&self.setup.persistent)).map_err(|e| self.unread(&e))?;
        let mut found = Found::new();
        for (key, files) in there {
            found.extend(files.into_iter().map(|(rank, looks)| (file_name(&key, rank), looks)));
        }
        let written = serde_json::to_vec(&found).map_err(io::Error::from);
        let written = written.and_then(|text| Patience::LONG.with(|| write_durably(&note, &text)));
        written.map_err(|e| Unprepared::Storage(format!("{}: {e}", note.display())))?;
        Ok((found, true))
    }

    fn unread(&self, e: &io::Error) -> Unprepared {
        Unprepared::Storage(format!("{}: {e}", self.setup.persistent.display()))
    }

    /// Sets aside what this run has written after a checkpoint, or all of it if there is none.
    fn set_aside(&self, from: Option<&Manifest>, found: &Found) -> Result<(), Unprepared> {
        let (kept, mut moved) = (versions_of(from), 0);
        for (key, files) in self.look(found).map_err(|e| self.unread(&e))? {
            if kept.get(&key.0).is_some_and(|version| key.1 <= *version) {
                continue;
            }
            for rank in files.into_keys() {
                put_aside(&path(&self.setup.persistent, &key, rank))?;
                moved += 1;
            }
        }
        if moved > 0 {
            protocol::say!(
                "joulepoint: {moved} files of VELOC that are newer than the checkpoint, or incomplete, are set aside in \
                 {}",
                self.setup.persistent.join(crate::app::ASIDE).display()
            );
        }
        Ok(())
    }

    /// How the names of this run's scratch folders begin.
    fn scratch(&self) -> Option<(PathBuf, String)> {
        let own = &self.setup.scratch;
        let run = self.run.file_name()?.to_string_lossy().into_owned();
        Some((own.parent()?.to_path_buf(), format!("{}{OURS}{run}-", own.file_name()?.to_string_lossy())))
    }

    /// Removes the scratch folders of earlier starts on this node.
    fn clear_scratch(&self) {
        let Some((folder, begin)) = self.scratch() else { return };
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&begin)
                && let Err(e) = gone(fs::remove_dir_all(entry.path()))
            {
                tracing::warn!(%e, path = %entry.path().display(), "an earlier scratch folder of VELOC stays");
            }
        }
    }

    /// Keeps other runs from the persistent folder: they would set each other's checkpoints aside. None if one has it where
    /// this one first begins; one that goes on waits, since the lock of a node that has died is held until its server misses it.
    fn lock(&self) -> Result<Option<File>, Unprepared> {
        let begins = !is_there(&self.run.join(FOUND), Patience::LONG)?;
        let patience = if begins { Duration::ZERO } else { LOCKED };
        let folder = &self.setup.persistent;
        let made =
            fs::create_dir(folder).or_else(|e| if e.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(e) });
        let opened = made.and_then(|()| {
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join(LOCK))
        });
        let (file, until) = (opened.map_err(|e| self.unread(&e))?, Instant::now() + patience);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => thread::sleep(WATCH),
                Err(TryLockError::WouldBlock) if begins => return Ok(None),
                Err(TryLockError::WouldBlock) => return Err(Unprepared::Storage(self.taken())),
                // Where there are no locks nobody can tell.
                Err(TryLockError::Error(e)) => {
                    tracing::warn!(%e, path = %folder.display(), "the folder cannot be locked");
                    return Ok(Some(file));
                }
            }
        }
    }

    fn taken(&self) -> String {
        let folder = self.setup.persistent.display();
        format!("another run keeps its checkpoints in {folder}; give each job a folder of its own")
    }

    /// Makes the folders what a program that starts from a checkpoint is to find; and what was there before the run, and
    /// whether the program has been started before.
    fn make_ready(&self, from: Option<&Manifest>) -> Result<(Found, bool), Unprepared> {
        let (found, is_first) = self.found()?;
        if !is_first {
            self.set_aside(from, &found)?;
            self.clear_scratch();
        }
        Ok((found, is_first))
    }
}

/// The versions of a checkpoint, by their names.
fn versions_of(from: Option<&Manifest>) -> BTreeMap<String, u64> {
    let files = from.into_iter().flat_map(|manifest| &manifest.files);
    let names = files.filter_map(|file| file.original.file_name()?.to_str());
    names.filter_map(part).map(|(key, _)| key).collect()
}

/// The checksum of a file of VELOC.
fn sum_of(folder: &Path, file: &Path) -> Option<PathBuf> {
    Some(folder.join(format!("{}.chksum", file.file_name()?.to_str()?)))
}

impl Engine for Veloc {
    fn name(&self) -> &str {
        "veloc"
    }

    fn on_demand(&self) -> bool {
        false
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        self.watches.void();
        if self.lock.is_none() {
            let of = self.of.clone();
            self.lock = self.worker.call("locking VELOC's folder", LIMIT, move || of.lock())??;
        }
        if self.lock.is_none() {
            self.post.tell(Happening::Hindered(self.of.taken()));
            return self.app.prepare(None, interval_s);
        }
        let (of, line) = (self.of.clone(), from.cloned());
        let ready = move || of.make_ready(line.as_ref());
        let (found, is_first) = self.worker.call("looking at VELOC's folders", LIMIT, ready)??;
        let mut environment = self.app.prepare(from, interval_s)?;
        if let Some((folder, begin)) = self.of.scratch().filter(|_| !is_first) {
            let scratch = folder.join(format!("{begin}{:.0}", now_s()));
            environment.push(("VELOC_SCRATCH".to_string(), scratch.to_string_lossy().into_owned()));
        }
        self.watch(found, versions_of(from));
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        self.app.begin(into);
    }

    fn give_up(&mut self) {
        self.app.give_up();
    }
}

impl Drop for Veloc {
    fn drop(&mut self) {
        self.watches.void();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Files;
    use driver::ports::{Clock, Saved};
    use host::mail::{MailClock, queue};
    use run::Checkpoints;

    /// VELOC's folders, an engine over them, and where its news arrive.
    struct Place {
        dir: tempfile::TempDir,
        engine: Veloc,
        clock: MailClock,
        checkpoints: Checkpoints,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        ["run", "persistent"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
        let (post, clock) = queue();
        let checkpoints = Checkpoints::open(at("checkpoints"), 2).unwrap();
        let files = Files { folder: at("."), patterns: Vec::new(), ours: None };
        let announced = Announced::default();
        let app = App::new(post.clone(), checkpoints.clone(), files, None, announced.clone());
        let setup = Setup { persistent: at("persistent"), scratch: at("scratch"), checksums: None };
        let of = Of { setup, run: at("run"), writers: writers::here() };
        Place { engine: Veloc::new(app, announced, post, of), dir, clock, checkpoints }
    }

    impl Place {
        fn file(&self, rank: u64, version: u64) -> PathBuf {
            path(&self.dir.path().join("persistent"), &("heat".to_string(), version), rank)
        }

        fn write(&self, rank: u64, version: u64) {
            let mut content = 1u64.to_ne_bytes().to_vec();
            content.extend(0i32.to_ne_bytes());
            content.extend(8u64.to_ne_bytes());
            content.extend(version.to_ne_bytes());
            fs::write(self.file(rank, version), content).unwrap();
        }

        /// The checkpoint that appears next.
        fn appeared(&mut self) -> Manifest {
            assert_eq!(self.clock.wait(now_s() + 30.0), Some(Happening::Appeared));
            let (number, into) = self.checkpoints.room().unwrap();
            self.engine.begin(into);
            loop {
                match self.clock.wait(now_s() + 30.0) {
                    Some(Happening::Checkpointed(Ok(Saved { files, .. }))) => {
                        return Manifest { version: protocol::VERSION, number, files, ..Manifest::default() };
                    }
                    Some(Happening::GoesOn) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_version_is_taken_when_all_ranks_have_written_it_and_what_is_newer_is_set_aside_for_a_restart() {
        let mut place = place();
        place.write(0, 100);
        let environment = place.engine.prepare(None, 60.0).unwrap();
        assert!(!environment.iter().any(|(name, _)| name == "VELOC_SCRATCH"), "the first start is the program's own");
        (0..2).for_each(|rank| place.write(rank, 200));
        place.write(0, 300);
        assert_eq!(place.clock.wait(now_s() + 3.0), None, "a rank is missing, or a version to compare");
        place.write(1, 300);
        let manifest = place.appeared();
        assert_eq!(manifest.files.len(), 2, "{manifest:?}");
        place.write(0, 400);
        fs::write(place.file(1, 300), "torn").unwrap();
        let environment = place.engine.prepare(Some(&manifest), 60.0).unwrap();
        let there = |rank, version| place.file(rank, version).exists();
        assert_eq!([there(0, 100), there(0, 200), there(1, 300), there(0, 400)], [true, true, true, false]);
        assert!(adds_up(&place.file(1, 300)).unwrap(), "it is as it was");
        let scratch = environment.iter().find(|(name, _)| name == "VELOC_SCRATCH").expect("another");
        assert!(scratch.1.contains("/scratch.joulepoint-run-"), "{scratch:?}");
        assert_eq!(place.clock.wait(now_s() + 3.0), None, "what is brought back is not new");
        (0..2).for_each(|rank| place.write(rank, 400));
        assert_eq!(place.appeared().files.len(), 2);
    }

    #[test]
    fn a_folder_that_another_run_uses_is_left_alone_and_the_user_hears_of_it() {
        let (mut one, mut other) = (place(), place());
        other.engine.of.setup.persistent = one.dir.path().join("persistent");
        one.engine.prepare(None, 60.0).unwrap();
        other.engine.prepare(None, 60.0).unwrap();
        let said = other.clock.wait(now_s() + 5.0);
        assert!(matches!(&said, Some(Happening::Hindered(why)) if why.contains("another run")), "{said:?}");
    }

    #[test]
    fn without_a_checkpoint_what_this_run_has_begun_to_write_is_not_found_by_the_program() {
        let mut place = place();
        (0..2).for_each(|rank| place.write(rank, 100));
        place.engine.prepare(None, 60.0).unwrap();
        place.write(0, 200);
        let earlier = place.dir.path().join("scratch.joulepoint-run-1");
        fs::create_dir(&earlier).unwrap();
        place.engine.prepare(None, 60.0).unwrap();
        let there = |rank, version| place.file(rank, version).exists();
        assert_eq!(
            [there(0, 100), there(1, 100), there(0, 200)],
            [true, true, false],
            "what its user has put there stays"
        );
        assert!(!earlier.exists(), "memory of the node is given back");
    }
}

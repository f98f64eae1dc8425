//! Engine `app`: the program's own checkpoints, asked for by a signal or written by itself at the given interval.

mod files;
mod finished;

pub use files::{Announced, Files};

use driver::ports::{Engine, Happening, NotSaved, Saved, Unprepared};
use files::{Glances, States};
use finished::{Before, Limits, NotFinished, wait};
use host::mail::{Post, Tries};
use job::writers;
use openfiles::by_size::dated;
use protocol::Manifest;
use run::storage::gone;
use run::{Checkpoints, Error, Patience, Worker, bring_back, newer};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at files that the program may write at any time.
const WATCH: Duration = Duration::from_millis(1000);

/// The same, where a look takes long.
const LONGEST_WATCH: Duration = Duration::from_secs(60);

/// How long files that stand still may be held open before a checkpoint is given up, and that is told.
const HELD: Duration = Duration::from_secs(60);

/// The same, once they were seen for that long.
const SEEN_HELD: Duration = Duration::from_secs(5);

/// How long the driver waits for files that come back and do not get on.
const STALLED: Duration = Duration::from_secs(120);

/// How long a program that has done nothing yet is not asked again: at least so long, and five times what its slowest checkpoint
/// has taken.
const AGAIN: Duration = Duration::from_secs(60);

/// A second one of these may mean that the program is to end at once.
const NEVER_AGAIN: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// How often files are copied again that have changed meanwhile.
const TRIES: u32 = 5;

/// Longest wait for a checkpoint, where nobody says another.
const LIMIT: Duration = Duration::from_secs(3600);

/// Where files of a program go that it is not to find, beside them.
pub(crate) const ASIDE: &str = ".joulepoint-aside";

/// How long the engine waits for a checkpoint that the driver gives up after so long: it can say why.
pub fn limit(checkpoint_limit_s: f64) -> Duration {
    Duration::from_secs_f64((checkpoint_limit_s * 0.9).max(0.0))
}

/// Sends a request for a checkpoint to the program; an error is a sentence.
pub type Ask = Arc<dyn Fn(i32) -> Result<(), String> + Send + Sync>;

/// The engine.
pub struct App {
    post: Post,
    checkpoints: Checkpoints,
    files: Files,
    signal: Option<(i32, Ask)>,
    announced: Announced,
    writers: writers::Ask,
    limit: Duration,
    tries: Tries,
    watches: Tries,
    taken: Arc<Mutex<States>>,
    /// How many announcements were taken up.
    heard: Arc<AtomicU64>,
    /// What the slowest checkpoint that the program was asked for has taken, ms.
    slowest_ms: Arc<AtomicU64>,
    /// The shortest time after which it is asked again.
    again: Duration,
    /// Brings files back, which may hang.
    worker: Worker,
    /// What was there before the run, if nothing newer than a line may be; or why nobody knows.
    found: Option<Result<States, String>>,
}

impl App {
    /// An engine that asks by `signal`, or only watches if there is none.
    pub fn new(
        post: Post,
        checkpoints: Checkpoints,
        files: Files,
        signal: Option<(i32, Ask)>,
        announced: Announced,
    ) -> App {
        App {
            post,
            checkpoints,
            files,
            signal,
            announced,
            writers: writers::here(),
            limit: LIMIT,
            tries: Tries::default(),
            watches: Tries::default(),
            taken: Arc::default(),
            heard: Arc::default(),
            slowest_ms: Arc::default(),
            again: AGAIN,
            worker: Worker::start(),
            found: None,
        }
    }

    /// Asks these processes whether they still write, and waits so long for a checkpoint.
    pub fn of_job(mut self, writers: writers::Ask, limit: Duration) -> App {
        (self.writers, self.limit) = (writers, limit);
        self
    }

    /// The program is to find no files but those of its line: with newer ones it would not go back far enough. What a
    /// run that begins has found, and nobody has changed since, is its user's.
    pub fn exact(mut self, resumes: bool) -> App {
        let now = || Patience::LONG.with(|| self.files.now()).map_err(|e| e.to_string());
        self.found = Some(if resumes { Ok(States::new()) } else { now() });
        self
    }

    /// Watches the files of a program that checkpoints by itself.
    fn watch(&self) {
        let (files, post, taken, writers) =
            (self.files.clone(), self.post.clone(), self.taken.clone(), self.writers.clone());
        let (announced, heard) = (self.announced.clone(), self.heard.clone());
        let watch = self.watches.begin();
        // What was there before is no checkpoint.
        let mut is_known = note(&files, &taken);
        threads::start(move || {
            let mut known = Glances::new();
            let (mut before, mut since, mut is_told, mut told) = (Glances::new(), Instant::now(), false, 0);
            while watch.is_current() {
                let looked = Instant::now();
                let glance = files.glance();
                is_known = is_known || note(&files, &taken);
                let count = announced.get().0;
                if count > heard.load(Ordering::SeqCst).max(told) {
                    told = count;
                    // What it has announced is taken as it is, and not once more for its looks.
                    note(&files, &taken);
                    known = glance.clone();
                    post.tell_of(&watch, Happening::Appeared);
                }
                let is_still = glance == before;
                if !is_still {
                    (before, since, is_told) = (glance, Instant::now(), false);
                }
                // Of several files, others may be to come; one that is replaced all the time is whole at any time.
                if is_known && (is_still || before.len() == 1) && !before.is_empty() && before != known {
                    match news(&files, &taken, &writers) {
                        Some(true) => {
                            known = before.clone();
                            post.tell_of(&watch, Happening::Appeared);
                        }
                        Some(false) => known = before.clone(),
                        // The engine will say why they cannot be taken.
                        None if since.elapsed() > HELD && !std::mem::replace(&mut is_told, true) => {
                            post.tell_of(&watch, Happening::Appeared);
                        }
                        None => {}
                    }
                }
                // Many files on a storage that others use, too: looks take no more than a tenth of the time.
                thread::sleep((looked.elapsed() * 9).clamp(WATCH, LONGEST_WATCH));
            }
        });
    }
}

/// Takes a program's files out of its sight, but those of a line and those that were `found` before the run.
fn set_aside(files: &Files, line: Option<&Manifest>, found: &States) -> run::Result<()> {
    let of_line = |path: &Path| line.is_some_and(|m| m.files.iter().any(|f| f.original == path));
    let now = Patience::LONG.with(|| files.now()).map_err(Error::at(&files.folder))?;
    for (path, _) in now.into_iter().filter(|(path, state)| !of_line(path) && found.get(path) != Some(state)) {
        put_aside(&path)?;
    }
    Ok(())
}

/// Puts a file where its program does not find it, beside what was put there before; where, if there is one.
pub(crate) fn put_aside(path: &Path) -> run::Result<Option<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent().map(|p| p.join(ASIDE)), path.file_name()) else { return Ok(None) };
    let look = || match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    };
    let Some(found) = Patience::LONG.with(look).map_err(Error::at(path))? else { return Ok(None) };
    let aside = folder.join(dated(&name.to_string_lossy(), &found));
    // The answer to a first try may have been lost.
    let moved = || fs::create_dir_all(&folder).and_then(|()| gone(fs::rename(path, &aside)));
    Patience::LONG.with(moved).map_err(Error::at(path))?;
    Ok(Some(aside))
}

/// Keeps what a program has written after the checkpoint from which it goes on, and tells where: nobody knows whether that is whole.
fn keep_newer(line: &Manifest) {
    for file in newer(line) {
        let name = file.display();
        match put_aside(&file) {
            Ok(None) => {}
            Ok(Some(aside)) => protocol::say!(
                "joulepoint: {name} was written after checkpoint {}, and may not be whole: it is kept as {}",
                line.number,
                aside.display()
            ),
            Err(e) => tracing::warn!(%e, "a file that is newer than its checkpoint is not kept"),
        }
    }
}

/// Notes what files look like as taken; whether that is known.
fn note(files: &Files, taken: &Mutex<States>) -> bool {
    files.now().map(|now| *lock(taken) = now).is_ok()
}

/// Whether files are finished and others than those that were taken last; none while that cannot be said.
fn news(files: &Files, taken: &Mutex<States>, writers: &writers::Ask) -> Option<bool> {
    let now = files.now().ok()?;
    if *lock(taken) == now {
        return Some(false);
    }
    let names: Vec<PathBuf> = now.keys().cloned().collect();
    if !writers(&names).is_nobody() {
        return None;
    }
    *lock(taken) = now;
    Some(true)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine for App {
    fn name(&self) -> &str {
        "app"
    }

    fn on_demand(&self) -> bool {
        self.signal.is_some()
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        let mut environment = interval_variables(interval_s);
        let folder = from.map(|manifest| self.checkpoints.path(manifest.number));
        let found = self.found.clone().transpose().map_err(Unprepared::Storage)?;
        let (files, line, copies) = (self.files.clone(), from.cloned(), folder.clone());
        let back = move || -> run::Result<Vec<String>> {
            match (&found, &line) {
                (Some(found), line) => set_aside(&files, line.as_ref(), found)?,
                (None, line) => line.iter().for_each(keep_newer),
            }
            line.zip(copies).map_or(Ok(Vec::new()), |(line, copies)| bring_back(&line, &copies, Patience::LONG))
        };
        for remark in self.worker.call("bringing the files of a checkpoint back", STALLED, back)?? {
            tracing::warn!(remark, "a file has not come back wholly as it was");
        }
        if let Some(folder) = folder {
            environment.push(("FT_ENERGY_RESTART_DIR".to_string(), folder.to_string_lossy().into_owned()));
        }
        environment.push(("FT_ENERGY_RESTART".to_string(), u8::from(from.is_some()).to_string()));
        if self.signal.is_none() {
            self.watch();
        }
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (files, post, announced) = (self.files.clone(), self.post.clone(), self.announced.clone());
        let (signal, writers, limit) = (self.signal.clone(), self.writers.clone(), self.limit);
        let (heard, checkpoints) = (self.heard.clone(), self.checkpoints.clone());
        let (slowest_ms, shortest) = (self.slowest_ms.clone(), self.again);
        threads::start(move || {
            let begun = Instant::now();
            let again = match &signal {
                Some((number, _)) if !NEVER_AGAIN.contains(number) => {
                    shortest.max(Duration::from_millis(slowest_ms.load(Ordering::SeqCst)) * 5)
                }
                _ => Duration::MAX,
            };
            let ask_again = || {
                let Some((number, ask)) = &signal else { return };
                tracing::warn!("the program has not written the checkpoint that it was asked for; it is asked again");
                ask(*number).unwrap_or_else(|why| tracing::warn!(why, "the program is not asked again"));
            };
            let made = || -> Result<Saved, String> {
                let before = match &signal {
                    Some((number, ask)) => {
                        let states = files.now().map_err(|e| e.to_string())?;
                        let before = Before { states, announced: announced.get().0 };
                        ask(*number).map(|()| before)?
                    }
                    // What is there is new to us.
                    None => Before { states: States::new(), announced: heard.load(Ordering::SeqCst) },
                };
                let earlier = checkpoints.earlier();
                let held_limit = if signal.is_some() { HELD } else { SEEN_HELD };
                heard.store(announced.get().0, Ordering::SeqCst);
                for _ in 0..TRIES {
                    let left = limit.saturating_sub(begun.elapsed());
                    let limits = Limits { whole: left, held: held_limit, again };
                    let finished = wait(&one, &files, &announced, &before, &writers, &ask_again, limits)
                        .inspect_err(tell_held)
                        .map_err(|e| e.to_string())?;
                    if signal.is_some() {
                        slowest_ms.fetch_max(begun.elapsed().as_millis() as u64, Ordering::SeqCst);
                    }
                    // The program goes on while its files are copied.
                    let still_s = Some(finished.at.duration_since(begun).as_secs_f64());
                    post.tell_of(&one, Happening::GoesOn);
                    match finished.copy(&files, &writers, &into, &earlier).map_err(|e| e.to_string())? {
                        Some(files) => return Ok(Saved { files, still_s, kept: None }),
                        None => emptied(&into).map_err(|e| e.to_string())?,
                    }
                }
                Err(NotFinished::Changing.to_string())
            };
            let made = made();
            post.tell_of(&one, Happening::Checkpointed(made.map_err(NotSaved::from)));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

/// What the user alone can mend is said where they look.
fn tell_held(why: &NotFinished) {
    if matches!(why, NotFinished::Held(_) | NotFinished::Missing(_)) {
        protocol::say!("joulepoint: no checkpoint: {why}");
    }
}

/// Removes the copies of a try that was in vain.
fn emptied(folder: &Path) -> std::io::Result<()> {
    fs::read_dir(folder)?.try_for_each(|entry| fs::remove_file(entry?.path()))
}

impl Drop for App {
    fn drop(&mut self) {
        self.tries.void();
        self.watches.void();
    }
}

/// What tells a program how often it should checkpoint.
pub fn interval_variables(interval_s: f64) -> Vec<(String, String)> {
    let seconds = interval_s.max(1.0);
    vec![
        ("FT_ENERGY_INTERVAL_S".to_string(), format!("{seconds:.0}")),
        ("FT_ENERGY_INTERVAL_MIN".to_string(), format!("{:.4}", seconds / 60.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::ports::Clock;
    use host::mail::{MailClock, now_s, queue};

    /// A folder with one old checkpoint file, an engine over it, and where its news arrive.
    fn engine(signal: Option<Ask>) -> (tempfile::TempDir, App, MailClock, Announced) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state.cpt"), "old").unwrap();
        let (post, clock) = queue();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
        let files = Files { folder: dir.path().to_path_buf(), patterns: vec!["*.cpt".into()], ours: None };
        let announced = Announced::default();
        let app = App::new(post, checkpoints, files, signal.map(|ask| (10, ask)), announced.clone());
        (dir, app, clock, announced)
    }

    fn next(clock: &mut MailClock) -> Happening {
        clock.wait(now_s() + 30.0).expect("something happens within half a minute")
    }

    /// Begins a checkpoint and tells which files it took, with their sizes.
    fn taken(dir: &Path, app: &mut App, clock: &mut MailClock) -> Result<Vec<(String, u64)>, String> {
        let (_, folder) = app.checkpoints.room().unwrap();
        app.begin(folder);
        // A file that is replaced all the time may appear once more.
        let result = loop {
            match next(clock) {
                Happening::Checkpointed(result) => break result,
                happening => assert!(matches!(happening, Happening::Appeared | Happening::GoesOn), "{happening:?}"),
            }
        };
        let name = |original: &Path| original.strip_prefix(dir).unwrap().to_string_lossy().into_owned();
        result
            .map_err(|e| e.to_string())
            .map(|saved| saved.files.into_iter().map(|f| (name(&f.original), f.bytes)).collect())
    }

    #[test]
    fn a_program_that_is_asked_is_waited_for_until_its_file_is_new() {
        let place = Arc::new(Mutex::new(PathBuf::new()));
        let told = place.clone();
        let ask: Ask = Arc::new(move |signal| {
            assert_eq!(signal, 10);
            fs::write(told.lock().unwrap().join("state.cpt"), "newer").map_err(|e| e.to_string())
        });
        let (dir, mut app, mut clock, _) = engine(Some(ask));
        *place.lock().unwrap() = dir.path().to_path_buf();
        assert!(app.on_demand());
        assert_eq!(taken(dir.path(), &mut app, &mut clock), Ok(vec![("state.cpt".to_string(), 5)]));
    }

    #[test]
    fn a_program_that_has_missed_the_request_is_asked_again() {
        let (place, asked) = (Arc::new(Mutex::new(PathBuf::new())), Arc::new(AtomicU64::new(0)));
        let told = place.clone();
        let ask: Ask = Arc::new(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(()),
            _ => fs::write(told.lock().unwrap().join("state.cpt"), "newer").map_err(|e| e.to_string()),
        });
        let (dir, mut app, mut clock, _) = engine(Some(ask));
        *place.lock().unwrap() = dir.path().to_path_buf();
        app.again = Duration::from_secs(1);
        assert_eq!(taken(dir.path(), &mut app, &mut clock), Ok(vec![("state.cpt".to_string(), 5)]));
    }

    #[test]
    fn a_program_that_cannot_be_asked_is_told_at_once() {
        let (dir, mut app, mut clock, _) = engine(Some(Arc::new(|_| Err("nobody listens".into()))));
        assert_eq!(taken(dir.path(), &mut app, &mut clock), Err("nobody listens".to_string()));
    }

    #[test]
    fn a_program_may_name_its_files_on_the_descriptor() {
        let (dir, mut app, mut clock, announced) = engine(None);
        fs::write(dir.path().join("named.dat"), "1234567").unwrap();
        let folder = dir.path().to_path_buf();
        let ask: Ask = Arc::new(move |_| {
            announced.line(&folder, "named.dat");
            Ok(())
        });
        app.signal = Some((10, ask));
        assert_eq!(taken(dir.path(), &mut app, &mut clock), Ok(vec![("named.dat".to_string(), 7)]));
    }

    #[test]
    fn what_a_program_writes_by_itself_is_noticed_and_taken() {
        let (dir, mut app, mut clock, _) = engine(None);
        assert!(!app.on_demand());
        let environment = app.prepare(None, 90.0).unwrap();
        assert!(environment.contains(&("FT_ENERGY_INTERVAL_S".to_string(), "90".to_string())));
        assert!(environment.contains(&("FT_ENERGY_INTERVAL_MIN".to_string(), "1.5000".to_string())));
        fs::write(dir.path().join("state.cpt"), "by itself").unwrap();
        assert_eq!(next(&mut clock), Happening::Appeared);
        assert_eq!(taken(dir.path(), &mut app, &mut clock), Ok(vec![("state.cpt".to_string(), 9)]));
    }

    #[test]
    fn a_file_that_is_replaced_all_the_time_is_taken_whole() {
        let (dir, mut app, mut clock, _) = engine(None);
        app.prepare(None, 90.0).unwrap();
        let (folder, is_over) = (dir.path().to_path_buf(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let until = is_over.clone();
        let program = thread::spawn(move || {
            for step in 0.. {
                fs::write(folder.join("state.new"), format!("{step:06}").repeat(1000)).unwrap();
                fs::rename(folder.join("state.new"), folder.join("state.cpt")).unwrap();
                if until.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_millis(250));
            }
        });
        assert_eq!(next(&mut clock), Happening::Appeared);
        let taken = taken(dir.path(), &mut app, &mut clock);
        is_over.store(true, Ordering::Relaxed);
        program.join().unwrap();
        assert_eq!(taken, Ok(vec![("state.cpt".to_string(), 6000)]));
        let copy = fs::read_to_string(dir.path().join("checkpoints/1/0000-state.cpt")).unwrap();
        assert_eq!(copy, copy[..6].repeat(1000));
    }

    #[test]
    fn of_a_folder_only_what_is_new_is_written_but_announced_files_are() {
        let (dir, mut app, mut clock, announced) = engine(None);
        fs::write(dir.path().join("weights.cpt"), "that stay").unwrap();
        let mut written = |step: u32| {
            fs::write(dir.path().join("state.cpt"), format!("step {step:02}")).unwrap();
            if step > 4 {
                announced.line(dir.path(), "state.cpt weights.cpt");
            }
            let (number, into) = app.checkpoints.room().unwrap();
            app.begin(into);
            let files = loop {
                if let Happening::Checkpointed(saved) = next(&mut clock) {
                    break saved.unwrap().files;
                }
            };
            let manifest = Manifest { version: protocol::VERSION, number, files, ..Manifest::default() };
            app.checkpoints.commit(&manifest).unwrap();
            app.checkpoints.settle(number).unwrap();
            manifest.written_bytes()
        };
        assert_eq!([1, 2, 3, 4, 5].map(&mut written), [16, 16, 7, 7, 16]);
    }

    #[test]
    fn files_of_no_line_are_set_aside_for_a_program_that_must_go_back_exactly() {
        for resumes in [true, false] {
            let (dir, app, _clock, _) = engine(None);
            let (state, mut app) = (dir.path().join("state.cpt"), app.exact(resumes));
            app.prepare(None, 90.0).unwrap();
            assert_eq!(state.exists(), !resumes, "what the user has put there is left to a run that begins");
            fs::write(&state, "newer").unwrap();
            app.prepare(None, 90.0).unwrap();
            assert!(!state.exists());
            assert!(aside(dir.path()).contains(&"newer".to_string()));
        }
    }

    /// What is kept of the program's files in a folder.
    fn aside(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder.join(ASIDE)).into_iter().flatten().flatten();
        let mut all: Vec<String> = all.map(|file| fs::read_to_string(file.path()).unwrap()).collect();
        all.sort();
        all
    }

    #[test]
    fn what_was_there_before_is_no_checkpoint_though_nobody_could_look_at_it() {
        let (dir, mut app, mut clock, _) = engine(None);
        // Nobody can look at a link that leads to itself.
        let link = dir.path().join("other.cpt");
        std::os::unix::fs::symlink("other.cpt", &link).unwrap();
        app.prepare(None, 90.0).unwrap();
        fs::remove_file(link).unwrap();
        assert_eq!(clock.wait(now_s() + 3.5), None, "it was there before");
        fs::write(dir.path().join("state.cpt"), "newer").unwrap();
        assert_eq!(next(&mut clock), Happening::Appeared);
    }

    #[test]
    fn a_storage_that_fails_before_the_program_starts_makes_no_checkpoint_unusable() {
        let (_dir, app, _clock, _) = engine(None);
        let mut app = app.exact(true);
        // No file system takes so long a name.
        app.files.patterns = vec!["x".repeat(300)];
        let line = Manifest { number: 1, ..Manifest::default() };
        for from in [Some(&line), None] {
            let failed = app.prepare(from, 90.0);
            assert!(matches!(failed, Err(Unprepared::Storage(_))), "{failed:?}");
        }
        // Nobody knows what was there before.
        let mut app = app.exact(false);
        app.files.patterns = vec!["*.cpt".into()];
        assert!(matches!(app.prepare(None, 90.0), Err(Unprepared::Storage(_))));
    }

    #[test]
    fn what_was_written_after_the_checkpoint_is_kept_beside_what_comes_back() {
        let (dir, mut app, mut clock, _) = engine(None);
        let state = dir.path().join("state.cpt");
        fs::write(&state, "of the line").unwrap();
        let (number, into) = app.checkpoints.room().unwrap();
        app.begin(into);
        let files = loop {
            if let Happening::Checkpointed(saved) = next(&mut clock) {
                break saved.unwrap().files;
            }
        };
        let line = Manifest { version: protocol::VERSION, number, files, ..Manifest::default() };
        app.checkpoints.commit(&line).unwrap();
        app.prepare(Some(&line), 90.0).unwrap();
        assert_eq!(aside(dir.path()), [""; 0], "it is the same");
        for newer in ["newer", "newer still"] {
            fs::write(&state, newer).unwrap();
            app.prepare(Some(&line), 90.0).unwrap();
            assert_eq!(fs::read_to_string(&state).unwrap(), "of the line");
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(aside(dir.path()), ["newer", "newer still"], "what a second failure puts aside replaces nothing");
    }

    #[test]
    fn nothing_is_heard_of_a_checkpoint_that_was_given_up() {
        let (_dir, mut app, mut clock, _) = engine(Some(Arc::new(|_| Ok(()))));
        let (_, folder) = app.checkpoints.room().unwrap();
        app.begin(folder);
        app.give_up();
        assert_eq!(clock.wait(now_s() + 0.5), None);
    }
}

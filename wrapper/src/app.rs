//! Engine `app`: the program's own checkpoints, asked for by a signal or written by itself at the given interval.

use crate::checkpoints::{Checkpoints, bring_back, take};
use crate::mail::{Post, Tries, Try};
use crate::ports::{Engine, Happening, Saved};
use protocol::Manifest;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at the files of a checkpoint that was asked for.
const LOOK: Duration = Duration::from_millis(20);

/// How long they have to be unchanged to be taken as finished.
const REST: Duration = Duration::from_millis(100);

/// Time between two looks at files that the program may write at any time.
const WATCH: Duration = Duration::from_millis(1000);

/// Where files of a program go that it is not to find, beside them.
const ASIDE: &str = ".joulepoint-aside";

/// Sends a request for a checkpoint to the program; an error is a sentence.
pub type Ask = Arc<dyn Fn(i32) -> Result<(), String> + Send + Sync>;

/// The engine.
pub struct App {
    post: Post,
    checkpoints: Checkpoints,
    files: Files,
    signal: Option<(i32, Ask)>,
    announced: Announced,
    tries: Tries,
    watches: Tries,
    taken: Arc<Mutex<States>>,
    /// What was there before the run, if nothing newer than a line may be.
    found: Option<States>,
}

/// Which files make up a checkpoint.
#[derive(Clone, Debug)]
pub struct Files {
    /// Folder of relative patterns.
    pub folder: PathBuf,
    /// Patterns with `*` and `?`.
    pub patterns: Vec<String>,
}

/// Files that the program announced on the inherited descriptor, and how often it did.
#[derive(Clone, Debug, Default)]
pub struct Announced(Arc<Mutex<(u64, Vec<PathBuf>)>>);

/// What a file looked like.
type State = (u64, u64, i64, i64);
type States = BTreeMap<PathBuf, State>;

impl Files {
    /// The files that are there now, and what they look like.
    fn now(&self) -> States {
        let mut states = States::new();
        for pattern in &self.patterns {
            let full = self.folder.join(pattern);
            let Ok(paths) = glob::glob(&full.to_string_lossy()) else { continue };
            for path in paths.flatten() {
                if let Some(state) = state(&path) {
                    states.insert(path, state);
                }
            }
        }
        states
    }
}

fn state(path: &Path) -> Option<State> {
    let m = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some((m.ino(), m.len(), m.mtime(), m.mtime_nsec()))
}

impl Announced {
    /// Takes up one line of the inherited descriptor: the paths of a finished checkpoint, separated by blanks.
    pub fn line(&self, folder: &Path, line: &str) {
        let files = line.split_whitespace().map(|p| folder.join(p)).collect();
        if let Ok(mut state) = self.0.lock() {
            *state = (state.0 + 1, files);
        }
    }

    fn get(&self) -> (u64, Vec<PathBuf>) {
        self.0.lock().map(|s| s.clone()).unwrap_or_default()
    }
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
            tries: Tries::default(),
            watches: Tries::default(),
            taken: Arc::default(),
            found: None,
        }
    }

    /// The program is to find no files but those of its line: with newer ones it would not go back far enough. What a
    /// run that begins has found, and nobody has changed since, is its user's.
    pub fn exact(mut self, resumes: bool) -> App {
        self.found = Some(if resumes { States::new() } else { self.files.now() });
        self
    }

    /// Takes the program's files out of its sight, but those of a line and those that were there before the run.
    fn set_aside(&self, line: Option<&Manifest>, found: &States) -> Result<(), String> {
        let of_line = |path: &Path| line.is_some_and(|m| m.files.iter().any(|f| Path::new(&f.original) == path));
        let stays = |path: &PathBuf, state: &State| of_line(path) || found.get(path) == Some(state);
        for (path, _) in self.files.now().into_iter().filter(|(path, state)| !stays(path, state)) {
            let (Some(folder), Some(name)) = (path.parent().map(|p| p.join(ASIDE)), path.file_name()) else { continue };
            let moved = fs::create_dir_all(&folder).and_then(|()| fs::rename(&path, folder.join(name)));
            moved.map_err(|e| format!("{}: {e}", path.display()))?;
        }
        Ok(())
    }

    /// Watches the files of a program that checkpoints by itself.
    fn watch(&self) {
        let (files, post, taken) = (self.files.clone(), self.post.clone(), self.taken.clone());
        let watch = self.watches.begin();
        if let Ok(mut known) = taken.lock() {
            *known = files.now();
        }
        thread::spawn(move || {
            let mut before = States::new();
            while watch.is_current() {
                let now = files.now();
                // Complete means: different from what was taken last, and unchanged since the last look.
                let news = !now.is_empty() && now == before && taken.lock().is_ok_and(|t| *t != now);
                if news {
                    if let Ok(mut known) = taken.lock() {
                        *known = now.clone();
                    }
                    post.tell_of(&watch, Happening::Appeared);
                }
                before = now;
                thread::sleep(WATCH);
            }
        });
    }
}

impl Engine for App {
    fn name(&self) -> &str {
        "app"
    }

    fn on_demand(&self) -> bool {
        self.signal.is_some()
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, String> {
        let mut environment = interval_variables(interval_s);
        if let Some(found) = &self.found {
            self.set_aside(from, found)?;
        }
        if let Some(manifest) = from {
            let folder = self.checkpoints.path(manifest.number);
            bring_back(manifest, &folder)?;
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
        let signal = self.signal.clone();
        thread::spawn(move || {
            let begun = Instant::now();
            let result = match signal {
                Some((number, ask)) => {
                    let before = (files.now(), announced.get().0);
                    ask(number).and_then(|()| written(&one, &files, &announced, &before))
                }
                None => Ok((files.now().into_keys().collect(), begun)),
            };
            // The program goes on while its files are copied.
            let saved = result.and_then(|(originals, written)| {
                let still_s = Some(written.duration_since(begun).as_secs_f64());
                Ok(Saved { files: take(&originals, &into)?, still_s })
            });
            post.tell_of(&one, Happening::Checkpointed(saved));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.tries.void();
        self.watches.void();
    }
}

/// Waits until the program has written its checkpoint: announced, or all patterns have a new file at rest. The files, and
/// when it had.
fn written(
    one: &Try,
    files: &Files,
    announced: &Announced,
    before: &(States, u64),
) -> Result<(Vec<PathBuf>, Instant), String> {
    let (mut last, mut since) = (States::new(), Instant::now());
    loop {
        if !one.is_current() {
            return Err("given up".to_string());
        }
        let (count, named) = announced.get();
        if count > before.1 && !named.is_empty() {
            return Ok((named, Instant::now()));
        }
        let now = files.now();
        let fresh = |p: &PathBuf, s: &State| before.0.get(p) != Some(s);
        if now != last {
            (last, since) = (now, Instant::now());
        } else if !now.is_empty()
            && since.elapsed() >= REST
            && now.iter().any(|(p, s)| fresh(p, s))
            && every_pattern_is_fresh(files, &before.0)
        {
            return Ok((now.into_keys().collect(), since));
        }
        thread::sleep(LOOK);
    }
}

fn every_pattern_is_fresh(files: &Files, before: &States) -> bool {
    files.patterns.iter().all(|pattern| {
        let one = Files { folder: files.folder.clone(), patterns: vec![pattern.clone()] };
        one.now().iter().any(|(p, s)| before.get(p) != Some(s))
    })
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
    use crate::mail::{MailClock, now_s, queue};
    use crate::ports::Clock;

    /// A folder with one old checkpoint file, an engine over it, and where its news arrive.
    fn engine(signal: Option<Ask>) -> (tempfile::TempDir, App, MailClock, Announced) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("state.cpt"), "old").unwrap();
        let (post, clock) = queue();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 2).unwrap();
        let files = Files { folder: dir.path().to_path_buf(), patterns: vec!["*.cpt".into()] };
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
        let Happening::Checkpointed(result) = next(clock) else { panic!("something else happened") };
        let name = |original: &str| Path::new(original).strip_prefix(dir).unwrap().to_string_lossy().into_owned();
        result.map(|saved| saved.files.into_iter().map(|f| (name(&f.original), f.bytes)).collect())
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
    fn files_of_no_line_are_set_aside_for_a_program_that_must_go_back_exactly() {
        for resumes in [true, false] {
            let (dir, app, _clock, _) = engine(None);
            let (state, mut app) = (dir.path().join("state.cpt"), app.exact(resumes));
            app.prepare(None, 90.0).unwrap();
            assert_eq!(state.exists(), !resumes, "what the user has put there is left to a run that begins");
            fs::write(&state, "newer").unwrap();
            app.prepare(None, 90.0).unwrap();
            assert!(!state.exists());
            assert_eq!(fs::read_to_string(dir.path().join(ASIDE).join("state.cpt")).unwrap(), "newer");
        }
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

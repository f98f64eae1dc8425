//! Engine `dmtcp`: the script and all that it starts on its node run under DMTCP, and come back as they were.
//!
//! One coordinator for each start of the script; `dmtcp_launch` before the script, `dmtcp_restart` in its place. Files that are
//! open go back to their size by DMTCP, not to their content: what was written over or opened anew since is named.
//! Tasks of `srun` are children of slurmd, not of the script: DMTCP would bring the script back without them, so a
//! checkpoint is refused while `srun` runs.

use crate::repeated::From;
use driver::Repeated;
use driver::ports::{Engine, Happening, NotSaved, Saved, Unprepared};
use host::mail::{Post, Tries};
use host::{processes, tool};
use openfiles::held::{self, Writing};
use protocol::{Manifest, ManifestFile};
use run::storage::gone;
use run::{Checkpoints, Patience, Worker, storage, survey};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use steps::script::{Instead, Tree};

/// DMTCP's commands.
pub const COMMANDS: [&str; 4] = ["dmtcp_coordinator", "dmtcp_launch", "dmtcp_command", "dmtcp_restart"];

/// File of a checkpoint with the paths of the files that its program was adding to, as JSON.
const ADDED_TO: &str = "added-to.json";

/// A dump whose first image is not begun after this time has stopped the program for ever: a process that forks at that very moment
/// waits for the coordinator, and the coordinator for it (seen with DMTCP 5.0).
const STUCK: Duration = Duration::from_secs(30);

/// So long the processes of a program are to be the same ones before it is dumped, and so long that is waited for: a launcher that
/// starts others gets stuck each time.
const CALM: Duration = Duration::from_millis(1500);
const LONGEST_CALM: Duration = Duration::from_secs(5);

/// After so many dumps of one wrapper that got stuck no more is tried.
const MOST_STUCK: u32 = 3;

/// Longest time of a command that makes no checkpoint.
const LIMIT: Duration = Duration::from_secs(30);

/// How long the driver waits for a coordinator whose storage does not get on.
const STALLED: Duration = Duration::from_secs(120);

/// The engine.
pub struct Dmtcp {
    post: Post,
    checkpoints: Checkpoints,
    folder: PathBuf,
    /// The job's.
    job_folder: PathBuf,
    argv: Vec<String>,
    tree: Tree,
    instead: Instead,
    limit: Duration,
    port: Option<String>,
    tries: Tries,
    stuck: Arc<Stuck>,
}

/// Dumps that have stopped the program for ever.
#[derive(Default)]
struct Stuck {
    count: AtomicU32,
    /// Whether the program was killed for one, and that has not been told.
    has_killed: AtomicBool,
}

impl Dmtcp {
    /// An engine for the script `argv` in the job's folder, with its own files in `run`; `limit` bounds a checkpoint.
    pub fn new(
        post: Post,
        checkpoints: Checkpoints,
        (run, job_folder): (&Path, PathBuf),
        argv: Vec<String>,
        tree: Tree,
        limit: Duration,
    ) -> Dmtcp {
        let (instead, tries, folder) = (Instead::default(), Tries::default(), run.join("dmtcp"));
        Dmtcp {
            post,
            checkpoints,
            folder,
            job_folder,
            argv,
            tree,
            instead,
            limit,
            port: None,
            tries,
            stuck: Arc::default(),
        }
    }

    /// What is started in the script's place.
    pub fn instead(&self) -> Instead {
        self.instead.clone()
    }

    /// Starts a coordinator and tells its port; a storage that hangs is not waited for any longer.
    fn coordinate(&self) -> Result<String, Unprepared> {
        let folder = self.folder.clone();
        Worker::start().call("starting DMTCP's coordinator", STALLED, move || coordinator(&folder))?
    }

    /// The words that start the script under DMTCP, or bring it back.
    fn words(&self, port: &str, from: Option<&Manifest>) -> Vec<String> {
        let program = if from.is_some() { "dmtcp_restart" } else { "dmtcp_launch" };
        let folder = self.folder.to_string_lossy();
        let common = [program, "--join-coordinator", "--coord-host", "localhost", "--coord-port", port];
        let mut words: Vec<String> = common.into_iter().chain(["--ckptdir", &folder]).map(str::to_string).collect();
        match from {
            Some(manifest) => {
                let line = self.checkpoints.path(manifest.number);
                let images = manifest.files.iter().filter(|f| f.copy.ends_with(".dmtcp"));
                words.extend(images.map(|f| line.join(&f.copy).to_string_lossy().into_owned()));
            }
            None => {
                words.push("--no-gzip".to_string());
                words.extend(self.argv.iter().cloned());
            }
        }
        words
    }
}

/// Starts a coordinator with its files in a folder and waits for its port.
fn coordinator(folder: &Path) -> Result<String, Unprepared> {
    let told = folder.join("port");
    let made = || gone(fs::remove_dir_all(folder)).and_then(|()| fs::create_dir_all(folder));
    Patience::LONG.with(made).map_err(run::Error::at(folder))?;
    let mut coordinator = Command::new("dmtcp_coordinator");
    coordinator.args(["--daemon", "--exit-on-last", "-q", "-p", "0", "--port-file"]).arg(&told);
    coordinator.arg("--ckptdir").arg(folder).stdin(Stdio::null()).stdout(Stdio::null());
    let cure = "see whether DMTCP can be started on this node, and submit the job again";
    tool::run(&mut coordinator, "dmtcp_coordinator", LIMIT, || true)
        .map_err(|e| Unprepared::Unusable(format!("{e}: {cure}")))?;
    let limit = Instant::now() + LIMIT;
    loop {
        let port = storage::read_if_there(&told, Patience::LONG)?.unwrap_or_default();
        if let Ok(number) = String::from_utf8_lossy(&port).trim().parse::<u16>() {
            return Ok(number.to_string());
        }
        if Instant::now() > limit {
            return Err(Unprepared::Storage(format!("dmtcp_coordinator has not written {}", told.display())));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

impl Engine for Dmtcp {
    fn name(&self) -> &str {
        "dmtcp"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, _interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        self.port = match self.coordinate() {
            Err(e) if from.is_none() => {
                protocol::say!("joulepoint: {e}; the job runs without checkpoints");
                None
            }
            coordinated => Some(coordinated?),
        };
        if let Ok(mut instead) = self.instead.lock() {
            *instead = self.port.as_ref().map(|port| self.words(port, from));
        }
        Ok(vec![("FT_ENERGY_RESTART".to_string(), u8::from(from.is_some()).to_string())])
    }

    fn has_killed(&mut self) -> Option<String> {
        let has_killed = self.stuck.has_killed.swap(false, Ordering::SeqCst);
        has_killed.then(|| "DMTCP had stopped the program for a checkpoint and could not go on".to_string())
    }

    fn begins_anew(&self) -> bool {
        false
    }

    fn repeated(&self, from: &Manifest) -> Repeated {
        let Some(run) = self.folder.parent().map(Path::to_path_buf) else { return Repeated::default() };
        let kept = fs::read(self.checkpoints.path(from.number).join(ADDED_TO)).unwrap_or_default();
        let outputs = serde_json::from_slice(&kept).unwrap_or_default();
        From { since_s: from.begun_s, frozen: Vec::new(), run, outputs }.look(&self.job_folder).within_limit()
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (post, folder, tree) = (self.post.clone(), self.folder.clone(), self.tree.clone());
        let (port, limit, stuck) = (self.port.clone(), self.limit, self.stuck.clone());
        threads::start(move || {
            let made = || -> Result<Saved, String> {
                if stuck.count.load(Ordering::SeqCst) >= MOST_STUCK {
                    return Err(format!("DMTCP could not stop the program {MOST_STUCK} times, and is not asked again"));
                }
                let port = port.as_ref().ok_or("the program does not run under DMTCP")?;
                let mut command = Command::new("dmtcp_command");
                command.args(["--coord-host", "localhost", "--coord-port", port, "--bcheckpoint"]);
                command.stdin(Stdio::null()).stdout(Stdio::null());
                // What a checkpoint that was given up has left.
                images(&folder)?.iter().try_for_each(fs::remove_file).map_err(|e| e.to_string())?;
                wait_for_calm(&tree);
                refuse_steps(&tree)?;
                write_added_to(&tree, &into)?;
                let begun = Instant::now();
                let has_begun = || begun.elapsed() < STUCK || begins(&folder);
                let made =
                    tool::run(&mut command, "dmtcp_command --bcheckpoint", limit, || one.is_current() && has_begun());
                if made.is_err() && one.is_current() && !has_begun() {
                    stuck.count.fetch_add(1, Ordering::SeqCst);
                    stuck.has_killed.store(true, Ordering::SeqCst);
                    tree.processes().iter().for_each(|process| processes::signal_seen(process, libc::SIGKILL));
                    return Err(format!("DMTCP has not stopped all processes in {} s", STUCK.as_secs()));
                }
                made?;
                let still_s = Some(begun.elapsed().as_secs_f64());
                post.tell_of(&one, Happening::GoesOn);
                Ok(Saved { files: take_images(&folder, &into)?, still_s, kept: None })
            };
            post.tell_of(&one, Happening::Checkpointed(made().map_err(NotSaved::from)));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

fn refuse_steps(tree: &Tree) -> Result<(), String> {
    if tree.processes().iter().any(|p| p.name == "srun") {
        return Err("tasks of srun do not run under DMTCP; start the program in the script itself".to_string());
    }
    Ok(())
}

/// Waits until a program starts no processes, but not long: some always do.
fn wait_for_calm(tree: &Tree) {
    let (begun, mut since) = (Instant::now(), Instant::now());
    let pids = || tree.processes().iter().map(|process| process.pid).collect::<BTreeSet<_>>();
    let mut before = pids();
    while since.elapsed() < CALM && begun.elapsed() < LONGEST_CALM {
        thread::sleep(Duration::from_millis(100));
        let now = pids();
        if now != before {
            (before, since) = (now, Instant::now());
        }
    }
}

/// Notes which files the program adds to: these go back to their size.
fn write_added_to(tree: &Tree, into: &Path) -> Result<(), String> {
    let pids: Vec<i32> = tree.processes().iter().map(|process| process.pid).collect();
    let in_hand = held::of(&pids).map_err(|e| format!("open files: {e}"))?;
    let added_to: BTreeSet<PathBuf> =
        in_hand.into_iter().filter(|file| file.writing == Writing::Adds).map(|file| file.path).collect();
    let text = serde_json::to_vec(&added_to).map_err(|e| e.to_string())?;
    fs::write(into.join(ADDED_TO), text).map_err(|e| format!("{ADDED_TO}: {e}"))
}

/// The images that lie in a folder.
fn images(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let names = storage::names(folder, Patience::SHORT).map_err(|e| e.to_string())?;
    let paths = names.iter().map(|name| folder.join(name));
    Ok(paths.filter(|p| p.extension().is_some_and(|e| e == "dmtcp")).collect())
}

/// Whether an image is there or being written.
fn begins(folder: &Path) -> bool {
    let names = storage::names(folder, Patience::SHORT);
    // What cannot be read may hold some.
    names.map_or(true, |names| names.iter().any(|name| name.to_string_lossy().contains(".dmtcp")))
}

/// Moves the images that DMTCP has finished into a checkpoint.
fn take_images(folder: &Path, into: &Path) -> Result<Vec<ManifestFile>, String> {
    for image in images(folder)? {
        let to = into.join(image.file_name().unwrap_or_default());
        fs::rename(&image, to).map_err(|e| format!("{}: {e}", image.display()))?;
    }
    let files = survey(into).map_err(|e| e.to_string())?;
    let is_image = |file: &ManifestFile| file.copy.ends_with(".dmtcp");
    if files.iter().any(is_image) { Ok(files) } else { Err("dmtcp_command left no image".to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_that_fails_is_no_fault_of_dmtcp() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "no folder").unwrap();
        let failed = coordinator(&dir.path().join("file/dmtcp"));
        assert!(matches!(&failed, Err(Unprepared::Storage(why)) if why.contains("file/dmtcp")), "{failed:?}");
    }
}

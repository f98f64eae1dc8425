//! Engine `dmtcp`: the script and all that it starts on its node run under DMTCP, and come back as they were.
//!
//! One coordinator for each start of the script; `dmtcp_launch` before the script, `dmtcp_restart` in its place.
//! Tasks of `srun` are children of slurmd, not of the script: DMTCP would bring the script back without them, so a
//! checkpoint is refused while `srun` runs.

use driver::ports::{Engine, Happening, Saved, Unprepared};
use host::mail::{Post, Tries};
use host::tool;
use protocol::{Manifest, ManifestFile};
use run::{Checkpoints, Patience, storage, survey};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use steps::script::{Instead, Tree};

/// DMTCP's commands.
pub const COMMANDS: [&str; 4] = ["dmtcp_coordinator", "dmtcp_launch", "dmtcp_command", "dmtcp_restart"];

/// Longest time of a command that makes no checkpoint.
const LIMIT: Duration = Duration::from_secs(30);

/// The engine.
pub struct Dmtcp {
    post: Post,
    checkpoints: Checkpoints,
    folder: PathBuf,
    argv: Vec<String>,
    tree: Tree,
    instead: Instead,
    limit: Duration,
    port: Option<String>,
    tries: Tries,
}

impl Dmtcp {
    /// An engine for the script `argv`, with its working files in `folder`; `limit` bounds a checkpoint.
    pub fn new(
        post: Post,
        checkpoints: Checkpoints,
        folder: PathBuf,
        argv: Vec<String>,
        tree: Tree,
        limit: Duration,
    ) -> Dmtcp {
        let (instead, tries) = (Instead::default(), Tries::default());
        Dmtcp { post, checkpoints, folder, argv, tree, instead, limit, port: None, tries }
    }

    /// What is started in the script's place.
    pub fn instead(&self) -> Instead {
        self.instead.clone()
    }

    /// Starts a coordinator and waits for its port.
    fn coordinate(&self) -> Result<String, String> {
        let told = self.folder.join("port");
        match fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(format!("{}: {e}", self.folder.display())),
            _ => fs::create_dir_all(&self.folder).map_err(|e| format!("{}: {e}", self.folder.display()))?,
        }
        let mut coordinator = Command::new("dmtcp_coordinator");
        coordinator.args(["--daemon", "--exit-on-last", "-q", "-p", "0", "--port-file"]).arg(&told);
        coordinator.arg("--ckptdir").arg(&self.folder).stdin(Stdio::null()).stdout(Stdio::null());
        tool::run(&mut coordinator, "dmtcp_coordinator", LIMIT, || true)?;
        let limit = Instant::now() + LIMIT;
        loop {
            let port = fs::read_to_string(&told).unwrap_or_default();
            if let Ok(number) = port.trim().parse::<u16>() {
                return Ok(number.to_string());
            }
            if Instant::now() > limit {
                return Err("dmtcp_coordinator did not tell its port".to_string());
            }
            thread::sleep(Duration::from_millis(20));
        }
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

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (post, folder, tree) = (self.post.clone(), self.folder.clone(), self.tree.clone());
        let (port, limit) = (self.port.clone(), self.limit);
        thread::spawn(move || {
            let made = refuse_steps(&tree).and_then(|()| {
                let port = port.ok_or("the program does not run under DMTCP")?;
                let mut command = Command::new("dmtcp_command");
                command.args(["--coord-host", "localhost", "--coord-port", &port, "--bcheckpoint"]);
                command.stdin(Stdio::null()).stdout(Stdio::null());
                // What a checkpoint that was given up has left.
                images(&folder)?.iter().try_for_each(fs::remove_file).map_err(|e| e.to_string())?;
                let begun = Instant::now();
                tool::run(&mut command, "dmtcp_command --bcheckpoint", limit, || one.is_current())?;
                let still_s = Some(begun.elapsed().as_secs_f64());
                post.tell_of(&one, Happening::GoesOn);
                Ok(Saved { files: take_images(&folder, &into)?, still_s, kept: None })
            });
            post.tell_of(&one, Happening::Checkpointed(made));
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

/// The images that lie in a folder.
fn images(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let names = storage::names(folder, Patience::SHORT).map_err(|e| e.to_string())?;
    let paths = names.iter().map(|name| folder.join(name));
    Ok(paths.filter(|p| p.extension().is_some_and(|e| e == "dmtcp")).collect())
}

/// Moves the images that DMTCP has finished into a checkpoint.
fn take_images(folder: &Path, into: &Path) -> Result<Vec<ManifestFile>, String> {
    for image in images(folder)? {
        let to = into.join(image.file_name().unwrap_or_default());
        fs::rename(&image, to).map_err(|e| format!("{}: {e}", image.display()))?;
    }
    let files = survey(into).map_err(|e| e.to_string())?;
    if files.is_empty() { Err("dmtcp_command left no image".to_string()) } else { Ok(files) }
}

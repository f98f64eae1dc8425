//! Engine `criu`: the whole script of a job on one node in a sandbox, dumped and restored without its help.

use crate::app::interval_variables;
use crate::looks::Looks;
use crate::repeated::From;
use ::criu::client::{self, Ask, NotDumped};
use ::criu::frozen::place;
use ::criu::{NOT_NOW, probe, tool};
use config::{Compress, Site};
use driver::Repeated;
use driver::ports::{Engine, Happening, NotSaved, Saved, Unprepared};
use host::mail::{Post, Tries};
use increments::Increments;
use job::identity::Identity;
use job::run_folder::is_own;
use openfiles::held::OVERWRITTEN_BYTES;
use openfiles::patiently::patiently;
use options::Network;
use protocol::Manifest;
use run::storage::refresh;
use run::{Checkpoints, survey_new, write_durably};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Tells a warden from which checkpoint to go on.
pub const RESTORE: &str = "JOULEPOINT_RESTORE";

/// The end of a program is known so long after that of its sandbox.
const ENDS: Duration = Duration::from_secs(3);

/// Our own program, whichever name it was started by.
const OURSELVES: &str = "/proc/self/exe";

/// The engine.
pub struct Criu {
    post: Post,
    checkpoints: Checkpoints,
    run: PathBuf,
    /// The job's folder.
    folder: PathBuf,
    limit_s: f64,
    site: config::Criu,
    tries: Tries,
    /// Starts of the program from a checkpoint.
    starts: Tries,
    restores: Restores,
    /// Whether the program is back from the checkpoint from which it was started last, if from one.
    back: Option<Arc<AtomicBool>>,
    looks: Looks,
}

/// The CRIU of this node: found, tried, and good.
///
/// # Errors
/// A sentence: why this job cannot be checkpointed by it, and what can be used in its place.
pub fn find(site: &Site, me: &Identity, runs: &Path) -> Result<PathBuf, String> {
    let instead = "use --ft-energy-engine=app or hook";
    on_this_node(site, me, runs)
        .map_err(|reason| format!("the engine criu does not work on this node ({reason}): {instead}"))
}

/// The CRIU of this node, for whatever is dumped.
///
/// # Errors
/// Why it does not work.
pub fn on_this_node(site: &Site, me: &Identity, runs: &Path) -> Result<PathBuf, String> {
    tool::find(site.criu.command.as_deref(), std::env::var_os("PATH")).and_then(|criu| {
        let folder = runs.join(&me.cluster);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|e| format!("{}: {e}", folder.display()))?;
        let host = nix::unistd::gethostname().map_err(|e| e.to_string())?;
        let cache = folder.join(format!("criu-{}.works", host.to_string_lossy()));
        probe::usable(&criu, &warden, &cache).map(|()| criu)
    })
}

/// A warden without its arguments.
fn warden() -> Command {
    let mut command = Command::new(OURSELVES);
    command.arg("warden");
    command
}

/// Launchers whose processes talk to each other over the network, also within one node.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];

/// What distributions put behind their names where several kinds of MPI are installed.
const KINDS: [&str; 3] = [".hydra", ".mpich", ".openmpi"];

/// What asks others than the script's own programs, and cannot from a network without a way outside.
const CLIENTS: [&str; 12] =
    ["curl", "rsync", "sacct", "sacctmgr", "sbatch", "scancel", "scp", "sinfo", "squeue", "srun", "ssh", "wget"];

/// By these words after it a command asks others, which does not always.
const ASKING: [(&str, &[&str]); 3] = [
    ("git", &["clone", "fetch", "ls-remote", "pull", "push", "submodule"]),
    ("pip", &["download", "install"]),
    ("pip3", &["download", "install"]),
];

/// The word by which a script with these words asks others, if it does.
fn asks_others(words: &[String]) -> Option<&str> {
    let asks = |at: usize, word: &String| {
        let name = word.rsplit('/').next().unwrap_or(word);
        let after: Vec<&str> = words[at + 1..].iter().take(2).map(String::as_str).collect();
        // This one works with a list that it is given.
        let lists = || matches!(after[..], ["show", what] if what.starts_with("hostname"));
        CLIENTS.contains(&name)
            || name == "scontrol" && !lists()
            || ASKING
                .iter()
                .any(|(client, asking)| name == *client && after.first().is_some_and(|w| asking.contains(w)))
    };
    words.iter().enumerate().find(|(at, word)| asks(*at, word)).map(|(_, word)| word.as_str())
}

/// The word for which a script that would get a network of its own keeps the node's.
pub fn keeps_network<'a>(asked: Network, words: &'a [String], libraries: &BTreeSet<String>) -> Option<&'a str> {
    asks_others(words).filter(|_| asked == Network::Auto && talks(words, libraries))
}

/// Whether a script of these words, whose programs name these libraries, gets a network of its own: as its user says, or
/// if it calls a launcher, or MPI without one, which opens connections to itself, and asks nobody else.
pub fn own_network(asked: Network, words: &[String], libraries: &BTreeSet<String>) -> bool {
    asked == Network::Own || asked == Network::Auto && talks(words, libraries) && asks_others(words).is_none()
}

/// Whether a script of these words, whose programs name these libraries, starts MPI programs: they talk over the network, also
/// within one node.
pub fn talks(words: &[String], libraries: &BTreeSet<String>) -> bool {
    let launches = |word: &String| {
        let name = word.rsplit('/').next().unwrap_or(word);
        LAUNCHERS.contains(&KINDS.iter().find_map(|kind| name.strip_suffix(kind)).unwrap_or(name))
    };
    words.iter().any(launches) || libraries.iter().any(|library| library.starts_with("libmpi"))
}

/// The network that the run's first start has chosen, and else this choice, which is kept: what a script's programs are
/// linked to may change while it runs, and a checkpoint can only be restored in a network of the same kind.
///
/// # Errors
/// What the file system says.
pub fn kept_network(run: &Path, own_network: bool) -> io::Result<bool> {
    let (file, word) = (run.join("network"), if own_network { "own" } else { "host" });
    match fs::read_to_string(&file) {
        Ok(kept) => Ok(kept == "own"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => write_durably(&file, word.as_bytes()).map(|()| own_network),
        Err(e) => Err(e),
    }
}

/// The command that runs a script in a sandbox. Slurm's copy of a batch script is not there any more when the job
/// starts on another node, so that the run keeps its own.
///
/// # Errors
/// What the file system says.
pub fn within(
    criu: &Path,
    run: &Path,
    argv: &[String],
    is_batch: bool,
    limit_s: f64,
    own_network: bool,
) -> io::Result<Vec<String>> {
    let arguments = probe::arguments(criu, run, None, limit_s);
    let mut all = vec![OURSELVES.to_string(), "warden".to_string()];
    all.extend(own_network.then(|| "--own-network".to_string()));
    all.extend(arguments.iter().map(|a| a.to_string_lossy().into_owned()));
    match argv.split_first() {
        Some((script, arguments)) if is_batch => {
            // By its name, which programs show and some look at.
            let own = run.join("slurm_script");
            if !own.exists() {
                write_durably(&own, &fs::read(script)?)?;
            }
            fs::set_permissions(&own, fs::Permissions::from_mode(0o700))?;
            all.push(own.to_string_lossy().into_owned());
            all.extend_from_slice(arguments);
        }
        _ => all.extend_from_slice(argv),
    }
    Ok(all)
}

impl Criu {
    /// An engine for the run in a folder.
    pub fn new(
        post: Post,
        checkpoints: Checkpoints,
        run: PathBuf,
        folder: PathBuf,
        limit_s: f64,
        site: config::Criu,
        looks: Looks,
    ) -> Criu {
        let (tries, starts, restores) = (Tries::default(), Tries::default(), Restores::default());
        Criu { post, checkpoints, run, folder, limit_s, site, tries, starts, restores, back: None, looks }
    }
}

/// Longest wait for what is looked up of a checkpoint's files before or after a restore.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

/// What is found out in time. A storage that hangs is not waited for any longer.
fn in_time<T: Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = mpsc::channel();
    threads::start(move || drop(tell.send(look())));
    told.recv_timeout(LOOK_LIMIT).ok()
}

/// Looks in time whether this node has what a checkpoint needs.
fn within_limit(folder: &Path) -> Result<(), Unprepared> {
    let of = folder.to_path_buf();
    match in_time(move || place::look_for(&of)) {
        Some(looked) => looked.map_err(|lacking| Unprepared::Storage(lacking.to_string())),
        None => Err(Unprepared::Storage("the storage of its files does not answer".to_string())),
    }
}

/// Whether nobody else can have written the images of a run. Its storage is waited for.
///
/// # Errors
/// Somebody can, or the storage does not say.
pub fn is_trusted(run: &Path) -> Result<(), Unprepared> {
    patiently(|| fs::symlink_metadata(run)).map_err(|e| Unprepared::Storage(format!("{}: {e}", run.display())))?;
    is_own(run).map_err(Unprepared::Unusable)
}

/// Restores that fail by no known fault of their checkpoint: the sandboxes leave a mark in its folder that says why.
#[derive(Debug, Default)]
pub struct Restores {
    /// The checkpoint from which the program goes on.
    from: Option<PathBuf>,
    /// Why that was not possible.
    not_now: Option<String>,
}

impl Restores {
    /// The program is to go on from this checkpoint.
    ///
    /// # Errors
    /// It was to, and what its node or its storage lacks must be mended first.
    pub fn begin(&mut self, from: Option<PathBuf>) -> Result<(), Unprepared> {
        if let Some(why) = self.not_now.take().filter(|_| from.is_some()) {
            return Err(Unprepared::Storage(why));
        }
        // A mark that an earlier try has left says nothing of this one.
        from.iter().for_each(|folder| drop(fs::remove_file(folder.join(NOT_NOW))));
        self.from = from;
        Ok(())
    }

    /// Why the program is not back, which has ended, if a mark says so; told once.
    pub fn failed(&mut self) -> Option<String> {
        let folder = self.from.take()?;
        let read = move || {
            refresh(&folder);
            fs::read_to_string(folder.join(NOT_NOW)).ok()
        };
        self.not_now = in_time(read).flatten();
        self.not_now.clone()
    }
}

impl Engine for Criu {
    fn name(&self) -> &str {
        "criu"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared> {
        let mut environment = interval_variables(interval_s);
        let from = from.map(|manifest| self.checkpoints.path(manifest.number));
        self.restores.begin(from.clone())?;
        self.back = from.as_ref().map(|_| Arc::default());
        if let Some(folder) = from {
            is_trusted(&self.run)?;
            within_limit(&folder)?;
            environment.push((RESTORE.to_string(), folder.to_string_lossy().into_owned()));
            let (one, post, run) = (self.starts.begin(), self.post.clone(), self.run.clone());
            let back = self.back.clone();
            threads::start(move || {
                if client::is_back(&run, || one.is_current()) {
                    back.iter().for_each(|back| back.store(true, Ordering::SeqCst));
                    post.tell_of(&one, Happening::Back);
                }
            });
        }
        self.looks.start(&self.post);
        Ok(environment)
    }

    fn tells_return(&self) -> bool {
        true
    }

    fn has_killed(&mut self) -> Option<String> {
        self.restores.failed()
    }

    fn is_unrestored(&self) -> bool {
        self.back.as_ref().is_some_and(|back| !back.load(Ordering::SeqCst))
    }

    fn repeated(&self, from: &Manifest) -> Repeated {
        let (frozen, run) = (vec![self.checkpoints.path(from.number)], self.run.clone());
        From { since_s: from.begun_s, frozen, run, outputs: Vec::new() }.look(&self.folder).within_limit()
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (post, run, checkpoints) = (self.post.clone(), self.run.clone(), self.checkpoints.clone());
        let mut ask = Ask {
            folder: into.clone(),
            limit_s: self.limit_s,
            memory_share: self.site.memory_share,
            compress: self.site.compress == Compress::Zstd,
            increments: self.site.increments.then(Increments::default),
            overwritten_bytes: OVERWRITTEN_BYTES,
            keeps_leftovers: true,
            tells_going_on: true,
        };
        threads::start(move || {
            let goes_on = || post.tell_of(&one, Happening::GoesOn);
            let earlier = checkpoints.earlier();
            if let Some(increments) = &mut ask.increments {
                increments.base = earlier.base().map(Path::to_path_buf);
            }
            let dumped = client::dump(&run, &ask, || one.is_current(), goes_on);
            let dumped = dumped.map_err(|e| match e {
                NotDumped::Ended => NotSaved::Ended(e.to_string()),
                NotDumped::Failed(reason) => reason.into(),
            });
            let saved = dumped.and_then(|frozen_s| {
                tracing::info!(frozen_s, "the program stood still for a dump");
                let files = survey_new(&into, &earlier).map_err(|e| e.to_string())?;
                Ok(Saved { files, still_s: Some(frozen_s), kept: None })
            });
            if matches!(saved, Err(NotSaved::Ended(_))) {
                // That of a program that has done its work is no failure: its end is heard of first.
                thread::sleep(ENDS);
            }
            post.tell_of(&one, Happening::Checkpointed(saved));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

impl Drop for Criu {
    fn drop(&mut self) {
        self.tries.void();
        self.starts.void();
        self.looks.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_script_is_kept_with_its_run_and_never_written_again() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("slurm_script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let run = dir.path().join("run");
        fs::create_dir(&run).unwrap();
        let argv = [script.to_string_lossy().into_owned(), "a b".to_string()];
        let command = || within(Path::new("/criu"), &run, &argv, true, 9.0, true).unwrap();
        assert_eq!(command()[1..3], ["warden", "--own-network"]);
        let own = run.join("slurm_script");
        assert_eq!(command()[command().len() - 3..], ["--", &own.to_string_lossy(), "a b"]);
        fs::write(&script, "changed").unwrap();
        command();
        assert_eq!(fs::read_to_string(&own).unwrap(), "#!/bin/sh\n");
        let plain = within(Path::new("/criu"), &run, &argv, false, 9.0, false).unwrap();
        assert_eq!(plain[plain.len() - 2..], argv);
    }

    #[test]
    fn a_restore_that_its_storage_has_failed_is_told_once_and_has_to_wait() {
        let dir = tempfile::tempdir().unwrap();
        let (line, mark) = (Some(dir.path().to_path_buf()), dir.path().join(NOT_NOW));
        let mut restores = Restores::default();
        fs::write(&mark, "of an earlier life").unwrap();
        restores.begin(line.clone()).unwrap();
        assert_eq!(restores.failed(), None, "it was back, and has crashed");
        restores.begin(line.clone()).unwrap();
        fs::write(&mark, "the disk is full").unwrap();
        assert_eq!(restores.failed().as_deref(), Some("the disk is full"));
        assert_eq!(restores.failed(), None);
        assert_eq!(restores.begin(line.clone()), Err(Unprepared::Storage("the disk is full".to_string())));
        restores.begin(line).unwrap();
        assert!(!mark.exists());
    }

    #[test]
    fn a_run_whose_storage_fails_is_told_from_one_that_is_open_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let open = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        open(0o700);
        is_trusted(dir.path()).unwrap();
        assert!(matches!(is_trusted(&dir.path().join("gone")), Err(Unprepared::Storage(_))));
        open(0o770);
        assert!(matches!(is_trusted(dir.path()), Err(Unprepared::Unusable(_))));
    }

    #[test]
    fn a_script_that_calls_a_launcher_has_a_network_of_its_own_unless_its_user_says_otherwise() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let none = BTreeSet::new();
        assert!(own_network(Network::Auto, &words("cd x /usr/bin/mpirun -n 4 heat"), &none));
        assert!(own_network(Network::Auto, &words("mpirun.mpich -n 4 heat"), &none));
        assert!(own_network(Network::Auto, &words("lmp -in x"), &BTreeSet::from(["libmpi.so.40".to_string()])));
        assert!(!own_network(Network::Auto, &words("python3 mpirun.py"), &none));
        assert!(!own_network(Network::Host, &words("mpirun heat"), &none));
        assert!(own_network(Network::Auto, &words("scontrol show hostnames $L mpirun heat"), &none));
        assert!(own_network(Network::Auto, &words("git describe --tags mpirun heat"), &none));
        for asks in [
            "squeue mpirun heat",
            "scontrol show job 7 mpirun heat",
            "mpirun heat /usr/bin/curl x",
            "git pull mpirun x",
        ] {
            assert!(!own_network(Network::Auto, &words(asks), &none), "{asks}");
            assert!(own_network(Network::Own, &words(asks), &none), "{asks}");
        }
        assert!(own_network(Network::Own, &words("python3 a.py"), &none));
    }
}

//! Removes what a killed slurmstepd, or one that died with its node, leaves behind that keeps another from beginning.
//!
//! For a step with PMIx a slurmstepd makes a socket and two folders whose names are the job's number and the step's, and
//! removes them only at an orderly end (Slurm's src/plugins/mpi/pmix). Steps of a job that begins again have the same numbers:
//! the next slurmstepd finds what it is to make, launches no task, and `srun` says 0 of it.

use crate::leavings::onlooker;
use crate::lock;
use crate::node::Node;
use slurm::Slurm;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

/// How the names in slurmd's folder begin; `JOB.STEP` follows.
const SOCKET: &str = "stepd.slurm.pmix.";
const FOLDER: &str = "pmix.";

/// Likewise in the folder for temporary files; `UID_JOB.STEP` follows.
const OF_PROGRAMS: &str = "spmix_appdir_";

/// Time between two looks at those of all jobs: a node that lost its power comes back with them.
const LOOK: Duration = Duration::from_secs(600);

/// Time between two questions where they are, while Slurm does not say.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// The folders of slurmd on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folders {
    /// `SlurmdSpoolDir`.
    pub spool: PathBuf,
    /// `TmpFS`.
    pub temporary: PathBuf,
}

/// A step with PMIx, as slurmd's folder tells of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    job: u32,
    name: String,
}

impl Step {
    fn of(file: &str) -> Option<Step> {
        let (job, name) = file.strip_prefix(SOCKET).or_else(|| file.strip_prefix(FOLDER))?.split_once('.')?;
        Some(Step { job: job.parse().ok()?, name: name.to_string() })
    }

    fn named(&self, begin: &str) -> String {
        format!("{begin}{}.{}", self.job, self.name)
    }

    /// Whether its slurmstepd listens, or may.
    fn listens(&self, spool: &Path) -> bool {
        let refused = |e: io::Error| matches!(e.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound);
        !UnixStream::connect(spool.join(self.named(SOCKET))).is_err_and(refused)
    }

    /// Removes all of it: the socket at last, since no other slurmstepd gets on before.
    fn remove(&self, spool: &Path, temporary: &Path) -> io::Result<()> {
        let folder = spool.join(self.named(FOLDER));
        if let Ok(metadata) = fs::symlink_metadata(&folder) {
            let of_programs = format!("{OF_PROGRAMS}{}_", metadata.uid());
            absent(fs::remove_dir_all(temporary.join(self.named(&of_programs))))?;
        }
        absent(fs::remove_dir_all(folder))?;
        absent(fs::remove_file(spool.join(self.named(SOCKET))))
    }
}

fn absent(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
}

/// The steps of which a folder has something.
fn steps(spool: &Path) -> io::Result<Vec<Step>> {
    let step = |entry: io::Result<fs::DirEntry>| Step::of(entry.ok()?.file_name().to_str()?);
    let mut steps: Vec<Step> = fs::read_dir(spool)?.filter_map(step).collect();
    steps.sort();
    steps.dedup();
    Ok(steps)
}

impl Node {
    /// The folders of slurmd; none while slurmctld does not say.
    pub(crate) fn slurmd_folders(&self) -> Option<Folders> {
        if let Some(known) = self.slurmd_folders.get() {
            return Some(known.clone());
        }
        let slurm = Slurm::new(self.params.site.slurm_bin.clone());
        let host = nix::unistd::gethostname().ok()?.to_string_lossy().into_owned();
        let folder = |key: &str| {
            let told = slurm.config_value(key).ok()??;
            Some(PathBuf::from(told.replace("%n", &self.params.node).replace("%h", &host)))
        };
        let folders = Folders { spool: folder("SlurmdSpoolDir")?, temporary: folder("TmpFS")? };
        Some(self.slurmd_folders.get_or_init(|| folders).clone())
    }

    /// Removes what steps with PMIx have left whose slurmstepds are gone, of one job or of all.
    pub(crate) fn remove_left_of_pmix(&self, job: Option<u32>) {
        // Whoever waits for this must not wait for slurmctld, too.
        let Some(folders) = self.slurmd_folders.get() else { return };
        if let Err(error) = self.try_remove_left_of_pmix(folders, job) {
            let folder = folders.spool.display();
            tracing::warn!(%folder, %error, "what a slurmstepd that is gone has left cannot be removed");
        }
    }

    fn try_remove_left_of_pmix(&self, folders: &Folders, job: Option<u32>) -> io::Result<()> {
        // Two that look at once might take what is new for what is old.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = lock(&ONE);
        // The first process sees the folders as slurmd does: this service's unit shows them as read-only.
        let root = onlooker(&self.params.proc_root).join("root");
        let open = |folder: &Path| File::open(root.join(folder.strip_prefix("/").unwrap_or(folder)));
        let (spool, temporary) = (open(&folders.spool)?, open(&folders.temporary)?);
        // A socket's path may have 107 bytes.
        let short = |folder: &File| PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let (spool, temporary) = (short(&spool), short(&temporary));
        let mut found = steps(&spool)?;
        found.retain(|step| job.is_none_or(|job| job == step.job));
        if found.is_empty() {
            return Ok(());
        }
        // A slurmstepd is there before anything of it.
        self.look_at_processes();
        for step in found.iter().filter(|step| !self.has_stepd(step) && !step.listens(&spool)) {
            step.remove(&spool, &temporary)?;
            tracing::info!(job = step.job, step = step.name, "what a slurmstepd that is gone has left is removed");
        }
        Ok(())
    }

    fn has_stepd(&self, step: &Step) -> bool {
        let books = lock(&self.books);
        let of_job = books.processes.jobs.iter().find(|j| j.job_id == step.job);
        of_job.is_some_and(|job| job.steps.iter().any(|s| s.name == step.name))
    }

    /// Looks for what steps of all jobs have left, again and again.
    pub(crate) fn remove_left_of_pmix_for_ever(&self) {
        loop {
            let is_known = self.slurmd_folders().is_some();
            self.remove_left_of_pmix(None);
            std::thread::sleep(if is_known { LOOK } else { ASK_AGAIN });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn what_a_step_has_left_is_known_by_its_names_and_removed_once_nobody_listens() {
        let (spool, temporary) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let path = |name: &str| spool.path().join(name);
        let listener = UnixListener::bind(path("stepd.slurm.pmix.7.0")).expect("bound");
        fs::create_dir_all(path("pmix.7.0/pmix_dstor")).expect("made");
        let uid = fs::metadata(path("pmix.7.0")).expect("there").uid();
        let of_programs = temporary.path().join(format!("spmix_appdir_{uid}_7.0"));
        let of_another = temporary.path().join(format!("spmix_appdir_{uid}_7.1"));
        fs::create_dir(&of_programs).and_then(|()| fs::create_dir(&of_another)).expect("made");
        for other in ["stepd.slurm.pmix.7", "stepd.slurm.pmix.x.0", "n1_7.0", "cred_state"] {
            fs::write(path(other), "").expect("written");
        }
        let step = Step { job: 7, name: "0".into() };
        assert_eq!(steps(spool.path()).expect("a list"), std::slice::from_ref(&step));
        assert!(step.listens(spool.path()));
        drop(listener);
        assert!(!step.listens(spool.path()));
        step.remove(spool.path(), temporary.path()).expect("removed");
        step.remove(spool.path(), temporary.path()).expect("nothing is left to remove");
        assert_eq!(steps(spool.path()).expect("a list"), []);
        assert!(!of_programs.exists() && of_another.exists());
        assert_eq!(fs::read_dir(spool.path()).expect("a list").count(), 4, "what is not of such a step stays");
    }
}

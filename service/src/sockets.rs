//! Removes what a killed slurmstepd leaves behind that keeps another from beginning.
//!
//! For a step with PMIx a slurmstepd binds `SlurmdSpoolDir/stepd.slurm.pmix.JOB.STEP`, and removes it only at an orderly end
//! (Slurm's src/plugins/mpi/pmix/pmixp_server.c). Steps of a job that begins again have the same numbers: the next one cannot
//! bind it, its tasks are never launched, and `srun` says 0 of them.

use crate::leavings::onlooker;
use crate::lock;
use crate::node::Node;
use slurm::Slurm;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How their names begin; job and step follow.
const NAME: &str = "stepd.slurm.pmix.";

/// Time between two looks at those of all jobs: a node that lost its power comes back with them.
const LOOK: Duration = Duration::from_secs(600);

/// Time between two questions where they are, while Slurm does not say.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// Such a socket: its path, by whichever way it is short enough, and whose it is.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    path: PathBuf,
    job: u32,
    step: String,
}

/// The sockets of steps in a folder.
fn sockets(folder: &Path) -> io::Result<Vec<Socket>> {
    let socket = |entry: io::Result<std::fs::DirEntry>| {
        let name = entry.ok()?.file_name().into_string().ok()?;
        let (job, step) = name.strip_prefix(NAME)?.split_once('.')?;
        Some(Socket { path: folder.join(&name), job: job.parse().ok()?, step: step.to_string() })
    };
    Ok(std::fs::read_dir(folder)?.filter_map(socket).collect())
}

/// Whether nobody has a socket open.
fn is_dead(socket: &Path) -> bool {
    UnixStream::connect(socket).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
}

impl Node {
    /// The folder in which slurmd keeps what it needs for jobs here; none while slurmctld does not say.
    pub(crate) fn slurmd_spool(&self) -> Option<PathBuf> {
        if let Some(known) = self.slurmd_spool.get() {
            return Some(known.clone());
        }
        let told = Slurm::new(self.params.site.slurm_bin.clone()).config_value("SlurmdSpoolDir").ok()??;
        let host = nix::unistd::gethostname().ok()?.to_string_lossy().into_owned();
        let folder = PathBuf::from(told.replace("%n", &self.params.node).replace("%h", &host));
        Some(self.slurmd_spool.get_or_init(|| folder).clone())
    }

    /// Removes the sockets of steps whose slurmstepds are gone, of one job or of all.
    pub(crate) fn remove_dead_sockets(&self, job: Option<u32>) {
        // Whoever waits for this must not wait for slurmctld, too.
        let Some(spool) = self.slurmd_spool.get() else { return };
        if let Err(error) = self.try_remove_dead_sockets(spool, job) {
            tracing::warn!(folder = %spool.display(), %error, "sockets of steps that are gone cannot be removed");
        }
    }

    fn try_remove_dead_sockets(&self, spool: &Path, job: Option<u32>) -> io::Result<()> {
        // The first process sees the folder as slurmd does: this service's unit shows it as read-only.
        let root = onlooker(&self.params.proc_root).join("root");
        let folder = File::open(root.join(spool.strip_prefix("/").unwrap_or(spool)))?;
        // A socket's path may have 107 bytes.
        let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let mut found = sockets(&short)?;
        found.retain(|socket| job.is_none_or(|job| job == socket.job));
        if found.is_empty() {
            return Ok(());
        }
        // A slurmstepd is there before its socket.
        self.look_at_processes();
        for socket in found.iter().filter(|s| !self.has_step(s.job, &s.step) && is_dead(&s.path)) {
            std::fs::remove_file(&socket.path)?;
            tracing::info!(job = socket.job, step = socket.step, "the socket of a slurmstepd that is gone is removed");
        }
        Ok(())
    }

    fn has_step(&self, job: u32, step: &str) -> bool {
        let books = lock(&self.books);
        let of_job = books.processes.jobs.iter().find(|j| j.job_id == job);
        of_job.is_some_and(|job| job.steps.iter().any(|s| s.name == step))
    }

    /// Looks for such sockets of all jobs, again and again.
    pub(crate) fn remove_dead_sockets_for_ever(&self) {
        loop {
            let is_known = self.slurmd_spool().is_some();
            self.remove_dead_sockets(None);
            std::thread::sleep(if is_known { LOOK } else { ASK_AGAIN });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_is_a_steps_by_its_name_and_dead_once_nobody_listens() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let listener = UnixListener::bind(path("stepd.slurm.pmix.7.0")).expect("bound");
        for other in ["stepd.slurm.pmix.7", "stepd.slurm.pmix.x.0", "n1_7.0", "cred_state"] {
            std::fs::write(path(other), "").expect("written");
        }
        let of_step = Socket { path: path("stepd.slurm.pmix.7.0"), job: 7, step: "0".into() };
        assert_eq!(sockets(folder.path()).expect("a list"), [of_step]);
        assert!(!is_dead(&path("stepd.slurm.pmix.7.0")));
        drop(listener);
        assert!(is_dead(&path("stepd.slurm.pmix.7.0")));
        assert!(!is_dead(&path("stepd.slurm.pmix.7.1")), "what is not there is not removed");
    }
}

//! Starts the program of a sandbox, or brings it back from a checkpoint.

use super::{Ended, Init};
use crate::dumping::flush::{Failed, Unpacked};
use crate::dumping::progress::Progress;
use crate::dumping::release;
use crate::fallback;
use crate::frozen::{self, Frozen};
use crate::line::Said;
use crate::marks::{self, Of};
use crate::relay::{self, Relay};
use crate::task::UCX;
use crate::{sandbox, seconds, tool};
use gpu::Suspended;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use openfiles::held::SHARED_MEMORY;
use openfiles::patiently::patiently;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often a restore is tried.
const RESTORES: u32 = 2;

/// By these the launchers of MPICH and of Intel MPI start the ranks themselves: they would take `srun`, which reaches
/// nobody from a network of the program's own.
const LOCAL_LAUNCH: [(&str, &str); 4] =
    [("HYDRA_LAUNCHER", "fork"), ("HYDRA_RMK", "user"), ("HYDRA_IFACE", "lo"), ("I_MPI_HYDRA_BOOTSTRAP", "fork")];

/// The same of Open MPI in a script: after a restore it takes the name of the node where the script began for another node. It
/// leaves the loopback device out if that has several addresses, unless it is told what to leave out.
const LOCAL_OPEN_MPI: [(&str, &str); 2] = [("SLURM_NODELIST", "localhost"), ("OMPI_MCA_oob_tcp_if_exclude", "none")];

/// Who names one of these has chosen himself how UCX talks; Open MPI may have nothing else.
const OF_UCX: [&str; 2] = ["UCX_TLS", "OMPI_MCA_pml"];

/// Why a program could not be restored.
pub(super) struct NotBack {
    pub(super) reason: String,
    pub(super) of: Of,
}

impl NotBack {
    fn alone(reason: &str) -> NotBack {
        NotBack { reason: reason.to_string(), of: Of::Chance }
    }
}

impl From<String> for NotBack {
    fn from(reason: String) -> NotBack {
        NotBack { reason, of: Of::Unclear }
    }
}

impl From<io::Error> for NotBack {
    fn from(e: io::Error) -> NotBack {
        NotBack::alone(&e.to_string())
    }
}

impl From<Failed> for NotBack {
    fn from(e: Failed) -> NotBack {
        let of = if e.is_of_checkpoint() { Of::Checkpoint } else { Of::Node };
        NotBack { reason: e.to_string(), of }
    }
}

impl Init<'_> {
    /// Chooses the numbers of the processes that the program will have.
    pub(super) fn number(&self) -> Result<(), String> {
        let rank = self.task.member.as_ref().map_or(0, |member| member.rank);
        sandbox::set_last_pid(sandbox::first_pid(&self.task.run, rank) - 1)
    }

    /// Starts the program; an error carries the exit code that a shell would give.
    pub(super) fn start(&mut self) -> Result<(), (String, i32)> {
        let own = |e: io::Error| (e.to_string(), 126);
        patiently(|| relay::begin(&mut self.relays, &self.task.run.join(relay::BEGAN))).map_err(own)?;
        let (name, arguments) = self.task.command.split_first().ok_or(("there is no command".to_string(), 126))?;
        let end = |relay: &Relay| relay.write_end().try_clone_to_owned().map_err(own);
        let (Some(out), Some(err)) = (self.relays.first(), self.relays.last()) else {
            return Err(("there is no output".to_string(), 126));
        };
        let mut command = Command::new(name);
        command
            .args(arguments)
            .stdin(self.standard_input().map_err(|e| (e, 1))?)
            .stdout(Stdio::from(end(out)?))
            .stderr(Stdio::from(end(err)?))
            // PMIx would otherwise ask munge for a credential, at a socket outside of the sandbox.
            .env("PMIX_MCA_psec", "native")
            .env_remove("FT_ENERGY_DONE_FD")
            .envs(self.task.fallback.iter().map(|file| (fallback::VARIABLE, file)));
        if self.task.own_network {
            command.envs(LOCAL_LAUNCH);
            if self.task.member.is_none() {
                command.envs(LOCAL_OPEN_MPI).env_remove("OMPI_MCA_oob_tcp_if_include");
            }
            if OF_UCX.iter().all(|name| std::env::var_os(name).is_none()) {
                command.envs(UCX);
            }
        }
        let tmp = match &self.temporaries.own {
            // `/dev/shm` is where MPI launchers put files that all their processes map.
            tmp if self.task.own_network && !tmp.as_deref().is_some_and(frozen::is_own_folder) => {
                Some(Path::new(SHARED_MEMORY))
            }
            tmp => tmp.as_deref(),
        };
        if let Some(tmp) = tmp {
            // Site configuration of Open MPI may name another folder, and wins over TMPDIR.
            command.env("TMPDIR", tmp).env("OMPI_MCA_orte_tmpdir_base", tmp).env("PRTE_MCA_prte_tmpdir_base", tmp);
        }
        sandbox::confine(&mut command);
        let child = command.spawn().map_err(|e| {
            let code = if e.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            (format!("{}: {e}", name.display()), code)
        })?;
        self.program = child.id() as i32;
        Ok(())
    }

    /// The program's standard input: the file it was given, or what there is.
    fn standard_input(&self) -> Result<File, String> {
        let Some((path, at)) = &self.task.stdin else {
            return standard_input(self.line.is_some()).map_err(|e| format!("standard input: {e}"));
        };
        let opened = File::open(path).and_then(|mut file| file.seek(SeekFrom::Start(*at)).map(|_| file));
        opened.map_err(|e| format!("standard input: {}: {e}", path.display()))
    }

    /// Brings the program back from a checkpoint.
    pub(super) fn restore(&mut self, folder: &Path) -> Result<(), NotBack> {
        let unpacked = Unpacked::of(folder, self.task)?;
        let frozen = frozen::read(unpacked.path())?;
        frozen::place::look(&frozen).map_err(|lacking| NotBack { reason: lacking.to_string(), of: Of::Node })?;
        // No second try for a task of a step: restored tasks already write to files that a second try would cut.
        let mut tries = if self.line.is_some() { 1 } else { RESTORES };
        let (mut taken_since, mut pause) = (None, TAKEN_PAUSE);
        loop {
            let restored = self.restore_once(unpacked.path());
            let Err(not_back) = &restored else { return restored };
            let is_taken = not_back.of == Of::Taken && self.line.is_none() && !self.is_unwanted;
            let may_wait = is_taken && taken_since.get_or_insert_with(Instant::now).elapsed() < TAKEN_LIMIT;
            self.end_all();
            if !may_wait {
                tries -= 1;
            }
            if tries == 0 {
                return restored;
            }
            let next = Instant::now() + pause;
            pause *= 2;
            while may_wait && !self.is_unwanted && Instant::now() < next {
                self.wait()?;
            }
        }
    }

    fn restore_once(&mut self, folder: &Path) -> Result<(), NotBack> {
        let cut_off = self.task.run.join(relay::CUT_OFF);
        let frozen = frozen::put_back(folder, &cut_off, self.task)?;
        let Frozen { program, last_pid, pipes, local, gpus, began, .. } = frozen;
        (self.temporaries.local, self.temporaries.began) = (local, began);
        let mut ends = Vec::new();
        for (i, pipe) in pipes.iter().enumerate() {
            // Standard output and error were one file, and are two now: both go on into the first.
            let gone = || "standard error has gone where standard output goes".to_string();
            let relay = self.relays.get_mut(i).ok_or_else(gone)?;
            if let Some(bytes) = pipe.kept_bytes {
                let back = patiently(|| relay.go_back(bytes, &cut_off));
                back.map_err(|e| NotBack { reason: format!("the output: {e}"), of: Of::Node })?;
            }
            if self.line.is_some() {
                relay.by_lines(pipe.held.clone());
            }
            relay.goes_on_with(&pipe.waiting);
            ends.push((pipe.inode, relay::inheritable(relay.write_end())?));
        }
        self.wait_for_others()?;
        let child = tool::restore(self.task, folder, &ends).spawn();
        let not_started = |e: io::Error| NotBack::alone(&format!("{}: {e}", self.task.criu.display()));
        let criu = child.map_err(not_started)?.id() as i32;
        drop(ends);
        self.program = program;
        self.ended = None;
        let limit = seconds(self.task.limit_s);
        let until = Instant::now() + limit;
        let mut progress = Progress::new(Path::new("/proc"), limit);
        let status = loop {
            if let Some(status) = self.reap(criu) {
                break status;
            }
            if Instant::now() > until {
                // Slow, and not still: many may be restored at once.
                let late = format!("criu took longer than {} s ([wrapper] checkpoint_limit_s)", self.task.limit_s);
                return Err(NotBack::alone(&late));
            }
            if let Some(why) = progress.stuck(Instant::now()) {
                return Err(why.into());
            }
            self.wait()?;
        };
        if status != Ended::Code(0) {
            return Err(match status {
                _ if self.is_unwanted => NotBack::alone("the restore was ended from outside"),
                // Killed by somebody, or for want of memory: the images may be good.
                Ended::Signal(Signal::SIGKILL) => NotBack::alone("criu was killed"),
                _ => {
                    let (reason, of) = tool::not_restored(folder);
                    NotBack { reason, of }
                }
            });
        }
        // New processes must not take ids of processes still to be restored.
        sandbox::set_last_pid(last_pid)?;
        gpus.map_or(Ok(()), |gpus| self.give_gpus(gpus))?;
        self.task.restore.iter().for_each(|folder| marks::forget(folder));
        Ok(())
    }

    /// Has the driver of this node bring back what a program had on GPUs.
    fn give_gpus(&mut self, gpus: Suspended) -> Result<(), NotBack> {
        let work = threads::start(move || release::give_again(&gpus));
        while !work.is_finished() {
            self.wait()?;
        }
        let given = work.join().unwrap_or_else(|_| Err(gpu::Error::Refused("the work on them has failed".to_string())));
        given.map_err(|e| match e {
            _ if self.is_unwanted => NotBack::alone("the restore was ended from outside"),
            gpu::Error::Lost(_) => format!("its GPUs: {e}").into(),
            gpu::Error::Refused(_) | gpu::Error::Unanswered(_) => NotBack::alone(&format!("its GPUs: {e}")),
        })
    }

    /// Waits until all tasks of the step have put their files back, since they may share some.
    fn wait_for_others(&mut self) -> Result<(), NotBack> {
        self.tell(&Said::Ready);
        let until = Instant::now() + seconds(self.task.limit_s);
        while !self.may_restore && !self.is_unwanted {
            if self.line.is_none() || Instant::now() > until {
                return Err(NotBack::alone("the other tasks of the step do not come back"));
            }
            self.wait()?;
        }
        if self.is_unwanted { Err(NotBack::alone("the restore was ended from outside")) } else { Ok(()) }
    }

    /// Ends whatever a failed restore has left.
    fn end_all(&mut self) {
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        while waitpid(None, None).is_ok() {}
    }
}

/// How long a restore waits for a port or a name of a socket that another program of the node holds.
const TAKEN_LIMIT: Duration = Duration::from_secs(60);
const TAKEN_PAUSE: Duration = Duration::from_secs(3);

/// A standard input that survives a restore: a regular file, or `/dev/null`. Tasks of steps are known to have none.
fn standard_input(is_empty: bool) -> io::Result<File> {
    let path = fs::read_link("/proc/self/fd/0").unwrap_or_default();
    match fs::metadata("/proc/self/fd/0").map(|m| m.file_type()) {
        Ok(kind) if kind.is_file() => File::open(path),
        Ok(_) if is_empty => File::open("/dev/null"),
        Ok(kind) if kind.is_fifo() || kind.is_char_device() && path != Path::new("/dev/null") => {
            protocol::say!(
                "joulepoint: standard input is empty for a program under the engine criu; read a file instead"
            );
            File::open("/dev/null")
        }
        _ => OpenOptions::new().read(true).open("/dev/null"),
    }
}

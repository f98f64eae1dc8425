//! Whether a call of `srun` has ended as its exit code says, though a node may have died under it: what the driver of the job
//! and Slurm say of that, and how long their word is waited for.

use crate::calls::Calls;
use crate::slurmd;
use crate::srun::ENDING;
use ::criu::line::{Line, Said};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::signalfd::SignalFd;
use slurm::{JobState, Slurm};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a script of several nodes waits to hear that a step failed by itself and not by a dead node.
pub const VERDICT: Duration = Duration::from_secs(8);

/// The same once the wrapper knows of a node that is as good as dead: twice as long as any lease.
const LEASE: Duration = Duration::from_secs(40);

/// Longest wait for the driver to hear of all tasks of a step that has ended well. What the kernel knows of a connection to a
/// node that is gone it tells much sooner.
const ALL_TOLD: Duration = Duration::from_secs(120);

/// Time between two looks for a slurmd that is away.
const SLURMD_AGAIN: Duration = Duration::from_secs(1);

/// Time after which it is looked whether the script is being stopped.
const AGAIN: Duration = Duration::from_secs(1);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// How a wait for a slurmd has ended.
pub enum Waited {
    /// All of the job's nodes have theirs again.
    Back,
    /// Somebody asked the step to end, or the wrapper stops the script.
    Ending,
    /// None was away.
    NotAway,
}

/// What the driver has heard of a step that has ended well.
enum Told {
    /// How each of its tasks has ended.
    All,
    /// Somebody asked the step to end.
    Asked,
    /// Not of each, for a long time.
    NotAll,
}

/// What a call has ended among.
pub struct Doubts<'a> {
    /// The record of calls.
    pub calls: &'a Calls,
    /// What the stand-in is told.
    pub signals: &'a SignalFd,
}

impl Doubts<'_> {
    /// Waits while a slurmd of the job's nodes is away, as it is when it is upgraded: a step could not be launched there.
    ///
    /// # Errors
    /// What the kernel says of signals.
    pub fn wait_for_slurmd(&self) -> io::Result<Waited> {
        let (nodes, slurm) = (slurmd::nodes_of_job(), Slurm::new(None));
        let mut away = slurmd::away(&slurm, &nodes);
        if away.is_empty() {
            return Ok(Waited::NotAway);
        }
        protocol::say!(
            "joulepoint: srun could not launch the step: no slurmd on {}; it is launched again when that is back",
            away.join(",")
        );
        while !away.is_empty() {
            if self.is_asked_to_end(SLURMD_AGAIN)? || self.calls.is_closed() {
                return Ok(Waited::Ending);
            }
            away = slurmd::away(&slurm, &nodes);
        }
        protocol::say!("joulepoint: the step is launched again");
        Ok(Waited::Back)
    }

    /// How long the wrapper's word is to be waited for, though the step that began then seems to have ended well: `srun` says 0
    /// of a task that died with its node. The `driver` has heard of the end of each task that is in a sandbox. Slurm takes the
    /// job's nodes away, or has left one to it that has booted since. Where slurmctld does not answer it is asked again for a
    /// while, unless the script is stopped or somebody has `asked` the step to end.
    ///
    /// # Errors
    /// What the kernel says of signals.
    pub fn of_good_end(
        &self,
        begun_s: f64,
        driver: Option<&mut Line>,
        asked: &mut bool,
    ) -> io::Result<Option<Duration>> {
        match driver.map_or(Ok(Told::All), |driver| self.wait_for_all(driver))? {
            Told::All => {}
            Told::Asked => *asked = true,
            Told::NotAll => {
                protocol::say!("joulepoint: not all tasks of this step have told how they ended");
                return Ok(Some(LEASE));
            }
        }
        let job = std::env::var("SLURM_JOB_ID").ok().and_then(|id| id.parse().ok());
        let Some(job) = job.filter(|_| !*asked) else { return Ok(None) };
        let mut trouble = None;
        let wanted = |pause| {
            match self.is_asked_to_end(pause) {
                Ok(is_asked) => *asked = is_asked,
                Err(e) => trouble = Some(e),
            }
            !*asked && trouble.is_none() && !self.calls.is_closed()
        };
        let waits = |e: &slurm::Error| {
            protocol::say!("joulepoint: slurmctld has to say whether the nodes of this step are still there: {e}");
        };
        let slurm = Slurm::new(None);
        let known = slurm.job_in_the_end(job, wanted, waits);
        let is_over = known.as_ref().is_some_and(|job| !matches!(job.state, JobState::Running | JobState::Suspended));
        if let Some(e) = trouble {
            return Err(e);
        }
        if is_over || self.calls.is_closed() {
            return Ok(Some(VERDICT));
        }
        let since_s = known.and_then(|job| job.start_s).map_or(begun_s, |start_s| start_s.max(begun_s));
        let booted = slurmd::has_booted(&slurm, &slurmd::nodes_of_job(), since_s);
        Ok(booted.map(|node| {
            protocol::say!("joulepoint: {node} has booted while this step ran there: its tasks are gone");
            LEASE
        }))
    }

    /// Waits until the driver has heard how each task of the step has ended, or that one is lost: then it stops the script.
    fn wait_for_all(&self, driver: &mut Line) -> io::Result<Told> {
        // A driver that is gone, or one of an earlier version, which closes the line, knows nothing of it.
        if driver.tell(&Said::EndedWell).is_err() {
            return Ok(Told::All);
        }
        let until = Instant::now() + ALL_TOLD;
        while Instant::now() < until && !self.calls.is_closed() {
            match driver.hear() {
                Ok(Some(Said::EndedWell)) | Err(_) => return Ok(Told::All),
                Ok(Some(Said::Ending)) => return Ok(Told::Asked),
                Ok(_) if self.is_asked_to_end(Duration::ZERO)? => return Ok(Told::Asked),
                Ok(_) => {
                    let mut both = [self.signals.as_fd(), driver.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
                    let _ = nix::poll::poll(&mut both, PollTimeout::try_from(AGAIN).unwrap_or(PollTimeout::ZERO));
                }
            }
        }
        Ok(Told::NotAll)
    }

    /// Keeps the script from going on to its next step when a node died: the wrapper hears of it and stops the script.
    /// Tells whether it did.
    ///
    /// # Errors
    /// What the kernel says of signals.
    pub fn hold_back(&self, limit: Duration) -> io::Result<bool> {
        let begun = Instant::now();
        loop {
            let limit = if self.calls.is_closed() { LEASE } else { limit };
            if begun.elapsed() > limit {
                return Ok(self.calls.is_closed());
            }
            if self.is_asked_to_end(LOOK)? {
                return Ok(true);
            }
        }
    }

    /// Whether somebody asks this process to end within this time.
    fn is_asked_to_end(&self, within: Duration) -> io::Result<bool> {
        let until = Instant::now() + within;
        while comes_before(self.signals, until)? {
            if self.signals.read_signal()?.is_some_and(|s| ENDING.iter().any(|e| *e as u32 == s.ssi_signo)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a signal comes before `limit`.
///
/// # Errors
/// What the kernel says.
pub fn comes_before(signals: &SignalFd, limit: Instant) -> io::Result<bool> {
    let left = PollTimeout::try_from(limit.saturating_duration_since(Instant::now())).unwrap_or(PollTimeout::MAX);
    match nix::poll::poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], left) {
        Ok(ready) => Ok(ready > 0),
        Err(nix::errno::Errno::EINTR) => Ok(true),
        Err(e) => Err(e.into()),
    }
}

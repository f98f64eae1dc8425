//! Signals to steps that Slurm may still deliver.
//!
//! What slurmctld cannot deliver to a node that does not answer it tries again every minute (Slurm's src/slurmctld/agent.c,
//! `RPC_RETRY_INTERVAL`), and the signal names a step by its number. Steps of a job that begins again have the same numbers: a
//! task of the new life would be killed.

use driver::ports::{Clock, Happening, LATEST_SIGNAL};
use host::mail::{MailClock, now_s};
use protocol::Incarnation;
use run::write_durably;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Name of the file in a run's folder: the life whose steps could not be ended.
const NAME: &str = "late-signals";

/// How long a note may take to be written.
const WRITTEN: Duration = Duration::from_secs(2);

/// What is known of them.
#[derive(Debug)]
pub struct Late {
    file: PathBuf,
    of: Incarnation,
}

/// How a wait has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Waited {
    /// No such signal comes any more.
    Over,
    /// Somebody asked the job to end meanwhile.
    Terminated,
    /// Another wrapper has the run.
    Superseded,
}

impl Late {
    /// Of a run, as this life of its job sees it.
    pub fn new(run: &Path, of: Incarnation) -> Late {
        Late { file: run.join(NAME), of }
    }

    /// Steps of this life were to be ended, and Slurm may not have reached all of their nodes. Whoever ends a run does not wait
    /// for its storage: it is written down by a thread of its own.
    pub fn note(&self) {
        let Incarnation { job, restart_count } = self.of;
        let (file, text) = (self.file.clone(), format!("{job} {restart_count}\n"));
        let (done, is_done) = mpsc::channel();
        threads::start(move || {
            if let Err(error) = write_durably(&file, text.as_bytes()) {
                tracing::warn!(%error, "the next life will not know that Slurm may still signal steps of this one");
            }
            let _ = done.send(());
        });
        let _ = is_done.recv_timeout(WRITTEN);
    }

    /// Waits until what an earlier life has noted can no longer hit this one.
    pub fn wait(&self, clock: &mut MailClock) -> Waited {
        self.wait_for(LATEST_SIGNAL, clock)
    }

    fn wait_for(&self, latest: Duration, clock: &mut MailClock) -> Waited {
        let is_earlier = |noted: &Incarnation| noted.job != self.of.job || noted.restart_count < self.of.restart_count;
        let Some(noted) = self.noted().filter(is_earlier) else { return Waited::Over };
        if noted.job == self.of.job {
            protocol::say!(
                "joulepoint: Slurm may still deliver a signal to a step of this job's earlier life, which has the number of \
                 this one's; the script begins in {} s",
                latest.as_secs()
            );
            let begun = Instant::now();
            while let Some(left) = latest.checked_sub(begun.elapsed()) {
                match clock.wait(now_s() + left.as_secs_f64()) {
                    Some(Happening::Terminate) => return Waited::Terminated,
                    Some(Happening::Superseded) => return Waited::Superseded,
                    _ => {}
                }
            }
        }
        // One that stays costs the next life a wait.
        let _ = fs::remove_file(&self.file);
        Waited::Over
    }

    fn noted(&self) -> Option<Incarnation> {
        let read = fs::read_to_string(&self.file);
        let text = read.inspect_err(|e| {
            if e.kind() != ErrorKind::NotFound {
                tracing::warn!(%e, file = %self.file.display(), "nobody knows whether Slurm may still signal steps");
            }
        });
        let text = text.ok()?;
        let (job, restart_count) = text.trim().split_once(' ')?;
        Some(Incarnation { job: job.parse().ok()?, restart_count: restart_count.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::mail::queue;

    #[test]
    fn the_next_life_waits_once_and_no_other_does() {
        let run = tempfile::tempdir().unwrap();
        let late = |job: u32, restart_count: u32| Late::new(run.path(), Incarnation { job, restart_count });
        let (_post, mut clock) = queue();
        let mut took_s = |late: Late| {
            let begun_s = now_s();
            assert_eq!(late.wait_for(Duration::from_millis(300), &mut clock), Waited::Over);
            now_s() - begun_s
        };
        assert!(took_s(late(7, 0)) < 0.3, "nothing is noted");
        late(7, 0).note();
        assert!(took_s(late(7, 0)) < 0.3, "of this very life");
        assert!(took_s(late(7, 1)) >= 0.3);
        assert!(took_s(late(7, 2)) < 0.3, "it is over");
        late(7, 0).note();
        assert!(took_s(late(8, 1)) < 0.3, "another job's numbers are others");
    }

    #[test]
    fn a_job_that_is_asked_to_end_and_one_that_another_wrapper_has_wait_no_longer() {
        let run = tempfile::tempdir().unwrap();
        let (post, mut clock) = queue();
        Late::new(run.path(), Incarnation { job: 7, restart_count: 0 }).note();
        let next = Late::new(run.path(), Incarnation { job: 7, restart_count: 1 });
        for (told, waited) in [(Happening::Terminate, Waited::Terminated), (Happening::Superseded, Waited::Superseded)]
        {
            post.tell(told);
            assert_eq!(next.wait_for(Duration::from_secs(60), &mut clock), waited);
        }
    }
}

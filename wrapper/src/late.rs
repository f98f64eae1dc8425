//! Signals to steps that Slurm may still deliver.
//!
//! What slurmctld cannot deliver to a node that does not answer it tries again every minute (Slurm's src/slurmctld/agent.c,
//! `RPC_RETRY_INTERVAL`), and the signal names a step by its number. Steps of a job that begins again have the same numbers: a
//! task of the new life would be killed.

use crate::mail::{MailClock, now_s};
use crate::ports::{Clock, Happening};
use protocol::Incarnation;
use run::write_durably;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Name of the file in a run's folder: the life whose steps could not be ended.
const NAME: &str = "late-signals";

/// How long after the begin of a job, when all of its nodes answer, such a signal may still come: the minute, and the time that a
/// message has, s.
const LATEST_S: f64 = 75.0;

/// What is known of them.
#[derive(Debug)]
pub struct Late {
    file: PathBuf,
    of: Incarnation,
}

impl Late {
    /// Of a run, as this life of its job sees it.
    pub fn new(run: &Path, of: Incarnation) -> Late {
        Late { file: run.join(NAME), of }
    }

    /// Steps of this life were to be ended, and did not end.
    pub fn note(&self) {
        let Incarnation { job, restart_count } = self.of;
        if let Err(error) = write_durably(&self.file, format!("{job} {restart_count}\n").as_bytes()) {
            tracing::warn!(%error, "the next life will not know that Slurm may still signal steps of this one");
        }
    }

    /// Waits until what an earlier life has noted can no longer hit this one; false if the job is asked to end meanwhile.
    pub fn wait(&self, clock: &mut MailClock) -> bool {
        self.wait_for(LATEST_S, clock)
    }

    fn wait_for(&self, latest_s: f64, clock: &mut MailClock) -> bool {
        let Some(noted) = self.noted() else { return true };
        if noted.job == self.of.job && noted.restart_count < self.of.restart_count {
            protocol::say!(
                "joulepoint: Slurm may still deliver a signal to a step of this job's earlier life, which has the number of \
                 this one's; the script begins in {latest_s:.0} s"
            );
            let until_s = now_s() + latest_s;
            while now_s() < until_s {
                if let Some(Happening::Terminate) = clock.wait(until_s) {
                    return false;
                }
            }
        }
        if noted.job != self.of.job || noted.restart_count < self.of.restart_count {
            // One that stays costs the next life a wait.
            let _ = fs::remove_file(&self.file);
        }
        true
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
    use crate::mail::queue;

    #[test]
    fn the_next_life_waits_once_and_no_other_does() {
        let run = tempfile::tempdir().unwrap();
        let late = |job: u32, restart_count: u32| Late::new(run.path(), Incarnation { job, restart_count });
        let (_post, mut clock) = queue();
        let mut took_s = |late: Late| {
            let begun_s = now_s();
            assert!(late.wait_for(0.3, &mut clock));
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
    fn a_job_that_is_asked_to_end_waits_no_longer() {
        let run = tempfile::tempdir().unwrap();
        let (post, mut clock) = queue();
        Late::new(run.path(), Incarnation { job: 7, restart_count: 0 }).note();
        post.tell(Happening::Terminate);
        assert!(!Late::new(run.path(), Incarnation { job: 7, restart_count: 1 }).wait_for(60.0, &mut clock));
    }
}

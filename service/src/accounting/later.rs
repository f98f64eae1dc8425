//! Tells Slurm's accounting of jobs that are over there what slurmctld takes no more: the energy that Slurm did not measure itself
//! (25.11 and later), and an AdminComment that came too late.

use super::comment;
use audit::{Act, By};
use parking_lot::Mutex;
use protocol::RunAccount;
use slurm::{Accounted, Error, Slurm};
use std::collections::BTreeMap;

/// The first series whose sacctmgr sets a job's TRES.
const SINCE: (u32, u32) = (25, 11);

/// How often a job is looked for that accounting does not show as ended.
const MOST_LOOKS: u32 = 30;

/// How far a record's beginning may lie outside of its job's life, s: clocks differ, and prologs take their time.
const NEAR_S: f64 = 600.0;

/// Most jobs that wait; later ones are not told.
const MOST_WAITING: usize = 10_000;

/// Jobs of which something is still to be told; those of an earlier life of the service are not.
#[derive(Debug, Default)]
pub struct Later {
    waiting: Mutex<BTreeMap<u32, Waiting>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Waiting {
    /// By the node services' word.
    joules: Option<f64>,
    /// Our part of the AdminComment.
    comment: Option<String>,
    /// The job's owner, by Slurm's word.
    user: String,
    /// When the run's last record began, s since the epoch.
    begun_s: f64,
    looks: u32,
}

impl Waiting {
    /// Whether a life of a job of this number is the one that was counted: numbers are used again.
    fn is_of(&self, life: &Accounted) -> bool {
        let until_s = life.end_s.unwrap_or(f64::INFINITY) + NEAR_S;
        let is_then = life.start_s.is_some_and(|start_s| (start_s - NEAR_S..=until_s).contains(&self.begun_s));
        life.user == self.user && is_then
    }
}

impl Later {
    /// Notes the energy of a run's last record: of a run whose job is its user's by Slurm's word, and what the node
    /// services counted. A user's own figures are not told.
    pub fn energy(&self, run: &RunAccount) {
        let joules = run.records.last().and_then(|last| last.metered_j).filter(|j| *j > 0.0);
        if joules.is_some() {
            self.wait(run, |waits| waits.joules = joules);
        }
    }

    /// Notes an AdminComment of a run that has ended.
    pub fn comment(&self, run: &RunAccount, ours: String) {
        self.wait(run, |waits| waits.comment = Some(ours));
    }

    fn wait(&self, run: &RunAccount, note: impl FnOnce(&mut Waiting)) {
        let Some(last) = run.records.last().filter(|_| run.verified && run.trouble.is_empty()) else { return };
        let mut waiting = self.waiting.lock();
        if run.job > 0 && waiting.len() < MOST_WAITING {
            let waits = waiting.entry(run.job).or_default();
            (waits.user, waits.begun_s, waits.looks) = (run.user.clone(), last.start_s, 0);
            note(waits);
        }
    }

    /// Tells what can be told: of jobs that accounting shows as ended.
    ///
    /// # Errors
    /// What Slurm says.
    pub fn tell(&self, slurm: &Slurm) -> Result<(), Error> {
        let waiting = self.waiting.lock().clone();
        if waiting.is_empty() {
            return Ok(());
        }
        let takes_energy = slurm.series()? >= SINCE;
        let lives = slurm.accounted_jobs(&waiting.keys().copied().collect::<Vec<_>>())?;
        for (job, waits) in waiting {
            // sacctmgr changes the newest of a number, whichever is meant.
            let newest = lives.iter().rfind(|l| l.job == job);
            let is_done = match newest.filter(|l| l.state.is_over()) {
                Some(life) if !waits.is_of(life) => true,
                Some(life) => {
                    let joules = waits.joules.filter(|_| takes_energy && life.consumed_j.is_none());
                    let energy = joules.is_none_or(|joules| set_energy(slurm, life, joules));
                    waits.comment.as_ref().is_none_or(|ours| set_comment(slurm, life, ours)) && energy
                }
                None => false,
            };
            let mut waiting = self.waiting.lock();
            if is_done || waits.looks >= MOST_LOOKS {
                waiting.remove(&job);
            } else if let Some(waits) = waiting.get_mut(&job) {
                waits.looks += 1;
            }
        }
        Ok(())
    }
}

fn set_energy(slurm: &Slurm, life: &Accounted, joules: f64) -> bool {
    let (by, why) = (By::Owner(life.uid), format!("{joules:.0} J, as node services counted"));
    audit::note(by, Act::SetEnergy, (life.job, ""), &why, slurm.set_energy(life, joules)).is_ok()
}

fn set_comment(slurm: &Slurm, life: &Accounted, ours: &str) -> bool {
    let set = slurm.accounted_comment(life.job).and_then(|before| match comment::beside(&before, ours) {
        Some(text) if text != before => slurm.set_accounted_comment(life, &text),
        // There is no room for it, or it is there.
        _ => Ok(()),
    });
    audit::note(By::Owner(life.uid), Act::AdminComment, (life.job, ""), "what the run cost", set).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Slurm of this version that notes what sacctmgr is asked.
    fn slurm(dir: &std::path::Path, version: &str) -> Slurm {
        let sacct = "7|COMPLETED|0:0|1|2|3|1000|a|n1|\\n8|COMPLETED|0:0|1|2|3|1000|a|n1|50\\n9|RUNNING|0:0|1|2|Unknown|1000|a|n1|\\n\
                     10|COMPLETED|0:0|1|2|3|1001|b|n1|\\n11|COMPLETED|0:0|1|2|3|1000|a|n1|\\n11|COMPLETED|0:0|9000|9001|9002|1001|b|n1|\\n";
        for (name, body) in [
            ("scontrol", format!("echo slurm {version}")),
            ("sacct", format!("printf '{sacct}'")),
            ("sacctmgr", format!("echo \"$@\" >> {}", dir.join("asked").display())),
        ] {
            std::fs::write(dir.join("text"), format!("#!/bin/sh\n{body}\n")).expect("script");
            // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
            let copied = std::process::Command::new("install").arg(dir.join("text")).arg(dir.join(name)).status();
            assert!(copied.expect("install").success());
        }
        Slurm::new(Some(dir.into()))
    }

    #[test]
    fn only_ended_jobs_that_slurm_did_not_measure_are_told_and_once() {
        for (version, expected) in [
            ("26.05.5", Some("-i modify job where jobid=7 user=a starttime=uts2 set TRES=energy=1235\n")),
            ("22.05.8", None),
        ] {
            let dir = tempfile::tempdir().expect("folder");
            let slurm = slurm(dir.path(), version);
            let later = Later::default();
            for job in [7, 8, 9, 10, 11] {
                let waits = Waiting { joules: Some(1234.6), user: "a".into(), begun_s: 2.5, ..Waiting::default() };
                later.waiting.lock().insert(job, waits);
            }
            later.tell(&slurm).expect("told");
            later.tell(&slurm).expect("nothing more to tell");
            let asked = std::fs::read_to_string(dir.path().join("asked")).ok();
            assert_eq!(asked.as_deref(), expected, "{version}: neither a job of another user nor of a later time");
            let left: Vec<u32> = later.waiting.lock().keys().copied().collect();
            assert_eq!(left, [9], "{version}: job 9 has not ended");
        }
    }
}

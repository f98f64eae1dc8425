//! Tells Slurm's accounting the energy of jobs that Slurm did not measure itself (25.11 and later).

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

/// Jobs whose energy is still to be told; those of an earlier life of the service are not.
#[derive(Debug, Default)]
pub struct EnergyTres {
    waiting: Mutex<BTreeMap<u32, Waiting>>,
}

#[derive(Clone, Debug, PartialEq)]
struct Waiting {
    /// By the node services' word.
    joules: f64,
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

impl EnergyTres {
    /// Notes the energy of a run's last record: of a run whose job is its user's by Slurm's word, and what the node
    /// services counted. A user's own figures are not told.
    pub fn later(&self, run: &RunAccount) {
        let Some(last) = run.records.last().filter(|_| run.verified && run.trouble.is_empty()) else { return };
        let Some(joules) = last.metered_j.filter(|j| *j > 0.0) else { return };
        let mut waiting = self.waiting.lock();
        if run.job > 0 && waiting.len() < MOST_WAITING {
            let (user, begun_s) = (run.user.clone(), last.start_s);
            waiting.insert(run.job, Waiting { joules, user, begun_s, looks: 0 });
        }
    }

    /// Tells what can be told: jobs that accounting shows as ended and without energy.
    ///
    /// # Errors
    /// What Slurm says.
    pub fn tell(&self, slurm: &Slurm) -> Result<(), Error> {
        let waiting = self.waiting.lock().clone();
        if waiting.is_empty() {
            return Ok(());
        }
        if slurm.series()? < SINCE {
            self.waiting.lock().clear();
            return Ok(());
        }
        let lives = slurm.accounted_jobs(&waiting.keys().copied().collect::<Vec<_>>())?;
        for (job, waits) in waiting {
            // sacctmgr changes the newest of a number, whichever is meant.
            let newest = lives.iter().rfind(|l| l.job == job);
            let is_done = match newest.filter(|l| l.state.is_over()) {
                Some(life) if !waits.is_of(life) || life.consumed_j.is_some() => true,
                Some(life) => {
                    let (by, why) = (By::Owner(life.uid), format!("{:.0} J, as node services counted", waits.joules));
                    audit::note(by, Act::SetEnergy, (job, ""), &why, slurm.set_energy(life, waits.joules)).is_ok()
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
            let tres = EnergyTres::default();
            for job in [7, 8, 9, 10, 11] {
                let waits = Waiting { joules: 1234.6, user: "a".into(), begun_s: 2.5, looks: 0 };
                tres.waiting.lock().insert(job, waits);
            }
            tres.tell(&slurm).expect("told");
            tres.tell(&slurm).expect("nothing more to tell");
            let asked = std::fs::read_to_string(dir.path().join("asked")).ok();
            assert_eq!(asked.as_deref(), expected, "{version}: neither a job of another user nor of a later time");
            let left: Vec<u32> = tres.waiting.lock().keys().copied().collect();
            assert_eq!(left, if expected.is_some() { vec![9] } else { vec![] }, "{version}: job 9 has not ended");
        }
    }
}

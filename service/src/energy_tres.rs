//! Tells Slurm's accounting the energy of jobs that Slurm did not measure itself (25.11 and later).

use crate::lock;
use protocol::RunAccount;
use slurm::{Error, Slurm};
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

/// The first series whose sacctmgr sets a job's TRES.
const SINCE: (u32, u32) = (25, 11);

/// How often a job is looked for that accounting does not show as ended.
const MOST_LOOKS: u32 = 30;

/// Most jobs that wait; later ones are not told.
const MOST_WAITING: usize = 10_000;

/// Jobs whose energy is still to be told; those of an earlier life of the service are not.
#[derive(Debug, Default)]
pub struct EnergyTres {
    able: OnceLock<bool>,
    waiting: Mutex<BTreeMap<u32, Waiting>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Waiting {
    joules: f64,
    looks: u32,
}

impl EnergyTres {
    /// Notes the energy of a run's last record.
    pub fn later(&self, run: &RunAccount) {
        let joules = last_record_j(run);
        let mut waiting = lock(&self.waiting);
        if run.job > 0 && joules > 0.0 && waiting.len() < MOST_WAITING {
            waiting.insert(run.job, Waiting { joules, looks: 0 });
        }
    }

    /// Tells what can be told: jobs that accounting shows as ended and without energy.
    ///
    /// # Errors
    /// What Slurm says.
    pub fn tell(&self, slurm: &Slurm) -> Result<(), Error> {
        let waiting = lock(&self.waiting).clone();
        if waiting.is_empty() {
            return Ok(());
        }
        if self.able.get().is_none() {
            let _ = self.able.set(slurm.series()? >= SINCE);
        }
        let able = self.able.get() == Some(&true);
        let lives = if able { slurm.accounted_jobs(&waiting.keys().copied().collect::<Vec<_>>())? } else { Vec::new() };
        for (job, Waiting { joules, looks }) in waiting {
            let last = lives.iter().rfind(|l| l.job == job).filter(|l| l.state.is_over());
            if let Some(last) = last
                && last.consumed_j.is_none()
            {
                slurm.set_energy(job, joules)?;
            }
            let mut waiting = lock(&self.waiting);
            if !able || last.is_some() || looks >= MOST_LOOKS {
                waiting.remove(&job);
            } else if let Some(waits) = waiting.get_mut(&job) {
                waits.looks += 1;
            }
        }
        Ok(())
    }
}

/// Energy of the last Slurm job record: that of the spans since it began, J.
fn last_record_j(run: &RunAccount) -> f64 {
    let Some(last) = run.records.last() else { return 0.0 };
    if run.records.len() == 1 {
        return run.total.joules;
    }
    run.spans.iter().filter(|s| s.start_s >= last.start_s).filter_map(|s| s.joules).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Slurm of this version that notes what sacctmgr is asked.
    fn slurm(dir: &std::path::Path, version: &str) -> Slurm {
        let sacct = "7|COMPLETED|0:0|1|2|3|a|b|n1||x\\n8|COMPLETED|0:0|1|2|3|a|b|n1|50|x\\n9|RUNNING|0:0|1|2|Unknown|a|b|n1||x\\n";
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
        for (version, expected) in
            [("26.05.5", Some("-i modify job where jobid=7 set TRES=energy=1235\n")), ("22.05.8", None)]
        {
            let dir = tempfile::tempdir().expect("folder");
            let slurm = slurm(dir.path(), version);
            let tres = EnergyTres::default();
            for job in [7, 8, 9] {
                tres.waiting.lock().expect("waiting").insert(job, Waiting { joules: 1234.6, looks: 0 });
            }
            tres.tell(&slurm).expect("told");
            tres.tell(&slurm).expect("nothing more to tell");
            let asked = std::fs::read_to_string(dir.path().join("asked")).ok();
            assert_eq!(asked.as_deref(), expected, "{version}");
            let left: Vec<u32> = tres.waiting.lock().expect("waiting").keys().copied().collect();
            assert_eq!(left, if expected.is_some() { vec![9] } else { vec![] }, "{version}: job 9 has not ended");
        }
    }
}

//! Tells Slurm what a run cost: in the job's AdminComment, and in accounting.

pub mod comment;
pub mod energy_tres;

use crate::accounting::energy_tres::EnergyTres;
use crate::metrics::Ended;
use anyhow::{Result, bail};
use audit::By;
use listener::{Users, now_s};
use parking_lot::Mutex;
use protocol::{RunAccount, RunKey};
use slurm::{JobText, Slurm};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Store, account};

/// Time between two AdminComments of a job, s; its end is always noted.
const COMMENT_S: f64 = 10.0;

/// What is told to Slurm.
pub(crate) struct Accounting {
    pub slurm: Slurm,
    pub reader: Arc<Mutex<Store>>,
    pub users: Arc<Users>,
    pub sums: Arc<Ended>,
    /// Whether accounting is told the energy of jobs.
    pub tells_energy: bool,
    pub energy_tres: EnergyTres,
    /// When a job was told last, by its run, s since the epoch.
    pub commented_s: Mutex<BTreeMap<RunKey, f64>>,
}

impl Accounting {
    /// Counts a run that has ended, and tells Slurm's accounting its energy later, when the job is over there.
    pub(crate) fn ended(&self, run: &RunAccount) {
        self.sums.add(run);
        if run.end_s.is_some() && self.tells_energy {
            self.energy_tres.later(run);
        }
    }

    /// Writes a run's AdminComment beside what the site wrote there: of a run whose job is its user's by Slurm's word, at
    /// its end always, else now and then.
    ///
    /// # Errors
    /// What the store or Slurm says.
    pub(crate) fn comment(&self, key: &RunKey, ends: bool) -> Result<()> {
        let now_s = now_s();
        {
            let mut commented = self.commented_s.lock();
            commented.retain(|_, at| now_s - *at < COMMENT_S);
            if !ends && commented.contains_key(key) {
                return Ok(());
            }
            commented.insert(key.clone(), now_s);
        }
        let read = if ends { account::ended } else { account::brief };
        let run = read(self.reader.lock().connection(), key)?;
        if ends {
            self.ended(&run);
        }
        let owner = self.reader.lock().run(key)?.filter(|row| row.verified && row.job > 0);
        let Some(owner) = owner.filter(|_| run.trouble.is_empty()) else { return Ok(()) };
        self.users.command(now_s, owner.uid)?;
        let Some(job) = self.slurm.job(owner.job)?.filter(|job| job.uid == owner.uid) else { return Ok(()) };
        let ours = serde_json::to_string(&account::summary(&run))?;
        let Some(text) = comment::beside(&self.slurm.text(&job, JobText::AdminComment)?, &ours) else {
            bail!("job {}: the site's own AdminComment leaves no room", run.job);
        };
        let written = self.slurm.admin_comment(job.id, &text);
        Ok(audit::note(By::Owner(owner.uid), audit::Act::AdminComment, (job.id, ""), "what the run cost", written)?)
    }

    /// Tells accounting the energy of jobs that are over there.
    ///
    /// # Errors
    /// What Slurm says.
    pub(crate) fn tell_energy(&self) -> Result<(), slurm::Error> {
        self.energy_tres.tell(&self.slurm)
    }
}

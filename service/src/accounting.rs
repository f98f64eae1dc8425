//! Tells Slurm what a run cost: in the job's AdminComment, and in accounting.

pub mod comment;
pub mod energy_tres;

use crate::accounting::energy_tres::EnergyTres;
use crate::metrics::Ended;
use anyhow::{Result, bail};
use audit::By;
use listener::{Lines, Users, now_s};
use parking_lot::Mutex;
use protocol::{RunAccount, RunKey};
use slurm::{JobText, Slurm};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::{RunRow, Store, account};
use tokio::task::spawn_blocking;

/// Time between two AdminComments of a job, s; its end is always noted.
const COMMENT_S: f64 = 10.0;

/// How long the answer to the end of a run waits for its AdminComment: Slurm takes none of a job that is over.
const LAST_COMMENT: Duration = Duration::from_secs(3);

/// Where AdminComments are written, those of one run always at the same place, one after the other: a slow slurmctld does not
/// take all threads from those that answer.
static PLACES: [tokio::sync::Mutex<()>; 64] = [const { tokio::sync::Mutex::const_new(()) }; 64];

/// What is said of AdminComments that were not written: a user may send the end of a run again and again.
static UNWRITTEN: Lines = Lines::new();

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
    /// Runs whose end is being told.
    pub ending: Mutex<BTreeSet<RunKey>>,
}

impl Accounting {
    /// Counts a run that has ended, and tells Slurm's accounting its energy later, when the job is over there.
    pub(crate) fn ended(&self, run: &RunAccount) {
        self.sums.add(run);
        if run.end_s.is_some() && self.tells_energy {
            self.energy_tres.later(run);
        }
    }

    /// Notes in a run's AdminComment what it cost, at its end always, else now and then. Only the answer to its end waits for
    /// that, and not for long.
    pub(crate) async fn heard(self: Arc<Self>, key: RunKey, ends: bool) {
        if ends && !self.ending.lock().insert(key.clone()) {
            return;
        }
        let telling = tokio::spawn(async move {
            let told = self.clone().tell(key.clone(), ends).await;
            if ends {
                self.ending.lock().remove(&key);
            }
            match told {
                Err(e) if ends => {
                    if let Some(unlogged) = UNWRITTEN.take(now_s()) {
                        tracing::warn!(error = format!("{e:#}"), unlogged, "the AdminComment was not written");
                    }
                }
                Err(e) => tracing::debug!(error = format!("{e:#}"), "the AdminComment is written at the next change"),
                Ok(()) => {}
            }
        });
        if ends {
            let _ = tokio::time::timeout(LAST_COMMENT, telling).await;
        }
    }

    async fn tell(self: Arc<Self>, key: RunKey, ends: bool) -> Result<()> {
        if !self.is_due(&key) && !ends {
            return Ok(());
        }
        let place = &PLACES[key.run.bytes().map(usize::from).sum::<usize>() % PLACES.len()];
        // A run that goes on is read in its place, so that nothing older is written there after its end.
        let taken = if ends { None } else { Some(place.try_lock()?) };
        let reading = self.clone();
        let Some((run, owner)) = spawn_blocking(move || reading.read(&key, ends)).await?? else { return Ok(()) };
        self.users.command(now_s(), owner.uid)?;
        let place = match taken {
            Some(place) => place,
            None => place.lock().await,
        };
        let writing = spawn_blocking(move || {
            let _place = place;
            let slurm = if ends { self.slurm.clone() } else { self.slurm.when_idle() };
            self.comment(&slurm, &run, &owner)
        });
        writing.await?
    }

    /// Whether a run's AdminComment was not written a moment ago; notes that it is.
    fn is_due(&self, key: &RunKey) -> bool {
        let now_s = now_s();
        let mut commented = self.commented_s.lock();
        commented.retain(|_, at| now_s - *at < COMMENT_S);
        let is_due = !commented.contains_key(key);
        if is_due {
            commented.insert(key.clone(), now_s);
        }
        is_due
    }

    /// A run, and whose it is, if its job is its user's by Slurm's word; one that has ended is counted.
    fn read(&self, key: &RunKey, ends: bool) -> Result<Option<(RunAccount, RunRow)>> {
        let read = if ends { account::ended } else { account::brief };
        let run = read(self.reader.lock().connection(), key)?;
        if ends {
            self.ended(&run);
        }
        let owner = self.reader.lock().run(key)?.filter(|row| row.verified && row.job > 0);
        Ok(owner.filter(|_| run.trouble.is_empty()).map(|owner| (run, owner)))
    }

    /// Writes a run's AdminComment beside what the site wrote there.
    fn comment(&self, slurm: &Slurm, run: &RunAccount, owner: &RunRow) -> Result<()> {
        let Some(job) = slurm.job(owner.job)?.filter(|job| job.uid == owner.uid) else { return Ok(()) };
        let ours = serde_json::to_string(&account::summary(run))?;
        let Some(text) = comment::beside(&slurm.text(&job, JobText::AdminComment)?, &ours) else {
            bail!("job {}: the site's own AdminComment leaves no room", run.job);
        };
        let written = slurm.admin_comment(job.id, &text);
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

//! Finds out which waiting jobs asked for Joulepoint in a way that lets them be preempted.

use crate::choice::Unlisted;
use crate::error::Result;
use parking_lot::Mutex;
use slurm::{Job, JobText, Slurm};
use std::collections::BTreeMap;

/// Of how many waiting jobs it is found out in one look what they asked for.
pub(crate) const MOST_ASKED: usize = 8;

/// Most jobs of which it is remembered.
const MOST_KNOWN: usize = 10_000;

/// What the queue's listing leaves out of waiting jobs.
pub(crate) struct Suitable {
    slurm: Slurm,
    /// What the site says in place of users, by option.
    defaults: BTreeMap<String, String>,
    /// By job; nothing of those that cannot be chosen as borrowers.
    known: Mutex<BTreeMap<u32, Option<Unlisted>>>,
}

impl Suitable {
    pub(crate) fn new(slurm: Slurm, defaults: BTreeMap<String, String>) -> Suitable {
        Suitable { slurm, defaults, known: Mutex::default() }
    }

    /// What the listing leaves out of a waiting job that may be preempted; nothing of any other, or as long as that is not
    /// known. `asked` counts the jobs of which this look has found it out.
    pub(crate) fn unlisted(&self, job: &Job, asked: &mut usize) -> Result<Option<Unlisted>> {
        if let Some(known) = self.known.lock().get(&job.id) {
            return Ok(known.clone());
        }
        *asked += 1;
        if *asked > MOST_ASKED {
            return Ok(None);
        }
        // Accounting may learn of it a moment later.
        let Some(line) = self.slurm.submit_line(job.id)? else { return Ok(None) };
        let command = self.slurm.text(job, JobText::Command)?;
        let request = options::submitted(&line, &command, &self.slurm.batch_script(job.id)?);
        let settings = options::resolve(&request, &self.defaults);
        let unlisted = match settings.is_ok_and(|s| s.can_be_preempted()) {
            true => Some(Unlisted {
                excluded_nodes: self.slurm.excluded_nodes(job)?,
                has_burst_buffer: !self.slurm.text(job, JobText::BurstBuffer)?.trim().is_empty(),
            }),
            false => None,
        };
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        known.insert(job.id, unlisted.clone());
        Ok(unlisted)
    }
}

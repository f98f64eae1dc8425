//! In place of a loan, where nodes cannot leave the job: those that wait have their lowest CPU frequency.

use super::ports::{Lending, Market};
use crate::frequency::Frequency;
use crate::identity::Identity;
use config::Site;
use slurm::Slurm;
use std::collections::BTreeSet;

/// Keeps nodes, and slows those that wait.
pub struct Slow {
    /// Why they are not lent.
    pub why: String,
    /// Their frequency, if they may be slowed.
    pub frequency: Option<Frequency>,
}

/// Why nothing of this job can be lent here, if so; a broker that knows more may refuse yet.
pub fn hindrance(site: &Site, slurm: &Slurm, me: &Identity) -> Option<String> {
    let by_site = || site.lend.refusal(&me.partition, &me.account, &me.user);
    let by_slurm = || {
        let config = slurm.config().inspect_err(|e| tracing::warn!(%e, "Slurm does not say whether it resizes jobs"));
        slurm::resizing(&config.ok()?).err().map(str::to_string)
    };
    let by_job = || slurm.job(me.job?).ok().flatten()?.cannot_lend();
    by_site().or_else(by_slurm).or_else(by_job)
}

impl Slow {
    /// What the plan says of it.
    pub fn remark(&self) -> String {
        match self.frequency {
            Some(_) => format!("nodes that wait are not lent but have their lowest CPU frequency: {}", self.why),
            None => format!("nodes that wait are neither lent nor slowed: {}, and node.cpufreq is off", self.why),
        }
    }
}

impl Lending for Slow {
    fn market(&mut self, _: &[usize], _: &[String]) -> Result<Market, String> {
        Err(self.remark())
    }

    fn idle(&mut self, nodes: BTreeSet<String>) {
        self.frequency.iter().for_each(|f| f.hold(nodes.clone()));
    }

    fn stop(&mut self) {
        self.idle(BTreeSet::new());
    }
}

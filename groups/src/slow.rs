//! In place of a loan, where nodes cannot leave the job: those that wait have their lowest CPU frequency.

use config::Site;
use driver::groups::ports::{Lending, Market};
use job::frequency::Frequency;
use job::identity::Identity;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A Slurm that resizes jobs, and shows job 7.
    fn slurm(folder: &std::path::Path, job: &str) -> Slurm {
        let jobs = folder.join("jobs");
        fs::write(&jobs, format!("JobId=7 JobName=j UserId=alice(1000) JobState=RUNNING {job}\n")).unwrap();
        for (name, body) in [
            ("scontrol", "echo 'SchedulerParameters = permit_job_expansion'\n".to_string()),
            ("squeue", slurm::example::squeue(&jobs)),
        ] {
            fs::write(folder.join(name), format!("#!/bin/sh\n{body}")).unwrap();
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Slurm::new(Some(folder.to_path_buf()))
    }

    #[test]
    fn what_can_never_be_lent_is_known_before_anything_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let me = Identity { job: Some(7), partition: "gpu".into(), user: "alice".into(), ..Identity::default() };
        let lends = "OverSubscribe=NO Requeue=1";
        for (lists, job, expected) in [
            ("", lends, ""),
            ("mode = \"off\"", lends, "lend.mode"),
            ("not_partitions = [\"gpu\"]", lends, "partition gpu"),
            ("users = [\"bob\"]", lends, "user alice"),
            ("", "OverSubscribe=NO Requeue=0", "may not be requeued"),
            ("", "OverSubscribe=OK Requeue=1", "--exclusive"),
        ] {
            let site = config::parse(&format!("[lend]\n{lists}\n"), "test").unwrap();
            let why = hindrance(&site, &slurm(folder.path(), job), &me).unwrap_or_default();
            assert!(why.contains(expected) && why.is_empty() == expected.is_empty(), "{lists} {job}: {why}");
        }
    }
}

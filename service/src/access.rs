//! Who may see and steer all runs: root, SlurmUser, Slurm's operators and administrators, and whom the site names.

use parking_lot::Mutex;
use slurm::Slurm;
use std::collections::BTreeSet;

/// The operators, as they were known at the last look at Slurm.
pub struct Access {
    named: BTreeSet<u32>,
    of_slurm: Mutex<OfSlurm>,
}

#[derive(Default)]
struct OfSlurm {
    slurm_user: Option<u32>,
    admins: BTreeSet<u32>,
}

impl Access {
    /// Access for root and those whom `controller.operators` names.
    pub fn new(names: &[String]) -> Access {
        let known = |name: &String| {
            let uid = uid(name);
            if uid.is_none() {
                tracing::warn!(name, "controller.operators names a user who is not known here");
            }
            uid
        };
        Access { named: names.iter().filter_map(known).chain([0]).collect(), of_slurm: Mutex::default() }
    }

    /// Whether somebody may see and steer the runs of others.
    pub fn is_operator(&self, uid: u32) -> bool {
        let of_slurm = self.of_slurm.lock();
        self.named.contains(&uid) || of_slurm.slurm_user == Some(uid) || of_slurm.admins.contains(&uid)
    }

    /// Whether somebody may see and steer the runs of `owner`.
    pub fn may(&self, uid: u32, owner: u32) -> bool {
        uid == owner || self.is_operator(uid)
    }

    /// Takes in `SlurmUser` as `scontrol show config` writes it: `slurm(64030)`.
    pub fn slurm_user(&self, text: &str) {
        let uid = text.rsplit_once('(').and_then(|(_, uid)| uid.trim_end_matches(')').parse().ok());
        self.of_slurm.lock().slurm_user = uid;
    }

    /// Asks accounting for its operators and administrators; without an answer the last one holds.
    pub fn refresh(&self, slurm: &Slurm) {
        match slurm.operators() {
            Ok(names) => self.of_slurm.lock().admins = names.iter().filter_map(|n| uid(n)).collect(),
            Err(e) => tracing::debug!(%e, "accounting does not tell its operators"),
        }
    }
}

fn uid(name: &str) -> Option<u32> {
    nix::unistd::User::from_name(name).ok().flatten().map(|u| u.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_operators_and_slurms_user_may_and_nobody_else() {
        let access = Access::new(&["daemon".into(), "nobody-of-this-name".into()]);
        let daemon = uid("daemon").unwrap();
        access.slurm_user("slurm(64030)");
        for (who, owner, may) in
            [(7, 7, true), (8, 7, false), (0, 7, true), (daemon, 7, true), (64030, 7, true), (64031, 7, false)]
        {
            assert_eq!(access.may(who, owner), may, "{who} on a run of {owner}");
        }
        access.slurm_user("(absent)");
        assert!(!access.is_operator(64030));
    }
}

//! `[lend]`: which idle nodes of a recovering run other jobs may have, and within which bounds.

use protocol::LoanMode;
use serde::Deserialize;

/// `[lend]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Lend {
    /// How nodes are lent.
    pub mode: LoanMode,
    /// Partitions whose jobs lend; all if empty.
    pub partitions: Vec<String>,
    /// Accounts whose jobs lend; all if empty.
    pub accounts: Vec<String>,
    /// Users whose jobs lend; all if empty.
    pub users: Vec<String>,
    /// Partitions whose jobs do not lend.
    pub not_partitions: Vec<String>,
    /// Accounts whose jobs do not lend.
    pub not_accounts: Vec<String>,
    /// Users whose jobs do not lend.
    pub not_users: Vec<String>,
    /// The shortest time for which nodes are lent, s.
    pub shortest_s: f64,
    /// The longest, s.
    pub longest_s: f64,
    /// Most loans of a run in 24 hours.
    pub loans_per_run_and_day: u32,
    /// Most node-seconds lent by all runs in 24 hours.
    pub node_seconds_per_day: f64,
    /// How late a borrower, Slurm or the lender may be before the loan is given up, s.
    pub patience_s: f64,
}

impl Lend {
    /// Why this site lends no nodes of such a job; nothing if it does.
    pub fn refusal(&self, partition: &str, account: &str, user: &str) -> Option<String> {
        if self.mode == LoanMode::Off {
            return Some("this site lends no nodes (lend.mode = \"off\")".into());
        }
        let named = |list: &[String], name: &str| list.iter().any(|n| n == name);
        let lists = [
            ("partition", partition, &self.partitions, &self.not_partitions),
            ("account", account, &self.accounts, &self.not_accounts),
            ("user", user, &self.users, &self.not_users),
        ];
        lists.into_iter().find_map(|(what, name, only, never)| {
            let barred = named(never, name) || !only.is_empty() && !named(only, name);
            barred.then(|| format!("this site lends no nodes of {what} {name} (lend.{what}s, lend.not_{what}s)"))
        })
    }
}

impl Default for Lend {
    fn default() -> Self {
        Lend {
            mode: LoanMode::Window,
            partitions: Vec::new(),
            accounts: Vec::new(),
            users: Vec::new(),
            not_partitions: Vec::new(),
            not_accounts: Vec::new(),
            not_users: Vec::new(),
            shortest_s: 60.0,
            longest_s: 86_400.0,
            loans_per_run_and_day: 24,
            node_seconds_per_day: 86_400_000.0,
            patience_s: 300.0,
        }
    }
}

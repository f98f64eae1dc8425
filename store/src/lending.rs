//! Keeps loans as the broker drives them, each with its state.

use crate::apply;
use crate::error::{At, Result, understood};
use crate::store::Store;
use crate::value::params;
use protocol::{Loan, LoanAccount, RunKey};

impl Store {
    /// Notes a loan that has begun, or what has become of it.
    pub fn note_loan(&mut self, key: &RunKey, loan: &LoanAccount) -> Result<()> {
        apply::lent(self.connection(), key, loan)
    }

    /// Writes a loan's state, and what of it belongs into the run's account, in one transaction.
    ///
    /// # Errors
    /// What the database says; nothing is changed then.
    pub fn save_lending(&mut self, loan: &Loan) -> Result<()> {
        let c = self.connection();
        let json = serde_json::to_string(loan)?;
        c.transaction(|| {
            c.execute(
                "INSERT INTO lending (id, cluster, run, uid, state, asked_s, json) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                 ON CONFLICT (id) DO UPDATE SET state = excluded.state, json = excluded.json",
                params![loan.id, loan.key.cluster, loan.key.run, loan.uid, loan.state.as_str(), loan.asked_s, json],
            )?;
            accounts(loan).iter().try_for_each(|account| apply::lent(c, &loan.key, account))
        })
    }

    /// A loan.
    pub fn lending(&self, id: &str) -> Result<Option<Loan>> {
        let json: Option<String> =
            self.connection().query_optional("SELECT json FROM lending WHERE id = ?1", params![id], |r| r.get(0))?;
        json.map(|j| serde_json::from_str::<Loan>(&j).at(|| format!("a loan in the store: {j}"))).transpose()
    }

    /// Loans asked for since a moment, and those of before that are not over; oldest first. One that is not understood is left
    /// out, and stays as it is for a version that understands it.
    pub fn lendings(&self, since_s: f64) -> Result<Vec<Loan>> {
        let sql = "SELECT json FROM lending WHERE asked_s >= ?1 OR state NOT IN ('closed', 'failed') ORDER BY asked_s";
        let rows = self.connection().query_map(sql, params![since_s], |r| r.get::<String>(0))?;
        Ok(rows.iter().filter_map(|json| understood("a loan", json)).collect())
    }
}

/// Each borrower's time on each node; a node to which nobody came is lent to nobody, once it is back.
fn accounts(loan: &Loan) -> Vec<LoanAccount> {
    let stay = |s: &protocol::Stay| LoanAccount {
        node: s.node.clone(),
        borrower: Some(s.job),
        start_s: s.start_s,
        end_s: s.end_s,
        joules: s.joules,
    };
    let mut accounts: Vec<LoanAccount> = loan.stays.iter().map(stay).collect();
    if let (Some(start_s), Some(_)) = (loan.lent_s, loan.back_s) {
        let empty = loan.nodes.iter().filter(|n| !loan.stays.iter().any(|s| s.node == **n));
        accounts.extend(empty.map(|node| LoanAccount {
            node: node.clone(),
            borrower: None,
            start_s,
            end_s: loan.back_s,
            joules: None,
        }));
    }
    accounts
}

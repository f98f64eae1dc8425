//! What is kept beside a run's account: its decisions and its loans.

use super::{Store, params};
use anyhow::Result;
use protocol::RunKey;

/// What policy decided for a run, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// When.
    pub at_s: f64,
    /// What.
    pub action: String,
    /// Why.
    pub reason: String,
    /// Checkpoint interval from then on, s.
    pub interval_s: f64,
}

/// A node of a run that was lent to another job.
#[derive(Clone, Debug, PartialEq)]
pub struct Loan {
    /// Node name.
    pub node: String,
    /// Slurm job id of the borrower; absent while nobody has taken it.
    pub borrower: Option<u32>,
    /// When it was given away.
    pub start_s: f64,
    /// When it was back; absent while it is away.
    pub end_s: Option<f64>,
    /// Energy that it used meanwhile, which is the borrower's, J; absent if nothing could be read.
    pub joules: Option<f64>,
}

impl Store {
    /// All decisions for a run, in their order.
    ///
    /// # Errors
    /// What the database says.
    pub fn decisions(&self, key: &RunKey) -> Result<Vec<Decision>> {
        self.connection()
            .prepare_cached(
                "SELECT at_s, action, reason, interval_s FROM decisions WHERE cluster = ?1 AND run = ?2 ORDER BY id",
            )?
            .query_map(params![key.cluster, key.run], |r| {
                Ok(Decision { at_s: r.get(0)?, action: r.get(1)?, reason: r.get(2)?, interval_s: r.get(3)? })
            })?
            .collect()
    }

    /// Notes a loan, or what has become of it: it is known by its run, node and beginning.
    ///
    /// # Errors
    /// What the database says.
    pub fn note_loan(&mut self, key: &RunKey, loan: &Loan) -> Result<()> {
        self.connection()
            .prepare_cached(
                "INSERT INTO loans (cluster, run, node, borrower, start_s, end_s, joules)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (cluster, run, node, start_s) DO UPDATE SET
                 borrower = excluded.borrower, end_s = excluded.end_s, joules = excluded.joules",
            )?
            .execute(params![key.cluster, key.run, loan.node, loan.borrower, loan.start_s, loan.end_s, loan.joules])?;
        Ok(())
    }

    /// All loans of a run, oldest first.
    ///
    /// # Errors
    /// What the database says.
    pub fn loans(&self, key: &RunKey) -> Result<Vec<Loan>> {
        self.connection()
            .prepare_cached(
                "SELECT node, borrower, start_s, end_s, joules FROM loans
                 WHERE cluster = ?1 AND run = ?2 ORDER BY start_s, node",
            )?
            .query_map(params![key.cluster, key.run], |r| {
                Ok(Loan {
                    node: r.get(0)?,
                    borrower: r.get(1)?,
                    start_s: r.get(2)?,
                    end_s: r.get(3)?,
                    joules: r.get(4)?,
                })
            })?
            .collect()
    }
}

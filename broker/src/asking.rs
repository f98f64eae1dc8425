//! What runs ask of the broker: a loan, another return, and what waits in the queue.

use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::listing::waiting;
use crate::rules::{self, Ask, DAY_S};
use crate::seen::{PREFIX, now_s};
use crate::suitable::MOST_ASKED;
use protocol::{Loan, LoanMode, LoanRequest, LoanState, Queue};
use slurm::{Job, JobText};
use store::OpenRun;

/// Most refusals that are remembered.
const MOST_REFUSED: usize = 10_000;

impl Broker {
    /// A loan, open or over.
    ///
    /// # Errors
    /// What the store says.
    pub fn loan(&self, id: &str) -> Result<Option<Loan>> {
        match self.get(id) {
            Some(loan) => Ok(Some(loan)),
            None => Ok(self.readers.free().lending(id)?),
        }
    }

    /// What waits for so many CPUs of a partition.
    ///
    /// # Errors
    /// What Slurm says.
    pub fn queue(&self, partition: &str, cpus: u32) -> Result<Queue> {
        let jobs = self.listing.jobs(&self.slurm)?;
        let waiting = waiting(&jobs, partition, cpus);
        let shortest_s = waiting.iter().filter_map(|j| j.time_limit_s).min().map(|s| s as f64);
        let is_short = shortest_s.is_some_and(|s| s <= self.site.shortest_s);
        let may = |j: &&&Job| j.batch && j.requeue && j.alone && j.time_limit_s.is_some();
        let preempts = self.site.mode == LoanMode::Preempt && !is_short;
        let mut long = waiting.iter().filter(|_| preempts).filter(may).take(MOST_ASKED);
        let mut asked = 0;
        let suits = long.any(|j| self.suitable.unlisted(j, &mut asked).is_ok_and(|unlisted| unlisted.is_some()));
        Ok(Queue { shortest_s: if suits { Some(self.site.shortest_s) } else { shortest_s } })
    }

    /// Allows a loan, on disk, or says why not. What was refused stays so: the same question, asked before and only heard
    /// now, is refused as well.
    ///
    /// # Errors
    /// Why not.
    pub fn allow(&self, uid: u32, run: OpenRun, request: &LoanRequest) -> Result<Loan> {
        let _one_at_a_time = self.asking.lock();
        if let Some(loan) = self.loan(&request.id)? {
            return Ok(loan);
        }
        let asked = (uid, request.id.clone());
        if let Some(why) = self.refused.lock().get(&asked) {
            return Err(Error::Refused(why.clone()));
        }
        let judged = self.judge(uid, run, request);
        if let Err(Error::Refused(why)) = &judged {
            let mut refused = self.refused.lock();
            if refused.len() >= MOST_REFUSED {
                refused.clear();
            }
            refused.insert(asked, why.clone());
        }
        judged
    }

    fn judge(&self, uid: u32, run: OpenRun, request: &LoanRequest) -> Result<Loan> {
        let refused = |text: String| Error::Refused(text);
        let job = self.slurm.job(run.job)?.filter(|j| j.uid == run.uid);
        let job = job.ok_or_else(|| refused(format!("Slurm does not know job {}", run.job)))?;
        if uid != job.uid {
            return Err(refused(format!(
                "only {} may lend nodes of job {}: they come back to who asks",
                job.user, job.id
            )));
        }
        let name = format!("{}{}", PREFIX, request.id);
        let reservations = self.slurm.reservations()?;
        if reservations.iter().any(|r| r.name == name) {
            return Err(refused(format!("reservation {name} is there already, and not ours: ask with another id")));
        }
        let account = self.slurm.text(&job, JobText::Account)?;
        let now_s = now_s();
        let loans = self.readers.free().lendings(now_s - DAY_S)?;
        let ask = Ask {
            now_s,
            job: &job,
            account: &account,
            nodes: &request.nodes,
            return_s: request.return_s,
            steps: &self.slurm.steps(job.id)?,
            reservations: &reservations,
            slurm: &self.slurm.config()?,
            loans: &loans,
        };
        if let Some(reason) = rules::refusal(&self.site, &ask) {
            tracing::info!(job = job.id, nodes = ?request.nodes, reason, "a loan is refused");
            return Err(refused(reason));
        }
        let loan = Loan {
            id: request.id.clone(),
            name,
            key: run.key,
            job: job.id,
            restart_count: job.restarts,
            uid: job.uid,
            user: job.user,
            account,
            mode: self.site.mode,
            state: LoanState::Asked,
            state_s: now_s,
            reason: request.reason.chars().take(300).collect(),
            nodes: request.nodes.clone(),
            kept: job.nodes.into_iter().filter(|n| !request.nodes.contains(n)).collect(),
            asked_s: now_s,
            return_s: request.return_s,
            promised_s: request.return_s,
            lent_s: None,
            back_s: None,
            back: Vec::new(),
            time_limit_s: job.time_limit_s,
            idle_w: self.idle_w,
            stays: Vec::new(),
            chosen: Vec::new(),
        };
        if let Err(e) = self.store.lock().save_lending(&loan) {
            self.unsure.lock().insert(loan.id);
            return Err(e.into());
        }
        tracing::info!(loan = loan.id, job = loan.job, nodes = ?loan.nodes, reason = loan.reason, "a loan begins");
        self.open.lock().insert(loan.id.clone(), loan.clone());
        self.ring();
        Ok(loan)
    }

    /// Moves the expected return of a loan that is still out.
    ///
    /// # Errors
    /// That it is later than the site allows, or what the store says.
    pub fn expect_return(&self, id: &str, return_s: f64) -> Result<()> {
        let from_s = self.get(id).map_or_else(now_s, |l| l.lent_s.unwrap_or(l.asked_s));
        let latest_s = from_s + self.site.longest_s;
        if !return_s.is_finite() || return_s > latest_s {
            return Err(Error::LateReturn { return_s, longest_s: self.site.longest_s });
        }
        let early = |l: &Loan| matches!(l.state, LoanState::Asked | LoanState::Shrinking | LoanState::Lent);
        if self.get(id).as_ref().is_some_and(early) {
            self.change(id, |l| {
                l.return_s = return_s;
                l.promised_s = l.promised_s.max(return_s);
            })?;
        }
        Ok(())
    }
}

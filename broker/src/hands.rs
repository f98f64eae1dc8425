//! Carries out what a loan and its borrowers go through next, and notes who wanted it.

use crate::chosen::Action;
use crate::error::{Error, Result};
use crate::machine::{self, Act, World};
use crate::ports::Ports;
use crate::seen::now_s;
use audit::By;
use parking_lot::Mutex;
use protocol::{Chosen, Loan, LoanState, Order, Verb};
use slurm::{Slurm, Window};
use std::sync::Arc;
use store::{OpenRun, Store};

/// What acts are carried out with.
pub(crate) struct Hands {
    pub slurm: Slurm,
    pub reader: Arc<Mutex<Store>>,
    pub ports: Arc<dyn Ports>,
    /// How late others may be, s.
    pub patience_s: f64,
}

impl Hands {
    /// Carries an act out, and notes who wanted it.
    pub(crate) fn carry_out(&self, loan: &Loan, world: &World, act: &Act) -> Result<()> {
        let of = match act {
            Act::Reserve | Act::MoveWindow | Act::Admit | Act::Unreserve => audit::Act::Reservation,
            Act::Shrink | Act::Merge { .. } | Act::Lengthen { .. } => audit::Act::Resize,
            Act::EndHelper { .. } => audit::Act::Cancel,
            Act::Requeue => audit::Act::Requeue,
            Act::Borrower { action, .. } => action.audited(),
        };
        let job = if let Act::Borrower { job, .. } = act { *job } else { loan.job };
        let why = format!("loan {}: {act:?}", loan.id);
        audit::note(By::Owner(loan.uid), of, (job, ""), &why, self.act(loan, world, act))
    }

    fn act(&self, loan: &Loan, world: &World, act: &Act) -> Result<()> {
        let (slurm, name, now_s) = (&self.slurm, &loan.name, now_s());
        let users: &[&str] = if loan.state == LoanState::Returning { &["root", &loan.user] } else { &["root"] };
        let start_s = if loan.state == LoanState::Returning { 0.0 } else { machine::due_s(loan, world) };
        let begun_s = world.reservation.as_ref().map(|r| r.start_s).filter(|begun_s| *begun_s <= now_s);
        let has_begun = begun_s.is_some();
        // Slurm counts a duration from the beginning, also of one that has begun.
        let from_s = begun_s.unwrap_or(start_s.max(now_s));
        let minutes = machine::kept_min(now_s, from_s, loan, world, self.patience_s);
        let window = Window { start_s: Some(start_s), minutes, users };
        match act {
            Act::Reserve => slurm.reserve(name, &loan.nodes, window)?,
            // One that has begun cannot be moved: it is removed, and made again at the next look.
            Act::MoveWindow if has_begun => slurm.unreserve(name)?,
            Act::Admit if has_begun => slurm.move_reservation(name, Window { start_s: None, ..window })?,
            Act::MoveWindow | Act::Admit => slurm.move_reservation(name, window)?,
            Act::Shrink => slurm.shrink(loan.job, &loan.kept)?,
            Act::Merge { helper } => slurm.merge(*helper)?,
            Act::Lengthen { minutes } => slurm.set_time_limit(loan.job, *minutes)?,
            Act::EndHelper { helper } => slurm.cancel(*helper)?,
            Act::Unreserve => slurm.unreserve(name)?,
            Act::Requeue => {
                let runs = self.reader.lock().open_runs()?;
                let hit: Vec<_> = runs.into_iter().filter(|r| r.key == loan.key).collect();
                self.ports.requeueing(&hit);
                slurm.requeue(loan.job)?;
            }
            Act::Borrower { job, action } => self.do_to_chosen(loan, world, *job, *action)?,
        }
        Ok(())
    }

    /// Does something to a chosen borrower.
    fn do_to_chosen(&self, loan: &Loan, world: &World, job: u32, action: Action) -> Result<()> {
        let slurm = &self.slurm;
        let chosen = loan.chosen.iter().find(|c| c.job == job).ok_or(Error::NotChosen)?;
        match action {
            Action::Call => {
                let limit_s = world.chosen.get(&job).and_then(|s| s.job.as_ref()?.time_limit_s).unwrap_or(0);
                // Slurm ends what still runs in a reservation when that ends.
                let minutes = u32::try_from(limit_s / 60).unwrap_or(u32::MAX).saturating_add(2);
                let window = Window { start_s: Some(0.0), minutes, users: &[&chosen.user] };
                slurm.reserve(&chosen.name, &chosen.nodes, window)?;
            }
            Action::CallIn => slurm.call_into(job, &chosen.name)?,
            Action::CallOut => slurm.call_out(job)?,
            Action::Dismiss => slurm.unreserve(&chosen.name)?,
            Action::Preempt => self.preempt(loan, chosen)?,
            Action::PutBack => {
                let runs = self.reader.lock().open_runs()?;
                let hit: Vec<_> = runs.into_iter().filter(|r| is_of(r, chosen)).collect();
                self.ports.requeueing(&hit);
                slurm.requeue(job)?;
            }
        }
        Ok(())
    }

    /// Orders a borrower's wrapper to checkpoint and to go; the same again is the same order.
    fn preempt(&self, loan: &Loan, chosen: &Chosen) -> Result<()> {
        let runs = self.reader.lock().open_runs()?;
        let Some(run) = runs.into_iter().find(|r| is_of(r, chosen)) else { return Ok(()) };
        let order = Order { id: chosen.name.clone(), verb: Verb::Preempt, by: loan.id.clone(), begin_s: None };
        self.ports.order(&run, order).map_err(Error::NotOrdered)
    }
}

/// Whether a run is the one of the chosen life of a job.
pub(crate) fn is_of(run: &OpenRun, chosen: &Chosen) -> bool {
    let same = (run.job, run.uid, run.restart_count) == (chosen.job, chosen.uid, chosen.restart_count);
    same && run.record_state == "running"
}

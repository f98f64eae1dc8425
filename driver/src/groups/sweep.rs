//! When groups checkpoint: each at its own interval and one at a time; all at once when the run is to leave or is asked.

use super::group::{Making, State};
use super::pace::LOOK_S;
use super::ports::NoLine;
use super::run::Groups;
use super::under_way::{Sweep, Then};
use crate::ledger::Used;
use crate::orders::leaving;
use crate::ports::{NotSaved, Saved};
use crate::setup::{Outcome, RETRY_PAUSE_S};
use policy::decide::{Action, Situation, Why, decide};
use protection::Committed;
use protocol::{Event, Manifest, Order, OrderState, OrderedCheckpoint, Phase};
use std::path::PathBuf;

impl Groups<'_> {
    /// Whether the programs can be asked for a checkpoint.
    pub(super) fn on_demand(&self) -> bool {
        self.ports.engines.iter().all(|e| e.on_demand())
    }

    /// Asks policy for each group, begins what it says, and tells until when to wait.
    pub(super) fn act(&mut self) -> f64 {
        let judged_s = self.judge();
        let now_s = self.ports.clock.now_s();
        let mut until_s = judged_s.min(self.next_cut_s);
        if self.is_coupled() {
            self.follow();
            let caught_up = self.all.iter().map(|g| g.caught_up_s).filter(|at| *at > now_s);
            until_s = caught_up.map(|at| at.min(now_s + LOOK_S)).fold(until_s, f64::min);
            self.phase_all();
            self.consider_loan();
        }
        self.overdue();
        let told = self.guard.overdue(now_s);
        self.note(told.into_iter().collect());
        until_s = until_s.min(self.guard.due_s());
        if let Some(by) = self.desk.disabled_by() {
            let answers = self.desk.fail_waiting(&format!("checkpoints are disabled by {by}"));
            self.note(answers);
        } else if self.desk.is_waiting() && self.sweep.is_none() {
            let orders = self.desk.take();
            let vacate = orders.iter().find_map(leaving);
            let then = vacate.map_or(Then::Stay, |(kind, reason)| Then::Vacate { kind, reason });
            self.begin_sweep(orders, then, "a person asked");
        }
        if self.sweep.is_some() {
            self.sweep_on();
        } else if self.desk.disabled_by().is_none() && self.on_demand() {
            for group in 0..self.all.len() {
                until_s = until_s.min(self.consider(group));
            }
        }
        let limit_s = self.setup.checkpoint_limit_s;
        let running = self.all.iter().filter_map(|g| g.checkpointing.as_ref().map(|c| c.begun_s + limit_s));
        // What is over by now is dealt with before the next wait.
        if self.sweep.as_ref().is_some_and(|s| s.pending.is_empty()) {
            return self.ports.clock.now_s();
        }
        running.fold(until_s, f64::min)
    }

    /// Asks policy about one group that works; only one group checkpoints at a time.
    fn consider(&mut self, group: usize) -> f64 {
        let now_s = self.ports.clock.now_s();
        let g = &self.all[group];
        if !g.works() || g.checkpointing.is_some() || self.waits(group) {
            return f64::INFINITY;
        }
        let decision = decide(&Situation {
            now_s,
            last_line_s: g.paced_s,
            interval_s: g.adaptation.interval_s(),
            checkpoint_s: g.adaptation.checkpoint_s(),
            end_s: self.limit.end_s,
            margin_s: self.setup.margin_s,
            remaining_work_s: None,
            restart_s: g.adaptation.restart_s(),
            mtbf_s: g.adaptation.mtbf_s(now_s),
            final_line_taken: g.final_line_taken,
        });
        let not_before_s = g.not_before_s;
        match decision.action {
            Action::Checkpoint(Why::BeforeEnd) if self.end_has_moved(now_s, true) => now_s,
            Action::Wait { .. } | Action::Rest if self.limit.is_over(now_s) && self.end_has_moved(now_s, false) => {
                now_s
            }
            Action::Checkpoint(Why::BeforeEnd) => {
                self.all.iter_mut().for_each(|g| g.final_line_taken = true);
                let then = if self.setup.requeue_at_end { Then::BeforeEnd } else { Then::Stay };
                self.begin_sweep(Vec::new(), then, &decision.reason);
                f64::INFINITY
            }
            Action::Checkpoint(_) if now_s < not_before_s => not_before_s,
            // The end of the one that is on its way wakes this one.
            Action::Checkpoint(_) if self.all.iter().any(|g| g.checkpointing.is_some()) => f64::INFINITY,
            Action::Checkpoint(_) if self.line_is_due() => {
                let reason = format!("one line, in case that the program does not repeat itself: {}", decision.reason);
                self.begin_sweep(Vec::new(), Then::Stay, &reason);
                f64::INFINITY
            }
            // Only a line counts, and the change that lets all groups make one wakes this one.
            Action::Checkpoint(_) if self.is_together() => f64::INFINITY,
            Action::Checkpoint(_) if self.end_has_moved(now_s, false) => now_s,
            Action::Checkpoint(_) => {
                self.begin(group, &decision.reason);
                f64::INFINITY
            }
            Action::Wait { until_s } => until_s,
            Action::Rest => f64::INFINITY,
        }
    }

    /// Whether the time limit was changed, by Slurm's word.
    fn end_has_moved(&mut self, now_s: f64, is_near: bool) -> bool {
        let has_moved = self.limit.has_moved(now_s, is_near, || self.ports.cluster.end_s());
        self.all.iter_mut().for_each(|g| g.final_line_taken &= !has_moved);
        has_moved
    }

    /// Begins a checkpoint of all groups that work; one for a requeue takes the place of any other.
    pub(super) fn begin_sweep(&mut self, orders: Vec<Order>, then: Then, reason: &str) {
        if let Some(sweep) = &mut self.sweep {
            if then > sweep.then {
                sweep.then = then;
            }
            sweep.orders.extend(orders);
            return;
        }
        let may = self.on_demand() && self.desk.disabled_by().is_none();
        let pending = self.all.iter().filter(|g| may && g.works()).map(|g| g.number).collect();
        let what = if then == Then::Stay { "checkpoint all groups" } else { "checkpoint all groups and requeue" };
        self.decided(what, reason);
        let aside = self.all.iter().find(|g| matches!(g.state, State::Parking | State::Parked));
        let failed = aside.map(|g| format!("group {} is put aside while its nodes are lent; try later", g.number));
        let mut sweep = Sweep { pending, orders, then, failed, made: None, line: None };
        if may {
            self.begin_line(&mut sweep);
        }
        self.sweep = Some(sweep);
    }

    fn sweep_on(&mut self) {
        let Some(sweep) = &self.sweep else { return };
        let next: Vec<usize> = sweep.pending.iter().copied().filter(|g| self.all[*g].checkpointing.is_none()).collect();
        for group in next {
            if self.all[group].works() {
                self.begin(group, "all groups checkpoint");
            } else {
                self.miss(group, "its program is not at work");
            }
        }
    }

    /// A group will not be part of the sweep.
    fn miss(&mut self, group: usize, reason: &str) {
        if let Some(sweep) = &mut self.sweep
            && sweep.pending.remove(&group)
        {
            sweep.failed.get_or_insert(format!("group {group}: {reason}"));
            if sweep.line.is_some() {
                self.ports.relays.disperse(NoLine::Missing(group, reason.to_string()));
            }
        }
    }

    /// Ends a sweep that is through.
    pub(super) fn swept(&mut self) -> Option<Outcome> {
        let mut sweep = self.sweep.take_if(|s| s.pending.is_empty())?;
        if let Some(number) = sweep.line {
            self.draw_line(number, &mut sweep);
        }
        let mut events = Vec::new();
        // A vacated run is requeued only from checkpoints that all groups have.
        let leaves = match (&sweep.then, &sweep.failed) {
            (Then::Stay, _) | (Then::Vacate { .. }, Some(_)) => false,
            (Then::Vacate { .. }, None) => sweep.made.is_some(),
            (Then::BeforeEnd | Then::Short, _) => true,
        };
        for order in &sweep.orders {
            events.push(match (&sweep.failed, &sweep.made) {
                (None, Some(made)) => {
                    let then = if leaving(order).is_some() { "; the job is requeued" } else { "" };
                    let text = format!("all groups have checkpointed{then}");
                    self.desk.answer(order, OrderState::Done, &text, Some(made.clone()))
                }
                (Some(reason), _) => self.desk.answer(order, OrderState::Failed, reason, None),
                (None, None) => self.desk.answer(order, OrderState::Failed, "no group is at work", None),
            });
        }
        self.note(events);
        leaves.then(|| self.requeue(&sweep.then))
    }

    /// Asks the engine of a group for a checkpoint.
    pub(super) fn begin(&mut self, group: usize, reason: &str) {
        match self.ports.lines.room(group) {
            Ok((number, folder)) => {
                self.together.count();
                self.begin_in(group, number, folder, reason);
            }
            Err(e) => {
                self.is_superseded |= e.is_superseded();
                self.failed_checkpoint(group, format!("it cannot be begun: {e}"));
            }
        }
    }

    pub(super) fn begin_in(&mut self, group: usize, number: u64, folder: PathBuf, reason: &str) {
        self.decided("checkpoint", &format!("group {group}: {reason}"));
        self.cut(group, Phase::Checkpoint);
        let begun_s = self.ports.clock.now_s();
        self.all[group].checkpointing =
            Some(Making { number, folder: folder.clone(), begun_s, goes_on: false, used: Used::default() });
        self.ports.engines[group].begin(folder);
    }

    /// A program wrote a checkpoint by itself.
    pub(super) fn appeared(&mut self, group: usize) {
        if self.all[group].works() && self.all[group].checkpointing.is_none() && self.desk.disabled_by().is_none() {
            self.begin(group, "the program wrote a checkpoint");
        }
    }

    /// The program of a group works while its checkpoint is brought to where it stays.
    pub(super) fn goes_on(&mut self, group: usize) {
        let Some(running) = &mut self.all[group].checkpointing else { return };
        running.goes_on = true;
        self.phase(group);
    }

    /// The engine of a group has answered.
    pub(super) fn checkpointed(&mut self, group: usize, result: Result<Saved, NotSaved>) {
        let Some(running) = self.all[group].checkpointing.take() else { return };
        let outcome = result.and_then(|saved| self.commit(group, &running, saved).map_err(NotSaved::from));
        self.phase(group);
        match outcome {
            Ok(made) => {
                let number = made.number;
                if let Some(sweep) = &mut self.sweep
                    && sweep.pending.remove(&group)
                {
                    sweep.made = Some(made);
                }
                self.has_checkpoint(group, number);
            }
            Err(reason) => self.failed_checkpoint(group, reason),
        }
    }

    /// Makes a checkpoint complete and learns from what it cost.
    fn commit(
        &mut self,
        group: usize,
        running: &Making,
        Saved { files, still_s, .. }: Saved,
    ) -> Result<OrderedCheckpoint, String> {
        let cut = match running.goes_on {
            true => {
                let next = self.all[group].phase(self.waits(group));
                self.cut(group, next)
            }
            false => self.phase(group),
        };
        let used = running.used.and(&cut);
        let ended_s = self.ports.clock.now_s();
        let manifest = Manifest {
            version: protocol::VERSION,
            number: running.number,
            begun_s: running.begun_s,
            ended_s,
            joules: used.joules(),
            bytes: files.iter().map(|f| f.bytes).sum(),
            step: String::new(),
            engine: self.ports.engines[group].name().to_string(),
            holder: None,
            files,
        };
        let committed = self.ports.lines.commit(group, &manifest);
        self.is_superseded |= committed.as_ref().is_err_and(run::Error::is_superseded);
        committed.map_err(|e| e.to_string())?;
        self.unserved = 0;
        let g = &mut self.all[group];
        (g.paced_s, g.crashes, g.refusals) = (ended_s, 0, 0);
        (g.of_image, g.image) = (false, None);
        g.stood_still = still_s.map(|still_s| (running.number, still_s));
        let learned = g.adaptation.checkpointed(ended_s, ended_s - running.begun_s, used.power_w());
        let written_bytes = Some(manifest.written_bytes());
        let Manifest { number, begun_s, bytes, joules, .. } = manifest;
        self.note_in(group, Event::Committed { number, begun_s, ended_s, bytes, written_bytes, joules, still_s });
        if let Some(reason) = learned {
            self.decided("interval", &format!("group {group}: {reason}"));
        }
        let adaptation = &self.all[group].adaptation;
        let (interval_s, checkpoint_s) = (adaptation.interval_s(), adaptation.checkpoint_s());
        let told = self.guard.committed(Committed { group, number, begun_s, interval_s, checkpoint_s });
        self.note(told.into_iter().collect());
        let path = running.folder.to_string_lossy().into_owned();
        Ok(OrderedCheckpoint { number, path, seconds: ended_s - begun_s, bytes, joules })
    }

    pub(super) fn failed_checkpoint(&mut self, group: usize, why: impl Into<NotSaved>) {
        let now_s = self.ports.clock.now_s();
        let g = &mut self.all[group];
        g.not_before_s = now_s + RETRY_PAUSE_S.max(g.adaptation.checkpoint_s());
        let why = why.into();
        let reason = why.to_string();
        tracing::info!(group, %reason, "checkpoint failed");
        let told = self.guard.failed(now_s, Some(group), &reason, why.is_end());
        self.note(told.into_iter().collect());
        self.miss(group, &reason);
        if self.all[group].state == State::Parking {
            self.keep(&format!("group {group} cannot be parked: {reason}"));
        }
        self.note_in(group, Event::CheckpointFailed { reason });
    }

    /// Gives a group's checkpoint on its way up.
    pub(super) fn give_up(&mut self, group: usize, why: &str) {
        if self.all[group].checkpointing.take().is_some() {
            self.ports.engines[group].give_up();
        }
        self.miss(group, why);
    }

    pub(super) fn give_all_up(&mut self, why: &str) {
        (0..self.all.len()).for_each(|group| self.give_up(group, why));
    }

    /// Checkpoints that take too long are given up.
    fn overdue(&mut self) {
        let (now_s, limit_s) = (self.ports.clock.now_s(), self.setup.checkpoint_limit_s);
        for group in 0..self.all.len() {
            let late = self.all[group].checkpointing.take_if(|c| now_s >= c.begun_s + limit_s);
            if late.is_some() {
                self.ports.engines[group].give_up();
                self.phase(group);
                self.failed_checkpoint(group, format!("took longer than {limit_s} s"));
            }
        }
    }
}

//! How a run's recovery line moves on: begins a checkpoint, makes it complete, learns from its cost, or gives it up.

use super::{Checkpointing, Driver, End};
use crate::ledger::Used;
use crate::orders::leaving;
use crate::ports::{NotSaved, Saved};
use crate::setup::RETRY_PAUSE_S;
use policy::decide::Why;
use protection::Committed;
use protocol::{Event, FailureKind, Manifest, Order, OrderState, OrderedCheckpoint, Phase};

impl Driver<'_> {
    /// Asks the engine for a checkpoint.
    pub(super) fn begin(&mut self, why: Why, reason: &str) {
        if self.checkpointing.is_some() {
            return;
        }
        let orders = self.desk.take();
        match self.ports.store.room() {
            Ok((number, folder)) => {
                self.decided("checkpoint", reason);
                let cut = self.split(Phase::Checkpoint);
                let begun_s = self.ports.clock.now_s();
                self.checkpointing =
                    Some(Checkpointing { number, folder: folder.clone(), begun_s, why, orders, used: Used::default() });
                self.ports.engine.begin(folder);
                // The journal is synced while the engine works: the phase is as long as the checkpoint.
                self.note(cut.events);
            }
            Err(e) => {
                self.is_superseded |= e.is_superseded();
                self.failed_checkpoint(format!("it cannot be begun: {e}"), &orders);
            }
        }
    }

    /// The program has written a checkpoint by itself.
    pub(super) fn appeared(&mut self) {
        if self.desk.disabled_by().is_none() {
            self.begin(Why::Interval, "the program wrote a checkpoint");
        }
    }

    /// The engine has answered.
    pub(super) fn checkpointed(&mut self, result: Result<Saved, NotSaved>) -> Option<End> {
        let running = self.checkpointing.take()?;
        match result {
            Ok(files) => {
                if !self.commit(&running, files) {
                    return None;
                }
                if running.why == Why::BeforeEnd {
                    self.final_line_taken = true;
                    if self.setup.requeue_at_end {
                        return Some(End::Requeue(FailureKind::Timeout));
                    }
                }
                let (kind, reason) = running.orders.iter().find_map(leaving)?;
                Some(End::Vacate { kind, reason })
            }
            Err(reason) => {
                self.cut(Phase::Compute);
                self.failed_checkpoint(reason, &running.orders);
                None
            }
        }
    }

    /// The program works again after a phase in which it did not: what its nodes use from now on is its own, though a
    /// checkpoint may still be on its way.
    pub(super) fn goes_on(&mut self, after: Phase) {
        if self.ledger.phase() != after {
            return;
        }
        let cut = self.cut(Phase::Compute);
        if let Some(running) = &mut self.checkpointing {
            running.used = running.used.and(&cut);
        }
    }

    /// Makes a checkpoint complete and learns from what it cost.
    fn commit(&mut self, running: &Checkpointing, Saved { files, still_s, kept }: Saved) -> bool {
        // Reading the counters of all nodes takes its time, and the checkpoint does not wait for it.
        let ended_s = self.ports.clock.now_s();
        let used = running.used.and(&self.cut(Phase::Compute));
        let step = self.ports.child.step();
        // What the program has made before it was noticed; what that took of energy was not measured.
        let begun_s = (running.begun_s - kept.map_or(0.0, |kept| kept.took_s)).max(self.line_s.min(running.begun_s));
        let manifest = Manifest {
            version: protocol::VERSION,
            number: running.number,
            begun_s,
            ended_s,
            joules: used.joules().filter(|_| kept.is_none()),
            bytes: files.iter().map(|f| f.bytes).sum::<u64>() + kept.map_or(0, |kept| kept.bytes),
            step,
            engine: self.ports.engine.name().to_string(),
            holder: None,
            files,
        };
        if let Err(e) = self.ports.store.commit(&manifest) {
            self.is_superseded |= e.is_superseded();
            self.failed_checkpoint(e.to_string(), &running.orders);
            return false;
        }
        self.line_s = ended_s;
        self.crashes = 0;
        let mut events = vec![Event::Committed {
            number: manifest.number,
            begun_s: manifest.begun_s,
            ended_s,
            bytes: manifest.bytes,
            written_bytes: Some(manifest.written_bytes()),
            joules: manifest.joules,
            still_s,
        }];
        let made = OrderedCheckpoint {
            number: manifest.number,
            path: running.folder.to_string_lossy().into_owned(),
            seconds: ended_s - running.begun_s,
            bytes: manifest.bytes,
            joules: manifest.joules,
        };
        for order in &running.orders {
            let then = if leaving(order).is_some() { "; the job goes back into the queue" } else { "" };
            let text = format!("checkpoint {} is complete{then}", made.number);
            events.push(self.desk.answer(order, OrderState::Done, &text, Some(made.clone())));
        }
        // What a program writes by itself costs it more than the time to take it up.
        if self.ports.engine.on_demand()
            && let Some(reason) = self.adaptation.checkpointed(ended_s, ended_s - running.begun_s, used.power_w())
        {
            events.push(self.decision("interval", reason));
        }
        events.extend(self.guard.committed(Committed {
            group: 0,
            number: manifest.number,
            begun_s: manifest.begun_s,
            interval_s: self.adaptation.interval_s(),
            checkpoint_s: self.adaptation.checkpoint_s(),
        }));
        events.extend(self.guard.works_beside(self.ports.engine.beside()));
        self.note(events);
        true
    }

    /// Gives up a checkpoint on its way; orders for it wait for the next one.
    pub(super) fn give_up(&mut self) {
        if let Some(running) = self.checkpointing.take() {
            self.ports.engine.give_up();
            self.desk.put_back(running.orders);
        }
    }

    /// Nothing happened for a while.
    pub(super) fn timed_out(&mut self) {
        let now_s = self.ports.clock.now_s();
        let limit_s = self.setup.checkpoint_limit_s;
        if let Some(running) = self.checkpointing.take_if(|c| now_s >= c.begun_s + limit_s) {
            self.ports.engine.give_up();
            self.cut(Phase::Compute);
            self.failed_checkpoint(format!("took longer than {limit_s} s"), &running.orders);
            return;
        }
        let phase = self.ledger.phase();
        // A restart is measured by its span, and is one.
        if phase == Phase::Restart {
            return;
        }
        let cut = self.cut(phase);
        if let Some(running) = &mut self.checkpointing {
            running.used = running.used.and(&cut);
        } else if phase == Phase::Compute
            && let Some(joules) = cut.joules.filter(|_| cut.node_s > 0.0)
        {
            self.adaptation.computed(joules / cut.node_s);
        }
    }

    pub(super) fn failed_checkpoint(&mut self, why: impl Into<NotSaved>, orders: &[Order]) {
        if self.is_superseded {
            return;
        }
        let now_s = self.ports.clock.now_s();
        self.not_before_s = now_s + RETRY_PAUSE_S.max(self.adaptation.checkpoint_s());
        let why = why.into();
        let reason = why.to_string();
        tracing::info!(%reason, "checkpoint failed");
        let mut events = self.desk.fail(orders, &reason);
        let is_bare = !why.is_end() && self.guard.has_one() && self.ports.store.has_any() == Some(false);
        events.extend(if is_bare {
            self.guard.vanished(&reason)
        } else {
            self.guard.failed(now_s, None, &reason, why.is_end())
        });
        events.push(Event::CheckpointFailed { reason });
        self.note(events);
    }
}

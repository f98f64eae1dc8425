//! A group works its lost time again and the others wait: whether to put them aside and lend their nodes, and how.
//!
//! All survivors are dumped, by images or by checkpoints of their own, and stand still; then what ran of them is ended, their
//! relays move, and their nodes are lent. When the nodes are back, each goes on from there. Whatever goes wrong before the
//! nodes are given away leaves the survivors where they were, idle.

use super::group::{Share, State};
use super::ports::{Aside, LoanOutcome, Market};
use super::run::Groups;
use super::under_way::{Lent, Then};
use policy::lending::{Prospect, SCHEDULER_S, Verdict, WRITTEN_S, lend};
use std::collections::BTreeSet;

impl Groups<'_> {
    /// Asks policy once for each wait whether the survivors' nodes are to be lent.
    pub(super) fn consider_loan(&mut self) {
        let now_s = self.ports.clock.now_s();
        let behind_s = self.all.iter().map(|g| g.caught_up_s).fold(f64::NEG_INFINITY, f64::max);
        // Who waits is back in time for the last checkpoint before the walltime ends, which may take twice as long.
        let checkpoint_s = self.all.iter().map(|g| g.adaptation.checkpoint_s()).fold(0.0, f64::max);
        let last_s = self.limit.end_s.map(|end_s| end_s - self.setup.margin_s - 2.0 * checkpoint_s);
        let behind_s = last_s.filter(|_| behind_s < f64::INFINITY).map_or(behind_s, |last_s| behind_s.min(last_s));
        let is_asked = |l: &&Lent| l.asked_s.is_some() && behind_s.is_finite() && self.decided_s != behind_s;
        if let Some(groups) = self.lent.as_ref().filter(is_asked).map(|l| l.groups.clone()) {
            // The group is faster or slower than was thought, or failed again.
            self.decided_s = behind_s;
            self.expect(behind_s - self.lead_s(&groups));
        }
        let is_decided = behind_s <= now_s || behind_s == f64::INFINITY || self.decided_s == behind_s;
        if is_decided || self.lent.is_some() || self.sweep.is_some() {
            return;
        }
        self.decided_s = behind_s;
        let shelter = self.ports.lending.shelter();
        let may_go = |g: &&super::group::Group| {
            g.works() && !g.is_behind() && g.checkpointing.is_none() && !g.nodes.contains(&shelter)
        };
        let groups: BTreeSet<usize> = self.all.iter().filter(may_go).map(|g| g.number).collect();
        match self.lending_pays(&groups, behind_s - now_s) {
            Ok(verdict) if verdict.lend => {
                self.decided("park", &verdict.reason);
                let return_s = now_s + verdict.idle_s - self.lead_s(&groups);
                let (missing, all, reason) = (groups.clone(), groups.clone(), verdict.reason);
                self.lent = Some(Lent { groups: all, missing, return_s, reason, asked_s: None, went_s: None });
                groups.into_iter().for_each(|group| self.park(group, verdict.idle_s));
                self.phase_all();
            }
            Ok(Verdict { reason, .. }) | Err(reason) => self.decided("idle", &reason),
        }
    }

    /// Puts a survivor aside, unless another could not be.
    fn park(&mut self, group: usize, limit_s: f64) {
        if self.lent.is_none() {
            return;
        }
        self.all[group].state = State::Parking;
        match (self.ports.lending.park(group, &self.all[group].nodes[0], limit_s), self.desk.disabled_by()) {
            (Aside::Image, _) => {}
            (Aside::Checkpoint, None) => self.begin(group, "its nodes are to be lent"),
            (Aside::Checkpoint, Some(by)) => self.keep(&format!("checkpoints are disabled by {by}")),
        }
    }

    /// The nodes are wanted at another moment than was said. What borrows them keeps them until the latest that it was
    /// promised.
    fn expect(&mut self, return_s: f64) {
        self.lent.iter_mut().for_each(|lent| lent.return_s = lent.return_s.max(return_s));
        self.ports.lending.expect(return_s);
    }

    /// How long before the end of the wait the nodes are called back: Slurm writes down that they are back, and then the
    /// survivors are restored.
    fn lead_s(&self, groups: &BTreeSet<usize>) -> f64 {
        WRITTEN_S + self.restart_s(groups)
    }

    fn restart_s(&self, groups: &BTreeSet<usize>) -> f64 {
        groups.iter().map(|g| self.all[*g].adaptation.restart_s()).fold(0.0, f64::max)
    }

    fn lending_pays(&mut self, groups: &BTreeSet<usize>, idle_s: f64) -> Result<Verdict, String> {
        let nodes = self.nodes_of(groups);
        if nodes.is_empty() {
            return Err("kept: no survivor's nodes can be given away".to_string());
        }
        let numbers = Vec::from_iter(groups.iter().copied());
        let Market { shortest_queued_s, idle_w } = self.ports.lending.market(&numbers, &nodes)?;
        let checkpoint_s = groups.iter().map(|g| self.all[*g].adaptation.checkpoint_s()).fold(0.0, f64::max);
        let rho = self.replay.unwrap_or(1.0);
        let prospect = Prospect {
            since_line_s: idle_s * rho,
            checkpoint_s,
            restart_s: self.restart_s(groups),
            // What was done during a checkpoint is a part of the lost work already.
            alpha: 0.0,
            rho,
            // A loan of before shows what borrowers and Slurm need together.
            load_save_s: 0.0,
            scheduler_s: self.handing_s.unwrap_or(SCHEDULER_S),
            shortest_queued_s,
            nodes: nodes.len() as f64,
            idle_w,
        };
        let verdict = lend(&prospect).map_err(|e| e.to_string())?;
        let reason = format!("{}; {}", verdict.reason, self.rests_on());
        Ok(Verdict { reason, ..verdict })
    }

    /// On which figures of this run a verdict rests.
    fn rests_on(&self) -> String {
        let rho = match self.replay {
            Some(rho) => format!("lost work was done again {rho:.2} times as fast"),
            None => "lost work is taken to last as long again, since none was seen".to_string(),
        };
        let handing = match self.handing_s {
            Some(s) => format!("a loan before took {s:.0} s to hand the nodes over and back"),
            None => format!("handing them over and back is taken to last {SCHEDULER_S:.0} s, since there was no loan"),
        };
        format!("{rho}, and {handing}")
    }

    fn nodes_of(&self, groups: &BTreeSet<usize>) -> Vec<String> {
        groups.iter().flat_map(|g| self.all[*g].nodes.clone()).collect()
    }

    /// A survivor is dumped, or cannot be.
    pub(super) fn parked(&mut self, group: usize, result: Result<std::path::PathBuf, String>) {
        if !self.lent.as_ref().is_some_and(|l| l.missing.contains(&group)) {
            return;
        }
        let g = &mut self.all[group];
        let running = g.shares.iter().find(|(_, s)| **s == Share::Runs).map(|(call, _)| *call);
        match result {
            Ok(image) => g.image = running.map(|call| (call, image)),
            Err(reason) => return self.keep(&format!("group {group} cannot be parked: {reason}")),
        }
        self.aside(group);
    }

    /// A survivor's checkpoint is complete, from which it goes on.
    pub(super) fn has_checkpoint(&mut self, group: usize, number: u64) {
        if self.all[group].state != State::Parking {
            return;
        }
        match self.own_line(group).filter(|line| line.number == number) {
            Some(line) => {
                self.all[group].back = Some(Some(line));
                self.aside(group);
            }
            None => self.keep(&format!("group {group} cannot be parked: checkpoint {number} cannot be read back")),
        }
    }

    /// A survivor stands still, and can go on later: with the last of them, what runs of all is ended.
    fn aside(&mut self, group: usize) {
        let Some(lent) = &mut self.lent else { return };
        lent.missing.remove(&group);
        if !lent.missing.is_empty() {
            return;
        }
        let now_s = self.ports.clock.now_s();
        for group in lent.groups.clone() {
            if let Some(line) = self.all[group].back.take() {
                self.goes_back_to(group, now_s, line);
            }
            let g = &mut self.all[group];
            g.state = State::Parked;
            let running = g.shares.iter().filter(|(_, s)| **s == Share::Runs);
            running.for_each(|(call, _)| self.ports.shares.stop(*call, group));
        }
        self.phase_all();
    }

    /// The survivors stay: those that are not ended yet go on.
    pub(super) fn keep(&mut self, why: &str) {
        let is_parking = |g: &super::group::Group| g.state == State::Parking;
        let Some(lent) = self.lent.take_if(|_| self.all.iter().any(is_parking)) else { return };
        self.decided("idle", &format!("kept: {why}"));
        for group in lent.groups {
            let g = &mut self.all[group];
            g.image = None;
            if g.state != State::Parking {
                continue;
            }
            (g.state, g.back) = (State::Well, None);
            // A dead node has nothing to wake.
            if let Some(node) = g.nodes.first() {
                self.ports.lending.wake(group, node);
                // What the script has called meanwhile.
                if !self.all[group].down().is_empty() {
                    self.launch(group);
                }
            }
        }
        self.phase_all();
    }

    /// Lends the nodes as soon as nothing runs on them.
    pub(super) fn lend(&mut self) {
        let Some(lent) = &mut self.lent else { return };
        let runs = |g: &usize| self.all[*g].shares.values().any(|s| *s == Share::Runs);
        if !lent.missing.is_empty() || lent.asked_s.is_some() || lent.groups.iter().any(runs) {
            return;
        }
        lent.asked_s = Some(self.ports.clock.now_s());
        let (groups, return_s, reason) = (lent.groups.clone(), lent.return_s, lent.reason.clone());
        let shelter = self.ports.lending.shelter();
        groups.iter().for_each(|g| self.ports.relays.place(*g, &shelter));
        let nodes = self.nodes_of(&groups);
        self.decided("lend", &format!("{}: {reason}", nodes.join(",")));
        self.ports.lending.lend(&nodes, return_s, &reason);
    }

    /// The script has ended what was put aside: the nodes are needed for what it does next.
    pub(super) fn nothing_to_park(&mut self) {
        if self.lent.as_ref().is_some_and(|l| l.groups.iter().all(|g| self.all[*g].shares.is_empty())) {
            self.end_loan();
        }
    }

    /// A group that was put aside has failed: it is none of the loan's any more.
    pub(super) fn leave_loan(&mut self, group: usize) {
        self.all[group].image = None;
        if !self.lent.as_mut().is_some_and(|l| l.groups.remove(&group)) {
            return;
        }
        if self.lent.take_if(|l| l.groups.is_empty() && l.asked_s.is_none()).is_none() {
            self.lend();
        }
    }

    /// Nothing that was put aside goes on from its image: what is lent already is wanted back at once.
    pub(super) fn end_loan(&mut self) {
        let Some(lent) = &self.lent else { return };
        lent.groups.iter().for_each(|g| self.all[*g].image = None);
        if lent.asked_s.is_some() {
            return self.expect(self.ports.clock.now_s());
        }
        lent.groups.iter().for_each(|g| self.all[*g].state = State::Well);
        self.lent = None;
    }

    /// The job has no part in the nodes any more.
    pub(super) fn went(&mut self) {
        let now_s = self.ports.clock.now_s();
        let Some(lent) = &mut self.lent else { return };
        lent.went_s = Some(now_s);
        for group in lent.groups.clone() {
            self.cut(group, protocol::Phase::Idle);
            self.all[group].away = true;
        }
    }

    /// Whether a node is lent.
    pub(super) fn is_away(&self, node: &str) -> bool {
        self.all.iter().any(|g| g.away && g.nodes.iter().any(|n| n == node))
    }

    /// Whether a node is about to be lent with others of its group, which cannot go on there before that is over.
    pub(super) fn goes_with_others(&mut self, node: &str) -> bool {
        let has = |nodes: &[String]| nodes.len() > 1 && nodes.iter().any(|n| n == node);
        let goes = |l: &Lent| l.asked_s.is_some() && l.groups.iter().any(|g| has(&self.all[*g].nodes));
        let goes = self.lent.as_ref().is_some_and(goes);
        if goes {
            self.expect(self.ports.clock.now_s());
        }
        goes
    }

    /// The nodes are back: the survivors go on from their images.
    pub(super) fn returned(&mut self, outcome: LoanOutcome) {
        let Some(lent) = self.lent.take() else { return };
        let (now_s, nodes) = (self.ports.clock.now_s(), self.nodes_of(&lent.groups));
        if let (LoanOutcome::Back { .. }, Some((asked_s, went_s))) = (&outcome, lent.asked_s.zip(lent.went_s)) {
            let handing_s = went_s - asked_s + (now_s - lent.return_s.max(went_s)).max(0.0);
            self.handing_s = Some(handing_s.max(SCHEDULER_S));
        }
        let (back, back_s) = match outcome {
            LoanOutcome::Back { nodes: back, away_s, back_s } => {
                let died: Vec<&str> = nodes.iter().filter(|n| !back.contains(n)).map(String::as_str).collect();
                let died = if died.is_empty() { String::new() } else { format!("; not back: {}", died.join(",")) };
                self.decided("unpark", &format!("{} back after {away_s:.0} s{died}", back.join(",")));
                (back, back_s)
            }
            LoanOutcome::Kept(reason) => {
                self.decided("unpark", &format!("the nodes were not lent: {reason}"));
                (nodes.clone(), now_s)
            }
            LoanOutcome::Lost(_) if lent.groups.is_empty() => return,
            LoanOutcome::Lost(reason) => {
                return self.begin_sweep(Vec::new(), Then::Short, &format!("lent nodes are lost: {reason}"));
            }
        };
        let died = self.ports.cluster.dead_nodes();
        let is_back = |node: &String| back.contains(node) && died.iter().all(|(n, _)| n != node);
        for group in lent.groups {
            let g = &mut self.all[group];
            g.state = State::Stopping;
            if std::mem::take(&mut g.away) {
                g.ledger.skip(back_s);
            }
            let dead: Vec<String> = g.nodes.iter().filter(|n| !is_back(n)).cloned().collect();
            match (dead.is_empty(), g.back.is_some()) {
                (true, true) => self.restart(group),
                (true, false) => self.launch(group),
                _ if dead.iter().all(|n| back.contains(n)) => dead.iter().for_each(|node| self.lost(node, now_s)),
                _ => self.gone(group, &dead),
            }
        }
    }

    /// Nodes that were lent do not come back, dead or drained: no failure of a run whose they were not. Their group goes back.
    fn gone(&mut self, group: usize, nodes: &[String]) {
        let now_s = self.ports.clock.now_s();
        self.cut(group, protocol::Phase::Restart);
        if self.is_together() {
            self.all_go_back(now_s, None);
        } else if self.all[group].image.take().is_some() {
            let line = self.own_line(group);
            self.goes_back_to(group, now_s, line);
        }
        let g = &mut self.all[group];
        nodes.iter().for_each(|node| g.ledger.drop_node(node));
        g.nodes.retain(|n| !nodes.contains(n));
        if self.goes_back_together() {
            return self.end_all();
        }
        self.all.iter_mut().for_each(|g| g.lost_alone = false);
        self.stop(group);
        self.restart(group);
    }
}

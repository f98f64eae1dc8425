//! Checkpoints of all groups that are one line, made now and then, and what becomes of a program that does not repeat itself.
//!
//! A restored rank that sends something else than before makes wrong what the others have got of it: no group can go back
//! alone. All go back to their last line, and from then on the run is coordinated: each checkpoint is one of all groups,
//! only a line counts, and a failure of one takes all back.

use super::group::{Share, State};
use super::ports::{NoLine, Varies};
use super::run::Groups;
use super::under_way::{Sweep, Then};
use crate::setup::EXIT_NOT_RESTORED;
use planner::{NOT_ALONE, TOGETHER};
use policy::decide::{CHANCE, rounds};
use protocol::{Manifest, Phase};
use std::path::PathBuf;

/// What is known of lines.
#[derive(Debug, Default)]
pub(super) struct Together {
    /// All groups go back together.
    pub(super) always: bool,
    /// Checkpoints that were begun since a line was tried last; none if none was tried in this program.
    since: Option<usize>,
    /// All groups are being ended, to go back to the line of this number, or to the beginning.
    back: Option<Option<u64>>,
    /// How often in a row a program that goes back together was said to differ, without a line in between.
    strange: u32,
    /// A program of all groups has run under this wrapper.
    pub(super) has_run: bool,
}

impl Together {
    /// What a wrapper begins with.
    pub(super) fn new(always: bool) -> Together {
        Together { always, ..Together::default() }
    }

    /// A group begins a checkpoint of its own.
    pub(super) fn count(&mut self) {
        self.since = self.since.map(|since| since + 1);
    }
}

impl Groups<'_> {
    /// Whether a failure of one group takes all back: programs of groups that do not talk still go back alone.
    pub(super) fn is_together(&self) -> bool {
        self.together.always && (self.together.back.is_some() || self.ports.relays.gathers())
    }

    /// The same also while no relay runs: the first of the groups is started.
    pub(super) fn goes_together(&self) -> bool {
        self.together.always && self.is_coupled()
    }

    /// Whether all groups are being ended.
    pub(super) fn goes_back_together(&self) -> bool {
        self.together.back.is_some()
    }

    /// Whether the next checkpoint is one of all groups.
    pub(super) fn line_is_due(&self) -> bool {
        let often = (rounds(self.all.len(), CHANCE) as usize - 1) * self.all.len();
        let due = self.together.always || self.together.since.is_none_or(|since| since >= often);
        due && self.can_gather()
    }

    /// Whether all groups can begin a checkpoint at once.
    fn can_gather(&self) -> bool {
        let is_free = |g: &super::group::Group| g.works() && g.checkpointing.is_none();
        self.ports.relays.gathers() && self.all.iter().all(is_free)
    }

    /// Begins a checkpoint of all groups for a sweep, if it can become a line.
    pub(super) fn begin_line(&mut self, sweep: &mut Sweep) {
        if sweep.pending.len() < self.all.len() || !self.can_gather() {
            if self.is_together() {
                sweep
                    .failed
                    .get_or_insert("not all groups are at work, and only a checkpoint of all counts".to_string());
                sweep.pending.clear();
            }
            return;
        }
        self.together.since = Some(0);
        match self.ports.lines.rooms() {
            Ok((number, folders)) => {
                sweep.line = Some(number);
                self.ports.relays.gather(number, &folders);
                for (group, folder) in folders.into_iter().enumerate() {
                    self.begin_in(group, number, folder, "all groups checkpoint at one line");
                }
            }
            Err(e) => {
                self.is_superseded |= e.is_superseded();
                sweep.failed = Some(format!("it cannot be begun: {e}"));
                sweep.pending.clear();
                (0..self.all.len()).for_each(|group| self.failed_checkpoint(group, format!("it cannot be begun: {e}")));
            }
        }
    }

    /// A group goes on from this checkpoint: from one before the line that is being made, if its own of that line is of no use.
    pub(super) fn leaves_line(&mut self, group: usize, from: Option<u64>) {
        let Some(sweep) = &mut self.sweep else { return };
        if sweep.line.is_some_and(|line| from.is_none_or(|from| from < line)) {
            sweep.failed.get_or_insert_with(|| format!("group {group} has gone back to before it"));
        }
    }

    /// All groups have made their checkpoints of a sweep, or not: whether these are a line is found out and told.
    pub(super) fn draw_line(&mut self, number: u64, sweep: &mut Sweep) {
        let made = match &sweep.failed {
            Some(reason) => Err(reason.clone()),
            None => self.ports.relays.gathered(number).map_err(|why| why.to_string()),
        };
        let joined = made.and_then(|()| {
            self.ports.lines.join(number).map_err(|e| {
                self.is_superseded |= e.is_superseded();
                e.to_string()
            })
        });
        match joined {
            Ok(()) => {
                self.together.strange = 0;
                self.decided("line", &format!("checkpoint {number} of all groups is one line"));
            }
            Err(reason) => {
                self.ports.relays.disperse(NoLine::NotMet);
                self.decided("no line", &format!("checkpoint {number} of all groups is none: {reason}"));
                if self.is_together() {
                    sweep.failed.get_or_insert(reason);
                    if let Err(e) = self.ports.lines.part(number) {
                        self.cannot_go_on(e);
                    }
                }
            }
        }
    }

    /// A call has ended: lines of a program that has ended serve nobody.
    pub(super) fn end_lines(&mut self) {
        // Before it has run, lines are those of an earlier wrapper, to which the script is still on its way.
        if !self.together.has_run || self.ports.relays.gathers() || self.goes_back_together() {
            return;
        }
        (self.together.has_run, self.together.since) = (false, None);
        if let Err(e) = self.ports.lines.over() {
            self.is_superseded |= e.is_superseded();
            tracing::warn!(%e, "lines of a program that has ended are still there");
        }
    }

    /// A wrapper takes a run up whose groups go back together.
    pub(super) fn take_up_together(&mut self) {
        if !self.together.always {
            return;
        }
        if let Some(line) = self.common_line(false) {
            self.bring_relays_back(line.as_ref().and_then(|all| Some(all.first()?.number)));
        }
    }

    /// A restored rank does not repeat itself: the others have received what was never sent in this life of it, and whatever
    /// they compute from that is wrong.
    pub(super) fn differs(&mut self, group: usize, from: usize, to: usize) {
        if self.goes_back_together() || self.all[group].shares.is_empty() {
            return;
        }
        let said = format!("rank {from} of group {group} sends rank {to} other messages after its restart than before");
        if self.together.always {
            // Where all went back to one line nothing is left to differ from: this would go on without end.
            self.together.strange += 1;
            if self.together.strange > self.setup.step_retries {
                return self.end_strange(&said);
            }
        }
        self.take_all_back(&format!("{said}: {}", NOT_ALONE));
    }

    /// The program would not repeat itself: a failure takes all groups back.
    pub(super) fn varies(&mut self, group: usize, why: &Varies) {
        if self.together.always || self.all[group].shares.is_empty() {
            return;
        }
        let said = match why {
            Varies::Moments => {
                "the program reaches into the memory of other groups, opens files with them, or several of its threads are \
                 in MPI at once"
                    .to_string()
            }
            Varies::File { path, with } => format!("groups {group} and {with} write to {}", path.display()),
        };
        let reason = format!("{said}: {NOT_ALONE}; all groups checkpoint and go back together");
        protocol::say!("joulepoint: {reason}");
        self.together.always = true;
        self.decided(TOGETHER, &reason);
    }

    /// All groups go back together, and do so from now on.
    pub(super) fn take_all_back(&mut self, why: &str) {
        let reason = format!("{why}; from now on all groups checkpoint and go back together");
        protocol::say!("joulepoint: {reason}");
        self.all_go_back(self.ports.clock.now_s(), Some(&reason));
        self.end_all();
    }

    /// Ends a program that differs again and again though all went back together.
    fn end_strange(&mut self, why: &str) {
        let reason = format!("{why}, though all groups went back together; the program is ended");
        protocol::say!("joulepoint: {reason}");
        self.decided("end", &reason);
        let open: Vec<u64> = self.calls.keys().copied().collect();
        for call in open {
            self.ports.shares.end(call, EXIT_NOT_RESTORED);
            self.forget(call);
        }
    }

    /// Notes for all groups that their work after the last line is lost, up to when one failed; `why`, if they go back together
    /// from now on.
    pub(super) fn all_go_back(&mut self, failed_s: f64, why: Option<&str>) {
        let is_over = |s: &Share| matches!(s, Share::Ended(_));
        if self.goes_back_together() || self.all.iter().all(|g| g.shares.values().all(is_over)) {
            return;
        }
        self.keep("all groups go back");
        self.give_all_up("all groups go back");
        // What is no line is forgotten first: whoever reads the decision finds nothing else.
        let Some(line) = self.common_line(true) else { return };
        if let Some(why) = why {
            self.together.always = true;
            self.decided(TOGETHER, why);
        }
        self.together.back = Some(line.as_ref().and_then(|all| Some(all.first()?.number)));
        for group in 0..self.all.len() {
            // What has ended is needed again.
            let ended = self.all[group].shares.values_mut().filter(|s| is_over(s));
            ended.for_each(|s| *s = Share::Down(None));
            if !self.all[group].shares.is_empty() {
                self.cut(group, Phase::Restart);
                self.goes_back_to(group, failed_s, line.as_ref().map(|all| all[group].clone()));
            }
        }
    }

    /// The checkpoints of the newest line that is whole; none if there is no line: then all begin `anew`, or if one was
    /// damaged. Absent if that cannot be known now.
    fn common_line(&mut self, anew: bool) -> Option<Option<Vec<Manifest>>> {
        let (mut anew, mut tried) = (anew, None);
        loop {
            let number = match self.ports.lines.all_back(anew) {
                Ok(number) => number,
                Err(e) => {
                    self.cannot_go_on(e);
                    return None;
                }
            };
            let Some(number) = number else { return Some(None) };
            // What is damaged is set aside by that, and the line before is the newest then.
            let found: Option<Vec<Manifest>> =
                (0..self.all.len()).map(|group| self.newest(group).filter(|m| m.number == number)).collect();
            if self.held.is_some() || self.is_superseded {
                return None;
            }
            if found.is_some() {
                return Some(found);
            }
            if tried.replace(number) == Some(number) {
                // It is complete, and cannot be read now: no reason to begin anew.
                self.held.get_or_insert(format!("checkpoint {number} of all groups cannot be read now"));
                return None;
            }
            anew = true;
        }
    }

    /// Ends what is left of all groups; they start again when nothing of them runs any more.
    pub(super) fn end_all(&mut self) {
        self.end_loan();
        for group in 0..self.all.len() {
            // What is put aside on nodes that are lent starts when these are back.
            if !self.all[group].shares.is_empty() && self.all[group].state != State::Parked {
                self.stop(group);
            }
        }
        self.phase_all();
        self.restart_all();
    }

    /// Starts all groups again from their line, as soon as none of them runs.
    pub(super) fn restart_all(&mut self) {
        if !self.goes_back_together() || self.all.iter().any(super::group::Group::runs) || !self.may_go_on() {
            return;
        }
        let Some(line) = self.together.back.take() else { return };
        self.bring_relays_back(line);
        let stopped = |g: &&super::group::Group| matches!(g.state, State::Stopping | State::Short);
        let groups: Vec<usize> = self.all.iter().filter(stopped).map(|g| g.number).collect();
        groups.iter().for_each(|group| self.fill(*group));
        let missing: usize = groups.iter().map(|g| self.all[*g].size - self.all[*g].nodes.len()).sum();
        if missing > 0 {
            groups.iter().for_each(|group| self.all[*group].state = State::Short);
            self.phase_all();
            return self.begin_sweep(Vec::new(), Then::Short, &format!("the groups lack {missing} nodes"));
        }
        groups.into_iter().for_each(|group| self.restart(group));
    }

    fn bring_relays_back(&mut self, line: Option<u64>) {
        let folder = |group| line.map(|number| self.ports.lines.folder(group, number));
        let folders: Option<Vec<PathBuf>> = (0..self.all.len()).map(folder).collect();
        self.ports.relays.all_back(folders);
    }
}

//! The tasks and steps that a driver knows of: who is there, who is missing, and who is lost.

use super::{Loss, Standing};
use ::criu::line::{Line, Member, Order, Said, Sent};
use driver::ports::NotSaved;
use std::collections::{BTreeMap, BTreeSet};

/// What our own lines begin with.
const OURS: &str = "joulepoint: ";

/// Who is there.
#[derive(Default)]
pub(super) struct State {
    last: u64,
    pub(super) tasks: BTreeMap<u64, Task>,
    pub(super) steps: BTreeMap<u64, Step>,
    /// Calls of which a task was lost, or has ended with an error of its own: Slurm ends the others for that.
    pub(super) broken: BTreeSet<String>,
    /// Calls of which no sandbox can hold some task: what others do would be done twice.
    pub(super) unheld: BTreeSet<String>,
    /// Calls whose `srun` was killed by a signal.
    pub(super) killed: BTreeSet<String>,
    /// By call and rank: what tasks with a part of an MPI program have sent to others, if that was counted.
    pub(super) sent: BTreeMap<(String, u32), Option<Sent>>,
    /// How often the script has begun.
    pub(super) begun: u32,
    /// Why the nodes of some call could not go back one by one.
    pub(super) together: Option<String>,
    /// By call: what tasks that come back have had said.
    remarks: BTreeSet<(String, String)>,
}

/// A task, by the number of its line.
pub(super) struct Task {
    pub(super) member: Member,
    pub(super) teller: Line,
    pub(super) said: Option<Said>,
    /// Whether it waits to be restored.
    pub(super) ready: bool,
    /// How it is lost if its line ends now.
    pub(super) loss: Loss,
    pub(super) ended: Option<i32>,
    /// What it had carried on when it ended.
    pub(super) carried_bytes: [u64; 2],
}

/// Tasks that run, by the numbers of their lines.
pub(super) type Running = BTreeMap<u64, Member>;

/// A step that runs.
pub(super) struct Step {
    pub(super) call: String,
    pub(super) words: String,
    pub(super) outside: Option<String>,
    /// Whether its tasks go on from the recovery line.
    pub(super) goes_on: bool,
    pub(super) teller: Line,
    /// Whether the script ends it.
    pub(super) is_ending: bool,
    /// Whether it waits to hear that all of its tasks have told how they ended.
    pub(super) asks: bool,
}

impl Task {
    pub(super) fn new(member: Member, teller: Line) -> Task {
        Task { member, teller, said: None, ready: false, loss: Loss::Gone, ended: None, carried_bytes: [0, 0] }
    }

    fn has_failed(&self) -> bool {
        self.ended.is_some_and(|code| code != 0)
    }
}

impl State {
    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Lets the tasks of a call be restored when all of them are ready.
    pub(super) fn restore(&mut self, of: &Member) {
        let of_call = |t: &Task| t.member.call == of.call;
        let is_ready = |t: &Task| t.ended.is_some() || t.ready;
        if self.tasks.values().filter(|t| of_call(t) && is_ready(t)).count() < of.tasks as usize {
            return;
        }
        self.remarks.retain(|(call, _)| *call != of.call);
        for task in self.tasks.values_mut().filter(|t| of_call(t) && t.ready) {
            task.ready = false;
            // A line that is broken is noticed by who reads it.
            let _ = task.teller.tell(&Order::Restore);
        }
    }

    /// The line of the job's output that tells what a task of a call says; one for all that come back together.
    pub(super) fn remark(&mut self, call: &str, remark: String) -> Option<String> {
        let words = self.steps.values().find(|step| step.call == call).map_or("a step", |step| &step.words);
        let text = remark.strip_prefix(OURS).unwrap_or(&remark);
        let line = format!("{OURS}{words}: {text}");
        self.remarks.insert((call.to_string(), remark)).then_some(line)
    }

    /// Tells who stands for the `srun` of a call that somebody has ended it: no dead node explains its end.
    pub(super) fn tell_steps(&mut self, call: &str) {
        for step in self.steps.values_mut().filter(|step| step.call == call) {
            // One that is gone needs no word.
            let _ = step.teller.tell(&Said::Ending);
        }
    }

    /// Tells who stands for the `srun` of a call, and asks, that all of its tasks have told how they ended. Of a call that has
    /// shown no task nothing is known.
    pub(super) fn answer(&mut self, call: &str) {
        let of_call = || self.tasks.values().filter(|t| t.member.call == call);
        let all = of_call().next().map_or(0, |t| t.member.tasks as usize);
        if of_call().filter(|t| t.ended.is_some()).count() < all {
            return;
        }
        for step in self.steps.values_mut().filter(|step| step.call == call && step.asks) {
            step.asks = false;
            let _ = step.teller.tell(&Said::EndedWell);
        }
    }

    /// Ends the other ranks of an MPI program as those of one node have ended, with this error.
    pub(super) fn end_ranks(&mut self, of: &Member, code: i32) {
        let is_other = |t: &&mut Task| t.member.call == of.call && t.member.ranks.is_some() && t.ended.is_none();
        for task in self.tasks.values_mut().filter(is_other) {
            let _ = task.teller.tell(&Order::EndAs { code });
        }
    }

    /// Ends the tasks of a call of which one cannot begin, those that call later, too.
    pub(super) fn end_unheld(&mut self, call: &str) {
        if !self.unheld.contains(call) {
            return;
        }
        self.broken.insert(call.to_string());
        for task in self.tasks.values_mut().filter(|t| t.member.call == call && t.ended.is_none()) {
            let _ = task.teller.tell(&Order::End);
        }
    }

    /// Lets the tasks of a call that have ended go. Those of an MPI program stay until all of them have ended, or one is
    /// gone: the relay beside each may hold what others need to come to their end.
    pub(super) fn let_go(&self, call: &str) {
        let of_call = || self.tasks.values().filter(|t| t.member.call == call);
        let is_over = |t: &Task| {
            let here = of_call().count() == t.member.tasks as usize;
            t.member.ranks.is_none() || !here || of_call().all(|other| other.ended.is_some())
        };
        of_call().filter(|t| t.ended.is_some() && is_over(t)).for_each(|t| t.teller.hang_up());
    }

    /// Whether a task that could be restored waits for one that has not called.
    pub(super) fn waits_in_vain(&self, id: u64) -> bool {
        let Some(task) = self.tasks.get(&id).filter(|t| t.ready) else { return false };
        let of_call = |t: &&Task| t.member.call == task.member.call;
        self.tasks.values().filter(of_call).count() < task.member.tasks as usize
    }

    /// A line has ended. How its task is lost, if it is: not if it told its end, or another one's or the script explains it.
    pub(super) fn gone(&mut self, id: u64) -> Option<Loss> {
        let task = self.tasks.get(&id).filter(|t| t.ended.is_none())?;
        let (call, loss) = (task.member.call.clone(), task.loss);
        self.tasks.remove(&id);
        let explains = |t: &Task| t.member.call == call && t.has_failed();
        let is_ending = self.steps.values().any(|s| s.is_ending && s.call == call);
        let is_lost = !is_ending && !self.tasks.values().any(explains);
        if is_lost {
            self.broken.insert(call);
        }
        is_lost.then_some(loss)
    }

    /// A task that has called since the tasks of a line to come were asked, if there is one: they may have seen what it did.
    pub(super) fn newcomer(&self, running: &Running, ended: &[(Standing, i32)]) -> Option<&Member> {
        let is_known = |id: &u64, of: &Member| running.contains_key(id) || ended.iter().any(|(s, _)| s.member == *of);
        self.tasks.iter().find(|(id, t)| !is_known(id, &t.member)).map(|(_, t)| &t.member)
    }

    /// The tasks of the line to come, running ones by their numbers, and ended ones with their codes, if all are there.
    ///
    /// # Errors
    /// Why there is no line: for now, or since a step is in no sandbox.
    pub(super) fn complete(&self) -> Result<(Running, Vec<(Standing, i32)>), NotSaved> {
        let for_now = |why: String| Err(NotSaved::Ended(why));
        let known = &self.tasks;
        if known.values().any(|t| t.ready) {
            return for_now("the tasks of a step are being restored".to_string());
        }
        for step in self.steps.values() {
            if let Some(reason) = &step.outside {
                return Err(NotSaved::Failed(format!("{} runs in no sandbox: {reason}", step.words)));
            }
            // One that begins has done nothing that a line could lose: it may wait for free CPUs, and for long.
            if step.goes_on && !known.values().any(|t| t.member.call == step.call) {
                return for_now(format!("{} has not started its tasks yet", step.words));
            }
        }
        let calls: BTreeSet<&str> = known.values().map(|t| t.member.call.as_str()).collect();
        for call in calls {
            let of_call: Vec<&Member> = known.values().map(|t| &t.member).filter(|m| m.call == call).collect();
            let (here, all) = (of_call.len(), of_call[0].tasks as usize);
            if here != all {
                return for_now(format!("{here} of {all} tasks of a step are in their sandboxes: it begins or ends"));
            }
            if known.values().any(|t| t.member.call == call && t.member.ranks.is_some() && t.ended.is_some()) {
                return for_now("an MPI program comes to its end".to_string());
            }
        }
        let standing = |t: &Task| Standing { member: t.member.clone(), carried_bytes: t.carried_bytes };
        let ended = known.values().filter_map(|t| Some((standing(t), t.ended?))).collect();
        let running: Running =
            known.iter().filter(|(_, t)| t.ended.is_none()).map(|(id, t)| (*id, t.member.clone())).collect();
        match running.is_empty() {
            true => for_now(
                "its script has the word srun, so its steps are dumped and not the script itself, and none runs now"
                    .to_string(),
            ),
            false => Ok((running, ended)),
        }
    }
}

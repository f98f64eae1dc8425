//! What a run's user is told of its protection, by every driver in the same words: in the job's output, and in its records.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use options::{Engine, Settings, spoken};
use protocol::{Event, Manifest, Protection, ProtectionState};
use std::collections::BTreeMap;
use std::path::Path;

/// Exit code of a job that is not to run without checkpoints, and would.
pub const EXIT_NOT_PROTECTED: i32 = 122;

/// What a user can do whose program makes checkpoints that nobody was told of.
const TELL_FILES: &str = "if the program writes checkpoints, name their files: --ft-energy-done=FILES (and --ft-energy-signal=SIG if it waits for a signal)";

/// What a user can do whose files do not come.
const MEND_FILES: &str =
    "mend --ft-energy-done (relative to the job's folder, * and ? are allowed) or let the program write";

/// The first checkpoint of a program that makes them by itself is missed only after this time, s: it has to begin first.
const GRACE_S: f64 = 60.0;

/// A change of the largest loss below this share is not worth a record.
const NOTABLE_CHANGE: f64 = 0.1;

/// What can be expected of a run before its program is started.
#[derive(Clone, Debug, Default)]
pub struct Prospect {
    /// Its engine and why, or why it has none.
    pub protection: Protection,
    /// Which files make up a checkpoint, and where they are looked for, if the program makes it by itself.
    pub looks_for: String,
    /// Why it is not to run, since it would run without what was asked for.
    pub refused: Option<String>,
    /// From what no checkpoint protects it; empty if there is nothing.
    pub but: String,
    /// When the wrapper before this one began, and when it wrote last, s since the epoch.
    pub before: Option<(f64, f64)>,
}

impl Prospect {
    /// What a run with these settings has to expect of the engine that was chosen for it, in the job's folder.
    pub fn of(settings: &Settings, engine: Option<Engine>, why: &str, folder: &Path) -> Prospect {
        let asked_for = settings.engine.filter(|_| engine.is_none() && settings.is_required());
        let refused = match asked_for {
            Some(asked) => Some(format!("--ft-energy-engine={}: {why}", asked.as_str())),
            None if engine.is_none() && settings.require => {
                Some(format!("--ft-energy-require: no checkpoint could be made: {why}"))
            }
            None => None,
        };
        let patterns = settings.done.iter().map(|p| format!("'{p}'")).collect::<Vec<_>>().join(", ");
        let files = if patterns.is_empty() { "files that it announces".to_string() } else { patterns };
        let protection = match engine {
            Some(engine) => Protection {
                engine: engine.as_str().to_string(),
                why: why.to_string(),
                cure: if engine == Engine::App { MEND_FILES } else { TELL_FILES }.to_string(),
                ..Protection::default()
            },
            None => Protection {
                state: ProtectionState::NotProtected,
                engine: "none".to_string(),
                reason: why.to_string(),
                cure: TELL_FILES.to_string(),
                ..Protection::default()
            },
        };
        Prospect { protection, looks_for: format!("{files} in {}", folder.display()), refused, ..Prospect::default() }
    }
}

/// The protection of a run that has begun.
#[derive(Debug)]
pub struct Guard {
    protection: Protection,
    /// Whether the engine makes a checkpoint when it is asked.
    on_demand: bool,
    /// What is looked for, and where, if the program makes them by itself.
    looks_for: String,
    /// What a failure costs each group that has a checkpoint, s; a run without groups is group 0.
    have: BTreeMap<usize, Option<f64>>,
    /// What is said of groups whose newest is older than was to be expected.
    grown: BTreeMap<usize, String>,
    groups: usize,
    /// When the first is missed, and how long it is waited for, s.
    due_s: f64,
    wait_s: f64,
    /// When the newest of each kind was begun, and the longest time between two, s.
    last_begun_s: Option<f64>,
    longest_gap_s: f64,
    /// From when on a failure costs each group its work, s: the newest checkpoint, or the moment it went on from one.
    newest_s: BTreeMap<usize, f64>,
    /// What was said of each group whose checkpoints fail, until one is complete.
    said: BTreeMap<usize, Said>,
    /// What its user can do if none comes.
    cure: String,
    /// From what none protects it.
    but: String,
    /// The program that works most of what the script does by itself, and whether that was said.
    beside: Option<String>,
    beside_is_said: bool,
    /// Who has disabled further ones.
    disabled_by: Option<String>,
}

/// What was said of checkpoints that fail.
#[derive(Debug, Default)]
struct Said {
    /// Why the last one did, and how many in a row did for that.
    reason: String,
    times: u32,
    /// What a failure costs by now, as it was said last, s.
    loss_s: f64,
}

/// A checkpoint that is complete.
#[derive(Clone, Copy, Debug)]
pub struct Committed {
    /// Whose.
    pub group: usize,
    /// Its number.
    pub number: u64,
    /// When it was begun.
    pub begun_s: f64,
    /// Work until the next, s.
    pub interval_s: f64,
    /// How long one takes, s.
    pub checkpoint_s: f64,
}

/// What so many checkpoints in a row have failed for does not pass by itself.
const LASTING: u32 = 3;

/// A checkpoint is old when a failure would cost this many times what was said.
const OLD: f64 = 2.0;

impl Guard {
    /// The guard of a run that begins now, with `groups` that checkpoint alone.
    pub fn new(prospect: &Prospect, on_demand: bool, groups: usize, now_s: f64, interval_s: f64) -> Guard {
        Guard {
            protection: prospect.protection.clone(),
            on_demand,
            looks_for: prospect.looks_for.clone(),
            have: BTreeMap::new(),
            grown: BTreeMap::new(),
            groups,
            due_s: now_s + interval_s + GRACE_S,
            wait_s: interval_s + GRACE_S,
            last_begun_s: None,
            longest_gap_s: 0.0,
            newest_s: BTreeMap::new(),
            said: BTreeMap::new(),
            cure: prospect.protection.cure.clone(),
            but: prospect.but.clone(),
            beside: None,
            beside_is_said: false,
            disabled_by: None,
        }
    }

    /// The run begins: what it can count on is said.
    pub fn begins(&mut self, interval_s: f64, checkpoint_s: f64) -> Event {
        if self.protection.state == ProtectionState::Unproven {
            self.protection.reason = "no checkpoint has been made yet".to_string();
            self.protection.largest_loss_s = self.loss_s(interval_s, checkpoint_s);
        }
        protocol::say!("joulepoint: {}", line(&self.protection));
        self.event()
    }

    /// The run, or a group of it, goes back to a line, or to the beginning, from where steps that have ended are not run again if
    /// it `keeps_steps`; `again_s` is the work that is done again, s.
    pub fn goes_back(
        &mut self,
        now_s: f64,
        group: Option<usize>,
        line: Option<&Manifest>,
        keeps_steps: bool,
        again_s: Option<f64>,
    ) -> Option<Event> {
        let whose = group.map_or_else(String::new, |group| format!("group {group}: "));
        let again = again_s.filter(|s| *s >= 0.5).map_or_else(String::new, |s| {
            format!("; at least {} of work {} done again", spoken(s), if s < 1.5 { "is" } else { "are" })
        });
        match line {
            Some(line) => {
                let at = clock(line.begun_s);
                protocol::say!("joulepoint: {whose}goes on from checkpoint {} of {at}{again}", line.number);
                let loss_s = self.protection.largest_loss_s;
                self.have.insert(group.unwrap_or(0), loss_s);
                self.newest_s.insert(group.unwrap_or(0), now_s);
                self.settle()
            }
            None => {
                let files = "files that it made or changed before stay as they are";
                let from = match keeps_steps {
                    true => "begins again without its steps that have ended: no checkpoint is needed for more",
                    false => "begins anew, since there is no checkpoint to go on from",
                };
                protocol::say!("joulepoint: {whose}{from}{again}; {files}");
                self.have.remove(&group.unwrap_or(0));
                if self.protection.state != ProtectionState::NotProtected {
                    self.protection.state = ProtectionState::Unproven;
                    self.protection.reason = "no checkpoint has been made yet".to_string();
                    self.protection.cure.clone_from(&self.cure);
                    self.due_s = now_s + self.wait_s;
                }
                if group.unwrap_or(0) == 0 {
                    protocol::say!("joulepoint: {}", self::line(&self.protection));
                }
                Some(self.event())
            }
        }
    }

    /// A checkpoint is complete.
    pub fn committed(&mut self, of: Committed) -> Option<Event> {
        self.said.remove(&of.group);
        self.newest_s.insert(of.group, of.begun_s);
        if self.groups == 1
            && let Some(before_s) = self.last_begun_s.replace(of.begun_s)
        {
            self.longest_gap_s = self.longest_gap_s.max(of.begun_s - before_s);
        }
        self.have.insert(of.group, self.loss_s(of.interval_s, of.checkpoint_s));
        // The worst of all groups; unknown, if that of one is.
        let worst = |worst: Option<f64>, loss_s: &Option<f64>| Some(worst?.max((*loss_s)?));
        let loss_s = self.have.values().fold(Some(0.0), worst);
        let was = self.protection.clone();
        let settled = self.settle();
        if self.grown.remove(&of.group).is_some() {
            self.protection.reason = self.reason();
        }
        self.protection.largest_loss_s = loss_s;
        if was.state != ProtectionState::Protected && self.protection.state == ProtectionState::Protected {
            let at = clock(of.begun_s);
            protocol::say!("joulepoint: {} (checkpoint {} of {at})", line(&self.protection), of.number);
            return Some(self.event());
        }
        let change = |before: f64, now: f64| (now - before).abs() > NOTABLE_CHANGE * before;
        let changed = match (was.largest_loss_s, loss_s) {
            (Some(before), Some(now)) => change(before, now),
            (before, now) => before.is_some() != now.is_some(),
        };
        settled.or_else(|| (changed || was.reason != self.protection.reason).then(|| self.event()))
    }

    /// The script works by itself, beside what its checkpoints hold, or does so no more; said when it is seen first.
    pub fn works_beside(&mut self, program: Option<String>) -> Option<Event> {
        if self.beside == program || self.protection.state != ProtectionState::Protected {
            return None;
        }
        self.beside = program;
        self.protection.reason = self.reason();
        if self.beside.is_some() && !std::mem::replace(&mut self.beside_is_said, true) {
            protocol::say!("joulepoint: {}", line(&self.protection));
        }
        Some(self.event())
    }

    /// What is said of a protected run beside the loss: who has disabled checkpoints, or from what none protects.
    fn reason(&self) -> String {
        if let Some(by) = &self.disabled_by {
            return format!("{by} has disabled further ones, until 'joulepoint enable'");
        }
        let own = |program: &String| format!("what the script does by itself ({program}) is done again");
        let all = [self.grown.values().next().cloned(), self.beside.as_ref().map(own), Some(self.but.clone())];
        let all: Vec<String> = all.into_iter().flatten().filter(|text| !text.is_empty()).collect();
        all.join(", and ")
    }

    /// A checkpoint failed: a reason is said once, and again after one that was complete; what a failure costs by now is
    /// said each time that it has doubled. What was to be saved `has_ended` meanwhile, or could not be saved.
    pub fn failed(&mut self, now_s: f64, group: Option<usize>, reason: &str, has_ended: bool) -> Option<Event> {
        let number = group.unwrap_or(0);
        let said = self.said.entry(number).or_default();
        // That a step ends is no news, unless no checkpoint was made in the time in which one was to be.
        let is_late = self.protection.state == ProtectionState::Unproven && now_s >= self.due_s;
        let is_new = (!has_ended || is_late) && said.reason != reason;
        if is_new {
            (said.reason, said.times) = (reason.to_string(), 0);
        }
        said.times += u32::from(said.reason == reason);
        let whose = group.map_or_else(String::new, |group| format!(" of group {group}"));
        if said.times == LASTING {
            protocol::say!("joulepoint: {LASTING} checkpoints{whose} in a row have failed for this: {reason}");
        }
        if self.protection.state == ProtectionState::Protected {
            if is_new {
                protocol::say!("joulepoint: a checkpoint{whose} failed: {reason}; earlier ones stay valid");
            }
            return self.grows(now_s, number, &whose);
        }
        if !is_new {
            return None;
        }
        self.lacks(format!("the first checkpoint{whose} failed: {reason}"))
    }

    /// Whether there was a checkpoint to go on from when one was told of last.
    pub fn has_one(&self) -> bool {
        !self.have.is_empty()
    }

    /// A checkpoint failed, and somebody has removed those that there were.
    pub fn vanished(&mut self, why: &str) -> Option<Event> {
        self.have.clear();
        self.said.entry(0).or_default().reason = why.to_string();
        self.lacks(format!("a checkpoint failed ({why}), and those before it are not there any more"))
    }

    /// Since checkpoints fail, a failure costs more than was said.
    fn grows(&mut self, now_s: f64, group: usize, whose: &str) -> Option<Event> {
        let newest_s = *self.newest_s.get(&group)?;
        let (lost_s, known_s) = (now_s - newest_s, self.protection.largest_loss_s.unwrap_or(0.0));
        if lost_s <= known_s * (1.0 + NOTABLE_CHANGE) {
            return None;
        }
        self.have.insert(group, Some(lost_s));
        let since = format!("no checkpoint{whose} since {}: more until one is made", clock(newest_s));
        self.grown.insert(group, since);
        self.protection.largest_loss_s = Some(lost_s);
        self.protection.reason = self.reason();
        let said = self.said.entry(group).or_default();
        if lost_s >= 2.0 * said.loss_s {
            said.loss_s = lost_s;
            let (at, costs) = (clock(newest_s), spoken(lost_s));
            protocol::say!(
                "joulepoint: no checkpoint{whose} since {at}: a failure costs {costs} of work by now, and more until one is made"
            );
        }
        Some(self.event())
    }

    /// It was seen before the first checkpoint that none can be made as the program is now.
    pub fn hindered(&mut self, reason: &str) -> Option<Event> {
        if self.protection.state != ProtectionState::Unproven {
            return None;
        }
        self.lacks(format!("as the program is now it cannot be dumped: {reason}"))
    }

    /// Says what is missing, once, when the program has made no checkpoint by its first interval; and when the newest is much older
    /// than was to be expected.
    pub fn overdue(&mut self, now_s: f64) -> Option<Event> {
        if self.protection.state == ProtectionState::Protected {
            let known_s = self.protection.largest_loss_s?;
            let is_old = |newest_s: &f64| now_s - newest_s > OLD * known_s + GRACE_S;
            let (group, _) = self.newest_s.iter().find(|(_, newest_s)| is_old(newest_s))?;
            let (group, several) = (*group, self.groups > 1);
            let whose = if several { format!(" of group {group}") } else { String::new() };
            return self.grows(now_s, group, &whose);
        }
        if self.on_demand || self.protection.state != ProtectionState::Unproven || now_s < self.due_s {
            return None;
        }
        self.lacks(format!("the program has written no checkpoint yet; looked for: {}", self.looks_for))
    }

    /// When [`Guard::overdue`] has to be asked at the latest, for a first checkpoint that is not there.
    pub fn due_s(&self) -> f64 {
        let waits = !self.on_demand && self.protection.state == ProtectionState::Unproven;
        if waits { self.due_s } else { f64::INFINITY }
    }

    /// Somebody has disabled further checkpoints, or enables them again: without them nothing bounds what a failure costs.
    pub fn switched(&mut self, disabled_by: Option<&str>) -> Option<Event> {
        if self.protection.state != ProtectionState::Protected || self.disabled_by.as_deref() == disabled_by {
            return None;
        }
        self.disabled_by = disabled_by.map(str::to_string);
        (self.protection.reason, self.protection.largest_loss_s) = (self.reason(), None);
        protocol::say!("joulepoint: {}", line(&self.protection));
        Some(self.event())
    }

    fn lacks(&mut self, reason: String) -> Option<Event> {
        self.protection.state = ProtectionState::NotProtected;
        (self.protection.reason, self.protection.largest_loss_s) = (reason, None);
        protocol::say!("joulepoint: {}", line(&self.protection));
        Some(self.event())
    }

    /// All groups have a checkpoint, or not; an event if that is new.
    fn settle(&mut self) -> Option<Event> {
        if self.have.len() < self.groups || self.protection.state == ProtectionState::Protected {
            return None;
        }
        self.protection.state = ProtectionState::Protected;
        // Files that a program announces are taken without any engine, as by this one.
        if self.protection.engine == "none" {
            self.protection.engine = Engine::App.as_str().to_string();
        }
        self.protection.reason = self.reason();
        self.protection.cure.clear();
        Some(self.event())
    }

    /// What a failure costs at most; of a program that makes checkpoints by itself that is seen only.
    fn loss_s(&self, interval_s: f64, checkpoint_s: f64) -> Option<f64> {
        match self.on_demand {
            true => Some(interval_s + checkpoint_s),
            false => Some(self.longest_gap_s).filter(|gap_s| *gap_s > 0.0),
        }
    }

    fn event(&self) -> Event {
        Event::Protection(Box::new(self.protection.clone()))
    }
}

/// How far a run is protected, in one line.
pub fn line(protection: &Protection) -> String {
    let Protection { state, engine, reason, cure, largest_loss_s, .. } = protection;
    let loss = largest_loss_s.map(|s| format!("a failure costs {} of work at most", spoken(s)));
    match state {
        ProtectionState::Protected => {
            let loss =
                loss.unwrap_or_else(|| "a failure costs the work since the program's last checkpoint".to_string());
            let but = if reason.is_empty() { String::new() } else { format!(", but {reason}") };
            format!("protected by engine {engine}: {loss}{but}")
        }
        ProtectionState::Unproven => {
            let then = loss.map_or_else(String::new, |loss| format!("; after the first, {loss}"));
            format!("not proven yet (engine {engine}): {reason}; until then a failure costs all work{then}")
        }
        ProtectionState::NotProtected => {
            let cure = if cure.is_empty() { String::new() } else { format!("; {cure}") };
            format!("NOT PROTECTED: {reason}; a failure costs all work{cure}")
        }
    }
}

/// A moment as the clock on the wall shows it.
pub fn clock(at_s: f64) -> String {
    let moment = Timestamp::from_second(at_s as i64).unwrap_or_default();
    moment.to_zoned(TimeZone::system()).strftime("%H:%M:%S").to_string()
}

#[cfg(test)]
mod tests;

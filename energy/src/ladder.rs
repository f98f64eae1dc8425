//! Reads the first usable source of a list, falls to the next when it fails, and tries the better ones again.

use std::sync::Arc;

use crate::counter::limit_j;
use crate::{Config, Coverage, Error, Mark, MarkKind, Ready, Source, SourceKind};

/// Opens a source of a kind, or says why it cannot be had.
pub(crate) type Opener = Arc<dyn Fn(SourceKind) -> Result<Box<dyn Source>, Error> + Send + Sync>;

/// State of a source of the list.
enum State {
    /// Not usable; to be tried again at the time, if there was one to start from.
    Refused { retry_at_s: Option<f64> },
    /// Open, without a first reading yet.
    Pending(Box<dyn Source>),
    /// Read now.
    Current(Box<dyn Source>),
    /// Less preferred than the current one, and so not opened.
    Unneeded,
}

struct Slot {
    kind: SourceKind,
    failures: u32,
    state: State,
}

/// What one reading gave.
pub(crate) enum Step {
    /// No source is usable.
    None,
    /// So many joules since the reading before.
    Read { kind: SourceKind, covers: Coverage, joules: f64 },
    /// The source failed; nothing of the interval is counted, and the next one is read from here on.
    Lost(SourceKind),
}

/// Sources of a node in order of preference.
pub(crate) struct Ladder {
    opener: Opener,
    slots: Vec<Slot>,
    refused: Vec<(SourceKind, String)>,
    marks: Vec<Mark>,
    /// The current source's last value, J, and when it last moved and was last read.
    source_j: f64,
    moved_s: f64,
    last_s: Option<f64>,
    max_node_w: f64,
    stale_s: f64,
    retry_s: f64,
}

impl Ladder {
    /// Opens the first usable one of `kinds`.
    pub(crate) fn open(kinds: Vec<SourceKind>, config: &Config, opener: Opener) -> Ladder {
        let slots = kinds.into_iter().map(|kind| Slot { kind, failures: 0, state: State::Unneeded }).collect();
        let mut ladder = Ladder {
            opener,
            slots,
            refused: Vec::new(),
            marks: Vec::new(),
            source_j: 0.0,
            moved_s: 0.0,
            last_s: None,
            max_node_w: config.max_node_w,
            stale_s: config.stale_s,
            retry_s: config.retry_s.max(1.0),
        };
        ladder.choose(None);
        ladder
    }

    /// The source read now.
    pub(crate) fn current(&self) -> Option<&dyn Source> {
        self.slots.iter().find_map(|slot| match &slot.state {
            State::Current(source) => Some(&**source),
            _ => None,
        })
    }

    /// The sources that cannot be used, each with the last reason.
    pub(crate) fn refused(&self) -> &[(SourceKind, String)] {
        &self.refused
    }

    /// What happened since it was asked last.
    pub(crate) fn take_marks(&mut self) -> Vec<Mark> {
        std::mem::take(&mut self.marks)
    }

    /// Reads the current source at `now_s`, which never falls.
    pub(crate) fn step(&mut self, now_s: f64) -> Step {
        let dt_s = now_s
            - *self.last_s.get_or_insert_with(|| {
                self.moved_s = now_s;
                now_s
            });
        self.last_s = Some(now_s);
        let Some(index) = self.place() else { return Step::None };
        let kind = self.slots[index].kind;
        match self.read(index, now_s, dt_s) {
            Ok((covers, joules)) => Step::Read { kind, covers, joules },
            Err(error) => {
                self.marks.push(Mark::new(now_s, MarkKind::Lost, kind, error.to_string()));
                self.refuse(index, Some(now_s), error.to_string());
                self.choose(Some(now_s));
                Step::Lost(kind)
            }
        }
    }

    fn place(&self) -> Option<usize> {
        self.slots.iter().position(|s| matches!(s.state, State::Current(_)))
    }

    /// What the current source adds, if it can be believed.
    fn read(&mut self, index: usize, now_s: f64, dt_s: f64) -> Result<(Coverage, f64), Error> {
        let slot = &mut self.slots[index];
        let State::Current(source) = &mut slot.state else { return Err(Error::refused("not open")) };
        let joules = source.joules(now_s)?;
        let delta_j = joules - self.source_j;
        if !delta_j.is_finite() || delta_j < 0.0 {
            let what = format!("{} (joules)", slot.kind);
            return Err(Error::Backwards { what, from: self.source_j as u64, to: joules as u64 });
        }
        // A source that moves in bursts may deliver all since it moved last.
        let since_s = (now_s - self.moved_s).max(dt_s);
        if delta_j > limit_j(self.max_node_w, since_s) {
            let (what, limit_w) = (slot.kind.to_string(), self.max_node_w);
            return Err(Error::Jump { what, delta_j, dt_s: since_s, limit_w });
        }
        if delta_j > 0.0 {
            self.moved_s = now_s;
        } else if now_s - self.moved_s > self.stale_s {
            return Err(Error::Stale { what: slot.kind.to_string(), for_s: now_s - self.moved_s });
        }
        self.source_j = joules;
        let notes = source.take_notes().into_iter();
        self.marks.extend(notes.map(|note| Mark::new(now_s, MarkKind::Note, slot.kind, note)));
        Ok((source.covers(), delta_j))
    }

    /// Opens sources in order until one can be read at once; those before it that need time stay pending.
    ///
    /// Counting begins now: only what it adds from here on counts. Before the first sample there is no such moment.
    fn choose(&mut self, now_s: Option<f64>) {
        for index in 0..self.slots.len() {
            if !matches!(self.slots[index].state, State::Unneeded) || !self.try_open(index, now_s) {
                continue;
            }
            match now_s.map_or(Ok(0.0), |now_s| self.zero(index, now_s)) {
                Ok(source_j) => return self.take(index, now_s, source_j),
                Err(error) => self.refuse(index, now_s, error.to_string()),
            }
        }
    }

    /// Tries the sources before the current one whose time has come.
    pub(crate) fn reconsider(&mut self, now_s: f64) {
        for index in 0..self.place().unwrap_or(self.slots.len()) {
            let ready = match &mut self.slots[index].state {
                State::Refused { retry_at_s: Some(at_s) } if now_s >= *at_s => self.try_open(index, Some(now_s)),
                State::Refused { retry_at_s: retry @ None } => {
                    *retry = Some(now_s + self.retry_s);
                    false
                }
                State::Pending(_) => self.poll(index, Some(now_s)),
                _ => false,
            };
            if !ready {
                continue;
            }
            match self.zero(index, now_s) {
                Ok(source_j) => return self.take(index, Some(now_s), source_j),
                Err(error) => self.refuse(index, Some(now_s), error.to_string()),
            }
        }
    }

    /// Whether the source can be read at once.
    fn try_open(&mut self, index: usize, now_s: Option<f64>) -> bool {
        match (self.opener)(self.slots[index].kind) {
            Ok(source) => {
                self.slots[index].state = State::Pending(source);
                self.poll(index, now_s)
            }
            Err(error) => {
                self.refuse(index, now_s, error.to_string());
                false
            }
        }
    }

    fn poll(&mut self, index: usize, now_s: Option<f64>) -> bool {
        let State::Pending(source) = &mut self.slots[index].state else { return false };
        match source.ready() {
            Ok(Ready::Yes) => true,
            Ok(Ready::NotYet) => false,
            Err(error) => {
                self.refuse(index, now_s, error.to_string());
                false
            }
        }
    }

    /// The present value of a ready source.
    fn zero(&mut self, index: usize, now_s: f64) -> Result<f64, Error> {
        match &mut self.slots[index].state {
            State::Pending(source) => source.joules(now_s),
            _ => Err(Error::refused("not open")),
        }
    }

    /// Makes a ready source the current one; its counter stands at `source_j`.
    fn take(&mut self, index: usize, now_s: Option<f64>, source_j: f64) {
        for other in &mut self.slots[index + 1..] {
            other.state = State::Unneeded;
        }
        let slot = &mut self.slots[index];
        let State::Pending(source) = std::mem::replace(&mut slot.state, State::Unneeded) else { return };
        let (kind, text) = (slot.kind, source.describe());
        slot.state = State::Current(source);
        self.refused.retain(|(k, _)| *k != kind);
        self.source_j = source_j;
        self.moved_s = now_s.unwrap_or(self.moved_s);
        self.marks.push(Mark::new(now_s.unwrap_or_default(), MarkKind::Switched, kind, text));
    }

    fn refuse(&mut self, index: usize, now_s: Option<f64>, reason: String) {
        let slot = &mut self.slots[index];
        // At most a day.
        let wait_s = (self.retry_s * f64::from(1_u32 << slot.failures.min(16))).min(86_400.0);
        slot.failures += 1;
        slot.state = State::Refused { retry_at_s: now_s.map(|s| s + wait_s) };
        let kind = slot.kind;
        self.refused.retain(|(k, _)| *k != kind);
        self.refused.push((kind, reason));
    }
}

//! Keeps one cumulative figure for the node over sources that come, fail and return.
//!
//! A source that vanishes, jumps, stands still or runs backwards is marked and replaced by the next in the
//! order of the configuration; the interval in which it failed is bridged by the model, and marked as such. A
//! better source is tried again later, after longer and longer times.

use crate::counter::limit_j;
use crate::hwmon::Hwmon;
use crate::ipmi::Ipmi;
use crate::model::Reckoned;
use crate::pm_counters::PmCounters;
use crate::rapl::Rapl;
use crate::slurm::SlurmFigure;
use crate::{Config, Error, Load, Model, Ready, Source, SourceKind};

/// What kind of event a mark tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// A source failed and is no longer read.
    Lost,
    /// Another source is read from here on.
    Switched,
    /// An interval's joules come from the model, because the source failed in it.
    Bridged,
    /// Something about a source that a reader of its figures should know.
    Note,
}

impl MarkKind {
    /// The name used in records and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MarkKind::Lost => "lost",
            MarkKind::Switched => "switched",
            MarkKind::Bridged => "bridged",
            MarkKind::Note => "note",
        }
    }
}

/// One thing that happened to the figures.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// When.
    pub at_s: f64,
    /// Of what kind.
    pub kind: MarkKind,
    /// The source concerned.
    pub source: SourceKind,
    /// In words.
    pub text: String,
}

/// The figure at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Joules of the node since the meter was opened, over all sources; never falls.
    pub joules: f64,
    /// Where the joules since the sample before come from.
    pub source: SourceKind,
    /// What happened since the sample before.
    pub marks: Vec<Mark>,
}

/// How a source of the configuration stands.
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

type Opener = Box<dyn Fn(SourceKind) -> Result<Box<dyn Source>, Error> + Send>;

/// The meter of one node.
pub struct Meter {
    opener: Opener,
    slots: Vec<Slot>,
    refused: Vec<(SourceKind, String)>,
    marks: Vec<Mark>,
    /// Always reckoned along, to bridge intervals.
    model: Reckoned,
    model_j: f64,
    total_j: f64,
    source_j: f64,
    moved_s: f64,
    last_s: Option<f64>,
    max_node_w: f64,
    stale_s: f64,
    retry_s: f64,
}

/// Opens the first usable source of the configuration.
pub fn open(config: &Config) -> Meter {
    let own = config.clone();
    Meter::with(config, Box::new(move |kind| open_source(kind, &own)))
}

fn open_source(kind: SourceKind, config: &Config) -> Result<Box<dyn Source>, Error> {
    Ok(match kind {
        SourceKind::Rapl => Box::new(Rapl::open(config)?),
        SourceKind::PmCounters => Box::new(PmCounters::open(config)?),
        SourceKind::Ipmi => Box::new(Ipmi::open(config)?),
        SourceKind::Hwmon => Box::new(Hwmon::open(config)?),
        SourceKind::Nvml => return Err(Error::refused("GPU counters are not read yet, and are no figure for a node")),
        SourceKind::Slurm => Box::new(SlurmFigure::open(config)?),
        SourceKind::Model => Box::new(Reckoned::open(config)?),
    })
}

impl Meter {
    fn with(config: &Config, opener: Opener) -> Meter {
        let mut order: Vec<SourceKind> = Vec::new();
        // The model stands behind every list, so that a node always has a figure and never a silent zero.
        for kind in config.precedence.iter().copied().chain([SourceKind::Model]) {
            if !order.contains(&kind) {
                order.push(kind);
            }
        }
        let slots = order.into_iter().map(|kind| Slot { kind, failures: 0, state: State::Unneeded }).collect();
        let model = if config.model.is_sane() { config.model } else { Model::default() };
        let mut meter = Meter {
            opener,
            slots,
            refused: Vec::new(),
            marks: Vec::new(),
            model: Reckoned::with(model),
            model_j: 0.0,
            total_j: 0.0,
            source_j: 0.0,
            moved_s: 0.0,
            last_s: None,
            max_node_w: config.max_node_w,
            stale_s: config.stale_s,
            retry_s: config.retry_s.max(1.0),
        };
        meter.choose(None);
        meter
    }

    /// The sources that cannot be used, each with the last reason.
    pub fn refused(&self) -> &[(SourceKind, String)] {
        &self.refused
    }

    /// The source read now.
    pub fn source(&self) -> SourceKind {
        self.current().map_or(SourceKind::Model, |i| self.slots[i].kind)
    }

    /// What exactly is read now, in words.
    pub fn describe(&self) -> String {
        match self.current().map(|i| &self.slots[i].state) {
            Some(State::Current(source)) => source.describe(),
            _ => self.model.describe(),
        }
    }

    /// Takes the figure at `now_s`, a clock that should not fall; if it does, no time has passed.
    pub fn sample(&mut self, now_s: f64, load: &Load) -> Sample {
        let first = self.last_s.is_none();
        let now_s = self.last_s.map_or(now_s, |last_s| last_s.max(now_s));
        let dt_s = now_s - self.last_s.unwrap_or(now_s);
        if first {
            self.moved_s = now_s;
        }
        let before_j = self.model_j;
        self.model_j = self.model.advance(now_s, load);
        let bridge_j = self.model_j - before_j;
        let used = self.source();
        let source = match self.read(now_s, dt_s, load) {
            Ok(delta_j) => {
                self.total_j += delta_j;
                used
            }
            Err(error) => {
                self.lose(now_s, load, &error);
                if dt_s > 0.0 {
                    self.mark(
                        now_s,
                        MarkKind::Bridged,
                        SourceKind::Model,
                        format!("{dt_s:.3} s taken as {bridge_j:.1} J, since {used} failed"),
                    );
                }
                self.total_j += bridge_j;
                SourceKind::Model
            }
        };
        self.reconsider(now_s, load);
        self.last_s = Some(now_s);
        let marks = std::mem::take(&mut self.marks);
        Sample { joules: self.total_j, source: if first { self.source() } else { source }, marks }
    }

    fn current(&self) -> Option<usize> {
        self.slots.iter().position(|s| matches!(s.state, State::Current(_)))
    }

    /// What the current source adds, if it can be believed.
    fn read(&mut self, now_s: f64, dt_s: f64, load: &Load) -> Result<f64, Error> {
        let Some(index) = self.current() else { return Err(Error::refused("no source")) };
        let kind = self.slots[index].kind;
        let State::Current(source) = &mut self.slots[index].state else { return Err(Error::refused("no source")) };
        let joules = source.joules(now_s, load)?;
        let notes = source.take_notes();
        let delta_j = joules - self.source_j;
        if !delta_j.is_finite() || delta_j < 0.0 {
            let what = format!("{kind} (joules)");
            return Err(Error::Backwards { what, from: self.source_j as u64, to: joules as u64 });
        }
        // A source that moves in bursts may deliver all since it moved last.
        let since_s = (now_s - self.moved_s).max(dt_s);
        if delta_j > limit_j(self.max_node_w, since_s) {
            return Err(Error::Jump { what: kind.to_string(), delta_j, dt_s: since_s, limit_w: self.max_node_w });
        }
        if delta_j > 0.0 {
            self.moved_s = now_s;
        } else if kind != SourceKind::Model && now_s - self.moved_s > self.stale_s {
            return Err(Error::Stale { what: kind.to_string(), for_s: now_s - self.moved_s });
        }
        self.source_j = joules;
        for note in notes {
            self.mark(now_s, MarkKind::Note, kind, note);
        }
        Ok(delta_j)
    }

    /// Gives up the current source and takes the next.
    fn lose(&mut self, now_s: f64, load: &Load, error: &Error) {
        if let Some(index) = self.current() {
            let kind = self.slots[index].kind;
            self.mark(now_s, MarkKind::Lost, kind, error.to_string());
            self.refuse(index, Some(now_s), error.to_string());
        }
        self.choose(Some((now_s, load)));
    }

    /// Opens sources in order until one can be read at once; those before it that need time stay pending.
    ///
    /// Its zero is now: what it says from here on counts. Before the first sample there is no now.
    fn choose(&mut self, now: Option<(f64, &Load)>) {
        let now_s = now.map(|(now_s, _)| now_s);
        for index in 0..self.slots.len() {
            if !matches!(self.slots[index].state, State::Unneeded) || !self.try_open(index, now_s) {
                continue;
            }
            match now.map_or(Ok(0.0), |(now_s, load)| self.zero(index, now_s, load)) {
                Ok(source_j) => return self.take(index, now_s, source_j),
                Err(error) => self.refuse(index, now_s, error.to_string()),
            }
        }
        // Not even the model of the configuration is sane: the built-in one stands in, and says so.
        if let Some(index) = self.slots.iter().position(|s| s.kind == SourceKind::Model) {
            let at_s = now_s.unwrap_or_default();
            self.mark(
                at_s,
                MarkKind::Note,
                SourceKind::Model,
                "the configured model is unusable; the built-in one stands in".into(),
            );
            self.slots[index].state = State::Pending(Box::new(Reckoned::with(Model::default())));
            let source_j = now.and_then(|(now_s, load)| self.zero(index, now_s, load).ok());
            self.take(index, now_s, source_j.unwrap_or_default());
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

    /// What a ready source says now.
    fn zero(&mut self, index: usize, now_s: f64, load: &Load) -> Result<f64, Error> {
        match &mut self.slots[index].state {
            State::Pending(source) => source.joules(now_s, load),
            _ => Err(Error::refused("not open")),
        }
    }

    /// Makes a ready source the current one; its counter stands at `source_j`.
    fn take(&mut self, index: usize, now_s: Option<f64>, source_j: f64) {
        for other in &mut self.slots[index + 1..] {
            other.state = State::Unneeded;
        }
        let slot = &mut self.slots[index];
        if let State::Pending(source) = std::mem::replace(&mut slot.state, State::Unneeded) {
            slot.state = State::Current(source);
        }
        let kind = slot.kind;
        self.refused.retain(|(k, _)| *k != kind);
        self.source_j = source_j;
        self.moved_s = now_s.unwrap_or(self.moved_s);
        let text = self.describe();
        self.mark(now_s.unwrap_or_default(), MarkKind::Switched, kind, text);
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

    /// Tries the sources before the current one whose time has come.
    fn reconsider(&mut self, now_s: f64, load: &Load) {
        let before = self.current().unwrap_or(self.slots.len());
        for index in 0..before {
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
            match self.zero(index, now_s, load) {
                Ok(source_j) => return self.take(index, Some(now_s), source_j),
                Err(error) => self.refuse(index, Some(now_s), error.to_string()),
            }
        }
    }

    fn mark(&mut self, at_s: f64, kind: MarkKind, source: SourceKind, text: String) {
        match kind {
            MarkKind::Lost | MarkKind::Bridged => tracing::warn!(%source, mark = kind.as_str(), "{text}"),
            MarkKind::Switched | MarkKind::Note => tracing::info!(%source, mark = kind.as_str(), "{text}"),
        }
        self.marks.push(Mark { at_s, kind, source, text });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What scripted sources say next: a missing kind does not exist, `Err` fails to read.
    type Script = Arc<Mutex<HashMap<SourceKind, Result<f64, String>>>>;

    struct Scripted(SourceKind, Script, Option<f64>);

    impl Source for Scripted {
        fn kind(&self) -> SourceKind {
            self.0
        }
        fn joules(&mut self, _now_s: f64, _load: &Load) -> Result<f64, Error> {
            let value =
                self.1.lock().unwrap().get(&self.0).cloned().unwrap_or(Err("gone".into())).map_err(Error::refused)?;
            Ok(value - *self.2.get_or_insert(value))
        }
        fn describe(&self) -> String {
            format!("scripted {}", self.0)
        }
        fn ready(&mut self) -> Result<Ready, Error> {
            match self.1.lock().unwrap().get(&self.0) {
                Some(Ok(j)) if j.is_nan() => Ok(Ready::NotYet),
                _ => Ok(Ready::Yes),
            }
        }
    }

    fn meter(script: &Script) -> Meter {
        let config = Config { model: Model { idle_w: 50.0, busy_w: 50.0 }, ..Config::default() };
        let script = script.clone();
        Meter::with(
            &config,
            Box::new(move |kind| match script.lock().unwrap().get(&kind) {
                Some(_) => Ok(Box::new(Scripted(kind, script.clone(), None))),
                None if kind == SourceKind::Model => Ok(Box::new(Reckoned::with(Model { idle_w: 50.0, busy_w: 50.0 }))),
                None => Err(Error::refused("not here")),
            }),
        )
    }

    fn set(script: &Script, kind: SourceKind, value: Result<f64, &str>) {
        script.lock().unwrap().insert(kind, value.map_err(String::from));
    }

    fn at(m: &mut Meter, now_s: f64) -> Sample {
        m.sample(now_s, &Load { cpu_s: 0.0, cpus: 1 })
    }

    fn kinds(s: &Sample) -> Vec<MarkKind> {
        s.marks.iter().map(|m| m.kind).collect()
    }

    #[test]
    fn the_first_usable_source_wins_and_the_refused_have_reasons() {
        let script = Script::default();
        set(&script, SourceKind::PmCounters, Ok(500.0));
        let mut m = meter(&script);
        assert_eq!(m.source(), SourceKind::PmCounters);
        assert_eq!(m.refused(), [(SourceKind::Rapl, "not here".to_string())]);
        assert_eq!(at(&mut m, 0.0).joules, 0.0);
        set(&script, SourceKind::PmCounters, Ok(700.0));
        let s = at(&mut m, 1.0);
        assert_eq!((s.joules, s.source, s.marks.len()), (200.0, SourceKind::PmCounters, 0));
    }

    #[test]
    fn a_source_that_vanishes_is_replaced_and_the_interval_bridged() {
        let script = Script::default();
        set(&script, SourceKind::Rapl, Ok(0.0));
        set(&script, SourceKind::Hwmon, Ok(9000.0));
        let mut m = meter(&script);
        at(&mut m, 0.0);
        set(&script, SourceKind::Rapl, Ok(100.0));
        at(&mut m, 1.0);
        script.lock().unwrap().remove(&SourceKind::Rapl);
        let s = at(&mut m, 2.0);
        assert_eq!((s.joules, s.source), (150.0, SourceKind::Model));
        assert_eq!(kinds(&s), [MarkKind::Lost, MarkKind::Switched, MarkKind::Bridged]);
        assert_eq!(m.source(), SourceKind::Hwmon);
        set(&script, SourceKind::Hwmon, Ok(9070.0));
        let s = at(&mut m, 3.0);
        assert_eq!((s.joules, s.source), (220.0, SourceKind::Hwmon), "nothing is lost after the switch");
    }

    #[test]
    fn backwards_jumps_and_standstill_are_never_counted() {
        for (bad, word) in
            [(Ok(-5.0), "backwards"), (Ok(1e9), "jumped"), (Ok(f64::NAN), "backwards"), (Err("EIO"), "EIO")]
        {
            let script = Script::default();
            set(&script, SourceKind::Rapl, Ok(0.0));
            let mut m = meter(&script);
            at(&mut m, 0.0);
            set(&script, SourceKind::Rapl, bad);
            let s = at(&mut m, 1.0);
            assert_eq!((s.joules, m.source()), (50.0, SourceKind::Model), "{bad:?}");
            assert!(s.marks[0].text.contains(word), "{:?}", s.marks);
        }
        let script = Script::default();
        set(&script, SourceKind::Rapl, Ok(7.0));
        let mut m = meter(&script);
        for t in 0..=120 {
            assert_eq!(at(&mut m, f64::from(t)).joules, 0.0);
        }
        assert!(at(&mut m, 121.0).marks[0].text.contains("unchanged for 121 s"));
    }

    #[test]
    fn a_better_source_is_tried_again_and_taken_without_a_gap() {
        let script = Script::default();
        set(&script, SourceKind::Rapl, Ok(0.0));
        let mut m = meter(&script);
        at(&mut m, 0.0);
        set(&script, SourceKind::Rapl, Err("EIO"));
        at(&mut m, 1.0);
        set(&script, SourceKind::Rapl, Ok(4000.0));
        assert_eq!(at(&mut m, 60.0).source, SourceKind::Model);
        let s = at(&mut m, 61.0);
        assert_eq!(s.source, SourceKind::Model, "the interval was still the model's");
        assert_eq!((m.source(), s.joules), (SourceKind::Rapl, 61.0 * 50.0));
        set(&script, SourceKind::Rapl, Ok(4100.0));
        assert_eq!(at(&mut m, 62.0).joules, 61.0 * 50.0 + 100.0);
        // The second failure waits twice as long.
        set(&script, SourceKind::Rapl, Err("EIO"));
        at(&mut m, 63.0);
        set(&script, SourceKind::Rapl, Ok(0.0));
        assert_eq!(at(&mut m, 182.0).joules, 120.0 * 50.0 + 3150.0);
        assert_eq!(m.source(), SourceKind::Model);
        at(&mut m, 183.0);
        assert_eq!(m.source(), SourceKind::Rapl);
    }

    #[test]
    fn a_source_that_needs_time_is_taken_when_its_first_reading_is_there() {
        let script = Script::default();
        set(&script, SourceKind::Ipmi, Ok(f64::NAN));
        let mut m = meter(&script);
        assert_eq!(m.source(), SourceKind::Model);
        at(&mut m, 0.0);
        set(&script, SourceKind::Ipmi, Ok(77.0));
        let s = at(&mut m, 1.0);
        assert_eq!((s.joules, s.source, m.source()), (50.0, SourceKind::Model, SourceKind::Ipmi));
        set(&script, SourceKind::Ipmi, Ok(97.0));
        assert_eq!(at(&mut m, 2.0).joules, 70.0);
    }

    #[test]
    fn a_clock_that_falls_adds_nothing() {
        let script = Script::default();
        let mut m = meter(&script);
        at(&mut m, 10.0);
        assert_eq!(at(&mut m, 12.0).joules, 100.0);
        assert_eq!(at(&mut m, 5.0).joules, 100.0);
        assert_eq!(at(&mut m, 13.0).joules, 150.0);
    }

    #[test]
    fn even_an_absurd_configuration_has_a_figure_and_says_why() {
        let absurd = Model { idle_w: f64::NAN, busy_w: -1.0 };
        let none = "/nonexistent";
        let config = Config {
            precedence: vec![SourceKind::Rapl, SourceKind::Nvml],
            model: absurd,
            rapl_root: none.into(),
            ..Config::default()
        };
        let mut m = open(&config);
        at(&mut m, 0.0);
        let s = at(&mut m, 1.0);
        assert_eq!((s.joules, s.source), (100.0, SourceKind::Model));
        assert_eq!(m.refused().len(), 2, "{:?}", m.refused());
    }
}

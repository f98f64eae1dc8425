//! Keeps one cumulative figure for the node over sources that come, fail and return.
//!
//! The first usable source of the configuration is read; if it is without GPUs, `nvml` is added to it. A source
//! that vanishes, jumps, stands still or runs backwards is marked and replaced by the next. The interval in
//! which it failed is bridged by the model, and marked as such; the model also stands behind every list, so that
//! a node always has a figure and never a silent zero.

use std::sync::Arc;

use crate::hwmon::Hwmon;
use crate::ipmi::Ipmi;
use crate::ladder::{Ladder, Opener, Step};
use crate::model::Reckoned;
use crate::nvml::Nvml;
use crate::pm_counters::PmCounters;
use crate::rapl::Rapl;
use crate::slurm::SlurmFigure;
use crate::{BySource, Config, Coverage, Error, Load, Mark, MarkKind, Model, Source, SourceKind};

/// The figure at one time.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Joules of the node since the meter was opened, over all sources; never falls.
    pub joules: f64,
    /// The same in parts that add up to it.
    pub by_source_j: BySource<f64>,
    /// What each GPU used since the sample before, J, in the order of their device files; empty if not known.
    pub gpus_j: Vec<f64>,
    /// Where the joules since the sample before come from; `nvml` may have been added.
    pub source: SourceKind,
    /// What happened since the sample before.
    pub marks: Vec<Mark>,
}

/// The meter of one node.
pub struct Meter {
    /// Sources that can be the node's figure.
    base: Ladder,
    /// Sources that are added to it.
    gpus: Ladder,
    /// The model runs always, to bridge intervals.
    model: Reckoned,
    by_source_j: BySource<f64>,
    last_s: Option<f64>,
    marks: Vec<Mark>,
}

/// Opens the first usable source of the configuration, and the GPUs' beside it.
pub fn open(config: &Config) -> Meter {
    let own = config.clone();
    Meter::with(config, Arc::new(move |kind| open_source(kind, &own)))
}

fn open_source(kind: SourceKind, config: &Config) -> Result<Box<dyn Source>, Error> {
    Ok(match kind {
        SourceKind::Rapl => Box::new(Rapl::open(config)?),
        SourceKind::PmCounters => Box::new(PmCounters::open(config)?),
        SourceKind::Ipmi => Box::new(Ipmi::open(config)?),
        SourceKind::Hwmon => Box::new(Hwmon::open(config)?),
        SourceKind::Nvml => Box::new(Nvml::open(config)?),
        SourceKind::Slurm => Box::new(SlurmFigure::open(config)?),
        SourceKind::Model => return Err(Error::refused("the model needs no source")),
    })
}

/// The kinds that can be a node's figure, each once; nothing comes after the model, which never fails.
fn base_kinds(config: &Config) -> Vec<SourceKind> {
    let mut kinds = Vec::new();
    for kind in config.precedence.iter().copied().take_while(|k| *k != SourceKind::Model) {
        if kind != SourceKind::Nvml && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

impl Meter {
    fn with(config: &Config, opener: Opener) -> Meter {
        let gpus = match config.precedence.contains(&SourceKind::Nvml) {
            true => vec![SourceKind::Nvml],
            false => Vec::new(),
        };
        let mut meter = Meter {
            base: Ladder::open(base_kinds(config), config, opener.clone()),
            gpus: Ladder::open(gpus, config, opener),
            model: Reckoned::new(config.model),
            by_source_j: BySource::default(),
            last_s: None,
            marks: Vec::new(),
        };
        if !config.model.is_sane() {
            let Model { idle_w, busy_w } = config.model;
            let text = format!(
                "idle_w = {idle_w} and busy_w = {busy_w} describe no node (0 <= idle_w <= busy_w, busy_w > 0); \
                 the built-in model stands in"
            );
            meter.marks.push(Mark::new(0.0, MarkKind::Note, SourceKind::Model, text));
        }
        meter.say_if_model(0.0);
        meter
    }

    /// The sources that cannot be used, each with the last reason.
    pub fn refused(&self) -> Vec<(SourceKind, String)> {
        [self.base.refused(), self.gpus.refused()].concat()
    }

    /// The source read now; `nvml` may be added to it.
    pub fn source(&self) -> SourceKind {
        self.base.current().map_or(SourceKind::Model, Source::kind)
    }

    /// Whether the node's GPUs are read, as its figure's part or to divide it.
    pub fn has_gpus(&self) -> bool {
        self.gpus.current().is_some()
    }

    /// What exactly is read now, in words.
    pub fn describe(&self) -> String {
        let base = self.base.current().map_or_else(|| self.model.describe(), Source::describe);
        let whole = self.base.current().is_some_and(|s| s.covers() == Coverage::Node);
        match self.gpus.current() {
            Some(gpus) if !whole => format!("{base}; added: {}", gpus.describe()),
            _ => base,
        }
    }

    /// Takes the figure at `now_s`, a clock that should not fall; if it does, no time has passed.
    pub fn sample(&mut self, now_s: f64, load: &Load) -> Sample {
        let first = self.last_s.is_none();
        let now_s = self.last_s.map_or(now_s, |last_s| last_s.max(now_s));
        let dt_s = now_s - self.last_s.replace(now_s).unwrap_or(now_s);
        let (source, covers) = self.read_base(now_s, dt_s, load);
        // Read in any case, so that its counter is up to date when a source without GPUs is taken.
        let mut gpus_j = Vec::new();
        if let Step::Read { joules, .. } = self.gpus.step(now_s) {
            gpus_j = self.gpus.current().map_or_else(Vec::new, Source::gpus_j);
            if covers != Coverage::Node {
                self.by_source_j[SourceKind::Nvml.index()] += joules;
            }
        }
        self.base.reconsider(now_s);
        self.gpus.reconsider(now_s);
        let mut marks = std::mem::take(&mut self.marks);
        marks.extend(self.base.take_marks());
        marks.extend(self.gpus.take_marks());
        Sample {
            joules: self.by_source_j.iter().sum(),
            by_source_j: self.by_source_j,
            gpus_j,
            source: if first { self.source() } else { source },
            marks,
        }
    }

    /// Counts what the node's own source gave, or else the model; says which, and what it covers.
    fn read_base(&mut self, now_s: f64, dt_s: f64, load: &Load) -> (SourceKind, Coverage) {
        let reckoned_j = self.model.advance(now_s, load);
        let (kind, covers, joules) = match self.base.step(now_s) {
            Step::Read { kind, covers, joules } => (kind, covers, joules),
            Step::None => (SourceKind::Model, Coverage::WithoutGpus, reckoned_j),
            Step::Lost(kind) => {
                self.marks.append(&mut self.base.take_marks());
                self.say_if_model(now_s);
                if dt_s > 0.0 {
                    let text = format!("{dt_s:.3} s taken as {reckoned_j:.1} J, since {kind} failed");
                    self.marks.push(Mark::new(now_s, MarkKind::Bridged, SourceKind::Model, text));
                }
                (SourceKind::Model, Coverage::WithoutGpus, reckoned_j)
            }
        };
        self.by_source_j[kind.index()] += joules;
        (kind, covers)
    }

    fn say_if_model(&mut self, now_s: f64) {
        if self.base.current().is_none() {
            let text = self.model.describe();
            self.marks.push(Mark::new(now_s, MarkKind::Switched, SourceKind::Model, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use super::*;
    use crate::Ready;

    /// What scripted sources say next: a missing kind does not exist, `Err` fails to read.
    type Script = Arc<Mutex<HashMap<SourceKind, Result<f64, String>>>>;

    struct Scripted(SourceKind, Script, Option<f64>);

    impl Source for Scripted {
        fn kind(&self) -> SourceKind {
            self.0
        }
        fn covers(&self) -> Coverage {
            match self.0 {
                SourceKind::Rapl => Coverage::WithoutGpus,
                SourceKind::Nvml => Coverage::Gpus,
                _ => Coverage::Node,
            }
        }
        fn joules(&mut self, _now_s: f64) -> Result<f64, Error> {
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
        let precedence = SourceKind::ALL.to_vec();
        let config = Config { precedence, model: Model { idle_w: 50.0, busy_w: 50.0 }, ..Config::default() };
        let script = script.clone();
        Meter::with(
            &config,
            Arc::new(move |kind| match script.lock().unwrap().get(&kind) {
                Some(_) => Ok(Box::new(Scripted(kind, script.clone(), None))),
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
        assert_eq!(m.refused(), [SourceKind::Rapl, SourceKind::Nvml].map(|k| (k, "not here".to_string())));
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
            nvml_library: none.into(),
            ..Config::default()
        };
        let mut m = open(&config);
        assert!(at(&mut m, 0.0).marks[0].text.contains("describe no node"));
        let s = at(&mut m, 1.0);
        assert_eq!((s.joules, s.source), (100.0, SourceKind::Model));
        assert_eq!(m.refused().len(), 2, "{:?}", m.refused());
    }

    #[test]
    fn gpus_are_added_to_a_source_without_them_and_to_no_other() {
        let script = Script::default();
        set(&script, SourceKind::Rapl, Ok(0.0));
        set(&script, SourceKind::PmCounters, Ok(0.0));
        set(&script, SourceKind::Nvml, Ok(0.0));
        let mut m = meter(&script);
        assert_eq!(m.describe(), "scripted rapl; added: scripted nvml");
        at(&mut m, 0.0);
        set(&script, SourceKind::Rapl, Ok(100.0));
        set(&script, SourceKind::Nvml, Ok(700.0));
        let s = at(&mut m, 1.0);
        assert_eq!((s.joules, s.source), (800.0, SourceKind::Rapl));
        assert_eq!(s.by_source_j[SourceKind::Nvml.index()], 700.0);
        // The interval is bridged by the model, which is without GPUs.
        set(&script, SourceKind::Rapl, Err("EIO"));
        set(&script, SourceKind::Nvml, Ok(1400.0));
        assert_eq!(at(&mut m, 2.0).joules, 800.0 + 50.0 + 700.0);
        // The board's counter has the GPUs in it.
        set(&script, SourceKind::PmCounters, Ok(900.0));
        set(&script, SourceKind::Nvml, Ok(2100.0));
        assert_eq!(at(&mut m, 3.0).joules, 1550.0 + 900.0);
        assert_eq!(m.describe(), "scripted pm_counters");
    }

    #[test]
    fn gpus_that_are_lost_are_marked_and_the_rest_goes_on() {
        let script = Script::default();
        set(&script, SourceKind::Rapl, Ok(0.0));
        set(&script, SourceKind::Nvml, Ok(0.0));
        let mut m = meter(&script);
        at(&mut m, 0.0);
        for (now_s, gpu, sum_j) in [(1.0, Ok(300.0), 400.0), (2.0, Ok(-1.0), 500.0), (3.0, Ok(600.0), 600.0)] {
            set(&script, SourceKind::Rapl, Ok(100.0 * now_s));
            set(&script, SourceKind::Nvml, gpu);
            let s = at(&mut m, now_s);
            assert_eq!((s.joules, s.source), (sum_j, SourceKind::Rapl));
            assert_eq!(kinds(&s).contains(&MarkKind::Lost), now_s == 2.0);
        }
        assert_eq!(m.refused().last().unwrap().0, SourceKind::Nvml);
    }

    #[test]
    fn nvml_alone_is_added_to_the_model() {
        let script = Script::default();
        set(&script, SourceKind::Nvml, Ok(0.0));
        let mut m = meter(&script);
        at(&mut m, 0.0);
        set(&script, SourceKind::Nvml, Ok(700.0));
        let s = at(&mut m, 1.0);
        assert_eq!((s.joules, s.source, m.source()), (750.0, SourceKind::Model, SourceKind::Model));
    }
}

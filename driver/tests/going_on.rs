//! What a program does while its checkpoint is brought to where it stays is computing, and its return from one is none.

use config::Site;
use driver::coordinated;
use driver::ledger::{Earlier, Killed};
use driver::ports::{
    Child, Clock, Cluster, Engine, Happening, Meter, NodeCounter, NotStarted, Ports, Saved, Store, Unprepared,
};
use driver::setup::{Outcome, Setup, Started};
use options::Settings;
use protection::Prospect;
use protocol::{Event, FailureKind, JobReading, Manifest, ManifestFile, Order, Phase, Verb};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

const BEGIN_S: f64 = 1e9;

/// Power of the node, W.
const POWER_W: f64 = 10.0;

/// What happens when, s after the beginning, and what the driver wrote down.
#[derive(Clone, Default)]
struct World {
    now_s: Rc<RefCell<f64>>,
    script: Rc<RefCell<VecDeque<(f64, Happening)>>>,
    events: Rc<RefCell<Vec<Event>>>,
    line: Option<Manifest>,
    /// The newest checkpoints from now on, as some are set aside, instead of that one.
    lines: Option<Rc<RefCell<VecDeque<Manifest>>>>,
    /// What a driver before has accounted for.
    accounted: Earlier,
    /// Nobody outside has ended the job.
    is_left_alone: bool,
    /// Another job wants its nodes, and its program writes checkpoints by itself.
    is_preempted: bool,
}

impl Clock for World {
    fn now_s(&self) -> f64 {
        BEGIN_S + *self.now_s.borrow()
    }
    fn wait(&mut self, until_s: f64) -> Option<Happening> {
        let next_s = self.script.borrow().front().map_or(f64::INFINITY, |(at_s, _)| *at_s);
        let now_s = next_s.min(until_s - BEGIN_S);
        *self.now_s.borrow_mut() = now_s;
        if next_s > now_s { None } else { self.script.borrow_mut().pop_front().map(|(_, happening)| happening) }
    }
}

impl Meter for World {
    fn read(&mut self) -> Vec<NodeCounter> {
        let joules = POWER_W * *self.now_s.borrow();
        let reading = JobReading { job: 1, joules, cpu_s: 0.0, source: "rapl".into(), since_s: BEGIN_S };
        vec![NodeCounter { node: "n1".into(), reading: Some(reading) }]
    }
}

impl Engine for World {
    fn name(&self) -> &str {
        "scripted"
    }
    fn on_demand(&self) -> bool {
        !self.is_preempted
    }
    fn prepare(&mut self, _: Option<&Manifest>, _: f64) -> Result<Vec<(String, String)>, Unprepared> {
        Ok(Vec::new())
    }
    fn begin(&mut self, _: PathBuf) {}
    fn give_up(&mut self) {}
    fn tells_return(&self) -> bool {
        true
    }
}

impl Child for World {
    fn start(&mut self, _: &[(String, String)]) -> Result<(), NotStarted> {
        // It cannot be restored from any of them.
        self.lines.iter().for_each(|lines| drop(lines.borrow_mut().pop_front()));
        Ok(())
    }
    fn terminate(&mut self) {}
    fn stop(&mut self) {}
    fn step(&mut self) -> String {
        String::new()
    }
}

impl Cluster for World {
    fn dead_nodes(&mut self) -> Vec<(String, f64)> {
        Vec::new()
    }
    fn suspects(&mut self) -> bool {
        false
    }
    fn runs_on(&mut self) -> bool {
        false
    }

    fn cause(&mut self) -> Option<FailureKind> {
        let cause = if self.is_preempted { FailureKind::Preempted } else { FailureKind::Cancelled };
        (!self.is_left_alone).then_some(cause)
    }
    fn requeue(&mut self) -> Result<(), String> {
        Err("nobody asked for that".into())
    }
}

impl Store for World {
    fn append(&mut self, _: f64, events: Vec<Event>) -> run::Result<()> {
        self.events.borrow_mut().extend(events);
        Ok(())
    }
    fn room(&mut self) -> run::Result<(u64, PathBuf)> {
        Ok((2, PathBuf::from("2")))
    }
    fn commit(&mut self, _: &Manifest) -> run::Result<()> {
        Ok(())
    }
    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let newest = self.lines.as_ref().map_or_else(|| self.line.clone(), |lines| lines.borrow().front().cloned());
        Ok((newest, Vec::new()))
    }
    fn flush(&mut self, _: f64) {}
}

/// A driver whose interval is 100 s, to the end of what happens.
fn play(world: &World, script: Vec<(f64, Happening)>) -> Outcome {
    world.script.borrow_mut().extend(script);
    let mut settings: Settings = options::resolve(&protocol::Request::default(), &BTreeMap::new()).unwrap();
    settings.interval = Some(std::time::Duration::from_secs(100));
    let setup = Setup {
        started: Started { nodes: vec!["n1".into()], ..Started::default() },
        plan: planner::plan_without_history(&settings, &protocol::PlanRequest::default(), &Site::default()),
        settings,
        prospect: Prospect::default(),
        end_s: None,
        margin_s: 5.0,
        requeue_at_end: false,
        step_retries: 0,
        checkpoint_limit_s: 3600.0,
        resumes: world.line.is_some() || world.lines.is_some(),
        accounted: world.accounted.clone(),
        was_lost: false,
        answered: Vec::new(),
    };
    let all = || world.clone();
    let (mut clock, mut meter, mut engine, mut child, mut cluster, mut store) =
        (all(), all(), all(), all(), all(), all());
    let ports = Ports {
        clock: &mut clock,
        meter: &mut meter,
        engine: &mut engine,
        child: &mut child,
        cluster: &mut cluster,
        store: &mut store,
    };
    coordinated::run(&setup, ports)
}

/// Seconds of each phase; phase by phase the joules fit, and all of them are the counter.
fn seconds(world: &World) -> BTreeMap<Phase, f64> {
    let mut seconds: BTreeMap<Phase, f64> = BTreeMap::new();
    let mut sum_j = 0.0;
    for event in world.events.borrow().iter() {
        let Event::Phase { phase, start_s, end_s, joules, .. } = event else { continue };
        // What took no time has no figure of its own.
        let joules = joules.unwrap_or(0.0);
        assert!((joules - POWER_W * (end_s - start_s)).abs() < 1e-3, "{event:?}");
        *seconds.entry(*phase).or_default() += end_s - start_s;
        sum_j += joules;
    }
    assert!((sum_j - POWER_W * *world.now_s.borrow()).abs() < 1e-3, "the phases add up to the counter: {sum_j}");
    seconds
}

fn saved() -> Happening {
    let file = ManifestFile { copy: "0".into(), bytes: 1, ..ManifestFile::default() };
    Happening::Checkpointed(Ok(Saved { files: vec![file], still_s: Some(2.0), kept: None }))
}

#[test]
fn a_checkpoint_counts_for_as_long_as_its_program_stands_still_and_costs_all_that_it_took() {
    let world = World::default();
    // Asked at 100 s; the program goes on at 102 s, and all is on disk at 250 s.
    let script = vec![(102.0, Happening::GoesOn), (250.0, saved()), (300.0, Happening::Exited { code: 0 })];
    assert_eq!(play(&world, script), Outcome::Ended(0));
    let seconds = seconds(&world);
    assert!((seconds[&Phase::Checkpoint] - 2.0).abs() < 1e-3, "{seconds:?}");
    assert!((seconds[&Phase::Compute] - 298.0).abs() < 1e-3, "{seconds:?}");
    let committed = world.events.borrow().iter().find_map(|e| match e {
        Event::Committed { begun_s, ended_s, joules, .. } => Some((ended_s - begun_s, *joules)),
        _ => None,
    });
    let (took_s, joules) = committed.expect("a checkpoint");
    assert!((took_s - 150.0).abs() < 1e-3 && (joules.expect("read") - 1500.0).abs() < 0.1, "{took_s} s, {joules:?} J");
}

#[test]
fn an_engine_that_cannot_tell_has_the_whole_checkpoint_in_its_phase() {
    let world = World::default();
    play(&world, vec![(250.0, saved()), (300.0, Happening::Exited { code: 0 })]);
    let seconds = seconds(&world);
    assert!((seconds[&Phase::Checkpoint] - 150.0).abs() < 1e-3, "{seconds:?}");
}

#[test]
fn a_program_that_is_brought_back_computes_only_when_it_is_there() {
    let line = Manifest { number: 1, begun_s: BEGIN_S - 50.0, engine: "scripted".into(), ..Manifest::default() };
    let world = World { line: Some(line), ..World::default() };
    play(&world, vec![(80.0, Happening::Back), (90.0, Happening::Exited { code: 0 })]);
    let seconds = seconds(&world);
    assert!((seconds[&Phase::Restart] - 80.0).abs() < 1e-3, "{seconds:?}");
    assert!((seconds[&Phase::Compute] - 10.0).abs() < 1e-3, "{seconds:?}");
    let is_restart = |e: &&Event| matches!(e, Event::Phase { phase: Phase::Restart, .. });
    assert_eq!(world.events.borrow().iter().filter(is_restart).count(), 1, "one span, by which it is measured");
}

#[test]
fn what_a_killed_driver_had_not_told_is_work_that_is_lost_and_no_restart() {
    let line = Manifest { number: 1, begun_s: BEGIN_S + 10.0, engine: "scripted".into(), ..Manifest::default() };
    let killed = Killed { began_s: BEGIN_S, at_s: BEGIN_S + 25.0, until_s: BTreeMap::new() };
    let accounted = Earlier { counters: Vec::new(), killed: Some(killed) };
    let world = World { line: Some(line), accounted, ..World::default() };
    *world.now_s.borrow_mut() = 30.0;
    play(&world, vec![(35.0, Happening::Back), (90.0, Happening::Exited { code: 0 })]);
    let seconds = seconds(&world);
    assert!((seconds[&Phase::Restart] - 10.0).abs() < 1e-3, "{seconds:?}");
    assert!((seconds[&Phase::Compute] - 80.0).abs() < 1e-3, "{seconds:?}");
    let events = world.events.borrow();
    let place = |is: &dyn Fn(&Event) -> bool| events.iter().position(is).expect("noted");
    let failed = place(&|e| matches!(e, Event::Failure { kind: FailureKind::Wrapper, .. }));
    let before = place(&|e| matches!(e, Event::Phase { phase: Phase::Compute, .. }));
    let back = place(&|e| matches!(e, Event::RolledBack { .. }));
    assert!(failed < before && before < back, "what is lost of it is known from where the run goes back: {events:?}");
}

#[test]
fn the_time_that_a_cancelled_script_takes_to_leave_is_its_own() {
    let world = World::default();
    let script = vec![(40.0, Happening::Terminate), (70.0, Happening::Exited { code: 143 })];
    assert_eq!(play(&world, script), Outcome::Ended(143));
    let seconds = seconds(&world);
    assert_eq!(seconds.keys().copied().collect::<Vec<_>>(), [Phase::Compute], "no energy of resilience");
}

#[test]
fn what_a_preempted_program_writes_before_and_at_its_end_is_its_newest_checkpoint() {
    let end = (50.0, Happening::Exited { code: 0 });
    let early = vec![(40.0, Happening::Terminate), (45.0, Happening::Appeared), (46.0, saved()), end.clone()];
    let late = vec![(40.0, Happening::Terminate), end.clone(), (52.0, Happening::Appeared), (53.0, saved())];
    let too_late = vec![(40.0, Happening::Terminate), end, (52.0, Happening::Appeared), (58.0, saved())];
    for (script, is_taken) in [(early, true), (late, true), (too_late, false)] {
        let world = World { is_preempted: true, ..World::default() };
        assert_eq!(play(&world, script), Outcome::Ended(0));
        let events = world.events.borrow();
        let taken = events.iter().any(|e| matches!(e, Event::Committed { .. }));
        assert_eq!(taken, is_taken, "{events:?}");
    }
}

#[test]
fn checkpoints_that_cannot_be_restored_are_no_crashes_of_the_script() {
    let line = |number| Manifest { number, begun_s: BEGIN_S - 50.0, engine: "scripted".into(), ..Manifest::default() };
    let lines = || Some(Rc::new(RefCell::new([line(2), line(1)].into())));
    let killed = |at_s| (at_s, Happening::Exited { code: 137 });
    let world = World { lines: lines(), is_left_alone: true, ..World::default() };
    let end = (40.0, Happening::Exited { code: 0 });
    assert_eq!(play(&world, vec![killed(10.0), killed(20.0), end]), Outcome::Ended(0), "without any retry");
    let back: Vec<Option<u64>> = world
        .events
        .borrow()
        .iter()
        .filter_map(|e| match e {
            Event::RolledBack { to, .. } => Some(*to),
            _ => None,
        })
        .collect();
    assert_eq!(back, [Some(2), Some(1), None], "then the beginning");
    let world = World { lines: lines(), is_left_alone: true, ..World::default() };
    let all = vec![killed(10.0), killed(20.0), killed(30.0)];
    assert_eq!(play(&world, all), Outcome::Ended(137), "one that begins anew and is killed has crashed");
}

#[test]
fn a_job_that_is_cancelled_while_it_leaves_its_nodes_does_not_come_back() {
    let world = World::default();
    let vacate = Order { id: "a".into(), verb: Verb::Vacate, by: "alice".into(), begin_s: None };
    let script = vec![(10.0, Happening::Ordered(vacate)), (12.0, Happening::GoesOn), (15.0, saved())];
    assert_eq!(play(&world, script), Outcome::Ended(143));
    let ends = |e: &Event| matches!(e, Event::Ended { state, .. } if state == "cancelled");
    assert!(world.events.borrow().iter().any(ends), "{:?}", world.events.borrow());
}

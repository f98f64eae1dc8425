//! How a program ends: halted by its engine, lost, at its end, or as somebody wants; also while a checkpoint is on its way.

use config::Site;
use driver::coordinated;
use driver::ledger::Earlier;
use driver::ports::{
    Child, Clock, Cluster, Engine, Happening, Meter, NodeCounter, NotSaved, NotStarted, Ports, Saved, Standing, Store,
    Unprepared, by_signal,
};
use driver::setup::{EXIT_NOT_RESTORED, Outcome, Setup, Started};
use options::Settings;
use protection::Prospect;
use protocol::{Event, FailureKind, Manifest, ManifestFile};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

/// Everything that a driver is given: what will happen, and what it did.
#[derive(Clone, Default)]
struct World {
    now_s: Rc<Cell<f64>>,
    happenings: Rc<RefCell<VecDeque<Happening>>>,
    done: Rc<RefCell<Vec<String>>>,
    halted: bool,
    last_checkpoint: Option<String>,
    /// What is told as the end of the script is that of a step.
    runs: bool,
    /// The exit code that somebody's signal explains.
    asked: Option<i32>,
    /// Slurm says that the job runs.
    runs_on: bool,
    /// Slurm says that the script has failed, which has not ended.
    failed_alone: bool,
    /// The life before lost a node.
    was_lost: bool,
    step_retries: u32,
    /// So many starts of the script end with a step that could not be restored.
    unrestored: usize,
    /// Earlier wrappers have worked on the run.
    resumes: bool,
    /// The storage fails whenever the script is to be started.
    storage_fails: bool,
    /// There is no checkpoint.
    is_bare: bool,
    /// The newest of two checkpoints is damaged, which is seen when it is brought back.
    damaged: bool,
}

impl World {
    fn did(&self, what: &str) {
        self.done.borrow_mut().push(what.to_string());
    }
}

impl Clock for World {
    fn now_s(&self) -> f64 {
        self.now_s.get()
    }
    fn wait(&mut self, until_s: f64) -> Option<Happening> {
        let happening = self.happenings.borrow_mut().pop_front();
        if happening.is_none() && until_s.is_finite() {
            self.now_s.set(until_s);
        }
        happening
    }
}

impl Meter for World {
    fn read(&mut self) -> Vec<NodeCounter> {
        Vec::new()
    }
}

impl Engine for World {
    fn name(&self) -> &str {
        "scripted"
    }
    fn on_demand(&self) -> bool {
        false
    }
    fn halted(&self) -> bool {
        self.halted
    }
    fn is_unrestored(&self) -> bool {
        self.done.borrow().iter().filter(|did| *did == "start").count() <= self.unrestored
    }
    fn prepare(&mut self, from: Option<&Manifest>, _: f64) -> Result<Vec<(String, String)>, Unprepared> {
        if self.damaged && from.is_some_and(|line| line.number == 2) {
            self.did("damaged");
            return Err(Unprepared::Storage("what was read is not what it holds".to_string()));
        }
        if self.storage_fails { Err(Unprepared::Storage("no room".to_string())) } else { Ok(Vec::new()) }
    }
    fn begin(&mut self, _: PathBuf) {
        let file = |copy: &String| {
            let file = ManifestFile { copy: copy.clone(), bytes: 1, ..ManifestFile::default() };
            Saved { files: vec![file], still_s: Some(0.0), kept: None }
        };
        let result =
            self.last_checkpoint.as_ref().map(file).ok_or_else(|| NotSaved::Failed("nothing is complete".to_string()));
        self.happenings.borrow_mut().push_back(Happening::Checkpointed(result));
    }
    fn give_up(&mut self) {}
}

impl Child for World {
    fn start(&mut self, _: &[(String, String)]) -> Result<(), NotStarted> {
        let is_again = self.done.borrow().iter().any(|d| d == "start");
        self.did("start");
        if is_again {
            let code = if self.is_unrestored() { 137 } else { 0 };
            self.happenings.borrow_mut().push_back(Happening::Exited { code });
        }
        Ok(())
    }
    fn terminate(&mut self) {}
    fn stop(&mut self) {
        self.did("stop");
    }
    fn runs(&mut self) -> bool {
        self.runs
    }
    fn was_asked(&mut self, code: i32) -> bool {
        self.asked == Some(code)
    }
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
        self.runs_on
    }

    fn cause(&mut self) -> Option<FailureKind> {
        None
    }
    fn standing(&mut self) -> Standing {
        match (self.failed_alone, self.runs_on) {
            (true, _) => Standing::FailedAlone,
            (false, true) => Standing::Runs,
            (false, false) => Standing::Unknown,
        }
    }
    fn requeue(&mut self) -> Result<(), String> {
        self.did("requeue");
        Ok(())
    }
}

impl Store for World {
    fn append(&mut self, _: f64, _: Vec<Event>) -> run::Result<()> {
        Ok(())
    }
    fn room(&mut self) -> run::Result<(u64, PathBuf)> {
        Ok((1, PathBuf::from("1")))
    }
    fn commit(&mut self, manifest: &Manifest) -> run::Result<()> {
        self.did(&format!("commit {}", manifest.files[0].copy));
        Ok(())
    }
    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        let is_aside = self.done.borrow().iter().any(|did| did == "damaged");
        let number = match self.damaged {
            true => Some(if is_aside { 1 } else { 2 }),
            false => (self.unrestored > 0).then_some(1),
        };
        Ok((number.map(|number| Manifest { number, ..Manifest::default() }), Vec::new()))
    }
    fn has_any(&mut self) -> Option<bool> {
        Some(!self.is_bare)
    }
    fn flush(&mut self, _: f64) {}
}

fn setup() -> Setup {
    let request = protocol::Request::default();
    let settings: Settings = options::resolve(&request, &BTreeMap::new()).unwrap();
    Setup {
        started: Started { nodes: vec!["n1".into()], ..Started::default() },
        plan: planner::plan_without_history(&settings, &protocol::PlanRequest::default(), &Site::default()),
        settings,
        prospect: Prospect::default(),
        end_s: Some(1e9 + 60.0),
        margin_s: 5.0,
        requeue_at_end: true,
        step_retries: 0,
        checkpoint_limit_s: 60.0,
        resumes: false,
        accounted: Earlier::default(),
        was_lost: false,
        answered: Vec::new(),
    }
}

/// Plays these happenings to a driver; how it left, and what it did.
fn play(world: &World, happenings: &[Happening]) -> (Outcome, Vec<String>) {
    world.happenings.borrow_mut().extend(happenings.iter().cloned());
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
    let (step_retries, was_lost, resumes) = (world.step_retries, world.was_lost, world.resumes);
    let setup = Setup { step_retries, was_lost, resumes, ..setup() };
    let outcome = coordinated::run(&setup, ports);
    (outcome, world.done.borrow().clone())
}

#[test]
fn a_halted_program_is_requeued_with_its_last_checkpoint_whatever_its_exit_code() {
    for code in [0, 1] {
        let world = World { halted: true, last_checkpoint: Some("ckpt.9".into()), ..World::default() };
        let (outcome, done) = play(&world, &[Happening::Exited { code }]);
        assert_eq!(outcome, Outcome::Requeued);
        assert_eq!(done, ["start", "commit ckpt.9", "stop", "requeue"]);
    }
}

#[test]
fn a_checkpoint_that_is_being_taken_up_then_is_the_last_one() {
    let world = World { halted: true, last_checkpoint: Some("ckpt.9".into()), ..World::default() };
    let (outcome, done) = play(&world, &[Happening::Appeared, Happening::Exited { code: 0 }]);
    assert_eq!((outcome, done[1].as_str()), (Outcome::Requeued, "commit ckpt.9"));
}

#[test]
fn a_halted_program_without_a_checkpoint_has_ended_and_so_has_one_that_was_not_halted() {
    let without = World { halted: true, ..World::default() };
    assert_eq!(play(&without, &[Happening::Exited { code: 0 }]).0, Outcome::Ended(0));
    let not_halted = World { last_checkpoint: Some("ckpt.9".into()), ..World::default() };
    assert_eq!(play(&not_halted, &[Happening::Exited { code: 0 }]).0, Outcome::Ended(0));
}

#[test]
fn what_is_left_of_a_script_is_stopped_before_it_begins_again_from_a_checkpoint_that_was_on_its_way() {
    let world = World { last_checkpoint: Some("ckpt.9".into()), ..World::default() };
    let (outcome, done) = play(&world, &[Happening::Appeared, Happening::Exited { code: 137 }]);
    assert_eq!(outcome, Outcome::Ended(0));
    assert_eq!(done, ["start", "commit ckpt.9", "stop", "start"]);
}

#[test]
fn a_script_goes_on_after_a_step_that_was_lost_too_often() {
    let world = World { runs: true, step_retries: 1, ..World::default() };
    let lost = || Happening::Exited { code: 137 };
    // It is started again once, and ends well then.
    let (outcome, done) = play(&world, &[lost()]);
    assert_eq!(
        (outcome, done.as_slice()),
        (Outcome::Ended(0), ["start", "stop", "start"].map(String::from).as_slice())
    );
    let world = World { runs: true, ..World::default() };
    let (outcome, done) = play(&world, &[lost(), Happening::Exited { code: 0 }]);
    assert_eq!((outcome, done), (Outcome::Ended(0), vec!["start".to_string()]));
}

#[test]
fn what_could_not_be_restored_has_not_crashed_and_is_held_after_the_second_time() {
    // A step, and a script.
    for runs in [true, false] {
        for (unrestored, outcome) in [(1, Outcome::Ended(0)), (2, Outcome::Requeued)] {
            let world = World { runs, step_retries: 1, unrestored, ..World::default() };
            let (ended, done) = play(&world, &[Happening::Exited { code: 137 }]);
            assert_eq!((ended, done.iter().filter(|did| *did == "start").count()), (outcome, 2), "{done:?}");
        }
    }
}

#[test]
fn a_storage_that_fails_before_the_script_starts_ends_only_a_run_that_has_not_begun() {
    let end = |unrestored, resumes| {
        let world = World { storage_fails: true, unrestored, resumes, ..World::default() };
        play(&world, &[])
    };
    let held = (Outcome::Requeued, vec!["stop".to_string(), "requeue".to_string()]);
    assert_eq!(end(1, true), held);
    assert_eq!(end(1, false), held, "it has a checkpoint");
    assert_eq!(end(0, true), held, "what it has done without one is in its folder");
    assert_eq!(end(0, false), (Outcome::Ended(EXIT_NOT_RESTORED), Vec::new()));
}

#[test]
fn a_checkpoint_that_is_seen_to_be_damaged_when_it_is_brought_back_gives_way_to_the_one_before() {
    let world = World { damaged: true, resumes: true, ..World::default() };
    let (outcome, done) = play(&world, &[Happening::Exited { code: 0 }]);
    assert_eq!((outcome, done), (Outcome::Ended(0), vec!["damaged".to_string(), "start".to_string()]));
}

#[test]
fn what_somebody_has_ended_by_a_signal_is_not_started_again() {
    let end = |asked, code| {
        let world = World { asked, step_retries: 1, ..World::default() };
        play(&world, &[Happening::Exited { code }])
    };
    assert_eq!(end(Some(137), 137), (Outcome::Ended(137), vec!["start".to_string()]));
    assert_eq!(end(Some(143), 137).0, Outcome::Ended(0), "another signal explains nothing");
    // `kill $MONITOR; wait $MONITOR`, and a program that was interrupted.
    assert_eq!(end(None, 143), (Outcome::Ended(143), vec!["start".to_string()]));
    assert_eq!(end(None, 130), (Outcome::Ended(130), vec!["start".to_string()]));
}

#[test]
fn an_exit_code_above_those_of_signals_is_the_scripts_own() {
    let world = World { step_retries: 1, ..World::default() };
    assert_eq!(play(&world, &[Happening::Exited { code: 255 }]), (Outcome::Ended(255), vec!["start".to_string()]));
    let world = World { step_retries: 1, ..World::default() };
    assert_eq!(play(&world, &[Happening::Exited { code: 139 }]).0, Outcome::Ended(0), "tried again");
    let world = World { step_retries: 1, is_bare: true, ..World::default() };
    let crash = play(&world, &[Happening::Exited { code: 139 }]);
    assert_eq!(crash, (Outcome::Ended(139), vec!["start".to_string()]), "there is nothing to go on from");
}

#[test]
fn a_crash_is_told_from_what_a_program_ends_by_of_itself() {
    let codes = [139, 137, 192, 0, 1, 128, 141, 142, 193, 255];
    let signals = [Some(11), Some(9), Some(64), None, None, None, None, None, None, None];
    assert_eq!(codes.map(by_signal), signals);
}

/// How a life ended whose script ended with this code after SIGTERM, and after how long, s.
fn after_term(world: World, code: i32) -> (Outcome, f64) {
    let outcome = play(&world, &[Happening::Terminate, Happening::Exited { code }]).0;
    (outcome, world.now_s.get())
}

#[test]
fn the_end_of_a_script_after_a_sigterm_that_may_be_of_the_life_before_counts_when_slurm_would_have_killed_it() {
    let world = |was_lost, runs_on| World { was_lost, runs_on, ..World::default() };
    for code in [0, 143] {
        let (outcome, took_s) = after_term(world(true, true), code);
        assert_eq!(outcome, Outcome::Ended(code), "a person's signal, which it had for itself");
        assert!((30.0..60.0).contains(&took_s), "{took_s}: KillWait is 30 s");
        for (was_lost, runs_on) in [(false, true), (true, false)] {
            let (outcome, took_s) = after_term(world(was_lost, runs_on), code);
            assert!(outcome == Outcome::Ended(code) && took_s < 5.0, "{was_lost} {runs_on}: {outcome:?} {took_s}");
        }
    }
}

#[test]
fn a_life_that_slurm_has_given_up_without_its_end_goes_back_into_the_queue() {
    let world = World { failed_alone: true, ..World::default() };
    assert_eq!(after_term(world, 143).0, Outcome::Requeued);
}

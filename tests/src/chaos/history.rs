//! Draws a history from a seed: which programs run, and what is done to them and to their cluster, and when.

use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fmt;

/// What runs under protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `apps/tally` on two nodes, engine app: a second writer shows.
    Tally,
    /// `apps/heat`, MPI on two nodes, engine app.
    Heat,
    /// A Python program with threads and shared memory in its script, engine criu.
    State,
    /// A tree of processes in its script, engine criu.
    Tree,
    /// The same Python program as a task of a step, engine criu.
    Step,
    /// `apps/heat` in two groups that recover alone, with a spare node, engine app.
    Groups,
}

impl Program {
    const ALL: [Program; 6] =
        [Program::Tally, Program::Heat, Program::State, Program::Tree, Program::Step, Program::Groups];

    /// Nodes that it needs.
    pub fn nodes(self) -> usize {
        match self {
            Program::Tally | Program::Heat => 2,
            Program::State | Program::Tree | Program::Step => 1,
            Program::Groups => 3,
        }
    }
}

/// A process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The wrapper that Slurm started.
    Supervisor,
    /// The one below it that does the work.
    Driver,
    /// What the user's script starts.
    Program,
    /// Slurm's `srun`.
    Srun,
    /// What stands in for `srun` in a protected script.
    StandIn,
    /// What holds a sandbox of the engine criu.
    Warden,
    /// CRIU itself, while it works.
    Criu,
    /// That of any step of the job.
    Slurmstepd,
}

/// A daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// `joulepointd --role=node` of a node.
    NodeService,
    /// `joulepointd --role=controller`.
    Controller,
    /// That of a node.
    Slurmd,
    /// Those of all nodes.
    Slurmds,
    /// Slurm's controller.
    Slurmctld,
    /// Slurm's accounting.
    Slurmdbd,
    /// Its database.
    Mariadb,
    /// munged of the controller's host.
    Munged,
    /// That of a node.
    NodeMunged,
}

/// Which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// That of a run's script.
    Script,
    /// Another of the run, if it has one.
    Other,
    /// Any of the cluster.
    Any,
}

/// Which cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A node from the controller service and slurmctld.
    FromController(Place),
    /// A node from everybody.
    FromAll(Place),
    /// Nothing that a node sends arrives.
    Out(Place),
    /// Nothing that is sent to a node arrives.
    In(Place),
    /// The cluster falls into two halves.
    Halves,
    /// The controller service from all.
    Service,
    /// Controller service and slurmctld from all nodes.
    Head,
    /// Nobody reaches anybody.
    Switch,
    /// A fifth of all frames is lost.
    Lossy,
    /// A node's cable carries 64 KiB/s.
    Slow(Place),
}

/// What people order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `joulepoint checkpoint`.
    Checkpoint,
    /// `joulepoint vacate`.
    Vacate,
    /// `joulepoint restart`.
    Restart,
    /// `joulepoint disable`, and `enable` when its time is over.
    Disable,
    /// `scancel`.
    Scancel,
    /// `scontrol requeue`.
    Requeue,
    /// `scontrol suspend`, and `resume` when its time is over.
    Suspend,
    /// A node of the run is drained, and resumed when its time is over.
    Drain,
}

/// What the storage of the runs' folders does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A third of all calls end with this error.
    Eio,
    /// See above.
    Estale,
    /// See above.
    Eacces,
    /// Each call that writes ends with this error.
    Enospc,
    /// See above.
    Edquot,
    /// Each call takes a quarter of a second.
    Slow,
    /// No call comes back.
    Hang,
    /// What was not synced is lost.
    Crash,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL of a process of a run.
    Kill(Process),
    /// SIGSTOP of one, and SIGCONT when its time is over.
    Stop(Process),
    /// SIGKILL of a daemon, and its start when the time is over.
    KillDaemon(Daemon),
    /// SIGSTOP of one, and SIGCONT.
    StopDaemon(Daemon),
    /// Its end by SIGTERM and its start, as an upgrade does it.
    RestartDaemon(Daemon),
    /// A node loses its power, and has it back when the time is over.
    Power(Place),
    /// Two nodes at once, one of them the script's.
    TwoPower,
    /// A node stands still, as a paused virtual machine.
    Suspend(Place),
    /// Cables.
    Cut(Cut),
    /// People.
    Order(Order),
    /// Storage.
    Storage(Storage),
    /// The disk of the controller service is full.
    BooksFull,
    /// The clock of a node's daemons is wrong by minutes.
    Clock(Place),
}

/// Kinds in the order of the table; each is as likely as its number says.
const KINDS: [(u32, &str); 13] = [
    (20, "kill"),
    (8, "stop"),
    (18, "kill-daemon"),
    (10, "stop-daemon"),
    (8, "restart-daemon"),
    (10, "power"),
    (3, "two-power"),
    (6, "suspend"),
    (16, "cut"),
    (9, "order"),
    (16, "storage"),
    (3, "books-full"),
    (5, "clock"),
];

/// The names of all kinds.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(_, name)| *name)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |text: String| text.replace(['(', ')'], " ").trim().to_lowercase();
        match self {
            Fault::Kill(process) => write!(f, "kill -9 of a {process:?}"),
            Fault::Stop(process) => write!(f, "a {process:?} stands still"),
            Fault::KillDaemon(daemon) => write!(f, "kill -9 of {daemon:?}"),
            Fault::StopDaemon(daemon) => write!(f, "{daemon:?} stands still"),
            Fault::RestartDaemon(daemon) => write!(f, "restart of {daemon:?}"),
            Fault::Power(place) => write!(f, "power loss, {}", words(format!("{place:?}"))),
            Fault::TwoPower => write!(f, "power loss of two nodes"),
            Fault::Suspend(place) => write!(f, "node suspended, {}", words(format!("{place:?}"))),
            Fault::Cut(cut) => write!(f, "cable: {}", words(format!("{cut:?}"))),
            Fault::Order(order) => write!(f, "order: {}", words(format!("{order:?}"))),
            Fault::Storage(storage) => write!(f, "storage: {}", words(format!("{storage:?}"))),
            Fault::BooksFull => write!(f, "full disk of the controller service"),
            Fault::Clock(place) => write!(f, "wrong clock, {}", words(format!("{place:?}"))),
        }
    }
}

/// One fault with its moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Blow {
    /// After all runs have begun, s.
    pub at_s: f64,
    /// Until it is mended, s.
    pub lasts_s: f64,
    /// Which of the runs it is meant for.
    pub run: usize,
    /// Chooses among several processes or nodes.
    pub pick: usize,
    /// What.
    pub fault: Fault,
}

/// What is played.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// What it was drawn from.
    pub seed: u64,
    /// The protected runs, with whether each has its nodes for itself.
    pub runs: Vec<(Program, bool)>,
    /// In order of time.
    pub blows: Vec<Blow>,
}

/// Moments of blows, s: the programs work for 35 s and more.
const BLOWS_S: std::ops::Range<f64> = 2.0..32.0;

/// Nodes for the protected runs of a history; the others are for the bystanders.
const NODES: usize = 6;

/// Draws a history; `only` keeps the kind of fault with this name.
///
/// # Panics
/// There is no such kind.
pub fn draw(seed: u64, only: Option<&str>) -> History {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (count, mut free) = (rng.random_range(2..=3), NODES);
    let mut runs = Vec::new();
    for left in (0..count).rev() {
        // One for each that is still to come.
        let fit: Vec<Program> = Program::ALL.into_iter().filter(|program| program.nodes() + left <= free).collect();
        let program = *one(&mut rng, &fit);
        free -= program.nodes();
        runs.push((program, rng.random_bool(0.6)));
    }
    let kinds: Vec<(u32, &str)> = KINDS.into_iter().filter(|(_, name)| only.is_none_or(|only| only == *name)).collect();
    let mut blows: Vec<Blow> = (0..rng.random_range(3..=8)).map(|_| blow(&mut rng, &kinds, count)).collect();
    blows.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    // Some at the same time.
    for i in 1..blows.len() {
        if rng.random_bool(0.2) {
            blows[i].at_s = blows[i - 1].at_s;
        }
    }
    History { seed, runs, blows }
}

fn one<'a, T>(rng: &mut ChaCha8Rng, all: &'a [T]) -> &'a T {
    match all.choose(rng) {
        Some(one) => one,
        None => panic!("nothing to choose from"),
    }
}

fn blow(rng: &mut ChaCha8Rng, kinds: &[(u32, &str)], runs: usize) -> Blow {
    let kind = match kinds.choose_weighted(rng, |(weight, _)| *weight) {
        Ok((_, kind)) => *kind,
        Err(e) => panic!("no such kind of fault: {e}"),
    };
    let fault = fault(rng, kind);
    let lasts_s = rng.random_range(lasts_s(fault));
    Blow {
        at_s: rng.random_range(BLOWS_S),
        lasts_s,
        run: rng.random_range(0..runs),
        pick: rng.random_range(0..1000),
        fault,
    }
}

fn fault(rng: &mut ChaCha8Rng, kind: &str) -> Fault {
    use Process::{Criu, Driver, Program, Slurmstepd, Srun, StandIn, Supervisor, Warden};
    let process = *one(rng, &[Supervisor, Driver, Driver, Program, Srun, StandIn, Warden, Criu, Slurmstepd]);
    let place = *one(rng, &[Place::Script, Place::Other, Place::Any]);
    match kind {
        "kill" => Fault::Kill(process),
        "stop" => Fault::Stop(process),
        "kill-daemon" => Fault::KillDaemon(*one(rng, &DAEMONS)),
        "stop-daemon" => Fault::StopDaemon(*one(rng, &DAEMONS)),
        "restart-daemon" => Fault::RestartDaemon(*one(rng, &RESTARTED)),
        "power" => Fault::Power(place),
        "two-power" => Fault::TwoPower,
        "suspend" => Fault::Suspend(place),
        "cut" => Fault::Cut(*one(rng, &cuts(place))),
        "storage" => Fault::Storage(*one(rng, &STORAGE)),
        "books-full" => Fault::BooksFull,
        "clock" => Fault::Clock(place),
        _ => Fault::Order(*one(rng, &ORDERS)),
    }
}

const DAEMONS: [Daemon; 9] = [
    Daemon::NodeService,
    Daemon::Controller,
    Daemon::Slurmd,
    Daemon::Slurmds,
    Daemon::Slurmctld,
    Daemon::Slurmdbd,
    Daemon::Mariadb,
    Daemon::Munged,
    Daemon::NodeMunged,
];

/// What an upgrade restarts.
const RESTARTED: [Daemon; 5] =
    [Daemon::NodeService, Daemon::Controller, Daemon::Slurmd, Daemon::Slurmds, Daemon::Slurmctld];

const ORDERS: [Order; 8] = [
    Order::Checkpoint,
    Order::Vacate,
    Order::Restart,
    Order::Disable,
    Order::Scancel,
    Order::Requeue,
    Order::Suspend,
    Order::Drain,
];

const STORAGE: [Storage; 8] = [
    Storage::Eio,
    Storage::Estale,
    Storage::Eacces,
    Storage::Enospc,
    Storage::Edquot,
    Storage::Slow,
    Storage::Hang,
    Storage::Crash,
];

fn cuts(place: Place) -> [Cut; 10] {
    [
        Cut::FromController(place),
        Cut::FromAll(place),
        Cut::Out(place),
        Cut::In(place),
        Cut::Halves,
        Cut::Service,
        Cut::Head,
        Cut::Switch,
        Cut::Lossy,
        Cut::Slow(place),
    ]
}

/// How long a fault may last, s.
fn lasts_s(fault: Fault) -> std::ops::Range<f64> {
    match fault {
        Fault::Kill(_) => 0.0..0.1,
        // systemd starts it again within a second; the time in which nothing guards a node is not to be longer.
        Fault::KillDaemon(Daemon::NodeService) | Fault::RestartDaemon(_) => 0.5..1.5,
        Fault::KillDaemon(_) => 0.5..20.0,
        // No longer than Slurm's patience of 120 s, in the sum of two.
        Fault::Stop(_) | Fault::StopDaemon(_) | Fault::Suspend(_) => 5.0..45.0,
        // A node boots for longer than its death goes unnoticed.
        Fault::Power(_) | Fault::TwoPower => 15.0..30.0,
        Fault::Cut(_) | Fault::Clock(_) => 3.0..40.0,
        Fault::Storage(_) | Fault::BooksFull => 3.0..25.0,
        Fault::Order(_) => 4.0..12.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_gives_the_same_history_again_and_another_seed_another() {
        assert_eq!(draw(7, None), draw(7, None));
        assert_ne!(draw(7, None).blows, draw(8, None).blows);
    }

    #[test]
    fn histories_have_two_or_three_runs_that_fit_and_three_to_eight_blows_in_order() {
        for seed in 0..500 {
            let history = draw(seed, None);
            assert!((2..=3).contains(&history.runs.len()) && (3..=8).contains(&history.blows.len()), "{history:?}");
            assert!(history.runs.iter().map(|(program, _)| program.nodes()).sum::<usize>() <= NODES);
            assert!(history.blows.windows(2).all(|pair| pair[0].at_s <= pair[1].at_s));
            assert!(history.blows.iter().all(|b| b.run < history.runs.len()));
        }
    }

    #[test]
    fn every_kind_and_every_target_comes_up_and_one_kind_can_be_asked_for_alone() {
        let faults = |only| (0..2000).flat_map(move |seed| draw(seed, only).blows).map(|b| b.fault.to_string());
        let all: BTreeSet<String> = faults(None).collect();
        // 8 processes twice, 9 daemons twice, 5 restarts, 3 places thrice, two nodes, 5 cuts at 3 places and 5 more,
        // 8 orders, 8 ways of the storage, a disk.
        assert_eq!(all.len(), 16 + 18 + 5 + 9 + 1 + 20 + 8 + 8 + 1, "{all:#?}");
        assert!(faults(Some("power")).all(|name| name.starts_with("power loss, ")));
    }
}

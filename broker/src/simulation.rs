//! Many seeded histories of one loan against a Slurm of a few lines, in which everybody dies at any moment.

use crate::chosen::{Action, Observation};
use crate::machine::{Act, Next, World, example, is_suspended, missing, next};
use protocol::{Chosen, ChosenState, Loan, LoanMode, LoanState, OrderState};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use slurm::{Job, JobState, Reservation};
use std::collections::{BTreeSet, VecDeque};

const PATIENCE_S: f64 = 60.0;
const RETURN_S: f64 = 300.0;

/// Longer than any history may last, s: nobody is late while the broker is away, and it is away often.
const END_S: f64 = 10_000.0;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|n| n.to_string()).collect()
}

fn job(id: u32, uid: u32, state: &str) -> Job {
    let line = format!("JobId={id} JobName=j UserId=u({uid}) GroupId=g(1) JobState={state} TimeLimit=01:00:00");
    slurm::parse_job(&line, id).unwrap().unwrap()
}

/// A job that the broker may choose, in Slurm and in its wrapper.
struct Long {
    job: Job,
    is_reserved: bool,
    is_protected: bool,
    order: Option<OrderState>,
}

impl Long {
    fn new(random: &mut ChaCha8Rng) -> Long {
        let is_protected = random.random_bool(0.8);
        Long { job: job(18, 1002, "PENDING"), is_reserved: false, is_protected, order: None }
    }

    fn is_on(&self, node: &str) -> bool {
        self.job.state == JobState::Running && self.job.nodes.iter().any(|n| n == node)
    }

    fn requeue(&mut self) {
        (self.job.state, self.job.nodes) = (JobState::Pending, Vec::new());
        self.job.restarts += 1;
    }

    /// What happens by itself within a second.
    fn live(&mut self, n3_is_free: bool, n3_is_down: bool, random: &mut ChaCha8Rng) {
        let waits = self.job.state == JobState::Pending && self.job.restarts == 0;
        if waits && self.is_reserved && !self.job.reservation.is_empty() && n3_is_free && random.random_bool(0.3) {
            (self.job.state, self.job.nodes) = (JobState::Running, names(&["n3"]));
        }
        if waits && self.job.reservation.is_empty() && random.random_bool(0.01) {
            (self.job.state, self.job.nodes) = (JobState::Running, names(&["n9"]));
        }
        if self.is_on("n3") && n3_is_down {
            self.requeue();
        }
        if self.order == Some(OrderState::Waiting) && self.job.state == JobState::Running {
            match random.random_range(0..200) {
                0..10 => {
                    self.order = Some(OrderState::Done);
                    self.requeue();
                }
                10..13 => self.order = Some(OrderState::Failed),
                _ => {}
            }
        }
        if random.random_range(0..2000) == 0 {
            self.job.state = JobState::Cancelled;
        }
    }

    fn obey(&mut self, name: &str, action: Action) {
        match action {
            Action::Call => self.is_reserved = true,
            Action::CallIn => self.job.reservation = name.to_string(),
            Action::CallOut => self.job.reservation.clear(),
            Action::Dismiss => self.is_reserved = false,
            Action::Preempt => self.order = self.order.or(Some(OrderState::Waiting)),
            Action::PutBack => self.requeue(),
        }
    }
}

/// How old the state may be with which a slurmctld comes back, s: it writes it down every five seconds.
const MEMORY_S: usize = 5;

/// Slurm, the lender's wrapper, and borrowers.
struct Site {
    world: World,
    wrapper_is_dead: bool,
    /// Nodes that were out of service once.
    died: BTreeSet<String>,
    long: Long,
    /// What Slurm showed in each of the last seconds.
    before: VecDeque<World>,
}

impl Site {
    fn new(random: &mut ChaCha8Rng) -> Site {
        let lender = Job { nodes: names(&["n1", "n2", "n3"]), requeue: true, ..job(7, 1000, "RUNNING") };
        Site {
            world: World { lender: Some(lender), ..World::default() },
            wrapper_is_dead: false,
            died: BTreeSet::new(),
            long: Long::new(random),
            before: VecDeque::new(),
        }
    }

    fn requeue(&mut self) {
        if let Some(lender) = &mut self.world.lender {
            lender.state = JobState::Pending;
            lender.restarts += 1;
            lender.nodes.clear();
        }
    }

    /// An operator suspends the lender, or lets it go on.
    fn turn_lender(&mut self, from: JobState, to: JobState) {
        self.world.lender.iter_mut().filter(|j| j.state == from).for_each(|j| j.state = to);
    }

    fn lender_is_suspended(&self) -> bool {
        self.world.lender.as_ref().is_some_and(|j| j.state == JobState::Suspended)
    }

    fn n3_is_free(&self) -> bool {
        let w = &self.world;
        let held = w.lender.iter().chain(&w.helper).any(|j| j.nodes.iter().any(|n| n == "n3"));
        !held && !w.down.contains("n3") && !self.long.is_on("n3")
    }

    /// The broker's choice.
    fn choose(&self, now_s: f64, loan: &mut Loan, random: &mut ChaCha8Rng) {
        let may = loan.mode == LoanMode::Preempt && loan.state == LoanState::Lent && loan.chosen.is_empty();
        if may && self.long.job.state == JobState::Pending && self.n3_is_free() && random.random_bool(0.1) {
            loan.chosen.push(Chosen {
                job: 18,
                uid: 1002,
                user: "carol".into(),
                restart_count: 0,
                name: "joulepoint_a_18".into(),
                nodes: names(&["n3"]),
                state: ChosenState::Called,
                state_s: now_s,
                reason: "free".into(),
            });
        }
    }

    /// What is seen of the chosen one.
    fn look(&mut self, loan: &Loan) {
        let Long { job, is_reserved, is_protected, order } = &self.long;
        let is_protected = *is_protected && job.state == JobState::Running;
        let seen = Observation { job: Some(job.clone()), is_reserved: *is_reserved, is_protected, order: *order };
        let open = loan.chosen.iter().filter(|c| c.state != ChosenState::Over);
        self.world.chosen = open.map(|c| (c.job, seen.clone())).collect();
    }

    /// What happens by itself within a second.
    fn live(&mut self, now_s: f64, loan: &Loan, random: &mut ChaCha8Rng) {
        self.before.push_front(self.world.clone());
        self.before.truncate(MEMORY_S);
        self.long.live(self.n3_is_free(), self.world.down.contains("n3"), random);
        if self.lender_is_suspended() && random.random_bool(0.02) {
            self.turn_lender(JobState::Suspended, JobState::Running);
        }
        let wrapper_works = !self.wrapper_is_dead && !self.lender_is_suspended();
        let long_is_on = |n: &String| self.long.is_on(n);
        let w = &mut self.world;
        w.borrowers.retain(|j| j.end_s.is_some_and(|end_s| end_s > now_s));
        let held = w.lender.as_ref().is_some_and(|j| j.nodes.contains(&"n2".to_string()));
        let window_s = w.reservation.as_ref().map_or(0.0, |r| r.start_s) - now_s;
        if !held && w.helper.is_none() && w.borrowers.is_empty() && window_s > 60.0 && random.random_bool(0.05) {
            // Now and then an operator raises its limit beyond the window.
            let overstays = if random.random_bool(0.1) { 1e4 } else { 0.0 };
            let end_s = Some(now_s + random.random_range(10.0..window_s) + overstays);
            w.borrowers.push(Job { nodes: names(&["n2"]), end_s, ..job(8, 1001, "RUNNING") });
        }
        let admitted = w.reservation.as_ref().is_some_and(|r| r.users.len() == 2 && r.start_s <= now_s);
        if loan.state == LoanState::Returning && wrapper_works && w.helper.is_none() {
            w.helper = Some(Job { submit_s: Some(now_s), ..job(9, 1000, "PENDING") });
        }
        let free = missing(loan, w);
        if let Some(helper) = w.helper.as_mut().filter(|h| h.state == JobState::Pending && admitted && !free.is_empty())
            && !free.iter().any(long_is_on)
            && !w.borrowers.iter().any(|b| b.nodes.iter().any(|n| free.contains(n)))
        {
            (helper.state, helper.nodes) = (JobState::Running, free);
        }
        match random.random_range(0..2000) {
            0 => self.requeue(),
            1 => self.world.lender = None,
            2 => drop(self.world.down.insert("n3".to_string())),
            3 => drop(self.world.down.insert("n2".to_string())),
            4 => self.wrapper_is_dead = true,
            5 => self.world.reservation = None,
            6 => self.world.helper = None,
            7..10 => drop(self.world.down.pop_first()),
            10..14 => self.forget(now_s, loan, random),
            14..100 if matches!(loan.state, LoanState::Growing | LoanState::Closing) => {
                self.forget(now_s, loan, random)
            }
            100..103 => self.turn_lender(JobState::Running, JobState::Suspended),
            // Its owner does not want it requeued any more.
            103..105 => self.world.lender.iter_mut().for_each(|j| j.requeue = false),
            _ => {}
        }
        self.died.extend(self.world.down.iter().cloned());
        let down = &self.world.down;
        self.world.helper.take_if(|h| h.nodes.iter().any(|n| down.contains(n)));
        self.world.borrowers.retain(|b| !b.nodes.iter().any(|n| down.contains(n)));
    }

    /// A slurmctld that is killed comes back with what it had written down last, and finds out what died since.
    fn forget(&mut self, now_s: f64, loan: &Loan, random: &mut ChaCha8Rng) {
        let Some(old) = self.before.iter().choose(random).cloned() else { return };
        let lives = |w: &World| w.lender.as_ref().filter(|j| j.state == JobState::Running).map(|j| j.restarts);
        // What ended the lender was written down by whoever did it.
        if loan.chosen.is_empty() && lives(&old).is_some() && lives(&old) == lives(&self.world) {
            self.world = World { down: std::mem::take(&mut self.world.down), booted_s: now_s, ..old };
            let down = &self.world.down;
            self.world.lender.iter_mut().for_each(|j| j.nodes.retain(|n| !down.contains(n)));
        }
    }

    fn obey(&mut self, now_s: f64, loan: &Loan, act: &Act) {
        assert!(!is_suspended(loan, &self.world), "{act:?}: {loan:?}");
        let w = &mut self.world;
        let mut reserve = |start_s: f64, users: &[&str]| {
            let (name, nodes) = (loan.name.clone(), loan.nodes.clone());
            w.reservation = Some(Reservation { name, nodes, start_s, end_s: f64::INFINITY, users: names(users) });
        };
        match act {
            Act::Reserve if loan.state == LoanState::Returning => reserve(now_s, &["root", "alice"]),
            Act::Reserve | Act::MoveWindow => reserve(loan.return_s, &["root"]),
            Act::Admit => reserve(now_s, &["root", "alice"]),
            Act::Shrink => w.lender.iter_mut().for_each(|j| j.nodes.clone_from(&loan.kept)),
            Act::Merge { .. } => {
                let booted_s = w.booted_s;
                let merges = w.helper.take_if(|h| h.submit_s.is_some_and(|s| s > booted_s));
                if let (Some(helper), Some(lender)) = (merges, &mut w.lender) {
                    lender.nodes.extend(helper.nodes);
                }
            }
            Act::Lengthen { minutes } => {
                w.lender.iter_mut().for_each(|j| j.time_limit_s = Some(minutes * 60));
            }
            Act::EndHelper { .. } => w.helper = None,
            Act::Unreserve => w.reservation = None,
            Act::Requeue => {
                assert!(w.lender.as_ref().is_some_and(|j| j.requeue), "Slurm refuses: {loan:?}");
                self.requeue();
            }
            Act::Borrower { job, action } => {
                let drives_out = matches!(action, Action::Preempt | Action::PutBack);
                let keeps = w.reservation.as_ref().is_some_and(|r| r.users.len() == 2 && r.start_s <= now_s);
                assert!(!drives_out || self.long.is_protected && keeps, "{loan:?}");
                assert_eq!(*job, 18);
                self.long.obey(&loan.chosen[0].name, *action);
            }
        }
    }
}

fn asked(mode: LoanMode) -> Loan {
    Loan {
        account: String::new(),
        mode,
        state: LoanState::Asked,
        state_s: 0.0,
        asked_s: 0.0,
        return_s: RETURN_S,
        promised_s: RETURN_S,
        lent_s: None,
        back_s: None,
        back: Vec::new(),
        time_limit_s: Some(3600),
        stays: Vec::new(),
        ..example()
    }
}

/// The states that one history goes through; it ends with nothing left behind.
fn history(seed: u64) -> BTreeSet<&'static str> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let mode = if seed.is_multiple_of(2) { LoanMode::Window } else { LoanMode::Preempt };
    let (mut loan, mut site) = (asked(mode), Site::new(random));
    let (mut seen, mut now_s, mut away_until_s) = (BTreeSet::new(), 0.0, 0.0);
    let (mut was_away, mut counts_from_s) = (false, 0.0);
    while !loan.state.is_over() {
        now_s += 1.0;
        assert!(now_s < END_S, "seed {seed}: {loan:?} {:?}", site.world);
        site.live(now_s, &loan, random);
        if now_s < away_until_s {
            was_away = true;
            continue;
        }
        if std::mem::take(&mut was_away) || is_suspended(&loan, &site.world) {
            counts_from_s = now_s;
        }
        site.world.counts_from_s = counts_from_s;
        site.look(&loan);
        match next(now_s, &loan, &site.world, PATIENCE_S) {
            Next::Wait if is_suspended(&loan, &site.world) => {}
            Next::Wait => site.choose(now_s, &mut loan, random),
            Next::Turn { job, state, reason } => {
                assert_eq!(job, 18);
                seen.insert(state.as_str());
                let chosen = &mut loan.chosen[0];
                (chosen.state, chosen.state_s, chosen.reason) = (state, now_s, reason);
            }
            Next::Become(state, reason) => {
                (loan.state, loan.state_s, loan.reason) = (state, now_s, reason);
                match state {
                    LoanState::Lent => loan.lent_s = loan.lent_s.or(Some(now_s)),
                    LoanState::Returning => loan.back_s = None,
                    LoanState::Closing | LoanState::Failing => {
                        let has = |n: &&String| site.world.lender.as_ref().is_some_and(|j| j.nodes.contains(n));
                        loan.back = loan.nodes.iter().filter(has).cloned().collect();
                        loan.back_s = loan.lent_s.map(|_| now_s);
                    }
                    _ => {}
                }
                seen.insert(state.as_str());
            }
            // Slurm may refuse, or the service die before it has asked.
            Next::Do(_) if random.random_bool(0.2) => {}
            Next::Do(act) => site.obey(now_s, &loan, &act),
        }
        if random.random_bool(0.02) {
            away_until_s = now_s + random.random_range(1.0..100.0);
        }
    }
    let w = &site.world;
    assert!(w.reservation.is_none() && w.helper.is_none(), "seed {seed}: {w:?}");
    let long = &site.long;
    let is_out = long.job.reservation.is_empty() || long.job.state.is_over();
    assert!(is_out && !long.is_reserved, "seed {seed}: {loan:?}");
    assert!(loan.chosen.iter().all(|c| c.state == ChosenState::Over), "seed {seed}: {loan:?}");
    // One that Slurm may not requeue goes on without the nodes when the loan has failed.
    let runs_on = |j: &&Job| j.state == JobState::Running && loan.state == LoanState::Closed;
    if let Some(lender) = w.lender.as_ref().filter(runs_on) {
        // Nor would it be without them if slurmctld were killed now.
        for lender in site.before.iter().filter_map(|w| w.lender.as_ref()).chain([lender]) {
            let missing = loan.nodes.iter().find(|n| !lender.nodes.contains(*n) && !site.died.contains(*n));
            assert!(missing.is_none(), "seed {seed}: {missing:?} was not taken back: {loan:?}");
        }
        let away_s = loan.back_s.unwrap_or(0.0) - loan.lent_s.unwrap_or(0.0);
        assert!(lender.time_limit_s.is_some_and(|s| s as f64 >= 3600.0 + away_s), "seed {seed}: {loan:?}");
    }
    seen
}

#[test]
fn whatever_dies_and_when_nothing_is_left_behind() {
    let seen: BTreeSet<&str> = (0..3000).flat_map(history).collect();
    let mut all = vec!["closed", "closing", "failed", "failing", "growing", "lent", "returning", "shrinking"];
    all.extend(["leaving", "over", "running"]);
    all.sort_unstable();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "the histories reach every state");
}

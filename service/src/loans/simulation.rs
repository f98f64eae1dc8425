//! Many seeded histories of one loan against a Slurm of a few lines, in which everybody dies at any moment.

use super::machine::{Act, Next, World, missing, next};
use protocol::{Loan, LoanMode, LoanState, RunKey};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use slurm::{Job, JobState, Reservation};
use std::collections::BTreeSet;

const PATIENCE_S: f64 = 60.0;
const RETURN_S: f64 = 300.0;

/// Longer than any history may last, s.
const END_S: f64 = 3_000.0;

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|n| n.to_string()).collect()
}

fn job(id: u32, uid: u32, state: &str) -> Job {
    let line = format!("JobId={id} JobName=j UserId=u({uid}) GroupId=g(1) JobState={state} TimeLimit=01:00:00");
    slurm::parse_job(&line, id).unwrap().unwrap()
}

/// Slurm, the lender's wrapper, and a borrower.
struct Site {
    world: World,
    wrapper_is_dead: bool,
    /// Nodes that were out of service once.
    died: BTreeSet<String>,
}

impl Site {
    fn new() -> Site {
        let lender = Job { nodes: names(&["n1", "n2", "n3"]), ..job(7, 1000, "RUNNING") };
        Site {
            world: World { lender: Some(lender), ..World::default() },
            wrapper_is_dead: false,
            died: BTreeSet::new(),
        }
    }

    fn requeue(&mut self) {
        if let Some(lender) = &mut self.world.lender {
            lender.state = JobState::Pending;
            lender.restarts += 1;
            lender.nodes.clear();
        }
    }

    /// What happens by itself within a second.
    fn live(&mut self, now_s: f64, loan: &Loan, random: &mut ChaCha8Rng) {
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
        if loan.state == LoanState::Returning && !self.wrapper_is_dead && w.helper.is_none() {
            w.helper = Some(job(9, 1000, "PENDING"));
        }
        let free = missing(loan, w);
        if let Some(helper) = w.helper.as_mut().filter(|h| h.state == JobState::Pending && admitted && !free.is_empty())
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
            _ => {}
        }
        self.died.extend(self.world.down.iter().cloned());
        let down = &self.world.down;
        self.world.helper.take_if(|h| h.nodes.iter().any(|n| down.contains(n)));
        self.world.borrowers.retain(|b| !b.nodes.iter().any(|n| down.contains(n)));
    }

    fn obey(&mut self, now_s: f64, loan: &Loan, act: &Act) {
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
                if let (Some(helper), Some(lender)) = (w.helper.take(), &mut w.lender) {
                    lender.nodes.extend(helper.nodes);
                }
            }
            Act::Lengthen { minutes } => {
                w.lender.iter_mut().for_each(|j| j.time_limit_s = Some(minutes * 60));
            }
            Act::EndHelper { .. } => w.helper = None,
            Act::Unreserve => w.reservation = None,
            Act::Requeue => self.requeue(),
        }
    }
}

fn asked() -> Loan {
    Loan {
        id: "a".into(),
        name: "joulepoint_a".into(),
        key: RunKey { cluster: "c".into(), run: "7.1".into() },
        job: 7,
        restart_count: 0,
        uid: 1000,
        user: "alice".into(),
        account: String::new(),
        mode: LoanMode::Window,
        state: LoanState::Asked,
        state_s: 0.0,
        reason: "it pays".into(),
        nodes: names(&["n2", "n3"]),
        kept: names(&["n1"]),
        asked_s: 0.0,
        return_s: RETURN_S,
        promised_s: RETURN_S,
        lent_s: None,
        back_s: None,
        back: Vec::new(),
        time_limit_s: Some(3600),
        idle_w: 100.0,
        stays: Vec::new(),
    }
}

/// The states that one history goes through; it ends with nothing left behind.
fn history(seed: u64) -> BTreeSet<&'static str> {
    let random = &mut ChaCha8Rng::seed_from_u64(seed);
    let (mut loan, mut site) = (asked(), Site::new());
    let (mut seen, mut now_s, mut away_until_s) = (BTreeSet::new(), 0.0, 0.0);
    while !loan.state.is_over() {
        now_s += 1.0;
        assert!(now_s < END_S, "seed {seed}: {loan:?} {:?}", site.world);
        site.live(now_s, &loan, random);
        if now_s < away_until_s {
            continue;
        }
        match next(now_s, &loan, &site.world, PATIENCE_S) {
            Next::Wait => {}
            Next::Become(state, reason) => {
                (loan.state, loan.state_s, loan.reason) = (state, now_s, reason);
                match state {
                    LoanState::Lent => loan.lent_s = Some(now_s),
                    LoanState::Closing | LoanState::Failing => loan.back_s = loan.lent_s.map(|_| now_s),
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
    if let Some(lender) = w.lender.as_ref().filter(|j| j.state == JobState::Running) {
        let missing = loan.nodes.iter().find(|n| !lender.nodes.contains(*n) && !site.died.contains(*n));
        let closed_without = loan.state == LoanState::Closed && missing.is_some();
        assert!(!closed_without, "seed {seed}: {missing:?} was not taken back: {loan:?}");
        let away_s = loan.back_s.unwrap_or(0.0) - loan.lent_s.unwrap_or(0.0);
        assert!(lender.time_limit_s.is_some_and(|s| s as f64 >= 3600.0 + away_s), "seed {seed}: {loan:?}");
    }
    seen
}

#[test]
fn whatever_dies_and_when_nothing_is_left_behind() {
    let seen: BTreeSet<&str> = (0..3000).flat_map(history).collect();
    let all = ["closed", "closing", "failed", "failing", "growing", "lent", "returning", "shrinking"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "the histories reach every state");
}

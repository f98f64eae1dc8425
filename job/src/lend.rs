//! The lender's side of a loan: asks for it, tells how the recovery goes on, and takes the nodes back.
//!
//! The controller's broker drives the loan and survives everybody's death; what only the job's own user can do is
//! here: the helper job that brings the nodes back. Whoever calls has parked what ran on the nodes before, and wakes
//! it after.

use driver::groups::ports::LoanOutcome;
use protocol::{Loan, LoanProgress, LoanRequest, LoanState, Queue, VERSION};
use slurm::{Expansion, JobText, Slurm};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};
use wire::{Client, Error};

/// How long the controller may hold an answer back, s.
const HELD_S: u64 = 2;

/// Pause after a question that reached nobody.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest wait for steps that have ended to be gone.
const STEPS_LIMIT: Duration = Duration::from_secs(30);

/// How often a controller that does not answer is asked for a loan.
const TRIES: u32 = 20;

/// How far the expected return moves before the broker is told, s.
const WORTH_TELLING_S: f64 = 3.0;

/// Pause before a helper job is tried again.
const HELPER_PAUSE: Duration = Duration::from_secs(3);

/// What a run wants to lend.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The job as people write it.
    pub job: String,
    /// The nodes, without the batch host.
    pub nodes: Vec<String>,
    /// When they are needed again, s since the epoch.
    pub return_s: f64,
    /// Why lending pays.
    pub reason: String,
}

/// The way to the broker.
#[derive(Clone, Debug)]
pub struct Lender {
    client: Client,
    slurm: Slurm,
}

impl Lender {
    /// A lender that asks this controller and this Slurm.
    pub fn new(client: Client, slurm: Slurm) -> Lender {
        Lender { client: client.within(Duration::from_secs(HELD_S + 15)), slurm }
    }

    /// The shortest time for which a waiting job would use so many CPUs of a partition, s: what policy asks before
    /// anything is parked. The broker knows the queue. None if none waits, or the broker cannot be asked.
    pub fn shortest_queued_s(&self, partition: &str, cpus: u32) -> Option<f64> {
        let query = wire::query(&[("partition", Some(partition)), ("cpus", Some(&cpus.to_string()))]);
        let asked = self.client.get::<Queue>(&format!("/v1/queue{query}"));
        asked.map_err(|e| tracing::warn!(%e, "the queue cannot be seen")).ok()?.shortest_s
    }

    /// Lends nodes until they are back. `expect` is asked every few seconds when they are needed, s since the epoch:
    /// a moment that has passed calls them back.
    pub fn lend(&self, id: &str, offer: &Offer, expect: &mut dyn FnMut(&Loan) -> f64) -> LoanOutcome {
        let request = LoanRequest {
            version: VERSION,
            id: id.to_string(),
            job: offer.job.clone(),
            nodes: offer.nodes.clone(),
            return_s: offer.return_s,
            reason: offer.reason.clone(),
        };
        self.wait_for_steps(offer);
        let mut last = String::new();
        for _ in 0..TRIES {
            match self.client.post::<_, Loan>("/v1/loans", &request) {
                Ok(loan) => return self.follow(loan, expect),
                Err(Error::Refused { text, .. }) => return LoanOutcome::Kept(text),
                // The question may have arrived, and the same again is the same loan.
                Err(e) => last = e.to_string(),
            }
            sleep(PAUSE);
        }
        LoanOutcome::Kept(last)
    }

    /// Waits until Slurm knows, too, that nothing of the job runs on the nodes any more; the broker refuses if it does.
    fn wait_for_steps(&self, offer: &Offer) {
        let Ok(job) = offer.job.parse() else { return };
        let until = Instant::now() + STEPS_LIMIT;
        while Instant::now() < until {
            let steps = self.slurm.steps(job).unwrap_or_default();
            if !steps.iter().any(|step| step.is_users() && step.nodes.iter().any(|n| offer.nodes.contains(n))) {
                return;
            }
            sleep(PAUSE);
        }
    }

    /// Takes up a loan that an earlier wrapper of the job asked for; none if the broker has not heard of it, or does
    /// not answer.
    pub fn take_up(&self, id: &str, expect: &mut dyn FnMut(&Loan) -> f64) -> Option<LoanOutcome> {
        for _ in 0..TRIES {
            match self.client.get(&format!("/v1/loans/{id}")) {
                Ok(loan) => return Some(self.follow(loan, expect)),
                Err(Error::Refused { .. }) => return None,
                Err(e) => tracing::warn!(%e, "the broker cannot be asked about a loan"),
            }
            sleep(PAUSE);
        }
        None
    }

    fn follow(&self, mut loan: Loan, expect: &mut dyn FnMut(&Loan) -> f64) -> LoanOutcome {
        let mut helper = Helper::default();
        while !loan.state.is_over() {
            match loan.state {
                LoanState::Lent | LoanState::Asked | LoanState::Shrinking => self.tell(&loan, expect(&loan)),
                // Too late to be told, but who asked hears how far it is: a loan may be lent for a moment only.
                LoanState::Returning => {
                    expect(&loan);
                    helper.ask(&self.slurm, &loan);
                }
                _ => drop(expect(&loan)),
            }
            let path = format!("/v1/loans/{}?since={}&wait_s={HELD_S}", loan.id, loan.state.as_str());
            match self.ask(&path) {
                Some(news) => loan = news,
                None => sleep(PAUSE),
            }
        }
        helper.end();
        let runs_on = loan.state == LoanState::Failed && self.runs_on(&loan);
        outcome(loan, runs_on)
    }

    /// Whether the job goes on although its loan has failed: Slurm did not requeue it.
    fn runs_on(&self, loan: &Loan) -> bool {
        let waits = |e: &slurm::Error| tracing::warn!(%e, "slurmctld has to say whether the job is requeued");
        let pause = |pause| {
            sleep(pause);
            true
        };
        self.slurm.job_in_the_end(loan.job, pause, waits).is_some_and(|job| job.is_life(loan.uid, loan.restart_count))
    }

    fn tell(&self, loan: &Loan, return_s: f64) {
        if (return_s - loan.return_s).abs() < WORTH_TELLING_S {
            return;
        }
        let word = LoanProgress { version: VERSION, return_s };
        if let Err(e) = self.client.post::<_, Loan>(&format!("/v1/loans/{}/return", loan.id), &word) {
            tracing::warn!(%e, "the broker was not told when the nodes are needed");
        }
    }

    /// The loan, once the controller answers; nothing while it is away.
    fn ask(&self, path: &str) -> Option<Loan> {
        self.client.get(path).map_err(|e| tracing::debug!(%e, "the broker cannot be asked")).ok()
    }
}

/// What has become of the nodes. `runs_on`: the loan has failed, and the job was not requeued for it: what did not come
/// back counts as dead, and the run goes on from its checkpoints with what it has.
fn outcome(loan: Loan, runs_on: bool) -> LoanOutcome {
    match (loan.state, loan.lent_s, loan.back_s) {
        (LoanState::Failed, _, _) if !runs_on => LoanOutcome::Lost(loan.reason),
        (_, Some(lent_s), None) if loan.back.is_empty() => {
            LoanOutcome::Back { nodes: Vec::new(), away_s: loan.state_s - lent_s, back_s: loan.state_s }
        }
        (_, Some(lent_s), Some(back_s)) => LoanOutcome::Back { nodes: loan.back, away_s: back_s - lent_s, back_s },
        _ => LoanOutcome::Kept(loan.reason),
    }
}

/// The helper job that brings the nodes back.
#[derive(Debug, Default)]
struct Helper {
    /// For which nodes, and in which return of the loan: a helper that is lost brings a new one.
    salloc: Option<(Child, Vec<String>, f64)>,
    ended: Option<Instant>,
}

impl Helper {
    /// Asks Slurm for the nodes, and again when that failed or one of them is dead by now.
    fn ask(&mut self, slurm: &Slurm, loan: &Loan) {
        if let Some((child, nodes, state_s)) = &mut self.salloc {
            let failed = matches!(child.try_wait(), Ok(Some(status)) if !status.success());
            if !failed && *nodes == loan.back && *state_s == loan.state_s {
                return;
            }
            self.end();
            self.ended = Some(Instant::now());
        }
        if loan.back.is_empty() || self.ended.is_some_and(|at| at.elapsed() < HELPER_PAUSE) {
            return;
        }
        let started = slurm.job(loan.job).and_then(|job| {
            let qos = job.as_ref().map_or(Ok(String::new()), |j| slurm.text(j, JobText::Qos))?;
            slurm.ask_for_expansion(&Expansion {
                job: loan.job,
                name: &loan.name,
                nodes: &loan.back,
                account: &loan.account,
                partition: job.as_ref().map_or("", |j| &j.partition),
                qos: &qos,
            })
        });
        match started {
            Ok(child) => self.salloc = Some((child, loan.back.clone(), loan.state_s)),
            Err(e) => tracing::warn!(%e, "the nodes cannot be asked back; it will be tried again"),
        }
    }

    /// Ends salloc, which takes back what it asked for and did not get yet.
    fn end(&mut self) {
        let Some((mut child, ..)) = self.salloc.take() else { return };
        if matches!(child.try_wait(), Ok(None)) {
            // It has not been waited for, so that its id is its own.
            host::processes::signal(child.id().cast_signed(), libc::SIGTERM);
        }
        let _ = child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slurm::Job;

    /// A loan of n2 and n3, of which n2 is back.
    fn loan(state: LoanState) -> Loan {
        let loan: Loan = serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap();
        Loan { state, back: vec!["n2".into()], reason: "too late".into(), ..loan }
    }

    /// The lender's job, as squeue prints it.
    fn job(state: &str, restarts: u32) -> Job {
        let is = format!("7|1000|alice|0|N/A|N/A|{state}|all|n[1-2]|n1|1|0|{restarts}|0:0|N/A|");
        let line = is + "1|1|1|9999|01:00:00|2|2|NO|||0|(null)|0|0|(null)|N/A|N/A|N/A|N/A|None|(null)|";
        slurm::parse_jobs(&line).jobs.remove(0)
    }

    #[test]
    fn a_run_whose_loan_has_failed_goes_on_with_what_it_has_unless_it_is_requeued() {
        let failed = loan(LoanState::Failed);
        let cases = [("RUNNING", 0, true), ("SUSPENDED", 0, true), ("COMPLETING", 0, false), ("RUNNING", 1, false)];
        for (state, restarts, expected) in cases {
            let is_life = job(state, restarts).is_life(failed.uid, failed.restart_count);
            assert_eq!(is_life, expected, "{state} {restarts}");
        }
        assert_eq!(outcome(failed.clone(), false), LoanOutcome::Lost("too late".into()));
        let back = LoanOutcome::Back { nodes: vec!["n2".into()], away_s: 90.0, back_s: 300.0 };
        assert_eq!(outcome(failed, true), back);
        assert_eq!(outcome(loan(LoanState::Closed), false), back);
        let kept = Loan { lent_s: None, back_s: None, ..loan(LoanState::Closed) };
        assert_eq!(outcome(kept, false), LoanOutcome::Kept("too late".into()));
    }
}

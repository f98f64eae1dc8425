//! The lender's side of a loan: asks for it, tells how the recovery goes on, and takes the nodes back.
//!
//! The controller's broker drives the loan and survives everybody's death; what only the job's own user can do is
//! here: the helper job that brings the nodes back. Whoever calls has parked what ran on the nodes before, and wakes
//! it after.

use driver::groups::ports::LoanOutcome;
use host::mail::now_s;
use protocol::{Loan, LoanProgress, LoanRequest, LoanState, Queue, VERSION};
use slurm::{Expansion, Job, JobState, JobText, Node, Slurm};
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

/// For how long it is asked what has become of the loan of an earlier wrapper.
const TAKE_UP_LIMIT: Duration = Duration::from_secs(600);

/// How often the broker must say that it knows no such loan until it is believed to have lost it.
const FORGOTTEN: u32 = 60;

/// How long after the return it is certain that the broker lends nothing any more, s: its clock may be behind, and Slurm may
/// just be about it.
const EXPIRED_S: f64 = 60.0;

/// How long after the return nodes are waited for of which the broker does not say a word, s.
const SILENT_S: f64 = 1800.0;

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
    pause: Duration,
}

impl Lender {
    /// A lender that asks this controller and this Slurm.
    pub fn new(client: Client, slurm: Slurm) -> Lender {
        Lender { client: client.within(Duration::from_secs(HELD_S + 15)), slurm, pause: PAUSE }
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
    ///
    /// The nodes are kept only if the broker has refused this very question, or Slurm says that the job has them when nothing
    /// can be lent any more: one that has not answered may lend them all the same.
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
        let (asked_s, mut is_first) = (now_s(), true);
        loop {
            let e = match self.client.post::<_, Loan>("/v1/loans", &request) {
                Ok(loan) => return self.follow(loan, expect),
                Err(e) => e,
            };
            // Nothing was asked before that might be heard later: what is not known cannot be lent either.
            let is_no = if is_unknown(&e) { is_first } else { e.is_final() };
            match e {
                Error::Refused { text, .. } if is_no => return LoanOutcome::Kept(text),
                e if is_first => {
                    tracing::warn!(%e, "it is not known whether the nodes are lent: the broker is asked again")
                }
                e => tracing::debug!(%e, "the broker has still not said whether the nodes are lent"),
            }
            is_first = false;
            if now_s() >= offer.return_s + EXPIRED_S
                && let Some(outcome) = self.without_answer(offer, asked_s)
            {
                return outcome;
            }
            sleep(self.pause);
        }
    }

    /// What has become of nodes when nothing can be lent any more and the broker has not said whether it has; nothing while
    /// they may still come back.
    fn without_answer(&self, offer: &Offer, asked_s: f64) -> Option<LoanOutcome> {
        const WHY: &str = "the controller did not say whether the nodes are lent";
        match self.slurm.job(self.number(offer)?) {
            Ok(Some(job)) if matches!(job.state, JobState::Running | JobState::Suspended) => {
                let (outcome, now_s) = (by_slurm(&job, &offer.nodes, None, asked_s, WHY), now_s());
                let is_over = matches!(outcome, LoanOutcome::Kept(_)) || now_s >= offer.return_s + SILENT_S;
                is_over.then(|| self.told(&offer.nodes, outcome))
            }
            Ok(_) => Some(LoanOutcome::Lost(format!("{WHY}, and the job does not run any more"))),
            Err(e) => {
                tracing::warn!(%e, "slurmctld has to say which nodes the job has");
                None
            }
        }
    }

    /// The number of the job that offers.
    fn number(&self, offer: &Offer) -> Option<u32> {
        match offer.job.split_once('_') {
            Some((array, task)) => self.slurm.array_task(array.parse().ok()?, task.parse().ok()?).ok().flatten(),
            None => offer.job.parse().ok(),
        }
    }

    /// Waits until Slurm knows, too, that nothing of the job runs on the nodes any more; the broker refuses if it does.
    fn wait_for_steps(&self, offer: &Offer) {
        let Some(job) = self.number(offer) else { return };
        let until = Instant::now() + STEPS_LIMIT;
        while Instant::now() < until {
            let steps = self.slurm.steps(job).unwrap_or_default();
            if !steps.iter().any(|step| step.is_users() && step.nodes.iter().any(|n| offer.nodes.contains(n))) {
                return;
            }
            sleep(self.pause);
        }
    }

    /// Takes up a loan that an earlier wrapper of the job asked for; none if the broker has not heard of it, or does
    /// not answer.
    pub fn take_up(&self, id: &str, expect: &mut dyn FnMut(&Loan) -> f64) -> Option<LoanOutcome> {
        let until = Instant::now() + TAKE_UP_LIMIT;
        while Instant::now() < until {
            match self.client.get(&format!("/v1/loans/{id}")) {
                Ok(loan) => return Some(self.follow(loan, expect)),
                Err(e) if e.is_final() => return None,
                Err(e) => tracing::warn!(%e, "the broker cannot be asked about a loan"),
            }
            sleep(self.pause);
        }
        None
    }

    fn follow(&self, mut loan: Loan, expect: &mut dyn FnMut(&Loan) -> f64) -> LoanOutcome {
        let (mut helper, mut unknown) = (Helper::default(), 0);
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
            match self.client.get(&path) {
                Ok(news) => (loan, unknown) = (news, 0),
                Err(e) => {
                    tracing::debug!(%e, "the broker cannot be asked");
                    unknown += u32::from(is_unknown(&e));
                    if unknown >= FORGOTTEN {
                        helper.end();
                        return self.forgotten(&loan);
                    }
                    sleep(self.pause);
                }
            }
        }
        helper.end();
        let runs_on = loan.state == LoanState::Failed && self.life(&loan).is_some();
        let nodes = loan.nodes.clone();
        self.told(&nodes, outcome(loan, runs_on))
    }

    /// What has become of the nodes of a loan that the broker has lost: it takes none of them back any more.
    fn forgotten(&self, loan: &Loan) -> LoanOutcome {
        let why = format!("the controller has lost loan {}", loan.id);
        match self.life(loan) {
            Some(job) => self.told(&loan.nodes, by_slurm(&job, &loan.nodes, loan.lent_s, now_s(), &why)),
            None => LoanOutcome::Lost(format!("{why}, and the job does not run any more")),
        }
    }

    /// The job, if it is still the life of it that lent, and Slurm did not requeue it.
    fn life(&self, loan: &Loan) -> Option<Job> {
        let waits = |e: &slurm::Error| tracing::warn!(%e, "slurmctld has to say whether the job is requeued");
        let pause = |pause| {
            sleep(pause);
            true
        };
        let job = self.slurm.job_in_the_end(loan.job, pause, waits);
        job.filter(|job| job.is_life(loan.uid, loan.restart_count))
    }

    /// An outcome of which the job's output has been told why which node does not come back.
    fn told(&self, nodes: &[String], outcome: LoanOutcome) -> LoanOutcome {
        let LoanOutcome::Back { nodes: back, .. } = &outcome else { return outcome };
        for name in nodes.iter().filter(|name| !back.contains(name)) {
            match self.slurm.node(name) {
                Ok(node) => {
                    let why = node.map_or_else(|| "Slurm does not know it any more".to_string(), |node| absence(&node));
                    protocol::say!("joulepoint: node {name} was lent and does not come back: {why}");
                }
                Err(e) => tracing::warn!(node = name, %e, "it is not known why the node does not come back"),
            }
        }
        outcome
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
}

/// Whether the service itself says that it knows no such loan, or no such run.
fn is_unknown(e: &Error) -> bool {
    matches!(e, Error::Refused { status: 404, .. })
}

/// What has become of nodes by Slurm's word, where the broker does not say. `lent_s`: they are known to have been lent since then;
/// `since_s`: else since when they may be away.
fn by_slurm(job: &Job, nodes: &[String], lent_s: Option<f64>, since_s: f64, why: &str) -> LoanOutcome {
    let back: Vec<String> = nodes.iter().filter(|n| job.nodes.contains(n)).cloned().collect();
    if lent_s.is_none() && back.len() == nodes.len() {
        return LoanOutcome::Kept(why.to_string());
    }
    let back_s = now_s();
    LoanOutcome::Back { nodes: back, away_s: (back_s - lent_s.unwrap_or(since_s)).max(0.0), back_s }
}

/// Why a node cannot come back: one that somebody drains has not failed.
fn absence(node: &Node) -> String {
    let is_down = matches!(node.state.as_str(), "DOWN" | "ERROR" | "FAIL") || node.has_flag("NOT_RESPONDING");
    let what = match is_down {
        true => "it is down",
        false if node.has_flag("DRAIN") => "it has not failed, but is being drained",
        false => "it has not failed, but is not the job's",
    };
    if node.reason.is_empty() { what.to_string() } else { format!("{what} ({})", node.reason) }
}

/// What has become of the nodes. `runs_on`: the loan has failed, and the job was not requeued for it: what did not come
/// back is lost to it, and the run goes on from its checkpoints with what it has.
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
            let per_node = per_node(slurm, loan.job)?;
            slurm.ask_for_expansion(&Expansion {
                job: loan.job,
                name: &loan.name,
                nodes: &loan.back,
                account: &loan.account,
                partition: job.as_ref().map_or("", |j| &j.partition),
                qos: &qos,
                per_node: &per_node,
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

/// What the helper asks for on each node, so that the job has no less there than on its others, nor more.
fn per_node(slurm: &Slurm, job: u32) -> Result<Vec<String>, slurm::Error> {
    match slurm.per_node(job) {
        // It will be no other at the next try.
        Err(e @ (slurm::Error::Unreadable { .. } | slurm::Error::Ambiguous { .. })) => {
            tracing::warn!(%e, "it is not known how much memory the job asks for on each node: the lent ones have Slurm's default");
            Ok(Vec::new())
        }
        asked => asked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::Path;
    use std::process::Command;

    /// A loan of n2 and n3, of which n2 is back.
    fn loan(state: LoanState) -> Loan {
        let loan: Loan = serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap();
        Loan { state, back: vec!["n2".into()], reason: "too late".into(), ..loan }
    }

    /// The lender's job, as squeue prints it.
    fn line(state: &str, restarts: u32) -> String {
        let is = format!("7|1000|alice|0|N/A|N/A|{state}|all|n[1-2]|n1|1|0|{restarts}|0:0|N/A|");
        is + "1|1|1|9999|01:00:00|2|2|NO|||0|(null)|0|0|(null)|N/A|N/A|N/A|N/A|None|(null)|"
    }

    fn job(state: &str, restarts: u32) -> Job {
        slurm::parse_jobs(&line(state, restarts)).jobs.remove(0)
    }

    /// A lender whose Slurm has that job, and whose controller answers one question after the other with these statuses and
    /// texts, and with the last for ever.
    fn lender(dir: &Path, job: &str, answers: Vec<(u16, String)>) -> Lender {
        let (text, socket) = (dir.join("text"), dir.join("socket"));
        fs::write(&text, format!("#!/bin/sh\n[ \"$1\" = --helpFormat ] || echo '{job}'\n")).unwrap();
        // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
        assert!(Command::new("install").arg(text).arg(dir.join("squeue")).status().unwrap().success());
        let listener = UnixListener::bind(&socket).unwrap();
        threads::start(move || {
            for (at, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                hear(&mut stream);
                let (status, text) = &answers[at.min(answers.len() - 1)];
                let length = text.len();
                let head = format!("HTTP/1.1 {status} said\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
                stream.write_all((head + text).as_bytes()).unwrap();
            }
        });
        let client = Client::on_socket(&socket, Duration::from_secs(20));
        Lender { client, slurm: Slurm::new(Some(dir.to_path_buf())), pause: Duration::ZERO }
    }

    /// Reads a whole request.
    fn hear(stream: &mut UnixStream) {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        stream.read_exact(&mut vec![0; length.unwrap_or(0)]).unwrap();
    }

    /// What becomes of nodes that job 7 offers until `return_s`.
    fn lends(lender: &Lender, nodes: &[&str], return_s: f64) -> LoanOutcome {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let offer = Offer { job: "7".into(), nodes, return_s, reason: "it pays".into() };
        lender.lend("a", &offer, &mut |loan| loan.return_s)
    }

    fn no(status: u16) -> (u16, String) {
        (status, "no".to_string())
    }

    fn yes(state: LoanState) -> (u16, String) {
        (200, serde_json::to_string(&loan(state)).unwrap())
    }

    #[test]
    fn nodes_are_kept_only_if_this_very_question_is_refused() {
        let kept = LoanOutcome::Kept("no".into());
        let back = LoanOutcome::Back { nodes: vec!["n2".into()], away_s: 90.0, back_s: 300.0 };
        let cases = [
            (vec![no(409)], &kept),
            (vec![no(404)], &kept),
            (vec![no(503), no(429), no(500), no(409)], &kept),
            (vec![no(500), yes(LoanState::Closed)], &back),
            (vec![no(429), no(404), yes(LoanState::Closed)], &back),
        ];
        for (answers, expected) in cases {
            let dir = tempfile::tempdir().unwrap();
            let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
            let lender = lender(dir.path(), &line("RUNNING", 0), answers);
            assert_eq!(lends(&lender, &["n2", "n3"], now_s() + 1000.0), *expected, "{statuses:?}");
        }
    }

    #[test]
    fn slurm_is_believed_when_nothing_can_be_lent_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let silent = lender(dir.path(), &line("RUNNING", 0), vec![no(503)]);
        assert!(matches!(lends(&silent, &["n2"], now_s() - EXPIRED_S), LoanOutcome::Kept(_)));
        let late = lends(&silent, &["n2", "n3"], now_s() - SILENT_S);
        assert!(matches!(&late, LoanOutcome::Back { nodes, .. } if *nodes == ["n2"]), "{late:?}");
        let dir = tempfile::tempdir().unwrap();
        let slow = lender(dir.path(), &line("RUNNING", 0), vec![no(503), no(503), yes(LoanState::Closed)]);
        let told = lends(&slow, &["n2", "n3"], now_s() - EXPIRED_S);
        assert!(
            matches!(told, LoanOutcome::Back { away_s: 90.0, .. }),
            "n3 is away, and the broker may yet say more: {told:?}"
        );
        let dir = tempfile::tempdir().unwrap();
        let gone = lender(dir.path(), &line("CANCELLED", 0), vec![no(503)]);
        assert!(matches!(lends(&gone, &["n2"], 0.0), LoanOutcome::Lost(_)));
    }

    #[test]
    fn a_loan_that_the_broker_has_lost_ends_with_the_nodes_that_the_job_has() {
        for (restarts, goes_on) in [(0, true), (1, false)] {
            let dir = tempfile::tempdir().unwrap();
            let lender = lender(dir.path(), &line("RUNNING", restarts), vec![yes(LoanState::Lent), no(404)]);
            match lends(&lender, &["n2", "n3"], now_s() + 1000.0) {
                LoanOutcome::Back { nodes, .. } if goes_on => assert_eq!(nodes, ["n2"]),
                LoanOutcome::Lost(why) if !goes_on => assert!(why.contains("has lost loan a"), "{why}"),
                other => panic!("{restarts}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_an_operator_drains_is_told_from_what_has_failed() {
        let node = |state: &str, flags: &[&str], reason: &str| {
            let flags = flags.iter().map(ToString::to_string).collect();
            absence(&Node { state: state.into(), flags, reason: reason.into(), ..Node::default() })
        };
        let drained = "it has not failed, but is being drained (a new disk)";
        assert_eq!(node("IDLE", &["DRAIN"], "a new disk"), drained);
        assert_eq!(node("ALLOCATED", &["DRAIN"], "a new disk"), drained);
        assert_eq!(node("DOWN", &["DRAIN", "NOT_RESPONDING"], ""), "it is down");
        assert_eq!(node("IDLE", &[], ""), "it has not failed, but is not the job's");
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

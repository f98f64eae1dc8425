//! What the controller answers about loans: asking for one, following it, moving its end, listing them.

use super::rules::{self, Ask, DAY_S};
use crate::controller::Controller;
use crate::http::{Answer, Document, Refusal, absent, blocking, version};
use crate::now_s;
use crate::routes::{LONGEST_WAIT, Shared, check_id, no_slurm};
use anyhow::Result;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use protocol::{Loan, LoanProgress, LoanRequest, LoanState};
use slurm::JobText;
use std::time::Duration;
use wire::Peer;

/// Commands to Slurm that asking for a loan causes at once.
const COMMANDS: u32 = 5;

pub(crate) async fn ask(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    Document(wish): Document<LoanRequest>,
) -> Answer<Loan> {
    version(wish.version)?;
    check_id("a loan", &wish.id)?;
    blocking(move || c.allow(peer, &wish)).await?.map(Json)
}

/// `?since=STATE&wait_s=S`: hold the answer back while the loan is in that state.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Follow {
    since: Option<LoanState>,
    #[serde(default)]
    wait_s: f64,
}

pub(crate) async fn follow(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    wait: Result<Query<Follow>, QueryRejection>,
) -> Answer<Loan> {
    let (Path(id), Query(wait)) = (id?, wait?);
    let limit = Duration::try_from_secs_f64(wait.wait_s).unwrap_or_default().min(LONGEST_WAIT);
    let seeing = c.clone();
    let of = id.clone();
    let loan = blocking(move || seeing.loan(peer, &of)).await??;
    if Some(loan.state) != wait.since {
        return Ok(Json(loan));
    }
    let mut bell = c.loans.bell.subscribe();
    let moved = |_: &u64| c.loans.get(&id).map(|l| l.state) != wait.since;
    let _ = tokio::time::timeout(limit, bell.wait_for(moved)).await;
    let seeing = c.clone();
    blocking(move || seeing.loan(peer, &id)).await?.map(Json)
}

pub(crate) async fn progress(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    Document(word): Document<LoanProgress>,
) -> Answer<Loan> {
    version(word.version)?;
    let Path(id) = id?;
    blocking(move || {
        c.loan(peer, &id)?;
        c.expect_return(&id, word.return_s)?;
        c.loan(peer, &id)
    })
    .await?
    .map(Json)
}

/// Which loans: `?user=NAMES&account=NAMES&job=IDS&start=T&end=T`, names and ids separated by commas.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Which {
    user: Option<String>,
    account: Option<String>,
    job: Option<String>,
    start: Option<f64>,
    end: Option<f64>,
}

impl Which {
    /// Whether a loan is wanted; users, accounts and jobs may be those of either side.
    fn has(&self, loan: &Loan) -> bool {
        let one_of = |list: &Option<String>, name: &str| {
            list.as_ref().is_none_or(|l| l.split(',').any(|n| n.trim().eq_ignore_ascii_case(name)))
        };
        let side = |user: &str, account: &str, job: u32| {
            one_of(&self.user, user) && one_of(&self.account, account) && one_of(&self.job, &job.to_string())
        };
        let sides =
            side(&loan.user, &loan.account, loan.job) || loan.stays.iter().any(|s| side(&s.user, &s.account, s.job));
        let begun = self.end.is_none_or(|end_s| loan.asked_s <= end_s);
        let ended_s = if loan.state.is_over() { loan.state_s } else { f64::INFINITY };
        sides && begun && self.start.is_none_or(|start_s| ended_s >= start_s)
    }
}

pub(crate) async fn list(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Answer<Vec<Loan>> {
    let Query(which) = which?;
    let loans = blocking(move || -> Result<_> {
        // A loan that ended in the window was asked for at most the longest time before.
        let since_s = which.start.map_or(0.0, |start_s| start_s - c.site.lend.longest_s - DAY_S);
        let all = c.reporter.lock().lendings(since_s)?;
        let may = |l: &Loan| c.access.may(peer.uid, l.uid);
        // What borrowers have used so far is on disk at the next change only.
        let all = all.into_iter().map(|l| c.loans.get(&l.id).unwrap_or(l));
        Ok(all.filter(|l| may(l) && which.has(l)).collect::<Vec<_>>())
    });
    Ok(Json(loans.await??))
}

impl Controller {
    /// A loan that this user may see.
    fn loan(&self, peer: Peer, id: &str) -> Result<Loan, Refusal> {
        let loan = match self.loans.get(id) {
            Some(loan) => Some(loan),
            None => self.readers.free().lending(id)?,
        };
        loan.filter(|l| self.access.may(peer.uid, l.uid)).ok_or_else(|| absent("such loan"))
    }

    /// Allows a loan, on disk, or says why not.
    fn allow(&self, peer: Peer, wish: &LoanRequest) -> Result<Loan, Refusal> {
        let refused = |text: String| Refusal(StatusCode::CONFLICT, text);
        let _one_at_a_time = self.loans.asking.lock();
        if self.readers.free().lending(&wish.id)?.is_some() {
            return self.loan(peer, &wish.id);
        }
        let run = self.run_of(peer, &wish.job)?;
        for _ in 0..COMMANDS {
            self.users.command(now_s(), peer.uid)?;
        }
        let job = self.slurm.job(run.job).map_err(no_slurm)?.filter(|j| j.uid == run.uid);
        let job = job.ok_or_else(|| refused(format!("Slurm does not know job {}", run.job)))?;
        if peer.uid != job.uid {
            return Err(refused(format!(
                "only {} may lend nodes of job {}: they come back to who asks",
                job.user, job.id
            )));
        }
        let name = format!("{}{}", super::PREFIX, wish.id);
        let reservations = self.slurm.reservations().map_err(no_slurm)?;
        if reservations.iter().any(|r| r.name == name) {
            return Err(refused(format!("reservation {name} is there already, and not ours: ask with another id")));
        }
        let account = self.slurm.text(&job, JobText::Account).map_err(no_slurm)?;
        let now_s = now_s();
        let loans = self.readers.free().lendings(now_s - DAY_S)?;
        let ask = Ask {
            now_s,
            job: &job,
            account: &account,
            nodes: &wish.nodes,
            return_s: wish.return_s,
            steps: &self.slurm.steps(job.id).map_err(no_slurm)?,
            reservations: &reservations,
            slurm: &self.slurm.config().map_err(no_slurm)?,
            loans: &loans,
        };
        if let Some(reason) = rules::refusal(&self.site.lend, &ask) {
            tracing::info!(job = job.id, nodes = ?wish.nodes, reason, "a loan is refused");
            return Err(refused(reason));
        }
        let loan = Loan {
            id: wish.id.clone(),
            name,
            key: run.key,
            job: job.id,
            restart_count: job.restarts,
            uid: job.uid,
            user: job.user,
            account,
            mode: self.site.lend.mode,
            state: LoanState::Asked,
            state_s: now_s,
            reason: wish.reason.chars().take(300).collect(),
            nodes: wish.nodes.clone(),
            kept: job.nodes.into_iter().filter(|n| !wish.nodes.contains(n)).collect(),
            asked_s: now_s,
            return_s: wish.return_s,
            promised_s: wish.return_s,
            lent_s: None,
            back_s: None,
            back: Vec::new(),
            time_limit_s: job.time_limit_s,
            idle_w: self.site.energy.idle_w,
            stays: Vec::new(),
            chosen: Vec::new(),
        };
        self.store.lock().save_lending(&loan)?;
        tracing::info!(loan = loan.id, job = loan.job, nodes = ?loan.nodes, reason = loan.reason, "a loan begins");
        self.loans.open.lock().insert(loan.id.clone(), loan.clone());
        self.loans.ring();
        Ok(loan)
    }

    /// Moves the expected return of a loan that is still out.
    fn expect_return(&self, id: &str, return_s: f64) -> Result<(), Refusal> {
        let from_s = self.loans.get(id).map_or_else(now_s, |l| l.lent_s.unwrap_or(l.asked_s));
        let latest_s = from_s + self.site.lend.longest_s;
        if !return_s.is_finite() || return_s > latest_s {
            let text =
                format!("return_s = {return_s} is later than lend.longest_s = {} allows", self.site.lend.longest_s);
            return Err(Refusal(StatusCode::BAD_REQUEST, text));
        }
        let early = |l: &Loan| matches!(l.state, LoanState::Asked | LoanState::Shrinking | LoanState::Lent);
        if self.loans.get(id).as_ref().is_some_and(early) {
            self.change(id, |l| {
                l.return_s = return_s;
                l.promised_s = l.promised_s.max(return_s);
            })?;
        }
        Ok(())
    }
}

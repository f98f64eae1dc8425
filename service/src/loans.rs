//! What the controller answers about loans: asking for one, following it, moving its end, listing them; and the queue.

use crate::controller::Controller;
use crate::metrics::Ended;
use crate::orders::Orders;
use crate::refusal::of_broker;
use crate::routes::{LONGEST_WAIT, Shared, check_id};
use crate::watching::Watching;
use anyhow::Result;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use broker::DAY_S;
use listener::now_s;
use listener::{Answer, Document, Refusal, absent, blocking, version};
use parking_lot::Mutex;
use protocol::{Loan, LoanProgress, LoanRequest, LoanState, Order, OrderState, Queue};
use std::sync::Arc;
use std::time::Duration;
use store::{OpenRun, Store};
use wire::Peer;

/// Commands to Slurm that asking for a loan causes at once.
const COMMANDS: u32 = 5;

pub(crate) async fn ask(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    Document(request): Document<LoanRequest>,
) -> Answer<Loan> {
    version(request.version)?;
    check_id("a loan", &request.id)?;
    blocking(move || {
        if let Some(loan) = c.broker.loan(&request.id).map_err(of_broker)? {
            return c.visible_loan(peer, Some(loan));
        }
        let run = c.run_of(peer, &request.job)?;
        for _ in 0..COMMANDS {
            c.users.command(now_s(), peer.uid)?;
        }
        // Somebody else may have asked with this id meanwhile.
        let loan = c.broker.allow(peer.uid, run, &request).map_err(of_broker)?;
        c.visible_loan(peer, Some(loan))
    })
    .await?
    .map(Json)
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
    let (seeing, of) = (c.clone(), id.clone());
    let loan = blocking(move || seeing.loan(peer, &of)).await??;
    if Some(loan.state) != wait.since {
        return Ok(Json(loan));
    }
    c.broker.moved(&id, wait.since, limit).await;
    blocking(move || c.loan(peer, &id)).await?.map(Json)
}

pub(crate) async fn progress(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    Document(progress): Document<LoanProgress>,
) -> Answer<Loan> {
    version(progress.version)?;
    let Path(id) = id?;
    blocking(move || {
        c.loan(peer, &id)?;
        c.broker.expect_return(&id, progress.return_s).map_err(of_broker)?;
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
        let all = all.into_iter().map(|l| c.broker.get(&l.id).unwrap_or(l));
        Ok(all.filter(|l| may(l) && which.has(l)).collect::<Vec<_>>())
    });
    Ok(Json(loans.await??))
}

/// `?partition=P&cpus=N`: for such nodes.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct For {
    partition: String,
    cpus: u32,
}

/// `GET /v1/queue`: what waits for so many CPUs of a partition.
pub(crate) async fn queue(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    nodes: Result<Query<For>, QueryRejection>,
) -> Answer<Queue> {
    let Query(For { partition, cpus }) = nodes?;
    c.users.command(now_s(), peer.uid)?;
    Ok(Json(blocking(move || c.broker.queue(&partition, cpus)).await?.map_err(of_broker)?))
}

impl Controller {
    /// A loan that this user may see.
    fn loan(&self, peer: Peer, id: &str) -> Result<Loan, Refusal> {
        self.visible_loan(peer, self.broker.loan(id).map_err(of_broker)?)
    }

    fn visible_loan(&self, peer: Peer, loan: Option<Loan>) -> Result<Loan, Refusal> {
        loan.filter(|l| self.access.may(peer.uid, l.uid)).ok_or_else(|| absent("such loan"))
    }
}

/// The service, as the broker needs it.
pub(crate) struct Around {
    pub watching: Arc<Watching>,
    pub orders: Arc<Orders>,
    pub store: Arc<Mutex<Store>>,
    pub ended: Arc<Ended>,
}

impl broker::Ports for Around {
    fn expect_heartbeats(&self, nodes: &[String]) {
        self.watching.wait_for(nodes);
    }

    fn joules(&self, node: &str, job: u32) -> Option<f64> {
        self.watching.joules(node, job)
    }

    fn requeueing(&self, runs: &[OpenRun]) {
        self.watching.hit(runs);
    }

    fn order_state(&self, id: &str) -> Option<OrderState> {
        self.orders.get(now_s(), id).map(|(status, _)| status.state)
    }

    fn order(&self, run: &OpenRun, order: Order) -> Result<(), String> {
        self.orders.give(now_s(), &self.store, run, order).map(drop).map_err(|e| e.to_string())
    }

    fn over(&self, loan: &Loan) {
        self.ended.add_loan(loan);
    }
}

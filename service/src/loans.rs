//! What the controller answers about loans: asking for one, following it, moving its end, listing them; and the queue.

use crate::access::Access;
use crate::asked::{LONGEST_WAIT, check_id};
use crate::metrics::Ended;
use crate::parts::Reporter;
use crate::refusal::of_broker;
use crate::steering::Steering;
use crate::watching::Watching;
use anyhow::Result;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use broker::{Broker, DAY_S, NotOrdered};
use config::Site;
use listener::now_s;
use listener::{Answer, Document, Refusal, Users, blocking, version};
use orders::{Giver, Orders};
use parking_lot::Mutex;
use protocol::{Loan, LoanProgress, LoanRequest, LoanState, Order, OrderState, Queue};
use std::sync::Arc;
use std::time::Duration;
use store::{OpenRun, Store};
use wire::Peer;

/// Commands to Slurm that asking for a loan causes at once.
const COMMANDS: u32 = 5;

pub(crate) async fn ask(
    State(broker): State<Arc<Broker>>,
    State(steering): State<Arc<Steering>>,
    State(users): State<Arc<Users>>,
    Extension(peer): Extension<Peer>,
    Document(request): Document<LoanRequest>,
) -> Answer<Loan> {
    version(request.version)?;
    check_id("a loan", &request.id)?;
    blocking(move || {
        if let Some(loan) = broker.loan(&request.id).map_err(of_broker)? {
            return steering.visible(peer, Some(loan));
        }
        let run = steering.run_of(peer, &request.job)?;
        for _ in 0..COMMANDS {
            users.command(now_s(), peer.uid)?;
        }
        // Somebody else may have asked with this id meanwhile.
        let loan = broker.allow(peer.uid, run, &request).map_err(of_broker)?;
        steering.visible(peer, Some(loan))
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
    State(broker): State<Arc<Broker>>,
    State(steering): State<Arc<Steering>>,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    wait: Result<Query<Follow>, QueryRejection>,
) -> Answer<Loan> {
    let (Path(id), Query(wait)) = (id?, wait?);
    let limit = Duration::try_from_secs_f64(wait.wait_s).unwrap_or_default().min(LONGEST_WAIT);
    let (looking, seeing, of) = (broker.clone(), steering.clone(), id.clone());
    let seen = blocking(move || loan(&looking, &seeing, peer, &of)).await??;
    if Some(seen.state) != wait.since {
        return Ok(Json(seen));
    }
    broker.moved(&id, wait.since, limit).await;
    blocking(move || loan(&broker, &steering, peer, &id)).await?.map(Json)
}

pub(crate) async fn progress(
    State(broker): State<Arc<Broker>>,
    State(steering): State<Arc<Steering>>,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    Document(progress): Document<LoanProgress>,
) -> Answer<Loan> {
    version(progress.version)?;
    let Path(id) = id?;
    blocking(move || {
        loan(&broker, &steering, peer, &id)?;
        broker.expect_return(&id, progress.return_s).map_err(of_broker)?;
        loan(&broker, &steering, peer, &id)
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
    State(broker): State<Arc<Broker>>,
    State(reporter): State<Arc<Reporter>>,
    State(access): State<Arc<Access>>,
    State(site): State<Arc<Site>>,
    Extension(peer): Extension<Peer>,
    which: Result<Query<Which>, QueryRejection>,
) -> Answer<Vec<Loan>> {
    let Query(which) = which?;
    let loans = blocking(move || -> Result<_> {
        // A loan that ended in the window was asked for at most the longest time before.
        let since_s = which.start.map_or(0.0, |start_s| start_s - site.lend.longest_s - DAY_S);
        let all = reporter.store.lock().lendings(since_s)?;
        let may = |l: &Loan| access.may(peer.uid, l.uid);
        // What borrowers have used so far is on disk at the next change only.
        let all = all.into_iter().map(|l| broker.get(&l.id).unwrap_or(l));
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
    State(broker): State<Arc<Broker>>,
    State(users): State<Arc<Users>>,
    Extension(peer): Extension<Peer>,
    nodes: Result<Query<For>, QueryRejection>,
) -> Answer<Queue> {
    let Query(For { partition, cpus }) = nodes?;
    users.command(now_s(), peer.uid)?;
    Ok(Json(blocking(move || broker.queue(&partition, cpus)).await?.map_err(of_broker)?))
}

/// A loan that this user may see.
fn loan(broker: &Broker, steering: &Steering, peer: Peer, id: &str) -> Result<Loan, Refusal> {
    steering.visible(peer, broker.loan(id).map_err(of_broker)?)
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

    fn order(&self, run: &OpenRun, order: Order) -> Result<(), NotOrdered> {
        let given = self.orders.give(now_s(), &self.store, run, Giver::Operator, order);
        given.map(drop).map_err(|e| NotOrdered(e.to_string()))
    }

    fn over(&self, loan: &Loan) {
        self.ended.add_loan(loan);
    }
}

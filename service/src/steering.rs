//! Orders of people for their runs: given, and asked after.

use crate::access::Access;
use crate::asked::{Wait, check_id, number, user_name};
use crate::refusal::{of_slurm, of_store};
use audit::{Act, By};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use listener::{Answer, Document, Refusal, Users, absent, blocking, now_s, version};
use orders::{Giver, NotTaken, Orders};
use parking_lot::Mutex;
use protocol::{Loan, Order, OrderRequest, OrderStatus, Verb};
use slurm::{JobState, Slurm};
use std::sync::Arc;
use store::{OpenRun, Readers, Store};
use wire::Peer;

/// How long a vacated job may be made to wait at most, s; and how far the clock of who asks may be behind.
const LATEST_S: f64 = 366.0 * 86_400.0;
const EARLIER_S: f64 = 300.0;

/// What people steer runs with.
pub(crate) struct Steering {
    pub readers: Arc<Readers>,
    pub access: Arc<Access>,
    pub users: Arc<Users>,
    pub slurm: Slurm,
}

impl Steering {
    /// A loan, if this user may see it.
    ///
    /// # Errors
    /// That there is none of theirs.
    pub(crate) fn visible(&self, peer: Peer, loan: Option<Loan>) -> Result<Loan, Refusal> {
        loan.filter(|l| self.access.may(peer.uid, l.uid)).ok_or_else(|| absent("such loan"))
    }

    /// The running run of a job, `123` or `123_4`, that this user may steer.
    pub(crate) fn run_of(&self, peer: Peer, job: &str) -> Result<OpenRun, Refusal> {
        let id = match job.split_once('_') {
            None => Some(number(job)?),
            Some((array, task)) => {
                self.users.command(now_s(), peer.uid)?;
                self.slurm.array_task(number(array)?, number(task)?).map_err(of_slurm)?
            }
        };
        if id == Some(0) {
            return Err(Refusal(StatusCode::CONFLICT, "a run outside Slurm takes no orders".into()));
        }
        let open = id.map_or(Ok(Vec::new()), |id| self.readers.free().open_runs_of(id)).map_err(of_store)?;
        let run = open
            .into_iter()
            .find(|r| self.access.may(peer.uid, r.uid))
            .ok_or_else(|| absent(format!("running job {job} under protection")))?;
        if run.record_state != "running" {
            let text = format!("job {job} does not run at the moment ({})", run.record_state);
            return Err(Refusal(StatusCode::CONFLICT, text));
        }
        Ok(run)
    }

    /// Refuses what would end a job instead of moving it, and what a suspended job cannot carry out.
    fn check_order(&self, peer: Peer, run: &OpenRun, verb: Verb) -> Result<(), Refusal> {
        if verb == Verb::Preempt {
            let text = "only the broker of loans preempts; joulepoint vacate JOB does the same for people";
            return Err(Refusal(StatusCode::CONFLICT, text.into()));
        }
        let may_ask = self.users.command(now_s(), peer.uid);
        if verb != Verb::Vacate && may_ask.is_err() {
            return Ok(());
        }
        may_ask?;
        let job = self.slurm.job(run.job);
        if matches!(&job, Ok(Some(job)) if job.state == JobState::Suspended) {
            let text = format!("job {0} is suspended, and its wrapper with it: scontrol resume {0} first", run.job);
            return Err(Refusal(StatusCode::CONFLICT, text));
        }
        if verb != Verb::Vacate {
            return Ok(());
        }
        let job = job.map_err(of_slurm)?;
        let can = job.is_some_and(|j| j.requeue && j.batch && j.uid == run.uid);
        let text =
            format!("job {} cannot be requeued (--no-requeue, or no batch job), so it cannot be vacated", run.job);
        if can { Ok(()) } else { Err(Refusal(StatusCode::CONFLICT, text)) }
    }
}

/// Refuses a time that is none to begin again at.
fn check_begin(request: &OrderRequest, now_s: f64) -> Result<(), Refusal> {
    let Some(begin_s) = request.begin_s else { return Ok(()) };
    let text = match request.verb {
        Verb::Vacate if (now_s - EARLIER_S..=now_s + LATEST_S).contains(&begin_s) => return Ok(()),
        Verb::Vacate => format!("begin_s = {begin_s} must be a time within the next year, seconds since 1970"),
        verb => format!("begin_s is for vacate, and not for {}", verb.as_str()),
    };
    Err(Refusal(StatusCode::BAD_REQUEST, text))
}

/// `POST /v1/orders`: an order for a running job.
pub(crate) async fn give_order(
    State(steering): State<Arc<Steering>>,
    State(orders): State<Arc<Orders>>,
    State(store): State<Arc<Mutex<Store>>>,
    Extension(peer): Extension<Peer>,
    Document(request): Document<OrderRequest>,
) -> Answer<OrderStatus> {
    version(request.version)?;
    check_id("an order", &request.id)?;
    check_begin(&request, now_s())?;
    let given = blocking(move || -> Result<_, Refusal> {
        // A name service may be slow.
        let by = user_name(peer.uid);
        let run = steering.run_of(peer, &request.job)?;
        steering.check_order(peer, &run, request.verb)?;
        let giver = if steering.access.is_operator(peer.uid) { Giver::Operator } else { Giver::Owner };
        Ok((run, giver, Order { id: request.id, verb: request.verb, by, begin_s: request.begin_s }))
    });
    let (run, giver, order) = given.await??;
    let (job, why) = (run.job, format!("{} {}", order.verb.as_str(), order.id));
    let given = blocking(move || orders.give(now_s(), &store, &run, giver, order)).await?;
    let given = audit::note(By::User(peer), Act::Order, (job, ""), &why, given);
    given.map(Json).map_err(|why| {
        let status = match why {
            NotTaken::OtherOrder => StatusCode::CONFLICT,
            NotTaken::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            NotTaken::NotKept => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal(status, why.to_string())
    })
}

/// `GET /v1/orders/{id}`: how far an order has come.
pub(crate) async fn order(
    State(orders): State<Arc<Orders>>,
    State(access): State<Arc<Access>>,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    wait: Result<Query<Wait>, QueryRejection>,
) -> Answer<OrderStatus> {
    let (Path(id), Query(wait)) = (id?, wait?);
    let limit = wait.limit()?;
    let seen = || orders.get(now_s(), &id).filter(|(_, owner)| access.may(peer.uid, *owner)).map(|(status, _)| status);
    let lost = || absent("such order");
    seen().ok_or_else(lost)?;
    orders.settled(&id, limit).await;
    seen().map(Json).ok_or_else(lost)
}

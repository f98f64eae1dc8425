//! What the controller answers: plans, records, health, reports and orders. `docs/openapi.json` describes each route.

use crate::claim::Claimed;
use crate::controller::{Controller, metrics};
use crate::orders::NotTaken;
use crate::refusal::{of_slurm, of_store};
use crate::{calibrations, capabilities, loans, watching};
use anyhow::Result;
use audit::{Act, By};
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json};
use listener::{Access, Answer, BodyBytes, Document, Refusal, Route, absent, blocking, forbidden, version};
use listener::{health, now_s};
use protocol::{
    Batch, Beat, BeatReply, Delivered, Event, NodeFailure, Order, OrderRequest, OrderStatus, Plan, PlanRequest, Record,
    RunAccount, RunHealth, RunKey, Verb,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::account::{self, Wanted};
use store::{OpenRun, Write};
use wire::Peer;

/// Longest time for which an answer is held back.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Longest part of a run's name, bytes.
const LONGEST_NAME: usize = 128;

/// Longest id of an order or a loan, bytes.
const LONGEST_ID: usize = 64;

pub(crate) type Shared = State<Arc<Controller>>;

/// The controller's route table.
pub(crate) fn controller() -> Vec<Route<Arc<Controller>>> {
    use Access::{Known, Open};
    vec![
        Route::new("GET", "/healthz", Open, get(healthz)),
        Route::new("GET", "/metrics", Open, get(metrics)),
        Route::new("POST", "/v1/beats", Known, post(beats)),
        Route::new("POST", "/v1/plan", Known, post(plan)),
        Route::new("POST", "/v1/records", Known, post(records)),
        Route::new("GET", "/v1/runs/{cluster}/{run}/health", Known, get(health)),
        Route::new("POST", "/v1/runs/{cluster}/{run}/begin", Known, post(watching::begin)),
        Route::new("GET", "/v1/report", Known, get(report)),
        Route::new("GET", "/v1/failures", Known, get(failures)),
        Route::new("POST", "/v1/orders", Known, post(give_order)),
        Route::new("GET", "/v1/orders/{id}", Known, get(order)),
        Route::new("GET", "/v1/queue", Known, get(loans::queue)),
        Route::new("POST", "/v1/loans", Known, post(loans::ask)),
        Route::new("GET", "/v1/loans", Known, get(loans::list)),
        Route::new("GET", "/v1/loans/{id}", Known, get(loans::follow)),
        Route::new("POST", "/v1/loans/{id}/return", Known, post(loans::progress)),
        Route::new("GET", "/v1/capabilities", Known, get(capabilities::tell)),
        Route::new("GET", "/v1/calibrations", Known, get(calibrations::tell)),
        Route::new("POST", "/v1/calibrations", Known, post(calibrations::keep)),
    ]
}

async fn healthz(State(c): Shared) -> Response {
    health::tell(&c.health.lock())
}

async fn beats(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    Document(beat): Document<Beat>,
) -> Answer<BeatReply> {
    if peer.uid != 0 {
        return Err(forbidden(peer, "send heartbeats"));
    }
    version(beat.version)?;
    c.beats.fetch_add(1, Ordering::Relaxed);
    let open = c.open.lock().clone();
    for reading in &beat.jobs {
        let of = |r: &&OpenRun| r.job == reading.job && r.record_state == "running" && r.nodes.contains(&beat.node);
        if let Some(run) = open.iter().find(of) {
            c.writer.note(Write::Counters {
                key: run.key.clone(),
                restart_count: run.restart_count,
                node: beat.node.clone(),
                at_s: beat.at_s,
                reading: reading.clone(),
            });
        }
    }
    if let Some(fingerprint) = &beat.fingerprint {
        c.fingerprints.lock().insert(beat.node.clone(), fingerprint.clone());
    }
    if let Some(engines) = &beat.engines {
        c.told.tell(&beat.node, engines);
    }
    let (mut reply, must_keep) = c.heard(&beat);
    reply.capabilities = Some(c.capabilities());
    if must_keep {
        // A node that holds its lease from witnesses whom a later life of this service does not know could not be fenced.
        blocking(move || c.keep_node(&beat.node)).await?.map_err(of_store)?;
    }
    Ok(Json(reply))
}

async fn plan(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    Document(mut question): Document<PlanRequest>,
) -> Answer<Plan> {
    let begun = Instant::now();
    let planning = c.clone();
    let _own = planning.plans.take(peer.uid).await;
    let _turn = planning.readers.turn_to_plan().await;
    let plan = blocking(move || -> Result<_, Refusal> {
        // History is personal: a user is who munge says.
        question.user = user_name(peer.uid).unwrap_or(question.user);
        let mut history = c.readers.free().history(&question.user, &question.job_name).map_err(of_store)?;
        history.calibrations = c.known.lock().clone();
        let plan = planner::make_plan(&question, &history, &c.site)
            .map_err(|refusal| Refusal(StatusCode::UNPROCESSABLE_ENTITY, refusal.to_string()))?;
        c.planning.took(begun.elapsed());
        Ok(plan)
    });
    plan.await?.map(Json)
}

/// `?uid=N`: whose records they are.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Behalf {
    uid: Option<u32>,
}

async fn records(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    Extension(BodyBytes(bytes)): Extension<BodyBytes>,
    behalf: Result<Query<Behalf>, QueryRejection>,
    Document(batch): Document<Batch>,
) -> Answer<Delivered> {
    let peer = c.behalf(peer, behalf?.0.uid)?;
    version(batch.version)?;
    named(&batch.key)?;
    let claiming = c.clone();
    let Claimed { batch, verified, named } = blocking(move || claiming.claim(peer, batch, bytes)).await??;
    let (key, count) = (batch.key.clone(), batch.records.len());
    // What concerns more than the store; the records themselves go there, and are held once only.
    let telling: Vec<Record> = batch.records.iter().filter(|r| concerns_more(&r.event)).cloned().collect();
    let last = batch.records.last().map(|r| Record { event: NOTHING, ..*r });
    let written = c.writer.write(Write::Batch { batch, uid: peer.uid, verified }).await;
    let upto = written.map_err(|e| match e {
        store::Error::Superseded { .. } => Refusal(StatusCode::CONFLICT, e.to_string()),
        other => of_store(other),
    })?;
    if let Some(named) = named {
        c.writer.write(Write::Named { key: key.clone(), named }).await.map_err(of_store)?;
    }
    c.records.fetch_add(count as u64, Ordering::Relaxed);
    c.orders.heard(now_s(), &key, telling.iter().chain(&last).filter(|r| r.seq <= upto));
    let ends = telling.iter().any(|r| matches!(r.event, Event::Ended { .. }));
    if ends || telling.iter().any(|r| matches!(r.event, Event::Committed { .. } | Event::Failure { .. })) {
        blocking(move || {
            if let Err(e) = c.comment(&key, ends) {
                tracing::warn!(error = format!("{e:#}"), "the AdminComment was not written");
            }
        })
        .await?;
    }
    Ok(Json(Delivered { upto }))
}

/// Stands for the last record of a batch, of which only the number is of concern.
const NOTHING: Event = Event::CheckpointFailed { reason: String::new() };

/// Whether an event is of concern to orders, or to who reads the job's AdminComment.
fn concerns_more(event: &Event) -> bool {
    matches!(
        event,
        Event::Started { .. }
            | Event::Ordered { .. }
            | Event::Ended { .. }
            | Event::Committed { .. }
            | Event::Failure { .. }
    )
}

/// `?since=N&wait_s=S`: hold the answer back until there is news; `restart_count=N`: which record of the run asks.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Wait {
    since: Option<u64>,
    restart_count: Option<u32>,
    #[serde(default)]
    wait_s: f64,
}

impl Wait {
    fn limit(&self) -> Result<Duration, Refusal> {
        let limit = Duration::try_from_secs_f64(self.wait_s).map(|limit| limit.min(LONGEST_WAIT));
        limit.map_err(|_| bad(format!("wait_s = {} is no time in seconds", self.wait_s)))
    }
}

async fn health(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, String)>, PathRejection>,
    wait: Result<Query<Wait>, QueryRejection>,
) -> Answer<RunHealth> {
    let (Path((cluster, run)), Query(wait)) = (path?, wait?);
    let (key, limit) = (named(&RunKey { cluster, run })?, wait.limit()?);
    let seeing = c.clone();
    let key = blocking(move || seeing.visible(peer, &key)).await??.ok_or_else(|| absent("such run"))?;
    if let Some(since) = wait.since {
        let job = c.open.lock().iter().find(|r| r.key == key).map(|r| r.job);
        let attending = job.map(|job| c.watching.attend(job));
        c.orders.news(&key, since, limit).await;
        attending.into_iter().for_each(watching::Attending::answered);
    }
    let health = blocking(move || -> Result<_> {
        let (news, orders) =
            c.orders.hand_out(now_s(), &key, wait.restart_count, |id| c.store.lock().order_taken(id))?;
        let Some(run) = c.readers.free().open_run(&key)? else {
            return Ok(RunHealth { news, nodes: Vec::new(), orders });
        };
        let mut nodes = c.watching.health(&run.nodes, run.job);
        if !c.open.lock().iter().any(|r| r.key == key) {
            // Slurm has not said yet that the job is this run's.
            nodes.iter_mut().for_each(|h| h.job = None);
        }
        nodes.iter_mut().filter(|h| c.broker.has_lent(&run, &h.node)).for_each(|h| (h.dead, h.doomed) = (false, false));
        Ok(RunHealth { news, nodes, orders })
    });
    Ok(Json(health.await??))
}

/// Every death of a node: no secret, Slurm shows it to everybody.
async fn failures(State(c): Shared) -> Answer<Vec<NodeFailure>> {
    Ok(Json(blocking(move || c.readers.free().node_failures()).await?.map_err(of_store)?))
}

async fn report(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Answer<Vec<RunAccount>> {
    let Query(wanted) = wanted?;
    let only = (!c.access.is_operator(peer.uid)).then_some(peer.uid);
    let reporting = c.clone();
    let _turn = reporting.reports.take(peer.uid).await;
    let runs = blocking(move || -> Result<_, Refusal> {
        let reporter = c.reporter.lock();
        if only.is_some() {
            let asked = account::asked(reporter.connection(), &wanted, only).map_err(of_store)?;
            asked.allow(wanted.brief).map_err(|e| Refusal(StatusCode::PAYLOAD_TOO_LARGE, e.to_string()))?;
        }
        let runs = account::accounts(reporter.connection(), &wanted, only).map_err(of_store)?;
        runs.iter().for_each(|run| c.ended.name(run));
        Ok(runs)
    });
    Ok(Json(runs.await??))
}

async fn give_order(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    Document(wish): Document<OrderRequest>,
) -> Answer<OrderStatus> {
    version(wish.version)?;
    check_id("an order", &wish.id)?;
    let by = user_name(peer.uid).unwrap_or_else(|| peer.uid.to_string());
    let ordering = c.clone();
    let given = blocking(move || -> Result<_, Refusal> {
        let run = ordering.run_of(peer, &wish.job)?;
        ordering.check_order(peer, &run, wish.verb)?;
        Ok((run, Order { id: wish.id, verb: wish.verb, by }))
    });
    let (run, order) = given.await??;
    let (job, why) = (run.job, format!("{} {}", order.verb.as_str(), order.id));
    let posted = blocking(move || c.orders.give(now_s(), &c.store, &run, order)).await?;
    let posted = audit::note(By::User(peer), Act::Order, (job, ""), &why, posted);
    posted.map(Json).map_err(|why| {
        let status = match why {
            NotTaken::OtherOrder => StatusCode::CONFLICT,
            NotTaken::TooMany => StatusCode::TOO_MANY_REQUESTS,
            NotTaken::NotKept => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal(status, why.to_string())
    })
}

async fn order(
    State(c): Shared,
    Extension(peer): Extension<Peer>,
    id: Result<Path<String>, PathRejection>,
    wait: Result<Query<Wait>, QueryRejection>,
) -> Answer<OrderStatus> {
    let (Path(id), Query(wait)) = (id?, wait?);
    let limit = wait.limit()?;
    let seen =
        || c.orders.get(now_s(), &id).filter(|(_, owner)| c.access.may(peer.uid, *owner)).map(|(status, _)| status);
    let lost = || absent("such order");
    seen().ok_or_else(lost)?;
    c.orders.settled(&id, limit).await;
    seen().map(Json).ok_or_else(lost)
}

impl Controller {
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

    /// Refuses what would end a job instead of moving it.
    fn check_order(&self, peer: Peer, run: &OpenRun, verb: Verb) -> Result<(), Refusal> {
        if verb == Verb::Preempt {
            let text = "only the broker of loans preempts; joulepoint vacate JOB does the same for people";
            return Err(Refusal(StatusCode::CONFLICT, text.into()));
        }
        if verb != Verb::Vacate {
            return Ok(());
        }
        self.users.command(now_s(), peer.uid)?;
        let job = self.slurm.job(run.job).map_err(of_slurm)?;
        let can = job.is_some_and(|j| j.requeue && j.batch && j.uid == run.uid);
        let text =
            format!("job {} cannot be requeued (--no-requeue, or no batch job), so it cannot be vacated", run.job);
        if can { Ok(()) } else { Err(Refusal(StatusCode::CONFLICT, text)) }
    }
}

/// Ids that clients make up become names in Slurm.
pub(crate) fn check_id(of: &str, id: &str) -> Result<(), Refusal> {
    let plain = (1..=LONGEST_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain { Ok(()) } else { Err(bad(format!("{of}'s id has 1 to {LONGEST_ID} letters and digits"))) }
}

fn number(text: &str) -> Result<u32, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|_| digits);
    number
        .ok_or_else(|| bad(format!("a job is named 123 or 123_4, not '{}'", text.chars().take(40).collect::<String>())))
}

/// Names of runs are parts of paths elsewhere, so they are held to plain ones here.
pub(crate) fn named(key: &RunKey) -> Result<RunKey, Refusal> {
    let plain = |name: &str| {
        let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        (1..=LONGEST_NAME).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(known)
    };
    if plain(&key.cluster) && plain(&key.run) {
        return Ok(key.clone());
    }
    Err(bad(format!("a run's name has 1 to {LONGEST_NAME} letters, digits, '.', '_' and '-', and no '.' in front")))
}

fn bad(text: String) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text)
}

fn user_name(uid: u32) -> Option<String> {
    nix::unistd::User::from_uid(uid.into()).ok().flatten().map(|u| u.name)
}

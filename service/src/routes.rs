//! What the controller answers: plans, records, health, reports and orders. `docs/openapi.json` describes each route.

use crate::access::Access as Operators;
use crate::accounting::Accounting;
use crate::asked::{Wait, named, user_name};
use crate::calibrations::Calibrations;
use crate::capabilities::Counter;
use crate::claim::{Claimed, Claims};
use crate::metrics::Ended;
use crate::metrics::exposed;
use crate::metrics::exposed::{Counts, Planning};
use crate::parts::{Parts, Reporter};
use crate::refusal::of_store;
use crate::watching::{Attending, Watching};
use crate::{calibrations, capabilities, loans, sessions, steering, watching};
use anyhow::Result;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Json};
use broker::Broker;
use config::Site;
use listener::health::SelfLook;
use listener::{
    Access, Answer, BodyBytes, Document, OfSession, Refusal, Route, absent, blocking, forbidden, now_s, version,
};
use orders::Orders;
use parking_lot::Mutex;
use protocol::{
    Batch, Beat, BeatReply, Delivered, Event, NodeFailure, Plan, PlanRequest, Record, RunAccount, RunHealth, RunKey,
};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use store::account::{self, Wanted};
use store::{OpenRun, Readers, Store, Write, Writer};
use wire::Peer;

/// Where heartbeats go.
pub(crate) const BEATS: &str = "/v1/beats";

/// The controller's route table.
pub(crate) fn controller() -> Vec<Route<Parts>> {
    use Access::{Known, Open};
    vec![
        Route::new("GET", "/healthz", Open, get(healthz)),
        Route::new("GET", "/metrics", Open, get(exposed::metrics)),
        Route::new("POST", BEATS, Known, post(beats)),
        Route::new("POST", wire::session::PATH, Known, post(sessions::open)),
        Route::new("POST", "/v1/plan", Known, post(plan)),
        Route::new("POST", "/v1/records", Known, post(records)),
        Route::new("GET", "/v1/runs/{cluster}/{run}/health", Known, get(health)),
        Route::new("POST", "/v1/runs/{cluster}/{run}/begin", Known, post(watching::begin)),
        Route::new("POST", "/v1/nodes/{node}/off", Known, post(watching::off)),
        Route::new("GET", "/v1/report", Known, get(report)),
        Route::new("GET", "/v1/failures", Known, get(failures)),
        Route::new("POST", "/v1/orders", Known, post(steering::give_order)),
        Route::new("GET", "/v1/orders/{id}", Known, get(steering::order)),
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

async fn healthz(State(looks): State<Arc<SelfLook>>) -> Response {
    looks.tell()
}

async fn beats(
    State(watching): State<Arc<Watching>>,
    State(writer): State<Arc<Writer>>,
    State(calibrations): State<Arc<Calibrations>>,
    State(counter): State<Arc<Counter>>,
    State(counts): State<Arc<Counts>>,
    (Extension(peer), session): (Extension<Peer>, Option<Extension<OfSession>>),
    Document(beat): Document<Beat>,
) -> Answer<BeatReply> {
    if peer.uid != 0 || !sessions::is_of(session.as_deref(), &beat) {
        return Err(forbidden(peer, "send heartbeats"));
    }
    version(beat.version)?;
    counts.beats.fetch_add(1, Ordering::Relaxed);
    let open = watching.open.lock().clone();
    for reading in &beat.jobs {
        let of = |r: &&OpenRun| r.job == reading.job && r.record_state == "running" && r.nodes.contains(&beat.node);
        if let Some(run) = open.iter().find(of) {
            writer.note(Write::Counters {
                key: run.key.clone(),
                restart_count: run.restart_count,
                node: beat.node.clone(),
                at_s: beat.at_s,
                reading: reading.clone(),
            });
        }
    }
    if let Some(fingerprint) = &beat.fingerprint {
        calibrations.fingerprints.lock().insert(beat.node.clone(), fingerprint.clone());
    }
    if let Some(engines) = &beat.engines {
        counter.engines.report(&beat.node, engines);
    }
    let (mut reply, must_keep) = watching.take_in(&beat);
    reply.capabilities = Some(counter.capabilities());
    if must_keep {
        // A node that holds its lease from witnesses whom a later life of this service does not know could not be fenced.
        blocking(move || watching.keep(&beat.node)).await?.map_err(of_store)?;
    }
    Ok(Json(reply))
}

async fn plan(
    State(site): State<Arc<Site>>,
    State(readers): State<Arc<Readers>>,
    State(calibrations): State<Arc<Calibrations>>,
    State(planning): State<Arc<Planning>>,
    Extension(peer): Extension<Peer>,
    Document(mut question): Document<PlanRequest>,
) -> Answer<Plan> {
    let begun = Instant::now();
    let _own = planning.turns.take(peer.uid).await;
    let _turn = readers.turn_to_plan().await;
    let (store, taking) = (readers.clone(), planning.clone());
    let plan = blocking(move || -> Result<_, Refusal> {
        // History is personal: a user is who munge says, also one without a name here.
        question.user = user_name(peer.uid);
        let mut history = {
            let store = store.free();
            let failures = store.failure_log(listener::now_s()).map_err(of_store)?;
            let history = store.history(&question.user, &question.job_name).map_err(of_store)?;
            planner::History { failures, ..history }
        };
        history.calibrations = calibrations.known.lock().clone();
        let plan = planner::make_plan(&question, &history, &site)
            .map_err(|refusal| Refusal(StatusCode::UNPROCESSABLE_ENTITY, refusal.to_string()))?;
        taking.latency.took(begun.elapsed());
        Ok(plan)
    });
    plan.await?.map(Json)
}

/// For whom somebody sends records: a node service (root) names the user whose records it kept.
fn behalf_of(peer: Peer, uid: Option<u32>) -> Result<Peer, Refusal> {
    match uid {
        None => Ok(peer),
        Some(uid) if peer.uid == 0 => Ok(Peer { uid, ..peer }),
        Some(_) => Err(forbidden(peer, "send records of others")),
    }
}

/// `?uid=N`: whose records they are.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Behalf {
    uid: Option<u32>,
}

async fn records(
    State(claims): State<Arc<Claims>>,
    State((writer, counts)): State<(Arc<Writer>, Arc<Counts>)>,
    State((orders, accounting)): State<(Arc<Orders>, Arc<Accounting>)>,
    Extension(peer): Extension<Peer>,
    Extension(BodyBytes(bytes)): Extension<BodyBytes>,
    behalf: Result<Query<Behalf>, QueryRejection>,
    Document(batch): Document<Batch>,
) -> Answer<Delivered> {
    let peer = behalf_of(peer, behalf?.0.uid)?;
    version(batch.version)?;
    named(&batch.key)?;
    let Claimed { batch, verified, named } = blocking(move || claims.claim(peer, batch, bytes)).await??;
    let (key, count) = (batch.key.clone(), batch.records.len());
    // What concerns more than the store; the records themselves go there, and are held once only.
    let telling: Vec<Record> = batch.records.iter().filter(|r| concerns_more(&r.event)).cloned().collect();
    let last = batch.records.last().map(|r| Record { event: NOTHING, ..*r });
    let written = writer.write(Write::Batch { batch, uid: peer.uid, verified }).await;
    let upto = written.map_err(|e| match e {
        store::Error::Superseded { .. } => Refusal(StatusCode::CONFLICT, e.to_string()),
        other => of_store(other),
    })?;
    if let Some(named) = named {
        writer.write(Write::Named { key: key.clone(), named }).await.map_err(of_store)?;
    }
    counts.records.fetch_add(count as u64, Ordering::Relaxed);
    // What comes before them may be missing: of those that are not stored nothing follows.
    let stored = || telling.iter().chain(&last).filter(|r| r.seq <= upto);
    orders.heard(now_s(), &key, stored());
    let ends = stored().any(|r| matches!(r.event, Event::Ended { .. }));
    if ends || stored().any(|r| matches!(r.event, Event::Committed { .. } | Event::Failure { .. })) {
        accounting.heard(key, ends).await;
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

async fn health(
    State((claims, broker)): State<(Arc<Claims>, Arc<Broker>)>,
    State((watching, orders)): State<(Arc<Watching>, Arc<Orders>)>,
    State((store, readers)): State<(Arc<Mutex<Store>>, Arc<Readers>)>,
    Extension(peer): Extension<Peer>,
    path: Result<Path<(String, String)>, PathRejection>,
    wait: Result<Query<Wait>, QueryRejection>,
) -> Answer<RunHealth> {
    let (Path((cluster, run)), Query(wait)) = (path?, wait?);
    let (key, limit) = (named(&RunKey { cluster, run })?, wait.limit()?);
    let key = blocking(move || claims.visible(peer, &key)).await??.ok_or_else(|| absent("such run"))?;
    if let Some(since) = wait.since {
        let job = watching.open.lock().iter().find(|r| r.key == key).map(|r| r.job);
        let attending = job.map(|job| watching.attend(job));
        orders.news(&key, since, limit).await;
        attending.into_iter().for_each(Attending::answered);
    }
    let health = blocking(move || -> Result<_> {
        let (news, orders) = orders.hand_out(now_s(), &key, wait.restart_count, |id| store.lock().order_taken(id))?;
        let Some(run) = readers.free().open_run(&key)? else {
            return Ok(RunHealth { news, nodes: Vec::new(), orders });
        };
        let mut nodes = watching.health(&watching.nodes_of(&run), run.job);
        if !watching.open.lock().iter().any(|r| r.key == key) {
            // Slurm has not said yet that the job is this run's.
            nodes.iter_mut().for_each(|h| h.job = None);
        }
        let lent =
            nodes.iter_mut().filter(|h| broker.has_lent(&run, &h.node) || watching.has_given_back(&run, &h.node));
        lent.for_each(|h| (h.dead, h.doomed, h.booted_s) = (false, false, None));
        Ok(RunHealth { news, nodes, orders })
    });
    Ok(Json(health.await??))
}

/// Every death of a node: no secret, Slurm shows it to everybody.
async fn failures(State(readers): State<Arc<Readers>>) -> Answer<Vec<NodeFailure>> {
    Ok(Json(blocking(move || readers.free().node_failures()).await?.map_err(of_store)?))
}

async fn report(
    State(access): State<Arc<Operators>>,
    State(reporter): State<Arc<Reporter>>,
    State(ended): State<Arc<Ended>>,
    Extension(peer): Extension<Peer>,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Answer<Vec<RunAccount>> {
    let Query(wanted) = wanted?;
    let only = (!access.is_operator(peer.uid)).then_some(peer.uid);
    let _turn = reporter.turns.take(peer.uid).await;
    let reporting = reporter.clone();
    let runs = blocking(move || -> Result<_, Refusal> {
        let store = reporting.store.lock();
        if only.is_some() {
            let asked = account::asked(store.connection(), &wanted, only).map_err(of_store)?;
            asked.allow(wanted.brief).map_err(|e| Refusal(StatusCode::PAYLOAD_TOO_LARGE, e.to_string()))?;
        }
        let tariff = reporting.tariff.as_ref().map(|file| file.tariff());
        let runs = account::accounts(store.connection(), &wanted, only, tariff.as_deref()).map_err(of_store)?;
        runs.iter().for_each(|run| ended.name(run));
        Ok(runs)
    });
    Ok(Json(runs.await??))
}

//! Holds `docs/openapi.json` to the routers, and their requests and answers to it.

use crate::site::{ALICE, PATIENCE, Site, beat, daemon, ended, is_root, started, until};
use protocol::{
    Axis, BasePower, Batch, BeginReply, BeginRequest, Calibration, EndRequest, Event, FailureKind, Fingerprint,
    FormerNode, FrequencyRequest, Incarnation, JobReading, LeaseRequest, LeavingsRequest, Measured, Noise, Operation,
    OrderRequest, OrderState, OrderedCheckpoint, Phase, Plan, PlanRequest, Point, Protection, Quantity, Record,
    Request, RunKey, Setting, SharedFile, SignalRequest, Skipped, Source, StepSpan, Storage, StoredFit,
    TestimonyRequest, Unsure, Verb, WaitsFor, WritersRequest,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wire::Client;

fn description() -> Value {
    serde_json::from_str(include_str!("../../../docs/openapi.json")).expect("docs/openapi.json is JSON")
}

/// What a value must be to fit a schema of the description.
fn misfit(schema: &Value, value: &Value) -> Option<String> {
    let mut whole = schema.clone();
    whole["components"] = description()["components"].clone();
    let validator = jsonschema::draft202012::new(&whole).expect("a schema");
    let errors: Vec<String> = validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path)).collect();
    (!errors.is_empty()).then(|| format!("{errors:?} in {value:#}"))
}

#[track_caller]
pub fn fits(schema: &Value, value: &Value) {
    assert!(!schema.is_null(), "the description has no schema for {value:#}");
    assert_eq!(misfit(schema, value), None);
    // The schema says something: nothing else fits.
    let mut more = value.clone();
    if let Some(object) = more.as_object_mut() {
        object.insert("undescribed".into(), json!(1));
        assert!(misfit(schema, &more).is_some(), "the schema lets everything in");
    }
}

pub fn answer(method: &str, path: &str) -> Value {
    description()["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"].clone()
}

pub fn body(path: &str) -> Value {
    description()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"].clone()
}

fn described() -> BTreeSet<(String, String)> {
    let description = description();
    let paths = description["paths"].as_object().expect("paths");
    let methods = |(path, item): (&String, &Value)| {
        let methods = item.as_object().expect("methods").keys();
        methods.map(|m| (m.to_uppercase(), path.clone())).collect::<Vec<_>>()
    };
    paths.iter().flat_map(methods).collect()
}

#[test]
fn every_route_is_described_and_every_description_is_a_route() {
    let routes: BTreeSet<(String, String)> =
        service::routes().into_iter().map(|(method, path)| (method.to_owned(), path.to_owned())).collect();
    assert_eq!(routes, described());
}

#[test]
fn every_description_refers_to_what_is_there() {
    fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(object) => {
                found.extend(object.get("$ref").and_then(Value::as_str));
                object.values().for_each(|v| references(v, found));
            }
            Value::Array(array) => array.iter().for_each(|v| references(v, found)),
            _ => {}
        }
    }
    let description = description();
    let mut found = Vec::new();
    references(&description, &mut found);
    for reference in &found {
        assert!(description.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
    assert!(found.len() > 50);
    let mut ids = BTreeSet::new();
    for (method, path) in described() {
        let operation = &description["paths"][&path][method.to_lowercase()];
        let id = operation["operationId"].as_str().expect("an operationId");
        assert!(ids.insert(id), "{id} twice");
        let named: BTreeSet<&str> = path.split('{').skip(1).filter_map(|p| p.split('}').next()).collect();
        let parameters = operation["parameters"].as_array().into_iter().flatten().filter(|p| p["in"] == "path");
        assert_eq!(parameters.filter_map(|p| p["name"].as_str()).collect::<BTreeSet<_>>(), named, "{path}");
    }
}

fn plan_request() -> PlanRequest {
    let mut request = Request::default();
    request.settings.insert("ft-energy".into(), Setting { value: "energy".into(), source: Source::Option });
    PlanRequest {
        request,
        nodes: 4,
        cpus_per_node: 2,
        user: "alice".into(),
        job_name: "heat".into(),
        ..PlanRequest::default()
    }
}

/// A calibration with one of everything.
fn calibration() -> Calibration {
    let (operation, storage) = (Operation::CheckpointWrite, Some(Storage::Shared));
    let point = Point {
        nodes: 1,
        processes: 2,
        bytes: 1e6,
        intensity: 1.0,
        frequency_hz: Some(2e9),
        time_s: 0.5,
        time_ci_s: 0.1,
        delta_w: 20.0,
        delta_ci_w: None,
        count: 5,
        outliers: 1,
    };
    let fit = StoredFit {
        of: Quantity::TimeS,
        over: Axis::Bytes,
        at: 0,
        curve: "linear".into(),
        alpha: 1.0,
        beta: 0.0,
        r2: 1.0,
        residual: 0.0,
        degenerate: false,
    };
    Calibration {
        version: protocol::CALIBRATION_VERSION,
        cluster: "c".into(),
        node_type: "t".into(),
        at_s: 5.0,
        fast: true,
        differing: [("n2".to_string(), Fingerprint::default())].into(),
        fingerprint: Fingerprint { storage: [(Storage::Local, "ext4".into())].into(), ..Fingerprint::default() },
        energy_source: "model".into(),
        power: BasePower { idle_w: [("n1".into(), 100.0)].into(), ..BasePower::default() },
        noise: Noise::default(),
        measured: vec![Measured { operation, storage, points: vec![point], fits: vec![fit] }],
        skipped: vec![Skipped { operation: Operation::Synchro, storage: None, why: "no mpicc".into() }],
    }
}

/// One event of every kind.
fn events(plan: Plan) -> Vec<Event> {
    let reading = JobReading { job: 7, joules: 5.0, cpu_s: 1.0, source: "model".into(), since_s: 1.0 };
    let checkpoint =
        OrderedCheckpoint { number: 1, path: "/runs/c/7.1/checkpoints/1".into(), seconds: 1.5, bytes: 9, joules: None };
    vec![
        started(7),
        Event::Planned(Box::new(plan)),
        Event::Protection(Box::new(Protection { engine: "app".into(), ..Protection::default() })),
        Event::Phase {
            phase: Phase::Compute,
            node: "n1".into(),
            start_s: 100.0,
            end_s: 101.0,
            joules: Some(5.0),
            source: "model".into(),
        },
        Event::Reading { node: "n1".into(), reading },
        Event::Committed {
            number: 1,
            begun_s: 100.0,
            ended_s: 101.5,
            bytes: 9,
            written_bytes: None,
            joules: None,
            still_s: Some(0.5),
        },
        Event::CheckpointFailed { reason: "full".into() },
        Event::Failure {
            kind: FailureKind::Node,
            node: Some("n2".into()),
            failed_s: 101.0,
            detected_s: 102.0,
            reason: "dead".into(),
        },
        Event::RolledBack { to: Some(1), kept_until_s: 100.0 },
        Event::InGroup {
            group: 1,
            nodes: vec!["n2".into()],
            of: Box::new(Event::RolledBack { to: None, kept_until_s: 0.0 }),
        },
        Event::Decided { action: "requeue".into(), reason: "too few nodes".into(), interval_s: 60.0 },
        Event::Messages(protocol::Messages {
            script: "5eed".into(),
            nodes: 2,
            counted: Some(protocol::Counted { count: 7, bytes: 70, over_s: 1.5 }),
            together: Some("it reads a pipe".into()),
        }),
        Event::Ordered {
            id: "a1".into(),
            verb: Verb::Checkpoint,
            by: "alice".into(),
            state: OrderState::Done,
            text: "made".into(),
            checkpoint: Some(checkpoint),
        },
        ended(),
    ]
}

pub fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).expect("JSON")
}

#[test]
fn real_requests_and_answers_are_as_described() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let get = |path: &str| site.as_user(ALICE, |c| c.get::<Value>(path)).expect("an answer");
    let post = |path: &str, request: &Value| {
        fits(&body(path), request);
        let answered = site.as_user(ALICE, |c| c.post::<Value, Value>(path, request)).expect("an answer");
        fits(&answer("post", path), &answered);
        answered
    };
    let plan = post("/v1/plan", &value(&plan_request()));
    let key = RunKey { cluster: "c".into(), run: "7.1".into() };
    let records = |first: u64, events: Vec<Event>| {
        let records = (first..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event });
        value(&Batch { version: protocol::VERSION, key: key.clone(), holder: Some(1), records: records.collect() })
    };
    let mut all = events(serde_json::from_value(plan).expect("a plan"));
    let rest = all.split_off(2);
    post("/v1/records", &records(1, all));
    let (id, job) = ("a1".to_owned(), "7".to_owned());
    let wish = OrderRequest { version: protocol::VERSION, id, job, verb: Verb::Checkpoint, begin_s: None };
    post("/v1/orders", &value(&wish));
    fits(&body("/v1/beats"), &value(&beat("n1")));
    let heard = site.client().post::<_, Value>("/v1/beats", &beat("n1")).expect("heard");
    fits(&answer("post", "/v1/beats"), &heard);
    let health = until("the job's counters", || {
        let health = get("/v1/runs/c/7.1/health");
        (!health["nodes"][0]["job"].is_null()).then_some(health)
    });
    assert_eq!(health["orders"].as_array().map(Vec::len), Some(1));
    fits(&answer("get", "/v1/runs/{cluster}/{run}/health"), &health);
    let former = FormerNode { node: "n1".into(), of: Incarnation { job: 7, restart_count: 0 } };
    let begin = BeginRequest { version: protocol::VERSION, former: vec![former.clone()] };
    fits(&body("/v1/runs/{cluster}/{run}/begin"), &value(&begin));
    let waits = site.as_user(ALICE, |c| c.post::<_, Value>("/v1/runs/c/7.1/begin", &begin)).expect("an answer");
    assert_eq!(waits["waits"][0]["because"], json!({"why": "ending"}));
    for because in [
        Unsure::Lease { for_s: 1.5 },
        Unsure::Suspected,
        Unsure::Reached { by: "n3".into() },
        Unsure::NoMajority { answered: 1, of: 3 },
        Unsure::Crowd,
        Unsure::Unfenced,
    ] {
        let reply = BeginReply { waits: vec![WaitsFor { former: former.clone(), because }] };
        fits(&answer("post", "/v1/runs/{cluster}/{run}/begin"), &value(&reply));
    }
    fits(&answer("post", "/v1/runs/{cluster}/{run}/begin"), &waits);
    post("/v1/records", &records(3, rest));
    let order = get("/v1/orders/a1");
    assert_eq!(order["checkpoint"]["number"], 1);
    fits(&answer("get", "/v1/orders/{id}"), &order);
    fits(&answer("get", "/v1/queue"), &get("/v1/queue?partition=all&cpus=2"));
    let report = get("/v1/report?job=7");
    assert_eq!(report.as_array().map(Vec::len), Some(1));
    fits(&answer("get", "/v1/report"), &report);
    let calibration = value(&calibration());
    fits(&body("/v1/calibrations"), &calibration);
    let refused = site.as_user(ALICE, |c| c.post::<_, Value>("/v1/calibrations", &calibration));
    assert!(refused.expect_err("only operators").to_string().contains("(403)"));
    let later =
        value(&protocol::Calibration { version: 99, ..serde_json::from_value(calibration.clone()).expect("one") });
    let refused = site.client().post::<_, Value>("/v1/calibrations", &later).expect_err("another version");
    assert!(refused.to_string().contains("version 99 is not known"), "{refused}");
    let kept = site.client().post::<_, Value>("/v1/calibrations", &calibration).expect("kept");
    fits(&answer("post", "/v1/calibrations"), &kept);
    let told = get("/v1/calibrations?node_type=t");
    assert_eq!(told[0], kept);
    fits(&answer("get", "/v1/calibrations"), &told);
    let (status, text) = site.raw("GET /healthz HTTP/1.1", "", b"");
    assert_eq!(status, 200, "{text}");
    fits(&answer("get", "/healthz"), &serde_json::from_str(&text).expect("JSON"));
}

#[test]
fn a_loan_is_as_described() {
    use protocol::{Chosen, ChosenState, Loan, LoanMode, LoanProgress, LoanRequest, LoanState, Stay};
    let loan = Loan {
        id: "a1".into(),
        name: "joulepoint_a1".into(),
        key: RunKey { cluster: "c".into(), run: "7.1".into() },
        job: 7,
        restart_count: 0,
        uid: 1000,
        user: "alice".into(),
        account: "physics".into(),
        mode: LoanMode::Preempt,
        state: LoanState::Lent,
        state_s: 2.0,
        reason: "it pays".into(),
        nodes: vec!["n3".into()],
        kept: vec!["n1".into()],
        asked_s: 1.0,
        return_s: 100.0,
        promised_s: 100.0,
        lent_s: Some(2.0),
        back_s: None,
        back: Vec::new(),
        time_limit_s: None,
        idle_w: 100.0,
        stays: vec![Stay {
            node: "n3".into(),
            job: 8,
            user: "bob".into(),
            account: String::new(),
            start_s: 3.0,
            end_s: None,
            joules: Some(5.0),
        }],
        chosen: vec![Chosen {
            job: 8,
            uid: 1001,
            user: "bob".into(),
            restart_count: 0,
            name: "joulepoint_a1_8".into(),
            nodes: vec!["n3".into()],
            state: ChosenState::Running,
            state_s: 3.0,
            reason: "it has begun".into(),
        }],
    };
    fits(&answer("post", "/v1/loans"), &value(&loan));
    fits(&answer("get", "/v1/loans/{id}"), &value(&loan));
    fits(&answer("get", "/v1/loans"), &json!([loan]));
    let (version, return_s) = (protocol::VERSION, 100.0);
    let wish = LoanRequest {
        version,
        id: "a1".into(),
        job: "7".into(),
        nodes: loan.nodes,
        return_s,
        reason: "it pays".into(),
    };
    fits(&body("/v1/loans"), &value(&wish));
    fits(&body("/v1/loans/{id}/return"), &value(&LoanProgress { version, return_s }));
}

#[test]
fn a_node_answers_as_described_and_every_route_is_answered() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    let conf = site.dir.path().join("joulepoint.toml");
    let mut node = daemon(&conf, &["--role=node", "--node", "n1"]);
    let client = Client::on_socket(&site.dir.path().join("run/n1.socket"), PATIENCE);
    let health = until("the node service", || client.get::<Value>("/healthz").ok());
    fits(&answer("get", "/healthz"), &health);
    let reading = client.get::<Value>("/v1/jobs/7/energy?restart=0").expect("a reading");
    fits(&answer("get", "/v1/jobs/{job}/energy"), &reading);
    let frequency = FrequencyRequest { version: protocol::VERSION, hz: Some(1.2e9), lease_s: 1.0 };
    let files = vec![SharedFile { inode: 7, fs: "ext4".into() }];
    let asked = WritersRequest { version: protocol::VERSION, files };
    fits(&body("/v1/jobs/{job}/writers"), &value(&asked));
    let writers = client.post::<_, Value>("/v1/jobs/700000007/writers", &asked).expect("an answer");
    fits(&answer("post", "/v1/jobs/{job}/writers"), &writers);
    assert_eq!(writers["writers"], json!([]));
    let asked = SignalRequest { version: protocol::VERSION, signal: 10 };
    fits(&body("/v1/jobs/{job}/signal"), &value(&asked));
    let reply = client.post::<_, Value>("/v1/jobs/700000007/signal", &asked).expect("an answer");
    fits(&answer("post", "/v1/jobs/{job}/signal"), &reply);
    assert_eq!(reply["asked"], 0, "nothing of such a job is here");
    let steps = vec![StepSpan { begun_s: 1.0, ended_s: 2.0 }];
    let asked = LeavingsRequest { version: protocol::VERSION, now_s: 3.0, steps };
    fits(&body("/v1/jobs/{job}/leavings"), &value(&asked));
    let leavings = client.post::<_, Value>("/v1/jobs/700000007/leavings", &asked).expect("an answer");
    fits(&answer("post", "/v1/jobs/{job}/leavings"), &leavings);
    let again = client.post::<_, Value>("/v1/jobs/700000007/leavings", &asked).expect_err("too soon");
    assert!(again.to_string().contains("503"), "{again}");
    // A number that no other cluster on this machine gives to a job.
    let refused = client.post::<_, Value>("/v1/jobs/700000007/frequency", &frequency).expect_err("no such job");
    assert!(refused.to_string().contains("job 700000007 has no process here"), "{refused}");
    let version = protocol::VERSION;
    let posts = [
        ("/v1/lease", "/v1/lease", value(&LeaseRequest { version, node: "n2".into(), epoch: 1 })),
        ("/v1/jobs/{job}/end", "/v1/jobs/7/end", value(&EndRequest { version, restart_count: 0 })),
        (
            "/v1/testimony",
            "/v1/testimony",
            value(&TestimonyRequest {
                version,
                node: "n2".into(),
                url: "http://127.0.0.1:1".into(),
                slurmd: None,
                epoch: 1,
                ended: [Incarnation { job: 7, restart_count: 0 }].into(),
            }),
        ),
    ];
    for (path, asked, request) in posts {
        fits(&body(path), &request);
        let answered = client.post::<_, Value>(asked, &request).expect("an answer");
        fits(&answer("post", path), &answered);
    }
    for (method, path) in described() {
        let asked = path.replace("{cluster}", "c").replace("{run}", "7.1").replace("{id}", "a1").replace("{job}", "7");
        let of_node = description()["paths"][&path][method.to_lowercase()]["tags"] == json!(["node"]);
        if of_node && method == "POST" {
            continue;
        }
        let status = if of_node {
            let answer = client.get::<Value>(&asked);
            if answer.is_ok() { 200 } else { 0 }
        } else {
            site.raw(&format!("{method} {asked} HTTP/1.1"), "", b"").0
        };
        assert!(matches!(status, 200 | 401), "{method} {asked}: {status}");
    }
    site.child.kill().expect("killed");
    let health = until("the node's word on it", || {
        let refused = client.get::<Value>("/healthz").err().map(|e| e.to_string());
        refused.filter(|text| text.contains("503") && text.contains("cannot be reached"))
    });
    assert!(health.contains("\"ok\":false"), "{health}");
    node.kill().expect("killed");
    node.wait().expect("waited");
}

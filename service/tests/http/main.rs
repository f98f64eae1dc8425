//! The daemon as its callers meet it: real HTTP, a munged of its own, and a Slurm that is a script.
//!
//! It needs root, to speak as different users; without it the tests say so and pass.

mod contract;
mod hostile;
mod loans;
mod orders;
mod sessions;
mod site;

use protocol::{
    Beat, BeatReply, BeginReply, BeginRequest, Event, FormerNode, Health, Incarnation, NodeFailure, NodeReading, Plan,
    PlanRequest, Request, RunAccount, RunHealth, Setting, Source, Unsure, WaitsFor,
};
use site::{
    ALICE, MALLORY, Nodes, PATIENCE, Silent, Site, beat, daemon, ended, is_root, job_line, refused, started, until,
};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};
use wire::private::PrivateMunged;
use wire::{Client, Error};

#[test]
fn a_request_without_a_fresh_credential_of_its_own_is_refused() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    let line = "GET /v1/report HTTP/1.1";
    assert_eq!(site.raw(line, "", b"").0, 401);
    assert_eq!(site.raw(line, "MUNGE rubbish", b"").0, 401);
    let credential = site.credential("/v1/report");
    assert_eq!(site.raw(line, &credential, b"").0, 200);
    let (status, text) = site.raw(line, &credential, b"");
    assert_eq!((status, text.as_str()), (401, "the credential is refused: the credential was used before"));
    site.restart();
    assert_eq!(site.raw(line, &credential, b"").0, 401, "munged remembers for a service that was restarted");
    let credential = site.credential("/v1/report");
    assert_eq!(site.raw(line, &credential, b"").0, 200);
    site.munged.restart().expect("munged");
    assert_eq!(site.raw(line, &credential, b"").0, 401, "the service remembers for a munged that was restarted");
    assert_eq!(site.raw(line, &site.credential("/v1/report"), b"").0, 200);
    assert_eq!(site.raw("GET /healthz HTTP/1.1", "", b"").0, 200);
}

#[test]
fn an_answer_that_is_not_the_services_is_not_believed() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("folder");
    let munged = PrivateMunged::start(dir.path()).expect("munged");
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let url = format!("http://{}", listener.local_addr().expect("address"));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut some = [0; 4096];
            let _ = stream.read(&mut some);
            let body = r#"{"fence":[1,2,3]}"#;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
            let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
        }
    });
    let client = Client::new(&url, Some(munged.socket()), PATIENCE);
    let answer = client.post::<Beat, BeatReply>("/v1/beats", &beat("n1"));
    assert!(matches!(&answer, Err(Error::Invalid { text, .. }) if text.contains("no proof")), "{answer:?}");
}

#[test]
fn a_socket_of_somebody_else_is_not_believed() {
    if !is_root() {
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("folder");
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("open to all");
    let path = dir.path().join("n1.socket");
    let bound = path.clone();
    let listening = std::thread::spawn(move || {
        // SAFETY: the bare system call changes the ids of this thread only, and the thread ends after use.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, MALLORY, MALLORY, MALLORY) }, 0);
        std::os::unix::net::UnixListener::bind(bound).expect("bound")
    });
    let _listener = listening.join().expect("no panic");
    let answer = Client::on_socket(&path, PATIENCE).get::<NodeReading>("/v1/jobs/7/energy");
    let text = answer.expect_err("refused").to_string();
    assert!(text.contains(&format!("is served by user {MALLORY}, not by root")), "{text}");
}

#[test]
fn a_run_belongs_to_who_began_it_and_a_job_to_who_slurm_says() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    assert_eq!(site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("hers").upto, 1);
    let text = refused(site.deliver(MALLORY, "7.1", 2, vec![ended()]), 403);
    assert_eq!(text, "user 54322 may not write this run");
    let text = refused(site.deliver(MALLORY, "7.2", 1, vec![started(7)]), 403);
    assert_eq!(text, "job 7 is not of user 54322");
    let health = |uid| site.as_user(uid, |c| c.get::<RunHealth>("/v1/runs/c/7.1/health"));
    assert_eq!(health(ALICE).expect("hers").nodes.len(), 2);
    refused(health(MALLORY), 404);
    let run = &site.report(ALICE)[0];
    assert_eq!((run.user.as_str(), run.account.as_str()), ("u54321", "physics"), "as Slurm says, not as was sent");
    assert!(site.report(MALLORY).is_empty());
    assert_eq!(site.report(0).len(), 1);
    refused(site.as_user(MALLORY, |c| c.post::<Beat, BeatReply>("/v1/beats", &beat("n1"))), 403);
    let bad = site.as_user(ALICE, |c| c.get::<Vec<RunAccount>>("/v1/report?colour=red"));
    assert!(refused(bad, 400).contains("colour"));
}

#[test]
fn the_summary_is_in_slurm_before_the_end_is_acknowledged() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    assert_eq!(site.deliver(ALICE, "7.1", 2, vec![ended()]).expect("stored").upto, 2);
    let asked = site.asked();
    assert!(asked.contains(r#"update JobId=5_7 AdminComment={"joulepoint":1,"run":"7.1","#), "{asked}");
    assert_eq!(site.deliver(ALICE, "7.1", 1, vec![started(7), ended()]).expect("again").upto, 2);
}

#[test]
fn a_slow_slurmctld_keeps_no_records_waiting_and_the_end_for_a_moment_only() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    // As long as a command may take: whoever waited for it would be seen here.
    site.slow_squeue("*admin_comment*", 20);
    let number = 1;
    let (begun_s, ended_s, bytes) = (100.0, 101.5, 9);
    let committed =
        Event::Committed { number, begun_s, ended_s, bytes, written_bytes: None, joules: None, still_s: None };
    let begun = Instant::now();
    assert_eq!(site.deliver(ALICE, "7.1", 2, vec![committed]).expect("stored").upto, 2);
    assert_eq!(site.deliver(ALICE, "7.1", 3, vec![ended()]).expect("stored").upto, 3);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    until("the comment to be asked for", || site.asked().contains("admin_comment").then_some(()));
}

#[test]
fn a_run_begins_again_only_while_slurm_says_that_its_number_is_not_another_users() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    let ask = |site: &Site| {
        let former = vec![FormerNode { node: "n2".into(), of: Incarnation { job: 7, restart_count: 0 } }];
        let begin = BeginRequest { version: protocol::VERSION, former };
        site.as_user(ALICE, move |c| c.post::<_, BeginReply>("/v1/runs/c/7.1/begin", &begin))
    };
    ask(&site).expect("an answer");
    site.put("jobs", &job_line(7, ALICE, "JobState=UNHEARD_OF"));
    // What was heard of a job counts for a while.
    site.restart();
    refused(ask(&site), 503);
    site.put("jobs", &job_line(7, MALLORY, "JobState=RUNNING"));
    assert_eq!(refused(ask(&site), 403), "job 7 is another user's by now");
}

#[test]
fn a_plan_is_made_and_a_wrong_wish_is_refused() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let question = |name: &str, value: &str| {
        let setting = |value: &str| Setting { value: value.into(), source: Source::Option };
        let mut request = Request::default();
        request.settings.insert("ft-energy".into(), setting("energy"));
        request.settings.insert(name.into(), setting(value));
        PlanRequest {
            request,
            nodes: 4,
            cpus_per_node: 2,
            user: "root".into(),
            job_name: "heat".into(),
            ..PlanRequest::default()
        }
    };
    let ask = |q: PlanRequest| site.as_user(ALICE, move |c| c.post::<PlanRequest, Plan>("/v1/plan", &q));
    let plan = ask(question("ft-energy-io-bound", "5%")).expect("a plan");
    assert_eq!((plan.made_by.as_str(), plan.objective.as_str()), ("controller", "energy"));
    assert!(plan.interval_s > 0.0 && !plan.reasons.is_empty());
    assert!(refused(ask(question("ft-energy-io-bound", "lots")), 422).contains("'lots'"));
}

/// A site with a protected job, and beats of n2 until it has its witnesses; its epoch, and when the last beat was sent.
///
/// n2's slurmd is at the port `slurmd`, its service at `url`, and by Slurm `holders` have jobs there.
fn watched(slurmd: u16, url: &str, holders: &str) -> (Site, Nodes, u64, Instant) {
    let site = Site::start(slurmd);
    let nodes = site.nodes(&["n1", "n3", "n4"]);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    site.put("holders", holders);
    let (mut epoch, mut sent) = (0, Instant::now());
    until("n2 to have its witnesses", || {
        let beat = Beat { url: url.to_string(), epoch: Some(epoch), ..beat("n2") };
        sent = Instant::now();
        let reply: BeatReply = site.client().post("/v1/beats", &beat).expect("heard");
        let knows = reply.epoch == epoch && reply.witnesses.len() == 3;
        epoch = reply.epoch;
        (knows && reply.held.iter().any(|h| h.job == 7)).then_some(())
    });
    (site, nodes, epoch, sent)
}

/// The holder of n2, where it is alice's job alone.
fn ours() -> String {
    format!("7|{ALICE}|RUNNING|n[1-2]|\n")
}

#[test]
fn a_dead_node_is_set_down_its_run_told_and_what_comes_back_of_it_ended() {
    if !is_root() {
        return;
    }
    let silent = Silent::new();
    let (site, _nodes, epoch, sent) = watched(silent.address.port(), &format!("http://{}", silent.address), &ours());
    until("n2 to be set down", || {
        site.asked().contains("update NodeName=n2 State=DOWN Reason=joulepoint:").then_some(())
    });
    println!("set down {:.2} s after the last heartbeat, with detect_s = 0.5", sent.elapsed().as_secs_f64());
    let run = until("the failure", || site.report(ALICE).pop().filter(|r| r.total.failures == 1));
    assert_eq!((run.failures[0].kind.as_str(), run.failures[0].node.as_deref()), ("node", Some("n2")));
    let deaths: Vec<NodeFailure> = site.as_user(MALLORY, |c| c.get("/v1/failures")).expect("deaths, for everybody");
    assert_eq!(deaths.iter().map(|d| d.node.as_str()).collect::<Vec<_>>(), ["n2"]);
    let health =
        || site.as_user(ALICE, |c| c.get::<RunHealth>("/v1/runs/c/7.1/health")).expect("health").nodes.remove(1);
    assert!(health().doomed, "{:?}", health());
    until("its lease to be over", || health().dead.then_some(()));
    assert!(sent.elapsed() >= Duration::from_secs(3), "a lease has 3 s");
    let reply = site.beat_as("n2", false);
    assert_eq!(reply.ended, [Incarnation { job: 7, restart_count: 0 }], "what is left of the job there must end");
    assert!(reply.epoch > epoch && reply.held.is_empty());
    assert_eq!(site.asked().matches("State=DOWN").count(), 1, "once");
}

#[test]
fn a_node_with_a_job_that_is_not_ours_is_left_to_slurm() {
    if !is_root() {
        return;
    }
    let silent = Silent::new();
    let holders = format!("{}8|{MALLORY}|RUNNING|n2|\n", ours());
    let (site, _nodes, ..) = watched(silent.address.port(), &format!("http://{}", silent.address), &holders);
    until("its fate", || site.log().contains("left to Slurm").then_some(()));
    assert!(site.log().contains("job 8 on it is not known to be protected"), "{}", site.log());
    assert!(!site.asked().contains("State=DOWN"));
    site.put("holders", &ours());
    until("n2 to be set down once it is ours alone", || site.asked().contains("State=DOWN").then_some(()));
}

#[test]
fn a_node_whose_slurmd_answers_is_left_alone() {
    if !is_root() {
        return;
    }
    let slurmd = TcpListener::bind("127.0.0.1:0").expect("bound");
    let (site, _nodes, ..) = watched(slurmd.local_addr().expect("address").port(), "http://127.0.0.1:1", &ours());
    // The looks at the silent node are the events; those of the controller and of three witnesses, twice.
    for _ in 0..8 {
        slurmd.accept().expect("somebody looks");
    }
    assert!(!site.asked().contains("State=DOWN"));
    let begin = BeginRequest {
        version: protocol::VERSION,
        former: vec![FormerNode { node: "n2".into(), of: Incarnation { job: 7, restart_count: 0 } }],
    };
    let reply: BeginReply = site.as_user(ALICE, |c| c.post("/v1/runs/c/7.1/begin", &begin)).expect("an answer");
    assert!(matches!(&reply.waits[..], [WaitsFor { because: Unsure::Reached { .. }, .. }]), "{reply:?}");
    let others = site.as_user(MALLORY, |c| c.post::<_, BeginReply>("/v1/runs/c/7.1/begin", &begin));
    refused(others, 404);
}

#[test]
fn a_node_service_beats_meters_and_ends_when_told() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let conf = site.dir.path().join("joulepoint.toml");
    let mut node = daemon(&conf, &["--role=node", "--node", "n1"]);
    until("heartbeats", || {
        let (_, text) = site.raw("GET /metrics HTTP/1.1", "", b"");
        let beats = text.lines().find_map(|l| l.strip_prefix("joulepoint_beats_total "))?.parse::<u64>().ok()?;
        (beats >= 3 && text.ends_with("# EOF\n")).then_some(())
    });
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    let health: RunHealth = site.as_user(ALICE, |c| c.get("/v1/runs/c/7.1/health")).expect("health");
    let url = health.nodes.iter().find(|h| h.node == "n1").map(|h| h.url.clone()).expect("n1");
    let limit = PATIENCE;
    let socket = site.dir.path().join("run/n1.socket");
    for client in [Client::of_node(&url, "n1", Some(site.munged.socket()), limit), Client::on_socket(&socket, limit)] {
        let reading = site.as_user(ALICE, |_| client.get::<NodeReading>("/v1/jobs/7/energy"));
        assert_eq!(reading.expect("an answer").node, "n1");
    }
    let to_another = Client::of_node(&url, "n2", Some(site.munged.socket()), limit);
    let unproven = to_another.get::<NodeReading>("/v1/jobs/7/energy");
    assert!(matches!(unproven, Err(Error::Unproven { status: 401, .. })), "{unproven:?}");
    let health: Health = Client::on_socket(&socket, limit).get("/healthz").expect("health");
    assert!(health.ok, "{health:?}");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(node.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("told");
    let status = until("the node service's end", || node.try_wait().expect("waited"));
    assert!(status.success(), "{status}");
    assert!(!socket.exists(), "it takes its socket with it");
}

#[test]
fn what_was_acknowledged_outlives_a_kill() {
    if !is_root() {
        return;
    }
    let mut site = Site::start(1);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    site.child.kill().expect("killed");
    site.child.wait().expect("waited");
    let gone = site.deliver(ALICE, "7.1", 2, vec![ended()]);
    assert!(matches!(gone, Err(Error::Unreachable { .. })), "{gone:?}");
    site.child = daemon(&site.dir.path().join("joulepoint.toml"), &["--role=controller"]);
    until("the controller", || (site.raw("GET /healthz HTTP/1.1", "", b"").0 == 200).then_some(()));
    assert_eq!(site.deliver(ALICE, "7.1", 1, vec![started(7), ended()]).expect("both again").upto, 2);
    assert_eq!(site.report(ALICE)[0].state, "completed");
}

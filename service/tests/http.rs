//! The daemon as its callers meet it: real HTTP, a munged of its own, and a Slurm that is a script.
//!
//! It needs root, to speak as different users; without it the tests say so and pass.

use protocol::{Batch, Beat, BeatReply, Delivered, Event, JobReading, NodeReading, Plan, PlanRequest, Record};
use protocol::{Request, RunAccount, RunKey, Setting, Source};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::private::PrivateMunged;
use wire::{Client, Error};

const ALICE: u32 = 54_321;
const MALLORY: u32 = 54_322;
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A controller with everything it needs, gone with this value.
struct Site {
    child: Child,
    munged: PrivateMunged,
    dir: tempfile::TempDir,
    url: String,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Looks until there is an answer.
#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited 20 s for {what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").to_string()
}

fn daemon(conf: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepointd"));
    let log = std::fs::File::create(conf.with_extension(format!("{}.log", args.len()))).expect("a log");
    command.args(args).arg("--conf").arg(conf).env_remove("JOULEPOINT_CONF").stderr(log).stdin(Stdio::null());
    command.spawn().expect("the daemon starts")
}

/// A `scontrol` that notes what it is asked and answers from files.
fn slurm_script(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let d = dir.display();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {d}/asked\ncase \"$*\" in\n\
         'show job -o') cat {d}/jobs ;;\n\
         'show job -o '*) grep \"^JobId=$4 \" {d}/jobs || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }} ;;\n\
         'show node -o') cat {d}/nodes ;;\n\
         'show config') echo 'SlurmdPort = 6818' ;;\nesac\n"
    );
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).expect("folder");
    for name in ["scontrol", "sacct"] {
        std::fs::write(bin.join(name), &script).expect("script");
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).expect("executable");
    }
    bin
}

fn job_line(job: u32, uid: u32, rest: &str) -> String {
    format!(
        "JobId={job} JobName=heat UserId=u{uid}({uid}) GroupId=g(1) Account=physics {rest} Requeue=1 Restarts=0 \
         BatchFlag=1 ExitCode=0:0 Partition=all NodeList=n[1-2] BatchHost=n1 NumCPUs=2\n"
    )
}

impl Site {
    /// Job 7 of alice runs on n1 and n2; n2's slurmd is at `slurmd_port`.
    fn start(slurmd_port: u16) -> Site {
        let dir = tempfile::tempdir().expect("folder");
        std::fs::create_dir(dir.path().join("munge")).expect("folder");
        let munged = PrivateMunged::start(&dir.path().join("munge")).expect("munged");
        let address = free_address();
        let bin = slurm_script(dir.path());
        let node = |n: &str| format!("NodeName={n} CPUTot=2 NodeAddr=127.0.0.1 Port={slurmd_port} State=MIXED\n");
        std::fs::write(dir.path().join("jobs"), job_line(7, ALICE, "JobState=RUNNING Reason=None")).expect("jobs");
        std::fs::write(dir.path().join("nodes"), node("n1") + &node("n2")).expect("nodes");
        std::fs::write(dir.path().join("asked"), "").expect("log");
        let conf = dir.path().join("joulepoint.toml");
        let text = format!(
            "munge_socket = {:?}\nslurm_bin = {bin:?}\n[controller]\nurl = \"http://{address}\"\nlisten = \"{address}\"\n\
             store = {:?}\ndetect_s = 0.5\n[node]\nlisten = \"127.0.0.1:0\"\nbeat_s = 0.1\n[energy]\nsources = [\"model\"]\n",
            munged.socket(),
            dir.path().join("store.sqlite"),
        );
        std::fs::write(&conf, text).expect("conf");
        let child = daemon(&conf, &["--role=controller"]);
        let site = Site { child, munged, dir, url: format!("http://{address}") };
        until("the controller", || (site.raw("GET /healthz HTTP/1.1", "", b"").0 == 200).then_some(()));
        site
    }

    fn client(&self) -> Client {
        Client::new(&self.url, Some(self.munged.socket()), Duration::from_secs(20))
    }

    /// What a user with this uid gets.
    fn as_user<T: Send>(&self, uid: u32, ask: impl FnOnce(Client) -> T + Send) -> T {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                // SAFETY: the bare system call changes the ids of this thread only, and the thread ends after use.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
                assert_eq!(changed, 0, "setresuid");
                ask(self.client())
            });
            asking.join().expect("no panic")
        })
    }

    /// A request by hand: status and body.
    fn raw(&self, line: &str, authorization: &str, body: &[u8]) -> (u16, String) {
        let Ok(mut stream) = TcpStream::connect(self.url.trim_start_matches("http://")) else {
            return (0, String::new());
        };
        let header =
            if authorization.is_empty() { String::new() } else { format!("Authorization: {authorization}\r\n") };
        let head = format!("{line}\r\nHost: x\r\nConnection: close\r\n{header}Content-Length: {}\r\n\r\n", body.len());
        let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        assert!(sent.is_ok() || read.is_ok() || !text.is_empty(), "neither sent nor answered");
        let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }

    /// A credential of root for a `GET` of this path.
    fn credential(&self, path: &str) -> String {
        let payload = format!("joulepoint/1 GET {path} {EMPTY_SHA256}");
        format!("MUNGE {}", self.munged.munge().encode(payload.as_bytes()).expect("credential"))
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("asked")).expect("log")
    }

    fn deliver(&self, uid: u32, run: &str, first: u64, events: Vec<Event>) -> Result<Delivered, Error> {
        let records =
            (first..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event }).collect();
        let key = RunKey { cluster: "c".into(), run: run.into() };
        self.as_user(uid, |c| c.post("/v1/records", &Batch { version: protocol::VERSION, key, records }))
    }

    fn report(&self, uid: u32) -> Vec<RunAccount> {
        self.as_user(uid, |c| c.get("/v1/report")).expect("a report")
    }

    fn beat(&self, node: &str) -> BeatReply {
        self.beat_as(node, true)
    }

    fn beat_as(&self, node: &str, slurmd_up: bool) -> BeatReply {
        self.client().post("/v1/beats", &Beat { slurmd_up, ..beat(node) }).expect("heard")
    }
}

fn beat(node: &str) -> Beat {
    let reading = JobReading { job: 7, joules: 5.0, cpu_s: 1.0, source: "model".into(), since_s: 1.0 };
    Beat {
        version: protocol::VERSION,
        node: node.into(),
        at_s: 100.0,
        started_s: 1.0,
        url: String::new(),
        slurmd_up: true,
        node_joules: 5.0,
        source: "model".into(),
        jobs: vec![reading],
    }
}

fn started(job: u32) -> Event {
    Event::Started {
        job,
        restart_count: 0,
        user: "root".into(),
        account: "forged".into(),
        partition: "all".into(),
        job_name: "heat".into(),
        nodes: vec!["n1".into(), "n2".into()],
        resumed_from: None,
        dir: "/tmp".into(),
    }
}

fn ended() -> Event {
    Event::Ended { state: "completed".into(), exit_code: 0 }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, wanted: u16) -> String {
    match answer.expect_err("it must be refused") {
        Error::Refused { status, text } if status == wanted => text,
        other => panic!("wanted {wanted}, got {other}"),
    }
}

#[test]
fn a_request_without_a_fresh_credential_of_its_own_is_refused() {
    if !is_root() {
        return;
    }
    let site = Site::start(1);
    let line = "GET /v1/report HTTP/1.1";
    assert_eq!(site.raw(line, "", b"").0, 401);
    assert_eq!(site.raw(line, "MUNGE rubbish", b"").0, 401);
    let credential = site.credential("/v1/report");
    assert_eq!(site.raw(line, &credential, b"").0, 200);
    let (status, text) = site.raw(line, &credential, b"");
    assert_eq!((status, text.as_str()), (401, "the credential is refused: the credential was used before"));
    let other = site.credential("/v1/report?user=alice");
    assert_eq!(site.raw(line, &other, b"").0, 401);
    let too_much = vec![b'x'; 5 << 20];
    assert!(matches!(site.raw("POST /v1/records HTTP/1.1", "MUNGE x", &too_much).0, 413 | 0));
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
    let client = Client::new(&url, Some(munged.socket()), Duration::from_secs(5));
    let answer = client.post::<Beat, BeatReply>("/v1/beats", &beat("n1"));
    assert!(matches!(&answer, Err(Error::Invalid { text, .. }) if text.contains("no proof")), "{answer:?}");
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
    let health = |uid| site.as_user(uid, |c| c.get::<Vec<protocol::NodeHealth>>("/v1/runs/c/7.1/health"));
    assert_eq!(health(ALICE).expect("hers").len(), 2);
    refused(health(MALLORY), 403);
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
    assert!(asked.contains(r#"update JobId=7 AdminComment={"joulepoint":1,"run":"7.1","#), "{asked}");
    assert_eq!(site.deliver(ALICE, "7.1", 1, vec![started(7), ended()]).expect("again").upto, 2);
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

#[test]
fn a_dead_node_is_set_down_its_run_told_and_its_orphans_fenced() {
    if !is_root() {
        return;
    }
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
    let site = Site::start(closed);
    site.deliver(ALICE, "7.1", 1, vec![started(7)]).expect("stored");
    let begun = Instant::now();
    assert!(site.beat("n2").fence.is_empty());
    until("n2 to be set down", || {
        site.asked().contains("update NodeName=n2 State=DOWN Reason=joulepoint: no slurmd").then_some(())
    });
    println!("set down {:.2} s after the last heartbeat, with detect_s = 0.5", begun.elapsed().as_secs_f64());
    let run = until("the failure", || site.report(ALICE).pop().filter(|r| r.total.failures == 1));
    assert_eq!((run.failures[0].kind.as_str(), run.failures[0].node.as_deref()), ("node", Some("n2")));
    assert_eq!(site.beat_as("n2", false).fence, [7], "what is left of the job there must end");
    assert_eq!(site.asked().matches("State=DOWN").count(), 1, "once");
}

#[test]
fn a_node_whose_slurmd_answers_is_left_alone() {
    if !is_root() {
        return;
    }
    let slurmd = TcpListener::bind("127.0.0.1:0").expect("bound");
    slurmd.set_nonblocking(false).expect("blocking");
    let site = Site::start(slurmd.local_addr().expect("address").port());
    site.beat("n2");
    // The look at the silent node is the event; two of them leave time for a wrong act.
    for _ in 0..2 {
        slurmd.accept().expect("the controller looks");
    }
    assert!(!site.asked().contains("State=DOWN"));
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
    let health: Vec<protocol::NodeHealth> = site.as_user(ALICE, |c| c.get("/v1/runs/c/7.1/health")).expect("health");
    let url = health.iter().find(|h| h.node == "n1").map(|h| h.url.clone()).expect("n1");
    let reading = site.as_user(ALICE, |_| {
        Client::new(&url, Some(site.munged.socket()), Duration::from_secs(5)).get::<NodeReading>("/v1/jobs/7/energy")
    });
    assert_eq!(reading.expect("an answer").node, "n1");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(node.id()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("told");
    let status = until("the node service's end", || node.try_wait().expect("waited"));
    assert!(status.success(), "{status}");
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

//! A controller and a node service with everything they need: a munged of their own, a Slurm that is a script.

use protocol::{Batch, Beat, BeatReply, Delivered, Event, JobReading, Record, RunAccount, RunKey};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::private::PrivateMunged;
use wire::{Client, Error};

pub const ALICE: u32 = 54_321;
pub const MALLORY: u32 = 54_322;
/// For anything that should happen, on however busy a machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Slurm's own user, of this Slurm.
pub const SLURM_USER: u32 = 54_323;

/// A controller with everything it needs, gone with this value.
pub struct Site {
    pub child: Child,
    pub munged: PrivateMunged,
    pub dir: tempfile::TempDir,
    pub url: String,
}

/// Node services.
pub struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An address whose host is silent: as many wait there as it will take, so that it drops what comes.
pub struct Silent {
    pub address: std::net::SocketAddr,
    _kept: (std::net::TcpListener, Vec<TcpStream>),
}

impl Silent {
    pub fn new() -> Silent {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).expect("0")).expect("listens");
        let address = listener.local_addr().expect("an address");
        let mut waiting = Vec::new();
        while let Ok(one) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
            waiting.push(one);
        }
        Silent { address, _kept: (listener, waiting) }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// Looks until there is an answer.
#[track_caller]
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(30));
    }
}

pub fn daemon(conf: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_joulepointd"));
    let log = conf.with_extension(format!("{}.log", args.len()));
    let log = std::fs::OpenOptions::new().append(true).create(true).open(log).expect("a log");
    command.args(args).arg("--conf").arg(conf).env_remove("JOULEPOINT_CONF").stderr(log).stdin(Stdio::null());
    command.spawn().expect("the daemon starts")
}

/// A `scontrol` that notes what it is asked and answers from files.
fn slurm_script(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let d = dir.display();
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {d}/asked\ncase \"$*\" in\n\
         'show node -o') cat {d}/nodes ;;\n\
         'show node -o '*) grep \"^NodeName=$4 \" {d}/nodes || {{ echo \"Node $4 not found\" >&2; exit 1; }} ;;\n\
         'show config') echo 'SlurmdPort = 6818'; echo 'SlurmUser = slurm({SLURM_USER})' ;;\n\
         *'format=User,AdminLevel') echo 'root|Administrator'; echo 'daemon|Operator'; echo 'games|None' ;;\nesac\n"
    );
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).expect("folder");
    let squeue = format!(
        "#!/bin/sh\necho \"squeue $@\" >> {d}/asked\ncase \"$*\" in *--nodelist*) cat {d}/holders 2>/dev/null; exit 0 ;; esac\n{}",
        slurm::example::squeue(&dir.join("jobs"))
    );
    for (name, script) in [("scontrol", &script), ("sacct", &script), ("sacctmgr", &script), ("squeue", &squeue)] {
        std::fs::write(bin.join(name), script).expect("script");
        std::fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).expect("executable");
    }
    bin
}

pub fn job_line(job: u32, uid: u32, rest: &str) -> String {
    format!(
        "JobId={job} ArrayJobId=5 ArrayTaskId={job} JobName=heat UserId=u{uid}({uid}) GroupId=g(1) Account=physics {rest} Restarts=0 \
         BatchFlag=1 ExitCode=0:0 Partition=all NodeList=n[1-2] BatchHost=n1 NumCPUs=2\n"
    )
}

impl Site {
    /// Job 7 of alice runs on n1 and n2; n2's slurmd is at `slurmd_port`.
    pub fn start(slurmd_port: u16) -> Site {
        let dir = tempfile::tempdir().expect("folder");
        std::fs::create_dir(dir.path().join("munge")).expect("folder");
        let munged = PrivateMunged::start(&dir.path().join("munge")).expect("munged");
        let address = testbed::own_address();
        let bin = slurm_script(dir.path());
        let node = |n: &str| format!("NodeName={n} CPUTot=2 NodeAddr=127.0.0.1 Port={slurmd_port} State=MIXED\n");
        std::fs::write(dir.path().join("jobs"), job_line(7, ALICE, "JobState=RUNNING Reason=None Requeue=1"))
            .expect("jobs");
        std::fs::write(dir.path().join("nodes"), node("n1") + &node("n2")).expect("nodes");
        std::fs::write(dir.path().join("asked"), "").expect("log");
        let conf = dir.path().join("joulepoint.toml");
        let text = format!(
            "munge_socket = {:?}\nslurm_bin = {bin:?}\n[controller]\nurl = \"http://{address}\"\nlisten = \"{address}\"\n\
             store = {:?}\ndetect_s = 0.5\n[node]\nlisten = \"127.0.0.1:0\"\nsocket = {:?}\nspool = {:?}\nbeat_s = 0.1\n[watch]\nfreeze_s = 1.0\nlease_s = 3.0\nlease_file = {:?}\n[energy]\nsources = [\"model\"]\n",
            munged.socket(),
            dir.path().join("store.sqlite"),
            dir.path().join("run/{node}.socket"),
            dir.path().join("spool"),
            dir.path().join("run/{node}.lease"),
        );
        std::fs::write(&conf, text).expect("conf");
        let child = daemon(&conf, &["--role=controller"]);
        let site = Site { child, munged, dir, url: format!("http://{address}") };
        site.wait_until_well();
        site
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url, Some(self.munged.socket()), PATIENCE)
    }

    /// What a user with this uid gets.
    pub fn as_user<T: Send>(&self, uid: u32, ask: impl FnOnce(Client) -> T + Send) -> T {
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
    pub fn raw(&self, line: &str, authorization: &str, body: &[u8]) -> (u16, String) {
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
    pub fn credential(&self, path: &str) -> String {
        self.credential_of(0, wire::CONTROLLER, "GET", path, b"")
    }

    /// A credential of a user for one request.
    pub fn credential_of(&self, uid: u32, audience: &str, method: &str, path: &str, body: &[u8]) -> String {
        let digest: String = Sha256::digest(body).iter().map(|b| format!("{b:02x}")).collect();
        self.munge(uid, &format!("joulepoint/1 {audience} {method} {path} {digest}"))
    }

    /// A credential of a user over anything.
    pub fn munge(&self, uid: u32, payload: &str) -> String {
        let credential = self.as_user(uid, |_| self.munged.munge().encode(payload.as_bytes()));
        format!("MUNGE {}", credential.expect("credential"))
    }

    /// Bytes as they stand, and what comes back until the service closes.
    pub fn bytes(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("http://")).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        // A service that has heard enough answers and closes while more is sent.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The whole lines of the controller's log: it may be writing one.
    pub fn log(&self) -> String {
        let mut log = std::fs::read_to_string(self.dir.path().join("joulepoint.1.log")).expect("a log");
        log.truncate(log.rfind('\n').map_or(0, |end| end + 1));
        log
    }

    /// Kills the controller and starts it again.
    pub fn restart(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
        self.child = daemon(&self.dir.path().join("joulepoint.toml"), &["--role=controller"]);
        self.wait_until_well();
    }

    /// Puts what Slurm's commands say in place whole: one of them may just be reading it.
    pub fn put(&self, name: &str, text: &str) {
        let new = self.dir.path().join("new");
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, self.dir.path().join(name))).expect("written");
    }

    /// Lets `squeue` take its time for what matches a pattern of the shell.
    pub fn slow_squeue(&self, pattern: &str, seconds: u32) {
        use std::os::unix::fs::PermissionsExt;
        let (place, new) = (self.dir.path().join("bin/squeue"), self.dir.path().join("bin/new"));
        let script = std::fs::read_to_string(&place).expect("a script");
        let d = self.dir.path().display();
        let case = format!("case \"$*\" in {pattern}) echo \"squeue $@\" >> {d}/asked; exec sleep {seconds} ;; esac");
        let slow = script.replacen('\n', &format!("\n{case}\n"), 1);
        std::fs::write(&new, slow).expect("written");
        std::fs::set_permissions(&new, PermissionsExt::from_mode(0o755)).expect("executable");
        std::fs::rename(&new, &place).expect("in place");
    }

    /// Services of other nodes, which may witness; gone with the value.
    pub fn nodes(&self, names: &[&str]) -> Nodes {
        let conf = self.dir.path().join("joulepoint.toml");
        Nodes(names.iter().map(|name| daemon(&conf, &["--role=node", "--node", name])).collect())
    }

    pub fn wait_until_well(&self) {
        until("the controller", || (self.raw("GET /healthz HTTP/1.1", "", b"").0 == 200).then_some(()));
    }

    pub fn asked(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("asked")).expect("log")
    }

    pub fn deliver(&self, uid: u32, run: &str, first: u64, events: Vec<Event>) -> Result<Delivered, Error> {
        let records =
            (first..).zip(events).map(|(seq, event)| Record { seq, at_s: 100.0 + seq as f64, event }).collect();
        let key = RunKey { cluster: "c".into(), run: run.into() };
        self.as_user(uid, |c| c.post("/v1/records", &Batch { version: protocol::VERSION, key, holder: None, records }))
    }

    pub fn report(&self, uid: u32) -> Vec<RunAccount> {
        self.as_user(uid, |c| c.get("/v1/report")).expect("a report")
    }

    pub fn beat_as(&self, node: &str, slurmd_up: bool) -> BeatReply {
        self.client().post("/v1/beats", &Beat { slurmd_up, ..beat(node) }).expect("heard")
    }
}

pub fn beat(node: &str) -> Beat {
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
        fingerprint: None,
        boot_id: "boot".into(),
        epoch: Some(0),
        engines: None,
        pause_s: None,
        up_s: None,
    }
}

pub fn started(job: u32) -> Event {
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

pub fn ended() -> Event {
    Event::Ended { state: "completed".into(), exit_code: 0 }
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, wanted: u16) -> String {
    match answer.expect_err("it must be refused") {
        Error::Refused { status, text } if status == wanted => text,
        other => panic!("wanted {wanted}, got {other}"),
    }
}

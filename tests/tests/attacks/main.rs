//! What users and strangers may try against the services, on a real Slurm: others are served meanwhile, what is theirs stays as it
//! is, and the controller stays small.
//!
//! One cluster serves all tests, one after the other. Attackers are ordinary users on the login host and on nodes.

mod books;
mod crowds;
mod forms;
mod nodes;

use anyhow::{Context, Result, ensure};
use protocol::{Batch, Event, Record, RunKey};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use suite::{Site, Wanted};
use testbed::{ALICE, BOB, End};
use wire::{Client, Error, Munge};

const MINUTES: Duration = Duration::from_secs(180);

/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the controller may take at its peak, bytes.
const MOST_MEMORY: u64 = 300 << 20;

/// In what time nine of ten answers to others come during an attack, and all of them.
const SOON: Duration = Duration::from_secs(1);
const AT_LAST: Duration = Duration::from_secs(5);

const NODES: u32 = 4;

/// Users of whom neither this host nor Slurm has a name.
const MALLORY: u32 = 61_001;

/// The site, with what the tests attack.
struct Field {
    site: Site,
    /// A protected job of bob's that runs, and its run's name.
    bobs: (u32, String),
    /// One of alice's.
    alices: (u32, String),
    /// A job of bob's that has ended, and that slurmctld forgets.
    ended: u32,
}

impl Deref for Field {
    type Target = Site;
    fn deref(&self) -> &Site {
        &self.site
    }
}

impl DerefMut for Field {
    fn deref_mut(&mut self) -> &mut Site {
        &mut self.site
    }
}

fn field() -> MutexGuard<'static, Field> {
    static FIELD: OnceLock<Mutex<Field>> = OnceLock::new();
    let start = || Mutex::new(prepared().expect("the site starts"));
    FIELD.get_or_init(start).lock().unwrap_or_else(PoisonError::into_inner)
}

fn prepared() -> Result<Field> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-attacks-{}", std::process::id()));
    let toml = "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n\
                [limits]\nopen_runs = 100\nstored_bytes = 20000000\n";
    let wanted = Wanted {
        nodes: NODES,
        toml: toml.into(),
        node_toml: "spool_bytes = 4000000".into(),
        slurm_conf: "MinJobAge=2\n".into(),
        ..Wanted::default()
    };
    let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}"))?;
    let ended = site.submit(BOB, &site.folder(BOB, "ended")?, &["-n1"], "true")?;
    let job = |user: &str| site.submit(user, &site.folder(user, "runs")?, &PROTECTED, "sleep 3600");
    let (bobs, alices) = (job(BOB)?, job(ALICE)?);
    let run = |job: u32| {
        site.wait_report(job, "its run", MINUTES, |run| {
            Some(run["run"].as_str()?.to_string()).filter(|_| verified(run))
        })
    };
    let (bobs, alices) = ((bobs, run(bobs)?), (alices, run(alices)?));
    site.wait_state(ended, &["COMPLETED"], MINUTES)?;
    Ok(Field { site, bobs, alices, ended })
}

/// Options of a protected job.
const PROTECTED: [&str; 4] = ["-n1", "--ft-energy=energy", "--ft-energy-signal=USR1", "--ft-energy-done=state"];

fn verified(run: &Value) -> bool {
    run["verified"].as_bool().unwrap_or(true)
}

/// Runs an attack; meanwhile bob's wrapper asks after its run, and at the end the nodes are heard, nothing of them was set down,
/// and the controller has stayed small.
fn attack<T>(name: &str, attack: impl FnOnce(&Field) -> Result<T>) -> Result<T> {
    let field = field();
    let over = AtomicBool::new(false);
    let path = format!("/v1/runs/{}/{}/health", field.cluster.name, field.bobs.1);
    let (done, answers) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| as_user(uid(BOB), || served(&field.controller(), &path, &over)));
        let done = {
            let _over = Over(&over);
            attack(&field)
        };
        (done, asking.join().expect("no panic"))
    });
    let done = done?;
    let mut answers = answers.with_context(|| format!("{name}: bob was not served"))?;
    answers.sort_unstable();
    let (soon, last) = (answers[(answers.len() * 9).div_ceil(10) - 1], answers[answers.len() - 1]);
    println!(
        "  {name}: {} answers, nine of ten within {soon:?}, all within {last:?}, {} MB",
        answers.len(),
        field.peak()? >> 20
    );
    ensure!(soon < SOON && last < AT_LAST, "{name}: bob was answered late: {answers:?}");
    field.unharmed(name)?;
    Ok(done)
}

/// Tells at its end that something is over, be it by a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks until told; how long each answer took.
fn served(client: &Client, path: &str, over: &AtomicBool) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    while !over.load(Ordering::Relaxed) || took.len() < 10 {
        let begun = Instant::now();
        client.get::<Value>(path)?;
        took.push(begun.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(took)
}

/// What a thread of this user does; the ids are those of the thread alone.
fn as_user<T: Send>(uid: u32, f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            // SAFETY: the bare system calls change the ids of this thread only, and the thread ends after use.
            let changed = unsafe {
                libc::syscall(libc::SYS_setgroups, 0, std::ptr::null::<libc::gid_t>())
                    | libc::syscall(libc::SYS_setresgid, uid, uid, uid)
                    | libc::syscall(libc::SYS_setresuid, uid, uid, uid)
            };
            assert_eq!(changed, 0, "the ids of user {uid}");
            f()
        });
        acting.join().expect("no panic")
    })
}

fn uid(user: &str) -> u32 {
    nix::unistd::User::from_name(user).expect("users").expect("the user").uid.as_raw()
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs_f64()
}

/// What a raw answer says: its status, 0 for none, and its body.
type Answer = (u16, String);

impl Field {
    fn socket(&self) -> PathBuf {
        self.cluster.munge_socket.clone()
    }

    fn address(&self) -> String {
        format!("{}:6820", self.cluster.address(&End::Service))
    }

    /// A client of whoever calls it.
    fn controller(&self) -> Client {
        Client::new(&format!("http://{}", self.address()), Some(self.socket()), PATIENCE)
    }

    fn node(&self, number: u32) -> Client {
        let url = format!("http://{}:6821", self.cluster.address(&End::Node(number)));
        Client::of_node(&url, &format!("n{number}"), Some(self.socket()), PATIENCE)
    }

    /// A credential of whoever calls it for one request.
    fn credential(&self, audience: &str, method: &str, path: &str, body: &[u8]) -> String {
        let digest = Sha256::digest(body).iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let payload = format!("joulepoint/1 {audience} {method} {path} {digest}");
        format!("MUNGE {}", Munge::new(Some(self.socket())).encode(payload.as_bytes()).expect("a credential"))
    }

    /// A request by hand, well signed by whoever calls it, with more headers.
    fn signed(&self, method: &str, path: &str, body: &[u8], headers: &str) -> Answer {
        let credential = self.credential("controller", method, path, body);
        self.raw(&request(method, path, &format!("Authorization: {credential}\r\n{headers}"), body))
    }

    /// Bytes as they stand, and the first answer.
    fn raw(&self, bytes: &[u8]) -> Answer {
        let text = self.conversation(bytes);
        let status = text.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
        (status, text.split_once("\r\n\r\n").map_or(String::new(), |(_, body)| body.to_string()))
    }

    /// Bytes as they stand, and all that comes back until the service closes.
    fn conversation(&self, bytes: &[u8]) -> String {
        let Ok(mut stream) = TcpStream::connect(self.address()) else { return String::new() };
        let _ = stream.set_read_timeout(Some(PATIENCE));
        // A service that has heard enough answers and closes while more is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn key(&self, run: &str) -> RunKey {
        RunKey { cluster: self.cluster.name.clone(), run: run.to_string() }
    }

    /// Records of whoever calls it, from number 1 on.
    fn deliver(&self, run: &str, events: Vec<Event>) -> Result<Value, Error> {
        self.controller().post("/v1/records", &self.batch(run, 1, events))
    }

    fn batch(&self, run: &str, first: u64, events: Vec<Event>) -> Batch {
        let records = (first..).zip(events).map(|(seq, event)| Record { seq, at_s: now_s(), event }).collect();
        Batch { version: protocol::VERSION, key: self.key(run), holder: None, records }
    }

    /// The most memory that the controller has held so far, bytes.
    fn peak(&self) -> Result<u64> {
        let pid = self.controller_pid().context("the controller runs")?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        let kib =
            status.lines().find_map(|l| l.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        Ok(kib.context("VmHWM")? << 10)
    }

    /// Nobody but the attacker has felt anything.
    fn unharmed(&self, name: &str) -> Result<()> {
        let peak = self.peak()?;
        ensure!(peak < MOST_MEMORY, "{name}: the controller took {} MB", peak >> 20);
        let metrics = self.metrics()?;
        let nodes = metrics.lines().find_map(|l| l.strip_prefix("joulepoint_nodes "));
        ensure!(nodes == Some(&NODES.to_string()), "{name}: of {NODES} nodes {nodes:?} are heard");
        let log = self.log()?;
        ensure!(!log.contains("act=\"node_down\"") && !log.contains("panicked"), "{name}: see controller.log");
        ensure!(self.state(self.bobs.0)? == "RUNNING", "{name}: bob's job no longer runs");
        let run = self.report(self.bobs.0)?.context("bob's run")?;
        ensure!(run["state"] == "running", "{name}: bob's run is {}", run["state"]);
        Ok(())
    }

    fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.conf.with_file_name("controller.log"))?)
    }

    /// How often slurmctld was asked for one job since it began.
    fn questions(&self) -> Result<u64> {
        let said = self.cluster.output(&mut self.cluster.command("sdiag"))?;
        let of = |line: &str| {
            let (_, counts) = line.split_once("REQUEST_JOB_INFO_SINGLE")?;
            counts.split_once("count:")?.1.split_whitespace().next()?.parse().ok()
        };
        Ok(said.lines().find_map(of).unwrap_or(0))
    }
}

/// A request in bytes, its length told unless the headers do.
fn request(method: &str, path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let is_told = headers.contains("Content-Length") || headers.contains("Transfer-Encoding");
    let length = if is_told { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}{length}\r\n");
    [head.as_bytes(), body].concat()
}

fn started(job: u32, nodes: Vec<String>) -> Event {
    Event::Started {
        job,
        restart_count: 0,
        user: "root".into(),
        account: "physics".into(),
        partition: "all".into(),
        job_name: "heat".into(),
        nodes,
        resumed_from: None,
        dir: "/etc/shadow".into(),
    }
}

fn ended() -> Event {
    Event::Ended { state: "completed".into(), exit_code: 0 }
}

/// The service said no, itself, with one of these numbers; what it said.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, wanted: &[u16]) -> String {
    match answer {
        Err(Error::Refused { status, text }) if wanted.contains(&status) => text,
        other => panic!("{wanted:?} was to come: {other:?}"),
    }
}

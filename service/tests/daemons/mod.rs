//! Real daemons of a site, over the real wire with a munged of their own, that can be killed and started again.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use protocol::{Batch, Delivered, Event, Record, RunKey};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use store::{Store, Value};
use wire::private::PrivateMunged;
use wire::{Client, Error};

/// For anything that should happen, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A site without Slurm: its runs are outside of it.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub store: PathBuf,
    munged: PrivateMunged,
    controller: String,
    standby: String,
    node: String,
    /// Variables of the daemons.
    pub environment: Vec<(String, String)>,
}

/// A daemon that ends with this value.
pub struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Daemon {
    /// SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id() as i32), signal).expect("a signal");
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(_)))
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
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Site {
    /// A site with its store at a place; in its own folder if none is named.
    pub fn new(store: Option<PathBuf>) -> Site {
        Site::with(store, false)
    }

    /// A site on a MariaDB whose controller has a standby.
    pub fn of_two(store: PathBuf) -> Site {
        Site::with(Some(store), true)
    }

    fn with(store: Option<PathBuf>, has_standby: bool) -> Site {
        let dir = tempfile::tempdir().expect("folder");
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir(path("munge")).expect("folder");
        let munged = PrivateMunged::start(&path("munge")).expect("munged");
        let [controller, standby, node] = [(); 3].map(|()| testbed::own_address().to_string());
        let places = if has_standby { vec![&controller, &standby] } else { vec![&controller] };
        let url = places.iter().map(|at| format!("http://{at}")).collect::<Vec<_>>().join(",");
        let store = store.unwrap_or_else(|| path("store.sqlite"));
        let text = format!(
            "munge_socket = {:?}\nslurm_bin = \"/nonexistent\"\n[controller]\nurl = \"{url}\"\n\
             listen = \"{controller}\"\nstore = {store:?}\n[node]\nlisten = \"{node}\"\nsocket = \"\"\nspool = {:?}\n\
             [watch]\nlease_file = {:?}\n[energy]\nsources = [\"model\"]\n",
            munged.socket(),
            path("spool"),
            path("lease"),
        );
        let listens = |at: &str| text.replace(&format!("listen = \"{controller}\""), &format!("listen = \"{at}\""));
        std::fs::write(path("conf"), &text).expect("conf");
        std::fs::write(path("conf-of-standby"), listens(&standby)).expect("conf");
        Site { store, munged, controller, standby, node, environment: Vec::new(), dir }
    }

    fn daemon(&self, args: &[&str], address: &str) -> Daemon {
        let daemon = self.launch(args, "conf");
        until("a daemon", || TcpStream::connect(address).ok());
        daemon
    }

    fn launch(&self, args: &[&str], conf: &str) -> Daemon {
        let log = self.dir.path().join(format!("{}.log", args[0].trim_start_matches("--role=")));
        let log = std::fs::OpenOptions::new().append(true).create(true).open(log).expect("log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepointd"));
        command.args(args).arg("--conf").arg(self.dir.path().join(conf)).env_remove("JOULEPOINT_STORE");
        command.envs(self.environment.iter().cloned()).stdin(Stdio::null()).stderr(log);
        Daemon(command.spawn().expect("the daemon starts"))
    }

    /// Starts one of two controllers, which may have to wait for the other one.
    pub fn controller_of_two(&self, second: bool) -> Daemon {
        self.launch(&["--role=controller"], if second { "conf-of-standby" } else { "conf" })
    }

    /// Waits until one of two controllers answers.
    pub fn until_leads(&self, second: bool) {
        let address = if second { &self.standby } else { &self.controller };
        until("the standby to lead", || TcpStream::connect(address).ok());
    }

    pub fn controller(&self) -> Daemon {
        self.daemon(&["--role=controller"], &self.controller)
    }

    pub fn node(&self) -> Daemon {
        self.node_over(Path::new("/proc"))
    }

    /// A node service that meters a tree of processes.
    pub fn node_over(&self, proc_root: &Path) -> Daemon {
        let root = proc_root.to_str().expect("a plain path");
        self.daemon(&["--role=node", "--node", "n1", "--proc-root", root], &self.node)
    }

    pub fn client(&self) -> Client {
        let url = format!("http://{},http://{}", self.controller, self.standby);
        Client::new(&url, Some(self.munged.socket()), PATIENCE)
    }

    pub fn node_client(&self) -> Client {
        let url = format!("http://{}", self.node);
        Client::of_node(&url, "n1", Some(self.munged.socket()), PATIENCE)
    }

    /// What a user with this uid gets.
    pub fn as_user<T: Send>(&self, uid: u32, ask: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                // SAFETY: the bare system call changes the ids of this thread only, and the thread ends after use.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
                assert_eq!(changed, 0, "setresuid");
                ask()
            });
            asking.join().expect("no panic")
        })
    }

    /// What a daemon has logged.
    pub fn log(&self, role: &str) -> String {
        std::fs::read_to_string(self.dir.path().join(format!("{role}.log"))).unwrap_or_default()
    }

    /// Everything that the store holds of a run, in order.
    pub fn stored(&self, run: &str) -> Vec<Record> {
        let store = Store::open_again(&self.store).expect("the store opens");
        let rows = store
            .connection()
            .query_map("SELECT json FROM events WHERE run = ?1 ORDER BY seq", &[Value::Text(run.into())], |r| {
                r.get::<String>(0)
            })
            .expect("rows");
        rows.iter().map(|json| serde_json::from_str(json).expect("a record")).collect()
    }

    /// Holds what was sent of a run against the store: every event once, in order, and its effect once.
    #[track_caller]
    pub fn reconcile(&self, run: &str, sent: &[Record]) {
        let stored = self.stored(run);
        assert_eq!(stored.len(), sent.len(), "events of run {run}");
        assert!(stored == sent, "run {run} reads back otherwise than it was sent");
        let store = Store::open_again(&self.store).expect("opens");
        let decisions = store::account::account(store.connection(), &key(run)).expect("account").decisions;
        assert_eq!(decisions.len(), sent.len() - 1, "each decision of run {run} took effect once");
    }
}

pub fn key(run: &str) -> RunKey {
    RunKey { cluster: "c".into(), run: run.into() }
}

/// A run's records: its start, then decisions.
pub fn records(count: u64) -> Vec<Record> {
    let started = Event::Started {
        job: 0,
        restart_count: 0,
        user: "root".into(),
        account: String::new(),
        partition: String::new(),
        job_name: "load".into(),
        nodes: vec!["n1".into()],
        resumed_from: None,
        dir: "/tmp".into(),
    };
    let decided = |n: u64| Event::Decided { action: "interval".into(), reason: format!("{n}"), interval_s: n as f64 };
    let event = |seq| if seq == 1 { started.clone() } else { decided(seq) };
    (1..=count).map(|seq| Record { seq, at_s: seq as f64, event: event(seq) }).collect()
}

pub fn batch(run: &str, records: &[Record]) -> Batch {
    Batch { version: protocol::VERSION, key: key(run), holder: None, records: records.to_vec() }
}

pub fn send(client: &Client, run: &str, records: &[Record]) -> Result<u64, Error> {
    client.post::<Batch, Delivered>("/v1/records", &batch(run, records)).map(|d| d.upto)
}

/// Sends a run's records until the controller says that it has all; each batch as often as it takes.
pub fn send_all(client: &Client, run: &str, all: &[Record], together: usize) {
    let deadline = Instant::now() + Duration::from_secs(900);
    let mut upto = 0;
    while upto < all.len() {
        let some = &all[upto..all.len().min(upto + together)];
        match send(client, run, some) {
            Ok(now) => {
                let now = usize::try_from(now).expect("a position");
                assert!(now >= upto, "run {run}: {upto} were acknowledged, and now only {now} are there");
                upto = now;
            }
            Err(e) => {
                assert!(Instant::now() < deadline, "run {run} stands at {upto}: {e}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Compiles a file of `shims/` and has it loaded into daemons with a variable that names a file of numbers.
pub fn preload(site: &mut Site, shim: &str, variable: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shims").join(shim);
    let (library, number) = (site.dir.path().join(format!("{shim}.so")), site.dir.path().join(variable));
    let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
    assert!(made.expect("cc").success(), "{shim} does not compile");
    std::fs::write(&number, "0").expect("a number");
    site.environment.push(("LD_PRELOAD".into(), library.display().to_string()));
    site.environment.push((variable.into(), number.display().to_string()));
    number
}

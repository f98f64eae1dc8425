//! Small programs are dumped, killed and restored by a real CRIU, in every way; this program is its own warden.
//!
//! Without a CRIU (`packaging/criu.sh`) it says that it skipped.

use criu::client::{self, Ask};
use criu::line::{self, Hello, Member, Order, Said};
use criu::warden::{self, Task};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of anything.
const LIMIT: Duration = Duration::from_secs(60);

/// Exit code of `packaging/criu.sh` where there is nothing to fetch from.
const SKIPPED: i32 = 77;

/// How often the program counts.
const COUNTS: u32 = 60;

/// Makes the program a task of a step.
const MEMBER: &str = "DUMPS_MEMBER";

fn member() -> Member {
    Member { call: "a.1".into(), group: None, rank: 0, tasks: 1, node: "n".into() }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, criu, run, restore, own_network, program @ ..] = &args[..]
        && word == "warden"
    {
        let restore = Some(PathBuf::from(restore)).filter(|p| p.exists());
        let (criu, run, own_network) = (criu.into(), run.into(), own_network == "true");
        let command = program.iter().map(Into::into).collect();
        std::process::exit(warden::run(&Task {
            criu,
            run,
            member: std::env::var_os(MEMBER).map(|_| member()),
            restore,
            limit_s: 60.0,
            own_network,
            command,
        }));
    }
    let criu = std::env::current_exe().unwrap().parent().unwrap().join("../criu");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/criu.sh");
    match Command::new("sh").arg(script).arg(&criu).status().unwrap().code() {
        Some(0) => {}
        Some(SKIPPED) => return println!("skipped: no CRIU"),
        other => panic!("packaging/criu.sh: {other:?}"),
    }
    let criu = criu.join("criu");
    goes_on_in_every_way(&criu);
    leaves_memory_that_is_too_small(&criu);
    gives_up_without_harm(&criu);
    obeys_a_driver(&criu);
    println!("every way, too little memory, too little time, a driver: ok");
}

/// A folder with a program in a sandbox.
struct Sandbox<'a> {
    dir: tempfile::TempDir,
    criu: &'a Path,
    own_network: bool,
}

impl Sandbox<'_> {
    fn new(criu: &Path, own_network: bool) -> Sandbox<'_> {
        let sandbox = Sandbox { dir: tempfile::tempdir().unwrap(), criu, own_network };
        for folder in ["run", "tmp"] {
            fs::create_dir(sandbox.path(folder)).unwrap();
        }
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the program, or restores it from a dump of that name.
    fn start(&self, from: &str) -> Child {
        self.command(from).spawn().unwrap()
    }

    fn command(&self, from: &str) -> Command {
        let script = format!("i=0; while [ $i -lt {COUNTS} ]; do i=$((i+1)); echo $i; sleep 0.05; done; exit 7");
        let out = OpenOptions::new().append(true).create(true).open(self.path("out")).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["warden".as_ref(), self.criu, &self.path("run"), &self.path(from)])
            .args([&self.own_network.to_string(), "sh", "-c", &script])
            .env("TMPDIR", self.path("tmp"))
            .stdin(Stdio::null())
            .stdout(out);
        command
    }

    /// Waits for the program's next line.
    fn wait(&self) {
        let lines = || fs::read_to_string(self.path("out")).unwrap().lines().count();
        let (before, limit) = (lines(), Instant::now() + LIMIT);
        while lines() <= before {
            assert!(Instant::now() < limit, "the program does not go on");
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn dump(&self, name: &str, memory_share: f64, compress: bool, limit_s: f64, wanted: bool) -> Result<f64, String> {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        client::dump(&self.path("run"), &Ask { folder, limit_s, memory_share, compress }, || wanted)
    }

    /// The program has counted on from the dump and ended as it should.
    fn ends_as_if_undisturbed(&self, mut child: Child, name: &str) {
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(self.start(name).wait().unwrap().code(), Some(7));
        let counted: String = (1..=COUNTS).map(|i| format!("{i}\n")).collect();
        assert_eq!(fs::read_to_string(self.path("out")).unwrap(), counted);
        assert!(!self.path("run/stage").exists() && !self.path("run/unpacked").exists());
    }
}

fn goes_on_in_every_way(criu: &Path) {
    let ways = [(0.5, false, false), (0.5, true, true), (0.0, false, true), (0.0, true, false)];
    for (memory_share, compress, own_network) in ways {
        let sandbox = Sandbox::new(criu, own_network);
        let child = sandbox.start("none");
        sandbox.wait();
        let frozen_s = sandbox.dump("dump", memory_share, compress, 60.0, true).unwrap();
        assert!(frozen_s > 0.0);
        assert_eq!(sandbox.path("dump/sandbox.json.zst").exists(), compress);
        sandbox.wait();
        sandbox.ends_as_if_undisturbed(child, "dump");
    }
}

fn leaves_memory_that_is_too_small(criu: &Path) {
    let sandbox = Sandbox::new(criu, false);
    fs::write(sandbox.path("tmp/large"), vec![1; 128 << 20]).unwrap();
    let child = sandbox.start("none");
    sandbox.wait();
    let free = fs::read_to_string("/proc/meminfo").unwrap();
    let kib = |line: &str| line.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<f64>().ok();
    let share = 64.0 * 1024.0 / free.lines().find_map(kib).unwrap();
    sandbox.dump("dump", share, false, 60.0, true).unwrap();
    assert!(fs::metadata(sandbox.path("dump/tmp.tar")).unwrap().len() > 128 << 20);
    sandbox.ends_as_if_undisturbed(child, "dump");
}

fn gives_up_without_harm(criu: &Path) {
    let sandbox = Sandbox::new(criu, false);
    let child = sandbox.start("none");
    sandbox.wait();
    let late = sandbox.dump("late", 0.5, false, 0.0, true).unwrap_err();
    assert!(late.contains("took too long"), "{late}");
    let unwanted = sandbox.dump("unwanted", 0.5, false, 60.0, false);
    assert!(unwanted.as_ref().is_ok_and(|s| *s > 0.0) || unwanted == Err("given up".to_string()), "{unwanted:?}");
    let limit = Instant::now() + LIMIT;
    let mut tries = 0..;
    while let Err(busy) = sandbox.dump(&format!("{}", tries.next().unwrap()), 0.5, false, 60.0, true) {
        assert!(busy.contains("another dump") && Instant::now() < limit, "{busy}");
        thread::sleep(Duration::from_millis(20));
    }
    let last = format!("{}", tries.start - 1);
    sandbox.ends_as_if_undisturbed(child, &last);
}

fn obeys_a_driver(criu: &Path) {
    let sandbox = Sandbox::new(criu, false);
    let run = sandbox.path("run");
    fs::create_dir(run.join(line::FOLDER)).unwrap();
    let secret = line::secret(&run).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(run.join(line::FOLDER).join(line::ADDRESS), listener.local_addr().unwrap().to_string()).unwrap();
    let start = |from: &str| {
        let child = sandbox.command(from).env(MEMBER, "").spawn().unwrap();
        let (hello, line) = line::answer(listener.accept().unwrap().0, &secret).unwrap();
        assert_eq!(hello, Hello::Task(member()));
        (child, line.teller().unwrap(), line.words::<Said>())
    };
    let (mut child, mut driver, mut words) = start("none");
    sandbox.wait();
    let freeze = |name: &str| {
        let folder = sandbox.path(name);
        fs::create_dir(&folder).unwrap();
        Order::Freeze(Ask { folder, limit_s: 60.0, memory_share: 0.5, compress: false })
    };
    for order in [Order::Save, Order::Thaw { keep: true }] {
        driver.tell(&order).unwrap();
        assert_eq!(words.next(), Some(Said::Failed("no dump is on its way".into())));
    }
    for name in ["given up", "given up again"] {
        driver.tell(&freeze(name)).unwrap();
        driver.tell(&Order::Thaw { keep: false }).unwrap();
        assert_eq!(words.next(), Some(Said::Failed("given up".into())));
        sandbox.wait();
    }
    fs::create_dir(sandbox.path("line")).unwrap();
    driver.tell(&freeze("line/a.1.0")).unwrap();
    assert_eq!(words.next(), Some(Said::Frozen));
    driver.tell(&Order::Save).unwrap();
    assert_eq!(words.next(), Some(Said::Saved { carried_bytes: [0, 0] }));
    driver.tell(&Order::Thaw { keep: true }).unwrap();
    assert!(matches!(words.next(), Some(Said::Dumped { .. })));
    driver.tell(&Order::End).unwrap();
    assert_eq!(words.next(), Some(Said::Ended { code: 137, carried_bytes: [0, 0] }));
    driver.hang_up();
    assert_eq!(child.wait().unwrap().code(), Some(137));

    // A task that waits for others hears that it is to end, by whom ever, and blames no checkpoint.
    for act in ["signal", "end", "hang up"] {
        let (mut child, mut driver, mut words) = start("line");
        assert_eq!(words.next(), Some(Said::Ready));
        match act {
            "signal" => kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap(),
            "end" => driver.tell(&Order::End).unwrap(),
            _ => driver.hang_up(),
        }
        assert_eq!(child.wait().unwrap().code(), Some(137));
        assert!(!sandbox.path("line").join(criu::NOT_RESTORED).exists());
    }
    let (mut child, mut driver, mut words) = start("line");
    assert_eq!(words.next(), Some(Said::Ready));
    driver.tell(&Order::Restore).unwrap();
    assert_eq!(words.next(), Some(Said::Ended { code: 7, carried_bytes: [0, 0] }));
    driver.hang_up();
    assert_eq!(child.wait().unwrap().code(), Some(7));
}

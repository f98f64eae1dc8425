//! Small programs are dumped, killed and restored by a real CRIU, in every way; this program is its own supervisor.
//!
//! Without a CRIU (`packaging/criu.sh`) it says that it skipped.

use criu::client::{self, Ask};
use criu::line::{self, Hello, Line, Member, Order, Said};
use criu::supervisor;
use criu::task::Task;
use increments::Increments;
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_gettime, clock_nanosleep};
use nix::unistd::Pid;
use openfiles::held::is_lost;
use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time of anything.
const LIMIT: Duration = Duration::from_secs(60);

/// Exit code of `packaging/criu.sh` where there is nothing to fetch from.
const SKIPPED: i32 = 77;

/// How often the program counts: for a minute, or as fast as it can when nothing more is done to it.
const COUNTS: u32 = 1200;

/// Until when the program is wanted.
const PLACEMENT: &str = "DUMPS_TURN";

/// Makes the program a task of a step.
const MEMBER: &str = "DUMPS_MEMBER";

/// Longest time of a restore, s.
const LIMIT_S: &str = "DUMPS_LIMIT_S";

fn member() -> Member {
    Member { call: "a.1".into(), rank: 0, tasks: 1, node: "n".into(), step: None, ranks: None }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, word, criu, run, restore, own_network, program @ ..] = &args[..]
        && word == "warden"
    {
        let restore = Some(PathBuf::from(restore)).filter(|p| p.exists());
        let (criu, run, own_network) = (criu.into(), run.into(), own_network == "true");
        let command = program.iter().map(Into::into).collect();
        let ended = supervisor::run(&Task {
            criu,
            run,
            member: std::env::var_os(MEMBER).map(|_| member()),
            placement: std::env::var(PLACEMENT).ok().map(|one| one.parse().unwrap()),
            restore,
            limit_s: std::env::var(LIMIT_S).map_or(60.0, |s| s.parse().unwrap()),
            own_network,
            command,
            ..Task::default()
        });
        std::process::exit(ended.exit_code());
    }
    if let [_, word, counts] = &args[..]
        && word == "count"
    {
        std::process::exit(count_by_the_clock(counts.parse().unwrap()));
    }
    if let [_, word] = &args[..]
        && word == gpu::isolated::WORD
    {
        return gpu::isolated::run().unwrap();
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
    goes_on_where_the_clock_began_later(&criu);
    goes_on_from_increments(&criu);
    goes_on_with_what_it_has_on_a_gpu(&criu);
    keeps_its_gpu_where_it_could_not_have_it_back(&criu);
    leaves_memory_that_is_too_small(&criu);
    gives_up_without_harm(&criu);
    obeys_a_driver(&criu);
    ends_when_its_placement_is_over(&criu);
    tells_a_restore_that_stands_still(&criu);
    thread::scope(|all| {
        // It waits most of its time.
        all.spawn(|| goes_on_when_storage_hangs(&criu));
        goes_on_when_others_die(&criu);
        is_never_lost(&criu);
    });
    println!(
        "every way, another clock, increments, a GPU, too little memory, too little time, a driver, those who die: ok"
    );
}

/// A dump by way of memory, whole and not compressed.
fn ask() -> Ask {
    Ask {
        folder: PathBuf::new(),
        limit_s: 60.0,
        memory_share: 0.5,
        compress: false,
        increments: None,
        overwritten_bytes: 1 << 30,
        keeps_leftovers: true,
        tells_going_on: true,
    }
}

/// A folder with a program in a sandbox.
struct Sandbox<'a> {
    dir: tempfile::TempDir,
    criu: &'a Path,
    own_network: bool,
    counts: u32,
    /// A program that counts and writes no file, in place of the shell's.
    program: Option<String>,
    /// How often a dump said that the program goes on.
    went_on: Cell<u32>,
}

impl Sandbox<'_> {
    fn new(criu: &Path, own_network: bool) -> Sandbox<'_> {
        let sandbox = Sandbox {
            dir: tempfile::tempdir().unwrap(),
            criu,
            own_network,
            counts: COUNTS,
            program: None,
            went_on: Cell::new(0),
        };
        for folder in ["run", "tmp"] {
            fs::create_dir(sandbox.path(folder)).unwrap();
        }
        fs::write(sandbox.path("added to"), "").unwrap();
        if !is_lost(&sandbox.path("added to")) {
            // Nobody may read it.
            fs::set_permissions(sandbox.path("added to"), fs::Permissions::from_mode(0o222)).unwrap();
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
        let counts = self.counts;
        let fast = self.path("fast");
        let rest = format!("[ -e {} ] || sleep 0.05", fast.display());
        let files = format!("exec 3<>'{}' 4>>'{}'", self.path("data").display(), self.path("added to").display());
        let count = format!("i=$((i+1)); echo $i >&3; echo $i >&4; echo $i; {rest}");
        let script = format!("{files}; i=0; while [ $i -lt {counts} ]; do {count}; done; exit 7");
        let us = std::env::current_exe().unwrap();
        let script = self.program.as_ref().map_or(script, |program| format!("exec {program}"));
        let out = OpenOptions::new().append(true).create(true).open(self.path("out")).unwrap();
        let mut command = Command::new(us);
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
        self.dump_as(name, Ask { memory_share, compress, limit_s, ..ask() }, wanted)
    }

    fn dump_as(&self, name: &str, ask: Ask, wanted: bool) -> Result<f64, String> {
        let folder = self.path(name);
        fs::create_dir(&folder).unwrap();
        let went_on = || self.went_on.set(self.went_on.get() + 1);
        client::dump(&self.path("run"), &Ask { folder, ..ask }, || wanted, went_on).map_err(|e| e.to_string())
    }

    /// A dump as soon as the program is there and no other dump is on its way; its name.
    fn dump_when_possible(&self) -> String {
        let limit = Instant::now() + LIMIT;
        let mut tries = 0..;
        while let Err(busy) = self.dump(&format!("{}", tries.next().unwrap()), 0.5, false, 60.0, true) {
            assert!(Instant::now() < limit, "{busy}");
            thread::sleep(Duration::from_millis(20));
        }
        format!("{}", tries.start - 1)
    }

    /// The program has counted on from the dump and ended as it should.
    fn ends_as_if_undisturbed(&self, mut child: Child, name: &str) {
        child.kill().unwrap();
        child.wait().unwrap();
        if self.program.is_none() {
            fs::write(self.path("data"), "written by another").unwrap();
        }
        let mut back = self.start(name);
        let limit = Instant::now() + LIMIT;
        if self.program.is_none() {
            assert!(
                client::is_back(&self.path("run"), || Instant::now() < limit),
                "its supervisor says when it is back"
            );
        }
        fs::write(self.path("fast"), "").unwrap();
        assert_eq!(back.wait().unwrap().code(), Some(7));
        let counted: String = (1..=self.counts).map(|i| format!("{i}\n")).collect();
        assert_eq!(fs::read_to_string(self.path("out")).unwrap(), counted);
        fs::set_permissions(self.path("added to"), fs::Permissions::from_mode(0o644)).unwrap();
        for file in ["data", "added to"].into_iter().filter(|_| self.program.is_none()) {
            assert_eq!(fs::read_to_string(self.path(file)).unwrap(), counted, "{file}");
        }
        let names = fs::read_dir(self.dir.path()).unwrap().map(|e| e.unwrap().path());
        let aside = names.filter(|p| p.to_string_lossy().contains("/.data.joulepoint-aside-"));
        let aside: Vec<String> = aside.map(|p| fs::read_to_string(p).unwrap()).collect();
        let is_copied = self.program.is_none() && !is_lost(self.dir.path());
        assert_eq!(aside, if is_copied { vec!["written by another"] } else { vec![] });
        let left = fs::read_dir(self.path("run")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        assert_eq!(left.filter(|n| n.starts_with("stage") || n.starts_with("unpacked")).count(), 0);
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
        assert_eq!(sandbox.went_on.get(), 1, "it is told once that the program goes on");
        assert_eq!(sandbox.path("dump/sandbox.json.zst").exists(), compress);
        sandbox.wait();
        sandbox.ends_as_if_undisturbed(child, "dump");
    }
}

/// The second dump has what the first wrote, and does not need it.
fn goes_on_from_increments(criu: &Path) {
    for compress in [false, true] {
        let sandbox = Sandbox::new(criu, compress);
        let large = (0..8_u64 << 20).flat_map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        fs::write(sandbox.path("tmp/large"), large.collect::<Vec<u8>>()).unwrap();
        let child = sandbox.start("none");
        for (name, base) in [("first", None), ("second", Some(sandbox.path("first")))] {
            sandbox.wait();
            let increments = Some(Increments { base });
            sandbox.dump_as(name, Ask { increments, compress, ..ask() }, true).unwrap();
        }
        let own = fs::read_dir(sandbox.path("second/blocks")).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        let own_bytes: u64 = own.filter(|m| m.nlink() == 1).map(|m| m.len()).sum();
        assert!(own_bytes < 8 << 20, "{own_bytes} bytes are new");
        fs::remove_dir_all(sandbox.path("first")).unwrap();
        sandbox.wait();
        sandbox.ends_as_if_undisturbed(child, "second");
    }
}

/// A program that counts on a GPU, with libraries of the tests' own in the place of NVIDIA's.
struct OnGpu<'a> {
    sandbox: Sandbox<'a>,
}

impl OnGpu<'_> {
    fn new(criu: &Path) -> OnGpu<'_> {
        let mut sandbox = Sandbox { counts: 200, ..Sandbox::new(criu, false) };
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu/tests/data/build.sh");
        assert!(Command::new("sh").arg(build).arg(sandbox.dir.path()).status().unwrap().success());
        let fast = sandbox.path("fast");
        sandbox.program = Some(format!("{} 200 {}", sandbox.path("on-gpu").display(), fast.display()));
        OnGpu { sandbox }
    }

    /// What the node has.
    fn has(&self, gpus: &str) {
        fs::write(self.sandbox.path("gpus"), format!("{gpus}\n")).unwrap();
    }

    /// Calls of this name fail so.
    fn fails(&self, fault: &str) {
        fs::write(self.sandbox.path("fault"), fault).unwrap();
    }

    fn is_sound(&self) {
        fs::remove_file(self.sandbox.path("fault")).unwrap();
    }

    fn dump(&self, name: &str) -> Result<f64, String> {
        self.sandbox.dump(name, 0.5, false, 60.0, true)
    }
}

fn goes_on_with_what_it_has_on_a_gpu(criu: &Path) {
    let place = tempfile::tempdir().unwrap();
    let (fails, sometimes) = (place.path().join("fails"), place.path().join("criu"));
    let script = format!("#!/bin/sh\n[ ! -e {} ] || exit 1\nexec {} \"$@\"\n", fails.display(), criu.display());
    fs::write(&sometimes, script).unwrap();
    fs::set_permissions(&sometimes, fs::Permissions::from_mode(0o700)).unwrap();
    let one = OnGpu::new(&sometimes);
    let child = one.sandbox.start("none");
    one.sandbox.wait();
    for (fault, said) in
        [("checkpoint 801", "its GPUs: cuCheckpointProcessCheckpoint: CUDA_ERROR_801"), ("memory 1", "(--mem)")]
    {
        one.fails(fault);
        let refused = one.dump(&fault.replace(' ', "-")).unwrap_err();
        assert!(refused.contains(said), "{refused}");
        one.is_sound();
        one.sandbox.wait();
    }
    fs::write(&fails, "").unwrap();
    assert_eq!(one.dump("failed").unwrap_err(), "criu left no reason in its log");
    fs::remove_file(&fails).unwrap();
    one.sandbox.wait();
    let late = one.sandbox.dump("late", 0.5, false, 0.0, true).unwrap_err();
    assert!(late.contains("took too long"), "{late}");
    one.sandbox.wait();
    for name in ["first", "second"] {
        assert!(one.dump(name).unwrap() > 0.0);
        one.sandbox.wait();
    }
    // Another node, with another GPU of the same kind.
    one.has("7 NVIDIA Model A");
    one.sandbox.ends_as_if_undisturbed(child, "second");
}

fn keeps_its_gpu_where_it_could_not_have_it_back(criu: &Path) {
    let one = OnGpu::new(criu);
    let mut child = one.sandbox.start("none");
    one.sandbox.wait();
    one.dump("first").unwrap();
    one.sandbox.wait();
    one.fails("restore 304");
    // What it had on its GPU is in the dump, which counts.
    one.dump("second").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(criu::EXIT_KILLED));
    one.is_sound();
    // A node whose GPU is of another kind is no reason to blame the checkpoint.
    one.has("1 NVIDIA Model B");
    assert_eq!(one.sandbox.start("second").wait().unwrap().code(), Some(criu::EXIT_KILLED));
    assert!(!one.sandbox.path("second").join(criu::NOT_RESTORED).exists());
    one.has("1 NVIDIA Model A");
    let child = one.sandbox.start("second");
    one.sandbox.wait();
    let refused = one.dump("third").unwrap_err();
    assert!(refused.contains("not taken from it again: cuCheckpointProcessRestore: CUDA_ERROR_304"), "{refused}");
    one.sandbox.ends_as_if_undisturbed(child, "second");
}

/// Counts as the shell's program does, by a clock that counts from the node's start.
fn count_by_the_clock(counts: u32) -> i32 {
    let clock = ClockId::CLOCK_MONOTONIC;
    let mut next = clock_gettime(clock).unwrap();
    for count in 1..=counts {
        println!("{count}");
        next = next + TimeSpec::from_duration(Duration::from_millis(50));
        while clock_nanosleep(clock, ClockNanosleepFlags::TIMER_ABSTIME, &next).is_err() {}
    }
    7
}

/// Here a node is a time namespace: the first one has been up for eleven days longer.
fn goes_on_where_the_clock_began_later(criu: &Path) {
    let program = format!("{} count 100", std::env::current_exe().unwrap().display());
    let sandbox = Sandbox { program: Some(program), counts: 100, ..Sandbox::new(criu, false) };
    let first = sandbox.command("none");
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--user", "--map-root-user", "--time", "--monotonic=1000000", "--fork", "--kill-child"]);
    elsewhere.arg(first.get_program()).args(first.get_args()).env("TMPDIR", sandbox.path("tmp"));
    let out = OpenOptions::new().append(true).create(true).open(sandbox.path("out")).unwrap();
    let child = elsewhere.stdin(Stdio::null()).stdout(out).spawn().unwrap();
    sandbox.wait();
    sandbox.dump("dump", 0.5, false, 60.0, true).unwrap();
    sandbox.ends_as_if_undisturbed(child, "dump");
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

/// A CRIU that waits for what never comes: its processes wait for each other, and one of them is not there.
fn tells_a_restore_that_stands_still(criu: &Path) {
    let place = tempfile::tempdir().unwrap();
    let hangs = place.path().join("criu");
    fs::write(&hangs, "#!/bin/sh\nsleep 1000 &\nwait\n").unwrap();
    fs::set_permissions(&hangs, fs::Permissions::from_mode(0o700)).unwrap();
    let mut sandbox = Sandbox::new(criu, false);
    let mut child = sandbox.start("none");
    sandbox.wait();
    sandbox.dump("dump", 0.5, false, 60.0, true).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    sandbox.criu = &hangs;
    let begun = Instant::now();
    let code = sandbox.command("dump").env(LIMIT_S, "40").stderr(Stdio::null()).status().unwrap().code();
    assert_eq!(code, Some(criu::EXIT_KILLED));
    assert!(begun.elapsed() < Duration::from_secs(35), "it does not stand still for all of its time");
    let told = fs::read_to_string(sandbox.path("dump").join(criu::NOT_NOW)).unwrap();
    assert!(!sandbox.path("dump").join(criu::NOT_RESTORED).exists(), "its files are whole");
    assert!(
        told.starts_with("criu has made no progress for 1")
            && told.contains(" s: all of it waits (")
            && told.contains("sleep S"),
        "{told}"
    );
}

fn gives_up_without_harm(criu: &Path) {
    let sandbox = Sandbox::new(criu, false);
    let child = sandbox.start("none");
    sandbox.wait();
    let late = sandbox.dump("late", 0.5, false, 0.0, true).unwrap_err();
    assert!(late.contains("took too long"), "{late}");
    let unwanted = sandbox.dump("unwanted", 0.5, false, 60.0, false);
    assert!(unwanted.as_ref().is_ok_and(|s| *s > 0.0) || unwanted == Err("given up".to_string()), "{unwanted:?}");
    let last = sandbox.dump_when_possible();
    sandbox.ends_as_if_undisturbed(child, &last);
}

/// A program as a task of a step, and the driver's end of its line.
struct Driven<'a> {
    sandbox: Sandbox<'a>,
    child: Child,
    driver: Line,
    words: Box<dyn Iterator<Item = Said>>,
}

impl Driven<'_> {
    fn new(criu: &Path, counts: u32) -> Driven<'_> {
        let sandbox = Sandbox { counts, ..Sandbox::new(criu, false) };
        let run = sandbox.path("run");
        fs::create_dir(run.join(line::FOLDER)).unwrap();
        let secret = line::secret(&run).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        fs::write(run.join(line::FOLDER).join(line::ADDRESS), listener.local_addr().unwrap().to_string()).unwrap();
        let child = sandbox.command("none").env(MEMBER, "").spawn().unwrap();
        let (hello, line) = line::answer(listener.accept().unwrap().0, &secret).unwrap();
        assert_eq!(hello, Hello::Task(member()));
        let (driver, words) = (line.teller().unwrap(), Box::new(line.words::<Said>()));
        sandbox.wait();
        Driven { sandbox, child, driver, words }
    }

    fn freeze(&mut self, name: &str) {
        let folder = self.sandbox.path(name);
        fs::create_dir(&folder).unwrap();
        self.driver.tell(&Order::Freeze(Ask { folder, tells_going_on: false, ..ask() })).unwrap();
    }

    fn tell(&mut self, order: Order) -> Option<Said> {
        self.driver.tell(&order).unwrap();
        self.words.next()
    }

    /// Makes a dump as far as these many phases of three.
    fn dump(&mut self, name: &str, phases: u32) {
        self.freeze(name);
        if phases > 0 {
            assert_eq!(self.words.next(), Some(Said::Frozen));
        }
        if phases > 1 {
            assert_eq!(self.tell(Order::Save), Some(Said::Saved { carried_bytes: [0, 0] }));
        }
        if phases > 2 {
            assert!(matches!(self.tell(Order::Thaw { keep: true }), Some(Said::Dumped { .. })));
        }
    }
}

fn obeys_a_driver(criu: &Path) {
    let mut one = Driven::new(criu, COUNTS);
    for order in [Order::Save, Order::Thaw { keep: true }] {
        assert_eq!(one.tell(order), Some(Said::Failed("no dump is on its way".into())));
    }
    for name in ["given up", "given up again"] {
        one.freeze(name);
        assert_eq!(one.tell(Order::Thaw { keep: false }), Some(Said::Failed("given up".into())));
        one.sandbox.wait();
    }
    one.dump("dump", 3);
    assert_eq!(one.tell(Order::End), Some(Said::Ended { code: 137, carried_bytes: [0, 0], asked: false, sent: None }));
    one.driver.hang_up();
    assert_eq!(one.child.wait().unwrap().code(), Some(137));
}

/// Nobody tells it: it looks by itself, also when it has gone on from a dump, and not before another has its place.
fn ends_when_its_placement_is_over(criu: &Path) {
    let sandbox = Sandbox::new(criu, false);
    let file = sandbox.path(fencing::FILE);
    let started = |holder: u64, from: &str| {
        let child = sandbox.command(from).env(PLACEMENT, format!("{holder}:0:g0:{}", file.display())).spawn().unwrap();
        sandbox.wait();
        child
    };
    let told = |holder: u64| fs::write(&file, format!(r#"{{"version":1,"holder":{holder},"over":{{}}}}"#)).unwrap();
    told(1);
    let mut first = started(1, "none");
    sandbox.dump("dump", 0.5, false, 60.0, true).unwrap();
    told(2);
    assert_eq!(first.wait().unwrap().code(), Some(criu::EXIT_KILLED));
    let mut second = started(2, "dump");
    thread::sleep(2 * fencing::LOOK);
    sandbox.wait();
    told(3);
    assert_eq!(second.wait().unwrap().code(), Some(criu::EXIT_KILLED));
    let counted = fs::read_to_string(sandbox.path("out")).unwrap();
    thread::sleep(Duration::from_millis(200));
    assert_eq!(fs::read_to_string(sandbox.path("out")).unwrap(), counted, "it still counts");
}

/// The driver dies after each phase, and CRIU in each in which the program stands still: it goes on, and the dump
/// before is good.
fn goes_on_when_others_die(criu: &Path) {
    for (victim, phases) in [("driver", 0), ("driver", 1), ("driver", 2), ("criu", 1), ("criu", 2)] {
        let mut one = Driven::new(criu, COUNTS);
        one.dump("dump", 3);
        one.dump("late", phases);
        if victim == "driver" {
            one.driver.hang_up();
        } else {
            kill_criu(&one.sandbox.path("run"));
            assert_eq!(one.words.next(), Some(Said::Failed("criu was ended by SIGKILL".into())));
        }
        one.sandbox.wait();
        one.sandbox.ends_as_if_undisturbed(one.child, "dump");
    }
}

/// Ends the CRIU that makes a dump below a folder.
fn kill_criu(run: &Path) {
    let words =
        |pid: &i32| String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned();
    let is_ours = |pid: &i32| words(pid).contains("--leave-running") && words(pid).contains(&*run.to_string_lossy());
    let all = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let victims: Vec<i32> = all.filter(is_ours).collect();
    assert!(!victims.is_empty());
    victims.iter().for_each(|pid| kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap());
}

/// Gives up dumps at all moments, `JOULEPOINT_KILLS` times (20 if not said): the program is there after each.
fn is_never_lost(criu: &Path) {
    let tries = std::env::var("JOULEPOINT_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let mut one = Driven::new(criu, u32::MAX);
    for n in 0..tries {
        one.freeze(&format!("{n}"));
        thread::sleep(Duration::from_millis(n * 37 % 200));
        one.driver.tell(&Order::Thaw { keep: false }).unwrap();
        // It may have stood still before it heard.
        assert_eq!(one.words.find(|said| *said != Said::Frozen), Some(Said::Failed("given up".into())), "{n}");
        one.sandbox.wait();
    }
    one.driver.tell(&Order::End).unwrap();
    one.child.wait().unwrap();
    println!("{tries} dumps given up, no program lost");
}

/// A CRIU that hangs on storage is killed, and its program goes on or, if a part of it died with CRIU, goes back.
fn goes_on_when_storage_hangs(criu: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let (command, stuck) = (dir.path().join("criu"), dir.path().join("stuck"));
    // Whoever opens a FIFO to write waits for a reader.
    let hang = "while [ \"$1\" != --images-dir ]; do set -- \"$@\" \"$1\"; shift; done; mkfifo \"$2/pages-1.img\"";
    let script = format!("#!/bin/sh\n[ -e {} ] && ({hang})\nexec {} \"$@\"\n", stuck.display(), criu.display());
    fs::write(&command, script).unwrap();
    fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
    let sandbox = Sandbox::new(&command, false);
    let mut child = sandbox.start("none");
    sandbox.wait();
    sandbox.dump("dump", 0.5, false, 60.0, true).unwrap();
    fs::write(&stuck, "").unwrap();
    let refused = sandbox.dump("late", 0.0, false, 1.0, true).unwrap_err();
    fs::remove_file(&stuck).unwrap();
    if refused.contains("has ended") {
        assert_eq!(child.wait().unwrap().code(), Some(criu::EXIT_KILLED), "{refused}");
        child = sandbox.start("dump");
    } else {
        assert!(refused.contains("took too long"), "{refused}");
        sandbox.wait();
    }
    let last = sandbox.dump_when_possible();
    println!("storage that hangs: {refused}");
    sandbox.ends_as_if_undisturbed(child, &last);
}

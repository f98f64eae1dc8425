//! `make bench`: what Joulepoint costs, measured side by side in one run, beside the targets.

mod daemon;
mod dumps;
mod launches;
mod store;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suite::{Site, Wanted};

const USER: &str = "jpalice";

/// How long the wrapper is watched, s.
const WATCH_S: u64 = 60;

/// Volume of the checkpoint that is copied, bytes.
const VOLUME_BYTES: usize = 512 << 20;

/// Plans that are made.
const PLANS: usize = 2_000;

/// Samples of a node's energy that are taken.
const SAMPLES: u32 = 1000;

/// A part of the benchmarks that can be run alone.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Durable events of both databases.
    Events,
    /// The services over a year's store.
    Service,
    /// Plans without a service.
    Plans,
    /// A node's energy and processes.
    Metering,
    /// Copies of checkpoints.
    Copies,
    /// Dumps by CRIU.
    Dumps,
    /// Launches of steps, and the wrapper over a minute.
    Cluster,
}

impl Part {
    fn measure(self) -> Result<()> {
        match self {
            Part::Events => events(),
            Part::Service => service(),
            Part::Plans => plans(),
            Part::Metering => metering(),
            Part::Copies => copies(),
            Part::Dumps => dumps::run(),
            Part::Cluster => on_a_cluster(),
        }
    }
}

/// Runs the benchmarks, or only some parts of them.
pub fn run(only: &[Part]) -> Result<()> {
    println!("{:<48} {:>12} {:>22}   target", "what", "measured", "ratio");
    let mut parts = Part::value_variants().iter().filter(|part| only.is_empty() || only.contains(part));
    parts.try_for_each(|part| part.measure())
}

/// The store alone, on a real disk.
fn events() -> Result<()> {
    store::events(tempfile::tempdir_in(".")?.path())
}

/// The services over a store of a year, on a real disk.
fn service() -> Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let year = dir.path().join("year.sqlite");
    store::reports(&store::year(&year)?)?;
    let daemons = daemon::Daemons::start(dir.path(), &year)?;
    daemons.report()?;
    daemons.plans()?;
    daemons.events()?;
    daemons.node()
}

fn row(what: &str, measured: &str, ratio: &str, target: &str) {
    println!("{what:<48} {measured:>12} {ratio:>22}   {target}");
}

/// Value at a share of the sorted values.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn plans() -> Result<()> {
    let site = config::Site::default();
    let question = |memory: &str| {
        let setting = |v: &str| protocol::Setting { value: v.into(), source: protocol::Source::Option };
        let options = [("ft-energy", "energy"), ("ft-energy-memory", memory), ("ft-energy-messages", "100000:7G")];
        let settings = options.map(|(name, value)| (name.to_string(), setting(value))).into();
        protocol::PlanRequest {
            request: protocol::Request { settings },
            nodes: 5,
            cpus_per_node: 7,
            user: "u".into(),
            job_name: "j".into(),
            ..Default::default()
        }
    };
    let history = planner::History { node_failures: 3, node_seconds: 1e7, ..Default::default() };
    let calibrated = planner::History { calibrations: vec![calibration()], ..history.clone() };
    // MiB that the memory of a job has more than that of the one before: with any, each shape is a new one.
    let cases = [
        ("plan", &history, 0),
        ("plan on a calibration", &calibrated, 0),
        ("plan on it, each of a new shape", &calibrated, 1),
    ];
    for (what, history, more) in cases {
        let mut times = Vec::with_capacity(PLANS);
        for i in 0..PLANS {
            let question = question(&format!("{}M", 3000 + i * more));
            let start = Instant::now();
            std::hint::black_box(planner::make_plan(&question, history, &site)?);
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
        row(&format!("{what}, first"), &format!("{:.1} us", times[0]), "", "");
        row(&format!("{what}, median"), &format!("{:.1} us", quantile(&mut times, 0.5)), "", "");
        let most = format!("{:.1} us", quantile(&mut times, 0.99));
        row(&format!("{what}, 99 %"), &most, "", "< 1000 us at the controller");
    }
    Ok(())
}

/// A calibration of five points on each axis of each operation, all off the question's own.
fn calibration() -> planner::Known {
    use protocol::{Measured, Operation, Point, Storage};
    let mut known = planner::published::calibration(100.0);
    let (nodes, processes, bytes) = ([1, 2, 4, 6, 8], [1, 4, 8, 12, 16], [1e6, 250e6, 500e6, 750e6, 1e9]);
    let point = |nodes: u32, processes: u32, bytes: f64| {
        let ripple = 1.0 + 0.01 * (f64::from(nodes * 7 + processes * 3) + bytes).sin();
        let time_s = ripple * (1e-3 + f64::from(nodes * processes).ln() * 1e-2 + bytes / 5e8);
        let delta_w = 10.0 + 3.0 * f64::from(processes);
        Point {
            nodes,
            processes,
            bytes,
            intensity: 1.0,
            frequency_hz: None,
            time_s,
            time_ci_s: 0.01 * time_s,
            delta_w,
            delta_ci_w: Some(0.5),
            count: 5,
            outliers: 0,
        }
    };
    let measured = |operation: Operation| {
        let stored = matches!(operation, Operation::CheckpointWrite | Operation::CheckpointRead);
        let over = |n: u32| processes.into_iter().flat_map(move |p| bytes.into_iter().map(move |b| (n, p, b)));
        // Logging needs one node only.
        let logged = matches!(operation, Operation::LogMemory | Operation::LogDisk);
        let points =
            nodes.into_iter().filter(|n| !logged || *n == 1).flat_map(over).map(|(n, p, b)| point(n, p, b)).collect();
        Measured { operation, storage: stored.then_some(Storage::Shared), points, fits: Vec::new() }
    };
    std::sync::Arc::make_mut(&mut known.stored).calibration.measured =
        Operation::ALL.into_iter().map(measured).collect();
    known
}

/// One look at this machine's processes and at two sockets of counter files, as a node service takes each second.
fn metering() -> Result<()> {
    let dir = tempfile::tempdir()?;
    for (zone, name) in [(":0", "package-0"), (":0:0", "dram"), (":1", "package-1"), (":1:0", "dram")] {
        let folder = dir.path().join(format!("intel-rapl{zone}"));
        fs::create_dir(&folder)?;
        for (file, content) in [("name", name), ("max_energy_range_uj", "262143328850"), ("energy_uj", "1")] {
            fs::write(folder.join(file), content)?;
        }
    }
    let precedence = vec![energy::SourceKind::Rapl];
    let config = energy::Config { precedence, rapl_root: dir.path().into(), ..Default::default() };
    let (mut meter, mut accounts) = (energy::open(&config), energy::Accounts::new(2, config.model.idle_w));
    let mut scanner = energy::Scanner::new("/proc", energy::tick_hz());
    let own_s = || cpu_s(std::process::id() as i32).context("a clock of this process");
    let before_s = own_s()?;
    for round in 1..=SAMPLES {
        fs::write(dir.path().join("intel-rapl:0/energy_uj"), (round * 1_000_000).to_string())?;
        let processes = scanner.scan(f64::from(round))?;
        accounts.sample(f64::from(round), &mut meter, &processes);
    }
    let share = format!("{:.3} %", 100.0 * (own_s()? - before_s) / f64::from(SAMPLES));
    row("metering at 1 Hz, share of one core", &share, "", "< 0.2 %");
    Ok(())
}

fn copies() -> Result<()> {
    let dir = tempfile::tempdir_in(".")?;
    let original = dir.path().join("state");
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let write = |path: &Path| -> Result<f64> {
        let start = Instant::now();
        let mut file = fs::File::create(path)?;
        for _ in 0..VOLUME_BYTES / block.len() {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        Ok(start.elapsed().as_secs_f64())
    };
    write(&original)?;
    let (mut raw, mut ours) = (Vec::new(), Vec::new());
    for i in 0..5 {
        raw.push(write(&dir.path().join(format!("raw{i}")))?);
        let into = dir.path().join(format!("checkpoint{i}"));
        fs::create_dir(&into)?;
        let start = Instant::now();
        run::take(std::slice::from_ref(&original), &into)?;
        ours.push(start.elapsed().as_secs_f64());
        fs::remove_file(dir.path().join(format!("raw{i}")))?;
        fs::remove_dir_all(into)?;
    }
    let (raw, ours) = (quantile(&mut raw, 0.5), quantile(&mut ours, 0.5));
    let speed = |s: f64| format!("{:.0} MB/s", VOLUME_BYTES as f64 / s / 1e6);
    row("raw sequential write, synced", &speed(raw), "1.00", "");
    row("checkpoint copied, checksummed, synced", &speed(ours), &format!("{:.2}", raw / ours), ">= 0.90 of raw");
    Ok(())
}

fn on_a_cluster() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-bench-{}", std::process::id()));
    let wanted = Wanted { nodes: 2, ..Wanted::default() };
    let outcome = Site::start(&dir, &wanted, &mut |_| {}).and_then(|site| {
        launches::run(&site)?;
        wrapper_over_a_minute(&site)
    });
    let _ = fs::remove_dir_all(&dir);
    outcome
}

fn wrapper_over_a_minute(site: &Site) -> Result<()> {
    let folder = site.folder(USER, "bench")?;
    let script = format!("sleep {}", WATCH_S + 30);
    let job = site.submit(USER, &folder, &["-N1", "--ft-energy", "--ft-energy-done=x.cpt"], &script)?;
    site.wait_report(job, "the run", Duration::from_secs(60), |run| (run["state"] == "running").then_some(()))?;
    let wrappers = || processes("joulepoint");
    let services = || processes("joulepointd");
    let cpu = |pids: &[i32]| pids.iter().filter_map(|p| cpu_s(*p)).sum::<f64>();
    let (pids, node_pids) = (wrappers(), services());
    if pids.is_empty() {
        bail!("no wrapper runs");
    }
    let (before, node_before) = (cpu(&pids), cpu(&node_pids));
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(WATCH_S));
    let seconds = start.elapsed().as_secs_f64();
    let share = 100.0 * (cpu(&pids) - before) / seconds;
    let memory = pids.iter().filter_map(|p| peak_mib(*p)).sum::<f64>();
    row("wrapper, CPU over a minute", &format!("{share:.3} %"), "", "< 0.1 % of one core");
    row("wrapper, peak memory (two processes)", &format!("{memory:.1} MiB"), "", "< 16 MiB");
    let each = 100.0 * (cpu(&node_pids) - node_before) / seconds / node_pids.len().max(1) as f64;
    row("services, CPU of each", &format!("{each:.3} %"), "", "< 0.2 %");
    site.cluster.command("scancel").arg(job.to_string()).status()?;
    Ok(())
}

fn processes(name: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str().and_then(|n| n.parse().ok()));
    let named = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c.trim() == name);
    pids.filter(named).collect()
}

/// CPU time of a process so far, with that of its threads that have ended, s.
/// What a service answers to everybody.
pub(crate) fn get(at: impl ToSocketAddrs, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

pub(crate) fn cpu_s(pid: i32) -> Option<f64> {
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid)).ok()?;
    Some(Duration::from(clock_gettime(clock).ok()?).as_secs_f64())
}

pub(crate) fn peak_mib(pid: i32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<f64>().ok().map(|kib| kib / 1024.0)
}

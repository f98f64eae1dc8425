//! `cargo bench -p mlog --bench transport`: round trips and reductions over mlog, beside plain TCP and Open MPI, in one run, as ratios.

use mlog::{Endpoint, Operation};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// Sizes of a message, bytes, and round trips for each.
const SIZES: [(usize, usize); 5] = [(8, 2000), (1 << 10, 2000), (64 << 10, 500), (1 << 20, 60), (4 << 20, 20)];

/// Sizes of a reduction, bytes, and how many of each.
const REDUCTIONS: [(usize, usize); 2] = [(8, 1000), (64 << 10, 200)];

/// Groups that reduce.
const GROUPS: usize = 4;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Median times, microseconds, one for each size.
type Times = Vec<f64>;

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let mpi = build_mpi(folder.path());
    let round_trips = [
        ("plain TCP", Some(tcp()?)),
        ("Open MPI, TCP", run_mpi(mpi.as_deref(), "tcp,self", "roundtrip", 2, &SIZES)),
        ("Open MPI, one host", run_mpi(mpi.as_deref(), "vader,self", "roundtrip", 2, &SIZES)),
        ("mlog, no log", Some(mlog_round_trips("none")?)),
        ("mlog, log in memory", Some(mlog_round_trips("memory")?)),
        ("mlog, log on disk", Some(mlog_round_trips("disk")?)),
    ];
    println!("One way between two groups: half a round trip, median; and its rate.");
    table(&SIZES, &round_trips, 2.0, true);
    let reductions = [
        ("Open MPI, TCP", run_mpi(mpi.as_deref(), "tcp,self", "allreduce", GROUPS, &REDUCTIONS)),
        ("Open MPI, one host", run_mpi(mpi.as_deref(), "vader,self", "allreduce", GROUPS, &REDUCTIONS)),
        ("mlog, no log", Some(mlog_reductions("none")?)),
        ("mlog, log in memory", Some(mlog_reductions("memory")?)),
        ("mlog, log on disk", Some(mlog_reductions("disk")?)),
    ];
    println!("\nAllreduce among {GROUPS} groups, median.");
    table(&REDUCTIONS, &reductions, 1.0, false);
    Ok(())
}

/// One line for each way and size; ratios to the first way that was measured.
fn table(sizes: &[(usize, usize)], ways: &[(&str, Option<Times>)], parts: f64, with_rate: bool) {
    println!("{:<22} {:>9} {:>12} {:>12} {:>8}", "way", "bytes", "us", "MB/s", "ratio");
    let first = ways.iter().find_map(|(_, times)| times.as_ref());
    for (index, (size, _)) in sizes.iter().enumerate() {
        for (way, times) in ways {
            let Some(times) = times else {
                println!("{way:<22} {size:>9} {:>12}", "absent");
                continue;
            };
            let us = times[index] / parts;
            let rate = if with_rate { format!("{:.1}", *size as f64 / us) } else { String::new() };
            let ratio = first.map_or(1.0, |f| times[index] / f[index]);
            println!("{way:<22} {size:>9} {us:>12.1} {rate:>12} {ratio:>8.2}");
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(rounds: usize, mut act: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        act()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

fn tcp() -> Outcome<Times> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = thread::spawn(move || -> Outcome<()> {
        let (stream, _) = listener.accept()?;
        bounce(stream, |stream, bytes| {
            stream.read_exact(bytes)?;
            Ok(stream.write_all(bytes)?)
        })
        .map(drop)
    });
    let times = bounce(TcpStream::connect(address)?, |stream, bytes| {
        stream.write_all(bytes)?;
        Ok(stream.read_exact(bytes)?)
    })?;
    echo.join().map_err(|_| "the echo ended")??;
    Ok(times)
}

fn bounce(mut stream: TcpStream, act: impl Fn(&mut TcpStream, &mut [u8]) -> Outcome<()>) -> Outcome<Times> {
    stream.set_nodelay(true)?;
    let one = |&(size, rounds): &(usize, usize)| {
        let mut bytes = vec![1; size];
        measure(rounds, || act(&mut stream, &mut bytes))
    };
    SIZES.iter().map(one).collect()
}

fn build_mpi(folder: &Path) -> Option<PathBuf> {
    let program = folder.join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/mpi.c");
    let built = Command::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source).status();
    built.is_ok_and(|s| s.success()).then_some(program)
}

fn run_mpi(program: Option<&Path>, btl: &str, kind: &str, ranks: usize, sizes: &[(usize, usize)]) -> Option<Times> {
    let mut command = Command::new("mpirun");
    // Ranks that wait let others run, as mlog does: otherwise ranks beyond the cores measure the scheduler.
    command.args([
        "--allow-run-as-root",
        "--oversubscribe",
        "--mca",
        "mpi_yield_when_idle",
        "1",
        "--mca",
        "btl",
        btl,
        "-n",
    ]);
    command.arg(ranks.to_string()).arg(program?).arg(kind);
    for (size, rounds) in sizes {
        command.arg(size.to_string()).arg(rounds.to_string());
    }
    let said = String::from_utf8(command.output().ok()?.stdout).ok()?;
    let times: Times = said.lines().filter_map(|l| l.split(' ').nth(3)?.parse().ok()).collect();
    (times.len() == sizes.len()).then_some(times)
}

/// Relays in a folder of their own, which end with it.
struct Relays {
    folder: tempfile::TempDir,
    children: Vec<Child>,
}

impl Relays {
    fn start(groups: usize, log: &str) -> Outcome<Relays> {
        // Not in memory: the log on disk is to be on a disk.
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
        let mut relays = Relays { folder, children: Vec::new() };
        for group in 0..groups {
            let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-relay"));
            command.args(["serve", "--group", &group.to_string(), "--groups", &groups.to_string(), "--log", log]);
            command.arg("--run").arg(relays.folder.path()).args(["--listen", "127.0.0.1:0"]);
            relays.children.push(command.env("JOULEPOINT_LOG", "off").spawn()?);
        }
        Ok(relays)
    }

    /// Runs `act` in a thread for each group; what group 0 returns.
    fn with_all(&self, act: impl Fn(&mut Endpoint) -> Outcome<Times> + Sync) -> Outcome<Times> {
        let begin = Barrier::new(self.children.len());
        let one = |group: usize| -> Outcome<Times> {
            begin.wait();
            let socket = self.folder.path().join(format!("relays/{group}.sock"));
            let mut endpoint = Endpoint::connect(&socket, 0)?;
            endpoint.barrier()?;
            let times = act(&mut endpoint)?;
            endpoint.finalize()?;
            Ok(times)
        };
        let one = &one;
        thread::scope(|scope| {
            let others: Vec<_> = (1..self.children.len()).map(|g| scope.spawn(move || one(g))).collect();
            let times = one(0);
            for other in others {
                other.join().map_err(|_| "a group ended")??;
            }
            times
        })
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn mlog_round_trips(log: &str) -> Outcome<Times> {
    Relays::start(2, log)?.with_all(|endpoint| {
        let first = endpoint.group() == 0;
        let other = 1 - endpoint.group();
        let mut times = Vec::new();
        for (size, rounds) in SIZES {
            let bytes = vec![1; size];
            times.push(measure(rounds, || {
                if first {
                    endpoint.send(other, 1, &bytes)?;
                }
                endpoint.recv(other as i32, 1)?;
                if !first {
                    endpoint.send(other, 1, &bytes)?;
                }
                Ok(())
            })?);
        }
        Ok(times)
    })
}

fn mlog_reductions(log: &str) -> Outcome<Times> {
    Relays::start(GROUPS, log)?.with_all(|endpoint| {
        let mut times = Vec::new();
        for (size, rounds) in REDUCTIONS {
            let mut values = vec![1.0; size / 8];
            times.push(measure(rounds, || Ok(endpoint.allreduce(&mut values, Operation::Max)?))?);
        }
        Ok(times)
    })
}

//! `cargo bench -p mpi`: round trips between two ranks through the library, between two groups and within one, beside
//! plain TCP and Open MPI's own ways, in one run, as ratios.
//!
//! `cargo build --release -p mpi --lib --example over` makes what it runs. Several rounds, in each of which every way has
//! its turn; of the medians of a way the smallest counts, since other programs of the machine only add.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Instant;

/// Sizes of a message, bytes, and round trips for each.
const SIZES: [(usize, usize); 4] = [(8, 4000), (4 << 10, 2000), (64 << 10, 600), (1 << 20, 100)];

/// Turns of each way.
const TURNS: usize = 5;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One way: its name, and how it measures.
type Way<'a> = (&'a str, Box<dyn Fn() -> Outcome<Vec<f64>> + 'a>);

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mlog/benches/mpi.c");
    if !Command::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source).status()?.success() {
        return Err("mpicc has not built the program".into());
    }
    let ways: Vec<Way<'_>> = vec![
        ("plain TCP", Box::new(tcp)),
        ("Open MPI, TCP", Box::new(|| mpirun("tcp,self", &program))),
        ("Open MPI, one host", Box::new(|| mpirun("vader,self", &program))),
        ("within a group", Box::new(|| over("memory", "0-1/2", &program))),
        ("groups, no log", Box::new(|| over("none", "0/1", &program))),
        ("groups, log in memory", Box::new(|| over("memory", "0/1", &program))),
        ("groups, log on disk", Box::new(|| over("disk", "0/1", &program))),
    ];
    let mut best = vec![[f64::INFINITY; SIZES.len()]; ways.len()];
    for _ in 0..TURNS {
        for ((_, way), best) in ways.iter().zip(&mut best) {
            best.iter_mut().zip(way()?).for_each(|(best, time)| *best = best.min(time));
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("One way: half a round trip, us, and its ratio to Open MPI's TCP. Load {}", load.trim());
    for (index, (size, _)) in SIZES.iter().enumerate() {
        for ((name, _), times) in ways.iter().zip(&best) {
            println!("{name:<22} {size:>9} {:>12.2} {:>8.2}", times[index] / 2.0, times[index] / best[1][index]);
        }
    }
    Ok(())
}

fn measure(rounds: usize, mut act: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        act()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn tcp() -> Outcome<Vec<f64>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    let (mut other, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    let echo = thread::spawn(move || -> Outcome<()> {
        for (size, rounds) in SIZES {
            let mut bytes = vec![0; size];
            for _ in 0..rounds {
                other.read_exact(&mut bytes)?;
                other.write_all(&bytes)?;
            }
        }
        Ok(())
    });
    let mut times = Vec::new();
    for (size, rounds) in SIZES {
        let mut bytes = vec![1; size];
        times.push(measure(rounds, || {
            stream.write_all(&bytes)?;
            Ok(stream.read_exact(&mut bytes)?)
        })?);
    }
    echo.join().map_err(|_| "the echo ended")??;
    Ok(times)
}

/// What rank 0 of the program says: a median for each size.
fn medians(command: &mut Command) -> Outcome<Vec<f64>> {
    command.arg("roundtrip").env("OMPI_MCA_mpi_yield_when_idle", "1");
    for (size, rounds) in SIZES {
        command.args([size, rounds].map(|number| number.to_string()));
    }
    let root = ["", "_CONFIRM"].map(|end| (format!("OMPI_ALLOW_RUN_AS_ROOT{end}"), "1"));
    let output = command.envs(root).output()?;
    let said = String::from_utf8(output.stdout)?;
    let times: Vec<f64> = said.lines().filter_map(|line| line.split(' ').nth(3)?.parse().ok()).collect();
    if times.len() == SIZES.len() { Ok(times) } else { Err(String::from_utf8_lossy(&output.stderr).into()) }
}

fn mpirun(ways: &str, program: &Path) -> Outcome<Vec<f64>> {
    let mut command = Command::new("mpirun");
    medians(command.args(["--oversubscribe", "--mca", "btl", ways, "-n", "2"]).arg(program))
}

fn over(log: &str, layout: &str, program: &Path) -> Outcome<Vec<f64>> {
    let own = std::env::current_exe()?;
    let over: PathBuf = own.ancestors().nth(2).ok_or("a folder above deps")?.join("examples/over");
    medians(Command::new(over).args(["--log", log, layout]).arg(program))
}

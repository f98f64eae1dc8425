//! `cargo bench -p mpi-relay`: round trips between two ranks of two groups over two relays on this host, beside plain TCP
//! and Open MPI's TCP, in one run, as ratios.

use mpi_relay::{Client, Envelope};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

/// Sizes of a message, bytes, and round trips for each.
const SIZES: [(usize, usize); 3] = [(8, 2000), (64 << 10, 300), (1 << 20, 60)];

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let ways = [
        ("plain TCP", Some(tcp()?)),
        ("Open MPI, TCP", mpi()),
        ("relays, no log", Some(relays("none")?)),
        ("relays, log in memory", Some(relays("memory")?)),
        ("relays, log on disk", Some(relays("disk")?)),
    ];
    println!("One way between two groups: half a round trip, median, us; and its ratio to plain TCP.");
    for (index, (size, _)) in SIZES.iter().enumerate() {
        for (way, times) in &ways {
            match (times, &ways[0].1) {
                (Some(times), Some(first)) => {
                    println!("{way:<22} {size:>9} {:>12.1} {:>8.2}", times[index] / 2.0, times[index] / first[index]);
                }
                _ => println!("{way:<22} {size:>9}       absent"),
            }
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

fn mpi() -> Option<Vec<f64>> {
    let folder = tempfile::tempdir().ok()?;
    let program = folder.path().join("mpi");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../mlog/benches/mpi.c");
    let built = Command::new("mpicc").arg("-O2").arg("-o").arg(&program).arg(source).status().ok()?;
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"]);
    command.args(["--mca", "btl", "tcp,self", "-n", "2"]).arg(program).arg("roundtrip");
    for (size, rounds) in SIZES {
        command.arg(size.to_string()).arg(rounds.to_string());
    }
    let said = String::from_utf8(command.output().ok().filter(|_| built.success())?.stdout).ok()?;
    let times: Vec<f64> = said.lines().filter_map(|l| l.split(' ').nth(3)?.parse().ok()).collect();
    (times.len() == SIZES.len()).then_some(times)
}

/// Relays that end with their folder.
struct Relays(tempfile::TempDir, Vec<Child>);

impl Drop for Relays {
    fn drop(&mut self) {
        for child in &mut self.1 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn relays(log: &str) -> Outcome<Vec<f64>> {
    let mut run = Relays(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?, Vec::new());
    for group in ["0", "1"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_joulepoint-mpi-relay"));
        command.args(["serve", "--group", group, "--groups", "2", "--ranks", "0/1", "--log", log]);
        command.arg("--run").arg(run.0.path()).args(["--listen", "127.0.0.1:0"]).env("JOULEPOINT_LOG", "off");
        run.1.push(command.spawn()?);
    }
    let socket = |rank: u32| run.0.path().join(format!("relays/{rank}.sock"));
    let next = |client: &Client| -> Outcome<Vec<u8>> {
        loop {
            if let Some((_, bytes)) = client.receive()? {
                return Ok(bytes);
            }
            client.wait(Duration::from_secs(10))?;
        }
    };
    thread::scope(|scope| {
        let echo = scope.spawn(|| -> Outcome<()> {
            let client = Client::connect(&socket(1), 1, 2)?;
            for _ in 0..SIZES.iter().map(|(_, rounds)| rounds).sum() {
                client.send(0, Envelope::default(), &next(&client)?)?;
            }
            Ok(client.finish()?)
        });
        let client = Client::connect(&socket(0), 0, 2)?;
        let mut times = Vec::new();
        for (size, rounds) in SIZES {
            let bytes = vec![1; size];
            times.push(measure(rounds, || {
                client.send(1, Envelope::default(), &bytes)?;
                next(&client).map(drop)
            })?);
        }
        client.finish()?;
        echo.join().map_err(|_| "the echo ended")??;
        Ok(times)
    })
}

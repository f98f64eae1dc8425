//! Mounts a file system that fails on demand: `faultfs --at /mnt/a --at /mnt/b --control /run/faultfs.sock`.
//!
//! Each line to the socket is a command, each answer a line, e.g. by `socat - /run/faultfs.sock`.

use anyhow::{Context, Result};
use clap::Parser;
use faultfs::{Command, FaultFs, Settings};
use nix::sys::signal::{SigSet, Signal};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// A network file system in memory that fails on demand.
#[derive(Parser)]
struct Args {
    /// Where to mount it; each further one is one more client of the same server.
    #[arg(long, required = true)]
    at: Vec<PathBuf>,
    /// Unix socket for commands: fault, clear, release, advance, crash, cut, renew, rot, capacity, counts.
    #[arg(long)]
    control: PathBuf,
    /// How long a client remembers names and attributes, s.
    #[arg(long, default_value_t = 60.0)]
    ttl: f64,
    /// Room on the server, bytes.
    #[arg(long, default_value_t = 4 << 30)]
    capacity: u64,
    /// Seed of all chances.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn main() -> Result<()> {
    let args = Args::parse();
    // All threads inherit it, so that only this one is told of the end.
    let ends = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    ends.thread_block()?;
    let fs = FaultFs::new(Settings {
        ttl: Duration::try_from_secs_f64(args.ttl)?,
        clock_runs: true,
        capacity_bytes: args.capacity,
        seed: args.seed,
        mode: 0o1777,
        ..Settings::default()
    });
    let mount = |at: &PathBuf| fs.mount(at).with_context(|| format!("{} cannot be mounted", at.display()));
    let mounted = args.at.iter().map(mount).collect::<Result<Vec<_>>>()?;
    match fs::remove_file(&args.control) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(e).context(args.control.display().to_string()),
        _ => {}
    }
    let socket = UnixListener::bind(&args.control).with_context(|| args.control.display().to_string())?;
    fs::set_permissions(&args.control, Permissions::from_mode(0o600))?;
    thread::spawn(move || {
        for stream in socket.incoming().flatten() {
            let fs = fs.clone();
            thread::spawn(move || serve(&fs, &stream));
        }
    });
    println!("mounted");
    ends.wait()?;
    drop(mounted);
    let _ = fs::remove_file(&args.control);
    Ok(())
}

fn serve(fs: &FaultFs, mut stream: &UnixStream) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let answer = match line.parse::<Command>() {
            Ok(command) => fs.obey(&command).unwrap_or_else(|e| format!("error: {e}")),
            Err(e) => format!("error: {e}"),
        };
        if writeln!(stream, "{answer}").is_err() {
            return;
        }
    }
}

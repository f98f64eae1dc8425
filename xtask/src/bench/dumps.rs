//! Dumps of a program with 1 GiB of memory by the engine criu, beside a raw write of as much.

use super::{quantile, row};
use anyhow::{Context, Result, bail};
use criu::client::{self, Ask};
use increments::Increments;
use protocol::Manifest;
use run::Checkpoints;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use suite::{built, repository};

/// Memory of the program, MiB.
const MEMORY_MIB: u64 = 1024;

/// Share of it that changes all the time, percent.
const CHANGING: u32 = 5;

/// Dumps that are made.
const DUMPS: usize = 3;

/// Longest time of the program's start, and of one dump.
const LIMIT: Duration = Duration::from_secs(300);

/// Exit code of `packaging/criu.sh` where there is nothing to fetch from.
const SKIPPED: i32 = 77;

/// Dumps a running program again and again.
pub fn run() -> Result<()> {
    let tool = built()?.join("criu");
    let fetched = Command::new("sh").arg(repository().join("packaging/criu.sh")).arg(&tool).output()?;
    if fetched.status.code() == Some(SKIPPED) {
        println!("dumps by CRIU: skipped: {}", String::from_utf8_lossy(&fetched.stderr).trim());
        return Ok(());
    }
    let dir = tempfile::tempdir_in(std::env::current_dir()?)?;
    let dir = dir.path();
    let program = dir.join("memory");
    let source = repository().join("apps/transparent/memory.c");
    if !Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(source).status()?.success() {
        bail!("apps/transparent/memory.c does not compile");
    }
    let mut warden = Command::new(built()?.join("joulepoint"))
        .args(["warden", "--criu"])
        .arg(tool.join("criu"))
        .arg("--run")
        .arg(dir)
        .arg("--")
        .arg(&program)
        .args([MEMORY_MIB.to_string(), "1000000000".to_string(), CHANGING.to_string()])
        .stdin(Stdio::null())
        .stdout(fs::File::create(dir.join("out"))?)
        .spawn()
        .context("cargo build first")?;
    let outcome = measure(dir);
    warden.kill()?;
    warden.wait()?;
    outcome
}

/// What one way of dumping takes.
#[derive(Default)]
struct Times {
    whole_s: Vec<f64>,
    frozen_s: Vec<f64>,
    bytes: u64,
}

/// A way to dump.
struct Way {
    name: &'static str,
    /// Share of the free memory.
    memory_share: f64,
    compress: bool,
    /// Whether its large files are stored as blocks.
    blocks: bool,
    /// Whether it may leave out the blocks of the checkpoint before the last.
    upon: bool,
}

const WHOLE: Way = Way { name: "by way of memory", memory_share: 0.5, compress: false, blocks: false, upon: false };

const WAYS: [Way; 5] = [
    WHOLE,
    Way { name: "by way of memory, zstd", compress: true, ..WHOLE },
    Way { name: "straight to disk", memory_share: 0.0, ..WHOLE },
    Way { name: "in blocks, all new", blocks: true, ..WHOLE },
    Way { name: "in blocks, 5 % new", blocks: true, upon: true, ..WHOLE },
];

fn measure(dir: &Path) -> Result<()> {
    let limit = Instant::now() + LIMIT;
    while fs::metadata(dir.join("out"))?.len() == 0 {
        if Instant::now() > limit {
            bail!("the program has not filled its memory");
        }
        thread::sleep(Duration::from_millis(100));
    }
    let speed = |s: f64| format!("{:.0} MB/s", (MEMORY_MIB << 20) as f64 / s / 1e6);
    for disk in ["idle", "busy"] {
        let busy = AtomicBool::new(disk == "busy");
        let (mut raw, ways) = thread::scope(|scope| {
            scope.spawn(|| {
                let mut written = Ok(0.0);
                while busy.load(Ordering::SeqCst) && written.is_ok() {
                    written = raw_write(&dir.join("busy"));
                }
                written
            });
            let measured = rounds(dir);
            busy.store(false, Ordering::SeqCst);
            measured
        })?;
        let raw_s = quantile(&mut raw, 0.5);
        row(&format!("{disk} disk: raw write of 1 GiB, synced"), &speed(raw_s), "1.00", "");
        for (Way { name, .. }, mut times) in WAYS.into_iter().zip(ways) {
            let (whole_s, frozen_s) = (quantile(&mut times.whole_s, 0.5), quantile(&mut times.frozen_s, 0.5));
            let target = if (disk, name) == ("idle", WAYS[0].name) { ">= 0.90 of raw" } else { "" };
            row(&format!("{disk} disk: dumped {name}"), &speed(whole_s), &format!("{:.2}", raw_s / whole_s), target);
            row("  the program stands still", &format!("{frozen_s:.2} s"), "", "");
            row("  written", &format!("{} MB", times.bytes / 1_000_000), "", "");
        }
    }
    Ok(())
}

/// Raw writes and dumps in turn, so that noise hits all alike.
fn rounds(dir: &Path) -> Result<(Vec<f64>, [Times; 5])> {
    let mut stored = Vec::new();
    for number in 0..WAYS.len() {
        let folder = dir.join(number.to_string());
        fs::create_dir(&folder)?;
        stored.push(Checkpoints::open(folder, 2)?);
    }
    for (way, stored) in WAYS.iter().zip(&stored).filter(|(way, _)| way.upon) {
        (0..2).try_for_each(|_| dump(dir, way, stored, &mut Times::default()))?;
    }
    let (mut raw, mut ways) = (Vec::new(), <[Times; 5]>::default());
    for _ in 0..DUMPS {
        raw.push(raw_write(&dir.join("raw"))?);
        for ((times, way), stored) in ways.iter_mut().zip(&WAYS).zip(&stored) {
            dump(dir, way, stored, times)?;
        }
    }
    (0..WAYS.len()).try_for_each(|number| fs::remove_dir_all(dir.join(number.to_string())))?;
    Ok((raw, ways))
}

/// Makes a checkpoint; its time until all of it is on disk with its checksums.
fn dump(dir: &Path, way: &Way, stored: &Checkpoints, times: &mut Times) -> Result<()> {
    let (number, folder) = stored.room()?;
    let start = Instant::now();
    let earlier = stored.earlier();
    let base = earlier.base().filter(|_| way.upon).map(Path::to_path_buf);
    let ask = Ask {
        folder: folder.clone(),
        limit_s: LIMIT.as_secs_f64(),
        memory_share: way.memory_share,
        compress: way.compress,
        increments: way.blocks.then_some(Increments { base }),
        overwritten_bytes: 0,
        keeps_leftovers: true,
        tells_going_on: false,
    };
    times.frozen_s.push(client::dump(dir, &ask, || true, || {}).map_err(anyhow::Error::msg)?);
    let files = run::survey_new(&folder, &earlier)?;
    times.whole_s.push(start.elapsed().as_secs_f64());
    let manifest = Manifest { version: protocol::VERSION, number, files, ..Manifest::default() };
    times.bytes = manifest.written_bytes();
    stored.commit(&manifest)?;
    stored.settle(number)?;
    Ok(())
}

fn raw_write(path: &Path) -> Result<f64> {
    let block: Vec<u8> = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let start = Instant::now();
    let mut file = fs::File::create(path)?;
    for _ in 0..MEMORY_MIB {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    let seconds = start.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(seconds)
}

//! Dumps of a program with 1 GiB of memory by the engine criu, beside a raw write of as much.

use super::{quantile, row};
use anyhow::{Context, Result, bail};
use criu::client::{self, Ask};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use suite::{built, repository};

/// Memory of the program, MiB.
const MEMORY_MIB: u64 = 1024;

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
        .args([MEMORY_MIB.to_string(), "1000000000".to_string()])
        .stdin(Stdio::null())
        .stdout(fs::File::create(dir.join("out"))?)
        .spawn()
        .context("cargo build first")?;
    let outcome = measure(dir);
    warden.kill()?;
    warden.wait()?;
    outcome
}

fn measure(dir: &Path) -> Result<()> {
    let limit = Instant::now() + LIMIT;
    while fs::metadata(dir.join("out"))?.len() == 0 {
        if Instant::now() > limit {
            bail!("the program has not filled its memory");
        }
        thread::sleep(Duration::from_millis(100));
    }
    let (mut raw, mut whole, mut frozen) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..DUMPS {
        raw.push(raw_write(&dir.join("raw"))?);
        let folder = dir.join(i.to_string());
        fs::create_dir(&folder)?;
        let start = Instant::now();
        let ask = Ask { folder: folder.clone(), limit_s: LIMIT.as_secs_f64() };
        frozen.push(client::dump(dir, &ask, || true).map_err(anyhow::Error::msg)?);
        wrapper::checkpoints::survey(&folder).map_err(anyhow::Error::msg)?;
        whole.push(start.elapsed().as_secs_f64());
        fs::remove_dir_all(&folder)?;
    }
    let [raw, whole, frozen] = [&mut raw, &mut whole, &mut frozen].map(|values| quantile(values, 0.5));
    let speed = |s: f64| format!("{:.0} MB/s", (MEMORY_MIB << 20) as f64 / s / 1e6);
    row("raw write of 1 GiB, synced", &speed(raw), "1.00", "");
    row(
        "engine criu: 1 GiB dumped, checksummed, synced",
        &speed(whole),
        &format!("{:.2}", raw / whole),
        ">= 0.90 of raw",
    );
    row("the program stands still for such a dump", &format!("{frozen:.2} s"), "", "");
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

//! One process of a job of `make accuracy`: keeps its state in memory, and writes it when it is asked by SIGUSR1.

use anyhow::{Context, Result, anyhow};
use nix::sys::signal::{SigSet, Signal};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Waits for so long, and writes `bytes` to a file in `folder` whenever it is asked.
pub fn run(folder: &Path, bytes: usize, time: Duration) -> Result<()> {
    let mut asked = SigSet::empty();
    asked.add(Signal::SIGUSR1);
    // Before there is another thread: a request that comes early waits.
    asked.thread_block()?;
    let rank = std::env::var("SLURM_PROCID").context("SLURM_PROCID is not set: this runs under srun")?;
    let (file, beside) = (folder.join(format!("state.{rank}")), folder.join(format!("state.{rank}.new")));
    let content = content(bytes, rank.parse()?);
    let writing = Arc::new(Mutex::new(()));
    let at_work = writing.clone();
    thread::spawn(move || -> Result<()> {
        loop {
            asked.wait()?;
            let _one = at_work.lock().map_err(|_| anyhow!("a write failed"))?;
            fs::write(&beside, &content)?;
            fs::rename(&beside, &file)?;
        }
    });
    thread::sleep(time);
    // A write that has begun comes to its end.
    let _last = writing.lock().map_err(|_| anyhow!("a write failed"))?;
    Ok(())
}

/// Bytes that no file system makes smaller, others in each process.
fn content(bytes: usize, rank: u64) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64 ^ rank;
    let words = std::iter::repeat_with(|| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    });
    words.flatten().take(bytes).collect()
}

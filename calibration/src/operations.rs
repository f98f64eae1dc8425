//! The operations themselves, as a job does them; checkpoints by the very code of the wrapper.

use crate::asked;
use crate::orders::Order;
use anyhow::{Context, Result, bail};
use driver::ports::{Clock, Engine, Happening};
use engines::app::{Announced, App, Ask, Files};
use host::mail::{MailClock, now_s, queue};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use protocol::{Manifest, ManifestFile, Operation};
use run::{Checkpoints, Patience, bring_back, take};
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Steps of arithmetic in one slice of compute.
const SLICE: u32 = 2_000_000;

/// Slices of one compute.
const SLICES: u32 = 4;

/// Bytes that one repetition of logging moves at least, and messages it has at most.
const LOGGED_BYTES: f64 = (8 << 20) as f64;
const MOST_MESSAGES: f64 = 4096.0;

/// Checkpoints that a run keeps unless it says otherwise.
const KEPT: u32 = 2;

/// Time between two looks whether the signal has come.
const HEARING: Duration = Duration::from_micros(200);

/// A signal that has not come by then is lost.
const LOST: Duration = Duration::from_secs(1);

/// Longest wait for one checkpoint, s.
const CHECKPOINT_LIMIT_S: f64 = 600.0;

/// Sends a signal to the job's steps, as a wrapper asks programs for a checkpoint.
pub type Signal = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Something that can be done again and again.
pub trait Repeat {
    /// Does it; its duration, s.
    ///
    /// # Errors
    /// What the file system says.
    fn once(&mut self) -> Result<f64>;

    /// What belongs between two times, and to none of them.
    ///
    /// # Errors
    /// What the file system says.
    fn between(&mut self) -> Result<()> {
        Ok(())
    }
}

impl<F: FnMut() -> Result<f64>> Repeat for F {
    fn once(&mut self) -> Result<f64> {
        self()
    }
}

/// One of them, whichever it is.
pub type Repeatable = Box<dyn Repeat>;

/// Makes an order's operation ready in `folder`, which is on its storage target; `signal` is sent with each checkpoint.
///
/// # Errors
/// What the file system says; an operation of MPI is refused.
pub fn prepare(order: &Order, folder: &Path, signal: &Signal) -> Result<Repeatable> {
    let p = order.processes.max(1);
    let share = (order.bytes / f64::from(p)).ceil() as usize;
    match order.operation {
        Some(Operation::Compute) => Ok(compute(p, order.intensity)),
        Some(Operation::CheckpointWrite) => write(folder, p, share, signal),
        Some(Operation::CheckpointRead) => read(folder, p, share),
        Some(Operation::LogMemory) => Ok(log_memory(p, share)),
        Some(Operation::LogDisk) => Ok(log_disk(folder, p, share)),
        other => bail!("{other:?} is not measured by one process"),
    }
}

/// Runs `f` in p threads at once; the time until the last has ended, s.
fn at_once(p: u32, f: impl Fn(u32) -> Result<()> + Sync) -> Result<f64> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let all: Vec<_> = (0..p)
            .map(|i| {
                scope.spawn({
                    let f = &f;
                    move || f(i)
                })
            })
            .collect();
        all.into_iter().try_for_each(|t| t.join().unwrap_or_else(|_| bail!("a thread panicked")))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn compute(p: u32, intensity: f64) -> Repeatable {
    Box::new(move || -> Result<f64> {
        at_once(p, |_| {
            for _ in 0..SLICES {
                let begun = Instant::now();
                let mut x = black_box(1.000_1_f64);
                for _ in 0..SLICE {
                    x = x.mul_add(0.999_999, 1e-6);
                }
                black_box(x);
                thread::sleep(begun.elapsed().mul_f64((1.0 / intensity.clamp(0.01, 1.0)) - 1.0));
            }
            Ok(())
        })
    })
}

/// A block that no file system makes smaller.
fn noise(bytes: usize) -> Vec<u8> {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(bytes + 8);
    while block.len() < bytes {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        block.extend_from_slice(&x.to_le_bytes());
    }
    block.truncate(bytes);
    block
}

/// The files of p processes, as the program would have written them just before.
fn originals(folder: &Path, p: u32, share: usize) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    let content = noise(share);
    let one = |i| {
        let path = folder.join(format!("state.{i}"));
        fs::write(&path, &content).with_context(|| path.display().to_string())?;
        Ok(path)
    };
    (0..p).map(one).collect()
}

fn commit(checkpoints: &Checkpoints, number: u64, files: Vec<ManifestFile>) -> Result<Manifest> {
    let manifest = Manifest {
        version: protocol::VERSION,
        number,
        begun_s: 0.0,
        ended_s: 0.0,
        joules: None,
        bytes: files.iter().map(|f| f.bytes).sum(),
        step: String::new(),
        engine: "app".into(),
        holder: None,
        files,
    };
    checkpoints.commit(&manifest)?;
    Ok(manifest)
}

/// As a run does it: p processes are asked and write their files, and the engine takes them when they are at rest.
fn write(folder: &Path, p: u32, share: usize, signal: &Signal) -> Result<Repeatable> {
    let originals = originals(&folder.join("originals"), p, share)?;
    let checkpoints = Checkpoints::open(folder.join("checkpoints"), KEPT)?;
    let (post, clock) = queue();
    let patterns = originals.iter().map(|path| path.display().to_string()).collect();
    let files = Files { folder: folder.to_path_buf(), patterns, ours: None };
    let ask = program(originals, share, signal.clone());
    let app = App::new(post, checkpoints.clone(), files, Some((0, ask)), Announced::default());
    Ok(Box::new(Writing { app, checkpoints, clock, made: None }))
}

/// A program, the engine that has it checkpoint, and the last checkpoint, until it is committed.
struct Writing {
    app: App,
    checkpoints: Checkpoints,
    clock: MailClock,
    made: Option<(u64, Vec<ManifestFile>)>,
}

impl Repeat for Writing {
    fn once(&mut self) -> Result<f64> {
        let (number, into) = self.checkpoints.room()?;
        let begun = Instant::now();
        self.app.begin(into);
        let until_s = now_s() + CHECKPOINT_LIMIT_S;
        let files = loop {
            match self.clock.wait(until_s) {
                Some(Happening::Checkpointed(saved)) => break saved.map_err(anyhow::Error::msg)?.files,
                // The program works while its files are copied, which are a part of what is measured.
                Some(Happening::GoesOn) => {}
                _ => bail!("no checkpoint within {CHECKPOINT_LIMIT_S} s"),
            }
        };
        self.made = Some((number, files));
        Ok(begun.elapsed().as_secs_f64())
    }

    fn between(&mut self) -> Result<()> {
        let Some((number, files)) = self.made.take() else { return Ok(()) };
        commit(&self.checkpoints, number, files).map(drop)
    }
}

/// A program that writes a file in each of its processes when the signal arrives, each under another name first. The sender
/// returns before or after; a signal that gets lost is not waited for long.
fn program(originals: Vec<PathBuf>, share: usize, signal: Signal) -> Ask {
    let content = Arc::new(noise(share));
    Arc::new(move |_| {
        let (before, begun) = (asked::count(), Instant::now());
        let (originals, content) = (originals.clone(), content.clone());
        thread::spawn(move || {
            while asked::count() == before && begun.elapsed() < LOST {
                thread::sleep(HEARING);
            }
            for original in originals {
                let content = content.clone();
                thread::spawn(move || {
                    let beside = PathBuf::from(format!("{}.new", original.display()));
                    fs::write(&beside, &*content).and_then(|()| fs::rename(&beside, &original))
                });
            }
        });
        signal()
    })
}

/// From the disk: what the kernel keeps of the checkpoint is dropped before each time.
fn read(folder: &Path, p: u32, share: usize) -> Result<Repeatable> {
    let originals = originals(&folder.join("originals"), p, share)?;
    let checkpoints = Checkpoints::open(folder.join("checkpoints"), 1)?;
    let (number, into) = checkpoints.room()?;
    let manifest = commit(&checkpoints, number, take(&originals, &into)?)?;
    let at = checkpoints.path(manifest.number);
    Ok(Box::new(move || -> Result<f64> {
        originals.iter().try_for_each(fs::remove_file)?;
        for file in &manifest.files {
            let copy = File::open(at.join(&file.copy))?;
            posix_fadvise(&copy, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
        let begun = Instant::now();
        let newest = checkpoints.newest()?.0.context("the checkpoint is damaged")?;
        bring_back(&newest, &at, Patience::SHORT)?;
        Ok(begun.elapsed().as_secs_f64())
    }))
}

fn messages(share: usize) -> u32 {
    (LOGGED_BYTES / share.max(1) as f64).clamp(4.0, MOST_MESSAGES) as u32
}

/// Copied into memory that is there already, as that of a log whose older messages are no longer needed.
fn log_memory(p: u32, share: usize) -> Repeatable {
    let (message, count) = (noise(share), messages(share));
    let room = (LOGGED_BYTES as usize).max(2 * share);
    let logs: Vec<Mutex<Vec<u8>>> = (0..p).map(|_| Mutex::new(noise(room))).collect();
    Box::new(move || -> Result<f64> {
        let time_s = at_once(p, |i| {
            let mut log = logs[i as usize].lock().unwrap_or_else(PoisonError::into_inner);
            let places = room / share.max(1);
            for n in 0..count as usize {
                let at = n % places * share;
                log[at..at + share].copy_from_slice(&message);
            }
            black_box(&log);
            Ok(())
        })?;
        Ok(time_s / f64::from(count))
    })
}

/// Written by one call for each message, synced once at the end.
fn log_disk(folder: &Path, p: u32, share: usize) -> Repeatable {
    let (message, count, folder) = (noise(share), messages(share), folder.to_path_buf());
    Box::new(move || -> Result<f64> {
        fs::create_dir_all(&folder)?;
        let time_s = at_once(p, |i| {
            let path = folder.join(format!("log.{i}"));
            let mut log = OpenOptions::new().create(true).write(true).truncate(false).open(&path)?;
            log.seek(SeekFrom::Start(0))?;
            (0..count).try_for_each(|_| log.write_all(&message))?;
            Ok(log.sync_data()?)
        })?;
        Ok(time_s / f64::from(count))
    })
}

/// Sleeps, so that the node is idle.
pub fn idle(time_s: f64) {
    thread::sleep(Duration::from_secs_f64(time_s));
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::Storage;
    use std::os::unix::fs::MetadataExt;

    fn silent() -> Signal {
        Arc::new(|| Ok(()))
    }

    #[test]
    fn every_operation_can_be_repeated_and_takes_time() {
        for operation in Operation::ALL {
            let dir = tempfile::tempdir().unwrap();
            let storage = Some(Storage::Local);
            let order = Order {
                operation: Some(operation),
                storage,
                nodes: 1,
                processes: 2,
                bytes: 300_001.0,
                intensity: 0.5,
                frequency_hz: None,
            };
            let prepared = prepare(&order, dir.path(), &silent());
            if order.is_mpi() {
                assert!(prepared.is_err());
                continue;
            }
            let mut again = prepared.unwrap();
            for _ in 0..3 {
                assert!(again.once().unwrap() > 0.0, "{operation:?}");
            }
        }
    }

    #[test]
    fn a_program_begins_when_the_signal_arrives_and_not_when_its_sender_has_returned() {
        asked::listen().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("originals/state.0");
        let signal: Signal = Arc::new(move || {
            let inode = || fs::metadata(&file).map(|m| m.ino()).map_err(|e| e.to_string());
            let before = inode()?;
            nix::sys::signal::kill(nix::unistd::Pid::this(), asked::SIGNAL).map_err(|e| e.to_string())?;
            let end = Instant::now() + Duration::from_secs(60);
            while inode()? == before {
                if Instant::now() > end {
                    return Err("nothing is written while the sender waits".to_string());
                }
                thread::sleep(HEARING);
            }
            Ok(())
        });
        assert!(write(dir.path(), 1, 1000, &signal).unwrap().once().unwrap() > 0.0);
    }

    #[test]
    fn a_calibrated_write_is_a_checkpoint_that_the_wrapper_accepts() {
        let dir = tempfile::tempdir().unwrap();
        let mut again = write(dir.path(), 3, 1000, &silent()).unwrap();
        again.once().unwrap();
        again.between().unwrap();
        let checkpoints = Checkpoints::open(dir.path().join("checkpoints"), 1).unwrap();
        let (newest, damaged) = checkpoints.newest().unwrap();
        assert_eq!((newest.map(|m| (m.files.len(), m.bytes)), damaged.len()), (Some((3, 3000)), 0));
    }
}

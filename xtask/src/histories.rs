//! Plays histories of the wrapper on a storage that fails and lies: the real driver and the real folder of a run, on two
//! mounts of `faultfs`, with holders that are killed, stopped and superseded between any two calls.
//!
//! Each history is a seed. What must hold: nothing complete is lost, nothing torn is taken for complete, no two holders'
//! work is mixed, every record that counted stays, and what comes back is byte for byte what the program had announced.

mod faults;
mod life;
mod oracle;
mod program;
mod storage;

use anyhow::{Result, bail};
use faultfs::{Cut, FaultFs, Mounted, Settings};
use life::{End, Life};
use oracle::Oracle;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use run::line::Claim;
use run::{Checkpoints, Patience, seal};
use std::collections::BTreeMap;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Lives of a run that faults may meet; those after them are kind, so that each history has an end.
const FAULTY: u32 = 8;

/// Lives in all.
const MOST_LIVES: u32 = 16;

/// How long a mount remembers names and attributes.
const TTL: Duration = Duration::from_secs(60);

/// How long it is waited for a life to meet the call at which it is to stop.
const HANG_LIMIT: Duration = Duration::from_secs(60);

/// Two mounts of one server.
struct Place {
    fs: FaultFs,
    mounts: [Mounted; 2],
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Result<Place> {
        let folder = tempfile::tempdir()?;
        let fs = FaultFs::new(Settings { ttl: TTL, ..Settings::default() });
        let mount = |name: &str| {
            let at = folder.path().join(name);
            fs::create_dir(&at)?;
            fs.mount(&at)
        };
        let mounts = [mount("a")?, mount("b")?];
        Ok(Place { fs, mounts, _folder: folder })
    }
}

/// What many histories were made of.
#[derive(Default)]
struct Sum {
    histories: u64,
    lives: u64,
    ends: BTreeMap<&'static str, u64>,
    checkpoints: u64,
    restored: u64,
    stopped: u64,
    faults: BTreeMap<String, u64>,
    calls: u64,
}

/// Plays histories, and tells of each that fails how to play it again.
///
/// # Errors
/// One has failed.
pub fn run(runs: u64, seed: u64, at_once: usize) -> Result<()> {
    let begun = Instant::now();
    let (sum, failed) = play_all(runs, seed, at_once)?;
    println!(
        "{} histories in {:.0} s: {} lives, {} checkpoints completed, {} brought back, {} holders stopped and superseded",
        sum.histories,
        begun.elapsed().as_secs_f64(),
        sum.lives,
        sum.checkpoints,
        sum.restored,
        sum.stopped
    );
    println!("ends of lives: {:?}\ncalls {}, faults: {:?}", sum.ends, sum.calls, sum.faults);
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} histories have failed: {failed:?}", failed.len())
}

fn play_all(runs: u64, seed: u64, at_once: usize) -> Result<(Sum, Vec<u64>)> {
    let (next, sum, failed) = (AtomicU64::new(seed), Mutex::new(Sum::default()), Mutex::new(Vec::new()));
    let places = (0..at_once).map(|_| Place::new()).collect::<Result<Vec<_>>>()?;
    thread::scope(|scope| {
        for place in &places {
            scope.spawn(|| {
                loop {
                    let seed_now = next.fetch_add(1, Ordering::SeqCst);
                    if seed_now >= seed + runs {
                        break;
                    }
                    let (log, played) = play(place, seed_now);
                    let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    match played {
                        Ok(counts) => sum.add(counts),
                        Err(reason) => {
                            eprintln!("history {seed_now} has failed: {reason}\n  {}", log.join("\n  "));
                            eprintln!(
                                "  again: cargo run --release -p xtask -- storage-histories --runs 1 --seed {seed_now}"
                            );
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(seed_now);
                        }
                    }
                    sum.histories += 1;
                    if sum.histories.is_multiple_of(500) {
                        eprintln!("{} of {runs}", sum.histories);
                    }
                }
            });
        }
    });
    let mut sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (counts, calls) in places.iter().map(|place| place.fs.counts()) {
        sum.calls += calls;
        counts.into_iter().for_each(|(kind, count)| *sum.faults.entry(kind).or_default() += count);
    }
    Ok((sum, failed.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

impl Sum {
    fn add(&mut self, other: Sum) {
        self.lives += other.lives;
        self.checkpoints += other.checkpoints;
        self.restored += other.restored;
        self.stopped += other.stopped;
        other.ends.into_iter().for_each(|(end, count)| *self.ends.entry(end).or_default() += count);
    }
}

/// Plays one history; what has happened in it, and what was wrong.
fn play(place: &Place, seed: u64) -> (Vec<String>, Result<Sum, String>) {
    let mut history = History::new(place, seed);
    let played = catch_unwind(AssertUnwindSafe(|| history.play()));
    place.fs.begin_anew(seed);
    for mount in &place.mounts {
        let _ = place.fs.renew(mount.number());
    }
    let _ = fs::remove_dir_all(place.mounts[0].path().join(&history.name));
    let played = played.unwrap_or_else(|cause| Err(life::words(cause.as_ref())));
    let oracle = history.oracle.lock();
    let (checkpoints, restored) = (oracle.committed(), oracle.restored());
    let log = [std::mem::take(&mut history.log), oracle.log()].concat();
    (log, played.map(|()| Sum { checkpoints, restored, ..history.sum }))
}

struct History<'a> {
    place: &'a Place,
    seed: u64,
    name: String,
    rng: ChaCha8Rng,
    oracle: Arc<Oracle>,
    shape: life::Shape,
    log: Vec<String>,
    sum: Sum,
}

impl History<'_> {
    fn new(place: &Place, seed: u64) -> History<'_> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let shape = life::Shape::some(&mut rng);
        let oracle = Arc::new(Oracle::new(shape.keep));
        History {
            place,
            seed,
            name: format!("history{seed}"),
            rng,
            oracle,
            shape,
            log: Vec::new(),
            sum: Sum::default(),
        }
    }

    /// Plays lives of the run until its program has ended.
    fn play(&mut self) -> Result<(), String> {
        let fs = &self.place.fs;
        fs.begin_anew(self.seed);
        fs.advance(2 * TTL);
        fs::create_dir(self.place.mounts[0].path().join(&self.name)).map_err(|e| e.to_string())?;
        for number in 0..MOST_LIVES {
            let mount = self.rng.random_range(0..2);
            let is_kind = number >= FAULTY;
            let life = self.life(number, mount, is_kind);
            let end = if !is_kind && self.rng.random_bool(0.45) {
                self.play_stopped(life, number, mount)?
            } else {
                let end = self.play_one(life)?;
                self.after(number, mount, end);
                end
            };
            if end == End::Finished {
                return self.check_end(mount);
            }
            self.between(is_kind);
        }
        Err("the run has not ended".to_string())
    }

    fn life(&mut self, number: u32, mount: usize, is_kind: bool) -> Life {
        let mut rules = Vec::new();
        if !is_kind {
            rules = faults::some(&mut self.rng, mount, &self.name);
            rules.iter().for_each(|rule| self.place.fs.add(rule.clone()));
        }
        self.log.push(format!("life {number} on mount {mount}, rules: {}", faults::words(&rules)));
        self.life_of(number, mount, is_kind)
    }

    /// A life of the run on a mount, with a seed of its own.
    fn life_of(&mut self, number: u32, mount: usize, is_kind: bool) -> Life {
        let root = self.place.mounts[mount].path().join(&self.name);
        Life {
            fs: self.place.fs.clone(),
            mount,
            run: root.join("run"),
            work: root.join(format!("work{number}")),
            claim: Claim { job: Some(1), restart_count: number, ..Claim::default() },
            shape: self.shape.clone(),
            is_kind,
            seed: self.rng.random(),
            releases_at: None,
            oracle: self.oracle.clone(),
        }
    }

    fn play_one(&mut self, life: Life) -> Result<End, String> {
        thread::scope(|scope| scope.spawn(|| life.play()).join()).map_err(|cause| life::words(cause.as_ref()))?
    }

    fn after(&mut self, number: u32, mount: usize, end: End) {
        self.log.push(format!("life {number}: {end:?}"));
        self.sum.lives += 1;
        *self.sum.ends.entry(end.name()).or_default() += 1;
        self.place.fs.begin_anew(self.rng.random());
        // Its mount outlives a process.
        let _ = self.place.fs.renew(mount);
    }

    /// A life is stopped at one of its calls; another takes the run up and works; then the first goes on.
    fn play_stopped(&mut self, first: Life, number: u32, mount: usize) -> Result<End, String> {
        let fs = self.place.fs.clone();
        fs.add(faults::stop(&mut self.rng, mount, &self.name));
        let other = 1 - mount;
        thread::scope(|scope| {
            let first = scope.spawn(|| first.play());
            let joined = |first: thread::ScopedJoinHandle<'_, Result<End, String>>| {
                first.join().map_err(|cause| life::words(cause.as_ref()))?
            };
            let begun = Instant::now();
            while !first.is_finished() && !fs.wait_for_hang(Duration::from_millis(5)) {
                if begun.elapsed() > HANG_LIMIT {
                    return Err("a life neither ends nor meets its stop".to_string());
                }
            }
            if first.is_finished() {
                let end = joined(first)?;
                self.after(number, mount, end);
                return Ok(end);
            }
            // Rules of the first do not hold for the second, but may for what is left of the first.
            let mut second = self.life_of(number, other, false);
            let is_early = self.rng.random_bool(0.5);
            self.log.push(format!("life {number} is stopped; another takes the run up on mount {other}"));
            self.sum.stopped += 1;
            second.is_later(u32::from(self.rng.random_bool(0.5)));
            if is_early {
                second.releases_at = Some(self.rng.random_range(1..200));
            } else if self.rng.random_bool(0.5) {
                fs.add(faults::end(&mut self.rng, other, &self.name));
            }
            let second = scope.spawn(|| second.play());
            let end = joined(second);
            fs.release_hung();
            let stale = joined(first);
            let (end, stale) = (end?, stale?);
            self.after(number, other, end);
            self.after(number, mount, stale);
            // A life that had got nowhere when it was stopped may be the one that follows.
            Ok(if stale == End::Finished { stale } else { end })
        })
    }

    /// Whatever a crash has left, all that counted is there.
    fn check_end(&mut self, mount: usize) -> Result<(), String> {
        let fs = &self.place.fs;
        fs.crash();
        fs.advance(TTL);
        let run = self.place.mounts[1 - mount].path().join(&self.name).join("run");
        let taken = run::take_up(&run, &Claim::default(), Patience::NONE).map_err(|e| e.to_string())?;
        let number = taken.holder.number().unwrap_or(0);
        let owners = Arc::new(taken.history.owners.clone());
        let mut known = self.oracle.lock();
        known.taken_up(number, &taken.history);
        let folder = run.join(seal::CHECKPOINTS);
        let newest = Checkpoints::of_run(folder, self.shape.keep, taken.holder, owners, Patience::NONE)
            .and_then(|checkpoints| checkpoints.newest());
        let (line, notes) = newest.map_err(|e| e.to_string())?;
        known.goes_on_from(number, line.as_ref(), &notes);
        Ok(())
    }

    /// What happens while nobody has the run.
    fn between(&mut self, is_kind: bool) {
        let fs = &self.place.fs;
        if self.rng.random_bool(0.5) {
            fs.advance(TTL);
        }
        if is_kind {
            return;
        }
        if self.rng.random_bool(0.2) {
            self.log.push("the server crashes".to_string());
            fs.crash();
        }
        if self.rng.random_bool(0.1) {
            let root = std::path::Path::new("/").join(&self.name);
            self.log.extend(self.oracle.rot(fs, &root, self.rng.random()));
        }
        // A node that has booted remembers nothing.
        if self.rng.random_bool(0.3) {
            let mount = self.rng.random_range(0..2);
            let _ = fs.cut(mount, Cut::Node);
            let _ = fs.renew(mount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_histories_have_found_stays_mended() {
        // A stale holder moved newer checkpoints away; two holders had one number, thrice.
        for seed in [4, 448, 872, 955] {
            assert!(play_all(1, seed, 1).unwrap().1.is_empty(), "{seed}");
        }
    }

    #[test]
    fn histories_on_a_storage_that_fails_lose_nothing_and_mix_nothing() {
        let (sum, failed) = play_all(100, 1, 4).unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(sum.stopped > 20 && sum.restored > 30 && sum.checkpoints > 200, "they are histories of something");
        for kind in ["EIO", "ESTALE", "ENOSPC", "process", "node", "hang", "crash", "short"] {
            assert!(sum.faults.contains_key(kind), "{kind} has not happened");
        }
    }
}

//! Plays power losses and partitions on a real cluster, one after the other, and says how long they took.

use anyhow::{Result, ensure};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};
use suite::partitions::{TROUBLES, Trouble, play};
use suite::{Site, Wanted};

/// How long Slurm itself leaves silent nodes alone, s: what is to be seen is what we do.
const SLURMD_TIMEOUT_S: u32 = 900;

/// How long a trouble lasts, s.
const LASTS_S: std::ops::Range<u64> = 12..40;

fn wanted() -> Wanted {
    Wanted { slurmd_timeout_s: SLURMD_TIMEOUT_S, ..Wanted::default() }
}

/// Plays `power` losses of power and `cuts` of all other kinds in turn.
///
/// # Errors
/// What did not hold in one of them.
pub fn run(power: u32, cuts: u32, seed: u64) -> Result<()> {
    let (losses, others): (Vec<Trouble>, Vec<Trouble>) = TROUBLES.into_iter().partition(|t| t.is_power_loss());
    let all = losses.iter().cycle().take(power as usize).chain(others.iter().cycle().take(cuts as usize));
    let dir = tempfile::tempdir()?;
    let mut site = Site::start(&dir.path().join("0"), &wanted(), &mut |text| println!("  {text}"))?;
    let (mut held, mut failed) = (Vec::new(), 0);
    for (number, trouble) in all.enumerate() {
        let mut rng = ChaCha8Rng::seed_from_u64(seed + number as u64);
        let (begun, lasts) = (Instant::now(), Duration::from_secs(rng.random_range(LASTS_S)));
        match play(&mut site, *trouble, lasts, &mut rng) {
            Ok(history) => {
                println!("{:3} {:>4.0} s  {history}", number + 1, begun.elapsed().as_secs_f64());
                held.push(history);
            }
            Err(e) => {
                failed += 1;
                println!("{:3} {trouble:?}, seed {}: {e:#}", number + 1, seed + number as u64);
                drop(site);
                let dir = dir.path().join((number + 1).to_string());
                site = Site::start(&dir, &wanted(), &mut |_| ())?;
            }
        }
    }
    tell("noticed after", held.iter().filter_map(|h| h.detected_s).collect());
    tell("worked again after", held.iter().filter(|h| h.trouble.is_power_loss()).filter_map(|h| h.resumed_s).collect());
    let lost = held.iter().filter(|h| h.trouble.is_power_loss()).count();
    println!("{lost} losses of power and {} partitions held all that must hold, {failed} did not", held.len() - lost);
    ensure!(failed == 0, "{failed} histories did not hold");
    Ok(())
}

/// What no job may notice, each for so long and under load: slurmds that are restarted, slurmds that are away, a controller that
/// is cut off, and a switch that reboots, which takes a minute.
///
/// # Errors
/// What was ended or begun again.
pub fn run_standstill(minutes: f64) -> Result<()> {
    let lasts = Duration::from_secs_f64(60.0 * minutes);
    let dir = tempfile::tempdir()?;
    let mut site = Site::start(&dir.path().join("0"), &wanted(), &mut |text| println!("  {text}"))?;
    let jobs = suite::partitions::load(&site)?;
    let minute = Duration::from_secs(60);
    let troubles = [
        (Trouble::SlurmdsRestart, lasts.min(minute)),
        (Trouble::Switch, lasts.min(minute)),
        (Trouble::Slurmds, lasts),
        (Trouble::ControllerCut, lasts),
    ];
    for (trouble, lasts) in troubles {
        let history = play(&mut site, trouble, lasts, &mut ChaCha8Rng::seed_from_u64(lasts.as_secs()))?;
        suite::partitions::untouched(&site, &jobs)?;
        println!("{history}, {} s; {} other jobs untouched", lasts.as_secs(), jobs.len());
    }
    Ok(())
}

/// Median, 99 % and worst of some times, s.
fn tell(what: &str, mut times_s: Vec<f64>) {
    times_s.sort_by(f64::total_cmp);
    let at = |share: f64| times_s[((times_s.len() - 1) as f64 * share).ceil() as usize];
    if let Some(worst) = times_s.last() {
        println!("{what}: median {:.1} s, 99 % {:.1} s, worst {worst:.1} s of {}", at(0.5), at(0.99), times_s.len());
    }
}

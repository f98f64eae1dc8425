//! Plays histories of random faults on real clusters, and prints seed and history of each that does not come out right.

use anyhow::{Result, ensure};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use suite::chaos::history::{History, draw};
use suite::chaos::table::Table;
use suite::chaos::{Lab, Outcome};

/// What to play.
pub struct Campaign {
    /// Number of histories.
    pub runs: u64,
    /// Seed of the first; the others follow it.
    pub seed: u64,
    /// Clusters side by side.
    pub at_once: NonZeroUsize,
    /// No history begins after so long.
    pub limit: Option<Duration>,
    /// Only this kind of fault.
    pub only: Option<String>,
}

/// What came of all so far.
#[derive(Default)]
struct Sum {
    table: Table,
    played: usize,
    well: usize,
    right: usize,
    honest: usize,
    bad: Vec<u64>,
}

/// Plays them all.
///
/// # Errors
/// One of them did not come out right.
pub fn run(campaign: &Campaign) -> Result<()> {
    let (next, sum, begun) = (AtomicU64::new(0), Mutex::new(Sum::default()), Instant::now());
    let clusters = std::thread::scope(|scope| {
        let (next, sum) = (&next, &sum);
        let one = |cluster| scope.spawn(move || one_after_the_other(campaign, cluster, next, sum, begun));
        let all: Vec<_> = (0..campaign.at_once.get()).map(one).collect();
        all.into_iter().map(|cluster| cluster.join()).collect::<Vec<_>>()
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\n{}", sum.table.markdown());
    println!(
        "seeds from {}: {} of {} histories held all that must hold; {} jobs ended right, {} honestly otherwise; {:.0} s",
        campaign.seed,
        sum.well,
        sum.played,
        sum.right,
        sum.honest,
        begun.elapsed().as_secs_f64()
    );
    for cluster in clusters {
        cluster.map_err(|_| anyhow::anyhow!("the harness panicked"))??;
    }
    ensure!(sum.bad.is_empty(), "not right: seeds {:?}", sum.bad);
    Ok(())
}

/// Plays histories on one cluster until none is left; after one that fails, or in which Slurm lost jobs, on a new one.
fn one_after_the_other(
    campaign: &Campaign,
    cluster: usize,
    next: &AtomicU64,
    sum: &Mutex<Sum>,
    begun: Instant,
) -> Result<()> {
    let mut lab: Option<Lab> = None;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= campaign.runs || campaign.limit.is_some_and(|limit| begun.elapsed() > limit) {
            return lab.map_or(Ok(()), Lab::remove);
        }
        let mut playing = match lab.take() {
            Some(lab) => lab,
            None => Lab::start(&folder(cluster, number), campaign.seed + number, &mut |_| {})?,
        };
        let history = draw(campaign.seed + number, campaign.only.as_deref());
        let outcome = playing.play(&history);
        tell(&playing, &history, &outcome);
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(&history, &outcome);
        // One that failed stays as it is, to be looked at.
        match outcome.wrong.is_empty() {
            true if playing.is_forgetful => playing.remove()?,
            true => lab = Some(playing),
            false => {}
        }
    }
}

fn folder(cluster: usize, number: u64) -> PathBuf {
    PathBuf::from(format!("/tmp/joulepoint-chaos-{}-{cluster}-{number}", std::process::id()))
}

fn tell(lab: &Lab, history: &History, outcome: &Outcome) {
    let runs: Vec<String> = history.runs.iter().map(|(program, _)| format!("{program:?}")).collect();
    let blows: Vec<String> = history.blows.iter().map(|blow| blow.fault.to_string()).collect();
    let (runs, blows) = (runs.join(", "), blows.join("; "));
    let verdict = if outcome.wrong.is_empty() { "right" } else { "NOT RIGHT" };
    let mut text = format!("seed {}: {verdict} in {:.0} s: {runs}: {blows}\n", history.seed, outcome.lasted_s);
    if !outcome.wrong.is_empty() {
        text += &outcome.told;
        outcome.wrong.iter().for_each(|wrong| text += &format!("  WRONG: {wrong}\n"));
        text += &format!(
            "  kept in {}; again: --seed {} --runs 1\n",
            lab.site.conf.with_file_name("").display(),
            history.seed
        );
    }
    print!("{text}");
}

impl Sum {
    fn add(&mut self, history: &History, outcome: &Outcome) {
        self.played += 1;
        self.right += outcome.right;
        self.honest += outcome.honest;
        for (fault, ends) in &outcome.hits {
            self.table.add(&fault.to_string(), history.seed, ends.iter());
        }
        match outcome.wrong.is_empty() {
            true => self.well += 1,
            false => self.bad.push(history.seed),
        }
    }
}

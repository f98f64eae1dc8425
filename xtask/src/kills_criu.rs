//! Programs of four kinds below Slurm under the engine criu, whose nodes are killed at random moments, and what became
//! of their output.

use anyhow::{Result, anyhow, ensure};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use suite::transparent::{self, LARGE, STATE, THREADS, TREE, Way};

/// Two nodes more than jobs: those that died come back one by one.
const NODES: u32 = 6;

/// Longest time of one run of all programs.
const LIMIT: Duration = Duration::from_secs(1500);

/// What became of one program.
#[derive(Default)]
struct Row {
    runs: usize,
    same: usize,
    kills: u32,
    checkpoints: u64,
    requeues: u32,
}

/// Runs each program so often, by turns as a batch script and by srun, kills its node so often in each run, and prints
/// what became of each.
pub fn run(runs: usize, kills: u32, seed: u64) -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-kills-{}", std::process::id()));
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let begun = Instant::now();
    let mut say = |text: &str| println!("[{:5.0} s] {text}", begun.elapsed().as_secs_f64());
    let site = transparent::site(&dir, NODES, &mut say)?;
    let mut site = site.map_err(|reason| anyhow!("no CRIU: {reason}"))?;
    let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
    for run in 0..runs {
        let ways = [Way::Batch, Way::Srun].into_iter().cycle().skip(run + seed as usize % 2);
        let programs: Vec<_> = [THREADS, TREE, STATE, LARGE].into_iter().zip(ways).collect();
        for mut played in transparent::play(&mut site, &mut rng, &programs, kills, LIMIT, &mut say)? {
            let row = rows.entry(played.program.name).or_default();
            row.runs += 1;
            row.kills += played.kills;
            row.requeues += played.requeues;
            match played.judge(&site, LIMIT) {
                Ok(checkpoints) => {
                    row.same += 1;
                    row.checkpoints += checkpoints;
                }
                Err(e) => say(&format!("{} by {:?} (job {}): {e:#}", played.program.name, played.way, played.job)),
            }
        }
    }
    println!("\nseed {seed}, {:.0} s\n", begun.elapsed().as_secs_f64());
    println!("| program | runs | kills | checkpoints | requeues | same output |\n|---|---|---|---|---|---|");
    for (name, Row { runs, same, kills, checkpoints, requeues }) in &rows {
        println!("| {name} | {runs} | {kills} | {checkpoints} | {requeues} | {same} |");
    }
    ensure!(rows.values().all(|row| row.same == row.runs), "everything is kept in {}", dir.display());
    drop(site);
    std::fs::remove_dir_all(&dir)?;
    std::fs::remove_dir_all(dir.with_extension("criu"))?;
    Ok(())
}

//! Launches of a step on one cluster, with and without our line in plugstack.conf, which srun and slurmstepd read anew each
//! time.

use super::{quantile, row};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use suite::Site;

/// Rounds; each launches one step of every kind, so that noise hits all alike.
const ROUNDS: usize = 600;

/// The first rounds warm the caches up.
const WARM_UP: usize = 3;

/// Of a standard normal distribution: 95 % lie within so many deviations.
const Z95: f64 = 1.96;

/// A plugin that does nothing: what Slurm itself needs to load any.
const EMPTY: &str = "#include <slurm/spank.h>\nSPANK_PLUGIN(empty, 1);\n\
                     int slurm_spank_init(spank_t spank, int argc, char **argv) { return 0; }\n";

/// Measures each kind beside launches without a plugin; these beside others of their own kind show what the machine's noise
/// alone makes of the ratio, and those with an empty plugin what Slurm does for any.
pub(super) fn run(site: &Site) -> Result<()> {
    let job = allocate(site.cluster.command("salloc"))?;
    let plugstack = site.cluster.dir.join("etc/plugstack.conf");
    let ours = fs::read_to_string(&plugstack)?;
    let launch = |plugins: &str, options: &[&str]| -> Result<f64> {
        fs::write(&plugstack, plugins)?;
        let mut srun = site.cluster.command("srun");
        let start = Instant::now();
        let output = srun.args(["--jobid", &job]).args(options).arg("true").stdin(Stdio::null()).output()?;
        if !output.status.success() {
            bail!("srun: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    };
    let empty = format!("required {}\n", build_empty(&site.cluster.dir)?.display());
    let kinds: [(&str, &[&str]); 5] = [("", &[]), ("", &[]), (&empty, &[]), (&ours, &[]), (&ours, &["--ft-energy"])];
    let mut times: [Vec<f64>; 5] = Default::default();
    for round in 0..WARM_UP + ROUNDS {
        // Each kind comes as often in each place of a round.
        for place in 0..kinds.len() {
            let kind = (round + place) % kinds.len();
            let (plugins, options) = kinds[kind];
            let took_ms = launch(plugins, options)?;
            if round >= WARM_UP {
                times[kind].push(took_ms);
            }
        }
    }
    fs::write(&plugstack, &ours)?;
    let [base, others @ ..] = &times;
    let median_ms = quantile(&mut base.clone(), 0.5);
    row("srun true, without plugin", &format!("{median_ms:.1} ms"), "1.00", "");
    let named = [
        "the same once more",
        "srun true, an empty plugin of C",
        "srun true, plugin, no option",
        "srun true, --ft-energy",
    ];
    for ((name, times), target) in named.iter().zip(others).zip(["", "", "<= 1.01", "<= 1.05"]) {
        let ratios = base.iter().zip(times).map(|(base, time)| time / base).collect();
        let (low, ratio, high) = median(ratios);
        let median_ms = quantile(&mut times.clone(), 0.5);
        row(name, &format!("{median_ms:.1} ms"), &format!("{ratio:.3} ({low:.3}-{high:.3})"), target);
    }
    Ok(())
}

/// The median with the interval in which it is with a probability of 95 %: of n values, those at the ranks n/2 -+ 0.98 sqrt(n),
/// whatever their distribution (the number of values below the median is binomial).
fn median(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let (n, last) = (values.len() as f64, values.len() - 1);
    let reach = Z95 * n.sqrt() / 2.0;
    let at = |rank: f64| values[(rank.max(0.0) as usize).min(last)];
    (at((n / 2.0 - reach).floor()), quantile(&mut values.clone(), 0.5), at((n / 2.0 + reach).ceil()))
}

/// Compiles the empty plugin.
fn build_empty(folder: &Path) -> Result<PathBuf> {
    let (source, plugin) = (folder.join("empty.c"), folder.join("empty.so"));
    fs::write(&source, EMPTY)?;
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&plugin).arg(&source).status()?;
    ensure!(compiled.success(), "cc did not compile the empty plugin: is libslurm-dev installed?");
    Ok(plugin)
}

/// An allocation without a shell; its job id.
fn allocate(mut salloc: Command) -> Result<String> {
    let output = salloc.args(["--no-shell", "-N1", "-t", "30"]).stdin(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let id = said.split("job allocation ").nth(1).and_then(|t| t.split_whitespace().next());
    id.map(str::to_string).with_context(|| format!("salloc: {said}"))
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_interval_of_a_median_is_that_of_the_binomial_ranks() {
        let values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        // Ranks 50 -+ 9.8.
        assert_eq!(median(values), (40.0, 50.0, 60.0));
        assert_eq!(median(vec![7.0]), (7.0, 7.0, 7.0));
    }
}

//! Where the traces of a simulation come from.

use std::path::PathBuf;

use anyhow::Context;
use simulator::trace::{Distribution, Trace};

/// Failure traces: files, or drawn from a distribution.
#[derive(clap::Args, Debug)]
pub struct TraceArgs {
    /// Failure traces: CSV with a column failure_start or time. A name ending in system-N tells tables the system.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub trace: Vec<PathBuf>,
    /// Draw gaps instead: exponential, weibull:SHAPE or lognormal:SIGMA.
    #[arg(long, value_name = "DISTRIBUTION")]
    pub synthetic: Option<String>,
    /// Mean gap of a synthetic trace, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 50_000.0)]
    pub mtbf: f64,
    /// Failures of a synthetic trace.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    pub failures: usize,
    /// Synthetic traces to draw, with seeds from --seed on.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub runs: u32,
    /// First seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

impl TraceArgs {
    /// Reads and draws the traces; none is an error.
    pub fn load(&self) -> anyhow::Result<Vec<Trace>> {
        let mut traces = Vec::new();
        for path in &self.trace {
            let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            let name = path.file_stem().map_or_else(|| "trace".to_owned(), |s| s.to_string_lossy().into_owned());
            traces.push(Trace::parse(&name, &text).with_context(|| format!("in {}", path.display()))?);
        }
        if let Some(wanted) = &self.synthetic {
            let (name, shape) = wanted.split_once(':').map_or((wanted.as_str(), None), |(n, s)| (n, Some(s)));
            let shape = |otherwise: f64| -> anyhow::Result<f64> {
                shape.map_or(Ok(otherwise), |s| s.parse().with_context(|| format!("{s:?} is no number")))
            };
            let distribution = match name {
                "exponential" => Distribution::Exponential,
                "weibull" => Distribution::Weibull(shape(0.7)?),
                "lognormal" => Distribution::Lognormal(shape(1.0)?),
                _ => anyhow::bail!("--synthetic={wanted}: valid are exponential, weibull:SHAPE, lognormal:SIGMA"),
            };
            anyhow::ensure!(self.failures <= 10_000_000, "--failures={}: at most 10000000", self.failures);
            for run in 0..self.runs {
                let seed = self.seed.wrapping_add(u64::from(run));
                let mut trace = Trace::synthetic(distribution, self.mtbf, self.failures, seed)?;
                trace.name = format!("{} seed {seed}", trace.name);
                traces.push(trace);
            }
        }
        anyhow::ensure!(!traces.is_empty(), "nothing to simulate: give --trace FILE or --synthetic DISTRIBUTION");
        Ok(traces)
    }
}

//! Where the traces of a simulation come from.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::Context;
use protocol::NodeFailure;
use simulator::failure_log;
use simulator::trace::{Distribution, Trace};
use slurm::Slurm;

use super::forms;

/// The longest log that is read, bytes.
const LARGEST_LOG_BYTES: u64 = 1 << 30;

/// Failure traces: files, the cluster's own history, or drawn from a distribution.
#[derive(clap::Args, Debug)]
pub struct TraceArgs {
    /// Failure logs; `-` is the standard input.
    ///
    /// The heading tells the form: a column failure_start or time (plain time,node also without a heading), Los Alamos'
    /// published LA-UR-05-7318 (one trace for each system), or what
    /// `sacct -a -X -D -P -s NF -S 2024-01-01 -E now -o JobID,End,NodeList` printed.
    #[arg(long, value_name = "FILE", num_args = 1.., help_heading = "Failures")]
    pub trace: Vec<PathBuf>,
    /// Of a log with a column System, only this one.
    #[arg(long, value_name = "N", help_heading = "Failures")]
    pub system: Option<u32>,
    /// The node failures that this cluster's controller has seen.
    #[arg(long, help_heading = "Failures")]
    pub history: bool,
    /// The node failures that Slurm's accounting knows.
    #[arg(long, help_heading = "Failures")]
    pub sacct: bool,
    /// With --sacct: since then, as sacct takes it.
    #[arg(
        short = 'S',
        long = "starttime",
        value_name = "TIME",
        default_value = "2000-01-01",
        help_heading = "Failures"
    )]
    pub start: String,
    /// Draw gaps instead: exponential, weibull:SHAPE or lognormal:SIGMA.
    #[arg(long, value_name = "DISTRIBUTION", value_parser = forms::distribution, help_heading = "Failures")]
    pub synthetic: Option<Distribution>,
    /// Mean gap of a synthetic trace, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = forms::seconds, default_value_t = 50_000.0, help_heading = "Failures")]
    pub mtbf: f64,
    /// Failures of a synthetic trace.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..), default_value_t = 2_000, help_heading = "Failures")]
    pub failures: u32,
    /// Synthetic traces to draw, with seeds from --seed on; the spread over them gives confidence intervals.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), default_value_t = 1, help_heading = "Failures")]
    pub runs: u32,
    /// First seed.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Failures")]
    pub seed: u64,
    #[arg(from_global)]
    conf: PathBuf,
}

impl TraceArgs {
    /// Reads and draws the traces; none is an error.
    pub fn load(&self) -> anyhow::Result<Vec<Trace>> {
        let mut traces = Vec::new();
        for path in &self.trace {
            let text = read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let name =
                path.file_stem().filter(|stem| *stem != "-").map_or("stdin".into(), |stem| stem.to_string_lossy());
            let log = failure_log::read(&name, &text, self.system);
            let log = log.with_context(|| format!("in {}", path.display()))?;
            for (system, why) in log.left_out {
                protocol::say!("joulepoint: in {}: system {system} is left out: {why}", path.display());
            }
            traces.extend(log.traces);
        }
        if self.history {
            traces.push(self.history()?);
        }
        if self.sacct {
            let text = Slurm::new(config::read(&self.conf)?.slurm_bin).node_failures(&self.start)?;
            traces.push(Trace::parse("sacct", &text).context("node failures in accounting")?);
        }
        if let Some(wanted) = self.synthetic {
            traces.extend(self.synthetic(wanted)?);
        }
        anyhow::ensure!(
            !traces.is_empty(),
            "nothing to simulate: give --trace FILE, --history, --sacct or --synthetic DISTRIBUTION"
        );
        Ok(traces)
    }

    /// Whether the traces are samples of one distribution, so that only their mean is of interest.
    pub fn is_sample(&self) -> bool {
        self.synthetic.is_some() && self.runs > 1 && self.trace.is_empty() && !self.history && !self.sacct
    }

    fn history(&self) -> anyhow::Result<Trace> {
        let site = config::read(&self.conf)?;
        let client = wire::Client::new(&site.controller.url, site.munge_socket, crate::ANSWER_LIMIT);
        let failures: Vec<NodeFailure> = client.get("/v1/failures")?;
        let times_s = failures.iter().map(|failure| failure.at_s).collect();
        Trace::from_times("history", times_s).context("node failures that the controller has seen")
    }

    fn synthetic(&self, distribution: Distribution) -> anyhow::Result<Vec<Trace>> {
        let gaps = u64::from(self.failures) * u64::from(self.runs);
        anyhow::ensure!(gaps <= 20_000_000, "--failures times --runs is {gaps}: at most 20000000");
        let draw = |run: u32| {
            let seed = self.seed.wrapping_add(u64::from(run));
            let trace = Trace::synthetic(distribution, self.mtbf, self.failures as usize, seed)?;
            Ok(Trace { name: format!("{} seed {seed}", trace.name), ..trace })
        };
        (0..self.runs).map(draw).collect()
    }
}

/// A file of bounded size as text; what is not UTF-8 in it is in no column that is read.
fn read(path: &Path) -> anyhow::Result<String> {
    let file: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(std::fs::File::open(path)?),
    };
    let mut bytes = Vec::new();
    file.take(LARGEST_LOG_BYTES + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(bytes.len() as u64 <= LARGEST_LOG_BYTES, "it is longer than {LARGEST_LOG_BYTES} bytes");
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

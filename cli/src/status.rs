//! `joulepoint status`: how runs are doing now.

use crate::report::{energy, known_jobs};
use crate::{Failure, out};
use protocol::RunAccount;
use std::path::Path;

/// Arguments of `joulepoint status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Slurm job id, or ARRAY_TASK; all running runs if absent.
    job: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints one line a run.
pub fn run(args: &StatusArgs, conf: &Path) -> Result<(), Failure> {
    let path = match &args.job {
        Some(job) => format!("/v1/report?job={}", known_jobs(job, conf)?),
        None => "/v1/report?state=running".to_string(),
    };
    let runs: Vec<RunAccount> = crate::client(conf)?.get(&path).map_err(anyhow::Error::from)?;
    if args.json {
        return Ok(out::json(&runs)?);
    }
    let mut text = format!(
        "{:>8} {:<10} {:<12} {:>11} {:>8} {:>8} {:>12}  last checkpoint\n",
        "JobID", "User", "State", "Checkpoints", "Failures", "Records", "Energy(J)"
    );
    let now_s = wrapper::mail::now_s();
    for run in runs {
        let last = run
            .checkpoints
            .last()
            .map_or_else(|| "none".to_string(), |c| format!("{:.0} s ago", now_s - c.begun_s - c.seconds));
        text += &format!(
            "{:>8} {:<10} {:<12} {:>11} {:>8} {:>8} {:>12}  {last}\n",
            run.job,
            run.user,
            run.state,
            run.total.checkpoints,
            run.total.failures,
            run.records.len(),
            energy(&run)
        );
    }
    Ok(out::print(text)?)
}

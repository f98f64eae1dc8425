//! `joulepoint status`: how runs are doing now.

use crate::out;
use crate::report::energy;
use protocol::RunAccount;

/// Arguments of `joulepoint status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Slurm job id; all running runs if absent.
    job: Option<u32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints one line a run.
pub fn run(args: &StatusArgs, client: &wire::Client) -> anyhow::Result<()> {
    let path = match args.job {
        Some(job) => format!("/v1/report?job={job}"),
        None => "/v1/report?state=running".to_string(),
    };
    let runs: Vec<RunAccount> = client.get(&path)?;
    if args.json {
        return out::json(&runs);
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

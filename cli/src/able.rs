//! `joulepoint able`: whether running processes can be dumped, and what stands in the way.

use crate::{Failure, out};
use ::able::{Answer, look, of_job};
use std::path::Path;

/// Arguments of `joulepoint able`.
#[derive(clap::Args)]
pub struct AbleArgs {
    /// Job whose processes on this node are looked at.
    #[arg(value_name = "JOB", required_unless_present = "pids", conflicts_with = "pids")]
    job: Option<u32>,
    /// Processes that are looked at.
    #[arg(last = true, value_name = "PID")]
    pids: Vec<i32>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints what stands in the way; exit code 0 if nothing does, 1 if something.
pub fn run(args: &AbleArgs, site: &config::Site) -> Result<i32, Failure> {
    let root = Path::new("/proc");
    let pids = match args.job {
        Some(job) => {
            let pids = of_job(root, job);
            let text = format!(
                "no process of job {job} that you may look at runs on this host; ask on its nodes: \
                 srun --overlap --jobid={job} joulepoint able {job}"
            );
            if pids.is_empty() { Err(Failure::Usage(text))? } else { pids }
        }
        None => {
            let gone = args.pids.iter().find(|pid| !root.join(pid.to_string()).exists());
            gone.map_or(Ok(()), |pid| Err(Failure::Usage(format!("there is no process {pid} on this host"))))?;
            args.pids.clone()
        }
    };
    let criu = criu::tool::find(site.criu.command.as_deref(), std::env::var_os("PATH"));
    let answer = look(root, &pids, criu.is_ok_and(|found| criu::tool::is_patched(&found)));
    if args.json {
        out::json(&answer)?;
    } else {
        out::print(table(&answer))?;
    }
    Ok(i32::from(!answer.able))
}

fn table(answer: &Answer) -> String {
    let mut text = String::new();
    if !answer.obstacles.is_empty() {
        text.push_str(&format!("{:>8}  {:<15}  {:<10}  {}\n", "PID", "PROGRAM", "OBSTACLE", "FOUND; USE INSTEAD"));
    }
    for o in &answer.obstacles {
        text.push_str(&format!("{:>8}  {:<15}  {:<10}  {}; {}\n", o.pid, o.program, o.kind, o.found, o.instead));
    }
    for l in &answer.linked {
        text.push_str(&format!("{} is linked: {}\n", l.library, l.means));
    }
    let verdict = if answer.able { "nothing stands in the way of a dump" } else { "cannot be dumped as they are" };
    text.push_str(&format!("{}: {verdict}\n", options::counted(answer.pids.len(), "process")));
    text
}

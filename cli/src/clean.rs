//! `joulepoint clean`: removes what a user's ended runs have left.

use crate::{Failure, out};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;
use slurm::Slurm;
use std::path::PathBuf;
use wrapper::clean::{Asked, Candidate, Done, Due, End, folders, keep};

/// Arguments of `joulepoint clean`.
#[derive(clap::Args)]
pub struct CleanArgs {
    /// Only tell what would be removed.
    #[arg(long)]
    dry_run: bool,
    /// Checkpoints of all ended runs go that are older, whatever the site keeps: 30 (minutes), 12:00:00, 7-0 (days).
    #[arg(long, value_name = "TIME")]
    older_than: Option<String>,
    /// Folder of your runs, if you named one by `--ft-energy-dir`.
    #[arg(long, value_name = "PATH")]
    dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What came of one run.
#[derive(Serialize)]
struct Line {
    run: PathBuf,
    job: Option<u32>,
    /// `completed`, `failed` or `open`.
    ended: &'static str,
    last_s: f64,
    /// `checkpoints` or `all`.
    goes: &'static str,
    /// `removed`, `kept` or `failed`.
    done: &'static str,
    why: String,
}

/// Removes and tells; exit code 0, or 1 if something could not be removed.
pub fn run(args: &CleanArgs, site: &config::Site) -> Result<i32, Failure> {
    let mut keep = keep(&site.runs);
    if let Some(text) = &args.older_than {
        let wrong = |why| Failure::Usage(format!("--older-than: '{text}' {why}"));
        let older = options::time_argument(text).map_err(wrong)?;
        (keep.completed_s, keep.failed_s) = (Some(older.as_secs_f64()), Some(older.as_secs_f64()));
    }
    let slurm = Slurm::new(site.slurm_bin.clone());
    let mut lines = Vec::new();
    for runs in folders(site, args.dir.as_deref(), &slurm) {
        let asked = Asked { runs: &runs, keep, dry_run: args.dry_run };
        lines.extend(asked.clean(&slurm, host::mail::now_s())?.iter().map(Line::of));
    }
    let failed = lines.iter().filter(|line| line.done == "failed").count();
    if args.json {
        out::json(&lines)?;
    } else {
        out::print(table(&lines, args.dry_run))?;
    }
    Ok(i32::from(failed > 0))
}

impl Line {
    fn of((run, done): &(Candidate, Done)) -> Line {
        let (done, why) = match done {
            Done::Removed => ("removed", String::new()),
            Done::Known => (
                "kept",
                "it may come back: Slurm knows its job, or it runs outside Slurm and has not ended".to_string(),
            ),
            Done::Elsewhere => (
                "kept",
                "nobody can tell that it ran on this cluster: it is another one's of the same name, or of a version that did \
                 not write it down; remove its folder by hand if you do not need it"
                    .to_string(),
            ),
            Done::Changed => ("kept", "something happened to it just now".to_string()),
            Done::Failed(e) => ("failed", e.to_string()),
        };
        let ended = match run.end {
            End::Completed => "completed",
            End::Failed => "failed",
            End::Open => "open",
        };
        let goes = if run.due == Due::All { "all" } else { "checkpoints" };
        Line { run: run.path.clone(), job: run.job, ended, last_s: run.last_s, goes, done, why }
    }
}

fn table(lines: &[Line], dry_run: bool) -> String {
    let mut text = String::new();
    for line in lines {
        let name = line.run.file_name().unwrap_or_default().to_string_lossy();
        let last = Timestamp::from_second(line.last_s as i64).unwrap_or_default();
        let last = last.to_zoned(TimeZone::system()).strftime("%Y-%m-%d").to_string();
        let done = match (line.done, dry_run) {
            ("removed", true) => "would go".to_string(),
            ("removed", false) => "gone".to_string(),
            (other, _) => format!("{other}: {}", line.why),
        };
        text.push_str(&format!("{name:<24}  {:<9}  {last}  {:<11}  {done}\n", line.ended, line.goes));
    }
    let count = |wanted: &str| lines.iter().filter(|line| line.done == wanted).count();
    let verb = if dry_run { "would be removed from" } else { "removed from" };
    text + &format!("{verb} {} runs, kept {}, failed {}\n", count("removed"), count("kept"), count("failed"))
}

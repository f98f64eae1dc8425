//! `joulepoint report`: what runs cost, with the habits of sacct.

mod asked;

use crate::{Failure, out};
use ::report::accounted::{self, Joined};
use ::report::columns::{self, Column, FIELDS, Field};
use ::report::sheet::{self, Form, printable};
use ::report::sums::{self, By, Others};
use ::report::{accuracy, describe, moment, page, words};
pub(crate) use asked::{Jobs, known_jobs};
use config::Site;
use nix::unistd::User;
use protocol::{Loan, RunAccount};
use slurm::Slurm;
use std::path::{Path, PathBuf};

/// Arguments of `joulepoint report`.
///
/// Without -j, the runs that had not ended at midnight; with -j, whenever they were.
#[derive(clap::Args)]
#[command(args_override_self = true)]
pub struct ReportArgs {
    /// Slurm job ids, separated by commas; 12_3 is a task of an array, and a step (12.0) stands for its job.
    #[arg(short = 'j', long = "jobs", value_name = "JOBID")]
    jobs: Option<String>,
    /// User names; operators see all users' runs, others their own.
    #[arg(short = 'u', long, visible_alias = "uid", value_name = "NAMES")]
    user: Option<String>,
    /// All users, which is what operators see without this.
    #[arg(short = 'a', long, conflicts_with = "user")]
    allusers: bool,
    /// Slurm accounts.
    #[arg(short = 'A', long, visible_alias = "accounts", value_name = "NAMES")]
    account: Option<String>,
    /// States of the run: running (R), completed (CD), failed (F), cancelled (CA), timeout (TO).
    #[arg(short = 's', long, value_name = "STATES")]
    state: Option<String>,
    /// Runs that had not ended by then: now-7days, today, 2026-11-20T10:00, 11/20, 10:00, ...
    #[arg(short = 'S', long = "starttime", value_name = "TIME")]
    start: Option<String>,
    /// Runs that had begun by then.
    #[arg(short = 'E', long = "endtime", value_name = "TIME")]
    end: Option<String>,
    /// Fields, separated by commas, each with %WIDTH or %-WIDTH if wanted.
    #[arg(short = 'o', long = "format", value_name = "FIELDS")]
    fields: Option<String>,
    /// List the fields.
    #[arg(short = 'e', long)]
    helpformat: bool,
    /// Jobs without their steps, which is how runs are always shown.
    #[arg(short = 'X', long)]
    allocations: bool,
    /// No header.
    #[arg(short = 'n', long)]
    noheader: bool,
    /// Fields separated by '|', with one at the end.
    #[arg(short = 'p', long)]
    parsable: bool,
    /// Fields separated by '|'.
    #[arg(short = 'P', long, conflicts_with = "parsable")]
    parsable2: bool,
    /// What separates fields with -p and -P.
    #[arg(long, default_value = "|", value_name = "TEXT")]
    delimiter: String,
    /// Fields separated by commas, quoted where needed.
    #[arg(long, conflicts_with_all = ["parsable", "parsable2", "json"])]
    csv: bool,
    /// Everything, as JSON.
    #[arg(long)]
    json: bool,
    /// Sums, and one of all; by several things at once with commas between them.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    by: Vec<By>,
    /// Beside the sums, the energy of all jobs of the window, those without protection too, by Slurm's accounting (sacct -a).
    #[arg(long, requires = "by", conflicts_with_all = ["jobs", "user", "account", "state"])]
    all_jobs: bool,
    /// More columns than 80 characters hold.
    #[arg(short = 'w', long, conflicts_with = "fields")]
    wide: bool,
    /// Mean and worst error of the plans' predictions, by operation and node type.
    #[arg(long, conflicts_with_all = ["by", "csv", "html"])]
    accuracy: bool,
    /// Write a page for a browser: with one job its time line, else who spent what ('-' for standard output).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "csv", "by"])]
    html: Option<PathBuf>,
}

/// States by the names and codes that sacct uses.
const STATES: [(&str, &str); 5] =
    [("r", "running"), ("cd", "completed"), ("f", "failed"), ("ca", "cancelled"), ("to", "timeout")];

/// Most runs that are named one by one because they are left out.
const MOST_NAMED: usize = 20;

/// Prints the report.
pub fn run(args: &ReportArgs, conf: &Path) -> Result<(), Failure> {
    if args.helpformat || args.fields.as_deref() == Some("help") {
        let line = |f: &[Field]| f.iter().map(|f| format!("{:<16}", f.name)).collect::<String>() + "\n";
        return Ok(out::print(FIELDS.chunks(4).map(line).collect::<String>())?);
    }
    let now = jiff::Zoned::now();
    let now_s = now.timestamp().as_millisecond() as f64 / 1000.0;
    let usual = if args.wide { columns::WIDE } else { columns::USUAL };
    let columns = columns::columns(args.fields.as_deref().unwrap_or(usual)).map_err(Failure::Usage)?;
    let (start_s, end_s) = window(args, &now).map_err(Failure::Usage)?;
    let is_summed = !args.by.is_empty();
    let details = args.jobs.is_some() || args.accuracy || args.json && !is_summed;
    let jobs = args.jobs.as_deref().map(|text| asked::known_jobs(text, conf)).transpose()?;
    let query = query(args, jobs.as_ref(), start_s, end_s, !details).map_err(Failure::Usage)?;
    let client = crate::client(conf)?;
    let mut runs: Vec<RunAccount> = client.get(&format!("/v1/report{query}")).map_err(anyhow::Error::from)?;
    runs.iter_mut().for_each(RunAccount::name_job);
    warnings(&runs).iter().for_each(|line| protocol::say!("joulepoint: {line}"));
    if let Some(jobs) = args.jobs.as_ref().filter(|_| runs.is_empty() && form(args) == Form::Aligned && !args.json) {
        return Err(Failure::Other(anyhow::anyhow!("{}", unknown(jobs))));
    }
    missing(args, jobs.as_ref(), &runs).iter().for_each(|line| protocol::say!("joulepoint: {line}"));
    // As JSON, a run that cannot be added up says so itself.
    runs.retain(|run| run.trouble.is_empty() || (args.json && !is_summed && !args.accuracy));
    if args.accuracy {
        return Ok(out::print(accuracy::tell(&runs, args.json))?);
    }
    let site = crate::site(conf)?;
    let slurm = Slurm::new(site.slurm_bin.clone());
    let wants_sacct = match is_summed {
        true => args.by.contains(&By::Qos),
        false => details || args.html.is_some() || columns::needs_sacct(&columns),
    };
    let mut lines = accounted::alone(runs, &site.accounting);
    if wants_sacct {
        accounted::add_slurm(&mut lines, &slurm, now_s);
    }
    if is_summed || details || args.html.is_some() || columns::needs_loans(&columns) {
        // All loans of the runs that are shown, which may be older than the window; the broker knows no states of runs.
        let query = loans_query(args, &lines);
        let loans: Vec<Loan> = client.get(&format!("/v1/loans{query}")).map_err(anyhow::Error::from)?;
        accounted::add_loans(&mut lines, &loans, now_s);
    }
    if let Some(file) = &args.html {
        let page = page::page(&lines, args.jobs.is_some(), (start_s, end_s), now_s);
        return write_page(file, &page);
    }
    let window = (start_s.unwrap_or_else(|| first_s(&lines)), end_s.unwrap_or(now_s));
    let text = match is_summed {
        true => summed(args, &lines, &site, &slurm, window)?,
        false => listed(args, &lines, &columns, &site)?,
    };
    Ok(out::print(text)?)
}

/// When the first of these runs began.
fn first_s(lines: &[Joined]) -> f64 {
    lines.iter().map(|l| l.run.start_s).fold(f64::INFINITY, f64::min).max(0.0)
}

/// The runs one by one.
fn listed(args: &ReportArgs, lines: &[Joined], columns: &[Column], site: &Site) -> Result<String, Failure> {
    let is_plain = args.fields.is_none() && !args.wide && form(args) == Form::Aligned;
    match lines {
        _ if args.json => json(&lines),
        [line] if args.jobs.is_some() && is_plain => Ok(describe::describe(line)),
        _ => Ok(columns::sheet(lines, columns, &site.accounting.currency).text(&form(args), !args.noheader)),
    }
}

/// Sums of the runs.
fn summed(
    args: &ReportArgs,
    lines: &[Joined],
    site: &Site,
    slurm: &Slurm,
    window_s: (f64, f64),
) -> Result<String, Failure> {
    let others = if args.all_jobs { accounted::other_jobs(lines, slurm, window_s) } else { None };
    // Slurm tells of the cluster that it is asked on.
    let cluster = others.as_ref().and_then(|_| slurm.cluster_name().ok()).unwrap_or_default();
    let others = others.map(|jobs| Others { jobs, cluster });
    let mut sums = sums::sums(lines, others.as_ref(), &args.by);
    let total = sums::total(lines, others.as_ref());
    // SAFETY: a system call that cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let all_jobs = total.all_jobs_told(is_root);
    let without = total.runs_without_energy;
    sums.push(total);
    if without > 0 {
        let runs = words::counted(without, "run");
        protocol::say!("joulepoint: of {runs} no energy is known yet, and it is in no sum of energy");
    }
    if args.json {
        return json(&sums);
    }
    let form = form(args);
    let is_wide = args.wide || form != Form::Aligned;
    let text = sums::sheet(&sums, &args.by, &site.accounting, is_wide).text(&form, !args.noheader);
    Ok(if form == Form::Aligned { text + &all_jobs.unwrap_or_default() } else { text })
}

/// What is said of jobs that have no run.
pub(crate) fn unknown(jobs: &str) -> String {
    format!(
        "nothing is known here of job {jobs}: it has not begun, is another user's, or runs without --ft-energy (squeue, sacct -j {jobs})"
    )
}

/// Which jobs and users that were named are in no run.
fn missing(args: &ReportArgs, jobs: Option<&Jobs>, runs: &[RunAccount]) -> Vec<String> {
    let is_of = |run: &RunAccount, id: u32| {
        let array = run.job_id.split(['_', '+']).next();
        run.job == id || array.is_some_and(|array| array.parse() == Ok(id))
    };
    // One that is known may be outside of the window, or of another state or account.
    let are_all = [&args.state, &args.start, &args.end, &args.account].iter().all(|limit| limit.is_none());
    let jobs = jobs.filter(|_| are_all).into_iter().flat_map(Jobs::ids);
    let jobs = jobs.filter(|id| !runs.iter().any(|run| is_of(run, *id)));
    let users = args.user.as_deref().unwrap_or_default().split(',').filter(|user| !user.is_empty());
    let is_known =
        |user: &&str| runs.iter().any(|run| run.user == **user) || !matches!(User::from_name(user), Ok(None));
    let users = users.filter(|user| !is_known(user)).map(|user| format!("'{user}' is no user here (-u)"));
    jobs.map(|id| unknown(&id.to_string())).chain(users).collect()
}

/// What a reader of a report has to know before its figures.
fn warnings(runs: &[RunAccount]) -> Vec<String> {
    let troubled = runs.iter().filter(|run| !run.trouble.is_empty());
    let left_out = |run: &RunAccount| {
        let RunAccount { run, user, trouble, .. } = run;
        printable(&format!("run {run} of {user} is left out, its records cannot be added up: {trouble}"))
    };
    let mut lines: Vec<String> = troubled.clone().take(MOST_NAMED).map(left_out).collect();
    if troubled.clone().count() > MOST_NAMED {
        lines.push(format!("so are {} others", troubled.count() - MOST_NAMED));
    }
    let unverified = runs.iter().filter(|run| !run.verified && run.job > 0).count();
    if unverified > 0 {
        let runs = words::counted(unverified as u64, "run");
        lines.push(format!(
            "of {runs} Slurm does not say whose they are: what is told of them is their users' word (field 'verified')"
        ));
    }
    let outside = runs.iter().filter(|run| run.job == 0).count();
    if outside > 0 {
        let runs = words::counted(outside as u64, "run");
        lines.push(format!("{runs} outside Slurm: what is told of them is their users' word (field 'verified')"));
    }
    lines
}

fn json<T: serde::Serialize>(content: &T) -> Result<String, Failure> {
    Ok(sheet::json(content).map_err(anyhow::Error::from)?)
}

fn form(args: &ReportArgs) -> Form {
    match args {
        ReportArgs { csv: true, .. } => Form::Csv,
        ReportArgs { parsable: false, parsable2: false, .. } => Form::Aligned,
        _ => Form::Parsable(args.delimiter.clone(), args.parsable),
    }
}

/// The window: from midnight unless jobs are named, as sacct has it.
fn window(args: &ReportArgs, now: &jiff::Zoned) -> Result<(Option<f64>, Option<f64>), String> {
    let parse = |text: &Option<String>| {
        let moment = text.as_deref().map(|t| moment::parse(t, now)).transpose();
        moment.map_err(|e| e.to_string())
    };
    let (mut start_s, end_s) = (parse(&args.start)?, parse(&args.end)?);
    if start_s.is_none() && args.jobs.is_none() {
        start_s = moment::today(now).map(|t| t.timestamp().as_second() as f64);
    }
    match (start_s, end_s) {
        (Some(start), Some(end)) if start > end => {
            Err(format!("-S {} lies after -E {}: give an earlier -S", moment::shown(start), moment::shown(end)))
        }
        window => Ok(window),
    }
}

fn query(
    args: &ReportArgs,
    jobs: Option<&Jobs>,
    start_s: Option<f64>,
    end_s: Option<f64>,
    brief: bool,
) -> Result<String, String> {
    let states = args.state.as_deref().map(states).transpose()?;
    let text = |number: f64| number.to_string();
    let [job, task] = jobs.cloned().unwrap_or_default().parts();
    Ok(wire::query(&[
        (job.0, job.1.as_deref()),
        (task.0, task.1.as_deref()),
        ("user", args.user.as_deref()),
        ("account", args.account.as_deref()),
        ("state", states.as_deref()),
        ("start", start_s.map(text).as_deref()),
        ("end", end_s.map(text).as_deref()),
        ("brief", brief.then_some("true")),
    ]))
}

fn loans_query(args: &ReportArgs, lines: &[Joined]) -> String {
    let start = (!lines.is_empty()).then(|| first_s(lines).to_string());
    let ids = || lines.iter().map(|l| l.run.job.to_string()).collect::<Vec<_>>().join(",");
    let jobs = args.jobs.is_some().then(ids);
    wire::query(&[("job", jobs.as_deref()), ("user", args.user.as_deref()), ("start", start.as_deref())])
}

fn states(text: &str) -> Result<String, String> {
    let state = |name: &str| {
        let name = name.trim().to_lowercase();
        let known = STATES.iter().find(|(code, long)| [*code, *long].contains(&name.as_str()));
        let accepted = || STATES.map(|(code, long)| format!("{long} ({})", code.to_uppercase())).join(", ");
        known
            .map(|(_, long)| *long)
            .ok_or_else(|| format!("'{name}' is not a state of a run; accepted: {}", accepted()))
    };
    Ok(text.split(',').map(state).collect::<Result<Vec<_>, _>>()?.join(","))
}

fn write_page(file: &Path, page: &str) -> Result<(), Failure> {
    if file == Path::new("-") {
        return Ok(out::print(page)?);
    }
    let failed = |e: std::io::Error| anyhow::anyhow!("{}: {e}", file.display());
    std::fs::write(file, page).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_sacct_reads_them() {
        assert_eq!(states("CD,failed,ca").as_deref(), Ok("completed,failed,cancelled"));
        assert!(states("XX").is_err_and(|e| e.contains("completed (CD)")));
    }
}

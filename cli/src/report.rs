//! `joulepoint report`: what runs cost, with the habits of sacct.

use anyhow::{Context, Result, bail};
use protocol::{Phase, RunAccount};
use std::collections::BTreeMap;

/// Arguments of `joulepoint report`.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// Slurm job id.
    #[arg(short = 'j', long = "jobs", value_name = "JOBID")]
    job: Option<u32>,
    /// User name; operators see all users' runs, others their own.
    #[arg(short = 'u', long)]
    user: Option<String>,
    /// Slurm account.
    #[arg(short = 'A', long)]
    account: Option<String>,
    /// State of the run: running, completed, failed, cancelled, timeout.
    #[arg(short = 's', long)]
    state: Option<String>,
    /// Runs that had not ended by then: now, now-7days, today, YYYY-MM-DD[THH:MM[:SS]], HH:MM.
    #[arg(short = 'S', long = "starttime", value_name = "TIME")]
    start: Option<String>,
    /// Runs that had begun by then.
    #[arg(short = 'E', long = "endtime", value_name = "TIME")]
    end: Option<String>,
    /// Fields, separated by commas; `help` lists them.
    #[arg(short = 'o', long = "format", value_name = "FIELDS")]
    fields: Option<String>,
    /// No header.
    #[arg(short = 'n', long)]
    noheader: bool,
    /// Fields separated by '|'.
    #[arg(short = 'P', long)]
    parsable2: bool,
    /// Fields separated by commas, quoted where needed.
    #[arg(long, conflicts_with_all = ["parsable2", "json"])]
    csv: bool,
    /// Everything, as JSON.
    #[arg(long)]
    json: bool,
    /// Sums by user or account.
    #[arg(long, value_enum)]
    by: Option<By>,
}

/// What sums are made by.
#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    User,
    Account,
}

/// One column: name, heading, width, value.
type Field = (&'static str, &'static str, usize, fn(&RunAccount) -> String);

fn joules_of(run: &RunAccount, phase: Phase) -> f64 {
    run.phases.iter().find(|p| p.phase == phase).map_or(0.0, |p| p.joules)
}

fn percent(fraction: Option<f64>) -> String {
    fraction.map_or_else(|| "unknown".to_string(), |f| format!("{:.2}%", 100.0 * f))
}

const FIELDS: &[Field] = &[
    ("jobid", "JobID", 8, |r| r.job.to_string()),
    ("run", "Run", 22, |r| r.run.clone()),
    ("cluster", "Cluster", 12, |r| r.cluster.clone()),
    ("jobname", "JobName", 14, |r| r.job_name.clone()),
    ("user", "User", 10, |r| r.user.clone()),
    ("account", "Account", 10, |r| r.account.clone()),
    ("state", "State", 10, |r| r.state.clone()),
    ("start", "Start(s)", 14, |r| format!("{:.0}", r.start_s)),
    ("end", "End(s)", 14, |r| r.end_s.map_or_else(|| "unknown".into(), |e| format!("{e:.0}"))),
    ("elapsed", "Elapsed", 11, |r| options::format_time(r.total.elapsed_s)),
    ("records", "Records", 7, |r| r.records.len().to_string()),
    ("failures", "Failures", 8, |r| r.total.failures.to_string()),
    ("checkpoints", "Checkpoints", 11, |r| r.total.checkpoints.to_string()),
    ("energy", "Energy(J)", 12, |r| format!("{:.1}", r.total.joules)),
    ("resilience", "Resilience(J)", 13, |r| format!("{:.1}", r.total.resilience_j)),
    ("compute", "Compute(J)", 12, |r| format!("{:.1}", joules_of(r, Phase::Compute))),
    ("checkpoint", "Checkpoint(J)", 13, |r| format!("{:.1}", joules_of(r, Phase::Checkpoint))),
    ("restart", "Restart(J)", 12, |r| format!("{:.1}", joules_of(r, Phase::Restart))),
    ("lostwork", "LostWork(J)", 12, |r| format!("{:.1}", joules_of(r, Phase::LostWork))),
    ("idle", "Idle(J)", 12, |r| format!("{:.1}", joules_of(r, Phase::Idle))),
    ("overhead", "Overhead", 9, |r| percent(r.total.energy_overhead)),
    ("timeoverhead", "TimeOverhead", 12, |r| percent(r.total.time_overhead)),
    ("predicted", "Predicted", 9, |r| percent(r.plan.as_ref().map(|p| p.expected_energy_overhead))),
];

const USUAL: &str =
    "jobid,jobname,user,account,state,elapsed,records,failures,checkpoints,energy,resilience,overhead,predicted";

/// Prints the report.
pub fn run(args: ReportArgs, client: &wire::Client) -> Result<()> {
    if args.fields.as_deref() == Some("help") {
        FIELDS.iter().for_each(|(name, heading, ..)| println!("{name:<14}{heading}"));
        return Ok(());
    }
    let now_s = wrapper::mail::now_s();
    let text = |number: f64| number.to_string();
    let start = args.start.as_deref().map(|t| parse_moment(t, now_s)).transpose()?.map(text);
    let end = args.end.as_deref().map(|t| parse_moment(t, now_s)).transpose()?.map(text);
    let job = args.job.map(|j| j.to_string());
    let query = wire::query(&[
        ("job", job.as_deref()),
        ("user", args.user.as_deref()),
        ("account", args.account.as_deref()),
        ("state", args.state.as_deref()),
        ("start", start.as_deref()),
        ("end", end.as_deref()),
    ]);
    let runs: Vec<RunAccount> = client.get(&format!("/v1/report{query}"))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&runs)?);
    } else if let Some(by) = args.by {
        print!("{}", sums(&runs, by));
    } else if let (Some(_), None, [run], false, false) =
        (args.job, &args.fields, runs.as_slice(), args.csv, args.parsable2)
    {
        print!("{}", describe(run).split('\n').map(printable).collect::<Vec<_>>().join("\n"));
    } else {
        print!("{}", table(&args, &runs)?);
    }
    Ok(())
}

fn table(args: &ReportArgs, runs: &[RunAccount]) -> Result<String> {
    let fields = fields(args.fields.as_deref().unwrap_or(USUAL))?;
    let join = |cells: Vec<(String, usize)>| -> String {
        if args.csv {
            cells.iter().map(|(c, _)| quoted(c)).collect::<Vec<_>>().join(",")
        } else if args.parsable2 {
            cells.into_iter().map(|(c, _)| c.replace('|', " ")).collect::<Vec<_>>().join("|")
        } else {
            cells.iter().map(|(c, w)| format!("{c:>w$.w$}")).collect::<Vec<_>>().join(" ")
        }
    };
    let mut text = String::new();
    if !args.noheader {
        text += &join(fields.iter().map(|f| (f.1.to_string(), f.2)).collect());
        text.push('\n');
    }
    for run in runs {
        text += &join(fields.iter().map(|f| (printable(&(f.3)(run)), f.2)).collect());
        text.push('\n');
    }
    Ok(text)
}

fn fields(names: &str) -> Result<Vec<&'static Field>> {
    let find = |name: &str| {
        let name = name.trim().to_lowercase();
        FIELDS.iter().find(|f| f.0 == name).with_context(|| {
            let near = options::nearest(&name, FIELDS.iter().map(|f| f.0));
            let hint = near.map(|n| format!("; did you mean '{n}'?")).unwrap_or_default();
            format!("'{name}' is not a field (-o help lists them){hint}")
        })
    };
    names.split(',').map(find).collect()
}

/// A user's text fit for somebody else's terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

/// One run, phase by phase.
fn describe(run: &RunAccount) -> String {
    let t = &run.total;
    let mut text = format!(
        "Job {} ({}), run {} on {}, user {}, account {}: {}\n{} in all, {} of it on nodes; {} records, {} failures, {} checkpoints\n\n",
        run.job,
        run.job_name,
        run.run,
        run.cluster,
        run.user,
        if run.account.is_empty() { "none" } else { &run.account },
        run.state,
        options::format_time(t.elapsed_s),
        options::format_time(t.held_s),
        run.records.len(),
        t.failures,
        t.checkpoints
    );
    text += &format!("{:<12} {:>14} {:>7} {:>14}  {}\n", "Phase", "Energy (J)", "Share", "Node-seconds", "Source");
    for p in &run.phases {
        let share = if t.joules > 0.0 { 100.0 * p.joules / t.joules } else { 0.0 };
        let source = if p.source.is_empty() { "-" } else { &p.source };
        text += &format!(
            "{:<12} {:>14.1} {:>6.2}% {:>14.1}  {source}\n",
            p.phase.as_str().replace('_', " "),
            p.joules,
            share,
            p.node_seconds
        );
    }
    text += &format!("{:<12} {:>14.1}\n\n", "measured", t.joules);
    let plan = run.plan.as_ref();
    text += "Overhead against a run without failures and checkpoints\n";
    text += &format!(
        "  energy: measured {}, predicted {}\n",
        percent(t.energy_overhead),
        percent(plan.map(|p| p.expected_energy_overhead))
    );
    text += &format!(
        "  time:   measured {}, predicted {}\n",
        percent(t.time_overhead),
        percent(plan.map(|p| p.expected_time_overhead))
    );
    if let Some(plan) = plan {
        let mean_s = run.checkpoints.iter().map(|c| c.seconds).sum::<f64>() / run.checkpoints.len().max(1) as f64;
        let measured = if run.checkpoints.is_empty() { "none".to_string() } else { format!("{mean_s:.2} s") };
        text += &format!(
            "  checkpoint: measured {measured}, predicted {:.2} s (from: {}); first interval {:.1} s\n",
            plan.checkpoint_s.value, plan.checkpoint_s.from, plan.interval_s
        );
    }
    if !run.failures.is_empty() {
        text += "\nFailures\n";
        for f in &run.failures {
            let counts = if f.counts { "" } else { " (not counted into the MTBF)" };
            text += &format!("  {}{counts}: {}, noticed after {:.1} s\n", f.kind, f.reason, f.detection_s);
        }
    }
    text += "\nRecords\n";
    for r in &run.records {
        let seconds = r.end_s.map_or_else(|| "runs".to_string(), |e| options::format_time(e - r.start_s));
        text += &format!("  restart {} on {}: {} ({seconds})\n", r.restart_count, r.nodes.join(","), r.state);
    }
    text
}

/// Sums by user or account.
fn sums(runs: &[RunAccount], by: By) -> String {
    let mut sums: BTreeMap<&str, (usize, u32, f64, f64, f64)> = BTreeMap::new();
    for run in runs {
        let key = match by {
            By::User => run.user.as_str(),
            By::Account => run.account.as_str(),
        };
        let sum = sums.entry(key).or_default();
        sum.0 += 1;
        sum.1 += run.total.failures;
        sum.2 += run.total.joules;
        sum.3 += run.total.resilience_j;
        sum.4 += run.total.recomputed_j;
    }
    let heading = if matches!(by, By::User) { "User" } else { "Account" };
    let mut text = format!(
        "{heading:<16} {:>6} {:>8} {:>14} {:>14} {:>14}\n",
        "Runs", "Failures", "Energy(J)", "Resilience(J)", "LostWork(J)"
    );
    for (key, (count, failures, joules, resilience_j, lost_j)) in sums {
        text += &format!("{key:<16} {count:>6} {failures:>8} {joules:>14.1} {resilience_j:>14.1} {lost_j:>14.1}\n");
    }
    text
}

/// A moment as sacct takes it, as seconds since the epoch; local time.
fn parse_moment(text: &str, now_s: f64) -> Result<f64> {
    let wrong =
        || format!("'{text}' is not a time; accepted: now, now-7days, today, YYYY-MM-DD[THH:MM[:SS]], HH:MM[:SS]");
    if let Some(rest) = text.strip_prefix("now") {
        return relative(rest).map(|s| now_s + s).with_context(wrong);
    }
    let today = local(now_s)?;
    let midnight = |days: i32| epoch(today.tm_year, today.tm_mon, today.tm_mday + days, (0, 0, 0));
    match text {
        "today" | "midnight" => return Ok(midnight(0)),
        "tomorrow" => return Ok(midnight(1)),
        _ => {}
    }
    let (date, time) = match text.split_once('T') {
        Some((date, time)) => (Some(date), Some(time)),
        None if text.contains(':') => (None, Some(text)),
        None => (Some(text), None),
    };
    let numbers = |t: &str, by: char| t.split(by).map(|p| p.parse::<i32>().ok()).collect::<Option<Vec<_>>>();
    let clock = match time.map(|t| numbers(t, ':')) {
        None => (0, 0, 0),
        Some(Some(parts)) => match parts[..] {
            [h, m] if h < 24 && m < 60 => (h, m, 0),
            [h, m, s] if h < 24 && m < 60 && s < 61 => (h, m, s),
            _ => bail!(wrong()),
        },
        Some(None) => bail!(wrong()),
    };
    match date.map(|d| numbers(d, '-')) {
        None => Ok(epoch(today.tm_year, today.tm_mon, today.tm_mday, clock)),
        Some(Some(parts)) => match parts[..] {
            [y, m, d] if (1970..3000).contains(&y) && (1..=12).contains(&m) && (1..=31).contains(&d) => {
                Ok(epoch(y - 1900, m - 1, d, clock))
            }
            _ => bail!(wrong()),
        },
        Some(None) => bail!(wrong()),
    }
}

/// `-7days`, `+2hours`, or nothing, in seconds.
fn relative(text: &str) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    let sign = match text.as_bytes()[0] {
        b'-' => -1.0,
        b'+' => 1.0,
        _ => return None,
    };
    let digits = text[1..].trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[1 + digits.len()..].trim_end_matches('s') {
        "" | "second" => 1.0,
        "minute" => 60.0,
        "hour" => 3600.0,
        "day" => 86400.0,
        "week" => 7.0 * 86400.0,
        _ => return None,
    };
    digits.parse::<u32>().ok().map(|n| sign * f64::from(n) * unit)
}

fn local(at_s: f64) -> Result<libc::tm> {
    let time = at_s as libc::time_t;
    // SAFETY: all fields of tm are numbers or a pointer; zero is valid for each.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to values that live through the call.
    if unsafe { libc::localtime_r(&time, &mut parts) }.is_null() {
        bail!("the local time is unknown");
    }
    Ok(parts)
}

/// Local calendar to seconds since the epoch; days beyond the month are carried over.
fn epoch(year: i32, month: i32, day: i32, (hour, minute, second): (i32, i32, i32)) -> f64 {
    // SAFETY: as above.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    parts.tm_year = year;
    parts.tm_mon = month;
    parts.tm_mday = day;
    parts.tm_hour = hour;
    parts.tm_min = minute;
    parts.tm_sec = second;
    parts.tm_isdst = -1;
    // SAFETY: the pointer is to a value that lives through the call.
    unsafe { libc::mktime(&mut parts) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_sacct_s() {
        let now_s = 1_700_000_000.0;
        assert_eq!(parse_moment("now", now_s).unwrap(), now_s);
        assert_eq!(parse_moment("now-7days", now_s).unwrap(), now_s - 604_800.0);
        assert_eq!(parse_moment("now+2hours", now_s).unwrap(), now_s + 7200.0);
        let day = parse_moment("2026-11-21", now_s).unwrap();
        assert_eq!(parse_moment("2026-11-21T01:00", now_s).unwrap() - day, 3600.0);
        assert_eq!(parse_moment("tomorrow", now_s).unwrap() - parse_moment("today", now_s).unwrap(), 86_400.0);
        for wrong in ["", "yesterdayish", "now-x", "2026-13-01", "25:00", "1:2:3:4"] {
            assert!(parse_moment(wrong, now_s).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fields_are_known_or_corrected() {
        assert_eq!(fields("JobID,Energy").unwrap().len(), 2);
        assert!(fields("enrgy").unwrap_err().to_string().contains("did you mean 'energy'"));
    }

    #[test]
    fn csv_cells_are_quoted_where_needed() {
        assert_eq!(quoted("a,b\"c"), "\"a,b\"\"c\"");
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(printable("a\u{1b}[2Jb\n"), "a?[2Jb?");
    }
}

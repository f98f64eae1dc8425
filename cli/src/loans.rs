//! `joulepoint loans`: which nodes were lent, by whom and to whom, and what it was worth.

use crate::{Failure, out};
use ::report::moment;
use ::report::sheet::printable;
use driver::groups::ports::LoanOutcome;
use job::lend::{Lender, Offer};
use planner::{Lent, Party};
use protocol::{Loan, LoanProgress, LoanState};
use serde::Serialize;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;

/// Arguments of `joulepoint loans`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LoansArgs {
    #[command(subcommand)]
    inner: Option<Inner>,
    /// Job ids of lenders or borrowers, separated by commas; 12_3 is a task of an array.
    #[arg(short = 'j', long = "jobs", value_name = "JOBID")]
    jobs: Option<String>,
    /// User names of lenders or borrowers; operators see all loans, others those of their own runs.
    #[arg(short = 'u', long, value_name = "NAMES")]
    user: Option<String>,
    /// Slurm accounts of lenders or borrowers.
    #[arg(short = 'A', long, visible_alias = "accounts", value_name = "NAMES")]
    account: Option<String>,
    /// Loans that had not ended by then; midnight without -S and -j.
    #[arg(short = 'S', long = "starttime", value_name = "TIME")]
    start: Option<String>,
    /// Loans that were asked for by then.
    #[arg(short = 'E', long = "endtime", value_name = "TIME")]
    end: Option<String>,
    /// Sums of these loans: what each lent and what each borrowed, and the total.
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What sums are made by.
#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    /// User name.
    User,
    /// Slurm account.
    Account,
    /// Slurm job id.
    Job,
}

/// A loan with what it came to.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    loan: &'a Loan,
    lending: Lent,
}

#[derive(clap::Subcommand)]
enum Inner {
    /// Lend idle nodes of a running job, wait, and take them back; for the job's own user.
    ///
    /// What a run is to do by itself while one of its groups recovers. Nothing of the job may be running on the nodes.
    Ask(AskArgs),
    /// Call lent nodes back now; for the lender and operators.
    ///
    /// Jobs that were let in for the window end by their time limit, those that were chosen beyond it checkpoint and go
    /// back into the queue; nobody new begins.
    Recall(RecallArgs),
}

#[derive(clap::Args)]
struct RecallArgs {
    /// The loan's id, as `joulepoint loans` shows it.
    loan: String,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct AskArgs {
    /// Job id, or ARRAY_TASK.
    #[arg(short = 'j', long, value_name = "JOB")]
    job: String,
    /// The nodes, as Slurm writes them: n[2-3].
    #[arg(long, value_name = "NODELIST")]
    nodes: String,
    /// Seconds until they are needed again.
    #[arg(long = "for", value_name = "SECONDS")]
    seconds: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the loans, or makes one; the exit code.
pub fn run(args: &LoansArgs, conf: &Path) -> Result<i32, Failure> {
    match &args.inner {
        Some(Inner::Ask(ask)) => return lend(ask, conf),
        Some(Inner::Recall(recall)) => return call_back(recall, conf),
        None => {}
    }
    let now = jiff::Zoned::now();
    let moment = |text: &Option<String>| {
        let moment = text.as_deref().map(|t| moment::parse(t, &now)).transpose();
        moment.map_err(|e| Failure::Usage(e.to_string()))
    };
    let (mut start_s, end_s) = (moment(&args.start)?, moment(&args.end)?);
    let jobs = args.jobs.as_deref().map(|text| crate::report::known_jobs(text, conf)).transpose()?;
    let jobs = jobs.map(|jobs| jobs.list());
    if start_s.is_none() && jobs.is_none() {
        start_s = moment::today(&now).map(|t| t.timestamp().as_second() as f64);
    }
    let text = |number: f64| number.to_string();
    let query = wire::query(&[
        ("job", jobs.as_deref()),
        ("user", args.user.as_deref()),
        ("account", args.account.as_deref()),
        ("start", start_s.map(text).as_deref()),
        ("end", end_s.map(text).as_deref()),
    ]);
    let loans: Vec<Loan> = crate::client(conf)?.get(&format!("/v1/loans{query}")).map_err(anyhow::Error::from)?;
    let now_s = now.timestamp().as_millisecond() as f64 / 1e3;
    match args.by.map(|by| sums(&loans, now_s, by)) {
        Some(sums) if args.json => out::json(&sums)?,
        Some(sums) => out::print(table(&sums))?,
        None if args.json => {
            let line = |loan| Line { loan, lending: planner::lent([loan], now_s) };
            out::json(&loans.iter().map(line).collect::<Vec<_>>())?;
        }
        None => out::print(sheet(&loans, now_s))?,
    }
    Ok(0)
}

fn sums(loans: &[Loan], now_s: f64, by: By) -> Vec<Party> {
    planner::parties(loans, now_s, |user, account, job| match by {
        By::User => user.to_string(),
        By::Account => account.to_string(),
        By::Job => job.to_string(),
    })
}

fn table(sums: &[Party]) -> String {
    let mut text = format!(
        "{:<16} {:>6} {:>12} {:>12} {:>14} {:>14} {:>14} {:>14}\n",
        "Of", "Loans", "LentNodeS", "UsedNodeS", "UsedJ", "WouldIdleJ", "BorrowedNodeS", "BorrowedJ"
    );
    for Party { of, lent, borrowed_node_seconds, borrowed_j } in sums {
        text += &format!(
            "{:<16} {:>6} {:>12.0} {:>12.0} {:>14} {:>14.0} {:>14.0} {:>14}\n",
            if of.is_empty() { "(none)" } else { of },
            lent.loans,
            lent.node_seconds,
            lent.used_node_seconds,
            joules(lent.used_j),
            lent.would_idle_j,
            borrowed_node_seconds,
            joules(*borrowed_j),
        );
    }
    text
}

/// Energy, or a dash where nothing was read.
fn joules(joules: Option<f64>) -> String {
    joules.map_or_else(|| "-".into(), |j| format!("{j:.0}"))
}

fn call_back(RecallArgs { loan, json }: &RecallArgs, conf: &Path) -> Result<i32, Failure> {
    if loan.is_empty() || !loan.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Err(Failure::Usage(format!("'{loan}' is no loan: `joulepoint loans` shows their ids")));
    }
    let word = LoanProgress { version: protocol::VERSION, return_s: 0.0 };
    let path = format!("/v1/loans/{loan}/return");
    let loan: Loan = crate::client(conf)?.post(&path, &word).map_err(anyhow::Error::from)?;
    if *json {
        out::json(&loan)?
    } else {
        out::print(format!("loan {}: {}\n", loan.id, loan.state.as_str()))?
    }
    Ok(0)
}

fn lend(ask: &AskArgs, conf: &Path) -> Result<i32, Failure> {
    let nodes = slurm::expand_nodelist(&ask.nodes).map_err(|e| Failure::Usage(e.to_string()))?;
    let site = crate::site(conf)?;
    let lender = Lender::new(crate::client(conf)?, slurm::Slurm::new(site.slurm_bin.clone()));
    let return_s = jiff::Timestamp::now().as_millisecond() as f64 / 1e3 + ask.seconds;
    let offer = Offer { job: ask.job.clone(), nodes, return_s, reason: "asked for by hand".into() };
    let id = format!("{:016x}", RandomState::new().build_hasher().finish());
    // Somebody else may move the end of a loan that was asked for by hand.
    match lender.lend(&id, &offer, &mut |loan| loan.return_s) {
        LoanOutcome::Back { nodes, away_s, .. } => {
            match ask.json {
                true => out::json(&serde_json::json!({ "loan": id, "nodes": nodes, "lent_for_s": away_s }))?,
                false => {
                    let nodes = slurm::compress_nodelist(&nodes);
                    out::print(format!("{nodes} back after {away_s:.0} s (loan {id})\n"))?;
                }
            }
            Ok(0)
        }
        LoanOutcome::Kept(why) => Err(anyhow::anyhow!("nothing was lent: {why}").into()),
        LoanOutcome::Lost(why) => Err(anyhow::anyhow!("the nodes did not come back: {why} (loan {id})").into()),
    }
}

fn sheet(loans: &[Loan], now_s: f64) -> String {
    let mut text = format!(
        "{:<16} {:>8} {:<10} {:<7} {:<10} {:<10} {:<19} {:<20} {:>9} {:>9} {:>10} {:>10} {}\n",
        "Loan",
        "Lender",
        "User",
        "Mode",
        "State",
        "Nodes",
        "Lent",
        "Back",
        "LentNodeS",
        "UsedNodeS",
        "UsedJ",
        "WouldIdleJ",
        "Borrowers"
    );
    for loan in loans {
        let worth = planner::lent([loan], now_s);
        let is_chosen = |job| loan.chosen.iter().any(|c| c.job == job);
        let how = |job| if is_chosen(job) { ",preempt" } else { "" };
        let borrowers: BTreeSet<String> =
            loan.stays.iter().map(|s| format!("{}({}{})", s.job, s.user, how(s.job))).collect();
        text += &format!(
            "{:<16} {:>8} {:<10} {:<7} {:<10} {:<10} {:<19} {:<20} {:>9.0} {:>9.0} {:>10} {:>10.0} {}\n",
            loan.id.chars().take(16).collect::<String>(),
            loan.job,
            loan.user,
            loan.mode.as_str(),
            loan.state.as_str(),
            slurm::compress_nodelist(&loan.nodes),
            loan.lent_s.map_or_else(|| "-".into(), moment::shown),
            back(loan),
            worth.node_seconds,
            worth.used_node_seconds,
            joules(worth.used_j),
            worth.would_idle_j,
            if borrowers.is_empty() { "-".into() } else { borrowers.into_iter().collect::<Vec<_>>().join(",") },
        );
        if loan.state == LoanState::Failed || loan.lent_s.is_none() {
            text += &format!("  {}\n", printable(&loan.reason));
        }
    }
    text
}

/// When the nodes were back; with `~` before it when they are expected.
fn back(loan: &Loan) -> String {
    match (loan.back_s, loan.state.is_over()) {
        (Some(back_s), _) => moment::shown(back_s),
        (None, false) => format!("~{}", moment::shown(loan.return_s)),
        (None, true) => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_worth_what_was_used_beside_what_would_have_idled() {
        let loan = serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap();
        let text = sheet(&[loan], 1000.0);
        let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
        assert_eq!(lines[1][5], "n[2-3]", "{text}");
        assert_eq!(lines[1][8..], ["180", "30", "9000", "18000", "8(bob)"], "{text}");
    }

    #[test]
    fn a_lenders_reason_is_one_line_that_does_not_speak_to_a_terminal() {
        let loan: Loan = serde_json::from_str(include_str!("../../protocol/tests/loan.json")).unwrap();
        let loan = Loan { state: LoanState::Failed, reason: "because\u{1b}[31m\nLoan".into(), ..loan };
        assert!(sheet(&[loan], 1000.0).ends_with("\n  because?[31m?Loan\n"));
    }
}

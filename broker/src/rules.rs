//! Says which loans a site allows: pure, every refusal with its reason.

use crate::machine::HANDING_S;
use config::Lend;
use protocol::Loan;
use slurm::{Job, JobState, Reservation, Step};
use std::collections::BTreeMap;

/// A day, s.
pub const DAY_S: f64 = 86_400.0;

/// What a loan is judged by.
pub struct Ask<'a> {
    /// Now.
    pub now_s: f64,
    /// The lender's job.
    pub job: &'a Job,
    /// Its account.
    pub account: &'a str,
    /// The nodes to be lent.
    pub nodes: &'a [String],
    /// When they are needed again.
    pub return_s: f64,
    /// The job's steps.
    pub steps: &'a [Step],
    /// All reservations.
    pub reservations: &'a [Reservation],
    /// Slurm's configuration, by lower-case key.
    pub slurm: &'a BTreeMap<String, String>,
    /// Loans that are not over, and those of the last day.
    pub loans: &'a [Loan],
}

/// Why the site does not allow a loan; nothing if it does.
pub fn refusal(site: &Lend, ask: &Ask<'_>) -> Option<String> {
    let checks = [by_site, by_slurm, by_job, by_nodes, by_window, by_caps];
    checks.iter().find_map(|check| check(site, ask))
}

fn by_site(site: &Lend, ask: &Ask<'_>) -> Option<String> {
    site.refusal(&ask.job.partition, ask.account, &ask.job.user)
}

fn by_slurm(_: &Lend, ask: &Ask<'_>) -> Option<String> {
    slurm::resizing(ask.slurm).err().map(str::to_string)
}

fn by_job(_: &Lend, ask: &Ask<'_>) -> Option<String> {
    let job = ask.job;
    if job.state != JobState::Running {
        return Some(format!("job {} does not run", job.id));
    }
    if job.has_flag("EXPEDITING") {
        return Some(format!("job {} is requeued by Slurm with its nodes kept", job.id));
    }
    job.cannot_lend()
}

fn by_nodes(_: &Lend, ask: &Ask<'_>) -> Option<String> {
    let Ask { job, nodes, .. } = ask;
    if nodes.is_empty() {
        return Some("no node is named".into());
    }
    let foreign = nodes.iter().find(|n| !job.nodes.contains(n));
    if let Some(node) = foreign {
        return Some(format!("node {node} is not of job {}", job.id));
    }
    if let Some(host) = job.batch_host.iter().find(|h| nodes.contains(h)) {
        return Some(format!("node {host} runs the batch script: Slurm does not release it"));
    }
    let busy = ask.steps.iter().find(|s| s.is_users() && s.nodes.iter().any(|n| nodes.contains(n)));
    if let Some(step) = busy {
        return Some(format!("step {} still runs there, and the loan would kill it", step.id));
    }
    let meets = |r: &&Reservation| r.end_s > ask.now_s && r.nodes.iter().any(|n| nodes.contains(n));
    ask.reservations.iter().find(meets).map(|r| format!("reservation {} has some of the nodes", r.name))
}

fn by_window(site: &Lend, ask: &Ask<'_>) -> Option<String> {
    let window_s = ask.return_s - ask.now_s;
    if !(window_s >= site.shortest_s && window_s <= site.longest_s) {
        return Some(format!(
            "{window_s:.0} s are not between lend.shortest_s = {} and lend.longest_s = {}",
            site.shortest_s, site.longest_s
        ));
    }
    let ends = ask.job.end_s.filter(|end_s| end_s - HANDING_S < ask.return_s);
    ends.map(|_| format!("job {} reaches its time limit before the return", ask.job.id))
}

fn by_caps(site: &Lend, ask: &Ask<'_>) -> Option<String> {
    let today = || ask.loans.iter().filter(|l| ask.now_s - l.asked_s < DAY_S);
    if ask.loans.iter().any(|l| l.job == ask.job.id && !l.state.is_over()) {
        return Some(format!("job {} lends already", ask.job.id));
    }
    let of_run = today().filter(|l| l.job == ask.job.id && l.uid == ask.job.uid).count();
    if of_run >= site.loans_per_run_and_day as usize {
        return Some(format!("{of_run} loans of this run in a day are enough (lend.loans_per_run_and_day)"));
    }
    let lent: f64 = today().map(|l| node_seconds(l, ask.now_s)).sum();
    let more = ask.nodes.len() as f64 * (ask.return_s - ask.now_s);
    (lent + more > site.node_seconds_per_day).then(|| {
        format!("{lent:.0} node-seconds were lent in a day, and {more:.0} more are beyond lend.node_seconds_per_day")
    })
}

/// Node-seconds for which a loan's nodes were away, or will have been at the expected return.
fn node_seconds(loan: &Loan, now_s: f64) -> f64 {
    let away_s = match (loan.lent_s, loan.back_s) {
        (Some(lent_s), Some(back_s)) => back_s - lent_s,
        _ if loan.state.is_over() => 0.0,
        (lent_s, _) => loan.return_s.max(now_s) - lent_s.unwrap_or(loan.asked_s),
    };
    away_s.max(0.0) * loan.nodes.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::LoanMode;

    fn names(list: &str) -> Vec<String> {
        list.split_whitespace().map(str::to_owned).collect()
    }

    fn job(more: &str) -> Job {
        let line = format!(
            "JobId=7 JobName=j UserId=alice(1000) GroupId=g(1) Account=physics {more} BatchHost=n1 \
             NodeList=n[1-4] EndTime=9000 Partition=all OverSubscribe=NO Requeue=1"
        );
        slurm::parse_job(&line, 7).unwrap().unwrap()
    }

    fn why(site: &Lend, job: &Job, nodes: &str, return_s: f64) -> String {
        let slurm = BTreeMap::from([("schedulerparameters".into(), "bf_interval=2,permit_job_expansion".into())]);
        let step = "StepId=7.0 StartTime=1 State=RUNNING NodeList=n2 Name=heat";
        let theirs =
            Reservation { name: "school".into(), nodes: names("n4"), start_s: 0.0, end_s: 9e9, users: names("x") };
        let ask = Ask {
            now_s: 1000.0,
            job,
            account: "physics",
            nodes: &names(nodes),
            return_s,
            steps: &slurm::parse_steps(step, "7").unwrap(),
            reservations: &[theirs],
            slurm: &slurm,
            loans: &[],
        };
        refusal(site, &ask).unwrap_or_default()
    }

    #[test]
    fn each_guard_rail_refuses_with_its_reason() {
        let open = Lend::default();
        let named = |key: &str| {
            let mut site = Lend::default();
            match key {
                "off" => site.mode = LoanMode::Off,
                "only" => site.partitions = names("gpu"),
                "never" => site.not_users = names("alice"),
                "day" => site.node_seconds_per_day = 10.0,
                _ => site.loans_per_run_and_day = 0,
            }
            site
        };
        let running = job("JobState=RUNNING");
        assert_eq!(why(&open, &running, "n3", 1100.0), "");
        let cases: [(Lend, Job, &str, f64, &str); 17] = [
            (named("off"), running.clone(), "n3", 1100.0, "lend.mode"),
            (named("only"), running.clone(), "n3", 1100.0, "partition all"),
            (named("never"), running.clone(), "n3", 1100.0, "user alice"),
            (named("day"), running.clone(), "n3", 1100.0, "node_seconds_per_day"),
            (named("run"), running.clone(), "n3", 1100.0, "loans_per_run_and_day"),
            (open.clone(), job("JobState=SUSPENDED"), "n3", 1100.0, "does not run"),
            (open.clone(), Job { requeue: false, ..running.clone() }, "n3", 1100.0, "may not be requeued"),
            (open.clone(), Job { exclusive: false, ..running.clone() }, "n3", 1100.0, "--exclusive"),
            (open.clone(), job("JobState=RUNNING Reservation=school"), "n3", 1100.0, "runs in reservation school"),
            (open.clone(), running.clone(), "", 1100.0, "no node"),
            (open.clone(), running.clone(), "n9", 1100.0, "n9 is not of job 7"),
            (open.clone(), running.clone(), "n1", 1100.0, "batch script"),
            (open.clone(), running.clone(), "n2 n3", 1100.0, "step 7.0"),
            (open.clone(), running.clone(), "n4", 1100.0, "reservation school"),
            (open.clone(), running.clone(), "n3", 1010.0, "lend.shortest_s"),
            (open.clone(), running.clone(), "n3", 9100.0, "time limit"),
            (open, running, "n3", 8990.0, "time limit"),
        ];
        for (site, job, nodes, return_s, reason) in cases {
            let why = why(&site, &job, nodes, return_s);
            assert!(why.contains(reason), "{reason}: {why}");
        }
    }

    #[test]
    fn a_loan_that_is_out_counts_as_long_as_it_is_expected_to_be() {
        let loan = |state: &str, lent_s: Option<f64>, back_s: Option<f64>| -> Loan {
            let loan = serde_json::json!({
                "id": "a", "name": "joulepoint_a", "key": { "cluster": "c", "run": "8.1" }, "job": 8, "restart_count": 0,
                "uid": 1000, "user": "alice", "account": "physics", "mode": "window", "state": state, "state_s": 0.0,
                "reason": "it pays", "nodes": ["n5", "n6"], "kept": ["n1"], "asked_s": 900.0, "return_s": 1400.0,
                "promised_s": 1400.0, "lent_s": lent_s, "back_s": back_s, "back": [], "time_limit_s": 1800,
                "idle_w": 100.0, "stays": []
            });
            serde_json::from_value(loan).unwrap()
        };
        for (loan, expected) in [
            (loan("asked", None, None), 1000.0),
            (loan("lent", Some(910.0), None), 980.0),
            (loan("closing", Some(910.0), Some(950.0)), 80.0),
            (loan("closed", None, None), 0.0),
        ] {
            assert_eq!(node_seconds(&loan, 1000.0), expected, "{}", loan.state.as_str());
        }
        assert_eq!(node_seconds(&loan("returning", Some(910.0), None), 1500.0), 1180.0, "it is late");
    }

    #[test]
    fn a_slurm_that_cannot_expand_jobs_is_told_from_one_that_can() {
        let (job, slurm) = (job("JobState=RUNNING"), BTreeMap::new());
        let ask = Ask {
            now_s: 1000.0,
            job: &job,
            account: "physics",
            nodes: &names("n3"),
            return_s: 1100.0,
            steps: &[],
            reservations: &[],
            slurm: &slurm,
            loans: &[],
        };
        assert!(refusal(&Lend::default(), &ask).is_some_and(|r| r.contains("permit_job_expansion")));
    }
}

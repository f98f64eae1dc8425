//! `joulepoint status`: how runs are doing now.

use crate::report::{Jobs, known_jobs};
use crate::{Failure, out, report};
use ::report::columns::{protection, state};
use ::report::sheet::printable;
use ::report::words;
use anyhow::anyhow;
use protocol::{Protection, ProtectionState, RunAccount};
use slurm::{JobState, Slurm};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Arguments of `joulepoint status`.
#[derive(clap::Args)]
pub struct StatusArgs {
    /// Slurm job id, or ARRAY_TASK; all running runs if absent.
    job: Option<String>,
    /// Wait until the job is protected; ends with 3 if it is known that it will not be, or has ended.
    #[arg(long, requires = "job")]
    wait_protected: bool,
    /// Longest wait; ends with 4 then.
    ///
    /// 45s, 5min, 2h, or as Slurm has it: 30 (minutes), 2:00:00.
    #[arg(long, value_name = "TIME", requires = "wait_protected")]
    timeout: Option<String>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Time between two looks at a run that is waited for.
const LOOK: Duration = Duration::from_secs(1);

/// Time between two questions to Slurm about a job of which no run is known, and how long such a job runs until none is
/// expected of it any more.
const ASK_SLURM: Duration = Duration::from_secs(10);
const BEGUN_S: f64 = 90.0;

/// Most runs of whose jobs Slurm is asked, one by one.
const MOST_ASKED: usize = 16;

/// Exit codes of a wait that was in vain.
const EXIT_NOT_PROTECTED: i32 = 3;
const EXIT_TIMEOUT: i32 = 4;

/// Prints one line a run; of one job also how far it is protected.
pub fn run(args: &StatusArgs, conf: &Path) -> Result<i32, Failure> {
    let jobs = args.job.as_ref().map(|job| known_jobs(job, conf)).transpose()?;
    let path = match &jobs {
        Some(jobs) => {
            let [(job, whole), (task, tasks)] = jobs.parts();
            format!("/v1/report{}", wire::query(&[(job, whole.as_deref()), (task, tasks.as_deref())]))
        }
        None => "/v1/report?state=running".to_string(),
    };
    let client = crate::client(conf)?;
    let ask = || -> anyhow::Result<Vec<RunAccount>> {
        let mut runs: Vec<RunAccount> = client.get(&path)?;
        runs.iter_mut().for_each(RunAccount::name_job);
        let waiting: Vec<u32> = runs.iter().filter(|run| run.waits).map(|run| run.job).collect();
        if !waiting.is_empty() {
            unheard(&mut runs, &known(&waiting, conf).iter().filter_map(Running::of).collect::<Vec<_>>());
        }
        Ok(runs)
    };
    let mut runs = ask()?;
    let code = match args.wait_protected {
        true => wait(&mut runs, limit(args)?, &ask, &|| in_vain(jobs.as_ref(), conf))?,
        false => 0,
    };
    if args.json {
        out::json(&runs)?;
        // Of a job of which nothing is known, as without --json.
        return Ok(if args.job.is_some() && runs.is_empty() && code == 0 { 1 } else { code });
    }
    if let Some(job) = args.job.as_ref().filter(|_| runs.is_empty() && code == 0) {
        return Err(Failure::Other(anyhow!("{}", report::unknown(job))));
    }
    out::print(table(&runs, args.job.is_some(), &states(&runs, conf)))?;
    Ok(code)
}

/// The states, by Slurm, of jobs whose runs have not ended: a job may wait, or be held or suspended, and its run does not know
/// it. Of many runs Slurm is not asked.
fn states(runs: &[RunAccount], conf: &Path) -> BTreeMap<u32, &'static str> {
    let open: Vec<u32> = runs.iter().filter(|run| run.end_s.is_none() && run.job > 0).map(|run| run.job).collect();
    known(&open, conf).into_iter().map(|job| (job.id, job.state.as_str())).collect()
}

/// What Slurm says of jobs, if they are not many.
fn known(jobs: &[u32], conf: &Path) -> Vec<slurm::Job> {
    let site = crate::site(conf).ok().filter(|_| jobs.len() <= MOST_ASKED);
    site.and_then(|site| Slurm::new(site.slurm_bin).jobs_of(jobs).ok()).unwrap_or_default()
}

/// A job that Slurm has run for so long that its wrapper would have been heard.
struct Running {
    job: u32,
    for_s: f64,
}

impl Running {
    fn of(job: &slurm::Job) -> Option<Running> {
        let for_s = host::mail::now_s() - job.start_s.filter(|_| job.state == JobState::Running)?;
        (for_s > BEGUN_S).then_some(Running { job: job.id, for_s })
    }
}

/// Says of runs that have no wrapper while their jobs run that they are not protected: the plugin may be gone, and the script has
/// begun without it.
fn unheard(runs: &mut [RunAccount], jobs: &[Running]) {
    for run in runs.iter_mut().filter(|run| run.waits && run.end_s.is_none()) {
        let Some(job) = jobs.iter().find(|job| job.job == run.job) else { continue };
        let engine = run.protection.as_ref().map_or_else(|| "none".to_string(), |before| before.engine.clone());
        run.waits = false;
        run.protection = Some(Protection {
            state: ProtectionState::NotProtected,
            engine,
            why: String::new(),
            reason: format!("it runs for {}, and no wrapper has told of this life", options::spoken(job.for_s)),
            cure: "its node has no plugin, and it has begun anew (joulepoint doctor), or its wrapper cannot reach the controller"
                .to_string(),
            largest_loss_s: None,
        });
    }
}

fn limit(args: &StatusArgs) -> Result<Option<Instant>, Failure> {
    let time = args
        .timeout
        .as_deref()
        .map(|text| options::time_argument(text).map_err(|why| Failure::Usage(format!("--timeout: '{text}' {why}"))));
    Ok(time.transpose()?.map(|time| Instant::now() + time))
}

/// Why no run is to be expected of jobs of which none is known, if Slurm says so.
fn in_vain(jobs: Option<&Jobs>, conf: &Path) -> Option<String> {
    let jobs: Vec<u32> = jobs.into_iter().flat_map(Jobs::ids).collect();
    let known = Slurm::new(crate::site(conf).ok()?.slurm_bin).jobs_of(&jobs).ok()?;
    if known.iter().all(|job| job.state.is_over()) {
        return Some("nothing is known of it here, and it is over or unknown to Slurm".to_string());
    }
    known
        .iter()
        .any(|job| Running::of(job).is_some())
        .then(|| "it runs without protection; its output says why".to_string())
}

/// Looks until all runs of a job are protected; the exit code. While there is no run, `in_vain` is asked whether to wait on.
fn wait(
    runs: &mut Vec<RunAccount>,
    until: Option<Instant>,
    ask: &dyn Fn() -> anyhow::Result<Vec<RunAccount>>,
    in_vain: &dyn Fn() -> Option<String>,
) -> anyhow::Result<i32> {
    let mut asked: Option<Instant> = None;
    loop {
        let states: Vec<_> =
            runs.iter().map(|run| (run.state.as_str(), run.protection.as_ref().map(|p| p.state))).collect();
        if !states.is_empty() && states.iter().all(|(_, state)| *state == Some(ProtectionState::Protected)) {
            return Ok(0);
        }
        let is_lost = |(run, state): &(&str, Option<ProtectionState>)| {
            *state != Some(ProtectionState::Protected)
                && (*run != "running" || *state == Some(ProtectionState::NotProtected))
        };
        if states.iter().any(is_lost) {
            return Ok(EXIT_NOT_PROTECTED);
        }
        if states.is_empty() && asked.is_none_or(|at| at.elapsed() >= ASK_SLURM) {
            asked = Some(Instant::now());
            if let Some(why) = in_vain() {
                protocol::say!("joulepoint: {why}");
                return Ok(EXIT_NOT_PROTECTED);
            }
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Ok(EXIT_TIMEOUT);
        }
        std::thread::sleep(LOOK);
        // A controller that restarts is waited for.
        match ask() {
            Ok(answer) => *runs = answer,
            Err(e) => tracing::warn!(error = format!("{e:#}"), "the controller does not say"),
        }
    }
}

fn table(runs: &[RunAccount], is_one: bool, jobs: &BTreeMap<u32, &'static str>) -> String {
    let mut text = format!(
        "{:>8} {:<8} {:<9} {:<13} {:>5} {:>8} {:>9}  {}\n",
        "JobID", "User", "State", "Protection", "Ckpts", "Failures", "Energy", "last ckpt"
    );
    let now_s = host::mail::now_s();
    for run in runs {
        let last = run.checkpoints.last().map(|c| now_s - c.begun_s - c.seconds);
        let last = last.map_or_else(|| "none".to_string(), |s| format!("{} ago", options::spoken(s.max(0.0))));
        text += &format!(
            "{:>8} {:<8} {:<9} {:<13} {:>5} {:>8} {:>9}  {last}\n",
            run.job_id,
            printable(&run.user),
            jobs.get(&run.job).filter(|_| run.end_s.is_none()).map_or_else(|| state(run), |state| state.to_string()),
            protection(run),
            run.total.checkpoints,
            run.total.failures,
            run.total.joules.map_or_else(|| "-".to_string(), words::energy)
        );
    }
    for told in runs.iter().filter_map(|run| run.protection.as_ref()).filter(|_| is_one) {
        text += &format!("{}\n", printable(&protection::line(told)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn run(state: &str, protection: Option<ProtectionState>) -> RunAccount {
        let protection = protection.map(|state| serde_json::json!({ "state": state, "engine": "app" }));
        let run = serde_json::json!({
            "cluster": "c", "run": "7.1", "job": 7, "user": "alice", "account": "", "job_name": "j", "state": state,
            "start_s": 0.0, "end_s": null, "total": protocol::Totals::default(), "phases": [], "records": [],
            "failures": [], "checkpoints": [], "plan": null, "protection": protection
        });
        serde_json::from_value(run).unwrap()
    }

    #[test]
    fn a_job_that_runs_without_a_wrapper_is_not_called_protected() {
        let told = |waits, job| {
            let mut runs = vec![RunAccount { waits, ..run("running", Some(ProtectionState::Protected)) }];
            unheard(&mut runs, &[Running { job, for_s: 900.0 }]);
            let text = table(&runs, true, &BTreeMap::new());
            (runs[0].protection.as_ref().map(|told| told.state), text)
        };
        let (state, text) = told(true, 7);
        assert_eq!(state, Some(ProtectionState::NotProtected));
        assert!(text.contains("not protected") && text.contains("for 15 min, and no wrapper"), "{text}");
        for (waits, job) in [(false, 7), (true, 8)] {
            assert_eq!(told(waits, job).0, Some(ProtectionState::Protected), "{waits} {job}");
        }
    }

    #[test]
    fn a_wait_ends_with_protection_with_its_absence_or_with_the_job() {
        use ProtectionState::{NotProtected, Protected, Unproven};
        for (looks, code) in [
            (vec![Some(("running", None)), Some(("running", Some(Unproven))), Some(("running", Some(Protected)))], 0),
            (vec![None, Some(("running", Some(NotProtected)))], EXIT_NOT_PROTECTED),
            (vec![Some(("running", Some(Unproven))), Some(("completed", Some(Unproven)))], EXIT_NOT_PROTECTED),
            (vec![Some(("completed", Some(Protected)))], 0),
        ] {
            let told = |look: Option<(&str, Option<ProtectionState>)>| {
                look.map(|(state, p)| run(state, p)).into_iter().collect::<Vec<_>>()
            };
            let looks = RefCell::new(looks.into_iter());
            let ask = || Ok(told(looks.borrow_mut().next().expect("one more look")));
            let mut runs = ask().unwrap();
            assert_eq!(wait(&mut runs, None, &ask, &|| None).unwrap(), code);
        }
        let mut never = vec![run("running", Some(Unproven))];
        let (now, none) = (Some(Instant::now()), || Ok(Vec::new()));
        assert_eq!(wait(&mut never, now, &none, &|| Some("over".into())).unwrap(), EXIT_TIMEOUT, "its run is known");
        let code = wait(&mut Vec::new(), None, &none, &|| Some("it is over".into()));
        assert_eq!(code.unwrap(), EXIT_NOT_PROTECTED);
    }
}

//! Looks at nodes and runs again and again, and does what follows: one thread looks at nodes, another one acts and asks Slurm.

use super::acts::Acts;
use super::state::Watching;
use anyhow::Result;
use protocol::{Held, LATEST_SIGNAL};
use slurm::{Job, JobState};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use store::OpenRun;
use watch::Trouble;
use watch::runs::{self, Doing};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);

/// Longest time for which Slurm is asked about jobs at once: dead nodes wait to be set down meanwhile.
const ASKING: Duration = Duration::from_secs(1);

/// Time between two questions about all nodes while many of them are silent, s.
const ASK_OUT_S: f64 = 30.0;

/// Signal of a job whose script was killed.
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Exit code of a wrapper whose run a later life of its job has.
const SUPERSEDED: i32 = 123;

/// Time between two looks for nodes that are well and still down in Slurm by our doing, s.
const RESUME_S: f64 = 1.0;

/// Time between two questions about nodes where Slurm may reach them elsewhere by now, s.
const PLACES_S: f64 = 5.0;

/// The watch of a controller.
#[derive(Clone)]
pub(crate) struct Watcher {
    pub watching: Arc<Watching>,
    pub acts: Arc<Acts>,
}

impl Watcher {
    /// Looks at nodes for ever.
    pub(crate) fn look_for_ever(&self) {
        let mut trouble = Trouble::default();
        loop {
            std::thread::sleep(LOOK);
            let looked = self.look_once();
            say(&mut trouble, self.watching.now_s(), looked);
        }
    }

    /// Looks at all nodes once. Slurm is asked nothing here: however slow it is, deaths of nodes are seen.
    fn look_once(&self) -> Result<()> {
        let watching = &self.watching;
        let mut actions = std::mem::take(&mut *watching.news.lock());
        let looking = watching.looking.all();
        {
            let mut nodes = watching.nodes.lock();
            nodes.set_looking(looking);
            actions.extend(nodes.look(watching.now_s()));
        }
        let kept = watching.keep_all(&[]);
        self.acts.on_nodes(actions);
        Ok(kept?)
    }

    /// Acts for ever on what is seen of nodes, and on what Slurm says of jobs.
    pub(crate) fn act_for_ever(&self) {
        let (mut resumed_s, mut placed_s, mut trouble) = (0.0, 0.0, Trouble::default());
        loop {
            std::thread::sleep(LOOK);
            let acted = self.act_once(&mut trouble);
            let now_s = self.watching.now_s();
            if now_s - resumed_s >= RESUME_S {
                resumed_s = now_s;
                self.acts.resume_well();
            }
            if now_s - placed_s >= PLACES_S {
                placed_s = now_s;
                self.acts.looks.ask_again();
            }
            say(&mut trouble, now_s, acted);
        }
    }

    /// Does once what is due.
    fn act_once(&self, trouble: &mut Trouble) -> Result<()> {
        let runs = self.acts.reader.lock().open_runs_kept()?;
        let noted = self.acts.note_deaths();
        // First: Slurm requeues the jobs of a node that is down at once, and one that we requeue waits for its epilog there.
        self.acts.set_down_due(&runs);
        let asked = self.ask_about_jobs(&runs, trouble);
        self.note_held(&runs);
        self.acts.judge_deaths();
        let now_s = self.watching.now_s();
        let is_crowd = self.watching.nodes.lock().is_crowd(now_s);
        if is_crowd {
            self.ask_who_is_out(now_s);
        }
        self.ask_who_is_down(now_s);
        noted?;
        asked
    }

    /// Asks Slurm about those of our own jobs to which something may have happened, and helps them; no more often than
    /// the site allows, however many there are.
    fn ask_about_jobs(&self, runs: &[OpenRun], trouble: &mut Trouble) -> Result<()> {
        let watching = &self.watching;
        let known: Vec<runs::Run> = runs.iter().map(run).collect();
        let open: BTreeSet<u32> = known.iter().map(|r| r.job).collect();
        watching.words.lock().retain(|job, _| open.contains(job));
        trouble.forget_others(&open);
        watching.given_back.lock().retain(|(job, _), _| open.contains(job));
        let due = watching.runs.lock().due(watching.now_s(), &known, &watching.nodes.lock());
        let (begun, waiting) = (Instant::now(), self.acts.slurm.when_idle());
        let mut asked = Ok(());
        for job in due {
            let may_ask = watching.questions.lock().take(watching.now_s(), watching.rate, 1.0);
            if !may_ask || begun.elapsed() > ASKING {
                break;
            }
            let can_wait = watching.runs.lock().is_quiet(job);
            let answer = if can_wait { waiting.job(job) } else { self.acts.slurm.job(job) };
            if matches!(answer, Err(slurm::Error::Postponed)) {
                continue;
            }
            watching.asked.fetch_add(1, Ordering::Relaxed);
            let now_s = watching.now_s();
            trouble.asked(job, answer.is_ok());
            match answer {
                Ok(answer) => {
                    let of = runs.iter().zip(&known).filter(|(r, _)| r.job == job);
                    asked = asked.and(self.hear_of(now_s, job, answer, of));
                }
                Err(e) => {
                    // Whatever it is about this one job, the others are asked about.
                    watching.runs.lock().unanswered(now_s, job);
                    asked = Err(e.into());
                }
            }
        }
        asked
    }

    /// Does what follows from Slurm's word on a job for the runs that are of it.
    fn hear_of<'a>(
        &self,
        now_s: f64,
        job: u32,
        answer: Option<Job>,
        of: impl Iterator<Item = (&'a OpenRun, &'a runs::Run)>,
    ) -> Result<()> {
        let (watching, mut noted) = (&self.watching, Ok(()));
        let is_in_service = |node: &str| {
            let told = self.acts.slurm.when_idle().node(node);
            told.is_ok_and(|told| told.is_some_and(|node| !node.is_out_of_service()))
        };
        match answer {
            Some(answer) => drop(watching.words.lock().insert(job, (now_s, answer))),
            None => drop(watching.words.lock().remove(&job)),
        }
        for (open, known) in of {
            let told = watching.words.lock().get(&open.job).map(|(_, job)| job.clone());
            told.iter().for_each(|job| watching.note_given_back(open, job, is_in_service));
            if let Some(until_s) = told.as_ref().and_then(|job| is_over_by(open, job, listener::now_s())) {
                noted = noted.and(self.acts.store.lock().life_is_over(open, until_s));
            }
            let word = told.as_ref().map(|job| word(job, listener::now_s(), open.restart_count));
            let action = watching.runs.lock().answered(now_s, known, word.as_ref(), &watching.nodes.lock());
            match action {
                Some(action) => self.acts.on_run(open, action),
                // Slurm may have let it wait for as long as it does by itself while nobody was here.
                None if told.is_some_and(|job| job.state == JobState::Pending) => self.acts.tell_begin(open),
                None => {}
            }
        }
        Ok(noted?)
    }

    /// Notes which protected jobs hold which nodes, and which runs are their owners' by Slurm's word.
    fn note_held(&self, runs: &[OpenRun]) {
        let words = self.watching.words.lock();
        let theirs = |r: &&OpenRun| words.get(&r.job).is_some_and(|(_, j)| j.uid == r.uid);
        let mut held: BTreeMap<String, Vec<Held>> = BTreeMap::new();
        for run in runs.iter().filter(theirs) {
            let Some((_, job)) = words.get(&run.job) else { continue };
            if job.state != JobState::Running || job.restarts != run.restart_count {
                continue;
            }
            // Slurm's short record has the sum only: the nodes of a job are mostly alike.
            let cpus = job.num_cpus.div_ceil(job.nodes.len().max(1) as u32);
            for node in &job.nodes {
                let holds = Held { job: run.job, restart_count: run.restart_count, cpus };
                held.entry(node.clone()).or_default().push(holds);
            }
        }
        let open: Vec<&OpenRun> = runs.iter().filter(theirs).collect();
        drop(words);
        *self.watching.open.lock() = Arc::new(self.watching.whole(open));
        self.watching.nodes.lock().set_held(held);
    }

    /// Asks Slurm which nodes nobody misses, while so many are silent that it matters; the only question about all nodes.
    fn ask_who_is_out(&self, now_s: f64) {
        let mut asked_s = self.watching.out_asked_s.lock();
        if now_s - *asked_s < ASK_OUT_S {
            return;
        }
        *asked_s = now_s;
        match self.acts.slurm.when_idle().nodes() {
            Ok(nodes) => {
                let out = nodes.iter().filter(|n| n.is_out_of_service()).map(|n| n.name.clone()).collect();
                self.watching.nodes.lock().set_out(&out);
            }
            Err(e) => tracing::debug!(%e, "Slurm does not say which nodes are out of service"),
        }
    }

    /// Asks Slurm now and then, by one question, whether dead nodes with something of ours are down that are held to be: those
    /// that are not are judged again.
    fn ask_who_is_down(&self, now_s: f64) {
        let watching = &self.watching;
        let mut names = watching.downs.lock().to_compare(now_s);
        if names.is_empty() {
            return;
        }
        let used = watching.used();
        names.retain(|name| used.contains(name) && watching.nodes.lock().is_dead(name));
        match self.acts.slurm.when_idle().known_nodes(&names) {
            Ok(known) => {
                for node in known.iter().filter(|node| node.state != "DOWN") {
                    tracing::warn!(
                        node = node.name,
                        state = node.state,
                        "Slurm does not hold a dead node for down any more"
                    );
                    watching.downs.lock().want(now_s, &node.name);
                }
            }
            Err(e) => tracing::debug!(%e, "Slurm does not say whether dead nodes are down"),
        }
    }
}

/// Says once that looks fail, and once that they do no more.
fn say(trouble: &mut Trouble, now_s: f64, looked: Result<()>) {
    match (trouble.looked(now_s, looked.is_err()), looked) {
        (Some(_), Err(e)) => tracing::error!(error = format!("{e:#}"), "a look at the cluster failed; said once"),
        (Some(after_s), Ok(())) => tracing::info!(after_s, "the cluster can be looked at again"),
        (None, _) => {}
    }
}

/// When the next life of a run's job began at the latest, if by Slurm's word the one is over whose record is open.
fn is_over_by(open: &OpenRun, job: &Job, now_s: f64) -> Option<f64> {
    let is_over = open.record_state == "running" && job.uid == open.uid && job.restarts > open.restart_count;
    let has_begun = job.state == JobState::Running;
    is_over.then(|| job.start_s.filter(|at_s| has_begun && *at_s < now_s).unwrap_or(now_s))
}

fn run(open: &OpenRun) -> runs::Run {
    runs::Run {
        job: open.job,
        restart_count: open.restart_count,
        uid: open.uid,
        nodes: open.nodes.clone(),
        is_requeued: open.record_state == "requeued",
        is_running: open.record_state == "running",
    }
}

fn ended_by(job: &Job, signal: i32) -> bool {
    job.exit.signal == signal || job.exit.code == 128 + signal
}

/// Whether a life of a job that had one before was so short that it may have ended by what Slurm meant for that one, and could
/// not deliver to its node before: no wrapper was there yet to tell them apart.
fn is_short(job: &Job) -> bool {
    let lasted_s = job.start_s.zip(job.end_s).map(|(start_s, end_s)| end_s - start_s);
    job.restarts > 0 && lasted_s.is_some_and(|lasted_s| lasted_s < LATEST_SIGNAL.as_secs_f64())
}

/// Whether the run, which has had a life with the number `newest`, did not let this one of its job in: slurmctld was killed before
/// it had written requeues down, and gives their numbers again. The next requeue brings a higher one.
fn is_counted_again(job: &Job, newest: u32) -> bool {
    job.exit.code == SUPERSEDED && job.restarts < newest
}

/// What a job is doing, by Slurm's word at `now_s`; its run has had lives up to the number `newest`.
fn word(job: &Job, now_s: f64, newest: u32) -> runs::Job {
    let doing = match job.state {
        // Its nodes may still boot for it: as little is to be done as while its end is cleaned up.
        JobState::Running if job.has_flag("COMPLETING") || job.has_flag("CONFIGURING") => Doing::Completing,
        JobState::Running => Doing::Running,
        JobState::Completing => Doing::Completing,
        JobState::Suspended => Doing::Suspended,
        JobState::Pending if job.launch_failed() => Doing::NotLaunched,
        JobState::Pending if job.reason == "BeginTime" || job.eligible_s.is_some_and(|at_s| at_s > now_s + 1.0) => {
            Doing::Delayed
        }
        JobState::Pending => Doing::Waiting,
        JobState::Completed => Doing::Completed,
        JobState::Cancelled => Doing::Cancelled,
        JobState::Timeout | JobState::Deadline => Doing::Timeout,
        JobState::Failed if ended_by(job, SIGKILL) || ended_by(job, SIGTERM) && is_short(job) => Doing::Killed,
        JobState::Failed if is_counted_again(job, newest) => Doing::CountedAgain,
        _ => Doing::Failed,
    };
    runs::Job {
        uid: job.uid,
        doing,
        batch: job.batch,
        batch_host: job.batch_host.clone(),
        nodes: job.nodes.clone(),
        requeue: job.requeue,
        began_ago_s: job.start_s.map(|at_s| (now_s - at_s).max(0.0)),
        delayed_s: job.eligible_s.map_or(0.0, |at_s| (at_s - now_s).max(0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_record_is_over_when_slurm_has_counted_a_later_one() {
        let key = protocol::RunKey { cluster: "c".into(), run: "7.1".into() };
        let (record_state, protection) = ("running".to_string(), String::new());
        let run = OpenRun { key, uid: 1000, job: 7, restart_count: 1, nodes: Vec::new(), record_state, protection };
        let over_by = |run: &OpenRun, text: &str| {
            let line = format!("JobId=7 UserId=alice(1000) StartTime=1000 {text}");
            let job = slurm::example::parse_job(&line, 7).expect("parses").expect("a job");
            is_over_by(run, &job, 2000.0)
        };
        assert_eq!(over_by(&run, "JobState=RUNNING Restarts=1"), None);
        assert_eq!(over_by(&run, "JobState=RUNNING Restarts=2"), Some(1000.0));
        assert_eq!(over_by(&run, "JobState=PENDING Restarts=2"), Some(2000.0), "its start is only expected");
        let ended = OpenRun { record_state: "requeued".into(), ..run.clone() };
        assert_eq!(over_by(&ended, "JobState=PENDING Restarts=2"), None);
        let others = OpenRun { uid: 9, ..run };
        assert_eq!(over_by(&others, "JobState=RUNNING Restarts=2"), None);
    }

    #[test]
    fn a_life_that_slurm_ended_before_a_wrapper_was_there_is_told_from_one_that_failed() {
        let doing = |text: &str| {
            let line = format!("JobId=7 UserId=alice(1000) JobState=FAILED StartTime=1000 {text}");
            let job = slurm::example::parse_job(&line, 7).expect("parses").expect("a job");
            word(&job, 2000.0, 2).doing
        };
        for (text, killed) in [
            ("ExitCode=0:9 EndTime=1900", true),
            ("ExitCode=137:0 EndTime=1900", true),
            ("ExitCode=0:15 EndTime=1003 Restarts=1", true),
            ("ExitCode=0:15 EndTime=1003 Restarts=0", false),
            ("ExitCode=0:15 EndTime=1900 Restarts=1", false),
            ("ExitCode=1:0 EndTime=1003 Restarts=1", false),
            ("ExitCode=123:0 EndTime=1003 Restarts=2", false),
        ] {
            assert_eq!(doing(text) == Doing::Killed, killed, "{text}");
        }
        assert_eq!(doing("ExitCode=123:0 EndTime=1003 Restarts=1"), Doing::CountedAgain);
    }
}

//! Real clusters and real programs, with everything that can break, at random: histories, and what must hold after each.

mod bystander;
mod checks;
mod disks;
mod faults;
pub mod history;
mod jobs;
mod processes;
mod queue;
pub mod table;

use crate::{Fetched, Site, Wanted, fetch};
use anyhow::{Context, Result, anyhow};
use bystander::Bystander;
use disks::Disks;
use faults::{Field, Struck};
use history::{Blow, Fault, History};
use jobs::Job;
use queue::Queue;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use table::Ended;
use testbed::ALICE;

/// For anything that has to happen when all is mended, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(240);

/// For a job to end: longer than the walltime of those that hang.
const WALLTIME: Duration = Duration::from_secs(480);

/// A cluster on which histories are played, one after the other.
pub struct Lab {
    /// Slurm with everything of ours.
    pub site: Site,
    disks: Disks,
    own: [PathBuf; 2],
    mounts: BTreeMap<String, usize>,
    played: usize,
    /// Whether Slurm has lost jobs of it, whose numbers it gives to others: no history is to follow on it.
    pub is_forgetful: bool,
}

/// What a history came to.
pub struct Outcome {
    /// Each fault that hit something, with the ends of the jobs that it hit.
    pub hits: Vec<(Fault, Vec<Ended>)>,
    /// What does not hold; empty if everything does.
    pub wrong: Vec<String>,
    /// What happened, moment by moment.
    pub told: String,
    /// How many jobs ended right, and honestly otherwise.
    pub right: usize,
    /// See above.
    pub honest: usize,
    /// How long it took, s.
    pub lasted_s: f64,
}

impl Lab {
    /// A cluster of eight nodes with the programs that histories run.
    ///
    /// # Errors
    /// It does not start, or there is no CRIU.
    pub fn start(dir: &Path, seed: u64, progress: &mut dyn FnMut(&str)) -> Result<Lab> {
        let own = ["criu", "disks"].map(|what| dir.with_extension(what));
        let [criu, place] = &own;
        let _ = std::fs::remove_dir_all(criu);
        fetch(Fetched::Criu, criu).map_err(|reason| anyhow!("no CRIU: {reason}"))?;
        let disks = Disks::mount(place, seed)?;
        let wanted = Wanted {
            toml: format!("[criu]\ncommand = {:?}\n\n{}", criu.join("criu"), Wanted::default().toml),
            shared: own.to_vec(),
            store: Some(disks.store()),
            own_clocks: true,
            ..Wanted::default()
        };
        let site = Site::start(dir, &wanted, progress)?;
        jobs::build(&site)?;
        let nodes = site.cluster.nodes.iter();
        let mounts = nodes.map(|n| Ok((n.clone(), checks::mounts_of(&site, n)?))).collect::<Result<_>>()?;
        Ok(Lab { site, disks, own, mounts, played: 0, is_forgetful: false })
    }

    /// Ends it and removes its folders.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(self) -> Result<()> {
        let [criu, disks] = self.own.clone();
        let dir = self.site.conf.with_file_name("");
        drop(self);
        [dir, criu, disks].into_iter().try_for_each(|folder| Ok(std::fs::remove_dir_all(folder)?))
    }

    /// Plays one history, and tells what came of it.
    pub fn play(&mut self, history: &History) -> Outcome {
        let begun = Instant::now();
        let mut outcome =
            Outcome { hits: Vec::new(), wrong: Vec::new(), told: String::new(), right: 0, honest: 0, lasted_s: 0.0 };
        if let Err(e) = self.play_into(history, &mut outcome) {
            outcome.wrong.push(format!("the history did not come to its end: {e:#}"));
        }
        outcome.lasted_s = begun.elapsed().as_secs_f64();
        outcome
    }

    fn play_into(&mut self, history: &History, outcome: &mut Outcome) -> Result<()> {
        self.played += 1;
        let name = format!("{}-{}", self.played, history.seed);
        let queue = Queue::watch(&self.site.cluster.conf);
        let mut jobs = Vec::new();
        for (i, (program, alone)) in history.runs.iter().enumerate() {
            jobs.push(Job::submit(&self.site, &format!("{name}-{i}"), *program, *alone, &self.disks.runs())?);
        }
        let bystander = Bystander::begin(&self.site, &name)?;
        let ids: Vec<u32> = jobs.iter().map(|job| job.id).collect();
        for (job, (program, alone)) in jobs.iter().zip(&history.runs) {
            let alone = if *alone { "alone" } else { "shared" };
            let _ = writeln!(outcome.told, "job {}: {program:?}, {alone}, {}", job.id, job.folder.display());
        }
        for id in &ids {
            self.site.wait_state(*id, &["RUNNING"], PATIENCE)?;
            self.site.wait(&format!("job {id} in the queue's log"), PATIENCE, |_| {
                Ok((!queue.nodes(*id).is_empty()).then_some(()))
            })?;
        }
        let mut field = Field::new(&mut self.site, &self.disks, &queue, ids.clone());
        let struck = strike_all(&mut field, &history.blows, &mut outcome.told)?;
        field.settle(PATIENCE)?;
        let harms = std::mem::take(&mut field.harms);
        drop(field);
        let faults: Vec<Fault> = struck.iter().map(|(fault, _)| *fault).collect();
        let lost = checks::lost_by_slurm(&self.site, ids.iter().copied().chain(bystander.ids()), &faults)?;
        self.is_forgetful |= !lost.is_empty();
        self.judge(outcome, &mut jobs, &struck, &lost)?;
        outcome.wrong.extend(bystander.judge(&self.site, &queue, &harms, &lost, WALLTIME)?);
        self.look_for_leavings(outcome, &ids, &faults)?;
        // What is right needs no more room in memory.
        let folders = ids.iter().filter(|_| outcome.wrong.is_empty());
        let folders = folders.filter_map(|id| checks::run_folder(&self.disks.runs(), *id));
        folders.into_iter().try_for_each(|folder| Ok(std::fs::remove_dir_all(folder)?))
    }

    /// What became of each job, and of its run's folder and records.
    fn judge(
        &self,
        outcome: &mut Outcome,
        jobs: &mut [Job],
        struck: &[(Fault, Option<Vec<usize>>)],
        lost: &[u32],
    ) -> Result<()> {
        let over = ["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT", "BOOT_FAIL"];
        let mut ends = Vec::new();
        for (i, job) in jobs.iter_mut().enumerate() {
            if lost.contains(&job.id) {
                let lost = Ended::Honest("slurmctld was killed before it had written the job down".into());
                let _ = writeln!(outcome.told, "job {}: {lost:?}", job.id);
                outcome.honest += 1;
                ends.push(lost);
                continue;
            }
            self.site
                .wait(&format!("job {} to end", job.id), WALLTIME, |site| ended_for_good(site, job, &over))
                .with_context(|| format!("{:?}", job.said()))?;
            let hit = |(_, on): &&(Fault, Option<Vec<usize>>)| on.as_ref().is_some_and(|on| on.contains(&i));
            let faults: Vec<Fault> = struck.iter().filter(hit).map(|(fault, _)| *fault).collect();
            let end = checks::end_of(&self.site, job, &faults);
            let _ = writeln!(outcome.told, "job {}: {end:?}", job.id);
            let mut wrong = |checked: Result<()>| {
                outcome.wrong.extend(checked.err().map(|e| format!("{:?}, job {}: {e:#}", job.program, job.id)));
            };
            wrong(job.check_writers(checks::woken_lines(&faults)));
            wrong(checks::energy(&self.site, job.id));
            match checks::run_folder(&self.disks.runs(), job.id) {
                Some(run) => match checks::records(&self.site, &run, checks::may_die_at_end(&faults)) {
                    Ok(records) => wrong(checks::checkpoints(&run, &records)),
                    Err(e) => wrong(Err(e)),
                },
                None => wrong(Err(anyhow!("its run has no folder"))),
            }
            match &end {
                Ended::Right => outcome.right += 1,
                Ended::Honest(_) => outcome.honest += 1,
                Ended::Wrong(why) => outcome.wrong.push(why.clone()),
            }
            ends.push(end);
        }
        for (fault, hit) in struck {
            if let Some(hit) = hit {
                outcome.hits.push((*fault, hit.iter().map(|i| ends[*i].clone()).collect()));
            }
        }
        Ok(())
    }

    fn look_for_leavings(&self, outcome: &mut Outcome, jobs: &[u32], faults: &[Fault]) -> Result<()> {
        let mut last = Vec::new();
        let none = self.site.wait("nothing to be left", Duration::from_secs(90), |site| {
            last = checks::left(site, jobs, &self.mounts, faults)?;
            Ok(last.is_empty().then_some(()))
        });
        if let Err(e) = none {
            outcome.wrong.push(format!("left: {last:#?} ({e:#})"));
        }
        Ok(())
    }
}

/// A job whose end was told, and of which the service knows, too: what it puts back into the queue is not over. One that
/// waits for its storage, and says so, is let go on as its user would.
fn ended_for_good(site: &Site, job: &Job, over: &[&str]) -> Result<Option<()>> {
    let state = site.state(job.id)?;
    if state == "PENDING" && job.said().iter().any(|line| line.contains("scontrol release")) {
        site.cluster.output(site.cluster.command_as(ALICE, "scontrol").args(["release", &job.id.to_string()]))?;
    }
    let told = site.report(job.id)?.map(|run| run["state"] != "running");
    Ok((over.contains(&state.as_str()) && told == Some(true)).then_some(()))
}

/// Strikes all blows at their moments, and mends each when its time is over.
fn strike_all(field: &mut Field, blows: &[Blow], told: &mut String) -> Result<Vec<(Fault, Option<Vec<usize>>)>> {
    let begun = Instant::now();
    let mut waiting: Vec<(f64, Struck)> = Vec::new();
    let mut struck = Vec::new();
    let mut next = blows.iter().peekable();
    loop {
        waiting.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mend_s = waiting.last().map(|(at, _)| *at);
        let blow_s = next.peek().map(|blow| blow.at_s);
        let Some(at_s) = mend_s.into_iter().chain(blow_s).reduce(f64::min) else { return Ok(struck) };
        std::thread::sleep(Duration::from_secs_f64(at_s).saturating_sub(begun.elapsed()));
        let now_s = begun.elapsed().as_secs_f64();
        if mend_s.is_some_and(|at| at <= at_s) {
            if let Some((_, done)) = waiting.pop() {
                let _ = writeln!(told, "{now_s:6.1} s  mended: {}", done.told);
                field.mend(&done).with_context(|| format!("mending {}", done.told))?;
            }
        } else if let Some(blow) = next.next() {
            let done = field.strike(blow).with_context(|| format!("{}", blow.fault))?;
            let _ = writeln!(told, "{now_s:6.1} s  {} for {:.1} s: {}", blow.fault, blow.lasts_s, done.told);
            struck.push((blow.fault, done.hit.clone()));
            waiting.push((begun.elapsed().as_secs_f64() + blow.lasts_s, done));
        }
    }
}

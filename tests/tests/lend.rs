//! Coupled runs lose a node: survivors are parked, their nodes work for others, and whoever else dies meanwhile, the
//! result is the same.
//!
//! Three runs at once on one cluster, each with its own second failure, since a loan takes minutes; and an unmodified MPI
//! program beside them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use suite::Site;
use suite::lending::{
    self, Coupled, Wrapper, borrowers, decisions, kill_wrapper, loans_of, node_of, nothing_is_left, of_steps_on,
    report_of_the_end,
};

/// Work that is lost with the node, s: enough for a job of one minute.
const LOST: Duration = Duration::from_secs(90);

/// The program, a little longer than what is lost: the group that is to fail first makes no checkpoint, the others late.
const RUN: Coupled =
    Coupled { groups: 3, spares: 1, steps: 4700, every: "$((FT_ENERGY_GROUP == 2 ? 4700 : 4000))", step_ms: 20 };

const MINUTES: Duration = Duration::from_secs(480);

/// A run that has lost the node of its last group.
struct Struck {
    run: Coupled,
    job: u32,
    folder: PathBuf,
    host: String,
}

impl Struck {
    fn submit(site: &Site, name: &str, spares: usize) -> Result<Struck> {
        let run = Coupled { spares, ..RUN };
        let (job, folder) = run.submit(site, name, true)?;
        let host = site.wait_report(job, "the start", MINUTES, |run| {
            node_of(run, RUN.groups - 1)?;
            Some(run["records"][0]["nodes"][0].as_str()?.to_string())
        })?;
        Ok(Struck { run, job, folder, host })
    }

    fn lose_a_node(&self, site: &mut Site) -> Result<()> {
        let report = site.report(self.job)?.context("a report")?;
        site.cluster.kill_node(&node_of(&report, RUN.groups - 1).context("a node")?)
    }

    /// Waits until its nodes are lent.
    fn lent(&self, site: &Site) -> Result<Value> {
        site.wait("a loan", MINUTES, |site| Ok(loans_of(site, self.job)?.pop().filter(|l| l["state"] == "lent")))
            .with_context(|| format!("{:#?}", site.report(self.job).ok().flatten().map(|run| decisions(&run))))
    }

    /// The report of its end and its only loan; the result is that of an undisturbed run.
    fn ends_with(&self, site: &Site, expected: &[String]) -> Result<(Value, Value)> {
        let report = report_of_the_end(site, self.job, MINUTES)?;
        let results = self.run.results(&self.folder)?;
        ensure!(results == expected, "other bits: {results:?}\n{:#?}", decisions(&report));
        let mut loans = loans_of(site, self.job)?;
        ensure!(loans.len() == 1 && loans[0]["state"] == "closed", "{loans:#?}\n{:#?}", decisions(&report));
        Ok((report, loans.remove(0)))
    }

    /// How often each group's program began.
    fn beginnings(&self) -> Result<Vec<usize>> {
        beginnings(&self.folder, RUN.groups)
    }
}

fn beginnings(folder: &Path, groups: usize) -> Result<Vec<usize>> {
    let said = |g| fs::read_to_string(folder.join(format!("said.{g}")));
    (0..groups).map(|g| Ok(said(g)?.matches("begins step=").count())).collect()
}

fn seconds(loan: &Value, key: &str) -> Result<f64> {
    loan[key].as_f64().with_context(|| format!("{key} in {loan:#}"))
}

/// Ranks that hand numbers around: what each has in the end depends on all messages, and comes to the same each time.
const RING: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, steps = atoi(words[1]), pause_us = atoi(words[2]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    unsigned long own = rank + 1, got;
    for (int step = 0; step < steps; step++) {
        MPI_Sendrecv(&own, 1, MPI_UNSIGNED_LONG, (rank + 1) % ranks, 1, &got, 1, MPI_UNSIGNED_LONG,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        own = own * 6364136223846793005UL + got + step;
        usleep(pause_us);
    }
    printf("rank %d has %lu\n", rank, own);
    MPI_Finalize();
    return 0;
}
"#;

/// Steps of the ring.
const STEPS: u32 = 11_000;

/// An MPI program over three groups of two ranks, which makes no checkpoint before a node is lost.
struct Ring {
    job: u32,
    folder: PathBuf,
    expected: Vec<String>,
}

impl Ring {
    fn submit(site: &Site) -> Result<Ring> {
        let program = site.conf.with_file_name("bin").join("ring");
        let source = program.with_extension("c");
        fs::write(&source, RING)?;
        let built = Command::new("mpicc").arg("-O1").arg("-o").arg(&program).arg(&source).output()?;
        ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let mut alone = Command::new("mpirun");
        alone.args(["--allow-run-as-root", "--oversubscribe", "-n", "6"]).arg(&program);
        let native = alone.args([&STEPS.to_string(), "0"]).output()?;
        ensure!(native.status.success(), "{}", String::from_utf8_lossy(&native.stderr));
        let folder = site.folder(lending::LENDER, "ring")?;
        let args = ["-N4", "-t30", "--exclusive", "--no-kill", "--ft-energy=energy", "--ft-energy-engine=criu"];
        let groups = ["--ft-energy-protocol=uncoordinated", "--ft-energy-groups=3", "--ft-energy-spare=1"];
        let lends = ["--ft-energy-log=disk", "--ft-energy-lend=yes", "--ft-energy-interval=8"];
        let script = format!("srun --mpi=pmix -n6 {} {STEPS} 20000", program.display());
        let job = site.submit(lending::LENDER, &folder, &[&args[..], &groups, &lends].concat(), &script)?;
        Ok(Ring { job, folder, expected: ranks(&String::from_utf8_lossy(&native.stdout)) })
    }

    fn lose_a_node(&self, site: &mut Site) -> Result<()> {
        let report = site.report(self.job)?.context("a report")?;
        site.cluster.kill_node(&node_of(&report, 2).context("a node")?)
    }

    /// Its survivors went on from checkpoints of their own when their nodes were back; only the group of the lost node began
    /// anew.
    fn ends_well(&self, site: &Site) -> Result<()> {
        let run = report_of_the_end(site, self.job, MINUTES)?;
        let said = fs::read_to_string(self.folder.join(format!("slurm-{}.out", self.job)))?;
        ensure!(ranks(&said) == self.expected, "other numbers than {:?}: {said}", self.expected);
        let loans = loans_of(site, self.job)?;
        ensure!(loans.len() == 1 && loans[0]["state"] == "closed", "{loans:#?}\n{:#?}", decisions(&run));
        ensure!(loans[0]["back"].as_array().map(Vec::len) == Some(2), "{loans:#?}");
        let goes_on = |group: usize| said.matches(&format!("group {group}: goes on from checkpoint")).count();
        ensure!([0, 1, 2].map(goes_on) == [1, 1, 0] && said.contains("group 2: begins anew"), "{said}");
        Ok(())
    }
}

/// What the ranks of the ring have in the end.
fn ranks(said: &str) -> Vec<String> {
    let mut all: Vec<String> = said.lines().filter(|line| line.starts_with("rank ")).map(str::to_string).collect();
    all.sort();
    all
}

/// A site with so many nodes; none where CRIU cannot be had.
fn site(name: &str, nodes: usize) -> Result<Option<Site>> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-{name}-{}", std::process::id()));
    let site = lending::site(&dir, nodes, &mut |text| println!("  {text}"))?;
    Ok(site.inspect_err(|reason| println!("skipped: {reason}")).ok())
}

/// A copy of a folder, in the place of what was there.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").args([from, to]).status()?;
    ensure!(copied.success(), "cp: {copied}");
    Ok(())
}

#[test]
fn what_slurm_has_forgotten_ends_before_the_next_driver_starts_anything() -> Result<()> {
    const RUN: Coupled = Coupled { groups: 2, spares: 1, steps: 1500, every: "300", step_ms: 20 };
    let Some(mut site) = site("forgotten", 3)? else { return Ok(()) };
    let expected = RUN.undisturbed(&site, MINUTES)?;
    let (job, folder) = RUN.submit_behind(&site, "forgotten", true, "until [ -e go ]; do sleep 0.1; done\n")?;
    let run = site.wait_report(job, "the start", MINUTES, |run| node_of(run, 1).map(|_| run.clone()))?;
    let host = run["records"][0]["nodes"][0].as_str().context("a batch host")?.to_string();
    let nodes = [0, 1].map(|group| node_of(&run, group).unwrap_or_default());
    // slurmctld writes down within five seconds what has changed.
    let (state, older) = (site.cluster.dir.join("state"), site.cluster.dir.join("older"));
    let now = SystemTime::now();
    let changed =
        site.cluster.command("scontrol").args(["update", &format!("JobId={job}"), "Comment=known"]).status()?;
    ensure!(changed.success(), "scontrol: {changed}");
    site.wait("its state", MINUTES, |_| Ok((fs::metadata(state.join("job_state"))?.modified()? > now).then_some(())))?;
    copy(&state, &older)?;

    // The steps that begin now are forgotten, and their numbers are given again.
    fs::write(folder.join("go"), "")?;
    let began = |site: &Site, times: usize| {
        site.wait("the programs", MINUTES, |_| Ok((beginnings(&folder, 2).ok() == Some(vec![times; 2])).then_some(())))
    };
    began(&site, 1)?;
    site.cluster.kill_controller()?;
    copy(&older, &state)?;
    site.cluster.start_controller()?;
    let of_steps = |site: &Site| nodes.iter().map(|node| of_steps_on(site, node)).collect::<Result<Vec<_>>>();
    let forgotten = of_steps(&site)?;
    ensure!(forgotten.iter().all(|of_node| of_node.len() == 2), "a relay and a program on each: {forgotten:?}");
    ensure!(kill_wrapper(&site, &host, job, Wrapper::Driver)?, "no driver on {host}");
    began(&site, 2)?;
    let beside = of_steps(&site)?;
    let is_left = |pid: &i32| forgotten.iter().flatten().any(|old| old == pid);
    ensure!(!beside.iter().flatten().any(is_left), "{forgotten:?} is left in {beside:?}");
    let report = report_of_the_end(&site, job, MINUTES)?;
    ensure!(RUN.results(&folder)? == expected, "other bits: {:#?}", decisions(&report));
    nothing_is_left(&site, MINUTES)
}

#[test]
fn survivors_nodes_are_lent_and_the_bits_are_the_same_whoever_else_dies() -> Result<()> {
    let Some(mut site) = site("lend", 17)? else { return Ok(()) };
    let site = &mut site;
    let expected = RUN.undisturbed(site, MINUTES)?;
    let plain = Struck::submit(site, "plain", 1)?;
    let orphan = Struck::submit(site, "orphan", 1)?;
    let unlucky = Struck::submit(site, "unlucky", 2)?;
    let all = [&plain, &orphan, &unlucky];
    let ring = Ring::submit(site)?;
    site.wait_report(ring.job, "the start", MINUTES, |run| node_of(run, 2))?;
    let queued = borrowers(site, 8, 20)?;
    std::thread::sleep(LOST);
    all.iter().try_for_each(|run| run.lose_a_node(site))?;
    ring.lose_a_node(site)?;
    let loans: Vec<Value> = all.iter().map(|run| run.lent(site)).collect::<Result<_>>()?;
    for job in &queued {
        site.wait_state(*job, &["RUNNING", "COMPLETED"], MINUTES)?;
    }

    // A second failure for each: the service of all, and while it is away the wrapper of one, a lent node of another.
    site.kill_controller()?;
    ensure!(
        kill_wrapper(site, &orphan.host, orphan.job, Wrapper::Driver)?,
        "no driver of job {} on {}",
        orphan.job,
        orphan.host
    );
    let lent = loans[2]["nodes"][0].as_str().context("a lent node")?;
    site.cluster.kill_node(lent)?;
    site.start_controller()?;

    let (run, loan) = plain.ends_with(site, &expected)?;
    println!("  {}", run["lending"]["model"]);
    ensure!(plain.beginnings()? == [1, 1, 2], "{:?}: {:#?}", plain.beginnings()?, decisions(&run));
    // What the survivors wait before and after the loan is idle; what lies between is none of the run's.
    let away_s = seconds(&loan, "back_s")? - seconds(&loan, "lent_s")?;
    ensure!(away_s >= 60.0, "away for {away_s} s: {loan:#}");
    let phases = run["phases"].as_array().context("phases")?;
    let idle = phases.iter().find(|p| p["phase"] == "idle").context("nobody waited")?;
    ensure!(idle["joules"].as_f64() > Some(0.0), "{idle:#}");

    // The wrapper after called the nodes back; all groups began again.
    let (run, loan) = orphan.ends_with(site, &expected)?;
    ensure!(orphan.beginnings()? == [2, 2, 3], "{:?}: {:#?}", orphan.beginnings()?, decisions(&run));
    ensure!(loan["back"].as_array().map(Vec::len) == Some(2), "{loan:#}");

    // The dead one's group went back to its line on the second spare; the other went on where it was.
    let (run, loan) = unlucky.ends_with(site, &expected)?;
    let began: usize = unlucky.beginnings()?.iter().sum();
    ensure!(began == 5, "{:?}: {:#?}", unlucky.beginnings()?, decisions(&run));
    ensure!(loan["back"].as_array().map(Vec::len) == Some(1), "{loan:#}");

    ring.ends_well(site)?;
    for job in &queued {
        site.wait_state(*job, &["COMPLETED", "NODE_FAIL", "FAILED", "CANCELLED"], MINUTES)?;
    }
    let stays = loans_of(site, plain.job)?[0]["stays"].as_array().cloned().context("stays")?;
    ensure!(stays.len() >= 2 && stays.iter().all(|s| s["joules"].is_f64()), "borrowers of {stays:#?}");
    nothing_is_left(site, MINUTES)
}

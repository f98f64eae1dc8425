//! Coupled runs that lend their nodes while one of their groups recovers: for the suite, the demo and random kills.

use crate::{Fetched, Site, Wanted, built, fetch, repository};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Who runs the coupled program.
pub const LENDER: &str = "jpalice";

/// Whose jobs wait for nodes.
pub const BORROWER: &str = "jpbob";

/// A run of `apps/stencil`: one node for each group, and spares.
#[derive(Clone, Copy, Debug)]
pub struct Coupled {
    /// Number of groups.
    pub groups: usize,
    /// Number of spare nodes, the batch host among them.
    pub spares: usize,
    /// Steps of the program.
    pub steps: u32,
    /// Steps between two of its checkpoints, as a word of the shell: `$FT_ENERGY_GROUP` is the group's number.
    pub every: &'static str,
    /// How long it rests in each step, ms.
    pub step_ms: u32,
}

impl Coupled {
    /// Nodes of the job.
    pub fn nodes(&self) -> usize {
        self.groups + self.spares
    }

    /// Submits it; job and folder.
    ///
    /// # Errors
    /// What sbatch says.
    pub fn submit(&self, site: &Site, name: &str, lends: bool) -> Result<(u32, PathBuf)> {
        self.submit_behind(site, name, lends, "")
    }

    /// Submits it with lines that its script begins with.
    ///
    /// # Errors
    /// What sbatch says.
    pub fn submit_behind(&self, site: &Site, name: &str, lends: bool, first: &str) -> Result<(u32, PathBuf)> {
        let folder = site.folder(LENDER, name)?;
        let Coupled { groups, spares, steps, every, step_ms } = self;
        let program = site.conf.with_file_name("bin").join("stencil");
        let options = format!("--steps {steps} --every {every} --step-ms {step_ms}");
        let script = format!("{first}srun bash -c 'exec {} {options} >>said.$FT_ENERGY_GROUP 2>&1'", program.display());
        let nodes = [format!("-N{}", self.nodes()), format!("-n{}", self.nodes())];
        let parted = [format!("--ft-energy-groups={groups}"), format!("--ft-energy-spare={spares}")];
        let mut args = vec!["-t30", "--exclusive", "--no-kill", "--ft-energy=energy", "--ft-energy-log=disk"];
        args.extend(["--ft-energy-protocol=uncoordinated", "--ft-energy-done={group}.ckpt"]);
        args.extend(nodes.iter().chain(&parted).map(String::as_str));
        args.extend(lends.then_some("--ft-energy-lend=yes"));
        Ok((site.submit(LENDER, &folder, &args, &script)?, folder))
    }

    /// What the program of each group came to.
    ///
    /// # Errors
    /// A group has no result.
    pub fn results(&self, folder: &Path) -> Result<Vec<String>> {
        let result = |g| fs::read_to_string(folder.join(format!("{g}.out"))).with_context(|| format!("group {g}"));
        (0..self.groups).map(result).collect()
    }

    /// The result of a run that nothing happens to, without the program's rests.
    ///
    /// # Errors
    /// It does not end well.
    pub fn undisturbed(&self, site: &Site, limit: Duration) -> Result<Vec<String>> {
        let (job, folder) = Coupled { step_ms: 0, ..*self }.submit(site, "undisturbed", false)?;
        report_of_the_end(site, job, limit)?;
        self.results(&folder)
    }
}

/// A site whose users have a CRIU that works, and the coupled program; why not, where CRIU cannot be had.
///
/// # Errors
/// The site does not start.
pub fn site(dir: &Path, nodes: usize, progress: &mut dyn FnMut(&str)) -> Result<Result<Site, String>> {
    let own = dir.with_extension("criu");
    if let Err(reason) = fetch(Fetched::Criu, &own) {
        return Ok(Err(reason));
    }
    let toml = format!(
        "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 3.0\n\
         [lend]\nshortest_s = 1.0\npatience_s = 90.0\n[criu]\ncommand = {:?}\n",
        own.join("criu")
    );
    // A lent node that dies under a job that nobody protects is Slurm's to set down.
    let wanted = Wanted { nodes: nodes as u32, toml, shared: vec![own], slurmd_timeout_s: 40, ..Wanted::default() };
    let site = Site::start(dir, &wanted, progress)?;
    let source = repository().join("apps/stencil");
    let settings = [format!("BUILD={}", dir.join("bin").display()), format!("MLOG={}", built()?.display())];
    let output = Command::new("make").arg("-C").arg(source).args(settings).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(Ok(site))
}

/// Jobs of another user that wait for one node each, for a minute at most.
///
/// # Errors
/// What sbatch says.
pub fn borrowers(site: &Site, count: usize, seconds: u32) -> Result<Vec<u32>> {
    let home = site.folder(BORROWER, "jobs")?;
    let queued = |_| {
        site.submit(
            BORROWER,
            &home,
            &["-N1", "-t1", "--exclusive", "--no-requeue", "-Jqueued"],
            &format!("sleep {seconds}"),
        )
    };
    (0..count).map(queued).collect()
}

/// The loans of a job.
///
/// # Errors
/// What `joulepoint loans` says.
pub fn loans_of(site: &Site, job: u32) -> Result<Vec<Value>> {
    let output = site.joulepoint("root", &["loans", "-j", &job.to_string(), "--json"])?;
    let loans: Value = serde_json::from_slice(&output.stdout)?;
    Ok(loans.as_array().cloned().unwrap_or_default())
}

/// What a run decided, in sentences.
pub fn decisions(run: &Value) -> Vec<String> {
    let all = run["decisions"].as_array().cloned().unwrap_or_default();
    let told = |d: &Value| format!("{}: {}", d["action"].as_str().unwrap_or(""), d["reason"].as_str().unwrap_or(""));
    all.iter().map(told).collect()
}

/// The node of a group, as the run's decisions tell it.
pub fn node_of(run: &Value, group: usize) -> Option<String> {
    let begins = format!("group {group} on ");
    let mut said = run["decisions"].as_array()?.iter().filter_map(|d| d["reason"].as_str()?.strip_prefix(&begins));
    Some(said.next_back()?.split(':').next()?.to_string())
}

/// Waits for the end of a job, and gives its report.
///
/// # Errors
/// It has not completed.
pub fn report_of_the_end(site: &Site, job: u32, limit: Duration) -> Result<Value> {
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], limit)?;
    let over = |run: &Value| (run["state"] != "running").then(|| run.clone());
    let run = site.wait_report(job, "the end", limit, over)?;
    ensure!(state == "COMPLETED" && run["state"] == "completed", "{state}, {}: {:#?}", run["state"], decisions(&run));
    Ok(run)
}

/// The two processes of a wrapper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wrapper {
    /// The one that Slurm started.
    Supervisor,
    /// The one below it that does the work, whichever attempt it is.
    Driver,
}

/// SIGKILL of a wrapper's process, on the batch host of its job; whether there was one.
///
/// # Errors
/// The node does not run.
pub fn kill_wrapper(site: &Site, host: &str, job: u32, which: Wrapper) -> Result<bool> {
    let of_job = format!("SLURM_JOB_ID={job}\0");
    let read = |pid: i32, what: &str| {
        let bytes = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let is_it = |pid: &&i32| {
        let environment = read(**pid, "environ");
        let is_driver = environment.contains("JOULEPOINT_DRIVER_ATTEMPT=");
        let wraps = read(**pid, "cmdline").contains("\0wrap\0") && environment.contains(&of_job);
        wraps && is_driver == (which == Wrapper::Driver)
    };
    let pids = site.cluster.node_pids(host)?;
    let Some(pid) = pids.iter().find(is_it) else { return Ok(false) };
    // SAFETY: a plain kill of a process of this cluster.
    Ok(unsafe { libc::kill(*pid, libc::SIGKILL) } == 0)
}

/// The processes of ours on a node that run in steps: relays, and those that hold a sandbox.
///
/// # Errors
/// The node does not run.
pub fn of_steps_on(site: &Site, node: &str) -> Result<Vec<i32>> {
    let words =
        |pid: i32| String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).into_owned();
    let is_it = |pid: &i32| matches!(words(*pid).split('\0').nth(1), Some("warden" | "serve"));
    Ok(site.cluster.node_pids(node)?.into_iter().filter(is_it).collect())
}

/// Waits, when all jobs are over, until nothing is left of any: no reservation, no helper job, no node that is still
/// held, no process.
///
/// # Errors
/// Something is left.
pub fn nothing_is_left(site: &Site, limit: Duration) -> Result<()> {
    let shown = |what: &str| -> Result<String> {
        let output = site.cluster.command("scontrol").args(["show", what, "-o"]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let left = || -> Result<Vec<String>> {
        let lines = |what: &str, words: &[&str]| -> Result<Vec<String>> {
            let text = shown(what)?;
            let bad = text.lines().filter(|l| words.iter().any(|w| l.contains(w)));
            Ok(bad.map(|l| l.chars().take(200).collect()).collect())
        };
        let mut left = lines("job", &["JobState=PENDING", "JobState=RUNNING", "JobState=COMPLETING"])?;
        left.extend(lines("reservation", &["ReservationName=joulepoint_"])?);
        left.extend(lines("node", &["State=ALLOCATED", "State=MIXED", "State=RESERVED", "State=IDLE+COMPLETING"])?);
        left.extend(strays(site));
        Ok(left)
    };
    site.wait("no leftovers", limit, |_| Ok(left()?.is_empty().then_some(()))).with_context(|| format!("{:#?}", left()))
}

/// Processes of runs on all nodes.
fn strays(site: &Site) -> Vec<String> {
    let ours = ["stencil", "joulepoint", "joulepoint-rela", "criu", "salloc", "srun"];
    let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string();
    let of_node = |node: &String| site.cluster.node_pids(node).unwrap_or_default();
    let all = site.cluster.nodes.iter().flat_map(of_node).map(|pid| (pid, name(pid)));
    all.filter(|(_, name)| ours.contains(&name.as_str())).map(|(pid, name)| format!("process {pid}: {name}")).collect()
}

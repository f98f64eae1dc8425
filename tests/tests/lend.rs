//! A coupled run loses a node: its survivors are parked, their nodes work for others, and the result is the same.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use suite::{Site, Wanted, built, fetch_criu, repository};

const LENDER: &str = "jpalice";
const BORROWER: &str = "jpbob";
const GROUPS: usize = 3;
const MINUTES: Duration = Duration::from_secs(480);

/// Work that is lost with the node, s: enough for a job of one minute.
const LOST: Duration = Duration::from_secs(95);

/// Steps of the program, each of 20 ms: a little more than what is lost.
const STEPS: u32 = 5400;

/// A site whose users have a CRIU that works; none where it cannot be fetched.
fn site() -> Option<MutexGuard<'static, Site>> {
    static SITE: OnceLock<Option<Mutex<Site>>> = OnceLock::new();
    let site = SITE.get_or_init(start);
    site.as_ref().map(|s| s.lock().unwrap_or_else(PoisonError::into_inner))
}

fn start() -> Option<Mutex<Site>> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-lend-{}", std::process::id()));
    let own = dir.with_extension("criu");
    if let Err(reason) = fetch_criu(&own) {
        println!("skipped: {reason}");
        return None;
    }
    let toml = format!(
        "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 3.0\n\
         [lend]\nshortest_s = 1.0\npatience_s = 90.0\n[criu]\ncommand = {:?}\n",
        own.join("criu")
    );
    let wanted = Wanted { nodes: 4, toml, ..Wanted::default() };
    let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("the site starts");
    let made = Command::new("make")
        .arg("-C")
        .arg(repository().join("apps/stencil"))
        .args([
            format!("BUILD={}", dir.join("bin").display()),
            format!("MLOG={}", built().expect("a folder").display()),
        ])
        .output()
        .expect("make");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(Mutex::new(site))
}

/// Starts the coupled program on a spare and a node for each group.
fn coupled(site: &Site, name: &str, step_ms: u32, more: &[&str]) -> Result<(u32, PathBuf)> {
    let folder = site.folder(LENDER, name)?;
    let program = site.conf.with_file_name("bin").join("stencil");
    let script = format!(
        "srun bash -c 'exec {} --steps {STEPS} --every {STEPS} --step-ms {step_ms} >>said.$FT_ENERGY_GROUP 2>&1'",
        program.display()
    );
    let groups = format!("--ft-energy-groups={GROUPS}");
    let usual = ["-N4", "-n4", "-t30", "--exclusive", "--no-kill", "--ft-energy=energy"];
    let grouped = ["--ft-energy-protocol=uncoordinated", &groups, "--ft-energy-spare=1", "--ft-energy-log=disk"];
    let files = ["--ft-energy-done={group}.ckpt"];
    let args: Vec<&str> = usual.iter().chain(&grouped).chain(&files).chain(more).copied().collect();
    let job = site.submit(LENDER, &folder, &args, &script)?;
    Ok((job, folder))
}

fn results(folder: &Path) -> Result<Vec<String>> {
    let result = |g| fs::read_to_string(folder.join(format!("{g}.out"))).with_context(|| format!("group {g}"));
    (0..GROUPS).map(result).collect()
}

fn loans_of(site: &Site, job: u32) -> Result<Vec<Value>> {
    let output = site.joulepoint("root", &["loans", "-j", &job.to_string(), "--json"])?;
    let loans: Value = serde_json::from_slice(&output.stdout)?;
    Ok(loans.as_array().cloned().unwrap_or_default())
}

fn decisions(run: &Value) -> Vec<String> {
    let all = run["decisions"].as_array().cloned().unwrap_or_default();
    all.iter()
        .map(|d| format!("{}: {}", d["action"].as_str().unwrap_or(""), d["reason"].as_str().unwrap_or("")))
        .collect()
}

/// The node of a group, as the run's decisions tell it.
fn node_of(run: &Value, group: usize) -> Option<String> {
    let begins = format!("group {group} on ");
    let decisions = run["decisions"].as_array()?;
    let mut said = decisions.iter().filter_map(|d| d["reason"].as_str()?.strip_prefix(&begins));
    Some(said.next_back()?.split(':').next()?.to_string())
}

/// No reservation and no helper job.
fn nothing_is_left(site: &Site) -> Result<()> {
    site.wait("no leftovers", MINUTES, |site| {
        let said = |what: &str| -> Result<String> {
            let output = site.cluster.command("scontrol").args(["show", what, "-o"]).output()?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let lives = |j: &&str| j.contains("JobState=PENDING") || j.contains("JobState=RUNNING");
        let helpers = said("job")?.lines().filter(lives).filter(|j| j.contains("JobName=joulepoint_")).count();
        Ok((helpers == 0 && !said("reservation")?.contains("joulepoint_")).then_some(()))
    })
}

/// Waits for the end of a job, and gives its report.
fn report_of_the_end(site: &Site, job: u32) -> Result<Value> {
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], MINUTES)?;
    let over = |run: &Value| (run["state"] != "running").then(|| run.clone());
    let run = site.wait_report(job, "the end", MINUTES, over)?;
    ensure!(state == "COMPLETED", "{state}: {:#?}", decisions(&run));
    Ok(run)
}

/// A run that is to lose the node of its last group, with two jobs of another user behind it in the queue.
struct Struck {
    job: u32,
    folder: PathBuf,
    borrowers: Vec<u32>,
    victim: String,
}

/// Starts it, waits until there is much to lose, and kills the node.
fn struck(site: &mut Site, name: &str) -> Result<Struck> {
    let (job, folder) = coupled(site, name, 20, &["--ft-energy-lend=yes"])?;
    let victim = site.wait_report(job, "the start", MINUTES, |run| node_of(run, GROUPS - 1))?;
    let home = site.folder(BORROWER, name)?;
    let queued = |_| site.submit(BORROWER, &home, &["-N1", "-t1"], "sleep 20");
    let borrowers = (0..2).map(queued).collect::<Result<_>>()?;
    std::thread::sleep(LOST);
    site.cluster.kill_node(&victim)?;
    Ok(Struck { job, folder, borrowers, victim })
}

/// The result of a run that nothing happened to.
fn undisturbed(site: &Site) -> Result<Vec<String>> {
    let (job, folder) = coupled(site, "quiet", 0, &[])?;
    report_of_the_end(site, job)?;
    results(&folder)
}

#[test]
fn survivors_are_parked_their_nodes_lent_and_the_bits_are_the_same() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let expected = undisturbed(&site)?;
    let Struck { job, folder, borrowers, victim } = struck(&mut site, "struck")?;
    let run = report_of_the_end(&site, job)?;
    let told = decisions(&run);
    ensure!(results(&folder)? == expected, "other bits: {:?}", results(&folder)?);
    for group in 0..GROUPS {
        let said = fs::read_to_string(folder.join(format!("said.{group}")))?;
        let begun = said.matches("begins step=").count();
        ensure!(begun == 1 + usize::from(group == 2), "group {group} began {begun} times:\n{said}");
    }
    let loans = loans_of(&site, job)?;
    let [loan] = loans.as_slice() else { anyhow::bail!("{} loans: {told:#?}", loans.len()) };
    ensure!(loan["state"] == "closed" && loan["lent_s"].is_f64(), "{loan:#}");
    for borrower in borrowers {
        site.wait_state(borrower, &["COMPLETED"], MINUTES)?;
        let stays = loan["stays"].as_array().context("stays")?;
        let stay = stays.iter().find(|s| s["job"] == borrower);
        ensure!(stay.is_some_and(|s| s["joules"].is_f64()), "job {borrower} was not on lent nodes: {loan:#}");
    }
    // What the survivors wait before and after the loan is idle; what lies between is none of the run's.
    let away_s = loan["back_s"].as_f64().context("back")? - loan["lent_s"].as_f64().context("lent")?;
    let phases = run["phases"].as_array().context("phases")?;
    let idle = phases.iter().find(|p| p["phase"] == "idle").context("nobody waited")?;
    ensure!(idle["joules"].as_f64() > Some(0.0), "{idle:#}");
    ensure!(away_s >= 60.0, "away for {away_s} s: {loan:#}");
    nothing_is_left(&site)?;
    site.cluster.revive_node(&victim)
}

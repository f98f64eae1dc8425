//! The demo of a loan: a coupled run loses a node, and the nodes that would wait work for another user meanwhile.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use suite::{Site, Wanted, built, repository};

const LENDER: &str = "jpalice";
const BORROWER: &str = "jpbob";
const GROUPS: usize = 5;
const LIMIT: Duration = Duration::from_secs(420);

/// Steps of the program, those between two of its checkpoints, and how long it rests in each.
const STEPS: u32 = 10_000;
const EVERY: u32 = 4500;
const STEP_MS: u32 = 20;

/// When in the second interval the node dies: late, so that a job of one minute fits.
const LATE: Duration = Duration::from_secs(85);

/// Exit code of a script that cannot do its work on this machine.
const SKIPPED: i32 = 77;

/// Runs the demo.
pub fn run() -> Result<()> {
    let dir = PathBuf::from(format!("/tmp/joulepoint-demo-{}", std::process::id()));
    let clock = Instant::now();
    let outcome = play(&dir, &clock);
    if outcome.is_ok() {
        std::fs::remove_dir_all(&dir)?;
    } else {
        eprintln!("everything is kept in {}", dir.display());
    }
    outcome
}

fn say(clock: &Instant, text: &str) {
    println!("[{:6.1} s] {text}", clock.elapsed().as_secs_f64());
}

fn play(dir: &Path, clock: &Instant) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    let criu = criu(&dir.join("criu"))?;
    say(clock, "starting a private Slurm with six nodes");
    let toml = format!(
        "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 3.0\n\
         [lend]\nshortest_s = 1.0\npatience_s = 90.0\n[criu]\ncommand = {criu:?}\n"
    );
    let wanted = Wanted { nodes: GROUPS as u32 + 1, toml, ..Wanted::default() };
    let mut site = Site::start(&dir.join("site"), &wanted, &mut |text| say(clock, &format!("  {text}")))?;
    let program = stencil(&dir.join("site/bin"))?;

    say(clock, &format!("an undisturbed run of {GROUPS} coupled groups, without its pauses"));
    let (quiet, undisturbed) = submit(&site, "undisturbed", &program, 0, &[])?;
    wait_completed(&site, quiet)?;

    let (job, lending) = submit(&site, "lending", &program, STEP_MS, &["--ft-energy-lend=yes"])?;
    let home = site.folder(BORROWER, "jobs")?;
    let queued = |_| site.submit(BORROWER, &home, &["-N1", "-t1", "-Jqueued"], "sleep 30");
    let borrowers: Vec<u32> = (0..GROUPS - 1).map(queued).collect::<Result<_>>()?;
    say(clock, &format!("job {job} takes all nodes; jobs {borrowers:?} of another user wait"));
    let mut told = 0;
    follow(&site, job, clock, &mut told, |run| run["total"]["checkpoints"].as_u64() >= Some(GROUPS as u64))?;
    say(clock, &format!("each group has a checkpoint; {} s later a node will die", LATE.as_secs()));
    std::thread::sleep(LATE);
    let victim = node_of(&site.report(job)?.context("no report")?, GROUPS - 1).context("no node")?;
    say(clock, &format!("KILLING {victim}: slurmd, its steps, every process and its Joulepoint service, at once"));
    site.cluster.kill_node(&victim)?;
    follow(&site, job, clock, &mut told, |run| run["state"] != "running")?;
    wait_completed(&site, job)?;

    for group in 0..GROUPS {
        let result = |folder: &Path| std::fs::read(folder.join(format!("{group}.out")));
        ensure!(result(&undisturbed)? == result(&lending)?, "the results of group {group} differ");
    }
    say(clock, "the results of all groups equal those of the undisturbed run, bit by bit");
    show(&site, &["report", "-j", &job.to_string()])?;
    show(&site, &["loans", "-j", &job.to_string()])?;
    let page = built()?.join("demo-lend.html");
    let file = page.display().to_string();
    let output = site.joulepoint("root", &["report", "-j", &job.to_string(), "--html", &file])?;
    ensure!(output.status.success(), "no page: {}", String::from_utf8_lossy(&output.stderr));
    say(clock, &format!("time line: {file}"));
    Ok(())
}

/// A CRIU that the site's users may run.
fn criu(own: &Path) -> Result<PathBuf> {
    let kept = built()?.join("criu");
    let output = Command::new("sh").arg(repository().join("packaging/criu.sh")).arg(&kept).output()?;
    match output.status.code() {
        Some(0) => {}
        Some(SKIPPED) => bail!("survivors are parked by CRIU: {}", String::from_utf8_lossy(&output.stderr)),
        _ => bail!("packaging/criu.sh: {}", String::from_utf8_lossy(&output.stderr)),
    }
    ensure!(Command::new("cp").arg("-a").arg(&kept).arg(own).status()?.success(), "CRIU cannot be copied");
    Ok(own.join("criu"))
}

fn stencil(bin: &Path) -> Result<PathBuf> {
    let source = repository().join("apps/stencil");
    let settings = [format!("BUILD={}", bin.display()), format!("MLOG={}", built()?.display())];
    let output = Command::new("make").arg("-C").arg(source).args(settings).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(bin.join("stencil"))
}

fn submit(site: &Site, name: &str, program: &Path, step_ms: u32, more: &[&str]) -> Result<(u32, PathBuf)> {
    let folder = site.folder(LENDER, name)?;
    let (nodes, groups) = (format!("-N{}", GROUPS + 1), format!("--ft-energy-groups={GROUPS}"));
    let mut args = vec![nodes.as_str(), "-t30", "--exclusive", "--no-kill", "--ft-energy=energy", groups.as_str()];
    args.extend(["--ft-energy-protocol=uncoordinated", "--ft-energy-spare=1", "--ft-energy-log=disk"]);
    args.push("--ft-energy-done={group}.ckpt");
    args.extend(more);
    let script = format!("srun {} --steps {STEPS} --every {EVERY} --step-ms {step_ms}", program.display());
    Ok((site.submit(LENDER, &folder, &args, &script)?, folder))
}

fn wait_completed(site: &Site, job: u32) -> Result<()> {
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], LIMIT)?;
    ensure!(state == "COMPLETED", "job {job}: {state}");
    Ok(())
}

/// Tells the decisions of a run until `enough`.
fn follow(site: &Site, job: u32, clock: &Instant, told: &mut usize, enough: impl Fn(&Value) -> bool) -> Result<()> {
    site.wait_report(job, "the run to go on", LIMIT, |run| {
        let decisions = run["decisions"].as_array().cloned().unwrap_or_default();
        for d in decisions.iter().skip(*told) {
            say(clock, &format!("  {}: {}", d["action"].as_str().unwrap_or(""), d["reason"].as_str().unwrap_or("")));
        }
        *told = decisions.len().max(*told);
        enough(run).then_some(())
    })
}

/// The node of a group, as the run's decisions tell it.
fn node_of(run: &Value, group: usize) -> Option<String> {
    let begins = format!("group {group} on ");
    let mut said = run["decisions"].as_array()?.iter().filter_map(|d| d["reason"].as_str()?.strip_prefix(&begins));
    Some(said.next_back()?.split(':').next()?.to_string())
}

fn show(site: &Site, args: &[&str]) -> Result<()> {
    let output = site.joulepoint("root", args)?;
    println!("\n$ joulepoint {}\n{}", args.join(" "), String::from_utf8_lossy(&output.stdout));
    Ok(())
}

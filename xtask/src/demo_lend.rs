//! The demo of a loan: a coupled run loses a node, and the nodes that would wait work for another user meanwhile; beside
//! it the same run loses the same node at the same moment, and lends nothing.

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suite::lending::{self, Coupled, borrowers, node_of, report_of_the_end};
use suite::{Site, built};

const LIMIT: Duration = Duration::from_secs(420);

/// Five groups with a checkpoint each on the way.
const RUN: Coupled = Coupled { groups: 5, spares: 1, steps: 10_000, every: "4500", step_ms: 20 };

/// When in the second interval the node dies: late, so that a job of one minute fits.
const LATE: Duration = Duration::from_secs(85);

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
    say(clock, &format!("starting a private Slurm with {} nodes", 2 * RUN.nodes()));
    std::fs::create_dir_all(dir)?;
    let site = lending::site(&dir.join("site"), 2 * RUN.nodes(), &mut |text| say(clock, &format!("  {text}")))?;
    let mut site = site.map_err(|reason| anyhow!("survivors are parked by CRIU: {reason}"))?;

    say(clock, &format!("an undisturbed run of {} coupled groups, without its pauses", RUN.groups));
    let expected = RUN.undisturbed(&site, LIMIT)?;

    let (idles, its_folder) = RUN.submit(&site, "idle", false)?;
    let (lends, folder) = RUN.submit(&site, "lending", true)?;
    let queued = borrowers(&site, RUN.groups - 1, 30)?;
    say(
        clock,
        &format!("jobs {lends} (may lend) and {idles} (may not) take all nodes; {queued:?} of another user wait"),
    );
    let mut told = 0;
    let has_lines = |run: &Value| run["total"]["checkpoints"].as_u64() >= Some(RUN.groups as u64);
    follow(&site, lends, clock, &mut told, has_lines)?;
    site.wait_report(idles, "a checkpoint of each group", LIMIT, |run| has_lines(run).then_some(()))?;
    say(clock, &format!("each group has a checkpoint; {} s later a node of each job will die", LATE.as_secs()));
    std::thread::sleep(LATE);
    for job in [lends, idles] {
        let victim = node_of(&site.report(job)?.context("no report")?, RUN.groups - 1).context("no node")?;
        say(clock, &format!("KILLING {victim}: slurmd, its steps, every process and its Joulepoint service, at once"));
        site.cluster.kill_node(&victim)?;
    }
    follow(&site, lends, clock, &mut told, |run| run["state"] != "running")?;
    let [lent, idled] = [lends, idles].map(|job| report_of_the_end(&site, job, LIMIT));

    ensure!(RUN.results(&folder)? == expected && RUN.results(&its_folder)? == expected, "the results differ");
    say(clock, "the results of all groups of both equal those of the undisturbed run, bit by bit");
    let job = lends.to_string();
    show(&site, &["report", "-j", &job])?;
    show(&site, &["loans", "-j", &job])?;
    beside(&lent?, &idled?)?;
    let page = built()?.join("demo-lend.html");
    let file = page.display().to_string();
    let output = site.joulepoint("root", &["report", "-j", &job, "--html", &file])?;
    ensure!(output.status.success(), "no page: {}", String::from_utf8_lossy(&output.stderr));
    say(clock, &format!("time line: {file}"));
    Ok(())
}

/// Prints where the node-seconds of both runs went, and the platform's waste, as the report has it: what was no work of the
/// run and not used by others.
fn beside(lent: &Value, idled: &Value) -> Result<()> {
    println!("Platform, with and without the loan after the same failure\n");
    println!(
        "| job | node-seconds | computed | idle | lent | used by others | platform waste |\n|---|---|---|---|---|---|---|"
    );
    for (name, run) in [("lends", lent), ("does not", idled)] {
        let phases = run["phases"].as_array().context("phases")?;
        let spent = |phase: &str| -> f64 {
            phases.iter().filter(|p| p["phase"] == phase).filter_map(|p| p["node_seconds"].as_f64()).sum()
        };
        let [away_s, used_s] = ["node_seconds", "used_node_seconds"].map(|k| run["lending"][k].as_f64().unwrap_or(0.0));
        let all_s = phases.iter().filter_map(|p| p["node_seconds"].as_f64()).sum::<f64>() + away_s;
        let waste = run["lending"]["model"]["plat"]["measured"].as_f64().context("the model")?;
        let (computed_s, idle_s) = (spent("compute"), spent("idle"));
        println!(
            "| {name} | {all_s:.0} | {computed_s:.0} | {idle_s:.0} | {away_s:.0} | {used_s:.0} | {:.1} % |",
            100.0 * waste
        );
    }
    println!();
    Ok(())
}

/// Tells the decisions of a run until `enough`.
fn follow(site: &Site, job: u32, clock: &Instant, told: &mut usize, enough: impl Fn(&Value) -> bool) -> Result<()> {
    site.wait_report(job, "the run to go on", LIMIT, |run| {
        let decisions = lending::decisions(run);
        decisions.iter().skip(*told).for_each(|d| say(clock, &format!("  {d}")));
        *told = decisions.len().max(*told);
        enough(run).then_some(())
    })
}

fn show(site: &Site, args: &[&str]) -> Result<()> {
    let output = site.joulepoint("root", args)?;
    println!("\n$ joulepoint {}\n{}", args.join(" "), String::from_utf8_lossy(&output.stdout));
    Ok(())
}

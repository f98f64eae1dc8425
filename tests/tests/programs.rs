//! Programs that we did not choose, with one option each, and a node that dies: a selection of `xtask programs`.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use suite::Site;
use suite::programs::{self, PROGRAMS, Program, Verdict, is_here, play};
use suite::transparent::site;

/// Those of every kind, of what the tests have anyway.
const SELECTION: [&str; 34] = [
    "a log that is open",
    "python, threads",
    "python, a pool of processes",
    "python, a file in TMPDIR",
    "python, a file in memory",
    "python, spawned workers with an array",
    "mktemp -d",
    "a file in /tmp",
    "make -j2",
    "mpirun, the node's name",
    "mpirun, one after another",
    "Fortran's MPI under srun",
    "SQLite",
    "a loop of srun",
    "scratch storage of the node",
    "a step with a folder in /tmp",
    "a step with a state in /tmp",
    "/dev/shm from script to step and back",
    "tasks of a step with memory in common",
    "a chain of jobs",
    "copies of others' files",
    "a FIFO in /tmp",
    "much in /tmp",
    "a file written over by who stands at its end",
    "a large file that gets its name when it is whole",
    "a large log that is rotated",
    "an eventfd as a semaphore",
    "a scratch folder for each round",
    "an input that is written anew for each round",
    "a script that is edited while it runs",
    "a folder that is renamed when it is whole",
    "two names of a file in TMPDIR",
    "a queue of files",
    "a log by >>",
];

#[test]
fn no_program_ends_otherwise_or_begins_anew_without_a_word() -> Result<()> {
    let dir = programs::place();
    let mut site = match site(&dir, 8, &mut |text| println!("  {text}"))? {
        Ok(site) => site,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    let chosen: Vec<&Program> = PROGRAMS.iter().filter(|p| SELECTION.contains(&p.name) && is_here(p)).collect();
    let outcome = play(&mut site, &chosen, &mut |text| println!("  {text}"));
    let lacking = an_output_that_is_full(&site).and_then(|()| a_folder_that_cannot_be_entered(&site));
    drop(site);
    let _ = fs::remove_dir_all(&dir);
    let _ = fs::remove_dir_all(dir.with_extension("criu"));
    lacking?;
    let outcome = outcome?;
    // A slow machine may make no checkpoint of one before its node dies, and not of most.
    let same = outcome.iter().filter(|verdict| **verdict == Verdict::Same).count();
    ensure!(2 * same > outcome.len(), "only {same} of {} went on from a checkpoint", outcome.len());
    let wrong: Vec<_> = chosen.iter().zip(outcome).filter(|(_, v)| matches!(v, Verdict::Wrong(_))).collect();
    ensure!(wrong.is_empty(), "{:?}", wrong.iter().map(|(p, v)| format!("{}: {v}", p.name)).collect::<Vec<_>>());
    Ok(())
}

const USER: &str = "jpalice";
const LIMIT: Duration = Duration::from_secs(240);

/// A program whose output nobody takes comes to its end, as it would without us.
fn an_output_that_is_full(site: &Site) -> Result<()> {
    let folder = site.folder(USER, "full")?;
    let args = ["-n1", "--ft-energy=energy", "--ft-energy-interval=2s", "--output=/dev/full"];
    let script = "for i in $(seq 40); do sleep 0.2; echo step $i; done; echo done > result";
    let job = site.submit(USER, &folder, &args, script)?;
    site.wait_state(job, &["COMPLETED"], LIMIT)?;
    ensure!(fs::read_to_string(folder.join("result"))? == "done\n");
    println!("  an output that is full: the same");
    Ok(())
}

/// A job that comes to where its folder cannot be entered is held, and goes on from its checkpoint when it can.
fn a_folder_that_cannot_be_entered(site: &Site) -> Result<()> {
    let (folder, out) = (site.folder(USER, "closed")?, site.folder(USER, "closed-output")?.join("out"));
    let output = format!("--output={}", out.display());
    let args = ["-n1", "--ft-energy=energy", "--ft-energy-interval=2s", "--open-mode=append", &output];
    let script = "exec 3>> state; n=0; while [ ! -e enough ]; do sleep 0.25; n=$((n + 1)); echo $n >&3; done";
    let job = site.submit(USER, &folder, &args, script)?;
    let made = |run: &serde_json::Value| run["total"]["checkpoints"].as_u64().filter(|made| *made >= 2);
    site.wait_report(job, "two checkpoints", LIMIT, made)?;
    let closed = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode));
    let scontrol = |words: &[&str]| site.cluster.command("scontrol").args(words).output();
    closed(0o000)?;
    scontrol(&["requeue", &job.to_string()])?;
    let said = || fs::read_to_string(&out).unwrap_or_default();
    let is_held = |_: &Site| {
        let show = scontrol(&["show", "job", "-o", &job.to_string()])?;
        let text = String::from_utf8_lossy(&show.stdout).into_owned();
        Ok((text.contains("JobState=PENDING") && text.contains("Priority=0 ")).then_some(()))
    };
    let held = site.wait("the job held", LIMIT, is_held).with_context(said);
    closed(0o755)?;
    held?;
    ensure!(said().contains("Permission denied") && said().contains("scontrol release"), "{}", said());
    scontrol(&["release", &job.to_string()])?;
    let goes_on = |_: &Site| Ok(said().contains("goes on from checkpoint").then_some(()));
    site.wait("the job to go on", LIMIT, goes_on).with_context(said)?;
    fs::write(folder.join("enough"), "")?;
    site.wait_state(job, &["COMPLETED"], LIMIT).with_context(said)?;
    let state = fs::read_to_string(folder.join("state"))?;
    let steps: Vec<usize> = state.lines().filter_map(|line| line.parse().ok()).collect();
    ensure!(steps == (1..=steps.len()).collect::<Vec<_>>(), "a step stands twice, or is missing: {state}");
    println!("  a folder that cannot be entered: held, and goes on");
    Ok(())
}

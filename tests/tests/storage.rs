//! A run whose folder lies on a storage that fails: nothing that was complete is lost, and the run never begins anew for it.

use anyhow::{Context, Result};
use faultfs::{Command, FaultFs, Settings};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;
use suite::{Site, Wanted};

const USER: &str = "jpalice";
const LIMIT: Duration = Duration::from_secs(240);

/// Counts four steps a second until there is a file `enough`, and goes on from where it was.
const PROGRAM: &str = r#"n=$(cat state 2> /dev/null || echo 0)
echo "from $n" >> begins
while [ ! -e enough ]; do
    sleep 0.25
    n=$((n + 1))
    echo "$n" > state.new && mv state.new state
done
echo "$n" > result"#;

fn checkpoints(run: &Value) -> u64 {
    run["total"]["checkpoints"].as_u64().unwrap_or(0)
}

#[test]
fn a_run_whose_folder_cannot_be_read_is_held_and_goes_on_when_it_can() -> Result<()> {
    let place = PathBuf::from(format!("/tmp/joulepoint-storage-{}", std::process::id()));
    let at = place.join("runs");
    fs::create_dir_all(&at)?;
    let storage = FaultFs::new(Settings { clock_runs: true, mode: 0o1777, ..Settings::default() });
    let mounted = storage.mount(&at)?;
    let wanted = Wanted { nodes: 3, shared: vec![place.clone()], ..Wanted::default() };
    let dir = PathBuf::from(format!("/tmp/joulepoint-storage-site-{}", std::process::id()));
    let mut site = Site::start(&dir, &wanted, &mut |text| println!("  {text}"))?;
    let outcome = held_and_released(&mut site, &storage, &at.display().to_string());
    println!("  {}", storage.obey(&Command::Counts)?);
    storage.clear();
    drop(site);
    drop(mounted);
    let _ = fs::remove_dir_all(&place);
    let _ = fs::remove_dir_all(&dir);
    outcome
}

fn held_and_released(site: &mut Site, storage: &FaultFs, at: &str) -> Result<()> {
    let fault = |line: &str| -> Result<()> {
        storage.obey(&line.parse()?)?;
        Ok(())
    };
    let folder = site.folder(USER, "counter")?;
    let dir = format!("--ft-energy-dir={at}");
    let args = ["-n1", "--exclusive", "--ft-energy=energy", "--ft-energy-interval=2s", "--ft-energy-done=state", &dir];
    let job = site.submit(USER, &folder, &args, PROGRAM)?;
    let run = site.wait_report(job, "two checkpoints", LIMIT, |run| (checkpoints(run) >= 2).then(|| run.clone()))?;
    // Errors for a while: the program goes on, and is protected again when they are over.
    fault("fault error=EIO changing chance=0.5")?;
    let before: u32 = fs::read_to_string(folder.join("state"))?.trim().parse()?;
    site.wait("steps of the program meanwhile", LIMIT, |_| {
        let now: u32 = fs::read_to_string(folder.join("state"))?.trim().parse()?;
        Ok((now >= before + 12).then_some(()))
    })?;
    fault("clear")?;
    let known = checkpoints(&site.report(job)?.context("a report")?);
    site.wait_report(job, "a checkpoint after the errors", LIMIT, |run| (checkpoints(run) > known).then_some(()))?;
    // The node dies, and no checkpoint can be read.
    let node = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
    site.cluster.kill_node(&node)?;
    fault("fault error=EIO op=read path=*/checkpoints/*")?;
    site.wait("the job held in the queue", 2 * LIMIT, |site| {
        let show = site.cluster.command("scontrol").args(["show", "job", "-o", &job.to_string()]).output()?;
        let text = String::from_utf8_lossy(&show.stdout).into_owned();
        Ok((text.contains("JobState=PENDING") && text.contains("Priority=0 ")).then_some(()))
    })
    .with_context(|| fs::read_to_string(folder.join(format!("slurm-{job}.out"))).unwrap_or_default())?;
    let output = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(output.contains("no checkpoint can be read now") && output.contains("scontrol release"), "{output}");
    let begins = || fs::read_to_string(folder.join("begins"));
    assert_eq!(begins()?, "from 0\n", "the program was not started meanwhile");
    // The storage is well again.
    fault("clear")?;
    assert!(site.cluster.command("scontrol").args(["release", &job.to_string()]).status()?.success());
    site.wait("the program to begin again", LIMIT, |_| Ok((begins()?.lines().count() > 1).then_some(())))?;
    fs::write(folder.join("enough"), "")?;
    let result = site.wait("the result", LIMIT, |_| Ok(fs::read_to_string(folder.join("result")).ok()))?;
    assert!(result.trim().parse::<u32>()? > before, "{result}");
    let begins = begins()?;
    let from = begins.lines().nth(1).and_then(|line| line.strip_prefix("from ")?.parse::<u32>().ok());
    assert!(begins.lines().count() == 2 && from > Some(0), "{begins}");
    site.cluster.revive_node(&node)
}

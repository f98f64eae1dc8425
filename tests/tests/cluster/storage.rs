//! Checkpoints as programs write them, and folders that only one node has: nothing torn, nothing mixed, nothing missed.

use super::{MINUTES, USER, checkpoints, ended, finished_well, heat, nodes, second_record, site, started};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use suite::Site;

/// Half of the program's state, bytes.
const HALF: u64 = 1 << 20;

/// Writes its state in place: 1 MB, half a second of nothing, 1 MB; ends with 9 if it finds half of one.
const WRITER: &str = r#"
import os, time
os.umask(0o077)
half, step = 1 << 20, 0
if os.path.exists("state"):
    data, mode = open("state", "rb").read(), os.stat("state").st_mode & 0o777
    is_whole = len(data) == 2 * half and data[:half] == data[half:]
    step = int.from_bytes(data[:8], "big")
    with open("begins", "a") as begins:
        print(is_whole, oct(mode), step, file=begins)
    if not is_whole:
        os._exit(9)
while step < 12:
    step += 1
    block = step.to_bytes(8, "big") * (half // 8)
    with open("state", "wb", buffering=0) as state:
        state.write(block)
        time.sleep(0.5)
        state.write(block)
    time.sleep(1.2)
open("result", "w").write(f"{step}\n")
"#;

/// The folder of a job's run.
fn run_folder(site: &Site, job: u32) -> Result<PathBuf> {
    let run = site.report(job)?.context("a report")?;
    let name = run["run"].as_str().context("a run")?;
    Ok(site.cluster.shared().join(format!("runs-{USER}")).join(&site.cluster.name).join(name))
}

/// Whether each copy of the program's state in a run's checkpoints is whole; how many there are.
fn all_whole(run: &Path) -> Result<usize> {
    let mut count = 0;
    for checkpoint in fs::read_dir(run.join("checkpoints"))?.flatten() {
        if !checkpoint.path().join("manifest.json").exists() {
            continue;
        }
        let data = fs::read(checkpoint.path().join("0000-state"))?;
        let half = HALF as usize;
        ensure!(data.len() == 2 * half && data[..half] == data[half..], "{} is torn", checkpoint.path().display());
        count += 1;
    }
    Ok(count)
}

#[test]
fn a_program_that_writes_its_state_in_place_finds_it_whole_and_private_when_its_node_has_died() -> Result<()> {
    let mut site = site();
    let folder = site.folder(USER, "in-place")?;
    fs::write(folder.join("writer.py"), WRITER)?;
    let args = ["-n1", "--exclusive", "--ft-energy=energy", "--ft-energy-interval=3s", "--ft-energy-done=state"];
    let job = site.submit(USER, &folder, &args, "exec python3 writer.py")?;
    let run = site.wait_report(job, "a checkpoint", MINUTES, |run| (checkpoints(run) >= 1).then(|| run.clone()))?;
    let victim = nodes(&run)[0].clone();
    site.wait("half a state", MINUTES, |_| Ok((fs::metadata(folder.join("state"))?.len() == HALF).then_some(())))?;
    site.cluster.kill_node(&victim)?;
    let outcome = site.wait_report(job, "the end", MINUTES, ended);
    site.cluster.revive_node(&victim)?;
    assert_eq!(outcome?, "completed", "{:#}", site.report(job)?.unwrap_or_default());
    assert_eq!(fs::read_to_string(folder.join("result"))?, "12\n");
    let begins = fs::read_to_string(folder.join("begins"))?;
    let words: Vec<&str> = begins.split_whitespace().collect();
    assert!(matches!(words[..], ["True", "0o600", step] if step != "0"), "{begins}");
    assert!(all_whole(&run_folder(&site, job)?)? >= 1);
    Ok(())
}

#[test]
fn of_two_drivers_of_one_run_the_earlier_one_ends_and_nothing_of_it_counts() -> Result<()> {
    let site = site();
    let (job, folder) = started(&site, "two-drivers", &[])?;
    let first = nodes(&site.report(job)?.context("a report")?)[0].clone();
    // All on it stands still and freezes nothing, as with a virtual machine that is paused.
    site.cluster.suspend_node(&first)?;
    let begun = site.wait_report(job, "the second record", MINUTES, second_record);
    let before = site.report(job)?.map_or(0, |run| checkpoints(&run));
    let again = begun.and_then(|()| {
        site.wait_report(job, "a checkpoint of the second", MINUTES, |run| (checkpoints(run) > before).then_some(()))
    });
    site.cluster.resume_node(&first)?;
    again?;
    let run = run_folder(&site, job)?;
    let report = finished_well(&site, job, &folder)?;
    let of_job = format!("SLURM_JOB_ID={job}");
    let is_of_job = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|word| word == of_job.as_bytes())
    };
    site.wait("the end of the earlier one", MINUTES, |site| {
        Ok((!site.cluster.node_pids(&first)?.iter().any(is_of_job)).then_some(()))
    })?;
    assert_eq!(report["records"].as_array().map(Vec::len), Some(2), "{report:#}");
    assert!(run.join("journal").exists() && run.join("journal.2").exists());
    let token: serde_json::Value = serde_json::from_slice(&fs::read(run.join("fencing-token"))?)?;
    assert!(token["holder"].as_u64() >= Some(2), "{token}");
    // Each complete checkpoint names its holder.
    for checkpoint in fs::read_dir(run.join("checkpoints"))?.flatten() {
        let Ok(manifest) = fs::read(checkpoint.path().join("manifest.json")) else { continue };
        let manifest: serde_json::Value = serde_json::from_slice(&manifest)?;
        assert!(manifest["holder"].as_u64() >= Some(1), "{manifest}");
    }
    Ok(())
}

#[test]
fn a_step_that_staged_its_input_into_a_folder_of_its_node_is_run_again_on_another_node() -> Result<()> {
    let mut site = site();
    let folder = site.folder(USER, "staged")?;
    fs::write(folder.join("input"), "what the program reads")?;
    let stage = "srun -n1 sh -c 'echo staged >> stages; cp input /tmp/staged-'$SLURM_JOB_ID";
    let check = "cmp input /tmp/staged-$SLURM_JOB_ID || exit 7";
    let program = format!("srun --mpi=pmix {} --size 96 --steps 1500 --step-ms 10 --report 0", heat(&site));
    let args: Vec<&str> = super::PROTECTED.to_vec();
    let job = site.submit(USER, &folder, &args, &format!("{stage}\n{check}\n{program}"))?;
    let run = site.wait_report(job, "two checkpoints", MINUTES, |run| (checkpoints(run) >= 2).then(|| run.clone()))?;
    let victim = nodes(&run)[0].clone();
    site.cluster.kill_node(&victim)?;
    let outcome = finished_well(&site, job, &folder);
    site.cluster.revive_node(&victim)?;
    outcome?;
    assert_eq!(fs::read_to_string(folder.join("stages"))?, "staged\nstaged\n");
    let output = fs::read_to_string(folder.join(format!("slurm-{job}.out")))?;
    assert!(output.contains("is run again: "), "{output}");
    Ok(())
}

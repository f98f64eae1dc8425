//! What stock Slurm does without Joulepoint when nodes die: the facts that our promises stand against.

use anyhow::{Context, Result, ensure};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use testbed::{ALICE, Cluster, Options};

/// Ample for anything that Slurm does at once.
const SOON: Duration = Duration::from_secs(120);

/// A job that counts steps of 0.1 s and writes each into a file, without any checkpoint.
const COUNTING: &str = "#!/bin/bash
echo \"begin restart=${SLURM_RESTART_COUNT:-0}\" >>progress
for ((step = 0; step < 100000; step++)); do echo \"step $step\" >>progress; sleep 0.1; done
";

/// A small stock cluster, and the folder that goes with it.
fn stock(nodes: u32, slurmd_timeout_s: u32) -> Result<(tempfile::TempDir, Cluster)> {
    let dir = tempfile::tempdir()?;
    let options = Options { nodes, slurmd_timeout_s, accounting: false, ..Options::default() };
    let cluster = Cluster::start(&dir.path().join("c"), &options, &mut |_| ())?;
    Ok((dir, cluster))
}

fn script(cluster: &Cluster, text: &str) -> Result<PathBuf> {
    let path = cluster.shared().join("job.sh");
    std::fs::write(&path, text)?;
    Ok(path)
}

fn submit(cluster: &Cluster, arguments: &[&str], text: &str) -> Result<u32> {
    let script = script(cluster, text)?;
    let script = script.to_str().context("a path in UTF-8")?;
    let mut all = arguments.to_vec();
    all.push(script);
    let job = cluster.submit(ALICE, &all)?;
    cluster.wait_job(job, &["RUNNING"], SOON)?;
    Ok(job)
}

/// The lines that the counting job has written.
fn progress(cluster: &Cluster) -> Vec<String> {
    let text = std::fs::read_to_string(cluster.shared().join("progress")).unwrap_or_default();
    text.lines().map(String::from).collect()
}

fn wait_line(cluster: &Cluster, after: usize, line: &str) -> Result<usize> {
    cluster.wait_until(&format!("line {line:?} in the job's file"), SOON, || {
        Ok(progress(cluster).iter().skip(after).position(|l| l == line).map(|at| at + after))
    })
}

/// What Joulepoint's own detector would do.
fn set_down(cluster: &Cluster, node: &str) -> Result<()> {
    let node = format!("nodename={node}");
    cluster.output(cluster.command("scontrol").args(["update", &node, "state=down", "reason=died"]))?;
    Ok(())
}

/// Lets a requeued job start soon. Slurm forgets a start time that is set before the job is pending, and loses a job
/// that starts in the same second in which its credential was revoked; hence two seconds.
fn start_soon(cluster: &Cluster, job: u32) -> Result<()> {
    cluster.wait_until(&format!("job {job} to wait for its begin time"), SOON, || {
        let fields = cluster.job(job)?;
        Ok((fields["JobState"] == "PENDING" && fields["Reason"] == "BeginTime").then_some(()))
    })?;
    let id = format!("jobid={job}");
    cluster.output(cluster.command("scontrol").args(["update", &id, "StartTime=now+2seconds"]))?;
    cluster.wait_job(job, &["RUNNING"], SOON)?;
    Ok(())
}

#[test]
fn sbatch_does_not_know_our_options() -> Result<()> {
    let (_dir, cluster) = stock(1, 300)?;
    let out = cluster.command_as(ALICE, "sbatch").args(["--ft-energy", "--wrap", "true"]).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(!out.status.success() && said.contains("unrecognized option '--ft-energy'"), "sbatch said: {said}");
    let help = cluster.output(cluster.command_as(ALICE, "sbatch").arg("--help"))?;
    ensure!(!help.contains("ft-energy"), "sbatch --help names it");
    Ok(())
}

#[test]
fn a_job_whose_node_dies_starts_from_nothing() -> Result<()> {
    let (_dir, mut cluster) = stock(2, 300)?;
    let job = submit(&cluster, &["-w", "n1"], COUNTING)?;
    wait_line(&cluster, 0, "step 10")?;
    cluster.kill_node("n1")?;
    set_down(&cluster, "n1")?;
    let done = progress(&cluster).len();
    // It asked for n1, which is gone.
    let id = format!("jobid={job}");
    cluster.wait_job(job, &["PENDING"], SOON)?;
    cluster.output(cluster.command("scontrol").args(["update", &id, "ReqNodeList="]))?;
    start_soon(&cluster, job)?;
    let begin = wait_line(&cluster, done, "begin restart=1")?;
    ensure!(wait_line(&cluster, begin, "step 0")? == begin + 1, "the job did not start at step 0");
    Ok(())
}

#[test]
fn one_dead_node_ends_the_job_on_all_its_nodes() -> Result<()> {
    let (_dir, mut cluster) = stock(3, 300)?;
    let job = submit(&cluster, &["-N3", "--no-requeue"], "#!/bin/bash\nsrun sleep 1000\n")?;
    cluster.kill_node("n3")?;
    set_down(&cluster, "n3")?;
    cluster.wait_job(job, &["NODE_FAIL"], SOON)?;
    Ok(())
}

#[test]
fn with_no_kill_a_dead_batch_host_leaves_a_job_without_a_script() -> Result<()> {
    let (_dir, mut cluster) = stock(3, 300)?;
    let job = submit(&cluster, &["-N2", "--no-kill"], "#!/bin/bash\nsleep 1000\n")?;
    let host = cluster.job(job)?["BatchHost"].clone();
    cluster.kill_node(&host)?;
    set_down(&cluster, &host)?;
    // The controller has dealt with the dead node ...
    cluster.wait_until(
        "the job to lose its node",
        SOON,
        || Ok((cluster.job(job)?["NumNodes"] == "1").then_some(())),
    )?;
    // ... and thinks that all is well, while no node runs anything of the job.
    ensure!(cluster.job_state(job)? == "RUNNING", "the job is {}", cluster.job_state(job)?);
    for node in cluster.nodes.iter().filter(|n| **n != host) {
        for pid in cluster.node_pids(node)? {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            ensure!(!line.contains("slurm_script"), "{node} runs {line}");
        }
    }
    // A requeue helps.
    cluster.output(cluster.command("scontrol").args(["requeue", &job.to_string()]))?;
    start_soon(&cluster, job)
}

#[test]
fn a_silent_node_is_noticed_only_after_slurmd_timeout() -> Result<()> {
    let (_dir, mut cluster) = stock(1, 10)?;
    let job = submit(&cluster, &["-N1"], "#!/bin/bash\nsleep 1000\n")?;
    let begin = Instant::now();
    cluster.kill_node("n1")?;
    cluster.wait_until("slurmctld to notice", SOON, || Ok((cluster.job_state(job)? != "RUNNING").then_some(())))?;
    ensure!(begin.elapsed() > Duration::from_secs(5), "noticed after {:?}", begin.elapsed());
    Ok(())
}

#[test]
fn a_dead_slurmd_alone_does_not_stop_the_job() -> Result<()> {
    let (_dir, mut cluster) = stock(1, 300)?;
    let job = submit(&cluster, &["-N1"], COUNTING)?;
    wait_line(&cluster, 0, "step 1")?;
    cluster.kill_slurmd("n1")?;
    let next = format!("step {}", progress(&cluster).len() + 5);
    wait_line(&cluster, 0, &next)?;
    cluster.revive_node("n1")?;
    ensure!(cluster.job_state(job)? == "RUNNING", "the job is {}", cluster.job_state(job)?);
    Ok(())
}

//! Unmodified MPI programs over recovery groups on a real Slurm: one world, of which the group of a dead node goes back
//! alone, or all go back to one line. Without a CRIU (`packaging/criu.sh`) every test says that it skipped.

mod coordinated;
mod ends;
mod fallback;
mod intel;
mod mpich;
mod openmpi5;
mod planned;
mod together;
mod windows;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use suite::{Site, Wanted};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(240);

/// LAMMPS's example of a melt, with a result to the last bit.
const MELT: &str = "units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 10 0 10 0 10
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 500
run STEPS
write_dump all custom final.dump id x y z vx vy vz modify sort id format float %24.17g
";

const STEPS: &str = "4000";

/// Two groups of one node with two ranks each, and a spare.
const GROUPS: [&str; 10] = [
    "-N3",
    "--exclusive",
    "--no-kill",
    "--ft-energy=energy",
    "--ft-energy-protocol=uncoordinated",
    "--ft-energy-groups=2",
    "--ft-energy-spare=1",
    "--ft-energy-engine=criu",
    "--ft-energy-log=disk",
    "--ft-energy-interval=5s",
];

/// The site, if CRIU can be had.
fn site() -> Option<MutexGuard<'static, Site>> {
    static SITE: OnceLock<Result<Mutex<Site>, String>> = OnceLock::new();
    let start = || {
        let dir = PathBuf::from(format!("/tmp/joulepoint-mpi-{}", std::process::id()));
        let estimates = "[estimates]\nnode_mtbf_s = 36000.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n";
        let toml = format!("[criu]\ncommand = {:?}\n\n{estimates}", dir.join("criu/criu"));
        // Jobs of the second partition are asked to end, and have a while, when one of the third wants their nodes.
        let slurm_conf = "SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0\n\
            PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n\
            PartitionName=all Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP PriorityTier=1\n\
            PartitionName=patient Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=5\n\
            PartitionName=urgent Nodes=n[1-4] MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF\n"
            .to_string();
        let wanted = Wanted { nodes: 4, toml, slurm_conf, ..Wanted::default() };
        let site = Site::start(&dir, &wanted, &mut |text| println!("  {text}")).expect("the site starts");
        suite::fetch(suite::Fetched::Criu, &dir.join("criu")).map(|()| Mutex::new(site))
    };
    match SITE.get_or_init(start) {
        Ok(site) => Some(site.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(reason) => {
            println!("skipped: {reason}");
            None
        }
    }
}

/// The result of the same program as one native world.
fn undisturbed(folder: &Path, input: &Path, ranks: u32) -> Result<Vec<u8>> {
    let output = Command::new("mpirun")
        .args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string(), "lmp", "-in"])
        .arg(input)
        .current_dir(folder)
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(fs::read(folder.join("final.dump"))?)
}

fn said(folder: &Path, job: u32) -> String {
    fs::read_to_string(folder.join(format!("slurm-{job}.out"))).unwrap_or_default()
}

/// The node of a group, as the run's decisions tell it.
fn node_of(run: &Value, group: usize) -> Option<String> {
    let begins = format!("group {group} on ");
    let decisions = run["decisions"].as_array()?;
    let mut said = decisions.iter().filter_map(|d| d["reason"].as_str()?.strip_prefix(&begins));
    Some(said.next_back()?.split(':').next()?.to_string())
}

/// Waits for the end of a job, and gives its report.
fn ended(site: &Site, folder: &Path, job: u32) -> Result<Value> {
    let state = site.wait_state(job, &["COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"], MINUTES);
    let state = state.with_context(|| said(folder, job))?;
    let over = |run: &Value| (run["state"] != "running").then(|| run.clone());
    let run = site.wait_report(job, "the end", MINUTES, over)?;
    ensure!(state == "COMPLETED", "{state}: {}\n{run:#}", said(folder, job));
    Ok(run)
}

/// Takes the power of the node of a group when there are checkpoints, and waits for the job's end.
fn ended_without_node_of(site: &mut Site, group: usize, folder: &Path, job: u32) -> Result<Value> {
    let lines = |run: &Value| (run["total"]["checkpoints"].as_u64()? >= 3).then(|| run.clone());
    let run = site.wait_report(job, "checkpoints", MINUTES, lines).with_context(|| said(folder, job))?;
    let victim = node_of(&run, group).context("a node")?;
    site.cluster.kill_node(&victim)?;
    let run = ended(site, folder, job);
    site.cluster.revive_node(&victim)?;
    run
}

/// What groups have started again alone, and from where.
fn restarts(run: &Value) -> Vec<&str> {
    let decisions = run["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    decisions.iter().filter(|d| d["action"] == "restart group").filter_map(|d| d["reason"].as_str()).collect()
}

#[test]
fn lammps_ends_with_the_same_bits_though_the_node_of_one_group_dies() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "melt")?;
    fs::write(folder.join("in.melt"), MELT.replace("STEPS", STEPS))?;
    let script = "srun --mpi=pmix -n4 lmp -in in.melt\necho ended $?";
    let job = site.submit(USER, &folder, &GROUPS, script)?;
    let run = ended_without_node_of(&mut site, 1, &folder, job)?;
    let (said, again) = (said(&folder, job), restarts(&run));
    ensure!(said.contains("ended 0"), "{said}\n{run:#}");
    ensure!(again.len() == 1 && again[0].starts_with("group 1 ") && again[0].contains("checkpoint"), "{again:?}");
    ensure!(said.matches("Loop time").count() == 1, "{said}");
    let native = tempfile::tempdir()?;
    let expected = undisturbed(native.path(), &folder.join("in.melt"), 4)?;
    ensure!(fs::read(folder.join("final.dump"))? == expected, "the result differs from the undisturbed one");
    println!("one MPI world: {} checkpoints, {}", run["total"]["checkpoints"], again[0]);
    Ok(())
}

/// Rank 0 hands out numbers to whoever asks first, and adds up what comes back, in no order. A second word names a rank that
/// aborts the program.
const WORKERS: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    long tasks = atol(words[1]), task, done[2] = {0, 0}, sum = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    printf("rank %d of %d is task %s of %s, local %s, of %s\n", rank, ranks, getenv("SLURM_PROCID"),
           getenv("SLURM_NTASKS"), getenv("SLURM_LOCALID"), getenv("OWN"));
    fflush(stdout);
    if (count > 2 && rank == atoi(words[2])) MPI_Abort(MPI_COMM_WORLD, 7);
    if (rank == 0) {
        long next = 0;
        MPI_Status from;
        for (int left = ranks - 1; left > 0;) {
            MPI_Recv(done, 2, MPI_LONG, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &from);
            sum += done[1];
            task = next < tasks ? next++ : -1;
            if (task < 0) left--;
            MPI_Send(&task, 1, MPI_LONG, from.MPI_SOURCE, 2, MPI_COMM_WORLD);
        }
        printf("sum %ld\n", sum);
    } else {
        for (;;) {
            MPI_Send(done, 2, MPI_LONG, 0, 1, MPI_COMM_WORLD);
            MPI_Recv(&task, 1, MPI_LONG, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (task < 0) break;
            usleep(2000 + rand() % 4000);
            done[1] = task;
        }
    }
    MPI_Finalize();
    return 0;
}
"#;

fn workers(site: &Site) -> Result<String> {
    built(site, "workers", WORKERS)
}

/// Compiles a program of Open MPI that all nodes see.
fn built(site: &Site, name: &str, text: &str) -> Result<String> {
    compiled(site, "mpicc", name, text)
}

fn compiled(site: &Site, compiler: &str, name: &str, text: &str) -> Result<String> {
    let program = site.conf.with_file_name(name);
    let source = program.with_extension("c");
    fs::write(&source, text)?;
    let built = Command::new(compiler).arg("-O1").arg("-o").arg(&program).arg(&source).output()?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(program.display().to_string())
}

#[test]
fn a_master_that_takes_whoever_comes_first_is_right_after_its_node_has_died() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let (program, tasks) = (workers(&site)?, 12_000_u64);
    let right = format!("sum {}\n", tasks * (tasks - 1) / 2);
    // `LOSSES=20` has so many masters lose their nodes.
    let losses: u32 = std::env::var("LOSSES").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    for attempt in 1..=losses {
        let folder = site.folder(USER, &format!("workers{attempt}"))?;
        let script = format!("export OWN=mine\nsrun --mpi=pmix -n4 {program} {tasks}\necho ended $?");
        let job = site.submit(USER, &folder, &GROUPS, &script)?;
        let run = ended_without_node_of(&mut site, 0, &folder, job)?;
        let (said, again) = (said(&folder, job), restarts(&run));
        ensure!(again.len() == 1 && again[0].starts_with("group 0 "), "{again:?}: {said}");
        ensure!(said.contains(&right) && said.contains("ended 0"), "{said}");
        for rank in 0..4 {
            let line = format!("rank {rank} of 4 is task {rank} of 4, local {}, of mine\n", rank % 2);
            ensure!(said.matches(&line).count() == 1, "{line}: {said}");
        }
        println!("master {attempt} and workers: {} checkpoints, {}", run["total"]["checkpoints"], again[0]);
    }
    Ok(())
}

#[test]
fn an_abort_of_one_rank_ends_all_groups_and_the_next_call_is_a_world_of_its_own() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "abort")?;
    let program = workers(&site)?;
    let script = format!(
        "for rank in 3 0; do srun --mpi=pmix -n4 {program} 100000 $rank; echo ended $?; done
        srun --mpi=pmix -n4 {program} 10; echo ended $?
        srun --mpi=pmix -n1 {program} 10; echo ended $?"
    );
    let job = site.submit(USER, &folder, &GROUPS, &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    let codes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ended ")).collect();
    ensure!(codes.len() == 4 && codes[..2].iter().all(|code| *code != "0"), "{codes:?}: {said}\n{run:#}");
    ensure!(codes[2..] == ["0", "0"], "{codes:?}: {said}\n{run:#}");
    ensure!(said.contains("sum 45\n") && said.contains("rank 0 of 1 "), "{said}");
    ensure!(restarts(&run).is_empty(), "{run:#}");
    Ok(())
}

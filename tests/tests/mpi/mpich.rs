//! Programs of MPICH, beside Open MPI on the same machine: the same as those of Open MPI. Each test says that it skipped
//! where MPICH is not installed.

use super::coordinated::{decided, kill_one, node, options, with_checkpoints};
use super::ends;
use super::{GROUPS, MINUTES, USER, WORKERS, built, compiled, ended, ended_without_node_of, restarts, said, site};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use suite::{Fetched, Site, fetch};

/// Debian's names of its compiler and its launcher.
const COMPILER: &str = "mpicc.mpich";
const LAUNCHER: &str = "mpiexec.hydra";

/// The workers as a program of MPICH, if it is installed.
fn workers(site: &Site) -> Result<Option<String>> {
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok_and(|said| said.status.success());
    if let Some(missing) = [COMPILER, LAUNCHER].iter().find(|name| !is_there(name)) {
        println!("skipped: there is no {missing}");
        return Ok(None);
    }
    compiled(site, COMPILER, "workers-mpich", WORKERS).map(Some)
}

pub fn sum(tasks: u64) -> String {
    format!("sum {}\n", tasks * (tasks - 1) / 2)
}

/// Has a job's workers, six of them on three nodes, and one spare, lose a rank and then a node: all go back to one line each
/// time, and each rank has seen what it would have seen without us. `call` is what starts them.
pub fn go_on_after_a_killed_rank_and_in_place_of_a_dead_node(
    site: &mut Site,
    name: &str,
    program: &str,
    call: &str,
) -> Result<()> {
    let (folder, tasks) = (site.folder(USER, name)?, 40_000_u64);
    let script = format!("export OWN=mine\n{call} {program} {tasks} >out\necho ended $?");
    let job = site.submit(USER, &folder, &options(&["-N4", "--no-kill", "--ft-energy-spare=1"]), &script)?;
    let run = with_checkpoints(site, &folder, job, 2)?;
    let made = run["total"]["checkpoints"].as_u64().context("checkpoints")?;
    ensure!(kill_one(site, program, "40000"), "no rank runs: {}", said(&folder, job));
    let run = with_checkpoints(site, &folder, job, made + 1)?;
    let victim = node(&run, 1)?;
    site.cluster.kill_node(&victim)?;
    let run = ended(site, &folder, job);
    site.cluster.revive_node(&victim)?;
    let (run, said, out) = (run?, said(&folder, job), fs::read_to_string(folder.join("out"))?);
    ensure!(out.contains(&sum(tasks)) && said.contains("ended 0"), "{out}{said}\n{run:#}");
    for rank in 0..6 {
        let line = format!("rank {rank} of 6 is task {rank} of 6, local {}, of mine\n", rank % 2);
        ensure!(out.matches(&line).count() == 1, "{line}: {out}{said}");
    }
    ensure!(run["failures"].as_array().map(Vec::len) == Some(2), "{said}\n{run:#}");
    ensure!(decided(&run, "restart in place") >= 1, "{run:#}");
    println!("a rank was killed, {victim} died, {} checkpoints", run["total"]["checkpoints"]);
    Ok(())
}

#[test]
fn a_program_of_mpich_that_hydra_starts_goes_on_after_a_killed_rank_and_in_place_of_a_dead_node() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let Some(program) = workers(&site)? else { return Ok(()) };
    go_on_after_a_killed_rank_and_in_place_of_a_dead_node(
        &mut site,
        "mpich-hydra",
        &program,
        "mpiexec.hydra -ppn 2 -n 6",
    )
}

/// One that is linked to the library of MPI 5's standard ABI, as MPICH 5 offers it, and is started by its launcher.
#[test]
fn a_program_of_mpi_5s_abi_goes_on_after_a_killed_rank_and_in_place_of_a_dead_node() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let there = site.conf.with_file_name("mpich5");
    if let Err(reason) = fetch(Fetched::Mpich5, &there) {
        println!("skipped: {reason}");
        return Ok(());
    }
    let bin = there.join("bin").display().to_string();
    let program = compiled(&site, &format!("{bin}/mpicc_abi"), "workers-abi", WORKERS)?;
    let call = format!("PATH={bin}:$PATH; mpiexec -n 6 -ppn 2");
    go_on_after_a_killed_rank_and_in_place_of_a_dead_node(&mut site, "mpi-abi", &program, &call)
}

#[test]
fn calls_of_mpich_end_as_those_of_open_mpi_do_without_us() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    if workers(&site)?.is_none() {
        return Ok(());
    }
    // Ranks of MPICH that talk by UCX's TCP, as they would without us, may wait for ever in MPI_Finalize.
    let plain = ("pmix", built(&site, "worker", ends::WORKER)?);
    let ours = ("pmi2", compiled(&site, COMPILER, "worker-mpich", ends::WORKER)?);
    ends::ends_as_without_us(&site, "mpich-ends", &plain, &ours)
}

#[test]
fn calls_of_hydra_are_worlds_and_what_is_not_understood_is_left_to_it() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let Some(program) = workers(&site)? else { return Ok(()) };
    let folder = site.folder(USER, "hydra")?;
    // What an aborted rank has begun to write may be no whole line.
    let script = format!(
        "told() {{ echo; echo ended $1; }}; export OWN=other\nmpiexec.hydra -n 6 -ppn 2 -genv OWN mine {program} 10; told $?\n\
        mpiexec.mpich -n 6 {program} 100000 5; told $?\n\
        srun --mpi=pmi2 -n 6 {program} 100000 3; told $?\n\
        mpiexec.hydra -hosts $(hostname) -n 2 {program} 30; told $?\n\
        mpiexec.hydra -hosts $(hostname) -launcher fork -prepend-rank -n 2 {program} 20; told $?\n\
        mpiexec -n 2 {program} 0; told $?\n"
    );
    let job = site.submit(USER, &folder, &options(&["-N3"]), &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    let codes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ended ")).collect();
    ensure!(codes == ["0", "7", "7", "0", "0", "0"], "{codes:?}: {said}\n{run:#}");
    for rank in 0..6 {
        let line = format!("rank {rank} of 6 is task {rank} of 6, local {}, of mine\n", rank % 2);
        ensure!(said.matches(&line).count() == 1, "{line}: {said}");
    }
    ensure!([10, 30, 20].iter().all(|tasks| said.contains(&sum(*tasks))), "{said}");
    // On a machine whose mpiexec is Open MPI's, ranks of MPICH are alone each, as they would be without Joulepoint.
    for why in ["its option -prepend-rank is not known", "starts programs of another MPI"] {
        let told = said.lines().filter(|line| line.contains("no checkpoint while mpiexec") && line.contains(why));
        ensure!(told.count() == 1, "{why}: {said}");
    }
    ensure!(said.matches("no checkpoint while").count() == 2, "{said}");
    Ok(())
}

/// Has a job's two groups of workers lose a rank, and then the node of the other group: each goes back alone.
pub fn the_group_of_a_killed_rank_and_that_of_a_dead_node_go_back_alone(
    site: &mut Site,
    name: &str,
    program: &str,
    call: &str,
) -> Result<()> {
    let (folder, tasks) = (site.folder(USER, name)?, 24_000_u64);
    let script = format!("export OWN=mine\n{call} {program} {tasks}\necho ended $?");
    let job = site.submit(USER, &folder, &GROUPS, &script)?;
    let lines = |run: &serde_json::Value| (run["total"]["checkpoints"].as_u64()? >= 3).then_some(());
    site.wait_report(job, "checkpoints", MINUTES, lines).with_context(|| said(&folder, job))?;
    ensure!(kill_one(site, program, "24000"), "no rank runs: {}", said(&folder, job));
    let back = |run: &serde_json::Value| (restarts(run).len() == 1).then_some(());
    site.wait_report(job, "a group that goes back", MINUTES, back).with_context(|| said(&folder, job))?;
    let run = ended_without_node_of(site, 0, &folder, job)?;
    let (said, again) = (said(&folder, job), restarts(&run));
    ensure!(again.len() == 2 && again[1].starts_with("group 0 "), "{again:?}: {said}");
    ensure!(said.contains(&sum(tasks)) && said.contains("ended 0"), "{said}");
    Ok(())
}

#[test]
fn the_group_of_a_killed_rank_and_that_of_a_dead_node_go_back_alone_with_their_ranks_of_mpich() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let Some(program) = workers(&site)? else { return Ok(()) };
    let call = "srun --mpi=pmi2 -n4";
    the_group_of_a_killed_rank_and_that_of_a_dead_node_go_back_alone(&mut site, "mpich-groups", &program, call)
}

/// Says which signals it gets, until the third of them.
const LISTENER: &str = r#"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
static volatile sig_atomic_t last, count;
static void hear(int number) { last = number; count++; }
int main(int words, char **word) {
    MPI_Init(&words, &word);
    int rank, got = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    signal(SIGUSR1, hear);
    signal(SIGUSR2, hear);
    signal(SIGHUP, hear);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) { FILE *ready = fopen("ready", "w"); fclose(ready); }
    for (int ticks = 0; ticks < 600 && got != SIGHUP; ticks++) {
        usleep(100000);
        if (last != got) { got = last; printf("rank %d got %d\n", rank, got); fflush(stdout); }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn ranks_of_mpich_get_the_signals_of_their_step_and_their_launcher_survives_them() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    if workers(&site)?.is_none() {
        return Ok(());
    }
    let folder = site.folder(USER, "mpich-signals")?;
    let program = compiled(&site, COMPILER, "listener-mpich", LISTENER)?;
    let script = format!("srun --mpi=pmi2 -n4 {program}; echo ended $?");
    let job = site.submit(USER, &folder, &options(&["-N2"]), &script)?;
    site.wait_report(job, "the ranks", MINUTES, |_| folder.join("ready").exists().then_some(()))?;
    for signal in ["USR1", "USR2", "HUP"] {
        let sent = site.cluster.command("scancel").args(["--signal", signal, &format!("{job}.0")]).output()?;
        ensure!(sent.status.success(), "{signal}: {}", String::from_utf8_lossy(&sent.stderr));
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    ensure!(said.contains("ended 0") && run["failures"].as_array().is_none_or(Vec::is_empty), "{said}\n{run:#}");
    for (rank, number) in (0..4).flat_map(|rank| [10, 12, 1].map(|number| (rank, number))) {
        ensure!(said.contains(&format!("rank {rank} got {number}\n")), "{rank} {number}: {said}");
    }
    Ok(())
}

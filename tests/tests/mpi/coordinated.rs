//! One option, and a script as it was: MPI over nodes whose ranks are all dumped at one line, and all go back to it.

use super::{MELT, MINUTES, STEPS, USER, ended, said, site, undisturbed, workers};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use suite::Site;

/// What the user adds, and a time between checkpoints that suits a test.
pub(super) const OPTION: [&str; 3] = ["--exclusive", "--ft-energy=energy", "--ft-energy-interval=5s"];

pub(super) fn options<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [more, &OPTION].concat()
}

/// Waits for so many checkpoints.
pub(super) fn with_checkpoints(site: &Site, folder: &Path, job: u32, count: u64) -> Result<Value> {
    let made = |run: &Value| (run["total"]["checkpoints"].as_u64()? >= count).then(|| run.clone());
    site.wait_report(job, "checkpoints", MINUTES, made).with_context(|| said(folder, job))
}

pub(super) fn node(run: &Value, number: usize) -> Result<String> {
    Ok(run["records"][0]["nodes"][number].as_str().with_context(|| format!("node {number} of {run:#}"))?.to_string())
}

pub(super) fn decided(run: &Value, action: &str) -> usize {
    run["decisions"].as_array().map_or(0, |all| all.iter().filter(|d| d["action"] == action).count())
}

/// Puts other files in the place of all that is installed, as the packages of the next version do.
fn upgrade(site: &Site) -> Result<()> {
    for installed in fs::read_dir(site.conf.with_file_name("bin"))? {
        let installed = installed?.path();
        let newer = installed.with_extension("newer");
        fs::copy(&installed, &newer)?;
        writeln!(fs::OpenOptions::new().append(true).open(&newer)?, "newer")?;
        fs::rename(&newer, &installed)?;
    }
    Ok(())
}

/// LAMMPS, which is started by these words over three nodes, ends with the bits of the undisturbed run, though everything of
/// ours is installed anew and one of the nodes dies.
fn melt_without(site: &mut Site, name: &str, more: &[&str], number: usize, starts: &str) -> Result<Value> {
    let folder = site.folder(USER, name)?;
    fs::write(folder.join("in.melt"), MELT.replace("STEPS", STEPS))?;
    let job = site.submit(USER, &folder, &options(more), &format!("{starts} -n 4 lmp -in in.melt\necho ended $?"))?;
    let run = with_checkpoints(site, &folder, job, 2)?;
    let victim = node(&run, number)?;
    upgrade(site)?;
    site.cluster.kill_node(&victim)?;
    let run = ended(site, &folder, job);
    site.cluster.revive_node(&victim)?;
    let (run, said) = (run?, said(&folder, job));
    ensure!(said.contains("ended 0") && said.matches("Loop time").count() == 1, "{said}\n{run:#}");
    // What LAMMPS says every 500 steps is there once, and in order.
    let steps: Vec<u32> = said.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let expected: Vec<u32> = (0..=STEPS.parse()?).step_by(500).collect();
    ensure!(expected.iter().all(|step| steps.iter().filter(|s| *s == step).count() == 1), "{steps:?}: {said}");
    let native = tempfile::tempdir()?;
    let expected = undisturbed(native.path(), &folder.join("in.melt"), 4)?;
    ensure!(fs::read(folder.join("final.dump"))? == expected, "the result differs from the undisturbed one: {said}");
    println!("{name}: {victim} died, {} checkpoints", run["total"]["checkpoints"]);
    Ok(run)
}

#[test]
fn lammps_goes_on_in_place_with_a_spare_and_ends_with_the_same_bits() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let run =
        melt_without(&mut site, "melt-in-place", &["-N4", "--no-kill", "--ft-energy-spare=1"], 1, "srun --mpi=pmix")?;
    ensure!(decided(&run, "restart in place") == 1 && run["records"].as_array().map(Vec::len) == Some(1), "{run:#}");
    Ok(())
}

#[test]
fn lammps_is_requeued_when_the_node_of_its_script_dies_and_ends_with_the_same_bits() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let run = melt_without(&mut site, "melt-requeued", &["-N3"], 0, "srun --mpi=pmix")?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "{run:#}");
    Ok(())
}

#[test]
fn lammps_that_mpirun_starts_goes_on_in_place_and_ends_with_the_same_bits() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let run = melt_without(&mut site, "melt-mpirun", &["-N4", "--no-kill", "--ft-energy-spare=1"], 1, "mpirun")?;
    ensure!(decided(&run, "restart in place") == 1 && run["records"].as_array().map(Vec::len) == Some(1), "{run:#}");
    Ok(())
}

/// Writes into a file by the pointer that all ranks share.
const SHARED: &str = r#"
#include <mpi.h>
#include <stdio.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank;
    MPI_File file;
    MPI_Offset bytes;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, "shared", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_write_shared(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &bytes);
    if (rank == 0) printf("file has %lld\n", (long long)bytes);
    MPI_File_close(&file);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn calls_of_mpirun_are_worlds_like_those_of_srun_and_what_is_not_understood_is_left_to_it() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "mpirun")?;
    let program = workers(&site)?;
    let shared = super::built(&site, "shared", SHARED)?;
    let script = format!(
        "export OWN=other\nmpirun --version\n\
        mpirun -np 6 -x OWN=mine --map-by slot --bind-to none {program} 10; echo ended $?\n\
        mpiexec -n 6 {program} 100000 5; echo ended $?\n\
        mpirun --tag-output -np 3 {program} 20; echo ended $?\n\
        mpirun --map-by node -np 6 {program} 30; echo ended $?\n\
        mpirun -np 3 {shared}; echo ended $?\n"
    );
    let job = site.submit(USER, &folder, &options(&["-N3"]), &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    let codes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ended ")).collect();
    ensure!(codes == ["0", "7", "0", "0", "0"], "{codes:?}: {said}\n{run:#}");
    ensure!(said.contains("mpirun (Open MPI) 4"), "{said}");
    for rank in 0..6 {
        let line = format!("rank {rank} of 6 is task {rank} of 6, local {}, of mine\n", rank % 2);
        ensure!(said.matches(&line).count() == 1, "{line}: {said}");
    }
    ensure!(said.contains("sum 45\n") && said.contains("sum 190\n") && said.contains("sum 435\n"), "{said}");
    ensure!(said.contains("file has 12\n"), "{said}");
    for why in ["its option --tag-output is not known", "dealt out to the nodes in turn", "calls MPI_File_write_shared"]
    {
        let told = said.lines().filter(|line| line.contains("no checkpoint while mpirun") && line.contains(why));
        ensure!(told.count() == 1, "{why}: {said}");
    }
    ensure!(said.matches("no checkpoint while").count() == 3, "{said}");
    Ok(())
}

/// Kills one process of this site whose program's name ends so, and that has this word.
pub(super) fn kill_one(site: &Site, program: &str, word: &str) -> bool {
    let place = site.conf.parent().map(|p| p.display().to_string()).unwrap_or_default();
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let is_it = |pid: &i32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split('\0');
        line.contains(&place) && words.next().is_some_and(|first| first.ends_with(program)) && words.any(|w| w == word)
    };
    let found = all.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_it).max();
    found.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok())
}

#[test]
fn a_master_that_takes_whoever_comes_first_is_right_after_a_rank_and_a_relay_were_killed() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let (program, tasks) = (workers(&site)?, 48_000_u64);
    let folder = site.folder(USER, "workers-at-one-line")?;
    let script = format!("export OWN=mine\nsrun --mpi=pmix -n6 {program} {tasks} >out\necho ended $?");
    let job = site.submit(USER, &folder, &options(&["-N3"]), &script)?;
    let mut wanted = 2;
    for (killed, word) in [(program.as_str(), "48000"), ("joulepoint-mpi-relay", "serve")] {
        let run = with_checkpoints(&site, &folder, job, wanted)?;
        ensure!(kill_one(&site, killed, word), "no {killed} runs: {}", said(&folder, job));
        wanted = run["total"]["checkpoints"].as_u64().context("checkpoints")? + 1;
    }
    let run = ended(&site, &folder, job)?;
    let (out, said) = (fs::read_to_string(folder.join("out"))?, said(&folder, job));
    ensure!(out.contains(&format!("sum {}\n", tasks * (tasks - 1) / 2)) && said.contains("ended 0"), "{out}{said}");
    for rank in 0..6 {
        let line = format!("rank {rank} of 6 is task {rank} of 6, local {}, of mine\n", rank % 2);
        ensure!(out.matches(&line).count() == 1, "{line}: {out}{said}");
    }
    ensure!(run["failures"].as_array().map(Vec::len) == Some(2), "{said}\n{run:#}");
    Ok(())
}

#[test]
fn an_abort_ends_all_nodes_with_its_code_and_calls_of_any_size_are_worlds_of_their_own() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "abort-at-one-line")?;
    let program = workers(&site)?;
    let script = format!(
        "srun --mpi=pmix -n6 {program} 100000 5; echo ended $?
        srun --mpi=pmix -n6 {program} 10; echo ended $?
        srun --mpi=pmix -N1 -n2 {program} 10; echo ended $?
        srun --mpi=pmix --label -n6 {program} 10; echo ended $?"
    );
    let job = site.submit(USER, &folder, &options(&["-N3"]), &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    let codes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ended ")).collect();
    ensure!(codes == ["7", "0", "0", "0"], "{codes:?}: {said}\n{run:#}");
    ensure!(said.matches("sum 45\n").count() == 3 && said.contains("rank 1 of 2 "), "{said}");
    // What cannot be dumped runs natively, and it is said.
    ensure!(said.contains("no checkpoint while srun --mpi=pmix --label"), "{said}");
    Ok(())
}

/// A box of water for GROMACS, in the folder.
pub(super) fn water(folder: &Path) -> Result<()> {
    let prepare = suite::repository().join("apps/gromacs/prepare.sh");
    let made = Command::new("sh").arg(prepare).arg(folder).arg("1500").output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let owned = Command::new("chown").args(["-R", USER]).arg(folder).status()?;
    ensure!(owned.success(), "the folder is not the user's");
    Ok(())
}

/// Has GROMACS read the steps that it has written.
pub(super) fn steps_are_whole(folder: &Path) -> Result<()> {
    let check = Command::new("gmx").args(["-quiet", "check", "-f", "water.xtc"]).current_dir(folder).output()?;
    let check = String::from_utf8_lossy(&check.stderr).into_owned();
    ensure!(check.contains("Step"), "{check}");
    Ok(())
}

#[test]
fn gromacs_that_balances_its_load_by_the_clock_comes_to_its_end_though_a_node_dies() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "water")?;
    water(&folder)?;
    let script = "srun --mpi=pmix -n6 gmx_mpi -quiet mdrun -s topol.tpr -deffnm water -dlb yes -npme 0 -ntomp 1 -pin off \
                  -nsteps 1500 >mdrun.out 2>&1\necho ended $?";
    let job = site.submit(USER, &folder, &options(&["-N3"]), script)?;
    let run = with_checkpoints(&site, &folder, job, 1)?;
    let victim = node(&run, 2)?;
    site.cluster.kill_node(&victim)?;
    let run = ended(&site, &folder, job);
    site.cluster.revive_node(&victim)?;
    let (run, said) = (run?, said(&folder, job));
    let log = fs::read_to_string(folder.join("water.log"))?;
    ensure!(said.contains("ended 0") && log.contains("Finished mdrun"), "{said}\n{run:#}");
    steps_are_whole(&folder)?;
    println!("water: {victim} died, {} checkpoints", run["total"]["checkpoints"]);
    Ok(())
}

/// Ranks exchange some words, and then compute for long without any: the first one by itself, the others in a barrier.
const QUIET: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, word = 1, got = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int turn = 0; turn < 20; turn++)
        MPI_Sendrecv(&word, 1, MPI_INT, (rank + 2) % ranks, 0, &got, 1, MPI_INT, (rank + 2) % ranks, 0, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    for (int to = 1; rank == 0 && to < ranks; to++) MPI_Send(&word, 1, MPI_INT, to, 1, MPI_COMM_WORLD);
    if (rank != 0) MPI_Recv(&got, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int turn = 0; rank == 0 && turn < 450; turn++) usleep(100000);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("came to its end\n");
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn a_program_whose_ranks_say_nothing_for_long_has_checkpoints() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let (program, folder) = (super::built(&site, "quiet", QUIET)?, site.folder(USER, "quiet")?);
    let script = format!("srun --mpi=pmix -n4 {program}; echo ended $?");
    let job = site.submit(USER, &folder, &options(&["-N2"]), &script)?;
    with_checkpoints(&site, &folder, job, 3)?;
    ended(&site, &folder, job)?;
    let said = said(&folder, job);
    ensure!(said.contains("came to its end\nended 0") && !said.contains("a checkpoint failed"), "{said}");
    Ok(())
}

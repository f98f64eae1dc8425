//! Programs of Open MPI 5, whose launcher is another one than Open MPI 4's: the same. Each test says that it skipped where
//! there is no PyPI to have one from (`packaging/mpi.sh`).

use super::coordinated::options;
use super::ends;
use super::mpich::{
    go_on_after_a_killed_rank_and_in_place_of_a_dead_node, sum,
    the_group_of_a_killed_rank_and_that_of_a_dead_node_go_back_alone,
};
use super::{USER, WORKERS, built, compiled, ended, said, site};
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use suite::{Fetched, Site, fetch};

/// The folder of its programs on the site, if it can be had.
fn bin(site: &Site) -> Option<PathBuf> {
    let there = site.conf.with_file_name("openmpi5");
    let fetched = if there.exists() { Ok(()) } else { fetch(Fetched::OpenMpi5, &there) };
    fetched.inspect_err(|reason| println!("skipped: {reason}")).ok().map(|()| there.join("bin"))
}

/// A program of it.
fn program(site: &Site, bin: &Path, name: &str, text: &str) -> Result<String> {
    compiled(site, &bin.join("mpicc").display().to_string(), name, text)
}

#[test]
fn a_program_of_open_mpi_5_goes_on_after_a_killed_rank_and_in_place_of_a_dead_node() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let Some(bin) = bin(&site) else { return Ok(()) };
    let program = program(&site, &bin, "workers-openmpi5", WORKERS)?;
    let call = format!("PATH={}:$PATH; mpirun -n 6 --map-by ppr:2:node", bin.display());
    go_on_after_a_killed_rank_and_in_place_of_a_dead_node(&mut site, "openmpi5", &program, &call)
}

#[test]
fn groups_of_open_mpi_5_go_back_alone() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let Some(bin) = bin(&site) else { return Ok(()) };
    let program = program(&site, &bin, "workers-openmpi5", WORKERS)?;
    let call = "srun --mpi=pmix -n4";
    the_group_of_a_killed_rank_and_that_of_a_dead_node_go_back_alone(&mut site, "openmpi5-groups", &program, call)
}

#[test]
fn calls_of_open_mpi_5_end_as_those_of_open_mpi_4_do_without_us() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let Some(bin) = bin(&site) else { return Ok(()) };
    let plain = ("pmix", built(&site, "worker", ends::WORKER)?);
    let ours = ("pmix", program(&site, &bin, "worker-openmpi5", ends::WORKER)?);
    ends::ends_as_without_us(&site, "openmpi5-ends", &plain, &ours)
}

#[test]
fn calls_of_mpirun_of_open_mpi_5_are_worlds_and_what_is_not_understood_is_left_to_it() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let Some(bin) = bin(&site) else { return Ok(()) };
    let program = program(&site, &bin, "workers-openmpi5", WORKERS)?;
    let folder = site.folder(USER, "mpirun5")?;
    let script = format!(
        "told() {{ echo; echo ended $1; }}; PATH={bin}:$PATH; export OWN=other\n\
        mpirun -n 6 --map-by ppr:2:node -x OWN=mine --prtemca plm slurm {program} 10; told $?\n\
        mpirun -n 6 {program} 100000 5; told $?\n\
        mpirun --host $(hostname):2 -n 2 {program} 30; told $?\n\
        mpirun --host $(hostname):2 --output tag -n 2 {program} 20; told $?\n\
        {bin}/mpirun -n 3 {program} 40; told $?\n",
        bin = bin.display()
    );
    let job = site.submit(USER, &folder, &options(&["-N3"]), &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    let codes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ended ")).collect();
    ensure!(codes == ["0", "7", "0", "0", "0"], "{codes:?}: {said}\n{run:#}");
    for rank in 0..6 {
        let line = format!("rank {rank} of 6 is task {rank} of 6, local {}, of mine\n", rank % 2);
        ensure!(said.matches(&line).count() == 1, "{line}: {said}");
    }
    ensure!([10, 30, 20, 40].iter().all(|tasks| said.contains(&sum(*tasks))), "{said}");
    let told = said.lines().filter(|line| line.contains("no checkpoint while mpirun") && line.contains("--output"));
    ensure!(told.count() == 1, "{said}");
    Ok(())
}

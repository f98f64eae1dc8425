//! Programs of Intel MPI that `srun` and its own launcher start. Nothing brings one here: the test says that it skipped where `JOULEPOINT_INTELMPI` does
//! not name the folder of one, such as PyPI's `impi-rt` with `impi-devel`; its compiler wants that folder in `I_MPI_ROOT`, too.

use super::mpich::go_on_after_a_killed_rank_and_in_place_of_a_dead_node;
use super::{WORKERS, compiled, site};
use anyhow::Result;

#[test]
fn a_program_of_intel_mpi_goes_on_after_a_killed_rank_and_in_place_of_a_dead_node() -> Result<()> {
    let Ok(folder) = std::env::var("JOULEPOINT_INTELMPI") else {
        println!("skipped: JOULEPOINT_INTELMPI names no folder of Intel MPI");
        return Ok(());
    };
    let Some(mut site) = site() else { return Ok(()) };
    let program = compiled(&site, &format!("{folder}/bin/mpicc"), "workers-intel", WORKERS)?;
    let environment =
        format!("export I_MPI_ROOT={folder} PATH={folder}/bin:$PATH LD_LIBRARY_PATH={folder}/lib I_MPI_FABRICS=ofi");
    for (name, call) in [("intel-srun", "srun --mpi=pmi2 -n6 -N3"), ("intel-mpirun", "mpirun -n 6 -ppn 2")] {
        let call = format!("{environment}; {call}");
        go_on_after_a_killed_rank_and_in_place_of_a_dead_node(&mut site, name, &program, &call)?;
    }
    Ok(())
}

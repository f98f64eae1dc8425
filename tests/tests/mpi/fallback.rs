//! Programs that need what one world over sandboxes does not serve: they run as they do without the option, and it is said.

use super::coordinated::options;
use super::{USER, built, ended, said, site};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use suite::Site;

/// A sum over a file into which the ranks write by the pointer that they share, in a library: the program's own symbols tell
/// nothing of it.
const LIBRARY: &str = r#"
#include <mpi.h>
static MPI_File opened(void) {
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, "shown", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_size(file, 0);
    return file;
}
int sum_over_a_file(int mine) {
    int size, sum = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_File file = opened();
    MPI_File_write_shared(file, &mine, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int other = 0, its; other < size; other++) {
        MPI_File_read_at_all(file, other * sizeof its, &its, 1, MPI_INT, MPI_STATUS_IGNORE);
        sum += its;
    }
    MPI_File_close(&file);
    return sum;
}
int can_share(void) {
    int mine = 1;
    MPI_File file = opened();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int can = !MPI_File_write_shared(file, &mine, 1, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    return can;
}
"#;

/// The number that the first rank reads, and the ranks' own, in one sum; or, asked to cope, whether they can share it.
const SHARES: &str = r#"
#include <mpi.h>
#include <stdio.h>
int sum_over_a_file(int mine), can_share(void);
int main(int count, char **words) {
    int rank, mine;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = rank;
    if (count > 1) {
        int can = can_share();
        if (rank == 0) printf("can %d\n", can);
        MPI_Finalize();
        return 0;
    }
    if (rank == 0 && scanf("%d", &mine) != 1) MPI_Abort(MPI_COMM_WORLD, 9);
    int sum = sum_over_a_file(mine);
    if (rank == 0) printf("sum %d\n", sum);
    MPI_Finalize();
    return 0;
}
"#;

/// Two threads of each rank are in MPI at once, as it has asked for and looks whether it may.
const THREADS: &str = r#"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int rank, size;
static void *gives(void *none) {
    for (int turn = 0; turn < 300; turn++) {
        MPI_Ssend(&turn, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
        usleep(1000);
    }
    return none;
}
int main(int count, char **words) {
    int provided, got, sum = 0;
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided < MPI_THREAD_MULTIPLE) {
        fprintf(stderr, "this MPI has no threads\n");
        MPI_Abort(MPI_COMM_WORLD, 4);
    }
    pthread_t giver;
    pthread_create(&giver, NULL, gives, NULL);
    for (int turn = 0; turn < 300; turn++) {
        MPI_Recv(&got, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += got;
    }
    pthread_join(giver, NULL);
    if (rank == 0) printf("sum %d\n", sum);
    MPI_Finalize();
    return 0;
}
"#;

/// Compiles the program that shares a file, with its library.
fn shares(site: &Site) -> Result<String> {
    let library = site.conf.with_file_name("libshares.so");
    let source = library.with_extension("c");
    std::fs::write(&source, LIBRARY)?;
    let made = Command::new("mpicc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let program = site.conf.with_file_name("shares");
    let source = program.with_extension("c");
    std::fs::write(&source, SHARES)?;
    let folder = site.conf.parent().context("a folder")?;
    let rpath = format!("-Wl,-rpath,{}", folder.display());
    let made = Command::new("mpicc").arg("-o").args([&program, &source, &library]).arg(rpath).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Ok(program.display().to_string())
}

#[test]
fn programs_that_need_what_is_not_served_run_natively_and_it_is_said() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "fallback")?;
    let (shares, threads) = (shares(&site)?, built(&site, "threads", THREADS)?);
    let script = format!(
        "echo 100 >number\n\
         srun --mpi=pmix -n4 {shares} <number >shares.out; echo shares $?\n\
         mpirun -n 4 {shares} <<<200; echo mpirun $?\n\
         mpirun -n 4 {shares} <<<300 | tee piped.out; echo piped ${{PIPESTATUS[0]}}\n\
         srun --mpi=pmix -n4 {shares} copes; echo copes $?\n\
         srun --mpi=pmix -n4 {threads} | sed 's/^/threads: /'; echo threads ${{PIPESTATUS[0]}}"
    );
    let job = site.submit(USER, &folder, &options(&["-N2"]), &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    for code in ["shares 0\n", "mpirun 0\n", "piped 0\n", "copes 0\n", "threads 0\n"] {
        ensure!(said.contains(code), "{code}: {said}\n{run:#}");
    }
    let of_shares = std::fs::read_to_string(folder.join("shares.out"))?;
    ensure!(of_shares.lines().filter(|line| *line == "sum 106").count() == 1, "{of_shares}\n{said}");
    ensure!(said.lines().filter(|line| *line == "sum 206").count() == 1, "{said}");
    let piped = std::fs::read_to_string(folder.join("piped.out"))?;
    ensure!(piped.lines().filter(|line| *line == "sum 306").count() == 1, "{piped}\n{said}");
    // Who copes is left alone, and keeps its checkpoints.
    ensure!(said.lines().filter(|line| *line == "can 0").count() == 1, "{said}");
    ensure!(!said.contains(&format!("no checkpoint while srun --mpi=pmix -n4 {shares} copes")), "{said}");
    ensure!(said.contains("threads: sum 44850\n"), "{said}");
    for (call, why) in [
        (format!("srun --mpi=pmix -n4 {shares}"), "it calls MPI_File_write_shared, which is not served between nodes"),
        (format!("mpirun -n 4 {shares}"), "it calls MPI_File_write_shared, which is not served between nodes"),
    ] {
        ensure!(said.contains(&format!("no checkpoint while {call} runs: {why}")), "{call}: {said}");
    }
    ensure!(!said.contains(&format!("no checkpoint while srun --mpi=pmix -n4 {threads}")), "{said}");
    ensure!(said.matches("the step is started again, from its beginning").count() == 3, "{said}");
    Ok(())
}

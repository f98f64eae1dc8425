//! Programs that need what one world over sandboxes does not serve: they run as they do without the option, and it is said.

use super::coordinated::options;
use super::{USER, built, ended, said, site};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use suite::Site;

/// A sum over windows that the ranks show each other, in a library: the program's own symbols tell nothing of it.
const LIBRARY: &str = r#"
#include <mpi.h>
int sum_over_windows(int mine) {
    int rank, size, sum = 0, *shown;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Win window;
    MPI_Win_allocate(sizeof *shown, sizeof *shown, MPI_INFO_NULL, MPI_COMM_WORLD, &shown, &window);
    *shown = mine;
    MPI_Win_fence(0, window);
    for (int other = 0, its; other < size; other++) {
        MPI_Get(&its, 1, MPI_INT, other, 0, 1, MPI_INT, window);
        MPI_Win_fence(0, window);
        sum += its;
    }
    MPI_Win_free(&window);
    return sum;
}
int have_windows(void) {
    int *shown;
    MPI_Win window;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Win_allocate(4, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &shown, &window)) return 0;
    MPI_Win_free(&window);
    return 1;
}
"#;

/// The number that the first rank reads, and the ranks' own, in one sum; or, asked to cope, whether there are windows.
const WINDOWS: &str = r#"
#include <mpi.h>
#include <stdio.h>
int sum_over_windows(int mine), have_windows(void);
int main(int count, char **words) {
    int rank, mine;
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    mine = rank;
    if (count > 1) {
        int have = have_windows();
        if (rank == 0) printf("windows %d\n", have);
        MPI_Finalize();
        return 0;
    }
    if (rank == 0 && scanf("%d", &mine) != 1) MPI_Abort(MPI_COMM_WORLD, 9);
    int sum = sum_over_windows(mine);
    if (rank == 0) printf("sum %d\n", sum);
    MPI_Finalize();
    return 0;
}
"#;

/// Needs MPI_THREAD_MULTIPLE: it looks whether it has that (`looks`), takes it for granted, or says that it can do without.
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
    if (!strcmp(words[1], "without")) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return provided < MPI_THREAD_MULTIPLE ? 0 : 5;
    }
    if (!strcmp(words[1], "looks") && provided < MPI_THREAD_MULTIPLE) {
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

/// Compiles the program that shows windows, with its library.
fn windows(site: &Site) -> Result<String> {
    let library = site.conf.with_file_name("libwindows.so");
    let source = library.with_extension("c");
    std::fs::write(&source, LIBRARY)?;
    let made = Command::new("mpicc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).output()?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let program = site.conf.with_file_name("windows");
    let source = program.with_extension("c");
    std::fs::write(&source, WINDOWS)?;
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
    let (windows, threads) = (windows(&site)?, built(&site, "threads", THREADS)?);
    let script = format!(
        "echo 100 >number\n\
         srun --mpi=pmix -n4 {windows} <number >windows.out; echo windows $?\n\
         mpirun -n 4 {windows} <<<200; echo mpirun $?\n\
         mpirun -n 4 {windows} <<<300 | tee piped.out; echo piped ${{PIPESTATUS[0]}}\n\
         srun --mpi=pmix -n4 {windows} copes; echo copes $?\n\
         srun --mpi=pmix -n4 {threads} looks | sed 's/^/looks: /'; echo looks ${{PIPESTATUS[0]}}\n\
         srun --mpi=pmix -n4 {threads} trusts; echo trusts $?\n\
         srun --mpi=pmix -n4 {threads} without; echo without $?"
    );
    let job = site.submit(USER, &folder, &options(&["-N2"]), &script)?;
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    for code in ["windows 0\n", "mpirun 0\n", "piped 0\n", "copes 0\n", "looks 0\n", "trusts 0\n", "without 0\n"] {
        ensure!(said.contains(code), "{code}: {said}\n{run:#}");
    }
    let of_windows = std::fs::read_to_string(folder.join("windows.out"))?;
    ensure!(of_windows.lines().filter(|line| *line == "sum 106").count() == 1, "{of_windows}\n{said}");
    ensure!(said.lines().filter(|line| *line == "sum 206").count() == 1, "{said}");
    let piped = std::fs::read_to_string(folder.join("piped.out"))?;
    ensure!(piped.lines().filter(|line| *line == "sum 306").count() == 1, "{piped}\n{said}");
    // Who copes is left alone, and keeps its checkpoints.
    ensure!(said.lines().filter(|line| *line == "windows 0").count() == 2, "{said}");
    ensure!(!said.contains(&format!("no checkpoint while srun --mpi=pmix -n4 {windows} copes")), "{said}");
    ensure!(said.contains("looks: sum 44850\n") && said.lines().any(|line| line == "sum 44850"), "{said}");
    for (call, why) in [
        (format!("srun --mpi=pmix -n4 {windows}"), "it calls MPI_Win_allocate, which is not served between nodes"),
        (format!("mpirun -n 4 {windows}"), "it calls MPI_Win_allocate, which is not served between nodes"),
        (format!("srun --mpi=pmix -n4 {threads} looks"), "it asks for MPI_THREAD_MULTIPLE, which"),
        (format!("srun --mpi=pmix -n4 {threads} trusts"), "two of its threads are in MPI at once"),
    ] {
        ensure!(said.contains(&format!("no checkpoint while {call} runs: {why}")), "{call}: {said}");
    }
    ensure!(!said.contains(&format!("no checkpoint while srun --mpi=pmix -n4 {threads} without")), "{said}");
    ensure!(said.matches("the step is started again, from its beginning").count() == 5, "{said}");
    Ok(())
}

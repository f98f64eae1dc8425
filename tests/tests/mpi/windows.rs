//! Programs that reach into each other's memory over nodes, or have several threads in MPI at once: they go on after the death of a
//! node, under both protocols.

use super::coordinated::{node, options, with_checkpoints};
use super::{GROUPS, USER, built, ended, said, site};
use anyhow::{Result, ensure};

/// In each step every rank puts a number into its neighbour's window and adds one to a word of each; between fences each looks
/// whether that is what it has. Every tenth step adds to a counter under a lock, and to another by fetching it.
const STEPS: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks;
    long steps = atol(words[1]), *own, one = 1, was, wrong = 0;
    MPI_Win window, counters;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    long mine[2] = {0, 0};
    MPI_Win_create(mine, sizeof mine, sizeof *mine, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_allocate(2 * sizeof *own, sizeof *own, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &counters);
    own[0] = own[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (long step = 1; step <= steps; step++) {
        long number = step * 100 + rank;
        MPI_Win_fence(0, window);
        MPI_Put(&number, 1, MPI_LONG, (rank + 1) % ranks, 0, 1, MPI_LONG, window);
        for (int to = 0; to < ranks; to++) MPI_Accumulate(&one, 1, MPI_LONG, to, 1, 1, MPI_LONG, MPI_SUM, window);
        MPI_Win_fence(0, window);
        wrong += mine[0] != step * 100 + (rank + ranks - 1) % ranks || mine[1] != step * ranks;
        if (step % 10 == 0) {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, counters);
            MPI_Get(&was, 1, MPI_LONG, 1, 0, 1, MPI_LONG, counters);
            MPI_Win_flush(1, counters);
            was++;
            MPI_Put(&was, 1, MPI_LONG, 1, 0, 1, MPI_LONG, counters);
            MPI_Win_unlock(1, counters);
            MPI_Win_lock(MPI_LOCK_SHARED, ranks - 1, 0, counters);
            MPI_Fetch_and_op(&one, &was, MPI_LONG, ranks - 1, 1, MPI_SUM, counters);
            MPI_Win_unlock(ranks - 1, counters);
        }
        usleep(2000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, counters);
    long told[2];
    MPI_Get(&told[0], 1, MPI_LONG, 1, 0, 1, MPI_LONG, counters);
    MPI_Get(&told[1], 1, MPI_LONG, ranks - 1, 1, 1, MPI_LONG, counters);
    MPI_Win_unlock_all(counters);
    printf("rank %d: %ld wrong, %ld under a lock, %ld fetched\n", rank, wrong, told[0], told[1]);
    MPI_Win_free(&counters);
    MPI_Win_free(&window);
    MPI_Finalize();
    return 0;
}
"#;

/// Three threads of each rank send messages round, each its own; a fourth one adds them up over all ranks.
const THREADS: &str = r#"
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static int rank, ranks;
static long steps, sums[4];
static MPI_Comm own;
static void *rings(void *given) {
    int of = *(int *)given;
    long token = rank * 10 + of, come;
    for (long step = 1; step <= steps; step++) {
        MPI_Request sent;
        MPI_Isend(&token, 1, MPI_LONG, (rank + 1) % ranks, of, MPI_COMM_WORLD, &sent);
        MPI_Recv(&come, 1, MPI_LONG, MPI_ANY_SOURCE, of, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&sent, MPI_STATUS_IGNORE);
        token = (come + step) % 1000003;
        sums[of] += token;
        usleep(2000);
    }
    return NULL;
}
static void *adds(void *given) {
    for (long step = 1; step <= steps; step++) {
        long value = rank + step, all;
        MPI_Allreduce(&value, &all, 1, MPI_LONG, MPI_SUM, own);
        sums[3] += all;
        usleep(2000);
    }
    return given;
}
int main(int count, char **words) {
    int provided, numbers[3] = {0, 1, 2};
    pthread_t threads[4];
    MPI_Init_thread(&count, &words, MPI_THREAD_MULTIPLE, &provided);
    steps = atol(words[1]);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    for (int of = 0; of < 3; of++) pthread_create(&threads[of], NULL, rings, &numbers[of]);
    pthread_create(&threads[3], NULL, adds, NULL);
    for (int of = 0; of < 4; of++) pthread_join(threads[of], NULL);
    printf("rank %d of %d: %ld %ld %ld %ld\n", rank, provided, sums[0], sums[1], sums[2], sums[3]);
    MPI_Finalize();
    return 0;
}
"#;

const COUNT: u64 = 8_000;

/// What the program of threads says after this many steps.
fn of_threads(steps: i64) -> Vec<String> {
    let mut tokens: Vec<Vec<i64>> = (0..3).map(|of| (0..4).map(|rank| rank * 10 + of).collect()).collect();
    let (mut sums, mut all) = (vec![[0; 3]; 4], 0);
    for step in 1..=steps {
        for (of, ring) in tokens.iter_mut().enumerate() {
            ring.rotate_right(1);
            for (rank, token) in ring.iter_mut().enumerate() {
                *token = (*token + step) % 1_000_003;
                sums[rank][of] += *token;
            }
        }
        all += (0..4).map(|rank| rank + step).sum::<i64>();
    }
    let line = |(rank, [a, b, c]): (usize, &[i64; 3])| format!("rank {rank} of 3: {a} {b} {c} {all}\n");
    sums.iter().enumerate().map(line).collect()
}

fn is_right(said: &str) -> Result<()> {
    for rank in 0..4 {
        let line = format!("rank {rank}: 0 wrong, {0} under a lock, {0} fetched\n", COUNT / 10 * 4);
        ensure!(said.matches(&line).count() == 1, "{line}: {said}");
    }
    ensure!(said.contains("ended 0") && !said.contains("no checkpoint while"), "{said}");
    Ok(())
}

#[test]
fn windows_of_all_ranks_are_as_they_were_at_the_line_to_which_all_go_back() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let (program, folder) = (built(&site, "windows-steps", STEPS)?, site.folder(USER, "windows-all")?);
    let script = format!("srun --mpi=pmix -n4 {program} {COUNT}\necho ended $?");
    let job = site.submit(USER, &folder, &options(&["-N3"]), &script)?;
    let victim = node(&with_checkpoints(&site, &folder, job, 2)?, 1)?;
    site.cluster.kill_node(&victim)?;
    let run = ended(&site, &folder, job);
    site.cluster.revive_node(&victim)?;
    let run = run?;
    is_right(&said(&folder, job))?;
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "{run:#}");
    println!("windows: {victim} died, {} checkpoints", run["total"]["checkpoints"]);
    Ok(())
}

#[test]
fn groups_with_windows_go_back_together_and_it_is_said_when_the_first_is_opened() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let (program, folder) = (built(&site, "windows-steps", STEPS)?, site.folder(USER, "windows-groups")?);
    let script = format!("srun --mpi=pmix -n4 {program} {COUNT}\necho ended $?");
    // Of another name than programs that have been seen not to repeat themselves, which are not begun so.
    let options = [&GROUPS[..], &["--job-name=windows"]].concat();
    let job = site.submit(USER, &folder, &options, &script)?;
    let victim = node(&with_checkpoints(&site, &folder, job, 4)?, 1)?;
    ensure!(said(&folder, job).contains("reaches into the memory of other groups"), "{}", said(&folder, job));
    site.cluster.kill_node(&victim)?;
    let run = ended(&site, &folder, job);
    site.cluster.revive_node(&victim)?;
    let run = run?;
    is_right(&said(&folder, job))?;
    let again = super::restarts(&run);
    ensure!(again.len() > 1 && again.iter().all(|reason| reason.ends_with("as all groups do")), "{again:?}: {run:#}");
    println!("windows over groups: {again:?}");
    Ok(())
}

#[test]
fn threads_that_are_in_mpi_at_once_go_on_from_the_line() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let (program, folder) = (built(&site, "threads-steps", THREADS)?, site.folder(USER, "threads-all")?);
    let steps = COUNT / 2;
    let script = format!("srun --mpi=pmix -n4 {program} {steps}\necho ended $?");
    for (options, lines) in [(options(&["-N3"]), 2), ([&GROUPS[..], &["--job-name=threads"]].concat(), 4)] {
        let job = site.submit(USER, &folder, &options, &script)?;
        let victim = node(&with_checkpoints(&site, &folder, job, lines)?, 1)?;
        site.cluster.kill_node(&victim)?;
        let run = ended(&site, &folder, job);
        site.cluster.revive_node(&victim)?;
        let (run, said) = (run?, said(&folder, job));
        for line in of_threads(steps as i64) {
            ensure!(said.matches(&line).count() == 1, "{line}: {said}");
        }
        ensure!(said.contains("ended 0") && !said.contains("no checkpoint while"), "{said}");
        let again = super::restarts(&run);
        ensure!(
            lines == 2 || again.len() > 1 && again.iter().all(|reason| reason.ends_with("as all groups do")),
            "{again:?}: {run:#}"
        );
        println!("threads: {victim} died, {} checkpoints, {again:?}", run["total"]["checkpoints"]);
    }
    Ok(())
}

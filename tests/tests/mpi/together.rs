//! Programs that are steered by the clock, over groups that recover alone: the first group that goes back alone sends something
//! else than before, all go back to their last line, and do so from then on.

use super::coordinated::{kill_one, steps_are_whole, water};
use super::{GROUPS, MINUTES, USER, ended, node_of, restarts, said, site};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use suite::Site;

/// Each rank sends the next one numbers that it reads off the clock, as many as the clock says. At the end each compares what
/// it has got with what was sent: that fails if a rank has got what was sent in no history that was kept.
const CLOCK: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, ranks, fewer;
    long steps = atol(words[1]), out[8], in[8];
    unsigned long sent = 0, got = 0, theirs = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    for (long step = 0; step < steps; step++) {
        struct timespec now;
        MPI_Request request;
        MPI_Status status;
        clock_gettime(CLOCK_REALTIME, &now);
        int many = 1 + now.tv_nsec / 1000 % 8;
        for (int i = 0; i < many; i++) sent += (out[i] = now.tv_nsec + i) * (unsigned long)(step + 1);
        MPI_Isend(out, many, MPI_LONG, next, 7, MPI_COMM_WORLD, &request);
        MPI_Recv(in, 8, MPI_LONG, before, 7, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_LONG, &fewer);
        for (int i = 0; i < fewer; i++) got += in[i] * (unsigned long)(step + 1);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 0 && step % 1000 == 0) printf("step %ld\n", step), fflush(stdout);
        usleep(1000);
    }
    MPI_Sendrecv(&sent, 1, MPI_UNSIGNED_LONG, next, 8, &theirs, 1, MPI_UNSIGNED_LONG, before, 8, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    printf("rank %d is %s\n", rank, theirs == got ? "right" : "WRONG");
    MPI_Finalize();
    return 0;
}
"#;

fn clock(site: &Site) -> Result<String> {
    let program = site.conf.with_file_name("clock");
    let source = program.with_extension("c");
    fs::write(&source, CLOCK)?;
    let built = Command::new("mpicc").arg("-O1").arg("-o").arg(&program).arg(&source).output()?;
    ensure!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Ok(program.display().to_string())
}

fn decided<'a>(run: &'a Value, action: &str) -> Vec<&'a str> {
    let all = run["decisions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().filter(|d| d["action"] == action).filter_map(|d| d["reason"].as_str()).collect()
}

/// Waits until so many decisions of a kind were made.
fn with_decisions(site: &Site, folder: &Path, job: u32, action: &str, count: usize) -> Result<Value> {
    let made = |run: &Value| (decided(run, action).len() >= count).then(|| run.clone());
    site.wait_report(job, action, MINUTES, made).with_context(|| said(folder, job))
}

/// Takes the power of the node of a group when there is a line and each group has a newer checkpoint.
fn without_node_of(site: &mut Site, group: usize, folder: &Path, job: u32) -> Result<String> {
    let is_due = |run: &Value| {
        let newer = run["total"]["checkpoints"].as_u64()? >= 4;
        (newer && !decided(run, "line").is_empty()).then(|| run.clone())
    };
    let run = site.wait_report(job, "a line", MINUTES, is_due).with_context(|| said(folder, job))?;
    let victim = node_of(&run, group).context("a node")?;
    site.cluster.kill_node(&victim)?;
    Ok(victim)
}

/// The checkpoint from which all groups have started again together, each time that they did.
fn lines_gone_back_to(run: &Value) -> Vec<String> {
    let together = restarts(run).into_iter().filter(|reason| reason.ends_with("as all groups do"));
    let from =
        together.filter_map(|reason| Some(reason.split("starts again from ").nth(1)?.split(';').next()?.to_string()));
    from.collect()
}

#[test]
fn a_program_that_the_clock_steers_goes_back_to_the_line_of_all_and_ends_right() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let (program, folder) = (clock(&site)?, site.folder(USER, "clock")?);
    let script = format!("srun --mpi=pmix -n4 {program} 24000\necho ended $?");
    let job = site.submit(USER, &folder, &GROUPS, &script)?;
    let victim = without_node_of(&mut site, 1, &folder, job)?;
    let run = with_decisions(&site, &folder, job, "go back together", 1)?;
    // From now on a rank that is killed takes all back, too.
    let again = with_decisions(&site, &folder, job, "line", decided(&run, "line").len() + 1).and_then(|_| {
        ensure!(kill_one(&site, &program, "24000"), "no rank runs: {}", said(&folder, job));
        Ok(())
    });
    let run = again.and_then(|()| ended(&site, &folder, job));
    site.cluster.revive_node(&victim)?;
    let (run, said) = (run?, said(&folder, job));
    ensure!(said.contains("ended 0") && !said.contains("WRONG"), "{said}\n{run:#}");
    ensure!(said.matches(" is right\n").count() == 4, "{said}");
    for step in (0..24).map(|thousand| format!("step {}\n", 1000 * thousand)) {
        ensure!(said.matches(&step).count() == 1, "{step}: {said}");
    }
    let together = decided(&run, "go back together");
    ensure!(together.len() == 1 && together[0].contains("does not repeat itself"), "{together:?}");
    ensure!(said.contains("joulepoint: rank ") && said.contains("does not repeat itself"), "{said}");
    let lines = lines_gone_back_to(&run);
    ensure!(
        lines.len() == 4 && lines[0] == lines[1] && lines[2] == lines[3] && lines[0] != lines[2],
        "{lines:?}: {run:#}"
    );
    ensure!(lines.iter().all(|line| line.starts_with("checkpoint ")), "{lines:?}");
    println!("clock: {victim} died, {}; all went back to {} and {}", together[0], lines[0], lines[2]);
    Ok(())
}

#[test]
fn gromacs_that_balances_its_load_by_the_clock_ends_over_groups_though_a_node_dies() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let folder = site.folder(USER, "water-of-groups")?;
    water(&folder)?;
    let script = "srun --mpi=pmix -n4 gmx_mpi -quiet mdrun -s topol.tpr -deffnm water -dlb yes -npme 0 -ntomp 1 -pin off \
                  -nsteps 8000 >mdrun.out 2>&1\necho ended $?";
    // By its name: programs that do not repeat themselves are planned coordinated the next time.
    let named = [&GROUPS[..], &["--job-name=water"]].concat();
    let job = site.submit(USER, &folder, &named, script)?;
    let victim = without_node_of(&mut site, 0, &folder, job)?;
    let run = ended(&site, &folder, job);
    site.cluster.revive_node(&victim)?;
    let (run, said) = (run?, said(&folder, job));
    let log = fs::read_to_string(folder.join("water.log"))?;
    ensure!(said.contains("ended 0") && log.contains("Finished mdrun"), "{said}\n{run:#}");
    // By chance its load was balanced as before: then one group has gone back alone.
    let (lines, together) = (lines_gone_back_to(&run), decided(&run, "go back together").len());
    ensure!(lines.len() == 2 * together && (together == 0 || lines[0] == lines[1]), "{lines:?}: {run:#}");
    ensure!(restarts(&run).len() == 1 + lines.len(), "{run:#}");
    steps_are_whole(&folder)?;
    println!("water: {victim} died; all went back together {together} times: {lines:?}");
    Ok(())
}

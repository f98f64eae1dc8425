//! How protected jobs and their steps end: with the states, codes and words that the same jobs have without the option.

use super::coordinated::{OPTION, with_checkpoints};
use super::{MELT, MINUTES, USER, built, ended, said, site, undisturbed};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use suite::Site;

/// Works until it is asked to end; then it ends by the signal, or says that it has saved. The second word names a file that
/// says that all ranks are there; a third one has rank 1 end by itself instead.
pub const WORKER: &str = r#"
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t asked;
static void note(int number) { asked = number; }
int main(int count, char **words) {
    MPI_Init(&count, &words);
    int rank, all, saves = !strcmp(words[1], "saves");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (saves) signal(SIGTERM, note), signal(SIGUSR1, note);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) fclose(fopen(words[2], "w"));
    for (int turn = 0; turn < 6000; turn++) {
        int mine = asked;
        MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        if (all) {
            // Longer than a launcher would wait.
            sleep(3);
            printf("rank %d saved\n", rank);
            break;
        }
        if (turn == 60 && !strcmp(words[1], "crashes") && rank == 1) raise(SIGSEGV);
        if (turn == 10 && !strcmp(words[1], "fails")) {
            MPI_Finalize();
            return rank == 1 ? 3 : 0;
        }
        usleep(50000);
    }
    MPI_Finalize();
    return 0;
}
"#;

/// Accounting hears of the end of each step.
const ACCOUNTED: Duration = Duration::from_secs(20);

/// A job without the option and the same with it.
struct Pair {
    folders: [PathBuf; 2],
    jobs: [u32; 2],
}

impl Pair {
    fn submit(site: &Site, name: &str, more: &[&str], script: &str) -> Result<Pair> {
        Pair::of(site, name, more, [script; 2])
    }

    fn of(site: &Site, name: &str, more: &[&str], scripts: [&str; 2]) -> Result<Pair> {
        let folders = [site.folder(USER, &format!("{name}-plain"))?, site.folder(USER, &format!("{name}-ours"))?];
        let plain = site.submit(USER, &folders[0], more, scripts[0])?;
        let ours = site.submit(USER, &folders[1], &[more, &OPTION].concat(), scripts[1])?;
        Ok(Pair { folders, jobs: [plain, ours] })
    }

    /// What the jobs have said.
    fn said(&self) -> [String; 2] {
        [0, 1].map(|i| said(&self.folders[i], self.jobs[i]))
    }

    /// Waits until both have made a file.
    fn wait_for(&self, site: &Site, file: &str) -> Result<()> {
        let is_there = |folder: &Path| folder.join(file).exists();
        site.wait(file, MINUTES, |_| Ok(self.folders.iter().all(|f| is_there(f)).then_some(())))
            .with_context(|| self.said().join("\n"))
    }

    /// What accounting says of one of the two.
    fn account(&self, site: &Site, which: usize) -> Result<String> {
        let id = self.jobs[which].to_string();
        let mut sacct = site.cluster.command("sacct");
        let output = sacct.args(["-n", "-P", "-j", &id, "-o", "JobID,State,ExitCode"]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(text.lines().map(|line| format!("J{}\n", line.strip_prefix(&id).unwrap_or(line))).collect())
    }

    /// Waits until both have ended alike, as `expected` of accounting's lines, which come one after the other.
    fn end_alike(&self, site: &Site, expected: &[&str]) -> Result<()> {
        for job in self.jobs {
            let states = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"];
            site.wait_state(job, &states, MINUTES).with_context(|| self.said().join("\n"))?;
        }
        let look = |site: &Site| {
            let [plain, ours] = [self.account(site, 0)?, self.account(site, 1)?];
            ensure!(plain == ours, "without:\n{plain}with:\n{ours}");
            let missing = expected.iter().find(|line| !ours.lines().any(|l| l == **line));
            ensure!(missing.is_none(), "{missing:?}: {ours}");
            Ok(Some(()))
        };
        site.wait("two jobs that end alike", ACCOUNTED, look).with_context(|| self.said().join("\n--\n"))
    }
}

#[test]
fn what_ends_a_call_of_mpi_ends_it_as_it_would_without_us() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let worker = ("pmix", built(&site, "worker", WORKER)?);
    ends_as_without_us(&site, "ends", &worker, &worker)
}

/// Signals, cancellations and codes of calls of a worker, which `srun --mpi` starts: one without the option, and the other with it.
pub fn ends_as_without_us(site: &Site, name: &str, plain: &(&str, String), ours: &(&str, String)) -> Result<()> {
    let script = |(mpi, program): &(&str, String)| {
        let call = |kind: &str, number: u32, then: &str| {
            format!(
                "srun --mpi={mpi} -n4 {program} {kind} begun.{number} & call=$!\n\
                 until [ -e begun.{number} ]; do sleep 0.2; done\n{then}\nwait $call; echo ended $?\n"
            )
        };
        [
            call("works", 0, "sleep 8; scancel -s INT $SLURM_JOB_ID.0"),
            call("works", 1, "scancel -s TERM $SLURM_JOB_ID.1"),
            call("saves", 2, "scancel -s TERM $SLURM_JOB_ID.2"),
            call("saves", 3, "scancel -s USR1 $SLURM_JOB_ID.3"),
            call("fails", 4, ""),
            // The last one's code is the job's, which does not go back for it.
            format!("srun --mpi={mpi} -n4 {program} works begun.5 & until [ -e begun.5 ]; do sleep 0.2; done\n"),
            "sleep 2; scancel $SLURM_JOB_ID.5; wait $!".to_string(),
        ]
        .concat()
    };
    let pair = Pair::of(site, name, &["-N2", "--exclusive"], [&script(plain), &script(ours)])?;
    pair.end_alike(site, &["J|FAILED|9:0", "J.0|CANCELLED|0:2", "J.1|CANCELLED|0:15", "J.2|COMPLETED|0:0"])?;
    for said in pair.said() {
        let codes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("ended ")).collect();
        ensure!(codes == ["130", "143", "0", "0", "3"], "{codes:?}: {said}");
        let saved = |rank: u32| said.matches(&format!("rank {rank} saved\n")).count();
        ensure!((0..4).all(|rank| saved(rank) == 2), "{said}");
    }
    let ours = &pair.said()[1];
    ensure!(ours.contains("protected by engine criu") && !ours.contains("goes on from checkpoint"), "{ours}");
    Ok(())
}

#[test]
fn a_job_that_is_cancelled_or_killed_is_told_as_one_and_a_rank_that_crashes_again_leaves_the_rest_to_the_script()
-> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let program = built(&site, "worker", WORKER)?;
    let script = |words: &str| format!("srun --mpi=pmix -n4 {program} {words} begun; echo ended $?");
    let pair = Pair::submit(&site, "cancelled", &["-N2", "--exclusive"], &script("works"))?;
    pair.wait_for(&site, "begun")?;
    for job in pair.jobs {
        site.cluster.command_as(USER, "scancel").arg(job.to_string()).status()?;
    }
    pair.end_alike(&site, &["J.batch|CANCELLED|0:15", "J.0|CANCELLED|0:15"])?;

    // Of a plain script, what is for all processes reaches all, and its end is no crash.
    let plain = Pair::submit(&site, "plain", &["-n1"], "touch begun; sleep 600; echo slept $?")?;
    plain.wait_for(&site, "begun")?;
    // A shell that is interrupted before its program has begun waits for that, with us and without.
    std::thread::sleep(Duration::from_secs(2));
    for job in plain.jobs {
        site.cluster.command_as(USER, "scancel").args(["--full", "-s", "INT", &job.to_string()]).status()?;
    }
    plain.end_alike(&site, &["J|FAILED|0:2", "J.batch|CANCELLED|0:2"])?;

    let pair = Pair::submit(&site, "crashes", &["-N2", "--exclusive"], &script("crashes"))?;
    let state = site.wait_state(pair.jobs[1], &["COMPLETED", "FAILED"], MINUTES)?;
    let ours = &pair.said()[1];
    ensure!(state == "COMPLETED", "{state}: {ours}");
    ensure!(ours.contains("the script goes on as after an error") && ours.contains("ended 139\n"), "{ours}");
    Ok(())
}

#[test]
fn a_job_whose_ranks_are_asked_to_end_since_another_one_wants_its_nodes_goes_on_from_a_checkpoint() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    let (folder, other) = (site.folder(USER, "preempted")?, site.folder(USER, "urgent")?);
    fs::write(folder.join("in.melt"), MELT.replace("STEPS", "10000"))?;
    let script = "set -e\nsrun --mpi=pmix -n4 lmp -in in.melt\necho ended $?";
    let job = site.submit(USER, &folder, &[&OPTION[..], &["-N2", "-p", "patient"]].concat(), script)?;
    with_checkpoints(&site, &folder, job, 2)?;
    let urgent = site.submit(USER, &other, &["-N4", "--exclusive", "-p", "urgent"], "sleep 2")?;
    site.wait_state(urgent, &["COMPLETED"], MINUTES)?;
    site.wait_state(job, &["PENDING", "RUNNING", "COMPLETED"], MINUTES)?;
    // Slurm makes it wait for two minutes, as all that it puts back.
    let number = format!("JobId={job}");
    let _ = site.cluster.output(site.cluster.command("scontrol").args(["update", &number, "StartTime=now+2seconds"]));
    let run = ended(&site, &folder, job)?;
    let said = said(&folder, job);
    ensure!(run["records"].as_array().map(Vec::len) == Some(2), "it was not preempted: {said}\n{run:#}");
    ensure!(said.contains("ended 0") && said.contains("goes on from checkpoint"), "{said}\n{run:#}");
    let native = tempfile::tempdir()?;
    let expected = undisturbed(native.path(), &folder.join("in.melt"), 4)?;
    ensure!(fs::read(folder.join("final.dump"))? == expected, "the result differs from the undisturbed one: {said}");
    Ok(())
}

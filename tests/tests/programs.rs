//! Programs that we did not choose, with one option each, and a node that dies: a selection of `xtask programs`.

use anyhow::{Result, ensure};
use std::fs;
use suite::programs::{self, PROGRAMS, Program, Verdict, is_here, play};
use suite::transparent::site;

/// Those of every kind, of what the tests have anyway.
const SELECTION: [&str; 29] = [
    "a log that is open",
    "python, threads",
    "python, a pool of processes",
    "python, a file in TMPDIR",
    "python, a file in memory",
    "python, spawned workers with an array",
    "mktemp -d",
    "a file in /tmp",
    "make -j2",
    "mpirun, the node's name",
    "mpirun, one after another",
    "Fortran's MPI under srun",
    "SQLite",
    "a loop of srun",
    "a chain of jobs",
    "copies of others' files",
    "a FIFO in /tmp",
    "much in /tmp",
    "a file written over by who stands at its end",
    "a large file that gets its name when it is whole",
    "a large log that is rotated",
    "an eventfd as a semaphore",
    "a scratch folder for each round",
    "an input that is written anew for each round",
    "a script that is edited while it runs",
    "a folder that is renamed when it is whole",
    "two names of a file in TMPDIR",
    "a queue of files",
    "a log by >>",
];

#[test]
fn no_program_ends_otherwise_or_begins_anew_without_a_word() -> Result<()> {
    let dir = programs::place();
    let mut site = match site(&dir, 8, &mut |text| println!("  {text}"))? {
        Ok(site) => site,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    let chosen: Vec<&Program> = PROGRAMS.iter().filter(|p| SELECTION.contains(&p.name) && is_here(p)).collect();
    let outcome = play(&mut site, &chosen, &mut |text| println!("  {text}"));
    drop(site);
    let _ = fs::remove_dir_all(&dir);
    let _ = fs::remove_dir_all(dir.with_extension("criu"));
    let outcome = outcome?;
    // A slow machine may make no checkpoint of one before its node dies, and not of most.
    let same = outcome.iter().filter(|verdict| **verdict == Verdict::Same).count();
    ensure!(2 * same > outcome.len(), "only {same} of {} went on from a checkpoint", outcome.len());
    let wrong: Vec<_> = chosen.iter().zip(outcome).filter(|(_, v)| matches!(v, Verdict::Wrong(_))).collect();
    ensure!(wrong.is_empty(), "{:?}", wrong.iter().map(|(p, v)| format!("{}: {v}", p.name)).collect::<Vec<_>>());
    Ok(())
}

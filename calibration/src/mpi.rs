//! Synchronisation and polling by the site's own MPI: a small program, compiled with its `mpicc`.

use crate::meter::{Counter, Reading, power_w};
use crate::orders::Order;
use crate::state::{Outcome, Rules};
use anyhow::{Context, Result, anyhow, bail};
use protocol::Operation;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// The program.
const SOURCE: &str = include_str!("../mpi/cost.c");

/// Shortest window, s: long against the time between two readings also where all ranks share few cores.
pub(crate) const WINDOW_S: f64 = 0.5;

/// Time between two readings of the counter while it runs.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Compiles the program into a folder that all nodes see.
///
/// # Errors
/// Why there is no program, in words for people.
pub fn compile(mpicc: &str, folder: &Path) -> Result<PathBuf, String> {
    let (source, program) = (folder.join("cost.c"), program(folder));
    fs::write(&source, SOURCE).map_err(|e| format!("{}: {e}", source.display()))?;
    let output = Command::new(mpicc).args(["-O2", "-o"]).arg(&program).arg(&source).output();
    match output {
        Ok(o) if o.status.success() => Ok(program),
        Ok(o) => {
            let said = String::from_utf8_lossy(&o.stderr).lines().last().unwrap_or("").to_string();
            Err(format!("{mpicc} does not compile the program: {said}"))
        }
        Err(e) => Err(format!("'{mpicc}' cannot be run ({e}); name the site's in calibration.mpicc")),
    }
}

/// Where the program is.
pub fn program(folder: &Path) -> PathBuf {
    folder.join("cost")
}

fn arguments(order: &Order, rules: &Rules) -> [String; 4] {
    let what = if order.operation == Some(Operation::Polling) { "polling" } else { "synchro" };
    let share = (order.bytes / f64::from(order.processes.max(1))).ceil();
    // How many windows are needed cannot be known before: one more than the least.
    [what.into(), format!("{share:.0}"), rules.window_s.max(WINDOW_S).to_string(), (rules.least + 1).to_string()]
}

/// Becomes the program: for all ranks but the first of each node.
///
/// # Errors
/// Only if that fails.
pub fn become_rank(program: &Path, order: &Order, rules: &Rules) -> Result<()> {
    let error = Command::new(program).args(arguments(order, rules)).exec();
    bail!("{}: {error}", program.display())
}

/// Runs the program as the first rank of this node, reading the node's counter beside it. Where no window has a power, the
/// outcome says why.
///
/// # Errors
/// When the program fails.
pub fn measure(program: &Path, order: &Order, rules: &Rules, node: &str, counter: &Counter) -> Result<Outcome> {
    let mut child = Command::new(program)
        .args(arguments(order, rules))
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let mut out = child.stdout.take().context("no output")?;
    let said = thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let (mut readings, mut unread) = (Vec::new(), None);
    let status = loop {
        // One that fails is only a wider gap.
        match counter.read() {
            Ok(reading) => readings.push(reading),
            Err(e) => unread = Some(e),
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        thread::sleep(READ_EVERY);
    };
    let text = said.join().ok().and_then(Result::ok).unwrap_or_default();
    if !status.success() {
        bail!("the MPI program ended with {status}");
    }
    let (times_s, powers_w) = windows(&text, &readings)?;
    let source = readings.last().map(|r| r.job.source.clone()).unwrap_or_default();
    let too_few = || anyhow!("{node}: the counter was read less often than once in a window");
    let error = powers_w.is_empty().then(|| format!("{:#}", unread.unwrap_or_else(too_few)));
    Ok(Outcome { order: order.clone(), node: node.into(), times_s, powers_w, source, error })
}

/// Durations, and the mean power within each window.
fn windows(text: &str, readings: &[Reading]) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut times_s, mut powers_w) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let figures: Vec<f64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
        let [begun_s, ended_s, time_s] = figures[..] else { bail!("the MPI program said '{line}'") };
        times_s.push(time_s);
        let at = |at_s| between(readings, at_s, ended_s - begun_s);
        if let (Some(before), Some(after)) = (at(begun_s), at(ended_s)) {
            powers_w.extend(power_w(&before, &after));
        }
    }
    Ok((times_s, powers_w))
}

/// What the counter stood at in between two readings, at most `apart_s` apart: windows within a longer gap would all have
/// its mean power, and seem certain of it.
fn between(readings: &[Reading], at_s: f64, apart_s: f64) -> Option<Reading> {
    let pair = readings.windows(2).find(|pair| (pair[0].at_s..=pair[1].at_s).contains(&at_s))?;
    let [before, after] = pair else { return None };
    let gap_s = after.at_s - before.at_s;
    let share = if gap_s > 0.0 { (at_s - before.at_s) / gap_s } else { 0.0 };
    let mut job = after.job.clone();
    job.joules = before.job.joules + share * (after.job.joules - before.job.joules);
    (gap_s <= apart_s && before.job.since_s == after.job.since_s).then_some(Reading { at_s, job })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_s: f64, joules: f64) -> Reading {
        let job = protocol::JobReading { job: 1, joules, cpu_s: 0.0, source: "model".into(), since_s: 0.0 };
        Reading { at_s, job }
    }

    #[test]
    fn powers_are_those_within_the_windows() {
        let readings = [reading(0.0, 0.0), reading(1.0, 500.0), reading(2.0, 700.0), reading(3.0, 2000.0)];
        let (times_s, powers_w) = windows("1.0 2.0 0.001\n1.5 2.5 0.002\n2.5 9.0 0.003\n", &readings).unwrap();
        assert_eq!((times_s, powers_w), (vec![0.001, 0.002, 0.003], vec![200.0, 750.0]), "the last is not bracketed");
        assert!(windows("what\n", &readings).is_err());
    }

    #[test]
    fn windows_within_one_gap_have_no_power() {
        let readings =
            [reading(0.0, 0.0), reading(0.9, 90.0), reading(3.4, 900.0), reading(3.5, 910.0), reading(4.5, 1110.0)];
        let text = "0.5 1.5 0.001\n1.5 2.5 0.001\n2.4 3.4 0.001\n3.45 4.45 0.001\n";
        let (times_s, powers_w) = windows(text, &readings).unwrap();
        assert_eq!(times_s.len(), 4);
        assert!(matches!(powers_w[..], [w] if (w - 195.0).abs() < 1e-9), "{powers_w:?}");
    }

    #[test]
    fn a_counter_that_does_not_answer_is_the_reason_of_a_point_without_power() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("cost");
        let text = dir.path().join("text");
        fs::write(&text, "#!/bin/sh\necho 1.0 2.0 0.001\n").unwrap();
        // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
        assert!(Command::new("install").args([&text, &program]).status().unwrap().success());
        let operation = Some(Operation::Synchro);
        let order =
            Order { operation, storage: None, nodes: 1, processes: 2, bytes: 0.0, intensity: 1.0, frequency_hz: None };
        let mut site = config::Site::default();
        site.node.listen = "127.0.0.1:1".into();
        let counter = Counter::new(&site, "127.0.0.1", 1);
        let outcome = measure(&program, &order, &Rules::FAST, "n1", &counter).unwrap();
        assert_eq!((outcome.times_s, outcome.powers_w), (vec![0.001], vec![]));
        assert!(
            outcome.error.as_deref().is_some_and(|e| e.contains("the node service must run")),
            "{:?}",
            outcome.error
        );
    }

    #[test]
    fn without_a_compiler_the_reason_says_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let why = compile("/nonexistent/mpicc", dir.path()).unwrap_err();
        assert!(why.contains("calibration.mpicc"), "{why}");
        assert!(compile("false", dir.path()).unwrap_err().contains("does not compile"));
    }
}

//! Programs under the real DMTCP, in jobs whose nodes die: `make engines`.
//!
//! DMTCP's sources lie beside the repository (`../shared/sources`), or every test says that it skipped.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::time::Duration;
use suite::{Site, real};

const USER: &str = "jpalice";
const MINUTES: Duration = Duration::from_secs(300);

/// A site whose users find DMTCP in their `PATH`.
fn site() -> Option<MutexGuard<'static, Site>> {
    real::shared("dmtcp", 3, real::dmtcp)
}

/// A job of one option and this script.
struct Job {
    id: u32,
    folder: PathBuf,
}

impl Job {
    fn submit(site: &Site, name: &str, more: &[&str], script: &str) -> Result<Job> {
        let folder = site.folder(USER, name)?;
        fs::write(folder.join("job.sh"), format!("#!/bin/bash\n{script}\n"))?;
        let found = format!("{}:{}", site.conf.with_file_name("dmtcp").join("bin").display(), std::env::var("PATH")?);
        let mut sbatch = site.user_command(USER, "sbatch", &folder);
        sbatch.env("PATH", found).args(["--parsable", "--output=out", "--open-mode=append", "-n2", "-N1"]);
        let output = sbatch.args(["--ft-energy", "--ft-energy-interval=3s"]).args(more).arg("job.sh").output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let id = said.trim().parse().with_context(|| format!("{output:?}"))?;
        Ok(Job { id, folder })
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("out")).unwrap_or_default()
    }

    /// Its node dies after some checkpoints; how it has ended.
    fn loses_its_node(&self, site: &mut Site) -> Result<Value> {
        let many = |run: &Value| (run["total"]["checkpoints"].as_u64() >= Some(2)).then(|| run.clone());
        let run = site.wait_report(self.id, "two checkpoints", MINUTES, many).with_context(|| self.said())?;
        let node = run["records"][0]["nodes"][0].as_str().context("a node")?.to_string();
        site.cluster.kill_node(&node)?;
        let ended = |run: &Value| (!run["end_s"].is_null()).then(|| run.clone());
        let run = site.wait_report(self.id, "the end", MINUTES, ended).with_context(|| self.said())?;
        site.cluster.revive_node(&node)?;
        Ok(run)
    }
}

/// What the script leaves in the file `result`, undisturbed and with its node lost; and how that ended.
fn both(site: &mut Site, name: &str, script: &str) -> Result<(String, String, Value, Job)> {
    let plain = site.folder(USER, &format!("{name}-plain"))?;
    let job = site.submit(USER, &plain, &["-n2", "-N1"], script)?;
    site.wait_state(job, &["COMPLETED", "FAILED"], MINUTES)?;
    let job = Job::submit(site, name, &["--ft-energy-engine=dmtcp"], script)?;
    let run = job.loses_its_node(site)?;
    let result = |folder: &Path| fs::read_to_string(folder.join("result")).context(format!("{folder:?}"));
    let (expected, found) = (result(&plain)?, result(&job.folder).with_context(|| job.said())?);
    Ok((expected, found, run, job))
}

fn goes_on(name: &str, script: &str) -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let (expected, found, run, job) = both(&mut site, name, script)?;
    let said = job.said();
    ensure!(run["state"] == "completed" && run["total"]["failures"] == 1, "{said}{run:#}");
    ensure!(found == expected, "{found} instead of {expected}: {said}");
    ensure!(said.contains("goes on from checkpoint"), "{said}");
    ensure!(!said.contains("changed since"), "{said}");
    Ok(())
}

#[test]
fn a_shell_script_goes_on_where_it_was() -> Result<()> {
    goes_on("shell", "s=0; for i in $(seq 60); do s=$((s + i * i)); sleep 0.3; done; echo $s > result")
}

#[test]
fn a_log_that_is_open_has_each_line_once() -> Result<()> {
    goes_on("open", "exec 3>>result; for i in $(seq 60); do echo line $i >&3; sleep 0.3; done")
}

#[test]
fn a_program_with_threads_and_pipes_goes_on() -> Result<()> {
    goes_on(
        "python",
        "cat > sum.py <<'END'
import queue, subprocess, threading, time
q = queue.Queue(); total = [0]
def work():
    while (i := q.get()) is not None: total[0] += i * i; time.sleep(0.3)
t = threading.Thread(target=work); t.start()
cat = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
for i in range(60):
    cat.stdin.write(f'{i}\\n'); cat.stdin.flush(); q.put(int(cat.stdout.readline())); time.sleep(0.1)
q.put(None); t.join(); open('result', 'w').write(str(total[0]))
END
python3 sum.py",
    )
}

#[test]
fn it_is_chosen_where_nothing_else_can_and_not_for_mpi_programs() -> Result<()> {
    let Some(site) = site() else { return Ok(()) };
    for (script, told) in
        [("sleep 1", "(engine dmtcp)"), ("mpirun --oversubscribe -n 2 hostname", "MPI programs crash under it")]
    {
        let job = Job::submit(&site, "auto", &[], script)?;
        let state = site.wait_state(job.id, &["COMPLETED", "FAILED"], MINUTES)?;
        ensure!(state == "COMPLETED" && job.said().contains(told), "{state}: {}", job.said());
    }
    Ok(())
}

#[test]
fn lines_of_a_log_that_is_opened_anew_are_written_again_and_the_user_hears_of_it() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let script = "for i in $(seq 60); do echo line $i >> result; sleep 0.3; done";
    let (_, _, run, job) = both(&mut site, "anew", script)?;
    let said = job.said();
    ensure!(run["state"] == "completed", "{said}{run:#}");
    ensure!(said.contains("changed since that checkpoint, which is not undone: result"), "{said}");
    Ok(())
}

#[test]
fn the_exit_code_is_that_of_the_script() -> Result<()> {
    let Some(mut site) = site() else { return Ok(()) };
    let script = "for i in $(seq 50); do sleep 0.3; done; echo done > result; exit 7";
    let (_, _, run, job) = both(&mut site, "code", script)?;
    ensure!(run["state"] == "failed", "{}{run:#}", job.said());
    let output = site.cluster.command("scontrol").args(["show", "job", &job.id.to_string()]).output()?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(shown.contains("ExitCode=7:0"), "{shown}");
    Ok(())
}

//! Asks the cluster's own commands what is going on, for tests that wait for events.

use crate::cluster::Cluster;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

/// How often a condition is looked at; an answer of Slurm's commands takes about as long.
const POLL: Duration = Duration::from_millis(100);

impl Cluster {
    /// Looks at `f` until it has an answer, or tells what was waited for and what the daemons said last.
    pub fn wait_until<T>(&self, what: &str, limit: Duration, mut f: impl FnMut() -> Result<Option<T>>) -> Result<T> {
        let deadline = Instant::now() + limit;
        loop {
            let last = match f() {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => None,
                Err(e) => Some(e),
            };
            if Instant::now() >= deadline {
                let why = last.map(|e| format!(" (last error: {e:#})")).unwrap_or_default();
                bail!("waited {limit:?} for {what}{why}\n{}", self.situation());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Runs a command to its end; its standard output, or an error with its standard error.
    pub fn output(&self, command: &mut Command) -> Result<String> {
        let out = command.output().with_context(|| format!("{command:?}"))?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if !out.status.success() {
            let name = command.get_program().to_string_lossy().into_owned();
            let said = String::from_utf8_lossy(&out.stderr);
            bail!("{name} ended with {}: {} {}", out.status, said.trim(), text.trim());
        }
        Ok(text)
    }

    /// Submits with `sbatch --parsable` as `user`; the job's number.
    pub fn submit(&self, user: &str, arguments: &[&str]) -> Result<u32> {
        let out = self.output(self.command_as(user, "sbatch").arg("--parsable").args(arguments))?;
        out.trim().split(';').next().unwrap_or_default().parse().with_context(|| format!("sbatch said {out:?}"))
    }

    /// The job's fields as `scontrol show job` prints them.
    pub fn job(&self, id: u32) -> Result<BTreeMap<String, String>> {
        let text = self.output(self.command("scontrol").args(["show", "job", "-o", &id.to_string()]))?;
        Ok(fields(&text))
    }

    /// The job's state, such as `RUNNING`.
    pub fn job_state(&self, id: u32) -> Result<String> {
        self.job(id)?.remove("JobState").context("a job without JobState")
    }

    /// Waits until the job is in one of `states`; which one.
    pub fn wait_job(&self, id: u32, states: &[&str], limit: Duration) -> Result<String> {
        self.wait_until(&format!("job {id} to be {}", states.join(" or ")), limit, || {
            let state = self.job_state(id)?;
            Ok(states.contains(&state.as_str()).then_some(state))
        })
    }

    /// The node's fields as `scontrol show node` prints them.
    pub fn node(&self, node: &str) -> Result<BTreeMap<String, String>> {
        Ok(fields(&self.output(self.command("scontrol").args(["show", "node", "-o", node]))?))
    }

    /// What a failed wait shows: queue, nodes and the controller's last words.
    fn situation(&self) -> String {
        let mut text = String::new();
        for (program, arguments) in [("squeue", &["-a"][..]), ("sinfo", &["-N", "-o", "%N %T %E"][..])] {
            let said = self.output(self.command(program).args(arguments)).unwrap_or_else(|e| format!("{e:#}\n"));
            text += &format!("{program}:\n{said}");
        }
        for log in ["slurmctld", "slurmdbd"] {
            let lines = std::fs::read_to_string(self.dir.join(format!("log/{log}.log"))).unwrap_or_default();
            let lines: Vec<_> = lines.lines().collect();
            let tail = lines[lines.len().saturating_sub(20)..].join("\n");
            text += &format!("{log}.log ends with:\n{tail}\n");
        }
        text
    }
}

/// `A=1 B=2` as a map; a value may hold further `=`, and words without one belong to the value before.
fn fields(text: &str) -> BTreeMap<String, String> {
    let mut map = BTreeMap::new();
    let mut last: Option<String> = None;
    for word in text.split_whitespace() {
        let key_value = word
            .split_once('=')
            .filter(|(k, _)| !k.is_empty() && k.chars().all(|c| c.is_ascii_alphanumeric() || "/:_".contains(c)));
        if let Some((key, value)) = key_value {
            map.insert(key.to_string(), value.to_string());
            last = Some(key.to_string());
        } else if let Some(value) = last.as_ref().and_then(|k| map.get_mut(k)) {
            value.push(' ');
            value.push_str(word);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_values_with_blanks_and_equal_signs() {
        let f = fields("JobId=7 JobName=a b TRES=cpu=2,mem=1G Reason=Node failure JobState=RUNNING\n");
        assert_eq!(f["JobName"], "a b");
        assert_eq!(f["TRES"], "cpu=2,mem=1G");
        assert_eq!(f["JobState"], "RUNNING");
    }
}

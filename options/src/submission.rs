//! Reads what a job asked for from the way in which it was submitted, for those who see it only in the queue.

use crate::table::{OPTIONS, Spec, Takes, find};
use protocol::{Request, Setting, Source};
use std::collections::BTreeMap;

/// The request that a job's command line (`sbatch ... job.sh`) and the `#SBATCH` lines of its script show; the command
/// line wins. What stands in the environment only (`FT_ENERGY`) is not seen.
///
/// `command`: the script and its arguments as Slurm knows them, which end the command line.
pub fn submitted(line: &str, command: &str, script: &str) -> Request {
    let mut values = of_script(script);
    let words: Vec<&str> = line.split_whitespace().collect();
    let own = words.len().saturating_sub(command.split_whitespace().count());
    let before_wrap = words[..own].iter().take_while(|w| !w.starts_with("--wr")).copied();
    values.extend(settings(before_wrap));
    request(values)
}

/// The same from the words of a command line that come before the script, and what is seen of that.
pub fn written(words: &[String], script: &str) -> Request {
    let directives = crate::size::directives(script);
    let mut values = settings(directives.iter().map(String::as_str));
    values.extend(settings(words.iter().map(String::as_str)));
    request(values)
}

/// What a user wrote, by the options' names.
fn request(values: BTreeMap<String, String>) -> Request {
    let written = |value| Setting { value, source: Source::Option };
    Request { settings: values.into_iter().map(|(name, value)| (name, written(value))).collect() }
}

/// The `#SBATCH` lines in front of a script's first command.
fn of_script(script: &str) -> BTreeMap<String, String> {
    let head = script.lines().take_while(|l| l.trim().is_empty() || l.starts_with('#'));
    let lines = head.filter_map(|l| l.strip_prefix("#SBATCH "));
    lines.flat_map(|l| settings(l.split_whitespace().take_while(|w| !w.starts_with('#')))).collect()
}

fn settings<'a>(words: impl Iterator<Item = &'a str>) -> BTreeMap<String, String> {
    let mut words = words.peekable();
    let mut settings = BTreeMap::new();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else { continue };
        let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
        let Some(spec) = find(name).or_else(|| abbreviated(name)) else { continue };
        let value = match (spec.takes, value) {
            (_, Some(value)) => value,
            (Takes::Required, None) => words.next().unwrap_or_default(),
            (Takes::None | Takes::Optional, None) => "",
        };
        settings.insert(spec.name.to_string(), value.trim_matches(['"', '\'']).to_string());
    }
    settings
}

/// The only option whose name begins so, as getopt_long takes it for.
fn abbreviated(name: &str) -> Option<&'static Spec> {
    let mut meant = OPTIONS.iter().filter(|s| s.name.starts_with(name));
    meant.next().filter(|_| meant.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_cannot_checkpoint_when_asked_is_not_preempted() {
        let can = |line: &str| {
            let defaults = BTreeMap::new();
            crate::resolve(&submitted(line, "job.sh", ""), &defaults).is_ok_and(|s| s.can_be_preempted())
        };
        for line in ["--ft-energy --ft-energy-signal=USR1", "--ft-energy=time --ft-energy-engine=criu"] {
            assert!(can(&format!("sbatch {line} job.sh")), "{line}");
        }
        let others = [
            "",
            "--ft-energy",
            "--ft-energy=off --ft-energy-engine=criu",
            "--ft-energy --ft-energy-done=x.ckpt",
            "--ft-energy --ft-energy-engine=scr",
            "--ft-energy --ft-energy-engine=criu --ft-energy-requeue=no",
            "--ft-energy --ft-energy-engine=blcr",
        ];
        for line in others {
            assert!(!can(&format!("sbatch {line} job.sh")), "{line}");
        }
    }

    #[test]
    fn a_job_in_the_queue_shows_what_it_asked_for() {
        let seen = |line: &str, command: &str, script: &str| {
            let request = submitted(line, command, script);
            request.settings.iter().map(|(n, s)| format!("{n}={}", s.value)).collect::<Vec<_>>().join(" ")
        };
        let script = "#!/bin/bash\n#SBATCH -N2 --ft-energy=time # fast\n#SBATCH --ft-energy-done='x.cpt'\nrun\n#SBATCH --ft-energy-keep=9\n";
        let cases = [
            ("sbatch -N2 job.sh", "/home/a/job.sh", "", ""),
            ("sbatch --ft-energy -t5 job.sh", "/home/a/job.sh", "", "ft-energy="),
            ("sbatch --ft-energy-interval 60 --ft-energy job.sh", "/h/job.sh", "", "ft-energy= ft-energy-interval=60"),
            ("sbatch job.sh --ft-energy", "/h/job.sh --ft-energy", "", ""),
            ("sbatch --wrap srun --ft-energy", "", "", ""),
            (
                "sbatch --ft-energy-si=USR1 --ft-energy-eng criu job.sh",
                "/h/job.sh",
                "",
                "ft-energy-engine=criu ft-energy-signal=USR1",
            ),
            ("sbatch --ft-energy-en=1% --ft-e=time --f=1 job.sh", "/h/job.sh", "", ""),
            ("sbatch job.sh", "/h/job.sh", script, "ft-energy=time ft-energy-done=x.cpt"),
            ("sbatch --ft-energy=off job.sh", "/h/job.sh", script, "ft-energy=off ft-energy-done=x.cpt"),
        ];
        for (line, command, script, expected) in cases {
            assert_eq!(seen(line, command, script), expected, "{line}");
        }
    }
}

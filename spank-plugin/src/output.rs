//! The output of a protected job, which Slurm would empty at every requeue: it is added to instead.
//!
//! In `sbatch` the default of `--open-mode` becomes `append`, before Slurm reads its own variables. In the first life of
//! the batch script the file is emptied, as Slurm would have done; in later lives it is not.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::option_values::program;
use crate::site::Site;
use crate::submit;
use spank::Handle;
use std::path::PathBuf;

/// By which `sbatch` takes the default of `--open-mode`.
const DEFAULT: &str = "SBATCH_OPEN_MODE";

/// By which `sbatch` passes the mode on to `srun` in the job, whose files are another matter.
const PASSED_ON: &str = "SLURM_OPEN_MODE";

/// Tells the batch step that the mode was our choice; its value is what `srun` in the job was to have.
const OURS: &str = "SLURM_JOULEPOINT_OPEN_MODE";

/// Where slurm.conf is if no variable names it; the second for hosts that get it from slurmctld.
const CONFIGURATIONS: [&str; 2] = ["/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf"];

/// Where a job is submitted, before Slurm has read anything: protected jobs add to their output.
pub fn add_to(site: &Site) {
    // SAFETY: sbatch has not started a thread when it initializes its plugins.
    unsafe { std::env::remove_var(OURS) };
    if program() != "sbatch" || std::env::var_os(DEFAULT).is_some() {
        return;
    }
    // Of a script that is not seen here nobody knows what it says.
    let Some((words, script)) = submit::seen() else { return };
    let environment = std::env::var("FT_ENERGY").ok();
    if !wants(&words, &script, environment.as_deref(), site.default) || site_adds() {
        return;
    }
    // SAFETY: as above.
    unsafe {
        std::env::set_var(OURS, std::env::var_os(PASSED_ON).unwrap_or_default());
        std::env::set_var(DEFAULT, "append");
        // Of the job that submits this one.
        std::env::remove_var("SLURM_RESTART_COUNT");
    }
}

/// How the option that names a mode begins: no other of sbatch's does.
const MODE: &str = "--op";

/// Whether the user has Slurm empty the output of a job at each of its beginnings. As for Slurm, the words count before the
/// environment, and that before the script.
pub fn is_emptied(words: &[String], script: &str) -> bool {
    let environment = std::env::var(DEFAULT).ok().filter(|_| std::env::var_os(OURS).is_none());
    let mode = mode(words).or(environment).or_else(|| mode(&options::size::directives(script)));
    mode.is_some_and(|mode| mode.starts_with('t'))
}

/// The last mode that is named among words.
fn mode(words: &[String]) -> Option<String> {
    let at = words.iter().rposition(|word| word.starts_with(MODE))?;
    words[at].split_once('=').map(|(_, mode)| mode.to_owned()).or_else(|| words.get(at + 1).cloned())
}

/// Whether the words and the script of a submission, or its environment, want protection and name no mode.
fn wants(words: &[String], script: &str, environment: Option<&str>, default: Option<&str>) -> bool {
    if words.iter().chain(&options::size::directives(script)).any(|word| word.starts_with(MODE)) {
        return false;
    }
    let request = options::written(words, script);
    let written = request.settings.get("ft-energy").map(|setting| setting.value.as_str());
    let environment = environment.filter(|value| !value.is_empty());
    written.or(environment).or(default).is_some_and(|value| value != "off")
}

/// Whether all jobs of the site add to their output: then there is nothing to do, and no file to empty.
fn site_adds() -> bool {
    let named = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let paths = named.into_iter().chain(CONFIGURATIONS.map(PathBuf::from));
    let text = paths.filter_map(|path| std::fs::read_to_string(path).ok()).next();
    text.is_some_and(|text| adds(&text))
}

fn adds(configuration: &str) -> bool {
    let value = |line: &str| {
        let (key, value) = line.split('#').next()?.split_once('=')?;
        key.trim().eq_ignore_ascii_case("JobFileAppend").then(|| value.trim().to_owned())
    };
    configuration.lines().filter_map(value).next_back().is_some_and(|value| value != "0")
}

/// Once Slurm has read its variables: none of this is meant for the jobs that this one submits, nor for `srun`.
pub fn forget() {
    let Some(before) = std::env::var_os(OURS) else { return };
    // SAFETY: as above.
    unsafe {
        std::env::remove_var(DEFAULT);
        match before.is_empty() {
            true => std::env::remove_var(PASSED_ON),
            false => std::env::set_var(PASSED_ON, before),
        }
    }
}

/// In the batch step, as the job's user: empties the output of a job in its first life, and of one that is not protected
/// after all in every life. From Slurm 24.11 on it is slurmctld that tells `srun` the mode.
pub fn begin(handle: &Handle<'_>, is_protected: bool) {
    let Ok(before) = handle.getenv(OURS) else { return };
    let _ = handle.unsetenv(OURS);
    let _ = match before.is_empty() {
        true => handle.unsetenv(PASSED_ON),
        false => handle.setenv(PASSED_ON, &before),
    };
    // Slurm 22.05 tells plugins 0 as the number of restarts, whatever it is.
    if is_protected && handle.getenv("SLURM_RESTART_COUNT").is_ok() {
        return;
    }
    for descriptor in [1, 2] {
        // SAFETY: two numbers; of what is no file, or cannot be cut, the call is an error without effect.
        unsafe { libc::ftruncate(descriptor, 0) };
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_job_that_is_to_be_protected_and_names_no_mode_adds_to_its_output() {
        let script = |lines: &str| format!("#!/bin/sh\n{lines}\necho\n");
        let wants = |words: &str, lines: &str, environment, default| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            super::wants(&words, &script(lines), environment, default)
        };
        assert!(wants("--ft-energy -N2", "", None, None));
        assert!(wants("-N2", "#SBATCH --ft-energy=time", None, None));
        assert!(wants("-N2", "", Some("energy"), None));
        assert!(wants("-N2", "", None, Some("on")));
        assert!(!wants("-N2", "", None, None));
        assert!(!wants("--ft-energy=off", "#SBATCH --ft-energy", Some("on"), Some("on")));
        assert!(!wants("-N2", "", Some("off"), Some("on")));
        assert!(!wants("--ft-energy --open-mode=truncate", "", None, None));
        assert!(!wants("--ft-energy", "#SBATCH --open-mode=append", None, None));
        assert!(!wants("--ft-energy --op=append", "", None, None));
        assert!(!wants("-N2", "#SBATCH\t--ft-energy=off", None, Some("on")));
        assert!(wants("--wrap=./a --ft-energy", "", None, None));
        assert!(!wants("--wrap=./a --ft-energy=off", "", None, Some("on")));
    }

    #[test]
    fn a_user_who_has_the_output_emptied_is_known() {
        let is_emptied = |words: &str, script: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            super::is_emptied(&words, &format!("#!/bin/sh\n#SBATCH {script}\n"))
        };
        assert!(is_emptied("--open-mode=truncate", "-N2") && is_emptied("-N2 --open-mode t", "--open-mode=append"));
        assert!(is_emptied("-N2", "--open-mode truncate"));
        assert!(!is_emptied("-N2", "-N3") && !is_emptied("--open-mode=a", "--open-mode=truncate"));
    }

    #[test]
    fn a_site_whose_jobs_add_to_their_output_is_left_as_it_is() {
        assert!(super::adds("ClusterName=c\n jobfileappend = 1 # kept\n"));
        assert!(!super::adds("#JobFileAppend=1\nJobFileAppend=0\n"));
        assert!(!super::adds(""));
    }
}

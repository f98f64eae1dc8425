//! The output of a protected job, which Slurm would empty at every requeue: it is added to instead.
//!
//! In `sbatch` the default of `--open-mode` becomes `append`, before Slurm reads its own variables. In the first life of
//! the batch script the file is emptied, as Slurm would have done; in later lives it is not.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::option_values::program;
use crate::site::Site;
use crate::submit;
use spank::Handle;

/// By which `sbatch` takes the default of `--open-mode`.
const DEFAULT: &str = "SBATCH_OPEN_MODE";

/// By which `sbatch` passes the mode on to `srun` in the job, whose files are another matter.
const PASSED_ON: &str = "SLURM_OPEN_MODE";

/// Tells the batch step that the mode was our choice.
const OURS: &str = "SLURM_JOULEPOINT_OPEN_MODE";

/// Where a job is submitted, before Slurm has read anything: protected jobs add to their output.
pub fn add_to(site: &Site) {
    // SAFETY: sbatch has not started a thread when it initializes its plugins.
    unsafe { std::env::remove_var(OURS) };
    if program() != "sbatch" || std::env::var_os(DEFAULT).is_some() {
        return;
    }
    let (words, script) = submit::submission();
    if !wants(&words, &script, std::env::var("FT_ENERGY").ok().as_deref(), site.default) {
        return;
    }
    // SAFETY: as above.
    unsafe {
        std::env::set_var(DEFAULT, "append");
        std::env::set_var(OURS, "append");
    }
}

/// Whether the words and the script of a submission, or its environment, want protection and name no mode.
fn wants(words: &[String], script: &str, environment: Option<&str>, default: Option<&str>) -> bool {
    let directives = options::size::directives(script);
    if words.iter().chain(&directives).any(|word| word.starts_with("--ope")) {
        return false;
    }
    let request = options::submitted(&words.join(" "), "", script);
    let written = request.settings.get("ft-energy").map(|setting| setting.value.as_str());
    let environment = environment.filter(|value| !value.is_empty());
    written.or(environment).or(default).is_some_and(|value| value != "off")
}

/// Once Slurm has read its variables: none of this is meant for the jobs that this one submits, nor for `srun`.
pub fn forget() {
    if std::env::var_os(OURS).is_some() {
        // SAFETY: as above.
        unsafe {
            std::env::remove_var(DEFAULT);
            std::env::remove_var(PASSED_ON);
        }
    }
}

/// In the batch step, as the job's user: empties the output of a job in its first life.
pub fn begin(handle: &Handle<'_>) {
    let is_ours = handle.getenv(OURS).is_ok();
    let _ = handle.unsetenv(OURS);
    // Slurm 22.05 tells plugins 0 as the number of restarts, whatever it is.
    if !is_ours || handle.getenv("SLURM_RESTART_COUNT").is_ok() {
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
    }
}

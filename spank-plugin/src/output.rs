//! The output of a protected job, which Slurm would empty at every requeue: it is added to instead.
//!
//! In `sbatch` the default of `--open-mode` becomes `append`, before Slurm reads its own variables. In the first life of
//! the batch script the file is emptied, as Slurm would have done; in later lives it is not.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::option_values::is_sbatch;
use crate::site::Site;
use crate::submit::{self, Seen};
use spank::Handle;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

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
    if !is_sbatch() {
        return;
    }
    // Of the job that submits this one.
    // SAFETY: as above.
    unsafe { std::env::remove_var("SLURM_RESTART_COUNT") };
    if std::env::var_os(DEFAULT).is_some() {
        return;
    }
    // Of a script that is not seen here nobody knows what it says.
    let Some(Seen { words, script, .. }) = submit::seen() else { return };
    let environment = std::env::var("FT_ENERGY").ok();
    if !wants(&words, &script, environment.as_deref(), site.default) || site_adds() {
        return;
    }
    // SAFETY: as above.
    unsafe {
        std::env::set_var(OURS, std::env::var_os(PASSED_ON).unwrap_or_default());
        std::env::set_var(DEFAULT, "append");
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

/// Whether all jobs of the site add to their output, or may: then there is nothing to do, and no file to empty.
fn site_adds() -> bool {
    let named = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let paths = named.into_iter().chain(CONFIGURATIONS.map(PathBuf::from));
    let text = paths.filter_map(|path| std::fs::read_to_string(path).ok()).next();
    text.is_none_or(|text| adds(&text))
}

/// Whether a configuration has jobs add to their output; one that leaves that to files which it includes may.
fn adds(configuration: &str) -> bool {
    let value = |line: &str| {
        let (key, value) = line.split('#').next()?.split_once('=')?;
        key.trim().eq_ignore_ascii_case("JobFileAppend").then(|| value.trim().to_owned())
    };
    let includes = |line: &str| line.split_ascii_whitespace().next().is_some_and(|w| w.eq_ignore_ascii_case("include"));
    let named = configuration.lines().filter_map(value).next_back();
    named.map_or_else(|| configuration.lines().any(includes), |value| value != "0")
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

/// Whether the job was started before: Slurm 22.05 tells plugins 0 as the number of restarts, whatever it is.
pub fn is_later_life(handle: &Handle<'_>) -> bool {
    handle.getenv("SLURM_RESTART_COUNT").is_ok()
}

/// In the batch step, as the job's user: empties the output of a job in its first life, but for what Slurm has said of this
/// start. From Slurm 24.11 on it is slurmctld that tells `srun` the mode.
pub fn begin(handle: &Handle<'_>) {
    let Ok(before) = handle.getenv(OURS) else { return };
    let _ = handle.unsetenv(OURS);
    let _ = match before.is_empty() {
        true => handle.unsetenv(PASSED_ON),
        false => handle.setenv(PASSED_ON, &before),
    };
    if is_later_life(handle) {
        return;
    }
    for descriptor in [1, 2] {
        // SAFETY: the descriptor is the task's own, and is not closed here.
        empty(&ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) }), SystemTime::now());
    }
}

/// How long before the script begins slurmstepd may have said something of this start.
const START: Duration = Duration::from_secs(10);

/// How slurmstepd begins its lines.
const SLURMS: &[u8] = b"slurmstepd";

/// In its lines on the end of a job or step.
const ENDS: &[u8] = b" error: *** ";

/// Most that is looked at for lines of slurmstepd, bytes.
const MOST_BYTES: u64 = 64 << 10;

/// Cuts a file off, but for the lines of slurmstepd at its end if it was written to just before `now`. What is no file, or
/// cannot be cut, stays.
fn empty(output: &File, now: SystemTime) {
    let Ok(metadata) = output.metadata() else { return };
    let age = metadata.modified().ok().and_then(|at| now.duration_since(at).ok()).unwrap_or_default();
    let said = if metadata.is_file() && age < START { said(output, metadata.len()) } else { Vec::new() };
    if said.len() as u64 != metadata.len() && output.set_len(0).is_ok() {
        let _ = { output }.write_all(&said);
    }
}

/// The lines of slurmstepd at the end of a file of so many bytes, which is open for writing alone.
fn said(output: &File, bytes: u64) -> Vec<u8> {
    let mut end = Vec::new();
    let from = bytes.saturating_sub(MOST_BYTES);
    let read = File::open(format!("/proc/self/fd/{}", output.as_raw_fd())).and_then(|mut file| {
        file.seek(SeekFrom::Start(from))?;
        file.read_to_end(&mut end)
    });
    if read.is_err() {
        return Vec::new();
    }
    let lines: Vec<&[u8]> = end.split_inclusive(|byte| *byte == b'\n').collect();
    let others = lines.iter().rposition(|line| !line.starts_with(SLURMS)).map_or(0, |at| at + 1);
    // What it says of the end of a job or step is of another job.
    let is_end = |line: &[u8]| line.windows(ENDS.len()).any(|words| words == ENDS);
    lines[others..].iter().copied().filter(|line| !is_end(line)).collect::<Vec<_>>().concat()
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
        assert!(super::adds("ClusterName=c\nInclude jobs.conf\n"), "nobody knows");
        assert!(!super::adds("include jobs.conf\nJobFileAppend=0\n"));
    }

    #[test]
    fn an_output_is_emptied_but_for_what_slurm_says_of_this_start() {
        use super::{START, SystemTime, empty};
        let path = std::env::temp_dir().join(format!("joulepoint-output-{}", std::process::id()));
        let left = |text: &str, later| {
            std::fs::write(&path, text).unwrap();
            empty(&std::fs::OpenOptions::new().append(true).open(&path).unwrap(), SystemTime::now() + later);
            std::fs::read_to_string(&path).unwrap()
        };
        let said = "slurmstepd: error: couldn't chdir to `/gone': No such file or directory\n";
        let now = std::time::Duration::ZERO;
        assert_eq!(left(&format!("results of before\n{said}{said}"), now), format!("{said}{said}"));
        assert_eq!(left(said, now), said);
        assert_eq!(left(&format!("{said}results of before\n"), now), "");
        assert_eq!(left(&format!("slurmstepd-n1: error: *** JOB 7 ON n1 CANCELLED ***\n{said}"), now), said);
        assert_eq!(left(&format!("cancelled\n{said}"), START * 2), "");
        std::fs::remove_file(path).unwrap();
    }
}

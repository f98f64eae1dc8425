//! Where a job is submitted: the whole request is checked, and explained instead of submitted if that was asked.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::site::{self, Site};
use crate::wanted::{EXPLAIN, Said};
use crate::{input, option_values};
use options::Refusal;
use protocol::{Request, Setting, Source};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Carries the request from `sbatch` to the batch step. Its name begins with `SLURM_`, so that it arrives
/// whatever `--export` says.
pub const CARRIER: &str = "SLURM_JOULEPOINT_REQUEST";

/// The option of groups.
pub const GROUPS: &str = "ft-energy-groups";
const SPARE: &str = "ft-energy-spare";

/// How much of a script is looked at for its `#SBATCH` lines, bytes.
const HEAD_BYTES: u64 = 1 << 20;

/// The request, checked; does not return if the plan was asked for and could be printed.
///
/// # Errors
/// Why the job is not to be submitted.
pub fn request() -> Result<Option<Request>, String> {
    let site = site::get();
    let variable = |name: &str| std::env::var_os(name);
    let said = Said { options: option_values::arrived(), variable: &variable, carried: None, site: &site };
    let request = said.request()?;
    if !said.explain() {
        return Ok(request);
    }
    match request {
        Some(request) => Err(explain(&site, &request)),
        None if option_values::arrived().contains_key(EXPLAIN) => {
            Err("--ft-energy-explain: the job is not to be protected, so there is no plan; nothing was submitted"
                .to_owned())
        }
        None => Ok(None),
    }
}

/// Refuses more groups and spares than a job of `sbatch` can have nodes, as far as its words and its script say that.
///
/// # Errors
/// What is wrong.
pub fn enough_nodes(request: &Request) -> Result<(), String> {
    let wished = |name| request.settings.get(name).filter(|setting| is_users(setting));
    let number = |name| wished(name).and_then(|setting| setting.value.parse().ok()).unwrap_or(0);
    let Some((name, setting)) = [GROUPS, SPARE].into_iter().find_map(|name| Some((name, wished(name)?))) else {
        return Ok(());
    };
    let Some(Seen { words, script, .. }) = seen() else { return Ok(()) };
    let (groups, spare) = (number(GROUPS), number(SPARE));
    let short = |nodes| options::size::too_few(groups, spare, nodes);
    let Some(reason) = options::size::most_nodes(&script, &words).and_then(short) else { return Ok(()) };
    let place = match setting.source {
        Source::Environment => options::env_twin(name),
        _ => format!("--{name}"),
    };
    let accepted = format!("fewer, or {} nodes (-N)", options::size::needed_nodes(groups, spare));
    Err(Refusal { place, value: setting.value.clone(), reason, accepted }.to_string())
}

/// The submission; all words where its script is not seen.
pub fn submission() -> Seen {
    seen().unwrap_or_else(|| Seen { words: command_words(), script: String::new(), is_whole: false })
}

fn command_words() -> Vec<String> {
    command_line().iter().skip(1).map(|w| w.to_string_lossy().into_owned()).collect()
}

/// A submission whose script is seen.
#[derive(Clone)]
pub struct Seen {
    /// The words before the script.
    pub words: Vec<String>,
    /// The script's beginning, with all its `#SBATCH` lines; empty for `--wrap`.
    pub script: String,
    /// Whether nothing follows.
    pub is_whole: bool,
}

/// The submission; nothing where its script is not seen.
pub fn seen() -> Option<Seen> {
    // What comes by a pipe is gone once Slurm has read it.
    static SEEN: OnceLock<Option<Seen>> = OnceLock::new();
    SEEN.get_or_init(look).clone()
}

fn look() -> Option<Seen> {
    let mut words = command_words();
    let of_word = |(at, word): (usize, &String)| {
        if word.starts_with("--wrap") {
            return Some((words.len(), (String::new(), true)));
        }
        // The loop over scripts that names each job after its own is `sbatch -J "$f" "$f"`.
        if at > 0 && NAMING.contains(&words[at - 1].as_str()) {
            return None;
        }
        let seen = script(Path::new(word)).or_else(|| script(&found(&words, at, word)?));
        Some((at, seen?))
    };
    let given = || {
        // One that only asks for help reads no script.
        let only_asks = words.iter().any(|w| ["-h", "--help", "--usage", "-V", "--version"].contains(&w.as_str()));
        let (text, is_whole) = if only_asks { None } else { input::beginning(HEAD_BYTES, has_begun) }?;
        Some((words.len(), (is_script(text)?, is_whole)))
    };
    let (at, (script, is_whole)) = words.iter().enumerate().find_map(of_word).or_else(given)?;
    // What stands behind the script is the script's.
    words.truncate(at);
    let is_seen = is_whole || has_begun(script.as_bytes());
    is_seen.then_some(Seen { words, script, is_whole })
}

/// Whether the `#SBATCH` lines of a script are over.
fn has_begun(script: &[u8]) -> bool {
    let lines = script.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    lines.map(<[u8]>::trim_ascii).any(|line| !line.is_empty() && !line.starts_with(b"#"))
}

/// Options of sbatch whose values are names of people's choice, or files.
const NAMING: [&str; 11] =
    ["-J", "--job-name", "-o", "--output", "-e", "--error", "-i", "--input", "--comment", "--wckey", "--export-file"];

/// A file in the `PATH` that a word names, unless the word may be the value of an option before it.
fn found(words: &[String], at: usize, word: &str) -> Option<PathBuf> {
    let is_value = at > 0 && words[at - 1].starts_with('-') && !words[at - 1].contains('=');
    let paths = std::env::var_os("PATH").filter(|_| !is_value && !word.starts_with('-') && !word.contains('/'))?;
    std::env::split_paths(&paths).map(|folder| folder.join(word)).find(|path| path.is_file())
}

/// The beginning of a script, if that is what a path names, and whether it is all; a pipe can be read only once, and Slurm
/// will.
fn script(path: &Path) -> Option<(String, bool)> {
    let length = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?.len();
    let mut text = Vec::new();
    File::open(path).ok()?.take(HEAD_BYTES).read_to_end(&mut text).ok()?;
    Some((is_script(text)?, length <= HEAD_BYTES))
}

fn is_script(text: Vec<u8>) -> Option<String> {
    text.starts_with(b"#!").then(|| String::from_utf8_lossy(&text).into_owned())
}

/// Becomes `joulepoint plan`; returns only with the reason why it could not.
fn explain(site: &Site, request: &Request) -> String {
    let json = match to_json(request) {
        Ok(json) => json,
        Err(reason) => return reason,
    };
    let mut command = Command::new(&site.wrapper);
    command.args(["plan", "--request", &json, "--"]).args(command_line());
    if let Some(conf) = &site.conf {
        command.env("JOULEPOINT_CONF", conf);
    }
    let error = command.exec();
    format!("--ft-energy-explain: cannot run {}: {error}; nothing was submitted", site.wrapper.display())
}

/// What this process was started as: Slurm tells a plugin no size of the job here.
fn command_line() -> Vec<OsString> {
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    words.split(|b| *b == 0).filter(|word| !word.is_empty()).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// Whether the user, and not the site, asked for protection.
pub fn asked_by_user(request: &Request) -> bool {
    request.settings.values().any(is_users)
}

fn is_users(setting: &Setting) -> bool {
    matches!(setting.source, Source::Option | Source::Environment)
}

/// The request as the wrapper reads it.
pub fn to_json(request: &Request) -> Result<String, String> {
    serde_json::to_string(request).map_err(|error| format!("cannot write the request: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_script_is_over_with_its_first_command() {
        for (script, is_over) in
            [("#!/bin/sh\n#SBATCH -N2\n", false), ("#!/bin/sh\n\ntrue", false), ("#!/bin/sh\n\ntrue\n", true)]
        {
            assert_eq!(has_begun(script.as_bytes()), is_over, "{script}");
        }
    }
}

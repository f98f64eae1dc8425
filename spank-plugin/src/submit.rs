//! Where a job is submitted: the whole request is checked, and explained instead of submitted if that was asked.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::option_values;
use crate::site::{self, Site};
use crate::wanted::{EXPLAIN, Said};
use options::Refusal;
use protocol::{Request, Source};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Carries the request from `sbatch` to the batch step. Its name begins with `SLURM_`, so that it arrives
/// whatever `--export` says.
pub const CARRIER: &str = "SLURM_JOULEPOINT_REQUEST";

const GROUPS: &str = "ft-energy-groups";

/// How much of a script is looked at for its `#SBATCH` lines, bytes.
const HEAD_BYTES: u64 = 1 << 20;

/// The request, checked; does not return if the plan was asked for and could be printed.
///
/// # Errors
/// Why the job is not to be submitted.
pub fn request() -> Result<Option<Request>, String> {
    let site = site::get();
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

/// A variable of whoever submits. What a run of groups tells its programs is no wish for the jobs that they submit.
fn variable(name: &str) -> Option<OsString> {
    let is_told = name == options::env_twin(GROUPS) && std::env::var_os("FT_ENERGY_GROUP").is_some();
    std::env::var_os(name).filter(|_| !is_told)
}

/// Refuses more groups than a job of `sbatch` can have nodes, as far as its words and its script say that.
///
/// # Errors
/// What is wrong.
pub fn enough_nodes(request: &Request) -> Result<(), String> {
    let Some(setting) = request.settings.get(GROUPS) else { return Ok(()) };
    let place = match setting.source {
        Source::Option => format!("--{GROUPS}"),
        Source::Environment => options::env_twin(GROUPS),
        Source::Site | Source::Default => return Ok(()),
    };
    let Some((words, text)) = seen() else { return Ok(()) };
    let groups: u32 = setting.value.parse().unwrap_or(0);
    match options::size::most_nodes(&text, &words) {
        Some(nodes) if nodes < groups => {
            let value = setting.value.clone();
            let reason = format!("groups need as many nodes, and the job has {nodes} (-N)");
            let accepted = format!("{nodes} at most, or more nodes");
            Err(Refusal { place, value, reason, accepted }.to_string())
        }
        _ => Ok(()),
    }
}

/// The words of a submission, and its script as far as it is seen here.
pub fn submission() -> (Vec<String>, String) {
    seen().unwrap_or_else(|| (command_words(), String::new()))
}

fn command_words() -> Vec<String> {
    command_line().iter().skip(1).map(|w| w.to_string_lossy().into_owned()).collect()
}

/// The words before the script, and the beginning of that; nothing where the script is not seen.
pub fn seen() -> Option<(Vec<String>, String)> {
    let mut words = command_words();
    // What stands behind the script is the script's, and one that comes by a pipe or from the PATH is not seen here.
    let is_wrapped = words.iter().any(|word| word.starts_with("--wrap"));
    let seen = words.iter().enumerate().find_map(|(at, word)| Some((at, script(word)?)));
    let (at, text) = seen.or(is_wrapped.then(|| (words.len(), String::new())))?;
    words.truncate(at);
    Some((words, text))
}

/// The beginning of a script, if that is what a word names; a pipe can be read only once, and Slurm will.
fn script(word: &str) -> Option<String> {
    let file = std::fs::metadata(word).ok().filter(std::fs::Metadata::is_file).and_then(|_| File::open(word).ok())?;
    let mut text = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut text).ok()?;
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
    request.settings.values().any(|setting| matches!(setting.source, Source::Option | Source::Environment))
}

/// The request as the wrapper reads it.
pub fn to_json(request: &Request) -> Result<String, String> {
    serde_json::to_string(request).map_err(|error| format!("cannot write the request: {error}"))
}

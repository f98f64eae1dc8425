//! What is known at submit of a job's protection, for the one line that its user is told.
// SPDX-License-Identifier: GPL-2.0-or-later

use options::{Job, Settings};
use protocol::Capabilities;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most bytes that are read of what the nodes have.
const CAPABILITIES_BYTES: u64 = 64 << 10;

/// One line on what is to protect the job, and where its user will see whether it does.
pub fn line(settings: &Settings, job: &Job<'_>, nodes: Option<&Capabilities>) -> String {
    let has_command = std::env::var_os(options::CHECKPOINT_COMMAND).is_some_and(|command| !command.is_empty());
    let by = options::prospect(settings, job, has_command, nodes);
    format!("{by}; the job's output and 'joulepoint status' say whether it is")
}

/// What the nodes have, as a service of this host wrote it down; nothing where none did, or long ago.
pub fn capabilities(file: &Path) -> Option<Capabilities> {
    let mut text = Vec::new();
    File::open(file).and_then(|file| file.take(CAPABILITIES_BYTES).read_to_end(&mut text)).ok()?;
    let read: Capabilities = serde_json::from_slice(&text).ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(read).filter(|read| read.hold_at(now.as_secs_f64()))
}

/// The commands that a job runs, as far as they are seen: those of its script, or of `--wrap`.
pub fn commands(words: &[String], script: &str) -> String {
    let wrapped = words.iter().find_map(|word| word.strip_prefix("--wrap="));
    wrapped.map_or_else(|| script.to_owned(), str::to_owned)
}

/// Variables that say something to programs and commands, and are no twins of options.
const OTHERS: [&str; 12] = [
    options::CHECKPOINT_COMMAND,
    "FT_ENERGY_RESTART_COMMAND",
    "FT_ENERGY_CHECKPOINT_DIR",
    "FT_ENERGY_DONE_FD",
    "FT_ENERGY_GROUP",
    "FT_ENERGY_GROUPS",
    "FT_ENERGY_INTERVAL_MIN",
    "FT_ENERGY_INTERVAL_S",
    "FT_ENERGY_RELAY",
    "FT_ENERGY_RELAY_WAIT",
    "FT_ENERGY_RESTART",
    "FT_ENERGY_RESTART_DIR",
];

/// A line for each variable that looks like ours and says nothing.
pub fn unknown_twins(variables: impl Iterator<Item = (OsString, OsString)>) -> Vec<String> {
    let twins: Vec<String> = options::OPTIONS.iter().map(|spec| options::env_twin(spec.name)).collect();
    let known = || twins.iter().map(String::as_str).chain(OTHERS);
    let names = variables.filter_map(|(name, _)| name.into_string().ok());
    let ours = names.filter(|name| name.starts_with("FT_ENERGY"));
    let unknown = ours.filter(|name| !known().any(|known| known == name));
    unknown
        .map(|name| {
            let near =
                options::nearest(&name, known()).map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            format!("the variable {name} is not known and has no effect{near}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_nodes_have_is_read_while_it_is_good() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("capabilities.json");
        assert_eq!(capabilities(&file), None);
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        for (at_s, nodes, is_good) in
            [(now_s, 8, true), (now_s - 7200.0, 8, false), (now_s + 7200.0, 8, false), (now_s, 0, false)]
        {
            let text = format!("{{\"at_s\":{at_s},\"nodes\":{nodes},\"engines\":{{\"criu\":6}},\"later\":1}}");
            std::fs::write(&file, text).unwrap();
            assert_eq!(capabilities(&file).map(|c| c.having("criu")), is_good.then_some(6), "{at_s} {nodes}");
        }
        std::fs::write(&file, "{\"at_s\":").unwrap();
        assert_eq!(capabilities(&file), None);
    }

    #[test]
    fn a_variable_that_is_written_wrong_is_named_with_its_neighbour() {
        let variables = ["FT_ENERGY_INTERVALL", "FT_ENERGY_KEEP", "FT_ENERGY_RESTART_DIR", "PATH"];
        let told = unknown_twins(variables.map(|name| (name.into(), "5".into())).into_iter());
        assert_eq!(
            told,
            ["the variable FT_ENERGY_INTERVALL is not known and has no effect; did you mean FT_ENERGY_INTERVAL?"]
        );
    }
}

//! What is known at submit of a job's protection, for the one line that its user is told.
// SPDX-License-Identifier: GPL-2.0-or-later

use options::{Engine, Settings};
use std::ffi::OsString;

/// How a program that starts its tasks by `srun` or `mpirun` shows in a script.
const LAUNCHERS: [&str; 6] = ["srun", "mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"];

/// One line on what protects the job, and what its first checkpoint will show.
pub fn line(settings: &Settings, script: &str) -> String {
    let patterns = || settings.done.iter().map(|p| format!("'{p}'")).collect::<Vec<_>>().join(", ");
    let by = match settings.engine {
        None if !settings.done.is_empty() => format!("the program's own checkpoints ({})", patterns()),
        None if settings.signal.is_some() => "the checkpoints that the program writes on a signal".to_owned(),
        Some(Engine::App) if settings.done.is_empty() => "the checkpoints that the program announces".to_owned(),
        Some(Engine::App) => format!("the program's own checkpoints ({})", patterns()),
        Some(engine) => format!("engine {}, if the nodes have it", engine.as_str()),
        None if launches(script) => {
            "what its nodes have for programs with several tasks; MPI under srun needs --ft-energy-done or an engine"
                .to_owned()
        }
        None => "memory images (CRIU or DMTCP), if the nodes have them".to_owned(),
    };
    format!("to be protected by {by}; the job's output and 'joulepoint status' say whether it is")
}

/// The commands that a job runs, as far as they are seen: those of its script, or of `--wrap`.
pub fn commands(words: &[String], script: &str) -> String {
    let wrapped = words.iter().find_map(|word| word.strip_prefix("--wrap="));
    wrapped.map_or_else(|| script.to_owned(), str::to_owned)
}

/// What keeps a job from coming back, by its own words.
///
/// The command line wins over the environment, and that over the script.
pub fn stays_away(words: &[String], by_environment: bool, script: &str) -> bool {
    let told = |words: &[String]| {
        let last = words.iter().rev().find(|word| ["--requeue", "--no-requeue"].contains(&word.as_str()));
        last.map(|word| word == "--no-requeue")
    };
    let by_script = || told(&options::size::directives(script)).unwrap_or(false);
    told(words).unwrap_or_else(|| by_environment || by_script())
}

/// Variables that say something to programs and commands, and are no twins of options.
const OTHERS: [&str; 12] = [
    "FT_ENERGY_CHECKPOINT_COMMAND",
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

fn launches(script: &str) -> bool {
    let code = script.lines().filter(|line| !line.trim_start().starts_with('#'));
    let mut words = code.flat_map(str::split_whitespace).filter_map(|word| word.rsplit('/').next());
    words.any(|word| LAUNCHERS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Request, Setting, Source};
    use std::collections::BTreeMap;

    #[test]
    fn a_user_is_told_at_submit_what_is_known_then() {
        let told = |pairs: &[(&str, &str)], script: &str| {
            let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
            let settings = pairs.iter().chain(&[("ft-energy", "")]).map(|(n, v)| (n.to_string(), setting(v))).collect();
            line(&options::resolve(&Request { settings }, &BTreeMap::new()).unwrap(), script)
        };
        assert!(told(&[("ft-energy-done", "a.cpt,b.cpt")], "").contains("('a.cpt', 'b.cpt')"));
        assert!(told(&[("ft-energy-signal", "USR1")], "").contains("on a signal"));
        assert!(told(&[("ft-energy-engine", "criu")], "").contains("engine criu, if the nodes have it"));
        assert!(told(&[], "#!/bin/sh\n# no srun\npython3 a.py\n").contains("CRIU"));
        assert!(told(&[], "#!/bin/sh\n/usr/bin/mpirun a\n").contains("MPI under srun"));
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

    #[test]
    fn a_job_that_does_not_come_back_is_seen() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(stays_away(&words("--no-requeue -N2"), false, ""));
        assert!(stays_away(&[], false, "#!/bin/sh\n#SBATCH --no-requeue\n"));
        assert!(stays_away(&[], true, ""));
        assert!(!stays_away(&words("--requeue"), true, "#!/bin/sh\n#SBATCH --no-requeue\n"));
        assert!(!stays_away(&[], false, "#!/bin/sh\n"));
    }
}

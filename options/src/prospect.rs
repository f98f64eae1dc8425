//! What is to protect a job, as far as it is known where the job is submitted.

use crate::{Engine, Settings};
use protocol::Capabilities;

/// The variable in which a user says by which command a checkpoint is made.
pub const CHECKPOINT_COMMAND: &str = "FT_ENERGY_CHECKPOINT_COMMAND";

/// How a program that starts its tasks by `srun` or `mpirun` shows in a script.
const LAUNCHERS: [&str; 6] = ["srun", "mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"];

/// Engines that take images of processes: the site has to install them.
const IMAGES: [Engine; 2] = [Engine::Criu, Engine::Dmtcp];

/// Whose word it is that a job will not be protected.
const TOLD: &str = "the nodes tell";
const SEEN: &str = "is seen here";

/// A job, as far as it is seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job<'a> {
    /// The commands that it runs.
    pub commands: &'a str,
    /// Its nodes; the fewest of a range.
    pub nodes: Option<u32>,
}

/// What is to protect a job, or that nothing is likely to, in a sentence.
///
/// `has_command`: whether its user names a checkpoint command. `nodes`: what the nodes of the cluster have, if that is known.
pub fn prospect(settings: &Settings, job: &Job<'_>, has_command: bool, nodes: Option<&Capabilities>) -> String {
    let commands = job.commands;
    // A run of groups starts a part on each node by itself.
    let spread = job.nodes.filter(|nodes| *nodes > 1 && settings.groups <= 1);
    let beyond = spread.filter(|_| !commands.is_empty() && !launches(commands));
    let images = |engines: &[Engine]| match beyond {
        Some(all) => {
            let why = format!("the job has {all} nodes, an image is of one, and its script itself starts no srun");
            Err((SEEN, why))
        }
        None => installed(engines, nodes).map_err(|none| (TOLD, none)),
    };
    let patterns = || settings.done.iter().map(|p| format!("'{p}'")).collect::<Vec<_>>().join(", ");
    let by = match settings.engine {
        None if !settings.done.is_empty() => format!("the program's own checkpoints ({})", patterns()),
        None if settings.signal.is_some() => "the checkpoints that the program writes on a signal".to_string(),
        Some(Engine::App) if settings.done.is_empty() => "the checkpoints that the program announces".to_string(),
        Some(Engine::App) => format!("the program's own checkpoints ({})", patterns()),
        Some(engine @ (Engine::Criu | Engine::Dmtcp)) => match images(&[engine]) {
            Ok(on) => format!("engine {}{on}", engine.as_str()),
            Err((known, none)) => return unlikely(settings, known, &none),
        },
        Some(Engine::Scr) => "engine scr, if the program uses SCR".to_string(),
        Some(Engine::Veloc) => "engine veloc, if the program uses VELOC".to_string(),
        Some(Engine::Hook) => "the checkpoint command".to_string(),
        None if has_command => "the checkpoint command".to_string(),
        None if nodes.is_some_and(|nodes| nodes.site_wide) => "what the site has set up for all jobs".to_string(),
        // A program that is linked to SCR is seen where it runs.
        None if nodes.is_some_and(|nodes| nodes.having("scr") > 0) => {
            "memory images (CRIU or DMTCP) or SCR".to_string()
        }
        None => match images(&IMAGES) {
            Ok(on) if launches(commands) => {
                format!("images of its tasks (CRIU{on}); MPI under srun: if the program is linked to Open MPI or MPICH")
            }
            Ok(on) => format!("memory images (CRIU or DMTCP{on})"),
            Err((known, none)) => return unlikely(settings, known, &none),
        },
    };
    format!("to be protected by {by}")
}

/// Where some of these engines are installed, to be put behind their names.
///
/// # Errors
/// That no node has any.
fn installed(engines: &[Engine], nodes: Option<&Capabilities>) -> Result<String, String> {
    let Some(nodes) = nodes else { return Ok(", if the nodes have it".to_string()) };
    let most = engines.iter().map(|engine| nodes.having(engine.as_str())).max().unwrap_or(0);
    match (most, nodes.nodes) {
        (0, all) => {
            let names: Vec<&str> = engines.iter().map(|engine| engine.as_str()).collect();
            let of =
                if all == 1 { "the node does not have".to_string() } else { format!("none of the {all} nodes has") };
            Err(format!("{of} {}", names.join(" or ")))
        }
        (some, all) if some < all => Ok(format!(", on {some} of {all} nodes")),
        _ => Ok(String::new()),
    }
}

fn unlikely(settings: &Settings, known: &str, none: &str) -> String {
    let then = match settings.is_required() {
        true => "the job will end before it begins",
        false => "a failure will cost all work",
    };
    format!(
        "NOT PROTECTED, as far as {known}: {none}; {then}; if the program writes checkpoints, name their files: --ft-energy-done=FILES"
    )
}

fn launches(commands: &str) -> bool {
    let code = commands.lines().filter(|line| !line.trim_start().starts_with('#'));
    let parts = |line| str::split(line, |c: char| c.is_whitespace() || "'\",;()[]`$".contains(c));
    let mut words = code.flat_map(parts).filter_map(|word| word.rsplit('/').next());
    words.any(|word| LAUNCHERS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::{Request, Setting, Source};
    use std::collections::BTreeMap;

    fn told(pairs: &[(&str, &str)], commands: &str, nodes: Option<&Capabilities>) -> String {
        told_of(pairs, &Job { commands, nodes: None }, nodes)
    }

    fn told_of(pairs: &[(&str, &str)], job: &Job<'_>, nodes: Option<&Capabilities>) -> String {
        let setting = |v: &str| Setting { value: v.to_string(), source: Source::Option };
        let settings = pairs.iter().chain(&[("ft-energy", "")]).map(|(n, v)| (n.to_string(), setting(v))).collect();
        prospect(&crate::resolve(&Request { settings }, &BTreeMap::new()).unwrap(), job, false, nodes)
    }

    #[test]
    fn an_image_of_a_script_without_steps_protects_one_node() {
        let of = |pairs: &[(&str, &str)], commands, nodes| told_of(pairs, &Job { commands, nodes: Some(nodes) }, None);
        let two = of(&[], "./a", 2);
        assert!(two.starts_with("NOT PROTECTED, as far as is seen here: the job has 2 nodes"), "{two}");
        assert!(of(&[("ft-energy-require", "")], "./a", 2).contains("will end before it begins"));
        assert!(of(&[("ft-energy-engine", "criu")], "./a", 2).starts_with("NOT PROTECTED"));
        for (pairs, commands, nodes) in [
            (&[][..], "./a", 1),
            (&[], "srun ./a", 2),
            (&[], "", 2),
            (&[("ft-energy-done", "a.cpt")], "./a", 2),
            (&[("ft-energy-protocol", "uncoordinated"), ("ft-energy-groups", "2")], "./a", 2),
        ] {
            assert!(of(pairs, commands, nodes).starts_with("to be protected"), "{commands} {nodes}");
        }
    }

    #[test]
    fn a_user_is_told_at_submit_what_is_known_then() {
        assert!(told(&[("ft-energy-done", "a.cpt,b.cpt")], "", None).contains("('a.cpt', 'b.cpt')"));
        assert!(told(&[("ft-energy-signal", "USR1")], "", None).contains("on a signal"));
        assert!(told(&[("ft-energy-engine", "criu")], "", None).contains("engine criu, if the nodes have it"));
        assert!(told(&[("ft-energy-engine", "scr")], "", None).contains("engine scr, if the program uses SCR"));
        assert!(told(&[], "#!/bin/sh\n# no srun\npython3 a.py\n", None).contains("CRIU or DMTCP"));
        assert!(told(&[], "#!/bin/sh\n/usr/bin/mpirun a\n", None).contains("MPI under srun: if"));
    }

    #[test]
    fn where_no_node_has_an_engine_the_user_hears_it_before_the_job_is_submitted() {
        let engines = |criu: usize| [("criu".to_string(), criu)].into();
        let nodes = |criu: usize| Capabilities { nodes: 8, engines: engines(criu), at_s: 0.0, site_wide: false };
        let site = Capabilities { site_wide: true, ..nodes(0) };
        assert!(told(&[], "./a", Some(&site)).contains("what the site has set up"));
        assert!(told(&[], "./a", Some(&nodes(8))).ends_with("memory images (CRIU or DMTCP)"));
        assert!(told(&[], "./a", Some(&nodes(5))).contains("on 5 of 8 nodes"));
        let none = told(&[], "./a", Some(&nodes(0)));
        assert!(none.contains("none of the 8 nodes has criu or dmtcp") && none.contains("--ft-energy-done"), "{none}");
        let named = told(&[("ft-energy-engine", "criu")], "./a", Some(&nodes(0)));
        assert!(named.contains("none of the 8 nodes has criu; the job will end before it begins"), "{named}");
        assert!(told(&[("ft-energy-require", "")], "./a", Some(&nodes(0))).contains("will end before"));
        assert!(told(&[("ft-energy-done", "x")], "./a", Some(&nodes(0))).contains("to be protected by"));
    }
}

//! Which engine a run gets, and why: what the user told, what is linked, what the site allows, what runs showed.

use crate::{dmtcp, veloc};
use host::tool;
use host::unsuited::Unsuited;
use options::size::PARTS;
use options::{Engine, Settings};
use std::collections::BTreeSet;
use std::fs;

/// What is known of a run beside its settings.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether checkpoint commands are configured.
    pub hook: bool,
    /// Nodes of the allocation.
    pub nodes: usize,
    /// Libraries that the script's programs name.
    pub libraries: BTreeSet<String>,
    /// Whether it is a component of a heterogeneous job.
    pub is_part: bool,
    /// Whether its groups send each other messages.
    pub talks: bool,
    /// Whether the script starts MPI programs, linked to it before the script begins or not.
    pub starts_mpi: bool,
    /// Why sandboxes cannot hold ranks of the MPI that the programs are linked to, if so.
    pub no_world: Option<String>,
    /// A fast network of this node, which messages through relays would not use.
    pub fabric: Option<String>,
    /// Version of this node's driver for NVIDIA's GPUs, if it does not save what programs have on them.
    pub old_driver: Option<u32>,
    /// Whether the script starts steps: by `srun`, or over several nodes by a launcher of MPI.
    pub starts_steps: bool,
    /// What the script uses that a sandbox would break, if all of it is put into one.
    pub unsuited: Unsuited,
    /// Why CRIU cannot be used, as its probe found.
    pub no_criu: Option<String>,
    /// Why DMTCP cannot be used.
    pub no_dmtcp: Option<String>,
    /// Why it is not known where VELOC keeps the program's checkpoints.
    pub no_veloc: Option<String>,
    /// The engine by which the run's own checkpoints were made, if there are any: no other can go on from them.
    pub made_by: Option<Engine>,
    /// Engine of the newest run of this user and job name that made a checkpoint; `auto` if there was none.
    pub proven: String,
}

impl Facts {
    fn links(&self, library: &str) -> bool {
        self.libraries.iter().any(|l| l.starts_with(&format!("{library}.so")))
    }

    fn links_mpi(&self) -> bool {
        self.links("libmpi") || self.links("libmpich")
    }
}

/// Why DMTCP cannot be used here.
pub fn no_dmtcp() -> Option<String> {
    missing(&dmtcp::COMMANDS)
}

fn missing(commands: &[&str]) -> Option<String> {
    commands.iter().find(|c| tool::find(c).is_none()).map(|c| format!("{c} is not in the PATH"))
}

/// Whether it must be known if CRIU works.
pub fn may_be_criu(settings: &Settings, facts: &Facts) -> bool {
    if facts.is_part {
        return false;
    }
    let open = || settings.done.is_empty() && settings.signal.is_none() && !facts.hook;
    match asked(settings, facts).or(facts.made_by) {
        Some(engine) => engine == Engine::Criu,
        None => open() && no_criu_images(facts).is_none(),
    }
}

/// Whether it must be known where VELOC keeps checkpoints.
pub fn may_be_veloc(settings: &Settings, facts: &Facts) -> bool {
    let named = asked(settings, facts).or(facts.made_by);
    named.map_or_else(|| facts.links(veloc::LIBRARY), |engine| engine == Engine::Veloc)
}

/// The engine that is asked for: by the user, or by the site for a run that has no checkpoints of another.
fn asked(settings: &Settings, facts: &Facts) -> Option<Engine> {
    settings.engine.filter(|_| settings.is_by_user("ft-energy-engine") || facts.made_by.is_none())
}

/// The engine of a run, and why; none if no checkpoint can be made.
pub fn choose(settings: &Settings, facts: &Facts) -> (Option<Engine>, String) {
    match (asked(settings, facts), facts.made_by) {
        _ if facts.is_part => (None, PARTS.to_string()),
        (Some(engine), _) => match hindrance(engine, facts) {
            None => (Some(engine), "asked for".to_string()),
            Some(why) => (None, format!("{} was asked for, but {why}", engine.as_str())),
        },
        (None, Some(engine)) => match hindrance(engine, facts) {
            None => (Some(engine), "it made the checkpoints of this run".to_string()),
            Some(why) => (None, format!("{} made the checkpoints of this run, but {why}", engine.as_str())),
        },
        (None, None) => automatic(settings, facts),
    }
}

/// Why an engine cannot work for this run.
fn hindrance(engine: Engine, facts: &Facts) -> Option<String> {
    match engine {
        Engine::App | Engine::Scr => None,
        Engine::Veloc => facts.no_veloc.clone(),
        Engine::Hook => (!facts.hook).then(|| "no checkpoint command is configured".to_string()),
        Engine::Criu => facts.no_criu.clone().or_else(|| containers(facts)).or_else(|| no_sandbox(facts)),
        Engine::Dmtcp => facts.no_dmtcp.clone().or_else(|| containers(facts)).or_else(|| several_nodes(facts)),
    }
}

fn several_nodes(facts: &Facts) -> Option<String> {
    (facts.nodes > 1).then(|| format!("the job has {} nodes and it works within one", facts.nodes))
}

/// What keeps CRIU's sandboxes from holding the program: they hold a whole script on one node, or tasks of steps.
fn no_sandbox(facts: &Facts) -> Option<String> {
    match facts.starts_steps {
        // The ranks of an MPI program let their relays go for a dump.
        true if facts.links_mpi() => facts.no_world.clone(),
        _ if facts.talks => Some("its groups are connected to their relays, which no sandbox holds".to_string()),
        true => None,
        false if facts.nodes > 1 && facts.links_mpi() => Some(
            "its script starts an MPI program over several nodes neither by srun nor by mpirun, called by its name"
                .to_string(),
        ),
        false => several_nodes(facts),
    }
}

/// Why no engine can take images of a script that starts containers. A run that has such images shows that one can.
fn containers(facts: &Facts) -> Option<String> {
    facts.unsuited.containers.clone().filter(|_| facts.made_by.is_none())
}

/// What keeps an engine from taking images of the processes; one of them has NVIDIA's GPUs saved.
fn no_images(facts: &Facts, saves_gpus: bool) -> Option<String> {
    let device = [("libcuda", "a GPU"), ("libamdhip64", "a GPU"), ("libibverbs", "an RDMA device")];
    let device = device.into_iter().skip(usize::from(saves_gpus));
    // Many programs are linked to libibverbs that have no device to use it with.
    let is_here = |library: &str| library != "libibverbs" || facts.fabric.is_some();
    let held = device.into_iter().find(|(library, _)| facts.links(library) && is_here(library));
    let device = held.map(|(library, what)| format!("the program links to {library}, and {what} cannot be dumped"));
    device.or_else(|| containers(facts))
}

fn no_criu_images(facts: &Facts) -> Option<String> {
    no_images(facts, true)
        .or_else(|| old_driver(facts))
        .or_else(|| facts.unsuited.fails.clone())
        .or_else(|| no_sandbox(facts))
        .or_else(|| slow_world(facts))
}

fn old_driver(facts: &Facts) -> Option<String> {
    let version = facts.old_driver.filter(|_| facts.links("libcuda"))?;
    let first = gpu::driver::FIRST_DRIVER;
    Some(format!("the program links to libcuda, and NVIDIA's driver here is {version}: it saves GPUs from {first} on"))
}

/// The version of this node's driver for NVIDIA's GPUs, if it saves none.
pub fn old_driver_here() -> Option<u32> {
    gpu::driver::version("/proc".as_ref()).filter(|version| *version < gpu::driver::FIRST_DRIVER)
}

/// Why an MPI program over several nodes would be slow in sandboxes: who wants that says so.
fn slow_world(facts: &Facts) -> Option<String> {
    let device = facts.fabric.as_ref().filter(|_| facts.nodes > 1 && facts.starts_steps && facts.links_mpi())?;
    Some(format!(
        "the program's MPI would leave the fast network ({device}) for TCP; --ft-energy-engine=criu takes it all the same"
    ))
}

/// A device of a fast network on this node.
pub fn fabric() -> Option<String> {
    let devices = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    devices.map(|device| device.file_name().to_string_lossy().into_owned()).min()
}

fn no_dmtcp_images(facts: &Facts) -> Option<String> {
    no_images(facts, false)
        .or_else(|| several_nodes(facts))
        .or_else(|| facts.starts_steps.then(|| "the script starts steps with srun, which run outside it".to_string()))
        .or_else(|| facts.starts_mpi.then(|| "MPI programs crash under it in a job".to_string()))
}

fn automatic(settings: &Settings, facts: &Facts) -> (Option<Engine>, String) {
    if !settings.done.is_empty() || settings.signal.is_some() {
        return (Some(Engine::App), "the job says how its program checkpoints".to_string());
    }
    if facts.hook {
        return (Some(Engine::Hook), "checkpoint commands are configured".to_string());
    }
    let for_scr = [
        facts.links("libscr").then_some("the program links to libscr"),
        (facts.proven == "scr").then_some("SCR made the checkpoints of an earlier run of this name"),
    ];
    if let Some(why) = for_scr.into_iter().flatten().next() {
        return (Some(Engine::Scr), why.to_string());
    }
    let mut against = Vec::new();
    match &facts.no_veloc {
        _ if !facts.links(veloc::LIBRARY) => {}
        None => return (Some(Engine::Veloc), format!("the program links to {}", veloc::LIBRARY)),
        Some(why) => against.push(format!("veloc: {why}")),
    }
    let images = [
        (Engine::Criu, &facts.no_criu, no_criu_images(facts)),
        (Engine::Dmtcp, &facts.no_dmtcp, no_dmtcp_images(facts)),
    ];
    let mut open: Vec<Engine> = Vec::new();
    for (engine, absent, images) in images {
        match absent.clone().or(images) {
            None => open.push(engine),
            Some(why) => against.push(format!("{}: {why}", engine.as_str())),
        }
    }
    let proven = open.iter().find(|e| e.as_str() == facts.proven);
    match (proven, open.first()) {
        (Some(engine), _) => (Some(*engine), "it made the checkpoints of an earlier run of this name".to_string()),
        (None, Some(engine)) => (Some(*engine), "nothing else checkpoints the program, and it can".to_string()),
        (None, None) => {
            (None, format!("nothing says how the program checkpoints, and nothing can for it ({})", against.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Options, facts, the engine that follows, and a word of the reason.
    type Case<'a> = (&'a [(&'a str, &'a str)], Facts, Option<Engine>, &'a str);

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let setting = |v: &str| protocol::Setting { value: v.to_string(), source: protocol::Source::Option };
        let settings = pairs.iter().chain(&[("ft-energy", "")]).map(|(n, v)| (n.to_string(), setting(v))).collect();
        options::resolve(&protocol::Request { settings }, &BTreeMap::new()).unwrap()
    }

    fn no(what: &str) -> Option<String> {
        Some(format!("{what} is absent"))
    }

    fn facts(libraries: &[&str]) -> Facts {
        let libraries = libraries.iter().map(|l| l.to_string()).collect();
        Facts {
            nodes: 1,
            libraries,
            no_criu: no("CRIU"),
            no_dmtcp: no("DMTCP"),
            proven: "auto".into(),
            ..Facts::default()
        }
    }

    #[test]
    fn what_is_known_decides_and_every_choice_has_its_reason() {
        let none = &[][..];
        let scr = facts(&["libscr.so.3", "libmpi.so.40"]);
        let dmtcp = |libraries: &[&str], nodes| Facts { no_dmtcp: None, nodes, ..facts(libraries) };
        let criu = Facts { no_criu: None, ..dmtcp(&[], 1) };
        let steps = |libraries: &[&str]| Facts { starts_steps: true, no_criu: None, nodes: 3, ..facts(libraries) };
        let unsuited = |containers: bool, fails: bool| Facts {
            unsuited: Unsuited {
                containers: containers.then(|| "podman starts containers".to_string()),
                fails: fails.then(|| "sudo fails".to_string()),
                ..Unsuited::default()
            },
            ..criu.clone()
        };
        let by_criu = [("ft-energy-engine", "criu")];
        let fast = Facts { fabric: Some("mlx5_0".into()), ..steps(&["libmpi.so.40"]) };
        let verbs = Facts { no_criu: None, ..facts(&["libibverbs.so.1"]) };
        let part = Facts { is_part: true, ..criu.clone() };
        let cases: [Case; 39] = [
            (none, Facts { fabric: Some("mlx5_0".into()), ..verbs.clone() }, None, "an RDMA device"),
            (none, verbs, Some(Engine::Criu), "nothing else"),
            (none, part.clone(), None, "heterogeneous"),
            (&by_criu, part.clone(), None, "heterogeneous"),
            (&[("ft-energy-done", "*.cpt")], part, None, "heterogeneous"),
            (none, unsuited(true, false), None, "podman starts containers"),
            (&by_criu, unsuited(true, false), None, "asked for, but podman starts"),
            (none, Facts { made_by: Some(Engine::Criu), ..unsuited(true, true) }, Some(Engine::Criu), "of this run"),
            (none, Facts { no_dmtcp: no("DMTCP"), ..unsuited(false, true) }, None, "criu: sudo fails"),
            (&by_criu, unsuited(false, true), Some(Engine::Criu), "asked for"),
            (
                none,
                Facts { proven: "criu".into(), no_dmtcp: no("DMTCP"), ..unsuited(false, true) },
                None,
                "criu: sudo fails",
            ),
            (&[("ft-energy-done", "*.cpt")], dmtcp(&[], 1), Some(Engine::App), "says how"),
            (none, Facts { hook: true, ..facts(&[]) }, Some(Engine::Hook), "commands"),
            (none, scr, Some(Engine::Scr), "libscr"),
            (none, dmtcp(&["libc.so.6"], 1), Some(Engine::Dmtcp), "nothing else"),
            (none, criu.clone(), Some(Engine::Criu), "nothing else"),
            (none, Facts { starts_steps: true, no_criu: Some("CRIU is absent".into()), ..criu.clone() }, None, "srun"),
            (none, steps(&[]), Some(Engine::Criu), "nothing else"),
            (none, steps(&["libmpi.so.40"]), Some(Engine::Criu), "nothing else"),
            (none, Facts { no_world: no("our library"), ..steps(&["libmpi.so.40"]) }, None, "our library is absent"),
            (none, fast.clone(), None, "leave the fast network (mlx5_0)"),
            (&by_criu, fast, Some(Engine::Criu), "asked for"),
            (none, Facts { talks: true, ..steps(&[]) }, None, "connected to their relays"),
            (&[("ft-energy-engine", "criu")], Facts { talks: true, ..steps(&[]) }, None, "connected to their relays"),
            (&[("ft-energy-engine", "criu")], Facts { starts_steps: false, ..steps(&[]) }, None, "has 3 nodes"),
            (none, Facts { starts_steps: false, ..steps(&["libmpi.so.40"]) }, None, "neither by srun nor by mpirun"),
            (none, dmtcp(&[], 4), None, "4 nodes"),
            (none, Facts { starts_mpi: true, ..dmtcp(&[], 1) }, None, "MPI programs crash"),
            (none, Facts { no_criu: None, proven: "dmtcp".into(), ..dmtcp(&[], 1) }, Some(Engine::Dmtcp), "earlier"),
            (none, Facts { proven: "dmtcp".into(), ..dmtcp(&[], 1) }, Some(Engine::Dmtcp), "earlier run"),
            (none, Facts { proven: "scr".into(), ..facts(&[]) }, Some(Engine::Scr), "earlier run"),
            (none, Facts { proven: "dmtcp".into(), ..facts(&[]) }, None, "DMTCP is absent"),
            (none, dmtcp(&["libcuda.so.1"], 1), None, "GPU"),
            (
                none,
                Facts { libraries: dmtcp(&["libcuda.so.1"], 1).libraries, ..criu.clone() },
                Some(Engine::Criu),
                "nothing else",
            ),
            (
                none,
                Facts { old_driver: Some(550), libraries: dmtcp(&["libcuda.so.1"], 1).libraries, ..criu.clone() },
                None,
                "driver here is 550",
            ),
            (
                none,
                Facts { hook: true, made_by: Some(Engine::Criu), ..criu.clone() },
                Some(Engine::Criu),
                "of this run",
            ),
            (none, Facts { made_by: Some(Engine::Criu), ..dmtcp(&[], 1) }, None, "of this run, but CRIU is absent"),
            (&[("ft-energy-engine", "dmtcp")], facts(&[]), None, "asked for, but DMTCP is absent"),
            (&[("ft-energy-engine", "scr")], facts(&[]), Some(Engine::Scr), "asked for"),
        ];
        for (options, facts, engine, why) in cases {
            let (chosen, reason) = choose(&settings(options), &facts);
            assert_eq!(chosen, engine, "{options:?}: {reason}");
            assert!(reason.contains(why), "{options:?}: {reason}");
        }
    }
}

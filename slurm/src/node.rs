//! Asks for nodes, and reads `scontrol show node -o`, where only operators write texts.

use crate::fields::{Fields, is_none};
use crate::{Error, Slurm};
use std::collections::BTreeSet;

/// The keys that `scontrol show node -o` prints from 22.05 to 26.05.
const KEYS: &[&str] = &[
    "NodeName",
    "Arch",
    "CoresPerSocket",
    "CPUAlloc",
    "CPUEfctv",
    "CPUTot",
    "CPULoad",
    "AvailableFeatures",
    "ActiveFeatures",
    "Gres",
    "GresDrain",
    "GresUsed",
    "NodeAddr",
    "NodeHostName",
    "Port",
    "Version",
    "BcastAddr",
    "OS",
    "RealMemory",
    "AllocMem",
    "FreeMem",
    "Sockets",
    "Boards",
    "CoreSpecCount",
    "CPUSpecList",
    "MemSpecLimit",
    "State",
    "ThreadsPerCore",
    "TmpDisk",
    "Weight",
    "Owner",
    "MCS_label",
    "NextState",
    "Partitions",
    "BootTime",
    "SlurmdStartTime",
    "LastBusyTime",
    "ResumeAfterTime",
    "SuspendTime",
    "CfgTRES",
    "AllocTRES",
    "CapWatts",
    "CurrentWatts",
    "AveWatts",
    "LowestJoules",
    "ConsumedJoules",
    "ExtSensorsJoules",
    "ExtSensorsWatts",
    "ExtSensorsTemp",
    "Reason",
    "Comment",
    "Extra",
    "InstanceId",
    "InstanceType",
    "ReservationName",
    "Topology",
    "TopologyStr",
    "CertFlags",
    "ResvCores",
    "CpuBind",
    "DynamicNode",
    "GpuSpec",
    "Parameters",
];

/// Flags of nodes that are away as it was planned, of the series from 22.05 to 26.05.
const AWAY: &[&str] = &[
    "MAINT",
    "MAINTENANCE",
    "POWERED_DOWN",
    "POWERING_DOWN",
    "POWERING_UP",
    "REBOOT",
    "REBOOT_ISSUED",
    "REBOOT_REQUESTED",
];

/// Most nodes that are named in one question.
const MOST_NAMED: usize = 1000;

/// The usual port of slurmd.
const SLURMD_PORT: u16 = 6818;

/// A node as slurmctld knows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Base state: `IDLE`, `ALLOCATED`, `MIXED`, `DOWN`, `UNKNOWN`, ...
    pub state: String,
    /// Flags beside it: `DRAIN`, `COMPLETING`, `NOT_RESPONDING`, `REBOOT`, ...
    pub flags: Vec<String>,
    /// Why it is down or drained, without who and when; empty if there is no reason.
    pub reason: String,
    /// Who set the reason.
    pub reason_by: String,
    /// When the reason was set.
    pub reason_s: Option<f64>,
    /// Address under which slurmctld reaches its slurmd.
    pub addr: String,
    /// Host name.
    pub hostname: String,
    /// Port of its slurmd, where it is not the cluster's.
    pub port: Option<u16>,
    /// CPUs.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// When the machine was started.
    pub boot_s: Option<f64>,
    /// When its slurmd was started.
    pub slurmd_start_s: Option<f64>,
    /// Features that jobs can ask for.
    pub features: Vec<String>,
    /// Partitions that it belongs to.
    pub partitions: Vec<String>,
    /// Version of its slurmd, empty before the first registration.
    pub version: String,
}

impl Node {
    /// Whether a flag such as `DRAIN` is set.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.iter().any(|f| f == flag)
    }

    /// Whether nobody misses it: it is down, drained and empty, switched off, in maintenance, or about to boot.
    pub fn is_out_of_service(&self) -> bool {
        self.state == "DOWN" || self.has_flag("DRAIN") && self.state == "IDLE" || self.is_planned_to_be_away()
    }

    /// Whether that was so at a moment already, s since the epoch, as far as it is known.
    pub fn was_out_of_service(&self, at_s: f64) -> bool {
        let was_said = self.reason_s.is_some_and(|reason_s| reason_s < at_s);
        self.is_planned_to_be_away() || self.is_out_of_service() && was_said
    }

    fn is_planned_to_be_away(&self) -> bool {
        let is_empty = !["ALLOCATED", "MIXED"].contains(&self.state.as_str());
        is_empty && AWAY.iter().any(|flag| self.has_flag(flag))
    }
}

impl Slurm {
    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<Node>, Error> {
        parse_nodes(&self.output("scontrol", &["show", "node", "-o"])?)
    }

    /// Where other nodes reach a node; its name where Slurm does not say.
    pub fn address(&self, node: &str) -> String {
        self.node(node).ok().flatten().map_or_else(|| node.to_owned(), |n| n.addr)
    }

    /// The same of several nodes, by one question.
    pub fn addresses(&self, nodes: &[String]) -> Vec<String> {
        let known = self.nodes_of(nodes).unwrap_or_default();
        let of =
            |name: &String| known.iter().find(|n| n.name == *name).map_or_else(|| name.clone(), |n| n.addr.clone());
        nodes.iter().map(of).collect()
    }

    /// The port of slurmds that have no port of their own; of several the first.
    pub fn slurmd_port(&self) -> u16 {
        let told = self.config_value("SlurmdPort").ok().flatten();
        told.and_then(|p| p.split('-').next()?.parse().ok()).unwrap_or(SLURMD_PORT)
    }

    /// Some nodes, by one question.
    ///
    /// # Errors
    /// Also where Slurm does not know one of them.
    pub fn nodes_of(&self, names: &[String]) -> Result<Vec<Node>, Error> {
        parse_nodes(&self.output("scontrol", &["show", "node", "-o", &names.join(",")])?)
    }

    /// Those of some nodes that Slurm knows, by one question; of so many that their names are too long for a command, or if it
    /// does not know one of them, by one about all.
    pub fn known_nodes(&self, names: &[String]) -> Result<Vec<Node>, Error> {
        let told = match names.len() {
            0 => return Ok(Vec::new()),
            1..=MOST_NAMED => self.nodes_of(names),
            _ => self.nodes(),
        };
        let told = match told {
            Err(Error::Refused { .. }) => self.nodes()?,
            told => told?,
        };
        let names: BTreeSet<&String> = names.iter().collect();
        Ok(told.into_iter().filter(|n| names.contains(&n.name)).collect())
    }

    /// A node; none if Slurm does not know it.
    pub fn node(&self, name: &str) -> Result<Option<Node>, Error> {
        match self.output("scontrol", &["show", "node", "-o", name]) {
            Ok(text) => Ok(parse_nodes(&text)?.into_iter().find(|n| n.name == name)),
            Err(Error::Refused { text, .. }) if text.contains("not found") => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The nodes in the output of `scontrol show node -o`.
pub fn parse_nodes(text: &str) -> Result<Vec<Node>, Error> {
    text.lines().filter(|l| l.starts_with("NodeName=")).map(parse_node).collect()
}

/// The node of one line.
pub fn parse_node(line: &str) -> Result<Node, Error> {
    let f = Fields::split_first("a node".into(), line, KEYS);
    let name = f.need("NodeName")?.to_owned();
    let (state, flags) = state(f.need("State")?);
    let (reason, reason_by, reason_s) = reason(f.get("Reason")?.unwrap_or_default());
    let text_or = |key, otherwise: &str| f.text(key).map(|t| if t.is_empty() { otherwise.to_owned() } else { t });
    let list = |key| -> Result<Vec<String>, Error> {
        let text = f.text(key)?;
        Ok(text.split(',').filter(|w| !w.is_empty() && !is_none(w)).map(str::to_owned).collect())
    };
    Ok(Node {
        features: list("ActiveFeatures")?,
        partitions: list("Partitions")?,
        addr: text_or("NodeAddr", &name)?,
        hostname: text_or("NodeHostName", &name)?,
        state,
        flags,
        reason,
        reason_by,
        reason_s,
        port: f.number("Port")?,
        cpus: f.number("CPUTot")?.unwrap_or(0),
        memory_mib: f.number("RealMemory")?.unwrap_or(0),
        boot_s: f.time("BootTime")?,
        slurmd_start_s: f.time("SlurmdStartTime")?,
        version: f.text("Version")?,
        name,
    })
}

/// Parts `DOWN*+DRAIN` into state and flags; a mark behind the state is a flag as well.
fn state(text: &str) -> (String, Vec<String>) {
    let mut parts = text.split('+');
    let base = parts.next().unwrap_or_default();
    let plain = base.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let mut flags: Vec<String> = base[plain.len()..]
        .chars()
        .filter_map(|mark| match mark {
            '*' => Some("NOT_RESPONDING"),
            '~' => Some("POWERED_DOWN"),
            '#' => Some("POWERING_UP"),
            '%' => Some("POWERING_DOWN"),
            '!' => Some("POWER_DOWN"),
            '$' => Some("MAINTENANCE"),
            '@' => Some("REBOOT_REQUESTED"),
            '^' => Some("REBOOT_ISSUED"),
            '-' => Some("PLANNED"),
            _ => None,
        })
        .map(str::to_owned)
        .collect();
    flags.extend(parts.map(|p| p.trim_end_matches('*').to_owned()).filter(|p| !p.is_empty()));
    (plain.to_owned(), flags)
}

/// Parts `text [user@time]`.
fn reason(text: &str) -> (String, String, Option<f64>) {
    if is_none(text) {
        return Default::default();
    }
    let parted = text.strip_suffix(']').and_then(|t| t.rsplit_once(" ["));
    match parted.and_then(|(reason, by)| Some((reason, by.split_once('@')?))) {
        Some((reason, (user, at))) => (reason.to_owned(), user.to_owned(), at.parse().ok()),
        None => (text.to_owned(), String::new(), None),
    }
}

#[cfg(test)]
mod tests {
    use crate::command::tests::with;

    #[test]
    fn of_many_nodes_slurm_is_asked_by_one_question_and_by_one_more_if_it_does_not_know_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let asked = dir.path().join("asked");
        let script = format!(
            "echo \"$*\" >> {}; for n in 1 2 3; do echo \"NodeName=n$n State=IDLE CPUTot=4\"; done
             case \"$*\" in *n9*) echo 'Node n9 not found' >&2; exit 1;; esac",
            asked.display()
        );
        let slurm = with(&dir, "scontrol", &script);
        let known = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|n| (*n).to_owned()).collect();
            slurm.known_nodes(&names).expect("asked").into_iter().map(|n| n.name).collect::<Vec<_>>()
        };
        assert!(known(&[]).is_empty());
        assert_eq!(known(&["n1", "n2"]), ["n1", "n2"]);
        assert_eq!(known(&["n3", "n9"]), ["n3"]);
        let questions = || std::fs::read_to_string(&asked).expect("questions");
        assert_eq!(questions().lines().count(), 3);
        let others = (0..=super::MOST_NAMED).map(|n| format!("x{n}"));
        let many: Vec<String> = ["n1", "n2", "n3"].map(str::to_owned).into_iter().chain(others).collect();
        assert_eq!(slurm.known_nodes(&many).expect("asked").len(), 3);
        assert_eq!(questions().lines().skip(3).collect::<Vec<_>>(), ["show node -o"], "none of them is named");
    }
}

//! Names the daemons of a cluster, one by one.

use std::fmt;
use std::str::FromStr;

/// A daemon; in words `slurmctld`, `slurmdbd`, `mariadb`, `munged`, `n3/slurmd`, `n3/munged`, `n3/command`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// munged of the host of slurmctld, of the service and of this machine.
    Munged,
    /// slurmdbd's database.
    Mariadb,
    /// slurmdbd.
    Slurmdbd,
    /// slurmctld.
    Slurmctld,
    /// A node's munged.
    NodeMunged(String),
    /// A node's slurmd.
    Slurmd(String),
    /// A node's [`crate::Options::node_command`].
    NodeCommand(String),
}

impl Part {
    /// The node that it runs on.
    pub fn node(&self) -> Option<&str> {
        match self {
            Part::Munged | Part::Mariadb | Part::Slurmdbd | Part::Slurmctld => None,
            Part::NodeMunged(node) | Part::Slurmd(node) | Part::NodeCommand(node) => Some(node),
        }
    }

    /// All of a node's, in the order in which they are started.
    pub(crate) fn of_node(node: &str) -> [Part; 3] {
        [Part::NodeMunged(node.into()), Part::Slurmd(node.into()), Part::NodeCommand(node.into())]
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Munged => f.write_str("munged"),
            Part::Mariadb => f.write_str("mariadb"),
            Part::Slurmdbd => f.write_str("slurmdbd"),
            Part::Slurmctld => f.write_str("slurmctld"),
            Part::NodeMunged(node) => write!(f, "{node}/munged"),
            Part::Slurmd(node) => write!(f, "{node}/slurmd"),
            Part::NodeCommand(node) => write!(f, "{node}/command"),
        }
    }
}

/// A word that names no daemon of the cluster.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no daemon: munged, mariadb, slurmdbd, slurmctld, or n3/munged, n3/slurmd, n3/command")]
pub struct UnknownPart(String);

impl FromStr for Part {
    type Err = UnknownPart;

    fn from_str(word: &str) -> Result<Part, UnknownPart> {
        match word.split_once('/') {
            None => [Part::Munged, Part::Mariadb, Part::Slurmdbd, Part::Slurmctld]
                .into_iter()
                .find(|part| part.to_string() == word),
            Some((node, _)) => Part::of_node(node).into_iter().find(|part| part.to_string() == word),
        }
        .ok_or_else(|| UnknownPart(word.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_read_as_they_are_written() {
        let all = [Part::Munged, Part::Mariadb, Part::Slurmdbd, Part::Slurmctld];
        for part in all.into_iter().chain(Part::of_node("n3")) {
            assert_eq!(part.to_string().parse(), Ok(part));
        }
        for word in ["", "slurmd", "n3", "n3/sshd"] {
            assert!(word.parse::<Part>().is_err(), "{word}");
        }
    }
}

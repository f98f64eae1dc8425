//! Says what is wrong with the cluster's cables: pure state, and the rules for nft that it comes to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

/// A place with a cable to the cluster's switch; in words `slurmctld`, `service`, `login`, `n3`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// The host of slurmctld, slurmdbd and their munged.
    Slurmctld,
    /// A host for a service of the caller's: [`crate::Cluster::command_on`] runs programs there.
    Service,
    /// This machine itself, the cluster's login node.
    Login,
    /// A node, by its number: 3 is n3.
    Node(u32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Slurmctld => f.write_str("slurmctld"),
            End::Service => f.write_str("service"),
            End::Login => f.write_str("login"),
            End::Node(number) => write!(f, "n{number}"),
        }
    }
}

/// A word that names no place of the cluster.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no end of a cable: slurmctld, service, login, or a node such as n3")]
pub struct UnknownEnd(String);

impl FromStr for End {
    type Err = UnknownEnd;

    fn from_str(word: &str) -> Result<End, UnknownEnd> {
        let number = |digits: &str| digits.parse().ok().filter(|n| *n > 0).map(End::Node);
        match word {
            "slurmctld" => Ok(End::Slurmctld),
            "service" => Ok(End::Service),
            "login" => Ok(End::Login),
            node => node.strip_prefix('n').and_then(number).ok_or_else(|| UnknownEnd(word.to_string())),
        }
    }
}

/// What is wrong with the cables.
#[derive(Debug, Default)]
pub(crate) struct Cables {
    /// From the first to the second nothing arrives.
    cut: BTreeSet<(End, End)>,
    /// From the first to the second so many of a hundred frames are lost.
    lossy: BTreeMap<(End, End), u8>,
    /// To and from these nothing arrives: they are suspended or without power.
    dark: BTreeSet<End>,
    /// So many bytes a second go through the cables of these, each way.
    slow: BTreeMap<End, u64>,
}

impl Cables {
    /// Drops all frames between each of `a` and each of `b`.
    pub(crate) fn cut(&mut self, a: &[End], b: &[End]) {
        self.cut.extend(both_ways(a, b));
    }

    /// Drops all frames from each of `from` to each of `to`.
    pub(crate) fn cut_one_way(&mut self, from: &[End], to: &[End]) {
        self.cut.extend(pairs(from, to));
    }

    /// Drops `percent` of the frames between each of `a` and each of `b`.
    pub(crate) fn lose(&mut self, a: &[End], b: &[End], percent: u8) {
        self.lossy.extend(both_ways(a, b).map(|pair| (pair, percent)));
    }

    /// Ends cuts and losses between each of `a` and each of `b`.
    pub(crate) fn heal(&mut self, a: &[End], b: &[End]) {
        for pair in both_ways(a, b) {
            self.cut.remove(&pair);
            self.lossy.remove(&pair);
        }
    }

    /// Ends all cuts and losses. What is dark stays so.
    pub(crate) fn heal_all(&mut self) {
        self.cut.clear();
        self.lossy.clear();
    }

    /// Drops all frames to and from `end`, or no longer, whatever is cut beside that.
    pub(crate) fn set_dark(&mut self, end: &End, is_dark: bool) {
        match is_dark {
            true => self.dark.insert(end.clone()),
            false => self.dark.remove(end),
        };
    }

    /// Sets or lifts the limit of a cable, bytes/s; the one before.
    pub(crate) fn set_rate(&mut self, end: &End, bytes_per_s: Option<u64>) -> Option<u64> {
        match bytes_per_s {
            Some(rate) => self.slow.insert(end.clone(), rate),
            None => self.slow.remove(end),
        }
    }

    /// The limit of a cable, bytes/s.
    pub(crate) fn rate(&self, end: &End) -> Option<u64> {
        self.slow.get(end).copied()
    }

    /// The ends whose cables have a limit.
    pub(crate) fn slow(&self) -> Vec<End> {
        self.slow.keys().cloned().collect()
    }

    /// The rules for frames, which replace all that were there. Each end's port at the switch has the end's name.
    pub(crate) fn rules(&self) -> String {
        let mut text = "table bridge cables\ndelete table bridge cables\ntable bridge cables {\nchain switch {\n\
                        type filter hook forward priority 0; policy accept;\n"
            .to_string();
        for end in &self.dark {
            let _ = writeln!(text, "iifname \"{end}\" drop\noifname \"{end}\" drop");
        }
        let mut by_source: BTreeMap<&End, Vec<String>> = BTreeMap::new();
        for (from, to) in &self.cut {
            by_source.entry(from).or_default().push(format!("\"{to}\""));
        }
        for (from, to) in by_source {
            let _ = writeln!(text, "iifname \"{from}\" oifname {{ {} }} drop", to.join(", "));
        }
        for ((from, to), percent) in &self.lossy {
            let _ = writeln!(text, "iifname \"{from}\" oifname \"{to}\" numgen random mod 100 < {percent} drop");
        }
        text + "}\n}\n"
    }
}

/// Each of `a` with each of `b`, and the other way round.
fn both_ways(a: &[End], b: &[End]) -> impl Iterator<Item = (End, End)> {
    pairs(a, b).chain(pairs(b, a))
}

/// Each of `from` with each of `to`; an end has no cable to itself.
fn pairs(from: &[End], to: &[End]) -> impl Iterator<Item = (End, End)> {
    let pair = |a: &End, b: &End| (a != b).then(|| (a.clone(), b.clone()));
    from.iter().flat_map(move |a| to.iter().filter_map(move |b| pair(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drops(cables: &Cables) -> Vec<String> {
        cables.rules().lines().filter(|l| l.ends_with("drop")).map(String::from).collect()
    }

    #[test]
    fn a_cut_has_a_direction_and_an_end_is_not_cut_from_itself() {
        let mut cables = Cables::default();
        cables.cut_one_way(&[End::Node(1), End::Node(2)], &[End::Node(2), End::Slurmctld]);
        let expected =
            ["iifname \"n1\" oifname { \"slurmctld\", \"n2\" } drop", "iifname \"n2\" oifname { \"slurmctld\" } drop"];
        assert_eq!(drops(&cables), expected);
    }

    #[test]
    fn healing_ends_what_it_names_and_leaves_the_dark_alone() {
        let mut cables = Cables::default();
        cables.cut_one_way(&[End::Node(1)], &[End::Login, End::Service]);
        cables.cut(&[End::Node(1)], &[End::Slurmctld]);
        cables.lose(&[End::Login], &[End::Node(1), End::Node(2)], 30);
        cables.set_dark(&End::Node(3), true);
        cables.heal(&[End::Node(1)], &[End::Login]);
        let left = [
            "iifname \"n3\" drop",
            "oifname \"n3\" drop",
            "iifname \"slurmctld\" oifname { \"n1\" } drop",
            "iifname \"n1\" oifname { \"slurmctld\", \"service\" } drop",
            "iifname \"login\" oifname \"n2\" numgen random mod 100 < 30 drop",
            "iifname \"n2\" oifname \"login\" numgen random mod 100 < 30 drop",
        ];
        assert_eq!(drops(&cables), left);
        cables.heal_all();
        assert_eq!(drops(&cables), left[..2]);
        cables.set_dark(&End::Node(3), false);
        assert!(drops(&cables).is_empty());
    }

    #[test]
    fn ends_are_read_as_they_are_written() {
        for end in [End::Slurmctld, End::Service, End::Login, End::Node(12)] {
            assert_eq!(end.to_string().parse(), Ok(end));
        }
        for word in ["", "n", "n0", "n-1", "m3", "node"] {
            assert!(word.parse::<End>().is_err(), "{word}");
        }
    }
}

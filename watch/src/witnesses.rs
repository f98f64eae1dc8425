//! Chooses the witnesses of each node, and counts their majorities.
//!
//! Any two majorities of the same witnesses share one. So a node that has been granted its lease by one majority and the
//! controller that has heard another deny it cannot both be right about the same moment.

use std::collections::BTreeSet;

/// Witnesses of a node, where there are enough others: an odd number, so that one may be away.
pub const WITNESSES: usize = 3;

/// How many of `of` witnesses are a majority; none of no witnesses ever is.
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// The witnesses of `node` among those that are well: those it has, as long as they are well, and others in place of
/// the rest. They are taken from all over the list of names, since neighbours in it often share a switch or a rack.
pub fn choose(node: &str, now: &BTreeSet<String>, well: &[&str]) -> BTreeSet<String> {
    let others: Vec<&str> = well.iter().copied().filter(|n| *n != node).collect();
    let wanted = if others.len() >= WITNESSES { WITNESSES } else { others.len().min(1) };
    let mut chosen: BTreeSet<String> =
        now.iter().filter(|w| others.contains(&w.as_str())).take(wanted).cloned().collect();
    let place = others.partition_point(|n| *n < node);
    // The first candidate a part of the list away, then the next ones: the same for everybody who asks.
    for part in 1..=wanted {
        let first = place + part * others.len() / (wanted + 1);
        let mut round = (0..others.len()).map(|i| others[(first + i) % others.len()]);
        if chosen.len() < wanted
            && let Some(next) = round.find(|n| !chosen.contains(*n))
        {
            chosen.insert(next.to_string());
        }
    }
    chosen
}

/// The moment up to which a majority of witnesses vouch, given when each of them did last, s; none without a majority.
pub fn vouched_s(witnesses: usize, last_s: impl Iterator<Item = f64>) -> Option<f64> {
    let mut last_s: Vec<f64> = last_s.collect();
    last_s.sort_by(|a, b| b.total_cmp(a));
    last_s.get(majority(witnesses) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(n: usize) -> Vec<String> {
        (1..=n).map(|i| format!("n{i:03}")).collect()
    }

    #[test]
    fn witnesses_are_other_nodes_spread_over_the_list_and_stay_while_they_are_well() {
        for n in 1..=40 {
            let all = names(n);
            let well: Vec<&str> = all.iter().map(String::as_str).collect();
            for node in &all {
                let chosen = choose(node, &BTreeSet::new(), &well);
                assert!(!chosen.contains(node));
                assert_eq!(chosen.len(), if n > WITNESSES { WITNESSES } else { (n - 1).min(1) }, "{n} {node}");
                assert_eq!(choose(node, &chosen, &well), chosen, "they stay");
                let Some(gone) = chosen.first() else { continue };
                let left: Vec<&str> = well.iter().copied().filter(|w| w != gone).collect();
                let next = choose(node, &chosen, &left);
                assert!(!next.contains(gone), "{next:?}");
                let stay = chosen.iter().filter(|w| *w != gone).filter(|w| next.contains(*w)).count();
                assert_eq!(stay, (chosen.len() - 1).min(next.len()), "the others stay: {chosen:?} {next:?}");
            }
        }
        let all = names(16);
        let well: Vec<&str> = all.iter().map(String::as_str).collect();
        let spread: Vec<String> = choose("n001", &BTreeSet::new(), &well).into_iter().collect();
        assert_eq!(spread, ["n005", "n009", "n013"]);
    }

    #[test]
    fn two_majorities_share_a_witness() {
        for n in 1..9 {
            assert!(2 * majority(n) > n);
        }
    }

    #[test]
    fn a_majority_vouches_up_to_the_moment_that_its_last_member_did() {
        assert_eq!(vouched_s(3, [1.0, 5.0, 3.0].into_iter()), Some(3.0));
        assert_eq!(vouched_s(3, [7.0].into_iter()), None);
        assert_eq!(vouched_s(1, [7.0].into_iter()), Some(7.0));
        assert_eq!(vouched_s(0, [].into_iter()), None);
    }
}

//! Chooses the witnesses of each node, and counts their majorities.
//!
//! Any two majorities of the same witnesses share one. So a node that has been granted its lease by one majority and the
//! controller that has heard another deny it cannot both be right about the same moment.

use std::collections::BTreeSet;

/// Witnesses of a node, where there are enough others; of fewer others the largest odd number. Four nodes that die in one
/// moment leave a majority of the witnesses of each, and so do fewer than half of the nodes of a small cluster.
pub const WITNESSES: usize = 7;

/// How many of `of` witnesses are a majority; none of no witnesses ever is.
pub fn majority(of: usize) -> usize {
    of / 2 + 1
}

/// The witnesses of `node` among those that are well: those it has, as long as they are well, and others in place of
/// the rest. They are taken from all over the list of names, since neighbours in it often share a switch or a rack.
pub fn choose(node: &str, now: &BTreeSet<String>, well: &[&str]) -> BTreeSet<String> {
    let others: Vec<&str> = well.iter().copied().filter(|n| *n != node).collect();
    let most = others.len().min(WITNESSES);
    let wanted = most - usize::from(most > 0 && most.is_multiple_of(2));
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
                assert_eq!(chosen.len(), [0, 1, 1, 3, 3, 5, 5, 7][(n - 1).min(WITNESSES)], "{n} {node}");
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
        assert_eq!(spread, ["n003", "n005", "n007", "n009", "n011", "n013", "n015"]);
    }

    #[test]
    fn nodes_that_die_in_one_moment_leave_a_majority_of_each_others_witnesses() {
        for n in 2..=12 {
            let all = names(n);
            let well: Vec<&str> = all.iter().map(String::as_str).collect();
            let chosen: Vec<BTreeSet<String>> = all.iter().map(|node| choose(node, &BTreeSet::new(), &well)).collect();
            for dead in 0_u32..1 << n {
                let count = dead.count_ones() as usize;
                if count * 2 >= n || count > majority(WITNESSES) {
                    continue;
                }
                let is_dead = |name: &String| all.binary_search(name).is_ok_and(|i| dead >> i & 1 == 1);
                for witnesses in all.iter().zip(&chosen).filter(|(node, _)| is_dead(node)).map(|(_, w)| w) {
                    let left = witnesses.iter().filter(|w| !is_dead(w)).count();
                    assert!(left >= majority(witnesses.len()), "{n} nodes, dead {dead:b}");
                }
            }
        }
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

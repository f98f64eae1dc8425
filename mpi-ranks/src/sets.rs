//! Groups of processes as lists of world ranks.
// SPDX-License-Identifier: GPL-2.0-or-later

/// Those of `ranks` at these places, in their order; none if one is no place or stands twice.
#[must_use]
pub fn pick(ranks: &[u32], wanted: &[i32]) -> Option<Vec<u32>> {
    let mut seen = vec![false; ranks.len()];
    wanted
        .iter()
        .map(|at| {
            let at = usize::try_from(*at).ok().filter(|at| *at < ranks.len() && !seen[*at])?;
            seen[at] = true;
            Some(ranks[at])
        })
        .collect()
}

/// Those that are at no such place.
#[must_use]
pub fn without(ranks: &[u32], unwanted: &[i32]) -> Option<Vec<u32>> {
    let gone = pick(ranks, unwanted)?;
    Some(difference(ranks, &gone))
}

/// The numbers of ranges of a first one, a last one and a step; none if one leads nowhere.
#[must_use]
pub fn listed(ranges: &[[i32; 3]]) -> Option<Vec<i32>> {
    let mut ranks = Vec::new();
    for [first, last, step] in ranges {
        if *step == 0 || (last - first).signum() * step.signum() < 0 {
            return None;
        }
        let count = (last - first) / step;
        ranks.extend((0..=count).map(|at| first + at * step));
    }
    Some(ranks)
}

/// All of the first list, and those of the other that are not in it.
#[must_use]
pub fn union(one: &[u32], other: &[u32]) -> Vec<u32> {
    one.iter().chain(other.iter().filter(|rank| !one.contains(rank))).copied().collect()
}

/// Those of the first list that are in the other.
#[must_use]
pub fn common(one: &[u32], other: &[u32]) -> Vec<u32> {
    one.iter().copied().filter(|rank| other.contains(rank)).collect()
}

/// Those of the first list that are not in the other.
#[must_use]
pub fn difference(one: &[u32], other: &[u32]) -> Vec<u32> {
    one.iter().copied().filter(|rank| !other.contains(rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_count_up_and_down_and_refuse_what_leads_nowhere() {
        assert_eq!(listed(&[[0, 4, 2], [3, 1, -1]]).expect("ranges"), [0, 2, 4, 3, 2, 1]);
        assert!(listed(&[[0, 4, 0]]).is_none());
        assert!(listed(&[[0, 4, -1]]).is_none());
    }

    #[test]
    fn a_rank_is_picked_once_and_from_the_group() {
        assert_eq!(pick(&[5, 6, 7], &[2, 0]).expect("ranks of the group"), [7, 5]);
        assert!(pick(&[5, 6, 7], &[1, 1]).is_none());
        assert!(pick(&[5, 6, 7], &[3]).is_none());
        assert!(pick(&[5, 6, 7], &[-1]).is_none());
        assert_eq!(without(&[5, 6, 7], &[1]).expect("a rank of the group"), [5, 7]);
    }
}

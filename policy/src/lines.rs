//! How often groups that checkpoint alone make one line of all, to which all go back if the program does not repeat itself.

/// The chance that a restored program sends something else than before, as long as nothing is known of it; an assumption.
pub const CHANCE: f64 = 0.1;

/// One of so many rounds, in each of which every group makes a checkpoint, is a line of all `groups`.
///
/// Both follow Young. A group of one in n, that fails every n M and checkpoints in C, does so every `sqrt(2 C n M)`. In a line
/// all write at once, so that each stands still for (n - 1) C longer; it pays at the failures after which the program differs,
/// every M / chance: every `sqrt(2 (n - 1) C M / chance)`. Neither C nor M is left in how often the one goes into the other.
pub fn rounds(groups: usize, chance: f64) -> u32 {
    let n = groups.max(1) as f64;
    let rounds = ((n - 1.0) / (n * chance.clamp(1e-3, 1.0))).sqrt().round();
    rounds.max(1.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_rarer_the_less_likely_it_is_needed() {
        let all = [2, 3, 8, 1000].map(|groups| rounds(groups, CHANCE));
        assert_eq!(all, [2, 3, 3, 3]);
        assert_eq!((rounds(8, 1.0), rounds(8, 0.001), rounds(1, CHANCE), rounds(0, 0.0)), (1, 30, 1, 1));
    }
}

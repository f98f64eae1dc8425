//! Which holder owns a checkpoint: each holder has an interval of numbers, and a checkpoint that names another holder
//! is never used.

use protocol::Manifest;

/// Where the numbers of each holder begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    /// Holder and lowest number, from the first on.
    starts: Vec<(u64, u64)>,
    /// Holders that took the run up and whose beginning is not known.
    unsealed: Vec<u64>,
}

impl Owners {
    /// Adds a holder whose numbers begin at `first`; those of the one before end there.
    pub fn add(&mut self, holder: u64, first: u64) {
        self.starts.push((holder, first));
    }

    /// Adds a holder whose first number is unknown: it died before it wrote it, or its line is damaged.
    pub fn add_unsealed(&mut self, holder: u64) {
        self.unsealed.push(holder);
    }

    /// The lowest number of the last holder; 0 if nobody has any.
    pub fn last_first(&self) -> u64 {
        self.starts.last().map_or(0, |(_, first)| *first)
    }

    /// Whether the holder that a manifest names owns its number. Checkpoints of earlier versions name nobody, and lie
    /// below all intervals.
    pub fn is_rightful(&self, manifest: &Manifest) -> bool {
        let before = self.starts.iter().rposition(|(_, first)| *first <= manifest.number);
        let owner = before.map(|i| self.starts[i].0);
        if owner == manifest.holder {
            return true;
        }
        // The interval of a holder with a damaged line lies between those of its neighbours.
        let next = self.starts.get(before.map_or(0, |i| i + 1)).map_or(u64::MAX, |(holder, _)| *holder);
        manifest
            .holder
            .is_some_and(|named| self.unsealed.contains(&named) && (owner.unwrap_or(0)..next).contains(&named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(number: u64, holder: Option<u64>) -> Manifest {
        Manifest { number, holder, ..Manifest::default() }
    }

    #[test]
    fn a_checkpoint_is_used_only_if_it_names_the_holder_to_whom_its_number_belongs() {
        let mut owners = Owners::default();
        assert!(owners.is_rightful(&manifest(7, None)), "nobody has numbers yet");
        for (holder, first) in [(2, 4), (3, 4), (6, 9)] {
            owners.add(holder, first);
        }
        for (number, holder, expected) in [
            (3, None, true),
            (3, Some(2), false),
            (4, None, false),
            (4, Some(2), false),
            (4, Some(3), true),
            (8, Some(3), true),
            (9, Some(3), false),
            (9, Some(6), true),
            (99, Some(6), true),
        ] {
            assert_eq!(owners.is_rightful(&manifest(number, holder)), expected, "{number} {holder:?}");
        }
    }

    #[test]
    fn a_holder_whose_beginning_is_not_known_is_believed_between_its_neighbours() {
        let mut owners = Owners::default();
        owners.add(1, 1);
        owners.add_unsealed(2);
        owners.add(3, 9);
        for (number, holder, expected) in [(5, 1, true), (5, 2, true), (9, 2, false), (5, 3, false)] {
            assert_eq!(owners.is_rightful(&manifest(number, Some(holder))), expected, "{number} {holder}");
        }
    }
}

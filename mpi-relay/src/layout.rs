//! Which world rank is in which group: `0-1,4/2-3` are two groups, of three ranks and of two.

use crate::Error;

/// Most ranks of a program: a frame names a rank in 16 bits.
pub const MOST_RANKS: usize = 1 << 16;

/// The ranks of all groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    groups: Vec<Vec<u32>>,
    /// By world rank: its group, and its place in its group.
    places: Vec<(usize, usize)>,
}

impl Layout {
    /// Reads a layout. Every rank from 0 on is in one group.
    ///
    /// # Errors
    /// [`Error::Usage`] names what is wrong.
    pub fn parse(text: &str) -> Result<Layout, Error> {
        let wrong = |why: String| Error::Usage(format!("ranks {text}: {why}"));
        let groups: Result<Vec<Vec<u32>>, String> = text.split('/').map(group).collect();
        let groups = groups.map_err(wrong)?;
        let world = groups.iter().map(Vec::len).sum();
        let mut places = vec![None; world];
        for (number, ranks) in groups.iter().enumerate() {
            for (index, rank) in ranks.iter().enumerate() {
                let place = places.get_mut(*rank as usize);
                let place = place.ok_or_else(|| wrong(format!("{rank} of {world} ranks, which count from 0")))?;
                if place.replace((number, index)).is_some() {
                    return Err(wrong(format!("{rank} stands twice")));
                }
            }
        }
        // As many different ranks below their number as there are: none is missing.
        Ok(Layout { groups, places: places.into_iter().flatten().collect() })
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.places.len()
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// World ranks of a group.
    pub fn ranks(&self, group: usize) -> &[u32] {
        self.groups.get(group).map_or(&[], Vec::as_slice)
    }

    /// Group of a world rank.
    pub fn group_of(&self, rank: usize) -> Option<usize> {
        self.places.get(rank).map(|(group, _)| *group)
    }

    /// Place of a world rank in this group.
    pub fn place_in(&self, group: usize, rank: usize) -> Option<usize> {
        self.places.get(rank).filter(|(g, _)| *g == group).map(|(_, index)| *index)
    }
}

fn group(text: &str) -> Result<Vec<u32>, String> {
    let mut ranks = Vec::new();
    for piece in text.split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let number = |word: &str| word.parse::<u32>().map_err(|_| format!("{word:?} is no rank"));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last as usize >= MOST_RANKS {
            return Err(format!("{piece}: ranks rise, to {} at most", MOST_RANKS - 1));
        }
        ranks.extend(first..=last);
    }
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_their_groups_and_places() {
        let layout = Layout::parse("0-1,4/2-3").expect("a layout");
        assert_eq!((layout.world(), layout.groups(), layout.ranks(0)), (5, 2, &[0, 1, 4][..]));
        assert_eq!((layout.group_of(3), layout.place_in(0, 4), layout.place_in(1, 4)), (Some(1), Some(2), None));
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        for wrong in ["", "0-", "1", "0/0", "0-1/1", "0/2", "3-0", "0-99999", "0,,1", "a", "0-4294967295"] {
            assert!(matches!(Layout::parse(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}

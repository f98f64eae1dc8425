//! The ranks of all recovery groups, seen from one of them.
// SPDX-License-Identifier: GPL-2.0-or-later

use mpi_relay::{Error, Layout};

/// The ranks of all groups, seen from one of them.
#[derive(Clone, Debug)]
pub struct Place {
    /// This group.
    pub group: usize,
    layout: Layout,
}

impl Place {
    /// Reads a list such as `0-1,4/2-3`, the ranks of two groups, and the number of this group.
    ///
    /// # Errors
    /// What is wrong with either.
    pub fn parse(ranks: &str, group: &str) -> Result<Place, Error> {
        let layout = Layout::parse(ranks)?;
        match group.trim().parse().ok().filter(|group| *group < layout.groups()) {
            Some(group) => Ok(Place { group, layout }),
            None => Err(Error::Usage(format!("FT_ENERGY_GROUP: {group:?} is not one of the groups of {ranks}"))),
        }
    }

    /// Ranks of the world.
    #[must_use]
    pub fn size(&self) -> usize {
        self.layout.world()
    }

    /// Ranks of this group.
    #[must_use]
    pub fn own(&self) -> &[u32] {
        self.layout.ranks(self.group)
    }

    /// The group of a world rank.
    #[must_use]
    pub fn group_of(&self, rank: u32) -> usize {
        self.layout.group_of(rank as usize).expect("a rank of the world")
    }

    /// The rank in this group's native world of a world rank, if it is of this group.
    #[must_use]
    pub fn native(&self, rank: u32) -> Option<i32> {
        self.layout.place_in(self.group, rank as usize).map(|at| at as i32)
    }

    /// The world rank of a rank of this group's native world.
    #[must_use]
    pub fn world_rank(&self, native: i32) -> u32 {
        self.own()[native as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_where_each_rank_is() {
        let place = Place::parse("0-1,4/2-3", "1").expect("two groups");
        assert_eq!((place.size(), place.group_of(4), place.native(4), place.native(3)), (5, 0, None, Some(1)));
        assert_eq!(place.world_rank(0), 2);
        assert!(Place::parse("0/1", "2").is_err());
        assert!(Place::parse("0/1", "").is_err());
        assert!(Place::parse("0-x", "0").is_err());
    }
}

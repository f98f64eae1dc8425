//! Grids.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::Neighbours;

/// A grid of ranks, the last dimension the fastest.
#[derive(Clone, Debug)]
pub struct Cartesian {
    /// Ranks in each dimension.
    pub dims: Vec<i32>,
    /// Whether a dimension is closed: 0 or 1.
    pub periods: Vec<i32>,
}

impl Cartesian {
    /// A grid; none if a dimension has no ranks.
    #[must_use]
    pub fn new(dims: &[i32], periods: &[i32]) -> Option<Cartesian> {
        let periods = periods.iter().map(|closed| i32::from(*closed != 0)).collect();
        dims.iter().all(|size| *size > 0).then(|| Cartesian { dims: dims.to_vec(), periods })
    }

    /// How many ranks it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.dims.iter().map(|size| *size as usize).product()
    }

    /// Where a rank is.
    #[must_use]
    pub fn coordinates(&self, rank: usize) -> Vec<i32> {
        let mut left = rank as i32;
        let mut found: Vec<i32> = self
            .dims
            .iter()
            .rev()
            .map(|size| {
                let at = left % size;
                left /= size;
                at
            })
            .collect();
        found.reverse();
        found
    }

    /// The rank at coordinates; `None` outside of an open dimension.
    #[must_use]
    pub fn rank(&self, coordinates: &[i32]) -> Option<i32> {
        let mut rank = 0;
        for ((at, size), closed) in coordinates.iter().zip(&self.dims).zip(&self.periods) {
            let at = if *closed != 0 { at.rem_euclid(*size) } else { *at };
            if !(0..*size).contains(&at) {
                return None;
            }
            rank = rank * size + at;
        }
        Some(rank)
    }

    /// The rank so far away in a dimension; `None` outside of an open one.
    #[must_use]
    pub fn shifted(&self, rank: usize, dimension: usize, by: i32) -> Option<i32> {
        let mut at = self.coordinates(rank);
        at[dimension] += by;
        self.rank(&at)
    }

    /// Two for each dimension. What is sent down comes from above: the tag tells, where both are the same rank.
    #[must_use]
    pub fn neighbours(&self, rank: usize) -> Neighbours {
        let both = |up_first: bool| {
            let of = move |dimension: usize| {
                let tag = 2 * dimension as i32;
                let (down, up) = if up_first { (tag + 1, tag) } else { (tag, tag + 1) };
                [(self.shifted(rank, dimension, -1), down), (self.shifted(rank, dimension, 1), up)]
            };
            (0..self.dims.len()).flat_map(of).collect()
        };
        Neighbours { sources: both(true), destinations: both(false) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_coordinates_are_each_others_inverse() {
        let grid = Cartesian { dims: vec![2, 3, 4], periods: vec![0, 1, 0] };
        for rank in 0..grid.size() {
            assert_eq!(grid.rank(&grid.coordinates(rank)), Some(rank as i32));
        }
        assert_eq!(grid.coordinates(23), [1, 2, 3]);
        assert_eq!(grid.rank(&[0, -1, 0]), grid.rank(&[0, 2, 0]));
        assert_eq!(grid.rank(&[0, 0, 4]), None);
        assert_eq!(grid.shifted(0, 0, -1), None);
    }

    #[test]
    fn what_goes_down_comes_from_above_even_where_both_are_one_rank() {
        let ring = Cartesian { dims: vec![2], periods: vec![1] };
        let (zero, one) = (ring.neighbours(0), ring.neighbours(1));
        assert_eq!(zero.destinations, [(Some(1), 0), (Some(1), 1)]);
        // Rank 1 receives from below what rank 0 sent up.
        assert_eq!(one.sources, [(Some(0), 1), (Some(0), 0)]);
    }
}

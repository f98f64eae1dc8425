//! Grids.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::{Neighbours, Topology};
use crate::abi::*;
use crate::border::*;
use crate::communicator::Comm;
use crate::create::split;

/// A grid of ranks, the last dimension the fastest.
#[derive(Clone, Debug)]
pub struct Cartesian {
    /// Ranks in each dimension.
    pub dims: Vec<Int>,
    /// Whether a dimension is closed: 0 or 1.
    pub periods: Vec<Int>,
}

impl Cartesian {
    fn new(n: Int, dims: *const Int, periods: *const Int) -> Res<Cartesian> {
        let dims = slice(dims, n).to_vec();
        if n < 0 || dims.iter().any(|size| *size <= 0) {
            return fail(MPI_ERR_DIMS);
        }
        Ok(Cartesian { dims, periods: slice(periods, n).iter().map(|closed| Int::from(*closed != 0)).collect() })
    }

    fn size(&self) -> usize {
        self.dims.iter().map(|size| *size as usize).product()
    }

    fn coordinates(&self, rank: usize) -> Vec<Int> {
        let mut left = rank as Int;
        let mut found: Vec<Int> = self
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
    fn rank(&self, coordinates: &[Int]) -> Option<Int> {
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

    fn shifted(&self, rank: usize, dimension: usize, by: Int) -> Int {
        let mut at = self.coordinates(rank);
        at[dimension] += by;
        self.rank(&at).unwrap_or(MPI_PROC_NULL)
    }

    /// Two for each dimension. What is sent down comes from above: the tag tells, where both are the same rank.
    pub(super) fn neighbours(&self, rank: usize) -> Neighbours {
        let both = |up_first: bool| {
            let of = move |dimension: usize| {
                let tag = 2 * dimension as Int;
                let (down, up) = if up_first { (tag + 1, tag) } else { (tag, tag + 1) };
                [(self.shifted(rank, dimension, -1), down), (self.shifted(rank, dimension, 1), up)]
            };
            (0..self.dims.len()).flat_map(of).collect()
        };
        Neighbours { sources: both(true), destinations: both(false) }
    }
}

fn grid(at: &Comm) -> Res<&Cartesian> {
    match &at.topology {
        Some(Topology::Cartesian(grid)) => Ok(grid),
        _ => fail(MPI_ERR_TOPOLOGY),
    }
}

fn known(at: &Comm, rank: Int) -> Res<usize> {
    if (0..at.size() as Int).contains(&rank) { Ok(rank as usize) } else { fail(MPI_ERR_RANK) }
}

fn fill(array: *mut Int, room: Int, values: &[Int]) {
    for (place, value) in slice_mut(array, room).iter_mut().zip(values) {
        *place = *value;
    }
}

export! {
    fn MPI_Cart_create(old_comm: MPI_Comm, ndims: Int, dims: *const Int, periods: *const Int, reorder: Int, comm_cart: *mut MPI_Comm) collective old_comm => |w, at| {
        let _ = reorder;
        let grid = Cartesian::new(ndims, dims, periods)?;
        let size = grid.size();
        if size > at.size() {
            return fail(MPI_ERR_DIMS);
        }
        let color = if at.rank < size { 0 } else { MPI_UNDEFINED };
        put(comm_cart, split(w, &at, color, 0, Some(Topology::Cartesian(grid)))?);
        Ok(())
    };
    fn MPI_Cart_sub(comm: MPI_Comm, remain_dims: *const Int, new_comm: *mut MPI_Comm) collective comm => |w, at| {
        let grid = grid(&at)?;
        let remain = slice(remain_dims, grid.dims.len() as Int);
        let (mut color, mut key) = (0, 0);
        for ((at, size), stays) in grid.coordinates(at.rank).into_iter().zip(&grid.dims).zip(remain) {
            let place = if *stays != 0 { &mut key } else { &mut color };
            *place = *place * size + at;
        }
        let of = |values: &[Int]| values.iter().zip(remain).filter(|(_, stays)| **stays != 0).map(|(value, _)| *value).collect();
        let rest = Cartesian { dims: of(&grid.dims), periods: of(&grid.periods) };
        put(new_comm, split(w, &at, color, key, Some(Topology::Cartesian(rest)))?);
        Ok(())
    };
    fn MPI_Cartdim_get(comm: MPI_Comm, ndims: *mut Int) for comm => |_w, at| {
        put(ndims, grid(&at)?.dims.len() as Int);
        Ok(())
    };
    fn MPI_Cart_get(comm: MPI_Comm, maxdims: Int, dims: *mut Int, periods: *mut Int, coords: *mut Int) for comm => |_w, at| {
        let grid = grid(&at)?;
        fill(dims, maxdims, &grid.dims);
        fill(periods, maxdims, &grid.periods);
        fill(coords, maxdims, &grid.coordinates(at.rank));
        Ok(())
    };
    fn MPI_Cart_coords(comm: MPI_Comm, rank: Int, maxdims: Int, coords: *mut Int) for comm => |_w, at| {
        fill(coords, maxdims, &grid(&at)?.coordinates(known(&at, rank)?));
        Ok(())
    };
    fn MPI_Cart_rank(comm: MPI_Comm, coords: *const Int, rank: *mut Int) for comm => |_w, at| {
        let grid = grid(&at)?;
        match grid.rank(slice(coords, grid.dims.len() as Int)) {
            Some(found) => {
                put(rank, found);
                Ok(())
            }
            None => fail(MPI_ERR_ARG),
        }
    };
    fn MPI_Cart_shift(comm: MPI_Comm, direction: Int, disp: Int, rank_source: *mut Int, rank_dest: *mut Int) for comm => |_w, at| {
        let grid = grid(&at)?;
        if !(0..grid.dims.len() as Int).contains(&direction) {
            return fail(MPI_ERR_DIMS);
        }
        put(rank_source, grid.shifted(at.rank, direction as usize, -disp));
        put(rank_dest, grid.shifted(at.rank, direction as usize, disp));
        Ok(())
    };
    fn MPI_Cart_map(comm: MPI_Comm, ndims: Int, dims: *const Int, periods: *const Int, newrank: *mut Int) for comm => |_w, at| {
        let size = Cartesian::new(ndims, dims, periods)?.size();
        put(newrank, if at.rank < size { at.rank as Int } else { MPI_UNDEFINED });
        if size > at.size() { fail(MPI_ERR_DIMS) } else { Ok(()) }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_and_coordinates_are_each_others_inverse() {
        let grid = Cartesian { dims: vec![2, 3, 4], periods: vec![0, 1, 0] };
        for rank in 0..grid.size() {
            assert_eq!(grid.rank(&grid.coordinates(rank)), Some(rank as Int));
        }
        assert_eq!(grid.coordinates(23), [1, 2, 3]);
        assert_eq!(grid.rank(&[0, -1, 0]), grid.rank(&[0, 2, 0]));
        assert_eq!(grid.rank(&[0, 0, 4]), None);
        assert_eq!(grid.shifted(0, 0, -1), MPI_PROC_NULL);
    }

    #[test]
    fn what_goes_down_comes_from_above_even_where_both_are_one_rank() {
        let ring = Cartesian { dims: vec![2], periods: vec![1] };
        let (zero, one) = (ring.neighbours(0), ring.neighbours(1));
        assert_eq!(zero.destinations, [(1, 0), (1, 1)]);
        // Rank 1 receives from below what rank 0 sent up.
        assert_eq!(one.sources, [(0, 1), (0, 0)]);
    }
}

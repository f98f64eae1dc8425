//! Grids.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::communicator::Comm;
use crate::create::split;
use mpi_ranks::Topology;
use mpi_ranks::grid::Cartesian;

fn grid(at: &Comm) -> Res<&Cartesian> {
    match &at.topology {
        Some(Topology::Cartesian(grid)) => Ok(grid),
        _ => fail(MPI_ERR_TOPOLOGY),
    }
}

fn asked(n: Int, dims: *const Int, periods: *const Int) -> Res<Cartesian> {
    let asked = (n >= 0).then(|| Cartesian::new(slice(dims, n), slice(periods, n)));
    asked.flatten().map_or_else(|| fail(MPI_ERR_DIMS), Ok)
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
        let grid = asked(ndims, dims, periods)?;
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
        put(rank_source, grid.shifted(at.rank, direction as usize, -disp).unwrap_or(MPI_PROC_NULL));
        put(rank_dest, grid.shifted(at.rank, direction as usize, disp).unwrap_or(MPI_PROC_NULL));
        Ok(())
    };
    fn MPI_Cart_map(comm: MPI_Comm, ndims: Int, dims: *const Int, periods: *const Int, newrank: *mut Int) for comm => |_w, at| {
        let size = asked(ndims, dims, periods)?.size();
        put(newrank, if at.rank < size { at.rank as Int } else { MPI_UNDEFINED });
        if size > at.size() { fail(MPI_ERR_DIMS) } else { Ok(()) }
    };
}

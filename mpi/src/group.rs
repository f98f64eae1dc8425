//! Groups of processes: lists of world ranks. All groups that a program holds are ours, but for the predefined ones.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::border::*;
use crate::world::{World, aside};
use mpi_ranks::sets;
use std::rc::Rc;

/// World ranks of a native communicator's members (of its local group).
pub fn members(world: &World, comm: MPI_Comm) -> Option<Vec<u32>> {
    if comm == handles().no_comm {
        return None;
    }
    let (native, mut group) = (native(), handles().no_group);
    if native.MPI_Comm_group(comm, &mut group) != MPI_SUCCESS {
        return None;
    }
    let ranks = world_ranks(world, group);
    native.MPI_Group_free(&mut group);
    Some(ranks)
}

/// World ranks of a native group.
fn world_ranks(world: &World, group: MPI_Group) -> Vec<u32> {
    let (native, mut all, mut size) = (native(), handles().no_group, 0);
    native.MPI_Group_size(group, &mut size);
    native.MPI_Comm_group(handles().world, &mut all);
    let ranks: Vec<Int> = (0..size).collect();
    let mut translated = vec![0; ranks.len()];
    native.MPI_Group_translate_ranks(group, size, ranks.as_ptr(), all, translated.as_mut_ptr());
    native.MPI_Group_free(&mut all);
    translated.into_iter().map(|rank| world.layout.world_rank(rank)).collect()
}

/// A native call on those of `ranks` that are in this group, in their order: groups that a program holds are ours.
pub fn with_native(world: &World, ranks: &[u32], call: impl FnOnce(MPI_Group) -> Int) -> Res {
    let mut group = native_group(world, ranks);
    let code = aside(|| call(group));
    native().MPI_Group_free(&mut group);
    check(code)
}

fn native_group(world: &World, ranks: &[u32]) -> MPI_Group {
    let (native, mut all, mut group) = (native(), handles().no_group, handles().no_group);
    let own: Vec<Int> = ranks.iter().filter_map(|rank| world.layout.native(*rank)).collect();
    native.MPI_Comm_group(handles().world, &mut all);
    native.MPI_Group_incl(all, own.len() as Int, own.as_ptr(), &mut group);
    native.MPI_Group_free(&mut all);
    group
}

/// How two lists of ranks compare.
pub fn comparison(a: &[u32], b: &[u32]) -> Int {
    if a == b {
        MPI_IDENT as Int
    } else if a.len() == b.len() && a.iter().all(|rank| b.contains(rank)) {
        MPI_SIMILAR as Int
    } else {
        MPI_UNEQUAL as Int
    }
}

impl World {
    /// Gives the program a handle for a list of world ranks.
    pub fn hold_group(&self, ranks: Vec<u32>) -> MPI_Group {
        if ranks.is_empty() { handles().empty_group } else { group_handle(self.groups.insert(Rc::new(ranks))) }
    }

    /// The world ranks of a group of the program's.
    pub fn group(&self, group: MPI_Group) -> Res<Rc<Vec<u32>>> {
        if group == handles().empty_group {
            return Ok(Rc::default());
        }
        match group_index(group) {
            Some(index) => self.groups.get(index).map_or_else(|| fail(MPI_ERR_GROUP), Ok),
            None if group == handles().no_group => fail(MPI_ERR_GROUP),
            None => Ok(Rc::new(world_ranks(self, group))),
        }
    }

    /// Turns a native group into one of ours, and frees it.
    pub fn adopt_group(&self, at: *mut MPI_Group) {
        let mut native_one = take(at);
        put(at, self.hold_group(world_ranks(self, native_one)));
        native().MPI_Group_free(&mut native_one);
    }
}

fn known(ranks: Option<Vec<u32>>) -> Res<Vec<u32>> {
    ranks.map_or_else(|| fail(MPI_ERR_RANK), Ok)
}

fn listed(ranges: &[[Int; 3]]) -> Res<Vec<Int>> {
    sets::listed(ranges).map_or_else(|| fail(MPI_ERR_ARG), Ok)
}

export! {
    fn MPI_Comm_group(comm: MPI_Comm, group: *mut MPI_Group) => |w| match w.find(comm) {
        Some(at) => {
            put(group, w.hold_group(at.members.clone()));
            Ok(())
        }
        None => {
            check(native().MPI_Comm_group(comm, group))?;
            w.adopt_group(group);
            Ok(())
        }
    };
    fn MPI_Comm_remote_group(comm: MPI_Comm, group: *mut MPI_Group) for comm => |w, at| match &at.remote {
        Some(remote) => {
            put(group, w.hold_group(remote.clone()));
            Ok(())
        }
        None => fail(MPI_ERR_COMM),
    };
    fn MPI_Group_size(group: MPI_Group, size: *mut Int) => |w| {
        put(size, w.group(group)?.len() as Int);
        Ok(())
    };
    fn MPI_Group_rank(group: MPI_Group, rank: *mut Int) => |w| {
        let found = w.group(group)?.iter().position(|other| *other == w.rank);
        put(rank, found.map_or(MPI_UNDEFINED, |at| at as Int));
        Ok(())
    };
    fn MPI_Group_free(group: *mut MPI_Group) => |w| {
        match group_index(take(group)) {
            Some(index) => drop(w.groups.remove(index)),
            None if take(group) == handles().empty_group => {}
            None => return check(native().MPI_Group_free(group)),
        }
        put(group, handles().no_group);
        Ok(())
    };
    fn MPI_Group_incl(group: MPI_Group, n: Int, ranks: *const Int, newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(known(sets::pick(&w.group(group)?, slice(ranks, n)))?));
        Ok(())
    };
    fn MPI_Group_excl(group: MPI_Group, n: Int, ranks: *const Int, newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(known(sets::without(&w.group(group)?, slice(ranks, n)))?));
        Ok(())
    };
    fn MPI_Group_range_incl(group: MPI_Group, n: Int, ranges: *mut [Int; 3], newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(known(sets::pick(&w.group(group)?, &listed(slice(ranges, n))?))?));
        Ok(())
    };
    fn MPI_Group_range_excl(group: MPI_Group, n: Int, ranges: *mut [Int; 3], newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(known(sets::without(&w.group(group)?, &listed(slice(ranges, n))?))?));
        Ok(())
    };
    fn MPI_Group_union(group1: MPI_Group, group2: MPI_Group, newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(sets::union(&w.group(group1)?, &w.group(group2)?)));
        Ok(())
    };
    fn MPI_Group_intersection(group1: MPI_Group, group2: MPI_Group, newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(sets::common(&w.group(group1)?, &w.group(group2)?)));
        Ok(())
    };
    fn MPI_Group_difference(group1: MPI_Group, group2: MPI_Group, newgroup: *mut MPI_Group) => |w| {
        put(newgroup, w.hold_group(sets::difference(&w.group(group1)?, &w.group(group2)?)));
        Ok(())
    };
    fn MPI_Group_compare(group1: MPI_Group, group2: MPI_Group, result: *mut Int) => |w| {
        put(result, comparison(&w.group(group1)?, &w.group(group2)?));
        Ok(())
    };
    fn MPI_Group_translate_ranks(group1: MPI_Group, n: Int, ranks1: *const Int, group2: MPI_Group, ranks2: *mut Int) => |w| {
        let (one, other) = (w.group(group1)?, w.group(group2)?);
        for (from, to) in slice(ranks1, n).iter().zip(slice_mut(ranks2, n)) {
            *to = match usize::try_from(*from) {
                _ if *from == MPI_PROC_NULL => MPI_PROC_NULL,
                Ok(at) if at < one.len() => {
                    other.iter().position(|rank| *rank == one[at]).map_or(MPI_UNDEFINED, |at| at as Int)
                }
                _ => return fail(MPI_ERR_RANK),
            };
        }
        Ok(())
    };
}

#[cfg(not(feature = "mpich"))]
mod numbers {
    use super::*;
    #[cfg(not(feature = "standard"))]
    numbers! { MPI_Group group_index group_handle: MPI_Group_c2f MPI_Group_f2c; }
    #[cfg(feature = "standard")]
    numbers! { MPI_Group group_index group_handle: MPI_Group_toint MPI_Group_fromint; }
}
#[cfg(not(feature = "mpich"))]
pub use numbers::EXPORTED as NUMBERS;

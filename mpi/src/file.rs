//! MPI-IO, served per group: each group opens the file natively, and all groups meet where one world would.
//!
//! The bytes land where one world would put them: every call says the place, follows the rank's own view, or is made by all
//! ranks in order. Only a rank that moves the shared pointer alone needs one world, and is refused.
// SPDX-License-Identifier: GPL-2.0-or-later

pub(crate) mod ordered;

use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::communicator::Comm;
use crate::world::natively;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_char;
use std::rc::Rc;

/// What to do instead of moving the pointer that all ranks of a file share.
pub(crate) const POINTER: &str = "give each write its place (MPI_File_write_at), or run without --ft-energy";

/// A file that several groups have open.
pub(crate) struct Open {
    comm: Rc<Comm>,
    pointer: ordered::Pointer,
}

/// Files that several groups have open.
#[derive(Default)]
pub struct Files(RefCell<HashMap<usize, Rc<Open>>>);

impl Files {
    /// Whether several groups have it open.
    pub fn spanning(&self, file: MPI_File) -> bool {
        self.0.borrow().contains_key(&(file as usize))
    }

    fn of(&self, file: MPI_File) -> Option<Rc<Open>> {
        self.0.borrow().get(&(file as usize)).cloned()
    }
}

/// Opens a file: the first group creates it, the others find it there.
fn open(world: W, at: &Rc<Comm>, name: *const c_char, mode: Int, info: MPI_Info, file: *mut MPI_File) -> Res {
    if mode & MPI_MODE_SEQUENTIAL as Int != 0 {
        return refuse("MPI_File_open with MPI_MODE_SEQUENTIAL", POINTER);
    }
    let first = at.own_group()[0] == 0;
    let created = MPI_MODE_CREATE as Int | MPI_MODE_EXCL as Int;
    let mut code = MPI_SUCCESS;
    world.carry_out(collective::gather(at.clone()))?;
    if first {
        code = natively(|| native().MPI_File_open(at.handle, name, mode, info, file));
    }
    let told = collective::gather_words(world, at, &[code])?;
    if told[0] == MPI_SUCCESS && !first {
        code = natively(|| native().MPI_File_open(at.handle, name, mode & !created, info, file));
    }
    // All groups have it open before one writes, which would move the end that MPI_MODE_APPEND asks for.
    let told = collective::gather_words(world, at, &[code])?;
    match told.iter().find(|code| **code != MPI_SUCCESS) {
        None => {
            let open = Open { comm: at.clone(), pointer: ordered::Pointer::of(take(file))? };
            world.files.0.borrow_mut().insert(take(file) as usize, Rc::new(open));
            Ok(())
        }
        Some(failed) => {
            // The native function that failed has called the handler of files, whose default returns.
            check(*failed)
        }
    }
}

fn meet(world: W, file: MPI_File) -> Res {
    match world.files.of(file) {
        Some(of) => world.carry_out(collective::barrier(world, of.comm.clone())),
        None => Ok(()),
    }
}

export! {
    fn MPI_File_open(comm: MPI_Comm, filename: *const c_char, amode: Int, info: MPI_Info, fh: *mut MPI_File) for comm => |w, at| {
        open(w, &at, filename, amode, info, fh)
    };
    fn MPI_File_close(fh: *mut MPI_File) => |w| {
        meet(w, take(fh))?;
        w.files.0.borrow_mut().remove(&(take(fh) as usize));
        check(natively(|| native().MPI_File_close(fh)))
    };
    fn MPI_File_sync(fh: MPI_File) => |w| {
        meet(w, fh)?;
        check(natively(|| native().MPI_File_sync(fh)))?;
        meet(w, fh)
    };
    fn MPI_File_set_size(fh: MPI_File, size: MPI_Offset) => |w| {
        meet(w, fh)?;
        check(natively(|| native().MPI_File_set_size(fh, size)))?;
        meet(w, fh)
    };
    fn MPI_File_preallocate(fh: MPI_File, size: MPI_Offset) => |w| {
        meet(w, fh)?;
        check(natively(|| native().MPI_File_preallocate(fh, size)))?;
        meet(w, fh)
    };
    fn MPI_File_get_group(fh: MPI_File, group: *mut MPI_Group) => |w| match w.files.of(fh) {
        Some(of) => {
            put(group, w.hold_group(of.comm.members.clone()));
            Ok(())
        }
        None => {
            check(native().MPI_File_get_group(fh, group))?;
            w.adopt_group(group);
            Ok(())
        }
    };
}

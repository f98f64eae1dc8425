//! MPI-IO, served per group: each group opens the file natively, and all groups meet where one world would.
//!
//! The bytes land where one world would put them: every call says the place, follows the rank's own view, or is made by all
//! ranks in order. Only a rank that moves the shared pointer alone needs one world, and is refused.
// SPDX-License-Identifier: GPL-2.0-or-later

pub(crate) mod ordered;

use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W, Within};
use crate::communicator::Comm;
use crate::world::natively;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::rc::Rc;

/// What to do instead of moving the pointer that all ranks of a file share.
pub(crate) const POINTER: &str = "give each write its place (MPI_File_write_at), or run without --ft-energy";

/// What ROMIO is told of a file of several groups: it is not to read and write back what lies between a rank's own bytes,
/// which another group may write at the same time.
const HINTS: [(&CStr, &CStr); 2] = [(c"romio_cb_write", c"disable"), (c"romio_ds_write", c"disable")];

/// Calls with the program's hints and [`HINTS`], if several groups have the file open.
pub(crate) fn with_hints(spans: bool, mut info: MPI_Info, call: impl FnOnce(MPI_Info) -> Int) -> Res {
    if !spans {
        return check(natively(|| call(info)));
    }
    let native = native();
    let given = info;
    check(if given == handles().no_info {
        native.MPI_Info_create(&mut info)
    } else {
        native.MPI_Info_dup(given, &mut info)
    })?;
    for (key, value) in HINTS {
        native.MPI_Info_set(info, key.as_ptr(), value.as_ptr());
    }
    let code = natively(|| call(info));
    native.MPI_Info_free(&mut info);
    check(code)
}

/// A file that several groups have open.
pub(crate) struct Open {
    comm: Rc<Comm>,
    /// How the program has opened it.
    mode: Int,
    pointer: ordered::Pointer,
}

/// Files that are open.
#[derive(Default)]
pub struct Files {
    /// By several groups.
    of_several: RefCell<HashMap<usize, Rc<Open>>>,
    /// By ranks of this group alone.
    of_one: Within,
}

impl Files {
    /// Whether several groups have it open.
    pub fn spanning(&self, file: MPI_File) -> bool {
        self.of_several.borrow().contains_key(&(file as usize))
    }

    fn of(&self, file: MPI_File) -> Option<Rc<Open>> {
        self.of_several.borrow().get(&(file as usize)).cloned()
    }
}

/// Opens a file: the first group creates it, the others find it there.
fn open(world: W, at: &Rc<Comm>, name: *const c_char, mode: Int, info: MPI_Info, file: *mut MPI_File) -> Res {
    if mode & MPI_MODE_SEQUENTIAL as Int != 0 {
        return refuse("MPI_File_open with MPI_MODE_SEQUENTIAL", POINTER);
    }
    // A group that goes back alone would read what others have written since, and take back what they have added.
    world.vary();
    let first = at.own_group()[0] == 0;
    let created = MPI_MODE_CREATE as Int | MPI_MODE_EXCL as Int;
    let mut code = MPI_SUCCESS;
    let opened = |mode| with_hints(true, info, |info| native().MPI_File_open(at.handle, name, mode, info, file));
    let open = |mode| opened(mode).err().map_or(MPI_SUCCESS, |fault| fault.code);
    world.carry_out(collective::gather(at.clone()))?;
    if first {
        code = open(mode);
    }
    let told = collective::gather_words(world, at, &[code])?;
    if told[0] == MPI_SUCCESS && !first {
        code = open(mode & !created);
    }
    // All groups have it open before one writes, which would move the end that MPI_MODE_APPEND asks for.
    let told = collective::gather_words(world, at, &[code])?;
    match told.iter().find(|code| **code != MPI_SUCCESS) {
        None => {
            let open = Open { comm: at.clone(), mode, pointer: ordered::Pointer::of(take(file))? };
            world.files.of_several.borrow_mut().insert(take(file) as usize, Rc::new(open));
            Ok(())
        }
        // The native function that failed has called the handler of files, whose default returns.
        Some(failed) => check(*failed),
    }
}

fn meet(world: W, file: MPI_File) -> Res {
    match world.files.of(file) {
        Some(of) => world.carry_out(collective::barrier(world, of.comm.clone())),
        None => gather(world, file),
    }
}

/// A call before and after which all ranks of the file meet.
fn between(world: W, file: MPI_File, call: impl FnOnce() -> Int) -> Res {
    meet(world, file)?;
    check(natively(call))?;
    meet(world, file)
}

/// All ranks of this group come, so that none waits in a native call for one who is kept up by another group.
pub(crate) fn gather(world: W, file: MPI_File) -> Res {
    if let Some(of) = world.files.of(file) {
        return world.carry_out(collective::gather(of.comm.clone()));
    }
    world.files.of_one.meet(world, file as usize);
    Ok(())
}

/// Calls that all ranks make, which the native library carries out.
macro_rules! together {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        mod together {
            use super::*;
            use std::ffi::c_void;
            export! {
                $(fn $name(fh: MPI_File, $($arg: $type),*) => |w| {
                    gather(w, fh)?;
                    check(natively(|| native().$name(fh, $($arg),*)))
                };)*
            }
        }
        pub use together::EXPORTED as TOGETHER;
    };
}
together! {
    MPI_File_set_atomicity(flag: Int);
    MPI_File_read_all(buf: *mut c_void, count: Int, datatype: MPI_Datatype, status: *mut MPI_Status);
    MPI_File_write_all(buf: *const c_void, count: Int, datatype: MPI_Datatype, status: *mut MPI_Status);
    MPI_File_read_at_all(offset: MPI_Offset, buf: *mut c_void, count: Int, datatype: MPI_Datatype, status: *mut MPI_Status);
    MPI_File_write_at_all(offset: MPI_Offset, buf: *const c_void, count: Int, datatype: MPI_Datatype, status: *mut MPI_Status);
}

export! {
    fn MPI_File_open(comm: MPI_Comm, filename: *const c_char, amode: Int, info: MPI_Info, fh: *mut MPI_File) => |w| {
        if let Some(at) = w.find(comm) {
            return told_by(comm, open(w, &at, filename, amode, info, fh));
        }
        let open = || natively(|| native().MPI_File_open(comm, filename, amode, info, fh));
        w.files.of_one.open(w, comm, open, || take(fh) as usize)
    };
    fn MPI_File_close(fh: *mut MPI_File) => |w| {
        meet(w, take(fh))?;
        let _closed = w.files.of_several.borrow_mut().remove(&(take(fh) as usize));
        w.files.of_one.close(take(fh) as usize);
        check(natively(|| native().MPI_File_close(fh)))
    };
    fn MPI_File_sync(fh: MPI_File) => |w| between(w, fh, || native().MPI_File_sync(fh));
    fn MPI_File_set_size(fh: MPI_File, size: MPI_Offset) => |w| between(w, fh, || native().MPI_File_set_size(fh, size));
    fn MPI_File_preallocate(fh: MPI_File, size: MPI_Offset) => |w| between(w, fh, || native().MPI_File_preallocate(fh, size));
    fn MPI_File_set_info(fh: MPI_File, info: MPI_Info) => |w| {
        gather(w, fh)?;
        with_hints(w.files.spanning(fh), info, |info| native().MPI_File_set_info(fh, info))
    };
    fn MPI_File_get_amode(fh: MPI_File, amode: *mut Int) => |w| match w.files.of(fh) {
        Some(of) => {
            put(amode, of.mode);
            Ok(())
        }
        None => check(native().MPI_File_get_amode(fh, amode)),
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

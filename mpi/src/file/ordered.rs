//! The file pointer that all ranks share, for the calls that all ranks make together.
//!
//! Each of these calls moves the pointer by the same on every rank. So every rank keeps it, and no process has to: ranks tell each
//! other how much each of them reads or writes, and each gives its own place to the native library. What a rank would do with
//! the pointer alone (`MPI_File_write_shared`) needs one place for all, which would not go back with a group: it is refused.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::Open;
use crate::abi::*;
use crate::border::*;
use crate::collective::{self, W};
use crate::datatype::size;
use crate::world::natively;
use std::cell::Cell;
use std::ffi::{c_char, c_void};

/// The shared pointer of a file, as a rank keeps it.
pub(super) struct Pointer {
    /// Where it is, in elementary types of the view.
    at: Cell<MPI_Offset>,
    /// Bytes of an elementary type.
    element_bytes: Cell<u64>,
}

impl Pointer {
    /// That of a file that was opened just now: at its end in `MPI_MODE_APPEND`, where each rank's own is as well.
    pub(super) fn of(file: MPI_File) -> Res<Pointer> {
        Ok(Pointer { at: Cell::new(own(file)?), element_bytes: Cell::new(1) })
    }
}

/// An error of ours, of which the file's error handler hears.
fn fail_at(file: MPI_File, code: Int) -> Res {
    native().MPI_File_call_errhandler(file, code);
    check(code)
}

/// Where this rank's own pointer is.
fn own(file: MPI_File) -> Res<MPI_Offset> {
    let mut at = 0;
    check(native().MPI_File_get_position(file, &raw mut at))?;
    Ok(at)
}

/// Where `offset` from the end of the file is, in this rank's view.
fn from_the_end(file: MPI_File, offset: MPI_Offset) -> Res<MPI_Offset> {
    let before = own(file)?;
    check(native().MPI_File_seek(file, offset, MPI_SEEK_END as Int))?;
    let end = own(file);
    check(native().MPI_File_seek(file, before, MPI_SEEK_SET as Int))?;
    end
}

/// What each rank says of a number, in the order of ranks.
fn said(world: W, of: &Open, number: i64) -> Res<Vec<i64>> {
    let own = [number as Int, (number >> 32) as Int];
    let all = collective::gather_words(world, &of.comm, &own)?;
    Ok(all.chunks_exact(2).map(|of| i64::from(of[1]) << 32 | i64::from(of[0] as u32)).collect())
}

/// The place of this rank's `count` elements, if several groups have the file open; the pointer goes behind those of all ranks.
fn place(world: W, file: MPI_File, count: Int, datatype: MPI_Datatype) -> Res<Option<MPI_Offset>> {
    let Some(of) = world.files.of(file) else { return Ok(None) };
    let elements = count.max(0) as u64 * size(datatype) / of.pointer.element_bytes.get().max(1);
    let all = said(world, &of, elements as i64)?;
    let from = of.pointer.at.get();
    of.pointer.at.set(from + all.iter().sum::<i64>());
    Ok(Some(from + all[..of.comm.rank].iter().sum::<i64>()))
}

/// Sets the pointer where all ranks ask for it.
fn seek(world: W, file: MPI_File, of: &Open, offset: MPI_Offset, whence: Int) -> Res {
    const SET: Int = MPI_SEEK_SET as Int;
    const CURRENT: Int = MPI_SEEK_CUR as Int;
    const END: Int = MPI_SEEK_END as Int;
    let at = match whence {
        SET => offset,
        CURRENT => of.pointer.at.get() + offset,
        END => {
            // What others wrote before is in the file, and nobody writes more before all have seen its end.
            super::meet(world, file)?;
            let end = from_the_end(file, offset);
            let all = said(world, of, *end.as_ref().unwrap_or(&-1))?;
            end?;
            all[0]
        }
        _ => return fail_at(file, MPI_ERR_ARG),
    };
    if at < 0 {
        return fail_at(file, MPI_ERR_ARG);
    }
    of.pointer.at.set(at);
    Ok(())
}

export! {
    fn MPI_File_set_view(file: MPI_File, disp: MPI_Offset, etype: MPI_Datatype, filetype: MPI_Datatype, datarep: *const c_char, info: MPI_Info) => |w| {
        crate::file::gather(w, file)?;
        let set = |info| native().MPI_File_set_view(file, disp, etype, filetype, datarep, info);
        crate::file::with_hints(w.files.spanning(file), info, set)?;
        if let Some(of) = w.files.of(file) {
            of.pointer.at.set(0);
            of.pointer.element_bytes.set(size(etype));
        }
        Ok(())
    };
    fn MPI_File_seek_shared(file: MPI_File, offset: MPI_Offset, whence: Int) => |w| match w.files.of(file) {
        Some(of) => seek(w, file, &of, offset, whence),
        None => check(natively(|| native().MPI_File_seek_shared(file, offset, whence))),
    };
    fn MPI_File_get_position_shared(file: MPI_File, offset: *mut MPI_Offset) => |w| match w.files.of(file) {
        Some(of) => {
            put(offset, of.pointer.at.get());
            Ok(())
        }
        None => check(natively(|| native().MPI_File_get_position_shared(file, offset))),
    };
}

/// Calls that all ranks make in order: each at its own place where several groups have the file open.
macro_rules! in_order {
    ($($name:ident $at_all:ident($buf:ty $(, $status:ident)?);)* / $($end:ident $all_end:ident($ended:ty);)*) => {
        mod in_order {
            use super::*;
            export! {
                $(fn $name(file: MPI_File, buf: $buf, count: Int, datatype: MPI_Datatype $(, $status: *mut MPI_Status)?) => |w| {
                    let at = place(w, file, count, datatype)?;
                    check(natively(|| match at {
                        Some(at) => native().$at_all(file, at, buf, count, datatype $(, $status)?),
                        None => native().$name(file, buf, count, datatype $(, $status)?),
                    }))
                };)*
                $(fn $end(file: MPI_File, buf: $ended, status: *mut MPI_Status) => |w| {
                    let spans = w.files.spanning(file);
                    check(natively(|| match spans {
                        true => native().$all_end(file, buf, status),
                        false => native().$end(file, buf, status),
                    }))
                };)*
            }
        }
        pub use in_order::EXPORTED as IN_ORDER;
    };
}
in_order! {
    MPI_File_read_ordered MPI_File_read_at_all(*mut c_void, status);
    MPI_File_write_ordered MPI_File_write_at_all(*const c_void, status);
    MPI_File_read_ordered_begin MPI_File_read_at_all_begin(*mut c_void);
    MPI_File_write_ordered_begin MPI_File_write_at_all_begin(*const c_void);
    /
    MPI_File_read_ordered_end MPI_File_read_at_all_end(*mut c_void);
    MPI_File_write_ordered_end MPI_File_write_at_all_end(*const c_void);
}

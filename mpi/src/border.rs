//! The border to the program: how a function of MPI is exported, and how the program's memory is read and written.
//!
//! Nothing that goes wrong unwinds into the program: a panic is told and ends the program through `MPI_Abort`.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::abi::*;
use crate::world;
pub use mpi_abi::memory::{moved, put, slice, slice_mut, take};
use std::panic::AssertUnwindSafe;

/// Why a call failed.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// MPI's error class or code.
    pub code: Int,
    /// The error handler has been called already: by the native function that failed.
    pub told: bool,
}

/// What a call returns inside this crate.
pub type Res<T = ()> = Result<T, Fault>;

/// An error of ours, of which the communicator's error handler is to hear.
pub fn fail<T>(code: Int) -> Res<T> {
    Err(Fault { code, told: false })
}

/// What a native function returned.
pub fn check(code: Int) -> Res {
    if code == MPI_SUCCESS { Ok(()) } else { Err(Fault { code, told: true }) }
}

/// The same of a function on a communicator of ours, which returns its errors: no handler has heard of it.
pub fn untold(code: Int) -> Res {
    if code == MPI_SUCCESS { Ok(()) } else { fail(code) }
}

/// Runs a call of the program's, and says its end as MPI does: the error handler of `comm` is called once.
pub fn enter(name: &'static str, comm: Option<MPI_Comm>, call: impl FnOnce() -> Res) -> Int {
    match std::panic::catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => MPI_SUCCESS,
        Ok(Err(fault)) => {
            if !fault.told {
                native().MPI_Comm_call_errhandler(comm.unwrap_or(handles().world), fault.code);
            }
            fault.code
        }
        Err(_) => {
            mpi_abi::fallback::note(&format!("Joulepoint's library for MPI failed in {name}"));
            world::end(1, &format!("a fault of the library in {name}, of which the line above tells"));
        }
    }
}

/// The end of a call on a communicator, whose handler of errors hears of what failed.
pub fn told_by(comm: MPI_Comm, end: Res) -> Res {
    tell(end, |code| native().MPI_Comm_call_errhandler(comm, code))
}

/// The end of a call, of which a handler of errors hears if it has not yet.
pub fn tell(end: Res, handler: impl FnOnce(Int) -> Int) -> Res {
    match end {
        Err(fault) if !fault.told => {
            handler(fault.code);
            check(fault.code)
        }
        end => end,
    }
}

/// Tells why a function is refused; the program's error handler hears of it.
pub fn refuse<T>(function: &str, instead: &str) -> Res<T> {
    let rank = world::get().map_or(0, |world| world.rank);
    mpi_abi::fallback::note(&format!("it calls {function}, which is not served between nodes"));
    eprintln!("joulepoint: rank {rank}: {function} is not possible over recovery groups: {instead}");
    fail(MPI_ERR_UNSUPPORTED_OPERATION)
}

/// Exports functions of MPI under both of their names.
///
/// `fn NAME(arguments) => |world| body`: the body is run where the program runs over groups, the native function where
/// it does not. With `on comm`, that communicator's handler hears of errors. With `for comm`, the body is run only for
/// a communicator of ours: `|world, comm|`. With `returns`, the body's value is what the function returns. With `always`, the body is run in any case.
macro_rules! export {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $($how:ident $($of:ident)?)? => |$($at:ident),*| $body:expr;)*) => {
        /// The functions that this module defines.
        pub const EXPORTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[allow(clippy::missing_docs_in_private_items, unused_imports)]
            mod $name {
                use super::*;
                border_function!($($how $($of)?)?; $name($($arg: $type),*) |$($at),*| $body);
            }
        )*
    };
}

/// The numbers that other languages have for handles, of which some are ours.
#[cfg(not(feature = "mpich"))]
macro_rules! numbers {
    ($($type:ident $index:ident $handle:ident: $to:ident $from:ident;)*) => {
        export! { $(
            fn $to(handle: $type) returns Int => |_w| match $index(handle) {
                Some(index) => fortran_number(index),
                None => native().$to(handle),
            };
            fn $from(number: Int) returns $type => |_w| match fortran_index(number) {
                Some(index) => $handle(index),
                None => native().$from(number),
            };
        )* }
    };
}

macro_rules! border_function {
    // On any communicator.
    (; $name:ident($($arg:ident: $type:ty),*) |$w:ident| $body:expr) => {
        border_function!(@names Int; $name($($arg: $type),*) {
            match crate::world::get() {
                Some($w) => {
                    let _inside = $w.enter();
                    crate::border::enter(stringify!($name), None, || $body)
                }
                None => native().$name($($arg),*),
            }
        });
    };
    // On any communicator, whose handler hears of what failed.
    (on $comm:ident; $name:ident($($arg:ident: $type:ty),*) |$w:ident| $body:expr) => {
        border_function!(; $name($($arg: $type),*) |$w| {
            let body = || $body;
            crate::border::told_by($comm, body())
        });
    };
    // On a communicator of ours.
    (for $comm:ident; $name:ident($($arg:ident: $type:ty),*) |$w:ident, $at:ident| $body:expr) => {
        border_function!(@names Int; $name($($arg: $type),*) {
            match crate::world::get().and_then(|world| Some((world.enter(), world, world.find($comm)?))) {
                Some((_inside, $w, $at)) => crate::border::enter(stringify!($name), Some($comm), || $body),
                None => native().$name($($arg),*),
            }
        });
    };
    // Collective on a native communicator, or on one of ours.
    (collective $comm:ident; $name:ident($($arg:ident: $type:ty),*) |$w:ident, $at:ident| $body:expr) => {
        border_function!(@names Int; $name($($arg: $type),*) {
            let Some($w) = crate::world::get() else { return native().$name($($arg),*) };
            let inside = $w.enter();
            match $w.find($comm) {
                Some($at) => crate::border::enter(stringify!($name), Some($comm), || $body),
                None => {
                    crate::collective::meet($w, $comm);
                    drop(inside);
                    native().$name($($arg),*)
                }
            }
        });
    };
    // On a window of several groups.
    (window $win:ident; $name:ident($($arg:ident: $type:ty),*) |$w:ident, $at:ident| $body:expr) => {
        border_function!(@names Int; $name($($arg: $type),*) {
            match crate::world::get().and_then(|world| Some((world.enter(), world, world.windows.find($win)?))) {
                Some((_inside, $w, $at)) => crate::border::enter(stringify!($name), None, || {
                    // One that only polls its own memory serves the others, too.
                    $w.progress();
                    crate::window::told($win, $body)
                }),
                None => native().$name($($arg),*),
            }
        });
    };
    (always; $name:ident($($arg:ident: $type:ty),*) |$none:ident| $body:expr) => {
        border_function!(@names Int; $name($($arg: $type),*) { crate::border::enter(stringify!($name), None, || $body) });
    };
    (returns $ret:ident; $name:ident($($arg:ident: $type:ty),*) |$w:ident| $body:expr) => {
        border_function!(@names $ret; $name($($arg: $type),*) {
            match crate::world::get() {
                Some($w) => {
                    let _inside = $w.enter();
                    $body
                }
                None => native().$name($($arg),*),
            }
        });
    };
    (@names $ret:ty; $name:ident($($arg:ident: $type:ty),*) $body:block) => {
        // Neither of the exported ones calls the other: a program or a tool may have one of that name, which stands before ours.
        #[allow(clippy::too_many_arguments, reason = "those of mpi.h")]
        fn body($($arg: $type),*) -> $ret $body

        // SAFETY: the name and the signature are those of mpi.h, whose definition this one stands before.
        #[unsafe(export_name = stringify!($name))]
        pub extern "C" fn entry($($arg: $type),*) -> $ret {
            body($($arg),*)
        }

        // SAFETY: as above, for the profiling name, by which Open MPI's Fortran layer calls.
        #[unsafe(export_name = concat!("P", stringify!($name)))]
        pub extern "C" fn profiled($($arg: $type),*) -> $ret {
            body($($arg),*)
        }
    };
}

/// Writes a status, unless the program wants none; its error field is the program's, as MPI says.
pub fn put_status(at: *mut MPI_Status, mut status: MPI_Status) {
    if !ignored(at) && !at.is_null() {
        status.MPI_ERROR = take(at).MPI_ERROR;
        put(at, status);
    }
}

/// The status at `index` of an array of them, or none if the program wants none.
pub fn status_at(array: *mut MPI_Status, index: usize) -> *mut MPI_Status {
    // SAFETY: an element of the program's array; the address is not read here.
    if ignored(array) { array } else { unsafe { array.add(index) } }
}

//! MPICH's handles: numbers, of which the upper bits say the kind. Those of ours use predefined numbers that MPICH
//! has none of.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::mpich::*;
use crate::{Int, variable};
use mpi_ranks::slots::SLOTS;
use std::ffi::{CStr, c_void};

/// What the library is called: Debian's, and everybody else's.
pub const LIBRARIES: &[&CStr] = &[c"libmpich.so.12", c"libmpi.so.12"];

crate::library!();

/// `MPI_IN_PLACE`.
pub const IN_PLACE: *const c_void = usize::MAX as *const c_void;

crate::handles::predefined! {}

/// The handles.
#[inline]
pub fn handles() -> &'static Handles {
    &Handles {
        world: 0x4400_0000,
        own: 0x4400_0001,
        no_comm: 0x0400_0000,
        no_request: 0x2c00_0000,
        no_group: 0x0800_0000,
        empty_group: 0x4800_0000,
        no_message: 0x2c00_0000,
        no_process: 0x6c00_0000,
        no_type: 0x0c00_0000,
        no_op: 0x1800_0000,
        replace: 0x5800_000d,
        no_operation: 0x5800_000e,
        byte: 0x4c00_010d,
        packed: 0x4c00_010f,
        no_info: 0x1c00_0000,
        errors_return: 0x5400_0001,
    }
}

const REQUESTS: Int = 0x6e00_0000;
const GROUPS: Int = 0x4a00_0000;

fn index(begin: Int, handle: Int) -> Option<u32> {
    (begin..begin + SLOTS as Int).contains(&handle).then(|| (handle - begin) as u32)
}

/// The handle of our request `index`.
pub fn request_handle(index: u32) -> MPI_Request {
    REQUESTS + index as Int
}

/// Which of our requests a handle is, or `None` if it is native.
#[inline]
pub fn request_index(handle: MPI_Request) -> Option<u32> {
    index(REQUESTS, handle)
}

/// The handle of our group `index`.
pub fn group_handle(index: u32) -> MPI_Group {
    GROUPS + index as Int
}

/// Which of our groups a handle is, or `None` if it is native.
#[inline]
pub fn group_index(handle: MPI_Group) -> Option<u32> {
    index(GROUPS, handle)
}

/// The handle of our message `index`.
pub fn message_handle(index: u32) -> MPI_Message {
    REQUESTS + index as Int
}

/// Which of our messages a handle is, or `None` if it is native.
#[inline]
pub fn message_index(handle: MPI_Message) -> Option<u32> {
    index(REQUESTS, handle)
}

/// A status of `bytes` bytes from `source`; the error field is success.
#[must_use]
pub fn status(source: Int, tag: Int, bytes: u64, cancelled: bool) -> MPI_Status {
    MPI_Status {
        count_lo: bytes as u32 as Int,
        count_hi_and_cancelled: ((bytes >> 32) as Int) << 1 | Int::from(cancelled),
        MPI_SOURCE: source,
        MPI_TAG: tag,
        MPI_ERROR: MPI_SUCCESS,
    }
}

/// Whether the program asked for no status.
#[inline]
pub fn ignored(status: *const MPI_Status) -> bool {
    status as usize == 1
}

/// `MPI_STATUS_IGNORE`.
#[must_use]
#[inline]
pub fn no_status() -> *mut MPI_Status {
    std::ptr::without_provenance_mut(1)
}

/// The address that a marker such as `MPI_UNWEIGHTED` holds.
pub fn marker(name: &CStr) -> *const Int {
    let at = variable(LIBRARIES, name).cast::<*const Int>();
    // SAFETY: a constant of the library that holds an address.
    if at.is_null() { std::ptr::null() } else { unsafe { *at } }
}

/// The number of a predefined operation, the same in all ranks.
pub fn operation_number(operation: MPI_Op) -> i32 {
    operation
}

/// Whether an operation is one of MPI's own.
pub fn is_predefined(operation: MPI_Op) -> bool {
    operation.cast_unsigned() >> 30 == 1
}

/// The operation of a number.
pub fn operation_of(number: i32) -> MPI_Op {
    number
}

/// The number of a predefined type, the same in all ranks.
pub fn type_number(datatype: MPI_Datatype) -> i32 {
    datatype
}

/// The type of a number.
pub fn type_of(number: i32) -> MPI_Datatype {
    number
}

//! Handles of MPI 5's standard ABI: the predefined ones are small numbers in the place of addresses. Those of ours lie in one reserved
//! range of addresses each kind.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::standard::*;
use crate::{Int, Kind};
use mpi_ranks::slots::SLOTS;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// What the library is called.
pub const LIBRARIES: &[&CStr] = &[c"libmpi_abi.so.1", c"libmpi_abi.so.0"];

crate::library!();

/// `MPI_IN_PLACE`.
pub const IN_PLACE: *const c_void = std::ptr::without_provenance(1);

crate::handles::predefined! {
    /// Addresses that hold nothing of anybody else.
    range: usize,
}

crate::handles::addresses!(1);

/// The handle of an object of ours: nobody reads what is there.
fn numbered(kind: Kind, index: u32) -> usize {
    address(kind, index)
}

/// The handles.
#[inline]
pub fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(|| Handles {
        world: std::ptr::without_provenance_mut(0x101),
        own: std::ptr::without_provenance_mut(0x102),
        no_comm: std::ptr::without_provenance_mut(0x100),
        no_request: std::ptr::without_provenance_mut(0x180),
        no_group: std::ptr::without_provenance_mut(0x108),
        empty_group: std::ptr::without_provenance_mut(0x109),
        no_message: std::ptr::without_provenance_mut(0x128),
        no_process: std::ptr::without_provenance_mut(0x129),
        no_type: std::ptr::without_provenance_mut(0x200),
        no_op: std::ptr::without_provenance_mut(0x20),
        replace: std::ptr::without_provenance_mut(0x3c),
        no_operation: std::ptr::without_provenance_mut(0x3d),
        byte: std::ptr::without_provenance_mut(0x247),
        packed: std::ptr::without_provenance_mut(0x207),
        no_info: std::ptr::without_provenance_mut(0x130),
        errors_return: std::ptr::without_provenance_mut(0x143),
        range: range(),
    })
}

/// Predefined handles are smaller than this: the ABI's zero page.
const PREDEFINED: usize = 4096;

/// A status of `bytes` bytes from `source`; the error field is success.
#[must_use]
pub fn status(source: Int, tag: Int, bytes: u64, cancelled: bool) -> MPI_Status {
    let mut status = MPI_Status { MPI_SOURCE: source, MPI_TAG: tag, MPI_ERROR: MPI_SUCCESS, MPI_internal: [0; 5] };
    // What is internal is the native library's affair.
    native().MPI_Status_set_elements_x(&mut status, handles().byte, bytes as MPI_Count);
    native().MPI_Status_set_cancelled(&mut status, cancelled.into());
    status
}

/// `MPI_UNWEIGHTED`; `MPI_WEIGHTS_EMPTY` is the next.
pub const UNWEIGHTED: usize = 10;

/// The number of a predefined operation, the same in all ranks.
pub fn operation_number(operation: MPI_Op) -> i32 {
    operation as usize as i32
}

/// Whether an operation is one of MPI's own.
pub fn is_predefined(operation: MPI_Op) -> bool {
    (operation as usize) < PREDEFINED
}

/// The operation of a number.
pub fn operation_of(number: i32) -> MPI_Op {
    number as usize as MPI_Op
}

/// The number of a predefined type, the same in all ranks.
pub fn type_number(datatype: MPI_Datatype) -> i32 {
    datatype as usize as i32
}

/// The type of a number.
pub fn type_of(number: i32) -> MPI_Datatype {
    number as usize as MPI_Datatype
}

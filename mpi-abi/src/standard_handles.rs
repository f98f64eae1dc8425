//! Handles of MPI 5's standard ABI: the predefined ones are small numbers in the place of addresses. Those of ours lie in one reserved
//! range of addresses each kind.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::standard::*;
use crate::{Int, Kind, reserve};
use mpi_ranks::slots::SLOTS;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// What the library is called.
pub const LIBRARIES: &[&CStr] = &[c"libmpi_abi.so.1", c"libmpi_abi.so.0"];

crate::library!();

/// `MPI_IN_PLACE`.
pub const IN_PLACE: *const c_void = std::ptr::without_provenance(1);

/// The predefined handles.
pub struct Handles {
    /// `MPI_COMM_WORLD`.
    pub world: MPI_Comm,
    /// `MPI_COMM_SELF`.
    pub own: MPI_Comm,
    /// `MPI_COMM_NULL`.
    pub no_comm: MPI_Comm,
    /// `MPI_REQUEST_NULL`.
    pub no_request: MPI_Request,
    /// `MPI_GROUP_NULL`.
    pub no_group: MPI_Group,
    /// `MPI_GROUP_EMPTY`.
    pub empty_group: MPI_Group,
    /// `MPI_MESSAGE_NULL`.
    pub no_message: MPI_Message,
    /// `MPI_MESSAGE_NO_PROC`.
    pub no_process: MPI_Message,
    /// `MPI_DATATYPE_NULL`.
    pub no_type: MPI_Datatype,
    /// `MPI_OP_NULL`.
    pub no_op: MPI_Op,
    /// `MPI_REPLACE`.
    pub replace: MPI_Op,
    /// `MPI_NO_OP`.
    pub no_operation: MPI_Op,
    /// `MPI_BYTE`.
    pub byte: MPI_Datatype,
    /// `MPI_PACKED`.
    pub packed: MPI_Datatype,
    /// `MPI_INFO_NULL`.
    pub no_info: MPI_Info,
    /// `MPI_ERRORS_RETURN`.
    pub errors_return: MPI_Errhandler,
    /// Addresses that hold nothing of anybody else.
    range: usize,
}

// SAFETY: addresses that are only compared and handed on.
unsafe impl Send for Handles {}
// SAFETY: as above; nothing here is written after it was made.
unsafe impl Sync for Handles {}

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
        range: reserve(SLOTS * 3),
    })
}

/// Predefined handles are smaller than this: the ABI's zero page.
const PREDEFINED: usize = 4096;

fn address(kind: Kind, index: u32) -> usize {
    handles().range + SLOTS * kind as usize + index as usize
}

fn index(kind: Kind, handle: usize) -> Option<u32> {
    let offset = handle.wrapping_sub(handles().range + SLOTS * kind as usize);
    (offset < SLOTS).then_some(offset as u32)
}

/// The handle of our request `index`.
pub fn request_handle(index: u32) -> MPI_Request {
    address(Kind::Request, index) as MPI_Request
}

/// Which of our requests a handle is, or `None` if it is native.
#[inline]
pub fn request_index(handle: MPI_Request) -> Option<u32> {
    index(Kind::Request, handle as usize)
}

/// The handle of our group `index`.
pub fn group_handle(index: u32) -> MPI_Group {
    address(Kind::Group, index) as MPI_Group
}

/// Which of our groups a handle is, or `None` if it is native.
#[inline]
pub fn group_index(handle: MPI_Group) -> Option<u32> {
    index(Kind::Group, handle as usize)
}

/// The handle of our message `index`.
pub fn message_handle(index: u32) -> MPI_Message {
    address(Kind::Message, index) as MPI_Message
}

/// Which of our messages a handle is, or `None` if it is native.
#[inline]
pub fn message_index(handle: MPI_Message) -> Option<u32> {
    index(Kind::Message, handle as usize)
}

/// A status of `bytes` bytes from `source`; the error field is success.
#[must_use]
pub fn status(source: Int, tag: Int, bytes: u64, cancelled: bool) -> MPI_Status {
    let mut status = MPI_Status { MPI_SOURCE: source, MPI_TAG: tag, MPI_ERROR: MPI_SUCCESS, MPI_internal: [0; 5] };
    // What is internal is the native library's affair.
    native().MPI_Status_set_elements_x(&mut status, handles().byte, bytes as MPI_Count);
    native().MPI_Status_set_cancelled(&mut status, cancelled.into());
    status
}

/// Whether the program asked for no status.
#[inline]
pub fn ignored(status: *const MPI_Status) -> bool {
    status.is_null()
}

/// `MPI_STATUS_IGNORE`.
#[must_use]
#[inline]
pub fn no_status() -> *mut MPI_Status {
    std::ptr::null_mut()
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

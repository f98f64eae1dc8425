//! Open MPI's handles: addresses. Those of ours lie in one reserved range of addresses each kind.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::openmpi::*;
use crate::{Int, Kind, fortran_number, variable};
use mpi_ranks::slots::SLOTS;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

/// What the library is called.
pub const LIBRARIES: &[&CStr] = &[c"libmpi.so.40"];

crate::library!();

/// Fortran's integers; a macro in `mpi.h`.
#[allow(non_camel_case_types, reason = "MPI's name")]
pub type MPI_Fint = Int;

/// `MPI_IN_PLACE`.
pub const IN_PLACE: *const c_void = std::ptr::without_provenance(1);

/// Bytes from one of our handles to the next: more than any struct of Open MPI's whose fields its Fortran layer reads.
const STRIDE: usize = 256;

crate::handles::predefined! {
    /// Addresses that hold nothing of anybody else.
    range: usize,
    /// Where requests and groups keep their Fortran number, in bytes, once it has been found.
    fortran: OnceLock<[Option<usize>; 2]>,
}

crate::handles::addresses!(STRIDE);

/// The handles, looked up once.
#[inline]
pub fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(|| Handles {
        world: variable(LIBRARIES, c"ompi_mpi_comm_world").cast(),
        own: variable(LIBRARIES, c"ompi_mpi_comm_self").cast(),
        no_comm: variable(LIBRARIES, c"ompi_mpi_comm_null").cast(),
        no_request: variable(LIBRARIES, c"ompi_request_null").cast(),
        no_group: variable(LIBRARIES, c"ompi_mpi_group_null").cast(),
        empty_group: variable(LIBRARIES, c"ompi_mpi_group_empty").cast(),
        no_message: variable(LIBRARIES, c"ompi_message_null").cast(),
        no_process: variable(LIBRARIES, c"ompi_message_no_proc").cast(),
        no_type: variable(LIBRARIES, c"ompi_mpi_datatype_null").cast(),
        no_op: variable(LIBRARIES, c"ompi_mpi_op_null").cast(),
        replace: variable(LIBRARIES, c"ompi_mpi_op_replace").cast(),
        no_operation: variable(LIBRARIES, c"ompi_mpi_op_no_op").cast(),
        byte: variable(LIBRARIES, c"ompi_mpi_byte").cast(),
        packed: variable(LIBRARIES, c"ompi_mpi_packed").cast(),
        no_info: variable(LIBRARIES, c"ompi_mpi_info_null").cast(),
        errors_return: variable(LIBRARIES, c"ompi_mpi_errors_return").cast(),
        range: range(),
        fortran: OnceLock::new(),
    })
}

/// The handle of an object of ours. Open MPI's Fortran layer reads the number of some where it keeps its own.
fn numbered(kind: Kind, index: u32) -> usize {
    let at = address(kind, index);
    if let Some(offset) = fortran_offsets()[kind as usize] {
        // SAFETY: within this object's part of the reserved range.
        unsafe { *((at + offset) as *mut Int) = fortran_number(index) };
    }
    at
}

/// Where Open MPI's requests and groups hold their Fortran number: the place at which eight of them hold what
/// `MPI_Request_c2f` and `MPI_Group_c2f` say. Asked after `MPI_Init`.
fn fortran_offsets() -> &'static [Option<usize>; 2] {
    handles().fortran.get_or_init(|| {
        let native = native();
        let mut requests = [handles().no_request; 8];
        for request in &mut requests {
            native.MPI_Send_init(std::ptr::null(), 0, handles().byte, MPI_PROC_NULL, 0, handles().own, request);
        }
        let mut whole = handles().no_group;
        let mut groups = [handles().no_group; 8];
        native.MPI_Comm_group(handles().own, &mut whole);
        for group in &mut groups {
            native.MPI_Group_incl(whole, 1, &0, group);
        }
        // A persistent request and a group of Open MPI are longer than the bytes that are looked at.
        let found = [
            common_place(requests.map(|request| (request as usize, native.MPI_Request_c2f(request))), 192),
            common_place(groups.map(|group| (group as usize, native.MPI_Group_c2f(group))), 32),
        ];
        requests.iter_mut().for_each(|request| {
            native.MPI_Request_free(request);
        });
        groups.iter_mut().chain([&mut whole]).for_each(|group| {
            native.MPI_Group_free(group);
        });
        found
    })
}

/// The place, in bytes below `bytes`, at which each object holds its number.
fn common_place(objects: [(usize, Int); 8], bytes: usize) -> Option<usize> {
    let holds = |at: usize, number: Int| {
        // SAFETY: an object of Open MPI's that is longer than `bytes`.
        unsafe { *(at as *const Int) == number }
    };
    let different = objects[0].1 != objects[1].1;
    (0..bytes).step_by(4).find(|offset| different && objects.iter().all(|(at, number)| holds(at + offset, *number)))
}

/// A status of `bytes` bytes from `source`; the error field is success.
#[must_use]
pub fn status(source: Int, tag: Int, bytes: u64, cancelled: bool) -> MPI_Status {
    MPI_Status {
        MPI_SOURCE: source,
        MPI_TAG: tag,
        MPI_ERROR: MPI_SUCCESS,
        _cancelled: cancelled.into(),
        _ucount: bytes as usize,
    }
}

/// `MPI_UNWEIGHTED`; `MPI_WEIGHTS_EMPTY` is the next.
pub const UNWEIGHTED: usize = 2;

/// The number of a predefined operation, the same in all ranks.
pub fn operation_number(operation: MPI_Op) -> i32 {
    native().MPI_Op_c2f(operation)
}

/// Whether an operation is one of MPI's own: `MPI_NO_OP` is the last.
pub fn is_predefined(operation: MPI_Op) -> bool {
    operation_number(operation) <= operation_number(handles().no_operation)
}

/// The operation of a number.
pub fn operation_of(number: i32) -> MPI_Op {
    native().MPI_Op_f2c(number)
}

/// The number of a predefined type, the same in all ranks.
pub fn type_number(datatype: MPI_Datatype) -> i32 {
    native().MPI_Type_c2f(datatype)
}

/// The type of a number.
pub fn type_of(number: i32) -> MPI_Datatype {
    native().MPI_Type_f2c(number)
}

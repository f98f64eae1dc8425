//! Open MPI's handles: addresses. Those of ours lie in one reserved range of addresses each kind.
// SPDX-License-Identifier: GPL-2.0-or-later

use super::*;
use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

/// What the library is called.
pub const LIBRARIES: &[&CStr] = &[c"libmpi.so.40"];

/// Fortran's integers; a macro in `mpi.h`.
#[allow(non_camel_case_types, reason = "MPI's name")]
pub type MPI_Fint = Int;

/// `MPI_IN_PLACE`.
pub const IN_PLACE: *const c_void = 1 as *const c_void;

/// Bytes from one of our handles to the next: more than any struct of Open MPI's whose fields its Fortran layer reads.
const STRIDE: usize = 256;

/// Where a kind's range begins, as a part of the reservation.
fn begin(kind: Kind) -> usize {
    SLOTS * STRIDE * kind as usize
}

/// The predefined handles, and the range of our own.
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
    /// `MPI_INFO_NULL`.
    pub no_info: MPI_Info,
    /// `MPI_BYTE`.
    pub byte: MPI_Datatype,
    /// `MPI_PACKED`.
    pub packed: MPI_Datatype,
    /// Addresses that hold nothing of anybody else.
    range: usize,
    /// Where a request keeps its Fortran number, in bytes, once it has been found.
    fortran: OnceLock<Option<usize>>,
}

// SAFETY: addresses that are only compared and handed on; what they point to is Open MPI's.
unsafe impl Send for Handles {}
// SAFETY: as above; nothing here is written after it was made, but for the OnceLock.
unsafe impl Sync for Handles {}

/// The handles, looked up once.
pub fn handles() -> &'static Handles {
    static HANDLES: OnceLock<Handles> = OnceLock::new();
    HANDLES.get_or_init(|| Handles {
        world: variable(c"ompi_mpi_comm_world").cast(),
        own: variable(c"ompi_mpi_comm_self").cast(),
        no_comm: variable(c"ompi_mpi_comm_null").cast(),
        no_request: variable(c"ompi_request_null").cast(),
        no_group: variable(c"ompi_mpi_group_null").cast(),
        empty_group: variable(c"ompi_mpi_group_empty").cast(),
        no_message: variable(c"ompi_message_null").cast(),
        no_process: variable(c"ompi_message_no_proc").cast(),
        no_type: variable(c"ompi_mpi_datatype_null").cast(),
        no_op: variable(c"ompi_mpi_op_null").cast(),
        no_info: variable(c"ompi_mpi_info_null").cast(),
        byte: variable(c"ompi_mpi_byte").cast(),
        packed: variable(c"ompi_mpi_packed").cast(),
        range: reserve(SLOTS * STRIDE * 3),
        fortran: OnceLock::new(),
    })
}

fn reserve(bytes: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice; only touched pages cost memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert!(at != libc::MAP_FAILED, "no room for {bytes} bytes of addresses");
    at as usize
}

fn address(kind: Kind, index: u32) -> usize {
    handles().range + begin(kind) + index as usize * STRIDE
}

fn index(kind: Kind, handle: usize) -> Option<u32> {
    let offset = handle.wrapping_sub(handles().range + begin(kind));
    (offset < SLOTS * STRIDE).then(|| (offset / STRIDE) as u32)
}

/// The handle of our request `index`.
pub fn request_handle(index: u32) -> MPI_Request {
    let at = address(Kind::Request, index);
    if let Some(offset) = fortran_offset() {
        // SAFETY: within this request's part of the reserved range; Open MPI's Fortran layer reads the number there.
        unsafe { *((at + offset) as *mut Int) = fortran_number(index) };
    }
    at as MPI_Request
}

/// Which of our requests a handle is, or `None` if it is native.
pub fn request_index(handle: MPI_Request) -> Option<u32> {
    index(Kind::Request, handle as usize)
}

/// The handle of our group `index`.
pub fn group_handle(index: u32) -> MPI_Group {
    address(Kind::Group, index) as MPI_Group
}

/// Which of our groups a handle is, or `None` if it is native.
pub fn group_index(handle: MPI_Group) -> Option<u32> {
    index(Kind::Group, handle as usize)
}

/// The handle of our message `index`.
pub fn message_handle(index: u32) -> MPI_Message {
    address(Kind::Message, index) as MPI_Message
}

/// Which of our messages a handle is, or `None` if it is native.
pub fn message_index(handle: MPI_Message) -> Option<u32> {
    index(Kind::Message, handle as usize)
}

/// Where Open MPI's request holds its Fortran number: the place at which eight requests hold what
/// `MPI_Request_c2f` says of them. Asked after `MPI_Init`.
fn fortran_offset() -> Option<usize> {
    *handles().fortran.get_or_init(|| {
        let native = native();
        let mut requests = [handles().no_request; 8];
        let mut numbers = [0; 8];
        for (request, number) in requests.iter_mut().zip(&mut numbers) {
            let nothing = std::ptr::null();
            native.MPI_Send_init(nothing, 0, handles().byte, MPI_PROC_NULL, 0, handles().own, request);
            *number = native.MPI_Request_c2f(*request);
        }
        let holds = |offset: usize| {
            requests.iter().zip(&numbers).all(|(request, number)| {
                // SAFETY: a persistent request of Open MPI is longer than the 192 bytes that are looked at.
                unsafe { *request.cast::<c_char>().add(offset).cast::<Int>() == *number }
            })
        };
        let found = (0..192).step_by(4).find(|offset| holds(*offset)).filter(|_| numbers[0] != numbers[1]);
        for request in &mut requests {
            native.MPI_Request_free(request);
        }
        found
    })
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

/// Whether the program asked for no status.
pub fn ignored(status: *const MPI_Status) -> bool {
    status.is_null()
}

/// `MPI_STATUS_IGNORE`.
#[must_use]
pub fn no_status() -> *mut MPI_Status {
    std::ptr::null_mut()
}

//! What is refused on communicators of several groups, each with a word on what to do.
// SPDX-License-Identifier: GPL-2.0-or-later

pub(crate) mod newer;

use crate::abi::*;
use crate::border::*;
use crate::file::POINTER;
use std::ffi::{c_char, c_void};

/// Whether a split of this type stays within a node. Of Open MPI's own, those above the node do not.
pub fn within_a_node(split_type: Int) -> bool {
    #[cfg(not(any(feature = "mpich", feature = "standard")))]
    {
        (MPI_COMM_TYPE_SHARED as Int..OMPI_COMM_TYPE_HOST as Int).contains(&split_type)
    }
    #[cfg(any(feature = "mpich", feature = "standard"))]
    {
        split_type == MPI_COMM_TYPE_SHARED as Int
    }
}

const SPAWN: &str = "start all processes at once, or run without --ft-energy";

export! {
    fn MPI_Comm_spawn(command: *const c_char, argv: *mut *mut c_char, maxprocs: Int, info: MPI_Info, root: Int, comm: MPI_Comm, intercomm: *mut MPI_Comm, array_of_errcodes: *mut Int) => |_w| {
        let _ = (command, argv, maxprocs, info, root, comm, intercomm, array_of_errcodes);
        refuse("MPI_Comm_spawn", SPAWN)
    };
    fn MPI_Comm_spawn_multiple(count: Int, array_of_commands: *mut *mut c_char, array_of_argv: *mut *mut *mut c_char, array_of_maxprocs: *const Int,
        array_of_info: *const MPI_Info, root: Int, comm: MPI_Comm, intercomm: *mut MPI_Comm, array_of_errcodes: *mut Int) => |_w| {
        let _ = (count, array_of_commands, array_of_argv, array_of_maxprocs, array_of_info, root, comm, intercomm, array_of_errcodes);
        refuse("MPI_Comm_spawn_multiple", SPAWN)
    };
    fn MPI_Comm_accept(port_name: *const c_char, info: MPI_Info, root: Int, comm: MPI_Comm, newcomm: *mut MPI_Comm) => |_w| {
        let _ = (port_name, info, root, comm, newcomm);
        refuse("MPI_Comm_accept", SPAWN)
    };
    fn MPI_Comm_connect(port_name: *const c_char, info: MPI_Info, root: Int, comm: MPI_Comm, newcomm: *mut MPI_Comm) => |_w| {
        let _ = (port_name, info, root, comm, newcomm);
        refuse("MPI_Comm_connect", SPAWN)
    };
    fn MPI_Comm_join(fd: Int, intercomm: *mut MPI_Comm) => |_w| {
        let _ = (fd, intercomm);
        refuse("MPI_Comm_join", SPAWN)
    };
}

/// Writes the names of all that is refused one after the other, each with a NUL after it; the number of their bytes.
const fn names<const BYTES: usize>(into: &mut [u8; BYTES]) -> usize {
    let tables = [EXPORTED, SHARED_POINTER, crate::refused::newer::EXPORTED, crate::refused::newer::own::EXPORTED];
    let (mut table, mut end) = (0, 0);
    while table < tables.len() {
        let mut row = 0;
        while row < tables[table].len() {
            let name = tables[table][row].as_bytes();
            let mut at = 0;
            while at <= name.len() {
                if end < BYTES {
                    into[end] = if at < name.len() { name[at] } else { 0 };
                }
                (at, end) = (at + 1, end + 1);
            }
            row += 1;
        }
        table += 1;
    }
    end
}

const NAMES_BYTES: usize = names(&mut [0; 0]);

/// What is refused, for whoever asks before a run: the library itself says what it cannot do.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a symbol of the library")]
pub static joulepoint_mpi_refused: [u8; NAMES_BYTES] = {
    let mut all = [0; NAMES_BYTES];
    names(&mut all);
    all
};

/// Calls by which a rank moves the pointer that all processes of a file share alone.
macro_rules! shared_pointer {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {
        mod shared {
            use super::*;
            export! {
                $(fn $name(file: MPI_File, $($arg: $type),*) => |w| {
                    if w.files.spanning(file) { return refuse(stringify!($name), POINTER) }
                    check(native().$name(file, $($arg),*))
                };)*
            }
        }
    };
}
shared_pointer! {
    MPI_File_read_shared(buf: *mut c_void, count: Int, datatype: MPI_Datatype, status: *mut MPI_Status);
    MPI_File_write_shared(buf: *const c_void, count: Int, datatype: MPI_Datatype, status: *mut MPI_Status);
    MPI_File_iread_shared(buf: *mut c_void, count: Int, datatype: MPI_Datatype, request: *mut MPI_Request);
    MPI_File_iwrite_shared(buf: *const c_void, count: Int, datatype: MPI_Datatype, request: *mut MPI_Request);
}
pub use shared::EXPORTED as SHARED_POINTER;

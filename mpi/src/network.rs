//! The system's `connect`, before which this library stands: where nothing leads out of the sandbox, the reason is told.
// SPDX-License-Identifier: GPL-2.0-or-later

use libc::{c_int, sockaddr, socklen_t};

/// Before the program begins: a handler of a signal may not look symbols up.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOKED_UP: extern "C" fn() = mpi_abi::network::look_up;

/// # Safety
/// As that of the system.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe { mpi_abi::network::connect(socket, address, bytes) }
}

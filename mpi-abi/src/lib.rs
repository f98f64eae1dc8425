//! The program's own MPI library, the *native* one: its types and constants, and its functions, looked up where it is loaded.
//!
//! There is a module for each ABI. `openmpi.rs` and `mpich.rs` are made from the headers by `examples/generate.rs`; the
//! `_handles` beside each say what a handle is in that ABI and how one of ours is told from a native one.
//! The functions are declared safe: their arguments are the program's own, or memory that the caller keeps alive until
//! the request on it is complete, and MPI's rules for the caller are the program's contract with MPI.
//! Beside it: what a program needs that it does not get is noted ([`fallback`]), a way out of its sandbox too ([`network`]).
// SPDX-License-Identifier: GPL-2.0-or-later

#![allow(non_snake_case, reason = "MPI's names are written as MPI writes them")]

use std::ffi::{CStr, c_void};

pub mod fallback;
mod handles;
pub mod memory;
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all, clippy::undocumented_unsafe_blocks)]
mod mpich;
mod mpich_handles;
pub mod network;
mod newer;
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all, clippy::undocumented_unsafe_blocks)]
mod openmpi;
mod openmpi_handles;
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all, clippy::undocumented_unsafe_blocks)]
mod standard;
mod standard_handles;
mod types;

/// Open MPI 4 and 5.
pub mod of_openmpi {
    pub use crate::openmpi::*;
    pub use crate::openmpi_handles::*;
    pub use crate::{Int, fortran_index, fortran_number};
    /// What the native library says of a datatype.
    #[allow(clippy::unnecessary_cast, reason = "MPI_Aint is another type in each ABI")]
    pub mod types {
        use super::*;
        crate::types::types!();
    }
}

/// MPICH, and those that keep to its ABI: Intel's MPI, Cray's, MVAPICH.
pub mod of_mpich {
    pub use crate::Int;
    pub use crate::mpich::*;
    pub use crate::mpich_handles::*;
    /// What the native library says of a datatype.
    #[allow(clippy::unnecessary_cast, reason = "MPI_Aint is another type in each ABI")]
    pub mod types {
        use super::*;
        crate::types::types!();
    }
}

/// MPI 5's standard ABI, as MPICH 5 has it beside its own.
pub mod of_standard {
    pub use crate::standard::*;
    pub use crate::standard_handles::*;
    pub use crate::{Int, fortran_index, fortran_number};
    /// What the native library says of a datatype.
    #[allow(clippy::unnecessary_cast, reason = "MPI_Aint is another type in each ABI")]
    pub mod types {
        use super::*;
        crate::types::types!();
    }
}

pub use std::ffi::c_int as Int;

/// What kind of object a handle of ours stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A request.
    Request,
    /// A group of processes.
    Group,
    /// A message taken by a matched probe.
    Message,
}

use mpi_ranks::slots::SLOTS;

/// Fortran's numbers of our objects begin here, above what a native table reaches.
const FORTRAN: Int = 1 << 28;

/// Fortran's number of our object `index`.
#[must_use]
pub fn fortran_number(index: u32) -> Int {
    FORTRAN + index as Int
}

/// The object of ours that Fortran calls `number`, or `None` if it is native.
#[must_use]
pub fn fortran_index(number: Int) -> Option<u32> {
    (FORTRAN..FORTRAN + SLOTS as Int).contains(&number).then(|| (number - FORTRAN) as u32)
}

/// Declares the table of native functions from the prototypes of an `mpi.h`.
macro_rules! table {
    ($(pub fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)?;)*) => {
        /// The functions of the program's MPI library, under their own names.
        #[allow(non_snake_case)]
        pub struct Native { $($name: unsafe extern "C" fn($($type),*) $(-> $ret)?,)* }

        /// Every function of this ABI that the library knows.
        pub const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];

        impl Native {
            /// Fills the table; `find` gives the address of a symbol, or null.
            pub(super) fn load(find: impl Fn(&std::ffi::CStr) -> *mut std::ffi::c_void) -> Native {
                Native { $($name: {
                    const NAME: &str = concat!("P", stringify!($name), "\0");
                    let name = std::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()).expect("a name of the header");
                    let at = crate::or_missing(find(name));
                    // SAFETY: the symbol has the type that the library's own header gives it, or is the function
                    // that reads no argument and does not return.
                    unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) $(-> $ret)?>(at) }
                },)* }
            }
            $(
                #[allow(clippy::too_many_arguments, missing_docs)]
                #[inline]
                pub fn $name(&self, $($arg: $type),*) $(-> $ret)? {
                    // SAFETY: the arguments are the program's, or live as long as the request (see the module).
                    unsafe { (self.$name)($($arg),*) }
                }
            )*
        }
    };
}
use table;

/// What a function is that the native library does not have.
fn or_missing(address: *mut c_void) -> *mut c_void {
    extern "C" fn missing() {
        eprintln!("joulepoint: the MPI library lacks a function that the program has called");
        std::process::abort();
    }
    if address.is_null() { missing as *mut c_void } else { address }
}

/// The native functions of an ABI, and the variables of its library.
macro_rules! library {
    () => {
        /// The native functions, looked up at the first call: a constructor would run before the libraries it needs.
        #[inline]
        pub fn native() -> &'static Native {
            static NATIVE: std::sync::OnceLock<Native> = std::sync::OnceLock::new();
            NATIVE.get_or_init(|| {
                let library = crate::Library::open(LIBRARIES);
                Native::load(|name| library.symbol(name))
            })
        }
    };
}
use library;

/// The program's MPI library.
struct Library(*mut c_void);

impl Library {
    /// The first of these names that is in the process already, else the first that can be found.
    fn open(names: &[&CStr]) -> Library {
        let open = |flags| {
            names.iter().find_map(|name| {
                // SAFETY: a constant, NUL-terminated name; the library stays open for ever.
                let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
                (!handle.is_null()).then_some(Library(handle))
            })
        };
        open(libc::RTLD_NOW | libc::RTLD_NOLOAD).or_else(|| open(libc::RTLD_NOW)).unwrap_or_else(|| {
            eprintln!("joulepoint: no MPI library of this ABI can be found ({names:?})");
            std::process::abort();
        })
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: an open library and a NUL-terminated name.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

/// Addresses that hold nothing of anybody else; only what is touched costs memory.
fn reserve(bytes: usize) -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice; only touched pages cost memory.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert!(at != libc::MAP_FAILED, "no room for {bytes} bytes of addresses");
    at as usize
}

/// The address of a variable of the MPI library as the program sees it: a program that was linked to a fixed place
/// has its own copy, to which the library itself has been bound.
fn variable(libraries: &[&CStr], name: &CStr) -> *mut c_void {
    // SAFETY: a NUL-terminated name.
    let seen = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if seen.is_null() { Library::open(libraries).symbol(name) } else { seen }
}

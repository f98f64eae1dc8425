//! Functions of MPI 4 that this library does not serve. Natively they would see the ranks of one group and take them for
//! all: so each ends the program with its name. Whoever asks before a run finds them in the list of what is refused.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::world;

/// Where this library is loaded the program runs over groups.
fn end(name: &str) -> ! {
    let instead = "call MPI 3.1's, or run without --ft-energy";
    mpi_abi::fallback::note(&format!("it calls {name}, of MPI 4, which is not served between nodes"));
    world::end(1, &format!("{name}, of MPI 4, is not possible over recovery groups: {instead}"))
}

macro_rules! refused {
    ($($name:ident)*) => {
        /// The functions that this module defines.
        pub const EXPORTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[allow(clippy::missing_docs_in_private_items)]
            mod $name {
                /// Reads none of its arguments.
                #[unsafe(no_mangle)]
                extern "C" fn $name() -> ! {
                    crate::refused::newer::end(stringify!($name))
                }
                #[unsafe(export_name = concat!("P", stringify!($name)))]
                extern "C" fn profiled() -> ! {
                    crate::refused::newer::end(stringify!($name))
                }
            }
        )*
    };
}

mpi_abi::newer!(refused);

/// Beside them, what this ABI has of its own.
pub mod own {
    #[cfg(any(feature = "mpich", feature = "standard"))]
    mpi_abi::large!(refused);
    #[cfg(not(any(feature = "mpich", feature = "standard")))]
    mpi_abi::extensions!(refused);
}

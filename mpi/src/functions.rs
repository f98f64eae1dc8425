//! The table of MPI's functions: which are ours, and which stay native.
// SPDX-License-Identifier: GPL-2.0-or-later

/// All functions that this library defines.
#[must_use]
pub fn exported() -> Vec<&'static str> {
    let mut all: Vec<&'static str> = [
        crate::collective::calls::EXPORTED,
        crate::collective::calls::FREED,
        crate::communicator::EXPORTED,
        crate::create::EXPORTED,
        crate::file::EXPORTED,
        crate::group::EXPORTED,
        crate::intercommunicator::EXPORTED,
        crate::point_to_point::EXPORTED,
        crate::probe::EXPORTED,
        crate::refused::EXPORTED,
        crate::refused::SHARED_POINTER,
        crate::request::EXPORTED,
        crate::startup::EXPORTED,
        crate::topology::EXPORTED,
        crate::topology::cartesian::EXPORTED,
        crate::topology::graph::EXPORTED,
    ]
    .concat();
    #[cfg(not(feature = "mpich"))]
    all.extend([crate::group::NUMBERS, crate::request::NUMBERS].concat());
    all.sort_unstable();
    all
}

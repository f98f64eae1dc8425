//! The table of MPI's functions by family: how each is served over groups.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::collections::BTreeSet;

/// Functions of MPI 4 that end a program over several groups; `mpi.h` of MPI 3.1 does not declare them.
pub const NEWER: &[&str] = crate::refused::newer::EXPORTED;

/// How a function is served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// The program's own MPI library serves it; this library does not define it.
    Native,
    /// This library serves it where several groups are concerned, the native one elsewhere.
    Ours,
    /// It is refused where several groups are concerned, with a word on what to do; the native one serves it elsewhere.
    Refused,
}

/// What this library defines, module by module.
fn modules() -> Vec<(&'static str, &'static [&'static str])> {
    use crate::*;
    vec![
        ("collectives", collective::calls::EXPORTED),
        ("datatypes and operations", collective::calls::FREED),
        ("communicators", communicator::EXPORTED),
        ("communicators", create::EXPORTED),
        ("communicators", intercommunicator::EXPORTED),
        ("files", file::EXPORTED),
        ("files", file::TOGETHER),
        ("files", file::ordered::EXPORTED),
        ("files", file::ordered::IN_ORDER),
        ("files", refused::SHARED_POINTER),
        ("groups of processes", group::EXPORTED),
        #[cfg(not(feature = "mpich"))]
        ("groups of processes", group::NUMBERS),
        ("messages", point_to_point::EXPORTED),
        ("messages", probe::EXPORTED),
        ("requests", request::EXPORTED),
        #[cfg(not(feature = "mpich"))]
        ("requests", request::NUMBERS),
        ("begin and end", startup::EXPORTED),
        ("topologies", topology::EXPORTED),
        ("topologies", topology::cartesian::EXPORTED),
        ("topologies", topology::graph::EXPORTED),
        ("windows", window::make::EXPORTED),
        ("windows", window::access::EXPORTED),
        ("windows", window::epoch::EXPORTED),
        ("new processes", refused::EXPORTED),
    ]
}

/// Every function that `mpi.h` declares: its name, its family if this library defines it, its class.
#[must_use]
pub fn table() -> Vec<(&'static str, &'static str, Class)> {
    use crate::refused;
    let mut table = Vec::new();
    let mut ours = BTreeSet::new();
    for (family, names) in modules() {
        for name in names {
            let refused = [refused::EXPORTED, refused::SHARED_POINTER, &["MPI_Win_allocate_shared"]];
            let refused = refused.iter().any(|names| names.contains(name));
            let family = if name.starts_with("MPI_File_") { "files" } else { family };
            ours.insert(*name);
            table.push((*name, family, if refused { Class::Refused } else { Class::Ours }));
        }
    }
    let native = crate::abi::FUNCTIONS.iter().filter(|name| !ours.contains(**name));
    table.extend(native.map(|name| (*name, "", Class::Native)));
    table.sort_unstable_by_key(|row| row.0);
    table
}

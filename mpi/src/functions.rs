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
        ("files", file::ordered::EXPORTED),
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
        ("windows and new processes", refused::EXPORTED),
    ]
}

/// The family of a function that this library does not define.
fn native_family(name: &str) -> &'static str {
    let begins = |starts: &[&str]| starts.iter().any(|start| name.starts_with(start));
    match name {
        _ if begins(&["MPI_File_"]) => "files",
        _ if begins(&[
            "MPI_Win_",
            "MPI_Put",
            "MPI_Get_acc",
            "MPI_Accumulate",
            "MPI_R",
            "MPI_Fetch",
            "MPI_Compare_and",
        ]) =>
        {
            "windows and new processes"
        }
        "MPI_Get"
        | "MPI_Open_port"
        | "MPI_Close_port"
        | "MPI_Lookup_name"
        | "MPI_Publish_name"
        | "MPI_Unpublish_name"
        | "MPI_Comm_get_parent" => "windows and new processes",
        _ if begins(&["MPI_Type_", "MPI_Op_", "MPI_Pack", "MPI_Unpack", "MPI_Get_", "MPI_Status_", "MPI_Aint_"]) => {
            "datatypes and operations"
        }
        _ if begins(&["MPI_Comm_", "MPI_Attr_", "MPI_Keyval_", "MPI_Err", "MPI_Add_error", "MPI_Info_"]) => {
            "communicators"
        }
        _ if begins(&["MPI_Grequest_", "MPI_Test_cancelled"]) => "requests",
        _ if begins(&["MPI_Buffer_"]) => "messages",
        _ if begins(&["MPI_Dims_"]) => "topologies",
        _ => "begin and end",
    }
}

/// Every function that `mpi.h` declares: its name, its family, its class.
#[must_use]
pub fn table() -> Vec<(&'static str, &'static str, Class)> {
    let mut table = Vec::new();
    let mut ours = BTreeSet::new();
    for (family, names) in modules() {
        for name in names {
            let refused = crate::refused::EXPORTED.contains(name) || crate::refused::SHARED_POINTER.contains(name);
            let family = if name.starts_with("MPI_File_") { "files" } else { family };
            ours.insert(*name);
            table.push((*name, family, if refused { Class::Refused } else { Class::Ours }));
        }
    }
    let native = crate::abi::FUNCTIONS.iter().filter(|name| !ours.contains(**name));
    table.extend(native.map(|name| (*name, native_family(name), Class::Native)));
    table.sort_unstable_by_key(|row| row.0);
    table
}

/// The page's table: how many functions of each family are served how.
#[must_use]
pub fn page() -> String {
    let table = table();
    let families: BTreeSet<&str> = table.iter().map(|row| row.1).collect();
    let mut page = String::from(
        "| family | by this library | by the native one | refused over several groups |\n|---|---|---|---|\n",
    );
    for family in families {
        let of = |class| table.iter().filter(move |row| row.1 == family && row.2 == class);
        let refused: Vec<String> = of(Class::Refused).map(|row| format!("`{}`", row.0)).collect();
        let refused = if refused.is_empty() { "-".to_owned() } else { refused.join(", ") };
        page += &format!("| {family} | {} | {} | {refused} |\n", of(Class::Ours).count(), of(Class::Native).count());
    }
    page
}

//! The table of functions, the page and the built library say the same, and the declarations are those of the headers.
#![cfg(not(feature = "mpich"))]
// SPDX-License-Identifier: GPL-2.0-or-later

use joulepoint_mpi::functions::{Class, NEWER, table};
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

type Row = (&'static str, &'static str, Class);

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
            "windows"
        }
        "MPI_Get" => "windows",
        "MPI_Open_port"
        | "MPI_Close_port"
        | "MPI_Lookup_name"
        | "MPI_Publish_name"
        | "MPI_Unpublish_name"
        | "MPI_Comm_get_parent" => "new processes",
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

/// The page's table: how many functions of each family are served how.
fn page() -> String {
    let table = table();
    let family_of = |row: &Row| if row.1.is_empty() { native_family(row.0) } else { row.1 };
    let families: BTreeSet<&str> = table.iter().map(family_of).collect();
    let mut page = String::from(
        "| family | by this library | by the native one | refused over several groups |\n|---|---|---|---|\n",
    );
    for family in families {
        let of = |class| table.iter().filter(move |row| family_of(row) == family && row.2 == class);
        let refused: Vec<String> = of(Class::Refused).map(|row| format!("`{}`", row.0)).collect();
        let refused = if refused.is_empty() { "-".to_owned() } else { refused.join(", ") };
        page += &format!("| {family} | {} | {} | {refused} |\n", of(Class::Ours).count(), of(Class::Native).count());
    }
    page
}

/// The library that cargo has built beside this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    own.ancestors().nth(2).expect("a folder above deps").join("libjoulepoint_mpi.so")
}

#[test]
fn the_library_defines_both_names_of_what_the_table_says_and_needs_no_mpi() {
    let bytes = std::fs::read(library()).expect("the library");
    let file = object::File::parse(&*bytes).expect("a shared library");
    let is_mpi = |name: &str| name.starts_with("MPI_") || name.starts_with("PMPI_");
    let defined: BTreeSet<String> = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| is_mpi(name))
        .collect();
    let told = table()
        .into_iter()
        .filter(|row| row.2 != Class::Native)
        .map(|row| row.0)
        .chain(NEWER.iter().copied())
        .flat_map(|name| [name.to_owned(), format!("P{name}")]);
    assert_eq!(defined, told.collect());
    let undefined = file.dynamic_symbols().filter(|symbol| symbol.is_undefined());
    let of_mpi: Vec<String> = undefined
        .filter_map(|s| s.name().ok().map(str::to_owned))
        .filter(|n| is_mpi(n) || n.starts_with("ompi_"))
        .collect();
    assert!(of_mpi.is_empty(), "the library would have to be linked with MPI: {of_mpi:?}");
}

#[test]
fn no_function_stands_twice() {
    let table = table();
    let names: BTreeSet<&str> = table.iter().map(|row| row.0).collect();
    assert_eq!(names.len(), table.len());
}

#[test]
fn the_page_has_the_table() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let text = std::fs::read_to_string(repository.join("docs/mpi.md")).expect("the page");
    assert!(text.contains(&page()), "docs/mpi.md does not have this table:\n{}", page());
}

//! The table of functions, the page and the built library say the same, and the declarations are those of the headers.
#![cfg(not(feature = "mpich"))]
// SPDX-License-Identifier: GPL-2.0-or-later

#[path = "../examples/generate.rs"]
mod generate;

use joulepoint_mpi::functions::{Class, NEWER, page, table};
use object::{Object, ObjectSymbol};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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

#[test]
fn the_declarations_are_those_of_the_installed_headers() {
    let include = Path::new("/usr/lib/x86_64-linux-gnu/openmpi/include");
    let version = std::fs::read_to_string(include.join("mpi.h")).unwrap_or_default();
    if !version.contains("#define OMPI_MAJOR_VERSION 4") {
        println!("skipped: libopenmpi-dev 4 is not installed");
        return;
    }
    let made = generate::declarations(include).expect("declarations");
    assert!(made == include_str!("../src/abi/openmpi.rs"), "run examples/generate.rs again");
}

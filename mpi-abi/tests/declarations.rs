//! The declarations are those of the headers.
// SPDX-License-Identifier: GPL-2.0-or-later

#[path = "../examples/generate.rs"]
mod generate;

use std::path::Path;

#[test]
fn the_declarations_are_those_of_the_installed_headers() {
    let include = Path::new("/usr/lib/x86_64-linux-gnu/openmpi/include");
    let version = std::fs::read_to_string(include.join("mpi.h")).unwrap_or_default();
    if !version.contains("#define OMPI_MAJOR_VERSION 4") {
        println!("skipped: libopenmpi-dev 4 is not installed");
        return;
    }
    let made = generate::declarations(include).expect("declarations");
    assert!(made == include_str!("../src/openmpi.rs"), "run examples/generate.rs again");
}

//! Links the plugin so that Slurm loads it fast: it does so twice in every command and step.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    // Lazily bound, as Slurm loads its plugins, whatever the linker's configuration says; and kept when Slurm closes
    // it after its first look.
    for keyword in ["lazy", "relro", "nodelete"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,{keyword}");
    }
    // The unwinder is built in: no process of Slurm has libgcc_s, and loading that takes longer than all of ours.
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    std::fs::write(folder.join("libgcc_s.so"), "GROUP(-lgcc_eh -lgcc)\n")?;
    println!("cargo:rustc-cdylib-link-arg=-L{}", folder.display());
    Ok(())
}

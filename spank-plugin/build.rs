//! Links the plugin with lazy binding, as Slurm loads its plugins, whatever the linker's configuration says.
// SPDX-License-Identifier: GPL-2.0-or-later

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,lazy");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro");
}

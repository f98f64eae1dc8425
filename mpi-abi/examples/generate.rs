//! Makes one ABI's declarations from its `mpi.h`.
//!
//! `cargo run -p mpi-abi --example generate -- --include /usr/lib/x86_64-linux-gnu/openmpi/include --out mpi-abi/src/openmpi.rs`
//!
//! That of MPI 5's standard ABI is `mpi_abi.h` (MPICH 5 brings one), in a folder of its own under the name `mpi.h`.
//!
//! Needs libclang (Debian: `libclang-dev`). Headers of an MPI that is not installed come from its `-dev` package,
//! unpacked anywhere (`dpkg -x`). The functions are written as one `table!` block, which `src/lib.rs` turns into
//! a table of pointers that is filled from the program's own MPI library.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::path::{Path, PathBuf};

/// Not part of MPI 3.1 as a C program sees it, variadic, or gone since MPI 3.0.
const LEFT_OUT: &str = "MPI_T_.*|MPI_Pcontrol|MPI_Address|MPI_Errhandler_(create|get|set)|MPI_Type_(extent|hindexed|\
                        hvector|lb|struct|ub)|MPI_DUP_FN|MPI_.*_NULL_(COPY|DELETE)_FN|MPI_.*_DUP_FN|MPI_NULL_.*_FN|\
                        MPI_File_i(read|write)_(at_)?all_(begin|end)|MPI_.*_c|MPI_Session_.*|MPI_Psend_init|\
                        MPI_Precv_init|MPI_P(ready|arrived).*|MPI_Info_create_env|MPI_Comm_idup_with_info|\
                        MPI_.*_(from_group|from_groups|init)|MPI_Isendrecv.*|MPI_Info_get_string";
/// What the pattern above takes too much of: persistent point to point, and `MPI_Init`.
const KEPT_INIT: &str = "MPI_(Send|Bsend|Ssend|Rsend|Recv)_init";

/// By which a header says whose it is.
const NAMED: [&str; 3] = ["MPICH_VERSION", "OMPI_MAJOR_VERSION", "MPI_ABI_VERSION"];

/// The Rust text of the declarations of the `mpi.h` under `include`.
pub fn declarations(include: &Path) -> Result<String, String> {
    let bindings = |allow: &str, leave: &str| {
        bindgen::Builder::default()
            .header(include.join("mpi.h").display().to_string())
            .allowlist_function(allow)
            .blocklist_function(leave)
            .allowlist_type(
                "MPIR_(Combiner_enum|Topo_type)|MPI_(Comm|Datatype|Errhandler|File|Group|Info|Op|Request|Message|Win|Status|Aint|Offset|Count|Fint)",
            )
            .allowlist_var("MPI_.*")
            .blocklist_var(
                "MPI_F_.*|MPI_F08_.*|MPI_UNWEIGHTED|MPI_WEIGHTS_EMPTY|MPI_T_.*|MPI_MAX_.*|MPIR_.*|MPI_F0?8?_?STATUS.*",
            )
            .clang_arg(format!("-I{}", include.display()))
            .default_macro_constant_type(bindgen::MacroTypeVariation::Signed)
            .default_enum_style(bindgen::EnumVariation::Consts)
            .prepend_enum_name(false)
            .generate_comments(false)
            .sort_semantically(true)
            .merge_extern_blocks(true)
            .layout_tests(false)
            .disable_header_comment()
            .formatter(bindgen::Formatter::Prettyplease)
            .generate()
            .map(|bindings| bindings.to_string())
            .map_err(|error| error.to_string())
    };
    let of_header = std::fs::read_to_string(include.join("mpi.h")).map_err(|error| error.to_string())?;
    let all = bindings("MPI_.*", LEFT_OUT)?;
    let persistent = bindings(KEPT_INIT, "")?;
    let functions = |text: &str| {
        let start = text.find("unsafe extern \"C\" {\n").expect("functions") + "unsafe extern \"C\" {\n".len();
        let end = start + text[start..].find("\n}\n").expect("the end of the block") + 1;
        text[start..end].to_owned()
    };
    // What is an enumeration in one ABI is a macro in another: numbers are MPI's `int` in all.
    let is_standard = of_header.contains("#define MPI_ABI_VERSION");
    let all = if is_standard { all.replace("c_uint;\n", "c_int;\n") } else { all };
    let text = all.replacen("unsafe extern \"C\" {\n", &format!("super::table! {{\n{}", functions(&persistent)), 1);
    let of = of_header
        .lines()
        .find(|line| NAMED.iter().any(|name| line.starts_with(&format!("#define {name}"))))
        .unwrap_or("an unknown MPI")
        .replace("#define ", "");
    let of = of.split_whitespace().collect::<Vec<_>>().join(" ").replace('"', "");
    Ok(format!(
        "//! Declarations of an `mpi.h` ({of}), made by `examples/generate.rs`; do not edit.\n\
         // SPDX-License-Identifier: GPL-2.0-or-later\n\n{text}"
    ))
}

#[allow(dead_code, reason = "the test that compares the files includes this file for its functions")]
fn main() -> Result<(), String> {
    let mut include = PathBuf::from("/usr/lib/x86_64-linux-gnu/openmpi/include");
    let mut out = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name}: a path must follow"))?;
        match name.as_str() {
            "--include" => include = PathBuf::from(value),
            "--out" => out = Some(PathBuf::from(value)),
            _ => return Err(format!("{name}: not known; use --include DIR and --out FILE")),
        }
    }
    let text = declarations(&include)?;
    match out {
        Some(file) => std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display())),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

//! Makes one series' declarations from its headers.
//!
//! `cargo run -p slurm-sys --example generate -- --include /usr/include --out slurm-sys/src/v22_05.rs`
//!
//! Needs libclang (Debian: `libclang-dev`). Headers of a series that is not installed come from its
//! `libslurm-dev` package, unpacked anywhere (`dpkg -x`).
// SPDX-License-Identifier: GPL-2.0-or-later

use bindgen::callbacks::{EnumVariantCustomBehavior, EnumVariantValue, ParseCallbacks};
use std::path::{Path, PathBuf};

/// All that this project needs to know of Slurm's headers; small, so that a new series shows what changed.
const FUNCTIONS: &str = "spank_.*|slurm_spank_log|slurm_(error|info|verbose|debug|debug2|debug3)|\
                         slurm_api_version|slurm_get_node_energy";
const TYPES: &str = "spank_.*|acct_gather_energy_t";
const VARIABLES: &str = "SPANK_OPTION_MAXLEN|slurm_spank_init_failure_mode|NO_VAL|NO_VAL16|INFINITE|INFINITE16|\
                         SLURM_BATCH_SCRIPT|SLURM_EXTERN_CONT|\
                         SLURM_INTERACTIVE_STEP|SLURM_PENDING_STEP|SLURM_SUCCESS|SLURM_ERROR";

/// Keeps SPANK's error numbers out of the several hundred of Slurm's one error enum.
#[derive(Debug)]
struct OnlySpankErrors;

impl ParseCallbacks for OnlySpankErrors {
    fn enum_variant_behavior(
        &self,
        enum_name: Option<&str>,
        variant: &str,
        _: EnumVariantValue,
    ) -> Option<EnumVariantCustomBehavior> {
        let of_spank = variant.starts_with("ESPANK_")
            || variant.starts_with("S_")
            || variant.starts_with("SLURM_ERROR")
            || variant.starts_with("SLURM_SUCCESS");
        let error = enum_name.is_none_or(|name| name.contains("slurm_err_t"));
        (error && !of_spank).then_some(EnumVariantCustomBehavior::Hide)
    }
}

/// The series (`22.05`) whose headers lie under `include`, or `None` if there are none.
pub fn series(include: &Path) -> Option<String> {
    let text = std::fs::read_to_string(include.join("slurm/slurm_version.h")).ok()?;
    let number = text.lines().find_map(|line| {
        line.strip_prefix("#define SLURM_VERSION_NUMBER")?.trim().strip_prefix("0x").map(str::to_owned)
    })?;
    let number = u32::from_str_radix(&number, 16).ok()?;
    Some(format!("{:02}.{:02}", number >> 16, (number >> 8) & 0xff))
}

/// The Rust text of one series' declarations.
pub fn declarations(include: &Path) -> Result<String, String> {
    let series = series(include).ok_or_else(|| format!("{}: no Slurm headers", include.display()))?;
    let bindings = bindgen::Builder::default()
        .header_contents("slurm.h", "#include <slurm/slurm.h>\n#include <slurm/spank.h>\n")
        .clang_arg(format!("-I{}", include.display()))
        .allowlist_function(FUNCTIONS)
        .allowlist_type(TYPES)
        .allowlist_var(VARIABLES)
        .parse_callbacks(Box::new(OnlySpankErrors))
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .generate_comments(false)
        .sort_semantically(true)
        .merge_extern_blocks(true)
        .disable_header_comment()
        .formatter(bindgen::Formatter::Prettyplease)
        .generate()
        .map_err(|error| error.to_string())?;
    let head = format!("//! Declarations of Slurm {series}, made by `examples/generate.rs`; do not edit.");
    Ok(format!("{head}\n// SPDX-License-Identifier: GPL-2.0-or-later\n\n{bindings}"))
}

#[allow(dead_code, reason = "the test that compares the files includes this file for its functions")]
fn main() -> Result<(), String> {
    let mut include = PathBuf::from("/usr/include");
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

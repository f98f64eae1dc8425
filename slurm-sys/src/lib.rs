//! Slurm's C declarations, by bindgen: checked in per series, compared with the installed headers by a test.
//!
//! Each module holds one Slurm series (`major.minor`), because some structs change with every series. What
//! `spank.h` offered in 22.05 is the same in all three, which `tests/declarations.rs` proves; so the `spank`
//! room builds on [`v22_05`] alone and serves them all.
//!
//! Nothing here is safe to call and nothing here links: the functions are only declared, and whoever wants one
//! looks it up in the process that loaded it. To make a module again, or one for a new series, run
//! `cargo run -p slurm-sys --example generate -- --include DIR --out slurm-sys/src/vYY_MM.rs`, with the folder
//! that holds that series' `slurm/` headers.
// SPDX-License-Identifier: GPL-2.0-or-later

// One name is declared once per series, with that series' struct: that is the point of the modules.
#![allow(clashing_extern_declarations)]

#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all, clippy::undocumented_unsafe_blocks)]
pub mod v22_05;
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all, clippy::undocumented_unsafe_blocks)]
pub mod v24_11;
#[rustfmt::skip]
#[allow(missing_docs, non_camel_case_types, non_upper_case_globals, clippy::all, clippy::undocumented_unsafe_blocks)]
pub mod v26_05;

use std::os::raw::{c_char, c_int};

/// `slurm_get_node_energy` as a library of series `E`'s struct offers it: node name, context, the greatest age
/// in seconds at which a cached reading still serves, number of sensors, readings (to be freed by the caller).
pub type GetNodeEnergy<E> = unsafe extern "C" fn(
    host: *mut c_char,
    context_id: u16,
    delta: u16,
    sensor_cnt: *mut u16,
    energy: *mut *mut E,
) -> c_int;

// The alias above is the declaration of every series.
const _: GetNodeEnergy<v22_05::acct_gather_energy_t> = v22_05::slurm_get_node_energy;
const _: GetNodeEnergy<v24_11::acct_gather_energy_t> = v24_11::slurm_get_node_energy;
const _: GetNodeEnergy<v26_05::acct_gather_energy_t> = v26_05::slurm_get_node_energy;

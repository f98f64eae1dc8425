//! The checked-in declarations are what bindgen makes of the installed headers, and SPANK is one in all series.
// SPDX-License-Identifier: GPL-2.0-or-later

#[path = "../examples/generate.rs"]
mod generate;

use std::collections::BTreeSet;
use std::path::Path;

const CHECKED_IN: [(&str, &str); 3] = [
    ("22.05", include_str!("../src/v22_05.rs")),
    ("24.11", include_str!("../src/v24_11.rs")),
    ("26.05", include_str!("../src/v26_05.rs")),
];

#[test]
fn checked_in_equals_installed() {
    let include = Path::new("/usr/include");
    let Some(series) = generate::series(include) else {
        println!("skipped: no Slurm headers are installed here");
        return;
    };
    let Some((_, checked_in)) = CHECKED_IN.iter().find(|(name, _)| *name == series) else {
        println!("skipped: Slurm {series} is installed, which has no checked-in declarations");
        return;
    };
    let made = match generate::declarations(include) {
        Ok(made) => made,
        Err(reason) => panic!("Slurm {series}: {reason}"),
    };
    assert!(made == *checked_in, "Slurm {series}: run examples/generate.rs again; the headers say\n{made}");
    println!("compared: Slurm {series}");
}

/// Splits a file into its items: one constant, type, struct or function each.
fn items(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut item = String::new();
    let mut depth = 0usize;
    for line in text.lines().filter(|line| !line.starts_with("//!")) {
        let line = line.trim();
        // The functions of one extern block are items of their own.
        if line.is_empty() || line == "unsafe extern \"C\" {" || (line == "}" && item.is_empty()) {
            continue;
        }
        item.push_str(line);
        item.push(' ');
        let opened = line.matches(['{', '(', '[']).count();
        let closed = line.matches(['}', ')', ']']).count();
        depth = (depth + opened).saturating_sub(closed);
        let attribute = item.starts_with("#[") && line.starts_with("#[");
        if depth == 0 && !attribute && line.ends_with([';', '}']) {
            found.insert(item.trim().to_owned());
            item.clear();
        }
    }
    found
}

#[test]
fn spank_of_the_oldest_series_is_in_every_later_one() {
    let is_energy = |item: &String| item.contains("acct_gather_energy");
    let oldest: BTreeSet<_> = items(CHECKED_IN[0].1).into_iter().filter(|item| !is_energy(item)).collect();
    assert!(oldest.len() > 80, "the splitter lost items: {oldest:#?}");
    for needed in ["S_JOB_ARGV", "spank_get_item", "spank_option_register", "slurm_error", "ESPANK_NOSPACE"] {
        assert!(oldest.iter().any(|item| item.contains(needed)), "{needed} is not declared");
    }
    for (series, text) in &CHECKED_IN[1..] {
        let later = items(text);
        let lost: Vec<_> = oldest.difference(&later).collect();
        assert!(lost.is_empty(), "Slurm {series} lacks or changed: {lost:#?}");
    }
}

#[test]
fn later_series_add_what_the_plugin_looks_up() {
    assert!(!CHECKED_IN[0].1.contains("spank_prepend_task_argv"));
    for (series, text) in &CHECKED_IN[1..] {
        assert!(text.contains("spank_prepend_task_argv"), "Slurm {series}");
    }
    assert!(CHECKED_IN[2].1.contains("slurm_spank_init_failure_mode"));
}

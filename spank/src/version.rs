//! The number by which Slurm accepts a plugin, taken from the Slurm that loads it.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::host::host;
use std::os::raw::c_long;

/// `slurm_api_version()`'s major number of each series that SPANK was compared with, and what a plugin for that
/// series must carry in `plugin_version`. Slurm compares major and minor only.
const KNOWN: [(u8, u32); 8] = [
    (38, 0x16_05_00),
    (39, 0x17_02_00),
    (40, 0x17_0b_00),
    (41, 0x18_05_00),
    (42, 0x18_0b_00),
    (43, 0x19_05_00),
    (44, 0x19_0b_00),
    (45, 0x1a_05_00),
];

/// What this plugin should carry in `plugin_version` for the process that loads it; 0, which Slurm rejects with
/// a message of its own, in a Slurm that nobody has tried.
pub fn plugin_version() -> u32 {
    match host().api_version() {
        // SAFETY: `slurm_api_version` takes nothing and returns a constant.
        Ok(function) => of_api(unsafe { function() }),
        Err(_) => 0,
    }
}

fn of_api(api: c_long) -> u32 {
    let major = u8::try_from((api >> 16) & 0xff).unwrap_or(0);
    KNOWN.iter().find(|(known, _)| *known == major).map_or(0, |(_, version)| *version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_series_are_named_and_unknown_ones_rejected() {
        assert_eq!(of_api(0x26_00_05), 0x16_05_00);
        assert_eq!(of_api(45 << 16), 0x1a_05_00);
        assert_eq!(of_api(46 << 16), 0);
        assert_eq!(of_api(-1), 0);
        assert_eq!(plugin_version(), 0, "a test is no Slurm process");
    }
}

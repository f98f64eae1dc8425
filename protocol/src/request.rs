//! What a user asked for, as written, with the place where each value came from.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a setting's value came from; earlier variants win over later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The command line or an `#SBATCH` line.
    Option,
    /// An environment twin such as `FT_ENERGY_IO_BOUND`.
    Environment,
    /// The site's `joulepoint.toml` or plugstack arguments.
    Site,
    /// What Joulepoint does when nobody says anything.
    Default,
}

impl Source {
    /// The word used in logs and plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Option => "option",
            Source::Environment => "environment",
            Source::Site => "site",
            Source::Default => "default",
        }
    }
}

/// One value as the user or the site wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The text; empty for an option given without a value.
    pub value: String,
    /// Where it was written.
    pub source: Source,
}

/// What a user asked for: option name (`ft-energy-io-bound`) to value, unresolved.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Option name without dashes in front, to what was written.
    #[serde(default)]
    pub settings: BTreeMap<String, Setting>,
}

//! How a service itself is doing: `GET /healthz`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One thing that a service needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Whether it works.
    pub ok: bool,
    /// What was seen.
    pub text: String,
}

/// All of it; the HTTP status is 200 when every part works, else 503.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Whether every part works.
    pub ok: bool,
    /// `store`, `munge`, `slurm`; on a node `munge`, `controller`, `energy`.
    pub parts: BTreeMap<String, Part>,
}

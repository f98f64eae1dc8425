//! Whether a failure finds a checkpoint to go back to.

use serde::{Deserialize, Serialize};

/// How far a run is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProtectionState {
    /// There is a complete checkpoint.
    Protected,
    /// Checkpoints can be made, and none has been seen yet.
    #[default]
    Unproven,
    /// None will be made, or none was when one was due: a failure costs all work.
    NotProtected,
}

impl ProtectionState {
    /// All states.
    pub const ALL: [ProtectionState; 3] =
        [ProtectionState::Protected, ProtectionState::Unproven, ProtectionState::NotProtected];

    /// The name for people.
    pub fn as_str(self) -> &'static str {
        match self {
            ProtectionState::Protected => "protected",
            ProtectionState::Unproven => "unproven",
            ProtectionState::NotProtected => "not protected",
        }
    }
}

/// What a run's user is told of its protection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Protection {
    /// How far.
    pub state: ProtectionState,
    /// Checkpoint engine, as in `--ft-energy-engine`; `none` if there is none.
    pub engine: String,
    /// Why this engine.
    #[serde(default)]
    pub why: String,
    /// Why it is not protected, or not yet; empty if it is.
    #[serde(default)]
    pub reason: String,
    /// What its user can do then; empty if nothing has to be done.
    #[serde(default)]
    pub cure: String,
    /// Work that a failure costs at most, s; absent if it costs all, or if nobody knows.
    #[serde(default)]
    pub largest_loss_s: Option<f64>,
}

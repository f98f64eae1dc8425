//! What can be wrong with a value, to be read behind it: `'lots' is not a percentage`.

/// What is wrong with a value that a user wrote.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Not in the form of what was to be given.
    #[error("is not {0}")]
    Form(&'static str),
    /// Outside of what is allowed.
    #[error("{0}")]
    Range(&'static str),
    /// None of the known words.
    #[error("is not known{}", near.map(|near| format!(" (did you mean '{near}'?)")).unwrap_or_default())]
    Unknown {
        /// The word that is most like it, if one is.
        near: Option<&'static str>,
    },
    /// A size in a unit that nobody knows.
    #[error("has an unknown unit '{0}'")]
    Unit(String),
    /// A part of it is missing or not as it has to be.
    #[error("{0}")]
    Part(&'static str),
}

/// An argument of a command that is wrong, with what would be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}; accepted: {accepted}")]
pub struct WrongArgument {
    /// What is wrong.
    pub wrong: Wrong,
    /// The forms that are accepted.
    pub accepted: &'static str,
}

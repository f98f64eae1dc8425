//! Says what happened to the figures: a source lost, another taken, an interval bridged.

use crate::SourceKind;

/// What kind of event a mark tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MarkKind {
    /// A source failed and is no longer read.
    Lost,
    /// Another source is read from here on.
    Switched,
    /// An interval's joules come from the model, because the source failed in it.
    Bridged,
    /// Something about a source that a reader of its figures should know.
    Note,
}

impl MarkKind {
    /// The name used in records and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            MarkKind::Lost => "lost",
            MarkKind::Switched => "switched",
            MarkKind::Bridged => "bridged",
            MarkKind::Note => "note",
        }
    }
}

/// One thing that happened to the figures.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// When.
    pub at_s: f64,
    /// Of what kind.
    pub kind: MarkKind,
    /// The source concerned.
    pub source: SourceKind,
    /// In words.
    pub text: String,
}

impl Mark {
    /// Makes a mark and logs it.
    pub(crate) fn new(at_s: f64, kind: MarkKind, source: SourceKind, text: String) -> Mark {
        match kind {
            MarkKind::Lost | MarkKind::Bridged => tracing::warn!(%source, mark = kind.as_str(), "{text}"),
            MarkKind::Switched | MarkKind::Note => tracing::info!(%source, mark = kind.as_str(), "{text}"),
        }
        Mark { at_s, kind, source, text }
    }
}

//! The bytes of a message as they came: in one part or several, each with what stands before it.

use crate::envelope::PREFIX_BYTES;
use mlog::frame::Bytes;

/// The bytes of a message.
#[derive(Debug)]
pub struct Body {
    first: Bytes,
    more: Vec<Bytes>,
    length: usize,
}

/// Those of one part.
fn own(part: &Bytes) -> &[u8] {
    part.get(PREFIX_BYTES..).unwrap_or_default()
}

impl Body {
    /// A message of which the first part has come, or the whole.
    pub(super) fn begin(first: Bytes) -> Body {
        Body { length: own(&first).len(), first, more: Vec::new() }
    }

    /// The next part.
    pub(super) fn extend(&mut self, part: Bytes) {
        self.length += own(&part).len();
        self.more.push(part);
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The parts, in order.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&self.first).chain(&self.more).map(own)
    }

    /// All in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.length);
        self.parts().for_each(|part| out.extend_from_slice(part));
        out
    }
}

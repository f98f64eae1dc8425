//! What one rank says to another of a window.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::run::Run;
use crate::target::Stage;
use serde::{Deserialize, Serialize};

/// How values are combined with those in a window. Operations and types go by their Fortran numbers, which predefined ones have
/// alike in all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Combine {
    /// The operation.
    pub operation: i32,
    /// The predefined type of all values.
    pub leaf: i32,
}

/// What is asked or answered; bytes that belong to it follow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Word {
    /// Write the bytes that follow.
    Put {
        /// Where.
        runs: Vec<Run>,
    },
    /// Combine the values that follow with those that are there.
    Accumulate {
        /// Where.
        runs: Vec<Run>,
        /// How.
        by: Combine,
    },
    /// Answer with what is there, and combine the values that follow with it, if there is a way to.
    Get {
        /// Where.
        runs: Vec<Run>,
        /// How, if values follow.
        by: Option<Combine>,
        /// The answer's number.
        answer: u32,
    },
    /// Answer with what is there, and if it is the first half of the bytes that follow, write the second.
    Compare {
        /// Where.
        run: Run,
        /// The answer's number.
        answer: u32,
    },
    /// Answer when all that was asked before is done.
    Flush {
        /// The answer's number.
        answer: u32,
    },
    /// Answer when the asker has the lock.
    Lock {
        /// Whether alone.
        alone: bool,
        /// The answer's number.
        answer: u32,
    },
    /// The sender gives the lock back.
    Unlock,
    /// The sender's memory is open to the receiver (`MPI_Win_post`).
    Posted,
    /// The sender has done what it wanted with the receiver's memory (`MPI_Win_complete`).
    Completed,
    /// The answer of this number.
    Answer(u32),
}

/// A word, with how far its sender is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// How far the sender was.
    pub stage: Stage,
    /// What it says.
    pub word: Word,
}

impl Letter {
    /// As bytes of a message, with those that belong to it.
    #[must_use]
    pub fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = postcard::to_extend(self, Vec::with_capacity(64 + bytes.len())).unwrap_or_default();
        out.extend_from_slice(bytes);
        out
    }

    /// From a message, with the bytes that belong to it; none if it is no letter.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<(Letter, &[u8])> {
        postcard::take_from_bytes(message).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_read_as_it_was_written() {
        let by = Combine { operation: 3, leaf: 7 };
        let runs = vec![Run { at: -8, bytes: 4 }, Run { at: 1 << 40, bytes: 1 << 33 }];
        for word in [
            Word::Put { runs: runs.clone() },
            Word::Get { runs, by: Some(by), answer: u32::MAX },
            Word::Compare { run: Run { at: 0, bytes: 8 }, answer: 0 },
            Word::Unlock,
        ] {
            let letter = Letter { stage: Stage { fences: 300, starts: 1 }, word };
            let message = letter.encode(b"bytes");
            assert_eq!(Letter::decode(&message), Some((letter, &b"bytes"[..])));
            assert!(Letter::decode(&message[..2]).is_none());
        }
    }
}

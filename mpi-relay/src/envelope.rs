//! What stands before a message's bytes, and what a rank has seen by chance.

use crate::Error;

/// Bytes of an envelope.
pub const ENVELOPE_BYTES: usize = 28;

/// Bytes before those of each part of a message: the envelope, and the hash of the part's bytes, XXH3. The sender makes it
/// once, so that relays compare messages without reading them.
pub const PREFIX_BYTES: usize = ENVELOPE_BYTES + 8;

/// Bytes of an outcome.
pub const OUTCOME_BYTES: usize = 16;

/// Whose message it is, and what for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// World rank of the sender.
    pub source: u32,
    /// The communicator.
    pub context: u64,
    /// The program's tag.
    pub tag: i32,
    /// Rank of the sender in its communicator.
    pub comm_source: u32,
    /// The library's own: data, answer to a synchronous send, and so on.
    pub kind: u8,
    /// 0, or the number of a synchronous send.
    pub sync: u32,
}

impl Envelope {
    /// As bytes, little endian.
    pub fn encode(&self) -> [u8; ENVELOPE_BYTES] {
        let mut out = [0; ENVELOPE_BYTES];
        out[0..4].copy_from_slice(&self.source.to_le_bytes());
        out[4..12].copy_from_slice(&self.context.to_le_bytes());
        out[12..16].copy_from_slice(&self.tag.to_le_bytes());
        out[16..20].copy_from_slice(&self.comm_source.to_le_bytes());
        out[20..24].copy_from_slice(&self.sync.to_le_bytes());
        out[24] = self.kind;
        out
    }

    /// From the first bytes of a part.
    ///
    /// # Errors
    /// [`Error::Garbage`] if there are too few.
    pub fn decode(bytes: &[u8]) -> Result<Envelope, Error> {
        let Some(head) = bytes.first_chunk::<ENVELOPE_BYTES>() else {
            return Err(Error::Garbage(format!("a message of {} bytes without an envelope", bytes.len())));
        };
        let [a, b, c, d, x @ ..] = *head;
        let [c0, c1, c2, c3, c4, c5, c6, c7, t0, t1, t2, t3, m0, m1, m2, m3, s0, s1, s2, s3, kind, _, _, _] = x;
        Ok(Envelope {
            source: u32::from_le_bytes([a, b, c, d]),
            context: u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]),
            tag: i32::from_le_bytes([t0, t1, t2, t3]),
            comm_source: u32::from_le_bytes([m0, m1, m2, m3]),
            kind,
            sync: u32::from_le_bytes([s0, s1, s2, s3]),
        })
    }
}

/// What a call said that need not say the same again: which source came first, whether a request was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// What kind of call.
    pub call: u32,
    /// What it said.
    pub value: i64,
    /// How often one after the other.
    pub count: u32,
}

impl Outcome {
    /// As bytes, little endian.
    pub fn encode(&self) -> [u8; OUTCOME_BYTES] {
        let mut out = [0; OUTCOME_BYTES];
        out[0..4].copy_from_slice(&self.call.to_le_bytes());
        out[4..12].copy_from_slice(&self.value.to_le_bytes());
        out[12..16].copy_from_slice(&self.count.to_le_bytes());
        out
    }

    /// From bytes; `None` for another number of them.
    pub fn decode(bytes: &[u8]) -> Option<Outcome> {
        let [c0, c1, c2, c3, v @ .., n0, n1, n2, n3] = *<&[u8; OUTCOME_BYTES]>::try_from(bytes).ok()?;
        let (call, count) = (u32::from_le_bytes([c0, c1, c2, c3]), u32::from_le_bytes([n0, n1, n2, n3]));
        Some(Outcome { call, value: i64::from_le_bytes(v), count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_and_outcomes_come_back_as_they_were_written() {
        let one = Envelope { source: 7, context: u64::MAX - 5, tag: -3, comm_source: 9, kind: 200, sync: 77 };
        assert_eq!(Envelope::decode(&one.encode()).expect("whole"), one);
        assert!(Envelope::decode(&one.encode()[1..]).is_err());
        let outcome = Outcome { call: 3, value: -9_000_000_000, count: 12 };
        assert_eq!(Outcome::decode(&outcome.encode()), Some(outcome));
        assert_eq!(Outcome::decode(&[0; 15]), None);
    }
}

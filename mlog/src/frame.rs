//! What travels on every connection: a header of 24 bytes, little endian, and a body.

use crate::Error;
use crate::buffer::Buffer;
use std::sync::Arc;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;

/// Longest body of a message, bytes.
pub const LONGEST_BYTES: usize = 256 << 20;

/// A longer message travels, and is logged, in parts of this length, bytes: while one is on its way, the next is logged.
pub const PART_BYTES: usize = 512 << 10;

/// Longest body from a caller that has not yet proved that it knows the token, bytes.
pub const UNPROVEN_BYTES: usize = 4096;

/// The body of a frame, shared between log and connections.
pub type Bytes = Arc<Buffer>;

/// What a frame is. Whoever calls begins with `Open` or `Greet`: these two get new numbers when frames change, so that an
/// older and a newer side refuse each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Program to relay: opens; number: checkpoint from which it resumes, or 0.
    Open = 31,
    /// Relay to program: its group, and the counters of that checkpoint.
    Opened = 2,
    /// Program to relay: its position on every channel.
    Join,
    /// Relay to program: the last message logged on every channel.
    Welcome,
    /// A message; group: the other group, number: its number on the channel.
    Message,
    /// Program to relay: a message sent again; body: its fingerprint.
    Again,
    /// Relay to program: so many of your frames are logged, on this connection.
    Logged,
    /// Program to relay: checkpoint `number` will contain these counters; answered by the same kind.
    Mark,
    /// Program to relay: checkpoint `number` is safe; answered by the same kind.
    Commit,
    /// Program to relay: the program has finished; answered by the same kind.
    Bye,
    /// Relay to program or command: an error; tag: its code, body: text.
    Trouble,
    /// Command to relay: asks for the counters; answered by the same kind with JSON.
    Status,
    /// Command to relay: write the log to the folder in the body, and end; answered by the same kind.
    Handover,
    /// Command to relay: end; answered by the same kind.
    Stop,
    /// Relay to relay: greets as `group`; body: a nonce.
    Greet = 32,
    /// Relay to relay: a nonce, and the proof that the relay called knows the token.
    Challenge = 16,
    /// Relay to relay: the caller's proof.
    Proof,
    /// Relay to relay: requests messages from `number` on; 0: none.
    Want,
    /// Relay to relay: messages up to `number` will never be wanted again.
    Collect,
    /// Relay to relay: the wanted message `number` is no longer in the log.
    Lost,
    /// In a log only: the channel continues after `number`; body: the number collected.
    Head,
    /// In a log only: the channel was emptied and continues after `number`; body as for `Head`.
    Reset,
    /// Relay to program: close this connection until the relay calls again. Command to relay: tell it so; answered by
    /// the same kind, number: 1 if no program is connected any more.
    Rest,
    /// Command to relay: the program may come again; answered by the same kind.
    Wake,
    /// MPI rank to relay: rank `number` is here; tag: 0 for its messages, 1 for what the relay asks of it.
    Enter = 33,
    /// MPI rank to relay: outcome `number` of this rank; body: the outcome.
    Record,
    /// MPI rank to relay: I leave for a dump; body: how far I am.
    Leave,
    /// Rank `group` has aborted the program; tag: its code. From a rank to its relay, between relays, and to all ranks.
    Abort,
    /// Command to relay: write the log into the folder in the body, and go on; answered by the same kind.
    Save,
    /// Relay to relay, of MPI ranks: fingerprints of what was received, from message `number` on.
    Prints,
    /// Relay to relay, of MPI ranks: messages up to `number` will never be sent again.
    Forget,
    /// In a log only: what follows `number` on this channel, up to here, is void.
    Cut,
    /// MPI rank to relay: what it does depends on when messages come, so that it would not send the same again.
    Varies,
}

const KINDS: [Kind; 33] = [
    Kind::Open,
    Kind::Opened,
    Kind::Join,
    Kind::Welcome,
    Kind::Message,
    Kind::Again,
    Kind::Logged,
    Kind::Mark,
    Kind::Commit,
    Kind::Bye,
    Kind::Trouble,
    Kind::Status,
    Kind::Handover,
    Kind::Stop,
    Kind::Greet,
    Kind::Challenge,
    Kind::Proof,
    Kind::Want,
    Kind::Collect,
    Kind::Lost,
    Kind::Head,
    Kind::Reset,
    Kind::Rest,
    Kind::Wake,
    Kind::Enter,
    Kind::Record,
    Kind::Leave,
    Kind::Abort,
    Kind::Save,
    Kind::Prints,
    Kind::Forget,
    Kind::Cut,
    Kind::Varies,
];

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What it is.
    pub kind: Kind,
    /// A group, as the kind says.
    pub group: u16,
    /// The program's tag of a message.
    pub tag: i32,
    /// A number, as the kind says.
    pub number: u64,
    /// Length of the body, bytes.
    pub length: u32,
    /// Bytes of the message that follow in its next parts.
    pub rest: u32,
}

impl Header {
    /// As bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&self.length.to_le_bytes());
        out[4] = self.kind as u8;
        out[6..8].copy_from_slice(&self.group.to_le_bytes());
        out[8..12].copy_from_slice(&self.tag.to_le_bytes());
        out[12..16].copy_from_slice(&self.rest.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out
    }

    /// From bytes.
    ///
    /// # Errors
    /// [`Error::Garbage`] if the kind is unknown or the body is longer than `limit` bytes.
    pub fn decode(bytes: &[u8; HEADER_BYTES], limit: usize) -> Result<Header, Error> {
        let [l0, l1, l2, l3, kind, _, g0, g1, t0, t1, t2, t3, r0, r1, r2, r3, number @ ..] = *bytes;
        let known = KINDS.iter().find(|k| **k as u8 == kind);
        let unknown = || Error::Garbage(format!("a frame of unknown kind {kind}: have both sides one version?"));
        let kind = *known.ok_or_else(unknown)?;
        let length = u32::from_le_bytes([l0, l1, l2, l3]);
        if length as usize > limit {
            return Err(Error::Garbage(format!("a frame of {length} bytes where at most {limit} may come")));
        }
        let tag = i32::from_le_bytes([t0, t1, t2, t3]);
        let (group, rest) = (u16::from_le_bytes([g0, g1]), u32::from_le_bytes([r0, r1, r2, r3]));
        Ok(Header { kind, group, tag, number: u64::from_le_bytes(number), length, rest })
    }
}

/// A header with its body.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The head.
    pub header: Header,
    /// The body.
    pub body: Bytes,
}

impl Frame {
    /// A frame that is only a number.
    pub fn number(kind: Kind, number: u64) -> Frame {
        Frame::new(kind, 0, 0, number, Vec::new())
    }

    /// A frame of these parts.
    pub fn new(kind: Kind, group: usize, tag: i32, number: u64, body: impl Into<Buffer>) -> Frame {
        Frame::shared(kind, group, tag, number, Arc::new(body.into()))
    }

    /// A frame whose body is also held elsewhere.
    pub fn shared(kind: Kind, group: usize, tag: i32, number: u64, body: Bytes) -> Frame {
        // Callers keep groups under 65536 and bodies under LONGEST_BYTES.
        Frame { header: Header { kind, group: group as u16, tag, number, length: body.len() as u32, rest: 0 }, body }
    }

    /// A frame whose body is JSON.
    ///
    /// # Errors
    /// What serde says.
    pub fn json(kind: Kind, number: u64, body: &impl serde::Serialize) -> Result<Frame, Error> {
        Ok(Frame::new(kind, 0, 0, number, serde_json::to_vec(body)?))
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// What serde says.
    pub fn parse<T: serde::de::DeserializeOwned>(&self) -> Result<T, Error> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back_as_it_was_written() {
        for kind in KINDS {
            let header = Header { kind, group: 513, tag: -7, number: u64::MAX - 3, length: 4096, rest: 1 << 27 };
            assert_eq!(Header::decode(&header.encode(), UNPROVEN_BYTES).expect("decoded"), header);
        }
    }

    #[test]
    fn a_long_body_and_an_unknown_kind_are_refused() {
        let header = Header { kind: Kind::Greet, group: 0, tag: 0, number: 0, length: 4097, rest: 0 };
        assert!(Header::decode(&header.encode(), UNPROVEN_BYTES).is_err());
        let mut bytes = header.encode();
        // 1 and 15 opened a connection before messages had parts.
        for kind in [0, 1, 15, 25, 255] {
            bytes[4] = kind;
            assert!(Header::decode(&bytes, LONGEST_BYTES).is_err());
        }
    }
}

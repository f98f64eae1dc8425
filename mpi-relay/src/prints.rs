//! Fingerprints of what a rank has sent: two hashes for each message, kept until no checkpoint would send it again.

use crate::envelope::PREFIX_BYTES;
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a fingerprint.
pub const PRINT_BYTES: usize = 16;

/// What a message was, in two hashes: XXH3, since the enemy is chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    /// Of its envelope and length.
    pub structure: u64,
    /// Of its contents.
    pub contents: u64,
}

impl Print {
    /// Of a part: what stands before its bytes, how many they are, and how many follow in other parts.
    pub fn of(prefix: &[u8; PREFIX_BYTES], length: usize, rest: u32) -> Print {
        let [envelope @ .., h0, h1, h2, h3, h4, h5, h6, h7] = prefix;
        let lengths = (length as u64) << 32 | u64::from(rest);
        let contents = u64::from_le_bytes([*h0, *h1, *h2, *h3, *h4, *h5, *h6, *h7]);
        Print { structure: xxh3_64_with_seed(envelope, lengths), contents }
    }

    /// Of a part as it travels; `None` if it is too short to be one.
    pub fn of_body(body: &[u8], rest: u32) -> Option<Print> {
        let (prefix, bytes) = body.split_first_chunk()?;
        Some(Print::of(prefix, bytes.len(), rest))
    }

    /// As bytes.
    pub fn encode(&self) -> [u8; PRINT_BYTES] {
        let mut out = [0; PRINT_BYTES];
        out[..8].copy_from_slice(&self.structure.to_le_bytes());
        out[8..].copy_from_slice(&self.contents.to_le_bytes());
        out
    }

    /// From bytes; `None` for another number of them.
    pub fn decode(bytes: &[u8]) -> Option<Print> {
        let (structure, contents) = <&[u8; PRINT_BYTES]>::try_from(bytes).ok()?.split_first_chunk()?;
        let contents = contents.first_chunk()?;
        Some(Print { structure: u64::from_le_bytes(*structure), contents: u64::from_le_bytes(*contents) })
    }
}

/// How a message that is sent again compares with the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Compared {
    /// It is the same.
    Same,
    /// Its envelope or its length is another.
    Structure,
    /// Only its bytes are others.
    Contents,
    /// Nothing is known of the one before.
    Unknown,
}

/// The fingerprints of one channel, numbered as its messages.
#[derive(Debug, Default)]
pub struct Prints {
    base: u64,
    kept: VecDeque<Print>,
}

impl Prints {
    /// Nothing is known of messages up to this number.
    pub fn begin_after(&mut self, base: u64) {
        self.kept.clear();
        self.base = base;
    }

    /// The number of the newest.
    pub fn end(&self) -> u64 {
        self.base + self.kept.len() as u64
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// The kept ones with their numbers, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Print)> + '_ {
        (self.base + 1..).zip(self.kept.iter().copied())
    }

    /// Keeps that of the next message.
    pub fn push(&mut self, print: Print) {
        self.kept.push_back(print);
    }

    /// Keeps that of a message if it is the next one, or begins with it if there is a gap.
    pub fn put(&mut self, number: u64, print: Print) {
        if number > self.end() + 1 {
            self.begin_after(number - 1);
        }
        if number == self.end() + 1 {
            self.kept.push_back(print);
        }
    }

    /// Forgets those after this number: the receiver has gone back.
    pub fn cut(&mut self, after: u64) {
        let keep = after.saturating_sub(self.base);
        self.kept.truncate(usize::try_from(keep).unwrap_or(usize::MAX));
    }

    /// The channel's log ends with this number: forgets those after it, and all if some before it are missing.
    pub fn end_with(&mut self, end: u64) {
        self.cut(end);
        if self.end() != end {
            self.begin_after(end);
        }
    }

    /// Compares a message sent again.
    pub fn compare(&self, number: u64, print: Print) -> Compared {
        let index = number.checked_sub(self.base + 1).and_then(|i| usize::try_from(i).ok());
        match index.and_then(|i| self.kept.get(i)) {
            None => Compared::Unknown,
            Some(before) if before.structure != print.structure => Compared::Structure,
            Some(before) if before.contents != print.contents => Compared::Contents,
            Some(_) => Compared::Same,
        }
    }

    /// No checkpoint will send messages up to this number again.
    pub fn forget(&mut self, upto: u64) {
        let count = upto.min(self.end()).saturating_sub(self.base);
        self.kept.drain(..usize::try_from(count).unwrap_or(usize::MAX));
        self.base += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::ENVELOPE_BYTES;

    #[test]
    fn a_difference_of_structure_and_one_of_contents_are_told_apart() {
        let mut prints = Prints::default();
        prints.begin_after(4);
        let body = [[1; PREFIX_BYTES].as_slice(), b"abc"].concat();
        let print = |body: &[u8], rest| Print::of_body(body, rest).expect("long enough");
        prints.push(print(&body, 0));
        let change = |index: usize| {
            let mut other = body.clone();
            other[index] ^= 1;
            prints.compare(5, print(&other, 0))
        };
        assert_eq!(prints.compare(5, print(&body, 0)), Compared::Same);
        assert_eq!((change(3), change(ENVELOPE_BYTES)), (Compared::Structure, Compared::Contents));
        assert_eq!(prints.compare(5, print(&body[..body.len() - 1], 0)), Compared::Structure);
        assert_eq!(prints.compare(5, print(&body, 7)), Compared::Structure);
        for unknown in [0, 4, 6, u64::MAX] {
            assert_eq!(prints.compare(unknown, print(&body, 0)), Compared::Unknown);
        }
        let one = print(&body, 0);
        assert_eq!((Print::decode(&one.encode()), Print::decode(&[0; 15])), (Some(one), None));
        assert_eq!(Print::of_body(&body[..PREFIX_BYTES - 1], 0), None);
    }

    #[test]
    fn prints_go_from_both_ends_and_begin_anew_after_a_gap() {
        let one = Print { structure: 1, contents: 2 };
        let mut prints = Prints::default();
        (1..=5).for_each(|number| prints.put(number, one));
        prints.put(3, one);
        prints.forget(2);
        prints.cut(4);
        assert_eq!(prints.iter().map(|(number, _)| number).collect::<Vec<_>>(), [3, 4]);
        prints.put(9, one);
        assert_eq!((prints.iter().next(), prints.len(), prints.is_empty()), (Some((9, one)), 1, false));
        prints.forget(20);
        assert_eq!((prints.end(), prints.is_empty()), (9, true));
        prints.put(10, one);
        prints.end_with(10);
        assert_eq!((prints.end(), prints.len()), (10, 1));
        prints.end_with(9);
        prints.end_with(7);
        assert_eq!((prints.end(), prints.is_empty()), (7, true));
    }
}

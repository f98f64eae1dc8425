//! The content of a file, whose holes take no room; a copy shares its blocks until one of both is written to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// The bytes of a file.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    blocks: BTreeMap<u64, Arc<Vec<u8>>>,
}

impl Content {
    /// Length, bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What it takes on the server, bytes.
    pub fn allocated(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    /// Bytes from `offset`; fewer at the end.
    pub fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(length));
        if offset >= end {
            return Vec::new();
        }
        let mut out = vec![0; (end - offset) as usize];
        for (block, data) in self.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)) {
            let (from, until) = ((block * BLOCK).max(offset), ((block + 1) * BLOCK).min(end));
            let source = &data[(from - block * BLOCK) as usize..(until - block * BLOCK) as usize];
            out[(from - offset) as usize..(until - offset) as usize].copy_from_slice(source);
        }
        out
    }

    /// Writes bytes at `offset`.
    pub fn write(&mut self, offset: u64, mut data: &[u8]) {
        let mut at = offset;
        while !data.is_empty() {
            let within = (at % BLOCK) as usize;
            let length = data.len().min(BLOCK as usize - within);
            let block = self.blocks.entry(at / BLOCK).or_insert_with(|| Arc::new(vec![0; BLOCK as usize]));
            Arc::make_mut(block)[within..within + length].copy_from_slice(&data[..length]);
            (at, data) = (at + length as u64, &data[length..]);
        }
        if at > offset {
            self.size = self.size.max(at);
        }
    }

    /// Takes bytes of another content over.
    pub fn take(&mut self, from: &Content, range: Range<u64>) {
        let range = range.start..range.end.min(from.size);
        let mut at = range.start;
        while at < range.end {
            let until = ((at / BLOCK + 1) * BLOCK).min(range.end);
            match from.blocks.get(&(at / BLOCK)) {
                Some(block) if until - at == BLOCK => {
                    self.blocks.insert(at / BLOCK, block.clone());
                    self.size = self.size.max(until);
                }
                _ => self.write(at, &from.read(at, until - at)),
            }
            at = until;
        }
    }

    /// Cuts it, or lengthens it by a hole.
    pub fn resize(&mut self, size: u64) {
        self.blocks.split_off(&size.div_ceil(BLOCK));
        if let Some(block) = self.blocks.get_mut(&(size / BLOCK)) {
            Arc::make_mut(block)[(size % BLOCK) as usize..].fill(0);
        }
        self.size = size;
    }

    /// Makes a hole.
    pub fn punch(&mut self, range: Range<u64>) {
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            let (from, until) = ((block * BLOCK).max(range.start), ((block + 1) * BLOCK).min(range.end));
            if until - from == BLOCK {
                self.blocks.remove(&block);
            } else if let Some(data) = self.blocks.get_mut(&block) {
                Arc::make_mut(data)[(from - block * BLOCK) as usize..(until - block * BLOCK) as usize].fill(0);
            }
        }
    }

    /// Where the next byte that is no hole stands, or the next that is one.
    pub fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        if offset >= self.size {
            return None;
        }
        let mut at = offset;
        while at < self.size {
            if self.blocks.contains_key(&(at / BLOCK)) != hole {
                return Some(at);
            }
            at = if hole { (at / BLOCK + 1) * BLOCK } else { *self.blocks.range(at / BLOCK..).next()?.0 * BLOCK };
        }
        hole.then_some(self.size)
    }

    /// Changes one bit, as a rotten disk would; whether there was one to change.
    pub fn rot(&mut self, at: u64) -> bool {
        let length = self.blocks.len() as u64;
        let Some((block, data)) = self.blocks.iter_mut().nth((at % length.max(1)) as usize) else { return false };
        let filled = self.size.saturating_sub(block * BLOCK).clamp(1, BLOCK);
        Arc::make_mut(data)[(at % filled) as usize] ^= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn it_holds_what_a_plain_vector_would() {
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
        let (mut content, mut plain) = (Content::default(), Vec::new());
        for _ in 0..3000 {
            let (at, length) = (rng.random_range(0..40_000_usize), rng.random_range(0..9000_usize));
            match rng.random_range(0..6) {
                0 => {
                    content.resize(at as u64);
                    plain.resize(at, 0);
                }
                1 => {
                    content.punch(at as u64..(at + length) as u64);
                    let end = plain.len();
                    plain[at.min(end)..(at + length).min(end)].fill(0);
                }
                2 => {
                    let mut other = Content::default();
                    other.take(&content, 0..content.size());
                    other.resize(content.size());
                    assert_eq!(other.read(0, u64::MAX), plain);
                    content = other;
                }
                _ => {
                    let data: Vec<u8> = (0..length).map(|_| rng.random_range(1..=255)).collect();
                    content.write(at as u64, &data);
                    if !data.is_empty() {
                        let end = plain.len().max(at + length);
                        plain.resize(end, 0);
                        plain[at..at + length].copy_from_slice(&data);
                    }
                }
            }
            let end = plain.len();
            assert_eq!(content.size(), end as u64);
            assert_eq!(content.read(at as u64, length as u64), plain[at.min(end)..(at + length).min(end)]);
        }
    }

    #[test]
    fn holes_take_no_room_and_are_found() {
        let mut content = Content::default();
        content.write(3 * BLOCK, b"data");
        content.resize(10 * BLOCK);
        assert_eq!(content.allocated(), BLOCK);
        assert_eq!((content.seek(0, false), content.seek(0, true)), (Some(3 * BLOCK), Some(0)));
        assert_eq!((content.seek(3 * BLOCK, true), content.seek(4 * BLOCK, false)), (Some(4 * BLOCK), None));
        let whole = content.clone();
        assert!(content.rot(7));
        assert_ne!(content.read(0, u64::MAX), whole.read(0, u64::MAX));
    }
}

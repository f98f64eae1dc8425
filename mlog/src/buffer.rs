//! The bytes of a frame's body. Long buffers are reused, since getting memory from the system and returning it costs
//! more than the copy into it.

use crate::frame::PART_BYTES;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, RangeInclusive};

/// Lengths of the buffers that are reused, bytes.
const LONG: RangeInclusive<usize> = 16 << 10..=PART_BYTES;

/// They come in multiples of this length, bytes.
const STEP_BYTES: usize = 4 << 10;

/// A thread keeps at most so much for reuse, bytes.
const KEPT_BYTES: usize = 4 << 20;

/// Buffers to be used again, by their length in steps; the last one that was given back is taken first, since the
/// processor may still hold it.
#[derive(Default)]
struct Free {
    by_steps: Vec<Vec<Vec<u8>>>,
    bytes: usize,
}

thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new(Free { by_steps: Vec::new(), bytes: 0 }) };
}

impl Free {
    fn take(&mut self, steps: usize) -> Option<Vec<u8>> {
        let taken = self.by_steps.get_mut(steps)?.pop()?;
        self.bytes -= taken.len();
        Some(taken)
    }

    fn give(&mut self, bytes: Vec<u8>) {
        let steps = bytes.len() / STEP_BYTES;
        if self.bytes + bytes.len() > KEPT_BYTES {
            return;
        }
        if self.by_steps.len() <= steps {
            self.by_steps.resize_with(steps + 1, Vec::new);
        }
        self.bytes += bytes.len();
        self.by_steps[steps].push(bytes);
    }
}

/// Bytes in a reusable buffer.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    /// A buffer of this length with arbitrary content, which the caller overwrites.
    pub fn new(length: usize) -> Buffer {
        if !LONG.contains(&length) {
            // Zeroed pages cost nothing until they are written.
            return Buffer { bytes: vec![0; length], length };
        }
        let steps = length.div_ceil(STEP_BYTES);
        let free = FREE.try_with(|free| free.borrow_mut().take(steps)).ok().flatten();
        Buffer { bytes: free.unwrap_or_else(|| vec![0; steps * STEP_BYTES]), length }
    }

    /// The bytes; the buffer is not reused.
    pub fn into_vec(mut self) -> Vec<u8> {
        self.bytes.truncate(self.length);
        std::mem::take(&mut self.bytes)
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { length: bytes.len(), bytes }
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !LONG.contains(&self.bytes.len()) || !self.bytes.len().is_multiple_of(STEP_BYTES) {
            return;
        }
        let bytes = std::mem::take(&mut self.bytes);
        // Fails while the thread ends: then the buffer is simply freed.
        let _ = FREE.try_with(|free| free.borrow_mut().give(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_buffer_is_used_again_for_a_body_of_about_its_length_and_not_more_are_kept_than_the_bound() {
        let first = Buffer::new(LONG.start() + 1);
        let place = first.as_ptr();
        drop(first);
        let longer = Buffer::new(LONG.start() + STEP_BYTES + 1);
        let again = Buffer::new(LONG.start() + STEP_BYTES);
        assert_ne!(longer.as_ptr(), place);
        assert_eq!((again.as_ptr(), again.len()), (place, LONG.start() + STEP_BYTES));
        assert_eq!(again.into_vec().len(), LONG.start() + STEP_BYTES);
        let many: Vec<_> = (0..2 * KEPT_BYTES / PART_BYTES).map(|_| Buffer::new(PART_BYTES)).collect();
        drop(many);
        assert_eq!(FREE.with_borrow(|free| free.bytes), KEPT_BYTES / PART_BYTES * PART_BYTES);
    }
}

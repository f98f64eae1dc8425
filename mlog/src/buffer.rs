//! The bytes of a frame's body. Long buffers are reused, since getting memory from the system and returning it costs
//! more than the copy into it.

use crate::frame::PART_BYTES;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, RangeInclusive};

/// Lengths of the buffers that are reused, bytes.
const LONG: RangeInclusive<usize> = PART_BYTES / 2..=PART_BYTES;

/// Most buffers that a thread keeps for reuse.
const KEPT: usize = 8;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Bytes in a reusable buffer.
#[derive(Debug)]
pub struct Buffer(Vec<u8>);

impl Buffer {
    /// A buffer of this length with arbitrary content, which the caller overwrites.
    pub fn new(length: usize) -> Buffer {
        let free = if LONG.contains(&length) { FREE.with_borrow_mut(Vec::pop) } else { None };
        match free {
            Some(mut bytes) => {
                bytes.resize(length, 0);
                Buffer(bytes)
            }
            // Zeroed pages cost nothing until they are written.
            None => Buffer(vec![0; length]),
        }
    }

    /// The bytes; the buffer is not reused.
    pub fn into_vec(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(bytes)
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
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !LONG.contains(&self.0.len()) {
            return;
        }
        let bytes = std::mem::take(&mut self.0);
        // Fails while the thread ends: then the buffer is simply freed.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT {
                free.push(bytes);
            }
        });
    }
}

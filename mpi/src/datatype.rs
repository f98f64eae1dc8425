//! Contents of messages to other groups: a named type is sent as it lies, others are packed by the native library.
// SPDX-License-Identifier: GPL-2.0-or-later

pub use crate::abi::types::{extent, leaf, size};
use crate::abi::types::{lies_as_sent, named, pack, true_extent, unpack};
use crate::abi::*;
use crate::border::{Res, fail, moved};
use crate::world::World;
use mpi_relay::Body;
use mpi_windows::{Run, run};
use std::borrow::Cow;
use std::ffi::c_void;

/// A part of the program's memory: so many elements of a type.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Where it begins.
    pub at: *mut c_void,
    /// Elements.
    pub count: Int,
    /// Their type.
    pub datatype: MPI_Datatype,
}

/// Bytes that are packed in one native call, which counts them in an `int`.
const PACKED_AT_ONCE: u64 = 1 << 30;

impl Part {
    /// A part of the program's memory.
    pub fn new(at: *const c_void, count: Int, datatype: MPI_Datatype) -> Part {
        Part { at: at.cast_mut(), count, datatype }
    }

    /// Packed bytes.
    ///
    /// # Errors
    /// They are more than an `int` counts.
    pub fn packed(bytes: &[u8]) -> Res<Part> {
        let count = Int::try_from(bytes.len()).or_else(|_| fail(MPI_ERR_COUNT))?;
        Ok(Part::new(bytes.as_ptr().cast(), count, handles().packed))
    }

    /// Bytes of its contents.
    pub fn bytes(&self) -> u64 {
        size(self.datatype) * self.count.max(0) as u64
    }

    /// Its contents.
    pub fn contents(&self) -> Cow<'_, [u8]> {
        let bytes = self.bytes();
        if bytes == 0 {
            return Cow::Borrowed(&[]);
        }
        if lies_as_sent(self.datatype) {
            // SAFETY: the program's memory of `count` elements without gaps.
            return Cow::Borrowed(unsafe { std::slice::from_raw_parts(self.at.cast(), bytes as usize) });
        }
        let mut out = vec![0; bytes as usize];
        let mut done = 0;
        for (first, count) in steps(self.count, size(self.datatype)) {
            let from = moved(self.at, first as isize * extent(self.datatype));
            done += pack(from, count, self.datatype, &mut out[done..]);
        }
        out.truncate(done);
        Cow::Owned(out)
    }

    /// Fills it with a message's bytes; what it has no room for is left out. Bytes that were taken.
    pub fn fill_from(&self, body: &Body) -> u64 {
        if !lies_as_sent(self.datatype) {
            return self.fill(&body.to_vec());
        }
        let mut room = self.bytes() as usize;
        let mut at: *mut u8 = self.at.cast();
        for part in body.parts() {
            let bytes = part.len().min(room);
            // SAFETY: the program's memory has room for all that is counted down in `room`, and no part of it is `part`.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), at, bytes) };
            at = at.wrapping_add(bytes);
            room -= bytes;
        }
        self.bytes() - room as u64
    }

    /// Fills it with packed bytes; what it has no room for is left out. Bytes that were taken.
    pub fn fill(&self, contents: &[u8]) -> u64 {
        let bytes = contents.len().min(self.bytes() as usize);
        let contents = &contents[..bytes];
        if bytes == 0 {
            return 0;
        }
        let one = size(self.datatype) as usize;
        let whole = bytes / one;
        for (first, count) in steps(whole as Int, one as u64) {
            let to = moved(self.at, first as isize * extent(self.datatype));
            unpack(&contents[first as usize * one..], to, count, self.datatype);
        }
        if !bytes.is_multiple_of(one) {
            // A part of one more element: what it does not reach stays.
            let to = moved(self.at, whole as isize * extent(self.datatype));
            let mut element = vec![0; one];
            pack(to, 1, self.datatype, &mut element);
            element[..bytes % one].copy_from_slice(&contents[whole * one..]);
            unpack(&element, to, 1, self.datatype);
        }
        bytes as u64
    }
}

fn steps(count: Int, one: u64) -> impl Iterator<Item = (Int, Int)> {
    let step = (PACKED_AT_ONCE / one.max(1)).clamp(1, i32::MAX as u64) as Int;
    (0..count.max(0)).step_by(step as usize).map(move |first| (first, step.min(count - first)))
}

/// Longest element of which the bytes in a window are looked up: so much memory takes the look.
const MOST_EXTENT_BYTES: usize = 1 << 30;

/// The bytes of `count` elements, in the order in which they are packed; the first element begins at `at`.
pub fn runs(count: Int, datatype: MPI_Datatype, at: i64) -> Res<Vec<Run>> {
    let (one, count) = (size(datatype), count.max(0) as usize);
    if lies_as_sent(datatype) {
        return Ok(run::repeated(&[Run { at: 0, bytes: one * count as u64 }], 1, 0, at));
    }
    let (lower, true_extent) = true_extent(datatype);
    let extent_bytes = true_extent as usize;
    if extent_bytes > MOST_EXTENT_BYTES {
        return fail(MPI_ERR_TYPE);
    }
    let packed = |which| {
        let memory = run::pass(extent_bytes, which);
        Part::new(moved(memory.as_ptr().cast(), -lower), 1, datatype).contents().into_owned()
    };
    let of_one = run::of_element(&(0..run::passes(extent_bytes)).map(packed).collect::<Vec<_>>(), lower as i64);
    Ok(run::repeated(&of_one, count, extent(datatype) as i64, at))
}

/// A type that a request may use after the program has freed its own.
pub struct Held(MPI_Datatype, bool);

impl Held {
    /// Holds a type. A new type is made rather than a duplicate, which would call the program's attribute functions.
    pub fn new(datatype: MPI_Datatype) -> Held {
        if named(datatype) {
            return Held(datatype, false);
        }
        let mut held = datatype;
        native().MPI_Type_contiguous(1, datatype, &mut held);
        native().MPI_Type_commit(&mut held);
        Held(held, true)
    }

    /// A type for a call that waits, in which another thread may free it.
    pub fn of_call(world: &World, datatype: MPI_Datatype) -> Held {
        if world.has_threads.get() { Held::new(datatype) } else { Held::borrowed(datatype) }
    }

    /// A type that lives as long as the call.
    pub fn borrowed(datatype: MPI_Datatype) -> Held {
        Held(datatype, false)
    }

    /// The type.
    pub fn get(&self) -> MPI_Datatype {
        self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.1 {
            native().MPI_Type_free(&mut self.0);
        }
    }
}

/// Memory for `count` elements that a collective works on.
pub struct Scratch {
    _memory: Vec<u128>,
    part: Part,
}

impl Scratch {
    /// Room for `count` elements, all zero.
    pub fn new(count: Int, datatype: MPI_Datatype) -> Scratch {
        let (lower, true_extent) = true_extent(datatype);
        let bytes = true_extent + (count as isize - 1).max(0) * extent(datatype).abs() + 16;
        let mut memory = vec![0u128; bytes as usize / 16 + 1];
        let at = moved(memory.as_mut_ptr().cast(), -lower);
        Scratch { _memory: memory, part: Part { at, count, datatype } }
    }

    /// The elements.
    pub fn part(&self) -> Part {
        self.part
    }
}

/// Copies the contents of one part into another.
pub fn copy(from: Part, to: Part) {
    if from.bytes() == 0 || (from.at == to.at && from.datatype == to.datatype) {
        return;
    }
    to.fill(&from.contents());
}

//! The memory that a call of MPI names, as its caller's contract with MPI says that it is.
// SPDX-License-Identifier: GPL-2.0-or-later

#![allow(
    clippy::not_unsafe_ptr_arg_deref,
    reason = "addresses are the program's, which answers for them as to MPI itself"
)]

/// The program's array of `count` values.
#[must_use]
pub fn slice<'a, T>(at: *const T, count: i32) -> &'a [T] {
    if count <= 0 || at.is_null() {
        return &[];
    }
    // SAFETY: MPI's caller gives arrays of the length that the call says.
    unsafe { std::slice::from_raw_parts(at, count as usize) }
}

/// The program's array of `count` values, to be written.
#[must_use]
pub fn slice_mut<'a, T>(at: *mut T, count: i32) -> &'a mut [T] {
    if count <= 0 || at.is_null() {
        return &mut [];
    }
    // SAFETY: MPI's caller gives arrays of the length that the call says.
    unsafe { std::slice::from_raw_parts_mut(at, count as usize) }
}

/// Writes what the call gives back, where the program wants it.
pub fn put<T>(at: *mut T, value: T) {
    if !at.is_null() {
        // SAFETY: MPI's caller gives a place for what the call gives back.
        unsafe { at.write(value) };
    }
}

/// Reads a handle that the call takes by address.
#[must_use]
pub fn take<T: Copy>(at: *const T) -> T {
    // SAFETY: MPI's caller gives the address of a handle.
    unsafe { *at }
}

/// `base` moved by `bytes`.
#[must_use]
pub fn moved(base: *const std::ffi::c_void, bytes: isize) -> *mut std::ffi::c_void {
    base.cast::<u8>().wrapping_offset(bytes).cast_mut().cast()
}

//! The C functions of `include/mlog.h`; no panic crosses them.

use crate::{Endpoint, Error, Number, Operation, Request};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::new(CString::default());
}

/// What `mlog_t` is: the endpoint, and where open receives go.
pub struct Handle {
    endpoint: Endpoint,
    rooms: BTreeMap<u64, Room>,
}

/// The caller's buffer for an open receive.
#[derive(Clone, Copy)]
struct Room {
    bytes: *mut u8,
    length: usize,
}

impl Room {
    /// Copies a message into the buffer and writes its length to `got`.
    ///
    /// # Safety
    /// The buffer is writable for its length; `got` is null or writable.
    unsafe fn fill(self, message: &[u8], got: *mut usize) -> Result<(), Error> {
        if message.len() > self.length {
            return Err(Error::TooLong { bytes: message.len(), room: self.length });
        }
        // SAFETY: the length was checked; the caller promises the rest.
        unsafe {
            if !message.is_empty() {
                std::ptr::copy_nonoverlapping(message.as_ptr(), self.bytes, message.len());
            }
            if !got.is_null() {
                *got = message.len();
            }
        }
        Ok(())
    }
}

/// Runs a call; keeps its error's text and returns its number.
fn guard(call: impl FnOnce() -> Result<(), Error>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    let outcome = outcome.unwrap_or_else(|_| Err(Error::Usage("a fault inside mlog; please report it".into())));
    match outcome {
        Ok(()) => 0,
        Err(e) => {
            let text = CString::new(e.to_string().replace('\0', " ")).unwrap_or_default();
            MESSAGE.with(|m| *m.borrow_mut() = text);
            e.code()
        }
    }
}

fn with(m: *mut Handle, call: impl FnOnce(&mut Handle) -> Result<(), Error>) -> c_int {
    guard(|| {
        // SAFETY: the caller passes what mlog_init gave it, from one thread.
        let handle = unsafe { m.as_mut() };
        call(handle.ok_or_else(|| Error::Usage("mlog_t is NULL".into()))?)
    })
}

fn group_of(number: c_int) -> Result<usize, Error> {
    usize::try_from(number).map_err(|_| Error::Usage(format!("group {number}")))
}

/// # Safety
/// `bytes` is readable for `length`, or `length` is 0.
unsafe fn slice<'a, T>(bytes: *const T, length: usize) -> &'a [T] {
    // SAFETY: as the caller promises.
    if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(bytes, length) } }
}

/// # Safety
/// `bytes` is writable for `length`, or `length` is 0.
unsafe fn slice_mut<'a, T>(bytes: *mut T, length: usize) -> &'a mut [T] {
    // SAFETY: as the caller promises.
    if length == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(bytes, length) } }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_init(out: *mut *mut Handle, checkpoint: u64) -> c_int {
    guard(|| {
        if out.is_null() {
            return Err(Error::Usage("mlog_init: out is NULL".into()));
        }
        let handle = Box::new(Handle { endpoint: Endpoint::start(checkpoint)?, rooms: BTreeMap::new() });
        // SAFETY: checked against NULL; the caller promises that it is writable.
        unsafe { *out = Box::into_raw(handle) };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_finalize(m: *mut Handle) -> c_int {
    guard(|| {
        if m.is_null() {
            return Err(Error::Usage("mlog_t is NULL".into()));
        }
        // SAFETY: mlog_init made it with Box::into_raw, and the caller gives it up.
        let handle = unsafe { Box::from_raw(m) };
        handle.endpoint.finalize()
    })
}

/// The text of this thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn mlog_message() -> *const c_char {
    MESSAGE.with(|m| m.borrow().as_ptr())
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_group(m: *const Handle) -> c_int {
    // SAFETY: NULL, or what mlog_init gave.
    unsafe { m.as_ref() }.map_or(-1, |h| h.endpoint.group() as c_int)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_groups(m: *const Handle) -> c_int {
    // SAFETY: NULL, or what mlog_init gave.
    unsafe { m.as_ref() }.map_or(-1, |h| h.endpoint.groups() as c_int)
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_send(
    m: *mut Handle,
    to: c_int,
    tag: c_int,
    bytes: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the caller promises that the bytes are readable.
    with(m, |h| h.endpoint.send(group_of(to)?, tag, unsafe { slice(bytes.cast(), length) }))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_recv(
    m: *mut Handle,
    from: c_int,
    tag: c_int,
    bytes: *mut c_void,
    room: usize,
    got: *mut usize,
) -> c_int {
    with(m, |h| {
        let message = h.endpoint.recv(from, tag)?;
        // SAFETY: the caller promises that the buffer is writable.
        unsafe { Room { bytes: bytes.cast(), length: room }.fill(&message, got) }
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_isend(
    m: *mut Handle,
    to: c_int,
    tag: c_int,
    bytes: *const c_void,
    length: usize,
    request: *mut u64,
) -> c_int {
    with(m, |h| {
        // SAFETY: the caller promises that the bytes are readable and the request writable.
        unsafe { *request = h.endpoint.isend(group_of(to)?, tag, slice(bytes.cast(), length))?.0 };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_irecv(
    m: *mut Handle,
    from: c_int,
    tag: c_int,
    bytes: *mut c_void,
    room: usize,
    request: *mut u64,
) -> c_int {
    with(m, |h| {
        let begun = h.endpoint.irecv(from, tag)?;
        h.rooms.insert(begun.0, Room { bytes: bytes.cast(), length: room });
        // SAFETY: the caller promises that it is writable.
        unsafe { *request = begun.0 };
        Ok(())
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_wait(m: *mut Handle, request: u64, got: *mut usize) -> c_int {
    with(m, |h| {
        let message = h.endpoint.wait(Request(request))?;
        // SAFETY: the caller promises that buffer and length are writable until now.
        unsafe { h.received(request, message, got) }
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_test(m: *mut Handle, request: u64, done: *mut c_int, got: *mut usize) -> c_int {
    with(m, |h| {
        let finished = h.endpoint.test(Request(request))?;
        // SAFETY: the caller promises that it is writable.
        unsafe { *done = c_int::from(finished.is_some()) };
        // SAFETY: the caller promises that buffer and length are writable until now.
        finished.map_or(Ok(()), |message| unsafe { h.received(request, message, got) })
    })
}

impl Handle {
    /// # Safety
    /// The buffer of the request and `got` are as the header says.
    unsafe fn received(&mut self, request: u64, message: Option<Vec<u8>>, got: *mut usize) -> Result<(), Error> {
        match (message, self.rooms.remove(&request)) {
            // SAFETY: as the caller promises.
            (Some(message), Some(room)) => unsafe { room.fill(&message, got) },
            _ => Ok(()),
        }
    }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_barrier(m: *mut Handle) -> c_int {
    with(m, |h| h.endpoint.barrier())
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_broadcast(m: *mut Handle, root: c_int, bytes: *mut c_void, length: usize) -> c_int {
    // SAFETY: the caller promises that the bytes are writable.
    with(m, |h| h.endpoint.broadcast(group_of(root)?, unsafe { slice_mut(bytes.cast(), length) }))
}

fn operation_of(number: c_int) -> Result<Operation, Error> {
    let all = [Operation::Sum, Operation::Product, Operation::Min, Operation::Max];
    let found = usize::try_from(number).ok().and_then(|n| all.get(n)).copied();
    found.ok_or_else(|| Error::Usage(format!("operation {number}")))
}

/// # Safety
/// `values` is writable for `count`.
unsafe fn reduce<N: Number>(m: *mut Handle, root: c_int, values: *mut N, count: usize, operation: c_int) -> c_int {
    with(m, |h| {
        // SAFETY: as the caller promises.
        let values = unsafe { slice_mut(values, count) };
        h.endpoint.reduce(group_of(root)?, values, operation_of(operation)?)
    })
}

/// # Safety
/// `values` is writable for `count`.
unsafe fn allreduce<N: Number>(m: *mut Handle, values: *mut N, count: usize, operation: c_int) -> c_int {
    with(m, |h| {
        // SAFETY: as the caller promises.
        let values = unsafe { slice_mut(values, count) };
        h.endpoint.allreduce(values, operation_of(operation)?)
    })
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_reduce_f64(
    m: *mut Handle,
    root: c_int,
    v: *mut f64,
    n: usize,
    operation: c_int,
) -> c_int {
    // SAFETY: the caller promises that the values are writable.
    unsafe { reduce(m, root, v, n, operation) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_reduce_i64(
    m: *mut Handle,
    root: c_int,
    v: *mut i64,
    n: usize,
    operation: c_int,
) -> c_int {
    // SAFETY: the caller promises that the values are writable.
    unsafe { reduce(m, root, v, n, operation) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_allreduce_f64(m: *mut Handle, v: *mut f64, n: usize, operation: c_int) -> c_int {
    // SAFETY: the caller promises that the values are writable.
    unsafe { allreduce(m, v, n, operation) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_allreduce_i64(m: *mut Handle, v: *mut i64, n: usize, operation: c_int) -> c_int {
    // SAFETY: the caller promises that the values are writable.
    unsafe { allreduce(m, v, n, operation) }
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_mark(m: *mut Handle, checkpoint: u64) -> c_int {
    with(m, |h| h.endpoint.mark(checkpoint))
}

/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlog_commit(m: *mut Handle, checkpoint: u64) -> c_int {
    with(m, |h| h.endpoint.commit(checkpoint))
}

//! Tells why a program gets no connection out of its sandbox, which has a network of its own: the system only says that the network
//! is unreachable.
//!
//! A handler of a signal may connect: nothing here asks for memory or takes a lock, but for [`look_up`].
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::fallback;
use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, socklen_t};
use std::ffi::{CStr, c_void};
use std::fmt::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Says which ranks are in which group. Without it the program has the node's network.
const RANKS: &CStr = c"JOULEPOINT_MPI_RANKS";

/// `connect` of the system, or of a library that stands before it, too.
static BEHIND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Connect = unsafe extern "C-unwind" fn(c_int, *const sockaddr, socklen_t) -> c_int;

/// Looks up what [`connect`] passes calls on to.
pub extern "C" fn look_up() {
    // SAFETY: a NUL-terminated name.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"connect".as_ptr()) };
    BEHIND.store(found, Ordering::Relaxed);
}

/// Passes a call on unchanged, and tells why where nothing leads to the address.
///
/// # Safety
/// As of `connect`.
pub unsafe fn connect(socket: c_int, address: *const sockaddr, bytes: socklen_t) -> c_int {
    let behind = BEHIND.load(Ordering::Relaxed);
    let code = if behind.is_null() {
        // Another library connects as it is loaded, before anything was looked up.
        // SAFETY: the caller's own arguments.
        unsafe { libc::syscall(libc::SYS_connect, socket, address, bytes) as c_int }
    } else {
        // SAFETY: what was found has the type of `connect`, and the arguments are the caller's own.
        unsafe { std::mem::transmute::<*mut c_void, Connect>(behind)(socket, address, bytes) }
    };
    if code == -1 {
        // SAFETY: this thread's own number of the last error.
        let error = unsafe { *libc::__errno_location() };
        if error == libc::ENETUNREACH {
            // SAFETY: the system has read the address.
            let found = unsafe { beyond(address, bytes) };
            found.into_iter().for_each(tell);
            // SAFETY: as above.
            unsafe { *libc::__errno_location() = error };
        }
    }
    code
}

/// The address, if it is one of the internet beyond this machine.
///
/// # Safety
/// So many bytes of it can be read.
unsafe fn beyond(address: *const sockaddr, bytes: socklen_t) -> Option<SocketAddr> {
    let bytes = bytes as usize;
    if bytes < size_of::<sockaddr>() {
        return None;
    }
    // SAFETY: there are as many bytes, wherever they lie.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    let found: SocketAddr = match c_int::from(family) {
        libc::AF_INET if bytes >= size_of::<sockaddr_in>() => {
            // SAFETY: as above.
            let of = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(of.sin_addr.s_addr));
            SocketAddrV4::new(ip, u16::from_be(of.sin_port)).into()
        }
        libc::AF_INET6 if bytes >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above.
            let of = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(of.sin6_addr.s6_addr);
            SocketAddrV6::new(ip, u16::from_be(of.sin6_port), 0, 0).into()
        }
        _ => return None,
    };
    Some(found).filter(|found| !found.ip().to_canonical().is_loopback())
}

/// Notes it, and says it once.
fn tell(address: SocketAddr) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    // SAFETY: a NUL-terminated name; who changes the environment answers for that there is no other thread.
    if unsafe { libc::getenv(RANKS.as_ptr()) }.is_null() {
        return;
    }
    let reason = Line::of(format_args!("it connects to {address}, out of its sandbox, which has a network of its own"));
    fallback::note(reason.text());
    if !IS_SAID.swap(true, Ordering::Relaxed) {
        let said = Line::of(format_args!(
            "joulepoint: no way to {address}: ranks over several nodes have a network of their own on each; \
             --ft-energy-engine=app, hook or scr leaves them the node's\n"
        ));
        // SAFETY: the text lives as long as the call.
        unsafe { libc::write(libc::STDERR_FILENO, said.text().as_ptr().cast(), said.text().len()) };
    }
}

/// A line that is written without memory being asked for.
struct Line {
    bytes: [u8; 320],
    length: usize,
}

impl Line {
    fn of(text: fmt::Arguments<'_>) -> Line {
        let mut line = Line { bytes: [0; 320], length: 0 };
        // What does not fit is left out.
        let _ = line.write_fmt(text);
        line
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let into = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        into.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_4(ip: Ipv4Addr, bytes: usize) -> Option<SocketAddr> {
        // SAFETY: all of it may be zeros.
        let mut address: sockaddr_in = unsafe { std::mem::zeroed() };
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = 443_u16.to_be();
        address.sin_addr.s_addr = u32::from(ip).to_be();
        // SAFETY: an address that lives as long as the call.
        unsafe { beyond((&raw const address).cast(), bytes as socklen_t) }
    }

    fn of_6(ip: Ipv6Addr) -> Option<SocketAddr> {
        // SAFETY: all of it may be zeros.
        let mut address: sockaddr_in6 = unsafe { std::mem::zeroed() };
        address.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        address.sin6_port = 443_u16.to_be();
        address.sin6_addr.s6_addr = ip.octets();
        // SAFETY: an address that lives as long as the call.
        unsafe { beyond((&raw const address).cast(), size_of::<sockaddr_in6>() as socklen_t) }
    }

    #[test]
    fn only_addresses_of_the_internet_beyond_this_machine_count() {
        let there = Ipv4Addr::new(10, 0, 0, 2);
        let whole = size_of::<sockaddr_in>();
        assert_eq!(of_4(there, whole), Some("10.0.0.2:443".parse().expect("an address")));
        assert_eq!((of_4(there, 2), of_4(Ipv4Addr::new(127, 0, 1, 1), whole)), (None, None));
        assert_eq!(of_6("fd00::2".parse().expect("an address")), Some("[fd00::2]:443".parse().expect("an address")));
        assert_eq!((of_6(Ipv6Addr::LOCALHOST), of_6(Ipv4Addr::LOCALHOST.to_ipv6_mapped())), (None, None));
        let local = sockaddr { sa_family: libc::AF_UNIX as libc::sa_family_t, sa_data: [0; 14] };
        // SAFETY: an address that lives as long as the call.
        let found = unsafe { beyond(&raw const local, size_of::<sockaddr>() as socklen_t) };
        assert_eq!(found, None);
    }

    #[test]
    fn a_line_has_what_fits() {
        assert_eq!(Line::of(format_args!("to {}", Ipv4Addr::LOCALHOST)).text(), "to 127.0.0.1");
        assert_eq!(Line::of(format_args!("short, {}", "x".repeat(400))).text(), "short, ");
    }
}

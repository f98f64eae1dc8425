//! The unix socket of a relay: a path, or `@NAME` for one that no file system has, which is gone with its relay
//! however that ends.

use crate::frame::LONGEST_BYTES;
use crate::link::{Link, Stream};
use crate::{Error, absent, system};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

/// The longest name of a unix socket, bytes.
const LONGEST: usize = 107;

/// Connects to a relay. Any user can take an abstract socket name, so only a relay of the same user, or root, is
/// accepted.
///
/// # Errors
/// What the socket says, or it is another user's.
pub fn connect(door: &Path) -> Result<Link, Error> {
    let connect = || {
        let stream = UnixStream::connect_addr(&address(door)?)?;
        if !is_ours(&stream) {
            return Err(io::Error::other("it is another user's"));
        }
        Link::new(Stream::Unix(stream), LONGEST_BYTES)
    };
    connect().map_err(system(door.display()))
}

/// Opens the socket on which a relay listens for the user's programs.
///
/// # Errors
/// A name that is too long, or what the system says.
pub fn open(door: &Path) -> Result<UnixListener, Error> {
    if door.as_os_str().len() > LONGEST {
        let what = format!("{}: too long for a socket; name a shorter one with --socket", door.display());
        return Err(Error::Usage(what));
    }
    let is_file = name(door).is_none();
    if is_file {
        // The lock on the log shows that no other relay of this group lives: an existing socket file is a leftover.
        absent(door)?;
    }
    let open = || {
        let listener = UnixListener::bind_addr(&address(door)?)?;
        listener.set_nonblocking(true)?;
        if is_file {
            std::fs::set_permissions(door, std::fs::Permissions::from_mode(0o600))?;
        }
        Ok(listener)
    };
    open().map_err(system(door.display()))
}

/// Whether the other side is the relay's own user or root.
pub fn is_ours(stream: &UnixStream) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    getsockopt(stream, PeerCredentials).is_ok_and(|c| c.uid() == own || c.uid() == 0)
}

/// The name of an abstract socket (`@NAME`).
fn name(door: &Path) -> Option<&[u8]> {
    door.as_os_str().as_bytes().strip_prefix(b"@")
}

fn address(door: &Path) -> io::Result<SocketAddr> {
    name(door).map_or_else(|| SocketAddr::from_pathname(door), SocketAddr::from_abstract_name)
}

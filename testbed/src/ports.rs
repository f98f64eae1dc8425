//! Picks a block of TCP ports for one cluster, so that several can live at the same time, and addresses for services.

use anyhow::{Result, bail};
use std::net::{Ipv4Addr, SocketAddr as TcpAddress, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU8, Ordering};

/// Below the range from which Linux takes ports for outgoing connections.
const FIRST: u16 = 21_000;
const BLOCK: u16 = 100;
const BLOCKS: u16 = 100;

/// A block of ports that is ours as long as this value lives.
#[derive(Debug)]
pub(crate) struct Ports {
    first: u16,
    /// An abstract socket's name is taken by one process at a time and freed by the kernel.
    _claim: UnixListener,
}

impl Ports {
    /// Takes the first block in which `count` ports are free.
    pub(crate) fn claim(count: u16) -> Result<Ports> {
        if count > BLOCK {
            bail!("{count} ports asked for, a block has {BLOCK}");
        }
        // Start at a place of our own, so that a block freed a moment ago is not the first to be tried.
        let start = (std::process::id() % u32::from(BLOCKS)) as u16;
        for i in 0..BLOCKS {
            let block = (start + i) % BLOCKS;
            let first = FIRST + block * BLOCK;
            let name = format!("joulepoint-testbed-ports-{first}");
            let Ok(claim) = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) else {
                continue;
            };
            if (first..first + count).all(|p| TcpListener::bind(("0.0.0.0", p)).is_ok()) {
                return Ok(Ports { first, _claim: claim });
            }
        }
        bail!("no {count} free ports together between {FIRST} and {}", FIRST + BLOCKS * BLOCK)
    }

    pub(crate) fn controller(&self) -> u16 {
        self.first
    }

    pub(crate) fn dbd(&self) -> u16 {
        self.first + 1
    }

    /// Node n1's port; n2 has the next one, and so on.
    pub(crate) fn first_node(&self) -> u16 {
        self.first + 2
    }
}

/// Port of every [`own_address`]: below those of the clusters and of outgoing connections.
const OWN: u16 = 20_907;

/// An address of this machine at which a service of this process can listen, now and after it was killed: a free port
/// of 127.0.0.1 may meanwhile be given to anybody.
pub fn own_address() -> TcpAddress {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    loop {
        let of_process = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = TcpAddress::from((Ipv4Addr::new(127, of_process.max(1), high, low), OWN));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clusters_get_different_ports() {
        let a = Ports::claim(10).unwrap();
        let b = Ports::claim(10).unwrap();
        assert_ne!(a.controller(), b.controller());
    }
}

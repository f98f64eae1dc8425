//! Picks addresses of this machine's own for services that tests start without a cluster.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU8, Ordering};

/// Port of every [`own_address`]: below those of outgoing connections.
const OWN: u16 = 20_907;

/// An address of this machine at which a service of this process can listen, now and after it was killed: a free port
/// of 127.0.0.1 may meanwhile be given to anybody.
pub fn own_address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    loop {
        let of_process = NEXT.fetch_add(1, Ordering::Relaxed);
        let address = SocketAddr::from((Ipv4Addr::new(127, of_process.max(1), high, low), OWN));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

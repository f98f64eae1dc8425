//! Sockets of a set of processes, and whether what is at their other end belongs to the set.

use crate::limits::{self, Limit};
use openfiles::process;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// State of an established connection in `/proc/net`.
const ESTABLISHED: &str = "01";

/// What is known of sockets.
pub struct Sockets {
    /// Inodes of the set's sockets.
    ours: BTreeSet<u64>,
    /// TCP connections: inode, and the addresses here and there.
    tcp: BTreeMap<u64, Connection>,
    /// Both ends of the set's connections, as they are seen here.
    local: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Whether the processes are in the network of whoever looks: a connection within it cannot be dumped.
    in_our_network: bool,
    /// Unix sockets with a peer.
    peers: BTreeMap<u64, u64>,
    /// Sockets of families that can be brought back.
    known: BTreeSet<u64>,
}

/// A connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    here: SocketAddr,
    there: SocketAddr,
}

impl Sockets {
    /// Reads the sockets of `pids`.
    pub fn of(root: &Path, pids: &[i32]) -> Sockets {
        let mut sockets = Sockets {
            ours: BTreeSet::new(),
            tcp: BTreeMap::new(),
            local: BTreeSet::new(),
            peers: unix_peers(),
            known: BTreeSet::new(),
            in_our_network: false,
        };
        let network = |pid: &str| fs::read_link(root.join(pid).join("ns/net")).ok();
        let ours = network("self");
        for pid in pids {
            sockets.in_our_network |= ours.is_some() && network(&pid.to_string()) == ours;
            let folder = root.join(pid.to_string());
            let links = process::links(&folder).unwrap_or_default().into_iter();
            sockets.ours.extend(links.filter_map(|(_, to)| inode(&to.to_string_lossy())));
            for (table, column) in [("udp", 9), ("udp6", 9), ("raw", 9), ("packet", 8), ("netlink", 9), ("unix", 6)] {
                sockets.known.extend(rows(&folder, table).filter_map(|r| r.get(column)?.parse::<u64>().ok()));
            }
            for row in rows(&folder, "tcp").chain(rows(&folder, "tcp6")) {
                sockets.add_tcp(&row);
            }
        }
        let ours = sockets.tcp.iter().filter(|(inode, _)| sockets.ours.contains(inode));
        sockets.local = ours.map(|(_, c)| (c.here, c.there)).collect();
        sockets
    }

    fn add_tcp(&mut self, row: &[String]) {
        let [_, here, there, state, ..] = row else { return };
        let Some(inode) = row.get(9).and_then(|i| i.parse().ok()) else { return };
        self.known.insert(inode);
        if state == ESTABLISHED
            && let (Some(here), Some(there)) = (address(here), address(there))
        {
            self.tcp.insert(inode, Connection { here, there });
        }
    }

    /// Why the TCP connection behind a descriptor stands in the way.
    pub fn connection(&self, path: &str) -> Option<(Limit, String)> {
        let Connection { here, there } = self.tcp.get(&inode(path)?)?;
        let is_inside = self.local.contains(&(*there, *here));
        match (is_inside, self.in_our_network) {
            (false, _) => Some((limits::TCP_OUTSIDE, format!("a TCP connection to outside the processes, {there}"))),
            (true, true) => {
                Some((limits::TCP_WITHIN, format!("a TCP connection within the job in the node's network, {there}")))
            }
            (true, false) => None,
        }
    }

    /// Why the socket behind a descriptor stands in the way.
    pub fn foreign(&self, path: &str) -> Option<(Limit, String)> {
        let inode = inode(path)?;
        if self.tcp.contains_key(&inode) {
            return self.connection(path);
        }
        if let Some(peer) = self.peers.get(&inode) {
            let found = "a unix socket whose other end is outside the processes".to_string();
            return (!self.ours.contains(peer)).then_some((limits::UNIX_OUTSIDE, found));
        }
        let rare = "a socket of a rare family, or of another network".to_string();
        (!self.known.contains(&inode)).then_some((limits::TCP_OUTSIDE, rare))
    }
}

fn inode(path: &str) -> Option<u64> {
    path.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Words of the lines of a table below `/proc/PID/net`.
fn rows(folder: &Path, table: &str) -> impl Iterator<Item = Vec<String>> + use<> {
    let text = process::text(&folder.join("net").join(table)).unwrap_or_default();
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect();
    text.lines().skip(1).map(words).collect::<Vec<Vec<String>>>().into_iter()
}

/// `0100007F:1F90`: the address as the kernel's memory holds it, four bytes at a time, and the port. An address of version 4
/// within version 6 is one of version 4.
fn address(hex: &str) -> Option<SocketAddr> {
    let (ip, port) = hex.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
}

/// Each connected unix socket with its peer, if it has one.
fn unix_peers() -> BTreeMap<u64, u64> {
    let pairs = crate::peers::pairs().unwrap_or_default();
    pairs.into_iter().filter(|(_, peer)| *peer != 0).map(|(one, peer)| (one.into(), peer.into())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A `/proc` with one process that has both ends of a connection by version 6 and 4, and one end of another.
    fn proc(network: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("7");
        fs::create_dir_all(folder.join("fd")).unwrap();
        for (pid, of) in [("7", network), ("self", "net:[1]")] {
            fs::create_dir_all(dir.path().join(pid).join("ns")).unwrap();
            symlink(of, dir.path().join(pid).join("ns/net")).unwrap();
        }
        for inode in [11, 12, 13] {
            symlink(format!("socket:[{inode}]"), folder.join("fd").join(inode.to_string())).unwrap();
        }
        fs::create_dir(folder.join("net")).unwrap();
        let row = |here: &str, there: &str, inode: u64| format!("0: {here} {there} 01 0:0 0:0 0 1000 0 {inode} 1\n");
        let four = row("0100007F:9C40", "0100007F:1F90", 11) + &row("0100007F:9C41", "0100007F:0BB8", 13);
        let mapped = "0000000000000000FFFF00000100007F";
        fs::write(folder.join("net/tcp"), format!("head\n{four}")).unwrap();
        let six = row(&format!("{mapped}:1F90"), &format!("{mapped}:9C40"), 12);
        fs::write(folder.join("net/tcp6"), format!("head\n{six}")).unwrap();
        let unix = b"head\n0: 2 0 0 1 1 20 /caf\xe9\n0: 2 0 0 1 1 21\n";
        fs::write(folder.join("net/unix"), unix).unwrap();
        dir
    }

    #[test]
    fn a_connection_within_the_processes_can_be_dumped_in_a_network_of_their_own_only() {
        for (network, within) in [("net:[2]", None), ("net:[1]", Some(limits::TCP_WITHIN))] {
            let dir = proc(network);
            let sockets = Sockets::of(dir.path(), &[7]);
            let kind = |inode: u64| sockets.foreign(&format!("socket:[{inode}]")).map(|(limit, _)| limit);
            assert_eq!([kind(11), kind(12)], [within, within], "{network}: ::ffff:127.0.0.1 is 127.0.0.1");
            let (limit, found) = sockets.foreign("socket:[13]").unwrap();
            assert!(limit == limits::TCP_OUTSIDE && found.contains("127.0.0.1:3000"), "{found}");
            assert_eq!([kind(20), kind(21)], [None, None], "a socket's name need not be UTF-8");
        }
    }
}

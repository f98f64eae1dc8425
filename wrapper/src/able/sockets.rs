//! Sockets of a set of processes, and whether what is at their other end belongs to the set.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// State of an established connection in `/proc/net`.
const ESTABLISHED: &str = "01";

/// What is known of sockets.
pub struct Sockets {
    /// Inodes of the set's sockets.
    ours: BTreeSet<u64>,
    /// TCP connections: inode, and the addresses here and there.
    tcp: BTreeMap<u64, (String, String)>,
    /// Addresses here of the set's connections.
    local: BTreeSet<(String, String)>,
    /// Unix sockets with a peer.
    peers: BTreeMap<u64, u64>,
    /// Sockets of families that can be brought back.
    known: BTreeSet<u64>,
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
        };
        for pid in pids {
            let folder = root.join(pid.to_string());
            let entries = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
            let targets = entries.filter_map(|e| fs::read_link(e.path()).ok());
            sockets.ours.extend(targets.filter_map(|t| inode(&t.to_string_lossy())));
            for (table, column) in [("udp", 9), ("udp6", 9), ("raw", 9), ("packet", 8), ("netlink", 9), ("unix", 6)] {
                sockets.known.extend(rows(&folder, table).filter_map(|r| r.get(column)?.parse::<u64>().ok()));
            }
            for row in rows(&folder, "tcp").chain(rows(&folder, "tcp6")) {
                sockets.add_tcp(&row);
            }
        }
        let ours = sockets.tcp.iter().filter(|(inode, _)| sockets.ours.contains(inode));
        sockets.local = ours.map(|(_, ends)| ends.clone()).collect();
        sockets
    }

    fn add_tcp(&mut self, row: &[String]) {
        let [_, here, there, state, ..] = row else { return };
        let Some(inode) = row.get(9).and_then(|i| i.parse().ok()) else { return };
        self.known.insert(inode);
        if state == ESTABLISHED {
            self.tcp.insert(inode, (here.clone(), there.clone()));
        }
    }

    /// Why the socket behind a descriptor stands in the way.
    pub fn foreign(&self, path: &str) -> Option<(&'static str, String, &'static str)> {
        let inode = inode(path)?;
        if let Some((here, there)) = self.tcp.get(&inode) {
            let inside = self.local.contains(&(there.clone(), here.clone()));
            let found = format!("a TCP connection to outside the processes, {}", address(there));
            return (!inside).then_some(("socket", found, "a connection that the program makes anew when it is lost"));
        }
        if let Some(peer) = self.peers.get(&inode) {
            let found = "a unix socket whose other end is outside the processes".to_string();
            let instead = "no daemon's socket held open (with MPI: mpirun, not srun --mpi=pmix)";
            return (!self.ours.contains(peer)).then_some(("socket", found, instead));
        }
        (!self.known.contains(&inode))
            .then(|| ("socket", "a socket of a rare family, or of another network".to_string(), "TCP or unix sockets"))
    }
}

fn inode(path: &str) -> Option<u64> {
    path.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Words of the lines of a table below `/proc/PID/net`.
fn rows(folder: &Path, table: &str) -> impl Iterator<Item = Vec<String>> + use<> {
    let text = fs::read_to_string(folder.join("net").join(table)).unwrap_or_default();
    let words = |line: &str| line.split_whitespace().map(str::to_string).collect();
    text.lines().skip(1).map(words).collect::<Vec<Vec<String>>>().into_iter()
}

/// `0100007F:1F90` as people write it; other forms as they are.
fn address(hex: &str) -> String {
    let parts = hex.split_once(':').and_then(|(ip, port)| {
        let ip = (ip.len() == 8).then(|| u32::from_str_radix(ip, 16).ok()).flatten()?;
        Some((std::net::Ipv4Addr::from(ip.to_ne_bytes()), u16::from_str_radix(port, 16).ok()?))
    });
    parts.map_or_else(|| hex.to_string(), |(ip, port)| format!("{ip}:{port}"))
}

/// Each connected unix socket with its peer, if it has one.
fn unix_peers() -> BTreeMap<u64, u64> {
    let pairs = ::criu::peers::pairs().unwrap_or_default();
    pairs.into_iter().filter(|(_, peer)| *peer != 0).map(|(one, peer)| (one.into(), peer.into())).collect()
}

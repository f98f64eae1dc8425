//! A network of a sandbox's own, which leads nowhere: its loopback device has the addresses of the node's name, too.

use openfiles::patiently::patiently;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Holds the addresses of all nodes on which the program of a run was: it may have connections between them.
const ADDRESSES: &str = "addresses";

/// Longest time in which the name of a node is looked up.
const LOOKED_UP: Duration = Duration::from_secs(5);

/// What the names of this node and of those before stood for (IPv4). What cannot be kept is told: a later life may lack it.
///
/// # Errors
/// What was kept cannot be read.
pub fn addresses(run: &Path) -> io::Result<BTreeSet<Ipv4Addr>> {
    let file = run.join(ADDRESSES);
    let kept = match patiently(|| fs::read_to_string(&file)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let before: BTreeSet<Ipv4Addr> = kept.lines().filter_map(|line| line.parse().ok()).collect();
    let all: BTreeSet<Ipv4Addr> = before.iter().copied().chain(of_this_node()).collect();
    if all != before {
        let text: String = all.iter().map(|address| format!("{address}\n")).collect();
        if let Err(e) = patiently(|| write(&file, &text)) {
            tracing::warn!(%e, "the addresses of this node are not kept");
        }
    }
    Ok(all)
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    let part = file.with_extension("part");
    fs::write(&part, text)?;
    File::open(&part)?.sync_all()?;
    fs::rename(&part, file)
}

/// What this node's name stands for. A process of its own looks it up: that may take long, and load what starts threads.
fn of_this_node() -> Vec<Ipv4Addr> {
    let Ok(name) = nix::unistd::gethostname() else { return Vec::new() };
    let mut command = Command::new("getent");
    command.arg("ahostsv4").arg(name).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Vec::new() };
    let until = Instant::now() + LOOKED_UP;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let said = child.wait_with_output().map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let found = said.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    found.filter(|address: &Ipv4Addr| !address.is_loopback()).collect()
}

/// Enables the loopback device of this process's network, with these addresses.
///
/// # Errors
/// A sentence.
pub fn raise(addresses: &BTreeSet<Ipv4Addr>) -> Result<(), String> {
    let told = |e: io::Error| format!("the loopback interface: {e}");
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(told)?;
    let ask = |what, name: &str, fill: &dyn Fn(&mut libc::ifreq)| {
        // SAFETY: all-zero is a valid request; the kernel reads name, flags and address of it (netdevice(7)).
        let done = unsafe {
            let mut request: libc::ifreq = std::mem::zeroed();
            request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(to, byte)| *to = byte as libc::c_char);
            fill(&mut request);
            libc::ioctl(socket.as_raw_fd(), what, &request)
        };
        if done == 0 { Ok(()) } else { Err(told(io::Error::last_os_error())) }
    };
    let address = |of: Ipv4Addr| {
        move |request: &mut libc::ifreq| {
            // SAFETY: an address of the internet fits into one of any kind.
            let to = unsafe { &mut *(&raw mut request.ifr_ifru.ifru_addr).cast::<libc::sockaddr_in>() };
            to.sin_family = libc::AF_INET as libc::sa_family_t;
            to.sin_addr.s_addr = u32::from(of).to_be();
        }
    };
    ask(libc::SIOCSIFFLAGS, "lo", &|request| request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short)?;
    for (at, one) in addresses.iter().enumerate() {
        let name = format!("lo:{}", at + 1);
        let added = ask(libc::SIOCSIFADDR, &name, &address(*one));
        if let Err(e) = added.and_then(|()| ask(libc::SIOCSIFNETMASK, &name, &address(Ipv4Addr::BROADCAST))) {
            tracing::warn!(e, %one, "an address of this node is not in the network of the program");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sched::{CloneFlags, unshare};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_network_has_the_addresses_of_all_nodes_of_its_run() {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join(ADDRESSES), "192.0.2.7\n198.51.100.9\n").unwrap();
        let all = addresses(run.path()).unwrap();
        assert!(all.contains(&Ipv4Addr::new(192, 0, 2, 7)) && all.len() >= 2 && all == addresses(run.path()).unwrap());
        let inside = std::thread::spawn(move || {
            let own = unshare(CloneFlags::CLONE_NEWNET).inspect_err(|e| println!("skipped: no network: {e}"));
            let Ok(()) = own else { return true };
            raise(&all).unwrap();
            let listens =
                |one: &Ipv4Addr| TcpListener::bind((*one, 0)).and_then(|l| TcpStream::connect(l.local_addr()?));
            all.iter().all(|one| listens(one).is_ok())
        });
        assert!(inside.join().unwrap());
    }
}

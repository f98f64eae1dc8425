//! The cluster's network: a switch, a cable from it to each end, and what is done to those cables.

use crate::cables::{Cables, End};
use crate::netns::{NetNs, feed};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Networks are 10.77.0.0/24 to 10.77.255.0/24.
const NETWORKS: u32 = 256;
/// Most nodes that have an address in one.
pub(crate) const MOST_NODES: u32 = 240;
/// Longest time that a frame waits for a slow cable before it is dropped.
const SLOW_QUEUE: &str = "400ms";

/// A network of its own for one cluster, ours as long as this value lives: it is held by descriptors of this process
/// alone, so that the kernel takes all of it away when the process ends, by whatever cause.
#[derive(Debug)]
pub struct Network {
    /// The third byte of its addresses.
    number: u8,
    switch: NetNs,
    /// The ends that have a namespace of their own.
    hosts: Mutex<BTreeMap<End, NetNs>>,
    cables: Mutex<Cables>,
    /// An abstract socket's name is taken by one process at a time and freed by the kernel.
    _claim: UnixListener,
}

impl Network {
    /// Takes the first network that nobody has, and connects this machine to it as the login node.
    pub fn new() -> Result<Network> {
        let switch = NetNs::new()?;
        switch.ip("link add name switch type bridge mcast_snooping 0\nlink set dev switch up\n")?;
        // Start at a place of our own, so that a number freed a moment ago is not the first to be tried.
        let first = std::process::id();
        for number in (0..NETWORKS).map(|i| ((first + i) % NETWORKS) as u8) {
            let name = format!("joulepoint-testbed-network-{number}");
            let Ok(claim) = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?) else {
                continue;
            };
            if link_exists(number) {
                continue; // of a cluster that is just being taken away, or of another network namespace
            }
            let network = Network { number, switch, hosts: Mutex::default(), cables: Mutex::default(), _claim: claim };
            network.connect_login()?;
            return Ok(network);
        }
        bail!("none of the networks 10.77.0.0/24 to 10.77.255.0/24 is free")
    }

    /// The address of an end.
    pub fn address(&self, end: &End) -> Ipv4Addr {
        let last = match end {
            End::Slurmctld => 1,
            End::Service => 2,
            End::Node(number) => 10 + number,
            End::Login => 254,
        };
        Ipv4Addr::new(10, 77, self.number, last as u8)
    }

    /// Gives each of `ends` a namespace and a cable.
    pub(crate) fn plug(&self, ends: &[End]) -> Result<()> {
        for end in ends {
            let own = NetNs::new()?;
            let mac = format!("02:4a:50:{:02x}:00:{:02x}", self.number, self.address(end).octets()[3]);
            self.switch.ip(&format!(
                "link add name {end} type veth peer name eth0 address {mac} netns {}\n\
                 link set dev {end} master switch\nlink set dev {end} up\n",
                own.path().display()
            ))?;
            own.ip(&format!(
                "link set dev lo up\nlink set dev eth0 addrgenmode none\naddress add {}/24 dev eth0\n\
                 link set dev eth0 up\n",
                self.address(end)
            ))?;
            lock(&self.hosts).insert(end.clone(), own);
            if let Some(bytes_per_s) = lock(&self.cables).rate(end) {
                self.shape(end, Some(bytes_per_s))?;
            }
        }
        Ok(())
    }

    /// Takes the cable of an end away, and lets go of its namespace. Nobody is told of it.
    pub(crate) fn unplug(&self, end: &End) -> Result<()> {
        self.switch.ip(&format!("link delete dev {end}\n"))?;
        lock(&self.hosts).remove(end);
        Ok(())
    }

    /// Lets a command run where `end` is; nothing is to be done for the login node, which is here.
    pub(crate) fn enter(&self, end: &End, command: &mut Command) -> Result<()> {
        if *end == End::Login {
            return Ok(());
        }
        self.host(end)?.enter(command);
        Ok(())
    }

    /// Runs `f` where `end` is.
    pub(crate) fn run<T: Send>(&self, end: &End, f: impl FnOnce() -> T + Send) -> Result<T> {
        if *end == End::Login {
            return Ok(f());
        }
        self.host(end)?.run(f)
    }

    fn host(&self, end: &End) -> Result<NetNs> {
        lock(&self.hosts).get(end).cloned().with_context(|| format!("{end} has no cable"))
    }

    /// Changes what the switch drops, at one stroke.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Cables)) -> Result<()> {
        let mut cables = lock(&self.cables);
        change(&mut cables);
        self.switch.feed(&["nft", "-f", "-"], &cables.rules())
    }

    /// Lets at most so many bytes a second through the cable of an end, each way; `None` is no limit.
    pub(crate) fn slow(&self, end: &End, bytes_per_s: Option<u64>) -> Result<()> {
        let before = lock(&self.cables).set_rate(end, bytes_per_s);
        // The cable of an end without power gets it with the power.
        let is_there = lock(&self.hosts).contains_key(end);
        if is_there && (before.is_some() || bytes_per_s.is_some()) {
            self.shape(end, bytes_per_s)?;
        }
        Ok(())
    }

    /// Ends everything that is wrong with the cables, but for what is dark.
    pub(crate) fn heal(&self) -> Result<()> {
        let slow = lock(&self.cables).slow();
        for end in slow {
            self.slow(&end, None)?;
        }
        self.change(Cables::heal_all)
    }

    fn shape(&self, end: &End, bytes_per_s: Option<u64>) -> Result<()> {
        let line = |device: &str| match bytes_per_s {
            // The bucket holds a hundredth of a second, and a frame at least.
            Some(rate) => {
                let bucket = (rate / 100).max(2000);
                format!("qdisc replace dev {device} root tbf rate {rate}bps burst {bucket}b latency {SLOW_QUEUE}\n")
            }
            None => format!("qdisc delete dev {device} root\n"),
        };
        self.switch.feed(&["tc", "-batch", "-"], &line(&end.to_string()))?;
        let there = if *end == End::Login { login_link(self.number) } else { "eth0".to_string() };
        let mut command = Command::new("tc");
        command.args(["-batch", "-"]);
        let hosts = lock(&self.hosts);
        match hosts.get(end) {
            Some(own) => own.enter(&mut command),
            None if *end == End::Login => {}
            None => return Ok(()), // without power: done when it is plugged in again
        }
        feed(command, &line(&there))
    }

    fn connect_login(&self) -> Result<()> {
        let (link, here) = (login_link(self.number), std::process::id());
        self.switch.ip(&format!(
            "link add name login type veth peer name {link} netns /proc/{here}/ns/net\n\
             link set dev login master switch\nlink set dev login up\n"
        ))?;
        let lines = format!(
            "link set dev {link} addrgenmode none\naddress add {}/24 dev {link}\nlink set dev {link} up\n",
            self.address(&End::Login)
        );
        let mut ip = Command::new("ip");
        ip.args(["-batch", "-"]);
        feed(ip, &lines)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The kernel would do it a moment later.
        let mut ip = Command::new("ip");
        let _ = ip.args(["link", "delete", "dev", &login_link(self.number)]).stderr(Stdio::null()).status();
    }
}

/// This machine's end of the login node's cable.
fn login_link(number: u8) -> String {
    format!("jptest{number}")
}

fn link_exists(number: u8) -> bool {
    std::path::Path::new("/sys/class/net").join(login_link(number)).exists()
}

/// What a panicking test left is still true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_networks_have_different_numbers_and_are_gone_with_their_values() {
        let (a, b) = (Network::new().unwrap(), Network::new().unwrap());
        assert_ne!(a.number, b.number);
        let numbers = [a.number, b.number];
        assert!(numbers.map(link_exists).iter().all(|is| *is));
        drop((a, b));
        assert!(!numbers.map(link_exists).iter().any(|is| *is));
    }
}

//! Whether the node service runs here, and reads energy from a counter.

use crate::Findings;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longest wait for the node service.
const LIMIT: Duration = Duration::from_secs(2);

/// Looks for the node service, then opens the energy sources as it does.
pub(crate) fn examine(site: &config::Site, findings: &mut Findings) {
    match answers(&site.node.listen) {
        Ok(address) => findings.ok("node-service", format!("answers at {address}")),
        Err(e) => {
            let cure = "start it: systemctl start joulepoint-node; without it the node's energy is not metered";
            findings.fault("node-service", e, cure);
        }
    }
    let meter = energy::open(&site.energy.sources());
    let refused: Vec<String> = meter.refused().iter().map(|(kind, why)| format!("{kind}: {why}")).collect();
    if site.energy.sources().precedence.first() == Some(&energy::SourceKind::Model) {
        findings.ok("energy-source", "estimated, as energy.sources wants it");
    } else if meter.source() == energy::SourceKind::Model {
        let what = format!("no counter can be read, so energy is estimated ({})", refused.join("; "));
        let cure = "as root: modprobe intel_rapl_msr, or choose energy.sources; see docs/energy.md";
        findings.warning("energy-source", what, cure);
    } else {
        findings.ok("energy-source", meter.describe());
    }
}

fn answers(listen: &str) -> Result<String, String> {
    let local = listen.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]");
    let address = local.to_socket_addrs().map_err(|e| format!("node.listen = {listen}: {e}"))?.next();
    let address = address.ok_or_else(|| format!("node.listen = {listen} names no address"))?;
    TcpStream::connect_timeout(&address, LIMIT).map(|_| local).map_err(|e| format!("{address}: {e}"))
}

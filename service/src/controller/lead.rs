//! One controller of a site leads, another may wait as its standby: on one MariaDB, by [`store::Leadership`].

use anyhow::{Context, Result, ensure};
use listener::health::part;
use protocol::Part;
use slurm::Slurm;
use std::sync::Arc;
use store::Leadership;
use tokio::net::{TcpSocket, lookup_host};

/// Exit status of a controller that leads no more: it is started again, and waits.
const LEADS_NO_MORE: i32 = 75;

/// The lead of this controller.
pub(super) struct Lead {
    /// None where the store is a file, which one host has.
    of: Option<Arc<Leadership>>,
    /// Whether the site has a standby.
    has_standby: bool,
}

/// Takes the address, on which nobody is answered yet. If another controller on this host has it, nothing else is touched.
pub(super) async fn bind(address: &str) -> Result<TcpSocket> {
    let wrong = || format!("controller.listen = {address}");
    let at = lookup_host(address).await.with_context(wrong)?.next().with_context(wrong)?;
    let socket = if at.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(at).with_context(wrong)?;
    Ok(socket)
}

/// What other controllers know this one by.
fn own_name(listen: &str) -> Result<String> {
    Ok(format!("{} ({listen})", nix::unistd::gethostname()?.to_string_lossy()))
}

impl Lead {
    /// Waits until no other controller leads.
    ///
    /// # Errors
    /// What MariaDB says, or that the site names two controllers whose store is of one host.
    pub(super) async fn take(of: &config::Controller) -> Result<Lead> {
        let (store, who) = (of.store.clone(), own_name(&of.listen)?);
        let lead = tokio::task::spawn_blocking(move || Leadership::wait(&store, &who)).await??.map(Arc::new);
        let has_standby = of.urls().count() > 1;
        ensure!(
            lead.is_some() || !has_standby,
            "controller.url names two controllers, and controller.store = {} is of one host: they need one MariaDB",
            store::shown(&of.store)
        );
        if let Some(lead) = lead.clone() {
            std::thread::spawn(move || {
                lead.renew_for_ever(has_standby);
                tracing::error!(
                    "another controller has taken the lead, or may have: this one begins again, as its standby"
                );
                // Threads of ours may be in the middle of something; the store takes no more of it.
                std::process::exit(LEADS_NO_MORE);
            });
        }
        Ok(Lead { of: lead, has_standby })
    }

    /// What the store is opened by.
    pub(super) fn leadership(&self) -> Option<&Leadership> {
        self.of.as_deref()
    }

    /// Slurm, to which nothing is done while another controller may lead.
    pub(super) fn over(&self, slurm: Slurm) -> Slurm {
        match self.of.clone() {
            Some(lead) => slurm.that_acts_while(move || lead.is_confirmed()),
            None => slurm,
        }
    }

    /// How the standby is, if there has been one.
    pub(super) fn standby(&self) -> Option<Part> {
        let (name, is_there) = self.of.as_ref().filter(|_| self.has_standby)?.standby()?;
        Some(part(if is_there {
            Ok(format!("{name} waits"))
        } else {
            Err(format!("{name} waits no more: start its joulepoint-controller"))
        }))
    }

    /// Lets the standby lead at once.
    pub(super) fn give_up(&self) {
        if let Some(Err(e)) = self.of.as_ref().map(|lead| lead.give_up()) {
            tracing::warn!(%e, "a standby will wait until it misses this controller");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_on_which_somebody_answers_is_not_taken() {
        let first = bind("127.0.0.1:0").await.unwrap();
        let first = first.listen(1).unwrap();
        let e = bind(&first.local_addr().unwrap().to_string()).await.unwrap_err();
        assert!(format!("{e:#}").contains("controller.listen = 127.0.0.1:"), "{e:#}");
    }
}

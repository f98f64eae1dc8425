//! The life of the packages on one host whose Slurm does not run: installed, started, upgraded, removed, purged.

use crate::site::{CONTROLLER, DEBS, Site, debian};
use crate::steps::{differences, next_version};
use anyhow::{Result, ensure};

const UNITS: &str = "joulepoint-controller joulepoint-node";

#[test]
fn a_host_is_upgraded_and_at_last_left_as_it_was() -> Result<()> {
    let debian = match debian("bookworm") {
        Ok(debian) => debian,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(());
        }
    };
    let site = Site::without_slurm(debian, "22.05", &[CONTROLLER])?;
    site.root(&format!(
        "cd {DEBS} && apt-get install -q -y ./joulepoint_*.deb ./joulepoint-plugin_*.deb ./joulepoint-service_*.deb"
    ))?;
    ensure!(site.root(&format!("systemctl is-active {UNITS} || true"))? == "inactive\ninactive\n", "started unasked");
    site.root("ln -s /usr/share/joulepoint/joulepoint.conf /etc/slurm/plugstack.conf.d/")?;
    site.root(&format!("systemctl enable --now {UNITS}"))?;
    let pids = format!("systemctl show --property=MainPID --value {UNITS}");
    let before = site.root(&pids)?;

    next_version(&site)?;
    site.root(&format!("cd {DEBS}/next && dpkg -i joulepoint_*.deb joulepoint-plugin_*.deb joulepoint-service_*.deb"))?;
    ensure!(site.root(&format!("systemctl is-active {UNITS}"))? == "active\nactive\n", "not running after the upgrade");
    ensure!(site.root(&pids)? != before, "the upgrade did not restart the services");

    site.root("apt-get remove -q -y 'joulepoint*'")?;
    ensure!(site.root(&format!("systemctl is-active {UNITS} || true"))? == "inactive\ninactive\n", "removed, and runs");
    site.root(
        "test ! -e /etc/slurm/plugstack.conf.d/joulepoint.conf && test -e /var/lib/joulepoint/joulepoint.sqlite",
    )?;
    site.root("apt-get purge -q -y 'joulepoint*' && rm -r /root/joulepoint/next && systemctl daemon-reload")?;
    let found = differences(&site)?;
    ensure!(found.is_empty(), "{}", found.join("\n"));
    Ok(())
}

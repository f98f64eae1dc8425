//! The life of the packages on one host whose Slurm does not run: installed, started, upgraded, removed, purged.

use crate::site::{CONTROLLER, DEBS, Site, debian};
use crate::steps::differences;
use anyhow::{Result, ensure};

const UNITS: &str = "joulepoint-controller joulepoint-node";

/// A tree as cpufreq has it, and what a node service that was killed while it held 1.2 GHz left.
const HELD: &str = r#"set -e
mount -t tmpfs tmpfs /sys/devices/system
cpu=/sys/devices/system/cpu/cpu0/cpufreq
mkdir -p $cpu /run/joulepoint
echo 1200000 | tee $cpu/scaling_min_freq > $cpu/scaling_max_freq
echo performance > $cpu/scaling_governor
echo '[{"folder":"'$cpu'","governor":"powersave","min_khz":"800000","max_khz":"2400000"}]' > /run/joulepoint/ctl.cpufreq"#;
/// What else the unit must forbid, tried within its sandbox.
const TRIAL: &str = "mkdir -p /run/systemd/system/joulepoint-node.service.d
cat > /run/systemd/system/joulepoint-node.service.d/trial.conf << 'END'
[Service]
ExecStartPre=/bin/sh -c '! touch /sys/devices/system/other && ! tee /proc/sys/vm/swappiness < /proc/sys/vm/swappiness'
END
systemctl daemon-reload";

/// Packages of the next version: the same files under a higher number.
fn next_version(site: &Site) -> Result<()> {
    site.everywhere(&format!(
        "set -e; mkdir -p {DEBS}/next; cd {DEBS}
        for deb in joulepoint_*.deb joulepoint-plugin_*.deb joulepoint-service_*.deb; do
            dpkg-deb -R $deb next/tree
            sed -i 's/\\(^Version: .*\\)/\\1+next/; s/(= \\([^)]*\\))/(= \\1+next)/' next/tree/DEBIAN/control
            dpkg-deb -Zgzip -z1 --root-owner-group -b next/tree next/$deb; rm -r next/tree
        done"
    ))
}

#[test]
fn a_host_is_upgraded_and_at_last_left_as_it_was() -> Result<()> {
    let debian = match debian("bookworm", false) {
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
    site.root(HELD)?;
    site.root(TRIAL)?;
    site.root(&format!("systemctl enable --now {UNITS}"))?;
    site.hosts.wait("the frequency to be put back", 60, |hosts| {
        let said = hosts.try_run(CONTROLLER, "root", "cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_*")?;
        Ok((said.stdout == b"powersave2400000800000").then_some(()))
    })?;
    let pids = format!("systemctl show --property=MainPID --value {UNITS}");
    let before = site.root(&pids)?;

    next_version(&site)?;
    site.root(&format!("cd {DEBS}/next && dpkg -i *.deb"))?;
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

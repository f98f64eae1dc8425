//! Writes the cluster's configuration files; pure text, no processes.

use crate::cables::End;
use crate::network::Network;
use crate::options::Options;
use anyhow::Result;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Node names n1 .. nN.
pub(crate) fn node_names(count: u32) -> Vec<String> {
    (1..=count).map(|i| End::Node(i).to_string()).collect()
}

/// All ends of cables in a cluster of so many nodes.
pub(crate) fn ends(nodes: u32) -> Vec<End> {
    [End::Slurmctld, End::Service, End::Login].into_iter().chain((1..=nodes).map(End::Node)).collect()
}

/// Where the ends of cables are.
type Addresses<'a> = &'a dyn Fn(&End) -> Ipv4Addr;

/// Writes everything under `dir/etc`.
pub(crate) fn write_all(dir: &Path, name: &str, o: &Options, network: &Network) -> Result<()> {
    let etc = dir.join("etc");
    std::fs::create_dir_all(&etc)?;
    std::fs::write(etc.join("slurm.conf"), slurm_conf(dir, name, o, &|end| network.address(end)))?;
    std::fs::write(etc.join("plugstack.conf"), plugstack_conf(o))?;
    std::fs::write(etc.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n")?;
    std::fs::write(etc.join("hosts"), hosts(&ends(o.nodes), &|end| network.address(end)))?;
    std::fs::write(etc.join("openmpi.conf"), OPENMPI_CONF)?;
    if o.accounting {
        let path = etc.join("slurmdbd.conf");
        std::fs::write(&path, slurmdbd_conf(dir, network.address(&End::Slurmctld)))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn slurm_conf(dir: &Path, name: &str, o: &Options, address: Addresses) -> String {
    let d = dir.display();
    let head = address(&End::Slurmctld);
    let socket = format!("{d}/munge/munge.socket.2");
    let mut keys: Vec<(&str, String)> = vec![
        ("ClusterName", name.into()),
        ("SlurmctldHost", format!("{}({head})", End::Slurmctld)),
        ("AuthType", "auth/munge".into()),
        ("AuthInfo", format!("socket={socket},cred_expire={}", o.cred_expire_s)),
        ("CredType", "cred/munge".into()),
        ("SlurmUser", "root".into()),
        ("SlurmdUser", "root".into()),
        ("StateSaveLocation", format!("{d}/state")),
        ("SlurmdSpoolDir", format!("{d}/spool/%n")),
        ("SlurmctldPidFile", format!("{d}/run/slurmctld.pid")),
        ("SlurmdPidFile", format!("{d}/run/slurmd.%n.pid")),
        ("SlurmctldLogFile", format!("{d}/log/slurmctld.log")),
        ("SlurmdLogFile", format!("{d}/log/slurmd.%n.log")),
        ("SlurmctldDebug", "debug".into()),
        ("SlurmdDebug", "debug".into()),
        ("LogTimeFormat", "iso8601_ms".into()),
        ("PlugStackConfig", format!("{d}/etc/plugstack.conf")),
        ("ProctrackType", "proctrack/linuxproc".into()),
        ("TaskPlugin", "task/none".into()),
        ("SwitchType", "switch/none".into()),
        ("MpiDefault", "none".into()),
        ("SelectType", "select/cons_tres".into()),
        ("SelectTypeParameters", "CR_Core_Memory".into()),
        ("DefMemPerCPU", (o.memory_mib_per_node / o.cpus_per_node.max(1)).to_string()),
        ("SchedulerType", "sched/backfill".into()),
        ("SchedulerParameters", "permit_job_expansion,bf_interval=2,sched_interval=2,batch_sched_delay=0".into()),
        ("JobAcctGatherType", "jobacct_gather/linux".into()),
        ("JobAcctGatherFrequency", "task=2".into()),
        ("JobRequeue", "1".into()),
        ("ReturnToService", "2".into()),
        ("KillWait", "2".into()),
        ("MinJobAge", "3600".into()),
        ("SlurmdTimeout", o.slurmd_timeout_s.to_string()),
        ("SlurmdParameters", "config_overrides".into()),
        ("MailProg", "/bin/true".into()),
    ];
    if o.accounting {
        keys.extend([
            ("AccountingStorageType", "accounting_storage/slurmdbd".into()),
            ("AccountingStorageHost", head.to_string()),
            ("AccountingStoragePass", socket),
            ("AccountingStoreFlags", "job_comment".into()),
        ]);
    } else {
        keys.push(("AccountingStorageType", "accounting_storage/none".into()));
    }
    let mut text = String::new();
    for (key, value) in keys.iter().filter(|(k, _)| !sets(&o.extra_conf, k)) {
        let _ = writeln!(text, "{key}={value}");
    }
    for number in 1..=o.nodes {
        let node = End::Node(number);
        let (at, cpus, memory) = (address(&node), o.cpus_per_node, o.memory_mib_per_node);
        let _ = writeln!(text, "NodeName={node} NodeAddr={at} CPUs={cpus} RealMemory={memory}");
    }
    if !o.extra_conf.to_lowercase().contains("partitionname=") {
        let _ = writeln!(text, "PartitionName=all Nodes=n[1-{}] Default=YES MaxTime=INFINITE State=UP", o.nodes);
    }
    text + &o.extra_conf + "\n"
}

/// Whether a line of `extra` sets `key`.
fn sets(extra: &str, key: &str) -> bool {
    extra.lines().filter_map(|l| l.split_once('=')).any(|(k, _)| k.trim().eq_ignore_ascii_case(key))
}

fn plugstack_conf(o: &Options) -> String {
    match &o.plugin {
        Some(p) => format!("optional {} {}\n", p.so.display(), p.args.join(" ")),
        None => "# stock Slurm\n".into(),
    }
}

fn hosts(ends: &[End], address: Addresses) -> String {
    let mut text = "127.0.0.1 localhost\n".to_string();
    for end in ends {
        let _ = writeln!(text, "{} {end}", address(end));
    }
    text
}

/// What the administrator of such a cluster would write into openmpi-mca-params.conf.
const OPENMPI_CONF: &str = "btl = self,vader,tcp\n\
    # Two cores serve all nodes: give way while waiting, and pin nothing.\n\
    mpi_yield_when_idle = 1\nhwloc_base_binding_policy = none\nrmaps_base_oversubscribe = 1\n";

fn slurmdbd_conf(dir: &Path, address: Ipv4Addr) -> String {
    let d = dir.display();
    format!(
        "AuthType=auth/munge\nAuthInfo=socket={d}/munge/munge.socket.2\nDbdHost={}\nDbdAddr={address}\n\
         SlurmUser=root\nDebugLevel=verbose\nLogFile={d}/log/slurmdbd.log\nPidFile={d}/run/slurmdbd.pid\n\
         StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=slurm\nStoragePass=x\n\
         StorageLoc=slurm_acct_db\n",
        End::Slurmctld
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_caller_replaces_ours() {
        let o = Options { extra_conf: "killwait = 30".into(), ..Options::default() };
        let text = slurm_conf(Path::new("/d"), "c", &o, &|_| Ipv4Addr::LOCALHOST);
        assert!(!text.contains("KillWait=2"));
        assert!(text.contains("killwait = 30"));
        assert!(text.contains("NodeName=n8 NodeAddr=127.0.0.1 "));
    }
}

//! Writes the cluster's configuration files; pure text, no processes.

use crate::options::Options;
use crate::ports::Ports;
use anyhow::Result;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Node names n1 .. nN.
pub(crate) fn node_names(count: u32) -> Vec<String> {
    (1..=count).map(|i| format!("n{i}")).collect()
}

/// Writes everything under `dir/etc`.
pub(crate) fn write_all(dir: &Path, name: &str, host: &str, o: &Options, ports: &Ports) -> Result<()> {
    let etc = dir.join("etc");
    std::fs::create_dir_all(&etc)?;
    std::fs::write(etc.join("slurm.conf"), slurm_conf(dir, name, host, o, ports))?;
    std::fs::write(etc.join("plugstack.conf"), plugstack_conf(o))?;
    std::fs::write(etc.join("cgroup.conf"), "CgroupPlugin=cgroup/v1\n")?;
    std::fs::write(etc.join("hosts"), hosts(host, o.nodes))?;
    for node in node_names(o.nodes) {
        std::fs::write(etc.join(format!("openmpi-{node}.conf")), openmpi_conf(dir, &node))?;
    }
    if o.accounting {
        let path = etc.join("slurmdbd.conf");
        std::fs::write(&path, slurmdbd_conf(dir, ports))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

fn slurm_conf(dir: &Path, name: &str, host: &str, o: &Options, ports: &Ports) -> String {
    let d = dir.display();
    let socket = format!("{d}/munge/munge.socket.2");
    let mut keys: Vec<(&str, String)> = vec![
        ("ClusterName", name.into()),
        ("SlurmctldHost", format!("{host}(127.0.0.1)")),
        ("SlurmctldPort", ports.controller().to_string()),
        ("AuthType", "auth/munge".into()),
        ("AuthInfo", format!("socket={socket},cred_expire={}", o.cred_expire_s)),
        ("CredType", "cred/munge".into()),
        ("SlurmUser", "root".into()),
        ("SlurmdUser", "root".into()),
        ("StateSaveLocation", format!("{d}/state")),
        ("SlurmdSpoolDir", format!("{d}/spool/%n")),
        // PMIx makes a folder here for each step and node: it must not be the same for two nodes.
        ("TmpFS", format!("{d}/tmp/%n")),
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
        ("MinJobAge", "600".into()),
        ("SlurmdTimeout", o.slurmd_timeout_s.to_string()),
        ("SlurmdParameters", "config_overrides".into()),
        ("MailProg", "/bin/true".into()),
    ];
    if o.accounting {
        keys.extend([
            ("AccountingStorageType", "accounting_storage/slurmdbd".into()),
            ("AccountingStorageHost", "127.0.0.1".into()),
            ("AccountingStoragePort", ports.dbd().to_string()),
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
    let first = ports.first_node();
    let last = first + o.nodes as u16 - 1;
    let _ = writeln!(
        text,
        "NodeName=n[1-{}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs={} RealMemory={}",
        o.nodes, o.cpus_per_node, o.memory_mib_per_node
    );
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

fn hosts(host: &str, nodes: u32) -> String {
    let mut text = format!("127.0.0.1 localhost\n127.0.0.1 {host}\n");
    for node in node_names(nodes) {
        let _ = writeln!(text, "127.0.0.1 {node}");
    }
    text
}

/// What the administrator of such a cluster would write into openmpi-mca-params.conf.
fn openmpi_conf(dir: &Path, node: &str) -> String {
    format!(
        "# All nodes are this machine: talk over the loopback interface.\n\
         btl = self,vader,tcp\nbtl_tcp_if_include = lo\noob_tcp_if_include = lo\n\
         # Two cores serve all nodes: give way while waiting, and pin nothing.\n\
         mpi_yield_when_idle = 1\nhwloc_base_binding_policy = none\nrmaps_base_oversubscribe = 1\n\
         # The session folder dies with the node's files.\n\
         orte_tmpdir_base = {}/tmp/{node}\n",
        dir.display()
    )
}

fn slurmdbd_conf(dir: &Path, ports: &Ports) -> String {
    let d = dir.display();
    format!(
        "AuthType=auth/munge\nAuthInfo=socket={d}/munge/munge.socket.2\nDbdHost=localhost\nDbdAddr=127.0.0.1\n\
         DbdPort={}\nSlurmUser=root\nDebugLevel=verbose\nLogFile={d}/log/slurmdbd.log\nPidFile={d}/run/slurmdbd.pid\n\
         StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=slurm\nStoragePass=x\n\
         StorageLoc=slurm_acct_db\n",
        ports.dbd()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_the_caller_replaces_ours() {
        let ports = Ports::claim(10).unwrap();
        let o = Options { extra_conf: "killwait = 30".into(), ..Options::default() };
        let text = slurm_conf(Path::new("/d"), "c", "h", &o, &ports);
        assert!(!text.contains("KillWait=2"));
        assert!(text.contains("killwait = 30"));
        assert!(text.contains("NodeName=n[1-8]"));
    }
}

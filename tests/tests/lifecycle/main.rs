//! The private cluster's own promises: nodes die whole, come back, cables can be cut, and nothing outlives the caller.

mod cables;
mod power;
mod standstill;

use anyhow::{Context, Result, ensure};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::{ALICE, BOB, Cluster, End, Options};

const SOON: Duration = Duration::from_secs(90);

fn small(nodes: u32) -> Options {
    Options { nodes, accounting: false, ..Options::default() }
}

/// Whether a process runs, or waits to be reaped.
fn exists(pid: i32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

/// The oldest process of that name: daemons start others of their name for a moment.
fn oldest(pids: &[i32], name: &str) -> Option<i32> {
    let is_named = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|n| n.trim() == name);
    pids.iter().copied().filter(is_named).min()
}

#[test]
fn a_power_cut_ends_every_process_of_the_node_and_of_no_other() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let options =
        Options { node_command: Some(["sh", "-c", "echo %n; sleep 1000"].map(String::from).into()), ..small(2) };
    let mut cluster = Cluster::start(&dir.path().join("c"), &options, &mut |_| ())?;
    let script = "srun sh -c 'touch begun.$SLURM_NODEID; sleep 1000'";
    let job = cluster.submit(ALICE, &["-N2", "--no-kill", "--wrap", script])?;
    cluster.wait_until("the step on n2", SOON, || Ok(cluster.shared().join("begun.1").exists().then_some(())))?;
    let (victims, others) = (cluster.node_pids("n2")?, cluster.node_pids("n1")?);
    let others = ["slurmd", "sh"].map(|name| oldest(&others, name));
    let said = std::fs::read_to_string(cluster.dir.join("log/n2.command.out"))?;
    ensure!(said == "n2\n", "the node command said {said:?}");
    cluster.kill_node("n2")?;
    ensure!(!victims.iter().any(|p| exists(*p)), "something of n2 lives on");
    ensure!(others.iter().all(|p| p.is_some_and(exists)), "something of n1 died");
    cluster.output(cluster.command("scontrol").args(["update", "nodename=n2", "state=down", "reason=died"]))?;
    cluster.output(cluster.command("scancel").arg(job.to_string()))?;
    cluster.revive_node("n2")?;
    // Its srun may have noticed the death first.
    cluster.wait_job(job, &["CANCELLED", "FAILED", "COMPLETED", "NODE_FAIL"], SOON)?;
    let out = cluster.output(cluster.command_as(BOB, "srun").args(["-N2", "-l", "hostname"]))?;
    ensure!(out.contains("n1") && out.contains("n2"), "srun said {out:?}");
    Ok(())
}

#[test]
fn jobs_outlive_slurmd_slurmctld_and_slurmdbd() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let options = Options { accounting: true, ..small(1) };
    let mut cluster = Cluster::start(&dir.path().join("c"), &options, &mut |_| ())?;
    let job = cluster.submit(BOB, &["--wrap", "until [ -e go ]; do sleep 0.1; done"])?;
    cluster.wait_job(job, &["RUNNING"], SOON)?;
    // slurmctld saves the start of a job late: killed before that, it takes the job for pending. An update makes it save.
    let state = cluster.dir.join("state/job_state");
    let saved = || state.metadata().and_then(|m| m.modified()).ok();
    let before = saved();
    cluster.output(cluster.command("scontrol").args(["update", &format!("jobid={job}"), "Comment=running"]))?;
    cluster.wait_until("slurmctld to save its state", SOON, || Ok((saved() != before).then_some(())))?;
    cluster.kill_slurmd("n1")?;
    cluster.kill_controller()?;
    cluster.kill_dbd()?;
    cluster.start_dbd()?;
    cluster.start_controller()?;
    cluster.revive_node("n1")?;
    cluster.wait_job(job, &["RUNNING"], SOON)?;
    ensure!(cluster.job(job)?["Restarts"] == "0", "the job was started again");
    std::fs::write(cluster.shared().join("go"), "")?;
    cluster.wait_job(job, &["COMPLETED"], SOON)?;
    cluster.wait_until("the job in the accounts", SOON, || {
        let mut sacct = cluster.command("sacct");
        sacct.args(["-n", "-X", "-P", "-o", "state,account", "-j", &job.to_string()]);
        Ok((cluster.output(&mut sacct)?.trim() == "COMPLETED|chemistry").then_some(()))
    })
}

#[test]
fn two_clusters_live_side_by_side() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let a = Cluster::start(&dir.path().join("a"), &small(1), &mut |_| ())?;
    let b = Cluster::start(&dir.path().join("b"), &small(1), &mut |_| ())?;
    ensure!(a.name != b.name, "both are called {}", a.name);
    for cluster in [&a, &b] {
        let out = cluster.output(cluster.command_as(ALICE, "srun").arg("id").arg("-un"))?;
        ensure!(out.trim() == ALICE, "srun said {out:?}");
    }
    // Each has addresses of its own, and none leads into the other.
    let (here, there) = (a.address(&End::Slurmctld), (b.address(&End::Slurmctld), 6817).into());
    ensure!(here != b.address(&End::Slurmctld), "both are at {here}");
    let across = a.in_network_of(&End::Node(1), || TcpStream::connect_timeout(&there, SOON))?;
    ensure!(across.as_ref().is_err_and(|e| e.kind() == ErrorKind::NetworkUnreachable), "{across:?}");
    Ok(())
}

/// Everything of a cluster that could be left of it in this machine's own namespaces.
struct Traces {
    pids: Vec<i32>,
    /// Network namespaces, as /proc shows them.
    networks: BTreeSet<PathBuf>,
    /// The link to the login node.
    link: PathBuf,
    control_group: PathBuf,
}

impl Traces {
    /// Those of the cluster in `home`, which process `caller` has started.
    fn of(home: &Path, caller: u32) -> Result<Traces> {
        let mut pids = Vec::new();
        for name in ["keeper", "n1", "n2"] {
            pids.push(std::fs::read_to_string(home.join(format!("run/{name}.pid")))?.trim().parse::<i32>()?);
        }
        let networks = pids.iter().map(|pid| std::fs::read_link(format!("/proc/{pid}/ns/net")));
        let networks = networks.collect::<std::io::Result<BTreeSet<_>>>()?;
        ensure!(networks.len() == 3, "not a network each: {networks:?}");
        let hosts = std::fs::read_to_string(home.join("etc/hosts"))?;
        let address = hosts.lines().find_map(|l| l.strip_suffix(" login")).context("a login node")?;
        let number = address.split('.').nth(2).context("a number")?;
        let link = PathBuf::from(format!("/sys/class/net/jptest{number}"));
        let group = std::fs::read_to_string(format!("/proc/{}/cgroup", pids[1]))?;
        let group = group.lines().find_map(|l| l.strip_prefix("0::/")?.strip_suffix("/n1")).context("a group")?;
        ensure!(group.contains(&format!("-{caller}-")), "{group}");
        let mounts = std::fs::read_to_string("/proc/mounts")?;
        let root = mounts.lines().find(|l| l.contains(" cgroup2 ")).and_then(|l| l.split(' ').nth(1));
        let control_group = Path::new(root.context("cgroup2")?).join(group);
        let traces = Traces { pids, networks, link, control_group };
        ensure!(traces.link.exists() && traces.control_group.exists(), "{:?}", traces.left());
        Ok(traces)
    }

    /// What there still is.
    fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self.pids.iter().filter(|p| exists(**p)).map(|p| format!("process {p}")).collect();
        left.extend([&self.link, &self.control_group].iter().filter(|p| p.exists()).map(|p| p.display().to_string()));
        let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        for entry in all.filter(|e| e.file_name().to_string_lossy().parse::<i32>().is_ok()) {
            let network = std::fs::read_link(entry.path().join("ns/net"));
            left.extend(network.ok().filter(|n| self.networks.contains(n)).map(|n| format!("{entry:?} in {n:?}")));
        }
        left
    }
}

#[test]
fn nothing_outlives_a_caller_that_is_killed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let home = dir.path().join("c");
    let mut command = Command::new(suite::built()?.join("testbed"));
    command.args(["--nodes", "2", "--no-accounting"]).arg(&home).args(["--", "sh", "-c", "echo up; exec sleep 1000"]);
    let mut caller = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut line = String::new();
    BufReader::new(caller.stdout.take().context("a pipe")?).read_line(&mut line)?;
    ensure!(line == "up\n", "testbed said {line:?}");
    let traces = Traces::of(&home, caller.id())?;
    let rules = || Command::new("nft").args(["list", "tables"]).output().map(|o| o.stdout);
    let before = rules()?;
    let order = |words: &[&str]| testbed::order(&home, &words.iter().map(|w| w.to_string()).collect::<Vec<_>>());
    order(&["cut", "n1", "all"])?;
    // What is frozen cannot end by itself.
    order(&["suspend", "n2"])?;
    ensure!(rules()? == before, "rules for cables are in this machine's own network");
    // The command that ran on the cluster is the caller's own child.
    let child = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", caller.id()))?;
    caller.kill()?;
    caller.wait()?;
    let deadline = Instant::now() + SOON;
    while !traces.left().is_empty() {
        ensure!(Instant::now() < deadline, "left: {:?}", traces.left());
        std::thread::sleep(Duration::from_millis(20));
    }
    for pid in child.split_whitespace() {
        let pid = nix::unistd::Pid::from_raw(pid.parse()?);
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.trim() == "sleep" {
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
        }
    }
    Ok(())
}

#[test]
fn nothing_is_left_of_a_cluster_that_is_stopped() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let home = dir.path().join("c");
    let cluster = Cluster::start(&home, &small(2), &mut |_| ())?;
    let traces = Traces::of(&home, std::process::id())?;
    cluster.suspend_node("n2")?;
    cluster.stop();
    ensure!(traces.left().is_empty(), "left: {:?}", traces.left());
    Ok(())
}

//! A node that loses its power says nothing more, and comes back as another boot with empty folders of its own.

use super::{SOON, small};
use anyhow::{Context, Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testbed::{ALICE, Cluster, End};

const PORT: u16 = 7000;

/// What a shell on a node says.
fn shell(cluster: &Cluster, node: &str, script: &str) -> Result<String> {
    let said = cluster.output(cluster.command_on(&node.parse()?, "sh")?.args(["-c", script]))?;
    Ok(said.trim().to_string())
}

#[test]
fn a_power_cut_sends_nothing_and_the_next_boot_knows_no_old_connection() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let server = format!("import socket,time\ns=socket.create_server(('',{PORT}))\nc=s.accept()\ntime.sleep(1000)");
    let one = End::Node(1);
    let mut listening = cluster.command_on(&one, "python3")?.args(["-c", &server]).spawn()?;
    let address = (cluster.address(&one), PORT);
    let mut client = cluster.wait_until("a connection from n2 to n1", SOON, || {
        Ok(cluster.in_network_of(&End::Node(2), || TcpStream::connect(address))?.ok())
    })?;
    cluster.kill_node("n1")?;
    listening.wait()?;
    ensure!(!cluster.has_power("n1"));
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    let read = client.read(&mut [0; 1]);
    ensure!(read.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock), "n2 heard of it: {read:?}");
    let established = cluster.in_network_of(&End::Node(2), || {
        Command::new("ss").args(["-Htn", "dport", "=", &format!(":{PORT}")]).output()
    })??;
    let established = String::from_utf8_lossy(&established.stdout).into_owned();
    ensure!(established.starts_with("ESTAB"), "{established:?}");
    cluster.revive_node("n1")?;
    client.write_all(b"?")?;
    client.set_read_timeout(Some(SOON))?;
    let read = client.read(&mut [0; 1]);
    ensure!(read.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset), "{read:?}");
    Ok(())
}

#[test]
fn a_node_that_comes_back_has_another_boot_id_a_new_uptime_and_empty_folders() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let boot = |cluster: &Cluster, node: &str| -> Result<(String, u64, f64)> {
        let id = shell(cluster, node, "cat /proc/sys/kernel/random/boot_id")?;
        let btime = shell(cluster, node, "sed -n 's/^btime //p' /proc/stat")?.parse()?;
        let uptime = shell(cluster, node, "cut -d' ' -f1 /proc/uptime")?.parse()?;
        Ok((id, btime, uptime))
    };
    let own = "/tmp /var/tmp /dev/shm /run";
    shell(&cluster, "n1", &format!("for d in {own}; do echo mine >$d/file; done"))?;
    let seen = format!("for d in {own}; do [ ! -e $d/file ] || echo $d; done");
    ensure!(shell(&cluster, "n2", &seen)?.is_empty(), "n2 sees files of n1");
    ensure!(!std::path::Path::new("/dev/shm/file").exists(), "this machine does");
    let (before, other) = (boot(&cluster, "n1")?, boot(&cluster, "n2")?);
    ensure!(before.0 != other.0, "one boot id for two nodes");
    let host_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    ensure!(![&before.0, &other.0].contains(&&host_id.trim().to_string()), "this machine's boot id");
    std::thread::sleep(Duration::from_secs(2)); // btime counts whole seconds
    let killed = Instant::now();
    cluster.kill_node("n1")?;
    cluster.revive_node("n1")?;
    let after = boot(&cluster, "n1")?;
    let is_new = after.2 < killed.elapsed().as_secs_f64() + 1.0;
    ensure!(after.0 != before.0 && after.1 > before.1 && is_new, "before {before:?}, after {after:?}");
    ensure!(boot(&cluster, "n2")?.0 == other.0, "n2 has another boot id, too");
    ensure!(shell(&cluster, "n1", &seen)?.is_empty(), "files of the last boot");
    // Slurm is told of the boot.
    let begun = cluster.node("n1")?.remove("BootTime").context("a boot time")?;
    let expected = cluster.output(Command::new("date").args(["+%FT%T", "-d", &format!("@{}", after.1)]))?;
    let of = |text: &str| -> Result<i64> {
        Ok(cluster.output(Command::new("date").args(["+%s", "-d", text.trim()]))?.trim().parse()?)
    };
    ensure!((of(&begun)? - of(&expected)?).abs() <= 2, "slurmctld says {begun}, the node {expected}");
    Ok(())
}

#[test]
fn the_folders_of_the_cluster_are_one_for_all_and_ordinary_users_may_make_namespaces() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let more = tempfile::tempdir()?;
    let options = testbed::Options { shared: vec![more.path().to_path_buf()], ..small(2) };
    let cluster = Cluster::start(&dir.path().join("c"), &options, &mut |_| ())?;
    for folder in [cluster.shared(), more.path().to_path_buf()] {
        let file = folder.join("file");
        shell(&cluster, "n1", &format!("echo mine >{}", file.display()))?;
        ensure!(shell(&cluster, "n2", &format!("cat {}", file.display()))? == "mine");
        ensure!(std::fs::read_to_string(&file)? == "mine\n");
    }
    let home = dir.path().display();
    ensure!(shell(&cluster, "n1", &format!("ls {home}"))? == "c", "more of this machine's /tmp than was asked for");
    // One with a /proc of its own, as sandboxes have: the node's, in which something is mounted, must not forbid it.
    let mut srun = cluster.command_as(ALICE, "srun");
    cluster.output(srun.args(["-w", "n1", "unshare", "-Urmpf", "--mount-proc", "true"]))?;
    Ok(())
}

/// How a power controller's call ends, and what it says.
fn power(cluster: &Cluster, words: &[&str]) -> Result<(Option<i32>, String)> {
    let command = cluster.power_command();
    let output = Command::new(&command[0]).args(&command[1..]).args(words).stderr(Stdio::null()).output()?;
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).trim().to_string()))
}

#[test]
fn the_power_controller_tells_the_truth_and_cuts_power_as_a_fence_agent_does() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let status = |cluster: &Cluster, node: &str| power(cluster, &["-o", "status", "-n", node]);
    let (on, off) = ((Some(0), "Status: ON".to_string()), (Some(2), "Status: OFF".to_string()));
    ensure!(status(&cluster, "n1")? == on && status(&cluster, "n2")? == on);
    // Neither a cut cable nor a suspended node is off.
    cluster.cut(&[End::Node(1)], &cluster.ends())?;
    cluster.suspend_node("n2")?;
    ensure!(status(&cluster, "n1")? == on && status(&cluster, "n2")? == on);
    cluster.heal_all()?;
    cluster.resume_node("n2")?;
    cluster.kill_node("n2")?;
    ensure!(status(&cluster, "n1")? == on && status(&cluster, "n2")? == off);
    let pids = cluster.node_pids("n1")?;
    ensure!(power(&cluster, &["--action=off", "--plug=n1"])?.0 == Some(0));
    ensure!(!pids.iter().any(|pid| super::exists(*pid)), "something of n1 lives on");
    ensure!(status(&cluster, "n1")? == off && !cluster.has_power("n1"));
    ensure!(power(&cluster, &["-o", "off", "-n", "n1"])?.0 == Some(0), "off twice");
    ensure!(power(&cluster, &["-o", "on", "-n", "n1"])?.0 == Some(0));
    ensure!(status(&cluster, "n1")? == on);
    cluster.revive_node("n1")?;
    for wrong in [&["-o", "status", "-n", "n3"][..], &["-o", "status"], &["-o", "explode", "-n", "n1"]] {
        ensure!(power(&cluster, wrong)?.0 == Some(1), "{wrong:?}");
    }
    cluster.set_power_controller(false);
    ensure!(status(&cluster, "n1")?.0 == Some(1) && power(&cluster, &["-o", "off", "-n", "n1"])?.0 == Some(1));
    ensure!(cluster.has_power("n1"));
    Ok(())
}

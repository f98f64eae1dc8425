//! What stands still for a while and goes on: suspended nodes, stopped daemons, slurmd restarted; and clocks that jump.

use super::{SOON, exists, oldest, small};
use anyhow::{Context, Result, ensure};
use std::net::TcpStream;
use std::time::Duration;
use testbed::{ALICE, BOB, Cluster, End, Options, Part};

/// The letter of a process's state.
fn state(pid: i32) -> Result<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).context("a state")
}

#[test]
fn a_suspended_node_stands_still_unheard_and_goes_on_without_having_noticed() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let mut cluster = Cluster::start(&dir.path().join("c"), &small(2), &mut |_| ())?;
    let script = "trap 'echo signal >>told' CONT TSTP; while :; do echo tick >>ticks; sleep 0.05; done";
    let job = cluster.submit(ALICE, &["-w", "n1", "--wrap", script])?;
    let file = cluster.shared().join("ticks");
    let ticks = || std::fs::read(&file).map_or(0, |text| text.len());
    cluster.wait_until("the job to tick", SOON, || Ok((ticks() > 50).then_some(())))?;
    cluster.suspend_node("n1")?;
    let (then, pids) = (ticks(), cluster.node_pids("n1")?);
    let answers = |cluster: &Cluster| {
        let address = (cluster.address(&End::Node(1)), 6818).into();
        cluster.in_network_of(&End::Node(2), || TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
    };
    ensure!(!answers(&cluster)?, "its kernel answers");
    std::thread::sleep(Duration::from_secs(1));
    ensure!(ticks() == then, "the job went on");
    cluster.resume_node("n1")?;
    cluster.wait_until("the job to go on", SOON, || Ok((ticks() > then + 50).then_some(())))?;
    ensure!(answers(&cluster)?, "slurmd does not answer");
    ensure!(!cluster.shared().join("told").exists(), "the job got a signal");
    ensure!(pids.iter().filter(|pid| exists(**pid)).count() >= 4, "something ended");
    // One that is stopped already stays so.
    let slurmd = Part::Slurmd("n1".into());
    let pid = oldest(&cluster.node_pids("n1")?, "slurmd").context("slurmd")?;
    cluster.stop_part(&slurmd)?;
    cluster.suspend_node("n1")?;
    cluster.resume_node("n1")?;
    cluster.wait_until("slurmd to be stopped", SOON, || Ok((state(pid)? == 'T').then_some(())))?;
    cluster.continue_part(&slurmd)?;
    // And a suspended one can lose its power.
    cluster.suspend_node("n1")?;
    cluster.kill_node("n1")?;
    cluster.output(cluster.command("scancel").arg(job.to_string()))?;
    cluster.revive_node("n1")?;
    ensure!(answers(&cluster)?, "its cable is dead");
    Ok(())
}

#[test]
fn each_daemon_can_be_stopped_and_goes_on() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let options = Options {
        accounting: true,
        node_command: Some(["tail", "-f", "/dev/null"].map(String::from).into()),
        ..small(1)
    };
    let cluster = Cluster::start(&dir.path().join("c"), &options, &mut |_| ())?;
    let munge = |end: &End| -> Result<bool> {
        let socket = format!("--socket={}", cluster.munge_socket.display());
        let mut made = cluster.command_on(end, "timeout")?;
        Ok(made.args(["1", "munge", "--no-input", &socket]).stdout(std::process::Stdio::null()).status()?.success())
    };
    let signs = |end: &End| cluster.wait_until(&format!("munged of {end}"), SOON, || Ok(munge(end)?.then_some(())));
    signs(&End::Node(1))?;
    signs(&End::Slurmctld)?;
    let of_node = Part::NodeMunged("n1".into());
    cluster.stop_part(&of_node)?;
    ensure!(!munge(&End::Node(1))?, "the node's munged is stopped");
    signs(&End::Slurmctld).context("a node's munged is its own")?;
    cluster.continue_part(&of_node)?;
    cluster.stop_part(&Part::Munged)?;
    signs(&End::Node(1))?;
    ensure!(!munge(&End::Slurmctld)?, "munged is stopped");
    cluster.continue_part(&Part::Munged)?;
    let pids = cluster.node_pids("n1")?;
    for (part, name) in [(Part::Slurmd("n1".into()), "slurmd"), (Part::NodeCommand("n1".into()), "tail")] {
        let pid = oldest(&pids, name).context(name)?;
        cluster.stop_part(&part)?;
        cluster.wait_until(&format!("{part} to be stopped"), SOON, || Ok((state(pid)? == 'T').then_some(())))?;
        cluster.continue_part(&part)?;
        cluster.wait_until(&format!("{part} to go on"), SOON, || Ok((state(pid)? == 'S').then_some(())))?;
    }
    let answers = |program: &str, words: &[&str]| -> Result<bool> {
        let mut command = cluster.command("timeout");
        Ok(command.args(["2", program]).args(words).output()?.status.success())
    };
    for (part, program, words) in
        [(Part::Slurmctld, "squeue", &[][..]), (Part::Slurmdbd, "sacctmgr", &["show", "cluster"])]
    {
        cluster.stop_part(&part)?;
        ensure!(!answers(program, words)?, "{part} answers");
        cluster.continue_part(&part)?;
        cluster.wait_until(&format!("{part} to answer"), SOON, || Ok(answers(program, words)?.then_some(())))?;
    }
    ensure!(cluster.stop_part(&Part::Slurmd("n2".into())).is_err(), "there is no n2");
    Ok(())
}

#[test]
fn jobs_live_on_while_slurmd_is_restarted() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::start(&dir.path().join("c"), &small(1), &mut |_| ())?;
    let script = "srun --overlap sh -c 'touch begun; until [ -e go ]; do sleep 0.1; done'";
    let job = cluster.submit(BOB, &["--wrap", script])?;
    let steps = || -> Result<Vec<i32>> {
        let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Ok(cluster.node_pids("n1")?.into_iter().filter(|pid| name(pid).trim() == "slurmstepd").collect())
    };
    // Until then a child of a slurmstepd may have its name.
    cluster.wait_until("the step", SOON, || Ok(cluster.shared().join("begun").exists().then_some(())))?;
    let (before, slurmd) = (steps()?, oldest(&cluster.node_pids("n1")?, "slurmd").context("slurmd")?);
    ensure!(before.len() >= 2, "the script's and the step's are not there: {before:?}");
    cluster.restart_part(&Part::Slurmd("n1".into()))?;
    ensure!(!exists(slurmd), "it is the old one");
    cluster.wait_until("slurmd", SOON, || Ok(oldest(&cluster.node_pids("n1")?, "slurmd")))?;
    ensure!(steps()? == before, "steps before {before:?}, after {:?}", steps()?);
    std::fs::write(cluster.shared().join("go"), "")?;
    cluster.wait_job(job, &["COMPLETED"], SOON)?;
    ensure!(cluster.job(job)?["Restarts"] == "0");
    Ok(())
}

#[test]
fn the_clock_of_one_nodes_daemons_jumps() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let command = "while :; do echo $(date +%s) $(cut -d. -f1 /proc/uptime) >%n.new; mv %n.new %n; sleep 0.2; done";
    let command = format!("cd '{}'; {command}", dir.path().display());
    let options = Options {
        own_clocks: true,
        shared: vec![dir.path().to_path_buf()],
        node_command: Some(["sh".into(), "-c".into(), command].into()),
        ..small(2)
    };
    let cluster = Cluster::start(&dir.path().join("c"), &options, &mut |_| ())?;
    let ahead_s = |node: &str| -> Result<i64> {
        let text = std::fs::read_to_string(dir.path().join(node))?;
        let shown: i64 = text.split(' ').next().context("a time")?.parse()?;
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs() as i64;
        Ok(shown - now)
    };
    let near = |node: &str, wanted: i64| {
        cluster.wait_until(&format!("{node} to be ahead by {wanted} s"), SOON, || {
            Ok(((ahead_s(node)? - wanted).abs() <= 2).then_some(()))
        })
    };
    near("n1", 0)?;
    cluster.set_clock("n1", 1000)?;
    near("n1", 1000)?;
    cluster.set_clock("n1", -1000)?;
    near("n1", -1000)?;
    near("n2", 0)?;
    cluster.set_clock("n1", 0)?;
    near("n1", 0)
}

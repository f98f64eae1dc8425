//! Says which nodes of a job have no slurmd at the moment, so that a step that could not be launched there waits for it, and
//! which have booted under a step.

use host::mail::now_s;
use host::parallel;
use slurm::{Node, Slurm};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// A step that has taken less has outlived no boot, s.
const SHORTEST_BOOT_S: f64 = 3.0;

/// A step that has taken so long may have outlasted a node that is being started: its slurmds are asked, and twice, s.
const LONG_S: f64 = 20.0;

/// So soon has a slurmd that takes connections told slurmctld when its node was started.
const REGISTRATION: Duration = Duration::from_secs(2);

/// Longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Longest wait for a node that says nothing; by then slurmctld has usually set it down.
const AWAY_LIMIT: Duration = Duration::from_secs(900);

/// So far may clocks of two hosts be apart, s.
const CLOCKS_S: f64 = 2.0;

/// Exit codes of an `srun` that could not launch its step: a slurmd that cannot be reached, one that does not answer.
const NOT_LAUNCHED: [i32; 2] = [233, 140];

/// Longest wait for one slurmd to take a connection.
const LIMIT: Duration = Duration::from_secs(2);

/// Whether an exit code of `srun` may mean that its step was not launched.
pub fn may_mean_not_launched(code: i32) -> bool {
    NOT_LAUNCHED.contains(&code)
}

/// Whether nodes have outlived a step that has ended well, as its `srun` says: it says so of tasks that died with their node, too.
#[derive(Debug, PartialEq, Eq)]
pub enum Outlived {
    /// All of them, or nothing speaks against it.
    Yes,
    /// This one was started since.
    Booted(String),
    /// Some say nothing, and nobody waits for them any more.
    NotKnown,
}

/// Whether these nodes have outlived a step that began at `since_s`. Nodes on which no slurmd takes connections are waited for,
/// after each pause as long as that is `wanted`: Slurm takes them from the job, or tells when they were started.
pub fn outlived(slurm: &Slurm, nodes: &[String], since_s: f64, mut wanted: impl FnMut(Duration) -> bool) -> Outlived {
    let lasted_s = now_s() - since_s;
    if lasted_s < SHORTEST_BOOT_S {
        return Outlived::Yes;
    }
    let until = Instant::now() + AWAY_LIMIT;
    // A slurmd that has just been started may not have told slurmctld yet.
    let (mut is_to_ask_again, mut pause) = (lasted_s >= LONG_S, REGISTRATION);
    loop {
        match lived(slurm, nodes, since_s, lasted_s >= LONG_S) {
            Ok(Lived::Booted(node)) => return Outlived::Booted(node),
            Ok(Lived::Yes) if !is_to_ask_again => return Outlived::Yes,
            Ok(Lived::Yes) => is_to_ask_again = false,
            Ok(Lived::Silent) => is_to_ask_again = true,
            Err(e) if may_pass(&e) => is_to_ask_again = true,
            // A site may show nodes to nobody.
            Err(_) => return Outlived::Yes,
        }
        if Instant::now() > until || !wanted(pause) {
            return Outlived::NotKnown;
        }
        pause = if is_to_ask_again { (pause * 2).min(LONGEST_PAUSE) } else { REGISTRATION };
    }
}

/// Whether slurmctld may answer later what it does not answer now.
fn may_pass(error: &slurm::Error) -> bool {
    match error {
        slurm::Error::Refused { text, .. } => !text.contains("denied") && !text.contains("not found"),
        slurm::Error::TimedOut { .. } | slurm::Error::Postponed => true,
        _ => false,
    }
}

/// What one look at nodes shows.
enum Lived {
    Yes,
    Booted(String),
    Silent,
}

/// One question to slurmctld, and, if it is asked for, a connection to each slurmd.
fn lived(slurm: &Slurm, nodes: &[String], since_s: f64, asks_slurmds: bool) -> Result<Lived, slurm::Error> {
    let known = slurm.nodes_of(nodes)?;
    // slurmctld's clock, by which a node's start is told, is another than ours.
    if let Some(node) = booted(&known, since_s + CLOCKS_S) {
        return Ok(Lived::Booted(node.to_string()));
    }
    let is_silent = asks_slurmds && !silent(&known, slurm.slurmd_port()).is_empty();
    Ok(if is_silent { Lived::Silent } else { Lived::Yes })
}

/// Those of the nodes on which no slurmd takes connections; none of which Slurm does not tell where they are.
pub fn away(slurm: &Slurm, nodes: &[String]) -> Vec<String> {
    silent(&slurm.nodes_of(nodes).unwrap_or_default(), slurm.slurmd_port())
}

/// The nodes of the job in whose script this process runs.
pub fn nodes_of_job() -> Vec<String> {
    let nodes = std::env::var("SLURM_JOB_NODELIST").ok().and_then(|list| slurm::expand_nodelist(&list).ok());
    nodes.unwrap_or_default()
}

/// A node that was started after a step on it began, by slurmctld's word. Of a step that has just begun it is not asked, so
/// that scripts of many short steps cost slurmctld no more.
pub fn has_booted(slurm: &Slurm, nodes: &[String], since_s: f64) -> Option<String> {
    if now_s() - since_s < SHORTEST_BOOT_S {
        return None;
    }
    booted(&slurm.nodes_of(nodes).unwrap_or_default(), since_s).map(str::to_string)
}

fn booted(nodes: &[Node], since_s: f64) -> Option<&str> {
    nodes.iter().find(|node| node.boot_s.is_some_and(|boot_s| boot_s > since_s)).map(|node| node.name.as_str())
}

fn silent(nodes: &[Node], usual: u16) -> Vec<String> {
    let tries = parallel::each(nodes, |node| answers(node, usual));
    let failed = nodes.iter().zip(tries).filter(|(_, answers)| *answers == Some(false));
    failed.map(|(node, _)| node.name.clone()).collect()
}

fn answers(node: &Node, usual: u16) -> bool {
    // Of a name that is not known here nothing can be said.
    let Ok(mut addresses) = (node.addr.as_str(), node.port.unwrap_or(usual)).to_socket_addrs() else { return true };
    addresses.any(|address| TcpStream::connect_timeout(&address, LIMIT).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn node(name: &str, port: u16) -> Node {
        let line = format!("NodeName={name} NodeAddr=127.0.0.1 NodeHostName={name} Port={port} State=IDLE CPUTot=1");
        slurm::parse_node(&line).unwrap()
    }

    #[test]
    fn a_node_that_was_started_after_a_step_has_lost_it() {
        let started = |name: &str, boot_s| Node { boot_s, ..node(name, 1) };
        let nodes = [started("n1", Some(50.0)), started("n2", Some(150.0)), started("n3", None)];
        assert_eq!(booted(&nodes, 100.0), Some("n2"));
        assert_eq!(booted(&nodes, 200.0), None);
    }

    /// A slurmctld that says this of a node, which takes connections at a port.
    fn says(bin: &Path, port: u16, boot: &str) {
        let line = format!(
            "NodeName=n1 NodeAddr=127.0.0.1 NodeHostName=n1 Port={port} State=ALLOCATED CPUTot=1 BootTime={boot}"
        );
        let scontrol = bin.join("scontrol");
        fs::write(&scontrol, format!("#!/bin/sh\n[ \"$2\" != node ] || echo '{line}'\n")).unwrap();
        fs::set_permissions(&scontrol, fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn a_node_that_is_being_started_when_srun_says_that_all_is_well_is_waited_for() {
        let bin = tempfile::tempdir().unwrap();
        let (slurm, nodes) = (Slurm::new(Some(bin.path().to_path_buf())), ["n1".to_string()]);
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = here.local_addr().unwrap().port();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (before, after) = ("1500000000", "4000000000");
        let ago = |s| now_s() - s;
        says(bin.path(), port, before);
        let mut looks = 0;
        let mut once_more = |_: Duration| {
            looks += 1;
            true
        };
        assert_eq!(outlived(&slurm, &nodes, ago(30.0), &mut once_more), Outlived::Yes);
        assert_eq!(outlived(&slurm, &nodes, ago(10.0), &mut once_more), Outlived::Yes);
        assert_eq!(looks, 1, "a short step is looked at once");
        let refusing = bin.path().join("scontrol");
        fs::write(&refusing, "#!/bin/sh\necho 'slurm_load_node error: Access/permission denied' >&2; exit 1\n")
            .unwrap();
        assert_eq!(outlived(&slurm, &nodes, ago(30.0), |_| panic!("nobody will tell")), Outlived::Yes);
        says(bin.path(), port, after);
        assert_eq!(outlived(&slurm, &nodes, ago(30.0), |_| false), Outlived::Booted("n1".into()));
        assert_eq!(outlived(&slurm, &nodes, ago(1.0), |_| false), Outlived::Yes, "it is too short for a boot");
        says(bin.path(), gone, before);
        assert_eq!(outlived(&slurm, &nodes, ago(30.0), |_| false), Outlived::NotKnown);
        let up_again = |_| {
            says(bin.path(), port, after);
            true
        };
        assert_eq!(outlived(&slurm, &nodes, ago(30.0), up_again), Outlived::Booted("n1".into()));
        says(bin.path(), gone, before);
        let was_away = |_| {
            says(bin.path(), port, before);
            true
        };
        assert_eq!(outlived(&slurm, &nodes, ago(30.0), was_away), Outlived::Yes, "its slurmd was upgraded");
    }

    #[test]
    fn a_slurmd_that_takes_no_connection_is_away() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let nodes = [node("n1", here.local_addr().unwrap().port()), node("n2", gone)];
        assert_eq!(silent(&nodes, 6818), ["n2"]);
    }
}

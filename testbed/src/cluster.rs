//! The private Slurm itself: starts its parts in order, gives commands that reach it, and leaves nothing behind.

use crate::cables::End;
use crate::control::Control;
use crate::machines::{Machines, PATIENCE};
use crate::network::{MOST_NODES, Network};
use crate::options::Options;
use crate::parts::Part;
use crate::{conf, control, database, users};
use anyhow::{Context, Result, bail};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Unix sockets have 107 bytes for their path; the longest of ours are slurmstepd's, under `spool`.
const LONGEST_DIR: usize = 70;
/// slurmdbd's usual port.
const DBD_PORT: u16 = 6819;

/// A running Slurm. Dropping it ends every process of it; the folder with its logs stays.
#[derive(Debug)]
pub struct Cluster {
    /// The folder that holds all of it.
    pub dir: PathBuf,
    /// slurm.conf, for `SLURM_CONF`.
    pub conf: PathBuf,
    /// The socket of the cluster's own munged.
    pub munge_socket: PathBuf,
    /// ClusterName.
    pub name: String,
    /// The names of the nodes, n1 first.
    pub nodes: Vec<String>,
    /// Before the machines: it holds them, too.
    _control: Control,
    pub(crate) machines: Arc<Machines>,
}

impl Cluster {
    /// Starts everything under `dir` and returns when all nodes are idle; `progress` is told what comes next.
    pub fn start(dir: &Path, o: &Options, progress: &mut dyn FnMut(&str)) -> Result<Cluster> {
        Cluster::start_on(Network::new()?, dir, o, progress)
    }

    /// Likewise, on a network whose addresses the caller has already used in the files of a service.
    pub fn start_on(network: Network, dir: &Path, o: &Options, progress: &mut dyn FnMut(&str)) -> Result<Cluster> {
        prepare(dir, o)?;
        let dir = dir.canonicalize()?;
        let name = o.name.clone().unwrap_or_else(unique_name);
        conf::write_all(&dir, &name, o, &network)?;
        let machines = Arc::new(Machines::new(&dir, o, network)?);
        let cluster = Cluster {
            conf: dir.join("etc/slurm.conf"),
            munge_socket: dir.join("munge/munge.socket.2"),
            nodes: conf::node_names(o.nodes),
            _control: Control::listen(machines.clone())?,
            machines,
            dir,
            name,
        };
        progress("munged");
        cluster.machines.start_and_wait(&Part::Munged, || UnixStream::connect(&cluster.munge_socket).is_ok())?;
        for node in &cluster.nodes {
            cluster.machines.boot(node)?;
        }
        if o.accounting {
            progress("MariaDB and slurmdbd");
            database::make_tables(&cluster.dir, cluster.machines.keeper())?;
            cluster.machines.start_and_wait(&Part::Mariadb, || database::ready(&cluster.dir))?;
            cluster.start_dbd()?;
            cluster.add_accounts()?;
        }
        progress("slurmctld");
        cluster.start_controller()?;
        progress(&format!("{} nodes", o.nodes));
        for node in &cluster.nodes {
            cluster.machines.start_node(node)?;
        }
        cluster.wait_idle(&cluster.nodes)?;
        progress("all nodes are idle");
        Ok(cluster)
    }

    /// A command of root's on this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.set_environment(&mut command);
        command
    }

    /// A command of root's that runs where `end` is: on a node, on slurmctld's host, or where a service of the caller's
    /// may be cut off from the rest. On a node and on slurmctld's host it ends with them, not with the `Child`.
    ///
    /// # Errors
    /// The node has no power.
    pub fn command_on(&self, end: &End, program: &str) -> Result<Command> {
        let mut command = self.machines.command_on(end, program)?;
        self.set_environment(&mut command);
        Ok(command)
    }

    /// A command of an ordinary user ([`crate::ALICE`] or [`crate::BOB`]) with that user's rights and a login-like
    /// environment, in the shared folder.
    ///
    /// # Panics
    /// If there is no such user; [`Cluster::start`] has made both.
    pub fn command_as(&self, user: &str, program: &str) -> Command {
        let account = match users::find(user) {
            Ok(account) => account,
            Err(e) => panic!("{e:#}"),
        };
        let mut command = Command::new(program);
        command.env_clear();
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").env("LANG", "C.UTF-8");
        command.env("HOME", self.dir.join("home").join(user)).env("USER", user).env("LOGNAME", user);
        command.env("SHELL", "/bin/bash");
        self.set_environment(&mut command);
        // Supplementary groups are dropped by the standard library when root changes the uid.
        command.uid(account.uid.as_raw()).gid(account.gid.as_raw()).current_dir(self.shared());
        command
    }

    /// Lets an ordinary user give the cluster [`crate::ORDERS`], as root may.
    ///
    /// # Errors
    /// There is no such user.
    pub fn let_order(&self, user: &str) -> Result<()> {
        control::let_order(&self.dir, users::find(user)?.uid)
    }

    /// A folder that all nodes and users see and may write to, as a parallel file system would be.
    pub fn shared(&self) -> PathBuf {
        self.dir.join("shared")
    }

    /// Brings back what is missing of a node, all of it or one daemon, and waits until slurmctld has it back.
    pub fn revive_node(&mut self, node: &str) -> Result<()> {
        let begin = self.output(Command::new("date").arg("+%FT%T"))?;
        let has_slurmd = self.machines.runs(&Part::Slurmd(node.to_string()));
        if !self.machines.has_power(node) {
            self.machines.boot(node)?;
        }
        self.machines.start_node(node)?;
        self.wait_until(&format!("node {node} to come back"), PATIENCE, || {
            let fields = self.node(node)?;
            let state = fields.get("State").context("a node without State")?;
            let up = ["IDLE", "MIXED", "ALLOCATED"].iter().any(|s| state.starts_with(s));
            let up = up && !state.contains("NOT_RESPONDING");
            // slurmctld may not have missed it: then the old state says nothing.
            let registered = fields.get("SlurmdStartTime").is_some_and(|t| t.as_str() >= begin.trim());
            Ok((up && (has_slurmd || registered)).then_some(()))
        })
    }

    /// Host pids of all processes on the node.
    pub fn node_pids(&self, node: &str) -> Result<Vec<i32>> {
        self.machines.pids(node)
    }

    /// Starts slurmctld and waits for its first answer.
    pub fn start_controller(&self) -> Result<()> {
        self.machines.start_and_wait(&Part::Slurmctld, || {
            let out = self.output(self.command("scontrol").arg("ping"));
            out.is_ok_and(|said| said.contains(" is UP"))
        })
    }

    /// Starts slurmdbd and waits until it listens.
    pub fn start_dbd(&self) -> Result<()> {
        let address = (self.address(&End::Slurmctld), DBD_PORT);
        self.machines.start_and_wait(&Part::Slurmdbd, || TcpStream::connect(address).is_ok())
    }

    /// Ends everything, as dropping does.
    pub fn stop(self) {}

    fn set_environment(&self, command: &mut Command) {
        command.env("SLURM_CONF", &self.conf).envs(self.machines.options.env.iter().cloned());
    }

    fn add_accounts(&self) -> Result<()> {
        let add = |words: &[&str]| self.output(self.command("sacctmgr").arg("-i").arg("add").args(words));
        add(&["cluster", &self.name])?;
        add(&["account", "physics,chemistry", &format!("cluster={}", self.name)])?;
        for (user, account) in [(users::ALICE, "physics"), (users::BOB, "chemistry")] {
            add(&["user", user, &format!("account={account}"), &format!("cluster={}", self.name)])?;
        }
        Ok(())
    }

    fn wait_idle(&self, nodes: &[String]) -> Result<()> {
        self.wait_until("all nodes to be idle", PATIENCE, || {
            let out = self.output(self.command("sinfo").args(["-h", "-N", "-t", "idle", "-o", "%N"]))?;
            let idle: Vec<&str> = out.split_whitespace().collect();
            Ok(nodes.iter().all(|n| idle.contains(&n.as_str())).then_some(()))
        })
    }
}

/// Makes the folders, the users and the key.
fn prepare(dir: &Path, o: &Options) -> Result<()> {
    if o.nodes == 0 || o.nodes > MOST_NODES {
        bail!("{} nodes: a cluster has 1 to {MOST_NODES}", o.nodes);
    }
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    if dir.canonicalize()?.as_os_str().len() > LONGEST_DIR {
        bail!("{} is too long for unix sockets in it: at most {LONGEST_DIR} bytes", dir.display());
    }
    if dir.join("run/keeper.pid").exists() {
        bail!("{} holds another cluster: choose an empty folder", dir.display());
    }
    users::ensure(&dir.join("home"))?;
    for (name, mode) in [
        ("", 0o755),
        ("log", 0o755),
        ("run", 0o755),
        ("state", 0o700),
        ("spool", 0o755),
        ("nodes", 0o755),
        ("munge", 0o755),
        ("db", 0o700),
        ("db/data", 0o700),
        ("shared", 0o1777),
    ] {
        let path = dir.join(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    }
    let mut key = [0; 128];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut key)?;
    let file = dir.join("munge.key");
    std::fs::write(&file, key)?;
    Ok(std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?)
}

/// A name no other cluster of this machine has now.
fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("jp{}c{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

//! The private Slurm itself: starts its parts in order, lets tests kill and revive them, and leaves nothing behind.

use crate::keeper::{Daemon, Namespace};
use crate::options::Options;
use crate::ports::Ports;
use crate::{conf, database, users};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long one part may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// Unix sockets have 107 bytes for their path; the longest of ours are slurmstepd's, under `spool`.
const LONGEST_DIR: usize = 70;

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
    options: Options,
    ports: Ports,
    running: BTreeMap<String, Node>,
    controller: Option<Daemon>,
    dbd: Option<Daemon>,
    /// munged and MariaDB.
    helpers: Vec<Daemon>,
    /// The last to be dropped: takes everything that is left with it.
    keeper: Namespace,
}

/// One node's processes.
#[derive(Debug)]
struct Node {
    namespace: Namespace,
    slurmd: Option<Daemon>,
    command: Option<Daemon>,
}

impl Cluster {
    /// Starts everything under `dir` and returns when all nodes are idle; `progress` is told what comes next.
    pub fn start(dir: &Path, o: &Options, progress: &mut dyn FnMut(&str)) -> Result<Cluster> {
        prepare(dir, o)?;
        let dir = dir.canonicalize()?;
        let ports = Ports::claim(o.nodes as u16 + 2)?;
        let name = o.name.clone().unwrap_or_else(unique_name);
        let host = nix::unistd::gethostname()?.to_string_lossy().into_owned();
        conf::write_all(&dir, &name, &host, o, &ports)?;
        let setup = if o.accounting { database::setup(&dir) } else { String::new() };
        let keeper = Namespace::cluster(&setup, &dir.join("log/keeper.log"))?;
        std::fs::write(dir.join("run/keeper.pid"), format!("{}\n", keeper.init))?;
        let mut cluster = Cluster {
            conf: dir.join("etc/slurm.conf"),
            munge_socket: dir.join("munge/munge.socket.2"),
            nodes: conf::node_names(o.nodes),
            running: BTreeMap::new(),
            controller: None,
            dbd: None,
            helpers: Vec::new(),
            options: o.clone(),
            dir,
            name,
            ports,
            keeper,
        };
        progress("munged");
        cluster.start_munged()?;
        if o.accounting {
            progress("MariaDB and slurmdbd");
            cluster.start_database()?;
            cluster.start_dbd()?;
            cluster.add_accounts()?;
        }
        progress("slurmctld");
        cluster.start_controller()?;
        progress(&format!("{} nodes", o.nodes));
        for node in cluster.nodes.clone() {
            cluster.start_node(&node)?;
        }
        cluster.wait_idle(&cluster.nodes)?;
        progress("all nodes are idle");
        Ok(cluster)
    }

    /// A command of root's on this cluster.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", &self.conf).envs(self.options.env.iter().cloned());
        command
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
        command.env("SHELL", "/bin/bash").env("SLURM_CONF", &self.conf).envs(self.options.env.iter().cloned());
        // Supplementary groups are dropped by the standard library when root changes the uid.
        command.uid(account.uid.as_raw()).gid(account.gid.as_raw()).current_dir(self.shared());
        command
    }

    /// A folder that all nodes and users see and may write to, as a parallel file system would be.
    pub fn shared(&self) -> PathBuf {
        self.dir.join("shared")
    }

    /// The power cut: every process of the node is gone when this returns. Its connections are closed, which is
    /// kinder than a real power cut; slurmctld hears nothing all the same.
    pub fn kill_node(&mut self, node: &str) -> Result<()> {
        let mut dead = self.running.remove(node).with_context(|| format!("node {node} does not run"))?;
        dead.namespace.kill();
        for daemon in [&mut dead.slurmd, &mut dead.command].into_iter().flatten() {
            daemon.reap();
        }
        Ok(())
    }

    /// Only slurmd dies; steps and the node command live on.
    pub fn kill_slurmd(&mut self, node: &str) -> Result<()> {
        let mut slurmd = self.node_mut(node)?.slurmd.take().with_context(|| format!("node {node} has no slurmd"))?;
        slurmd.kill();
        Ok(())
    }

    /// Only the node command dies.
    pub fn kill_node_command(&mut self, node: &str) -> Result<()> {
        let mut command = self.node_mut(node)?.command.take().context("there is no node command")?;
        command.kill();
        Ok(())
    }

    /// Brings back what is missing of a node, all of it or one daemon, and waits until slurmctld has it back.
    pub fn revive_node(&mut self, node: &str) -> Result<()> {
        let begin = self.output(Command::new("date").arg("+%FT%T"))?;
        let has_slurmd = self.running.get(node).and_then(|n| n.slurmd.as_ref()).is_some_and(|d| d.alive());
        match self.running.contains_key(node) {
            true => self.start_node_daemons(node)?,
            false => self.start_node(node)?,
        }
        self.wait_until(&format!("node {node} to come back"), PATIENCE, || {
            let fields = self.node(node)?;
            let state = fields.get("State").context("a node without State")?;
            let up = ["IDLE", "MIXED", "ALLOCATED"].iter().any(|s| state.starts_with(s)) && !state.contains('*');
            // slurmctld may not have missed it: then the old state says nothing.
            let registered = fields.get("SlurmdStartTime").is_some_and(|t| t.as_str() >= begin.trim());
            Ok((up && (has_slurmd || registered)).then_some(()))
        })
    }

    /// Host pids of all processes on the node.
    pub fn node_pids(&self, node: &str) -> Result<Vec<i32>> {
        self.running.get(node).with_context(|| format!("node {node} does not run"))?.namespace.pids()
    }

    /// SIGKILL of slurmctld.
    pub fn kill_controller(&mut self) -> Result<()> {
        self.controller.take().context("slurmctld does not run")?.kill();
        Ok(())
    }

    /// Starts slurmctld and waits for its first answer.
    pub fn start_controller(&mut self) -> Result<()> {
        let daemon = self.spawn(&["slurmctld", "-D"], "slurmctld.out")?;
        self.wait_started(&daemon, || {
            let out = self.output(self.command("scontrol").arg("ping"));
            out.is_ok_and(|said| said.contains(" is UP"))
        })?;
        self.controller = Some(daemon);
        Ok(())
    }

    /// SIGKILL of slurmdbd; its MariaDB lives on.
    pub fn kill_dbd(&mut self) -> Result<()> {
        self.dbd.take().context("slurmdbd does not run")?.kill();
        Ok(())
    }

    /// Starts slurmdbd and waits until it listens.
    pub fn start_dbd(&mut self) -> Result<()> {
        let daemon = self.spawn(&["slurmdbd", "-D"], "slurmdbd.out")?;
        let port = self.ports.dbd();
        self.wait_started(&daemon, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        self.dbd = Some(daemon);
        Ok(())
    }

    /// Ends everything, as dropping does.
    pub fn stop(self) {}

    fn node_mut(&mut self, node: &str) -> Result<&mut Node> {
        self.running.get_mut(node).with_context(|| format!("node {node} does not run"))
    }

    /// Starts a daemon of the controller's side.
    fn spawn(&self, argv: &[&str], log: &str) -> Result<Daemon> {
        let argv: Vec<String> = argv.iter().map(|a| a.to_string()).collect();
        self.keeper.spawn(&argv, &self.daemon_env(), &self.dir.join("log").join(log))
    }

    fn daemon_env(&self) -> Vec<(String, String)> {
        let mut env = self.options.env.clone();
        env.push(("SLURM_CONF".into(), self.conf.display().to_string()));
        env.push(("MYSQL_UNIX_PORT".into(), database::socket(&self.dir).display().to_string()));
        env
    }

    fn start_munged(&mut self) -> Result<()> {
        let munge = self.dir.join("munge");
        let mut key = [0; 128];
        std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut key)?;
        let key_file = self.dir.join("munge.key");
        std::fs::write(&key_file, key)?;
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600))?;
        let argv = [
            "munged".to_string(),
            "--foreground".into(),
            "--force".into(),
            format!("--key-file={}", key_file.display()),
            format!("--socket={}", self.munge_socket.display()),
            format!("--pid-file={}/munged.pid", munge.display()),
            format!("--seed-file={}/munged.seed", munge.display()),
        ];
        let munged = self.keeper.spawn(&argv, &[], &self.dir.join("log/munged.log"))?;
        self.wait_started(&munged, || UnixStream::connect(&self.munge_socket).is_ok())?;
        self.helpers.push(munged);
        Ok(())
    }

    fn start_database(&mut self) -> Result<()> {
        let server = database::start(&self.dir, &self.keeper)?;
        self.wait_started(&server, || database::ready(&self.dir))?;
        self.helpers.push(server);
        Ok(())
    }

    /// Waits for a daemon's first answer, as long as it lives.
    fn wait_started(&self, daemon: &Daemon, answers: impl Fn() -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !answers() {
            daemon.check()?;
            if Instant::now() > deadline {
                bail!("{} does not answer after {PATIENCE:?}", daemon.what);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
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

    fn start_node(&mut self, node: &str) -> Result<()> {
        let d = self.dir.display();
        let mut setup = format!("hostname {node}\nmount -t tmpfs -o mode=1777 tmpfs /dev/shm\n");
        let _ = writeln!(setup, "mount --bind '{d}/etc/hosts' /etc/hosts");
        let mca = "/etc/openmpi/openmpi-mca-params.conf";
        let _ = writeln!(setup, "if [ -e {mca} ]; then mount --bind '{d}/etc/openmpi-{node}.conf' {mca}; fi");
        // Programs that look for munge in its usual place find this cluster's.
        let _ = writeln!(setup, "if [ -d /run/munge ]; then mount --bind '{d}/munge' /run/munge; fi");
        // A node comes back from a power cut with its local temporary files gone.
        let _ = writeln!(setup, "rm -rf '{d}/tmp/{node}'; mkdir -m 1777 '{d}/tmp/{node}'");
        let namespace = self.keeper.node(&setup, &self.dir.join(format!("log/{node}.log")))?;
        std::fs::write(self.dir.join(format!("run/{node}.pid")), format!("{}\n", namespace.init))?;
        self.running.insert(node.to_string(), Node { namespace, slurmd: None, command: None });
        self.start_node_daemons(node)
    }

    /// Starts those of the node's daemons that do not run.
    fn start_node_daemons(&mut self, node: &str) -> Result<()> {
        let env = self.daemon_env();
        let log = |what: &str| self.dir.join(format!("log/{node}.{what}.out"));
        let (slurmd_log, command_log) = (log("slurmd"), log("command"));
        let command = self.options.node_command.clone();
        let part = self.node_mut(node)?;
        if part.slurmd.as_ref().is_none_or(|d| !d.alive()) {
            let argv = ["slurmd", "-D", "-N", node].map(String::from);
            part.slurmd = Some(part.namespace.spawn(&argv, &env, &slurmd_log)?);
        }
        if let Some(argv) = command
            && part.command.as_ref().is_none_or(|d| !d.alive())
        {
            let argv: Vec<String> = argv.iter().map(|a| a.replace("%n", node)).collect();
            part.command = Some(part.namespace.spawn(&argv, &env, &command_log)?);
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

impl Drop for Cluster {
    fn drop(&mut self) {
        // One blow for all; then nothing is left to wait for.
        self.keeper.kill();
        let nodes = std::mem::take(&mut self.running);
        let of_nodes = nodes.into_values().flat_map(|n| [n.slurmd, n.command]).flatten();
        let ours = self.controller.take().into_iter().chain(self.dbd.take()).chain(self.helpers.drain(..));
        of_nodes.chain(ours).for_each(|mut daemon| daemon.reap());
    }
}

/// Makes the folders and users.
fn prepare(dir: &Path, o: &Options) -> Result<()> {
    if o.nodes == 0 {
        bail!("a cluster of no nodes");
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
        ("tmp", 0o755),
        ("munge", 0o755),
        ("db", 0o700),
        ("db/data", 0o700),
        ("shared", 0o1777),
    ] {
        let path = dir.join(name);
        std::fs::create_dir_all(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// A name no other cluster of this machine has now.
fn unique_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(1);
    format!("jp{}c{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

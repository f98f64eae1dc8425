//! The machines of a cluster: nodes that boot, lose power and are suspended, and daemons that start, stop and die.

use crate::cables::End;
use crate::groups::{Group, Groups};
use crate::keeper::{Daemon, Namespace};
use crate::network::Network;
use crate::options::Options;
use crate::parts::Part;
use crate::{clock, database, local};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long one part may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Everything that runs. Dropping it ends every process; the folder stays.
#[derive(Debug)]
pub(crate) struct Machines {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) network: Network,
    groups: Groups,
    running: Mutex<Running>,
    answers_for_power: AtomicBool,
    /// Takes everything that is left with it.
    keeper: Namespace,
}

#[derive(Debug, Default)]
struct Running {
    nodes: BTreeMap<String, Node>,
    daemons: BTreeMap<Part, Daemon>,
}

/// A node that has power.
#[derive(Debug)]
struct Node {
    namespace: Namespace,
    group: Group,
    is_suspended: bool,
}

impl Machines {
    /// The hosts of slurmctld and of the service; nothing runs there yet, and no node has power.
    pub(crate) fn new(dir: &Path, options: &Options, network: Network) -> Result<Machines> {
        let groups = Groups::new(&network.address(&End::Slurmctld).to_string())?;
        network.plug(&[End::Slurmctld, End::Service])?;
        let mut setup = format!("hostname {}\nmount --bind '{}' /etc/hosts\n", End::Slurmctld, hosts(dir).display());
        if options.accounting {
            setup += &database::setup(dir);
        }
        let place = |command: &mut Command| network.enter(&End::Slurmctld, command);
        let keeper = Namespace::cluster(place, &setup, &groups.removal(), &dir.join("log/keeper.log"))?;
        std::fs::write(dir.join("run/keeper.pid"), format!("{}\n", keeper.init))?;
        Ok(Machines {
            dir: dir.to_path_buf(),
            options: options.clone(),
            network,
            groups,
            running: Mutex::default(),
            answers_for_power: AtomicBool::new(true),
            keeper,
        })
    }

    /// The first process of slurmctld's host.
    pub(crate) fn keeper(&self) -> &Namespace {
        &self.keeper
    }

    /// Switches a node on, with empty folders of its own and with nothing but its munged running.
    pub(crate) fn boot(&self, node: &str) -> Result<()> {
        let mut running = self.running();
        if running.nodes.get(node).is_some_and(|n| n.namespace.alive()) {
            bail!("node {node} runs");
        }
        self.take_away(&mut running, node)?;
        local::make(&self.dir, node)?;
        clock::make(&self.dir, node)?;
        let end: End = node.parse()?;
        self.network.plug(std::slice::from_ref(&end))?;
        let group = self.groups.node(node)?;
        let mut setup = format!("hostname {node}\n{}", local::setup(&self.dir, node, &self.options.shared));
        let mca = "/etc/openmpi/openmpi-mca-params.conf";
        let ours = self.dir.join("etc/openmpi.conf");
        setup += &format!("if [ -e {mca} ]; then mount --bind '{}' {mca}; fi\n", ours.display());
        let place = |command: &mut Command| self.network.enter(&end, command);
        let log = self.dir.join(format!("log/{node}.log"));
        let namespace = self.keeper.node(place, group.entry(), &setup, &log)?;
        std::fs::write(self.dir.join(format!("run/{node}.pid")), format!("{}\n", namespace.init))?;
        running.nodes.insert(node.to_string(), Node { namespace, group, is_suspended: false });
        drop(running);
        self.start(&Part::NodeMunged(node.to_string()))
    }

    /// Takes the power of a node: its processes stop where they are, its cable is dead before any of their connections
    /// can be closed, and none of them is left when this returns.
    pub(crate) fn power_off(&self, node: &str) -> Result<()> {
        let mut running = self.running();
        if !running.nodes.contains_key(node) {
            bail!("node {node} does not run");
        }
        self.take_away(&mut running, node)
    }

    fn take_away(&self, running: &mut Running, node: &str) -> Result<()> {
        let Some(mut dead) = running.nodes.remove(node) else { return Ok(()) };
        let end: End = node.parse()?;
        dead.group.freeze()?;
        self.network.unplug(&end)?;
        dead.group.kill()?;
        dead.namespace.kill();
        for part in Part::of_node(node) {
            if let Some(mut daemon) = running.daemons.remove(&part) {
                daemon.reap();
            }
        }
        if dead.is_suspended {
            self.network.change(|cables| cables.set_dark(&end, false))?;
        }
        Ok(())
    }

    /// Whether a node has power.
    pub(crate) fn has_power(&self, node: &str) -> bool {
        self.running().nodes.get(node).is_some_and(|n| n.namespace.alive())
    }

    /// Stops every process of a node, and its network, as a virtual machine is paused; or lets them go on.
    pub(crate) fn set_suspended(&self, node: &str, is_suspended: bool) -> Result<()> {
        let mut running = self.running();
        let found = running.nodes.get_mut(node).with_context(|| format!("node {node} does not run"))?;
        let end: End = node.parse()?;
        if is_suspended {
            found.group.freeze()?;
        }
        self.network.change(|cables| cables.set_dark(&end, is_suspended))?;
        if !is_suspended {
            found.group.thaw()?;
        }
        found.is_suspended = is_suspended;
        Ok(())
    }

    /// Host pids of all processes on a node.
    pub(crate) fn pids(&self, node: &str) -> Result<Vec<i32>> {
        let running = self.running();
        running.nodes.get(node).with_context(|| format!("node {node} does not run"))?.namespace.pids()
    }

    /// A command that runs where `end` is.
    pub(crate) fn command_on(&self, end: &End, program: &str) -> Result<Command> {
        match end {
            End::Login => Ok(Command::new(program)),
            End::Slurmctld => Ok(self.keeper.enter(program)),
            End::Service => {
                // Each exec takes the place of the one before: the caller's child is the program itself.
                let names = format!("hostname {end} && mount --bind '{}' /etc/hosts", hosts(&self.dir).display());
                let mut command = Command::new("unshare");
                command.args(["--mount", "--uts", "sh", "-c", &format!("{names} && exec \"$0\" \"$@\""), program]);
                self.network.enter(end, &mut command)?;
                Ok(command)
            }
            End::Node(_) => {
                let running = self.running();
                let node = running.nodes.get(&end.to_string()).with_context(|| format!("node {end} does not run"))?;
                Ok(node.namespace.enter(program))
            }
        }
    }

    /// Starts a daemon, if it does not run.
    pub(crate) fn start(&self, part: &Part) -> Result<()> {
        let mut running = self.running();
        let Running { nodes, daemons } = &mut *running;
        if daemons.get(part).is_some_and(Daemon::alive) {
            return Ok(());
        }
        let Some(argv) = self.argv(part) else { return Ok(()) };
        let log = self.dir.join("log").join(format!("{}.out", part.to_string().replace('/', ".")));
        let mut env = self.env();
        let daemon = match part.node() {
            None => self.keeper.spawn(&argv, &env, &log)?,
            Some(name) => {
                let node = nodes.get(name).with_context(|| format!("node {name} does not run"))?;
                if self.options.own_clocks {
                    env.extend(clock::env(&self.dir, name)?);
                }
                node.namespace.spawn(&argv, &env, &log)?
            }
        };
        daemons.insert(part.clone(), daemon);
        Ok(())
    }

    /// Starts a daemon and waits for its first answer, as long as it lives.
    pub(crate) fn start_and_wait(&self, part: &Part, answers: impl Fn() -> bool) -> Result<()> {
        self.start(part)?;
        let deadline = Instant::now() + PATIENCE;
        while !answers() {
            self.with(part, |daemon| daemon.check())?;
            if Instant::now() > deadline {
                bail!("{part} does not answer after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Starts those of a node's daemons that do not run.
    pub(crate) fn start_node(&self, node: &str) -> Result<()> {
        let [munged, others @ ..] = Part::of_node(node);
        let socket = local::folder(&self.dir, node).join("munge/munge.socket.2");
        self.start_and_wait(&munged, || UnixStream::connect(&socket).is_ok())?;
        others.iter().try_for_each(|part| self.start(part))
    }

    /// SIGKILL of one daemon alone; it is gone when this returns.
    pub(crate) fn kill(&self, part: &Part) -> Result<()> {
        let daemon = self.running().daemons.remove(part);
        daemon.with_context(|| format!("{part} does not run"))?.kill();
        Ok(())
    }

    /// SIGTERM of one daemon alone, as an administrator stops it; it is gone when this returns.
    pub(crate) fn end(&self, part: &Part) -> Result<()> {
        self.with(part, |daemon| daemon.signal(Signal::SIGTERM))?;
        let deadline = Instant::now() + PATIENCE;
        while self.with(part, |daemon| Ok(daemon.alive()))? {
            if Instant::now() > deadline {
                bail!("{part} does not end after {PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill(part)
    }

    /// Ends a daemon and starts it again; what a slurmd has started lives on.
    pub(crate) fn restart(&self, part: &Part) -> Result<()> {
        self.end(part)?;
        self.start(part)
    }

    /// Stops one daemon alone, or lets it go on.
    pub(crate) fn set_stopped(&self, part: &Part, is_stopped: bool) -> Result<()> {
        self.with(part, |daemon| if is_stopped { daemon.stop() } else { daemon.go_on() })
    }

    /// Whether a daemon runs.
    pub(crate) fn runs(&self, part: &Part) -> bool {
        self.running().daemons.get(part).is_some_and(Daemon::alive)
    }

    /// Whether the power controller answers.
    pub(crate) fn answers_for_power(&self) -> bool {
        self.answers_for_power.load(Ordering::Relaxed)
    }

    /// Lets the power controller answer, or not.
    pub(crate) fn set_answers_for_power(&self, answers: bool) {
        self.answers_for_power.store(answers, Ordering::Relaxed);
    }

    /// Environment of daemons.
    fn env(&self) -> Vec<(String, String)> {
        let mut env = self.options.env.clone();
        env.push(("SLURM_CONF".into(), self.dir.join("etc/slurm.conf").display().to_string()));
        env.push(("MYSQL_UNIX_PORT".into(), database::socket(&self.dir).display().to_string()));
        env
    }

    /// A daemon's words; `None` if the cluster has no such daemon.
    fn argv(&self, part: &Part) -> Option<Vec<String>> {
        let words = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect());
        let munge = self.dir.join("munge");
        let munge = munge.display();
        match part {
            Part::Munged | Part::NodeMunged(_) => words(&[
                "munged",
                "--foreground",
                "--force",
                &format!("--key-file={}/munge.key", self.dir.display()),
                &format!("--socket={munge}/munge.socket.2"),
                &format!("--pid-file={munge}/munged.pid"),
                &format!("--seed-file={munge}/munged.seed"),
            ]),
            Part::Mariadb => Some(database::server_arguments(&self.dir)),
            Part::Slurmdbd => words(&["slurmdbd", "-D"]),
            Part::Slurmctld => words(&["slurmctld", "-D"]),
            Part::Slurmd(node) => words(&["slurmd", "-D", "-N", node]),
            Part::NodeCommand(node) => {
                let command = self.options.node_command.as_ref()?;
                Some(command.iter().map(|word| word.replace("%n", node)).collect())
            }
        }
    }

    fn with<T>(&self, part: &Part, f: impl FnOnce(&Daemon) -> Result<T>) -> Result<T> {
        f(self.running().daemons.get(part).with_context(|| format!("{part} does not run"))?)
    }

    /// What a panicking test left is still true.
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let running = std::mem::take(&mut *self.running());
        // One blow for all; then nothing is left to wait for.
        self.keeper.kill();
        running.daemons.into_values().for_each(|mut daemon| daemon.reap());
    }
}

/// The cluster's /etc/hosts.
fn hosts(dir: &Path) -> PathBuf {
    dir.join("etc/hosts")
}

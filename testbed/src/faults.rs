//! What tests do to a running cluster: cables cut, power lost, machines suspended, daemons stopped, clocks set.

use crate::cables::End;
use crate::cluster::Cluster;
use crate::parts::Part;
use crate::{clock, control};
use anyhow::Result;
use std::net::Ipv4Addr;

impl Cluster {
    /// All ends of cables: slurmctld's host, the service's, this machine, and the nodes.
    pub fn ends(&self) -> Vec<End> {
        crate::conf::ends(self.nodes.len() as u32)
    }

    /// The ends of the nodes' cables.
    pub fn node_ends(&self) -> Vec<End> {
        self.ends().into_iter().filter(|end| matches!(end, End::Node(_))).collect()
    }

    /// The address of an end.
    pub fn address(&self, end: &End) -> Ipv4Addr {
        self.machines.network.address(end)
    }

    /// Runs `f` in the network of an end: sockets that it opens stay there, though this process has them.
    ///
    /// # Errors
    /// The node has no power.
    pub fn in_network_of<T: Send>(&self, end: &End, f: impl FnOnce() -> T + Send) -> Result<T> {
        self.machines.network.run(end, f)
    }

    /// Lets no frame pass between `a` and `b`, and tells nobody: no reset, no "unreachable". Ends that are in both are
    /// cut from each other; `cut(&cluster.ends(), &cluster.ends())` is a switch without power.
    pub fn cut(&self, a: &[End], b: &[End]) -> Result<()> {
        self.machines.network.change(|cables| cables.cut(a, b))
    }

    /// Lets no frame pass from `from` to `to`; those of the other direction arrive.
    pub fn cut_one_way(&self, from: &[End], to: &[End]) -> Result<()> {
        self.machines.network.change(|cables| cables.cut_one_way(from, to))
    }

    /// Loses `percent` of the frames between `a` and `b`, at random.
    pub fn lose(&self, a: &[End], b: &[End], percent: u8) -> Result<()> {
        self.machines.network.change(|cables| cables.lose(a, b, percent))
    }

    /// Lets at most so many bytes a second through the cable of an end, each way; `None` is no limit.
    pub fn slow(&self, end: &End, bytes_per_s: Option<u64>) -> Result<()> {
        self.machines.network.slow(end, bytes_per_s)
    }

    /// Ends cuts and losses between `a` and `b`.
    pub fn heal(&self, a: &[End], b: &[End]) -> Result<()> {
        self.machines.network.change(|cables| cables.heal(a, b))
    }

    /// Ends everything that was done to cables.
    pub fn heal_all(&self) -> Result<()> {
        self.machines.network.heal()
    }

    /// The power cut: the node's processes stop where they are and run nothing more when this returns. Its cable is dead
    /// before that, so that nobody hears of it: its connections stay open at their other ends.
    pub fn kill_node(&mut self, node: &str) -> Result<()> {
        self.machines.power_off(node)
    }

    /// Switches a node on and starts its daemons, without waiting for Slurm to have it back.
    pub fn give_power(&self, node: &str) -> Result<()> {
        self.machines.boot(node)?;
        self.machines.start_node(node)
    }

    /// Starts a daemon that does not run, without waiting for its first answer.
    pub fn start_part(&self, part: &Part) -> Result<()> {
        self.machines.start(part)
    }

    /// Whether a daemon runs.
    pub fn runs_part(&self, part: &Part) -> bool {
        self.machines.runs(part)
    }

    /// Ends a daemon by SIGTERM and starts it again, as `systemctl restart` does; the steps of a slurmd live on. Returns
    /// as soon as it was started.
    pub fn restart_part(&self, part: &Part) -> Result<()> {
        self.machines.restart(part)
    }

    /// Whether a node has power.
    pub fn has_power(&self, node: &str) -> bool {
        self.machines.has_power(node)
    }

    /// The command line of a power controller that knows the truth about the nodes of this cluster and can cut and give
    /// power, without waiting for Slurm: `-o status|off|on|reboot -n NODE` are to be added, as for Debian's fence
    /// agents. `status` ends with 0 for on and with 2 for off; 1 is a failure. Only root may call it.
    pub fn power_command(&self) -> Vec<String> {
        vec![control::fence(&self.dir).display().to_string()]
    }

    /// Lets the power controller answer, or fail as one whose own network is away.
    pub fn set_power_controller(&self, answers: bool) {
        self.machines.set_answers_for_power(answers);
    }

    /// Pauses a node as a virtual machine is paused: all of its processes and its network stand still. None of them can
    /// notice, but by the time that has passed.
    pub fn suspend_node(&self, node: &str) -> Result<()> {
        self.machines.set_suspended(node, true)
    }

    /// Lets a suspended node go on.
    pub fn resume_node(&self, node: &str) -> Result<()> {
        self.machines.set_suspended(node, false)
    }

    /// SIGSTOP to one daemon alone.
    pub fn stop_part(&self, part: &Part) -> Result<()> {
        self.machines.set_stopped(part, true)
    }

    /// SIGCONT to one daemon alone.
    pub fn continue_part(&self, part: &Part) -> Result<()> {
        self.machines.set_stopped(part, false)
    }

    /// SIGKILL of one daemon alone.
    pub fn kill_part(&self, part: &Part) -> Result<()> {
        self.machines.kill(part)
    }

    /// Only slurmd dies; steps and the node command live on.
    pub fn kill_slurmd(&mut self, node: &str) -> Result<()> {
        self.kill_part(&Part::Slurmd(node.to_string()))
    }

    /// Only the node command dies.
    pub fn kill_node_command(&mut self, node: &str) -> Result<()> {
        self.kill_part(&Part::NodeCommand(node.to_string()))
    }

    /// SIGKILL of slurmctld.
    pub fn kill_controller(&mut self) -> Result<()> {
        self.kill_part(&Part::Slurmctld)
    }

    /// SIGKILL of slurmdbd; its MariaDB lives on.
    pub fn kill_dbd(&mut self) -> Result<()> {
        self.kill_part(&Part::Slurmdbd)
    }

    /// Lets the clock of a node's daemons be ahead of the others' from the next second on; behind, if negative. Jobs keep
    /// the right time. Needs [`crate::Options::own_clocks`].
    pub fn set_clock(&self, node: &str, ahead_s: i64) -> Result<()> {
        anyhow::ensure!(self.machines.options.own_clocks, "the nodes have no clocks of their own");
        clock::set(&self.dir, node, ahead_s)
    }
}

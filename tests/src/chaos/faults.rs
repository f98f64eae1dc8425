//! Injects the faults of a history into a running cluster, and takes each back when its time is over.

use super::bystander::{Ends, Harm};
use super::disks::Disks;
use super::history::{Blow, Cut, Daemon, Fault, Order, Place, Process};
use super::processes::{self, Found};
use super::queue::Queue;
use crate::Site;
use anyhow::{Context, Result, bail};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testbed::{ALICE, Cluster, End, Part};

/// Longest time that an order of people may take, s.
const ORDER_S: &str = "25";

/// The reason that is given where a node is drained.
const DRAINED: &str = "chaos";

/// Slurm's reason for a node on which a job was to begin that runs there.
const DUPLICATE: &str = "Duplicate jobid";

/// The cluster that faults are made in, and what is wrong with it now.
pub struct Field<'a> {
    pub site: &'a mut Site,
    pub disks: &'a Disks,
    pub queue: &'a Queue,
    /// The protected jobs.
    pub jobs: Vec<u32>,
    suspended: Vec<String>,
    stopped: Vec<Part>,
    /// Commands that run by themselves.
    orders: Vec<Child>,
    /// What plain Slurm would not survive either.
    pub harms: Vec<Harm>,
}

/// What a blow has hit.
pub struct Struck {
    /// What was done to whom; or why nothing was.
    pub told: String,
    /// Places in the list of jobs; absent if there was nothing to hit.
    pub hit: Option<Vec<usize>>,
    /// How it is mended.
    pub undo: Undo,
    /// The entry in the list of harms that ends with it.
    pub harm: Option<usize>,
}

/// How a fault is mended.
pub enum Undo {
    Nothing,
    Start(Vec<Part>),
    Continue(Vec<Part>),
    GoOn(Vec<Found>),
    Power(Vec<String>),
    Resume(String),
    Cables(Vec<End>, Vec<End>),
    Fast(End),
    Storage,
    Books,
    Clock(String),
    Controller,
    ControllerGoesOn(i32),
    /// A command of root's or of the user's.
    Say(&'static str, Vec<String>),
}

impl<'a> Field<'a> {
    /// A cluster with nothing wrong.
    pub fn new(site: &'a mut Site, disks: &'a Disks, queue: &'a Queue, jobs: Vec<u32>) -> Field<'a> {
        let (suspended, stopped, orders, harms) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Field { site, disks, queue, jobs, suspended, stopped, orders, harms }
    }

    /// Injects a fault.
    ///
    /// # Errors
    /// The harness itself failed.
    pub fn strike(&mut self, blow: &Blow) -> Result<Struck> {
        match blow.fault {
            Fault::Kill(process) => self.signal(blow, process, libc::SIGKILL),
            Fault::Stop(process) => self.signal(blow, process, libc::SIGSTOP),
            Fault::KillDaemon(daemon) => self.kill_daemon(blow, daemon),
            Fault::StopDaemon(daemon) => self.stop_daemon(blow, daemon),
            Fault::RestartDaemon(daemon) => self.restart_daemon(blow, daemon),
            Fault::Power(place) => {
                let node = self.place(blow, place)?;
                self.power(vec![node])
            }
            Fault::TwoPower => {
                let mut nodes = vec![self.place(blow, Place::Script)?, self.place(blow, Place::Other)?];
                if nodes[0] == nodes[1] {
                    nodes[1] = self.place(blow, Place::Any)?;
                }
                nodes.dedup();
                self.power(nodes)
            }
            Fault::Suspend(place) => self.suspend(blow, place),
            Fault::Cut(cut) => self.cut(blow, cut),
            Fault::Order(order) => self.order(blow, order),
            Fault::Storage(how) => {
                self.disks.fail(how)?;
                let told = "the folders of all runs".into();
                Ok(Struck { told, hit: Some(self.everybody()), undo: Undo::Storage, harm: None })
            }
            Fault::BooksFull => {
                self.disks.fill_books()?;
                Ok(self.controller(Undo::Books))
            }
            Fault::Clock(place) => self.clock(blow, place),
        }
    }

    /// Takes a fault back.
    ///
    /// # Errors
    /// The harness itself failed.
    pub fn mend(&mut self, struck: &Struck) -> Result<()> {
        if let Some(harm) = struck.harm {
            self.harms[harm].until = Some(Instant::now());
        }
        let cluster = &self.site.cluster;
        match &struck.undo {
            Undo::Nothing => Ok(()),
            Undo::Start(parts) => parts.iter().filter(|p| self.has_power(p)).try_for_each(|p| cluster.start_part(p)),
            Undo::Continue(parts) => {
                // One that was killed meanwhile needs no more than its own start.
                parts.iter().filter(|part| cluster.runs_part(part)).try_for_each(|part| cluster.continue_part(part))?;
                self.stopped.retain(|part| !parts.contains(part));
                Ok(())
            }
            Undo::GoOn(found) => {
                found.iter().for_each(|process| {
                    process.signal(libc::SIGCONT);
                });
                Ok(())
            }
            Undo::Power(nodes) => {
                nodes.iter().filter(|node| !cluster.has_power(node)).try_for_each(|node| cluster.give_power(node))
            }
            Undo::Resume(node) => {
                self.suspended.retain(|other| other != node);
                if cluster.has_power(node) { cluster.resume_node(node) } else { Ok(()) }
            }
            Undo::Cables(a, b) => cluster.heal(a, b),
            Undo::Fast(end) => cluster.slow(end, None),
            Undo::Storage => self.disks.mend(),
            Undo::Books => self.disks.empty_books(),
            Undo::Clock(node) => cluster.set_clock(node, 0),
            Undo::Controller => match self.site.controller_pid() {
                Some(_) => Ok(()),
                None => self.site.launch_controller(),
            },
            Undo::ControllerGoesOn(pid) => {
                // SAFETY: a plain signal to the service that we have started and not waited for.
                unsafe { libc::kill(*pid, libc::SIGCONT) };
                Ok(())
            }
            Undo::Say(user, words) => self.say(user, words),
        }
    }

    fn has_power(&self, part: &Part) -> bool {
        let text = part.to_string();
        text.split_once('/').is_none_or(|(node, _)| self.site.cluster.has_power(node))
    }

    /// The node that is meant.
    fn place(&self, blow: &Blow, place: Place) -> Result<String> {
        let nodes = self.queue.nodes(self.jobs[blow.run]);
        let all = &self.site.cluster.nodes;
        let any = all[blow.pick % all.len()].clone();
        Ok(match (place, nodes.split_first()) {
            (Place::Any, _) | (_, None) => any,
            (Place::Other, Some((_, others))) if !others.is_empty() => others[blow.pick % others.len()].clone(),
            (_, Some((script, _))) => script.clone(),
        })
    }

    /// The jobs that have one of these nodes.
    fn on(&self, nodes: &[String]) -> Vec<usize> {
        let has = |job: &u32| self.queue.nodes(*job).iter().any(|node| nodes.contains(node));
        (0..self.jobs.len()).filter(|i| has(&self.jobs[*i])).collect()
    }

    fn everybody(&self) -> Vec<usize> {
        (0..self.jobs.len()).collect()
    }

    fn harm(&mut self, nodes: Option<Vec<String>>, ends: Ends) -> Option<usize> {
        self.harms.push(Harm { nodes, from: Instant::now(), until: None, ends });
        Some(self.harms.len() - 1)
    }

    fn signal(&mut self, blow: &Blow, process: Process, signal: i32) -> Result<Struck> {
        let job = self.jobs[blow.run];
        let found = if process == Process::Slurmstepd {
            let nodes = self.queue.nodes(job);
            let on = |node: &String| self.site.cluster.node_pids(node).unwrap_or_default();
            nodes.iter().flat_map(|node| processes::stepds(&on(node), job)).collect()
        } else {
            processes::of_job(&self.site.cluster.conf, job, process)
        };
        let Some(one) = found.get(blow.pick % found.len().max(1)).cloned().filter(|one| one.signal(signal)) else {
            return Ok(nothing(format!("job {job} has no {process:?}")));
        };
        let told = format!("job {job}, pid {}: {}", one.pid, one.words.chars().take(80).collect::<String>());
        let undo = if signal == libc::SIGSTOP { Undo::GoOn(vec![one]) } else { Undo::Nothing };
        Ok(Struck { told, hit: Some(vec![blow.run]), undo, harm: None })
    }

    /// The daemons that are meant and run, on nodes that do.
    fn parts(&self, blow: &Blow, daemon: Daemon) -> Result<Vec<Part>> {
        let any = self.place(blow, if blow.pick.is_multiple_of(2) { Place::Script } else { Place::Any })?;
        let parts = match daemon {
            Daemon::NodeService => vec![Part::NodeCommand(any)],
            Daemon::Slurmd => vec![Part::Slurmd(any)],
            Daemon::Slurmds => self.site.cluster.nodes.iter().cloned().map(Part::Slurmd).collect(),
            Daemon::Slurmctld => vec![Part::Slurmctld],
            Daemon::Slurmdbd => vec![Part::Slurmdbd],
            Daemon::Mariadb => vec![Part::Mariadb],
            Daemon::Munged => vec![Part::Munged],
            Daemon::NodeMunged => vec![Part::NodeMunged(any)],
            Daemon::Controller => vec![],
        };
        let is_well = |part: &Part| {
            let stands = self.suspended.iter().any(|node| part.to_string().starts_with(&format!("{node}/")));
            !stands && !self.stopped.contains(part) && self.site.cluster.runs_part(part)
        };
        Ok(parts.into_iter().filter(is_well).collect())
    }

    /// Whom daemons serve, and what cannot begin without them in plain Slurm.
    fn of_daemons(&mut self, daemon: Daemon, parts: &[Part]) -> (Vec<usize>, Option<usize>) {
        let node = |part: &Part| part.to_string().split_once('/').map(|(node, _)| node.to_string());
        let nodes: Vec<String> = parts.iter().filter_map(node).collect();
        let jobs = if nodes.is_empty() { self.everybody() } else { self.on(&nodes) };
        let harm = match daemon {
            Daemon::NodeService | Daemon::Controller => None,
            _ if nodes.is_empty() => self.harm(None, Ends::Beginning),
            _ => self.harm(Some(nodes), Ends::Beginning),
        };
        (jobs, harm)
    }

    fn kill_daemon(&mut self, blow: &Blow, daemon: Daemon) -> Result<Struck> {
        if daemon == Daemon::Controller {
            self.site.kill_controller()?;
            return Ok(self.controller(Undo::Controller));
        }
        let parts = self.parts(blow, daemon)?;
        parts.iter().try_for_each(|part| self.site.cluster.kill_part(part))?;
        Ok(self.daemons(daemon, &parts, Undo::Start(parts.clone())))
    }

    fn stop_daemon(&mut self, blow: &Blow, daemon: Daemon) -> Result<Struck> {
        if daemon == Daemon::Controller {
            let Some(pid) = self.site.controller_pid() else { return Ok(nothing("no controller".into())) };
            // SAFETY: a plain signal to the service that we have started and not waited for.
            unsafe { libc::kill(pid, libc::SIGSTOP) };
            return Ok(self.controller(Undo::ControllerGoesOn(pid)));
        }
        let parts = self.parts(blow, daemon)?;
        // One that waits for a storage that hangs cannot stand still before that answers.
        let parts: Vec<Part> = parts.into_iter().filter(|part| self.site.cluster.stop_part(part).is_ok()).collect();
        self.stopped.extend(parts.iter().cloned());
        Ok(self.daemons(daemon, &parts, Undo::Continue(parts.clone())))
    }

    fn restart_daemon(&mut self, blow: &Blow, daemon: Daemon) -> Result<Struck> {
        if daemon == Daemon::Controller {
            self.site.end_controller()?;
            return Ok(self.controller(Undo::Controller));
        }
        if daemon == Daemon::Slurmctld && self.stopped.iter().any(|part| matches!(part, Part::Slurmdbd | Part::Mariadb))
        {
            return Ok(nothing("slurmctld would not end before the accounting that stands still".into()));
        }
        let parts = self.parts(blow, daemon)?;
        parts.iter().try_for_each(|part| self.site.cluster.restart_part(part))?;
        Ok(self.daemons(daemon, &parts, Undo::Nothing))
    }

    fn controller(&self, undo: Undo) -> Struck {
        Struck { told: "the controller service".into(), hit: Some(self.everybody()), undo, harm: None }
    }

    fn daemons(&mut self, daemon: Daemon, parts: &[Part], undo: Undo) -> Struck {
        if parts.is_empty() {
            return nothing(format!("{daemon:?} does not run"));
        }
        let (jobs, harm) = self.of_daemons(daemon, parts);
        let told: Vec<String> = parts.iter().map(ToString::to_string).collect();
        Struck { told: told.join(", "), hit: Some(jobs), undo, harm }
    }

    fn power(&mut self, nodes: Vec<String>) -> Result<Struck> {
        let nodes: Vec<String> = nodes.into_iter().filter(|node| self.site.cluster.has_power(node)).collect();
        if nodes.is_empty() {
            return Ok(nothing("it has no power".into()));
        }
        let jobs = self.on(&nodes);
        for node in &nodes {
            self.site.cluster.kill_node(node)?;
            self.suspended.retain(|other| other != node);
            self.stopped.retain(|part| !part.to_string().starts_with(&format!("{node}/")));
        }
        self.harm(Some(nodes.clone()), Ends::Beginning);
        let harm = self.harm(Some(nodes.clone()), Ends::Running);
        Ok(Struck { told: nodes.join(", "), hit: Some(jobs), undo: Undo::Power(nodes), harm })
    }

    fn suspend(&mut self, blow: &Blow, place: Place) -> Result<Struck> {
        let node = self.place(blow, place)?;
        if !self.site.cluster.has_power(&node) || self.suspended.contains(&node) {
            return Ok(nothing(format!("{node} stands still")));
        }
        self.site.cluster.suspend_node(&node)?;
        self.suspended.push(node.clone());
        let harm = self.harm(Some(vec![node.clone()]), Ends::Beginning);
        Ok(Struck {
            told: node.clone(),
            hit: Some(self.on(std::slice::from_ref(&node))),
            undo: Undo::Resume(node),
            harm,
        })
    }

    fn clock(&mut self, blow: &Blow, place: Place) -> Result<Struck> {
        let node = self.place(blow, place)?;
        // munge takes no words that are five minutes old or of the future.
        let ahead_s = blow.pick as i64 % 480 - 240;
        self.site.cluster.set_clock(&node, ahead_s)?;
        let hit = self.on(std::slice::from_ref(&node));
        Ok(Struck { told: format!("{node} by {ahead_s} s"), hit: Some(hit), undo: Undo::Clock(node), harm: None })
    }

    fn cut(&mut self, blow: &Blow, cut: Cut) -> Result<Struck> {
        // The login node keeps its cable: the harness looks at the cluster from there.
        let all: Vec<End> = self.site.cluster.ends().into_iter().filter(|end| *end != End::Login).collect();
        let node = match cut {
            Cut::FromController(p) | Cut::FromAll(p) | Cut::Out(p) | Cut::In(p) | Cut::Slow(p) => {
                self.place(blow, p)?
            }
            _ => String::new(),
        };
        let one = || Ok::<Vec<End>, anyhow::Error>(vec![node.parse()?]);
        let others = |of: &[End]| all.iter().filter(|end| !of.contains(end)).cloned().collect::<Vec<End>>();
        let head = vec![End::Service, End::Slurmctld];
        let (a, b) = match cut {
            Cut::FromController(_) => (one()?, head),
            Cut::FromAll(_) | Cut::Out(_) => (one()?, others(&one()?)),
            Cut::In(_) => (others(&one()?), one()?),
            Cut::Halves => {
                let (half, other): (Vec<End>, Vec<End>) = all.iter().cloned().partition(|end| match end {
                    End::Node(number) => (*number as usize + blow.pick).is_multiple_of(2),
                    _ => false,
                });
                (half, other)
            }
            Cut::Service => (vec![End::Service], others(&[End::Service])),
            Cut::Head => (head.clone(), others(&head)),
            Cut::Switch | Cut::Lossy => (all.clone(), all.clone()),
            Cut::Slow(_) => {
                let end: End = node.parse()?;
                self.site.cluster.slow(&end, Some(64 << 10))?;
                let told = format!("{node} at 64 KiB/s");
                let hit = Some(self.on(std::slice::from_ref(&node)));
                return Ok(Struck { told, hit, undo: Undo::Fast(end), harm: None });
            }
        };
        match cut {
            Cut::Out(_) | Cut::In(_) => self.site.cluster.cut_one_way(&a, &b)?,
            Cut::Lossy => self.site.cluster.lose(&a, &b, 20)?,
            _ => self.site.cluster.cut(&a, &b)?,
        }
        let (hit, nodes) = match node.is_empty() {
            true => (self.everybody(), None),
            false => (self.on(std::slice::from_ref(&node)), Some(vec![node])),
        };
        let words = |ends: &[End]| ends.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let told = format!("{} | {}", words(&a), words(&b));
        let harm = if cut == Cut::Service { None } else { self.harm(nodes, Ends::Beginning) };
        Ok(Struck { told, hit: Some(hit), undo: Undo::Cables(a, b), harm })
    }

    fn order(&mut self, blow: &Blow, order: Order) -> Result<Struck> {
        let job = self.jobs[blow.run].to_string();
        let ours = self.site.bin().join("joulepoint").display().to_string();
        let words = |words: &[&str]| words.iter().map(|w| (*w).to_string()).collect::<Vec<String>>();
        let mut hit = vec![blow.run];
        let (user, now, undo) = match order {
            Order::Checkpoint => (ALICE, words(&[&ours, "checkpoint", &job]), Undo::Nothing),
            Order::Vacate => (ALICE, words(&[&ours, "vacate", &job]), Undo::Nothing),
            Order::Restart => (ALICE, words(&[&ours, "restart", &job]), Undo::Nothing),
            Order::Disable => {
                (ALICE, words(&[&ours, "disable", &job]), Undo::Say(ALICE, words(&[&ours, "enable", &job])))
            }
            Order::Scancel => (ALICE, words(&["scancel", &job]), Undo::Nothing),
            Order::Requeue => (ALICE, words(&["scontrol", "requeue", &job]), Undo::Nothing),
            Order::Suspend => {
                // One that was requeued meanwhile is held for it.
                let resume = format!("scontrol resume {job} || scontrol release {job}");
                ("root", words(&["scontrol", "suspend", &job]), Undo::Say("root", words(&["sh", "-c", &resume])))
            }
            Order::Drain => {
                let node = format!("nodename={}", self.place(blow, Place::Other)?);
                hit = self.on(&[node["nodename=".len()..].to_string()]);
                let resume = Undo::Say("root", words(&["scontrol", "update", &node, "state=resume"]));
                ("root", words(&["scontrol", "update", &node, "state=drain", &format!("reason={DRAINED}")]), resume)
            }
        };
        self.say(user, &now)?;
        Ok(Struck { told: now.join(" "), hit: Some(hit), undo, harm: None })
    }

    /// Starts a command; people do not wait for one another.
    fn say(&mut self, user: &str, words: &[String]) -> Result<()> {
        let mut command = match user {
            "root" => self.site.cluster.command("timeout"),
            user => self.site.cluster.command_as(user, "timeout"),
        };
        command.args(["-k1", ORDER_S]).args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.orders.push(command.spawn().with_context(|| format!("{words:?}"))?);
        Ok(())
    }

    /// Waits for what people said, and starts what is missing of the cluster.
    ///
    /// # Errors
    /// Something does not come back.
    pub fn settle(&mut self, limit: Duration) -> Result<()> {
        for mut order in self.orders.drain(..) {
            order.wait()?;
        }
        self.disks.mend()?;
        self.disks.empty_books()?;
        let cluster = &self.site.cluster;
        cluster.heal_all()?;
        for node in cluster.nodes.iter().filter(|node| !cluster.has_power(node)) {
            cluster.give_power(node)?;
        }
        start_head(cluster)?;
        for node in &cluster.nodes {
            for part in [Part::NodeMunged(node.clone()), Part::Slurmd(node.clone()), Part::NodeCommand(node.clone())] {
                cluster.start_part(&part)?;
            }
        }
        let seen: Vec<_> = self.jobs.iter().flat_map(|job| self.queue.of(*job)).collect();
        self.site.wait("all nodes to be well", limit, |site| {
            // A slurmctld without state files ends while its database is away.
            start_head(&site.cluster)?;
            let mut command = Command::new("timeout");
            command.args(["10", "sinfo", "-h", "-N", "-o", "%N %T %E"]).env("SLURM_CONF", &site.cluster.conf);
            let said = site.cluster.output(&mut command)?;
            // A slurmctld that was killed may have forgotten that a job runs, starts it again, and drains its node for that.
            // With a protected job it is for us to see to it.
            let of_reason = |reason: &'static str| {
                said.lines().filter(move |line| line.contains(reason)).filter_map(|line| line.split(' ').next())
            };
            let had = |node: &&str| seen.iter().any(|seen| seen.nodes.iter().any(|of| of == node));
            // Nor is an order to drain one taken back if slurmctld hears both in another order.
            for node in of_reason(DUPLICATE).filter(|node| !had(node)).chain(of_reason(DRAINED)) {
                let node = format!("nodename={node}");
                site.cluster.output(site.cluster.command("scontrol").args(["update", &node, "state=resume"]))?;
            }
            let bad = |line: &&str| {
                let state = line.split(' ').nth(1).unwrap_or_default();
                ["down", "drain", "*", "fail", "unk"].iter().any(|word| state.contains(word))
            };
            match said.lines().find(bad) {
                Some(line) => bail!("{line}"),
                None => Ok((!said.is_empty()).then_some(())),
            }
        })
    }
}

/// Starts what does not run of the controller's host.
fn start_head(cluster: &Cluster) -> Result<()> {
    [Part::Munged, Part::Mariadb, Part::Slurmdbd, Part::Slurmctld].iter().try_for_each(|part| cluster.start_part(part))
}

fn nothing(told: String) -> Struck {
    Struck { told: format!("nothing: {told}"), hit: None, undo: Undo::Nothing, harm: None }
}

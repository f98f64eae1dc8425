//! The machine's part of the site: a network of its own, munged, slurmctld, the slurmds of busy nodes, the jobs, and
//! Joulepoint's controller.

use super::wrappers;
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use wire::private::PrivateMunged;

/// How large the site is.
#[derive(clap::Args, Clone, Debug)]
pub struct Scale {
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 10_000)]
    pub nodes: u32,
    /// Nodes with protected jobs, each with a real slurmd.
    #[arg(long, default_value_t = 250)]
    pub busy: u32,
    /// Protected jobs on each of these.
    #[arg(long, default_value_t = 8)]
    pub jobs_per_node: u32,
    /// Jobs that wait in the queue, of people who have never heard of us.
    #[arg(long, default_value_t = 2_000)]
    pub queue: u32,
    /// For how long each state is watched, s.
    #[arg(long, default_value_t = 60)]
    pub watch_s: u64,
    /// Busy nodes that lose their power at once in the end; as many are kept free for their jobs.
    #[arg(long, default_value_t = 0)]
    pub storm: u32,
}

/// So many nodes have addresses beside each other, and one line of slurm.conf.
const BLOCK: u32 = 250;

/// What the emulator has open beside two sockets for each node.
const OTHERS_OPEN: u64 = 1000;

/// Where all node services answer, each at the address of its node.
pub const NODE_PORT: u16 = 6821;
const CONTROLLER_PORT: u16 = 6820;

/// Where slurmds answer: each at a port of its own, since they listen at all addresses.
const SLURMD_PORT: u32 = 20_000;

/// Addresses from which the emulated peers come: the controller bounds how many connections one has.
pub const PEERS: usize = 64;

/// Longest wait for a daemon, or for jobs to begin.
const PATIENCE: Duration = Duration::from_secs(300);

/// Accounts that every system has, as the users of the protected jobs.
const USERS: [&str; 8] = ["daemon", "bin", "sys", "games", "man", "lp", "mail", "news"];

/// Takes this process into a network of its own, where every address of 127.0.0.0/8 is a host that can be cut off.
pub fn own_network(nodes: u32) -> Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).context("a network of its own needs root")?;
    run("ip", &["link", "set", "lo", "up"])?;
    // Slurm resolves no address, not even a number, where there is none but the loopback's.
    run("ip", &["address", "add", "192.0.2.1/32", "dev", "lo"])?;
    // Without the source address of the machine's own route: who connects to 127.1.0.9 comes from there.
    run("ip", &["route", "replace", "local", "127.0.0.0/8", "dev", "lo", "table", "local", "scope", "host"])?;
    run(
        "nft",
        &["add table inet scale; add set inet scale dead { type ipv4_addr; }; \
         add chain inet scale in { type filter hook input priority 0; }; \
         add rule inet scale in ip daddr @dead drop; add rule inet scale in ip saddr @dead drop"],
    )?;
    // Each node service listens, and each has a connection to the controller.
    let most = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?.1;
    let needed = 2 * u64::from(nodes) + OTHERS_OPEN;
    if most < needed {
        bail!(
            "{nodes} nodes need {needed} open files, and this machine allows {most}: say at most --nodes {}",
            (most - OTHERS_OPEN) / 2
        );
    }
    Ok(nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most)?)
}

/// Runs a command; what it printed.
pub fn run(program: &str, args: &[&str]) -> Result<String> {
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().with_context(|| program.to_string())?;
    if !out.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8(out.stdout)?)
}

/// The name of a node, from 0.
pub fn name(node: u32) -> String {
    format!("n{node:05}")
}

/// Its address.
pub fn address(node: u32) -> Ipv4Addr {
    let (block, own) = (node / BLOCK, node % BLOCK);
    Ipv4Addr::new(127, 16 + (block / BLOCK) as u8, (block % BLOCK) as u8, 1 + own as u8)
}

/// Where a peer reaches the controller.
pub fn url(peer: usize) -> String {
    format!("http://127.1.0.{}:{CONTROLLER_PORT}", 1 + peer % PEERS)
}

/// A job that runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Running {
    pub node: String,
    pub id: u32,
    start: String,
}

/// The site; it ends with this value.
pub struct Place {
    dir: tempfile::TempDir,
    munged: PrivateMunged,
    scale: Scale,
    slurmctld: Child,
    slurmds: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slurmds.iter_mut().chain([&mut self.slurmctld]).for_each(|child| {
            let _ = child.kill();
            let _ = child.wait();
        });
        // What the jobs have left is in the network of this site, as is nothing else.
        let own = std::process::id().to_string();
        let _ = Command::new("pkill").args(["-KILL", "--ns", &own, "--nslist", "net", "^(slurmstepd|sleep)"]).status();
    }
}

impl Place {
    /// Starts Slurm with all its jobs.
    pub fn start(scale: &Scale) -> Result<Place> {
        let dir = tempfile::Builder::new().prefix("joulepoint-scale-").tempdir()?;
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755))?;
        for folder in ["munge", "state", "spool", "log", "lives", "run"] {
            std::fs::create_dir(dir.path().join(folder))?;
        }
        let munged = PrivateMunged::start(&dir.path().join("munge"))?;
        let conf = dir.path().join("slurm.conf");
        std::fs::write(&conf, slurm_conf(dir.path(), &munged, scale)?)?;
        let slurmctld = slurm(&conf, "slurmctld").arg("-D").stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut place = Place { dir, munged, scale: scale.clone(), slurmctld, slurmds: Vec::new() };
        place.wait("slurmctld", |p| Ok(p.ask("scontrol", &["ping"])?.contains("UP")))?;
        for node in 0..scale.busy + scale.storm {
            let mut slurmd = slurm(&conf, "slurmd");
            slurmd.args(["-D", "-N", &name(node)]).stdout(Stdio::null()).stderr(Stdio::null());
            place.slurmds.push(slurmd.spawn()?);
            // Some at a time: all at once would take minutes of a small machine.
            if node % 20 == 19 {
                place.wait("slurmds", |p| Ok(p.ready()? > node as usize))?;
            }
        }
        place.wait("slurmds", |p| Ok(p.ready()? >= p.slurmds.len()))?;
        place.submit()?;
        place.wait("jobs", |p| Ok(p.running()?.len() >= p.jobs()))?;
        println!("{} nodes, {} jobs run, {} wait", scale.nodes, place.jobs(), scale.queue);
        Ok(place)
    }

    /// How many protected jobs there are.
    pub fn jobs(&self) -> usize {
        (self.scale.busy * self.scale.jobs_per_node) as usize
    }

    pub fn munge(&self) -> wire::Munge {
        self.munged.munge()
    }

    pub fn lives(&self) -> PathBuf {
        self.dir.path().join("lives")
    }

    /// PIDs of slurmctld and munged.
    pub fn pids(&self) -> Result<[i32; 2]> {
        let munged = std::fs::read_to_string(self.munged.socket().with_file_name("pid"))?.trim().parse()?;
        Ok([i32::try_from(self.slurmctld.id())?, munged])
    }

    /// Asks Slurm.
    pub fn ask(&self, program: &str, args: &[&str]) -> Result<String> {
        let out = slurm(&self.dir.path().join("slurm.conf"), program).args(args).output()?;
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }

    fn wait(&self, what: &str, is_there: impl Fn(&Place) -> Result<bool>) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_there(self)? {
            if Instant::now() > deadline {
                bail!("{what} did not come within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// How many nodes take jobs, or have some.
    fn ready(&self) -> Result<usize> {
        Ok(self.ask("sinfo", &["-h", "-N", "-t", "idle,mix,alloc", "--responding", "-o", "%N"])?.lines().count())
    }

    /// How many of the nodes that have a slurmd are down.
    pub fn down(&self) -> Result<usize> {
        let dead = format!("n[00000-{:05}]", self.scale.storm.saturating_sub(1));
        Ok(self.ask("sinfo", &["-h", "-N", "-n", &dead, "-t", "down", "-o", "%N"])?.lines().count())
    }

    /// What runs where, and since when.
    pub fn running(&self) -> Result<Vec<Running>> {
        let text = self.ask("squeue", &["-h", "-t", "R", "-o", "%A %N %S"])?;
        let words = text.lines().map(|line| line.split(' ').map(str::to_string).collect::<Vec<_>>());
        Ok(words
            .filter_map(|w| match &w[..] {
                [id, node, start] => Some(Running { node: node.clone(), id: id.parse().ok()?, start: start.clone() }),
                _ => None,
            })
            .collect())
    }

    fn submit(&self) -> Result<()> {
        let lives = self.lives();
        std::fs::set_permissions(&lives, PermissionsExt::from_mode(0o1777))?;
        let script = format!(
            "#!/bin/sh\nf={}/$(id -u)/$SLURM_JOB_ID.${{SLURM_RESTART_COUNT:-0}}\n\
             echo \"$(date +%s) $SLURMD_NODENAME\" > $f.new && mv $f.new $f\nexec sleep 86400\n",
            lives.display(),
        );
        let path = self.dir.path().join("job.sh");
        std::fs::write(&path, script)?;
        for (n, user) in self.users()?.iter().enumerate() {
            let own = lives.join(user.uid.to_string());
            std::fs::create_dir(&own)?;
            nix::unistd::chown(&own, Some(user.uid), Some(user.gid))?;
            let count = (self.jobs() + USERS.len() - 1 - n) / USERS.len();
            if count > 0 {
                let array = format!("--array=1-{count}");
                self.sbatch(user, &[&array, "--requeue", "-n1", "-J", "load", &path.to_string_lossy()])?;
            }
        }
        // Each waits for itself: an array would be one record of the queue.
        let nobody = nix::unistd::User::from_name("nobody")?.context("nobody")?;
        std::thread::scope(|scope| {
            let some = |first: u32| {
                (first..self.scale.queue)
                    .step_by(4)
                    .try_for_each(|_| self.sbatch(&nobody, &["-H", "-n1", "--wrap=true"]))
            };
            let all: Vec<_> = (0..4).map(|first| scope.spawn(move || some(first))).collect();
            all.into_iter().try_for_each(|a| a.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
        })
    }

    fn sbatch(&self, user: &nix::unistd::User, args: &[&str]) -> Result<()> {
        let mut sbatch = slurm(&self.dir.path().join("slurm.conf"), "sbatch");
        sbatch.args(["-Q", "-o", "/dev/null"]).args(args).uid(user.uid.as_raw()).gid(user.gid.as_raw());
        let out = sbatch.current_dir("/").output()?;
        if !out.status.success() {
            bail!("sbatch: {}", String::from_utf8_lossy(&out.stderr).trim());
        }
        Ok(())
    }

    fn users(&self) -> Result<Vec<nix::unistd::User>> {
        USERS.iter().map(|name| nix::unistd::User::from_name(name)?.context(*name)).collect()
    }

    /// The real controller over a new store.
    pub fn controller(&self) -> Result<Daemon> {
        let dir = self.dir.path();
        let text = format!(
            "munge_socket = {:?}\n[controller]\nurl = {:?}\nlisten = \"0.0.0.0:{CONTROLLER_PORT}\"\nstore = {:?}\n",
            self.munged.socket(),
            url(0),
            dir.join("store.sqlite"),
        );
        let conf = dir.join("joulepoint.toml");
        std::fs::write(&conf, text)?;
        let log = std::fs::File::create(dir.join("log/joulepointd"))?;
        let mut command = slurm(&dir.join("slurm.conf"), &suite::built()?.join("joulepointd").to_string_lossy());
        command.args(["--role=controller", "--conf"]).arg(&conf).stderr(log).stdout(Stdio::null());
        let daemon = Daemon(command.spawn()?);
        self.wait("the controller", |_| Ok(get("/healthz").is_ok()))?;
        Ok(daemon)
    }

    /// All users' wrappers.
    pub fn wrappers(&self) -> Result<wrappers::All> {
        let mut all = wrappers::All::default();
        for (n, user) in self.users()?.iter().enumerate() {
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("scale-wrappers").arg(self.lives().join(user.uid.to_string())).arg(url(n));
            command.arg(self.munged.socket()).arg(self.dead());
            all.start(command.uid(user.uid.as_raw()).gid(user.gid.as_raw()))?;
        }
        Ok(all)
    }

    fn dead(&self) -> PathBuf {
        self.dir.path().join("run/dead")
    }

    /// Takes the power of some nodes: all their processes, and their network.
    pub fn power_off(&self, dead: &BTreeSet<String>) -> Result<()> {
        let nodes: Vec<u32> = dead.iter().filter_map(|name| name.strip_prefix('n')?.parse().ok()).collect();
        let addresses = nodes.iter().map(|n| address(*n).to_string()).collect::<Vec<_>>().join(", ");
        run("nft", &[&format!("add element inet scale dead {{ {addresses} }}")])?;
        std::fs::write(self.dead(), dead.iter().map(|name| format!("{name}\n")).collect::<String>())?;
        for node in &nodes {
            let slurmd = self.slurmds.get(*node as usize).context("a slurmd")?;
            // A slurmd that is killed leaves its steps, as an upgrade would; they cannot be reached.
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(i32::try_from(slurmd.id())?), nix::sys::signal::SIGKILL)?;
        }
        Ok(())
    }
}

/// Joulepoint's controller.
pub struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn pid(&self) -> Result<i32> {
        Ok(i32::try_from(self.0.id())?)
    }

    /// CPU time so far, s.
    pub fn cpu_s(&self) -> Result<f64> {
        crate::bench::cpu_s(self.pid()?).context("the controller has ended")
    }

    pub fn peak_mib(&self) -> Result<String> {
        Ok(format!("{:.0}", crate::bench::peak_mib(self.pid()?).context("the controller has ended")?))
    }

    /// A figure of `/metrics`.
    pub fn metric(&self, name: &str) -> Result<f64> {
        let text = get("/metrics")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.with_context(|| format!("/metrics has no {name}"))
    }
}

fn get(path: &str) -> Result<String> {
    crate::bench::get(("127.1.0.1", CONTROLLER_PORT), path)
}

fn slurm(conf: &Path, program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("SLURM_CONF", conf).stdin(Stdio::null());
    command
}

fn slurm_conf(dir: &Path, munged: &PrivateMunged, scale: &Scale) -> Result<String> {
    let d = dir.display();
    let host = nix::unistd::gethostname()?;
    let mut text = format!(
        "ClusterName=scale\nSlurmctldHost={}(127.0.0.1)\nAuthType=auth/munge\nAuthInfo=socket={}\nSlurmUser=root\n\
         StateSaveLocation={d}/state\nSlurmdSpoolDir={d}/spool/%n\nSlurmctldPidFile={d}/run/slurmctld.pid\n\
         SlurmdPidFile={d}/run/%n.pid\nSlurmctldLogFile={d}/log/slurmctld\nSlurmdLogFile={d}/log/%n\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\nSchedulerType=sched/backfill\nSlurmdTimeout={}\nReturnToService=2\n\
         MaxJobCount=500000\nMaxArraySize=100001\nMpiDefault=none\nJobAcctGatherType=jobacct_gather/none\n\
         SlurmdParameters=config_overrides\nMailProg=/bin/true\nJobRequeue=1\nMinJobAge=3600\nTreeWidth=65533\n",
        host.to_string_lossy(),
        munged.socket().display(),
        // Slurm looks at nodes only where this is not 0, and idle ones have no slurmd here.
        if scale.storm > 0 { 300 } else { 0 },
    );
    // Those with a slurmd have ports of their own: they listen at all addresses.
    let busy = scale.busy + scale.storm;
    let bounds = [0, busy].into_iter().chain((0..scale.nodes).step_by(BLOCK as usize)).chain([scale.nodes]);
    let bounds: Vec<u32> = bounds.collect::<BTreeSet<u32>>().into_iter().collect();
    for part in bounds.windows(2) {
        let (first, last) = (part[0], part[1] - 1);
        let ports = match first < busy {
            true => format!("[{}-{}]", SLURMD_PORT + first, SLURMD_PORT + last),
            false => (SLURMD_PORT - 1).to_string(),
        };
        let [a, b, c, d] = address(first).octets();
        writeln!(
            text,
            "NodeName=n[{first:05}-{last:05}] NodeAddr={a}.{b}.{c}.[{d}-{}] Port={ports} CPUs={} RealMemory=64000",
            address(last).octets()[3],
            scale.jobs_per_node,
        )?;
    }
    writeln!(text, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE")?;
    Ok(text)
}

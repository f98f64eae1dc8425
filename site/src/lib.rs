//! A private Slurm with Joulepoint installed on it, for the suites, the demo and the benchmarks.

pub mod page;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use testbed::{Cluster, End, Network, Options, Plugin};

/// Usual port of the controller service.
const CONTROLLER_PORT: u16 = 6820;

/// Its standby's.
const STANDBY_PORT: u16 = 6822;
const CONF_OF_STANDBY: &str = "standby.toml";

/// Programs that the workspace builds and a site installs.
const BUILT: [&str; 4] = ["joulepoint", "joulepointd", "joulepoint-relay", "libjoulepoint.so"];

/// What makes one world of MPI programs over groups, as it is built and as it is installed.
const WORLDS: [(&str, &str); 4] = [
    ("joulepoint-mpi-relay", "joulepoint-mpi-relay"),
    ("libjoulepoint_mpi.so", "libjoulepoint-mpi-openmpi.so"),
    ("libjoulepoint_mpi_mpich.so", "libjoulepoint-mpi-mpich.so"),
    ("libjoulepoint_mpi_standard.so", "libjoulepoint-mpi-standard.so"),
];

/// A Slurm cluster with the plugin, the node services and the controller service.
pub struct Site {
    /// Slurm itself.
    pub cluster: Cluster,
    /// Joulepoint's site file.
    pub conf: PathBuf,
    /// The controller service's store.
    pub store: PathBuf,
    controller: Option<Child>,
    standby: Option<Child>,
}

/// How a site is to be started.
pub struct Wanted {
    /// Number of nodes.
    pub nodes: u32,
    /// Lines for the sections `[estimates]` and after in the site file.
    pub toml: String,
    /// Lines for the section `[node]` of the site file.
    pub node_toml: String,
    /// Lines for slurm.conf.
    pub slurm_conf: String,
    /// Arguments of the plugin beside `wrapper=` and `conf=`.
    pub plugin_args: Vec<String>,
    /// Slurm's own detection of dead nodes, s: slow, so that ours is what the tests see. It asks nodes three times as often.
    pub slurmd_timeout_s: u32,
    /// Folders below `/tmp` and the like that all nodes see, beside the site's own.
    pub shared: Vec<PathBuf>,
    /// The controller service's store; in the site's folder, if absent.
    pub store: Option<PathBuf>,
    /// Whether clocks of nodes can be set.
    pub own_clocks: bool,
    /// Whether everybody knows of a standby controller, which needs a MariaDB ([`Site::launch_standby`]).
    pub standby: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Wanted {
            nodes: 8,
            toml: "[estimates]\nnode_mtbf_s = 3600.0\ncheckpoint_s = 1.0\nrestart_s = 5.0\n".to_string(),
            node_toml: String::new(),
            slurm_conf: String::new(),
            plugin_args: Vec::new(),
            slurmd_timeout_s: 120,
            shared: Vec::new(),
            store: None,
            own_clocks: false,
            standby: false,
        }
    }
}

/// The folder of the programs that cargo built beside the running one.
pub fn built() -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let folder = exe.parent().context("no folder")?;
    Ok(if folder.ends_with("deps") {
        folder.parent().context("no folder")?.to_path_buf()
    } else {
        folder.to_path_buf()
    })
}

/// The folder of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Exit code of a command of `packaging/` that has to be skipped.
const SKIPPED: i32 = 77;

/// What a script of `packaging` fetches for the tests, kept under this name beside what is built.
#[derive(Clone, Copy, Debug)]
pub enum Fetched {
    /// A CRIU that runs on this kernel.
    Criu,
    /// Open MPI 5.
    OpenMpi5,
    /// MPICH 5.
    Mpich5,
}

/// Puts it into a folder, for everybody.
///
/// # Errors
/// Why there is none: the test is skipped.
pub fn fetch(what: Fetched, into: &Path) -> Result<(), String> {
    let (script, words, name): (&str, &[&str], &str) = match what {
        Fetched::Criu => ("criu.sh", &[], "criu"),
        Fetched::OpenMpi5 => ("mpi.sh", &["openmpi"], "openmpi5"),
        Fetched::Mpich5 => ("mpi.sh", &["mpich"], "mpich5"),
    };
    let kept = built().map_err(|e| e.to_string())?.join(name);
    let script = repository().join("packaging").join(script);
    let output = Command::new("sh").arg(&script).args(words).arg(&kept).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) => {}
        Some(SKIPPED) => return Err(said.trim().to_string()),
        _ => panic!("{}: {said}", script.display()),
    }
    let copied = Command::new("cp").arg("-a").arg(&kept).arg(into).status();
    copied.is_ok_and(|s| s.success()).then_some(()).ok_or(format!("cp to {}", into.display()))
}

/// Folders that all nodes of a cluster see: the cluster's, and those of this machine that are not each node's own.
fn shared_by_nodes(of_cluster: [PathBuf; 2]) -> Vec<PathBuf> {
    const OWN: [&str; 6] = ["dev", "proc", "run", "sys", "tmp", "var"];
    let entries = fs::read_dir("/").into_iter().flatten().flatten().map(|entry| entry.path());
    let others = entries.filter(|path| path.is_dir() && !OWN.iter().any(|own| path.ends_with(own)));
    of_cluster.into_iter().chain(others).collect()
}

impl Site {
    /// Starts a site in `dir`, which ordinary users must be able to enter.
    pub fn start(dir: &Path, wanted: &Wanted, progress: &mut dyn FnMut(&str)) -> Result<Site> {
        let _ = fs::remove_dir_all(dir);
        let bin = dir.join("bin");
        fs::create_dir_all(&bin)?;
        for folder in [dir, &bin] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        }
        for name in BUILT {
            let from = built()?.join(name);
            fs::copy(&from, bin.join(name)).with_context(|| format!("{} (cargo build first)", from.display()))?;
        }
        for (name, installed) in WORLDS {
            let from = built()?.join(name);
            fs::copy(&from, bin.join(installed)).with_context(|| format!("{} (cargo build first)", from.display()))?;
        }
        let conf = dir.join("joulepoint.toml");
        let slurm = dir.join("slurm");
        let network = Network::new()?;
        let [address, of_standby] =
            [CONTROLLER_PORT, STANDBY_PORT].map(|port| format!("{}:{port}", network.address(&End::Service)));
        let url =
            if wanted.standby { format!("http://{address},http://{of_standby}") } else { format!("http://{address}") };
        let path = |p: &Path| p.display().to_string();
        let mut shared = wanted.shared.clone();
        shared.push(dir.to_path_buf());
        let capabilities = dir.join("capabilities.json");
        let mut args = vec![
            format!("wrapper={}", path(&bin.join("joulepoint"))),
            format!("conf={}", path(&conf)),
            format!("capabilities={}", path(&capabilities)),
        ];
        args.extend(wanted.plugin_args.iter().cloned());
        let options = Options {
            nodes: wanted.nodes,
            plugin: Some(Plugin { so: bin.join("libjoulepoint.so"), args }),
            extra_conf: wanted.slurm_conf.clone(),
            slurmd_timeout_s: wanted.slurmd_timeout_s,
            node_command: Some(
                [&path(&bin.join("joulepointd")), "--role=node", "--node=%n", "--conf", &path(&conf)]
                    .map(str::to_string)
                    .to_vec(),
            ),
            shared,
            own_clocks: wanted.own_clocks,
            env: vec![("JOULEPOINT_CONF".to_string(), path(&conf))],
            ..Options::default()
        };
        // The node services need the file before Slurm's folder exists; its paths are known beforehand.
        let shared = slurm.join("shared");
        let munge = slurm.join("munge/munge.socket.2");
        let store = wanted.store.clone().unwrap_or_else(|| dir.join("store.sqlite"));
        let text = format!(
            "munge_socket = {munge:?}\n\n[controller]\nurl = \"{url}\"\nlisten = \"{address}\"\n\
             store = {:?}\n\n[node]\ncapabilities = {capabilities:?}\nsocket = {:?}\nspool = {:?}\n{}\n\n[watch]\nlease_file = {:?}\n\n[energy]\nsources = [\"model\"]\nidle_w = 100.0\nbusy_w = 300.0\n\n\
             [runs]\ndir = \"{}/runs-{{user}}\"\nshared = {:?}\n\n{}",
            store,
            dir.join("{node}.socket"),
            dir.join("spool"),
            wanted.node_toml,
            dir.join("{node}.lease"),
            shared.display(),
            shared_by_nodes([shared.clone(), slurm.join("home")]),
            wanted.toml
        );
        fs::write(&conf, &text)?;
        let listen = |at: &str| format!("\nlisten = \"{at}\"\n");
        fs::write(dir.join(CONF_OF_STANDBY), text.replace(&listen(&address), &listen(&of_standby)))?;
        let cluster = Cluster::start_on(network, &slurm, &options, progress)?;
        if cluster.munge_socket != munge || cluster.shared() != shared {
            bail!(
                "the testbed's paths have changed: {}, {}",
                cluster.munge_socket.display(),
                cluster.shared().display()
            );
        }
        let mut site = Site { cluster, conf, store, controller: None, standby: None };
        progress("starting the controller service");
        site.start_controller()?;
        Ok(site)
    }

    /// The folder of the programs that are installed.
    pub fn bin(&self) -> PathBuf {
        self.conf.with_file_name("bin")
    }

    /// Starts `joulepointd --role=controller` and waits until all nodes that run have sent a heartbeat.
    pub fn start_controller(&mut self) -> Result<()> {
        self.launch_controller()?;
        let nodes = self.cluster.nodes.iter().filter(|n| self.cluster.node_pids(n).is_ok()).count();
        self.wait("heartbeats of all nodes", Duration::from_secs(120), |site| {
            let metrics = site.metrics().unwrap_or_default();
            let beating = metrics.lines().find_map(|l| l.strip_prefix("joulepoint_nodes "));
            Ok(beating.is_some_and(|n| n.trim().parse::<f64>().is_ok_and(|n| n as usize >= nodes)).then_some(()))
        })
    }

    /// Starts `joulepointd --role=controller`, and waits for nobody.
    pub fn launch_controller(&mut self) -> Result<()> {
        self.controller = Some(self.launched(&self.conf)?);
        Ok(())
    }

    /// Starts another controller, the standby of a site that has one.
    pub fn launch_standby(&mut self) -> Result<()> {
        self.standby = Some(self.launched(&self.conf.with_file_name(CONF_OF_STANDBY))?);
        Ok(())
    }

    fn launched(&self, conf: &Path) -> Result<Child> {
        let log = fs::OpenOptions::new().append(true).create(true).open(self.conf.with_file_name("controller.log"))?;
        let program = self.bin().join("joulepointd").display().to_string();
        let mut command = self.cluster.command_on(&End::Service, &program)?;
        command.args(["--role=controller", "--conf"]).arg(conf).stdout(log.try_clone()?).stderr(log);
        // SAFETY: prctl is safe between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        // The signal comes when the *thread* that spawned it ends, so that one waits for ever.
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let _ = sender.send(command.spawn());
            loop {
                std::thread::park();
            }
        });
        Ok(receiver.recv()??)
    }

    /// The process of the controller service, if it was started.
    pub fn controller_pid(&self) -> Option<i32> {
        self.controller.as_ref().map(|child| child.id() as i32)
    }

    /// Ends the controller service by SIGTERM, as `systemctl stop` does.
    pub fn end_controller(&mut self) -> Result<()> {
        let Some(pid) = self.controller_pid() else { return Ok(()) };
        // SAFETY: a plain signal to a child that was not waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end && self.controller.as_mut().is_some_and(|c| matches!(c.try_wait(), Ok(None))) {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.kill_controller()
    }

    /// SIGKILL of the controller service.
    pub fn kill_controller(&mut self) -> Result<()> {
        kill(self.controller.take())
    }

    /// Cuts the controller's cables to all nodes: the service's and slurmctld's, as if both were on one host.
    pub fn cut_controller(&self) -> Result<()> {
        self.cluster.cut(&[End::Service, End::Slurmctld], &self.cluster.node_ends())
    }

    /// Cuts the controller service off from all nodes and from slurmctld, which see each other.
    pub fn cut_service(&self) -> Result<()> {
        self.cluster.cut(&[End::Service], &[vec![End::Slurmctld], self.cluster.node_ends()].concat())
    }

    /// Cuts a node off from the controller service and from slurmctld; it sees the other nodes.
    pub fn cut_from_controller(&self, node: &str) -> Result<()> {
        self.cluster.cut(&[node.parse()?], &[End::Service, End::Slurmctld])
    }

    /// Cuts a node off from everything.
    pub fn cut_node(&self, node: &str) -> Result<()> {
        self.cluster.cut(&[node.parse()?], &self.cluster.ends())
    }

    /// Takes the switch away: nobody reaches anybody.
    pub fn cut_all(&self) -> Result<()> {
        self.cluster.cut(&self.cluster.ends(), &self.cluster.ends())
    }

    /// Mends all cables.
    pub fn heal(&self) -> Result<()> {
        self.cluster.heal_all()
    }

    /// The controller's metrics, as text.
    pub fn metrics(&self) -> Result<String> {
        self.asked("/metrics")
    }

    /// How the controller says that it is.
    pub fn health(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.asked("/healthz")?)?)
    }

    fn asked(&self, path: &str) -> Result<String> {
        let text = fs::read_to_string(&self.conf)?;
        let urls = text.lines().find_map(|l| l.strip_prefix("url = \"")).context("no url")?.trim_end_matches('"');
        let asked = urls.split(',').map(|url| get(url.trim_start_matches("http://"), path));
        asked.reduce(Result::or).context("no url")?
    }

    /// A command of an ordinary user, in a folder.
    pub fn user_command(&self, user: &str, program: &str, folder: &Path) -> Command {
        let mut command = self.cluster.command_as(user, program);
        command.current_dir(folder);
        command
    }

    /// A folder on the shared file system that belongs to a user.
    pub fn folder(&self, user: &str, name: &str) -> Result<PathBuf> {
        let folder = self.cluster.shared().join(format!("{user}-{name}"));
        let made = self.cluster.command_as(user, "mkdir").arg("-p").arg(&folder).status()?;
        if !made.success() {
            bail!("{} cannot be made", folder.display());
        }
        Ok(folder)
    }

    /// Writes a batch script for a user and submits it; the job id.
    pub fn submit(&self, user: &str, folder: &Path, args: &[&str], script: &str) -> Result<u32> {
        let output = self.sbatch(user, folder, args, script)?;
        let said = String::from_utf8_lossy(&output.stdout);
        let id = said.trim().split(';').next().and_then(|t| t.parse().ok());
        id.with_context(|| format!("sbatch: {said}{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Like [`Site::submit`], for submissions that may be refused.
    pub fn sbatch(&self, user: &str, folder: &Path, args: &[&str], script: &str) -> Result<Output> {
        let path = folder.join("job.sh");
        let first = if script.starts_with("#!") { "" } else { "#!/bin/bash\n" };
        fs::write(&path, format!("{first}{script}\n"))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let mut command = self.user_command(user, "sbatch", folder);
        command.arg("--parsable").args(args).arg(&path).stdin(Stdio::null());
        Ok(command.output()?)
    }

    /// `joulepoint ARGS` as a user.
    pub fn joulepoint(&self, user: &str, args: &[&str]) -> Result<Output> {
        let program = self.bin().join("joulepoint").display().to_string();
        Ok(self.user_command(user, &program, Path::new("/")).args(args).output()?)
    }

    /// What the report says of a job, if the store knows it.
    pub fn report(&self, job: u32) -> Result<Option<Value>> {
        let output = self.joulepoint("root", &["report", "-j", &job.to_string(), "--json"])?;
        if !output.status.success() {
            return Ok(None);
        }
        let runs: Value = serde_json::from_slice(&output.stdout)?;
        Ok(runs.get(0).cloned())
    }

    /// Waits until the report of a job satisfies `f`.
    pub fn wait_report<T>(
        &self,
        job: u32,
        what: &str,
        limit: Duration,
        mut f: impl FnMut(&Value) -> Option<T>,
    ) -> Result<T> {
        self.wait(what, limit, |site| Ok(site.report(job)?.as_ref().and_then(&mut f)))
            .with_context(|| format!("job {job}: {:?}", self.report(job)))
    }

    /// Slurm's state of a job.
    pub fn state(&self, job: u32) -> Result<String> {
        let output = self.cluster.command("scontrol").args(["show", "job", "-o", &job.to_string()]).output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let state = text.split_whitespace().find_map(|w| w.strip_prefix("JobState="));
        Ok(state.unwrap_or("UNKNOWN").to_string())
    }

    /// Waits until a job is in one of `states`.
    pub fn wait_state(&self, job: u32, states: &[&str], limit: Duration) -> Result<String> {
        self.wait(&format!("job {job} in {states:?}"), limit, |site| {
            let state = site.state(job)?;
            Ok(states.contains(&state.as_str()).then_some(state))
        })
    }

    /// Waits for something to become true, looking often, and not for ever; a look that fails is one in vain.
    pub fn wait<T>(&self, what: &str, limit: Duration, mut f: impl FnMut(&Site) -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + limit;
        loop {
            let last = match f(self) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => None,
                Err(e) => Some(e),
            };
            if Instant::now() > end {
                let why = last.map(|e| format!(" (last error: {e:#})")).unwrap_or_default();
                bail!("waited {} s in vain for: {what}{why}", limit.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.kill_controller();
        let _ = kill(self.standby.take());
    }
}

fn kill(daemon: Option<Child>) -> Result<()> {
    if let Some(mut daemon) = daemon {
        daemon.kill()?;
        daemon.wait()?;
    }
    Ok(())
}

/// One plain HTTP request to this machine.
fn get(address: &str, path: &str) -> Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    text.split_once("\r\n\r\n").map(|(_, body)| body.to_string()).context("no answer")
}

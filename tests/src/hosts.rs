//! Hosts that boot a real Debian with its systemd, on a network of their own, and that can lose power.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use testbed::Namespace;

/// Longest time that a command on a host may take, seconds, unless its caller says less.
const COMMAND_S: u64 = 120;

/// Hosts over one Debian; each keeps what it wrote across power cuts. All end with this value.
pub struct Hosts {
    base: PathBuf,
    dir: PathBuf,
    names: Vec<String>,
    running: BTreeMap<String, Namespace>,
    network: Namespace,
}

impl Hosts {
    /// A network for hosts of these names over the Debian in `base`; `dir` holds what they write. None is booted yet.
    pub fn new(base: &Path, dir: &Path, names: &[&str]) -> Result<Hosts> {
        std::fs::create_dir_all(dir.join("home"))?;
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755))?;
        let more = ["--net", "--uts", "--ipc", "--propagation", "private"];
        let network = Namespace::outermost(&more, include_str!("hosts/network.sh"), &dir.join("network.log"))?;
        let names: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
        let mut hosts = String::from("127.0.0.1 localhost\n");
        for name in &names {
            hosts += &format!("{} {name}\n", address(&names, name)?);
        }
        std::fs::write(base.join("etc/hosts"), hosts)?;
        Ok(Hosts { base: base.to_path_buf(), dir: dir.to_path_buf(), names, running: BTreeMap::new(), network })
    }

    /// Switches a host on and waits until its systemd has started everything.
    pub fn boot(&mut self, name: &str) -> Result<()> {
        let own = self.dir.join(name);
        std::fs::create_dir_all(&own)?;
        let path = |p: &Path| p.display().to_string();
        let args =
            [path(&self.base), path(&own), name.to_string(), address(&self.names, name)?, group()].map(String::from);
        let mut words = vec!["-c", include_str!("hosts/boot.sh"), "boot"];
        words.extend(args.iter().map(String::as_str));
        let log = self.dir.join(format!("{name}.log"));
        let booted = self.network.inside("bash", &words, &log);
        let booted = booted.with_context(|| std::fs::read_to_string(&log).unwrap_or_default())?;
        self.running.insert(name.to_string(), booted);
        // It says "degraded" where a unit has no place in a container; that is fine.
        self.wait(&format!("{name} to boot"), 60, |hosts| {
            let said = hosts.try_run(name, "root", "systemctl is-system-running")?;
            let state = String::from_utf8_lossy(&said.stdout).trim().to_string();
            Ok(["running", "degraded"].contains(&state.as_str()).then_some(()))
        })?;
        Ok(())
    }

    /// The names of all hosts.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// A host's file, as this machine sees it.
    pub fn file(&self, name: &str, path: &str) -> Result<PathBuf> {
        let host = self.running.get(name).with_context(|| format!("{name} does not run"))?;
        Ok(PathBuf::from(format!("/proc/{}/root{path}", host.init)))
    }

    /// Every process of the host is gone when this returns; its disk stays.
    pub fn cut_power(&mut self, name: &str) -> Result<()> {
        let mut host = self.running.remove(name).with_context(|| format!("{name} does not run"))?;
        host.kill();
        self.forget(name);
        Ok(())
    }

    /// Whether a host switches itself off within seconds; then it is forgotten, and may be booted again.
    pub fn goes_off(&mut self, name: &str) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        while self.running.get(name).is_some_and(Namespace::alive) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.running.remove(name);
        self.forget(name);
        true
    }

    /// Takes a dead host's name off the network.
    fn forget(&self, name: &str) {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.network.init.to_string(), "--mount", "--net", "ip", "netns", "delete", name]);
        let _ = command.status();
    }

    /// A shell command on a host, as a user in that user's home; its output, which may be that of a failure.
    pub fn try_run(&self, name: &str, user: &str, script: &str) -> Result<Output> {
        let host = self.running.get(name).with_context(|| format!("{name} does not run"))?;
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", &COMMAND_S.to_string(), "nsenter", "--target", &host.init.to_string(), "--all"]);
        command.args(["--root", "--wd", "env", "-i", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"]);
        command.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "runuser", "-l", "-s", "/bin/bash", user, "-c", script]);
        Ok(command.stdin(Stdio::null()).output()?)
    }

    /// The same for a command that must succeed; what it said.
    pub fn run(&self, name: &str, user: &str, script: &str) -> Result<String> {
        let output = self.try_run(name, user, script)?;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if !output.status.success() {
            bail!("{user}@{name}: {script}\n{}: {said}", output.status);
        }
        Ok(said)
    }

    /// Waits for something to become true, looking often, and not for ever.
    pub fn wait<T>(&self, what: &str, limit_s: u64, mut f: impl FnMut(&Hosts) -> Result<Option<T>>) -> Result<T> {
        let end = Instant::now() + Duration::from_secs(limit_s);
        loop {
            if let Some(found) = f(self)? {
                return Ok(found);
            }
            if Instant::now() > end {
                bail!("waited {limit_s} s in vain for {what}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.network.kill();
        self.running.clear();
        // Control groups outlive their processes.
        let remove =
            format!("mount -t cgroup2 cgroup2 /mnt && find /mnt/{}-* -depth -type d -exec rmdir {{}} +", group());
        let _ = Command::new("unshare").args(["--mount", "sh", "-c", &remove]).stderr(Stdio::null()).status();
    }
}

/// The address of a host, by its place among the names.
fn address(names: &[String], name: &str) -> Result<String> {
    let place = names.iter().position(|n| n == name).with_context(|| format!("there is no host {name}"))?;
    Ok(format!("192.0.2.{}", place + 1))
}

/// What the control groups of this process's hosts begin with.
fn group() -> String {
    format!("joulepoint-{}", std::process::id())
}

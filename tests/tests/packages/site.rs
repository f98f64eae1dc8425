//! A site without Joulepoint: Debian's Slurm on a controller and four nodes, and the packages, waiting to be installed.

use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use suite::hosts::Hosts;
use suite::{chroot, repository};
use tempfile::TempDir;

const PACKAGES: &str = "systemd,systemd-sysv,dbus,slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,munge,procps,\
    hostname,util-linux,iproute2,passwd,curl";
/// Accounting, without which Slurm resizes no job.
const ACCOUNTING: &str = "slurmdbd,slurm-wlm-mysql-plugin,mariadb-server";
const ACCOUNTS: &str = "systemctl enable --now mariadb
    mariadb -e \"CREATE DATABASE slurm_acct_db; GRANT ALL ON slurm_acct_db.* TO slurm@localhost IDENTIFIED BY 'monday'\"
    systemctl enable --now slurmdbd
    for try in $(seq 100); do sacctmgr --immediate add cluster monday && exit; sleep 0.2; done; exit 1";
const HOSTS: [&str; 5] = [CONTROLLER, "n1", "n2", "n3", "n4"];
const USER_ID: u32 = 2000;

/// Where slurmctld and the controller service run, and people log in.
pub const CONTROLLER: &str = "ctl";
/// Who submits jobs.
pub const USER: &str = "alice";
/// Where the packages lie on every host.
pub const DEBS: &str = "/root/joulepoint";
/// Where those of the version before this one lie, if they are built.
pub const BEFORE: &str = "/root/before";

/// Such a site.
pub struct Site {
    /// Its hosts.
    pub hosts: Hosts,
    /// All paths of each host before anything was installed.
    pub before: Vec<(String, Vec<String>)>,
    /// Whether the packages of the version before this one are there.
    pub has_before: bool,
    /// Hosts that switched themselves off and wait for somebody to switch them on.
    pub powered_off: Vec<String>,
    _folder: TempDir,
}

impl Site {
    /// Boots the hosts over a Debian and waits until all nodes are idle.
    pub fn boot(folder: TempDir, series: &str) -> Result<Site> {
        let mut site = Site::without_slurm(folder, series, &HOSTS)?;
        site.root(ACCOUNTS)?;
        for name in HOSTS {
            let daemon = if name == CONTROLLER { "slurmctld" } else { "slurmd" };
            site.hosts.run(name, "root", &format!("systemctl enable --now {daemon}"))?;
        }
        site.all_idle()?;
        site.before = site.paths()?;
        Ok(site)
    }

    /// Boots hosts on which Slurm is installed and does not run.
    pub fn without_slurm(folder: TempDir, series: &str, names: &[&str]) -> Result<Site> {
        let base = folder.path().join("base");
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755))?;
        prepare(&base, series)?;
        copy_packages(&packages()?, &base, DEBS)?;
        let before = repository().join("target/previous");
        let has_before = before.join("commit").exists();
        if has_before {
            copy_packages(&before, &base, BEFORE)?;
        }
        let dir = folder.path().join("hosts");
        let mut hosts = Hosts::new(&base, &dir, names)?;
        let home = dir.join("home").join(USER);
        fs::create_dir_all(&home)?;
        chown(&home, Some(USER_ID), Some(USER_ID))?;
        names.iter().try_for_each(|name| hosts.boot(name))?;
        let mut site = Site { hosts, before: Vec::new(), has_before, powered_off: Vec::new(), _folder: folder };
        site.before = site.paths()?;
        Ok(site)
    }

    /// A command of root's on the controller that must succeed.
    pub fn root(&self, script: &str) -> Result<String> {
        self.hosts.run(CONTROLLER, "root", script)
    }

    /// A command of the user's that must succeed.
    pub fn user(&self, script: &str) -> Result<String> {
        self.hosts.run(CONTROLLER, USER, script)
    }

    /// The same command on every host, as root.
    pub fn everywhere(&self, script: &str) -> Result<()> {
        self.hosts.names().iter().try_for_each(|name| self.hosts.run(name, "root", script).map(|_| ()))
    }

    /// Waits until no node has a job or a fault.
    pub fn all_idle(&self) -> Result<()> {
        self.hosts.wait("four idle nodes", 120, |hosts| {
            let said = hosts.try_run(CONTROLLER, "root", "sinfo -h -t idle -o %D")?;
            Ok((said.stdout.trim_ascii() == b"4").then_some(()))
        })
    }

    /// Submits a batch script of the user's; the job's number.
    pub fn submit(&self, options: &str, script: &str) -> Result<u32> {
        let said = self.user(&format!("sbatch --parsable {options} <<'END'\n#!/bin/bash\n{script}\nEND"))?;
        said.trim().parse().with_context(|| said)
    }

    /// Waits until Slurm says that a job is in `state`.
    pub fn wait_state(&self, job: u32, state: &str) -> Result<()> {
        self.hosts.wait(&format!("job {job} to be {state}"), 180, |hosts| {
            let said = hosts.try_run(CONTROLLER, "root", &format!("scontrol show job -o {job}"))?;
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            Ok(text.contains(&format!("JobState={state} ")).then_some(()))
        })
    }

    /// Waits until the report of a run is as wanted.
    pub fn wait_report<T>(
        &self,
        job: u32,
        what: &str,
        mut f: impl FnMut(&serde_json::Value) -> Option<T>,
    ) -> Result<T> {
        self.hosts.wait(what, 180, |hosts| {
            let said = hosts.try_run(CONTROLLER, "root", &format!("joulepoint report -j {job} --json"))?;
            let runs: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap_or_default();
            Ok(runs.get(0).and_then(&mut f))
        })
    }

    /// Every path on every host's own file system.
    pub fn paths(&self) -> Result<Vec<(String, Vec<String>)>> {
        let list = |name: &String| {
            let said = self.hosts.run(name, "root", "find / -xdev | sort")?;
            Ok((name.clone(), said.lines().map(str::to_string).collect()))
        };
        self.hosts.names().iter().map(list).collect()
    }
}

/// A folder with a bare Debian in it, for a whole site or for one host; or the reason for which there is none.
pub fn debian(release: &str, whole: bool) -> Result<TempDir, String> {
    let packages = if whole { format!("{PACKAGES},{ACCOUNTING}") } else { PACKAGES.to_string() };
    let folder = tempfile::Builder::new().prefix("joulepoint-hosts-").tempdir().map_err(|e| e.to_string())?;
    chroot::make(release, &packages, &[], &folder.path().join("base"))?;
    Ok(folder)
}

/// Where the packages are.
pub fn packages() -> Result<PathBuf> {
    let folder = repository().join("target/deb");
    let has = |end: &str| {
        fs::read_dir(&folder).is_ok_and(|all| all.flatten().any(|e| e.path().to_string_lossy().ends_with(end)))
    };
    match has(".changes") {
        true => Ok(folder.canonicalize()?),
        false => bail!("{}: no packages; make deb", folder.display()),
    }
}

fn copy_packages(from: &Path, base: &Path, folder: &str) -> Result<()> {
    let into = base.join(folder.trim_start_matches('/'));
    fs::create_dir_all(&into)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            fs::copy(&path, into.join(path.file_name().context("a name")?))?;
        }
    }
    Ok(())
}

/// The user, and what a site's slurm.conf says.
fn prepare(base: &Path, series: &str) -> Result<()> {
    let id = USER_ID.to_string();
    fs::write(base.join("etc/slurm/slurmdbd.conf"), include_str!("slurmdbd.conf"))?;
    for args in [
        ["groupadd", "-g", &id, USER].as_slice(),
        &["useradd", "-u", &id, "-g", &id, "-s", "/bin/bash", USER],
        &["chown", "slurm:", "/etc/slurm/slurmdbd.conf"],
        &["chmod", "600", "/etc/slurm/slurmdbd.conf"],
    ] {
        let done = Command::new("chroot").arg(base).args(args).output()?;
        if !done.status.success() {
            bail!("{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
    }
    // Which daemon a host has is decided when it boots.
    for daemon in ["slurmctld", "slurmd", "slurmdbd", "mariadb"] {
        let _ = fs::remove_file(base.join(format!("etc/systemd/system/multi-user.target.wants/{daemon}.service")));
    }
    fs::write(base.join("etc/slurm/slurm.conf"), include_str!("slurm.conf"))?;
    let cgroup = if series == "22.05" { "CgroupPlugin=cgroup/v1\n" } else { "CgroupPlugin=disabled\n" };
    fs::write(base.join("etc/slurm/cgroup.conf"), cgroup)?;
    Ok(())
}

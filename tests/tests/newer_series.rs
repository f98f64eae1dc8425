//! The same plugin binary serves newer Slurm series, each in a chroot made from the machine's own mirror.
//!
//! Takes a minute or two and needs root, `mmdebstrap` and the mirror; without them it says that it skipped.

#[path = "spank_host/plugin.rs"]
mod plugin;

use plugin::Folder;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

const PACKAGES: &str = "slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,munge,procps,hostname,util-linux";

/// Longest time for making one chroot and for trying the plugin in it, seconds.
const MAKING_S: &str = "150";
const TRYING_S: &str = "80";

#[test]
fn slurm_24_11() {
    in_chroot("trixie", "24.11");
}

#[test]
fn slurm_26_05() {
    in_chroot("forky", "26.05");
}

fn in_chroot(suite: &str, series: &str) {
    let folder = Folder::new(&format!("slurm-{series}"));
    let root = folder.path().join("root");
    if let Err(reason) = make_chroot(suite, &root) {
        println!("skipped: Slurm {series}: {reason}");
        return;
    }
    std::fs::create_dir_all(root.join("try")).expect("a folder in the chroot");
    std::fs::copy(plugin::build(), root.join("try/joulepoint.so")).expect("the plugin is copied");
    let script = plugin::root().join("tests/tests/spank_host/cluster.sh");
    std::fs::copy(script, root.join("try/cluster.sh")).expect("the script is copied");
    let text = run_inside(&root);
    println!("Slurm {series} ({suite}):\n{text}");
    let sections = sections(&text);
    assert_sections(series, &sections);
    println!("tried: the plugin in Slurm {series}");
}

/// The machine's own Debian mirror, as apt knows it.
fn mirror() -> Result<String, String> {
    let format = "$(ORIGIN)|$(LABEL)|$(REPO_URI)";
    let output = Command::new("apt-get").args(["indextargets", "--format", format, "Created-By: Packages"]).output();
    let output = output.map_err(|error| format!("apt-get: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let debian = text.lines().find_map(|line| line.strip_prefix("Debian|Debian|"));
    debian.map(str::to_owned).ok_or_else(|| "apt knows no Debian mirror here".to_owned())
}

fn make_chroot(suite: &str, root: &Path) -> Result<(), String> {
    if Command::new("id").arg("-u").output().map_or(true, |id| id.stdout.trim_ascii() != b"0") {
        return Err("needs root".to_owned());
    }
    let mut making = Command::new("timeout");
    making.args(["-s", "KILL", MAKING_S, "mmdebstrap", "--quiet", "--mode=root", "--variant=apt"]);
    making.arg(format!("--include={PACKAGES}"));
    making.args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=Acquire::Retries \"1\""]);
    // A frozen mirror, or a clock that is ahead of it, must not end the trial; signatures are still checked.
    making.arg("--aptopt=Acquire::Check-Valid-Until \"false\"");
    making.args(["--dpkgopt=force-unsafe-io", "--dpkgopt=path-exclude=/usr/share/doc/*"]);
    making.args(["--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*"]);
    making.arg(suite).arg(root).arg(mirror()?);
    let output = making.output().map_err(|error| format!("mmdebstrap: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("mmdebstrap ended with {}: {}", output.status, errors(&output))),
    }
}

fn errors(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("E: "));
    lines.take(2).collect::<Vec<_>>().join("; ")
}

/// Runs the script with namespaces of its own; the one `unshare` takes everything with it when it ends.
fn run_inside(root: &Path) -> String {
    let enter = "set -e
        mount -t proc proc $1/proc
        mount --rbind /dev $1/dev
        mount --rbind /sys $1/sys
        mount -t tmpfs tmpfs $1/run
        ip link set lo up
        # Slurm asks the resolver for addresses of a kind that the machine has, and loopback does not count.
        ip addr add 192.0.2.1/32 dev lo
        hostname series
        echo '127.0.0.1 localhost series' > $1/etc/hosts
        exec chroot $1 /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 bash /try/cluster.sh";
    let output = Command::new("timeout")
        .args(["-s", "KILL", TRYING_S, "unshare", "--mount", "--propagation", "private", "--pid", "--net", "--uts"])
        .args(["--fork", "--kill-child", "bash", "-c", enter, "enter"])
        .arg(root)
        .output()
        .expect("unshare runs");
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn sections(text: &str) -> BTreeMap<&str, String> {
    let mut sections = BTreeMap::new();
    for section in text.split("== ").skip(1) {
        let (name, body) = section.split_once('\n').unwrap_or((section, ""));
        sections.insert(name, body.to_owned());
    }
    sections
}

fn assert_sections(series: &str, sections: &BTreeMap<&str, String>) {
    let says = |name: &str, wanted: &str| {
        let body = sections.get(name).unwrap_or_else(|| panic!("Slurm {series}: no section {name}"));
        assert!(body.contains(wanted), "Slurm {series}: {name} lacks '{wanted}':\n{body}");
    };
    let silent = |name: &str, unwanted: &str| {
        assert!(!sections[name].contains(unwanted), "Slurm {series}: {name}:\n{}", sections[name]);
    };
    says("version", series);
    says("idle", "2");
    let options: usize = sections["help"].trim().parse().expect("a count of options");
    assert!(options >= 19, "Slurm {series}: sbatch --help shows {options} options");
    says("refused-value", "--ft-energy: 'power' is not known; accepted: energy, time, on, off");
    says("refused-combination", "no effect without --ft-energy");
    for refused in ["refused-value", "refused-combination"] {
        silent(refused, "Submitted");
        silent(refused, "rc=0");
    }
    says(
        "wrapped",
        "wrapped: [wrap] [--request] [{\"settings\":{\"ft-energy\":{\"value\":\"time\",\"source\":\"option\"}}}] [--]",
    );
    says("wrapped", "[a] [b c] conf=/etc/j.toml");
    says("wrapped", "script args=[a b c] prolog=yes");
    says("wrapped", "step\n");
    says("twin", "\"ft-energy-keep\":{\"value\":\"4\",\"source\":\"environment\"}");
    says("twin", "script args=[x]");
    silent("plain", "wrapped:");
    says("plain", "script args=[x]");
    silent("plain", "joulepoint");
    says("forged", "the job runs unprotected");
    says("forged", "script args=[x]");
    says("direct", "only batch jobs are protected");
    says("direct", "direct\n");
    says("missing-wrapper", "cannot run /nowhere");
    says("missing-wrapper", "script args=[x]");
    assert_eq!(sections["nodes"].trim(), "2 idle", "Slurm {series}");
}

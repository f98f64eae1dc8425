//! The same plugin binary serves newer Slurm series, each in a chroot made from the machine's own mirror.
//!
//! Takes a minute or two and needs root, `mmdebstrap` and the mirror; without them it says that it skipped.

#[path = "spank_host/plugin.rs"]
mod plugin;

use plugin::Folder;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

const PACKAGES: &str = "slurmctld,slurmd,slurm-client,slurm-wlm-basic-plugins,munge,procps,hostname,util-linux";

/// Longest time for trying the plugin in one chroot, seconds.
const TRYING_S: &str = "300";

#[test]
fn slurm_24_11() {
    in_chroot("trixie", "24.11");
}

#[test]
fn slurm_26_05() {
    in_chroot("forky", "26.05");
}

fn in_chroot(release: &str, series: &str) {
    let folder = Folder::new(&format!("slurm-{series}"));
    let root = folder.path().join("root");
    let smaller = ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"];
    if let Err(reason) = suite::chroot::make(release, PACKAGES, &smaller, &root) {
        println!("skipped: Slurm {series}: {reason}");
        return;
    }
    std::fs::create_dir_all(root.join("try")).expect("a folder in the chroot");
    std::fs::copy(plugin::build(), root.join("try/joulepoint.so")).expect("the plugin is copied");
    let script = plugin::root().join("tests/tests/spank_host/cluster.sh");
    std::fs::copy(script, root.join("try/cluster.sh")).expect("the script is copied");
    let text = run_inside(&root);
    println!("Slurm {series} ({release}):\n{text}");
    let sections = sections(&text);
    assert_sections(series, &sections);
    println!("tried: the plugin in Slurm {series}");
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

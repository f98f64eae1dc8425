//! Gives a node folders that only it sees, empty at each boot: `/tmp`, `/var/tmp`, `/dev/shm`, `/run`, scratch storage at
//! `/mnt`; and a boot id.

use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder of a node's own.
struct Own {
    /// Where the node sees it.
    at: &'static str,
    /// Its name below the node's folder, where the files of one on disk can be seen from outside.
    name: &'static str,
    mode: u32,
    in_memory: bool,
}

const OWN: [Own; 5] = [
    Own { at: "/tmp", name: "tmp", mode: 0o1777, in_memory: false },
    Own { at: "/var/tmp", name: "var-tmp", mode: 0o1777, in_memory: false },
    Own { at: "/dev/shm", name: "shm", mode: 0o1777, in_memory: true },
    Own { at: "/run", name: "run", mode: 0o755, in_memory: true },
    // Its scratch storage.
    Own { at: "/mnt", name: "scratch", mode: 0o1777, in_memory: true },
];

/// The folder below `dir` that holds what is a node's own.
pub(crate) fn folder(dir: &Path, node: &str) -> PathBuf {
    dir.join("nodes").join(node)
}

/// Makes the node's folders anew, empty.
pub(crate) fn make(dir: &Path, node: &str) -> Result<()> {
    let own = folder(dir, node);
    match fs::remove_dir_all(&own) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e).context(own.display().to_string()),
        _ => {}
    }
    let modes = OWN.iter().map(|o| (o.name, o.mode)).chain([("munge", 0o755), ("proc", 0o755)]);
    for (name, mode) in modes {
        fs::create_dir_all(own.join(name))?;
        fs::set_permissions(own.join(name), fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Shell lines for the first process of a node: the mounts that hide this machine's folders behind the node's own, in
/// which `shared`, the cluster's folder in `dir` first of all, stay where they are.
pub(crate) fn setup(dir: &Path, node: &str, shared: &[PathBuf]) -> String {
    let own = folder(dir, node);
    let mut all = vec![dir.to_path_buf()];
    all.extend(shared.iter().cloned());
    let mut text = String::new();
    for o in &OWN {
        let staged = own.join(o.name);
        if o.in_memory {
            let _ = writeln!(text, "mount -t tmpfs -o mode={:o} tmpfs {}", o.mode, quoted(&staged));
        }
        for path in roots(&all) {
            let Ok(below) = path.strip_prefix(o.at) else { continue };
            let (from, to) = (quoted(path), quoted(&staged.join(below)));
            let _ = writeln!(text, "mkdir -p {to}\nmount --rbind {from} {to}");
        }
    }
    // The one that holds the node's folder itself is the last to be hidden.
    let (last, first): (Vec<&Own>, Vec<&Own>) = OWN.iter().partition(|o| dir.starts_with(o.at));
    for o in first.into_iter().chain(last) {
        let _ = writeln!(text, "mount --rbind {} {}", quoted(&own.join(o.name)), o.at);
    }
    let munge = quoted(&own.join("munge"));
    let _ = writeln!(text, "mount --bind {munge} {}", quoted(&dir.join("munge")));
    let _ = writeln!(text, "mkdir -m 1777 /run/lock\nmkdir /run/user /run/munge\nmount --bind {munge} /run/munge");
    let id = quoted(&own.join("boot_id"));
    let _ =
        writeln!(text, "cat /proc/sys/kernel/random/uuid > {id}\nmount --bind {id} /proc/sys/kernel/random/boot_id");
    // With something mounted in it, /proc lets no ordinary user's namespace have one of its own, unless there is
    // another without.
    let _ = writeln!(text, "mount -t proc proc {}", quoted(&own.join("proc")));
    text
}

/// Those of `paths` that are not below another of them.
fn roots(paths: &[PathBuf]) -> Vec<&PathBuf> {
    let is_below = |path: &PathBuf| paths.iter().any(|other| other != path && path.starts_with(other));
    let mut roots: Vec<&PathBuf> = paths.iter().filter(|path| !is_below(path)).collect();
    roots.sort();
    roots.dedup();
    roots
}

/// As one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_stays_where_it_is_and_the_folder_of_the_cluster_is_hidden_last() {
        let shared = ["/tmp/site", "/tmp/site/slurm/shared", "/opt/programs"].map(PathBuf::from);
        let text = setup(Path::new("/tmp/site/slurm"), "n2", &shared);
        let lines: Vec<&str> = text.lines().collect();
        let own = "/tmp/site/slurm/nodes/n2";
        let place = |line: String| lines.iter().position(|l| **l == line).unwrap_or_else(|| panic!("{line}\n{text}"));
        let back = place(format!("mount --rbind '/tmp/site' '{own}/tmp/site'"));
        let run = place(format!("mount --rbind '{own}/run' /run"));
        let tmp = place(format!("mount --rbind '{own}/tmp' /tmp"));
        assert!(back < run && run < tmp, "{text}");
        assert_eq!(text.matches("/opt").count() + text.matches("slurm/shared").count(), 0, "{text}");
    }
}

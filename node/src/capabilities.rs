//! Which checkpoint engines this node has, and the file that tells `sbatch` what the nodes have.

use listener::now_s;
use parking_lot::Mutex;
use protocol::Capabilities;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Commands that an engine needs, by its name as in `--ft-energy-engine`. CRIU has a key of the site file besides.
const COMMANDS: [(&str, &[&str]); 3] =
    [("criu", &["criu"]), ("dmtcp", &["dmtcp_launch", "dmtcp_command", "dmtcp_restart"]), ("scr", &["scr_index"])];

/// Where commands are installed that are not in the `PATH` of a service.
const FOLDERS: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Where the kernel says, by a zero, that users may not make namespaces of their own, without which CRIU is of no use to
/// them.
const NAMESPACES: [&str; 2] = ["sys/user/max_user_namespaces", "sys/kernel/unprivileged_userns_clone"];

/// The file is written anew after this time, though nothing has changed: who reads it must know that it is good, s.
const WRITE_AGAIN_S: f64 = 600.0;

/// Engines that are installed on this node. What a user's modules bring is not seen.
pub(crate) fn installed(criu: Option<&Path>, path: &OsStr, proc_root: &Path) -> BTreeSet<String> {
    let folders: Vec<PathBuf> = std::env::split_paths(path).chain(FOLDERS.map(PathBuf::from)).collect();
    let is_program = |file: &Path| fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let is_there = |name: &str| folders.iter().any(|folder| is_program(&folder.join(name)));
    let may_have_namespaces = || {
        NAMESPACES.iter().all(|file| fs::read_to_string(proc_root.join(file)).map_or(true, |text| text.trim() != "0"))
    };
    let has = |(engine, commands): &(&str, &[&str])| match criu {
        Some(named) if *engine == "criu" => is_program(named) && may_have_namespaces(),
        _ if *engine == "criu" => is_there("criu") && may_have_namespaces(),
        _ => commands.iter().all(|name| is_there(name)),
    };
    COMMANDS.iter().filter(|of| has(of)).map(|(engine, _)| engine.to_string()).collect()
}

/// The file of this host in which `sbatch` finds what the nodes have.
pub(crate) struct Published {
    file: PathBuf,
    /// Its next contents, until they are whole: several nodes of a testbed share a file.
    new: PathBuf,
    last: Mutex<Option<Capabilities>>,
}

impl Published {
    /// What is told on this node from now on stands in `file`; nowhere if that is empty.
    pub(crate) fn new(file: PathBuf, node: &str) -> Published {
        Published { new: file.with_extension(format!("{node}.new")), file, last: Mutex::default() }
    }

    /// Writes it down, where it says something new.
    pub(crate) fn publish(&self, heard: Capabilities) {
        // By this host's clock, which is that of its readers.
        let heard = Capabilities { at_s: now_s(), ..heard };
        let mut last = self.last.lock();
        let is_known = last.as_ref().is_some_and(|last| {
            *last == Capabilities { at_s: last.at_s, ..heard.clone() } && (heard.at_s - last.at_s).abs() < WRITE_AGAIN_S
        });
        if is_known || self.file.as_os_str().is_empty() {
            return;
        }
        if let Err(e) = self.write(&heard) {
            tracing::warn!(file = %self.file.display(), %e, "what the nodes have cannot be told to sbatch");
        }
        *last = Some(heard);
    }

    fn write(&self, heard: &Capabilities) -> io::Result<()> {
        fs::create_dir_all(self.file.parent().unwrap_or(Path::new("/")))?;
        fs::write(&self.new, serde_json::to_vec(heard)?)?;
        fs::set_permissions(&self.new, fs::Permissions::from_mode(0o644))?;
        fs::rename(&self.new, &self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(file: &Path) {
        fs::write(file, "#!/bin/sh\n").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn an_engine_is_installed_where_all_its_commands_are_and_the_kernel_lets_users_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let (criu, proc_root) = (dir.path().join("criu-4"), dir.path().join("proc"));
        let seen = |criu: &Path| installed(Some(criu), dir.path().as_os_str(), &proc_root);
        assert!(!seen(&criu).contains("criu"), "the site names one that is not there");
        program(&criu);
        assert!(seen(&criu).contains("criu"));
        fs::create_dir_all(proc_root.join("sys/user")).unwrap();
        fs::write(proc_root.join(NAMESPACES[0]), "0\n").unwrap();
        assert!(!seen(&criu).contains("criu"), "users may have no namespaces");
        program(&dir.path().join("dmtcp_launch"));
        assert!(!seen(&criu).contains("dmtcp"));
        for name in ["dmtcp_command", "dmtcp_restart"] {
            program(&dir.path().join(name));
        }
        assert!(seen(&criu).contains("dmtcp"));
    }

    #[test]
    fn what_is_told_stands_in_a_file_that_everybody_may_read_and_is_written_when_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("run/capabilities.json");
        let published = Published::new(file.clone(), "n1");
        let read = || serde_json::from_slice::<Capabilities>(&fs::read(&file).unwrap()).unwrap();
        let of = |criu: usize| Capabilities {
            nodes: 8,
            engines: [("criu".to_string(), criu)].into(),
            at_s: 1.0,
            site_wide: false,
        };
        published.publish(of(8));
        let first = read();
        assert!(first.having("criu") == 8 && first.hold_at(now_s()), "by this host's clock: {first:?}");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
        published.publish(of(8));
        assert_eq!(read(), first);
        published.publish(of(7));
        assert_eq!(read().having("criu"), 7);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        Published::new(PathBuf::new(), "n1").publish(of(8));
    }
}

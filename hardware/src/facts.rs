//! What a node says of itself before anything is measured: its fingerprint, and the frequencies that can be set.

use crate::cpufreq::{Cpufreq, HERE};
use anyhow::{Context, Result};
use protocol::{Fingerprint, Storage};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A node's own words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Node name as Slurm knows it.
    pub node: String,
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// Frequencies that this user can set, Hz, rising.
    pub frequencies_hz: Vec<f64>,
}

/// Looks at this node, all but its number of CPUs; `storage` says where each target is.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn look(node: &str, storage: &BTreeMap<Storage, PathBuf>, mpicc: &str) -> Result<Facts> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| path.to_string());
    let mounts = read("/proc/self/mountinfo")?;
    let kinds = storage.iter().map(|(target, path)| (*target, file_system(&mounts, path))).collect();
    let fingerprint = Fingerprint {
        cpu: cpu_model(&read("/proc/cpuinfo")?),
        cores: 0,
        kernel: read("/proc/sys/kernel/osrelease")?.trim().to_string(),
        storage: kinds,
        mpi: mpi(mpicc),
    };
    let frequencies_hz = Cpufreq::open(Path::new(HERE)).settable_hz();
    Ok(Facts { node: node.to_string(), fingerprint, frequencies_hz })
}

fn cpu_model(cpuinfo: &str) -> String {
    let of = |key: &str| {
        let line = cpuinfo.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == key));
        line.and_then(|l| l.split_once(':')).map(|(_, v)| v.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    of("model name").or_else(|| of("cpu")).or_else(|| of("CPU part")).unwrap_or_else(|| "unknown".into())
}

/// `ext4 /dev/vda Model`: type and source of the file system, and the disk's model where the kernel tells.
fn file_system(mountinfo: &str, path: &Path) -> String {
    let path = path.ancestors().find_map(|p| p.canonicalize().ok()).unwrap_or_else(|| path.to_path_buf());
    let mount = |line: &str| -> Option<(usize, String, String)> {
        let (left, right) = line.split_once(" - ")?;
        let at = left.split(' ').nth(4)?.replace("\\040", " ");
        let mut right = right.split(' ');
        path.starts_with(&at).then_some((at.len(), right.next()?.to_string(), right.next()?.to_string()))
    };
    // Of two mounts on one place the later one hides the earlier.
    let found = mountinfo.lines().filter_map(mount).max_by_key(|(length, _, _)| *length);
    let Some((_, kind, source)) = found else { return "unknown".into() };
    let model = fs::metadata(&path).ok().and_then(|m| disk_model(m.dev())).map(|m| format!(" {m}"));
    format!("{kind} {source}{}", model.unwrap_or_default())
}

fn disk_model(device: u64) -> Option<String> {
    let number = format!("{}:{}", nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let folder = fs::canonicalize(Path::new("/sys/dev/block").join(number)).ok()?;
    let model = folder.ancestors().find_map(|f| fs::read_to_string(f.join("device/model")).ok())?;
    Some(model.trim().to_string())
}

/// The MPI behind a compiler: what its `mpirun` says, or the compiler's own words.
fn mpi(mpicc: &str) -> Option<String> {
    let mpirun = Path::new(mpicc).parent().map(|p| p.join("mpirun")).filter(|p| p.exists());
    let said = |program: &Path| {
        let output = Command::new(program).arg("--version").output().ok().filter(|o| o.status.success())?;
        String::from_utf8_lossy(&output.stdout).lines().next().map(|l| l.trim().to_string())
    };
    said(Path::new(mpicc))?;
    said(&mpirun.unwrap_or_else(|| "mpirun".into())).or_else(|| said(Path::new(mpicc)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_deepest_mount() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:5 / /nonexistent/x rw - tmpfs none rw\n";
        assert!(file_system(mounts, Path::new("/nonexistent")).starts_with("ext4 /dev/sda1"));
        assert!(file_system("", Path::new("/")).starts_with("unknown"));
    }

    #[test]
    fn this_machine_has_a_fingerprint() {
        let facts = look("n1", &[(Storage::Memory, "/dev/shm".into())].into(), "/nonexistent/mpicc").unwrap();
        assert!(!facts.fingerprint.kernel.is_empty() && facts.fingerprint.mpi.is_none());
        assert_ne!(facts.fingerprint.storage[&Storage::Memory], "unknown");
    }
}

//! Sets the CPU frequency of a node for a while, and puts back what was there whatever happens.
//!
//! What was there is written to a file before anything is changed. The guard puts it back when it is dropped, also
//! by a panic; after a SIGKILL the next [`Cpufreq::restore`] does, from the file.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// This node's tree.
pub const HERE: &str = "/sys/devices/system/cpu";

/// Keeps what this node had while a frequency is held; root's own, so that nobody else can say what was there.
const HELD_HERE: &str = "/run/joulepoint-cpufreq.json";

/// A tree of `cpu*/cpufreq` folders.
#[derive(Clone, Debug)]
pub struct Cpufreq {
    policies: Vec<PathBuf>,
}

/// What one CPU had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Before {
    folder: PathBuf,
    governor: String,
    min_khz: String,
    max_khz: String,
}

/// While it lives the frequency is set.
#[derive(Debug)]
pub struct Held {
    before: Vec<Before>,
    file: PathBuf,
}

impl Cpufreq {
    /// Takes the CPUs below `root` (`/sys/devices/system/cpu`); none where the kernel offers no cpufreq.
    pub fn open(root: &Path) -> Cpufreq {
        let folders = fs::read_dir(root).into_iter().flatten().flatten().map(|e| e.path());
        let is_cpu = |p: &PathBuf| {
            let name = p.file_name().and_then(|n| n.to_str()).and_then(|n| n.strip_prefix("cpu"));
            name.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let mut policies: Vec<PathBuf> =
            folders.filter(is_cpu).map(|p| p.join("cpufreq")).filter(|p| p.join("scaling_max_freq").exists()).collect();
        policies.sort();
        Cpufreq { policies }
    }

    /// Frequencies that this user can set on all CPUs, Hz, rising; the two ends where the driver lists none.
    pub fn settable_hz(&self) -> Vec<f64> {
        let Some(first) = self.policies.first() else { return Vec::new() };
        let writable = |p: &PathBuf| fs::OpenOptions::new().write(true).open(p.join("scaling_max_freq")).is_ok();
        if !self.policies.iter().all(writable) {
            return Vec::new();
        }
        let listed = fs::read_to_string(first.join("scaling_available_frequencies")).unwrap_or_default();
        let ends = || ["cpuinfo_min_freq", "cpuinfo_max_freq"].map(|n| fs::read_to_string(first.join(n))).into_iter();
        let text = if listed.trim().is_empty() { ends().flatten().collect::<Vec<_>>().join(" ") } else { listed };
        let mut all: Vec<f64> =
            text.split_whitespace().filter_map(|k| k.parse::<f64>().ok()).map(|k| k * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    }

    /// Sets a frequency on all CPUs until the guard is dropped; `file` keeps what was there meanwhile.
    ///
    /// # Errors
    /// When a CPU cannot be read or set; what was set is put back then. A `file` that is there already is another
    /// guard's, or a killed one's: [`Cpufreq::restore`] first.
    pub fn hold(&self, frequency_hz: f64, file: &Path) -> Result<Held> {
        if file.exists() {
            bail!("{} is there: a frequency is held already, or was never put back", file.display());
        }
        let before: Result<Vec<Before>> = self.policies.iter().map(|p| read(p)).collect();
        let before = before?;
        write_durably(file, &serde_json::to_vec(&before)?).with_context(|| file.display().to_string())?;
        let held = Held { before, file: file.to_path_buf() };
        let khz = format!("{:.0}", frequency_hz / 1e3);
        for b in &held.before {
            // Both ends at one frequency leave no governor a choice. The minimum must never be above the maximum.
            let (first, second) = match number(&khz) < number(&b.min_khz) {
                true => ("scaling_min_freq", "scaling_max_freq"),
                false => ("scaling_max_freq", "scaling_min_freq"),
            };
            put(&b.folder.join(first), &khz)?;
            put(&b.folder.join(second), &khz)?;
        }
        Ok(held)
    }

    /// Puts back what a killed holder left; whether there was anything.
    ///
    /// # Errors
    /// When it cannot be put back; the file stays then.
    pub fn restore(file: &Path) -> Result<bool> {
        let text = match fs::read(file) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            text => text.with_context(|| file.display().to_string())?,
        };
        let before: Vec<Before> = serde_json::from_slice(&text).with_context(|| file.display().to_string())?;
        give_back(&before, file)?;
        Ok(true)
    }
}

/// [`Cpufreq::hold`] on this node, after [`restore_here`].
///
/// # Errors
/// As these.
pub fn hold_here(frequency_hz: f64) -> Result<Held> {
    restore_here()?;
    Cpufreq::open(Path::new(HERE)).hold(frequency_hz, Path::new(HELD_HERE))
}

/// Puts back what a killed holder left on this node.
///
/// # Errors
/// As [`Cpufreq::restore`].
pub fn restore_here() -> Result<bool> {
    Cpufreq::restore(Path::new(HELD_HERE))
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(e) = give_back(&self.before, &self.file) {
            eprintln!("joulepoint: the CPU frequency was not put back: {e:#}");
        }
    }
}

/// All CPUs that can be put back are, whatever the others say; the file goes when all are.
fn give_back(before: &[Before], file: &Path) -> Result<()> {
    let all: Vec<Result<()>> = before.iter().map(put_back).collect();
    all.into_iter().collect::<Result<()>>()?;
    fs::remove_file(file).with_context(|| file.display().to_string())
}

fn put_back(before: &Before) -> Result<()> {
    // The wider end first, so that the minimum is never above the maximum.
    let now_khz = fs::read_to_string(before.folder.join("scaling_max_freq")).unwrap_or_default();
    let ends = [("scaling_max_freq", &before.max_khz), ("scaling_min_freq", &before.min_khz)];
    let falls = number(&before.max_khz) < number(&now_khz);
    for (name, khz) in if falls { [ends[1], ends[0]] } else { ends } {
        put(&before.folder.join(name), khz)?;
    }
    put(&before.folder.join("scaling_governor"), &before.governor)
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or(0)
}

fn read(folder: &Path) -> Result<Before> {
    let value = |name: &str| -> Result<String> {
        let path = folder.join(name);
        Ok(fs::read_to_string(&path).with_context(|| path.display().to_string())?.trim().to_string())
    };
    Ok(Before {
        folder: folder.to_path_buf(),
        governor: value("scaling_governor")?,
        min_khz: value("scaling_min_freq")?,
        max_khz: value("scaling_max_freq")?,
    })
}

/// Under another name first, synced, so that it is there wholly or not at all.
fn write_durably(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("partial");
    let mut file = fs::File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
}

fn put(path: &Path, value: &str) -> Result<()> {
    fs::write(path, value).with_context(|| format!("{} = {value}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for cpu in 0..4 {
            let folder = dir.path().join(format!("cpu{cpu}/cpufreq"));
            fs::create_dir_all(&folder).unwrap();
            for (name, value) in [
                ("scaling_available_frequencies", "2400000 2000000 1200000 \n"),
                ("scaling_governor", if cpu == 3 { "powersave\n" } else { "ondemand\n" }),
                ("scaling_min_freq", "1200000\n"),
                ("scaling_max_freq", "2400000\n"),
                ("cpuinfo_min_freq", "1200000\n"),
                ("cpuinfo_max_freq", "2400000\n"),
            ] {
                fs::write(folder.join(name), value).unwrap();
            }
        }
        fs::create_dir(dir.path().join("cpuidle")).unwrap();
        dir
    }

    fn state(dir: &Path) -> Vec<String> {
        let of = |cpu: u32| ["scaling_governor", "scaling_min_freq", "scaling_max_freq"].map(|n| (cpu, n));
        let read = |(cpu, name)| fs::read_to_string(dir.join(format!("cpu{cpu}/cpufreq/{name}"))).unwrap();
        (0..4).flat_map(of).map(read).map(|t| t.trim().to_string()).collect()
    }

    #[test]
    fn a_frequency_is_set_on_all_cpus_and_put_back() {
        let dir = tree();
        let (before, file) = (state(dir.path()), dir.path().join("held.json"));
        let cpufreq = Cpufreq::open(dir.path());
        assert_eq!(cpufreq.settable_hz(), [1.2e9, 2.0e9, 2.4e9]);
        for hz in [1.2e9, 2.0e9, 2.4e9] {
            let held = cpufreq.hold(hz, &file).unwrap();
            let khz = format!("{:.0}", hz / 1e3);
            assert_eq!(state(dir.path()).iter().filter(|v| **v == khz).count(), 8);
            assert!(cpufreq.hold(hz, &file).is_err(), "two at once");
            drop(held);
            assert_eq!(state(dir.path()), before);
            assert!(!file.exists());
        }
    }

    #[test]
    fn it_is_put_back_after_a_panic_and_after_a_kill() {
        let dir = tree();
        let (before, file) = (state(dir.path()), dir.path().join("held.json"));
        let cpufreq = Cpufreq::open(dir.path());
        let panicked = std::panic::catch_unwind(|| {
            let _held = cpufreq.hold(1.2e9, &file).unwrap();
            panic!("in the phase");
        });
        assert!(panicked.is_err());
        assert_eq!(state(dir.path()), before);
        std::mem::forget(cpufreq.hold(1.2e9, &file).unwrap());
        assert_ne!(state(dir.path()), before);
        assert!(Cpufreq::restore(&file).unwrap());
        assert_eq!(state(dir.path()), before);
        assert!(!Cpufreq::restore(&file).unwrap(), "nothing is left to be put back");
    }

    #[test]
    fn what_was_set_before_an_error_is_put_back() {
        let dir = tree();
        let before = state(dir.path());
        fs::remove_file(dir.path().join("cpu3/cpufreq/scaling_max_freq")).unwrap();
        let cpufreq = Cpufreq::open(dir.path());
        // The last CPU goes away between the look and the setting.
        let gone = Cpufreq { policies: [cpufreq.policies.clone(), vec![dir.path().join("cpu9/cpufreq")]].concat() };
        assert!(gone.hold(1.2e9, &dir.path().join("held.json")).is_err());
        fs::write(dir.path().join("cpu3/cpufreq/scaling_max_freq"), "2400000").unwrap();
        assert_eq!(state(dir.path()), before);
    }

    #[test]
    fn a_node_without_cpufreq_has_nothing_to_set() {
        assert!(Cpufreq::open(Path::new("/nonexistent")).settable_hz().is_empty());
    }
}

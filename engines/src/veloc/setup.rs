//! Where VELOC keeps the checkpoints of a script's program: what its configuration and its environment say.
//!
//! Each key of the configuration may come as `VELOC_KEY` of the environment, which comes first (VELOC 1.8, `config_t`).

use host::linked;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Largest file that is read as a configuration, bytes.
const LARGEST_BYTES: u64 = 64 << 10;

/// Where VELOC keeps checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The folder that outlives the nodes.
    pub persistent: PathBuf,
    /// The folder on each node.
    pub scratch: PathBuf,
    /// The folder of checksums, if they are made.
    pub checksums: Option<PathBuf>,
}

impl Setup {
    /// What the words of a script that runs in a folder say.
    ///
    /// # Errors
    /// Why no checkpoint can be told from that.
    pub fn of(words: &[String], folder: &Path) -> Result<Setup, String> {
        let mut files: Vec<Keys> = words.iter().filter_map(|word| read(&folder.join(word))).collect();
        files.dedup();
        let [first, others @ ..] = &files[..] else { return Setup::by(words, &Keys::new(), folder) };
        let setup = Setup::by(words, first, folder)?;
        for other in others {
            if Setup::by(words, other, folder).as_ref() != Ok(&setup) {
                return Err("the script names several configurations of VELOC".to_string());
            }
        }
        Ok(setup)
    }

    fn by(words: &[String], file: &Keys, folder: &Path) -> Result<Setup, String> {
        let value = |key: &str| exported(words, key).or_else(|| file.get(key).cloned()).or_else(|| said(words, key));
        let is = |key: &str| value(key).is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if is("aggregated") {
            return Err(
                "VELOC writes all ranks into one file ('aggregated'), of which nobody sees when it is complete"
                    .to_string(),
            );
        }
        if value("daos_pool").is_some() {
            return Err("VELOC keeps checkpoints in DAOS ('daos_pool'), into which nobody looks here".to_string());
        }
        if value("persistent_interval").is_some_and(|interval| interval.starts_with('-')) {
            return Err("VELOC's 'persistent_interval' is negative: its checkpoints stay on the nodes".to_string());
        }
        // What a script sets itself wins over what a restart gives it.
        if words.iter().any(|word| word.starts_with("VELOC_SCRATCH=")) {
            return Err(
                "the script sets VELOC_SCRATCH, and a restart needs another: leave it to the configuration".to_string()
            );
        }
        let path = |key: &str| match value(key) {
            Some(path) if !path.contains('$') => Ok(folder.join(path)),
            _ => {
                Err(format!("no configuration of VELOC that the script names or writes tells '{key}' by a plain path"))
            }
        };
        let checksums = if is("chksum") { Some(path("meta")?) } else { None };
        Ok(Setup { persistent: path("persistent")?, scratch: path("scratch")?, checksums })
    }
}

type Keys = BTreeMap<String, String>;

/// The keys of a file, if it is a configuration of VELOC.
fn read(path: &Path) -> Option<Keys> {
    let is_small = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= LARGEST_BYTES);
    let text = is_small.then(|| fs::read_to_string(path).ok()).flatten()?;
    // A script that writes one is none.
    if text.starts_with("#!") {
        return None;
    }
    let code = text.lines().map(|line| line.split([';', '#']).next().unwrap_or_default());
    let pairs = code.filter_map(|line| line.split_once('='));
    let keys: Keys = pairs.map(|(key, value)| (key.trim().to_string(), value.trim().to_string())).collect();
    ["scratch", "mode"].iter().all(|key| keys.contains_key(*key)).then_some(keys)
}

/// What the script, or its environment, says in a variable.
fn exported(words: &[String], key: &str) -> Option<String> {
    let name = format!("VELOC_{}", key.to_uppercase());
    let set = words.iter().rev().find_map(|word| word.strip_prefix(&name)?.strip_prefix('='));
    let value = set.map(|value| value.trim_matches(['"', '\'']).to_string()).or_else(|| std::env::var(name).ok());
    value.filter(|value| !value.is_empty())
}

/// What a configuration that the script itself writes will say.
fn said(words: &[String], key: &str) -> Option<String> {
    let apart = words.windows(3).find(|three| three[0] == key && three[1] == "=").map(|three| three[2].clone());
    apart.or_else(|| words.iter().find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_string())))
}

/// The library to which programs that use VELOC are linked, without its version.
pub const LIBRARY: &str = "libveloc-client";

/// [`Setup::of`] for a job script with its arguments.
///
/// # Errors
/// As there.
pub fn of_script(argv: &[String], folder: &Path) -> Result<Setup, String> {
    Setup::of(&linked::words(argv, folder), folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn a_configuration_that_the_script_names_or_writes_tells_where_checkpoints_are() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            "# of us\nscratch = /dev/shm/x ; on each node\npersistent=ckpt\nmode = sync\nchksum = true\nmeta = /m\n";
        fs::write(dir.path().join("veloc.cfg"), text).unwrap();
        let expected =
            Setup { persistent: dir.path().join("ckpt"), scratch: "/dev/shm/x".into(), checksums: Some("/m".into()) };
        assert_eq!(Setup::of(&words("mpirun ./heat veloc.cfg"), dir.path()), Ok(expected.clone()));
        let written =
            "cat >v.cfg <<EOF scratch = /dev/shm/x persistent = ckpt mode = sync chksum=true meta=/m EOF heat v.cfg";
        assert_eq!(Setup::of(&words(written), dir.path()), Ok(expected.clone()));
        let other = words("export VELOC_PERSISTENT=/gpfs/me ./heat veloc.cfg");
        assert_eq!(Setup::of(&other, dir.path()), Ok(Setup { persistent: "/gpfs/me".into(), ..expected }));
    }

    #[test]
    fn variables_of_a_configuration_that_the_script_writes_are_those_of_the_script() {
        let dir = tempfile::tempdir().unwrap();
        let text = "#!/bin/bash\nD=/gpfs/me\ncat >v.cfg <<EOF\nscratch = /tmp/veloc-$HOME\npersistent = p\nmeta = $D/meta\n\
                    mode = sync\nchksum = true\nEOF\nmpirun ./heat v.cfg\n";
        fs::write(dir.path().join("job.sh"), text).unwrap();
        let setup = of_script(&["./job.sh".to_string()], dir.path()).unwrap();
        assert_eq!(setup.persistent, dir.path().join("p"));
        assert_eq!(setup.checksums, Some("/gpfs/me/meta".into()));
    }

    #[test]
    fn where_nothing_tells_complete_checkpoints_the_reason_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let why = |text: &str, script: &str| {
            fs::write(dir.path().join("v.cfg"), text).unwrap();
            Setup::of(&words(script), dir.path()).unwrap_err()
        };
        assert!(why("scratch = /s\nmode = sync\n", "./heat v.cfg").contains("'persistent'"));
        assert!(why("scratch = /s\nmode = sync\n", "./heat").contains("'persistent'"));
        let whole = "scratch = /s\npersistent = /p\nmode = sync\n";
        assert!(why(&format!("{whole}aggregated = true\n"), "./heat v.cfg").contains("aggregated"));
        assert!(why(&format!("{whole}daos_pool = p\n"), "./heat v.cfg").contains("DAOS"));
        assert!(why(&format!("{whole}persistent_interval = -1\n"), "./heat v.cfg").contains("negative"));
        fs::write(dir.path().join("w.cfg"), whole.replace("/p", "/q")).unwrap();
        assert!(why(whole, "./heat v.cfg w.cfg").contains("several"));
        assert!(why(whole, "VELOC_PERSISTENT=$UNKNOWN/p ./heat v.cfg").contains("'persistent'"));
        assert!(why(whole, "VELOC_SCRATCH=/x ./heat v.cfg").contains("VELOC_SCRATCH"));
    }
}

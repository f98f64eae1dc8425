//! Where our program stands in the place of others: `srun`, and the launchers of MPI.

use super::{Calls, PATH, gone};
use host::shell::quoted;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// Names by which launchers of MPI are called.
pub const LAUNCHERS: [&str; 6] = ["mpirun", "mpiexec", "orterun", "mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich"];

/// Folder of the stand-ins that functions of the shell call.
const FOLDER: &str = "launchers";

impl Calls {
    /// Puts the stand-in also in the place of launchers of MPI, and says what the script must see for that: programs of these
    /// names that its `PATH` has are found there, and a shell that puts other folders before it (`module load`) calls by a
    /// function those that the script `names`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn launchers(&self, names: &[&str]) -> io::Result<Vec<(String, String)>> {
        let folder = self.folder.join(FOLDER);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let us = us()?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
        let job = quoted(&std::env::var("SLURM_JOB_ID").unwrap_or_default());
        let mut functions = Vec::new();
        for name in LAUNCHERS {
            let is_there = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
            stand_in(&us, &self.bin().join(name), is_there)?;
            stand_in(&us, &folder.join(name), true)?;
            let call = quoted(&folder.join(name).to_string_lossy());
            // A job that the script submits inherits the function, and may outlive this run's folder.
            let text = format!(
                "() {{ if [ \"${{SLURM_JOB_ID-}}\" = {job} ] && [ -x {call} ]; then {call} \"$@\"; else command {name} \"$@\"; fi; }}"
            );
            let is_theirs = std::env::var_os(function(name)).is_some_and(|theirs| theirs != *text);
            functions.extend((names.contains(&name) && !is_theirs).then(|| (function(name), text)));
        }
        Ok(functions)
    }
}

/// Our program, also after another version has been installed in its place.
pub(super) fn us() -> io::Result<PathBuf> {
    let us = std::env::current_exe()?;
    let name = us.to_string_lossy();
    Ok(name.strip_suffix(" (deleted)").map_or_else(|| us.clone(), PathBuf::from))
}

/// The variable by which a shell has a function of this name.
pub(crate) fn function(name: &str) -> String {
    format!("BASH_FUNC_{name}%%")
}

/// Whether a folder is that of the stand-ins which are called by functions, and so by a name alone.
pub(crate) fn is_of_function(folder: &Path) -> bool {
    folder.ends_with(FOLDER)
}

/// Has our program `us` stand at this place, or not.
pub(super) fn stand_in(us: &Path, place: &Path, stands: bool) -> io::Result<()> {
    if stands && fs::read_link(place).is_ok_and(|there| there == us) {
        return Ok(());
    }
    gone(fs::remove_file(place))?;
    if stands { symlink(us, place) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_calls_the_stand_in_also_when_a_module_puts_its_launcher_first() {
        let dir = tempfile::tempdir().unwrap();
        let calls = Calls::open(dir.path(), &[]).unwrap();
        let functions = calls.launchers(&["mpiexec", "mpirun"]).unwrap();
        let names: Vec<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["BASH_FUNC_mpirun%%", "BASH_FUNC_mpiexec%%"]);
        let us = std::env::current_exe().unwrap();
        let stands = |name: &str| fs::read_link(dir.path().join("calls").join(name)).is_ok_and(|to| to == us);
        assert!(stands("launchers/mpirun") && stands("bin/srun") && stands("launchers/orterun"));
        // What stands there is this test: something that says its words is put there instead.
        let other = dir.path().join("calls/launchers/mpirun");
        fs::remove_file(&other).unwrap();
        symlink("/bin/echo", other).unwrap();
        let module = dir.path().join("module");
        fs::create_dir(&module).unwrap();
        symlink("/bin/false", module.join("mpirun")).unwrap();
        let script = format!("PATH={}:$PATH; mpirun -np 2 'a  b'; type -P mpirun", module.display());
        let said = Command::new("bash").args(["-c", &script]).envs(functions).output().unwrap();
        let expected = format!("-np 2 a  b\n{}/mpirun\n", module.display());
        assert_eq!(String::from_utf8_lossy(&said.stdout), expected, "{said:?}");
    }
}

//! The MPI of a call of `srun` that does not say it: the cluster's `MpiDefault`, for a program that is linked to MPI.
//!
//! Where that is not `none`, it is said of every call; a program that is not linked to MPI is none for it.

use crate::groups::split;
use host::linked;
use slurm::Slurm;
use std::path::Path;

/// What `srun` reads when a call does not say it.
pub const TYPE: &str = "SLURM_MPI_TYPE";

/// Names the cluster's default, for the program that stands in for `srun`.
pub const DEFAULT: &str = "JOULEPOINT_MPI";

/// The cluster's default as the script must see it; nothing if there is none, or Slurm does not say.
pub fn variable(slurm: &Slurm) -> Option<(String, String)> {
    let asked = slurm.config_value("MpiDefault").inspect_err(|e| tracing::warn!(%e, "Slurm's MpiDefault is unknown"));
    asked.ok().flatten().filter(|mpi| mpi != "none").map(|mpi| (DEFAULT.to_string(), mpi))
}

/// The value of a variable for a call with these words, made in `folder`.
pub fn lookup(
    name: &str,
    words: &[String],
    folder: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    let default = || variable(DEFAULT).filter(|_| name == TYPE && is_linked(words, folder));
    variable(name).or_else(default)
}

/// Whether the program of a call, or one that it names, such as `sh -c 'exec program'`, is linked to MPI, or Python's that
/// speaks of it.
fn is_linked(words: &[String], folder: &Path) -> bool {
    let Ok((_, at)) = split::options(words) else { return false };
    let (program, arguments) = words[at..].split_at(1);
    let mut named = linked::words(program, folder);
    named.extend(arguments.iter().flat_map(|w| w.split_whitespace()).map(str::to_string));
    named.iter().any(|word| linked::is_mpi4py(word, folder))
        || linked::all_libraries_of(&named, folder).iter().any(|library| library.starts_with("libmpi"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_clusters_default_is_said_of_programs_that_are_linked_to_mpi_and_of_no_others() {
        let dir = tempfile::tempdir().unwrap();
        let build = "echo 'int main(void) { return 0; }' >p.c && cc -shared -Wl,-soname,libmpi.so.40 -o libmpi.so p.c && \
                     cc -o plain p.c && cc -Wl,--no-as-needed -o heat p.c libmpi.so && \
                     cc -shared -Wl,--no-as-needed,-rpath,'$ORIGIN' -o libsolver.so p.c libmpi.so && mv libmpi.so libmpi.so.40 && \
                     cc -Wl,--no-as-needed,--allow-shlib-undefined,-rpath,'$ORIGIN' -o solver p.c libsolver.so";
        let built = std::process::Command::new("sh").args(["-c", build]).current_dir(dir.path()).status().unwrap();
        assert!(built.success());
        fs::write(dir.path().join("run.sh"), "#!/bin/sh\ncd .\nexec \"./heat\" 3\n").unwrap();
        fs::write(dir.path().join("ranks.py"), "import mpi4py\n").unwrap();
        let both = [(TYPE, "pmi2"), (DEFAULT, "pmix")];
        for (words, variables, expected) in [
            (&["-n2", "./heat"][..], &both[1..], Some("pmix")),
            (&["sh", "-c", "cd . && exec ./heat 3"], &both[1..], Some("pmix")),
            (&["./run.sh"], &both[1..], Some("pmix")),
            (&["-n2", "./plain", "x"], &both[1..], None),
            (&["-n2", "./solver"], &both[1..], Some("pmix")),
            (&["-n2", "python3", "ranks.py"], &both[1..], Some("pmix")),
            (&["-n2", "python3", "run.sh"], &both[1..], None),
            (&["sh", "-c", "exec ./plain"], &both[1..], None),
            (&["-n2", "./heat"], &[], None),
            (&["-n2", "./plain"], &both[..], Some("pmi2")),
        ] {
            let words: Vec<String> = words.iter().map(|w| (*w).to_string()).collect();
            let set = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_string());
            assert_eq!(lookup(TYPE, &words, dir.path(), set).as_deref(), expected, "{words:?} {variables:?}");
        }
    }
}

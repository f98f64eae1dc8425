//! Runs an MPI program over groups on this machine, to see whether it can: `over 0-1/2-3 ./program arguments`.
//!
//! Each group is a native world of its own with a relay of its own, as on the nodes of a job, but without sandbox,
//! checkpoints or Slurm. The libraries are those that were built beside this program
//! (`cargo build -p mpi -p mpi-mpich --examples --lib`); `--launcher mpiexec.hydra` is for a program of MPICH. With `--varies` it
//! says at the end whether no group could go back alone.
// SPDX-License-Identifier: GPL-2.0-or-later

use mlog::frame::{Frame, Kind};
use mlog::{Medium, connect, exchange};
use mpi_relay::Layout;
use mpi_relay::heart::Rules;
use mpi_relay::relay::{Config, Relay};
use mpi_relay::status::Status;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

/// A group that ends with this code is started again from its beginning, as one that goes back alone (`EX_TEMPFAIL`).
const GONE: i32 = 75;

/// What starts the ranks of a group: Open MPI's `mpirun` of the `PATH`, if nothing else is said; whether programs are of MPI 5's
/// standard ABI.
struct Launcher(PathBuf, bool);

impl Launcher {
    /// Whether it is Hydra, of MPICH and its relatives.
    fn is_hydra(&self) -> bool {
        self.0.ends_with("mpiexec.hydra")
    }

    /// The library in `target/debug`, of this program in `target/debug/examples`.
    fn library(&self) -> PathBuf {
        let own = std::env::current_exe().expect("the path of this program");
        let name = match (self.1, self.is_hydra()) {
            (true, _) => "libjoulepoint_mpi_standard.so",
            (false, true) => "libjoulepoint_mpi_mpich.so",
            (false, false) => "libjoulepoint_mpi.so",
        };
        own.ancestors().nth(2).expect("a folder above examples").join(name)
    }
}

/// Starts a group's relay, and waits until it is open.
fn relay(run: &Path, layout: &Layout, medium: Medium, group: usize) {
    let config = Config {
        run: run.to_owned(),
        group,
        layout: layout.clone(),
        rules: Rules { patient: false, deterministic: false },
        medium,
        log_dir: None,
        line: None,
        limit_bytes: 4 << 30,
        together: false,
        keep: 1,
        placement: None,
        listen: "127.0.0.1:0".to_owned(),
        advertise: None,
        socket: None,
    };
    let (open, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let served = Relay::open(&config).and_then(|mut relay| {
            drop(open);
            relay.run()
        });
        if let Err(error) = served {
            eprintln!("relay of group {group}: {error}");
            std::process::exit(1);
        }
    });
    // It says nothing: the end that it drops is the sign.
    let _: Result<(), _> = opened.recv();
}

/// Whether a rank of a group has said that it would not do the same again.
fn varies(run: &Path, group: usize) -> bool {
    let mut link = connect(&run.join(format!("relays/{group}.sock"))).expect("a relay");
    let answer = exchange(&mut link, Frame::number(Kind::Status, 0), Kind::Status).expect("an answer");
    answer.parse::<Status>().expect("a status").varies
}

/// One group's native world. Two of one user on one machine need folders of their own.
fn start(
    launcher: &Launcher,
    run: &Path,
    ranks: &str,
    layout: &Layout,
    group: usize,
    program: &[String],
) -> std::io::Result<Child> {
    let temporary = run.join(format!("tmp{group}"));
    std::fs::create_dir_all(&temporary)?;
    let variables = [
        ("LD_PRELOAD", launcher.library().display().to_string()),
        ("FT_ENERGY_GROUP", group.to_string()),
        ("FT_ENERGY_GROUPS", layout.groups().to_string()),
        ("JOULEPOINT_MPI_RANKS", ranks.to_owned()),
        ("JOULEPOINT_MPI_RELAY", run.join(format!("relays/{group}.sock")).display().to_string()),
    ];
    let ranks = layout.ranks(group).len().to_string();
    let mut command = Command::new(&launcher.0);
    if launcher.is_hydra() {
        command.args(["-launcher", "fork", "-n", &ranks]);
        for (name, value) in &variables {
            command.args(["-genv", name, value]);
        }
    } else {
        // Those of Open MPI 4 by RDMA need a network, and Open MPI 5 has no others for all kinds of windows.
        let windows = if launcher.0.with_file_name("prterun").exists() { "^ucx" } else { "^rdma,ucx" };
        // Each group's mpirun would bind its ranks to the same first cores.
        command.args(["--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader", "--mca", "osc", windows]);
        command.args(["--mca", "fbtl_posix_write_datasieving", "0", "--mca", "fcoll", "^two_phase"]);
        command.args(["-n", &ranks]);
        for (name, value) in &variables {
            command.args(["-x", &format!("{name}={value}")]);
        }
    }
    command.env("TMPDIR", temporary).args(program).stdin(std::process::Stdio::null()).spawn()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut launcher, mut medium, mut words) = (Launcher("mpirun".into(), false), Medium::Memory, &arguments[..]);
    let mut asks = false;
    loop {
        words = match words {
            [option, name, rest @ ..] if option == "--launcher" => {
                launcher.0 = name.into();
                rest
            }
            [option, rest @ ..] if option == "--standard" => {
                launcher.1 = true;
                rest
            }
            [option, rest @ ..] if option == "--varies" => {
                asks = true;
                rest
            }
            [option, name, rest @ ..] if option == "--log" => {
                let known =
                    [Medium::None, Medium::Memory, Medium::Disk].into_iter().find(|medium| medium.name() == name);
                let Some(known) = known else {
                    eprintln!("--log none, memory or disk");
                    return ExitCode::from(2);
                };
                medium = known;
                rest
            }
            _ => break,
        };
    }
    let [ranks, program @ ..] = words else {
        eprintln!(
            "over [--launcher mpirun|mpiexec.hydra] [--standard] [--varies] [--log none|memory|disk] RANKS PROGRAM [ARGUMENTS]: \
             RANKS as 0-1/2-3"
        );
        return ExitCode::from(2);
    };
    let layout = match Layout::parse(ranks) {
        Ok(layout) => layout,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let run = tempfile::tempdir().expect("a folder for the run");
    (0..layout.groups()).for_each(|group| relay(run.path(), &layout, medium, group));
    let started = |group| start(&launcher, run.path(), ranks, &layout, group, program).expect("mpirun");
    let mut running: Vec<(usize, Child)> = (0..layout.groups()).map(|group| (group, started(group))).collect();
    // The first group that fails ends the others, which would wait for it for ever.
    let mut failed = None;
    while !running.is_empty() {
        running.retain_mut(|(group, child)| match child.try_wait().expect("a child of this program") {
            Some(status) if status.code() == Some(GONE) => {
                *child = started(*group);
                true
            }
            Some(status) => {
                failed = failed.or(status.code().filter(|code| *code != 0));
                false
            }
            None => true,
        });
        if failed.is_some() {
            for (_, group) in &running {
                // SAFETY: a child of this program that has not been waited for. mpirun ends its ranks on this signal.
                unsafe { libc::kill(group.id() as i32, libc::SIGTERM) };
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    for group in (0..layout.groups()).filter(|_| asks) {
        println!("group {group} varies: {}", varies(run.path(), group));
    }
    ExitCode::from(failed.unwrap_or(0) as u8)
}

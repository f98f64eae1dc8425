//! Decides whether a wrapper supervises, drives the run, or lets the job run as it is.

use crate::drive::{Given, RUN, drive};
use config::Site;
use driver::setup::{EXIT_NOT_RESTORED, EXIT_SUPERSEDED, HELD, Outcome};
use host::supervise::{self, Teller};
use job::cluster::requeue_held;
use job::identity::Identity;
use job::run_folder::expand;
use options::REQUIRE;
use protection::EXIT_NOT_PROTECTED;
use protocol::Request;
use slurm::Slurm;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;
use steps::script::ATTEMPT;

/// Longest wait of a requeued run for Slurm to end it.
const REQUEUED_LIMIT: Duration = Duration::from_secs(120);

/// About as many threads a wrapper has, and how long it looks for room for them before it lets the job run without.
const THREADS: usize = 16;
const ROOM_LIMIT: Duration = Duration::from_secs(5);

/// Why it does.
const NO_ROOM: &str = "the limit of processes (ulimit -u of this user, counted over all jobs on the node, or that of the job's cgroup) leaves no room for a \
                       checkpoint: raise it where sbatch is called, or ask your operators";

/// Runs `argv` under the protection that `request` asks for; the exit code is the script's.
///
/// Whatever keeps Joulepoint from protecting the job is said on standard error, and the job runs.
pub fn wrap(request: &Request, words: &[OsString], conf: &Path, attempt: Option<u32>) -> i32 {
    let argv: &[String] = &words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>();
    let me = Identity::from_environment(argv);
    let mut resumes = me.restart_count > 0 || attempt > Some(0);
    let mut teller = attempt.and_then(|_| Teller::take());
    let site = match config::read(conf) {
        Ok(site) => site,
        // It says where the run is.
        Err(e) if resumes => return code(hold(&Site::default(), &me, &e.to_string())),
        Err(e) => {
            protocol::say!("joulepoint: {e}; the job runs with built-in defaults");
            Site::default()
        }
    };
    let settings = match options::resolve(request, &site.defaults) {
        Ok(settings) if settings.objective.is_some() => settings,
        Ok(_) => return exec(words, teller),
        Err(refusal) if resumes && has_run(request, &me, &site) => return code(hold(&site, &me, &refusal.to_string())),
        Err(refusal) => {
            return unprotected(&refusal.to_string(), request.settings.contains_key(REQUIRE), words, teller);
        }
    };
    if let Some(word) = words.iter().find(|word| word.to_str().is_none()) {
        let reason =
            format!("the argument '{}' is not UTF-8, and could not be given to the script again", word.display());
        return unprotected(&reason, settings.is_required(), words, teller);
    }
    let Some(attempt) = attempt else {
        return supervise::supervise(again)
            .unwrap_or_else(|e| unprotected(&e.to_string(), settings.is_required(), words, None));
    };
    if !resumes && !threads::have_room(THREADS, ROOM_LIMIT) {
        return unprotected(NO_ROOM, settings.is_required(), words, teller);
    }
    let given = Given { request, settings: &settings, site: &site, argv, attempt, me: &me };
    let outcome = drive(given, &mut resumes, &mut teller);
    // Work that was done is not begun anew because of an error.
    match outcome.or_else(|e| if resumes { Ok(hold(&site, &me, &e.to_string())) } else { Err(e) }) {
        Ok(outcome) => code(outcome),
        Err(e) => unprotected(&e.to_string(), settings.is_required(), words, teller),
    }
}

/// Runs a job whose plugin calls in words that are not understood, for this reason. A later life of it waits for a person.
pub fn misunderstood(reason: &str, request: &[OsString], script: &[OsString]) -> i32 {
    let reason =
        format!("plugin and wrapper are of different versions ({})", reason.lines().next().unwrap_or_default());
    let me = Identity::from_environment(&[]);
    if me.restart_count > 0 {
        return code(hold(&Site::default(), &me, &reason));
    }
    let is_required = request.iter().any(|word| word.to_string_lossy().contains(REQUIRE));
    unprotected(&reason, is_required, script, None)
}

/// Whether there is work of earlier starts, as far as can be said.
fn has_run(request: &Request, me: &Identity, site: &Site) -> bool {
    let own = request.settings.get("ft-energy-dir").map(|setting| PathBuf::from(&setting.value));
    let runs = own.unwrap_or_else(|| expand(&site.runs.dir, &me.home, &me.user));
    me.run_name(&runs, true).map_or(true, |(_, found)| found)
}

/// The exit code of a wrapper after this outcome.
fn code(outcome: Outcome) -> i32 {
    match outcome {
        Outcome::Ended(code) => code,
        Outcome::Requeued => {
            thread::sleep(REQUEUED_LIMIT);
            0
        }
        Outcome::Superseded => EXIT_SUPERSEDED,
    }
}

/// Runs the job as it is, since nothing can protect it, unless its user does not want that.
fn unprotected(reason: &str, is_required: bool, argv: &[OsString], teller: Option<Teller>) -> i32 {
    if is_required {
        protocol::say!("joulepoint: NOT PROTECTED: {reason}; the job ends before it has begun");
        return EXIT_NOT_PROTECTED;
    }
    protocol::say!("joulepoint: NOT PROTECTED: {reason}; the job runs unprotected, and a failure costs all work");
    exec(argv, teller)
}

/// What earlier wrappers have done cannot be reached: the job goes back into the queue and waits there for a person.
fn hold(site: &Site, me: &Identity, reason: &str) -> Outcome {
    let Some(job) = me.job else {
        protocol::say!("joulepoint: {reason}; the command is not begun anew for that");
        return Outcome::Ended(EXIT_NOT_RESTORED);
    };
    protocol::say!("joulepoint: {reason}; {HELD}");
    let slurm = Slurm::new(site.slurm_bin.clone());
    match requeue_held(&slurm, job) {
        Ok(()) => Outcome::Requeued,
        Err(_) => Outcome::Ended(EXIT_NOT_RESTORED),
    }
}

/// This very command again, as a driver.
fn again(attempt: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(ATTEMPT, attempt.to_string());
    command
}

/// Replaces this process by the job script; what it has of ours is not for the script.
fn exec(argv: &[OsString], teller: Option<Teller>) -> i32 {
    let Some((program, arguments)) = argv.split_first() else { return 2 };
    let _ = nix::sys::prctl::set_pdeathsig(None);
    teller.into_iter().for_each(Teller::gives_way);
    let mut command = Command::new(program);
    command.args(arguments).env_remove(ATTEMPT).env_remove(RUN).env_remove(supervise::TOLD);
    let error = supervise::unblocked(&mut command).exec();
    protocol::say!("joulepoint: {}: {error}", program.display());
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

//! The job script and everything below it: started, asked, stopped.

use crate::mail::{Post, Tries};
use crate::ports::{Child, Happening};
use crate::processes::{self, Process};
use crate::supervise::unblocked;
use slurm::Slurm;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time between asking the script's processes to end and killing them.
const GRACE: Duration = Duration::from_secs(5);

/// Longest wait for Slurm to report the job's steps as ended.
const STEPS_LIMIT: Duration = Duration::from_secs(20);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// Names of launchers that pass signals on to all ranks.
const MPI_LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];

/// The script of one job.
pub struct Script {
    post: Post,
    argv: Vec<String>,
    job: Option<Steps>,
    tries: Tries,
    tree: Tree,
    /// What to add to the environment because nodes were lost.
    pub resized: Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
}

/// The steps of a Slurm job.
#[derive(Clone)]
pub struct Steps {
    /// Slurm's commands.
    pub slurm: Arc<Slurm>,
    /// Job id.
    pub job: u32,
}

/// The processes of the script, as seen from anywhere.
#[derive(Clone, Debug)]
pub struct Tree {
    root: i32,
    pid: Arc<AtomicI32>,
}

impl Tree {
    /// Everything below `root`, the process that orphans fall to, but the driver itself.
    pub fn new(root: i32) -> Tree {
        Tree { root, pid: Arc::new(AtomicI32::new(0)) }
    }

    /// Process id of the script; 0 before its start.
    pub fn script(&self) -> i32 {
        self.pid.load(Ordering::SeqCst)
    }

    /// All processes of the script that have not ended.
    pub fn processes(&self) -> Vec<Process> {
        let us = std::process::id() as i32;
        processes::below(self.root).into_iter().filter(|p| p.pid != us).collect()
    }

    /// Asks the program for a checkpoint: every process that has a handler for the signal gets it, no other.
    ///
    /// # Errors
    /// A sentence; nobody could be asked.
    pub fn ask(&self, signal: i32, steps: Option<&Steps>) -> Result<(), String> {
        let all = self.processes();
        let launched: Vec<i32> =
            all.iter().filter(|p| MPI_LAUNCHERS.contains(&p.name.as_str())).map(|p| p.pid).collect();
        if !launched.is_empty() {
            launched.iter().for_each(|pid| processes::signal(*pid, signal));
            return Ok(());
        }
        let local: Vec<i32> =
            all.iter().filter(|p| p.name != "srun" && processes::catches(p.pid, signal)).map(|p| p.pid).collect();
        local.iter().for_each(|pid| processes::signal(*pid, signal));
        match steps.filter(|_| all.iter().any(|p| p.name == "srun")) {
            Some(steps) => steps.slurm.signal_steps(steps.job, &signal.to_string()).map_err(|e| e.to_string()),
            None if local.is_empty() => Err(format!("no process of the job has a handler for signal {signal}")),
            None => Ok(()),
        }
    }
}

impl Script {
    /// A script that has not been started.
    pub fn new(post: Post, argv: Vec<String>, job: Option<Steps>, tree: Tree) -> Script {
        Script { post, argv, job, tries: Tries::default(), tree, resized: Arc::new(Vec::new) }
    }

    fn cancel_steps(&self) {
        let Some(Steps { slurm, job }) = &self.job else { return };
        let limit = Instant::now() + STEPS_LIMIT;
        let mut asked = false;
        loop {
            let running = match slurm.steps(*job) {
                Ok(steps) => steps.into_iter().filter(slurm::Step::is_users).collect::<Vec<_>>(),
                Err(e) => {
                    tracing::warn!(%e, "the job's steps cannot be listed");
                    return;
                }
            };
            if running.is_empty() || Instant::now() > limit {
                return;
            }
            if !asked {
                running.iter().for_each(|step| {
                    if let Err(e) = slurm.cancel_step(&step.id) {
                        tracing::warn!(%e, step = step.id, "the step cannot be cancelled");
                    }
                });
                asked = true;
            }
            thread::sleep(LOOK * 4);
        }
    }
}

impl Child for Script {
    fn start(&mut self, environment: &[(String, String)]) -> Result<(), String> {
        let (program, arguments) = self.argv.split_first().ok_or("there is no command to run")?;
        let mut child = unblocked(&mut Command::new(program))
            .args(arguments)
            // A job that the script submits, or a wrapper that it starts, is no driver of ours.
            .env_remove(crate::launch::ATTEMPT)
            .envs(environment.iter().cloned())
            .envs((self.resized)())
            .spawn()
            .map_err(|e| format!("{program}: {e}"))?;
        self.tree.pid.store(child.id() as i32, Ordering::SeqCst);
        let one = self.tries.begin();
        let post = self.post.clone();
        thread::spawn(move || {
            let code = child.wait().map_or(126, exit_code);
            post.tell_of(&one, Happening::Exited { code });
        });
        Ok(())
    }

    fn terminate(&mut self) {
        processes::signal(self.tree.script(), libc::SIGTERM);
        processes::signal(self.tree.script(), libc::SIGCONT);
    }

    fn stop(&mut self) {
        self.tries.void();
        let all = self.tree.processes();
        if all.iter().any(|p| p.name == "srun") {
            self.cancel_steps();
        }
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let limit = Instant::now() + GRACE;
            loop {
                let left = self.tree.processes();
                if left.is_empty() {
                    return;
                }
                left.iter().for_each(|p| processes::signal(p.pid, signal));
                if Instant::now() > limit {
                    break;
                }
                thread::sleep(LOOK);
            }
        }
    }

    fn step(&mut self) -> String {
        let Some(Steps { slurm, job }) = &self.job else { return String::new() };
        if !self.tree.processes().iter().any(|p| p.name == "srun") {
            return String::new();
        }
        let steps = slurm.steps(*job).unwrap_or_default();
        steps.into_iter().find(slurm::Step::is_users).map_or_else(String::new, |s| s.id)
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

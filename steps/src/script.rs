//! The job script and everything below it: started, asked, stopped.

use crate::calls::{Calls, LAUNCHERS};
use crate::cancelled;
use crate::late::Late;
use crate::wishes::Wishes;
use driver::ports::{Child, Happening, NotStarted};
use host::mail::{Post, Tries};
use host::processes::{self, Process};
use host::supervise::{self, exit_code, unblocked};
use slurm::Slurm;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Tells a driver from its supervisor, and which one it is.
pub const ATTEMPT: &str = "JOULEPOINT_DRIVER_ATTEMPT";

/// Time between asking the script's processes to end and killing them.
const GRACE: Duration = Duration::from_secs(5);

/// So long steps may take to end whose nodes Slurm reaches: one that does not answer is given up after ten seconds, and is
/// tried again later.
const PROMPT: Duration = Duration::from_secs(5);

/// Longest wait for Slurm to report the job's steps as ended.
const STEPS_LIMIT: Duration = Duration::from_secs(20);

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// The script of one job.
pub struct Script {
    post: Post,
    argv: Vec<String>,
    job: Option<Steps>,
    tries: Tries,
    tree: Tree,
    /// What is remembered of the script's steps, if it is to go on where it was.
    pub calls: Option<Calls>,
    /// What the engine starts in the script's place.
    pub instead: Instead,
    /// What to add to the environment because nodes were lost.
    pub resized: Arc<dyn Fn() -> Vec<(String, String)> + Send + Sync>,
    /// The job's nodes that are known to be dead.
    pub dead: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Where it is noted that steps did not end when they were cancelled.
    pub late: Option<Late>,
    /// What was left of the job's steps when they were cancelled last.
    left: Left,
    steps_limit: Duration,
    steps_prompt: Duration,
}

/// What is left of steps on nodes that live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    Steps,
    /// Slurm does not say.
    Unknown,
}

/// Words that are started in the place of the script's own, if an engine has any.
pub type Instead = Arc<Mutex<Option<Vec<String>>>>;

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
    /// Whether the script has been started, and has not ended.
    runs: Arc<AtomicBool>,
    /// The signal that has killed the script; 0 if none has.
    killed_by: Arc<AtomicI32>,
    /// The script that was there when the job was told to end; `NEVER` if it was not.
    told_to_end: Arc<AtomicI32>,
    /// Which signals somebody has given to the script or its steps.
    pub wishes: Wishes,
}

/// No process id, and not that of a script that has not been started.
const NEVER: i32 = -1;

impl Tree {
    /// Everything below `root`, the process that orphans fall to, but the driver itself.
    pub fn new(root: i32) -> Tree {
        let (pid, runs, killed_by) = (Arc::default(), Arc::default(), Arc::default());
        let told_to_end = Arc::new(AtomicI32::new(NEVER));
        Tree { root, pid, runs, killed_by, told_to_end, wishes: Wishes::default() }
    }

    /// Notes that SIGTERM has come, which the script has heard as well if it is there.
    pub fn told_to_end(&self) -> Happening {
        self.told_to_end.store(self.script(), Ordering::SeqCst);
        Happening::Terminate
    }

    /// Notes that the script is given a signal from outside, and tells its process id.
    pub fn is_asked(&self, signal: i32) -> i32 {
        self.wishes.asks(signal);
        self.script()
    }

    /// Passes a signal from outside on to the script, if it is still the one with this process id.
    pub fn pass_on(&self, signal: i32, script: i32) {
        if script > 0 && script == self.script() && self.runs.load(Ordering::SeqCst) {
            processes::signal(script, signal);
        }
    }

    /// The signal that has killed the script, if it has ended so.
    pub fn killed_by(&self) -> Option<i32> {
        Some(self.killed_by.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
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

    /// Asks the program for a checkpoint: every process that has a handler for the signal gets it, no other. `in_steps` asks
    /// those in steps, on all nodes.
    ///
    /// # Errors
    /// A sentence; nobody could be asked.
    pub fn ask(&self, signal: i32, in_steps: &dyn Fn() -> Result<u32, String>) -> Result<(), String> {
        let all = self.processes();
        // Launchers pass signals on to all ranks.
        let launches = |p: &&Process| p.name == "prterun" || LAUNCHERS.contains(&p.name.as_str());
        let launched: Vec<&Process> = all.iter().filter(launches).collect();
        if !launched.is_empty() {
            launched.iter().for_each(|p| processes::signal_seen(p, signal));
            return Ok(());
        }
        let local: Vec<&Process> =
            all.iter().filter(|p| p.name != "srun" && processes::catches(p.pid, signal)).collect();
        local.iter().for_each(|p| processes::signal_seen(p, signal));
        let has_steps = all.iter().any(|p| p.name == "srun");
        match if has_steps { in_steps() } else { Ok(0) } {
            Err(e) if local.is_empty() => Err(e),
            Ok(0) if local.is_empty() => Err(format!("no process of the job has a handler for signal {signal}")),
            _ => Ok(()),
        }
    }
}

impl Script {
    /// A script that has not been started.
    pub fn new(post: Post, argv: Vec<String>, job: Option<Steps>, tree: Tree) -> Script {
        Script {
            post,
            argv,
            job,
            tries: Tries::default(),
            tree,
            calls: None,
            instead: Instead::default(),
            resized: Arc::new(Vec::new),
            dead: Arc::new(Vec::new),
            late: None,
            left: Left::Nothing,
            steps_limit: STEPS_LIMIT,
            steps_prompt: PROMPT,
        }
    }

    /// Ends all steps of the job, and waits for that, but not for those on dead nodes; bounded in time.
    pub fn cancel_steps(&mut self) {
        self.left = self.cancelled();
    }

    fn cancelled(&self) -> Left {
        let Some(Steps { slurm, job }) = &self.job else { return Left::Nothing };
        let begun = Instant::now();
        let limit = begun + self.steps_limit;
        let (mut asked, mut tried, mut is_noted) = (Vec::new(), false, false);
        loop {
            // A busy slurmctld answers later; what runs on would run beside what is restored.
            let trouble = match slurm.steps(*job) {
                Ok(steps) => {
                    let running: Vec<slurm::Step> = steps.into_iter().filter(slurm::Step::is_users).collect();
                    let mut trouble = None;
                    for step in running.iter().filter(|step| !asked.contains(&step.id)).collect::<Vec<_>>() {
                        tried = true;
                        match slurm.cancel_step(&step.id) {
                            Ok(()) => asked.push(step.id.clone()),
                            Err(e) => trouble = Some(e),
                        }
                    }
                    if tried && !is_noted && !running.is_empty() && begun.elapsed() > self.steps_prompt {
                        self.late.iter().for_each(Late::note);
                        is_noted = true;
                    }
                    if running.is_empty() || !has_living_nodes(&running, &(self.dead)()) {
                        return Left::Nothing;
                    }
                    trouble
                }
                Err(e) => Some(e),
            };
            if Instant::now() > limit {
                let left = if trouble.is_some() { Left::Unknown } else { Left::Steps };
                let e = trouble.map_or_else(|| "they do not end".to_string(), |e| e.to_string());
                tracing::warn!(e, "steps of the job still run");
                return left;
            }
            thread::sleep(LOOK * 4);
        }
    }
}

/// Whether one of these steps runs on a node that is not dead.
fn has_living_nodes(steps: &[slurm::Step], dead: &[String]) -> bool {
    steps.iter().flat_map(|step| &step.nodes).any(|node| !dead.contains(node))
}

impl Child for Script {
    fn start(&mut self, environment: &[(String, String)]) -> Result<(), NotStarted> {
        let instead = self.instead.lock().map_or(None, |words| words.clone());
        let argv = instead.as_ref().unwrap_or(&self.argv);
        let (program, arguments) = argv
            .split_first()
            .ok_or_else(|| unstarted("there is no command to run".to_string(), ErrorKind::NotFound))?;
        let calls = self.calls.as_ref().filter(|calls| begun(calls));
        // In our process group: by that Slurm signals all of a script (`scancel --full`).
        let mut child = unblocked(&mut Command::new(program))
            .args(arguments)
            // A job that the script submits, or a wrapper that it starts, is no driver of ours.
            .env_remove(ATTEMPT)
            .env_remove(supervise::TOLD)
            .envs(environment.iter().cloned())
            .envs(calls.map(Calls::variables).unwrap_or_default())
            .envs((self.resized)())
            .envs([leftovers::began_now()])
            .spawn()
            .map_err(|e| unstarted(format!("{program}: {e}"), e.kind()))?;
        self.tree.pid.store(child.id() as i32, Ordering::SeqCst);
        self.tree.wishes.forgets();
        let one = self.tries.begin();
        let (post, tree) = (self.post.clone(), self.tree.clone());
        tree.runs.store(true, Ordering::SeqCst);
        threads::start(move || {
            let ended = child.wait();
            let signal = ended.as_ref().ok().and_then(ExitStatusExt::signal).unwrap_or(0);
            if one.is_current() {
                tree.runs.store(false, Ordering::SeqCst);
                tree.killed_by.store(signal, Ordering::SeqCst);
            }
            let code = ended.map_or(126, exit_code);
            post.tell_of(&one, Happening::Exited { code });
        });
        Ok(())
    }

    fn terminate(&mut self) {
        self.calls.iter().for_each(Calls::close);
        let was_there = self.tree.told_to_end.load(Ordering::SeqCst);
        if was_there != NEVER && was_there != self.tree.script() {
            processes::signal(self.tree.script(), libc::SIGTERM);
        }
        processes::signal(self.tree.script(), libc::SIGCONT);
    }

    fn pass_term_on(&mut self) {
        let script = self.tree.is_asked(libc::SIGTERM);
        self.tree.pass_on(libc::SIGTERM, script);
    }

    fn stop(&mut self) {
        self.tries.void();
        self.calls.iter().for_each(Calls::close);
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
                left.iter().for_each(|p| processes::signal_seen(p, signal));
                if Instant::now() > limit {
                    break;
                }
                thread::sleep(LOOK);
            }
        }
    }

    fn is_gone(&mut self) -> bool {
        if self.left == Left::Unknown {
            // Without Slurm nothing can be launched either.
            protocol::say!("joulepoint: the script waits for Slurm's word on the steps that it had");
        }
        while self.left == Left::Unknown {
            self.cancel_steps();
        }
        if self.left == Left::Steps {
            self.cancel_steps();
        }
        self.left == Left::Nothing
    }

    fn abandon(&mut self) {
        self.tries.void();
        let limit = Instant::now() + GRACE;
        loop {
            // A srun that is asked to end has Slurm end its step by a number that may be the other wrapper's by now.
            let left = self.tree.processes();
            if left.is_empty() || Instant::now() > limit {
                return;
            }
            left.iter().for_each(|p| processes::signal_seen(p, libc::SIGKILL));
            thread::sleep(LOOK);
        }
    }

    fn runs(&mut self) -> bool {
        self.tree.runs.load(Ordering::SeqCst)
    }

    fn was_asked(&mut self, code: i32) -> bool {
        self.tree.wishes.explain_soon(code) && cancelled::is_left_in_peace(self.job.as_ref())
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

/// Says why there is no script, as a shell would.
fn unstarted(reason: String, kind: ErrorKind) -> NotStarted {
    protocol::say!("joulepoint: {reason}");
    NotStarted { reason, code: if kind == ErrorKind::NotFound { 127 } else { 126 } }
}

/// Makes the record of steps ready for a script that begins; without it the script runs all of them.
fn begun(calls: &Calls) -> bool {
    calls.begin().inspect_err(|e| protocol::say!("joulepoint: steps are not remembered: {e}")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::ports::Clock;
    use host::mail::{now_s, queue};
    use protocol::Incarnation;

    #[test]
    fn a_script_that_cannot_be_started_ends_as_a_shell_would_have_it() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "no program").unwrap();
        for (program, code) in [("/nonexistent/prog", 127), (plain.to_str().unwrap(), 126)] {
            let (post, _clock) = queue();
            let mut script = Script::new(post, vec![program.to_string()], None, Tree::new(std::process::id() as i32));
            let why = script.start(&[]).unwrap_err();
            assert!(why.code == code && why.reason.contains(program), "{why:?}");
        }
    }

    #[test]
    fn a_script_gets_the_signals_that_its_wrapper_waits_for() {
        host::supervise::block_signals().unwrap();
        let (post, mut clock) = queue();
        let argv = ["sh", "-c", "kill -TERM $$; exit 3"].map(str::to_string).to_vec();
        Script::new(post, argv, None, Tree::new(std::process::id() as i32)).start(&[]).unwrap();
        assert_eq!(clock.wait(now_s() + 30.0), Some(Happening::Exited { code: 128 + libc::SIGTERM }));
    }

    #[test]
    fn steps_are_asked_for_until_slurm_answers_and_those_on_dead_nodes_are_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path().display();
        let shown = "StepId=7.0 UserId=9 StartTime=1 State=RUNNING NodeList=n[1-2] Nodes=2 Name=prog";
        let jobs = dir.path().join("jobs");
        std::fs::write(&jobs, "JobId=7 UserId=u(9) JobState=RUNNING\n").unwrap();
        let commands = [
            ("squeue", slurm::example::squeue(&jobs)),
            ("scontrol", format!("[ -e {here}/asked ] || {{ touch {here}/asked; exit 1; }}; echo '{shown}'")),
            ("scancel", format!("echo $* >>{here}/cancelled")),
        ];
        for (name, text) in commands {
            let written = dir.path().join("text");
            std::fs::write(&written, format!("#!/bin/sh\n{text}\n")).unwrap();
            // A copy made by a child: a file of ours may just be open in what another test starts, and cannot be run.
            assert!(Command::new("install").arg(written).arg(dir.path().join(name)).status().unwrap().success());
        }
        let steps = Steps { slurm: Arc::new(Slurm::new(Some(dir.path().into()))), job: 7 };
        let mut script = Script::new(queue().0, Vec::new(), Some(steps), Tree::new(0));
        let answers = Mutex::new(vec![vec!["n1", "n2"], vec!["n1"]]);
        let left = Arc::new(answers);
        let known = left.clone();
        script.dead = Arc::new(move || {
            let dead = known.lock().unwrap().pop().unwrap();
            dead.into_iter().map(str::to_string).collect()
        });
        script.cancel_steps();
        assert!(left.lock().unwrap().is_empty() && script.is_gone());
        assert_eq!(std::fs::read_to_string(dir.path().join("cancelled")).unwrap(), "7.0\n");
        // One that does not end keeps the script from being started again, until it has.
        script.dead = Arc::new(Vec::new);
        script.steps_limit = Duration::from_millis(100);
        script.steps_prompt = Duration::from_millis(50);
        script.late = Some(Late::new(dir.path(), Incarnation { job: 7, restart_count: 0 }));
        script.cancel_steps();
        assert!(!script.is_gone());
        assert!(dir.path().join("late-signals").exists(), "the next life has steps of the same numbers");
        std::fs::write(dir.path().join("text"), "#!/bin/sh\nexit 0\n").unwrap();
        assert!(
            Command::new("install")
                .arg(dir.path().join("text"))
                .arg(dir.path().join("scontrol"))
                .status()
                .unwrap()
                .success()
        );
        assert!(script.is_gone());
    }
}

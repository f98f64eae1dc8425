//! Puts a wrapper together from the request, the site and the job's environment, and runs it.

use crate::app::Announced;
use crate::asking;
use crate::calls::{Calls, Present};
use crate::clean;
use crate::criu;
use crate::deliver::{Courier, Spool};
use crate::equip::{Gear, Live, equip};
use crate::frequency::Frequency;
use crate::groups::{self, launch::Launch, slow::Slow};
use crate::job::{Controller, Job, persistently};
use crate::late::{Late, Waited};
use crate::leavings::Asker;
use crate::lend::Lender;
use crate::mail::{self, Post};
use crate::mpi;
use crate::nodes::{Local, Nodes};
use crate::planned::{Asked, Planned, hook_commands, made_by, plan, resume};
use crate::processes;
use crate::release::{self, Release, Releasing};
use crate::run_folder::RunFolder;
use crate::script::{ATTEMPT, Script, Steps, Tree};
use crate::supervise::{self, PASSED_ON};
use crate::{identity::Identity, sandboxes, writers};
use config::Site;
use driver::ports::{Happening, NodeCounter, Ports};
use driver::protection::{EXIT_NOT_PROTECTED, Prospect};
use driver::setup::{EXIT_NOT_RESTORED, EXIT_SUPERSEDED, HELD, Outcome, SUPERSEDED, Setup, Started};
use nix::sys::signal::Signal;
use options::{Resume, Settings};
use protocol::{Event, Incarnation, Record, Request, RunKey};
use slurm::Slurm;
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Longest wait for an answer of the controller.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait of a requeued run for Slurm to end it.
const REQUEUED_LIMIT: Duration = Duration::from_secs(120);

/// Runs `argv` under the protection that `request` asks for; the exit code is the script's.
///
/// Whatever keeps Joulepoint from protecting the job is said on standard error, and the job runs.
pub fn wrap(request: &Request, argv: &[String], conf: &Path, attempt: Option<u32>) -> i32 {
    let site = config::read(conf).unwrap_or_else(|e| {
        protocol::say!("joulepoint: {e}; the job runs with built-in defaults");
        Site::default()
    });
    let settings = match options::resolve(request, &site.defaults) {
        Ok(settings) if settings.objective.is_some() => settings,
        Ok(_) => return exec(argv),
        Err(refusal) => {
            protocol::say!("joulepoint: {refusal}; the job runs unprotected");
            return exec(argv);
        }
    };
    let Some(attempt) = attempt else {
        return supervise::supervise(again).unwrap_or_else(|e| unprotected(&e.to_string(), &settings, argv));
    };
    let me = Identity::from_environment(argv);
    let mut resumes = me.restart_count > 0 || attempt > 0;
    let outcome = drive(request, &settings, &site, argv, attempt, &me, &mut resumes);
    // Work that was done is not begun anew because of an error.
    match outcome.or_else(|e| if resumes { Ok(hold(&site, &me, &e.to_string())) } else { Err(e) }) {
        Ok(Outcome::Ended(code)) => code,
        Ok(Outcome::Requeued) => {
            thread::sleep(REQUEUED_LIMIT);
            0
        }
        Ok(Outcome::Superseded) => EXIT_SUPERSEDED,
        Err(e) => unprotected(&e.to_string(), &settings, argv),
    }
}

/// Runs the job as it is, since nothing can protect it, unless its user does not want that.
fn unprotected(reason: &str, settings: &Settings, argv: &[String]) -> i32 {
    if settings.is_required() {
        protocol::say!("joulepoint: NOT PROTECTED: {reason}; the job ends before it has begun");
        return EXIT_NOT_PROTECTED;
    }
    protocol::say!("joulepoint: NOT PROTECTED: {reason}; the job runs unprotected, and a failure costs all work");
    exec(argv)
}

/// What earlier wrappers have done cannot be reached: the job goes back into the queue and waits there for a person.
fn hold(site: &Site, me: &Identity, reason: &str) -> Outcome {
    let Some(job) = me.job else {
        protocol::say!("joulepoint: {reason}; the command is not begun anew for that");
        return Outcome::Ended(EXIT_NOT_RESTORED);
    };
    protocol::say!("joulepoint: {reason}; {HELD}");
    let slurm = Slurm::new(site.slurm_bin.clone());
    match persistently(|| slurm.requeue_held(job)) {
        Ok(()) => Outcome::Requeued,
        Err(e) => {
            protocol::say!("joulepoint: the job could not be requeued: {e}");
            Outcome::Ended(EXIT_NOT_RESTORED)
        }
    }
}

/// This very command again, as a driver.
fn again(attempt: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(ATTEMPT, attempt.to_string());
    command
}

/// Exit code of a job that was asked to end before it began: 128 + SIGTERM.
const TERMINATED: i32 = 143;

/// The run, `cluster/run`, for everything that a wrapper starts.
pub const RUN: &str = "JOULEPOINT_RUN";

/// Another wrapper has the run.
fn superseded() -> Outcome {
    protocol::say!("joulepoint: {SUPERSEDED}");
    Outcome::Superseded
}

/// Replaces this process by the job script.
fn exec(argv: &[String]) -> i32 {
    let Some((program, arguments)) = argv.split_first() else { return 2 };
    let _ = nix::sys::prctl::set_pdeathsig(None);
    let error = supervise::unblocked(Command::new(program).args(arguments).env_remove(ATTEMPT)).exec();
    protocol::say!("joulepoint: {program}: {error}");
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}

/// Sets `resumes`, also for when it fails, to whether earlier wrappers have worked on the run.
fn drive(
    request: &Request,
    settings: &Settings,
    site: &Site,
    argv: &[String],
    attempt: u32,
    me: &Identity,
    resumes: &mut bool,
) -> io::Result<Outcome> {
    let signals = supervise::block_signals()?;
    if std::env::var_os("SLURM_PROCID").is_some() {
        // Without the batch step's task the job ends; a driver that lived on would take that for somebody's wish.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    }
    // The kernel would call it "exe", after the way it was started.
    nix::sys::prctl::set_name(c"joulepoint")?;
    let slurm = Arc::new(Slurm::new(site.slurm_bin.clone()));
    let runs = me.runs_folder(settings, site);
    let (run, found) = me.run_name(&runs, attempt > 0)?;
    if me.restart_count > 0 && !found {
        protocol::say!("joulepoint: nothing of an earlier start of this job is in {}; it begins anew", runs.display());
    }
    *resumes = found;
    let resumes = found;
    let key = RunKey { cluster: me.cluster.clone(), run };
    mark(&format!("{}/{}", key.cluster, key.run));
    let path = runs.join(&key.cluster).join(&key.run);
    let (mut folder, records) = match RunFolder::take_up(&path, settings.keep, &me.claim()) {
        Err(e) if e.is_superseded() => {
            return Ok(superseded());
        }
        taken => taken.map_err(io::Error::other)?,
    };
    let placements = folder.placements();
    let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
    let controller = Arc::new(Controller::new(client, format!("{}/{}", key.cluster, key.run), me.restart_count));
    let accounted = accounted(&records, me);
    let former = if me.job.is_some() { release::former(&records, me) } else { BTreeSet::new() };
    let is_order = |e: &&Event| matches!(e, Event::Ordered { .. });
    let answered = records.iter().map(|r| &r.event).filter(is_order).cloned().collect();
    let before = driver::groups::place::before(records.iter().map(|r| &r.event));
    let (worked, made_by) = (worked(&records), made_by(&records));
    let holder = folder.holder();
    folder.deliver_by(Courier::start(controller.clone(), spool(site, me, &controller), key, holder.number(), records));
    let (post, mut clock) = mail::queue();
    folder.watch(post.clone());
    let supervisor = nix::unistd::getppid().as_raw();
    let tree = Tree::new(supervisor);
    pass_signals_on(signals, post.clone(), tree.clone());
    let steps = me.job.map(|job| Steps { slurm: slurm.clone(), job });
    let mut script = Script::new(post.clone(), argv.to_vec(), steps.clone(), tree.clone());
    let known = controller.clone();
    script.dead = Arc::new(move || known.dead());
    let late = me.job.map(|job| Incarnation { job, restart_count: me.restart_count }).map(|of| Late::new(&path, of));
    match late.as_ref().map_or(Waited::Over, |late| late.wait(&mut clock)) {
        Waited::Over => {}
        Waited::Terminated => return Ok(Outcome::Ended(TERMINATED)),
        Waited::Superseded => return Ok(superseded()),
    }
    script.late = late;
    let job = me.job.unwrap_or(0);
    let mut cluster = Job::new(slurm.clone(), job, me.restart_count, controller.clone());
    if resumes {
        // Steps outlive the `srun` of a wrapper that was killed.
        script.cancel_steps();
    }
    let here = me.node.clone().and_then(|node| site.node.socket_of(&node).map(|socket| (node, socket)));
    let releasing = Releasing {
        former,
        controller: controller.clone(),
        port: port(&site.node.listen),
        munge_socket: site.munge_socket.clone(),
        node: me.node.clone(),
        here: here.clone(),
    };
    match releasing.wait(&mut clock) {
        Release::Terminated => return Ok(Outcome::Ended(TERMINATED)),
        Release::Free { after_s } => tracing::info!(after_s, "nothing of this run goes on elsewhere"),
    }
    let lender = Lender::new(controller.client.clone(), (*slurm).clone());
    if settings.lend {
        // The groups need their nodes before they are dealt out.
        groups::park::take_up(&path, &lender);
    }
    let known = me.job.and_then(|id| slurm.job(id).ok().flatten());
    let (began_s, end_s) = (known.as_ref().and_then(|j| j.start_s), known.and_then(|j| j.end_s));
    let Planned { mut plan, chosen, criu, prospect } =
        plan(&Asked { request, settings, site, argv, me }, &runs, &controller, end_s, made_by);
    if attempt == 0
        && let Some(began_s) = began_s
    {
        let keep = clean::keep(&site.runs);
        let (all, own) = (runs.join(&me.cluster), path.clone());
        clean::Beside { runs: all, own, keep, began_s }.start((*slurm).clone());
    }
    let places = groups::launch::places(settings, me, &slurm);
    // A requeue brings back what this allocation has lost, and no more.
    let had_enough = settings.groups > 1 && me.nodes.len() >= settings.groups as usize;
    if places.is_none() && !before.groups.is_empty() && had_enough {
        return Ok(groups::launch::lacking_nodes(&mut cluster, &mut folder));
    }
    if places.is_some() && plan.checkpoint_hz.take().is_some() {
        plan.reasons
            .push("groups checkpoint at the nodes' own CPU frequency: one may write while another works".into());
    }
    if me.job.is_some() {
        cluster.watch(&post);
    }
    if me.nodes.len() > 1 && places.is_none() {
        let (controller, layout, slurm) = (controller.clone(), me.layout(settings.spare), slurm.clone());
        script.resized = Arc::new(move || {
            let mut variables = layout.variables(&controller.last());
            if !variables.is_empty() {
                variables.extend(mpi::variable(&slurm));
            }
            variables
        });
    }
    let is_one_group = settings.groups > 1 && places.is_none();
    if is_one_group {
        // The script's names of files have the number of a group.
        let resized = script.resized.clone();
        script.resized = Arc::new(move || {
            let one = [("FT_ENERGY_GROUP", "0"), ("FT_ENERGY_GROUPS", "1")];
            resized().into_iter().chain(one.map(|(name, value)| (name.to_string(), value.to_string()))).collect()
        });
    }
    let mut nodes = Nodes {
        job,
        restart_count: me.restart_count,
        nodes: me.nodes.clone(),
        port: port(&site.node.listen),
        munge_socket: site.munge_socket.clone(),
        here,
        controller,
        local: Some(Local::open(&site.energy.sources(), supervisor)),
        frequency: None,
    };
    nodes.frequency =
        plan.checkpoint_hz.filter(|_| me.job.is_some()).map(|hz| Frequency::new(job, hz, nodes.services()));
    let hindrance = (settings.lend && places.is_some()).then(|| groups::slow::hindrance(site, &slurm, me)).flatten();
    let lowest = || site.node.cpufreq.then(|| Frequency::new(job, 0.0, nodes.services()));
    let slow = hindrance.map(|why| Slow { why, frequency: lowest() });
    plan.reasons.extend(slow.as_ref().map(Slow::remark));
    if let Err(e) = folder.write_plan(&plan) {
        protocol::say!("joulepoint: the plan is not written down: {e}");
    }
    let margin_s = before_end_s(settings).unwrap_or(site.wrapper.end_margin_s);
    let requeue_at_end = settings.requeue.unwrap_or(site.wrapper.requeue_at_end);
    let limit_s = site.wrapper.checkpoint_limit_s;
    let setup = Setup {
        started: Started {
            job,
            restart_count: me.restart_count,
            user: me.user.clone(),
            account: me.account.clone(),
            partition: me.partition.clone(),
            job_name: me.job_name.clone(),
            nodes: me.nodes.clone(),
            dir: path.to_string_lossy().into_owned(),
        },
        plan,
        settings: settings.clone(),
        prospect: Prospect { before: worked, ..prospect },
        end_s,
        margin_s,
        requeue_at_end,
        step_retries: site.wrapper.step_retries,
        checkpoint_limit_s: limit_s,
        resumes,
        accounted,
        answered,
    };
    let by_steps = criu.as_ref().is_some_and(|c| c.by_steps);
    if resumes && (places.is_some() || by_steps) {
        placements.wait_for_others();
    }
    let live = live(me, &nodes.controller);
    let writers = writers(me, site, &nodes, live.clone());
    let ask_steps = asking::of_job(job, nodes.services());
    if let Some(places) = places {
        let criu = match criu {
            Some(criu) => Ok(criu.command),
            None if settings.lend && slow.is_none() => criu::on_this_node(site, me, &runs),
            None => Err(String::new()),
        };
        let (setup, given) = (&setup, placements.clone());
        let launch = Launch {
            setup,
            site,
            me,
            argv,
            post,
            steps,
            slurm,
            places,
            before,
            lender,
            criu,
            placements: given,
            slow,
            writers,
            ask_steps,
        };
        let outcome = launch.run(&mut clock, &mut nodes, &mut script, &mut cluster, &mut folder);
        placements.end();
        return outcome;
    }
    let (announced, descriptor) = announcements(&me.folder)?;
    script.calls = remembered(&mut folder, resume(settings, chosen, by_steps), argv, me, &nodes, live.clone());
    let gear = Gear {
        settings,
        me,
        post,
        checkpoints: folder.checkpoints(),
        run: &path,
        argv,
        tree,
        steps,
        ask_steps,
        live: live.clone(),
        commands: hook_commands(site).map(|all| if is_one_group { all.of_group(0, 1) } else { all }),
        dumps: &site.criu,
        host: by_steps.then(|| address(&slurm, me)),
        appends: by_steps.then(|| sandboxes::appends(&slurm)).flatten(),
        criu: criu.map(|c| c.command),
        placements: placements.clone(),
        halt_s: end_s.filter(|_| requeue_at_end).map(|e| e - margin_s),
        limit_s,
        announced,
        writers,
    };
    let mut engine = equip(chosen, gear, &mut script)?;
    let ports = Ports {
        clock: &mut clock,
        meter: &mut nodes,
        engine: engine.as_mut(),
        child: &mut script,
        cluster: &mut cluster,
        store: &mut folder,
    };
    let outcome = driver::coordinated::run(&setup, ports);
    placements.end();
    drop(descriptor);
    Ok(outcome)
}

/// The job's nodes that are not known to be dead.
fn live(me: &Identity, controller: &Arc<Controller>) -> Live {
    let (names, controller) = (me.nodes.clone(), controller.clone());
    Arc::new(move || {
        let known = controller.last();
        let is_dead = |node: &&String| known.iter().any(|h| h.dead && h.node == **node);
        names.iter().filter(|node| !is_dead(node)).cloned().collect()
    })
}

/// Who says whether the program still writes to its files.
fn writers(me: &Identity, site: &Site, nodes: &Nodes, live: Live) -> writers::Ask {
    let Some(job) = me.job else { return writers::here() };
    let nodes = writers::Nodes {
        job,
        nodes: Box::new(move || live()),
        here: me.node.clone(),
        services: nodes.services(),
        runs: site.runs.clone(),
    };
    writers::of_job(nodes)
}

/// The record of the script's steps, if one is kept, and who finds out what they leave behind.
fn remembered(
    folder: &mut RunFolder,
    resume: Resume,
    argv: &[String],
    me: &Identity,
    nodes: &Nodes,
    live: Live,
) -> Option<Calls> {
    let Some(job) = me.job else { return folder.resume_by(resume, argv, None) };
    let (services, all, of) = (Mutex::new(nodes.services()), me.nodes.clone(), live.clone());
    let is_same_life = Arc::new(AtomicBool::new(false));
    let known = is_same_life.clone();
    let present = move || {
        let nodes = of();
        let boots = Asker::boots(job, &nodes, &services.lock().unwrap_or_else(PoisonError::into_inner));
        Present { is_unchanged: known.load(Ordering::SeqCst) && nodes == all, nodes, boots }
    };
    let calls = folder.resume_by(resume, argv, Some(Arc::new(present)))?;
    let life = format!("{job}.{} {}", me.restart_count, me.nodes.join(","));
    match calls.is_same_life(&life) {
        Ok(is_same) => is_same_life.store(is_same, Ordering::SeqCst),
        Err(e) => tracing::warn!(%e, "all steps of which nobody knows what they left are run again"),
    }
    let asker = Asker { job, calls: calls.clone(), nodes: Box::new(move || live()), services: nodes.services() };
    asker.start();
    Some(calls)
}

/// The node service of the node on which this wrapper runs: its socket, or where the controller said that it answers.
fn spool(site: &Site, me: &Identity, controller: &Arc<Controller>) -> Spool {
    let (controller, munge_socket, port) = (controller.clone(), site.munge_socket.clone(), port(&site.node.listen));
    let here = me.nodes.first().cloned();
    let socket = here.as_ref().and_then(|node| site.node.socket_of(node));
    Box::new(move || {
        if let Some(socket) = socket.as_ref().filter(|s| s.exists()) {
            return Some(wire::Client::on_socket(socket, ANSWER_LIMIT));
        }
        let here = here.as_ref()?;
        let known = controller.health().nodes.into_iter().find(|h| h.node == *here && !h.url.is_empty());
        let url = known.map_or_else(|| format!("http://{here}:{port}"), |h| h.url);
        Some(wire::Client::of_node(&url, here, munge_socket.clone(), ANSWER_LIMIT))
    })
}

/// How long before the end of the walltime the user wants the last request to be sent: `USR1@60`.
fn before_end_s(settings: &Settings) -> Option<f64> {
    settings.signal.and_then(|s| s.before_end).map(|t| t.as_secs_f64())
}

/// Where other nodes reach this one.
pub(crate) fn address(slurm: &Slurm, me: &Identity) -> String {
    slurm.address(me.node.as_deref().unwrap_or("localhost"))
}

/// Marks all that this process starts as the run's, for the node service that freezes what is protected.
fn mark(run: &str) {
    // SAFETY: no other thread of this process uses the environment yet.
    unsafe { std::env::set_var(RUN, run) };
}

/// The inherited descriptor on which a program may name the files of a checkpoint that is complete.
fn announcements(folder: &Path) -> io::Result<(Announced, OwnedFd)> {
    let (read, write) = nix::unistd::pipe()?;
    // SAFETY: the program's number for it is told before any child starts; nobody else uses the variable.
    unsafe { std::env::set_var("FT_ENERGY_DONE_FD", write.as_raw_fd().to_string()) };
    nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let announced = Announced::default();
    let (told, folder) = (announced.clone(), folder.to_path_buf());
    thread::spawn(move || {
        for line in BufReader::new(std::fs::File::from(read)).lines() {
            let Ok(line) = line else { return };
            told.line(&folder, &line);
        }
    });
    Ok((announced, write))
}

/// Passes Slurm's and people's signals on: a request to end to the driver, the others to the script.
fn pass_signals_on(signals: nix::sys::signal::SigSet, post: Post, tree: Tree) {
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            match signal {
                Signal::SIGTERM => post.tell(Happening::Terminate),
                Signal::SIGCHLD => {}
                other if PASSED_ON.contains(&other) && tree.script() > 0 => {
                    processes::signal(tree.script(), other as i32);
                }
                _ => {}
            }
        }
    });
}

/// When the last wrapper before this one began, and when it wrote last.
fn worked(records: &[Record]) -> Option<(f64, f64)> {
    let is_started = |r: &&Record| matches!(r.event, Event::Started { .. });
    Some((records.iter().rev().find(is_started)?.at_s, records.last()?.at_s))
}

/// The last counters that earlier drivers of this very job record wrote down.
fn accounted(records: &[Record], me: &Identity) -> Vec<NodeCounter> {
    let mut same_record = false;
    let mut counters: Vec<NodeCounter> = Vec::new();
    for record in records {
        match &record.event {
            Event::Started { job, restart_count, .. } => {
                same_record = Some(*job) == me.job && *restart_count == me.restart_count;
            }
            Event::Reading { node, reading } if same_record => {
                counters.retain(|c| c.node != *node);
                counters.push(NodeCounter { node: node.clone(), reading: Some(reading.clone()) });
            }
            _ => {}
        }
    }
    counters
}

fn port(listen: &str) -> u16 {
    listen.rsplit(':').next().and_then(|p| p.parse().ok()).unwrap_or(6821)
}

//! Takes a run up, plans it, and follows it to its end with the driver that the plan asks for.

use crate::clean;
use crate::former::{Former, Named, name};
use crate::nodes::{ANSWER_LIMIT, live, port, remembered, spool, writers};
use crate::planned::{Asked, Planned, plan, resume};
use config::Site;
use driver::groups::place::Places;
use driver::ports::Ports;
use driver::setup::{Outcome, SUPERSEDED, Setup, Started};
use engines::app::Announced;
use engines::criu;
use engines::equip::{Gear, equip};
use engines::hook::Commands;
use groups::{launch::Launch, slow::Slow};
use host::mail::{self, MailClock, Post};
use host::supervise::{self, PASSED_ON, Teller};
use job::asking;
use job::cluster::{Controller, Job};
use job::deliver::{self, Courier};
use job::frequency::Frequency;
use job::identity::Identity;
use job::lend::Lender;
use job::nodes::{Local, Nodes};
use job::release::{self, Release, Releasing};
use job::run_folder::RunFolder;
use nix::sys::signal::{SigSet, Signal};
use options::Settings;
use planner::{COORDINATED, UNCOORDINATED};
use protection::Prospect;
use protocol::{Incarnation, Plan, Request, RunKey};
use slurm::Slurm;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use steps::late::{Late, Waited};
use steps::mpi;
use steps::sandboxes;
use steps::script::{Script, Steps, Tree};

/// Exit code of a job that was asked to end before it began: 128 + SIGTERM.
const TERMINATED: i32 = 143;

/// The run, `cluster/run`, for everything that a wrapper starts.
pub(crate) const RUN: &str = "JOULEPOINT_RUN";

/// Another wrapper has the run.
fn superseded() -> Outcome {
    protocol::say!("joulepoint: {SUPERSEDED}");
    Outcome::Superseded
}

/// What a driver is started with.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    pub(crate) request: &'a Request,
    pub(crate) settings: &'a Settings,
    pub(crate) site: &'a Site,
    pub(crate) argv: &'a [String],
    pub(crate) attempt: u32,
    pub(crate) me: &'a Identity,
}

/// Why the script is not started.
enum NotNow {
    /// The run is left in this way.
    Leave(Outcome),
    /// Something of the system does not do what it has to.
    Failed(io::Error),
}

impl From<io::Error> for NotNow {
    fn from(e: io::Error) -> NotNow {
        NotNow::Failed(e)
    }
}

/// Sets `resumes`, also for when it fails, to whether earlier wrappers have worked on the run.
pub(crate) fn drive(given: Given, resumes: &mut bool, teller: &mut Option<Teller>) -> io::Result<Outcome> {
    let (outcome, signal) = match Run::take_up(given, resumes).and_then(Run::drive) {
        Err(NotNow::Leave(outcome)) => (outcome, Some(Signal::SIGTERM as i32)),
        Err(NotNow::Failed(e)) => return Err(e),
        Ok(ended) => ended,
    };
    if let (Some(teller), Some(signal), Outcome::Ended(_)) = (teller, signal, outcome) {
        teller.tell(signal);
    }
    Ok(outcome)
}

/// A run that this wrapper has taken up, and what connects it with the cluster.
struct Run<'a> {
    given: Given<'a>,
    /// Folder of all runs of this user, and of this one.
    runs: PathBuf,
    path: PathBuf,
    folder: RunFolder,
    former: Former,
    slurm: Arc<Slurm>,
    controller: Arc<Controller>,
    post: Post,
    clock: MailClock,
    tree: Tree,
    steps: Option<Steps>,
    script: Script,
    /// Process id of the supervisor.
    supervisor: i32,
    /// This node, and the socket of its service.
    here: Option<(String, PathBuf)>,
}

impl<'a> Run<'a> {
    /// Takes the run up, and tells whether others have worked on it.
    fn take_up(given: Given<'a>, resumes: &mut bool) -> Result<Run<'a>, NotNow> {
        let Given { settings, site, attempt, me, .. } = given;
        let (began_s, signals) = (mail::now_s(), become_driver()?);
        let slurm = Arc::new(Slurm::new(site.slurm_bin.clone()));
        let runs = me.runs_folder(settings, site);
        let client = wire::Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
        let named = name(me, &runs, attempt, &slurm, &client).map_err(io::Error::other)?;
        let Named { run, found, over } = named;
        *resumes = found;
        let key = RunKey { cluster: me.cluster.clone(), run };
        let whole = format!("{}/{}", key.cluster, key.run);
        mark(&whole);
        let path = runs.join(&key.cluster).join(&key.run);
        let (mut folder, records) = match RunFolder::take_up(&path, settings.keep, &me.claim()) {
            Err(e) if e.is_superseded() => return Err(NotNow::Leave(superseded())),
            taken => taken.map_err(io::Error::other)?,
        };
        if !found {
            me.note_script(&path);
        }
        let controller = Arc::new(Controller::new(client, whole, me.restart_count));
        let mut former = Former::read(&records, found, me, began_s);
        if let Some(over) = over {
            // Something of the life that has completed may go on where nobody reaches it.
            former.nodes = release::former(&over.records, me);
        }
        let holder = folder.holder().number();
        let (spool, recall) = (spool(site, me, &controller), deliver::recall(&path));
        folder.deliver_by(Courier::start(controller.clone(), spool, recall, key, holder, records));
        let (post, clock) = mail::queue();
        folder.watch(post.clone());
        let supervisor = nix::unistd::getppid().as_raw();
        let tree = Tree::new(supervisor);
        pass_signals_on(signals, post.clone(), tree.clone());
        let steps = me.job.map(|job| Steps { slurm: slurm.clone(), job });
        let mut script = Script::new(post.clone(), given.argv.to_vec(), steps.clone(), tree.clone());
        let known = controller.clone();
        script.dead = Arc::new(move || known.dead());
        let here = me.node.clone().and_then(|node| site.node.socket_of(&node).map(|socket| (node, socket)));
        Ok(Run {
            given,
            runs,
            path,
            folder,
            former,
            slurm,
            controller,
            post,
            clock,
            tree,
            steps,
            script,
            supervisor,
            here,
        })
    }

    /// Waits until nothing of earlier wrappers goes on anywhere.
    fn wait_for_former(&mut self) -> Result<(), NotNow> {
        let me = self.given.me;
        let life = me.job.map(|job| Incarnation { job, restart_count: me.restart_count });
        let late = life.map(|of| Late::new(&self.path, of));
        match late.as_ref().map_or(Waited::Over, |late| late.wait(&mut self.clock)) {
            Waited::Over => {}
            Waited::Terminated => return Err(NotNow::Leave(Outcome::Ended(TERMINATED))),
            Waited::Superseded => return Err(NotNow::Leave(superseded())),
        }
        self.script.late = late;
        if self.former.resumes {
            // Steps outlive the `srun` of a wrapper that was killed.
            self.script.cancel_steps();
        }
        let releasing = Releasing {
            former: std::mem::take(&mut self.former.nodes),
            controller: self.controller.clone(),
            port: port(&self.given.site.node.listen),
            munge_socket: self.given.site.munge_socket.clone(),
            node: me.node.clone(),
            here: self.here.clone(),
        };
        match releasing.wait(&mut self.clock) {
            Release::Terminated => Err(NotNow::Leave(Outcome::Ended(TERMINATED))),
            Release::Free { after_s } => {
                tracing::info!(after_s, "nothing of this run goes on elsewhere");
                Ok(())
            }
        }
    }

    /// Plans the run and follows it to its end, as groups or as a whole; tells which signal has killed the script, if one has.
    fn drive(mut self) -> Result<(Outcome, Option<i32>), NotNow> {
        self.wait_for_former()?;
        let Given { settings, site, me, .. } = self.given;
        let lender = Lender::new(self.controller.client.clone(), (*self.slurm).clone());
        if settings.lend {
            // The groups need their nodes before they are dealt out.
            groups::park::take_up(&self.path, &lender);
        }
        let known = me.job.and_then(|id| self.known(id));
        if !self.former.resumes {
            me.note_submitted(&self.path, known.as_ref());
        }
        let starts_once = known.as_ref().is_some_and(|j| !j.requeue);
        let began_s = known.as_ref().and_then(|j| j.start_s);
        let end_s = known.as_ref().and_then(|j| j.end_s).map(mail::of_wall_s);
        let nodes = known.map(|j| j.nodes).unwrap_or_default();
        let mut planned = self.plan(end_s);
        if starts_once {
            planned.starts_once(settings, site);
        }
        self.clean_up(began_s);
        // What the plan sets counts from here on as if the user had set it.
        match planned.settings.take() {
            Some(settings) => Run { given: Given { settings: &settings, ..self.given }, ..self }
                .follow(planned, lender, &nodes, end_s),
            None => self.follow(planned, lender, &nodes, end_s),
        }
    }

    /// What Slurm says of the job now. A run that goes on by groups waits for it: lost nodes are in Slurm's word alone.
    fn known(&self, id: u32) -> Option<slurm::Job> {
        if self.former.groups.groups.is_empty() {
            return self.slurm.job(id).ok().flatten();
        }
        let pause = |pause| {
            thread::sleep(pause);
            true
        };
        let waits =
            |e: &slurm::Error| protocol::say!("joulepoint: the run goes on when slurmctld tells its nodes: {e}");
        self.slurm.job_in_the_end(id, pause, waits)
    }

    fn plan(&self, end_s: Option<f64>) -> Planned {
        let Given { request, settings, site, argv, me, .. } = self.given;
        let asked = Asked { request, settings, site, argv, me };
        plan(&asked, &self.runs, &self.controller, end_s, &self.former)
    }

    /// Follows a planned run to its end, on the nodes that the job has by Slurm's word.
    fn follow(
        mut self,
        mut planned: Planned,
        lender: Lender,
        has: &[String],
        end_s: Option<f64>,
    ) -> Result<(Outcome, Option<i32>), NotNow> {
        let Given { settings, me, .. } = self.given;
        let job = me.job.unwrap_or(0);
        let mut cluster = Job::new(self.slurm.clone(), job, me.restart_count, self.controller.clone(), me.node.clone());
        // A run that began with groups goes on with them: its checkpoints are theirs.
        let by_groups = planned.plan.protocol == UNCOORDINATED || !self.former.groups.groups.is_empty();
        let places = by_groups.then(|| groups::launch::places(settings, me, has)).flatten();
        // A requeue brings back what this allocation has lost, and no more.
        let had_enough = settings.groups > 1 && me.nodes.len() >= settings.groups as usize;
        if places.is_none() && !self.former.groups.groups.is_empty() && had_enough {
            return Ok((groups::launch::lacking_nodes(&mut cluster, &mut self.folder), None));
        }
        match &places {
            _ if planned.plan.options.is_empty() => {}
            Some(places) => protocol::say!(
                "joulepoint: planned as uncoordinated: of the {} nodes that compute, one that is lost goes back to its last \
                 checkpoint alone; --ft-energy-protocol=coordinated has all of them go back",
                places.groups.len()
            ),
            // Such a one waits for its nodes.
            None if self.former.resumes => {}
            None => {
                // A later wrapper goes on as this one begins.
                planned.plan.options.clear();
                planned.plan.protocol = COORDINATED.to_string();
            }
        }
        if places.is_some() && planned.plan.checkpoint_hz.take().is_some() {
            let reason = "groups checkpoint at the nodes' own CPU frequency: one may write while another works";
            planned.plan.reasons.push(reason.into());
        }
        if places.is_none() {
            cluster.count_boots();
        }
        if me.job.is_some() {
            cluster.watch(&self.post);
        }
        let mut nodes = self.nodes();
        let hz = planned.plan.checkpoint_hz.filter(|_| me.job.is_some());
        nodes.frequency = hz.map(|hz| Frequency::new(job, hz, nodes.services()));
        let by_steps = planned.criu.as_ref().is_some_and(|c| c.by_steps);
        if self.former.resumes && (places.is_some() || by_steps) {
            self.folder.placements().wait_for_others();
        }
        let (placements, tree) = (self.folder.placements(), self.tree.clone());
        let outcome = match places {
            Some(places) => self.uncoordinated(planned, places, lender, cluster, nodes, end_s),
            None => self.coordinated(planned, cluster, nodes, end_s),
        };
        placements.end();
        Ok((outcome?, tree.killed_by()))
    }

    /// Removes what ended runs have left, once for each start of the job.
    fn clean_up(&self, began_s: Option<f64>) {
        let Some(began_s) = began_s.filter(|_| self.given.attempt == 0) else { return };
        let keep = clean::keep(&self.given.site.runs);
        let (all, own) = (self.runs.join(&self.given.me.cluster), self.path.clone());
        clean::Beside { runs: all, own, keep, began_s }.start((*self.slurm).clone());
    }

    /// The meter of the job's nodes.
    fn nodes(&self) -> Nodes {
        let Given { site, me, .. } = self.given;
        Nodes {
            job: me.job.unwrap_or(0),
            restart_count: me.restart_count,
            nodes: me.nodes.clone(),
            port: port(&site.node.listen),
            munge_socket: site.munge_socket.clone(),
            here: self.here.clone(),
            controller: self.controller.clone(),
            local: Some(Local::open(&site.energy.sources(), self.supervisor)),
            frequency: None,
        }
    }

    /// Writes the plan down, and makes of it what a driver is given.
    fn setup(&mut self, plan: Plan, prospect: Prospect, end_s: Option<f64>) -> Setup {
        if let Err(e) = self.folder.write_plan(&plan) {
            protocol::say!("joulepoint: the plan is not written down: {e}");
        }
        let Given { settings, site, me, .. } = self.given;
        Setup {
            started: Started {
                job: me.job.unwrap_or(0),
                restart_count: me.restart_count,
                user: me.user.clone(),
                account: me.account.clone(),
                partition: me.partition.clone(),
                job_name: me.job_name.clone(),
                nodes: me.nodes.clone(),
                dir: self.path.to_string_lossy().into_owned(),
            },
            plan,
            settings: settings.clone(),
            prospect: Prospect { before: self.former.worked, ..prospect },
            end_s,
            margin_s: before_end_s(settings).unwrap_or(site.wrapper.end_margin_s),
            requeue_at_end: settings.requeue.unwrap_or(site.wrapper.requeue_at_end),
            step_retries: site.wrapper.step_retries,
            checkpoint_limit_s: site.wrapper.checkpoint_limit_s,
            resumes: self.former.resumes,
            accounted: std::mem::take(&mut self.former.accounted),
            was_lost: self.former.was_lost,
            answered: std::mem::take(&mut self.former.answered),
        }
    }

    /// Groups of nodes, each of which goes back alone.
    fn uncoordinated(
        mut self,
        planned: Planned,
        places: Places,
        lender: Lender,
        mut cluster: Job,
        mut nodes: Nodes,
        end_s: Option<f64>,
    ) -> io::Result<Outcome> {
        let Given { settings, site, argv, me, .. } = self.given;
        let Planned { mut plan, criu, prospect, .. } = planned;
        let hindrance = settings.lend.then(|| groups::slow::hindrance(site, &self.slurm, me)).flatten();
        let lowest = || site.node.cpufreq.then(|| Frequency::new(nodes.job, 0.0, nodes.services()));
        let slow = hindrance.map(|why| Slow { why, frequency: lowest() });
        plan.reasons.extend(slow.as_ref().map(Slow::remark));
        let setup = self.setup(plan, prospect, end_s);
        let criu = match criu {
            Some(criu) => Ok(criu.command),
            None if settings.lend && slow.is_none() => criu::on_this_node(site, me, &self.runs),
            None => Err(String::new()),
        };
        let launch = Launch {
            setup: &setup,
            site,
            me,
            argv,
            post: self.post,
            steps: self.steps,
            slurm: self.slurm,
            places,
            before: self.former.groups,
            lender,
            criu,
            placements: self.folder.placements(),
            slow,
            writers: writers(me, site, &nodes, live(me, &self.controller)),
            ask_steps: asking::of_job(nodes.job, nodes.services()),
        };
        launch.run(&mut self.clock, &mut nodes, &mut self.script, &mut cluster, &mut self.folder)
    }

    /// What the script is to see of nodes that it has lost, and that it is a group if its user wanted several.
    fn tell_script_of_nodes(&mut self, is_one_group: bool) {
        let Given { settings, me, .. } = self.given;
        if me.nodes.len() > 1 {
            let (controller, layout, slurm) = (self.controller.clone(), me.layout(settings.spare), self.slurm.clone());
            self.script.resized = Arc::new(move || {
                let mut variables = layout.variables(&controller.last());
                if !variables.is_empty() {
                    variables.extend(mpi::variable(&slurm));
                }
                variables
            });
        }
        if is_one_group {
            // The script's names of files have the number of a group.
            let resized = self.script.resized.clone();
            self.script.resized = Arc::new(move || {
                let one = [("FT_ENERGY_GROUP", "0"), ("FT_ENERGY_GROUPS", "1")];
                resized().into_iter().chain(one.map(|(name, value)| (name.to_string(), value.to_string()))).collect()
            });
        }
    }

    /// A run that goes back as a whole.
    fn coordinated(
        mut self,
        planned: Planned,
        mut cluster: Job,
        mut nodes: Nodes,
        end_s: Option<f64>,
    ) -> io::Result<Outcome> {
        let Given { settings, site, argv, me, .. } = self.given;
        let Planned { plan, chosen, criu, prospect, requeues, .. } = planned;
        let is_one_group = settings.groups > 1;
        self.tell_script_of_nodes(is_one_group);
        let setup = self.setup(plan, prospect, end_s);
        let by_steps = criu.as_ref().is_some_and(|c| c.by_steps);
        let live = live(me, &self.controller);
        let (announced, descriptor) = Announced::listen(&me.folder)?;
        let resume = resume(settings, chosen, by_steps, requeues);
        self.script.calls = remembered(&mut self.folder, resume, argv, me, &nodes, live.clone());
        let gear = Gear {
            settings,
            me,
            post: self.post,
            checkpoints: self.folder.checkpoints(),
            run: &self.path,
            argv,
            tree: self.tree,
            steps: self.steps,
            ask_steps: asking::of_job(nodes.job, nodes.services()),
            live: live.clone(),
            commands: Commands::configured(site).map(|all| if is_one_group { all.of_group(0, 1) } else { all }),
            dumps: &site.criu,
            host: by_steps.then(|| me.address(&self.slurm)),
            appends: by_steps.then(|| sandboxes::appends(&self.slurm)).flatten(),
            mpi: by_steps.then(|| mpi::variable(&self.slurm)).flatten(),
            launchers: criu.as_ref().map(|c| c.launchers.clone()).unwrap_or_default(),
            criu: criu.map(|c| c.command),
            placements: self.folder.placements(),
            halt_s: end_s.filter(|_| setup.requeue_at_end).map(|e| e - setup.margin_s),
            limit_s: setup.checkpoint_limit_s,
            announced,
            writers: writers(me, site, &nodes, live),
        };
        let mut engine = equip(chosen, gear, &mut self.script)?;
        let ports = Ports {
            clock: &mut self.clock,
            meter: &mut nodes,
            engine: engine.as_mut(),
            child: &mut self.script,
            cluster: &mut cluster,
            store: &mut self.folder,
        };
        let outcome = driver::coordinated::run(&setup, ports);
        drop(descriptor);
        Ok(outcome)
    }
}

/// Makes this process one that ends with the batch step's task, and takes the signals of people and Slurm.
fn become_driver() -> io::Result<SigSet> {
    let signals = supervise::block_signals()?;
    if let Err(e) = supervise::take_descriptors() {
        tracing::warn!(%e, "a step of many tasks may lack descriptors");
    }
    if std::env::var_os("SLURM_PROCID").is_some() {
        // Without the batch step's task the job ends; a driver that lived on would take that for somebody's wish.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    }
    // The kernel would call it "exe", after the way it was started.
    nix::sys::prctl::set_name(c"joulepoint")?;
    Ok(signals)
}

/// How long before the end of the walltime the user wants the last request to be sent: `USR1@60`.
fn before_end_s(settings: &Settings) -> Option<f64> {
    settings.signal.and_then(|s| s.before_end).map(|t| t.as_secs_f64())
}

/// Marks all that this process starts as the run's, for the node service that freezes what is protected.
fn mark(run: &str) {
    // SAFETY: no other thread of this process uses the environment yet.
    unsafe { std::env::set_var(RUN, run) };
}

/// So long after a signal it is passed on. Who signals all processes of a job has then signalled the script's sandbox, too:
/// there our signal, which is for the script alone, must not come first, since a second one that waits is lost.
const SETTLES: Duration = Duration::from_millis(100);

/// Passes Slurm's and people's signals on: a request to end to the driver, the others to the script.
fn pass_signals_on(signals: SigSet, post: Post, tree: Tree) {
    threads::start(move || {
        while let Ok(signal) = signals.wait() {
            match signal {
                Signal::SIGTERM => post.tell(tree.told_to_end()),
                Signal::SIGCHLD => {}
                other if PASSED_ON.contains(&other) => {
                    let script = tree.is_asked(other as i32);
                    thread::sleep(SETTLES);
                    supervise::take_pending(other);
                    tree.pass_on(other as i32, script);
                }
                _ => {}
            }
        }
    });
}

//! Puts the driver of groups together: engines, folders, and the program in place of `srun`.

use crate::board::{Board, Sandboxes, Seats, Within};
use crate::criu::{Dumped, GroupCriu};
use crate::dealt::Dealt;
use crate::lines::{Folders, Reach};
use crate::park::Park;
use crate::slow::Slow;
use ::criu::relay;
use config::Site;
use driver::groups::place::{Before, Places};
use driver::groups::ports::{GroupPorts, Lending, News, NoLending, NoRelays, Relays};
use driver::ports::{Cluster, Engine, Happening, Store};
use driver::setup::{FLUSH_LIMIT_S, Outcome, Setup};
use engines::app::{self, Announced, App, Ask, Files};
use engines::hook::{Commands, Hook};
use host::mail::{MailClock, Post, Tries, now_s};
use job::asking::AskSteps;
use job::cluster::Job;
use job::identity::Identity;
use job::lend::Lender;
use job::nodes::Nodes;
use job::run_folder::RunFolder;
use job::writers;
use options::{Engine as Kind, Settings};
use protocol::Event;
use run::Placements;
use slurm::Slurm;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use steps::calls::fingerprint;
use steps::mpi;
use steps::resized::Layout;
use steps::sandboxes::appends;
use steps::script::{Script, Steps};
use worlds::calls::{Base, Worlds};
use worlds::relays;

/// Time between two looks at the nodes that Slurm gives the job.
const NODES_EVERY: Duration = Duration::from_secs(10);

/// What a driver of groups is made of.
pub struct Launch<'a> {
    /// What every driver is given.
    pub setup: &'a Setup,
    /// What the site says.
    pub site: &'a Site,
    /// Who this job is.
    pub me: &'a Identity,
    /// The script.
    pub argv: &'a [String],
    /// Where news go.
    pub post: Post,
    /// The job's steps.
    pub steps: Option<Steps>,
    /// Slurm's commands.
    pub slurm: Arc<Slurm>,
    /// Whose the nodes are.
    pub places: Places,
    /// Whose they were, and what else earlier wrappers left.
    pub before: Before,
    /// The way to the broker of loans.
    pub lender: Lender,
    /// The CRIU by which groups are dumped or survivors parked, or why there is none.
    pub criu: Result<PathBuf, String>,
    /// The placements of all that is started in steps.
    pub placements: Placements,
    /// What is done with survivors where nothing can be lent.
    pub slow: Option<Slow>,
    /// Who may still write to the files of a program.
    pub writers: writers::Ask,
    /// Asks the processes of steps for a checkpoint.
    pub ask_steps: AskSteps,
}

/// The groups of the job, if it is to have some and can: a job that runs on without a node that died `has` fewer than its
/// variables say; all of them, if Slurm has not said it.
pub fn places(settings: &Settings, me: &Identity, has: &[String]) -> Option<Places> {
    if settings.groups < 2 {
        return None;
    }
    let has = |n: &&String| has.is_empty() || has.contains(n);
    let (mut nodes, others): (Vec<String>, Vec<String>) =
        me.nodes.iter().filter(has).cloned().partition(|n| Some(n) == me.node.as_ref());
    nodes.extend(others);
    match Places::deal(&nodes, settings.groups as usize, settings.spare as usize) {
        Ok(places) => Some(places),
        Err(reason) => {
            protocol::say!("joulepoint: {reason}; the run is coordinated");
            None
        }
    }
}

/// Groups that lack nodes, such as lent ones that died, cannot become one program: the run goes back to the queue.
pub fn lacking_nodes(cluster: &mut dyn Cluster, folder: &mut dyn Store) -> Outcome {
    let mut tell = |events: Vec<Event>| {
        if let Err(e) = folder.append(now_s(), events) {
            tracing::error!(%e, "the journal cannot be written");
        }
        folder.flush(FLUSH_LIMIT_S);
    };
    let reason = "there are fewer nodes than groups".to_string();
    let decided = Event::Decided { action: "requeue".into(), reason, interval_s: 0.0 };
    tell(vec![decided, Event::Ended { state: "requeued".into(), exit_code: 0 }]);
    match cluster.requeue() {
        Ok(()) => Outcome::Requeued,
        Err(reason) => {
            protocol::say!("joulepoint: the run lacks nodes and could not be requeued: {reason}");
            tell(vec![Event::Ended { state: "failed".into(), exit_code: 1 }]);
            Outcome::Ended(1)
        }
    }
}

/// The layout of a job of which the script sees the groups' nodes, as many tasks on each as it was submitted with: all
/// others are spares to it, also those that are gone.
fn whole(job: Layout, groups: &[Vec<String>]) -> Layout {
    let used: Vec<String> = groups.iter().flatten().cloned().collect();
    let rest = job.nodes.iter().filter(|n| !used.contains(n));
    let nodes: Vec<String> = used.iter().chain(rest).cloned().collect();
    Layout { spare: nodes.len() - used.len(), nodes, ..job }
}

impl Launch<'_> {
    /// Runs the job script to its end, or hands the run back to the queue.
    ///
    /// # Errors
    /// What the file system says.
    pub fn run(
        mut self,
        clock: &mut MailClock,
        nodes: &mut Nodes,
        script: &mut Script,
        cluster: &mut Job,
        folder: &mut RunFolder,
    ) -> io::Result<Outcome> {
        let count = self.places.groups.len();
        let mut lines = Folders::open(folder, count).map_err(io::Error::other)?;
        let sizes = self.places.groups.iter().map(Vec::len).collect();
        let worlds = self.worlds(folder);
        let within = self.within(folder, worlds.as_ref());
        let seats = Seats {
            all: Arc::default(),
            post: self.post.clone(),
            steps: self.steps.clone(),
            placements: self.placements.clone(),
            empties: (!self.setup.resumes).then(|| appends(&self.slurm) == Some(false)),
            dealt: Dealt::open(folder.path(), fingerprint(self.argv)),
            within: within.clone(),
            without: Arc::default(),
        };
        let board = Board::open(folder.path(), sizes, seats)?;
        let mut shares = board.seats();
        let mpi = mpi::variable(&self.slurm);
        let variables: Vec<_> = self.whole().into_iter().chain(board.variables()).chain(mpi).collect();
        script.resized = Arc::new(move || variables.clone());
        self.watch_nodes();
        let runs = folder.path().parent().and_then(|runs| runs.canonicalize().ok());
        let engines = (0..count).map(|g| self.engine(g, &lines, &shares, &within, runs.as_deref()));
        let mut engines = engines.collect::<io::Result<Vec<Box<dyn Engine>>>>()?;
        if let Within::Dumped(_) = within {
            // The script writes again what it has written itself, and what its steps had printed is printed again.
            relay::standard().and_then(|mut all| relay::begin(&mut all, &folder.path().join(relay::BEGAN)))?;
            let (seats, worlds) = (board.seats(), worlds.clone());
            lines.tell(Box::new(move |group, line, reach| {
                seats.print(group, line, reach);
                if reach == Reach::Own {
                    worlds.iter().for_each(|worlds| worlds.committed(group, line));
                }
            }));
        }
        let mut relays = match worlds {
            Some(worlds) => Box::new(worlds),
            None => self.relays(folder, &board),
        };
        let mut lending = self.lending(folder, &shares);
        let ports = GroupPorts {
            clock,
            meter: nodes,
            engines: engines.iter_mut().map(|e| e.as_mut() as &mut dyn Engine).collect(),
            child: script,
            cluster,
            store: folder,
            lines: &mut lines,
            shares: &mut shares,
            relays: relays.as_mut(),
            lending: lending.as_mut(),
        };
        Ok(driver::groups::run(self.setup, &self.places, &self.before, ports))
    }

    /// What the programs of groups run in.
    fn within(&self, folder: &RunFolder, worlds: Option<&Worlds>) -> Within {
        let limit_s = self.setup.checkpoint_limit_s;
        match &self.criu {
            Ok(criu) if self.setup.plan.engine == Kind::Criu.as_str() => {
                let dumped = Dumped::new(criu, folder.path(), limit_s, fingerprint(self.argv), folder.well_s());
                let dumped = dumped.talking(worlds.cloned());
                dumped.forget_messages(self.places.groups.len());
                Within::Dumped(dumped)
            }
            Ok(criu) if self.setup.settings.lend => {
                let folder = folder.path().join("sandboxes");
                Within::Parkable(Sandboxes { criu: criu.clone(), folder, limit_s })
            }
            _ => Within::Nothing,
        }
    }

    /// The relays of MPI programs whose groups are dumped, if their messages are logged.
    fn worlds(&self, folder: &RunFolder) -> Option<Worlds> {
        let settings = &self.setup.settings;
        let log = settings.log.filter(|_| self.criu.is_ok() && self.setup.plan.engine == Kind::Criu.as_str())?;
        let base = Base {
            srun: self.srun(),
            slurm: self.slurm.clone(),
            run: folder.path().to_path_buf(),
            log,
            keep: settings.keep,
            placements: self.placements.clone(),
            cpus: self.me.cpus_per_node,
            post: self.post.clone(),
        };
        Some(Worlds::new(base, self.places.groups.len()))
    }

    /// The relays of coupled groups.
    fn relays(&self, folder: &RunFolder, board: &Board) -> Box<dyn Relays> {
        let settings = &self.setup.settings;
        let Some(log) = settings.log else { return Box::new(NoRelays) };
        let relays = relays::Steps {
            srun: self.srun(),
            slurm: self.slurm.clone(),
            run: folder.path().to_path_buf(),
            log,
            // A line is copied a moment after the program has committed it, so that the program is one ahead.
            keep: settings.keep + 1,
            placements: self.placements.clone(),
            sockets: format!("@{}.relay", board.name()),
            world: None,
            cpus: self.me.cpus_per_node,
            post: self.post.clone(),
            all: self.places.groups.iter().map(|_| relays::Relay::default()).collect(),
            told: Tries::default(),
        };
        relays.watch();
        Box::new(relays)
    }

    /// What lends the nodes of groups that wait.
    fn lending(&mut self, folder: &RunFolder, seats: &Seats) -> Box<dyn Lending> {
        if let Some(slow) = self.slow.take() {
            return Box::new(slow);
        }
        let (Some(job), true) = (self.me.job, self.setup.settings.lend) else { return Box::new(NoLending) };
        Box::new(Park {
            lender: self.lender.clone(),
            srun: self.srun(),
            run: folder.path().to_path_buf(),
            seats: seats.clone(),
            post: self.post.clone(),
            job: job.to_string(),
            partition: self.me.partition.clone(),
            cpus: self.me.cpus_per_node,
            idle_w: self.site.energy.idle_w,
            shelter: self.me.node.clone().unwrap_or_default(),
            trouble: self.criu.as_ref().err().cloned(),
            limit_s: self.setup.checkpoint_limit_s,
            tries: self.places.groups.iter().map(|_| Default::default()).collect(),
            return_s: Arc::default(),
            loan: Tries::default(),
        })
    }

    /// The engine of one group.
    fn engine(
        &self,
        group: usize,
        lines: &Folders,
        seats: &Seats,
        within: &Within,
        runs: Option<&Path>,
    ) -> io::Result<Box<dyn Engine>> {
        let settings = &self.setup.settings;
        let post = self.post.of_group(group);
        let commands = Commands::configured(self.site);
        Ok(match (within, self.setup.plan.engine.as_str(), commands) {
            (Within::Dumped(within), ..) => {
                let host = self.me.address(&self.slurm);
                let dumps = &self.site.criu;
                Box::new(GroupCriu::listen(group, post, lines.of(group), seats, within, &host, dumps)?)
            }
            (_, "hook", Some(commands)) => {
                let commands = commands.of_group(group, settings.groups);
                Box::new(Hook::new(post, lines.of(group), commands))
            }
            _ => {
                let (seats, ask_steps) = (seats.clone(), self.ask_steps.clone());
                let ask: Ask = Arc::new(move |signal| match seats.nodes_of(group).as_slice() {
                    [] => Err(format!("group {group} has no step that could be asked")),
                    nodes if ask_steps(nodes, signal)? == 0 => {
                        Err(format!("no process of group {group} has a handler for signal {signal}"))
                    }
                    _ => Ok(()),
                });
                let signal = settings.signal.map(|s| (s.number, ask));
                let ours = runs.map(Path::to_path_buf);
                let files = Files { folder: self.me.folder.clone(), patterns: settings.done_of(group), ours };
                let app = App::new(post, lines.of(group), files, signal, Announced::default());
                let app = app.of_job(self.writers.clone(), app::limit(self.setup.checkpoint_limit_s));
                Box::new(if settings.log.is_some() { app.exact(self.setup.resumes) } else { app })
            }
        })
    }

    /// Slurm's variables for the script.
    fn whole(&self) -> Vec<(String, String)> {
        whole(self.me.layout(0), &self.places.groups).variables(&[])
    }

    /// The real `srun`.
    fn srun(&self) -> PathBuf {
        let known = self.site.slurm_bin.as_ref().map(|folder| folder.join("srun"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = || std::env::split_paths(&path).map(|folder| folder.join("srun")).find(|p| p.is_file());
        known.or_else(found).unwrap_or_else(|| PathBuf::from("srun"))
    }

    /// Tells the driver of nodes that come to the job: one that is back, or its replacement.
    fn watch_nodes(&self) {
        let Some(job) = self.me.job else { return };
        let (slurm, post) = (self.slurm.clone(), self.post.clone());
        let mut had: BTreeSet<String> =
            self.places.groups.iter().flatten().chain(&self.places.spares).cloned().collect();
        threads::start(move || {
            loop {
                thread::sleep(NODES_EVERY);
                let Some(now) = slurm.job(job).ok().flatten() else { continue };
                let now: BTreeSet<String> = now.nodes.into_iter().collect();
                for node in now.difference(&had) {
                    post.tell(Happening::Group(News::Joined { node: node.clone() }));
                }
                had = now;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_keeps_its_number_of_tasks_when_a_spare_has_taken_its_place() {
        let names = |list: &str| list.split(' ').map(str::to_string).collect::<Vec<_>>();
        let job = || Layout { nodes: names("n1 n2 n3 n4"), tasks: Some(4), cpus_per_node: 2, ..Layout::default() };
        let shown = |groups: &[&str]| {
            let groups: Vec<Vec<String>> = groups.iter().map(|g| names(g)).collect();
            let variables = whole(job(), &groups).variables(&[]);
            let get =
                |name: &str| variables.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone()).unwrap_or_default();
            format!("{} {} {}", get("SLURM_JOB_NODELIST"), get("SLURM_NTASKS"), get("SLURM_TASKS_PER_NODE"))
        };
        assert_eq!(shown(&["n2", "n3", "n4"]), "n[2-4] 3 1(x3)");
        // The next wrapper, after n4 has died.
        assert_eq!(shown(&["n1", "n2", "n3"]), "n[1-3] 3 1(x3)");
    }
}

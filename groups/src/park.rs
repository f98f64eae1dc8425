//! Puts a survivor aside on its node, and lends nodes until they are needed again: the real port.
//!
//! Under the engine `criu` a group makes a checkpoint of its own. Else a group of one task runs in a sandbox: its relay has
//! the program close its connection; then CRIU dumps it there. The program stands still after that, since the relay does
//! not let it come back, until its step is ended.

use crate::board::{Seats, Within};
use crate::criu::Dumped;
use ::criu::client::{self, Ask};
use driver::groups::ports::{Aside, Lending, LoanOutcome, Market, News};
use driver::ports::Happening;
use engines::criu::RESTORE;
use host::mail::{Post, Tries, now_s};
use job::lend::{Lender, Offer};
use run::{survey, write_durably};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use worlds::relays::own_step;

/// The file in a run's folder that names the loan under way, for the wrapper that comes after.
const LOAN: &str = "loan";

/// Why a group cannot be parked though CRIU works.
const SEVERAL: &str = "only groups of one task on one node can be parked";

/// How often a relay is told to let its program come back: a slurmctld that has just started refuses steps.
const WAKES: u32 = 12;

/// Pause before it is told again.
const WAKE_PAUSE: Duration = Duration::from_secs(5);

/// What a lender of groups is made of.
pub struct Park {
    /// The way to the broker.
    pub lender: Lender,
    /// The real `srun`.
    pub srun: PathBuf,
    /// The run's folder, which all nodes see.
    pub run: PathBuf,
    /// The programs of the groups.
    pub seats: Seats,
    /// Where news go.
    pub post: Post,
    /// The job as people write it.
    pub job: String,
    /// Its partition.
    pub partition: String,
    /// CPUs of a node.
    pub cpus: u32,
    /// Power of an idle node, W.
    pub idle_w: f64,
    /// The batch host.
    pub shelter: String,
    /// Why nothing can be parked on this cluster, if so.
    pub trouble: Option<String>,
    /// Longest time of a dump, s.
    pub limit_s: f64,
    /// Attempts to park, by group; the lock is held by the one that is at work on the node.
    pub tries: Vec<(Tries, Arc<Mutex<()>>)>,
    /// When the nodes are needed again.
    pub return_s: Arc<Mutex<f64>>,
    /// The loan.
    pub loan: Tries,
}

impl Park {
    /// A program of ours as a step of its own on a node.
    fn step(&self, name: &str, node: &str, program: &str) -> Command {
        let me = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("joulepoint"));
        let mut command = own_step(&self.srun, name, node);
        command.arg(me.with_file_name(program));
        command
    }

    /// What dumps the groups, where each makes checkpoints of its own.
    fn dumped(&self) -> Option<&Dumped> {
        if let Within::Dumped(dumped) = &self.seats.within { Some(dumped) } else { None }
    }

    /// Tells a group's relay to let its program come back.
    fn waking(&self, group: usize, node: &str) -> Command {
        let mut command = self.step(&format!("wake.g{group}"), node, "joulepoint-relay");
        command.arg("wake").arg("--run").arg(&self.run).args(["--group", &group.to_string()]);
        command
    }
}

impl Lending for Park {
    fn market(&mut self, groups: &[usize], nodes: &[String]) -> Result<Market, String> {
        if let Some(trouble) = &self.trouble {
            return Err(format!("kept: {trouble}"));
        }
        let is_none = |group: &&usize| self.dumped().is_none() && self.seats.sandbox(**group).is_none();
        if let Some(group) = groups.iter().find(is_none) {
            return Err(format!("kept: group {group} runs several tasks or calls; {SEVERAL}"));
        }
        let cpus = self.cpus * nodes.len() as u32;
        Ok(Market { shortest_queued_s: self.lender.shortest_queued_s(&self.partition, cpus), idle_w: self.idle_w })
    }

    fn park(&mut self, group: usize, node: &str, limit_s: f64) -> Aside {
        if let Some(dumped) = self.dumped() {
            dumped.stays_away(group);
            return Aside::Checkpoint;
        }
        let (tries, at_work) = &self.tries[group];
        let (one, at_work, post) = (tries.begin(), at_work.clone(), self.post.clone());
        let wanted = one.clone();
        let tell = move |result| post.tell_of(&one, Happening::Group(News::Parked { group, result }));
        let Some(sandbox) = self.seats.sandbox(group) else {
            tell(Err(SEVERAL.to_string()));
            return Aside::Image;
        };
        let folder = self.run.join("parked").join(format!("g{group}"));
        let mut command = self.step(&format!("park.g{group}"), node, "joulepoint");
        command.arg("park").arg("--run").arg(&self.run).args(["--group", &group.to_string()]);
        command.arg("--sandbox").arg(sandbox).arg("--into").arg(&folder);
        command.args(["--limit-s", &limit_s.min(self.limit_s).to_string()]);
        let mut wake = self.waking(group, node);
        threads::start(move || {
            let _at_work = at_work.lock().unwrap_or_else(PoisonError::into_inner);
            if !wanted.is_current() {
                return;
            }
            let dumped = room(&folder)
                .and_then(|()| said(&mut command))
                .and_then(|()| survey(&folder).map_err(|e| e.to_string()));
            if !wanted.is_current() {
                // It was told to come back while it was still being sent away.
                let _ = said(&mut wake);
            }
            tell(dumped.map(|_| folder));
        });
        Aside::Image
    }

    fn wake(&mut self, group: usize, node: &str) {
        if let Some(dumped) = self.dumped() {
            return dumped.comes_back(group);
        }
        let one = self.tries[group].0.begin();
        let mut command = self.waking(group, node);
        threads::start(move || {
            for _ in 0..WAKES {
                let Err(e) = said(&mut command) else { return };
                tracing::warn!(group, e, "the group's relay was not told to let its program come back");
                thread::sleep(WAKE_PAUSE);
                if !one.is_current() {
                    return;
                }
            }
        });
    }

    fn lend(&mut self, nodes: &[String], return_s: f64, reason: &str) {
        self.expect(return_s);
        let id = format!("{:016x}", RandomState::new().build_hasher().finish());
        let offer = Offer { job: self.job.clone(), nodes: nodes.to_vec(), return_s, reason: reason.to_string() };
        let (one, post, lender) = (self.loan.begin(), self.post.clone(), self.lender.clone());
        let (expected, file) = (self.return_s.clone(), self.run.join(LOAN));
        threads::start(move || {
            let outcome = match write_durably(&file, id.as_bytes()) {
                Ok(()) => {
                    let mut went = false;
                    lender.lend(&id, &offer, &mut |loan| {
                        if loan.lent_s.is_some() && !std::mem::replace(&mut went, true) {
                            post.tell_of(&one, Happening::Group(News::Lent));
                        }
                        *expected.lock().unwrap_or_else(PoisonError::into_inner)
                    })
                }
                Err(e) => LoanOutcome::Kept(format!("{}: {e}", file.display())),
            };
            let _ = fs::remove_file(&file);
            post.tell_of(&one, Happening::Group(News::Returned(outcome)));
        });
    }

    fn expect(&mut self, return_s: f64) {
        *self.return_s.lock().unwrap_or_else(PoisonError::into_inner) = return_s;
    }

    fn image(&self, folder: &Path) -> (String, String) {
        (RESTORE.to_string(), folder.to_string_lossy().into_owned())
    }

    fn shelter(&self) -> String {
        self.shelter.clone()
    }

    fn stop(&mut self) {
        self.tries.iter().for_each(|(tries, _)| tries.void());
        self.loan.void();
    }
}

/// Calls back what an earlier wrapper of the run had lent, and waits for it.
pub fn take_up(run: &Path, lender: &Lender) {
    let file = run.join(LOAN);
    let Ok(id) = fs::read_to_string(&file) else { return };
    let outcome = lender.take_up(id.trim(), &mut |_| now_s());
    tracing::warn!(?outcome, "an earlier wrapper of the run had lent nodes");
    let _ = fs::remove_file(file);
}

/// What `joulepoint park` does on a group's node: the program leaves its relay, and is dumped.
///
/// # Errors
/// A sentence; the program goes on then.
pub fn here(run: &Path, group: usize, sandbox: &Path, into: &Path, limit_s: f64) -> Result<f64, String> {
    let me = std::env::current_exe().map_err(|e| e.to_string())?;
    let relay = |what: &str| {
        let mut command = Command::new(me.with_file_name("joulepoint-relay"));
        command.arg(what).arg("--run").arg(run).args(["--group", &group.to_string()]);
        command
    };
    said(relay("rest").args(["--limit", &format!("{limit_s:.0}")]))?;
    let ask = Ask {
        folder: into.to_path_buf(),
        limit_s,
        memory_share: 0.0,
        compress: false,
        increments: None,
        overwritten_bytes: 0,
        keeps_leftovers: true,
        tells_going_on: false,
    };
    let dumped = client::dump(sandbox, &ask, || true, || {});
    dumped.map_err(|e| e.to_string()).map_err(|reason| match said(&mut relay("wake")) {
        Ok(()) => reason,
        Err(e) => format!("{reason}; and its relay was not told: {e}"),
    })
}

/// An empty folder, for its user only.
fn room(folder: &Path) -> Result<(), String> {
    let own = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(own)?;
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(own)
}

/// Runs a command; what it says if it fails is the reason.
fn said(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|e| format!("{}: {e}", command.get_program().to_string_lossy()))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|l| l.starts_with("joulepoint")).or_else(|| text.lines().next());
    Err(line.map_or_else(|| output.status.to_string(), str::to_string))
}

//! What the driver needs of the world, with a real and a scripted form of each.

use crate::repeated::Repeated;
use protocol::{Event, FailureKind, JobReading, Manifest, ManifestFile, Messages, Order, Phase};
use std::path::PathBuf;

/// What the world tells the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// The job script ended; 128 + signal if it was killed ([`by_signal`]).
    Exited {
        /// Exit code.
        code: i32,
    },
    /// The checkpoint that the driver asked for is copied and synced, or not.
    Checkpointed(Result<Saved, NotSaved>),
    /// The program works, and its checkpoint is still being brought to where it stays.
    GoesOn,
    /// No checkpoint can be made as the program is, and why.
    Hindered(String),
    /// The program is back from a checkpoint.
    Back,
    /// The program wrote a checkpoint by itself.
    Appeared,
    /// A node of the run is dead.
    NodeLost {
        /// Which.
        node: String,
        /// When it was heard of last.
        at_s: f64,
    },
    /// Slurm or a person wants the run to stop.
    Terminate,
    /// A person orders something; the same order may be told again.
    Ordered(Order),
    /// Another wrapper has taken the run up.
    Superseded,
    /// One group of an uncoordinated run tells something.
    Group(crate::groups::ports::News),
}

/// Why an engine has saved nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSaved {
    /// What was to be saved has ended meanwhile: that says nothing of the next time.
    #[error("{0}")]
    Ended(String),
    /// It could not be saved.
    #[error("{0}")]
    Failed(String),
}

impl NotSaved {
    /// Whether what was to be saved has ended.
    pub fn is_end(&self) -> bool {
        matches!(self, NotSaved::Ended(_))
    }
}

impl From<String> for NotSaved {
    fn from(reason: String) -> NotSaved {
        NotSaved::Failed(reason)
    }
}

/// What an engine has saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saved {
    /// The files of the checkpoint.
    pub files: Vec<ManifestFile>,
    /// For how long its program stood still, s; absent if nobody can tell.
    pub still_s: Option<f64>,
    /// What a program has made by itself and keeps elsewhere; the files only name it.
    pub kept: Option<Kept>,
}

/// A checkpoint that its program keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Kept {
    /// Its size, bytes.
    pub bytes: u64,
    /// How long the program took for it, s.
    pub took_s: f64,
}

/// Time, and everything that happens in it.
pub trait Clock {
    /// Seconds since the Unix epoch.
    fn now_s(&self) -> f64;
    /// The same moment on the clock on the wall, as seconds since its 1970.
    fn local_s(&self, at_s: f64) -> f64 {
        at_s
    }
    /// Waits for the next happening, at most until `until_s`.
    fn wait(&mut self, until_s: f64) -> Option<Happening>;
}

/// One node's counters.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeCounter {
    /// Node name.
    pub node: String,
    /// The job's counters there; absent if they could not be read.
    pub reading: Option<JobReading>,
}

/// Energy counters of the run's nodes.
pub trait Meter {
    /// Reads all nodes now; bounded in time.
    fn read(&mut self) -> Vec<NodeCounter>;
    /// A phase begins, after its cut; does not wait.
    fn enter(&mut self, _phase: Phase) {}
    /// Reads this node, too, from now on.
    fn add(&mut self, _node: &str) {}
}

/// Counters that come so late tell of another moment than the one at which they were wanted, s.
const LATE_S: f64 = 1.0;

/// The counters of all nodes, none if they come too late, and the moment at which the running phase ends. What ends by itself
/// has ended before they are read; a checkpoint begins afterwards.
pub fn read_for(meter: &mut dyn Meter, clock: &dyn Clock, next: Phase) -> (Vec<NodeCounter>, f64) {
    let asked_s = clock.now_s();
    let counters = meter.read();
    let now_s = clock.now_s();
    let counters = if now_s - asked_s > LATE_S { Vec::new() } else { counters };
    (counters, if next == Phase::Checkpoint { now_s } else { asked_s })
}

/// Why a checkpoint was not brought back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprepared {
    /// The storage does not answer, or not well: it may later.
    #[error("{0}")]
    Storage(String),
    /// It cannot be used.
    #[error("{0}")]
    Unusable(String),
}

impl From<run::Error> for Unprepared {
    fn from(e: run::Error) -> Unprepared {
        Unprepared::Storage(e.to_string())
    }
}

/// What makes and brings back checkpoints.
pub trait Engine {
    /// Name, as in `--ft-energy-engine`.
    fn name(&self) -> &str;
    /// Whether it makes a checkpoint when asked, or only takes up what the program writes by itself.
    fn on_demand(&self) -> bool;
    /// Brings the files of a checkpoint back and tells the variables that the program is to see.
    ///
    /// # Errors
    /// Why it cannot.
    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, Unprepared>;
    /// Begins a checkpoint into a folder; the answer comes as [`Happening::Checkpointed`], before it [`Happening::GoesOn`] where
    /// it is known when the program works again.
    fn begin(&mut self, into: PathBuf);
    /// Gives a checkpoint up; no answer follows.
    fn give_up(&mut self);
    /// Whether a program that is started from a checkpoint is there only when the engine tells [`Happening::Back`].
    fn tells_return(&self) -> bool {
        false
    }
    /// Whether the script begins from its first line again although its programs go on from a checkpoint.
    fn begins_anew(&self) -> bool {
        !self.tells_return()
    }
    /// What its program did since a checkpoint and does again when it is brought back from it.
    fn repeated(&self, _from: &Manifest) -> Repeated {
        Repeated::default()
    }
    /// Whether it has told the program to end after its last checkpoint, so that the program's end is not the run's.
    fn halted(&self) -> bool {
        false
    }
    /// What the script does by itself that none of its checkpoints holds: the program that works most.
    fn beside(&mut self) -> Option<String> {
        None
    }
    /// Why it has killed its program, which could not go on any more: that is no crash of the program. Told once.
    fn has_killed(&mut self) -> Option<String> {
        None
    }
    /// What is known of the messages between the nodes of its MPI programs.
    fn messages(&self) -> Option<Messages> {
        None
    }
    /// Whether the step that was lost last could not be restored, and the checkpoint has a mark for that: it has not crashed.
    fn is_unrestored(&self) -> bool {
        false
    }
}

/// A job script that could not be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotStarted {
    /// Why, with the program's name.
    pub reason: String,
    /// The exit code by which shells say it: 127 where the program is not there, else 126.
    pub code: i32,
}

impl std::fmt::Display for NotStarted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

/// The job script and everything below it.
pub trait Child {
    /// Starts the script with variables added, on the nodes that are left.
    ///
    /// # Errors
    /// Why it could not.
    fn start(&mut self, environment: &[(String, String)]) -> Result<(), NotStarted>;
    /// The job is ended from outside: what ends from now on has not ended by itself. Whoever ends it has told the script, unless that
    /// has been started since.
    fn terminate(&mut self);
    /// Passes SIGTERM on, of which the script may not have heard.
    fn pass_term_on(&mut self) {
        self.terminate();
    }
    /// Ends the script, what it started and the job's steps, and waits for that; bounded in time.
    fn stop(&mut self);
    /// Whether nothing of an earlier start goes on anywhere, as far as can be said: then the script may be started again.
    fn is_gone(&mut self) -> bool {
        true
    }
    /// Ends what runs on this node at once, and asks nobody for it: the job and its steps are another wrapper's.
    fn abandon(&mut self) {
        self.stop();
    }
    /// Whether the script itself has not ended: what is told as its end is that of a step.
    fn runs(&mut self) -> bool {
        false
    }
    /// Whether somebody has given the script, or a step of it, the signal that explains an end with this exit code: then
    /// it has not crashed.
    fn was_asked(&mut self, _code: i32) -> bool {
        false
    }
    /// Name of the running step, empty if the program runs in the script itself.
    fn step(&mut self) -> String;
}

/// The signal that killed a program, by its exit code as a shell tells it: 128 + signal. What is above is a program's own,
/// such as Perl's `die` and Python's `sys.exit(-1)` (255); so is the end by a signal that a program brings upon itself.
pub fn by_signal(code: i32) -> Option<i32> {
    let signal = Some(code - 128).filter(|signal| (1..=LAST_SIGNAL).contains(signal))?;
    (!OWN_SIGNALS.contains(&signal)).then_some(signal)
}

/// SIGPIPE of who writes to a closed pipe (`set -o pipefail` makes it a script's end), and SIGALRM of who sets an alarm.
const OWN_SIGNALS: [i32; 2] = [13, 14];
/// SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2 and SIGTERM, by which somebody asks a program to end or to save.
pub const ASKING: [i32; 6] = [1, 2, 3, 10, 12, 15];

/// The highest number of a signal of Linux, SIGRTMAX.
const LAST_SIGNAL: i32 = 64;

/// Exit code of a job that somebody has cancelled: that of SIGTERM.
pub const CANCELLED: i32 = 143;

pub use protocol::LATEST_SIGNAL;

/// How a job stands by Slurm's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It runs, and nobody ends it.
    Runs,
    /// Slurm says that its script has failed, which has not ended.
    FailedAlone,
    /// It is being ended for this reason.
    Ends(FailureKind),
    /// Slurm does not say.
    Unknown,
}

/// What the cluster knows of the job.
pub trait Cluster {
    /// Nodes that are dead, with the moment they were heard of last.
    fn dead_nodes(&mut self) -> Vec<(String, f64)>;
    /// Whether a node of the run is suspected, so that a verdict is worth waiting for.
    fn suspects(&mut self) -> bool;
    /// Why the job is being ended, as Slurm's job state tells it; none while it runs as it should.
    fn cause(&mut self) -> Option<FailureKind>;
    /// Whether Slurm says that the job runs, and is ended by nobody.
    fn runs_on(&mut self) -> bool;
    /// How the job stands, of which somebody has asked that it end.
    fn standing(&mut self) -> Standing {
        match self.cause() {
            Some(kind) => Standing::Ends(kind),
            None if self.runs_on() => Standing::Runs,
            None => Standing::Unknown,
        }
    }
    /// Whether somebody has cancelled the job, which is about to go back into the queue for this reason: that ends it for good.
    /// Of a job that has lost a node, Slurm's word tells less.
    fn is_cancelled(&mut self, but_for: FailureKind) -> bool {
        let by_nodes = matches!(but_for, FailureKind::Node | FailureKind::BatchHost);
        !by_nodes && self.cause() == Some(FailureKind::Cancelled)
    }
    /// How long Slurm leaves programs from SIGTERM to SIGKILL (KillWait), s.
    fn kill_wait_s(&mut self) -> f64 {
        30.0
    }
    /// When the job's time is up, s since the epoch: it may have been changed since the run began. None if that is not known.
    fn end_s(&mut self) -> Option<f64> {
        None
    }
    /// Puts the job back into the queue.
    ///
    /// # Errors
    /// A sentence.
    fn requeue(&mut self) -> Result<(), String>;
    /// Puts the job back into the queue, where it waits until a person releases it.
    ///
    /// # Errors
    /// A sentence.
    fn requeue_held(&mut self) -> Result<(), String> {
        self.requeue()
    }
}

/// Everything of the run that outlives its wrapper. Every call shows the fencing token first, and tells of a newer holder.
pub trait Store {
    /// Writes records durably, all or none.
    ///
    /// # Errors
    /// The run goes on, unless a newer holder has it.
    fn append(&mut self, at_s: f64, events: Vec<Event>) -> run::Result<()>;
    /// The folder for the next checkpoint, and its number.
    ///
    /// # Errors
    /// Such as a full disk.
    fn room(&mut self) -> run::Result<(u64, PathBuf)>;
    /// Makes a checkpoint complete; those beyond the number to keep go when it was read back.
    ///
    /// # Errors
    /// Earlier checkpoints stay valid.
    fn commit(&mut self, manifest: &Manifest) -> run::Result<()>;
    /// The newest checkpoint whose files are all there and unchanged; those that are not used are named.
    ///
    /// # Errors
    /// There are checkpoints, and none can be read now: the run must not begin anew for that.
    fn newest(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)>;
    /// The same where nothing goes back to it: what is known of steps that have ended stays.
    ///
    /// # Errors
    /// As for [`Store::newest`].
    fn look(&mut self) -> run::Result<(Option<Manifest>, Vec<String>)> {
        self.newest()
    }
    /// Whether there still is a complete checkpoint; none while that cannot be said at once.
    fn has_any(&mut self) -> Option<bool> {
        None
    }
    /// Whether the run is this wrapper's still; asked before its program is started.
    ///
    /// # Errors
    /// A newer holder has it, or nobody can tell now.
    fn show(&mut self) -> run::Result<()> {
        Ok(())
    }
    /// End of the last step that is not run again; computing before it is kept.
    fn finished_s(&self) -> f64 {
        0.0
    }
    /// What all lives of the run so far have left in the job's folder.
    fn left(&self) -> Repeated {
        Repeated::default()
    }
    /// Waits until all records are delivered, at most `limit_s`.
    fn flush(&mut self, limit_s: f64);
}

/// All ports of a driver.
pub struct Ports<'a> {
    /// Time and happenings.
    pub clock: &'a mut dyn Clock,
    /// Energy.
    pub meter: &'a mut dyn Meter,
    /// Checkpoints.
    pub engine: &'a mut dyn Engine,
    /// The script.
    pub child: &'a mut dyn Child,
    /// The cluster.
    pub cluster: &'a mut dyn Cluster,
    /// Durable things.
    pub store: &'a mut dyn Store,
}

//! What the driver of groups needs of the world beside the ports of every driver.

use crate::ports::{Child, Clock, Cluster, Engine, Meter, NotSaved, Saved, Store};
use protocol::{Manifest, Messages};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What the world tells of groups.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// The script called `srun`; these groups have a share in the call.
    Called {
        /// Number of the call within this wrapper.
        call: u64,
        /// Groups with a share.
        groups: Vec<usize>,
    },
    /// A group's share of a call ended, and its step is gone.
    Ended {
        /// Which call.
        call: u64,
        /// Whose share.
        group: usize,
        /// Exit code; 128 + signal if it was killed.
        code: i32,
        /// Accounting says that a person has cancelled it.
        is_cancelled: bool,
    },
    /// The script has asked a call to end: its shares end for good, however they do.
    Ending {
        /// Which call.
        call: u64,
    },
    /// Nobody waits for the end of a call any more.
    Dropped {
        /// Which call.
        call: u64,
    },
    /// A group's checkpoint is copied and synced, or not.
    Checkpointed {
        /// Whose.
        group: usize,
        /// What it has.
        result: Result<Saved, NotSaved>,
    },
    /// A group's program works while its checkpoint is brought to where it stays.
    GoesOn {
        /// Whose.
        group: usize,
    },
    /// A group's program wrote a checkpoint by itself.
    Appeared {
        /// Whose.
        group: usize,
    },
    /// The job has a node that it did not have.
    Joined {
        /// Which.
        node: String,
    },
    /// What another group wants was only in a log of this one that is lost: it has to be sent again.
    Lacking {
        /// Who has to send it.
        group: usize,
        /// Who wants it.
        to: usize,
    },
    /// A rank of an MPI program that was restored sends other messages than before.
    Differs {
        /// Its group.
        group: usize,
        /// The rank.
        from: usize,
        /// To which rank it sends.
        to: usize,
    },
    /// A program of all groups would not repeat itself if one of them went back alone.
    Varies {
        /// Of whom it was seen.
        group: usize,
        /// By what.
        why: Varies,
    },
    /// A group's relay has ended, and its log in memory with it.
    LogLost {
        /// Whose.
        group: usize,
    },
    /// No relay of a group can begin on a node.
    Unserved {
        /// Whose.
        group: usize,
        /// Where.
        node: String,
        /// What was said of it.
        why: String,
    },
    /// A survivor is dumped, and stands still beyond it; or it goes on.
    Parked {
        /// Whose.
        group: usize,
        /// The folder of its image, which is whole and synced.
        result: Result<PathBuf, String>,
    },
    /// The job has given the nodes of the parked groups up.
    Lent,
    /// They are back, were never given away, or are lost.
    Returned(LoanOutcome),
}

/// By what a program of all groups would not repeat itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Varies {
    /// What it does depends on when its ranks reach each other, as with windows and files of all.
    Moments,
    /// Another group writes to the same file, and would lose what it has written.
    File {
        /// The file.
        path: PathBuf,
        /// The other group.
        with: usize,
    },
}

/// What became of nodes that were to be lent.
#[derive(Clone, Debug, PartialEq)]
pub enum LoanOutcome {
    /// These are the job's again; those that died while they were lent are missing.
    Back {
        /// Node names.
        nodes: Vec<String>,
        /// How long they were away, s.
        away_s: f64,
        /// Since when they are back, s since the epoch.
        back_s: f64,
    },
    /// They never left, for this reason: let them idle at a low frequency.
    Kept(String),
    /// The loan has failed: the job is being requeued, or is gone.
    Lost(String),
}

/// Exit code of an `srun` whose step Slurm did not begin.
pub const NOT_BEGUN: i32 = 213;

/// What `srun` would have exited with by itself.
pub fn own_code(code: i32) -> i32 {
    if code == NOT_BEGUN { 1 } else { code }
}

/// How much memory of a node a step has; with 0 it shares what the job has there. Slurm refuses it beside the other ways
/// to say how much memory a step has.
pub const NODE_MEMORY: &str = "SLURM_MEM_PER_NODE";

/// The groups' shares in the script's calls of `srun`.
pub trait Shares {
    /// Starts a group's share of a call; `places` are the nodes of all groups. The exit code of one that had ended for
    /// good before, and is not started.
    fn start(
        &mut self,
        call: u64,
        group: usize,
        places: &[Vec<String>],
        environment: &[(String, String)],
    ) -> Option<i32>;
    /// A group's share has ended by itself, for good.
    fn over(&mut self, call: u64, group: usize, code: i32);
    /// Ends a group's share; [`News::Ended`] follows.
    fn stop(&mut self, call: u64, group: usize);
    /// The call has ended with this exit code.
    fn end(&mut self, call: u64, code: i32);
    /// Why the script is not to have groups, if a call of it runs without.
    fn messages(&self) -> Option<Messages> {
        None
    }
}

/// The recovery lines of the groups, numbered through the whole run. Every call shows the fencing token first.
pub trait Lines {
    /// The folder for a group's next checkpoint, and its number.
    ///
    /// # Errors
    /// Such as a full disk.
    fn room(&mut self, group: usize) -> run::Result<(u64, PathBuf)>;
    /// Makes a checkpoint complete; those beyond the number to keep go when it was read back.
    ///
    /// # Errors
    /// Earlier checkpoints stay valid.
    fn commit(&mut self, group: usize, manifest: &Manifest) -> run::Result<()>;
    /// Checkpoints of a group from a number on are never used any more.
    ///
    /// # Errors
    /// What the file system says.
    fn forget_from(&mut self, group: usize, number: u64) -> run::Result<()>;
    /// The newest checkpoint of a group whose files are all there and unchanged; those that are not used are named.
    ///
    /// # Errors
    /// There are checkpoints, and none can be read now.
    fn newest(&mut self, group: usize) -> run::Result<(Option<Manifest>, Vec<String>)>;
    /// Folders for checkpoints of all groups that may become one line, by group, and their common number.
    ///
    /// # Errors
    /// Such as a full disk.
    fn rooms(&mut self) -> run::Result<(u64, Vec<PathBuf>)>;
    /// The checkpoints of all groups with this number are one line. The line before stays until all of this one was read
    /// back.
    ///
    /// # Errors
    /// It counts for no line.
    fn join(&mut self, number: u64) -> run::Result<()>;
    /// The checkpoints with this number are no line, and are never used.
    ///
    /// # Errors
    /// What the file system says.
    fn part(&mut self, number: u64) -> run::Result<()>;
    /// The program whose lines these are has ended.
    ///
    /// # Errors
    /// What the file system says.
    fn over(&mut self) -> run::Result<()>;
    /// All groups go back to the newest line of which all have a complete checkpoint; its number. What is no part of it is
    /// never used any more: nothing at all without a line, if all then begin `anew`, or if there was one that is damaged.
    ///
    /// # Errors
    /// What the file system says.
    fn all_back(&mut self, anew: bool) -> run::Result<Option<u64>>;
    /// The folder of a group's checkpoint.
    fn folder(&self, group: usize, number: u64) -> PathBuf;
}

/// Why checkpoints of all groups, made at once, are no line to which all could go back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLine {
    /// A group has not made its part.
    #[error("group {0}: {1}")]
    Missing(usize, String),
    /// Ranks have not met yet, or a restored one has not sent everything again yet.
    #[error("not all ranks of the program have met, or have caught up")]
    NotMet,
    /// The groups were not all ready in time.
    #[error("not all groups were ready in time")]
    Late,
    /// What was saved cannot be read, or the folder of the lines cannot be written.
    #[error("{0}")]
    Storage(String),
}

/// The relays through which coupled groups talk.
pub trait Relays {
    /// The relay of a group is to be on this node, and nowhere else.
    fn place(&mut self, group: usize, node: &str);
    /// The group's program is about to start: what is known to be lost to the one before is no news of this one.
    fn starts(&mut self, _group: usize) {}
    /// What the group's program must see to find it.
    fn variables(&self, group: usize) -> Vec<(String, String)>;
    /// Messages that a group's program has to send again until it is where it was; none while that is not known.
    fn behind(&mut self, _group: usize) -> Option<u64> {
        None
    }
    /// Whether an MPI program of all groups runs, of which one line can be made.
    fn gathers(&self) -> bool {
        false
    }
    /// Checkpoints of all groups begin in these folders, by group, with one number: what the relays hold is saved there while
    /// the ranks of all groups are away from them.
    fn gather(&mut self, _number: u64, _folders: &[PathBuf]) {}
    /// A group will have no part in that: the others need not wait for it.
    fn disperse(&mut self, _why: NoLine) {}
    /// Whether the checkpoints with this number, which are complete, are one line.
    ///
    /// # Errors
    /// Why not.
    fn gathered(&mut self, number: u64) -> Result<(), NoLine> {
        Err(NoLine::Missing(0, format!("checkpoint {number} was none of all groups")))
    }
    /// All groups go back to a line, whose folders these are, by group, or begin anew; none of them runs.
    fn all_back(&mut self, _line: Option<Vec<PathBuf>>) {}
    /// Node-seconds that a group's relay has spent logging since this was asked last.
    fn logged_node_s(&mut self, group: usize) -> f64;
    /// Ends all relays.
    fn stop(&mut self);
}

/// Groups that do not talk have no relays.
pub struct NoRelays;

impl Relays for NoRelays {
    fn place(&mut self, _: usize, _: &str) {}

    fn variables(&self, _: usize) -> Vec<(String, String)> {
        Vec::new()
    }

    fn logged_node_s(&mut self, _: usize) -> f64 {
        0.0
    }

    fn stop(&mut self) {}
}

/// How a survivor is put aside; its program stands still after that until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// By an image of its own: [`News::Parked`] follows.
    Image,
    /// By a checkpoint that its engine is to be asked for.
    Checkpoint,
}

/// What survivors are put aside by, and their nodes lent; runs that lend nothing have only the first.
pub trait Lending {
    /// What policy must know before anything is done; a sentence if these groups, on these nodes, cannot be lent.
    ///
    /// # Errors
    /// The sentence.
    fn market(&mut self, groups: &[usize], nodes: &[String]) -> Result<Market, String>;
    /// These nodes of groups wait and are not lent, and no others.
    fn idle(&mut self, _: BTreeSet<String>) {}
    /// Puts a group aside within a time, and says how.
    fn park(&mut self, _group: usize, _node: &str, _limit_s: f64) -> Aside {
        Aside::Image
    }
    /// A group that was to be parked goes on.
    fn wake(&mut self, _group: usize, _node: &str) {}
    /// Lends nodes on which nothing runs until `return_s`; [`News::Returned`] follows, in between [`News::Lent`].
    fn lend(&mut self, _nodes: &[String], _return_s: f64, _reason: &str) {}
    /// The nodes are needed at another moment than was said.
    fn expect(&mut self, _return_s: f64) {}
    /// What a group's program must see to go on from its image.
    fn image(&self, _: &Path) -> (String, String) {
        Default::default()
    }
    /// Where the relays of parked groups can be.
    fn shelter(&self) -> String {
        String::new()
    }
    /// The run ends: nothing is waited for any more.
    fn stop(&mut self) {}
}

/// What a platform offers for nodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Market {
    /// Time limit of the shortest job that waits and would fit, s; absent if none waits.
    pub shortest_queued_s: Option<f64>,
    /// Power of an idle node, W.
    pub idle_w: f64,
}

/// Runs that keep what they have.
pub struct NoLending;

impl Lending for NoLending {
    fn market(&mut self, _: &[usize], _: &[String]) -> Result<Market, String> {
        Err("--ft-energy-lend=yes was not asked for".to_string())
    }
}

/// All ports of a driver of groups.
pub struct GroupPorts<'a> {
    /// Time and happenings.
    pub clock: &'a mut dyn Clock,
    /// Energy.
    pub meter: &'a mut dyn Meter,
    /// Checkpoints, one engine for each group.
    pub engines: Vec<&'a mut dyn Engine>,
    /// The script.
    pub child: &'a mut dyn Child,
    /// The cluster.
    pub cluster: &'a mut dyn Cluster,
    /// The journal; its checkpoints are not used.
    pub store: &'a mut dyn Store,
    /// The groups' checkpoints.
    pub lines: &'a mut dyn Lines,
    /// The groups' programs.
    pub shares: &'a mut dyn Shares,
    /// What coupled groups talk through.
    pub relays: &'a mut dyn Relays,
    /// What lends the nodes of those that wait.
    pub lending: &'a mut dyn Lending,
}

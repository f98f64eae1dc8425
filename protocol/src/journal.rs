//! What a run's wrapper writes down, and what makes a checkpoint complete.

use crate::{JobReading, OrderState, OrderedCheckpoint, Phase, Plan, Protection, Verb};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Names one run: the Slurm job it was submitted as, on one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunKey {
    /// Slurm cluster name.
    pub cluster: String,
    /// Slurm job id at the first submission, and when that was (job ids are reused).
    pub run: String,
}

/// Why work stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// A compute node, or its slurmd, died.
    Node,
    /// The node of the batch script died.
    BatchHost,
    /// The wrapper was killed.
    Wrapper,
    /// A step was ended by a signal that nobody asked for.
    Step,
    /// The scheduler took the nodes for another job.
    Preempted,
    /// The time limit was reached.
    Timeout,
    /// The user or an operator cancelled the job.
    Cancelled,
    /// The user or an operator requeued the job.
    Requeued,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [FailureKind; 8] = [
        FailureKind::Node,
        FailureKind::BatchHost,
        FailureKind::Wrapper,
        FailureKind::Step,
        FailureKind::Preempted,
        FailureKind::Timeout,
        FailureKind::Cancelled,
        FailureKind::Requeued,
    ];

    /// Whether it is a failure of the machine, and so feeds the MTBF.
    pub fn is_true_failure(self) -> bool {
        matches!(self, FailureKind::Node | FailureKind::BatchHost)
    }

    /// The name used in files, on the wire and in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            FailureKind::Node => "node",
            FailureKind::BatchHost => "batch_host",
            FailureKind::Wrapper => "wrapper",
            FailureKind::Step => "step",
            FailureKind::Preempted => "preempted",
            FailureKind::Timeout => "timeout",
            FailureKind::Cancelled => "cancelled",
            FailureKind::Requeued => "requeued",
        }
    }
}

/// One file of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Path of the copy, relative to the checkpoint's folder.
    pub copy: String,
    /// Path from which it was taken and to which a restart brings it back.
    #[serde(with = "crate::name")]
    pub original: PathBuf,
    /// Size, bytes.
    pub bytes: u64,
    /// XXH3-128 of the content, hexadecimal.
    pub xxh3: String,
    /// What it was beside its content; absent for files that go nowhere, and in manifests of versions before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attributes: Option<FileAttributes>,
    /// What it is, if it has no copy of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<FileLink>,
    /// What the original looked like, if nobody could write to it while it was copied: one that looks the same is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<FileLooks>,
    /// The checkpoint for which the copy was written, if not for this one: it is one more name of that copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied_for: Option<u64>,
}

/// What tells one state of a file from another, beside its size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileLooks {
    /// Device.
    pub device: u64,
    /// Number on the device.
    pub inode: u64,
    /// Last change of the content: seconds since the Unix epoch, and nanoseconds.
    pub modified: (i64, i64),
    /// Last change of content or attributes, likewise.
    pub changed: (i64, i64),
}

/// A name that leads to something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileLink {
    /// A symbolic link to this path.
    Symbolic(#[serde(with = "crate::name")] PathBuf),
    /// One more name of the file that was taken from this path.
    Hard(#[serde(with = "crate::name")] PathBuf),
}

/// What a file is beside its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileAttributes {
    /// Permission bits, with those for set-id and sticky.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content: seconds since the Unix epoch, and nanoseconds.
    pub modified: (i64, u32),
    /// Last reading, likewise.
    pub accessed: (i64, u32),
    /// Extended attributes, with POSIX ACLs; the values in hexadecimal.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extended: BTreeMap<String, String>,
}

/// File in a checkpoint's folder that tells why it could not be restored.
pub const NOT_RESTORED: &str = "not-restored";

/// The file that makes a checkpoint complete: written last, atomically.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Protocol version of the writer.
    pub version: u32,
    /// Number of the checkpoint within the run, from 1.
    pub number: u64,
    /// When the engine was asked, or when the program began by itself.
    pub begun_s: f64,
    /// When all files were copied and synced.
    pub ended_s: f64,
    /// Energy used by all nodes of the run between the two, J; absent if nothing could be read.
    pub joules: Option<f64>,
    /// Sum of the files' sizes, bytes.
    pub bytes: u64,
    /// Slurm step that was running, such as `12.0`; empty if the program runs in the batch script.
    pub step: String,
    /// Engine that made it.
    pub engine: String,
    /// Number of the run's holder that made it; absent in those of versions before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u64>,
    /// The files.
    pub files: Vec<ManifestFile>,
}

impl Manifest {
    /// The version of one whose dump is stored in blocks: who does not know these must not take it for damaged.
    pub const WITH_BLOCKS: u32 = 2;

    /// Folder of a dump with its blocks.
    pub const BLOCKS: &str = "blocks";

    /// The version that this one must have.
    pub fn needed_version(&self) -> u32 {
        let is_block = |file: &ManifestFile| file.copy.split('/').any(|part| part == Manifest::BLOCKS);
        if self.files.iter().any(is_block) { Manifest::WITH_BLOCKS } else { crate::VERSION }
    }

    /// How much was written for this checkpoint alone, bytes.
    pub fn written_bytes(&self) -> u64 {
        self.files.iter().filter(|file| file.copied_for.is_none()).map(|file| file.bytes).sum()
    }
}

/// One thing that happened to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A wrapper took up the run: the first one, one after a requeue, or one restarted in place.
    Started {
        /// Slurm job id of this record.
        job: u32,
        /// SLURM_RESTART_COUNT.
        restart_count: u32,
        /// User name.
        user: String,
        /// Slurm account.
        account: String,
        /// Slurm partition.
        partition: String,
        /// Job name.
        job_name: String,
        /// Nodes of the allocation.
        nodes: Vec<String>,
        /// Number of the checkpoint it resumes from.
        resumed_from: Option<u64>,
        /// The folder of the run.
        dir: String,
    },
    /// What will be done.
    Planned(Box<Plan>),
    /// The run is protected otherwise than before.
    Protection(Box<Protection>),
    /// A phase came to its end on one node.
    Phase {
        /// What the node was doing.
        phase: Phase,
        /// Node name.
        node: String,
        /// Beginning.
        start_s: f64,
        /// End.
        end_s: f64,
        /// Energy in between, J; absent if nothing could be read, never a silent zero.
        joules: Option<f64>,
        /// Where the energy figure comes from.
        source: String,
    },
    /// The last counters of a job on a node, by which phases are checked against the measured total.
    Reading {
        /// Node name.
        node: String,
        /// The counters.
        reading: JobReading,
    },
    /// A checkpoint became complete.
    Committed {
        /// Its number.
        number: u64,
        /// When it was begun.
        begun_s: f64,
        /// When it was complete.
        ended_s: f64,
        /// Volume, bytes.
        bytes: u64,
        /// How much of it was written for this checkpoint, bytes: files that had not changed share the copy of an earlier
        /// one. Absent from versions before, that wrote all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        written_bytes: Option<u64>,
        /// Energy, J.
        joules: Option<f64>,
        /// For how long of this the program stood still, s; absent if nobody could tell.
        still_s: Option<f64>,
    },
    /// A checkpoint did not become complete.
    CheckpointFailed {
        /// What went wrong.
        reason: String,
    },
    /// Work stopped before its end.
    Failure {
        /// Of which kind.
        kind: FailureKind,
        /// Which node, if one.
        node: Option<String>,
        /// When it happened, as far as known. (Not `at_s`: that is the record's.)
        failed_s: f64,
        /// When it was noticed.
        detected_s: f64,
        /// What was seen.
        reason: String,
    },
    /// The run went back to a recovery line; computing done after it is lost work.
    RolledBack {
        /// Number of the checkpoint; absent if it starts from the beginning.
        to: Option<u64>,
        /// Moment up to which work is kept.
        kept_until_s: f64,
    },
    /// A node was lent to another job, and is back.
    Lent {
        /// Node name.
        node: String,
        /// Slurm job id of the borrower; absent if nobody came.
        borrower: Option<u32>,
        /// When the node was given away.
        start_s: f64,
        /// When it was back.
        end_s: f64,
        /// Energy that the borrower used, J: not the run's.
        joules: Option<f64>,
    },
    /// Policy decided something new.
    Decided {
        /// What.
        action: String,
        /// Why.
        reason: String,
        /// Checkpoint interval in force, s.
        interval_s: f64,
    },
    /// What came of an order.
    Ordered {
        /// Its id.
        id: String,
        /// What was ordered.
        verb: Verb,
        /// Who ordered it.
        by: String,
        /// Whether it is done or could not be.
        state: OrderState,
        /// What came of it, in words.
        text: String,
        /// The checkpoint that was made for it.
        checkpoint: Option<OrderedCheckpoint>,
    },
    /// What the nodes of its MPI programs have told each other.
    Messages(Messages),
    /// Something happened to one group of an uncoordinated run, not to the whole.
    InGroup {
        /// Number of the group, from 0.
        group: u32,
        /// Nodes of the group then.
        nodes: Vec<String>,
        /// What happened.
        of: Box<Event>,
    },
    /// The wrapper left the run.
    Ended {
        /// `completed`, `failed`, `requeued`, `cancelled`, `timeout`.
        state: String,
        /// Exit code of the job script, 128 + signal if it was killed.
        exit_code: i32,
    },
}

/// What is known of the nodes of a run's MPI programs: how many messages they sent each other, as their relays counted them,
/// and whether each could go back alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Messages {
    /// The script, by its fingerprint: a script that was changed may be another program.
    pub script: String,
    /// Nodes that the script has.
    pub nodes: u32,
    /// The messages of the whole script; absent where not all of them were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Why these nodes could not go back one by one; absent if nothing is known against it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<String>,
}

/// Messages from one node to another; of a long one each part counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// In which time, s.
    pub over_s: f64,
}

/// One line of a run's journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Position in the run's journal, from 1, without gaps.
    pub seq: u64,
    /// When it was written.
    pub at_s: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Records on their way to the store.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// Protocol version of the sender.
    pub version: u32,
    /// The run they belong to.
    pub key: RunKey,
    /// Number of the run's holder that sends them; absent from versions before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u64>,
    /// In order of `seq`.
    pub records: Vec<Record>,
}

/// What the store answers to a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// All records up to this position are stored.
    pub upto: u64,
}

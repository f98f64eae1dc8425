//! Reads `scontrol show step -o`.

use crate::Error;
use crate::fields::Fields;
use crate::nodelist::expand_nodelist;

/// The keys that `scontrol show step -o` prints from 22.05 to 26.05.
const KEYS: &[&str] = &[
    "StepId",
    "SLUID",
    "UserId",
    "StartTime",
    "TimeLimit",
    "State",
    "Partition",
    "NodeList",
    "Nodes",
    "CPUs",
    "Tasks",
    "Name",
    "Network",
    "TRES",
    "ResvPorts",
    "CPUFreqReq",
    "Dist",
    "SrunHost:Pid",
    "TresPerJob",
    "TresPerNode",
    "TresPerSocket",
    "TresPerStep",
    "TresPerTask",
    "TresBind",
    "TresFreq",
    "CpusPerTres",
    "MemPerTres",
    "Container",
    "ContainerId",
    "Checkpoint",
    "CheckpointDir",
    "SubmitLine",
    "StdErr",
    "StdIn",
    "StdOut",
    "Cwd",
    "TimeLimitRaw",
];

/// A running step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its id, such as `12.0` or `12.batch`.
    pub id: String,
    /// Nodes it runs on.
    pub nodes: Vec<String>,
    /// Slurm's word for what it is doing.
    pub state: String,
    /// Its name: the program.
    pub name: String,
    /// When it started.
    pub start_s: Option<f64>,
}

impl Step {
    /// Whether a user's `srun` made it (not Slurm itself: batch, extern, interactive).
    pub fn is_users(&self) -> bool {
        self.id.rsplit('.').next().is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// The steps of a job in the output of `scontrol show step -o JOB`.
pub fn parse_steps(text: &str, job: u32) -> Result<Vec<Step>, Error> {
    let mine = format!("StepId={job}.");
    text.lines().filter(|l| l.starts_with(&mine)).map(parse_step).collect()
}

fn parse_step(line: &str) -> Result<Step, Error> {
    let f = Fields::split("a step".into(), line, KEYS);
    Ok(Step {
        id: f.need("StepId")?.to_owned(),
        nodes: expand_nodelist(f.get("NodeList")?.unwrap_or_default())?,
        state: f.text("State")?,
        name: f.text("Name")?,
        start_s: f.time("StartTime")?,
    })
}

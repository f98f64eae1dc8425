//! Counts node-seconds by phase, and turns them into energy.

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Work that has not been done before.
    Compute,
    /// The share of computing that message logging takes.
    Logging,
    /// A checkpoint is being written.
    Checkpoint,
    /// Work done again after a failure.
    Reexecution,
    /// A checkpoint is being read.
    Restart,
    /// A survivor waits for the others.
    Survivor,
    /// A borrower is being loaded or saved.
    Loan,
    /// A borrower works.
    Lent,
    /// A shadow runs.
    Shadow,
    /// A failed node, or one that waits for its replacement.
    Down,
    /// A spare node waits for a failure.
    Spare,
    /// A node in service without a job.
    Empty,
}

impl Phase {
    /// All of them, in the order of a report.
    pub const ALL: [Phase; 12] = [
        Phase::Compute,
        Phase::Logging,
        Phase::Checkpoint,
        Phase::Reexecution,
        Phase::Restart,
        Phase::Survivor,
        Phase::Loan,
        Phase::Lent,
        Phase::Shadow,
        Phase::Down,
        Phase::Spare,
        Phase::Empty,
    ];

    /// Its name in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Compute => "compute",
            Phase::Logging => "logging",
            Phase::Checkpoint => "checkpoint",
            Phase::Reexecution => "re-execution",
            Phase::Restart => "restart",
            Phase::Survivor => "idle-survivor",
            Phase::Loan => "loan",
            Phase::Lent => "lent",
            Phase::Shadow => "shadow",
            Phase::Down => "down",
            Phase::Spare => "idle-spare",
            Phase::Empty => "no-job",
        }
    }
}

/// Power of a node by phase, in watts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watts {
    by_phase: [f64; 12],
    /// What computing adds at full speed; a shadow adds its share by the square of its speed (Mills).
    pub compute_w: f64,
}

impl Watts {
    /// Aupy15's model: `compute_w`, `io_w` and `down_w` are overheads over `static_w`; during a checkpoint a share
    /// `alpha` of computing goes on.
    pub fn of(static_w: f64, compute_w: f64, io_w: f64, down_w: f64, alpha: f64) -> Watts {
        let by_phase = Phase::ALL.map(|phase| match phase {
            Phase::Compute | Phase::Logging | Phase::Reexecution | Phase::Lent | Phase::Shadow => static_w + compute_w,
            Phase::Checkpoint => static_w + io_w + alpha * compute_w,
            Phase::Restart | Phase::Loan => static_w + io_w,
            Phase::Survivor | Phase::Spare | Phase::Empty => static_w,
            Phase::Down => static_w + down_w,
        });
        Watts { by_phase, compute_w }
    }

    /// The power of a phase.
    pub fn at(&self, phase: Phase) -> f64 {
        self.by_phase[phase as usize]
    }

    /// Replaces the power of a phase.
    pub fn set(&mut self, phase: Phase, watts: f64) {
        self.by_phase[phase as usize] = watts;
    }
}

/// Node-seconds by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ledger {
    node_s: [f64; 12],
    /// Sum of node-seconds times (speed squared minus one).
    speed_node_s: [f64; 12],
}

impl Ledger {
    /// Node-seconds of a phase.
    pub fn node_s(&self, phase: Phase) -> f64 {
        self.node_s[phase as usize]
    }

    /// Node-seconds of all phases.
    pub fn total_node_s(&self) -> f64 {
        self.node_s.iter().sum()
    }

    /// Energy of a phase, in joules.
    pub fn energy_j(&self, phase: Phase, watts: &Watts) -> f64 {
        self.node_s(phase) * watts.at(phase) + self.speed_node_s[phase as usize] * watts.compute_w
    }

    /// Energy of all phases, in joules.
    pub fn total_j(&self, watts: &Watts) -> f64 {
        Phase::ALL.iter().map(|phase| self.energy_j(*phase, watts)).sum()
    }

    pub(super) fn charge(&mut self, phase: Phase, nodes: f64, seconds: f64) {
        self.node_s[phase as usize] += nodes * seconds;
    }

    /// Charges nodes that run at another speed than full.
    pub(super) fn charge_at_speed(&mut self, phase: Phase, nodes: f64, seconds: f64, speed: f64) {
        self.charge(phase, nodes, seconds);
        self.speed_node_s[phase as usize] += nodes * seconds * (speed * speed - 1.0);
    }

    /// Charges phases that follow each other from `from_s` on, cut at `until_s`; returns the node-seconds charged.
    pub(super) fn charge_stages(&mut self, nodes: f64, from_s: f64, until_s: f64, stages: &[(Phase, f64)]) -> f64 {
        let mut left_s = (until_s - from_s).max(0.0);
        let mut charged_s = 0.0;
        for (phase, length_s) in stages {
            let seconds = length_s.max(0.0).min(left_s);
            self.charge(*phase, nodes, seconds);
            left_s -= seconds;
            charged_s += seconds;
        }
        nodes * charged_s
    }
}

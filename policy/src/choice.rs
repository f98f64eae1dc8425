//! Chooses the protocol of a run before it starts, from what each operation costs, and says why.
//!
//! Each alternative is taken at its own best interval under the bounds ([`crate::interval`]) and added up over the
//! whole run, failures and recovery included. Failure-free it is Aupy15 §1.3: coordination is paid with every
//! checkpoint, logging once, so that they are even at n* = E_log / E_coord checkpoints.
//!
//! **Uncertainty.** Each figure's 95 % interval is carried through to time and energy, one figure at a time, and the
//! effects added as independent ones. Two alternatives are compared by the interval of their *difference*: a figure
//! that both share, such as the checkpoint's, cancels. Where it holds zero they cannot be told apart, and the safer
//! is taken, in the order of [`Protocol`].

mod alternative;
mod whole;

pub use whole::Parts;

use crate::estimate::{Cost, Estimate};
use crate::interval::{Bounds, Expected, Limit, Objective};
use crate::invalid::Invalid;
use crate::phrase::{duration, energy, percent};
use alternative::{check, estimate};

/// The protocols, the safest first. Coordinated needs no log and survives any number of failures at once. A log on
/// disk outlives its process and takes no memory from the program; one in memory does neither. Lending brings other
/// people's jobs into the run. A shadow survives one failure, on twice the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// All nodes return to one recovery line.
    Coordinated,
    /// A failed group returns alone, and is sent its messages again from logs on disk.
    DiskLog,
    /// The same with logs in memory, which each checkpoint carries.
    MemoryLog,
    /// [`Protocol::DiskLog`], and the waiting groups are lent.
    DiskLogLent,
    /// [`Protocol::MemoryLog`], and the waiting groups are lent.
    MemoryLogLent,
    /// Each node is followed by a shadow that takes over.
    Shadow,
}

impl Protocol {
    /// All, the safest first.
    pub const ALL: [Protocol; 6] = [
        Protocol::Coordinated,
        Protocol::DiskLog,
        Protocol::MemoryLog,
        Protocol::DiskLogLent,
        Protocol::MemoryLogLent,
        Protocol::Shadow,
    ];

    /// The name used in plans and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Protocol::Coordinated => "coordinated",
            Protocol::DiskLog => "uncoordinated-disk",
            Protocol::MemoryLog => "uncoordinated-memory",
            Protocol::DiskLogLent => "uncoordinated-disk-lent",
            Protocol::MemoryLogLent => "uncoordinated-memory-lent",
            Protocol::Shadow => "shadow",
        }
    }

    fn is_lent(self) -> bool {
        matches!(self, Protocol::DiskLogLent | Protocol::MemoryLogLent)
    }
}

/// The run that is to be protected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Nodes, N.
    pub nodes: f64,
    /// Groups of an uncoordinated run, G.
    pub groups: f64,
    /// MTBF of all nodes together.
    pub mtbf_s: f64,
    /// Duration without failures, checkpoints and logging.
    pub work_s: f64,
    /// Growth of a checkpoint that carries a memory log, per second of execution (Bouteiller13's beta).
    pub growth_per_s: f64,
    /// Saving and loading a borrower.
    pub load_save_s: f64,
    /// The longest over the shortest runtime of a shadowed run.
    pub laxity: f64,
    /// The interval that somebody has fixed for all.
    pub interval_s: Option<f64>,
}

/// What the operations of the run cost. Powers are of a node, above its idle power.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// One checkpoint of all nodes.
    pub checkpoint: Cost,
    /// Coordination of one checkpoint among all nodes.
    pub coordination: Cost,
    /// Coordination of one checkpoint within each group; nothing where a group needs none.
    pub group_coordination: Cost,
    /// One restart.
    pub restart: Cost,
    /// Logging of all messages of the run, on disk; None where it is not known.
    pub disk_log: Option<Cost>,
    /// The same in memory.
    pub memory_log: Option<Cost>,
    /// Power of a computing node.
    pub compute_w: Estimate,
    /// Idle power of all nodes and switches.
    pub static_w: f64,
}

/// Numbers of checkpoints at which coordination costs as much as logging, without failures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakEven {
    /// n* = E_log / E_coord; None where more checkpoints never make up for the log.
    pub energy: Option<f64>,
    /// t_log / t_coord.
    pub time: Option<f64>,
}

/// What is expected of an alternative.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Interval between checkpoints; None where there are none.
    pub interval_s: Option<f64>,
    /// What kept the interval from its optimum.
    pub limited_by: Option<Limit>,
    /// Complete checkpoints.
    pub checkpoints: f64,
    /// Failures.
    pub failures: f64,
    /// Duration of the whole run, s.
    pub time_s: Estimate,
    /// Energy of the whole run, J.
    pub energy_j: Estimate,
    /// Where the time goes, as the mean over the nodes, s.
    pub time_parts: Parts,
    /// Where the energy goes, J.
    pub energy_parts: Parts,
    /// Against coordinated; None for what logs nothing.
    pub break_even: Option<BreakEven>,
    least_wasted_s: f64,
    least_energy_j: f64,
    effects: Vec<[f64; 2]>,
}

impl Outcome {
    fn value(&self, objective: Objective) -> &Estimate {
        match objective {
            Objective::Time => &self.time_s,
            Objective::Energy => &self.energy_j,
        }
    }

    /// Half width of the interval of the difference from another.
    fn apart(&self, other: &Outcome, objective: Objective) -> f64 {
        let axis = axis(objective);
        self.effects.iter().zip(&other.effects).map(|(a, b)| (a[axis] - b[axis]).powi(2)).sum::<f64>().sqrt()
    }
}

/// Why a protocol that can be estimated is not open to the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hindrance {
    /// Nobody asked for it, or somebody asked for another.
    NotAsked(String),
    /// It cannot be carried out.
    NotEnacted(String),
}

/// An alternative in the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The protocol.
    pub protocol: Protocol,
    /// What is expected of it; None where it cannot be estimated.
    pub outcome: Option<Outcome>,
    /// Why it is not taken; None for the one that is.
    pub refused: Option<String>,
}

/// The chosen protocol, and all that were considered.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The chosen protocol.
    pub protocol: Protocol,
    /// The protocol that would be chosen if all that can be estimated could be carried out.
    pub unhindered: Protocol,
    /// All protocols, in the order of [`Protocol::ALL`].
    pub rows: Vec<Row>,
    /// Why, in sentences.
    pub reasons: Vec<String>,
}

/// Chooses among the protocols that `hindered` gives no reason against; coordinated where there is none.
///
/// # Errors
/// [`Invalid`] names the parameter, its value and the valid range.
pub fn choose(
    objective: Objective,
    run: &Run,
    costs: &Costs,
    bounds: &Bounds,
    hindered: impl Fn(Protocol) -> Option<Hindrance>,
) -> Result<Decision, Invalid> {
    check(run, costs)?;
    let mut every = Vec::with_capacity(Protocol::ALL.len());
    let mut rows = every.clone();
    for protocol in Protocol::ALL {
        let (outcome, unknown) = match estimate(protocol, objective, run, costs, bounds)? {
            Ok(outcome) => (Some(outcome), None),
            Err(why) => (None, Some(why)),
        };
        let (here, anywhere) = match hindered(protocol) {
            Some(Hindrance::NotAsked(why)) => (Some(why.clone()), Some(why)),
            Some(Hindrance::NotEnacted(why)) => (Some(why), None),
            None => (None, None),
        };
        every.push(Row { protocol, outcome: outcome.clone(), refused: unknown.clone().or(anywhere) });
        rows.push(Row { protocol, outcome, refused: unknown.or(here) });
    }
    let (unhindered, _) = pick(objective, bounds, &mut every);
    let (protocol, mut reasons) = pick(objective, bounds, &mut rows);
    let row = |p: Protocol| rows.iter().find(|r| r.protocol == p);
    if unhindered != protocol
        && let (Some(here), Some(there)) = (row(protocol), row(unhindered))
    {
        let why = there.refused.clone().unwrap_or_default();
        let by = match (&here.outcome, &there.outcome) {
            (Some(here), Some(there)) => format!(" ({} less)", difference(objective, here, there)),
            _ => String::new(),
        };
        reasons.push(format!("{}{by} would be taken, but: {why}", unhindered.as_str()));
    }
    Ok(Decision { protocol, unhindered, rows, reasons })
}

/// Marks in the rows why each is not taken, and gives the one that is, with the reason.
fn pick(objective: Objective, bounds: &Bounds, rows: &mut [Row]) -> (Protocol, Vec<String>) {
    refuse_beyond_bounds(bounds, rows);
    let value = |o: &Outcome| o.value(objective).value;
    let open = |r: &&Row| r.refused.is_none();
    let least = rows
        .iter()
        .filter(open)
        .filter_map(|r| r.outcome.as_ref().map(|o| (r.protocol, o.clone())))
        .min_by(|(_, a), (_, b)| value(a).total_cmp(&value(b)));
    let Some((best, least)) = least else {
        return (Protocol::Coordinated, vec!["no protocol could be estimated; coordinated is the safest".to_string()]);
    };
    let told_apart = |o: &Outcome| value(o) - value(&least) > o.apart(&least, objective);
    let safest = rows.iter().filter(open).find(|r| r.outcome.as_ref().is_some_and(|o| !told_apart(o)));
    let taken = safest.map_or(best, |r| r.protocol);
    let mut reasons = Vec::new();
    let mut alike = Vec::new();
    for row in rows.iter_mut().filter(|r| r.refused.is_none() && r.protocol != taken) {
        let Some(outcome) = &row.outcome else { continue };
        let by = difference(objective, outcome, &least);
        row.refused = Some(if told_apart(outcome) {
            let overlap =
                outcome.value(objective).overlaps(least.value(objective)) && outcome.apart(&least, objective) > 0.0;
            let shared = if overlap { "; their intervals overlap only by what both share" } else { "" };
            format!("{by} more than {}{shared}", best.as_str())
        } else {
            alike.push(row.protocol.as_str());
            format!("not told apart from {}, which is safer", taken.as_str())
        });
    }
    let aim = aim(objective);
    match rows.iter().find(|r| r.protocol == taken).and_then(|r| r.outcome.as_ref()) {
        Some(outcome) if taken != best => reasons.push(format!(
            "{} has the least {aim}, but the difference of {} from {} may be none: the safer is taken",
            best.as_str(),
            difference(objective, outcome, &least),
            taken.as_str()
        )),
        _ if !alike.is_empty() => reasons.push(format!(
            "{} has the least {aim}, is not told apart from {}, and is the safer",
            taken.as_str(),
            alike.join(", ")
        )),
        _ => reasons.push(format!("{} has the least {aim} of what can be taken", taken.as_str())),
    }
    (taken, reasons)
}

/// Refuses what goes beyond a bound that another one can keep.
fn refuse_beyond_bounds(bounds: &Bounds, rows: &mut [Row]) {
    if let Some(t) = bounds.runtime {
        refuse_beyond(rows, "runtime", t, Outcome::wasted_s, |other| (1.0 + t) * other.least_wasted_s);
    }
    if let Some(b) = bounds.io {
        refuse_beyond(rows, "I/O", b, Outcome::io_share, |other| b.max(other.io_share()));
    }
    if let Some(e) = bounds.energy {
        refuse_beyond(rows, "energy", e, |o| o.energy_j.value, |other| (1.0 + e) * other.least_energy_j);
    }
}

/// Refuses what is above the limit that any other sets.
fn refuse_beyond(
    rows: &mut [Row],
    what: &str,
    bound: f64,
    measure: impl Fn(&Outcome) -> f64,
    limit: impl Fn(&Outcome) -> f64,
) {
    let open: Vec<(Protocol, f64, f64)> = rows
        .iter()
        .filter(|r| r.refused.is_none())
        .filter_map(|r| r.outcome.as_ref().map(|o| (r.protocol, measure(o), limit(o))))
        .collect();
    for (protocol, value, _) in &open {
        let least = open.iter().filter(|(p, ..)| p != protocol).map(|(.., l)| *l).fold(f64::INFINITY, f64::min);
        // Equal figures that were computed in two ways differ by rounding.
        if *value > least * (1.0 + 1e-9)
            && let Some(row) = rows.iter_mut().find(|r| r.protocol == *protocol)
        {
            row.refused = Some(format!("beyond the {what} bound of {}", percent(bound)));
        }
    }
}

impl Outcome {
    /// Share of each period that the checkpoint and its coordination take.
    pub fn io_share(&self) -> f64 {
        let Some(interval_s) = self.interval_s else { return 0.0 };
        let pause_s = (self.time_parts.checkpoint + self.time_parts.coordination) / self.checkpoints;
        pause_s / (interval_s + pause_s)
    }

    /// Overheads against a run without failures, checkpoints and logging.
    pub fn expected(&self) -> Expected {
        Expected {
            time_overhead: self.wasted_s() / self.time_parts.work,
            energy_overhead: self.energy_j.value / self.energy_parts.work - 1.0,
            io_share: self.io_share(),
        }
    }

    fn wasted_s(&self) -> f64 {
        self.time_parts.total() - self.time_parts.work
    }
}

/// How much more an alternative takes than the least, with the interval of the difference.
fn difference(objective: Objective, one: &Outcome, least: &Outcome) -> String {
    let words = match objective {
        Objective::Time => duration,
        Objective::Energy => energy,
    };
    let by = one.value(objective).value - least.value(objective).value;
    let share = percent(by / least.value(objective).value);
    format!("{} ± {} ({share})", words(by), words(one.apart(least, objective)))
}

fn aim(objective: Objective) -> &'static str {
    match objective {
        Objective::Time => "time",
        Objective::Energy => "energy",
    }
}

fn axis(objective: Objective) -> usize {
    match objective {
        Objective::Time => 0,
        Objective::Energy => 1,
    }
}

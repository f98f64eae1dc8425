//! Finds the calibration that holds for a run's nodes, and takes from it what the run's operations cost.

use crate::Wanted;
use crate::alone::Together;
use crate::calibrated::{busy_switches_w, cost, frequencies, gathers, logging_cost, place, target};
use policy::calibration::Fits;
use policy::estimate::{At, Cost, Estimate};
use protocol::{Operation, Storage, StoredCalibration};
use std::sync::{Arc, Mutex, PoisonError};

/// A calibration of the store, with its fits. Keep it for many plans: fitting the points takes milliseconds, and is
/// done once.
#[derive(Clone, Debug)]
pub struct Known {
    /// The calibration, with the corrections that runs have made.
    pub stored: Arc<StoredCalibration>,
    fits: Arc<Mutex<Fits>>,
}

impl Known {
    /// A calibration of the store.
    pub fn new(stored: StoredCalibration) -> Known {
        Known { stored: Arc::new(stored), fits: Arc::default() }
    }

    /// The same calibration with later corrections; its points and fits stay.
    pub fn corrected(&self, stored: StoredCalibration) -> Known {
        Known { stored: Arc::new(stored), fits: self.fits.clone() }
    }
}

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        self.stored == other.stored
    }
}

/// What a calibration says of a run. Powers are of a node, above idle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Calibrated {
    pub id: u64,
    pub fast: bool,
    pub node_type: String,
    /// Mean idle power of a node.
    pub idle_w: f64,
    /// Idle power of the switches.
    pub switches_w: f64,
    /// Extra power of the switches in a coordination.
    pub coordinating_switches_w: f64,
    /// Extra power of the switches in a checkpoint.
    pub writing_switches_w: f64,
    pub costs: Costs,
}

/// What the operations of a run cost.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Costs {
    pub compute_w: Option<Estimate>,
    /// A checkpoint, where its volume is known.
    pub write: Option<Cost>,
    /// CPU frequency to set for it, Hz.
    pub checkpoint_hz: Option<f64>,
    pub read: Option<Cost>,
    pub coordination: Cost,
    pub group_coordination: Cost,
    pub disk_log: Result<Cost, String>,
    pub memory_log: Result<Cost, String>,
    /// Remarks on what the calibration lacks.
    pub notes: Vec<String>,
}

/// Why there is no calibration for a run.
pub(crate) struct Missing {
    pub why: String,
    /// What has changed on the nodes since they were measured, if that is why.
    pub stale: Vec<String>,
}

/// The newest calibration for a run, or why there is none.
pub(crate) fn find<'a>(known: &'a [Known], wanted: &Wanted<'_>) -> Result<&'a Known, Missing> {
    const CURE: &str = "measure with `joulepoint calibrate run`";
    let name = |k: &Known| k.stored.calibration.node_type.clone();
    let is_in = |k: &Known, node: &String| k.stored.calibration.power.idle_w.contains_key(node);
    let mut types: Vec<String> = known.iter().map(name).collect();
    types.sort();
    types.dedup();
    let fits = |k: &&Known| match (wanted.node_type, wanted.node_names) {
        (Some(wanted), _) => name(k) == wanted,
        (None, []) => types.len() == 1,
        // If there is only one type, a new node is taken to be of it when some of the run's nodes were measured.
        (None, names) if types.len() == 1 => names.iter().any(|n| is_in(k, n)),
        (None, names) => names.iter().all(|n| is_in(k, n)),
    };
    let none = || match (types.is_empty(), wanted.node_type, wanted.node_names) {
        (true, ..) => format!("nothing is calibrated: the figures are the site's estimates; {CURE}"),
        (false, Some(wanted), _) => {
            format!("node type '{wanted}' is not calibrated, only {}; {CURE}", types.join(", "))
        }
        (false, None, []) => format!(
            "several node types are calibrated ({}), and the nodes are not known: the figures are the site's estimates; \
             tell `joulepoint plan` them by --nodelist, or --node-type",
            types.join(", ")
        ),
        (false, None, names) => format!(
            "no calibration has the nodes {} (calibrated: {}): the figures are the site's estimates; {CURE}",
            names.join(","),
            types.join(", ")
        ),
    };
    let missing = |why| Missing { why, stale: Vec::new() };
    let found = known.iter().filter(fits).max_by_key(|k| k.stored.id).ok_or_else(|| missing(none()))?;
    if found.stored.stale.is_empty() {
        Ok(found)
    } else {
        let stale = found.stored.stale.clone();
        let (name, changes) = (name(found), stale.join("; "));
        let why =
            format!("the calibration of '{name}' is stale ({changes}): the figures are the site's estimates; {CURE}");
        Err(Missing { why, stale })
    }
}

impl Calibrated {
    /// What the calibration says of the run, whose checkpoint has `bytes` on each node.
    pub fn of(known: &Known, wanted: &Wanted<'_>, bytes: Option<f64>) -> Calibrated {
        let calibration = &known.stored.calibration;
        let power = &calibration.power;
        let busy_w = busy_switches_w(calibration);
        let named: Vec<f64> = wanted.node_names.iter().filter_map(|n| power.idle_w.get(n).copied()).collect();
        let idle: Vec<f64> = if named.is_empty() { power.idle_w.values().copied().collect() } else { named };
        Calibrated {
            id: known.stored.id,
            fast: calibration.fast,
            node_type: calibration.node_type.clone(),
            idle_w: if idle.is_empty() { 0.0 } else { idle.iter().sum::<f64>() / idle.len() as f64 },
            switches_w: power.switches_idle_w.iter().sum(),
            coordinating_switches_w: busy_w,
            writing_switches_w: if target(calibration) == Some(Storage::Shared) { busy_w } else { 0.0 },
            costs: Costs::fit(known, wanted, bytes),
        }
    }

    /// Which calibration it is, and what could not be taken from it.
    pub fn describe(&self) -> String {
        let fast = if self.fast { ", measured fast" } else { "" };
        let notes: String = self.costs.notes.iter().map(|n| format!("; {n}")).collect();
        format!("calibration {} of node type '{}'{fast}{notes}", self.id, self.node_type)
    }
}

impl Costs {
    fn fit(known: &Known, wanted: &Wanted<'_>, bytes: Option<f64>) -> Costs {
        let stored = &*known.stored;
        let fits = &*known.fits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut notes = Vec::new();
        let (nodes, processes) = (f64::from(wanted.nodes), f64::from(wanted.processes.max(1)));
        let storage = target(&stored.calibration);
        let (checkpoint_hz, why) = match (bytes, storage) {
            (Some(bytes), Some(storage)) => frequency(stored, wanted, storage, bytes),
            _ => (None, None),
        };
        let moved = |operation, hz| {
            let at = place(wanted.engine, nodes, processes, bytes?);
            let cost = cost(stored, operation, storage, at, hz, fits).ok()?;
            // One node gathers the files of all: its extra power is divided among all nodes.
            Some(Cost { delta_w: cost.delta_w.through(|w| w * at.nodes / nodes), ..cost })
        };
        let write = moved(Operation::CheckpointWrite, checkpoint_hz);
        match (bytes, storage) {
            (None, _) => notes.push("the volume of a checkpoint is not known: say --ft-energy-memory=SIZE".to_string()),
            (Some(_), Some(storage)) if write.is_some() => {
                notes.push(format!("checkpoints are taken to go to the storage '{}'", storage.as_str()));
            }
            _ => notes.push("checkpoint_write was not calibrated".to_string()),
        }
        notes.extend(why);
        let mean_message = wanted.messages.filter(|(count, _)| *count > 0).map(|(n, v)| v as f64 / n as f64);
        let mut coordinate = |nodes: f64, processes: f64| {
            let at = |bytes: f64| At { nodes, processes, bytes };
            if nodes * processes <= 1.0 {
                return NOTHING;
            }
            let synchro = cost(stored, Operation::Synchro, None, at(0.0), None, fits).ok();
            if synchro.is_none() {
                notes.push("synchro was not calibrated: coordination is taken to cost nothing".to_string());
            }
            let polling = mean_message.and_then(|v| cost(stored, Operation::Polling, None, at(v), None, fits).ok());
            together(synchro.unwrap_or(NOTHING), polling.unwrap_or(NOTHING))
        };
        let coordination = coordinate(nodes, processes);
        let group = nodes / f64::from(wanted.groups());
        let group_coordination = coordinate(group.max(1.0), processes * group.min(1.0));
        notes.dedup();
        let log = |operation: Operation| match wanted.messages {
            None => {
                let why = wanted
                    .alone
                    .as_ref()
                    .err()
                    .map_or_else(|| "nobody has counted them".to_string(), Together::to_string);
                Err(format!("the messages are not known: {why}; or say --ft-energy-messages=COUNT:SIZE"))
            }
            Some((0, _)) => Ok(NOTHING),
            Some((count, volume)) => {
                let at = At { nodes: 1.0, processes, bytes: volume as f64 / nodes };
                logging_cost(stored, operation, count as f64 / nodes, at, fits)
                    .map_err(|_| format!("{} was not calibrated", operation.as_str()))
            }
        };
        Costs {
            compute_w: cost(stored, Operation::Compute, None, At { nodes, processes, bytes: 0.0 }, None, fits)
                .ok()
                .map(|c| c.delta_w),
            write,
            checkpoint_hz,
            read: moved(Operation::CheckpointRead, None),
            coordination,
            group_coordination,
            disk_log: log(Operation::LogDisk),
            memory_log: log(Operation::LogMemory),
            notes,
        }
    }
}

/// The CPU frequency of the checkpoint phase, where one is to be set, and why.
fn frequency(
    stored: &StoredCalibration,
    wanted: &Wanted<'_>,
    storage: Storage,
    bytes: f64,
) -> (Option<f64>, Option<String>) {
    let own = |why: &str| (None, Some(format!("checkpoints are made at the nodes' own CPU frequency: {why}")));
    let Ok((models, settable_hz)) = frequencies(&stored.calibration, storage) else {
        return own("no other was calibrated");
    };
    if !wanted.cpufreq {
        return own("node.cpufreq is off on this site");
    }
    let bytes = if gathers(wanted.engine) { bytes * f64::from(wanted.nodes) } else { bytes };
    match models.choose(bytes, &settable_hz, wanted.slowdown()) {
        Some(choice) if Some(choice.frequency_hz) != settable_hz.last().copied() => {
            let reason = format!("checkpoints are made at a CPU frequency that is set: {}", choice.reason);
            (Some(choice.frequency_hz), Some(reason))
        }
        Some(choice) => own(&choice.reason),
        None => own("the calibration does not tell them apart"),
    }
}

const NONE: Estimate = Estimate { value: 0.0, low: 0.0, high: 0.0 };

/// An operation without cost.
pub(crate) const NOTHING: Cost = Cost { time_s: NONE, delta_w: NONE, extrapolated: false };

/// Two operations in sequence: times add up, power is the mean over the time.
pub(crate) fn together(a: Cost, b: Cost) -> Cost {
    let time_s = a.time_s.plus(b.time_s);
    let mean = |of: fn(&Estimate) -> f64| {
        let (ta, tb) = (a.time_s.value, b.time_s.value);
        if ta + tb > 0.0 { (ta * of(&a.delta_w) + tb * of(&b.delta_w)) / (ta + tb) } else { 0.0 }
    };
    let delta_w = Estimate { value: mean(|e| e.value), low: mean(|e| e.low), high: mean(|e| e.high) };
    Cost { time_s, delta_w, extrapolated: a.extrapolated || b.extrapolated }
}

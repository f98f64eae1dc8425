//! Measures orders on one node, inside a Slurm step, and appends each as soon as it is known well enough.

use crate::asked;
use crate::duration::most;
use crate::meter::{Counter, power_w};
use crate::operations::{self, Repeatable, Signal};
use crate::orders::Order;
use crate::state::{Outcome, Rules, State};
use crate::stop;
use anyhow::{Context, Result, bail};
use hardware::cpufreq;
use policy::repeated::summarize;
use protocol::{Operation, Storage};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long nodes wait for each other: one may need the most repetitions where another needs the fewest.
const MEET_LIMIT: Duration = Duration::from_secs(3600);

/// Shortest time over which idle power is read, in windows of the rules.
pub(crate) const IDLE_WINDOWS: f64 = 4.0;

/// A node that measures.
pub struct Worker {
    /// Node name.
    pub node: String,
    /// Its counter.
    pub counter: Counter,
    /// Where results go.
    pub state: State,
    /// When a point is known well enough.
    pub rules: Rules,
    /// Folder of each storage target, of this user.
    pub storage: BTreeMap<Storage, PathBuf>,
    /// Name of this step, so that nodes of an earlier one are not met.
    pub step: String,
    /// Sent with each checkpoint.
    pub signal: Signal,
}

impl Worker {
    /// Measures orders, one after the other; one that fails is noted with its reason.
    ///
    /// # Errors
    /// When results cannot be kept, or other nodes do not come.
    pub fn work(&self, orders: &[Order]) -> Result<()> {
        stop::listen()?;
        asked::listen()?;
        // What a killed worker of this node could not put back.
        cpufreq::restore_here()?;
        // Without a counter nothing can be measured: the first order tells why.
        if let (Err(e), Some(first)) = (self.counter.read(), orders.first()) {
            self.state.append(&self.failed(first, &e))?;
            return Err(e.context(self.node.clone()));
        }
        for (i, order) in orders.iter().enumerate() {
            let together = order.operation.is_some() && order.nodes > 1;
            let place = format!("{}-{i}", self.step);
            if together && !self.state.meet(&place, &self.node, order.nodes, MEET_LIMIT)? {
                bail!("{}: the other nodes did not come within {} s", self.node, MEET_LIMIT.as_secs());
            }
            let outcome = self.measure(order).unwrap_or_else(|e| self.failed(order, &e));
            if stop::is_told() {
                bail!("{}: told to stop; what is finished is kept", self.node);
            }
            self.state.append(&outcome)?;
        }
        Ok(())
    }

    fn failed(&self, order: &Order, error: &anyhow::Error) -> Outcome {
        Outcome {
            order: order.clone(),
            node: self.node.clone(),
            times_s: Vec::new(),
            powers_w: Vec::new(),
            source: String::new(),
            error: Some(format!("{error:#}")),
        }
    }

    fn measure(&self, order: &Order) -> Result<Outcome> {
        let own = Scratch::new(self.folder(order)?)?;
        let hold = |hz: f64| cpufreq::hold_here(hz);
        let _held = order.frequency_hz.map(hold).transpose()?;
        let (times_s, powers_w, source) = match order.operation {
            None => self.idle(order)?,
            Some(operation) => {
                let apart_s = if operation == Operation::CheckpointWrite { self.rules.apart_s } else { 0.0 };
                self.repeat(operations::prepare(order, &own.0, &self.signal)?, apart_s, most(order, &self.rules))?
            }
        };
        Ok(Outcome { order: order.clone(), node: self.node.clone(), times_s, powers_w, source, error: None })
    }

    fn folder(&self, order: &Order) -> Result<PathBuf> {
        let target = order.storage.unwrap_or(Storage::Local);
        let root = self.storage.get(&target).with_context(|| format!("no folder for storage '{}'", target.as_str()))?;
        Ok(root.join(format!("joulepoint-calibration-{}-{}", self.node, self.step)))
    }

    fn idle(&self, order: &Order) -> Result<(Vec<f64>, Vec<f64>, String)> {
        let time_s = IDLE_WINDOWS * self.rules.window_s;
        let sleep = move || -> Result<f64> {
            operations::idle(time_s);
            Ok(time_s)
        };
        self.repeat(Box::new(sleep), 0.0, most(order, &self.rules))
    }

    /// Repeats in windows until both intervals are narrow, at most so often; a window after a pause has one repetition.
    fn repeat(&self, mut again: Repeatable, apart_s: f64, most: usize) -> Result<(Vec<f64>, Vec<f64>, String)> {
        let (mut times_s, mut powers_w) = (Vec::new(), Vec::new());
        again.once().context("the first time")?;
        again.between()?;
        let mut before = self.counter.read()?;
        loop {
            if apart_s > 0.0 {
                stop::pause(Duration::from_secs_f64(apart_s));
                before = self.counter.read()?;
            }
            let begun = Instant::now();
            times_s.push(again.once()?);
            while apart_s == 0.0 && begun.elapsed().as_secs_f64() < self.rules.window_s && !stop::is_told() {
                again.between()?;
                times_s.push(again.once()?);
            }
            let after = self.counter.read()?;
            again.between()?;
            powers_w.extend(power_w(&before, &after));
            before = after;
            if stop::is_told() || powers_w.len() >= most || self.is_enough(&times_s, &powers_w) {
                return Ok((times_s, powers_w, before.job.source));
            }
        }
    }

    fn is_enough(&self, times_s: &[f64], powers_w: &[f64]) -> bool {
        let narrow = |values: &[f64]| summarize(values).is_some_and(|s| s.is_within(self.rules.within));
        powers_w.len() >= self.rules.least && narrow(times_s) && narrow(powers_w)
    }
}

/// A folder that goes with its value.
struct Scratch(PathBuf);

impl Scratch {
    /// Made anew, for nobody else: what is there already, a link of somebody's perhaps, is refused.
    fn new(folder: PathBuf) -> Result<Scratch> {
        fs::DirBuilder::new().mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_node_without_its_service_measures_nothing_and_says_so_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut site = config::Site::default();
        site.node.listen = "127.0.0.1:1".into();
        let order = |nodes| Order {
            operation: (nodes > 0).then_some(Operation::Compute),
            storage: None,
            nodes,
            processes: 1,
            bytes: 0.0,
            intensity: 1.0,
            frequency_hz: None,
        };
        let worker = Worker {
            node: "127.0.0.1".into(),
            counter: Counter::new(&site, "127.0.0.1", 1),
            state: State::open(dir.path(), false).unwrap(),
            rules: Rules::FAST,
            storage: BTreeMap::new(),
            step: "1.0".into(),
            signal: Arc::new(|| Ok(())),
        };
        // The second would wait for another node.
        assert!(worker.work(&[order(0), order(2)]).is_err());
        let [told] = &worker.state.outcomes().unwrap()[..] else { panic!("one outcome") };
        assert!(told.failure().starts_with("127.0.0.1: the node service must run"), "{told:?}");
    }
}

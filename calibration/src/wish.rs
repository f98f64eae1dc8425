//! What is wanted of a calibration, and whether one that was begun earlier follows it.

use crate::state::{Assignment, Rules};
use anyhow::{Result, bail};
use protocol::Storage;
use std::collections::BTreeSet;

/// What is wanted.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// Three minutes instead of an hour.
    pub fast: bool,
    /// Pause before each checkpoint, s; that of the method if absent.
    pub apart_s: Option<f64>,
    /// Half width of the 95 % intervals that is aimed at, as a fraction of the mean; that of the method if absent.
    pub within: Option<f64>,
    /// Most repetitions of a point; those of the method if absent.
    pub most: Option<usize>,
    /// Partition whose nodes are measured; all of the cluster's if absent.
    pub partition: Option<String>,
    /// Nodes of each type that measure more than idle power; all if absent.
    pub nodes_per_type: Option<u32>,
    /// Storage targets; all if absent.
    pub storage: Option<Vec<Storage>>,
    /// Keep what an interrupted calibration has finished.
    pub resume: bool,
}

impl Wish {
    /// Storage targets.
    pub(crate) fn storage(&self) -> Vec<Storage> {
        self.storage.clone().unwrap_or_else(|| Storage::ALL.to_vec())
    }

    /// When a point is known well enough.
    pub(crate) fn rules(&self) -> Rules {
        let rules = if self.fast { Rules::FAST } else { Rules::FULL };
        Rules {
            within: self.within.unwrap_or(rules.within),
            apart_s: self.apart_s.unwrap_or(rules.apart_s),
            most: self.most.unwrap_or(rules.most).max(rules.least),
            ..rules
        }
    }

    /// Refuses options that differ from those of a calibration that is gone on with: it keeps its own.
    ///
    /// # Errors
    /// Names the first such option, and what the calibration was begun with.
    pub(crate) fn agrees_with(&self, begun: &Assignment) -> Result<()> {
        let (rules, many, storage) = (&begun.rules, begun.nodes.len(), begun.storage());
        let all = begun.orders.iter().filter(|o| o.operation.is_none()).map(|o| o.nodes as usize).max();
        let nodes_differ = |n: u32| (n.max(1) as usize).min(all.unwrap_or(many)) != many;
        let storage_differs = |s: &Vec<Storage>| s.iter().copied().collect::<BTreeSet<_>>() != storage;
        let names: Vec<&str> = storage.iter().map(|s| s.as_str()).collect();
        let options = [
            ("--fast", self.fast && !begun.fast, "the whole method".into()),
            ("--apart", self.apart_s.is_some_and(|s| s != rules.apart_s), format!("{} s", rules.apart_s)),
            ("--within", self.within.is_some_and(|w| w != rules.within), format!("{:.1} %", 100.0 * rules.within)),
            ("--most", self.most.is_some_and(|m| m.max(rules.least) != rules.most), rules.most.to_string()),
            ("--nodes-per-type", self.nodes_per_type.is_some_and(nodes_differ), many.to_string()),
            ("--storage", self.storage.as_ref().is_some_and(storage_differs), names.join(",")),
        ];
        if let Some((option, _, own)) = options.into_iter().find(|(_, differs, _)| *differs) {
            bail!(
                "{option}: the calibration was begun with {own}; go on without {option}, or begin anew without --resume"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orders::Order;
    use protocol::Operation;

    /// Begun with `--fast --storage shared --within 2 --nodes-per-type 1` on three nodes.
    fn begun() -> Assignment {
        let order = |operation, storage, nodes| Order {
            operation,
            storage,
            nodes,
            processes: 1,
            bytes: 1.0,
            intensity: 1.0,
            frequency_hz: None,
        };
        let write = order(Some(Operation::CheckpointWrite), Some(Storage::Shared), 1);
        let orders = vec![order(None, None, 3), write];
        let rules = Rules { within: 0.02, ..Rules::FAST };
        Assignment { orders, nodes: vec!["n1".into()], rules, no_mpi: None, fast: true }
    }

    fn resume() -> Wish {
        Wish { resume: true, ..Wish::default() }
    }

    #[test]
    fn an_option_that_differs_from_what_was_begun_is_refused_by_name() {
        let full = Assignment { fast: false, ..begun() };
        let all = Storage::ALL.to_vec();
        for (option, own, wish, begun) in [
            ("--fast", "the whole method", Wish { fast: true, ..resume() }, full),
            ("--apart", "0 s", Wish { apart_s: Some(1.0), ..resume() }, begun()),
            ("--within", "2.0 %", Wish { within: Some(0.03), ..resume() }, begun()),
            ("--most", "4", Wish { most: Some(50), ..resume() }, begun()),
            ("--nodes-per-type", "1", Wish { nodes_per_type: Some(2), ..resume() }, begun()),
            ("--storage", "shared", Wish { storage: Some(all), ..resume() }, begun()),
        ] {
            let e = wish.agrees_with(&begun).unwrap_err().to_string();
            assert!(e.starts_with(&format!("{option}: ")) && e.contains(&format!("begun with {own};")), "{e}");
        }
    }

    #[test]
    fn what_was_begun_goes_on_with_its_own_options_or_with_none() {
        let storage = Some(vec![Storage::Shared]);
        let same = Wish { fast: true, within: Some(0.02), most: Some(4), nodes_per_type: Some(1), storage, ..resume() };
        for wish in [same, resume()] {
            wish.agrees_with(&begun()).unwrap();
        }
        let text = serde_json::to_string(&begun()).unwrap();
        assert_eq!(serde_json::from_str::<Assignment>(&text).unwrap(), begun(), "the file keeps them");
        let of_before = text.replace(",\"fast\":true", "");
        assert!(!serde_json::from_str::<Assignment>(&of_before).unwrap().fast);
    }
}

//! Failures of runs that their wrappers could not tell: of nodes that died, and of wrappers.

use crate::apply;
use crate::database::Row;
use crate::error::Result;
use crate::runs::OpenRun;
use crate::store::Store;
use crate::value::params;
use planner::past::FailureLog;
use protocol::{FailureKind, NodeFailure, Phase, RunKey};

/// The most deaths of nodes that are read for a plan.
const PLANNED_FAILURES: u32 = 512;

impl Store {
    /// Notes the death of a node, and a failure for every open run that `is_hit` by it.
    pub fn node_died(
        &mut self,
        node: &str,
        at_s: f64,
        detected_s: f64,
        reason: &str,
        is_hit: impl Fn(&OpenRun) -> bool,
    ) -> Result<Vec<OpenRun>> {
        let open = self.open_runs()?;
        let hit: Vec<OpenRun> = open.into_iter().filter(|r| r.record_state == "running" && is_hit(r)).collect();
        let c = self.connection();
        c.transaction(|| {
            c.execute(
                "INSERT OR IGNORE INTO node_failures VALUES (?1, ?2, ?3, ?4)",
                params![node, at_s, detected_s, reason],
            )?;
            for run in &hit {
                let kind = if run.nodes.first().is_some_and(|n| n == node) {
                    FailureKind::BatchHost
                } else {
                    FailureKind::Node
                };
                apply::failure(c, &run.key, kind, Some(node), at_s, detected_s, reason)?;
            }
            Ok(())
        })?;
        Ok(hit)
    }

    /// Notes a failure of a run that its wrapper could not tell.
    pub fn failed(&mut self, key: &RunKey, kind: FailureKind, at_s: f64, reason: &str) -> Result<()> {
        apply::failure(self.connection(), key, kind, None, at_s, at_s, reason)
    }

    /// How many failures of a kind a run has had that are of none of its nodes: those that its wrapper could not tell.
    pub fn failures(&self, key: &RunKey, kind: FailureKind) -> Result<u32> {
        self.connection().query_row(
            "SELECT count(*) FROM failures WHERE cluster = ?1 AND run = ?2 AND kind = ?3 AND node IS NULL",
            params![key.cluster, key.run, kind.as_str()],
            |r| r.get(0),
        )
    }

    /// By Slurm's word the current life of a run is over, and the next one began at `until_s` at the latest, s since the epoch.
    ///
    /// # Errors
    /// What the database says.
    pub fn life_is_over(&mut self, run: &OpenRun, until_s: f64) -> Result<()> {
        let c = self.connection();
        if !apply::is_going_on(c, &run.key, run.restart_count)? {
            return Ok(());
        }
        c.transaction(|| apply::is_over(c, &run.key, run.restart_count, until_s))
    }

    /// Closes a run whose wrapper did not.
    pub fn close(&mut self, run: &OpenRun, at_s: f64, state: &str) -> Result<()> {
        let c = self.connection();
        c.transaction(|| {
            // Slurm tells whole seconds.
            let at_s = apply::began_s(c, &run.key, run.restart_count).map_or(at_s, |began_s| at_s.max(began_s));
            // What later lives held that have not taken the run up is not this record's.
            let over_s = apply::over_s(c, &run.key, run.restart_count)?.unwrap_or(at_s);
            // Nobody has said that it did anything else than compute.
            apply::close_record(c, &run.key, run.restart_count, over_s, state, Phase::Compute)?;
            c.execute(
                "UPDATE runs SET state = ?3, end_s = ?4 WHERE cluster = ?1 AND run = ?2",
                params![run.key.cluster, run.key.run, state, at_s],
            )?;
            Ok(())
        })?;
        self.runs_changed();
        Ok(())
    }

    /// Every death of a node, oldest first.
    pub fn node_failures(&self) -> Result<Vec<NodeFailure>> {
        self.connection().query_map("SELECT node, at_s FROM node_failures ORDER BY at_s, node", params![], |r| {
            Ok(NodeFailure { node: r.get(0)?, at_s: r.get(1)? })
        })
    }

    /// What a plan is told of the deaths of nodes, read at `now_s`: the newest alone, by their index.
    pub fn failure_log(&self, now_s: f64) -> Result<FailureLog> {
        let c = self.connection();
        let sql = "SELECT node, at_s FROM node_failures ORDER BY at_s DESC LIMIT ?1";
        let read = |r: &Row| -> Result<NodeFailure> { Ok(NodeFailure { node: r.get(0)?, at_s: r.get(1)? }) };
        let newest = c.query_map(sql, params![PLANNED_FAILURES], read)?;
        let nodes = match newest.is_empty() {
            true => 0,
            false => c.query_row("SELECT count(*) FROM nodes", params![], |r| r.get(0))?,
        };
        Ok(FailureLog { nodes, newest, now_s })
    }
}

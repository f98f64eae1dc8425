//! What earlier runs of a user and a job name tell a plan.

use crate::apply;
use crate::database::Row;
use crate::error::Result;
use crate::store::Store;
use crate::value::params;
use planner::History;
use planner::restart::takes_up;
use protocol::Messages;

/// Earlier runs whose figures bear on a new one.
const HISTORY_RUNS: u32 = 20;

/// Runs with more records than this bear on no plan, bytes: reading them would hold up everybody's.
const LARGEST: u64 = 64 << 20;

impl Store {
    /// What bears on a new run of this user and job name.
    pub fn history(&self, user: &str, job_name: &str) -> Result<History> {
        let c = self.connection();
        let (node_failures, node_seconds) = c.query_row(
            "SELECT (SELECT count(*) FROM node_failures), (SELECT coalesce(sum(watched_s), 0.0) FROM nodes)",
            params![],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )?;
        let recent = "JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 AND bytes < ?4
                            ORDER BY start_s DESC LIMIT ?3) recent USING (cluster, run)";
        let means = |what: [&str; 2], from: &str| -> Result<[Option<f64>; 2]> {
            let sql = format!("SELECT {}, {} FROM {from} {recent}", what[0], what[1]);
            let values = params![user, apply::short(job_name), HISTORY_RUNS, LARGEST];
            c.query_row(&sql, values, |r| Ok([r.get(0)?, r.get(1)?]))
        };
        let power = |phase: &str| {
            let of = |what: &str| format!("sum(CASE WHEN phase = '{phase}' THEN {what} END)");
            format!("{} / {}", of("joules"), of("end_s - start_s"))
        };
        let [busy_w, checkpoint_w] = means(
            [&power("compute"), &power("checkpoint")],
            "(SELECT * FROM phases WHERE joules IS NOT NULL AND end_s > start_s) p",
        )?;
        let [checkpoint_s, checkpoint_bytes] = means(
            [
                "avg(CASE WHEN ended_s > begun_s THEN ended_s - begun_s END)",
                "avg(CASE WHEN bytes > 0 THEN bytes * 1e0 END)",
            ],
            "checkpoints k",
        )?;
        // Of those alone of which it is known.
        let [still_share, _] = means(
            ["sum(still_s) / sum(ended_s - begun_s)", "NULL"],
            "(SELECT * FROM checkpoints WHERE still_s IS NOT NULL AND ended_s > begun_s) k",
        )?;
        Ok(History {
            node_failures,
            node_seconds,
            checkpoint_s,
            restart_s: self.usual_restart_s(user, job_name)?,
            busy_w,
            checkpoint_w,
            still_share: still_share.map(|share| share.min(1.0)),
            checkpoint_bytes,
            work_s: self.usual_work_s(user, job_name)?,
            engine: self.proven_engine(user, job_name)?,
            not_alone: self.not_alone(user, job_name)?,
            messages: self.messages(user, job_name)?,
            ..History::default()
        })
    }

    /// Mean duration of restarts.
    fn usual_restart_s(&self, user: &str, job_name: &str) -> Result<Option<f64>> {
        let sql = "SELECT r.start_s, p.start_s, p.end_s FROM phases p JOIN records r USING (cluster, run, restart_count) \
                   JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 AND bytes < ?4 \
                   ORDER BY start_s DESC LIMIT ?3) recent USING (cluster, run) WHERE p.phase = 'restart'";
        let read = |r: &Row| Ok((r.get::<f64>(0)?, (r.get(1)?, r.get(2)?)));
        let spans: Vec<(f64, (f64, f64))> =
            self.connection().query_map(sql, params![user, apply::short(job_name), HISTORY_RUNS, LARGEST], read)?;
        let restarts = || spans.iter().filter(|(record_s, span)| takes_up(*record_s, *span));
        let count = restarts().count() as f64;
        Ok((count > 0.0).then(|| restarts().map(|(_, span)| span.1 - span.0).sum::<f64>() / count))
    }

    /// The engine of the newest run of a user and job name that made a checkpoint.
    fn proven_engine(&self, user: &str, job_name: &str) -> Result<Option<String>> {
        let sql = "SELECT (SELECT r.plan FROM runs r WHERE r.user = ?1 AND r.job_name = ?2 AND EXISTS \
                   (SELECT 1 FROM checkpoints k WHERE k.cluster = r.cluster AND k.run = r.run) \
                   ORDER BY r.start_s DESC LIMIT 1)";
        let values = params![user, apply::short(job_name)];
        let plan: Option<String> = self.connection().query_row(sql, values, |r| r.get(0))?;
        Ok(plan.and_then(|text| serde_json::from_str::<protocol::Plan>(&text).ok()).map(|plan| plan.engine))
    }

    /// The newest of the runs of a user and job name whose program did not repeat itself when one group went back alone.
    fn not_alone(&self, user: &str, job_name: &str) -> Result<Option<String>> {
        let sql = "SELECT (SELECT r.run FROM (SELECT cluster, run, start_s FROM runs WHERE user = ?1 AND job_name = ?2 \
                   AND bytes < ?4 ORDER BY start_s DESC LIMIT ?3) r WHERE EXISTS (SELECT 1 FROM decisions t \
                   WHERE t.cluster = r.cluster AND t.run = r.run AND t.action = ?5 AND t.reason LIKE ?6) \
                   ORDER BY r.start_s DESC LIMIT 1)";
        let because = format!("%{}%", planner::NOT_ALONE);
        let values = params![user, apply::short(job_name), HISTORY_RUNS, LARGEST, planner::TOGETHER, because];
        self.connection().query_row(sql, values, |r| r.get(0))
    }

    /// What the nodes of the newest runs of a user and job name have told each other, the newest first.
    fn messages(&self, user: &str, job_name: &str) -> Result<Vec<Messages>> {
        let sql = "SELECT messages FROM (SELECT messages, start_s FROM runs WHERE user = ?1 AND job_name = ?2 \
                   AND bytes < ?4 ORDER BY start_s DESC LIMIT ?3) recent WHERE messages IS NOT NULL \
                   ORDER BY start_s DESC";
        let values = params![user, apply::short(job_name), HISTORY_RUNS, LARGEST];
        let all: Vec<String> = self.connection().query_map(sql, values, |r| r.get(0))?;
        Ok(all.iter().filter_map(|text| serde_json::from_str(text).ok()).collect())
    }

    /// Mean computing time of a node in the newest completed runs of a user and job name, work done again left out.
    fn usual_work_s(&self, user: &str, job_name: &str) -> Result<Option<f64>> {
        let sql = "SELECT avg(s) FROM (SELECT sum(s) AS s FROM (\
                   SELECT p.cluster, p.run, sum(p.end_s - p.start_s) / count(DISTINCT p.node) AS s FROM phases p \
                   JOIN (SELECT cluster, run FROM runs WHERE user = ?1 AND job_name = ?2 AND state = 'completed' AND bytes < ?4 \
                   ORDER BY start_s DESC LIMIT ?3) r ON p.cluster = r.cluster AND p.run = r.run \
                   WHERE p.phase = 'compute' GROUP BY p.cluster, p.run, p.restart_count) lives GROUP BY cluster, run) runs";
        let values = params![user, apply::short(job_name), HISTORY_RUNS, LARGEST];
        self.connection().query_row(sql, values, |r| r.get(0))
    }
}

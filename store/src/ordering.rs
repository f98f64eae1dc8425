//! Keeps orders of people, so that they outlive the controller. What came of them stands in the runs' records.

use crate::error::{Result, understood};
use crate::store::Store;
use crate::value::params;
use protocol::{Event, OrderState, OrderStatus, Record};

/// How long an order is kept, s: longer than anybody asks after it.
const KEPT_S: f64 = 86_400.0;

/// An order as it is found after a start.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptOrder {
    /// The order, waiting or taken.
    pub status: OrderStatus,
    /// Who owns its run.
    pub owner: u32,
    /// SLURM_RESTART_COUNT of the record it was given for.
    pub restart_count: u32,
    /// What the run has told since that bears on it, and the last that it has told.
    pub records: Vec<Record>,
    /// Whether the run has not ended.
    pub is_open: bool,
}

/// Whether an event tells something of orders.
pub fn concerns_orders(event: &Event) -> bool {
    matches!(event, Event::Ordered { .. } | Event::Started { .. } | Event::Ended { .. })
}

impl Store {
    /// Keeps an order that is new, and forgets those of long ago.
    pub fn keep_order(&mut self, status: &OrderStatus, owner: u32, restart_count: u32) -> Result<()> {
        let (c, key) = (self.connection(), &status.key);
        let json = serde_json::to_string(status)?;
        c.transaction(|| {
            c.execute("DELETE FROM orders WHERE at_s < ?1", params![status.at_s - KEPT_S])?;
            c.execute(
                "INSERT INTO orders (id, cluster, run, uid, restart_count, after_seq, at_s, taken, json)
                 SELECT ?1, ?2, ?3, ?4, ?5, coalesce(max(seq), 0), ?6, 0, ?7 FROM events
                 WHERE cluster = ?2 AND run = ?3",
                params![status.order.id, key.cluster, key.run, owner, restart_count, status.at_s, json],
            )?;
            Ok(())
        })
    }

    /// Notes that the run's wrapper is told of an order.
    pub fn order_taken(&mut self, id: &str) -> Result<()> {
        self.connection().execute("UPDATE orders SET taken = 1 WHERE id = ?1", params![id]).map(drop)
    }

    /// The orders that are kept, oldest first, with all that was heard since; one that is not understood is left out.
    pub fn kept_orders(&self, now_s: f64) -> Result<Vec<KeptOrder>> {
        type Row = (String, u32, u32, u64, bool, bool);
        let rows: Vec<Row> = self.connection().query_map(
            "SELECT o.json, o.uid, o.restart_count, o.after_seq, o.taken, r.state = 'running' FROM orders o
             JOIN runs r ON r.cluster = o.cluster AND r.run = o.run WHERE o.at_s >= ?1 ORDER BY o.at_s",
            params![now_s - KEPT_S],
            |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?, r.get(5)?)),
        )?;
        let kept = |(json, owner, restart_count, after, taken, is_open): Row| {
            let mut status: OrderStatus = understood("an order", &json)?;
            status.state = if taken { OrderState::Taken } else { OrderState::Waiting };
            let records = self.told_of(&status, restart_count, after);
            Some(records.map(|records| KeptOrder { status, owner, restart_count, records, is_open }))
        };
        rows.into_iter().filter_map(kept).collect()
    }

    /// What a run has told since a record that bears on one order: the last outcome, what ends it without one, and the last
    /// record of all. However much else a run has told, no more than these are held.
    fn told_of(&self, order: &OrderStatus, restart_count: u32, after: u64) -> Result<Vec<Record>> {
        let key = &order.key;
        let sql = "SELECT json FROM events WHERE cluster = ?1 AND run = ?2 AND seq > ?3 ORDER BY seq";
        let (mut outcome, mut over, mut last) = (None, None, None);
        self.connection().each(sql, params![key.cluster, key.run, after], |r| {
            let Some(record) = understood::<Record>("a record", &r.get::<String>(0)?) else { return Ok(()) };
            match &record.event {
                Event::Ordered { id, .. } if *id == order.order.id => outcome = Some(record),
                Event::Started { restart_count: newer, .. } if *newer != restart_count && over.is_none() => {
                    over = Some(record);
                }
                Event::Ended { .. } if over.is_none() => over = Some(record),
                _ => last = Some(record),
            }
            Ok(())
        })?;
        let mut told: Vec<Record> = [outcome, over, last].into_iter().flatten().collect();
        told.sort_by_key(|record| record.seq);
        Ok(told)
    }
}

//! Keeps what must outlive the controller of each node: for how long it was watched, and how it stands.

use crate::database::Row;
use crate::error::Result;
use crate::store::Store;
use crate::value::params;
use watch::nodes::Known;

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeWatch {
    /// Its name.
    pub node: String,
    /// Its boot, epoch and witnesses, and what must end there.
    pub known: Known,
    /// Whether we have set it down.
    pub is_down: bool,
    /// Where its service answers.
    pub url: String,
}

/// Failures of nodes and watched time from before the store's beginning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Before {
    /// Node, moment and reason of each death.
    pub failures: Vec<(String, f64, String)>,
    /// Node and seconds in service.
    pub watched: Vec<(String, f64)>,
}

impl Store {
    /// Adds time for which nodes were watched.
    pub fn watched(&mut self, nodes: &[(String, f64)]) -> Result<()> {
        let c = self.connection();
        c.transaction(|| {
            for (node, seconds) in nodes {
                c.execute(
                    "INSERT INTO nodes VALUES (?1, ?2) ON CONFLICT (node) DO UPDATE SET watched_s = watched_s + ?2",
                    params![node, seconds],
                )?;
            }
            Ok(())
        })
    }

    /// Whether any time of any node is booked.
    pub fn has_watched(&self) -> Result<bool> {
        self.connection().query_row("SELECT EXISTS (SELECT 1 FROM nodes)", params![], |r| r.get(0))
    }

    /// Stores what is known of the nodes from before, in one transaction.
    pub fn take_over(&mut self, before: &Before) -> Result<()> {
        let c = self.connection();
        c.transaction(|| {
            for (node, seconds) in &before.watched {
                c.execute("INSERT INTO nodes (node, watched_s) VALUES (?1, ?2)", params![node, seconds])?;
            }
            for (node, at_s, reason) in &before.failures {
                c.execute(
                    "INSERT INTO node_failures (node, at_s, detected_s, reason) VALUES (?1, ?2, ?2, ?3)",
                    params![node, at_s, reason],
                )?;
            }
            Ok(())
        })
    }

    /// Keeps what is known of nodes, in one transaction.
    pub fn keep_nodes(&mut self, all: &[NodeWatch]) -> Result<()> {
        let c = self.connection();
        c.transaction(|| {
            let sql = "INSERT INTO node_watch (node, known, is_down, url) VALUES (?1, ?2, ?3, ?4) ON CONFLICT (node)
                 DO UPDATE SET known = excluded.known, is_down = excluded.is_down, url = excluded.url";
            for of in all {
                c.execute(sql, params![of.node, serde_json::to_string(&of.known)?, of.is_down, of.url])?;
            }
            Ok(())
        })
    }

    /// All that is kept.
    pub fn kept_nodes(&self) -> Result<Vec<NodeWatch>> {
        let read = |r: &Row| -> Result<NodeWatch> {
            let known: String = r.get(1)?;
            Ok(NodeWatch {
                node: r.get(0)?,
                known: serde_json::from_str(&known).unwrap_or_default(),
                is_down: r.get(2)?,
                url: r.get(3)?,
            })
        };
        self.connection().query_map("SELECT node, known, is_down, url FROM node_watch", params![], read)
    }

    /// Forgets a node.
    pub fn forget_node(&mut self, node: &str) -> Result<()> {
        self.connection().execute("DELETE FROM node_watch WHERE node = ?1", params![node])?;
        Ok(())
    }
}

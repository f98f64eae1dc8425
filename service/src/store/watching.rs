//! Keeps what must outlive the controller of each node that it watches.

use super::{Row, Store, params};
use anyhow::Result;
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

impl Store {
    /// Keeps what is known of nodes, in one transaction.
    ///
    /// # Errors
    /// What the database says.
    pub fn keep_nodes(&mut self, all: &[NodeWatch]) -> Result<()> {
        let c = self.connection();
        c.transaction(|| {
            let mut statement = c.prepare_cached(
                "INSERT INTO node_watch (node, known, is_down, url) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (node) DO UPDATE SET known = excluded.known, is_down = excluded.is_down, url = excluded.url",
            )?;
            for of in all {
                statement.execute(params![of.node, serde_json::to_string(&of.known)?, of.is_down, of.url])?;
            }
            Ok(())
        })
    }

    /// All that is kept.
    ///
    /// # Errors
    /// What the database says.
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
        self.connection()
            .prepare_cached("SELECT node, known, is_down, url FROM node_watch")?
            .query_map(params![], read)?
            .collect()
    }

    /// Forgets a node.
    ///
    /// # Errors
    /// What the database says.
    pub fn forget_node(&mut self, node: &str) -> Result<()> {
        self.connection().prepare_cached("DELETE FROM node_watch WHERE node = ?1")?.execute(params![node])?;
        Ok(())
    }
}

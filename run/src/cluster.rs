//! Which cluster a run belongs to. Two clusters may have the same name and share a home: their controllers tell them apart.

use crate::{Patience, Result, storage};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// The file in a run's folder.
const FILE: &str = "cluster.json";

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Protocol version of the writer.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Its controllers, each with its port, as `ctl(10.0.0.1):6817`.
    pub controllers: Vec<String>,
}

impl Cluster {
    /// A cluster of this name with these controllers.
    pub fn new(name: String, controllers: Vec<String>) -> Cluster {
        Cluster { version: protocol::VERSION, name, controllers }
    }

    /// Whether both are one: a site may add a controller or take one away, and two clusters share none.
    pub fn is(&self, other: &Cluster) -> bool {
        self.name == other.name && self.controllers.iter().any(|controller| other.controllers.contains(controller))
    }

    /// Writes down that a run belongs to this cluster.
    ///
    /// # Errors
    /// What the file system says.
    pub fn record(&self, run: &Path) -> io::Result<()> {
        storage::write_durably(&run.join(FILE), &serde_json::to_vec(self)?)
    }

    /// The cluster of a run; none where nobody has written it down, or in words of another version.
    ///
    /// # Errors
    /// What the file system says.
    pub fn of(run: &Path) -> Result<Option<Cluster>> {
        let content = storage::read_if_there(&run.join(FILE), Patience::NONE)?;
        let cluster = content.and_then(|text| serde_json::from_slice::<Cluster>(&text).ok());
        Ok(cluster.filter(|cluster| cluster.version == protocol::VERSION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_one_name_are_told_apart_by_their_controllers() {
        let of = |name: &str, controllers: &[&str]| {
            Cluster::new(name.into(), controllers.iter().map(|c| c.to_string()).collect())
        };
        let here = of("c", &["a:6817", "b:6817"]);
        assert!(here.is(&here) && here.is(&of("c", &["b:6817", "x:6817"])), "a controller was replaced");
        for other in [of("c", &["x:6817"]), of("d", &["a:6817"]), of("c", &["a:7000"]), of("c", &[])] {
            assert!(!here.is(&other) && !other.is(&here), "{other:?}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Cluster::of(dir.path()).unwrap(), None);
        here.record(dir.path()).unwrap();
        assert_eq!(Cluster::of(dir.path()).unwrap(), Some(here));
        std::fs::write(dir.path().join(FILE), r#"{"version":2,"name":"c","controllers":[]}"#).unwrap();
        assert_eq!(Cluster::of(dir.path()).unwrap(), None);
    }
}

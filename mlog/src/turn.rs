//! Tells a process of a run that its turn is over: another has taken its place, or the run has ended.
//!
//! Slurm may forget a step, and nobody can end it then. So who runs in one looks into a file of the run's folder, which
//! says how far the run is. Its numbers only grow: what a node's cache still shows of an older one ends nobody.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// File in a run's folder.
pub const FILE: &str = "turns";

/// Time between two looks.
pub const LOOK: Duration = Duration::from_secs(2);

/// How long the next relay waits for the log of one whose turn is over.
pub const SUCCESSION: Duration = Duration::from_secs(10);

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turns {
    /// Version of the document.
    pub version: u32,
    /// Who has the run now: each driver has a higher number than the one before, and the end of the run one more.
    pub holder: u64,
    /// How many turns are over in each place of which one is, under this holder.
    pub over: BTreeMap<String, u64>,
}

impl Turns {
    /// Reads the file. It is opened anew each time, so that a node asks the server for it.
    ///
    /// # Errors
    /// What the file system says, or it is damaged.
    pub fn read(file: &Path) -> std::io::Result<Turns> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }
}

/// One turn, as whoever is started is told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Who starts it.
    pub holder: u64,
    /// How many turns before it are over in its place.
    pub number: u64,
    /// Its place, such as a group's share of a call; without colons.
    pub place: String,
    /// The file.
    pub file: PathBuf,
}

impl Turn {
    /// Whether it is over. A file that cannot be read says nothing.
    pub fn is_over(&self) -> bool {
        let Ok(now) = Turns::read(&self.file) else { return false };
        let over = now.over.get(&self.place).copied().unwrap_or(0);
        now.holder > self.holder || now.holder == self.holder && over > self.number
    }
}

/// One word.
impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.holder, self.number, self.place, self.file.display())
    }
}

impl FromStr for Turn {
    type Err = String;

    fn from_str(word: &str) -> Result<Turn, String> {
        let mut parts = word.splitn(4, ':');
        let mut read = || {
            let (holder, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some(Turn { holder, number, place: parts.next()?.to_string(), file: parts.next()?.into() })
        };
        read().ok_or_else(|| format!("{word} is no turn"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_a_later_one_or_a_later_holder_is_known_and_never_by_what_is_old_or_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a:b");
        let turn: Turn = format!("5:1:g0:{}", file.display()).parse().unwrap();
        assert_eq!(turn, turn.to_string().parse().unwrap());
        assert!(!turn.is_over(), "there is no file");
        for (holder, over, expected) in
            [(5, 0, false), (5, 1, false), (5, 2, true), (4, 9, false), (6, 0, true), (6, 1, true)]
        {
            let over = BTreeMap::from([("g0".to_string(), over), ("g1".to_string(), 99)]);
            let text = serde_json::to_vec(&Turns { version: 1, holder, over }).unwrap();
            fs::write(&file, text).unwrap();
            assert_eq!(turn.is_over(), expected, "{holder}");
        }
        fs::write(&file, "{").unwrap();
        assert!(!turn.is_over(), "it is damaged");
        assert!("5:1:g0".parse::<Turn>().is_err());
    }
}

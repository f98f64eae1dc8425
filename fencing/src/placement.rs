//! A placement: one start of a process of a run, and whether it has to end.

use crate::Token;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// One start of a process in its place, told to the process at its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Number of the holder who starts it.
    pub holder: u64,
    /// How many placements in its place are over before it.
    pub number: u64,
    /// Name of its place, such as a group's step of a call; without colons.
    pub place: String,
    /// Path of the run's token.
    pub file: PathBuf,
}

impl Placement {
    /// Whether it is over. A file that cannot be read ends nothing.
    pub fn is_over(&self) -> bool {
        Token::read(&self.file).is_ok_and(|now| now.ends(self))
    }
}

/// As one word, for a command line.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}:{}", self.holder, self.number, self.place, self.file.display())
    }
}

/// A text that is no placement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no placement (HOLDER:NUMBER:PLACE:FILE)")]
pub struct Malformed(String);

impl FromStr for Placement {
    type Err = Malformed;

    fn from_str(word: &str) -> Result<Placement, Malformed> {
        let mut parts = word.splitn(4, ':');
        let mut read = || {
            let (holder, number) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
            Some(Placement { holder, number, place: parts.next()?.to_string(), file: parts.next()?.into() })
        };
        read().ok_or_else(|| Malformed(word.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    #[test]
    fn a_placement_is_over_when_a_later_one_or_a_later_holder_is_known_and_never_by_what_is_old_or_missing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a:b");
        let placement: Placement = format!("5:1:g0:{}", file.display()).parse().unwrap();
        assert_eq!(placement, placement.to_string().parse().unwrap());
        assert!(!placement.is_over(), "there is no file");
        for (holder, left, over, expected) in [
            (5, false, 0, false),
            (5, false, 1, false),
            (5, false, 2, true),
            (5, true, 0, true),
            (4, true, 9, false),
            (6, false, 0, true),
            (6, false, 1, true),
        ] {
            let over = BTreeMap::from([("g0".to_string(), over), ("g1".to_string(), 99)]);
            let text = serde_json::to_vec(&Token { version: 1, holder, left, over }).unwrap();
            fs::write(&file, text).unwrap();
            assert_eq!(placement.is_over(), expected, "{holder}");
        }
        fs::write(&file, "{").unwrap();
        assert!(!placement.is_over(), "it is damaged");
        assert!("5:1:g0".parse::<Placement>().is_err());
    }

    #[test]
    fn a_file_of_a_version_before_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(crate::OLDER_FILE);
        fs::write(&file, r#"{"version":1,"holder":6,"over":{"g0":2}}"#).unwrap();
        let of = |holder, number| Placement { holder, number, place: "g0".into(), file: file.clone() };
        assert_eq!([of(5, 0), of(6, 1), of(6, 2)].map(|p| p.is_over()), [true, true, false]);
    }
}

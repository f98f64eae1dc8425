//! Reads the board counters of Cray and HPE machines: the energy of the whole node.
//!
//! `energy` holds `123 J` or `123 J 456 us`. `freshness` counts the updates of the board's sampler and
//! `startup` changes when the counters began anew; both are used where they exist.

use std::path::PathBuf;

use crate::sysfs::text;
use crate::{Config, Coverage, Error, Source, SourceKind};

/// The board samples ten times a second; a hundred missed updates are a dead sampler.
const FRESH_WITHIN_S: f64 = 10.0;

/// The folder of one node.
pub(crate) struct PmCounters {
    root: PathBuf,
    first_j: u64,
    last_j: u64,
    startup: Option<String>,
    fresh: Option<(String, f64)>,
}

impl PmCounters {
    pub(crate) fn open(config: &Config) -> Result<PmCounters, Error> {
        let root = config.pm_counters_root.clone();
        let first_j = energy_j(&root)?;
        let startup = text(&root.join("startup")).ok();
        Ok(PmCounters { root, first_j, last_j: first_j, startup, fresh: None })
    }

    fn check_fresh(&mut self, now_s: f64) -> Result<(), Error> {
        let Ok(count) = text(&self.root.join("freshness")) else { return Ok(()) };
        match &self.fresh {
            Some((seen, since_s)) if *seen == count => {
                let for_s = now_s - since_s;
                if for_s > FRESH_WITHIN_S {
                    let what = self.root.join("freshness").display().to_string();
                    return Err(Error::Stale { what, for_s });
                }
            }
            _ => self.fresh = Some((count, now_s)),
        }
        Ok(())
    }
}

fn energy_j(root: &std::path::Path) -> Result<u64, Error> {
    let path = root.join("energy");
    let line = text(&path)?;
    parse_j(&line).ok_or_else(|| Error::malformed(path.display().to_string(), &line))
}

/// `123 J`, optionally followed by a time stamp `456 us`.
fn parse_j(line: &str) -> Option<u64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        [joules, "J"] => joules.parse().ok(),
        [joules, "J", stamp, "us"] if stamp.bytes().all(|b| b.is_ascii_digit()) => joules.parse().ok(),
        _ => None,
    }
}

impl Source for PmCounters {
    fn kind(&self) -> SourceKind {
        SourceKind::PmCounters
    }

    fn covers(&self) -> Coverage {
        Coverage::Node
    }

    fn joules(&mut self, now_s: f64) -> Result<f64, Error> {
        let now_j = energy_j(&self.root)?;
        self.check_fresh(now_s)?;
        let startup = text(&self.root.join("startup")).ok();
        if startup != self.startup {
            return Err(Error::refused(format!("{}: the counters began anew", self.root.display())));
        }
        if now_j < self.last_j {
            let what = self.root.join("energy").display().to_string();
            return Err(Error::Backwards { what, from: self.last_j, to: now_j });
        }
        self.last_j = now_j;
        Ok((now_j - self.first_j) as f64)
    }

    fn describe(&self) -> String {
        format!("{}: whole node", self.root.join("energy").display())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn open(root: &Path) -> Result<PmCounters, Error> {
        PmCounters::open(&Config { pm_counters_root: root.into(), ..Config::default() })
    }

    fn read(p: &mut PmCounters, now_s: f64) -> Result<f64, Error> {
        p.joules(now_s)
    }

    #[test]
    fn both_forms_are_understood_and_no_other() {
        assert_eq!(parse_j("123 J"), Some(123));
        assert_eq!(parse_j("123456789012 J 1700000000000000 us"), Some(123_456_789_012));
        for bad in ["", "J", "123", "123 W", "-1 J", "1.5 J", "123 J 4 ms", "123 J x us", "99999999999999999999999 J"] {
            assert_eq!(parse_j(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn counts_from_its_opening() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("energy");
        fs::write(&file, "1000000 J 5 us\n").unwrap();
        let mut p = open(dir.path()).unwrap();
        assert_eq!(read(&mut p, 0.0).unwrap(), 0.0);
        fs::write(&file, "1000350 J 6 us\n").unwrap();
        assert_eq!(read(&mut p, 1.0).unwrap(), 350.0);
    }

    #[test]
    fn runs_backwards_vanishes_or_is_garbled() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("energy");
        fs::write(&file, "500 J\n").unwrap();
        let mut p = open(dir.path()).unwrap();
        fs::write(&file, "499 J\n").unwrap();
        assert!(matches!(read(&mut p, 0.0), Err(Error::Backwards { from: 500, to: 499, .. })));
        fs::write(&file, "n/a\n").unwrap();
        assert!(matches!(read(&mut p, 0.0), Err(Error::Malformed { .. })));
        fs::remove_file(&file).unwrap();
        assert!(matches!(read(&mut p, 0.0), Err(Error::Absent { .. })));
    }

    #[test]
    fn a_dead_sampler_is_seen_by_its_freshness() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("energy"), "500 J\n").unwrap();
        fs::write(dir.path().join("freshness"), "77\n").unwrap();
        let mut p = open(dir.path()).unwrap();
        for t in 0..=10 {
            assert_eq!(read(&mut p, f64::from(t)).unwrap(), 0.0);
        }
        assert!(matches!(read(&mut p, 11.0), Err(Error::Stale { .. })));
        fs::write(dir.path().join("freshness"), "78\n").unwrap();
        assert!(read(&mut p, 12.0).is_ok());
    }

    #[test]
    fn a_new_startup_is_not_counted_even_if_the_value_is_higher() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("energy"), "500 J\n").unwrap();
        fs::write(dir.path().join("startup"), "1700000000\n").unwrap();
        let mut p = open(dir.path()).unwrap();
        fs::write(dir.path().join("startup"), "1700009999\n").unwrap();
        fs::write(dir.path().join("energy"), "600 J\n").unwrap();
        assert!(read(&mut p, 1.0).unwrap_err().to_string().contains("began anew"));
    }
}

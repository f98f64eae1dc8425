//! Remembers credentials that were accepted: munged does, but forgets when it is restarted itself.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

/// How long a credential lives, s (munge's default time to live).
const LIFE_S: f64 = 300.0;

/// Most credentials of one generation; together they need a few megabytes.
const MOST: usize = 200_000;

/// Two generations of credentials, by a hash whose key nobody knows.
#[derive(Debug, Default)]
pub struct Seen {
    hasher: RandomState,
    young: HashSet<u64>,
    old: HashSet<u64>,
    since_s: f64,
}

impl Seen {
    /// Whether a credential comes for the first time.
    pub fn is_first(&mut self, now_s: f64, credential: &str) -> bool {
        if now_s - self.since_s > LIFE_S || self.young.len() >= MOST {
            self.old = std::mem::take(&mut self.young);
            self.since_s = now_s;
        }
        let hash = self.hasher.hash_one(credential.trim());
        !self.old.contains(&hash) && self.young.insert(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_remembered_for_its_life_in_bounded_memory() {
        let mut seen = Seen::default();
        assert!(seen.is_first(1000.0, "a"));
        assert!(!seen.is_first(1001.0, "a"));
        assert!(seen.is_first(1299.0, "b"));
        assert!(!seen.is_first(1301.0, " a "), "the generation before counts");
        assert!(!seen.is_first(1598.0, "b"));
        for i in 0..3 * MOST {
            seen.is_first(1600.0, &i.to_string());
        }
        assert!(seen.young.len() + seen.old.len() <= 2 * MOST);
    }
}

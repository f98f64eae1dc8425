//! Whether looks at the cluster fail, so that it is said once when that begins and once when it is over.

use std::collections::BTreeSet;

/// Looks that fail. Most looks ask Slurm nothing, and are no sign that it answers again.
#[derive(Debug, Default)]
pub struct Trouble {
    since_s: Option<f64>,
    /// Jobs about which Slurm gave no answer when it was asked last.
    unanswered: BTreeSet<u32>,
}

impl Trouble {
    /// Slurm was asked about a job. If it answers where it did not before, it answers about the others, too.
    pub fn asked(&mut self, job: u32, has_answered: bool) {
        match has_answered {
            false => drop(self.unanswered.insert(job)),
            true if self.unanswered.contains(&job) => self.unanswered.clear(),
            true => {}
        }
    }

    /// Nobody asks about other jobs than these any more.
    pub fn forget_others(&mut self, open: &BTreeSet<u32>) {
        self.unanswered.retain(|job| open.contains(job));
    }

    /// A look is over. If that changes whether looks fail: for how long they have failed, s.
    pub fn looked(&mut self, now_s: f64, has_failed: bool) -> Option<f64> {
        let (fails, before_s) = (has_failed || !self.unanswered.is_empty(), self.since_s);
        self.since_s = fails.then(|| before_s.unwrap_or(now_s));
        (before_s.is_some() != fails).then(|| before_s.map_or(0.0, |since_s| now_s - since_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_fail_are_told_when_that_begins_and_when_it_is_over() {
        // The jobs about which Slurm is asked in each look, whether it answers, and for how long looks had failed.
        type Asked = &'static [(u32, bool)];
        let looks: [(Asked, Option<f64>); 8] = [
            (&[(7, true), (8, true)], None),
            (&[(7, false)], Some(0.0)),
            (&[], None),
            (&[(8, false)], None),
            (&[(9, true)], None),
            (&[(7, true), (6, false)], None),
            (&[(6, true)], Some(50.0)),
            (&[(7, true)], None),
        ];
        let (mut trouble, mut now_s) = (Trouble::default(), 0.0);
        for (asked, after_s) in looks {
            now_s += 10.0;
            asked.iter().for_each(|(job, has_answered)| trouble.asked(*job, *has_answered));
            let has_failed = asked.iter().any(|(_, has_answered)| !has_answered);
            assert_eq!(trouble.looked(now_s, has_failed), after_s, "{asked:?}");
        }
    }
}

//! Counts by kind of fault what was injected, whom it hit, and how those ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With the result of an undisturbed run.
    Right,
    /// As a failure that a fault may cause, and said so.
    Honest(String),
    /// Otherwise.
    Wrong(String),
}

#[derive(Debug, Default)]
struct Row {
    injected: usize,
    histories: BTreeSet<u64>,
    jobs: usize,
    right: usize,
    honest: usize,
    wrong: usize,
}

/// The outcome of a campaign.
#[derive(Debug, Default)]
pub struct Table(BTreeMap<String, Row>);

impl Table {
    /// Adds a fault of a history, and the ends of the jobs that it has hit.
    pub fn add<'a>(&mut self, fault: &str, seed: u64, jobs: impl Iterator<Item = &'a Ended>) {
        let row = self.0.entry(fault.to_string()).or_default();
        row.injected += 1;
        row.histories.insert(seed);
        for ended in jobs {
            row.jobs += 1;
            match ended {
                Ended::Right => row.right += 1,
                Ended::Honest(_) => row.honest += 1,
                Ended::Wrong(_) => row.wrong += 1,
            }
        }
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = "| fault | injected | histories | jobs hit | ended right | honest failures | not right |\n\
                        |---|---|---|---|---|---|---|\n"
            .to_string();
        for (fault, r) in &self.0 {
            let (injected, histories) = (r.injected, r.histories.len());
            let _ = writeln!(
                text,
                "| {fault} | {injected} | {histories} | {} | {} | {} | {} |",
                r.jobs, r.right, r.honest, r.wrong
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_faults_histories_and_the_ends_of_jobs() {
        let mut table = Table::default();
        let (right, honest) = (Ended::Right, Ended::Honest(String::new()));
        table.add("power loss", 1, [&right, &honest].into_iter());
        table.add("power loss", 1, [&Ended::Wrong(String::new())].into_iter());
        table.add("power loss", 2, std::iter::empty());
        assert_eq!(table.markdown().lines().last(), Some("| power loss | 3 | 2 | 3 | 1 | 1 | 1 |"));
    }
}

//! From when on others may be late: only while Slurm is looked at, and while the loan's lender is not suspended.
//!
//! After a broker was away, Slurm did not answer or the wall clock was set, nobody knows how long anything took: it
//! begins anew.

use std::collections::BTreeMap;
use std::time::Instant;

/// How much later than it was due the next look may come, s.
const GAP_S: f64 = 10.0;

/// How far the wall clock may part from the steady one between two looks, s; more, and somebody has set it.
const SET_S: f64 = 2.0;

/// The looks at Slurm.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    row: Option<Row>,
    /// When the lender of a loan was seen suspended last, by the loan's id.
    suspended: BTreeMap<String, Instant>,
}

/// Looks that have succeeded one after the other, without a gap.
#[derive(Clone, Copy, Debug)]
struct Row {
    first: Instant,
    last: Instant,
    /// The wall clock at the last look, s since the epoch.
    last_s: f64,
    /// When the next look is due.
    due: Instant,
}

impl Looks {
    /// A look has succeeded that began and ended then; `ended_s` is the wall clock at its end.
    pub(crate) fn succeeded(&mut self, begun: Instant, ended: Instant, ended_s: f64) {
        let goes_on = |row: &Row| {
            let gap_s = begun.saturating_duration_since(row.due).as_secs_f64();
            let steady_s = ended.saturating_duration_since(row.last).as_secs_f64();
            gap_s <= GAP_S && (ended_s - row.last_s - steady_s).abs() <= SET_S
        };
        let first = self.row.filter(goes_on).map_or(ended, |row| row.first);
        self.row = Some(Row { first, last: ended, last_s: ended_s, due: ended });
    }

    /// A look has failed.
    pub(crate) fn failed(&mut self) {
        self.row = None;
    }

    /// The next look is due then: until then the broker rests, or is at work itself.
    pub(crate) fn due(&mut self, due: Instant) {
        if let Some(row) = &mut self.row {
            row.due = due;
        }
    }

    /// The lender of a loan is suspended at this moment.
    pub(crate) fn suspended(&mut self, loan: &str, at: Instant) {
        self.suspended.insert(loan.to_string(), at);
    }

    /// A loan is over.
    pub(crate) fn forget(&mut self, loan: &str) {
        self.suspended.remove(loan);
    }

    /// A moment, by the wall clock as it was at the last look, and from when on others may be late for a loan, both s
    /// since the epoch; none before the first look.
    pub(crate) fn times(&self, loan: &str, at: Instant) -> Option<(f64, f64)> {
        let row = self.row?;
        let now_s = row.last_s + at.saturating_duration_since(row.last).as_secs_f64();
        let from = self.suspended.get(loan).map_or(row.first, |suspended| row.first.max(*suspended));
        Some((now_s, now_s - at.saturating_duration_since(from).as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The wall clock when the test begins, s.
    const BEGUN_S: f64 = 1e6;

    /// A broker that looks, its steady clock, and how far the wall clock was set forward, s.
    struct Desk {
        looks: Looks,
        begun: Instant,
        set_s: f64,
    }

    impl Desk {
        fn new() -> Desk {
            Desk { looks: Looks::default(), begun: Instant::now(), set_s: 0.0 }
        }

        fn at(&self, s: u64) -> Instant {
            self.begun + Duration::from_secs(s)
        }

        fn look(&mut self, s: u64) {
            let at = self.at(s);
            self.looks.succeeded(at, at, BEGUN_S + s as f64 + self.set_s);
        }

        fn due(&mut self, s: u64) {
            let at = self.at(s);
            self.looks.due(at);
        }

        /// For how long others have been late at most, s.
        fn counted_s(&self, s: u64) -> f64 {
            let (now_s, from_s) = self.looks.times("a", self.at(s)).unwrap();
            now_s - from_s
        }
    }

    #[test]
    fn only_looks_without_a_gap_count() {
        let mut desk = Desk::new();
        assert_eq!(desk.looks.times("a", desk.begun), None);
        for s in [0, 1, 2, 10] {
            desk.look(s);
        }
        assert_eq!(desk.counted_s(10), 10.0);
        assert_eq!(desk.counted_s(12), 12.0);
        desk.look(360);
        assert_eq!(desk.counted_s(360), 0.0, "the broker was away");
        desk.look(365);
        assert_eq!(desk.counted_s(365), 5.0);
        desk.looks.failed();
        desk.look(366);
        assert_eq!(desk.counted_s(366), 0.0, "Slurm did not answer");
    }

    #[test]
    fn a_pause_that_was_meant_is_no_gap() {
        let mut desk = Desk::new();
        desk.look(0);
        desk.due(60);
        desk.look(65);
        assert_eq!(desk.counted_s(65), 65.0);
        desk.due(125);
        desk.look(140);
        assert_eq!(desk.counted_s(140), 0.0);
    }

    #[test]
    fn a_clock_that_is_set_makes_nobody_late() {
        let mut desk = Desk::new();
        desk.look(0);
        desk.look(5);
        desk.set_s = 400.0;
        let (now_s, _) = desk.looks.times("a", desk.at(6)).unwrap();
        assert_eq!(now_s, BEGUN_S + 6.0, "until the next look the old clock holds");
        desk.look(7);
        assert_eq!(desk.looks.times("a", desk.at(7)), Some((BEGUN_S + 407.0, BEGUN_S + 407.0)));
        desk.look(9);
        assert_eq!(desk.counted_s(9), 2.0);
        desk.set_s = 0.0;
        desk.look(10);
        assert_eq!(desk.counted_s(10), 0.0, "nor one that is set back");
    }

    #[test]
    fn a_suspended_lender_makes_nobody_late() {
        let mut desk = Desk::new();
        desk.look(0);
        desk.look(5);
        let at = desk.at(5);
        desk.looks.suspended("a", at);
        desk.look(9);
        assert_eq!(desk.counted_s(9), 4.0);
        let (now_s, from_s) = desk.looks.times("b", desk.at(9)).unwrap();
        assert_eq!(now_s - from_s, 9.0, "that of another loan runs");
        desk.looks.forget("a");
        assert_eq!(desk.counted_s(9), 9.0);
    }
}

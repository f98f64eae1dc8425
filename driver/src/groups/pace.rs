//! How fast a group that works its lost time again sends its messages again, and so when it will be where it was.

/// Time between two looks at it, s: its relay writes its status as often.
pub const LOOK_S: f64 = 2.0;

/// So many messages tell a pace.
const FEWEST: u64 = 3;

/// What was seen of a group since its program was started.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// When that was.
    pub(super) begun_s: f64,
    /// The first look: when, and how many messages were to be sent again.
    first: Option<(f64, u64)>,
    /// When what is left changed last, and how many messages that is.
    pub(super) last: (f64, u64),
    /// It is where it was, or nobody waits for that any more.
    pub done: bool,
}

impl Pace {
    /// Nothing is seen yet.
    pub fn new(begun_s: f64) -> Pace {
        Pace { begun_s, first: None, last: (begun_s, 0), done: false }
    }

    /// When the group will have sent again what it had sent; none before that shows. `behind` messages are left.
    pub(super) fn caught_up_s(&mut self, now_s: f64, behind: u64) -> Option<f64> {
        let (from_s, from) = self.first.filter(|(_, from)| behind <= *from).unwrap_or((now_s, behind));
        // Where nothing was to be sent again, the other relays have perhaps not yet said what they have.
        self.first = (from > 0).then_some((from_s, from));
        if self.last.1 != behind {
            self.last = (now_s, behind);
        }
        let sent = from - behind;
        (sent >= FEWEST || sent > 0 && behind == 0).then(|| now_s + behind as f64 * (now_s - from_s) / sent as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_known_after_some_messages_and_followed() {
        let mut pace = Pace::new(99.0);
        assert_eq!(pace.caught_up_s(100.0, 0), None, "nobody has said yet what is to be sent again");
        assert_eq!(pace.caught_up_s(102.0, 40), None);
        assert_eq!(pace.caught_up_s(104.0, 38), None, "two messages are no pace");
        assert_eq!(pace.caught_up_s(106.0, 20), Some(110.0));
        assert_eq!(pace.caught_up_s(112.0, 20), Some(122.0), "it stands still meanwhile");
        assert_eq!(pace.caught_up_s(114.0, 60), None, "more is wanted: what was seen is of another way");
        assert_eq!(pace.caught_up_s(124.0, 0), Some(124.0));
    }

    #[test]
    fn one_message_that_is_the_last_is_enough() {
        let mut pace = Pace::new(99.0);
        assert_eq!(pace.caught_up_s(100.0, 1), None);
        assert_eq!(pace.caught_up_s(102.0, 0), Some(102.0));
    }
}

//! Receives answers from the background, and notices when none come any more.

use crate::{Error, Ready};

/// Runs without an answer, one after another, after which a feed is given up.
const FAILED_RUNS: u64 = 3;

/// The last thing that a feed has heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest<T = f64> {
    /// Runs that have ended so far, with or without an answer.
    pub runs: u64,
    /// The last answer, and at which run it came.
    pub value: Option<(u64, T)>,
    /// Why the last run gave none.
    pub error: Option<String>,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Latest { runs: 0, value: None, error: None }
    }
}

/// Something that delivers an answer now and then; the tests script one.
pub trait Feed<T = f64>: Send {
    /// What it has heard last, at once.
    fn latest(&mut self) -> Latest<T>;
    /// What it is, in words.
    fn describe(&self) -> String;
}

/// A feed, and since when its answer has not changed.
pub(crate) struct Listener<T = f64> {
    feed: Box<dyn Feed<T>>,
    silent_after_s: f64,
    heard: Option<(u64, f64)>,
}

impl<T> Listener<T> {
    /// Listens to a feed whose runs begin every `period_s` and last at most `timeout_s`.
    pub(crate) fn new(feed: Box<dyn Feed<T>>, period_s: f64, timeout_s: f64) -> Listener<T> {
        Listener { feed, silent_after_s: FAILED_RUNS as f64 * (period_s + timeout_s), heard: None }
    }

    /// Whether the first answer is there; an error when the first runs all failed.
    pub(crate) fn ready(&mut self) -> Result<Ready, Error> {
        let latest = self.feed.latest();
        match (latest.value, latest.error) {
            (Some(_), _) => Ok(Ready::Yes),
            (None, Some(text)) if latest.runs >= FAILED_RUNS => Err(Error::refused(text)),
            _ => Ok(Ready::NotYet),
        }
    }

    /// The last answer; an error when it is too old by runs or by time.
    pub(crate) fn answer(&mut self, now_s: f64) -> Result<T, Error> {
        let Latest { runs, value, error } = self.feed.latest();
        let Some((run, value)) = value else {
            return Err(Error::refused(error.unwrap_or_else(|| "no answer yet".into())));
        };
        let since_s = self.heard.filter(|(heard, _)| *heard == run).map_or(now_s, |(_, since_s)| since_s);
        self.heard = Some((run, since_s));
        if runs - run >= FAILED_RUNS || now_s - since_s > self.silent_after_s {
            let text = error.unwrap_or_else(|| "no answer any more".into());
            return Err(Error::Command { command: self.feed.describe(), text });
        }
        Ok(value)
    }

    pub(crate) fn describe(&self) -> String {
        self.feed.describe()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A feed that says what the test puts into it.
    #[derive(Clone, Default)]
    pub(crate) struct Scripted<T = f64>(Arc<Mutex<Latest<T>>>);

    impl<T> Scripted<T> {
        pub(crate) fn say(&self, runs: u64, value: Option<(u64, T)>, error: Option<&str>) {
            *self.0.lock().unwrap() = Latest { runs, value, error: error.map(String::from) };
        }
    }

    impl<T: Clone + Send> Feed<T> for Scripted<T> {
        fn latest(&mut self) -> Latest<T> {
            self.0.lock().unwrap().clone()
        }
        fn describe(&self) -> String {
            "scripted".into()
        }
    }

    fn listener() -> (Scripted, Listener) {
        let feed = Scripted::default();
        (feed.clone(), Listener::new(Box::new(feed), 5.0, 10.0))
    }

    #[test]
    fn one_missed_answer_is_forgiven_and_three_are_not() {
        let (feed, mut l) = listener();
        feed.say(2, Some((1, 200.0)), Some("busy"));
        assert_eq!(l.answer(0.0).unwrap(), 200.0);
        feed.say(4, Some((1, 200.0)), Some("busy"));
        assert_eq!(l.answer(1.0).unwrap_err().to_string(), "scripted: busy");
    }

    #[test]
    fn a_feed_that_hangs_is_given_up_by_time() {
        let (feed, mut l) = listener();
        feed.say(1, Some((1, 200.0)), None);
        assert!(l.answer(0.0).is_ok());
        assert!(l.answer(45.0).is_ok());
        assert!(l.answer(45.1).is_err());
        feed.say(2, Some((2, 200.0)), None);
        assert!(l.answer(45.2).is_ok(), "a new answer counts, even if it says the same");
    }

    #[test]
    fn a_feed_is_ready_with_its_first_answer_and_refused_after_three_failures() {
        let (feed, mut l) = listener();
        assert_eq!(l.ready().unwrap(), Ready::NotYet);
        assert!(l.answer(0.0).is_err());
        feed.say(2, None, Some("exit status: 1"));
        assert_eq!(l.ready().unwrap(), Ready::NotYet);
        feed.say(3, None, Some("exit status: 1"));
        assert_eq!(l.ready().unwrap_err().to_string(), "exit status: 1");
        feed.say(4, Some((4, 1.0)), None);
        assert_eq!(l.ready().unwrap(), Ready::Yes);
    }
}

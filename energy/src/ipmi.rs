//! Integrates the power reading of the management controller (DCMI), asked for by a command.

use crate::counter::Integral;
use crate::{Background, Config, Error, Feed, Load, Ready, Source, SourceKind};

/// Runs without an answer, one after another, after which the controller is given up.
const FAILED_RUNS: u64 = 3;

/// The management controller's power reading.
pub(crate) struct Ipmi {
    feed: Box<dyn Feed>,
    integral: Integral,
    seen: Option<(u64, f64)>,
    silent_after_s: f64,
    limit_w: f64,
}

impl Ipmi {
    pub(crate) fn open(config: &Config) -> Result<Ipmi, Error> {
        let feed = Background::start(&config.ipmi_command, config.ipmi_period_s, config.command_timeout_s, parse_w)?;
        Ok(Ipmi::with(Box::new(feed), config))
    }

    pub(crate) fn with(feed: Box<dyn Feed>, config: &Config) -> Ipmi {
        let silent_after_s = FAILED_RUNS as f64 * (config.ipmi_period_s + config.command_timeout_s);
        Ipmi { feed, integral: Integral::default(), seen: None, silent_after_s, limit_w: config.max_node_w }
    }
}

/// The watts in `Instantaneous power reading: 220 Watts`; a controller that says 0 does not measure.
fn parse_w(output: &str) -> Option<f64> {
    let line = output.lines().find(|l| l.trim_start().starts_with("Instantaneous power reading"))?;
    let mut words = line.split_once(':')?.1.split_whitespace();
    let watts: u32 = words.next()?.parse().ok()?;
    (words.next() == Some("Watts") && watts > 0).then_some(f64::from(watts))
}

impl Source for Ipmi {
    fn kind(&self) -> SourceKind {
        SourceKind::Ipmi
    }

    fn ready(&mut self) -> Result<Ready, Error> {
        let latest = self.feed.latest();
        match (latest.value, latest.error) {
            (Some(_), _) => Ok(Ready::Yes),
            (None, Some(text)) if latest.runs >= FAILED_RUNS => Err(Error::refused(text)),
            _ => Ok(Ready::NotYet),
        }
    }

    fn joules(&mut self, now_s: f64, _load: &Load) -> Result<f64, Error> {
        let latest = self.feed.latest();
        let Some((run, watts)) = latest.value else {
            return Err(Error::refused(latest.error.unwrap_or_else(|| "no reading yet".into())));
        };
        let since_s = match self.seen {
            Some((seen, since_s)) if seen == run => since_s,
            _ => now_s,
        };
        self.seen = Some((run, since_s));
        let text = latest.error.unwrap_or_else(|| "no answer any more".into());
        if latest.runs - run >= FAILED_RUNS || now_s - since_s > self.silent_after_s {
            return Err(Error::Command { command: self.feed.describe(), text });
        }
        if watts > self.limit_w {
            return Err(Error::malformed(self.feed.describe(), &format!("{watts} W")));
        }
        Ok(self.integral.advance(now_s, watts))
    }

    fn describe(&self) -> String {
        format!("`{}`: whole node, power integrated", self.feed.describe())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::Latest;

    /// A feed that says what the test puts into it.
    #[derive(Clone, Default)]
    pub(crate) struct Scripted(pub(crate) Arc<Mutex<Latest>>);

    impl Scripted {
        pub(crate) fn say(&self, runs: u64, value: Option<(u64, f64)>, error: Option<&str>) {
            *self.0.lock().unwrap() = Latest { runs, value, error: error.map(String::from) };
        }
    }

    impl Feed for Scripted {
        fn latest(&mut self) -> Latest {
            self.0.lock().unwrap().clone()
        }
        fn describe(&self) -> String {
            "scripted".into()
        }
    }

    const REPLY: &str = "
    Instantaneous power reading:                   220 Watts
    Minimum during sampling period:                 12 Watts
    Maximum during sampling period:                480 Watts
    Average power reading over sample period:      214 Watts
    IPMI timestamp:                           Sat Nov 21 04:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated
";

    #[test]
    fn the_reply_of_ipmitool_is_understood() {
        assert_eq!(parse_w(REPLY), Some(220.0));
        assert_eq!(parse_w(&REPLY.replace("220 Watts", "0 Watts")), None);
        assert_eq!(parse_w(&REPLY.replace("220 Watts", "220 Volts")), None);
        assert_eq!(parse_w("DCMI request failed because: Invalid command (c1)"), None);
    }

    #[test]
    fn readings_integrate_between_samples() {
        let feed = Scripted::default();
        let mut s = Ipmi::with(Box::new(feed.clone()), &Config::default());
        assert_eq!(s.ready().unwrap(), Ready::NotYet);
        feed.say(1, Some((1, 200.0)), None);
        assert_eq!(s.ready().unwrap(), Ready::Yes);
        assert_eq!(s.joules(10.0, &Load::default()).unwrap(), 0.0);
        assert_eq!(s.joules(11.0, &Load::default()).unwrap(), 200.0);
        feed.say(2, Some((2, 300.0)), None);
        assert_eq!(s.joules(12.0, &Load::default()).unwrap(), 450.0);
    }

    #[test]
    fn one_missed_answer_is_forgiven_and_three_are_not() {
        let feed = Scripted::default();
        let mut s = Ipmi::with(Box::new(feed.clone()), &Config::default());
        feed.say(2, Some((1, 200.0)), Some("busy"));
        assert!(s.joules(0.0, &Load::default()).is_ok());
        feed.say(4, Some((1, 200.0)), Some("busy"));
        assert!(s.joules(1.0, &Load::default()).unwrap_err().to_string().contains("busy"));
    }

    #[test]
    fn a_feed_that_hangs_is_given_up_by_time() {
        let feed = Scripted::default();
        let mut s = Ipmi::with(Box::new(feed.clone()), &Config::default());
        feed.say(1, Some((1, 200.0)), None);
        assert!(s.joules(0.0, &Load::default()).is_ok());
        assert!(s.joules(45.0, &Load::default()).is_ok());
        assert!(s.joules(45.1, &Load::default()).is_err());
    }

    #[test]
    fn a_controller_without_dcmi_is_refused() {
        let feed = Scripted::default();
        let mut s = Ipmi::with(Box::new(feed.clone()), &Config::default());
        feed.say(3, None, Some("ipmitool: exit status: 1"));
        assert!(s.ready().unwrap_err().to_string().contains("exit status"));
    }
}

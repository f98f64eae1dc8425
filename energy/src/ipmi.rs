//! Integrates the power reading of the management controller (DCMI), asked for by a command.

use crate::counter::Integral;
use crate::feed::Listener;
use crate::{Background, Config, Coverage, Error, Feed, Ready, Source, SourceKind};

/// The management controller's power reading.
pub(crate) struct Ipmi {
    feed: Listener,
    integral: Integral,
    limit_w: f64,
}

impl Ipmi {
    pub(crate) fn open(config: &Config) -> Result<Ipmi, Error> {
        let feed = Background::start(&config.ipmi_command, config.ipmi_period_s, config.command_timeout_s, parse_w)?;
        Ok(Ipmi::with(Box::new(feed), config))
    }

    fn with(feed: Box<dyn Feed>, config: &Config) -> Ipmi {
        let feed = Listener::new(feed, config.ipmi_period_s, config.command_timeout_s);
        Ipmi { feed, integral: Integral::default(), limit_w: config.max_node_w }
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

    fn covers(&self) -> Coverage {
        Coverage::Node
    }

    fn ready(&mut self) -> Result<Ready, Error> {
        self.feed.ready()
    }

    fn joules(&mut self, now_s: f64) -> Result<f64, Error> {
        let watts = self.feed.answer(now_s)?;
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
mod tests {
    use super::*;
    use crate::feed::tests::Scripted;

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
        assert_eq!(s.joules(10.0).unwrap(), 0.0);
        assert_eq!(s.joules(11.0).unwrap(), 200.0);
        feed.say(2, Some((2, 300.0)), None);
        assert_eq!(s.joules(12.0).unwrap(), 450.0);
    }

    #[test]
    fn an_implausible_power_and_a_silent_controller_are_errors() {
        let feed = Scripted::default();
        let mut s = Ipmi::with(Box::new(feed.clone()), &Config::default());
        feed.say(1, Some((1, 200.0)), None);
        assert_eq!(s.joules(0.0).unwrap(), 0.0);
        feed.say(2, Some((2, 30_001.0)), None);
        assert!(s.joules(1.0).unwrap_err().to_string().contains("30001 W"));
        feed.say(5, Some((2, 200.0)), Some("busy"));
        assert!(s.joules(2.0).unwrap_err().to_string().contains("busy"));
        feed.say(6, Some((6, 200.0)), None);
        assert_eq!(s.joules(3.0).unwrap(), 600.0);
    }
}

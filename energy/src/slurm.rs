//! Takes Slurm's own figure for this node from a command that prints it (see `slurm_energy`).

use crate::feed::Listener;
use crate::{Background, Config, Coverage, Error, Feed, Ready, Source, SourceKind};

/// Slurm's counter for the node.
pub(crate) struct SlurmFigure {
    feed: Listener,
    first_j: Option<f64>,
    last_j: f64,
}

impl SlurmFigure {
    pub(crate) fn open(config: &Config) -> Result<SlurmFigure, Error> {
        let feed = Background::start(&config.slurm_command, config.slurm_period_s, config.command_timeout_s, parse_j)?;
        Ok(SlurmFigure::with(Box::new(feed), config))
    }

    fn with(feed: Box<dyn Feed>, config: &Config) -> SlurmFigure {
        let feed = Listener::new(feed, config.slurm_period_s, config.command_timeout_s);
        SlurmFigure { feed, first_j: None, last_j: 0.0 }
    }
}

/// The number after `"joules":`, or a number alone.
fn parse_j(output: &str) -> Option<f64> {
    let rest = output.split_once("\"joules\"").map_or(output, |(_, r)| r.trim_start().trim_start_matches(':'));
    let number = rest.split([',', '}', '\n']).map(str::trim).find(|w| !w.is_empty())?;
    number.parse().ok().filter(|j: &f64| j.is_finite() && *j > 0.0)
}

impl Source for SlurmFigure {
    fn kind(&self) -> SourceKind {
        SourceKind::Slurm
    }

    /// Slurm does not say what its plugin measures, so nothing is ever added to it.
    fn covers(&self) -> Coverage {
        Coverage::Node
    }

    fn ready(&mut self) -> Result<Ready, Error> {
        self.feed.ready()
    }

    fn joules(&mut self, now_s: f64) -> Result<f64, Error> {
        let now_j = self.feed.answer(now_s)?;
        if now_j < self.last_j {
            // Whole joules: the counter's own unit.
            let (from, to) = (self.last_j as u64, now_j as u64);
            return Err(Error::Backwards { what: self.feed.describe(), from, to });
        }
        self.last_j = now_j;
        Ok(now_j - *self.first_j.get_or_insert(now_j))
    }

    fn describe(&self) -> String {
        format!("`{}`: Slurm's figure for the node", self.feed.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::tests::Scripted;

    #[test]
    fn the_answer_is_json_or_a_number() {
        assert_eq!(parse_j("{\"joules\": 1000980, \"base_j\": 1000000}\n"), Some(1_000_980.0));
        assert_eq!(parse_j("{\"node\":\"n1\",\"joules\":980}\n"), Some(980.0));
        assert_eq!(parse_j("980\n"), Some(980.0));
        for bad in ["", "{}", "{\"joules\": null}", "{\"joules\": -5}", "0", "slurm_load: fatal"] {
            assert_eq!(parse_j(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn counts_from_its_first_figure_and_never_down() {
        let feed = Scripted::default();
        let mut s = SlurmFigure::with(Box::new(feed.clone()), &Config::default());
        assert_eq!(s.ready().unwrap(), Ready::NotYet);
        feed.say(1, Some((1, 1000.0)), None);
        assert_eq!(s.joules(0.0).unwrap(), 0.0);
        feed.say(2, Some((2, 1350.0)), None);
        assert_eq!(s.joules(1.0).unwrap(), 350.0);
        feed.say(3, Some((3, 20.0)), None);
        assert!(matches!(s.joules(2.0), Err(Error::Backwards { from: 1350, to: 20, .. })));
    }

    #[test]
    fn a_slurmd_that_is_away_is_given_up() {
        let feed = Scripted::default();
        let mut s = SlurmFigure::with(Box::new(feed.clone()), &Config::default());
        feed.say(4, Some((1, 1000.0)), Some("exit status: 1"));
        assert!(s.joules(0.0).unwrap_err().to_string().contains("exit status"));
    }
}

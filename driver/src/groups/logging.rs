//! Parts the logging of messages from the computing beside which it was done.

use crate::ledger::Cut;
use protocol::{Event, Phase};

/// Makes the end of `node`'s computing in a cut, if it did compute, logging of that length; energy goes by time.
pub fn part(cut: &mut Cut, node: &str, logged_s: impl FnOnce() -> f64) {
    let is_its = |e: &Event| matches!(e, Event::Phase { phase: Phase::Compute, node: n, .. } if n == node);
    let Some(at) = cut.events.iter().position(is_its) else { return };
    let Event::Phase { start_s, end_s, joules, source, .. } = &mut cut.events[at] else { return };
    let (whole_s, all_j) = (*end_s - *start_s, *joules);
    let logged_s = logged_s().min(whole_s);
    if logged_s <= 0.0 {
        return;
    }
    let begin_s = *end_s - logged_s;
    let kept_j = all_j.map(|j| j * (1.0 - logged_s / whole_s));
    let logging = Event::Phase {
        phase: Phase::Logging,
        node: node.to_string(),
        start_s: begin_s,
        end_s: *end_s,
        joules: all_j.zip(kept_j).map(|(all, kept)| all - kept),
        source: source.clone(),
    };
    (*end_s, *joules) = (begin_s, kept_j);
    cut.events.insert(at + 1, logging);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(joules: Option<f64>) -> Cut {
        let source = "model".to_string();
        let phase =
            Event::Phase { phase: Phase::Compute, node: "n1".into(), start_s: 10.0, end_s: 20.0, joules, source };
        Cut { events: vec![phase], joules, node_s: 10.0 }
    }

    fn spans(cut: &Cut) -> Vec<(Phase, f64, f64, Option<f64>)> {
        let span = |e: &Event| match e {
            Event::Phase { phase, start_s, end_s, joules, .. } => Some((*phase, *start_s, *end_s, *joules)),
            _ => None,
        };
        cut.events.iter().filter_map(span).collect()
    }

    #[test]
    fn logging_takes_its_part_of_time_and_energy_and_no_more_than_there_is() {
        let mut cut = computed(Some(100.0));
        part(&mut cut, "n1", || 2.0);
        let logging = (Phase::Logging, 18.0, 20.0, Some(20.0));
        assert_eq!(spans(&cut), [(Phase::Compute, 10.0, 18.0, Some(80.0)), logging]);
        let mut cut = computed(None);
        part(&mut cut, "n1", || 99.0);
        assert_eq!(spans(&cut), [(Phase::Compute, 10.0, 10.0, None), (Phase::Logging, 10.0, 20.0, None)]);
        let mut cut = computed(Some(1.0));
        part(&mut cut, "n2", || 5.0);
        part(&mut cut, "n1", || 0.0);
        assert_eq!(spans(&cut).len(), 1);
    }
}

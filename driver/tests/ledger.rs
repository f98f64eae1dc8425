//! Each node's energy counter is cut into phases, which add up to it.

use driver::ledger::{Cut, Earlier, Ledger};
use driver::ports::NodeCounter;
use protocol::{JobReading, Phase};

fn counter(joules: f64, since_s: f64) -> Vec<NodeCounter> {
    let reading = JobReading { job: 1, joules, cpu_s: 0.0, source: "model".into(), since_s };
    vec![NodeCounter { node: "n1".into(), reading: Some(reading) }]
}

fn joules(cut: &Cut) -> Option<f64> {
    cut.joules
}

#[test]
fn a_counter_that_shows_nothing_yet_is_no_figure() {
    let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".to_string()], &Earlier::default());
    assert_eq!(joules(&ledger.cut(3.0, Phase::Compute, &counter(0.0, 0.0))), None);
    assert_eq!(joules(&ledger.cut(6.0, Phase::Compute, &counter(9.0, 0.0))), Some(9.0));
}

#[test]
fn phases_add_up_to_the_counter() {
    let mut ledger = Ledger::open(0.0, Phase::Restart, &["n1".into()], &Earlier::default());
    let mut sum = 0.0;
    for (t, j, next) in [(1.0, 10.0, Phase::Compute), (5.0, 50.5, Phase::Checkpoint), (6.0, 61.25, Phase::Compute)] {
        sum += joules(&ledger.cut(t, next, &counter(j, 0.0))).unwrap();
    }
    assert_eq!(sum, 61.25);
}

#[test]
fn an_unreadable_counter_is_no_zero_and_is_made_up_for() {
    let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &Earlier::default());
    ledger.cut(1.0, Phase::Compute, &counter(10.0, 0.0));
    assert_eq!(joules(&ledger.cut(2.0, Phase::Checkpoint, &[])), None);
    assert_eq!(joules(&ledger.cut(3.0, Phase::Compute, &counter(30.0, 0.0))), Some(20.0));
}

#[test]
fn an_older_reading_is_none_and_what_was_counted_since_is_not_counted_twice() {
    let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &Earlier::default());
    ledger.cut(1.0, Phase::Checkpoint, &counter(100.0, 0.0));
    // The node does not answer: these are of its last heartbeats.
    let old = ledger.cut(2.0, Phase::Compute, &counter(70.0, 0.0));
    assert_eq!((joules(&old), old.events.len()), (None, 1), "{old:?}");
    assert_eq!(joules(&ledger.cut(6.0, Phase::Compute, &counter(100.0, 0.0))), None);
    assert_eq!(joules(&ledger.cut(7.0, Phase::Compute, &counter(130.0, 0.0))), Some(30.0));
}

#[test]
fn what_is_remembered_of_a_node_before_it_booted_is_no_counter_that_began_anew() {
    let accounted = Earlier { counters: counter(380.0, 5983.0), killed: None };
    let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &accounted);
    assert_eq!(joules(&ledger.cut(1.0, Phase::Compute, &counter(3000.0, 6010.0))), Some(3000.0));
    assert_eq!(joules(&ledger.cut(2.0, Phase::Compute, &counter(493.0, 5983.0))), None);
    assert_eq!(joules(&ledger.cut(3.0, Phase::Compute, &counter(3700.0, 6010.0))), Some(700.0));
    // Its clock was set back before its service began anew.
    assert_eq!(joules(&ledger.cut(4.0, Phase::Compute, &counter(20.0, 5000.0))), Some(20.0));
}

#[test]
fn a_counter_that_began_anew_is_never_negative() {
    let mut ledger = Ledger::open(0.0, Phase::Compute, &["n1".into()], &Earlier::default());
    ledger.cut(1.0, Phase::Compute, &counter(100.0, 0.0));
    assert_eq!(joules(&ledger.cut(2.0, Phase::Compute, &counter(3.0, 1.5))), Some(3.0));
}

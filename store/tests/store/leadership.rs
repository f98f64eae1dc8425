//! Several controllers on one MariaDB: one leads, and what an earlier leader still has in hand counts for nothing.

use super::*;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use store::{Error, Leadership};

/// For anything that should happen, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A controller that waits for the lead, and how long it has waited.
fn waiting(place: &Path, who: &'static str) -> mpsc::Receiver<(Leadership, Duration)> {
    let (sender, receiver) = mpsc::channel();
    let place = place.to_owned();
    std::thread::spawn(move || {
        let begun = Instant::now();
        let lead = Leadership::wait(&place, who).expect("MariaDB").expect("a lead");
        let _ = sender.send((lead, begun.elapsed()));
    });
    receiver
}

fn now(place: &Path, who: &'static str) -> Leadership {
    waiting(place, who).recv_timeout(PATIENCE).expect("the lead").0
}

fn is_refused<T: std::fmt::Debug>(what: store::Result<T>) {
    let e = what.expect_err("another controller leads");
    assert!(matches!(e.cause(), Error::NotLeading), "{e}");
}

#[test]
fn a_standby_takes_over_from_a_leader_that_is_silent_and_its_writes_count_for_nothing() {
    let Some((_server, place)) = database() else { return };
    let first = now(&place, "a:1");
    let mut old = Store::open_led(&place, Some(&first)).expect("the store");
    let begins = batch("1.0", records(1, vec![started(1, 0, &["n1"])]));
    old.append(&begins, UID).expect("the leader writes");
    let standby = waiting(&place, "b:1");
    // It renews for a while, and then is stopped in the middle of a transaction.
    let until = Instant::now() + Duration::from_secs(8);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < until {
                first.renew().expect("MariaDB").then_some(()).expect("nobody else leads");
                std::thread::sleep(Duration::from_millis(200));
            }
        });
    });
    assert!(standby.try_recv().is_err(), "the leader was alive");
    assert_eq!(first.standby(), Some(("b:1".to_owned(), true)));
    let stopped = Instant::now();
    let inside = old.connection().transaction(|| {
        let (second, _) = standby.recv_timeout(PATIENCE).expect("the standby leads");
        assert!(stopped.elapsed() > Duration::from_secs(5), "{:?}", stopped.elapsed());
        let mut new = Store::open_led(&place, Some(&second)).expect("the store");
        new.append(&batch("1.0", records(2, vec![ended("COMPLETED")])), UID).expect("the new leader writes");
        old.connection().execute("UPDATE runs SET heard_s = 1", &[])
    });
    inside.expect_err("MariaDB has ended a transaction of which nothing was heard");
    assert!(!first.is_confirmed());
    assert!(!first.renew().expect("MariaDB"), "another one leads");
    is_refused(old.append(&batch("1.0", records(2, vec![ended("FAILED")])), UID));
    is_refused(old.connection().execute("UPDATE runs SET heard_s = 1", &[]));
    is_refused(Store::another(&old, &place).expect("a connection").append(&begins, UID));
}

#[test]
fn a_leader_that_stops_hands_over_at_once_and_one_that_begins_again_does_not_wait() {
    let Some((_server, place)) = database() else { return };
    let first = now(&place, "a:1");
    let again = now(&place, "a:1");
    assert!(!first.renew().expect("MariaDB"), "its own later life leads");
    let standby = waiting(&place, "b:1");
    std::thread::sleep(Duration::from_secs(2));
    again.give_up().expect("MariaDB");
    let (_, waited) = standby.recv_timeout(PATIENCE).expect("the standby leads");
    assert!(waited < Duration::from_secs(6), "{waited:?}");
}

#[test]
fn of_two_that_would_lead_one_does() {
    let Some((_server, place)) = database() else { return };
    let all: Vec<_> = (0..4).map(|n| waiting(&place, ["a:1", "b:1", "c:1", "d:1"][n])).collect();
    std::thread::sleep(Duration::from_secs(3));
    let leads: Vec<_> = all.iter().filter_map(|one| one.try_recv().ok()).collect();
    assert_eq!(leads.len(), 1);
}

#[test]
fn a_file_has_one_host_and_no_standby() {
    assert!(Leadership::wait(&PathBuf::from("/nonexistent/x.sqlite"), "a:1").expect("no question").is_none());
}

//! A relay that is not there: a rank waits for it as long as was said, and says so.

use mpi_relay::{Client, Error};
use std::time::{Duration, Instant};

#[test]
fn a_relay_that_does_not_come_is_told_after_the_time_that_was_said() {
    let folder = tempfile::tempdir().expect("a folder");
    // SAFETY: this process has no other test and no other thread that reads the environment.
    unsafe { std::env::set_var("FT_ENERGY_RELAY_WAIT", "2") };
    let begun = Instant::now();
    let outcome = Client::connect(&folder.path().join("0.sock"), 0, 2);
    assert!(matches!(outcome, Err(Error::Away { waited_s: 2, .. })), "{outcome:?}");
    assert!(begun.elapsed() >= Duration::from_secs(2));
}

//! The driver of groups in a scripted world: thousands of random failure histories in virtual time.
//!
//! Every history is a seed. A failing one is printed; `SEED=n cargo test -p wrapper --test groups` repeats it.

mod common;
mod world;

use common::{Killed, check_energy};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use world::{Chances, check_orders, play_record};
use wrapper::driver::Outcome;
use wrapper::groups::place::before;

const SEEDS: u64 = 3000;

/// Plays one history to its end.
fn play(seed: u64) -> [u64; 4] {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut some = |most: f64| if rng.random_bool(0.5) { rng.random_range(0.0..most) } else { 0.0 };
    let chances = Chances {
        wrapper_killed: some(0.003),
        node_dies: some(0.003),
        node_returns: some(0.003),
        step_crashes: some(0.003),
        step_refused: some(0.3),
        preempted: some(0.0003),
        checkpoint_fails: some(0.3),
        checkpoint_hangs: some(0.1),
        disk_full: some(0.3),
        checkpoint_rots: some(0.3),
        meter_fails: some(0.2),
        ordered: some(0.02),
        park_fails: some(0.3),
        loan_refused: some(0.5),
        lent_node_dies: some(0.3),
        relay_dies: some(0.003),
        relay_refused: some(0.001),
        asked_to_end: some(0.0001),
    };
    let world = world::World::shared(rng, chances);
    let mut record = 0;
    loop {
        assert!(record < 9_999, "the run never ends");
        let from = world.borrow_mut().new_record(record);
        let outcome = catch_unwind(AssertUnwindSafe(|| play_record(&world, record)));
        check_energy(&world.borrow().journal[from..]);
        check_orders(&world.borrow(), outcome.is_ok());
        assert!(before(world.borrow().journal.iter()).unserved <= 3, "handed back without end");
        match outcome {
            Ok(Outcome::Ended(0)) => {
                world.borrow().check_end();
                let w = world.borrow();
                return [w.restarts, w.loans, w.lacking, w.refused];
            }
            Ok(Outcome::Ended(_) | Outcome::Requeued) => {}
            Err(cause) if cause.is::<Killed>() => {}
            Err(cause) => resume_unwind(cause),
        }
        record += 1;
    }
}

#[test]
fn no_group_goes_back_that_did_not_fail() {
    if let Some(seed) = std::env::var("SEED").ok().and_then(|s| s.parse().ok()) {
        play(seed);
        return;
    }
    let mut counts = [0; 4];
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 0..SEEDS {
        let more = catch_unwind(|| play(seed)).unwrap_or_else(|cause| {
            let _ = std::panic::take_hook();
            eprintln!("SEED={seed} fails");
            resume_unwind(cause)
        });
        counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
    }
    let _ = std::panic::take_hook();
    let [restarts, loans, lacking, refused] = counts;
    println!(
        "{SEEDS} histories, {restarts} groups started again alone, nodes were lent {loans} times, logs lacked {lacking}, \
         {refused} relays could not begin"
    );
    assert!(refused > SEEDS / 10, "{refused} refused relays are too few to show anything");
    assert!(lacking > SEEDS / 10, "{lacking} lost logs are too few to show anything");
    assert!(loans > SEEDS / 10, "{loans} loans are too few to show anything");
    assert!(restarts > SEEDS, "{restarts} restarts are too few to show anything");
}

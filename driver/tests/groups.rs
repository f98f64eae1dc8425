//! The driver of groups in a scripted world: thousands of random failure histories in virtual time.
//!
//! Every history is a seed. A failing one is printed; `SEED=n cargo test -p driver --test groups` repeats it.

mod common;
mod world;

use common::{Killed, check_energy};
use driver::groups::place::before;
use driver::setup::Outcome;
use planner::CAUGHT_UP;
use protocol::{Event, Phase};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use world::{Chances, check_orders, play_record};

const SEEDS: u64 = 3000;

/// Plays one history to its end.
fn play(seed: u64) -> [u64; 8] {
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
        begins_late: some(0.5),
        differs: some(0.5),
        no_line: some(0.5),
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
                let speeds = speeds(&w.journal);
                let late = speeds.iter().filter(|(took_s, lost_s)| took_s > lost_s).count();
                return [
                    w.restarts,
                    w.loans,
                    w.lacking,
                    w.refused,
                    speeds.len() as u64,
                    late as u64,
                    w.together,
                    w.to_lines,
                ];
            }
            Ok(Outcome::Ended(_) | Outcome::Requeued) => {}
            Ok(Outcome::Superseded) => panic!("nobody else has the run"),
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
    std::panic::set_hook(Box::new(|_| {}));
    let tried = |seed: u64| {
        catch_unwind(|| play(seed)).unwrap_or_else(|cause| {
            eprintln!("SEED={seed} fails");
            resume_unwind(cause)
        })
    };
    let sum = |a: [u64; 8], b: [u64; 8]| std::array::from_fn(|i| a[i] + b[i]);
    let parts = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let of_part = |part: usize| (part as u64..SEEDS).step_by(parts).map(tried).fold([0; 8], sum);
    let counts = thread::scope(|scope| {
        let all: Vec<_> = (0..parts).map(|part| scope.spawn(move || of_part(part))).collect();
        all.into_iter().map(|part| part.join().unwrap_or_else(|cause| resume_unwind(cause))).fold([0; 8], sum)
    });
    let _ = std::panic::take_hook();
    let [restarts, loans, lacking, refused, seen, late, together, to_lines] = counts;
    println!(
        "{SEEDS} histories, {restarts} groups started again alone, nodes were lent {loans} times, logs lacked {lacking}, \
         {refused} relays could not begin, {seen} groups were seen to catch up, {late} of them later than expected, all went \
         back together {together} times, {to_lines} times to a line"
    );
    assert!(to_lines > SEEDS / 10, "{to_lines} lines gone back to are too few to show anything");
    assert!(together - to_lines > SEEDS / 10, "{together} beginnings of all anew are too few to show anything");
    assert!(late > SEEDS / 10, "{late} groups that came late are too few to show anything");
    assert!(refused > SEEDS / 10, "{refused} refused relays are too few to show anything");
    assert!(lacking > SEEDS / 10, "{lacking} lost logs are too few to show anything");
    assert!(loans > SEEDS / 10, "{loans} loans are too few to show anything");
    assert!(restarts > SEEDS, "{restarts} restarts are too few to show anything");
}

/// What each group that was seen to catch up took for its lost work, and what it had taken for it before, s.
fn speeds(journal: &[Event]) -> Vec<(f64, f64)> {
    let of_group = journal.iter().filter_map(|e| if let Event::InGroup { of, .. } = e { Some(&**of) } else { None });
    let reasons = of_group.filter_map(|e| match e {
        Event::Decided { action, reason, .. } if action == CAUGHT_UP => Some(reason),
        _ => None,
    });
    let seconds = |reason: &String| {
        let mut words = reason.split(" in ").skip(1).map(|rest| rest.split(' ').next()?.parse::<f64>().ok());
        Some((words.next()??, words.next()??))
    };
    reasons.filter_map(seconds).collect()
}

/// Two groups that talk; the second crashes after 100 s. The journal, and for how long the first has waited, s.
fn crash(begins_late: f64, falls_silent: Option<f64>) -> (Vec<Event>, f64) {
    let world = world::World::shared(ChaCha8Rng::seed_from_u64(1), Chances { begins_late, ..Chances::default() });
    {
        let w = &mut *world.borrow_mut();
        (w.work_s, w.count, w.spare, w.interval_s) = (vec![400.0; 2], 2, 0, 1e4);
        w.programs = (0..2).map(|_| world::Program::default()).collect();
        (w.log, w.message_s, w.falls_silent) = (Some(options::Log::Disk), Some(1.0), falls_silent);
        w.new_record(0);
        w.crash = Some((1, w.now_s + 100.0));
    }
    // When the first has ended, it idles again.
    let until_s = world.borrow().now_s + 400.0;
    assert_eq!(play_record(&world, 0), Outcome::Ended(0));
    let journal = std::mem::take(&mut world.borrow_mut().journal);
    let idle = journal.iter().filter_map(|e| match e {
        Event::Phase { phase: Phase::Idle, node, start_s, end_s, .. } if node == "n0" && *end_s < until_s => {
            Some(end_s - start_s)
        }
        _ => None,
    });
    let idle_s = idle.sum();
    (journal, idle_s)
}

#[test]
fn a_group_is_waited_for_until_it_is_where_it_was() {
    for late_s in [0.0, 25.0] {
        let (journal, idle_s) = crash(late_s / 25.0, None);
        let (took_s, lost_s) = speeds(&journal)[0];
        assert!((lost_s - 100.0).abs() < 4.0, "{lost_s} s were lost");
        assert!((took_s - lost_s - late_s).abs() < 4.0, "{took_s} s for {lost_s} s, {late_s} s late");
        assert!((idle_s - took_s).abs() < 4.0, "waited {idle_s} s for {took_s} s");
    }
}

#[test]
fn a_group_that_falls_silent_is_not_waited_for_without_end() {
    let (journal, idle_s) = crash(0.0, Some(50.0));
    assert_eq!(speeds(&journal), []);
    // Half of its lost work, and as long as all of that once more.
    assert!((145.0..160.0).contains(&idle_s), "{idle_s}");
}

//! Seeded histories of groups that send, receive from any source, checkpoint, fail and go back: no wrong result, no wait
//! without end. `HISTORIES=N` and `SEED=N` choose others, `TRACE=1` tells what happens.

mod driver;
mod log;
mod program;
mod world;

use world::World;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn no_history_has_a_wrong_result_or_a_wait_without_end() {
    let (histories, first) = (number("HISTORIES", 2000), number("SEED", 0));
    let half = |seeds: std::ops::Range<u64>| {
        let mut seen = world::Seen::default();
        for seed in seeds {
            let mut world = World::new(seed);
            if let Err(wrong) = world.run() {
                panic!("seed {seed}: {wrong}");
            }
            seen.add(&world.seen);
        }
        seen
    };
    let middle = first + histories / 2;
    let seen = std::thread::scope(|scope| {
        let other = scope.spawn(|| half(middle..first + histories));
        let mut seen = half(first..middle);
        seen.add(&other.join().expect("no panic"));
        seen
    });
    println!("{seen:?}");
    if histories >= 1000 {
        // A simulation in which nothing happens shows nothing.
        let all = [seen.kills, seen.relays, seen.nodes, seen.checkpoints, seen.lines, seen.backs, seen.all_back];
        assert!(all.iter().all(|count| *count >= histories / 50), "{seen:?}");
        assert!(seen.replayed > histories && seen.outcomes > histories && seen.differences > 0, "{seen:?}");
    }
}

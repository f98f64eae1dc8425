//! Does the same for many at the same time, and for no more at once than this node and the network bear.

use std::thread;

/// How many are done at the same time.
const AT_ONCE: usize = 32;

/// What an act gives for each item, in their order; none for one whose act panicked.
pub fn each<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<Option<R>> {
    let mut results = Vec::with_capacity(items.len());
    for some in items.chunks(AT_ONCE) {
        results.extend(thread::scope(|scope| {
            let act = &act;
            let acts: Vec<_> = some.iter().map(|item| threads::start_in(scope, move || act(item))).collect();
            acts.into_iter().map(|result| result.join().ok()).collect::<Vec<_>>()
        }));
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items_and_one_that_panics_takes_none_with_it() {
        let items: Vec<usize> = (0..3 * AT_ONCE + 1).collect();
        let halves = each(&items, |n| {
            assert_ne!(*n, 7, "this one panics");
            n / 2
        });
        let expected: Vec<Option<usize>> = items.iter().map(|n| (*n != 7).then_some(n / 2)).collect();
        assert_eq!(halves, expected);
    }
}

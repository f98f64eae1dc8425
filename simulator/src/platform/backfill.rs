//! Chooses which waiting jobs start: first come first served, with EASY backfilling.

/// A job that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) job: usize,
    pub(super) nodes: u32,
    /// How long it says that it runs.
    pub(super) limit_s: f64,
}

/// The jobs to start now. A job may overtake the first one that does not fit if that one starts no later by it, going
/// by the ends that the `running` jobs, (end, nodes), announced.
pub(super) fn to_start(now_s: f64, mut free: u32, waiting: &[Request], running: &[(f64, u32)]) -> Vec<usize> {
    let fitting = waiting
        .iter()
        .take_while(|r| {
            let fits = r.nodes <= free;
            free -= if fits { r.nodes } else { 0 };
            fits
        })
        .count();
    let (started, rest) = waiting.split_at(fitting);
    let mut jobs: Vec<usize> = started.iter().map(|r| r.job).collect();
    let Some((head, others)) = rest.split_first() else { return jobs };
    let ends = running.iter().copied().chain(started.iter().map(|r| (now_s + r.limit_s, r.nodes))).collect();
    let (head_start_s, mut extra) = reservation(head.nodes, free, ends);
    for r in others {
        let ends_in_time = now_s + r.limit_s <= head_start_s;
        if r.nodes <= free && (ends_in_time || r.nodes <= extra) {
            free -= r.nodes;
            extra -= if ends_in_time { 0 } else { r.nodes };
            jobs.push(r.job);
        }
    }
    jobs
}

/// When `nodes` will be free, and how many besides them.
fn reservation(nodes: u32, free: u32, mut ends: Vec<(f64, u32)>) -> (f64, u32) {
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut available = free;
    for (end_s, released) in ends {
        available += released;
        if available >= nodes {
            return (end_s, available - nodes);
        }
    }
    (f64::INFINITY, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_job_overtakes_only_if_the_first_in_line_starts_no_later() {
        let r = |job, nodes, limit_s| Request { job, nodes, limit_s };
        // Ten nodes, six run until 100; job 1 needs eight and so waits until 100, leaving two besides.
        let running = [(100.0, 6)];
        for (waiting, expected) in [
            (vec![r(0, 2, 500.0), r(1, 8, 10.0)], vec![0]),
            (vec![r(1, 8, 10.0), r(2, 4, 100.0)], vec![2]),
            (vec![r(1, 8, 10.0), r(2, 4, 101.0)], vec![]),
            (vec![r(1, 8, 10.0), r(2, 2, 1e9), r(3, 1, 1e9), r(4, 2, 50.0)], vec![2, 4]),
            (vec![r(1, 8, 10.0), r(2, 2, f64::INFINITY)], vec![2]),
            (vec![r(1, 4, 10.0), r(2, 1, 10.0)], vec![1]),
        ] {
            assert_eq!(to_start(0.0, 4, &waiting, &running), expected, "{waiting:?}");
        }
    }
}

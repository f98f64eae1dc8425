//! The lending decision: break-even, queue, reasons.

use policy::lending::{Prospect, lend};

fn prospect() -> Prospect {
    Prospect {
        since_line_s: 3000.0,
        checkpoint_s: 60.0,
        restart_s: 30.0,
        alpha: 0.5,
        rho: 1.5,
        load_save_s: 0.0,
        scheduler_s: 10.0,
        shortest_queued_s: Some(600.0),
        nodes: 4.0,
        idle_w: 100.0,
    }
}

#[test]
fn a_long_re_execution_with_a_job_that_fits_lends() {
    let verdict = lend(&prospect()).unwrap();
    assert!(verdict.lend, "{}", verdict.reason);
    assert_eq!(verdict.idle_s, (0.5 * 60.0 + 3000.0) / 1.5);
    assert_eq!(verdict.break_even_s, 60.0 + 10.0 + 30.0);
    assert_eq!(verdict.window_s, 2020.0 - 100.0);
    assert_eq!(verdict.idle_j, 2020.0 * 400.0);
}

#[test]
fn each_reason_to_keep_the_nodes_is_named() {
    let cases = [
        (Prospect { since_line_s: 60.0, ..prospect() }, "kept: the survivors idle only 60.0 s"),
        (Prospect { shortest_queued_s: None, ..prospect() }, "kept: no job waits"),
        (Prospect { shortest_queued_s: Some(3600.0), ..prospect() }, "kept: the shortest job that waits may need"),
        (Prospect { rho: 100.0, ..prospect() }, "kept: the survivors idle only"),
    ];
    for (prospect, reason) in cases {
        let verdict = lend(&prospect).unwrap();
        assert!(!verdict.lend && verdict.reason.starts_with(reason), "{reason}: {}", verdict.reason);
    }
}

#[test]
fn lending_begins_exactly_at_the_break_even() {
    // (alpha C + t1) / rho = C + R + scheduler, with a job that needs no time.
    let at = |t1: f64| lend(&Prospect { since_line_s: t1, shortest_queued_s: Some(0.0), ..prospect() }).unwrap().lend;
    let even_s = 100.0 * 1.5 - 0.5 * 60.0;
    assert!(at(even_s) && !at(even_s - 1e-6));
}

#[test]
fn what_has_no_meaning_is_refused() {
    for wrong in [
        Prospect { since_line_s: -1.0, ..prospect() },
        Prospect { restart_s: -1.0, ..prospect() },
        Prospect { rho: 0.0, ..prospect() },
        Prospect { alpha: 2.0, ..prospect() },
    ] {
        assert!(lend(&wrong).is_err(), "{wrong:?}");
    }
}

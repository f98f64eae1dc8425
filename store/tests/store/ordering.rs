//! Orders in the store: kept with all that their run tells after them, and forgotten after a day.

use super::{UID, batch, both, ended, key, node_failure, records, spoil, started};
use protocol::{Event, Order, OrderState, OrderStatus, Verb};

fn order(id: &str, run: &str, at_s: f64) -> OrderStatus {
    OrderStatus {
        order: Order { id: id.into(), verb: Verb::Checkpoint, by: "alice".into(), begin_s: None },
        key: key(run),
        job: 7,
        at_s,
        state: OrderState::Waiting,
        text: String::new(),
        checkpoint: None,
    }
}

#[test]
fn an_order_is_found_again_with_what_its_run_told_since() {
    both(|store| {
        store.append(&batch("7.1", records(1, vec![started(7, 1, &["n1"])])), UID).expect("a run");
        store.keep_order(&order("a", "7.1", 200.0), UID, 1).expect("kept");
        store.keep_order(&order("a", "7.1", 201.0), UID, 1).expect_err("an id is used once");
        let kept = store.kept_orders(300.0).expect("read");
        let [a] = kept.as_slice() else { panic!("{kept:?}") };
        assert_eq!((&a.status, a.owner, a.restart_count, a.is_open), (&order("a", "7.1", 200.0), UID, 1, true));
        assert!(a.records.is_empty(), "what the run told before is not about it");

        store.order_taken("a").expect("noted");
        store.append(&batch("7.1", records(2, vec![ended("completed")])), UID).expect("its end");
        store.keep_order(&order("b", "7.1", 250.0), UID, 1).expect("kept");
        let kept = store.kept_orders(300.0).expect("read");
        let [a, b] = kept.as_slice() else { panic!("{kept:?}") };
        assert_eq!((a.status.state, a.is_open), (OrderState::Taken, false));
        assert_eq!(a.records, records(2, vec![ended("completed")]));
        assert!(b.records.is_empty() && b.status.state == OrderState::Waiting, "{b:?}");

        store.keep_order(&order("c", "7.1", 200.0 + 86_500.0), UID, 1).expect("kept");
        let kept = store.kept_orders(0.0).expect("read");
        assert!(kept.iter().all(|o| o.status.order.id == "c"), "{kept:?}");
    });
}

#[test]
fn of_all_that_a_run_has_told_an_order_is_found_with_little() {
    both(|store| {
        let told = |id: &str, text: &str| Event::Ordered {
            id: id.into(),
            verb: Verb::Checkpoint,
            by: "alice".into(),
            state: OrderState::Failed,
            text: text.into(),
            checkpoint: None,
        };
        store.append(&batch("7.1", records(1, vec![started(7, 1, &["n1"])])), UID).expect("a run");
        store.keep_order(&order("a", "7.1", 200.0), UID, 1).expect("kept");
        let others = (0..100).map(|n| told(&format!("other{n}"), &"x".repeat(1000)));
        let all: Vec<Event> = others.chain([told("a", "once"), told("a", "twice"), told("b", "after")]).collect();
        store.append(&batch("7.1", records(2, all)), UID).expect("orders");
        let kept = store.kept_orders(300.0).expect("read");
        let [a] = kept.as_slice() else { panic!("{kept:?}") };
        let events: Vec<&Event> = a.records.iter().map(|r| &r.event).collect();
        assert_eq!(events, [&told("a", "twice"), &told("b", "after")]);
        assert_eq!(a.records[1].seq, 104);
    });
}

#[test]
fn an_order_or_record_that_is_not_understood_hides_no_other() {
    both(|store| {
        store.append(&batch("7.1", records(1, vec![started(7, 1, &["n1"])])), UID).expect("a run");
        store.keep_order(&order("a", "7.1", 200.0), UID, 1).expect("kept");
        store.keep_order(&order("b", "7.1", 201.0), UID, 1).expect("kept");
        let told = vec![started(7, 2, &["n1"]), node_failure("n1", 103.0), ended("completed")];
        store.append(&batch("7.1", records(2, told)), UID).expect("stored");
        spoil(store, "orders WHERE id = 'a'");
        spoil(store, "events WHERE run = '7.1' AND seq = 3");
        let kept = store.kept_orders(300.0).expect("read");
        let [b] = kept.as_slice() else { panic!("{kept:?}") };
        assert_eq!(b.status.order.id, "b");
        assert_eq!(b.records.iter().map(|r| r.seq).collect::<Vec<_>>(), [2, 4]);
    });
}

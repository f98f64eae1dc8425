//! Which nodes are whose, and how often in a row a run was handed back since no relay could begin.

use driver::groups::place::{Places, UNSERVED, before, in_order};
use protocol::Event;

#[test]
fn a_run_is_handed_back_in_a_row_only_if_no_start_in_between_did_better() {
    let started = Event::Started {
        job: 1,
        restart_count: 0,
        user: String::new(),
        account: String::new(),
        partition: String::new(),
        job_name: String::new(),
        nodes: Vec::new(),
        resumed_from: None,
        dir: String::new(),
    };
    let line = Event::Committed {
        number: 1,
        begun_s: 0.0,
        ended_s: 1.0,
        bytes: 0,
        written_bytes: None,
        joules: None,
        still_s: None,
    };
    let line = Event::InGroup { group: 0, nodes: Vec::new(), of: Box::new(line) };
    let decided = Event::Decided { action: UNSERVED.into(), reason: String::new(), interval_s: 0.0 };
    for (told, expected) in
        [("", 0), ("s", 0), ("sd", 1), ("sdd", 1), ("sdsd", 2), ("sds", 1), ("sdss", 0), ("sdssd", 1), ("sdsdslsd", 1)]
    {
        let events: Vec<&Event> =
            told.chars().map(|c| [&started, &line, &decided]["sl".find(c).unwrap_or(2)]).collect();
        assert_eq!(before(events.into_iter()).unserved, expected, "{told}");
    }
}

#[test]
fn the_batch_host_is_the_first_spare_and_no_group_is_empty() {
    let nodes: Vec<String> = (1..=6).map(|i| format!("n{i}")).collect();
    let shown = |groups, spare| {
        let places = Places::deal(&nodes, groups, spare).unwrap();
        let groups: Vec<String> = places.groups.iter().map(|g| g.join("+")).collect();
        format!("{} | {}", groups.join(" "), places.spares.join(" "))
    };
    assert_eq!(shown(5, 1), "n2 n3 n4 n5 n6 | n1");
    assert_eq!(shown(2, 1), "n2+n3+n4 n5+n6 | n1");
    assert_eq!(shown(6, 1), "n1 n2 n3 n4 n5 n6 | ");
    assert!(Places::deal(&nodes, 7, 0).unwrap_err().contains("7 groups"));
    let mixed = ["n10", "n9", "a2-7", "a2-11"].map(str::to_string);
    assert_eq!(in_order(mixed.into()), ["a2-7", "a2-11", "n9", "n10"]);
}

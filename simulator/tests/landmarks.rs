//! Reproduces ElSayed14's printed figures from Los Alamos's failure records.

use simulator::published::elsayed_cells;
use simulator::trace::Trace;

fn system(id: u32) -> Trace {
    let path = format!("{}/../tests/data/lanl/system-{id}.csv", env!("CARGO_MANIFEST_DIR"));
    Trace::parse(&format!("system {id}"), &std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn traces_have_the_published_gaps_and_means() {
    for (id, gaps, mttf_days) in
        [(2, 5396, 0.584), (3, 294, 2.463), (12, 255, 2.656), (18, 3917, 0.312), (20, 2400, 0.566), (21, 105, 0.998)]
    {
        let trace = system(id);
        assert_eq!(trace.gaps_s.len(), gaps, "system {id}");
        assert!((trace.mean_s() / 86_400.0 - mttf_days).abs() < 6e-4, "system {id}: {}", trace.mean_s() / 86_400.0);
    }
}

#[test]
fn tables_ii_and_iv_are_reproduced() {
    let mut wrong = Vec::new();
    for id in [2, 20, 21] {
        let cells = elsayed_cells(id, &system(id)).unwrap();
        assert!(!cells.is_empty());
        wrong.extend(cells.into_iter().filter(|c| !c.reproduced()));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

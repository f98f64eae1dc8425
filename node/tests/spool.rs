//! The spool of a node: synced, bounded, fair, and cut where it is damaged.

use node::spool::{Refused, Spool};
use protocol::{Batch, Event, Record, RunKey};
use std::path::{Path, PathBuf};

fn batch(run: &str, seqs: std::ops::RangeInclusive<u64>) -> Batch {
    let record = |seq| Record { seq, at_s: 1.0, event: Event::CheckpointFailed { reason: format!("reason {seq}") } };
    let key = RunKey { cluster: "c".into(), run: run.into() };
    Batch { version: protocol::VERSION, key, holder: None, records: seqs.map(record).collect() }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("folder").map(|e| e.expect("entry").path()).collect();
    paths.sort();
    paths
}

#[test]
fn what_was_kept_is_there_after_a_restart_and_kept_once() {
    let dir = tempfile::tempdir().expect("folder");
    let spool = Spool::open(dir.path(), 1 << 20).expect("spool");
    assert_eq!(spool.keep(1, &batch("a", 1..=3)).expect("kept"), 3);
    assert_eq!(spool.keep(1, &batch("a", 2..=5)).expect("kept"), 5);
    assert_eq!(spool.keep(2, &batch("a", 1..=1)).expect("another user's, with the same name"), 1);
    let used = spool.used_bytes();
    assert_eq!(spool.keep(1, &batch("a", 1..=5)).expect("known"), 5);
    let spool = Spool::open(dir.path(), 1 << 20).expect("again");
    assert_eq!(spool.used_bytes(), used);
    assert_eq!(spool.keep(1, &batch("a", 1..=4)).expect("known"), 5);
    assert_eq!(spool.used_bytes(), used);
    assert_eq!(files(dir.path()).len(), 2);
}

#[test]
fn a_damaged_end_is_cut_and_what_stands_before_it_stays() {
    let dir = tempfile::tempdir().expect("folder");
    let spool = Spool::open(dir.path(), 1 << 20).expect("spool");
    spool.keep(1, &batch("a", 1..=1)).expect("kept");
    let first = spool.used_bytes() as usize;
    spool.keep(1, &batch("a", 2..=2)).expect("kept");
    let path = files(dir.path()).remove(0);
    let whole = std::fs::read(&path).expect("read");
    let flipped = |at: usize| whole.iter().enumerate().map(|(i, b)| if i == at { b ^ 1 } else { *b }).collect();
    let cuts = (0..whole.len()).step_by(7).map(|at| (at, whole[..at].to_vec()));
    let flips = (0..whole.len()).step_by(7).map(|at| (at, flipped(at)));
    for (at, bytes) in cuts.chain(flips) {
        std::fs::write(&path, bytes).expect("written");
        let spool = Spool::open(dir.path(), 1 << 20).expect("opens");
        let upto = if at < first { 0 } else { 1 };
        assert_eq!(spool.used_bytes() as usize, if at < first { 0 } else { first }, "damaged at {at}");
        assert_eq!(spool.keep(1, &batch("a", upto + 1..=3)).expect("goes on"), 3);
        let again = Spool::open(dir.path(), 1 << 20).expect("opens");
        assert_eq!(again.used_bytes(), spool.used_bytes(), "damaged at {at}");
        files(dir.path()).into_iter().for_each(|f| std::fs::remove_file(f).expect("removed"));
    }
}

#[test]
fn a_full_spool_says_so_and_nobody_fills_it_alone() {
    let dir = tempfile::tempdir().expect("folder");
    let limit = 16 << 10;
    let spool = Spool::open(dir.path(), limit).expect("spool");
    let fill = |uid| (1..).find_map(|n| spool.keep(uid, &batch("a", n..=n)).err().map(|e| (n, e))).expect("full");
    for uid in 1..=4 {
        let (n, refused) = fill(uid);
        assert!(n > 10, "user {uid} had room for {n} records only");
        assert!(
            matches!(refused, Refused::Full { .. }) && refused.to_string().contains("node.spool_bytes"),
            "{refused}"
        );
    }
    assert!(spool.used_bytes() <= limit && spool.used_bytes() > limit * 9 / 10);
    assert!(files(dir.path()).iter().map(|f| f.metadata().expect("size").len()).sum::<u64>() <= limit);
}

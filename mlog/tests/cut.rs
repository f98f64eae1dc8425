//! The end of a log that never left is dropped, and a relay that opens the log again finds what was logged in its place.

use mlog::Medium;
use mlog::frame::{Frame, Kind};
use mlog::store::Store;

fn message(number: u64, tag: i32, body: &[u8]) -> Frame {
    Frame::new(Kind::Message, 1, tag, number, body)
}

fn bodies(store: &mut Store) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    store.show(1, |header, body| all.push((header.number, body.to_vec()))).expect("read");
    all
}

#[test]
fn what_was_cut_off_a_log_does_not_come_back_and_what_follows_it_does() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || Store::open(folder.path(), 2, Medium::Disk, u64::MAX, false).expect("a log");
    let (mut store, _) = open();
    store.log(vec![message(1, 0, b"one"), message(2, 4, b"two"), message(3, 5, b"three")]).expect("logged");
    drop(store);
    let (mut store, damage) = open();
    assert_eq!(damage, None);
    store.cut(1, |header| header.tag > 3).expect("cut");
    store.cut(0, |_| true).expect("nothing to cut");
    assert_eq!((store.logged(), bodies(&mut store)), (vec![0, 1], vec![(1, b"one".to_vec())]));
    store.log(vec![message(2, 9, b"another")]).expect("logged");
    drop(store);
    let (mut store, damage) = open();
    assert_eq!((damage, bodies(&mut store)), (None, vec![(1, b"one".to_vec()), (2, b"another".to_vec())]));
}

//! Bodies of requests and answers: what is accepted is the same after it was written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, body)) = bytes.split_first() else { return };
    match kind % 6 {
        0 => again::<protocol::Batch>(body),
        1 => again::<protocol::Beat>(body),
        2 => again::<protocol::PlanRequest>(body),
        3 => again::<protocol::BeatReply>(body),
        4 => again::<protocol::NodeReading>(body),
        _ => again::<protocol::Manifest>(body),
    }
});

fn again<T: DeserializeOwned + Serialize + Debug>(body: &[u8]) {
    let Ok(read) = serde_json::from_slice::<T>(body) else { return };
    let written = serde_json::to_vec(&read).expect("what was read can be written");
    let second: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(format!("{read:?}"), format!("{second:?}"));
}

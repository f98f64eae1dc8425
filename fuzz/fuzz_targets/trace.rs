//! Failure traces: what is read has only finite, positive gaps.
#![no_main]

use libfuzzer_sys::fuzz_target;
use simulator::trace::Trace;

fuzz_target!(|text: &str| {
    if let Ok(trace) = Trace::parse("trace", text) {
        assert!(trace.gaps_s.iter().all(|gap| gap.is_finite() && *gap > 0.0));
        assert!(trace.gaps_s.len() <= text.lines().count());
    }
});

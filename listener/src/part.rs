//! Parts of a service that go on for as long as it does.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Exit code of a service of which a part has ended.
const PART_ENDED: i32 = 70;

/// Starts a part that goes on for as long as the service. Without it the service would seem well: so this process ends, and is
/// started again; what it knows is on disk.
///
/// # Errors
/// No thread can be started.
pub fn for_ever(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let part = name.to_string();
    let until_it_ends = move || {
        let ended = catch_unwind(AssertUnwindSafe(work));
        tracing::error!(part, has_panicked = ended.is_err(), "a part of the service has ended: all of it begins again");
        std::process::exit(PART_ENDED);
    };
    std::thread::Builder::new().name(name.to_string()).spawn(until_it_ends).map(drop)
}

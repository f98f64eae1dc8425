//! A word to standard error that harms nobody: where it cannot be written, it is not.

/// As `eprintln!`, which panics where standard error takes nothing, such as a job's output file on a full disk.
#[macro_export]
macro_rules! say {
    ($($word:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($word)*);
    }};
}

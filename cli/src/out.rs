//! Standard output: what cannot be written is told, and a reader that leaves ends the command as it ends others.

use serde::Serialize;
use std::fmt::{self, Display};
use std::io::{self, ErrorKind, Write};

/// Standard output does not take what was written.
#[derive(Debug)]
pub struct Unwritten(io::Error);

impl Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "standard output: {}", self.0)
    }
}

impl std::error::Error for Unwritten {}

/// Writes a text as it is.
///
/// Ends the command, as SIGPIPE would, where the reader has left: the wrapper ignores that signal for its jobs' sake.
///
/// # Errors
/// What the system says, such as a full disk.
pub fn print(text: impl Display) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(128 + libc::SIGPIPE),
        written => written.map_err(Unwritten),
    }
}

/// Writes a document, with a line's end.
///
/// # Errors
/// As [`print`].
pub fn json(content: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(serde_json::to_string_pretty(content)? + "\n")?)
}

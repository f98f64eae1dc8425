//! Standard output and the files that were asked for: what cannot be written is told; a reader that leaves ends the command.

use ::report::sheet::{self, printable_lines};
use serde::Serialize;
use std::fmt::{self, Display};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

/// What was written is not taken.
#[derive(Debug)]
pub struct Unwritten {
    place: String,
    error: io::Error,
}

impl Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.error)
    }
}

impl std::error::Error for Unwritten {}

/// Writes lines; nothing in them speaks to the terminal, whosever texts they hold.
///
/// Ends the command, as SIGPIPE would, where the reader has left: the wrapper ignores that signal for its jobs' sake.
///
/// # Errors
/// What the system says, such as a full disk.
pub fn print(text: impl Display) -> Result<(), Unwritten> {
    let mut out = io::stdout().lock();
    let text = printable_lines(&text.to_string());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(128 + libc::SIGPIPE),
        written => written.map_err(|error| Unwritten { place: "standard output".to_string(), error }),
    }
}

/// Writes a file.
///
/// # Errors
/// What the system says, such as a folder that is not there.
pub fn file(path: &Path, text: &str) -> Result<(), Unwritten> {
    std::fs::write(path, text).map_err(|error| Unwritten { place: format!("cannot write {}", path.display()), error })
}

/// Writes a document, with a line's end.
///
/// # Errors
/// As [`print`].
pub fn json(content: &impl Serialize) -> anyhow::Result<()> {
    Ok(print(sheet::json(content)?)?)
}

/// Names what has changed on the nodes since they were calibrated, on standard error.
pub fn warn_stale(what: &str, changes: &[String]) {
    if !changes.is_empty() {
        let changes = changes.join("; ");
        protocol::say!("joulepoint: {what} is stale ({changes}); measure again with `joulepoint calibrate run`");
    }
}

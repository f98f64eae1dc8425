//! Messages, through Slurm's own log where there is one.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::host::host;
use std::ffi::CString;

/// How loud a message is, in Slurm's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// `slurm_error`: always shown; on the user's terminal, or in slurmd's log.
    Error,
    /// `slurm_spank_log`: reaches the user who started the command or step, without a prefix.
    User,
    /// `slurm_info`.
    Info,
    /// `slurm_verbose`: with `-v`.
    Verbose,
    /// `slurm_debug`.
    Debug,
}

/// Longest message, bytes; longer ones are cut.
const LONGEST: usize = 8192;

/// Writes one line; outside a Slurm process it goes to stderr if it is an error.
pub fn log(level: Level, message: &str) {
    let text = printable(message);
    let host = host();
    let function = match level {
        Level::Error => host.log_error(),
        Level::User => host.log_user().or_else(|_| host.log_info()),
        Level::Info => host.log_info(),
        Level::Verbose => host.log_verbose(),
        Level::Debug => host.log_debug(),
    };
    match (function, CString::new(text)) {
        // SAFETY: a printf-like function with the format "%s" and one NUL-terminated text.
        (Ok(function), Ok(text)) => unsafe { function(c"%s".as_ptr(), text.as_ptr()) },
        (Err(_), Ok(text)) if level == Level::Error => {
            use std::io::Write;
            // Nowhere else to say that stderr is gone.
            let _ = writeln!(std::io::stderr(), "{}", text.to_string_lossy());
        }
        _ => {}
    }
}

/// One line without control characters, cut to [`LONGEST`].
fn printable(message: &str) -> String {
    let mut text = String::with_capacity(message.len().min(LONGEST));
    for c in message.chars() {
        if text.len() >= LONGEST {
            text.push_str("...");
            break;
        }
        text.push(if c.is_control() { '?' } else { c });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_printable_line() {
        assert_eq!(printable("a\nb\0c\u{1b}[2J"), "a?b?c?[2J");
        assert!(printable(&"x".repeat(1 << 20)).len() < LONGEST + 8);
        log(Level::Debug, "outside Slurm this goes nowhere and does no harm");
    }
}

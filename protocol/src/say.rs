//! A word to standard error that harms nobody: a line of its own, and where it cannot be written, it is not.

use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// How long a storage may take to tell how the file ends.
const LONGEST_LOOK: Duration = Duration::from_millis(100);

/// As `eprintln!`, which panics where standard error takes nothing, such as a job's output file on a full disk.
#[macro_export]
macro_rules! say {
    ($($word:tt)*) => { $crate::say_line(format_args!($($word)*)) };
}

/// What takes a line in the place of standard error; whether it has.
pub type Instead = Box<dyn FnMut(&str) -> bool + Send>;

static INSTEAD: Mutex<Option<Instead>> = Mutex::new(None);

/// From now on what is said goes there, and to standard error only if it is not taken; none: to standard error.
pub fn say_instead(instead: Option<Instead>) {
    *INSTEAD.lock().unwrap_or_else(PoisonError::into_inner) = instead;
}

/// One line to standard error, at once and as a whole: a program may write to the same file.
#[doc(hidden)]
pub fn say_line(words: Arguments<'_>) {
    let mut instead = INSTEAD.lock().unwrap_or_else(PoisonError::into_inner);
    if instead.as_mut().is_some_and(|takes| takes(&words.to_string())) {
        return;
    }
    let line = if ends_in_the_middle() { format!("\n{words}\n") } else { format!("{words}\n") };
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Whether standard error ends in the middle of a line. A storage that hangs is not waited for; else nothing is left of the look:
/// a process may need to be one of a single thread.
fn ends_in_the_middle() -> bool {
    let (tell, told) = mpsc::channel();
    let looks = thread::Builder::new().spawn(move || tell.send(in_the_middle("/proc/self/fd/2").unwrap_or(false)));
    let Ok(look) = looks else { return false };
    let ends = told.recv_timeout(LONGEST_LOOK);
    if ends.is_ok() {
        let _ = look.join();
    }
    ends.unwrap_or(false)
}

/// Whether a file ends in the middle of a line, as after a progress bar; it may be open for writing only.
fn in_the_middle(file: &str) -> io::Result<bool> {
    if !std::fs::metadata(file)?.is_file() {
        return Ok(false);
    }
    let mut file = File::open(file)?;
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_ends_within_a_line_is_told_from_others_and_from_what_is_no_file() {
        let path = std::env::temp_dir().join(format!("joulepoint-say-{}", std::process::id()));
        let name = path.to_string_lossy().into_owned();
        for (text, middle) in [("", false), ("a line\n", false), ("a line\n 16%", true)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(in_the_middle(&name).unwrap(), middle, "{text:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(!in_the_middle("/dev/null").unwrap() && in_the_middle(&name).is_err());
    }
}

//! Notices that a relay cannot begin on its node, and keeps what was said of it.

use driver::groups::ports::News;
use driver::ports::Happening;
use host::mail::{Post, Try};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Looks without a sign of life, though it is started again and again, after which a relay cannot begin on its node.
const SILENT_LOOKS: u32 = 60;

/// What the newest start of a relay has said: what it says itself before what `srun` does.
#[derive(Clone, Default)]
pub(super) struct Said(Arc<Mutex<String>>);

impl Said {
    /// Passes everything on, and keeps the line that tells most; returns when nobody writes any more.
    pub(super) fn hear(&self, from: impl Read) {
        let mut is_first = true;
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            protocol::say!("{line}");
            if std::mem::take(&mut is_first) || line.starts_with("joulepoint-relay") {
                self.keep(&line);
            }
        }
    }

    pub(super) fn keep(&self, line: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = line.to_string();
    }

    fn text(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A relay that may not be able to begin.
pub(super) struct Silence {
    /// Whose it is.
    pub(super) group: usize,
    /// Where it is to be.
    pub(super) node: String,
    /// The file that it touches again and again.
    pub(super) alive: PathBuf,
    /// What was said of it.
    pub(super) said: Said,
}

impl Silence {
    /// Tells the driver, once, if the relay's file is not touched for too long. Looks are counted, and not the time,
    /// which goes on while a job is suspended.
    pub(super) fn tell(self, one: &Try, post: &Post, look: Duration) {
        let (mut written, mut silent) = (None, 0);
        while one.is_current() && silent < SILENT_LOOKS {
            thread::sleep(look);
            let now = fs::metadata(&self.alive).and_then(|m| m.modified()).ok();
            silent = if now.is_some() && now != written { 0 } else { silent + 1 };
            written = now;
        }
        let why = match self.said.text() {
            text if text.is_empty() => "Slurm starts no step for it".to_string(),
            text => text,
        };
        post.tell_of(one, Happening::Group(News::Unserved { group: self.group, node: self.node, why }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver::ports::Clock;
    use host::mail::{Tries, now_s, queue};

    #[test]
    fn a_relay_is_given_up_with_its_own_words_unless_it_shows_that_it_lives() {
        let dir = tempfile::tempdir().unwrap();
        let said = Said::default();
        said.hear(&b"srun: error: n2: task 0\njoulepoint-relay: /run: No space left on device\nsrun: bye\n"[..]);
        for writes in [true, false] {
            let (post, mut clock) = queue();
            let alive = dir.path().join("alive");
            let silence = Silence { group: 1, node: "n2".into(), alive: alive.clone(), said: said.clone() };
            let tries = Tries::default();
            let (one, look) = (tries.begin(), Duration::from_millis(10));
            let watch = thread::spawn(move || silence.tell(&one, &post, look));
            for n in 0..100 {
                if writes {
                    fs::write(&alive, n.to_string()).unwrap();
                }
                thread::sleep(look);
            }
            let told = writes.then(|| tries.void());
            watch.join().unwrap();
            let why = "joulepoint-relay: /run: No space left on device".to_string();
            let expected = Happening::Group(News::Unserved { group: 1, node: "n2".into(), why });
            assert_eq!(clock.wait(now_s()), told.is_none().then_some(expected), "{writes}");
        }
    }
}

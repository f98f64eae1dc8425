//! Reads the environments of processes, though the kernel may not answer: it waits while a process holds the lock of its own
//! memory, as it may do for as long as a storage hangs. Who beats for a node must not wait with it.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// An environment longer than this is read only so far, bytes.
const LONGEST: u64 = 2 << 20;

/// Longest wait for one; others take microseconds.
const LIMIT: Duration = Duration::from_millis(50);

/// Most processes of one user that are waited for within [`SPAN`]; no more of them are asked meanwhile.
const MOST_OF_USER: usize = 4;

/// For so long a process that did not answer counts.
const SPAN: Duration = Duration::from_secs(10);

type Answer = Option<Vec<u8>>;

/// The environment of a process by its folder below `/proc`; none of one that is gone or does not answer. Not for who must know
/// that a process is none of a job's.
pub fn environ(process: &Path) -> Option<Vec<u8>> {
    static ALL: Mutex<Readers<File>> =
        Mutex::new(Readers { idle: None, waiting: Vec::new(), open: open_file, span: SPAN });
    let uid = fs::metadata(process).ok()?.uid();
    ALL.lock().unwrap_or_else(PoisonError::into_inner).read(process.join("environ"), uid)
}

fn open_file(path: &Path) -> Option<File> {
    File::open(path).ok()
}

/// A thread that reads one file after the other.
struct Reader {
    ask: Sender<PathBuf>,
    told: Receiver<Answer>,
}

/// What one has been asked that has not answered yet.
struct Waiting {
    path: PathBuf,
    uid: u32,
    since: Instant,
    told: Receiver<Answer>,
}

struct Readers<F> {
    idle: Option<Reader>,
    waiting: Vec<Waiting>,
    open: fn(&Path) -> Option<F>,
    span: Duration,
}

impl<F: Read + 'static> Readers<F> {
    fn read(&mut self, path: PathBuf, uid: u32) -> Answer {
        // A reader that has answered late ends, since nobody asks it any more.
        self.waiting.retain(|one| one.since.elapsed() < self.span || one.told.try_recv() == Err(TryRecvError::Empty));
        let of_user = self.waiting.iter().filter(|one| one.uid == uid);
        if of_user.clone().any(|one| one.path == path) || of_user.count() >= MOST_OF_USER {
            return None;
        }
        let open = self.open;
        let reader = self.idle.take().or_else(|| Reader::start(open))?;
        reader.ask.send(path.clone()).ok()?;
        match reader.told.recv_timeout(LIMIT) {
            Ok(answer) => {
                self.idle = Some(reader);
                answer
            }
            Err(_) => {
                tracing::warn!(path = %path.display(), "a process does not show its environment; its storage may hang");
                self.waiting.push(Waiting { path, uid, since: Instant::now(), told: reader.told });
                None
            }
        }
    }
}

impl Reader {
    /// None if the machine has no room for a thread.
    fn start<F: Read + 'static>(open: fn(&Path) -> Option<F>) -> Option<Reader> {
        let ((ask, asked), (tell, told)) = (channel::<PathBuf>(), channel());
        let read = move || {
            for path in asked {
                let mut bytes = Vec::new();
                let read = open(&path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes).ok());
                if tell.send(read.map(|_| bytes)).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().spawn(read).ok()?;
        Some(Reader { ask, told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_do_not_answer_hold_up_nobody_but_others_of_their_user() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = |number: usize| {
            let path = dir.path().join(format!("hangs.{number}"));
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            path
        };
        let fine = dir.path().join("fine");
        fs::write(&fine, "A=1\0").unwrap();
        let mut all = Readers { idle: None, waiting: Vec::new(), open: open_file, span: Duration::ZERO };
        let pipes: Vec<PathBuf> = (0..MOST_OF_USER).map(pipe).collect();
        for path in &pipes {
            assert_eq!(all.read(path.clone(), 1000), None);
            assert_eq!(all.read(fine.clone(), 1001).as_deref(), Some(b"A=1\0".as_slice()));
        }
        assert_eq!(all.read(pipes[0].clone(), 1000), None, "it is not asked twice");
        assert_eq!((all.waiting.len(), all.read(fine.clone(), 1000)), (MOST_OF_USER, None));
        drop(fs::OpenOptions::new().write(true).open(&pipes[2]).unwrap());
        let begun = std::time::Instant::now();
        while all.read(fine.clone(), 1000).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(all.waiting.len(), MOST_OF_USER - 1);
        pipes.iter().for_each(|path| drop(fs::OpenOptions::new().read(true).write(true).open(path)));
    }
}

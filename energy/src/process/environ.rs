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

/// What the kernel says when it is asked for a process's environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Environ {
    /// It, as far as [`LONGEST`].
    Told(Vec<u8>),
    /// The process is gone, or shows nothing.
    Gone,
    /// Nothing yet.
    Silent,
}

impl Environ {
    /// The environment, where it was told.
    pub fn told(self) -> Option<Vec<u8>> {
        match self {
            Environ::Told(bytes) => Some(bytes),
            Environ::Gone | Environ::Silent => None,
        }
    }
}

/// The environment of a process by its folder below `/proc`.
pub fn environ(process: &Path) -> Environ {
    static ALL: Mutex<Readers<File>> =
        Mutex::new(Readers { idle: None, waiting: Vec::new(), open: open_file, span: SPAN });
    let Ok(uid) = fs::metadata(process).map(|m| m.uid()) else { return Environ::Gone };
    ALL.lock().unwrap_or_else(PoisonError::into_inner).read(process.join("environ"), uid)
}

fn open_file(path: &Path) -> Option<File> {
    File::open(path).ok()
}

/// A thread that reads one file after the other.
struct Reader {
    ask: Sender<PathBuf>,
    told: Receiver<Environ>,
}

/// What one has been asked that has not answered yet.
struct Waiting {
    path: PathBuf,
    uid: u32,
    since: Instant,
    told: Receiver<Environ>,
}

struct Readers<F> {
    idle: Option<Reader>,
    waiting: Vec<Waiting>,
    open: fn(&Path) -> Option<F>,
    span: Duration,
}

impl<F: Read + 'static> Readers<F> {
    fn read(&mut self, path: PathBuf, uid: u32) -> Environ {
        // A reader that has answered late ends, since nobody asks it any more.
        self.waiting.retain(|one| one.since.elapsed() < self.span || one.told.try_recv() == Err(TryRecvError::Empty));
        let of_user = self.waiting.iter().filter(|one| one.uid == uid);
        if of_user.clone().any(|one| one.path == path) || of_user.count() >= MOST_OF_USER {
            return Environ::Silent;
        }
        let open = self.open;
        let Some(reader) = self.idle.take().or_else(|| Reader::start(open)) else { return Environ::Silent };
        if reader.ask.send(path.clone()).is_err() {
            return Environ::Silent;
        }
        match reader.told.recv_timeout(LIMIT) {
            Ok(answer) => {
                self.idle = Some(reader);
                answer
            }
            Err(_) => {
                tracing::warn!(path = %path.display(), "a process does not show its environment; its storage may hang");
                self.waiting.push(Waiting { path, uid, since: Instant::now(), told: reader.told });
                Environ::Silent
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
                if tell.send(read.map_or(Environ::Gone, |_| Environ::Told(bytes))).is_err() {
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
            assert_eq!(all.read(path.clone(), 1000), Environ::Silent);
            assert_eq!(all.read(fine.clone(), 1001), Environ::Told(b"A=1\0".to_vec()));
        }
        assert_eq!(all.read(pipes[0].clone(), 1000), Environ::Silent, "it is not asked twice");
        assert_eq!((all.waiting.len(), all.read(fine.clone(), 1000)), (MOST_OF_USER, Environ::Silent));
        drop(fs::OpenOptions::new().write(true).open(&pipes[2]).unwrap());
        let begun = std::time::Instant::now();
        while all.read(fine.clone(), 1000) == Environ::Silent {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        assert_eq!(all.waiting.len(), MOST_OF_USER - 1);
        pipes.iter().for_each(|path| drop(fs::OpenOptions::new().read(true).write(true).open(path)));
    }
}

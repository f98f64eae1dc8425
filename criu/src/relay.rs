//! Passes a program's output from a pipe on to where the supervisor's own output goes.
//!
//! CRIU cannot restore a file that was opened outside of the namespaces, and after a restore the output goes
//! elsewhere. So the program writes into a pipe, and each new supervisor passes it on.

use nix::fcntl::OFlag;
use openfiles::by_size;
use openfiles::patiently::patiently;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// File in a run's folder with the sizes of the output files when the run began, bytes.
pub const BEGAN: &str = "output-began.json";

/// Folder there with what was cut off files, to which another job may have added it.
pub const CUT_OFF: &str = "cut-off";

/// Capacity asked for each pipe, bytes.
const CAPACITY_BYTES: i32 = 1 << 20;

/// Longest line that is held back until it is complete, bytes.
const LINE_BYTES: usize = 64 << 10;

/// Most that waits for a target which takes nothing, as on a full disk, bytes; what comes then is lost, as it would be without us.
const WAITING_BYTES: usize = 8 << 20;

/// How long the end of a program's output waits for such a target.
const LAST_TRY: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(100);

/// Prefix of our own lines (`protocol::say!`).
const OURS: &[u8] = b"joulepoint: ";

/// Most of the cut-off output that is searched for our lines, bytes.
const MOST_LOOKED_AT_BYTES: u64 = 16 << 20;

/// One pipe and its target.
#[derive(Debug)]
pub struct Relay {
    read: File,
    write: OwnedFd,
    to: File,
    inode: u64,
    carried_bytes: u64,
    by_lines: bool,
    held: Vec<u8>,
    /// Label before each line.
    label: String,
    at_start: bool,
    /// Our own lines, which wait until the program's line is complete.
    late: Vec<u8>,
    /// What the target has not taken yet.
    waiting: Vec<u8>,
    /// Whether something is lost, since more was waiting than is kept.
    is_lost: bool,
}

impl Relay {
    /// A new pipe whose content goes to descriptor `to` of this process.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn new(to: BorrowedFd) -> io::Result<Relay> {
        let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        // SAFETY: a plain system call on a descriptor that we own; a smaller pipe serves too.
        unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, CAPACITY_BYTES) };
        let inode = File::from(write.try_clone()?).metadata()?.ino();
        Ok(Relay {
            read: File::from(read),
            write,
            to: File::from(to.try_clone_to_owned()?),
            inode,
            carried_bytes: 0,
            by_lines: false,
            held: Vec::new(),
            label: String::new(),
            at_start: true,
            late: Vec::new(),
            waiting: Vec::new(),
            is_lost: false,
        })
    }

    /// Number by which `/proc` and CRIU name the pipe.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The end that the program writes to.
    pub fn write_end(&self) -> BorrowedFd<'_> {
        self.write.as_fd()
    }

    /// The end that we read from.
    pub fn read_end(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }

    /// Passes on what is in the pipe now, but not what a busy writer adds meanwhile.
    ///
    /// # Errors
    /// What the kernel says of the pipe.
    pub fn drain(&mut self) -> io::Result<()> {
        let mut block = vec![0; CAPACITY_BYTES as usize];
        let mut carried = 0;
        while carried < block.len() {
            match self.read.read(&mut block) {
                Ok(0) => break,
                Ok(length) => {
                    self.carry(&block[..length]);
                    carried += length;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.push();
        Ok(())
    }

    /// Passes on whole lines, so that a line of ours splits none of the program's.
    fn carry(&mut self, block: &[u8]) {
        self.held.extend(block);
        let whole = self.held.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.carry_on(if self.held.len() - whole < LINE_BYTES { whole } else { self.held.len() });
    }

    /// Passes on an incomplete line too, when nothing has followed it for a while: a prompt, or a progress bar.
    pub fn rest(&mut self) {
        if !self.by_lines && !self.held.is_empty() {
            self.carry_on(self.held.len());
        }
        self.push();
    }

    fn carry_on(&mut self, ready: usize) {
        let text: Vec<u8> = self.held.drain(..ready).collect();
        let text = if self.label.is_empty() { text } else { self.labelled(&text) };
        match text.iter().position(|byte| *byte == b'\n').filter(|_| !self.late.is_empty()) {
            Some(end) => {
                let late = std::mem::take(&mut self.late);
                self.emit(&[&text[..=end], &late, &text[end + 1..]].concat());
            }
            None => self.emit(&text),
        }
    }

    /// Adds to what the target is to take.
    fn emit(&mut self, text: &[u8]) {
        // One that is longer than all that may wait is taken, if nothing waits.
        if self.waiting.len() + text.len() <= WAITING_BYTES.max(text.len()) {
            self.is_lost = false;
            self.waiting.extend(text);
            return self.push();
        }
        if !std::mem::replace(&mut self.is_lost, true) {
            let why = self.push_once().err().map_or(String::new(), |e| format!(": {e}"));
            self.waiting.extend(format!("\njoulepoint: from here on output is missing{why}\n").into_bytes());
        }
    }

    /// Has the target take what it takes. A target that takes nothing, such as a file on a full disk, must not end the program: what is
    /// for it waits, and a program that writes on loses as much as it would without us.
    fn push(&mut self) {
        match self.push_once() {
            Ok(()) => self.is_lost = false,
            // Nobody reads any more.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => self.waiting.clear(),
            Err(_) => {}
        }
    }

    fn push_once(&mut self) -> io::Result<()> {
        let (mut taken, mut end) = (0, Ok(()));
        while taken < self.waiting.len() && end.is_ok() {
            match self.to.write(&self.waiting[taken..]) {
                Ok(0) => end = Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => taken += bytes,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => end = Err(e),
            }
        }
        self.waiting.drain(..taken);
        self.carried_bytes += taken as u64;
        end
    }

    /// What the target has not taken yet.
    pub fn waiting(&self) -> &[u8] {
        &self.waiting
    }

    /// Has the target take this before all else: an earlier relay could not pass it on.
    pub fn goes_on_with(&mut self, waiting: &[u8]) {
        self.waiting = waiting.to_vec();
        self.push();
    }

    fn labelled(&mut self, text: &[u8]) -> Vec<u8> {
        let mut labelled = Vec::with_capacity(2 * text.len());
        for line in text.split_inclusive(|b| *b == b'\n') {
            if std::mem::replace(&mut self.at_start, line.ends_with(b"\n")) {
                labelled.extend(self.label.as_bytes());
            }
            labelled.extend(line);
        }
        labelled
    }

    /// Begins each line with a label.
    pub fn label(&mut self, label: String) {
        self.label = label;
    }

    /// From now on passes on whole lines only, as `slurmstepd` does; `held` is the incomplete line of an earlier
    /// relay.
    pub fn by_lines(&mut self, held: Vec<u8>) {
        self.by_lines = true;
        self.held = held;
    }

    /// The incomplete line that is held back.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Passes on all that is left; the program has ended. A target that takes nothing is waited for a little.
    ///
    /// # Errors
    /// What the kernel says of the pipe.
    pub fn finish(&mut self) -> io::Result<()> {
        self.drain()?;
        self.carry_on(self.held.len());
        if !self.late.is_empty() {
            let late = std::mem::take(&mut self.late);
            self.emit(&[b"\n", late.as_slice()].concat());
        }
        let until = Instant::now() + LAST_TRY;
        while !self.waiting.is_empty() && Instant::now() < until {
            std::thread::sleep(AGAIN);
            self.push();
        }
        Ok(())
    }

    /// Bytes passed on to another process; 0 if the target is a file of its own.
    pub fn carried_bytes(&self) -> u64 {
        let kind = self.to.metadata().map(|m| m.file_type());
        if kind.is_ok_and(|k| k.is_fifo() || k.is_socket()) { self.carried_bytes } else { 0 }
    }

    /// Size of the target if it is a regular file, bytes.
    pub fn kept_bytes(&self) -> Option<u64> {
        self.to.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len())
    }

    /// The target if it is a regular file.
    pub fn file(&self) -> Option<PathBuf> {
        self.kept_bytes().and_then(|_| fs::read_link(format!("/proc/self/fd/{}", self.to.as_raw_fd())).ok())
    }

    /// Cuts the target to `bytes`, but keeps our own lines: they tell of just that. What another job may have added, since the
    /// file has not this one's number, is kept in the folder `cut_off`.
    ///
    /// # Errors
    /// What the file system says.
    pub fn go_back(&mut self, bytes: u64, cut_off: &Path) -> io::Result<()> {
        self.held.clear();
        self.waiting.clear();
        self.late.clear();
        let Some(now) = self.kept_bytes().filter(|now| *now > bytes) else { return Ok(()) };
        let path = fs::read_link(format!("/proc/self/fd/{}", self.to.as_raw_fd()))?;
        if by_size::may_be_shared(&path) {
            self.late.extend(format!("joulepoint: {}\n", by_size::shared(&path)).into_bytes());
            return io::Seek::seek(&mut self.to, io::SeekFrom::End(0)).map(drop);
        }
        let (ends_line, mut ours) = self.ours_after(bytes).unwrap_or_default();
        if !by_size::is_of_job(&path) && now - bytes > ours.len() as u64 {
            ours.extend(keep(&path, bytes, cut_off).into_bytes());
        }
        self.to.set_len(bytes)?;
        io::Seek::seek(&mut self.to, io::SeekFrom::End(0))?;
        match ends_line {
            true => self.emit(&ours),
            // The program's line is incomplete: ours wait for its end.
            false => self.late.extend(ours),
        }
        Ok(())
    }

    /// Whether the target's first `bytes` end with a complete line, and our own lines after them. The target is open
    /// for writing only.
    fn ours_after(&self, bytes: u64) -> io::Result<(bool, Vec<u8>)> {
        let file = fs::File::open(format!("/proc/self/fd/{}", self.to.as_raw_fd()))?;
        let mut last = [b'\n'];
        if bytes > 0 {
            file.read_exact_at(&mut last, bytes - 1)?;
        }
        let length = file.metadata()?.len();
        let from = bytes.max(length.saturating_sub(MOST_LOOKED_AT_BYTES));
        let mut tail = vec![0; usize::try_from(length.saturating_sub(from)).map_err(io::Error::other)?];
        file.read_exact_at(&mut tail, from)?;
        // One of our lines may follow an incomplete line of the program.
        let ours = |line: &'_ [u8]| {
            let at = line.windows(OURS.len()).position(|word| word == OURS)?;
            line.ends_with(b"\n").then(|| line[at..].to_vec())
        };
        Ok((last == *b"\n", tail.split_inclusive(|byte| *byte == b'\n').filter_map(ours).flatten().collect()))
    }
}

/// Keeps what a file has after so many bytes; a line of ours if that is not possible. That it is kept is not told: mostly all of
/// it is the program's, which writes it once more.
fn keep(path: &Path, bytes: u64, cut_off: &Path) -> String {
    let kept = patiently(|| by_size::keep_tail(path, bytes, cut_off));
    kept.map_or_else(|e| format!("joulepoint: {}\n", by_size::lost(path, &e)), |_| String::new())
}

/// The pipes of standard output and error: one if both go to the same place, so that their order is kept.
///
/// # Errors
/// What the kernel says.
pub fn standard() -> io::Result<Vec<Relay>> {
    // SAFETY: descriptors 1 and 2 are open for as long as this process lives.
    let (out, err) = unsafe { (BorrowedFd::borrow_raw(1), BorrowedFd::borrow_raw(2)) };
    let same = match (place(out)?, place(err)?) {
        (a, b) if a == b => vec![out],
        _ => vec![out, err],
    };
    same.into_iter().map(Relay::new).collect()
}

/// Writes the sizes of the targets before a run to `record`; a program that begins anew later cuts them back to it.
///
/// # Errors
/// What the file system says.
pub fn begin(relays: &mut [Relay], record: &Path) -> io::Result<()> {
    match fs::read(record) {
        Ok(text) => {
            let began: Vec<Option<u64>> = serde_json::from_slice(&text)?;
            let cut_off = record.with_file_name(CUT_OFF);
            let mut both = relays.iter_mut().zip(began).filter_map(|(relay, bytes)| Some((relay, bytes?)));
            both.try_for_each(|(relay, bytes)| relay.go_back(bytes, &cut_off))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let began: Vec<Option<u64>> = relays.iter().map(Relay::kept_bytes).collect();
            let beside = record.with_extension("partial");
            let mut file = File::create(&beside)?;
            file.write_all(&serde_json::to_vec(&began)?)?;
            // Synced, since an empty record after a crash of the server would stop the run.
            file.sync_all()?;
            fs::rename(beside, record)?;
            record.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
        }
        Err(e) => Err(e),
    }
}

fn place(of: BorrowedFd) -> io::Result<(u64, u64)> {
    let m = File::from(of.try_clone_to_owned()?).metadata()?;
    Ok((m.dev(), m.ino()))
}

/// A copy of a descriptor that a child inherits.
///
/// # Errors
/// What the kernel says.
pub fn inheritable(of: BorrowedFd) -> io::Result<OwnedFd> {
    // SAFETY: dup gives a new descriptor, which nobody else owns.
    let copy = unsafe { libc::dup(of.as_raw_fd()) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_carried_when_it_ends_and_the_rest_when_the_program_does() {
        let (mut target, to) = io::pipe().unwrap();
        let mut relay = Relay::new(to.as_fd()).unwrap();
        relay.by_lines(b"be".to_vec());
        drop(to);
        let mut read = |length: usize| {
            let mut text = vec![0; length];
            target.read_exact(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let mut program = File::from(relay.write_end().try_clone_to_owned().unwrap());
        for (written, carried, held) in [("fore", "", "before"), ("\naf", "before\n", "af"), ("ter", "", "after")] {
            program.write_all(written.as_bytes()).unwrap();
            relay.drain().unwrap();
            assert_eq!((read(carried.len()).as_str(), relay.held()), (carried, held.as_bytes()));
        }
        assert_eq!(relay.carried_bytes(), 7);
        relay.finish().unwrap();
        assert_eq!((read(5).as_str(), relay.carried_bytes()), ("after", 12));
    }

    #[test]
    fn a_target_that_goes_back_keeps_what_we_have_said_since() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || fs::OpenOptions::new().append(true).open(file.path()).unwrap();
        let (said, cut_off) = (|| fs::read_to_string(file.path()).unwrap(), Path::new("/proc/nowhere"));
        fs::write(file.path(), "kept\nlost\n...joulepoint: said\nlost, too\njoulepoint: cut").unwrap();
        let mut relay = Relay::new(open().as_fd()).unwrap();
        relay.go_back(5, cut_off).unwrap();
        assert_eq!(said(), "kept\njoulepoint: said\n");
        relay.go_back(100, cut_off).unwrap();
        assert_eq!(said().len(), 22, "nothing grows");
        // Our line waits for the end of an incomplete line.
        fs::write(file.path(), "ke\nlost\njoulepoint: said\n").unwrap();
        let mut relay = Relay::new(open().as_fd()).unwrap();
        relay.go_back(2, cut_off).unwrap();
        let mut program = File::from(relay.write_end().try_clone_to_owned().unwrap());
        program.write_all(b"pt\nand on").unwrap();
        relay.drain().unwrap();
        assert_eq!(said(), "kept\njoulepoint: said\n", "the beginning of a line waits");
        relay.rest();
        assert_eq!(said(), "kept\njoulepoint: said\nand on");
    }

    #[test]
    fn each_line_has_its_label_once_and_it_counts_as_carried() {
        let (mut target, to) = io::pipe().unwrap();
        let mut relay = Relay::new(to.as_fd()).unwrap();
        relay.by_lines(Vec::new());
        relay.label("07: ".to_string());
        drop(to);
        let mut program = File::from(relay.write_end().try_clone_to_owned().unwrap());
        for written in ["a\n\nb", "c\nlast"] {
            program.write_all(written.as_bytes()).unwrap();
            relay.drain().unwrap();
        }
        relay.finish().unwrap();
        let expected = "07: a\n07: \n07: bc\n07: last";
        let mut text = vec![0; expected.len()];
        target.read_exact(&mut text).unwrap();
        assert_eq!((text.as_slice(), relay.carried_bytes()), (expected.as_bytes(), expected.len() as u64));
    }

    #[test]
    fn a_target_that_takes_nothing_for_a_while_gets_all_in_the_end() {
        let (mut target, to) = io::pipe().unwrap();
        let flags = nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
        nix::fcntl::fcntl(&to, flags).unwrap();
        let mut relay = Relay::new(to.as_fd()).unwrap();
        drop(to);
        let mut program = File::from(relay.write_end().try_clone_to_owned().unwrap());
        let line = |number: usize| format!("{number:0>999}\n");
        for number in 0..200 {
            program.write_all(line(number).as_bytes()).unwrap();
            relay.drain().unwrap();
        }
        assert!(relay.waiting().len() > 100_000);
        let mut next = Relay::new(relay.to.as_fd()).unwrap();
        next.goes_on_with(relay.waiting());
        drop(relay);
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            target.read_to_string(&mut text).unwrap();
            text
        });
        next.finish().unwrap();
        drop(next);
        assert!(reader.join().unwrap() == (0..200).map(line).collect::<String>());
    }

    #[test]
    fn a_full_disk_keeps_a_bounded_part_and_ends_nothing() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut relay = Relay::new(full.as_fd()).unwrap();
        let block = vec![b'x'; 1 << 20];
        for _ in 0..12 {
            relay.carry(&block);
        }
        assert!(relay.waiting().len() < WAITING_BYTES + 200, "{}", relay.waiting().len());
        let end = String::from_utf8_lossy(&relay.waiting()[WAITING_BYTES..]).into_owned();
        assert!(end.contains("joulepoint: from here on output is missing: No space left"), "{end}");
    }

    #[test]
    fn what_goes_to_a_file_of_its_own_is_not_on_its_way() {
        let target = tempfile::NamedTempFile::new().unwrap();
        let mut relay = Relay::new(target.as_file().as_fd()).unwrap();
        File::from(relay.write_end().try_clone_to_owned().unwrap()).write_all(b"before\n").unwrap();
        relay.drain().unwrap();
        assert_eq!(fs::read_to_string(target.path()).unwrap(), "before\n");
        assert_eq!(relay.carried_bytes(), 0);
    }
}

//! The log on disk: append-only segments of checksummed records. A torn end is cut off; collected messages are
//! removed in whole segments.
//!
//! Records are written before their messages leave, so that they survive the death of the relay. They are synced only
//! when the program marks a checkpoint: what it sent after that, it sends again when its node is lost.

use crate::buffer::Buffer;
use crate::frame::{Bytes, Frame, HEADER_BYTES, Header, Kind, LONGEST_BYTES};
use crate::{Error, system};
use fencing::SUCCESSION;
use nix::fcntl::{Flock, FlockArg};
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes before a record's body: header and checksum.
const RECORD_BYTES: usize = HEADER_BYTES + 8;

/// Size of one write, bytes: the kernel would look for large runs of free memory for longer ones, which can take
/// several times as long.
const WRITE_BYTES: usize = 64 << 10;

/// Where a body stands in the log.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    segment: u64,
    offset: u64,
}

impl Place {
    /// True if there were older segments.
    pub fn follows_others(self) -> bool {
        self.segment > 1
    }
}

#[derive(Debug)]
struct Segment {
    id: u64,
    file: File,
    bytes: u64,
    /// The highest number of each channel in it.
    top: Vec<u64>,
}

/// The segments of one relay.
#[derive(Debug)]
pub struct DiskLog {
    folder: PathBuf,
    segment_bytes: u64,
    segments: VecDeque<Segment>,
    /// The first segment that may hold what is not synced.
    unsynced: u64,
}

/// A record read back: its header, its body (empty for messages), and where the body stands.
pub type Found = (Header, Vec<u8>, Place);

impl DiskLog {
    /// Opens the log in a folder and reads what is whole; the second part says what was cut off, if anything was.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(
        folder: &Path,
        groups: usize,
        segment_bytes: u64,
    ) -> Result<(DiskLog, Vec<Found>, Option<String>), Error> {
        let mut log = DiskLog { folder: folder.into(), segment_bytes, segments: VecDeque::new(), unsynced: 0 };
        let (found, cut) = log.load(groups).map_err(system(folder.display()))?;
        Ok((log, found, cut))
    }

    fn load(&mut self, groups: usize) -> io::Result<(Vec<Found>, Option<String>)> {
        let (mut found, mut cut) = (Vec::new(), None);
        for id in segment_ids(&self.folder)? {
            let path = self.path(id);
            if cut.is_some() {
                // Segments after a damaged record cannot be used.
                fs::remove_file(path)?;
                continue;
            }
            let file = OpenOptions::new().read(true).append(true).open(&path)?;
            let length = file.metadata()?.len();
            let mut segment = Segment { id, file, bytes: 0, top: vec![0; groups] };
            read_records(&mut segment, &mut found)?;
            if segment.bytes < length {
                cut = Some(format!("{}: cut from {length} to {} bytes", path.display(), segment.bytes));
                segment.file.set_len(segment.bytes)?;
            }
            self.segments.push_back(segment);
        }
        self.unsynced = self.segments.front().map_or(0, |s| s.id);
        Ok((found, cut))
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// True if the next records begin a new segment, which needs the heads of all channels first.
    pub fn is_full(&self) -> bool {
        self.segments.back().is_none_or(|s| s.bytes >= self.segment_bytes)
    }

    /// Begins a new segment.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(&mut self, heads: &[Frame]) -> io::Result<()> {
        let id = self.segments.back().map_or(1, |s| s.id + 1);
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(self.path(id))?;
        File::open(&self.folder)?.sync_all()?;
        self.segments.push_back(Segment { id, file, bytes: 0, top: vec![0; heads.len()] });
        self.append(heads).map(drop)
    }

    /// Appends records to the newest segment; all of them or none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn append(&mut self, frames: &[Frame]) -> io::Result<Vec<Place>> {
        let Some(segment) = self.segments.back_mut() else { return Err(io::Error::other("no segment")) };
        let written = write_records(&segment.file, frames);
        if let Err(e) = written {
            segment.file.set_len(segment.bytes)?;
            return Err(e);
        }
        let mut places = Vec::with_capacity(frames.len());
        for frame in frames {
            places.push(Place { segment: segment.id, offset: segment.bytes + RECORD_BYTES as u64 });
            segment.note(&frame.header);
        }
        Ok(places)
    }

    /// Reads a message's body.
    ///
    /// # Errors
    /// What the file system says, or its checksum does not agree.
    pub fn read(&self, place: Place, header: &Header) -> io::Result<Bytes> {
        let segment = self.segments.iter().find(|s| s.id == place.segment);
        let segment = segment.ok_or_else(|| io::Error::other("a segment is gone"))?;
        let (mut sum, mut body) = ([0; 8], Buffer::new(header.length as usize));
        segment.file.read_exact_at(&mut sum, place.offset - 8)?;
        segment.file.read_exact_at(&mut body, place.offset)?;
        if sum != checksum(&header.encode(), &body).to_le_bytes() {
            return Err(io::Error::other(format!("message {} in the log is damaged", header.number)));
        }
        Ok(Arc::new(body))
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// What the file system says.
    pub fn sync(&mut self) -> io::Result<()> {
        for segment in self.segments.iter().filter(|s| s.id >= self.unsynced) {
            segment.file.sync_data()?;
        }
        self.unsynced = self.segments.back().map_or(0, |s| s.id);
        Ok(())
    }

    /// Removes the oldest segments as long as all their messages are collected; the newest one stays.
    ///
    /// # Errors
    /// What the file system says.
    pub fn collect(&mut self, collected: impl Fn(usize) -> u64) -> io::Result<()> {
        let is_done = |s: &Segment| s.top.iter().enumerate().all(|(group, top)| *top <= collected(group));
        while self.segments.len() > 1 && self.segments.front().is_some_and(is_done) {
            if let Some(done) = self.segments.pop_front() {
                fs::remove_file(self.path(done.id))?;
            }
        }
        Ok(())
    }

    fn path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id:010}.log"))
    }
}

/// Makes a log's folder if needed, and locks it against other relays.
///
/// # Errors
/// What the file system says, or another relay holds the folder.
pub fn hold(folder: &Path) -> Result<Flock<File>, Error> {
    fs::create_dir_all(folder).map_err(system(folder.display()))?;
    let lock = File::create(folder.join("lock")).map_err(system(folder.display()))?;
    Flock::lock(lock, FlockArg::LockExclusiveNonblock)
        .map_err(|_| Error::Usage(format!("{}: another relay holds this log; stop it first", folder.display())))
}

/// Locks a log like [`hold`], but waits for a relay whose placement is over to release it.
///
/// # Errors
/// As [`hold`], if that relay does not end within [`SUCCESSION`].
pub fn take_over(folder: &Path) -> Result<Flock<File>, Error> {
    let begun = Instant::now();
    loop {
        match hold(folder) {
            Err(Error::Usage(_)) if begun.elapsed() < SUCCESSION => thread::sleep(Duration::from_millis(50)),
            other => return other,
        }
    }
}

impl Segment {
    fn note(&mut self, header: &Header) {
        self.bytes += RECORD_BYTES as u64 + u64::from(header.length);
        if let (Kind::Message, Some(top)) = (header.kind, self.top.get_mut(usize::from(header.group))) {
            *top = header.number;
        }
    }
}

fn segment_ids(folder: &Path) -> io::Result<Vec<u64>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        ids.extend(name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse::<u64>().ok()));
    }
    ids.sort_unstable();
    Ok(ids)
}

fn checksum(header: &[u8; HEADER_BYTES], body: &[u8]) -> u64 {
    xxh3_64_with_seed(body, xxh3_64_with_seed(header, 0))
}

fn write_records(file: &File, frames: &[Frame]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(WRITE_BYTES, file);
    for frame in frames {
        let header = frame.header.encode();
        out.write_all(&header)?;
        out.write_all(&checksum(&header, &frame.body).to_le_bytes())?;
        frame.body.chunks(WRITE_BYTES).try_for_each(|piece| out.write_all(piece))?;
    }
    out.flush()
}

/// Reads whole records until the end, or until the first that is torn or damaged.
fn read_records(segment: &mut Segment, found: &mut Vec<Found>) -> io::Result<()> {
    let mut reader = BufReader::new(segment.file.try_clone()?);
    let mut head = [0; RECORD_BYTES];
    while reader.read_exact(&mut head).is_ok() {
        let Some((bytes, sum)) = head.split_first_chunk::<HEADER_BYTES>() else { break };
        let Ok(header) = Header::decode(bytes, LONGEST_BYTES) else { break };
        let mut body = Vec::new();
        (&mut reader).take(u64::from(header.length)).read_to_end(&mut body)?;
        if body.len() < header.length as usize || sum != checksum(bytes, &body).to_le_bytes() {
            break;
        }
        let place = Place { segment: segment.id, offset: segment.bytes + RECORD_BYTES as u64 };
        segment.note(&header);
        let kept = if header.kind == Kind::Message { Vec::new() } else { body };
        found.push((header, kept, place));
    }
    Ok(())
}

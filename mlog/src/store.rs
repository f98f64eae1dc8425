//! The log of one group: what it sent to each other group, in memory or on disk, bounded.

use crate::channel::Outgoing;
use crate::frame::{Bytes, Frame, Header, Kind};
use crate::segment::{DiskLog, Place, hold, take_over};
use crate::{Error, system};
use nix::fcntl::Flock;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// Size at which a new segment of a disk log begins, bytes.
const SEGMENT_BYTES: u64 = 64 << 20;

/// Size of an entry without its body, bytes.
const ENTRY_BYTES: u64 = 64;

/// Where a log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Medium {
    /// Nowhere: a message is forgotten when it is sent. For measurements, and for groups that all go back together.
    None,
    /// In the relay's memory.
    Memory,
    /// In files.
    Disk,
}

impl Medium {
    /// Its name in options and in a status.
    pub fn name(self) -> &'static str {
        match self {
            Medium::None => "none",
            Medium::Memory => "memory",
            Medium::Disk => "disk",
        }
    }
}

/// A logged message; the body is in memory, or on disk, or in both until it was transmitted.
#[derive(Debug)]
struct Entry {
    header: Header,
    body: Option<Bytes>,
    place: Option<Place>,
}

impl Entry {
    fn bytes(&self) -> u64 {
        ENTRY_BYTES + u64::from(self.header.length)
    }

    fn body(&self, disk: &Option<DiskLog>) -> Result<Bytes, Error> {
        match (&self.body, self.place, disk) {
            (Some(body), ..) => Ok(body.clone()),
            (None, Some(place), Some(disk)) => disk.read(place, &self.header).map_err(system(disk.folder().display())),
            _ => Err(Error::Lost(format!("message {} is in no log", self.header.number))),
        }
    }
}

fn head(kind: Kind, to: usize, base: u64, collected: u64) -> Frame {
    Frame::new(kind, to, 0, base, collected.to_le_bytes().to_vec())
}

/// All channels from one group.
#[derive(Debug)]
pub struct Store {
    channels: Vec<Outgoing<Entry>>,
    disk: Option<DiskLog>,
    _held: Flock<File>,
    forgets: bool,
    memory_bytes: u64,
    limit_bytes: u64,
    /// Time spent logging since the start.
    pub logging: Duration,
    /// The part of it that was spent syncing.
    pub syncing: Duration,
}

impl Store {
    /// Opens a log, also one that another relay left in `folder`; waits for a relay that still holds it if
    /// `takes_over`. The second part of the result says what was damaged.
    ///
    /// # Errors
    /// What the file system says, or another relay holds the folder.
    pub fn open(
        folder: &Path,
        groups: usize,
        medium: Medium,
        limit_bytes: u64,
        takes_over: bool,
    ) -> Result<(Store, Option<String>), Error> {
        let channels = (0..groups).map(|_| Outgoing::default()).collect();
        let (logging, syncing) = Default::default();
        let held = if takes_over { take_over(folder)? } else { hold(folder)? };
        let forgets = medium == Medium::None;
        let mut store =
            Store { channels, disk: None, _held: held, forgets, memory_bytes: 0, limit_bytes, logging, syncing };
        let (disk, found, damage) = DiskLog::open(folder, groups, SEGMENT_BYTES)?;
        for (header, body, place) in found {
            store.restore(header, &body, place);
        }
        store.disk = Some(disk);
        if medium != Medium::Disk {
            store.move_to_memory().map_err(system(folder.display()))?;
        }
        Ok((store, damage))
    }

    fn restore(&mut self, header: Header, body: &[u8], place: Place) {
        let Some(channel) = self.channels.get_mut(usize::from(header.group)) else { return };
        match header.kind {
            Kind::Message => {
                channel.offer(header.number, Entry { header, body: None, place: Some(place) });
            }
            Kind::Cut => drop(channel.cut(|entry| entry.header.number > header.number)),
            Kind::Head if channel.logged() == header.number => {}
            Kind::Head | Kind::Reset => {
                let collected = body.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
                // Segments go only when all that is in them is collected.
                let collected = if place.follows_others() { collected.max(header.number) } else { collected };
                *channel = Outgoing::new(header.number, collected);
            }
            _ => {}
        }
    }

    fn move_to_memory(&mut self) -> std::io::Result<()> {
        let Some(disk) = self.disk.take() else { return Ok(()) };
        for (_, entry) in self.channels.iter_mut().flat_map(Outgoing::iter_mut) {
            if let Some(place) = entry.place.take() {
                entry.body = Some(disk.read(place, &entry.header)?);
                self.memory_bytes += entry.bytes();
            }
        }
        Ok(())
    }

    /// Bytes that the log takes, in memory or on disk.
    pub fn bytes(&self) -> u64 {
        self.disk.as_ref().map_or(self.memory_bytes, DiskLog::bytes)
    }

    /// The most it may take, bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The channel to a group.
    pub fn channel(&self, to: usize) -> Option<Numbers> {
        self.channels.get(to).map(|c| Numbers {
            logged: c.logged(),
            gone: c.base(),
            collected: c.collected(),
            lost: c.lost(),
            due: c.due(),
        })
    }

    /// Messages that the program has to send again until it is where it was before it went back.
    pub fn behind(&self) -> u64 {
        self.channels.iter().map(Outgoing::behind).sum()
    }

    /// The highest number logged to each group.
    pub fn logged(&self) -> Vec<u64> {
        self.channels.iter().map(Outgoing::logged).collect()
    }

    /// Logs messages of the program; those known already are left out. On disk they are written in one go.
    ///
    /// # Errors
    /// [`Error::Full`] at the bound; [`Error::Garbage`] for a group or number that cannot be; what the disk says.
    pub fn log(&mut self, messages: Vec<Frame>) -> Result<Logged, Error> {
        let start = Instant::now();
        let outcome = self.log_new(messages);
        self.logging += start.elapsed();
        outcome
    }

    fn log_new(&mut self, messages: Vec<Frame>) -> Result<Logged, Error> {
        let mut count = Logged::default();
        let mut ends = self.logged();
        let mut new = Vec::with_capacity(messages.len());
        for frame in messages {
            let (to, number) = (usize::from(frame.header.group), frame.header.number);
            let Some(end) = ends.get_mut(to) else {
                return Err(Error::Garbage(format!("a message to group {to} of {}", self.channels.len())));
            };
            if number > *end + 1 {
                return Err(Error::Garbage(format!("message {number} to group {to} after {end}")));
            }
            if number <= *end {
                self.channels[to].sends(number);
                count.known += 1;
                continue;
            }
            *end = number;
            count.messages += u64::from(frame.header.rest == 0);
            count.bytes += u64::from(frame.header.length);
            new.push(frame);
        }
        self.keep(new)?;
        if self.bytes() > self.limit_bytes {
            let (bytes, limit) = (self.bytes(), self.limit_bytes);
            return Err(Error::Full(format!("{bytes} of {limit} bytes; checkpoint more often, or raise --log-bytes")));
        }
        Ok(count)
    }

    /// Writes new messages, if there is a disk, and only then counts them as logged.
    fn keep(&mut self, new: Vec<Frame>) -> Result<(), Error> {
        if new.is_empty() {
            return Ok(());
        }
        self.begin_segment_if_full()?;
        let places = match &mut self.disk {
            Some(disk) => disk.append(&new).map_err(system(disk.folder().display()))?,
            None => Vec::new(),
        };
        let places = places.into_iter().map(Some).chain(std::iter::repeat(None));
        for (Frame { header, body }, place) in new.into_iter().zip(places) {
            let entry = Entry { header, body: Some(body), place };
            self.memory_bytes += entry.bytes();
            self.channels[usize::from(header.group)].offer(header.number, entry);
        }
        Ok(())
    }

    fn begin_segment_if_full(&mut self) -> Result<(), Error> {
        let Some(disk) = self.disk.as_mut().filter(|d| d.is_full()) else { return Ok(()) };
        let heads = (0..).zip(&self.channels).map(|(to, c)| head(Kind::Head, to, c.logged(), c.collected()));
        disk.begin(&heads.collect::<Vec<_>>()).map_err(system(disk.folder().display()))
    }

    /// The program (re)joins a channel and can send again what follows `held`.
    ///
    /// # Errors
    /// What the disk says.
    pub fn join(&mut self, to: usize, held: u64) -> Result<(), Error> {
        let Some(channel) = self.channels.get_mut(to) else { return Ok(()) };
        let bytes: u64 = channel.iter_mut().map(|(_, e)| e.bytes()).sum();
        if !channel.join(held) {
            return Ok(());
        }
        self.memory_bytes -= bytes.min(self.memory_bytes);
        let reset = head(Kind::Reset, to, channel.base(), channel.collected());
        self.begin_segment_if_full()?;
        let Some(disk) = &mut self.disk else { return Ok(()) };
        disk.append(&[reset]).map(drop).map_err(system(disk.folder().display()))
    }

    /// Drops messages from the end of a channel as long as the test says so, durably. Nobody may have got them.
    ///
    /// # Errors
    /// What the disk says.
    pub fn cut(&mut self, to: usize, goes: impl Fn(&Header) -> bool) -> Result<(), Error> {
        let Some(channel) = self.channels.get_mut(to) else { return Ok(()) };
        let gone: u64 = channel.cut(|entry| goes(&entry.header)).iter().map(Entry::bytes).sum();
        if gone == 0 {
            return Ok(());
        }
        self.memory_bytes -= gone.min(self.memory_bytes);
        let cut = head(Kind::Cut, to, channel.logged(), channel.collected());
        self.begin_segment_if_full()?;
        if let Some(disk) = &mut self.disk {
            disk.append(&[cut]).map_err(system(disk.folder().display()))?;
        }
        self.sync()
    }

    /// Shows all messages that are logged to a group, oldest first.
    ///
    /// # Errors
    /// What the disk says.
    pub fn show(&mut self, to: usize, mut look: impl FnMut(&Header, &[u8])) -> Result<(), Error> {
        let Some(channel) = self.channels.get_mut(to) else { return Ok(()) };
        for (_, entry) in channel.iter_mut() {
            look(&entry.header, &entry.body(&self.disk)?);
        }
        Ok(())
    }

    /// The receiver wants messages from a number on; 0: none for now.
    pub fn want(&mut self, to: usize, from: u64) {
        match self.channels.get_mut(to) {
            Some(channel) if from == 0 => channel.pause(),
            Some(channel) => channel.want(from),
            None => {}
        }
    }

    /// Takes the next message that is due to a group, as `from` sends it.
    ///
    /// # Errors
    /// What the disk says.
    pub fn next_due(&mut self, to: usize, from: usize) -> Result<Option<Frame>, Error> {
        let Some(channel) = self.channels.get_mut(to) else { return Ok(None) };
        let Some(number) = channel.due() else { return Ok(None) };
        let Some(entry) = channel.get_mut(number) else { return Ok(None) };
        let body = entry.body(&self.disk)?;
        let header = Header { group: from as u16, ..entry.header };
        if entry.place.is_some() {
            entry.body = None;
        }
        channel.transmitted();
        if self.forgets {
            self.memory_bytes -= channel.forget().map(|e| e.bytes()).sum::<u64>();
        }
        Ok(Some(Frame { header, body }))
    }

    /// The receiver will never want messages up to this number again.
    ///
    /// # Errors
    /// What the disk says.
    pub fn collect(&mut self, to: usize, upto: u64) -> Result<(), Error> {
        let start = Instant::now();
        let Some(channel) = self.channels.get_mut(to) else { return Ok(()) };
        let freed: u64 = channel.collect(upto).map(|e| e.bytes()).sum();
        self.memory_bytes -= freed.min(self.memory_bytes);
        let channels = &self.channels;
        if let Some(disk) = &mut self.disk {
            let collected = |group: usize| channels.get(group).map_or(0, Outgoing::base);
            disk.collect(collected).map_err(system("the log"))?;
        }
        self.logging += start.elapsed();
        Ok(())
    }

    /// Compares a message that the program sent again with the logged one.
    ///
    /// # Errors
    /// [`Error::Diverged`] if they differ; what the disk says.
    pub fn compare(&mut self, header: &Header, fingerprint: &[u8]) -> Result<(), Error> {
        let to = usize::from(header.group);
        let Some(channel) = self.channels.get_mut(to) else { return Ok(()) };
        channel.sends(header.number);
        let Some(entry) = channel.get_mut(header.number) else { return Ok(()) };
        let same = (entry.header.tag, entry.header.rest) == (header.tag, header.rest);
        if same && fingerprint == xxh3_64(&entry.body(&self.disk)?).to_le_bytes() {
            return Ok(());
        }
        Err(Error::Diverged(format!("message {} to group {to} differs from the one logged before", header.number)))
    }

    /// Makes the log durable, if it is on disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn sync(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        let Some(disk) = &mut self.disk else { return Ok(()) };
        let outcome = disk.sync().map_err(system(disk.folder().display()));
        self.syncing += start.elapsed();
        self.logging += start.elapsed();
        outcome
    }

    /// Writes the whole log into a folder from which another relay can serve it. Into its own folder: syncs it. What
    /// is due stays due.
    ///
    /// # Errors
    /// What the disk says; the folder holds a log already.
    pub fn save(&mut self, folder: &Path) -> Result<(), Error> {
        if self.disk.as_ref().is_some_and(|d| d.folder() == folder) {
            return self.sync();
        }
        let _held = hold(folder)?;
        let (mut copy, found, _) = DiskLog::open(folder, self.channels.len(), SEGMENT_BYTES)?;
        if !found.is_empty() {
            return Err(Error::Usage(format!("{}: holds a log already; name another folder", folder.display())));
        }
        let heads = (0..).zip(&self.channels).map(|(to, c)| head(Kind::Head, to, c.base(), c.collected()));
        copy.begin(&heads.collect::<Vec<_>>()).map_err(system(folder.display()))?;
        for to in 0..self.channels.len() {
            for (_, entry) in self.channels[to].iter_mut() {
                let frame =
                    Frame { header: Header { group: to as u16, ..entry.header }, body: entry.body(&self.disk)? };
                copy.append(&[frame]).map_err(system(folder.display()))?;
            }
        }
        copy.sync().map_err(system(folder.display()))
    }
}

/// The numbers of a channel.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Highest number logged.
    pub logged: u64,
    /// Messages up to this number are not in the log.
    pub gone: u64,
    /// Number up to which it was collected.
    pub collected: u64,
    /// Number of a wanted message that is lost.
    pub lost: Option<u64>,
    /// The next number to transmit.
    pub due: Option<u64>,
}

/// What happened to messages offered to the log.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logged {
    /// New messages.
    pub messages: u64,
    /// Bytes of the new ones.
    pub bytes: u64,
    /// Messages that were known before.
    pub known: u64,
}

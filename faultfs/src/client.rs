//! A mount: what it remembers of the server, for how long, and what it has not written back yet.

use crate::attributes::{Attributes, Changes};
use crate::content::Content;
use crate::server::{Caller, New, Server};
use crate::{Answer, Ino};
use nix::errno::Errno;
use nix::sys::stat::SFlag;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What a mount holds back before it writes, bytes.
const MOST_DIRTY: u64 = 4 << 20;

/// Start of the name of a file that was removed while it was open.
pub const SILLY: &str = ".nfs";

/// Names in a folder with their files, as they were read.
pub type Listing = Arc<Vec<(OsString, Ino, SFlag)>>;

/// When something was asked, on the clock of the caches.
type Asked = Duration;

/// A file that is open here.
#[derive(Debug)]
struct Open {
    /// As this mount sees it.
    content: Arc<Content>,
    /// The server's number of the state that it was read in.
    change: u64,
    dirty: Vec<Range<u64>>,
    dirty_bytes: u64,
    asked: Asked,
    handles: u32,
    /// Handles of which a descriptor was closed since: they may be gone in a moment.
    closing: u32,
    /// The name under which it waits for its last close.
    silly: Option<(Ino, OsString)>,
}

#[derive(Debug)]
struct Handle {
    ino: Ino,
    listing: Option<Listing>,
    closing: bool,
}

/// The mount.
#[derive(Debug, Default)]
pub struct Client {
    /// How long what it remembers is good.
    ttl: Duration,
    names: HashMap<Ino, HashMap<OsString, (Option<Ino>, Asked)>>,
    attributes: HashMap<Ino, (Attributes, Asked)>,
    listings: HashMap<Ino, (Listing, Asked)>,
    open: HashMap<Ino, Open>,
    handles: HashMap<u64, Handle>,
    next_handle: u64,
}

impl Client {
    /// A mount that remembers names and attributes for so long.
    pub fn new(ttl: Duration) -> Client {
        Client { ttl, ..Client::default() }
    }

    fn is_fresh(&self, asked: Asked, now: Asked) -> bool {
        now.saturating_sub(asked) < self.ttl
    }

    /// The file of a name, as this mount sees it.
    pub fn lookup(&mut self, server: &Server, now: Asked, folder: Ino, name: &OsStr) -> Answer<Attributes> {
        let known = self.names.get(&folder).and_then(|names| names.get(name)).copied();
        let found = match known.filter(|(_, asked)| self.is_fresh(*asked, now)) {
            Some((found, _)) => found,
            None => {
                let found = match server.lookup(folder, name) {
                    Ok(ino) => Some(ino),
                    Err(Errno::ENOENT) => None,
                    Err(e) => return Err(e),
                };
                self.attributes.remove(&found.unwrap_or_default());
                self.names.entry(folder).or_default().insert(name.to_os_string(), (found, now));
                found
            }
        };
        self.attributes(server, now, found.ok_or(Errno::ENOENT)?)
    }

    /// What a file looks like, as this mount sees it.
    pub fn attributes(&mut self, server: &Server, now: Asked, ino: Ino) -> Answer<Attributes> {
        let known = self.attributes.get(&ino).filter(|(_, asked)| self.is_fresh(*asked, now));
        let attributes = match known {
            Some((attributes, _)) => attributes.clone(),
            None => self.ask(server, now, ino)?,
        };
        let Some(open) = self.open.get(&ino).filter(|open| !open.dirty.is_empty()) else { return Ok(attributes) };
        Ok(Attributes { size: open.content.size(), allocated: open.content.allocated(), ..attributes })
    }

    fn ask(&mut self, server: &Server, now: Asked, ino: Ino) -> Answer<Attributes> {
        let attributes = server.attributes(ino)?;
        self.attributes.insert(ino, (attributes.clone(), now));
        Ok(attributes)
    }

    /// This mount has changed a folder: it asks anew what is in there.
    fn changed(&mut self, folder: Ino) {
        self.names.remove(&folder);
        self.listings.remove(&folder);
        self.attributes.remove(&folder);
    }

    /// Makes a new file.
    pub fn create(
        &mut self,
        server: &mut Server,
        now: Asked,
        (folder, name): (Ino, &OsStr),
        new: &New,
        caller: Caller,
    ) -> Answer<Attributes> {
        self.changed(folder);
        server.create(folder, name, new, caller)?;
        self.lookup(server, now, folder, name)
    }

    /// One more name for a file.
    pub fn link(
        &mut self,
        server: &mut Server,
        now: Asked,
        ino: Ino,
        (folder, name): (Ino, &OsStr),
        time: SystemTime,
    ) -> Answer<Attributes> {
        self.changed(folder);
        self.attributes.remove(&ino);
        server.link(ino, folder, name, time)?;
        self.lookup(server, now, folder, name)
    }

    /// Takes a name away. A file that is open here gets another one.
    pub fn unlink(&mut self, server: &mut Server, folder: Ino, name: &OsStr, time: SystemTime) -> Answer<()> {
        self.changed(folder);
        let ino = server.lookup(folder, name)?;
        self.attributes.remove(&ino);
        if self.hide(server, folder, name, time)? { Ok(()) } else { server.unlink(folder, name, time) }
    }

    /// Gives another name to a file that is open here and would be gone; whether it was one.
    fn hide(&mut self, server: &mut Server, folder: Ino, name: &OsStr, time: SystemTime) -> Answer<bool> {
        let Ok(ino) = server.lookup(folder, name) else { return Ok(false) };
        let attributes = server.attributes(ino)?;
        let Some(open) = self.open.get_mut(&ino) else { return Ok(false) };
        if open.silly.is_some() || attributes.links > 1 || attributes.kind() == SFlag::S_IFDIR {
            return Ok(false);
        }
        let silly = OsString::from(format!("{SILLY}{ino:016x}"));
        server.rename((folder, name), (folder, &silly), time)?;
        open.silly = Some((folder, silly));
        Ok(true)
    }

    /// Whether a file would get another name only because its last close is on the way.
    pub fn is_closing(&self, server: &Server, folder: Ino, name: &OsStr) -> bool {
        let open = server.lookup(folder, name).ok().and_then(|ino| self.open.get(&ino));
        open.is_some_and(|open| open.closing == open.handles)
    }

    /// Removes an empty folder.
    pub fn rmdir(&mut self, server: &mut Server, folder: Ino, name: &OsStr, time: SystemTime) -> Answer<()> {
        self.changed(folder);
        server.rmdir(folder, name, time)
    }

    /// Gives a file another name.
    pub fn rename(
        &mut self,
        server: &mut Server,
        from: (Ino, &OsStr),
        to: (Ino, &OsStr),
        time: SystemTime,
    ) -> Answer<()> {
        self.changed(from.0);
        self.changed(to.0);
        let ino = server.lookup(from.0, from.1)?;
        self.attributes.remove(&ino);
        if server.lookup(to.0, to.1).is_ok_and(|there| there != ino) {
            self.hide(server, to.0, to.1, time)?;
        }
        server.rename(from, to, time)
    }

    /// Changes what a file looks like.
    pub fn set_attributes(
        &mut self,
        server: &mut Server,
        now: Asked,
        ino: Ino,
        changes: &Changes,
        time: SystemTime,
    ) -> Answer<Attributes> {
        self.write_back(server, ino, time)?;
        server.set_attributes(ino, changes, time)?;
        let attributes = self.ask(server, now, ino)?;
        if let Some(open) = self.open.get_mut(&ino).filter(|_| changes.size.is_some()) {
            (open.content, open.change, open.asked) = (server.content(ino)?, attributes.change, now);
        }
        Ok(attributes)
    }

    /// Opens a file: the server is asked what it is now.
    pub fn open(&mut self, server: &mut Server, now: Asked, ino: Ino, time: SystemTime) -> Answer<u64> {
        self.write_back(server, ino, time)?;
        let attributes = self.ask(server, now, ino)?;
        let content = server.content(ino)?;
        let (change, asked) = (attributes.change, now);
        let fresh = || Open {
            content: content.clone(),
            change,
            dirty: Vec::new(),
            dirty_bytes: 0,
            asked,
            handles: 0,
            closing: 0,
            silly: None,
        };
        let open = self.open.entry(ino).or_insert_with(fresh);
        if open.change != change {
            open.content = content;
        }
        (open.change, open.asked) = (change, asked);
        open.handles += 1;
        Ok(self.handle(Handle { ino, listing: None, closing: false }))
    }

    fn handle(&mut self, handle: Handle) -> u64 {
        self.next_handle += 1;
        self.handles.insert(self.next_handle, handle);
        self.next_handle
    }

    /// Opens a folder: it may be shown as it was.
    pub fn open_folder(&mut self, server: &Server, now: Asked, ino: Ino) -> Answer<u64> {
        let known = self.listings.get(&ino).filter(|(_, asked)| self.is_fresh(*asked, now));
        let listing = match known {
            Some((listing, _)) => listing.clone(),
            None => {
                let listing: Listing = Arc::new(server.list(ino)?);
                self.listings.insert(ino, (listing.clone(), now));
                listing
            }
        };
        Ok(self.handle(Handle { ino, listing: Some(listing), closing: false }))
    }

    /// What is in an open folder.
    pub fn listing(&self, handle: u64) -> Answer<Listing> {
        self.handles.get(&handle).and_then(|handle| handle.listing.clone()).ok_or(Errno::EBADF)
    }

    fn opened(&mut self, ino: Ino) -> Answer<&mut Open> {
        self.open.get_mut(&ino).ok_or(Errno::EBADF)
    }

    /// Bytes of an open file.
    pub fn read(&mut self, server: &Server, now: Asked, ino: Ino, offset: u64, length: u64) -> Answer<Vec<u8>> {
        self.look_again(server, now, ino)?;
        Ok(self.opened(ino)?.content.read(offset, length))
    }

    /// What it remembers of an open file is too old, or the file is gone.
    fn look_again(&mut self, server: &Server, now: Asked, ino: Ino) -> Answer<()> {
        let attributes = server.attributes(ino)?;
        let ttl = self.ttl;
        let open = self.opened(ino)?;
        if open.dirty.is_empty() && now.saturating_sub(open.asked) >= ttl {
            if open.change != attributes.change {
                (open.content, open.change) = (server.content(ino)?, attributes.change);
            }
            open.asked = now;
        }
        Ok(())
    }

    /// Writes into an open file; absent: at its end. The server gets it later.
    pub fn write(
        &mut self,
        server: &mut Server,
        ino: Ino,
        offset: Option<u64>,
        data: &[u8],
        time: SystemTime,
    ) -> Answer<()> {
        let open = self.opened(ino)?;
        let offset = offset.unwrap_or(open.content.size());
        Arc::make_mut(&mut open.content).write(offset, data);
        let until = offset + data.len() as u64;
        match open.dirty.last_mut().filter(|last| last.end == offset) {
            Some(last) => last.end = until,
            None => open.dirty.push(offset..until),
        }
        open.dirty_bytes += data.len() as u64;
        if open.dirty_bytes > MOST_DIRTY {
            return self.write_back(server, ino, time);
        }
        Ok(())
    }

    /// Has the server do something with the content of an open file.
    pub fn change(
        &mut self,
        server: &mut Server,
        now: Asked,
        ino: Ino,
        time: SystemTime,
        change: impl FnOnce(&mut Content),
    ) -> Answer<()> {
        self.write_back(server, ino, time)?;
        server.change(ino, time, change)?;
        let attributes = self.ask(server, now, ino)?;
        let open = self.opened(ino)?;
        (open.content, open.change) = (server.content(ino)?, attributes.change);
        Ok(())
    }

    /// Where the next data or hole of an open file is.
    pub fn seek(&mut self, server: &Server, now: Asked, ino: Ino, offset: u64, hole: bool) -> Answer<u64> {
        self.look_again(server, now, ino)?;
        self.opened(ino)?.content.seek(offset, hole).ok_or(Errno::ENXIO)
    }

    /// Gives the server what it does not have yet. If it takes it not, it is lost, and this is told once.
    pub fn write_back(&mut self, server: &mut Server, ino: Ino, time: SystemTime) -> Answer<()> {
        let Some(open) = self.open.get_mut(&ino).filter(|open| !open.dirty.is_empty()) else { return Ok(()) };
        let ranges = std::mem::take(&mut open.dirty);
        open.dirty_bytes = 0;
        let content = open.content.clone();
        let before = server.attributes(ino).map(|attributes| attributes.change);
        let written = server.write(ino, &content, &ranges, time);
        let after = server.attributes(ino).map(|attributes| attributes.change);
        match (written, before, after) {
            // Nobody else has changed it meanwhile.
            (Ok(()), Ok(before), Ok(after)) if before == open.change => open.change = after,
            (Ok(()), ..) => {}
            (Err(e), ..) => {
                self.lose(server, ino);
                return Err(e);
            }
        }
        self.attributes.remove(&ino);
        Ok(())
    }

    /// Forgets what was not written back.
    pub fn lose(&mut self, server: &Server, ino: Ino) {
        self.attributes.remove(&ino);
        let Some(open) = self.open.get_mut(&ino) else { return };
        open.dirty.clear();
        open.dirty_bytes = 0;
        if let (Ok(content), Ok(attributes)) = (server.content(ino), server.attributes(ino)) {
            (open.content, open.change) = (content, attributes.change);
        }
    }

    /// A descriptor of a file is closed.
    pub fn flush(&mut self, server: &mut Server, handle: u64, time: SystemTime) -> Answer<()> {
        let Some(handle) = self.handles.get_mut(&handle) else { return Err(Errno::EBADF) };
        let (ino, first) = (handle.ino, !std::mem::replace(&mut handle.closing, true));
        if let Some(open) = self.open.get_mut(&ino).filter(|_| first) {
            open.closing += 1;
        }
        self.write_back(server, ino, time)
    }

    /// The last descriptor of a handle is closed.
    pub fn release(&mut self, server: &mut Server, handle: u64, time: SystemTime) {
        let Some(Handle { ino, listing: None, closing }) = self.handles.remove(&handle) else { return };
        let Some(open) = self.open.get_mut(&ino) else { return };
        open.handles -= 1;
        open.closing -= u32::from(closing);
        if open.handles > 0 {
            return;
        }
        // Pages that a mapping has changed come after the last close of a descriptor; nobody is left to tell.
        let _ = self.write_back(server, ino, time);
        if let Some((folder, name)) = self.open.remove(&ino).and_then(|open| open.silly) {
            self.changed(folder);
            let _ = server.unlink(folder, &name, time);
        }
    }

    /// What this mount had not written back is lost, or not; it remembers nothing any more. Open files stay open.
    pub fn forget(&mut self, server: &mut Server, lose: bool, time: SystemTime) {
        let open: Vec<Ino> = self.open.keys().copied().collect();
        for ino in open {
            if lose {
                self.lose(server, ino);
                self.open.get_mut(&ino).into_iter().for_each(|open| open.silly = None);
            } else {
                let _ = self.write_back(server, ino, time);
            }
        }
        self.names.clear();
        self.attributes.clear();
        self.listings.clear();
    }
}

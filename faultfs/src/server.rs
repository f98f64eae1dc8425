//! The server: files, folders and links, what of them is synced, and what a crash leaves.

use crate::attributes::{Attributes, Changes, kind};
use crate::content::Content;
use crate::{Answer, Ino};
use nix::errno::Errno;
use nix::sys::stat::SFlag;
use rand::Rng;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Number of the root.
pub const ROOT: Ino = 1;

/// Longest name, bytes.
pub const LONGEST_NAME: usize = 255;

#[derive(Debug)]
enum Body {
    File { content: Arc<Content>, synced: Arc<Content> },
    Folder(BTreeMap<OsString, Ino>),
    Link(PathBuf),
    Special(u32),
}

#[derive(Debug)]
struct Inode {
    body: Body,
    mode: u32,
    uid: u32,
    gid: u32,
    change: u64,
    atime: SystemTime,
    mtime: SystemTime,
    ctime: SystemTime,
    xattrs: BTreeMap<OsString, Vec<u8>>,
    /// Where it was last given a name.
    at: (Ino, OsString),
    links: u32,
}

/// Who asks, and when.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// His user.
    pub uid: u32,
    /// His group.
    pub gid: u32,
    /// The time on the server.
    pub now: SystemTime,
}

/// What a new file is to be.
#[derive(Clone, Debug)]
pub enum New {
    /// A file with a mode.
    File(u32),
    /// A folder with a mode.
    Folder(u32),
    /// A symbolic link.
    Link(PathBuf),
    /// A pipe, socket or device, with type and mode, and its device.
    Special(u32, u32),
}

/// A name before it was changed.
#[derive(Debug)]
struct Undo {
    folder: Ino,
    name: OsString,
    before: Option<Ino>,
    /// It was one act with the change before it.
    joined: bool,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    inodes: BTreeMap<Ino, Inode>,
    next: Ino,
    /// Changes of names since they were last synced.
    unsynced: Vec<Undo>,
    used: u64,
    capacity: u64,
}

impl Server {
    /// An empty one for this many bytes.
    pub fn new(capacity: u64, caller: Caller, mode: u32) -> Server {
        let mut server = Server { inodes: BTreeMap::new(), next: ROOT, unsynced: Vec::new(), used: 0, capacity };
        server.make(ROOT, OsStr::new(""), &New::Folder(mode), caller);
        server
    }

    fn make(&mut self, folder: Ino, name: &OsStr, new: &New, caller: Caller) -> Ino {
        let (body, mode) = match new {
            New::File(mode) => {
                let empty = Arc::new(Content::default());
                (Body::File { content: empty.clone(), synced: empty }, libc::S_IFREG | mode & 0o7777)
            }
            New::Folder(mode) => (Body::Folder(BTreeMap::new()), libc::S_IFDIR | mode & 0o7777),
            New::Link(target) => (Body::Link(target.clone()), libc::S_IFLNK | 0o777),
            New::Special(mode, device) => (Body::Special(*device), *mode),
        };
        let (mut mode, mut gid) = (mode, caller.gid);
        if let Some(parent) = self.inodes.get(&folder).filter(|parent| parent.mode & libc::S_ISGID != 0) {
            gid = parent.gid;
            mode |= if kind(mode) == SFlag::S_IFDIR { libc::S_ISGID } else { 0 };
        }
        let ino = self.next;
        self.next += 1;
        let Caller { uid, now, .. } = caller;
        let (xattrs, at) = (BTreeMap::new(), (folder, name.to_os_string()));
        let inode = Inode { body, mode, uid, gid, change: 1, atime: now, mtime: now, ctime: now, xattrs, at, links: 0 };
        self.inodes.insert(ino, inode);
        ino
    }

    fn inode(&self, ino: Ino) -> Answer<&Inode> {
        self.inodes.get(&ino).filter(|inode| inode.links > 0 || ino == ROOT).ok_or(Errno::ESTALE)
    }

    fn inode_mut(&mut self, ino: Ino) -> Answer<&mut Inode> {
        self.inodes.get_mut(&ino).filter(|inode| inode.links > 0 || ino == ROOT).ok_or(Errno::ESTALE)
    }

    fn folder(&self, ino: Ino) -> Answer<&BTreeMap<OsString, Ino>> {
        match &self.inode(ino)?.body {
            Body::Folder(names) => Ok(names),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// The file of a name.
    pub fn lookup(&self, folder: Ino, name: &OsStr) -> Answer<Ino> {
        self.folder(folder)?.get(name).copied().ok_or(Errno::ENOENT)
    }

    /// The folder above.
    pub fn parent(&self, ino: Ino) -> Ino {
        self.inodes.get(&ino).map_or(ROOT, |inode| inode.at.0)
    }

    /// Names in a folder, with their files.
    pub fn list(&self, folder: Ino) -> Answer<Vec<(OsString, Ino, SFlag)>> {
        let all = self.folder(folder)?.iter();
        all.map(|(name, ino)| Ok((name.clone(), *ino, kind(self.inode(*ino)?.mode)))).collect()
    }

    /// What a file looks like.
    pub fn attributes(&self, ino: Ino) -> Answer<Attributes> {
        let inode = self.inode(ino)?;
        let (size, allocated, rdev) = match &inode.body {
            Body::File { content, .. } => (content.size(), content.allocated(), 0),
            Body::Folder(names) => (names.len() as u64 * 32, 0, 0),
            Body::Link(target) => (target.as_os_str().len() as u64, 0, 0),
            Body::Special(device) => (0, 0, *device),
        };
        let folders = |names: &BTreeMap<OsString, Ino>| {
            names.values().filter(|n| self.inodes.get(n).is_some_and(|i| matches!(i.body, Body::Folder(_)))).count()
        };
        let links = match &inode.body {
            Body::Folder(names) => 2 + folders(names) as u32,
            _ => inode.links,
        };
        let Inode { change, mode, uid, gid, atime, mtime, ctime, .. } = *inode;
        Ok(Attributes { ino, change, size, allocated, mode, links, uid, gid, rdev, atime, mtime, ctime })
    }

    /// Changes what a file looks like.
    pub fn set_attributes(&mut self, ino: Ino, changes: &Changes, now: SystemTime) -> Answer<()> {
        let inode = self.inode_mut(ino)?;
        inode.mode = changes.mode.map_or(inode.mode, |mode| inode.mode & libc::S_IFMT | mode & 0o7777);
        inode.uid = changes.uid.unwrap_or(inode.uid);
        inode.gid = changes.gid.unwrap_or(inode.gid);
        if let Some(size) = changes.size {
            self.change(ino, now, |content| content.resize(size))?;
        }
        let inode = self.inode_mut(ino)?;
        inode.atime = changes.atime.unwrap_or(inode.atime);
        inode.mtime = changes.mtime.unwrap_or(inode.mtime);
        inode.ctime = now;
        Ok(())
    }

    /// Changes a file's content, if there is room for it.
    pub fn change(&mut self, ino: Ino, now: SystemTime, change: impl FnOnce(&mut Content)) -> Answer<()> {
        let (used, capacity) = (self.used, self.capacity);
        let inode = self.inode_mut(ino)?;
        let Body::File { content, .. } = &mut inode.body else { return Err(Errno::EISDIR) };
        let (before, had) = (content.clone(), content.allocated());
        change(Arc::make_mut(content));
        let has = content.allocated();
        if has > had && used + has - had > capacity {
            *content = before;
            return Err(Errno::ENOSPC);
        }
        (inode.mtime, inode.ctime) = (now, now);
        inode.change += 1;
        self.used = (used + has).saturating_sub(had);
        Ok(())
    }

    /// Takes what a client has changed of a content.
    pub fn write(&mut self, ino: Ino, from: &Content, ranges: &[Range<u64>], now: SystemTime) -> Answer<()> {
        self.change(ino, now, |content| ranges.iter().for_each(|range| content.take(from, range.clone())))
    }

    /// The content of a file.
    pub fn content(&self, ino: Ino) -> Answer<Arc<Content>> {
        match &self.inode(ino)?.body {
            Body::File { content, .. } => Ok(content.clone()),
            Body::Folder(_) => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Where a symbolic link leads.
    pub fn link_target(&self, ino: Ino) -> Answer<PathBuf> {
        match &self.inode(ino)?.body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// What a crash leaves of a file from now on.
    pub fn sync(&mut self, ino: Ino) -> Answer<()> {
        if let Body::File { content, synced } = &mut self.inode_mut(ino)?.body {
            *synced = content.clone();
        }
        Ok(())
    }

    /// All names outlive a crash from now on.
    pub fn sync_names(&mut self) {
        let changed: Vec<Ino> = std::mem::take(&mut self.unsynced).iter().filter_map(|undo| undo.before).collect();
        for ino in changed {
            if self.inodes.get(&ino).is_some_and(|inode| inode.links == 0) {
                self.forget(ino);
            }
        }
    }

    fn forget(&mut self, ino: Ino) {
        if let Some(Inode { body: Body::File { content, .. }, .. }) = self.inodes.remove(&ino) {
            self.used = self.used.saturating_sub(content.allocated());
        }
    }

    /// Gives a name to a file, or takes it away; who is in its place then is nowhere.
    fn name(&mut self, folder: Ino, name: &OsStr, to: Option<Ino>, now: SystemTime) -> Answer<()> {
        let inode = self.inode_mut(folder)?;
        let Body::Folder(names) = &mut inode.body else { return Err(Errno::ENOTDIR) };
        let before = match to {
            Some(ino) => names.insert(name.to_os_string(), ino),
            None => names.remove(name),
        };
        (inode.mtime, inode.ctime) = (now, now);
        inode.change += 1;
        if let Some(inode) = to.and_then(|ino| self.inodes.get_mut(&ino)) {
            inode.links += 1;
            inode.ctime = now;
            inode.at = (folder, name.to_os_string());
        }
        if let Some(inode) = before.and_then(|ino| self.inodes.get_mut(&ino)) {
            inode.links -= 1;
            inode.ctime = now;
        }
        self.unsynced.push(Undo { folder, name: name.to_os_string(), before, joined: false });
        Ok(())
    }

    fn is_free(&self, folder: Ino, name: &OsStr) -> Answer<()> {
        if name.len() > LONGEST_NAME {
            return Err(Errno::ENAMETOOLONG);
        }
        match self.lookup(folder, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Makes a new file under a name that is free.
    pub fn create(&mut self, folder: Ino, name: &OsStr, new: &New, caller: Caller) -> Answer<Ino> {
        self.is_free(folder, name)?;
        let ino = self.make(folder, name, new, caller);
        self.name(folder, name, Some(ino), caller.now)?;
        Ok(ino)
    }

    /// One more name for a file.
    pub fn link(&mut self, ino: Ino, folder: Ino, name: &OsStr, now: SystemTime) -> Answer<()> {
        self.is_free(folder, name)?;
        if matches!(self.inode(ino)?.body, Body::Folder(_)) {
            return Err(Errno::EPERM);
        }
        self.name(folder, name, Some(ino), now)
    }

    /// Takes a name away from a file.
    pub fn unlink(&mut self, folder: Ino, name: &OsStr, now: SystemTime) -> Answer<()> {
        let ino = self.lookup(folder, name)?;
        if matches!(self.inode(ino)?.body, Body::Folder(_)) {
            return Err(Errno::EISDIR);
        }
        self.name(folder, name, None, now)
    }

    /// Removes an empty folder.
    pub fn rmdir(&mut self, folder: Ino, name: &OsStr, now: SystemTime) -> Answer<()> {
        let ino = self.lookup(folder, name)?;
        if !self.folder(ino)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.name(folder, name, None, now)
    }

    /// Gives a file another name, in one act; who had that name loses it.
    pub fn rename(&mut self, from: (Ino, &OsStr), to: (Ino, &OsStr), now: SystemTime) -> Answer<()> {
        let ino = self.lookup(from.0, from.1)?;
        if to.1.len() > LONGEST_NAME {
            return Err(Errno::ENAMETOOLONG);
        }
        let is_folder = matches!(self.inode(ino)?.body, Body::Folder(_));
        if is_folder && self.is_below(to.0, ino) {
            return Err(Errno::EINVAL);
        }
        match self.lookup(to.0, to.1) {
            Ok(there) if there == ino => return Ok(()),
            Ok(there) => match (is_folder, &self.inode(there)?.body) {
                (true, Body::Folder(names)) if !names.is_empty() => return Err(Errno::ENOTEMPTY),
                (true, Body::Folder(_)) => {}
                (true, _) => return Err(Errno::ENOTDIR),
                (false, Body::Folder(_)) => return Err(Errno::EISDIR),
                (false, _) => {}
            },
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.name(to.0, to.1, Some(ino), now)?;
        self.name(from.0, from.1, None, now)?;
        self.unsynced.last_mut().into_iter().for_each(|undo| undo.joined = true);
        Ok(())
    }

    fn is_below(&self, mut ino: Ino, folder: Ino) -> bool {
        while ino != ROOT {
            if ino == folder {
                return true;
            }
            ino = self.parent(ino);
        }
        folder == ROOT
    }

    /// Extended attributes of a file.
    pub fn xattrs(&self, ino: Ino) -> Answer<&BTreeMap<OsString, Vec<u8>>> {
        Ok(&self.inode(ino)?.xattrs)
    }

    /// Sets an extended attribute, or removes it.
    pub fn set_xattr(&mut self, ino: Ino, name: &OsStr, value: Option<&[u8]>, now: SystemTime) -> Answer<()> {
        let inode = self.inode_mut(ino)?;
        inode.ctime = now;
        match value {
            Some(value) => drop(inode.xattrs.insert(name.to_os_string(), value.to_vec())),
            None => drop(inode.xattrs.remove(name).ok_or(Errno::ENODATA)?),
        }
        Ok(())
    }

    /// Bytes in all, and those that are taken.
    pub fn room(&self) -> (u64, u64) {
        (self.capacity, self.used)
    }

    /// How many files there are.
    pub fn files(&self) -> u64 {
        self.inodes.len() as u64
    }

    /// Room for so many bytes from now on.
    pub fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    /// A path of a file from the root, for rules.
    pub fn path(&self, ino: Ino) -> PathBuf {
        let (mut names, mut at) = (Vec::new(), ino);
        while at != ROOT {
            let Some(inode) = self.inodes.get(&at) else { break };
            names.push(inode.at.1.clone());
            at = inode.at.0;
        }
        names.into_iter().rev().fold(PathBuf::from("/"), |path, name| path.join(name))
    }

    /// The file of a path.
    pub fn find(&self, path: &Path) -> Answer<Ino> {
        let mut names = path.iter().filter(|name| *name != OsStr::new("/"));
        names.try_fold(ROOT, |folder, name| self.lookup(folder, name))
    }

    /// Changes a bit of a file, of which nobody is told.
    pub fn rot(&mut self, ino: Ino, at: u64) -> Answer<bool> {
        match &mut self.inode_mut(ino)?.body {
            Body::File { content, synced } => {
                let rotten = Arc::make_mut(content).rot(at);
                *synced = content.clone();
                Ok(rotten)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// Crashes and begins again: of what was not synced, some is lost.
    pub fn crash(&mut self, rng: &mut impl Rng) {
        let mut kept = rng.random_range(0..=self.unsynced.len());
        while self.unsynced.get(kept).is_some_and(|undo| undo.joined) {
            kept -= 1;
        }
        for Undo { folder, name, before, .. } in self.unsynced.split_off(kept).into_iter().rev() {
            if let Some(Inode { body: Body::Folder(names), change, .. }) = self.inodes.get_mut(&folder) {
                *change += 1;
                match before {
                    Some(ino) => drop(names.insert(name, ino)),
                    None => drop(names.remove(&name)),
                }
            }
        }
        self.count_links();
        self.unsynced.clear();
        let lost: Vec<Ino> =
            self.inodes.iter().filter(|(ino, inode)| **ino != ROOT && inode.links == 0).map(|(ino, _)| *ino).collect();
        lost.into_iter().for_each(|ino| self.forget(ino));
        let mut used = 0;
        for inode in self.inodes.values_mut() {
            let Body::File { content, synced } = &mut inode.body else { continue };
            if !Arc::ptr_eq(content, synced) {
                inode.change += 1;
                if rng.random_bool(0.5) {
                    *content = synced.clone();
                } else {
                    *synced = content.clone();
                }
            }
            used += content.allocated();
        }
        self.used = used;
    }

    fn count_links(&mut self) {
        let names = self.inodes.iter().filter_map(|(folder, inode)| match &inode.body {
            Body::Folder(names) => Some((*folder, names)),
            _ => None,
        });
        let all: Vec<(Ino, OsString, Ino)> = names
            .flat_map(|(folder, names)| names.iter().map(move |(name, ino)| (folder, name.clone(), *ino)))
            .collect();
        self.inodes.values_mut().for_each(|inode| inode.links = 0);
        for (folder, name, ino) in all {
            if let Some(inode) = self.inodes.get_mut(&ino) {
                inode.links += 1;
                inode.at = (folder, name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    const CALLER: Caller = Caller { uid: 1000, gid: 100, now: SystemTime::UNIX_EPOCH };

    fn server() -> Server {
        Server::new(1 << 20, CALLER, 0o755)
    }

    fn name(name: &str) -> &OsStr {
        OsStr::new(name)
    }

    #[test]
    fn a_crash_loses_what_was_not_synced_and_nothing_else() {
        let mut lost = 0;
        for seed in 0..200 {
            let mut server = server();
            let kept = server.create(ROOT, name("kept"), &New::File(0o600), CALLER).unwrap();
            server.change(kept, CALLER.now, |content| content.write(0, b"synced")).unwrap();
            server.sync(kept).unwrap();
            server.sync_names();
            server.change(kept, CALLER.now, |content| content.write(0, b"later!")).unwrap();
            server.create(ROOT, name("new"), &New::File(0o600), CALLER).unwrap();
            server.rename((ROOT, name("kept")), (ROOT, name("renamed")), CALLER.now).unwrap();
            server.crash(&mut ChaCha8Rng::seed_from_u64(seed));
            let names = server.list(ROOT).unwrap();
            let at = server.lookup(ROOT, name("kept")).or_else(|_| server.lookup(ROOT, name("renamed"))).unwrap();
            let content = server.content(at).unwrap().read(0, 100);
            assert!(at == kept && [&b"synced"[..], b"later!"].contains(&&content[..]), "{names:?}");
            lost += usize::from(content == b"synced") + usize::from(server.lookup(ROOT, name("new")).is_err());
        }
        assert!((100..350).contains(&lost), "{lost}");
    }

    #[test]
    fn names_are_given_and_taken_as_by_any_file_system() {
        let mut server = server();
        let folder = server.create(ROOT, name("folder"), &New::Folder(0o2770), CALLER).unwrap();
        let file = server.create(folder, name("file"), &New::File(0o644), Caller { gid: 7, ..CALLER }).unwrap();
        assert_eq!(server.attributes(file).unwrap().gid, 100, "the group of a folder with the bit");
        server.link(file, ROOT, name("link"), CALLER.now).unwrap();
        assert_eq!(server.attributes(file).unwrap().links, 2);
        assert_eq!(server.create(ROOT, name("link"), &New::File(0), CALLER), Err(Errno::EEXIST));
        assert_eq!(server.rmdir(ROOT, name("folder"), CALLER.now), Err(Errno::ENOTEMPTY));
        assert_eq!(server.rename((ROOT, name("folder")), (folder, name("below")), CALLER.now), Err(Errno::EINVAL));
        assert_eq!(server.rename((ROOT, name("link")), (ROOT, name("folder")), CALLER.now), Err(Errno::EISDIR));
        assert_eq!(server.path(folder), Path::new("/folder"));
        server.unlink(folder, name("file"), CALLER.now).unwrap();
        server.rmdir(ROOT, name("folder"), CALLER.now).unwrap();
        server.sync_names();
        assert_eq!(server.attributes(folder), Err(Errno::ESTALE));
        assert_eq!(server.attributes(file).unwrap().links, 1);
        assert_eq!(server.find(Path::new("/link")), Ok(file));
    }

    #[test]
    fn a_full_server_takes_nothing_more_and_keeps_what_it_had() {
        let mut server = server();
        let file = server.create(ROOT, name("file"), &New::File(0o644), CALLER).unwrap();
        server.change(file, CALLER.now, |content| content.write(0, &[1; 1 << 20])).unwrap();
        assert_eq!(server.change(file, CALLER.now, |content| content.write(1 << 20, &[1])), Err(Errno::ENOSPC));
        assert_eq!(server.attributes(file).unwrap().size, 1 << 20);
        server.unlink(ROOT, name("file"), CALLER.now).unwrap();
        server.sync_names();
        assert_eq!(server.room(), (1 << 20, 0));
    }
}

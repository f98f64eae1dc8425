//! The calls of the kernel, each answered by a mount's client; the kernel itself remembers nothing.

use crate::attributes::{Attributes, Changes};
use crate::faults::Op;
use crate::server::{Caller, New};
use crate::shared::{Call, FaultFs};
use crate::{Answer, Ino};
use fuser::{
    FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use nix::errno::Errno;
use nix::sys::stat::SFlag;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The kernel asks each time: what is remembered, and how long, is up to the client.
const TTL: Duration = Duration::ZERO;

/// Numbers of files are not used twice.
const GENERATION: Generation = Generation(0);

/// Largest write, bytes.
const MAX_WRITE: u32 = 1 << 20;

/// A mount, for the kernel.
pub struct Adapter {
    pub fs: FaultFs,
    pub mount: usize,
}

impl Adapter {
    fn call<T>(&self, op: Op, ino: INodeNo, act: impl FnOnce(Call<'_>) -> Answer<T>) -> Answer<T> {
        self.fs.call(self.mount, op, ino.0, None, act)
    }

    fn named<T>(&self, op: Op, folder: INodeNo, name: &OsStr, act: impl FnOnce(Call<'_>) -> Answer<T>) -> Answer<T> {
        self.fs.call(self.mount, op, folder.0, Some(name), act)
    }

    fn make(&self, op: Op, request: &Request, folder: INodeNo, name: &OsStr, new: &New, reply: ReplyEntry) {
        let made = self.named(op, folder, name, |call| {
            let caller = caller(request, call.time);
            call.client.create(call.server, call.now, (folder.0, name), new, caller)
        });
        entry(made, reply);
    }
}

fn caller(request: &Request, now: SystemTime) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), now }
}

fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno as i32)
}

fn file_type(kind: SFlag) -> FileType {
    match kind {
        SFlag::S_IFDIR => FileType::Directory,
        SFlag::S_IFLNK => FileType::Symlink,
        SFlag::S_IFIFO => FileType::NamedPipe,
        SFlag::S_IFSOCK => FileType::Socket,
        SFlag::S_IFCHR => FileType::CharDevice,
        SFlag::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn told(attributes: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(attributes.ino),
        size: attributes.size,
        blocks: attributes.allocated / 512,
        atime: attributes.atime,
        mtime: attributes.mtime,
        ctime: attributes.ctime,
        crtime: attributes.ctime,
        kind: file_type(attributes.kind()),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        rdev: attributes.rdev,
        blksize: MAX_WRITE,
        flags: 0,
    }
}

fn entry(answer: Answer<Attributes>, reply: ReplyEntry) {
    match answer {
        Ok(attributes) => reply.entry(&TTL, &told(&attributes), GENERATION),
        Err(e) => reply.error(errno(e)),
    }
}

fn attributes(answer: Answer<Attributes>, reply: ReplyAttr) {
    match answer {
        Ok(attributes) => reply.attr(&TTL, &told(&attributes)),
        Err(e) => reply.error(errno(e)),
    }
}

fn data(answer: Answer<Vec<u8>>, reply: ReplyData) {
    match answer {
        Ok(data) => reply.data(&data),
        Err(e) => reply.error(errno(e)),
    }
}

fn opened(answer: Answer<u64>, flags: FopenFlags, reply: ReplyOpen) {
    match answer {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(e) => reply.error(errno(e)),
    }
}

fn done(answer: Answer<()>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(errno(e)),
    }
}

fn extended(answer: Answer<Vec<u8>>, size: u32, reply: ReplyXattr) {
    match answer {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(errno(Errno::ERANGE)),
        Ok(value) => reply.data(&value),
        Err(e) => reply.error(errno(e)),
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for capability in [InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP, InitFlags::FUSE_PARALLEL_DIROPS] {
            // An older kernel does without.
            let _ = config.add_capabilities(capability);
        }
        let _ = config.set_max_write(MAX_WRITE);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry(
            self.named(Op::Lookup, parent, name, |call| call.client.lookup(call.server, call.now, parent.0, name)),
            reply,
        );
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        attributes(self.call(Op::Getattr, ino, |call| call.client.attributes(call.server, call.now, ino.0)), reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changed = self.call(Op::Setattr, ino, |call| {
            let at = |time: TimeOrNow| match time {
                TimeOrNow::SpecificTime(time) => time,
                TimeOrNow::Now => call.time,
            };
            let changes = Changes { mode, uid, gid, size, atime: atime.map(at), mtime: mtime.map(at) };
            call.client.set_attributes(call.server, call.now, ino.0, &changes, call.time)
        });
        attributes(changed, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.call(Op::Readlink, ino, |call| call.server.link_target(ino.0));
        data(target.map(|target| target.into_os_string().into_vec()), reply);
    }

    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        let is_file = mode & libc::S_IFMT == libc::S_IFREG;
        let new = if is_file { New::File(mode) } else { New::Special(mode, rdev) };
        self.make(Op::Mknod, request, parent, name, &new, reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        self.make(Op::Mkdir, request, parent, name, &New::Folder(mode), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.make(Op::Symlink, request, parent, name, &New::Link(target.to_path_buf()), reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.fs.let_close(self.mount, parent.0, name);
        done(
            self.named(Op::Unlink, parent, name, |call| call.client.unlink(call.server, parent.0, name, call.time)),
            reply,
        );
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(
            self.named(Op::Rmdir, parent, name, |call| call.client.rmdir(call.server, parent.0, name, call.time)),
            reply,
        );
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.fs.let_close(self.mount, newparent.0, newname);
        let renamed = self.named(Op::Rename, newparent, newname, |call| {
            if flags.contains(RenameFlags::RENAME_NOREPLACE) {
                match call.server.lookup(newparent.0, newname) {
                    Ok(_) => return Err(Errno::EEXIST),
                    Err(Errno::ENOENT) => {}
                    Err(e) => return Err(e),
                }
            } else if !flags.is_empty() {
                return Err(Errno::EINVAL);
            }
            call.client.rename(call.server, (parent.0, name), (newparent.0, newname), call.time)
        });
        done(renamed, reply);
    }

    fn link(&self, _: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let linked = self.named(Op::Link, newparent, newname, |call| {
            call.client.link(call.server, call.now, ino.0, (newparent.0, newname), call.time)
        });
        entry(linked, reply);
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.call(Op::Open, ino, |call| call.client.open(call.server, call.now, ino.0, call.time));
        opened(handle, FopenFlags::FOPEN_DIRECT_IO, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.named(Op::Create, parent, name, |call| {
            let Call { client, server, now, time, .. } = call;
            let made = client.create(server, now, (parent.0, name), &New::File(mode), caller(request, time));
            let attributes = match made {
                // This mount did not know of it.
                Err(Errno::EEXIST) if flags & libc::O_EXCL == 0 => client.lookup(server, now, parent.0, name)?,
                made => made?,
            };
            Ok((client.open(server, now, attributes.ino, time)?, attributes))
        });
        match created {
            Ok((handle, attributes)) => {
                let handle = FileHandle(handle);
                reply.created(&TTL, &told(&attributes), GENERATION, handle, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.call(Op::Read, ino, |call| {
            let size = if call.is_short { size.div_ceil(2) } else { size };
            call.client.read(call.server, call.now, ino.0, offset, size.into())
        });
        data(read, reply);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let is_mapped = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let appends = flags.0 & libc::O_APPEND != 0 && !is_mapped;
        let written = self.call(Op::Write, ino, |call| {
            let data = if call.is_short && !is_mapped { &data[..data.len().div_ceil(2)] } else { data };
            call.client.write(call.server, ino.0, (!appends).then_some(offset), data, call.time)?;
            Ok(data.len() as u32)
        });
        match written {
            Ok(size) => reply.written(size),
            Err(e) => reply.error(errno(e)),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, fh: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        done(self.call(Op::Flush, ino, |call| call.client.flush(call.server, fh.0, call.time)), reply);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        fh: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.fs.release(self.mount, fh.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.call(Op::Fsync, ino, |call| {
            call.client.write_back(call.server, ino.0, call.time)?;
            call.server.sync(ino.0)
        });
        done(synced, reply);
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let handle = self.call(Op::Opendir, ino, |call| call.client.open_folder(call.server, call.now, ino.0));
        opened(handle, FopenFlags::empty(), reply);
    }

    fn readdir(&self, _: &Request, ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let read = self.call(Op::Readdir, ino, |call| Ok((call.client.listing(fh.0)?, call.server.parent(ino.0))));
        let (listing, parent) = match read {
            Ok(read) => read,
            Err(e) => return reply.error(errno(e)),
        };
        let own: [(&OsStr, Ino, SFlag); 2] =
            [(OsStr::new("."), ino.0, SFlag::S_IFDIR), (OsStr::new(".."), parent, SFlag::S_IFDIR)];
        let names = listing.iter().map(|(name, ino, kind)| (name.as_os_str(), *ino, *kind));
        for (at, (name, ino, kind)) in own.into_iter().chain(names).enumerate().skip(offset as usize) {
            if reply.add(INodeNo(ino), at as u64 + 1, file_type(kind), name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.fs.release(self.mount, fh.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let synced = self.call(Op::Fsyncdir, ino, |call| {
            call.server.sync_names();
            Ok(())
        });
        done(synced, reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        let (capacity, used, files) = self.fs.room();
        const BLOCK: u64 = crate::content::BLOCK;
        let free = capacity.saturating_sub(used) / BLOCK;
        match self.call(Op::Statfs, ino, |_| Ok(())) {
            Ok(()) => {
                let longest = crate::server::LONGEST_NAME as u32;
                reply.statfs(capacity / BLOCK, free, free, files + free, free, BLOCK as u32, longest, BLOCK as u32);
            }
            Err(e) => reply.error(errno(e)),
        }
    }

    fn setxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, value: &[u8], flags: i32, _: u32, reply: ReplyEmpty) {
        let set = self.call(Op::Setxattr, ino, |call| {
            let is_there = call.server.xattrs(ino.0)?.contains_key(name);
            match (flags, is_there) {
                (libc::XATTR_CREATE, true) => Err(Errno::EEXIST),
                (libc::XATTR_REPLACE, false) => Err(Errno::ENODATA),
                _ => call.server.set_xattr(ino.0, name, Some(value), call.time),
            }
        });
        done(set, reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value =
            self.call(Op::Getxattr, ino, |call| call.server.xattrs(ino.0)?.get(name).cloned().ok_or(Errno::ENODATA));
        extended(value, size, reply);
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.call(Op::Listxattr, ino, |call| {
            let names = call.server.xattrs(ino.0)?.keys();
            Ok(names.flat_map(|name| [name.as_bytes(), &[0]].concat()).collect())
        });
        extended(names, size, reply);
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        done(self.call(Op::Removexattr, ino, |call| call.server.set_xattr(ino.0, name, None, call.time)), reply);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let allocated = self.call(Op::Allocate, ino, |call| {
            let Call { client, server, now, time, .. } = call;
            let end = offset.checked_add(length).ok_or(Errno::EFBIG)?;
            match mode {
                0 => client.change(server, now, ino.0, time, |content| content.resize(content.size().max(end))),
                libc::FALLOC_FL_KEEP_SIZE => Ok(()),
                PUNCH => client.change(server, now, ino.0, time, |content| content.punch(offset..end)),
                _ => Err(Errno::EOPNOTSUPP),
            }
        });
        done(allocated, reply);
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let sought = self.call(Op::Seek, ino, |call| {
            let offset = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            match whence {
                libc::SEEK_DATA => call.client.seek(call.server, call.now, ino.0, offset, false),
                libc::SEEK_HOLE => call.client.seek(call.server, call.now, ino.0, offset, true),
                _ => Err(Errno::EINVAL),
            }
        });
        match sought {
            Ok(offset) => reply.offset(offset as i64),
            Err(e) => reply.error(errno(e)),
        }
    }
}

//! What belongs to a checkpoint beside CRIU's images, saved while the program stands still and put back before it
//! goes on: shared memory, temporary files, the sizes of the files it writes.

use crate::dumping::flush;
use crate::patiently::{is_there, patiently};
use crate::relay::Relay;
use crate::sandbox::Clocks;
use crate::{backup, leftovers, sandbox};
use able::peers;
use gpu::Suspended;
use increments::{Stop, Stoppable};
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::AccessFlags;
use openfiles::by_size::{self, Written};
use openfiles::held::{self, COMMON, InHand, SHARED_MEMORY, Writing};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const RECORD: &str = "sandbox.json";

/// So much of a file is copied at once, or left out if all of it is zero, bytes.
const BLOCK_BYTES: usize = 1 << 17;

/// Archive of the open files that are kept whole.
const OPEN: &str = "open.tar";

/// Archive of the files that it made in folders that all programs of the node share.
const LOCAL: &str = "local.tar";

/// Archive of a temporary folder that other jobs of the user may use, too: only what is missing is put back.
const SHARED: &str = "tmp-shared.tar";

/// Where a program has temporary files, which are lost with its node.
#[derive(Clone, Debug, Default)]
pub struct Temporaries {
    /// Its own temporary folder, if it has one.
    pub own: Option<PathBuf>,
    /// Whether other jobs of its user may have files there, too.
    pub is_shared: bool,
    /// Files made in `/tmp` after this moment belong to the program; absent if other tasks of its job make files
    /// there too.
    pub since: Option<SystemTime>,
    /// Files of its own that the restore put back there.
    pub local: Vec<PathBuf>,
    /// Folders that stay out of the checkpoint.
    pub others: Vec<PathBuf>,
}

/// The record of one dump.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frozen {
    /// Process id of the program within its namespace.
    pub program: i32,
    /// The process id that the namespace gave out last.
    pub last_pid: i32,
    /// Pipes that carry standard output and error, by their numbers.
    pub pipes: Vec<Pipe>,
    /// Files that were open for writing.
    pub written: Vec<Written>,
    /// Folders in which its processes worked.
    #[serde(default)]
    pub folders: BTreeSet<PathBuf>,
    /// The clocks that count from the node's start; absent in a dump of an earlier version.
    #[serde(default)]
    pub clocks: Option<Clocks>,
    /// Whether user and group had their own ids in the sandbox; false in a dump of an earlier version, where both
    /// were 0.
    #[serde(default)]
    pub own_numbers: bool,
    /// What it had made in folders that all programs share: entries of these folders.
    #[serde(default)]
    pub local: Vec<PathBuf>,
    /// What it had on GPUs, if anything: that is in its images.
    #[serde(default)]
    pub gpus: Option<Suspended>,
}

/// A pipe of the program's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipe {
    /// Number of the pipe.
    pub inode: u64,
    /// Size of the output file behind the pipe, bytes; absent if it is no regular file.
    pub kept_bytes: Option<u64>,
    /// An incomplete line that was not passed on yet.
    #[serde(default)]
    pub held: Vec<u8>,
}

/// Passes on all output of a stopped program; returns the pipes, which are empty then.
///
/// # Errors
/// A sentence.
pub fn pipes(relays: &mut [Relay]) -> Result<Vec<Pipe>, String> {
    let one = |relay: &mut Relay| {
        relay.drain().and_then(|()| relay.rest()).map_err(|e| format!("the output cannot be written: {e}"))?;
        Ok(Pipe { inode: relay.inode(), kept_bytes: relay.kept_bytes(), held: relay.held().to_vec() })
    };
    relays.iter_mut().map(one).collect()
}

/// Saves all that CRIU's images lack, until told to stop. Files that may be written over are kept whole up to
/// `overwritten_bytes`.
///
/// # Errors
/// A sentence naming the file.
pub fn save(
    program: i32,
    pipes: Vec<Pipe>,
    gpus: Option<Suspended>,
    temporaries: &Temporaries,
    overwritten_bytes: u64,
    into: &Path,
    stop: &Stop,
) -> Result<(), String> {
    let tree = tree(program);
    peers::refuse_outside(&tree).map_err(|e| e.to_string())?;
    peers::refuse_node_ipc(&tree).map_err(|e| e.to_string())?;
    peers::refuse_event_semaphores(Path::new("/proc"), &tree).map_err(|e| e.to_string())?;
    let open: BTreeSet<InHand> = tree.iter().flat_map(|pid| held::of(*pid)).collect();
    // If the temporary folder contained the run's folder, the archive would contain itself.
    let tmp = temporaries.own.as_deref().filter(|t| is_own_folder(t) && !into.starts_with(t));
    let is_in_tmp = |f: &InHand| !temporaries.is_shared && tmp.is_some_and(|t| f.path.starts_with(t));
    let whole = held::kept_whole(open.iter().filter(|f| !is_in_tmp(f)), overwritten_bytes);
    let written_over = open.iter().filter(|f| f.writing > Writing::Adds && !is_in_tmp(f)).map(|f| f.path.as_path());
    let stay: BTreeSet<&Path> = written_over.filter(|path| !whole.contains(path)).collect();
    let is_whole = |f: &InHand| whole.contains(&*f.path) || tmp.is_some_and(|t| f.path.starts_with(t));
    let written = by_size::written(&open, &is_whole, &|f| stay.contains(&*f.path));
    let told = |what: &Path| {
        let what = what.display().to_string();
        move |e: io::Error| format!("{what}: {e}")
    };
    let pack = |name: &str, fill: &dyn Fn(&mut Archive) -> io::Result<()>| {
        stop.create(&into.join(name)).and_then(|file| pack(file, fill))
    };
    let shared_memory = Path::new(SHARED_MEMORY);
    pack("shm.tar", &|tar| append_below(tar, shared_memory)).map_err(told(shared_memory))?;
    if let Some(tmp) = tmp {
        match temporaries.is_shared {
            true => pack(SHARED, &|tar| append_newer(tar, tmp, temporaries.since)),
            false => pack("tmp.tar", &|tar| append_below(tar, tmp)),
        }
        .map_err(told(tmp))?;
    }
    let mut local = Vec::new();
    if let Some(since) = temporaries.since {
        let others: Vec<&Path> = temporaries.others.iter().map(PathBuf::as_path).chain([into]).chain(tmp).collect();
        let found = leftovers::made_since(since, &temporaries.local, &others).map_err(|e| e.to_string())?;
        let of_sockets = leftovers::folders_of(&peers::bound(&tree));
        let all = of_sockets.iter().filter(|path| !found.all.contains(path)).chain(&found.all);
        pack(LOCAL, &|tar| all.clone().try_for_each(|path| append_padded(tar, path)))
            .map_err(told(Path::new("files in /tmp")))?;
        local = found.entries;
    }
    pack(OPEN, &|tar| whole.iter().try_for_each(|path| append(tar, path))).map_err(told(Path::new("open files")))?;
    let last_pid = sandbox::last_pid().map_err(|e| e.to_string())?;
    let clocks = Some(Clocks::now().map_err(|e| e.to_string())?);
    let own_numbers = !nix::unistd::getuid().is_root();
    let folders = tree.iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok());
    let shared = tmp.filter(|_| temporaries.is_shared).map(Path::to_path_buf);
    let folders = folders.filter(|path| !held::is_lost(path)).chain(shared).collect();
    let frozen = Frozen { program, last_pid, pipes, written, folders, clocks, own_numbers, local, gpus };
    let text = serde_json::to_vec_pretty(&frozen).map_err(|e| e.to_string())?;
    let record = into.join(RECORD);
    fs::write(&record, text).map_err(told(&record))
}

/// The record of a dump.
///
/// # Errors
/// A sentence naming the file.
pub fn read(from: &Path) -> Result<Frozen, String> {
    let record = from.join(RECORD);
    let read = patiently(|| flush::read(&record)).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map_err(|e| format!("{}: {e}", record.display()))
}

/// Reads the record of a dump and puts back what it saved. What is cut off of files is kept in a folder.
///
/// # Errors
/// A sentence naming the file.
pub fn put_back(from: &Path, cut_off: &Path) -> Result<Frozen, String> {
    let frozen = read(from)?;
    let left = frozen.written.iter().filter(|file| file.is_left()).map(|file| file.path.as_path()).collect();
    let mut kept = Vec::new();
    // First the folders: open files may lie in them.
    let local = from.join(LOCAL);
    let unseen = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    if is_there(&local).map_err(|e| unseen(&local, e))?
        && let Err(reason) = leftovers::put_back(&local)
    {
        // Not fatal: the program may not need them, and the checkpoint stays valid.
        protocol::say!("joulepoint: not all that the program had made in /tmp is back: {reason}");
    }
    for name in ["shm.tar", "tmp.tar", SHARED, OPEN] {
        let path = from.join(name);
        if is_there(&path).map_err(|e| unseen(&path, e))? {
            if name == OPEN {
                kept = backup::keep_changed(&path, cut_off, &left).map_err(|e| unseen(&path, e))?;
            }
            // What other jobs have there stays, too.
            let stays = |target: &Path| left.contains(target) || name == SHARED && fs::symlink_metadata(target).is_ok();
            unpack(&path, &stays).map_err(|e| unseen(&path, e))?;
        }
    }
    for file in &frozen.written {
        let back = file.go_back(cut_off).map_err(|e| e.to_string())?;
        kept.extend(back.kept);
        back.remark.iter().for_each(|remark| protocol::say!("joulepoint: {remark}"));
    }
    if !kept.is_empty() {
        let names: Vec<_> = kept.iter().filter_map(|path| path.file_name()).map(|n| n.to_string_lossy()).collect();
        protocol::say!(
            "joulepoint: what was added to files since the checkpoint is cut off, as the program adds its own again; it is kept \
             in {}: {}",
            cut_off.display(),
            names.join(", ")
        );
    }
    Ok(frozen)
}

/// Whether a folder is the user's alone, not one that all programs of a node share.
pub fn is_own_folder(path: &Path) -> bool {
    let own = fs::metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == nix::unistd::getuid().as_raw());
    own && path.is_absolute() && !COMMON.iter().any(|c| path == Path::new(c)) && path != Path::new("/")
}

/// A process that a signal has stopped, among these.
pub fn stopped(pids: &[i32]) -> Option<i32> {
    let is_stopped = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    pids.iter().copied().find(is_stopped)
}

/// A process and all below it.
pub fn tree(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Fields after the name: state, parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

type Archive = tar::Builder<BufWriter<Stoppable>>;

fn pack(file: Stoppable, fill: &dyn Fn(&mut Archive) -> io::Result<()>) -> io::Result<()> {
    let mut tar = tar::Builder::new(BufWriter::with_capacity(1 << 20, file));
    tar.follow_symlinks(false);
    fill(&mut tar)?;
    tar.into_inner()?.flush()
}

/// Adds a folder and all below it, without sockets, which CRIU restores.
fn append_below(tar: &mut Archive, folder: &Path) -> io::Result<()> {
    append(tar, folder)?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            append_below(tar, &entry.path())?;
        } else if kind.is_file() || kind.is_symlink() || kind.is_fifo() {
            append(tar, &entry.path())?;
        }
    }
    Ok(())
}

/// Adds the files below a folder that were changed since a moment; other programs may work there.
fn append_newer(tar: &mut Archive, folder: &Path, since: Option<SystemTime>) -> io::Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, Ok(found)) = (entry.path(), entry.metadata()) else { continue };
        let is_newer = || since.is_none_or(|since| found.modified().is_ok_and(|at| at >= since));
        if found.is_dir() {
            append_newer(tar, &path, since)?;
        } else if (found.is_file() || found.is_symlink()) && is_newer() {
            append_padded(tar, &path)?;
        }
    }
    Ok(())
}

/// Adds one file at its present length. Other programs may work on it: what they cut off meanwhile becomes zeros. A
/// file that cannot be opened belongs to another job, or is being removed.
fn append_padded(tar: &mut Archive, path: &Path) -> io::Result<()> {
    let gone = |e: &io::Error| {
        matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
            || e.raw_os_error() == Some(libc::ELOOP)
    };
    let metadata = match fs::symlink_metadata(path) {
        Err(e) if gone(&e) => return Ok(()),
        found => found?,
    };
    if !metadata.is_file() {
        return append(tar, path).or_else(|e| if gone(&e) { Ok(()) } else { Err(e) });
    }
    let mut file = match by_size::open(path) {
        Err(e) if gone(&e) => return Ok(()),
        opened => opened?,
    };
    let (metadata, name) = (file.metadata()?, path.strip_prefix("/").unwrap_or(path));
    if first_hole(&file)? < metadata.len() {
        tar.append_file(name, &mut file)?;
        return match file.metadata()?.len() == metadata.len() {
            true => Ok(()),
            false => Err(io::Error::other(format!("{} changed while it was saved", path.display()))),
        };
    }
    file.rewind()?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&metadata);
    let bytes = file.chain(io::repeat(0)).take(metadata.len());
    tar.append_data(&mut header, name, bytes)
}

/// Adds one file under its own absolute name.
fn append(tar: &mut Archive, path: &Path) -> io::Result<()> {
    let name = path.strip_prefix("/").unwrap_or(path);
    let metadata = fs::symlink_metadata(path)?;
    if name.as_os_str().is_empty() {
        Ok(())
    } else if metadata.file_type().is_fifo() {
        let mut header = tar::Header::new_gnu();
        header.set_metadata(&metadata);
        header.set_size(0);
        tar.append_data(&mut header, name, io::empty())
    } else if metadata.is_file() {
        append_file(tar, path, name)
    } else {
        tar.append_path_with_name(path, name)
    }
}

/// Adds a regular file at its present length: other programs may append to it meanwhile.
fn append_file(tar: &mut Archive, path: &Path, name: &Path) -> io::Result<()> {
    let mut file = by_size::open(path)?;
    let metadata = file.metadata()?;
    if first_hole(&file)? < metadata.len() {
        return tar.append_file(name, &mut file);
    }
    file.rewind()?;
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&metadata);
    let mut bytes = file.take(metadata.len());
    tar.append_data(&mut header, name, &mut bytes)?;
    match bytes.limit() {
        0 => Ok(()),
        less => Err(io::Error::other(format!("it became {less} bytes shorter while it was saved"))),
    }
}

/// Where the first hole of a file begins, or its end, bytes.
fn first_hole(file: &File) -> io::Result<u64> {
    match nix::unistd::lseek(file, 0, nix::unistd::Whence::SeekHole) {
        // An empty file, or a file system that knows no holes.
        Err(nix::Error::ENXIO | nix::Error::EINVAL | nix::Error::EOPNOTSUPP) => Ok(u64::MAX),
        found => Ok(found?.unsigned_abs()),
    }
}

/// Brings the files of an archive back, but those that stay as they are.
fn unpack(path: &Path, stays: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    let mut archive = tar::Archive::new(io::BufReader::with_capacity(1 << 20, File::open(path)?));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_overwrite(true);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let target = Path::new("/").join(entry.path()?);
        if stays(&target) || is_others_as_it_was(&target, entry.size(), entry.header().mtime()?) {
            continue;
        }
        if !(entry.header().entry_type().is_dir() && target.is_dir()) {
            if let Some(folder) = target.parent() {
                fs::create_dir_all(folder)?;
            }
            if entry.header().entry_type().is_fifo() {
                make_fifo(&target, entry.header().mode()?)?;
            } else if !rewrite(&mut entry, &target)? {
                entry.unpack(&target)?;
            }
        }
    }
    Ok(())
}

/// Writes over an existing file in place, so that its other hard links, and tasks that restore it too, see the same
/// file. Returns whether it could.
fn rewrite(entry: &mut tar::Entry<impl Read>, target: &Path) -> io::Result<bool> {
    let kind = entry.header().entry_type();
    let was_file = kind.is_file() || kind.is_gnu_sparse();
    if !was_file || !fs::symlink_metadata(target).is_ok_and(|m| m.is_file()) {
        return Ok(false);
    }
    let Ok(mut file) = OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(target) else {
        return Ok(false);
    };
    copy_with_holes(entry, &mut file)?;
    // The time of another user's file cannot be set; its content can.
    let _ = file.set_modified(UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?));
    Ok(true)
}

/// Copies into a file, whose content is then what is read and no more. Where that is zero there are holes: a file may be
/// longer than its storage has room.
pub(crate) fn copy_with_holes(from: &mut impl Read, to: &mut File) -> io::Result<()> {
    let (mut block, zeros) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let before_bytes = to.metadata()?.len();
    let mut at = 0;
    loop {
        let mut bytes = 0;
        while bytes < BLOCK_BYTES {
            match from.read(&mut block[bytes..]) {
                Ok(0) => break,
                Ok(more) => bytes += more,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if bytes == 0 {
            return to.set_len(at);
        }
        // What was there before has to go. Not every storage can take it away.
        let old_bytes = before_bytes.saturating_sub(at).min(bytes as u64);
        if block[..bytes] != zeros[..bytes] || old_bytes > 0 && !punch(to, at, old_bytes) {
            to.write_all_at(&block[..bytes], at)?;
        }
        at += bytes as u64;
    }
}

/// Takes the storage of a part of a file away; whether it could.
fn punch(file: &File, at: u64, bytes: u64) -> bool {
    let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let parts = i64::try_from(at).ok().zip(i64::try_from(bytes).ok());
    parts.is_some_and(|(at, bytes)| fallocate(file, how, at, bytes).is_ok())
}

/// Whether another user's file is unchanged since the dump, so that it need not be restored (nor could be). In a
/// sandbox all other users have one id, which may be ours outside.
pub(crate) fn is_others_as_it_was(path: &Path, bytes: u64, modified_s: u64) -> bool {
    let is_others = |m: &fs::Metadata| {
        m.uid() != nix::unistd::geteuid().as_raw() || nix::unistd::access(path, AccessFlags::W_OK).is_err()
    };
    let as_it_was =
        |m: &fs::Metadata| m.is_file() && bytes == m.len() && u64::try_from(m.mtime()).ok() == Some(modified_s);
    fs::symlink_metadata(path).is_ok_and(|m| as_it_was(&m) && is_others(&m))
}

pub(crate) fn make_fifo(path: &Path, mode: u32) -> io::Result<()> {
    match nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(mode)) {
        Err(nix::Error::EEXIST) if fs::symlink_metadata(path)?.file_type().is_fifo() => Ok(()),
        made => Ok(made?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(tree(std::process::id() as i32).contains(&(child.id() as i32)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn packed_files_come_back_where_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, tar) = (dir.path().join("data/below"), dir.path().join("x.tar"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a"), "before").unwrap();
        std::os::unix::fs::symlink("a", folder.join("l")).unwrap();
        make_fifo(&folder.join("f"), 0o600).unwrap();
        pack(Stop::default().create(&tar).unwrap(), &|t| append_below(t, &dir.path().join("data"))).unwrap();
        fs::remove_dir_all(dir.path().join("data")).unwrap();
        unpack(&tar, &|_| false).unwrap();
        let number = fs::metadata(folder.join("a")).unwrap().ino();
        fs::write(folder.join("a"), "after it, and longer").unwrap();
        unpack(&tar, &|_| false).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "before");
        assert_eq!(fs::metadata(folder.join("a")).unwrap().ino(), number, "other names of it lead to it");
        let own = folder.join("a");
        let modified_s = fs::metadata(&own).unwrap().mtime().unsigned_abs();
        assert!(!is_others_as_it_was(&own, 6, modified_s), "what is ours is put back");
        if std::os::unix::fs::chown(&own, Some(65534), None).is_ok() {
            assert!(is_others_as_it_was(&own, 6, modified_s) && !is_others_as_it_was(&own, 7, modified_s));
        }
        assert_eq!(fs::read_to_string(folder.join("l")).unwrap(), "before");
        assert!(fs::metadata(folder.join("f")).unwrap().file_type().is_fifo());
    }

    #[test]
    fn a_file_that_grows_meanwhile_is_packed_as_long_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (log, after, tar) = (dir.path().join("log"), dir.path().join("after"), dir.path().join("x.tar"));
        fs::write(&log, vec![b'1'; 1 << 20]).unwrap();
        fs::write(&after, "after it").unwrap();
        let ends = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|all| {
            all.spawn(|| {
                let mut file = OpenOptions::new().append(true).open(&log).unwrap();
                while !ends.load(std::sync::atomic::Ordering::SeqCst) {
                    file.write_all(&[b'2'; 4096]).unwrap();
                }
            });
            while fs::metadata(&log).unwrap().len() == 1 << 20 {
                std::thread::yield_now();
            }
            let packed =
                pack(Stop::default().create(&tar).unwrap(), &|t| [&log, &after].iter().try_for_each(|p| append(t, p)));
            ends.store(true, std::sync::atomic::Ordering::SeqCst);
            packed.unwrap();
        });
        let grown_bytes = fs::metadata(&log).unwrap().len();
        fs::remove_file(&after).unwrap();
        unpack(&tar, &|_| false).unwrap();
        assert!(fs::metadata(&log).unwrap().len() <= grown_bytes);
        assert_eq!(fs::read_to_string(&after).unwrap(), "after it", "the archive is whole");
    }

    #[test]
    fn a_file_with_holes_is_written_over_and_not_made_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (path, tar) = (dir.path().join("holes"), dir.path().join("x.tar"));
        File::create(&path).unwrap().set_len(64 << 20).unwrap();
        pack(Stop::default().create(&tar).unwrap(), &|t| append(t, &path)).unwrap();
        assert!(fs::metadata(&tar).unwrap().len() < 1 << 20, "holes are not packed");
        let number = fs::metadata(&path).unwrap().ino();
        fs::write(&path, "new").unwrap();
        unpack(&tar, &|_| false).unwrap();
        let back = fs::metadata(&path).unwrap();
        assert_eq!((back.ino(), back.len()), (number, 64 << 20));
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        assert!(back.blocks() < 64, "a hole is none in storage: {} blocks", back.blocks());
    }

    #[test]
    fn what_was_in_a_file_goes_where_the_copy_has_nothing_and_the_rest_is_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("holes");
        let block = BLOCK_BYTES;
        let wanted = [vec![0; block], vec![7; block], vec![0; 2 * block], vec![8; 10], vec![0; 5]].concat();
        for before in [0, block / 2, 2 * block, 9 * block] {
            fs::write(&path, vec![1; before]).unwrap();
            let mut file = OpenOptions::new().write(true).open(&path).unwrap();
            copy_with_holes(&mut wanted.as_slice(), &mut file).unwrap();
            assert!(fs::read(&path).unwrap() == wanted, "{before}");
            assert!(file.metadata().unwrap().blocks() * 512 <= 3 * block as u64, "{before}");
        }
        // What is not there takes no room.
        let mut file = File::create(&path).unwrap();
        file.set_len(4 << 30).unwrap();
        copy_with_holes(&mut File::open(&path).unwrap(), &mut file).unwrap();
        assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().blocks()), (4 << 30, 0));
    }
}

//! Finds the files that a stopped program has open or mapped, and decides which of them a checkpoint must hold whole.

use crate::by_size::{named, of_path};
use crate::patiently::patiently;
use crate::process::{self, Mapping, if_there};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Folders that all programs of a node share and that are lost with the node.
pub const COMMON: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// Folder of POSIX shared memory.
pub const SHARED_MEMORY: &str = "/dev/shm";

/// Largest file kept whole although it is only appended to, bytes: such a file may be renamed or removed when it is
/// complete.
pub const ADDED_TO_BYTES: u64 = 16 << 20;

/// Largest file kept whole if it may be written over, for a program that is dumped alone, bytes.
pub const OVERWRITTEN_BYTES: u64 = 1 << 30;

/// Unit of the room that a file takes, bytes.
const BLOCK_BYTES: u64 = 512;

/// A regular file with a name that a process holds open, or has mapped for writing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InHand {
    /// Its path.
    pub path: PathBuf,
    /// Its size, bytes.
    pub bytes: u64,
    /// What of it takes room, bytes: holes do not.
    pub stored_bytes: u64,
    /// How the process may write to it.
    pub writing: Writing,
    /// Whether it may read it, too.
    pub reads: bool,
}

/// How a process may write to a file that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writing {
    /// Not at all.
    No,
    /// At its end only (`O_APPEND`).
    Adds,
    /// Anywhere, though it stands at its end.
    AtEnd,
    /// Anywhere.
    Anywhere,
}

impl InHand {
    /// Whether the checkpoint holds its content. Files that may be written over count up to `overwritten_bytes`.
    /// Other files are restored by cutting them to their size.
    pub fn is_kept_whole(&self, overwritten_bytes: u64) -> bool {
        let most_bytes = match self.writing {
            Writing::No => return is_lost(&self.path),
            Writing::Adds => ADDED_TO_BYTES,
            Writing::AtEnd => overwritten_bytes.max(ADDED_TO_BYTES),
            Writing::Anywhere => overwritten_bytes,
        };
        is_lost(&self.path)
            || self.stored_bytes <= most_bytes && (self.writing == Writing::Anywhere || self.can_be_read())
    }

    fn can_be_read(&self) -> bool {
        !matches!(fs::File::open(&self.path), Err(e) if e.kind() == ErrorKind::PermissionDenied)
    }
}

/// The files of which a checkpoint holds the content. Those that are written at their end grow, and all of them together count up
/// to `overwritten_bytes`, the smallest first.
pub fn kept_whole<'a>(held: impl Iterator<Item = &'a InHand>, overwritten_bytes: u64) -> BTreeSet<&'a Path> {
    let mut kept: Vec<&InHand> = held.filter(|file| file.is_kept_whole(overwritten_bytes)).collect();
    kept.sort_by_key(|file| file.stored_bytes);
    let mut left_bytes = overwritten_bytes.max(ADDED_TO_BYTES);
    let fits = |file: &&InHand| {
        let counts = file.writing == Writing::AtEnd && !is_lost(&file.path);
        let left = if counts { left_bytes.checked_sub(file.stored_bytes) } else { Some(left_bytes) };
        left.inspect(|left| left_bytes = *left).is_some()
    };
    kept.into_iter().filter(fits).map(|file| file.path.as_path()).collect()
}

/// Whether a file is lost with its node.
pub fn is_lost(path: &Path) -> bool {
    COMMON.iter().any(|c| path.starts_with(c)) || path.starts_with(SHARED_MEMORY)
}

/// The files that these processes have open or mapped; one that is gone has none. A storage is waited for.
///
/// # Errors
/// What cannot be looked at.
pub fn of(pids: &[i32]) -> io::Result<BTreeSet<InHand>> {
    let mut all = BTreeSet::new();
    for pid in pids {
        let process = process::folder(Path::new("/proc"), *pid);
        let told = |e: io::Error| io::Error::new(e.kind(), format!("process {pid}: {e}"));
        for (number, path) in if_there(process::links(&process)).map_err(told)?.unwrap_or_default() {
            all.extend(if_there(open(&process, &number, path)).map_err(told)?.flatten());
        }
        for mapping in if_there(process::mappings(&process)).map_err(told)?.unwrap_or_default() {
            all.extend(mapped(mapping).map_err(told)?);
        }
    }
    Ok(all)
}

fn open(process: &Path, number: &OsStr, path: PathBuf) -> io::Result<Option<InHand>> {
    let link = process.join("fd").join(number);
    let found = if_there(patiently(|| fs::metadata(&link))).map_err(|e| of_path(&path, &e))?;
    let Some(metadata) = found else { return Ok(None) };
    let info = process::text(&process.join("fdinfo").join(number))?;
    let field = |name: &str| info.lines().find_map(|l| l.strip_prefix(name)).map(str::trim);
    let flags = field("flags:").and_then(|flags| i32::from_str_radix(flags, 8).ok()).ok_or(ErrorKind::InvalidData)?;
    let at: Option<u64> = field("pos:").and_then(|at| at.parse().ok());
    let writing = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => Writing::No,
        _ if flags & libc::O_APPEND != 0 => Writing::Adds,
        libc::O_WRONLY if at == Some(metadata.len()) => Writing::AtEnd,
        _ => Writing::Anywhere,
    };
    in_hand(path, &metadata, writing, flags & libc::O_ACCMODE != libc::O_WRONLY)
}

/// A writable shared mapping; its descriptor may be closed by now.
fn mapped(mapping: Mapping) -> io::Result<Option<InHand>> {
    if !mapping.is_written() || !mapping.name.is_absolute() {
        return Ok(None);
    }
    let Some(metadata) = named(&mapping.name, || fs::metadata(&mapping.name))? else { return Ok(None) };
    in_hand(mapping.name, &metadata, Writing::Anywhere, true)
}

/// None for a file without a name any more: CRIU saves that itself.
fn in_hand(path: PathBuf, metadata: &fs::Metadata, writing: Writing, reads: bool) -> io::Result<Option<InHand>> {
    let elsewhere = ["/proc", "/sys"];
    if !metadata.is_file() || !path.is_absolute() || elsewhere.iter().any(|e| path.starts_with(e)) {
        return Ok(None);
    }
    let is_it = |found: fs::Metadata| (found.dev(), found.ino()) == (metadata.dev(), metadata.ino());
    if !named(&path, || fs::symlink_metadata(&path))?.is_some_and(is_it) {
        return Ok(None);
    }
    let bytes = metadata.len();
    let stored_bytes = if has_holes(&path, metadata) { bytes.min(metadata.blocks() * BLOCK_BYTES) } else { bytes };
    Ok(Some(InHand { path, bytes, stored_bytes, writing, reads }))
}

/// Whether a large file has holes. That it takes less room than it is long may also be due to compression.
fn has_holes(path: &Path, metadata: &fs::Metadata) -> bool {
    if metadata.len() <= ADDED_TO_BYTES || metadata.blocks() * BLOCK_BYTES >= metadata.len() {
        return false;
    }
    let hole = |file: fs::File| nix::unistd::lseek(file, 0, nix::unistd::Whence::SeekHole).ok();
    crate::by_size::open(path).ok().and_then(hole).is_some_and(|at| at.unsigned_abs() < metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::parse;
    use std::fs::OpenOptions;
    use std::io::{Seek, SeekFrom, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_is_only_added_to_is_told_from_what_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let make = |name: &str, options: &mut OpenOptions| {
            let mut file = options.create(true).open(path(name)).unwrap();
            file.write_all(b"12345").unwrap();
            file
        };
        let mut back = make("back", OpenOptions::new().write(true));
        back.seek(SeekFrom::Start(0)).unwrap();
        let gone = make("gone", OpenOptions::new().write(true));
        fs::remove_file(path("gone")).unwrap();
        let held = [
            make("appended", OpenOptions::new().append(true).read(true)),
            make("written", OpenOptions::new().write(true)),
            make("both", OpenOptions::new().write(true).read(true)),
            fs::File::open(path("appended")).unwrap(),
            back,
            gone,
        ];
        let all = of(&[std::process::id() as i32]).unwrap();
        let found: Vec<(String, u64, Writing)> = all
            .into_iter()
            .filter(|f| f.path.starts_with(dir.path()))
            .map(|f| (f.path.file_name().unwrap().to_string_lossy().into_owned(), f.bytes, f.writing))
            .collect();
        let told = |name: &str, writing| (name.to_string(), 5, writing);
        assert_eq!(
            found,
            [
                told("appended", Writing::No),
                told("appended", Writing::Adds),
                told("back", Writing::Anywhere),
                told("both", Writing::Anywhere),
                told("written", Writing::AtEnd),
            ]
        );
        drop(held);
    }

    #[test]
    fn a_mapping_that_others_see_counts_as_written_over_whatever_its_name_is() {
        let dir = tempfile::tempdir().unwrap();
        for name in [&b"plain"[..], b"caf\xe9.dat", b"blank at the end ", b"two\nlines"] {
            let path = dir.path().join(OsStr::from_bytes(name));
            fs::write(&path, "1").unwrap();
            let lines: Vec<&[u8]> = path.as_os_str().as_bytes().split(|byte| *byte == b'\n').collect();
            let shown = lines.join(&b"\\012"[..]);
            for (rights, count) in [("rw-s", 1), ("r--s", 0), ("rw-p", 0)] {
                let head = format!("7f00-7f10 {rights} 00000000 fe:01 12                 ");
                let maps = [head.as_bytes(), &shown, b"\n"].concat();
                let found: Vec<InHand> = parse(&maps).into_iter().filter_map(|m| mapped(m).unwrap()).collect();
                assert_eq!(found.len(), count, "{rights} {name:?}");
                assert!(found.iter().all(|file| file.path == path && file.writing == Writing::Anywhere));
            }
        }
        let nameless = parse(b"7f00-7f10 rw-s 00000000 00:01 12                 /dev/zero (deleted)\n").remove(0);
        assert_eq!(mapped(nameless).unwrap(), None);
    }

    #[test]
    fn a_file_that_cannot_be_looked_at_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "1").unwrap();
        let look = |path: &Path| named(path, || fs::symlink_metadata(path));
        assert!(look(&file).unwrap().is_some());
        for none in [dir.path().join("none"), file.join("below"), dir.path().join("x".repeat(300))] {
            assert!(look(&none).unwrap().is_none(), "{none:?}");
        }
        let stuck = named(&file, || Err(io::Error::from_raw_os_error(libc::ENXIO))).unwrap_err();
        assert!(stuck.to_string().contains("file: "), "{stuck}");
        assert_eq!(of(&[i32::MAX]).unwrap(), BTreeSet::new(), "a process that is gone");
    }

    #[test]
    fn what_is_lost_with_its_node_or_small_enough_is_kept_whole() {
        let file = |path: &str, bytes, writing| InHand {
            path: path.into(),
            bytes,
            stored_bytes: bytes,
            writing,
            reads: false,
        };
        for (file, overwritten_bytes, kept) in [
            (file("/tmp/a", 1 << 40, Writing::No), 0, true),
            (file("/tmp/a", 1 << 40, Writing::Anywhere), 0, true),
            (file("/home/a", 5, Writing::No), 1 << 30, false),
            (file("/home/a", 5, Writing::Adds), 0, true),
            (file("/home/a", 1 << 29, Writing::Adds), 1 << 30, false),
            (file("/home/a", 1 << 29, Writing::AtEnd), 1 << 30, true),
            (file("/home/a", 5, Writing::AtEnd), 0, true),
            (file("/home/a", 1 << 29, Writing::Anywhere), 1 << 30, true),
            (file("/home/a", 1 << 31, Writing::Anywhere), 1 << 30, false),
            (file("/home/a", 5, Writing::Anywhere), 0, false),
        ] {
            assert_eq!(file.is_kept_whole(overwritten_bytes), kept, "{file:?} {overwritten_bytes}");
        }
    }

    #[test]
    fn files_that_grow_are_kept_whole_up_to_a_bound_for_all_of_them() {
        let file = |path: &str, mib: u64, writing| InHand {
            path: path.into(),
            bytes: 1 << 40,
            stored_bytes: mib << 20,
            writing,
            reads: false,
        };
        let held = [
            file("/home/a", 900, Writing::AtEnd),
            file("/home/b", 300, Writing::AtEnd),
            file("/home/c", 600, Writing::AtEnd),
            file("/home/d", 900, Writing::Anywhere),
            file("/tmp/e", 5000, Writing::AtEnd),
        ];
        let kept = kept_whole(held.iter(), 1 << 30);
        assert_eq!(kept, ["/home/b", "/home/c", "/home/d", "/tmp/e"].map(Path::new).into());
    }

    #[test]
    fn a_file_that_may_be_written_to_but_not_read_is_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let make = |(name, mode, can_be_read)| {
            let path = dir.path().join(name);
            fs::write(&path, "1").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            (InHand { path, bytes: 1, stored_bytes: 1, writing: Writing::Adds, reads: false }, can_be_read)
        };
        let made = [("log", 0o222, false), ("both", 0o666, true)].map(make);
        // The test needs a user other than root, who may read everything.
        nix::unistd::setfsuid(nix::unistd::Uid::from_raw(65534));
        let read = made.each_ref().map(|(file, _)| file.can_be_read());
        nix::unistd::setfsuid(nix::unistd::geteuid());
        assert_eq!(read, made.map(|(_, can_be_read)| can_be_read));
    }
}

//! What `/proc` says of a process, byte by byte: names of files need not be UTF-8. Only an error that [`has_ended`] knows says that
//! there is nothing; any other leaves it unknown.

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What a process has mapped in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// `r`, `w`, `x`, and `s` or `p`, each or `-`.
    rights: [u8; 4],
    /// Device, `major:minor`.
    pub device: String,
    /// Inode number.
    pub inode: u64,
    /// Path of the file, or what the kernel calls it; empty if it has none.
    pub name: PathBuf,
}

impl Mapping {
    /// Whether others see what is written there.
    pub fn is_shared(&self) -> bool {
        self.rights[3] == b's'
    }

    /// Whether it may be written to, so that the file changes.
    pub fn is_written(&self) -> bool {
        self.is_shared() && self.rights[1] == b'w'
    }

    /// Whether its name begins so.
    pub fn is_named(&self, beginning: &str) -> bool {
        self.name.as_os_str().as_bytes().starts_with(beginning.as_bytes())
    }
}

/// Whether an error says that a process, or its descriptor, is gone.
pub fn has_ended(e: &io::Error) -> bool {
    e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH)
}

/// What was found, or nothing of a process that is gone.
///
/// # Errors
/// Any other error.
pub fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(e) if has_ended(&e) => Ok(None),
        found => found.map(Some),
    }
}

/// A table of a process, in which other characters stand for what is not UTF-8.
///
/// # Errors
/// What the kernel says.
pub fn text(file: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&fs::read(file)?).into_owned())
}

/// What a process has mapped, whose folder in `/proc` this is.
///
/// # Errors
/// What the kernel says.
pub fn mappings(process: &Path) -> io::Result<Vec<Mapping>> {
    Ok(parse(&fs::read(process.join("maps"))?))
}

/// The numbers of the open descriptors of a process. One that has ended has none, though its parent has not asked for it: nobody may
/// look into that.
///
/// # Errors
/// What the kernel says.
pub fn numbers(process: &Path) -> io::Result<Vec<OsString>> {
    match fs::read_dir(process.join("fd")) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied && is_zombie(process) => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.file_name())).collect(),
    }
}

/// The open descriptors of a process and what they lead to; one that is closed meanwhile is none.
///
/// # Errors
/// What the kernel says.
pub fn links(process: &Path) -> io::Result<Vec<(OsString, PathBuf)>> {
    let mut all = Vec::new();
    for number in numbers(process)? {
        let to = if_there(fs::read_link(process.join("fd").join(&number)))?;
        all.extend(to.map(|to| (number, to)));
    }
    Ok(all)
}

fn is_zombie(process: &Path) -> bool {
    // The name of the program may hold brackets.
    let stat = text(&process.join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn parse(maps: &[u8]) -> Vec<Mapping> {
    maps.split(|byte| *byte == b'\n').filter_map(line).collect()
}

/// `7f00-7f01 rw-s 00000000 fe:00 12345    /folder/file`
fn line(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |byte| *byte == b' ');
    let rights = words.nth(1)?.try_into().ok()?;
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (_offset, device, inode) = (word()?, word()?, word()?.parse().ok()?);
    let (major, minor) = device.split_once(':')?;
    let decimal = |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok();
    let device = format!("{}:{}", decimal(major)?, decimal(minor)?);
    let name = words.next().unwrap_or_default();
    let name = &name[name.iter().position(|byte| *byte != b' ').unwrap_or(name.len())..];
    Some(Mapping { rights, device, inode, name: with_newlines(name) })
}

/// The kernel writes a newline in octal, and nothing else.
fn with_newlines(name: &[u8]) -> PathBuf {
    const NEWLINE: &[u8] = b"\\012";
    let (mut path, mut rest) = (Vec::with_capacity(name.len()), name);
    while let Some((first, after)) = rest.split_first() {
        let newline = rest.strip_prefix(NEWLINE);
        path.push(newline.map_or(*first, |_| b'\n'));
        rest = newline.unwrap_or(after);
    }
    OsString::from_vec(path).into()
}

/// The folder of a process in `/proc`.
pub fn folder(root: &Path, pid: i32) -> PathBuf {
    root.join(pid.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_the_bytes_that_they_are() {
        let text =
            b"7f00-7f01 rw-s 00000000 fe:00 77    /a\\012b \n7f01-7f02 r-xp 00000000 00:1b 5          /caf\xe9.so\n\
                     7f04-7f05 rw-p 00000000 00:00 0 \ntorn\n7f05-7f06 rw-p 00000000 00:00 0\n";
        let all = parse(text);
        let names: Vec<&[u8]> = all.iter().map(|mapping| mapping.name.as_os_str().as_bytes()).collect();
        assert_eq!(names, [&b"/a\nb "[..], b"/caf\xe9.so", b"", b""]);
        assert_eq!((all[0].device.as_str(), all[0].inode, all[0].is_written()), ("254:0", 77, true));
        assert!(all[1].is_named("/caf") && !all[1].is_shared() && !all[1].is_written());
    }

    #[test]
    fn what_a_process_holds_is_found_and_who_is_gone_is_told_from_who_cannot_be_read() {
        let own = folder(Path::new("/proc"), std::process::id() as i32);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(links(&own).unwrap().iter().any(|(_, to)| to == file.path()));
        let us = std::env::current_exe().unwrap();
        assert!(mappings(&own).unwrap().iter().any(|mapping| mapping.name == us));
        let gone = folder(Path::new("/proc"), i32::MAX);
        assert!(if_there(mappings(&gone)).unwrap().is_none() && if_there(links(&gone)).unwrap().is_none());
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("maps")).unwrap();
        fs::write(dir.path().join("fd"), "").unwrap();
        assert!(if_there(mappings(dir.path())).is_err() && if_there(links(dir.path())).is_err());
    }

    #[test]
    fn a_process_that_has_ended_holds_nothing_though_it_may_not_be_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        for (stat, is_it) in [("7 (a) R b) Z 1 7", true), ("7 (Z) S 1 7", false), ("", false)] {
            fs::write(dir.path().join("stat"), stat).unwrap();
            assert_eq!(is_zombie(dir.path()), is_it, "{stat}");
        }
    }
}

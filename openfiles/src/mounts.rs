//! The file systems that a process sees, by the number of their mount and by their device.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount.
    pub id: u64,
    /// Device, `major:minor`.
    pub device: String,
    /// Where it is.
    pub point: PathBuf,
    /// Options of the mount.
    pub options: String,
    /// Type of the file system.
    pub fs: String,
    /// What is mounted.
    pub source: String,
}

/// What `/proc/PID/mountinfo` says.
#[derive(Clone, Debug, Default)]
pub struct Mounts {
    all: Vec<Mount>,
    by_id: HashMap<u64, usize>,
}

impl Mounts {
    /// The mounts of a process, whose folder in `/proc` this is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn of(process: &Path) -> io::Result<Mounts> {
        Ok(Mounts::parse(fs::read(process.join("mountinfo"))?))
    }

    /// Reads `mountinfo`; lines that it does not understand are passed over.
    pub fn parse(text: impl AsRef<[u8]>) -> Mounts {
        let all: Vec<Mount> = text.as_ref().split(|byte| *byte == b'\n').filter_map(line).collect();
        let by_id = all.iter().enumerate().map(|(i, mount)| (mount.id, i)).collect();
        Mounts { all, by_id }
    }

    /// All of them, in the order in which they were mounted.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Mount> {
        self.all.iter()
    }

    /// Type of the file system of a mount.
    pub fn fs_by_id(&self, id: u64) -> Option<&str> {
        self.by_id.get(&id).map(|i| self.all[*i].fs.as_str())
    }

    /// Type of the file system on a device.
    pub fn fs_by_device(&self, device: &str) -> Option<&str> {
        self.all.iter().find(|mount| mount.device == device).map(|mount| mount.fs.as_str())
    }
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
fn line(line: &[u8]) -> Option<Mount> {
    let at = line.windows(SYSTEM.len()).position(|bytes| bytes == SYSTEM)?;
    let mut words = line[..at].split(|byte| *byte == b' ');
    let id = text(words.next()?).parse().ok()?;
    let device = text(words.nth(1)?);
    let point = PathBuf::from(OsString::from_vec(unescaped(words.nth(1)?)));
    let options = text(words.next()?);
    let mut words = line[at + SYSTEM.len()..].split(|byte| *byte == b' ');
    let (fs, source) = (text(words.next()?), text(&unescaped(words.next().unwrap_or_default())));
    Some(Mount { id, device, point, options, fs, source })
}

/// What comes before the type of the file system.
const SYSTEM: &[u8] = b" - ";

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

/// Blanks and backslashes stand there in octal.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let (mut name, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.filter(|_| *first == b'\\').and_then(|octal| u8::from_str_radix(octal, 8).ok());
        name.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn mounts_are_known_by_number_and_device_whatever_their_names_are() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    90 22 0:52 / /scratch\\040a rw,relatime - nfs4 server:/export/a\\134b rw,vers=4.2\n\
                    torn\n\
                    91 22 0:53 / /none rw - tmpfs tmpfs rw\n";
        let text = [text.as_bytes(), b"92 22 0:54 / /caf\xe9 rw - xfs /dev/sdb rw"].concat();
        let mounts = Mounts::parse(&text);
        assert_eq!(mounts.iter().count(), 4);
        assert_eq!((mounts.fs_by_id(90), mounts.fs_by_device("254:0")), (Some("nfs4"), Some("ext4")));
        assert_eq!((mounts.fs_by_id(7), mounts.fs_by_device("0:1")), (None, None));
        assert_eq!(mounts.iter().next_back().map(|m| m.point.as_os_str().as_bytes()), Some(&b"/caf\xe9"[..]));
        let nfs = mounts.iter().nth(1).unwrap();
        assert_eq!((nfs.point.to_str(), nfs.source.as_str()), (Some("/scratch a"), "server:/export/a\\b"));
        assert!(Mounts::of(Path::new("/proc/self")).unwrap().iter().count() > 0);
    }
}

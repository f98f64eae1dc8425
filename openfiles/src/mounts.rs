//! The file systems that a process sees, by the number of their mount and by their device.

use std::collections::HashMap;
use std::fs;
use std::io;
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
        Ok(Mounts::parse(&fs::read_to_string(process.join("mountinfo"))?))
    }

    /// Reads `mountinfo`; lines that it does not understand are passed over.
    pub fn parse(text: &str) -> Mounts {
        let all: Vec<Mount> = text.lines().filter_map(line).collect();
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
fn line(line: &str) -> Option<Mount> {
    let (mount, system) = line.split_once(" - ")?;
    let mut words = mount.split(' ');
    let id = words.next()?.parse().ok()?;
    let device = words.nth(1)?.to_string();
    let point = PathBuf::from(unescaped(words.nth(1)?));
    let options = words.next()?.to_string();
    let mut words = system.split(' ');
    let (fs, source) = (words.next()?.to_string(), unescaped(words.next().unwrap_or("")));
    Some(Mount { id, device, point, options, fs, source })
}

/// Blanks and backslashes stand there in octal.
fn unescaped(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some((before, after)) = rest.split_once('\\') {
        text.push_str(before);
        match after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                text.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_known_by_number_and_device_and_their_names_may_have_blanks() {
        let text = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                    90 22 0:52 / /scratch\\040a rw,relatime - nfs4 server:/export/a\\134b rw,vers=4.2\n\
                    torn\n\
                    91 22 0:53 / /none rw - tmpfs tmpfs rw";
        let mounts = Mounts::parse(text);
        assert_eq!(mounts.iter().count(), 3);
        assert_eq!((mounts.fs_by_id(90), mounts.fs_by_device("254:0")), (Some("nfs4"), Some("ext4")));
        assert_eq!((mounts.fs_by_id(7), mounts.fs_by_device("0:1")), (None, None));
        let nfs = mounts.iter().nth(1).unwrap();
        assert_eq!((nfs.point.to_str(), nfs.source.as_str()), (Some("/scratch a"), "server:/export/a\\b"));
        assert!(Mounts::of(Path::new("/proc/self")).unwrap().iter().count() > 0);
    }
}

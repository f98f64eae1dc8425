//! What a process maps so that it may write to the file beneath.

use std::collections::HashSet;

/// A shared mapping that may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Device, `major:minor`.
    pub device: String,
    /// Inode number.
    pub inode: u64,
}

/// The mappings in a text of `/proc/PID/maps` through which a file with one of these inodes may be written.
pub(crate) fn written<'a>(maps: &'a str, inodes: &'a HashSet<u64>) -> impl Iterator<Item = Mapping> + 'a {
    maps.lines().filter_map(line).filter(|mapping| inodes.contains(&mapping.inode))
}

/// `7f00-7f01 rw-s 00000000 fe:00 12345    /folder/file`
fn line(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let rights = words.nth(1)?.as_bytes();
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    let is_file = words.next()?.starts_with('/');
    let decimal = |hexadecimal| u32::from_str_radix(hexadecimal, 16).ok();
    let device = format!("{}:{}", decimal(major)?, decimal(minor)?);
    (rights.get(1) == Some(&b'w') && rights.get(3) == Some(&b's') && is_file).then_some(Mapping { device, inode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_mappings_that_may_be_written_count() {
        let text = "7f00-7f01 rw-s 00000000 fe:00 77    /a b\n7f01-7f02 rw-p 00000000 fe:00 77    /a b\n\
                    7f02-7f03 r--s 00000000 fe:00 77    /a b\n7f03-7f04 rw-s 00000000 00:01 78    /dev/zero (deleted)\n\
                    7f04-7f05 rw-p 00000000 00:00 0 \n7f05-7f06 rw-s 00000000 00:0f 77    anon_inode:x";
        let found: Vec<Mapping> = written(text, &HashSet::from([77])).collect();
        assert_eq!(found, [Mapping { device: "254:0".into(), inode: 77 }]);
    }
}

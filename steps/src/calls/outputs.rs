//! The job's own output files: a call is known by where it writes, and Slurm may name them anew in each life (`-o out.%N`).

use super::{Calls, PATIENCE};
use crate::streams::regular;
use run::{storage, write_durably};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// File of a record with one line for each: descriptor, device, inode, and its name in the first life.
const FILE: &str = "outputs";

/// One of them: descriptor, device and inode, its name in the first life.
type Own = (i32, (u64, u64), PathBuf);

impl Calls {
    /// Notes which files the job's outputs are in this life: those of this process.
    pub(super) fn note_outputs(&self) -> io::Result<()> {
        let before = self.own_outputs();
        let mut text = Vec::new();
        for descriptor in [1, 2] {
            let Some((metadata, path)) = regular(descriptor) else { continue };
            let first = before.iter().find(|own| own.0 == descriptor).map_or(&path, |own| &own.2);
            text.extend(format!("{descriptor} {} {} ", metadata.dev(), metadata.ino()).bytes());
            text.extend(first.as_os_str().as_bytes());
            text.push(b'\n');
        }
        PATIENCE.with(|| write_durably(&self.folder.join(FILE), &text))
    }

    /// Gives the name by which a file counts as a call's output: that of the job's own is the one of its first life.
    pub(crate) fn names_of_outputs(&self) -> impl Fn(&Metadata, PathBuf) -> PathBuf + use<> {
        let all = self.own_outputs();
        move |metadata, path| {
            let is_it = |own: &&Own| own.1 == (metadata.dev(), metadata.ino());
            all.iter().find(is_it).map_or(path, |own| own.2.clone())
        }
    }

    fn own_outputs(&self) -> Vec<Own> {
        let text = storage::read_if_there(&self.folder.join(FILE), PATIENCE).ok().flatten().unwrap_or_default();
        text.split(|byte| *byte == b'\n').filter_map(own).collect()
    }
}

fn own(line: &[u8]) -> Option<Own> {
    let mut words = line.splitn(4, |byte| *byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok()?.parse::<u64>().ok();
    let (descriptor, device, inode) = (i32::try_from(number()?).ok()?, number()?, number()?);
    let first = Path::new(OsStr::from_bytes(words.next()?)).to_path_buf();
    Some((descriptor, (device, inode), first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_keeps_the_name_of_the_first_life() {
        let dir = tempfile::tempdir().unwrap();
        let calls = Calls::open(dir.path(), &[]).unwrap();
        let (path, metadata) = (PathBuf::from("/out.n2"), std::fs::metadata(dir.path()).unwrap());
        assert_eq!(calls.names_of_outputs()(&metadata, path.clone()), path, "nothing is noted");
        let noted = format!("1 {} {} /home/a b/out.n1\nno line\n2 1 2 /x\n", metadata.dev(), metadata.ino());
        std::fs::write(dir.path().join("calls").join(FILE), noted).unwrap();
        assert_eq!(calls.names_of_outputs()(&metadata, path), Path::new("/home/a b/out.n1"));
    }
}

//! What an `srun` call reads: which file its tasks read within sandboxes, and what tells one input from another.

use crate::redirects::Input;
use crate::sandboxes::Read;
use crate::streams::{SAVED_LIMIT_BYTES, is_pipe, regular};
use nix::fcntl::{FcntlArg, SpliceFFlags, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use run::write_durably;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Why a call is not put into sandboxes whose input nobody could give it again.
pub(crate) const READS_PIPE: &str =
    "it reads a pipe that is still written to; write to a file first, and 'srun ... <FILE'";

/// Why such a call is not, either.
const READS_DEVICE: &str = "it reads a terminal or a device; write 'srun ... </dev/null'";

/// How much of an input file tells calls apart, bytes.
const INPUT_LIMIT_BYTES: u64 = 1 << 20;

/// What the tasks of a call read: a file, which all nodes must see if they may be on others than this one (`near` is a
/// folder that all see). A here-document, which has no name, and a small file that others do not see are `kept`
/// beside the call's record.
///
/// # Errors
/// A sentence: no sandbox can.
pub(crate) fn input(of: &Input, kept: &Path, near: Option<&Path>) -> Result<Option<Read>, String> {
    let told = |e: io::Error| format!("its input: {e}");
    // The step reads it again when it goes on after a crash of the storage.
    let keep = |content: &[u8]| write_durably(kept, content).map(|()| Some((kept.to_path_buf(), 0))).map_err(told);
    let nothing = |path: &Path| path == Path::new("/dev/null");
    let (file, path) = match of {
        Input::Apart => return Ok(None),
        Input::File(path) if nothing(path) => return Ok(None),
        Input::File(path) if !fs::metadata(path).map_err(told)?.is_file() => return Err(READS_DEVICE.to_string()),
        Input::File(path) => (File::open(path).map_err(told)?, path.clone()),
        Input::Standard if is_pipe(0) => return keep(&left_in_pipe().map_err(told)?.ok_or(READS_PIPE)?),
        Input::Standard => {
            let path = fs::read_link("/proc/self/fd/0").map_err(told)?;
            if nothing(&path) {
                return Ok(None);
            }
            (File::from(nix::unistd::dup(io::stdin()).map_err(|e| told(e.into()))?), path)
        }
    };
    let metadata = file.metadata().map_err(told)?;
    if !metadata.is_file() {
        return Err(READS_DEVICE.to_string());
    }
    let at = (&file).stream_position().map_err(told)?;
    let is_seen = near.is_none_or(|folder| fs::metadata(folder).is_ok_and(|m| m.dev() == metadata.dev()));
    if metadata.nlink() > 0 && is_seen {
        return Ok(Some((path, at)));
    }
    let length = metadata.len().saturating_sub(at);
    if length > SAVED_LIMIT_BYTES {
        let path = path.display();
        return Err(format!("it reads {path}, which other nodes may not see; put it where the folders of runs are"));
    }
    let mut content = vec![0; length as usize];
    file.read_exact_at(&mut content, at).map_err(told)?;
    keep(&content)
}

/// Whether a call says that it reads nothing.
pub(crate) fn takes_no_input(words: &[OsString]) -> bool {
    let pair = |p: &[OsString]| (p[0] == "-i" || p[0] == "--input") && p[1] == "none";
    words.iter().any(|w| w == "--input=none" || w == "-inone") || words.windows(2).any(pair)
}

/// Adds what tells one input from another: the beginning and the length of a file, or what is left in a pipe that
/// nobody writes to any more (a shell's here-document); none for another pipe.
pub(crate) fn hash_input(hash: &mut Xxh3) -> Option<()> {
    if is_pipe(0) {
        hash.update(&left_in_pipe().ok()??);
    } else if let Some((metadata, _)) = regular(0) {
        let mut beginning = Vec::new();
        File::open("/proc/self/fd/0").ok()?.take(INPUT_LIMIT_BYTES).read_to_end(&mut beginning).ok()?;
        hash.update(&beginning);
        hash.update(&metadata.len().to_le_bytes());
    }
    Some(())
}

/// The content of standard input, a pipe, without taking it out; none while somebody may still write to it.
fn left_in_pipe() -> io::Result<Option<Vec<u8>>> {
    let stdin = io::stdin();
    let mut poll = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    nix::poll::poll(&mut poll, PollTimeout::ZERO)?;
    let seen = poll[0].revents().unwrap_or(PollFlags::empty());
    if !seen.contains(PollFlags::POLLHUP) {
        return Ok(None);
    }
    let (mut copy, into) = io::pipe()?;
    fcntl(&into, FcntlArg::F_SETPIPE_SZ(fcntl(&stdin, FcntlArg::F_GETPIPE_SZ)?))?;
    if seen.contains(PollFlags::POLLIN) {
        nix::fcntl::tee(&stdin, &into, usize::MAX >> 1, SpliceFFlags::SPLICE_F_NONBLOCK)?;
    }
    drop(into);
    let mut content = Vec::new();
    copy.read_to_end(&mut content)?;
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_that_other_nodes_may_not_see_is_copied_or_no_sandbox_holds_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let [file, kept] = ["in", "kept"].map(|name| dir.path().join(name));
        fs::write(&file, "small").unwrap();
        let read = |near: Option<&Path>| input(&Input::File(file.clone()), &kept, near);
        for near in [None, Some(dir.path())] {
            assert_eq!(read(near), Ok(Some((file.clone(), 0))));
        }
        let elsewhere = Some(Path::new("/proc"));
        assert_eq!(read(elsewhere), Ok(Some((kept.clone(), 0))));
        assert_eq!(fs::read_to_string(&kept).unwrap(), "small");
        File::options().write(true).open(&file).unwrap().set_len(SAVED_LIMIT_BYTES + 1).unwrap();
        assert!(read(elsewhere).unwrap_err().contains("other nodes may not see"));
        assert_eq!(read(None), Ok(Some((file.clone(), 0))));
        fs::remove_file(&file).unwrap();
        assert!(read(None).unwrap_err().contains("its input"));
        for (path, expected) in [("/dev/null", Ok(None)), ("/dev/zero", Err(READS_DEVICE.to_string()))] {
            assert_eq!(input(&Input::File(path.into()), &kept, None), expected);
        }
    }
}

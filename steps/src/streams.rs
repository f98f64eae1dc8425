//! Where the output of an `srun` call goes, what of it is kept, and how it is put back when the call is told of again.
//!
//! Output goes to what the script has opened, or to a file that the call names. What nobody could take back alone, a pipe
//! or the job's own output, is *spooled*: written to a file beside the call's record first, and passed on from there.

use crate::calls::{Call, Calls, Output, Target};
use crate::redirects::Redirects;
use ::criu::relay::CUT_OFF;
use host::passing::{Passing, Way};
use nix::fcntl::{FcntlArg, fcntl};
use openfiles::by_size::Written;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Most that is kept of what a call wrote to one file, bytes; a call that wrote more, into a file that is emptied
/// before it is called again, is run again.
pub const SAVED_LIMIT_BYTES: u64 = 16 << 20;

/// Device and inode of a file.
pub type Inode = (u64, u64);

/// Standard output and error of a call.
#[derive(Debug, Default)]
pub struct Streams([Sink; 2]);

/// Where one of them goes.
#[derive(Debug, Default)]
enum Sink {
    /// To its descriptor.
    #[default]
    Own,
    /// To a file that the call names, which `srun` opens itself.
    Named { file: File, appends: bool },
    /// To a file that is passed on to its descriptor.
    Spooled(File),
}

impl Streams {
    /// Those of a call in sandboxes, whose record has this name; `common` are the job's own output files.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(of: &Redirects, calls: &Calls, name: &str, common: &[Inode]) -> io::Result<Streams> {
        let open = |path: &Path| OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path);
        let mut streams = Streams::default();
        for (i, descriptor) in [1, 2].into_iter().enumerate() {
            let link = format!("/proc/self/fd/{descriptor}");
            let Ok(metadata) = fs::metadata(&link) else { continue };
            let inode = (metadata.dev(), metadata.ino());
            if let Some(path) = &of.files[i] {
                if fs::metadata(path).is_ok_and(|m| !m.is_file()) {
                    return Err(io::Error::other(format!("{} is no regular file", path.display())));
                }
                let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
                streams.0[i] = Sink::Named { file, appends: of.appends };
            } else if is_fleeting(descriptor) || common.contains(&inode) {
                let same = i == 1 && fs::metadata("/proc/self/fd/1").is_ok_and(|m| (m.dev(), m.ino()) == inode);
                streams.0[i] = Sink::Spooled(match &streams.0[0] {
                    Sink::Spooled(file) if same => file.try_clone()?,
                    _ => open(&calls.output(&format!("{name}.spool{descriptor}")))?,
                });
            }
        }
        Ok(streams)
    }

    /// Those of a call that is in no sandbox after all: it writes as it would without us.
    pub fn own(self) -> Streams {
        for sink in &self.0 {
            if let Sink::Spooled(file) = sink {
                // What an earlier life left there would be passed on again.
                let _ = file.set_len(0);
            }
        }
        Streams::default()
    }

    /// Takes back what the call has written since these positions to files that the script has opened for it alone.
    pub fn take_back(&self, starts: &[(i32, u64)]) {
        let back = |(descriptor, start): &(i32, u64)| -> io::Result<()> {
            let mut file = own(*descriptor)?;
            if adds(&file)? || !matches!(self.sink(*descriptor), Sink::Own) || !file.metadata()?.is_file() {
                return Ok(());
            }
            file.set_len(*start)?;
            file.seek(io::SeekFrom::Start(*start)).map(drop)
        };
        if let Err(e) = starts.iter().try_for_each(back) {
            protocol::say!("joulepoint: what this step has written before stays: {e}");
        }
    }

    /// Whether anything of the call has been passed on to a pipe.
    pub fn have_passed_on(&self) -> bool {
        let has = |(sink, descriptor): (&Sink, i32)| match sink {
            Sink::Spooled(file) => is_fleeting(descriptor) && file.metadata().is_ok_and(|m| m.len() > 0),
            _ => false,
        };
        self.0.iter().zip([1, 2]).any(has)
    }

    fn sink(&self, descriptor: i32) -> &Sink {
        &self.0[if descriptor == 2 { 1 } else { 0 }]
    }

    /// The descriptor of the file that keeps a stream's output.
    fn kept_in(&self, descriptor: i32) -> RawFd {
        match self.sink(descriptor) {
            Sink::Own => descriptor,
            Sink::Named { file, .. } | Sink::Spooled(file) => file.as_raw_fd(),
        }
    }

    fn regular(&self, descriptor: i32) -> Option<(fs::Metadata, PathBuf)> {
        regular(self.kept_in(descriptor))
    }

    /// A file over the same open description.
    fn file(&self, descriptor: i32) -> io::Result<File> {
        match self.sink(descriptor) {
            Sink::Own => own(descriptor),
            Sink::Named { file, .. } | Sink::Spooled(file) => file.try_clone(),
        }
    }

    /// The call begins anew: what it wrote before to files that are its own is forgotten.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|sink| match sink {
            Sink::Own | Sink::Named { appends: true, .. } => Ok(()),
            Sink::Named { file, .. } | Sink::Spooled(file) => file.set_len(0),
        })
    }

    /// Where the next byte of each output goes; nothing for what is no file, and once only for two names of one file.
    pub fn positions(&self) -> Vec<(i32, u64)> {
        let file = |descriptor: i32| self.regular(descriptor).map(|(m, _)| ((m.dev(), m.ino()), m.len()));
        let second = file(2).filter(|(inode, _)| file(1).is_none_or(|(first, _)| first != *inode));
        let both = [(1, file(1)), (2, second)].into_iter();
        both.filter_map(|(descriptor, file)| Some((descriptor, self.position(descriptor, file?.1).ok()?))).collect()
    }

    fn position(&self, descriptor: i32, length: u64) -> io::Result<u64> {
        let mut file = self.file(descriptor)?;
        if adds(&file)? { Ok(length) } else { file.stream_position() }
    }

    /// Where a call writes: its output begins at `starts`, and what it writes from now on at the present positions.
    pub fn targets(&self, starts: &[(i32, u64)]) -> Vec<Target> {
        let now = self.positions();
        let file = |descriptor: i32| self.regular(descriptor).map(|(m, path)| ((m.dev(), m.ino()), path));
        let of = |descriptor: i32| {
            let (inode, path) = file(descriptor)?;
            let same = |(d, _): &&(i32, u64)| file(*d).is_some_and(|(other, _)| other == inode);
            let at = |all: &[(i32, u64)]| all.iter().find(same).map(|(_, at)| *at);
            let from = at(&now)?;
            Some(Target { descriptor, path, start: at(starts).unwrap_or(from), from })
        };
        [1, 2].into_iter().filter_map(of).collect()
    }

    /// The exit code of a call that has ended before, if all that it wrote is there or can be put back.
    pub fn replayed(&self, calls: &Calls, number: usize, call: &Call) -> Option<i32> {
        let end = call.ended.as_ref()?;
        // None is written before all can be.
        let lost: io::Result<Vec<_>> = end.outputs.iter().map(|output| self.missing(calls.folder(), output)).collect();
        let put_back = lost.and_then(|lost| {
            let mut outputs = end.outputs.iter().zip(lost);
            outputs.try_for_each(|(output, lost)| self.write_back(output, lost, None).map(drop))?;
            self.ways()
        });
        let given = put_back.and_then(|ways| {
            let given = ways.into_iter().map(|(_, way)| Passing::begin(way, || ()).is_some_and(Passing::finish));
            let is_lost = given.collect::<Vec<bool>>().contains(&false);
            if is_lost { Err(io::Error::other("its output cannot be read")) } else { Ok(()) }
        });
        let (command, code) = (&call.command, end.code);
        if let Err(e) = given {
            protocol::say!("joulepoint: step {number} ({command}) is run again: {e}");
            return None;
        }
        protocol::say!("joulepoint: step {number} ({command}) has ended with {code} before; not run again");
        Some(end.code)
    }

    /// Puts back what a call had written at a recovery line of a `run`, with the copies in `folder`; where each output begins.
    ///
    /// # Errors
    /// What cannot be put back.
    pub fn put_back(&self, outputs: &[Output], folder: &Path, run: &Path) -> io::Result<Vec<(i32, u64)>> {
        let back = |output: &Output| {
            let missing = self.missing(folder, output)?;
            Ok((output.descriptor, self.write_back(output, missing, Some(&run.join(CUT_OFF)))?))
        };
        outputs.iter().map(back).collect()
    }

    /// What has to be written again of what a call wrote: nothing if it is still there; the script has emptied the file
    /// if it opened it by `>`.
    fn missing(&self, folder: &Path, output: &Output) -> io::Result<Option<Vec<u8>>> {
        let kept_in = self.kept_in(output.descriptor);
        let Some(saved) = &output.saved else {
            let length = fs::metadata(format!("/proc/self/fd/{kept_in}"))?.len();
            let text = format!("its output of {} bytes is gone, and too large to keep", output.end - output.start);
            return if length >= output.end { Ok(None) } else { Err(io::Error::other(text)) };
        };
        let saved = fs::read(folder.join(saved))?;
        if saved.len() as u64 != output.end - output.start {
            return Err(io::Error::other("the copy of its output is damaged"));
        }
        let there = content(kept_in, output.start, saved.len()).is_ok_and(|there| there == saved);
        Ok((!there).then_some(saved))
    }

    /// Writes it, and tells where its output begins. Of a call that is not over nothing stays after that, but in the folder `cut_off`.
    fn write_back(&self, output: &Output, missing: Option<Vec<u8>>, cut_off: Option<&Path>) -> io::Result<u64> {
        let mut file = self.file(output.descriptor)?;
        let Some(saved) = missing else {
            if let Some(cut_off) = cut_off {
                self.go_back(output, &file, cut_off)?;
                file.seek(io::SeekFrom::End(0))?;
            }
            return Ok(output.start);
        };
        if let Sink::Named { appends: false, .. } = self.sink(output.descriptor) {
            file.set_len(0)?;
        }
        let start = self.position(output.descriptor, file.metadata()?.len())?;
        file.write_all(&saved)?;
        Ok(start)
    }

    /// Takes a file back to the end of an output. What comes after that may be of others: it is kept, or stays.
    fn go_back(&self, output: &Output, file: &File, cut_off: &Path) -> io::Result<()> {
        let only_adds = match self.sink(output.descriptor) {
            Sink::Spooled(_) => return file.set_len(output.end),
            Sink::Named { appends, .. } => *appends,
            Sink::Own => adds(file)?,
        };
        let Some((_, path)) = self.regular(output.descriptor) else { return Ok(()) };
        let written = Written { path, bytes: output.end, stays: false, only_adds, known_by: None };
        let back = written.go_back(cut_off).map_err(io::Error::other)?;
        let kept = |to: PathBuf| format!("what was added to {} is kept in {}", written.path.display(), to.display());
        back.remark.into_iter().chain(back.kept.map(kept)).for_each(|said| protocol::say!("joulepoint: {said}"));
        Ok(())
    }

    /// Makes an output durable and keeps a copy of it, if there is any and it is not spooled.
    ///
    /// # Errors
    /// What the file system says.
    pub fn save(&self, calls: &Calls, name: &str, (descriptor, start): (i32, u64)) -> io::Result<Option<Output>> {
        let file = self.file(descriptor)?;
        let end = self.position(descriptor, file.metadata()?.len())?.max(start);
        let length = end - start;
        if length == 0 {
            return Ok(None);
        }
        file.sync_all()?;
        let is_copied = length <= SAVED_LIMIT_BYTES && !matches!(self.sink(descriptor), Sink::Spooled(_));
        let saved = is_copied.then(|| format!("{name}.{descriptor}"));
        if let Some(saved) = &saved {
            let mut copy = File::create(calls.output(saved))?;
            copy.write_all(&content(self.kept_in(descriptor), start, length as usize)?)?;
            copy.sync_all()?;
        }
        Ok(Some(Output { descriptor, start, end, saved }))
    }

    /// Lets the real one write where it is to: into a pipe, if that is spooled. The ways of all that is.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn redirect(&self, real: &mut Command) -> io::Result<Vec<Way>> {
        let mut ways = Vec::new();
        for (descriptors, mut way) in self.ways()? {
            let (pipe, writer) = io::pipe()?;
            way.pipe = Some(pipe);
            ways.push(way);
            for descriptor in descriptors {
                let end = Stdio::from(writer.try_clone()?);
                let _ = if descriptor == 1 { real.stdout(end) } else { real.stderr(end) };
            }
        }
        Ok(ways)
    }

    /// The ways of all that is spooled, each with the descriptors whose output goes there.
    fn ways(&self) -> io::Result<Vec<(Vec<i32>, Way)>> {
        let inode = |file: &File| file.metadata().map(|m| (m.dev(), m.ino()));
        let mut ways: Vec<(Vec<i32>, Way)> = Vec::new();
        for (sink, descriptor) in self.0.iter().zip([1, 2]) {
            let Sink::Spooled(file) = sink else { continue };
            match ways.first_mut() {
                Some((descriptors, way)) if inode(&way.kept)? == inode(file)? => descriptors.push(descriptor),
                _ => {
                    let way = Way { pipe: None, kept: file.try_clone()?, to: own(descriptor)? };
                    ways.push((vec![descriptor], way));
                }
            }
        }
        Ok(ways)
    }
}

/// Whether a descriptor leads to another process.
pub fn is_pipe(descriptor: i32) -> bool {
    let kind = fs::metadata(format!("/proc/self/fd/{descriptor}")).map(|m| m.file_type());
    kind.is_ok_and(|k| k.is_fifo() || k.is_socket())
}

/// Whether what goes to a descriptor cannot be found again: a pipe, or a file that has been removed (GNU parallel, `tmpfile`).
pub fn is_fleeting(descriptor: i32) -> bool {
    is_pipe(descriptor) || regular(descriptor).is_some_and(|(metadata, _)| metadata.nlink() == 0)
}

/// The regular file behind a descriptor.
pub fn regular(descriptor: RawFd) -> Option<(fs::Metadata, PathBuf)> {
    let link = format!("/proc/self/fd/{descriptor}");
    let metadata = fs::metadata(&link).ok().filter(fs::Metadata::is_file)?;
    Some((metadata, fs::read_link(link).ok()?))
}

/// Where the output of a call begins, once for two names of one file.
pub fn distinct(targets: &[Target]) -> Vec<(i32, u64)> {
    let is_first = |(at, target): &(usize, &Target)| targets[..*at].iter().all(|other| other.path != target.path);
    targets.iter().enumerate().filter(is_first).map(|(_, target)| (target.descriptor, target.start)).collect()
}

/// Whether what is written goes to the end of the file, whatever others write.
fn adds(file: &File) -> io::Result<bool> {
    Ok(fcntl(file, FcntlArg::F_GETFL)? & libc::O_APPEND != 0)
}

fn content(descriptor: RawFd, start: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; length];
    File::open(format!("/proc/self/fd/{descriptor}"))?.read_exact_at(&mut content, start)?;
    Ok(content)
}

/// A file over the same open description as standard output or error.
fn own(descriptor: i32) -> io::Result<File> {
    let copy = if descriptor == 1 { nix::unistd::dup(io::stdout()) } else { nix::unistd::dup(io::stderr()) };
    Ok(File::from(copy?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_begins_anew_forgets_its_own_files_and_one_that_goes_on_what_came_after_its_line() {
        let dir = tempfile::tempdir_in(std::env::var("HOME").unwrap()).unwrap();
        let file = |name: &str| {
            fs::write(dir.path().join(name), "before, after").unwrap();
            OpenOptions::new().read(true).append(true).open(dir.path().join(name)).unwrap()
        };
        let length = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
        let line = |descriptor| Output { descriptor, start: 0, end: 6, saved: None };
        let streams = Streams([Sink::Spooled(file("spool")), Sink::Named { file: file("named"), appends: true }]);
        let put_back = |streams: &Streams, outputs: &[Output]| streams.put_back(outputs, dir.path(), dir.path());
        assert_eq!(put_back(&streams, &[line(1), line(2)]).unwrap(), [(1, 0), (2, 0)]);
        assert_eq!((length("spool"), length("named")), (6, 6));
        let mut kept = fs::read_dir(dir.path().join(CUT_OFF)).unwrap().flatten().map(|e| fs::read(e.path()).unwrap());
        assert!(kept.any(|kept| kept == b", after"), "others may have added it");
        streams.begin().unwrap();
        assert_eq!((length("spool"), length("named")), (0, 6));
        let anew = Streams([Sink::Own, Sink::Named { file: file("named"), appends: false }]);
        fs::write(dir.path().join("copy"), "copied").unwrap();
        let copied = Output { saved: Some("copy".into()), ..line(2) };
        assert_eq!(put_back(&anew, &[copied]).unwrap(), [(2, 0)]);
        assert_eq!(fs::read_to_string(dir.path().join("named")).unwrap(), "copied");
        assert!(put_back(&streams, &[line(1)]).unwrap_err().to_string().contains("is gone"));
    }
}

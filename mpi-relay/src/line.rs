//! The log of a group beside a checkpoint: saved into a folder with the marks, and gone on from when all groups go back.

use crate::marks::Marks;
use crate::{Error, Layout};
use mlog::book::replace;
use mlog::system;
use std::fs;
use std::path::Path;

/// The file of the marks.
pub const MARKS: &str = "ranks.json";

/// The file of the outcomes.
pub const OUTCOMES: &str = "outcomes.log";

/// Reads the marks of a folder.
///
/// # Errors
/// What the file system says, or they are damaged or of another layout.
pub fn read_marks(folder: &Path, layout: &Layout, group: usize, keep: usize) -> Result<Marks, Error> {
    let path = folder.join(MARKS);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Marks::new(keep)),
        Err(e) => return Err(system(path.display())(e).into()),
    };
    let marks: Marks = serde_json::from_slice(&bytes).map_err(mlog::Error::from)?;
    let fits = marks.keeping(keep, layout.ranks(group).len(), layout.world());
    fits.ok_or_else(|| Error::Usage(format!("{}: marks of another layout of ranks", path.display())))
}

/// Writes the marks into a folder.
///
/// # Errors
/// What the file system says.
pub fn write_marks(folder: &Path, marks: &Marks) -> Result<(), Error> {
    Ok(replace(&folder.join(MARKS), &serde_json::to_vec(marks).map_err(mlog::Error::from)?)?)
}

/// Whether the logs that were saved with a checkpoint, one folder for each group, are a line to which all can go back.
///
/// # Errors
/// As [`read_marks`]; a group has no mark of that number.
pub fn is_line(layout: &Layout, folders: &[&Path], checkpoint: u64) -> Result<bool, Error> {
    let read = folders.iter().enumerate().map(|(group, folder)| read_marks(folder, layout, group, 1));
    let marks: Vec<Marks> = read.collect::<Result<_, _>>()?;
    let unmarked = || Error::Usage(format!("a group has no mark of checkpoint {checkpoint}"));
    let of = |marks: &Marks| marks.get(checkpoint).cloned().ok_or_else(unmarked);
    let all: Vec<Vec<_>> = marks.iter().map(of).collect::<Result<_, _>>()?;
    let all: Vec<&[_]> = all.iter().map(Vec::as_slice).collect();
    Ok(crate::decide::is_line(layout, &all))
}

/// Makes a log's folder what another one is, before it is opened: what it held is of a time that never was.
///
/// # Errors
/// What the file system says.
pub fn go_back(logs: &Path, line: &Path) -> Result<(), Error> {
    let clear = || match fs::remove_dir_all(logs) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    clear().map_err(system(logs.display()))?;
    copy(line, logs).map_err(|e| system(format!("{} to {}", line.display(), logs.display()))(e).into())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy(&source, &target)?;
        } else {
            fs::copy(&source, &target)?;
            fs::File::open(&target)?.sync_all()?;
        }
    }
    fs::File::open(to)?.sync_all()
}

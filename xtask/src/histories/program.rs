//! A program of a history: its state in some files, which it writes when it is asked, and reads when it begins again.

use super::oracle::Announced;
use protocol::{FileLink, Manifest};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file in which its progress stands.
pub const FIRST: &str = "state";

/// Start of it.
const PROGRESS: &str = "progress ";

/// The program, in its folder.
#[derive(Clone, Debug)]
pub struct Program {
    folder: PathBuf,
    files: u32,
}

impl Program {
    /// A program of so many files.
    pub fn new(folder: PathBuf, files: u32) -> Program {
        Program { folder, files }
    }

    /// Its files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.names().map(|name| self.folder.join(name)).collect()
    }

    fn names(&self) -> impl Iterator<Item = String> {
        (0..self.files).map(|i| if i == 0 { FIRST.to_string() } else { format!("{FIRST}.{i}") })
    }

    /// Writes its state, some files of which may stay as they are; what it announces.
    ///
    /// # Errors
    /// What the file system says: then it announces nothing.
    pub fn save(&self, progress_s: f64, seed: u64) -> io::Result<Announced> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        fs::create_dir_all(&self.folder)?;
        let mut announced = Announced::new();
        for name in self.names() {
            let stays = name != FIRST && rng.random_bool(0.5);
            if let Some(content) = stays.then(|| fs::read(self.folder.join(&name)).ok()).flatten() {
                announced.insert(name, content);
                continue;
            }
            let mut content = format!("{PROGRESS}{progress_s}\n").into_bytes();
            content.extend((0..rng.random_range(0..12_000)).map(|_| rng.random::<u8>()));
            let (path, beside) = (self.folder.join(&name), self.folder.join(format!("{name}.new")));
            // Some write in place, some rename.
            let at = if rng.random_bool(0.5) { &path } else { &beside };
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(at)?;
            file.write_all(&content)?;
            file.sync_all()?;
            drop(file);
            if at == &beside {
                fs::rename(&beside, &path)?;
            }
            announced.insert(name, content);
        }
        Ok(announced)
    }

    /// Reads its state when it begins again.
    ///
    /// # Errors
    /// What the file system says.
    pub fn load(&self) -> io::Result<Announced> {
        self.names().map(|name| Ok((name.clone(), fs::read(self.folder.join(name))?))).collect()
    }

    /// The progress of a state, s.
    pub fn progress_s(state: &Announced) -> f64 {
        let text = state.get(FIRST).map(|content| String::from_utf8_lossy(content).into_owned()).unwrap_or_default();
        let line = text.lines().next().and_then(|line| line.strip_prefix(PROGRESS)?.parse().ok());
        line.unwrap_or(f64::NAN)
    }

    /// The manifest with the files where they are for this node's program: each node has the storage at a place of its own.
    pub fn here(&self, manifest: &Manifest) -> Manifest {
        let place = |original: &Path| self.folder.join(original.file_name().unwrap_or_default());
        let mut here = manifest.clone();
        for file in &mut here.files {
            file.original = place(&file.original);
            if let Some(FileLink::Hard(other)) = &mut file.link {
                *other = place(other);
            }
        }
        here
    }
}

//! The files that make up a program's checkpoint: by patterns, or as it announces them itself.

use run::Looks;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

/// Which files make up a checkpoint.
#[derive(Clone, Debug)]
pub struct Files {
    /// Folder of relative patterns.
    pub folder: PathBuf,
    /// Patterns with `*` and `?`.
    pub patterns: Vec<String>,
    /// The folder of our own runs: nothing in it is the program's, whatever a pattern says.
    pub ours: Option<PathBuf>,
}

/// Files that the program announced on the inherited descriptor, and how often it did.
#[derive(Clone, Debug, Default)]
pub struct Announced(Arc<Mutex<(u64, Vec<PathBuf>)>>);

/// What files look like.
pub(super) type States = BTreeMap<PathBuf, Looks>;

/// What a node remembers of files, whose server is not asked.
pub(super) type Glances = BTreeMap<PathBuf, (u64, u64, i64, i64)>;

/// What matches a pattern. What cannot be looked at is there, or is not: then nobody knows what matches.
fn matching(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let has_wildcard = |part: &Component| part.as_os_str().as_encoded_bytes().iter().any(|b| b"*?[".contains(b));
    let parts: Vec<Component> = pattern.components().collect();
    let wild = parts.iter().rposition(has_wildcard).map_or(0, |last| last + 1);
    if wild == parts.len() {
        return found(pattern);
    }
    let (folders, mut rest) = (parts[..wild].iter().collect::<PathBuf>(), parts[wild..].iter().collect::<PathBuf>());
    if pattern.as_os_str().as_encoded_bytes().ends_with(b"/") {
        // With an empty part at its end it is a folder's.
        rest.push("");
    }
    // `glob` would take an error behind the last wildcard for absence.
    let folders = if wild == 0 { vec![folders] } else { found(&folders)? };
    let mut all = Vec::new();
    for path in folders.iter().map(|folder| folder.join(&rest)) {
        match fs::metadata(&path) {
            Ok(_) => all.push(path),
            Err(e) => absent(e)?,
        }
    }
    Ok(all)
}

fn found(pattern: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in glob::glob(&pattern.to_string_lossy()).into_iter().flatten() {
        match path {
            Ok(path) => all.push(path),
            Err(e) => absent(e.into())?,
        }
    }
    Ok(all)
}

/// What is not there, or not for this user, does not match.
fn absent(e: std::io::Error) -> std::io::Result<()> {
    match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied => Ok(()),
        _ => Err(e),
    }
}

impl Files {
    /// The names that match, files or links to files, and all below folders that match.
    fn names(&self, patterns: &[String]) -> std::io::Result<Vec<PathBuf>> {
        let mut names = Vec::new();
        for pattern in patterns {
            // The folder itself may have any name.
            let folder = glob::Pattern::escape(&self.folder.to_string_lossy());
            let pattern = Path::new(&folder).join(pattern);
            for path in matching(&pattern)? {
                match path.is_dir() && !path.is_symlink() {
                    true => self.below(&path, &mut names)?,
                    false if self.is_ours(&path) => {}
                    false => names.push(path),
                }
            }
        }
        Ok(names)
    }

    /// All files below a folder; links to folders are not followed. What goes meanwhile is not there.
    fn below(&self, folder: &Path, names: &mut Vec<PathBuf>) -> std::io::Result<()> {
        if self.is_ours(folder) {
            return Ok(());
        }
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_dir() { self.below(&entry.path(), names)? } else { names.push(entry.path()) }
        }
        Ok(())
    }

    /// Whether it is of ours, and holds nothing of a program.
    fn is_ours(&self, path: &Path) -> bool {
        let is_named_so = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OURS));
        let is_below =
            |ours: &PathBuf| path.starts_with(ours) || fs::canonicalize(path).is_ok_and(|p| p.starts_with(ours));
        is_named_so || self.ours.as_ref().is_some_and(is_below)
    }

    /// The files that are there now and what they look like, each opened for that.
    ///
    /// # Errors
    /// What the file system says of one: then nobody knows.
    pub(super) fn now(&self) -> std::io::Result<States> {
        self.of(&self.patterns)
    }

    /// Like [`Files::now`], of one pattern.
    pub(super) fn of(&self, patterns: &[String]) -> std::io::Result<States> {
        let mut states = States::new();
        for path in self.names(patterns)? {
            // What a link leads to is what the program writes.
            let target = match fs::canonicalize(&path) {
                Ok(target) => target,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            };
            match Looks::of(&target) {
                Ok(looks) => drop(states.insert(path, looks)),
                // It is gone, or no file.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(states)
    }

    /// A cheap look, to be followed by a good one when it shows news.
    pub(super) fn glance(&self) -> Glances {
        let glance = |path: PathBuf| {
            let m = fs::metadata(&path).ok().filter(fs::Metadata::is_file)?;
            Some((path, (m.ino(), m.len(), m.mtime(), m.mtime_nsec())))
        };
        // What cannot be read now is told by the good look.
        self.names(&self.patterns).unwrap_or_default().into_iter().filter_map(glance).collect()
    }
}

/// How folders of ours begin, which hold nothing of a program.
const OURS: &str = ".joulepoint";

impl Announced {
    /// An inherited descriptor on which a program in this folder may name the files of a checkpoint that is complete, as long as
    /// the second part is kept.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn listen(folder: &Path) -> io::Result<(Announced, OwnedFd)> {
        let (read, write) = nix::unistd::pipe()?;
        // SAFETY: the program's number for it is told before any child starts; nobody else uses the variable.
        unsafe { std::env::set_var("FT_ENERGY_DONE_FD", write.as_raw_fd().to_string()) };
        nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
        let announced = Announced::default();
        let (told, folder) = (announced.clone(), folder.to_path_buf());
        threads::start(move || {
            let (mut read, mut line) = (BufReader::new(File::from(read)), Vec::new());
            loop {
                line.clear();
                match read.read_until(b'\n', &mut line) {
                    Ok(0) => return,
                    Ok(_) => told.line(&folder, &line),
                    // Without a reader, what it writes would end the program.
                    Err(e) => {
                        tracing::warn!(%e, "what the program announces is not heard");
                        thread::sleep(super::LONGEST_WATCH);
                    }
                }
            }
        });
        Ok((announced, write))
    }

    /// Takes up one line of the inherited descriptor: the paths of a finished checkpoint, separated by blanks.
    pub fn line(&self, folder: &Path, line: impl AsRef<[u8]>) {
        let words = line.as_ref().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        self.files(words.map(|path| folder.join(OsStr::from_bytes(path))).collect());
    }

    /// Takes up the files of a finished checkpoint.
    pub fn files(&self, files: Vec<PathBuf>) {
        if let Ok(mut state) = self.0.lock() {
            *state = (state.0 + 1, files);
        }
    }

    pub(super) fn get(&self) -> (u64, Vec<PathBuf>) {
        self.0.lock().map(|s| s.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::{Duration, Instant};

    #[test]
    fn a_pattern_of_folders_means_all_files_below_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        for file in [
            "out/checkpoint-500/model.bin",
            "out/checkpoint-500/rng/0",
            "out/log",
            "elsewhere/x",
            "out/ft/c/7.1/journal",
        ] {
            fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            fs::write(at(file), "x").unwrap();
        }
        fs::create_dir_all(at("out/.joulepoint-aside")).unwrap();
        fs::write(at("out/.joulepoint-aside/old"), "x").unwrap();
        std::os::unix::fs::symlink(at("elsewhere"), at("out/checkpoint-500/linked")).unwrap();
        let found = |pattern: &str| {
            let files = Files {
                folder: dir.path().to_path_buf(),
                patterns: vec![pattern.to_string()],
                ours: Some(fs::canonicalize(at("out/ft")).unwrap()),
            };
            let now = files.now().unwrap();
            assert_eq!(files.glance().len(), now.len());
            now.into_keys().map(|p| p.strip_prefix(dir.path()).unwrap().display().to_string()).collect::<Vec<_>>()
        };
        let both = ["out/checkpoint-500/model.bin", "out/checkpoint-500/rng/0"];
        assert_eq!(found("out/checkpoint-*"), both);
        assert_eq!(found("out/checkpoint-*/*"), both);
        assert_eq!(found("out"), [&both[..], &["out/log"]].concat());
        assert_eq!(found("out/*/*/*/journal"), Vec::<String>::new(), "what is ours is no file of the program's");
        assert_eq!(found("other-*"), Vec::<String>::new());
    }

    #[test]
    fn a_program_may_announce_any_name_and_is_heard_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let (announced, write) = Announced::listen(dir.path()).unwrap();
        let mut write = File::from(write);
        for (number, line) in [(1, &b"a  caf\xe9.cpt\n"[..]), (2, b"state.cpt\n")] {
            write.write_all(line).unwrap();
            let begun = Instant::now();
            while announced.get().0 < number && begun.elapsed() < Duration::from_secs(30) {
                thread::sleep(Duration::from_millis(1));
            }
            let names = line.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty());
            let files: Vec<PathBuf> = names.map(|name| dir.path().join(OsStr::from_bytes(name))).collect();
            assert_eq!(announced.get(), (number, files));
        }
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_absent() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| matching(&dir.path().join(name));
        for folder in ["rank0", "rank1"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("rank0/state"), "").unwrap();
        assert_eq!(at("rank*/state").unwrap(), [dir.path().join("rank0/state")]);
        assert!(at("rank*/none").unwrap().is_empty() && at("none").unwrap().is_empty());
        // No file system takes so long a name, and says something else than that it is not there.
        let long = "x".repeat(300);
        assert!(at(&format!("rank*/{long}")).is_err() && at(&long).is_err());
    }
}

//! The versions of checkpoints in a folder of VELOC: one file for each rank, `NAME-RANK-VERSION.dat`.

use run::storage::gone;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most parts of memory that a file may announce.
const MOST_REGIONS: u64 = 1 << 16;

/// Name and number of a version.
pub(super) type Key = (String, u64);

/// What a file looked like: bytes, and the time of its last change, s and ns.
pub(super) type Looks = (u64, i64, i64);

/// The files of each version by their ranks.
pub(super) type Versions = BTreeMap<Key, BTreeMap<u64, Looks>>;

/// Version and rank of a file, by its name.
pub(super) fn part(file_name: &str) -> Option<(Key, u64)> {
    let mut from_end = file_name.strip_suffix(".dat")?.rsplitn(3, '-');
    let (version, rank, name) = (from_end.next()?, from_end.next()?, from_end.next()?);
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    (!name.is_empty()).then_some(((name.to_string(), number(version)?), number(rank)?))
}

/// The name of the file of a rank.
pub(super) fn file_name((name, version): &Key, rank: u64) -> String {
    format!("{name}-{rank}-{version}.dat")
}

/// Where the file of a rank is.
pub(super) fn path(folder: &Path, key: &Key, rank: u64) -> PathBuf {
    folder.join(file_name(key, rank))
}

/// What is in a folder now; nothing where there is none yet.
///
/// # Errors
/// What the file system says.
pub(super) fn look(folder: &Path) -> io::Result<Versions> {
    let mut versions = Versions::new();
    let entries = match fs::read_dir(folder) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(versions),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Some((key, rank)) = entry.file_name().to_str().and_then(part) else { continue };
        // A link leads to a file that the program has written itself.
        match fs::metadata(entry.path()) {
            Ok(m) if m.is_file() => {
                versions.entry(key).or_default().insert(rank, (m.len(), m.mtime(), m.mtime_nsec()));
            }
            Ok(_) => {}
            Err(e) => gone(Err(e))?,
        }
    }
    Ok(versions)
}

/// How many ranks there are: VELOC tells nobody. It is the highest number of files that two versions of a name had.
#[derive(Default)]
pub(super) struct Ranks(BTreeMap<String, (usize, BTreeSet<u64>)>);

impl Ranks {
    /// Takes up what is there now.
    pub(super) fn learn(&mut self, versions: &Versions) {
        for ((name, version), files) in versions {
            let (most, by) = self.0.entry(name.clone()).or_default();
            if files.len() > *most {
                (*most, *by) = (files.len(), BTreeSet::new());
            }
            if files.len() == *most {
                by.insert(*version);
            }
        }
    }

    fn of(&self, name: &str) -> Option<usize> {
        self.0.get(name).filter(|(_, by)| by.len() > 1).map(|(most, _)| *most)
    }
}

/// The newest version of each name that has a file of every rank.
pub(super) fn newest_whole<'a>(versions: &'a Versions, ranks: &Ranks) -> Vec<&'a Key> {
    let mut newest: BTreeMap<&str, &Key> = BTreeMap::new();
    for (key @ (name, _), files) in versions {
        let has_no_gap = files.keys().copied().eq(0..files.len() as u64);
        if has_no_gap && ranks.of(name) == Some(files.len()) {
            newest.insert(name, key);
        }
    }
    newest.into_values().collect()
}

/// Whether a file holds all that its head announces; a link is to a file of the program's own, of which nobody knows.
///
/// The head (VELOC 1.8, `read_header`): the number of regions of memory, 8 bytes; then for each its id, 4 bytes, and its
/// size, 8 bytes.
///
/// # Errors
/// What the file system says.
pub(super) fn adds_up(path: &Path) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        return Ok(true);
    }
    match announced(BufReader::new(File::open(path)?)) {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(false),
        bytes => bytes.map(|bytes| bytes == Some(metadata.len())),
    }
}

/// The size that a head announces with its own, bytes; none if it is none.
fn announced(mut from: impl Read) -> io::Result<Option<u64>> {
    let mut number = [0; 8];
    from.read_exact(&mut number)?;
    let regions = u64::from_ne_bytes(number);
    if regions > MOST_REGIONS {
        return Ok(None);
    }
    let mut bytes = Some(8 + regions * 12);
    for _ in 0..regions {
        from.read_exact(&mut [0; 4])?;
        from.read_exact(&mut number)?;
        bytes = bytes.and_then(|sum| sum.checked_add(u64::from_ne_bytes(number)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(files: &[(&str, u64, u64)]) -> Versions {
        let mut versions = Versions::new();
        for (name, rank, version) in files {
            versions.entry((name.to_string(), *version)).or_default().insert(*rank, (1, 2, 3));
        }
        versions
    }

    #[test]
    fn names_of_files_say_version_and_rank() {
        assert_eq!(part("heat-dis-3-40.dat"), Some((("heat-dis".to_string(), 40), 3)));
        for other in ["heat-3-40.dat.chksum", "heat-agg-40.dat", "heat-ec-4.dat", "-1-2.dat", "3-4.dat", "heat-3-.dat"]
        {
            assert_eq!(part(other), None, "{other}");
        }
    }

    #[test]
    fn the_newest_version_counts_that_has_all_ranks() {
        let of = |looks: &[&[(&str, u64, u64)]]| {
            let (mut ranks, mut now) = (Ranks::default(), Versions::new());
            for files in looks {
                now = versions(files);
                ranks.learn(&now);
            }
            let whole = newest_whole(&now, &ranks);
            whole.into_iter().map(|(name, number)| format!("{name}{number}")).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(of(&[&[("a", 0, 1), ("a", 1, 1)]]), none, "of one version nobody knows whether it is whole");
        assert_eq!(of(&[&[("a", 0, 1), ("a", 1, 1), ("a", 0, 2)]]), none);
        assert_eq!(of(&[&[("a", 0, 1), ("a", 1, 1), ("a", 0, 2), ("a", 1, 2), ("a", 1, 3)]]), ["a2"]);
        assert_eq!(of(&[&[("a", 1, 1), ("a", 2, 1), ("a", 1, 2), ("a", 2, 2)]]), none, "rank 0 is missing");
        assert_eq!(of(&[&[("a", 0, 5), ("a", 0, 6), ("b", 0, 1), ("b", 0, 2)]]), ["a6", "b2"]);
        let one_kept: [&[(&str, u64, u64)]; 2] = [&[("a", 0, 1), ("a", 1, 1)], &[("a", 0, 2), ("a", 1, 2)]];
        assert_eq!(of(&one_kept), ["a2"], "where VELOC keeps one version");
        let grown: [&[(&str, u64, u64)]; 2] = [&[("a", 0, 1), ("a", 0, 2)], &[("a", 0, 2), ("a", 0, 3), ("a", 1, 3)]];
        assert_eq!(of(&grown), none, "there are two ranks at least");
    }

    #[test]
    fn a_file_that_is_cut_off_does_not_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path(), &("a".to_string(), 1), 0);
        let mut content = 2u64.to_ne_bytes().to_vec();
        for (id, bytes) in [(0i32, 4u64), (1, 10)] {
            content.extend(id.to_ne_bytes());
            content.extend(bytes.to_ne_bytes());
        }
        content.extend([7; 14]);
        for bytes in 0..=content.len() {
            fs::write(&file, &content[..bytes]).unwrap();
            assert_eq!(adds_up(&file).unwrap(), bytes == content.len(), "{bytes} bytes");
        }
        fs::write(&file, [0xff; 100]).unwrap();
        assert!(!adds_up(&file).unwrap());
        let link = path(dir.path(), &("a".to_string(), 1), 1);
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(adds_up(&link).unwrap());
        assert_eq!(look(dir.path()).unwrap()[&("a".to_string(), 1)].len(), 2);
    }
}

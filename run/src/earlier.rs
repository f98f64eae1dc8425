//! Copies of earlier checkpoints: a file that has not changed since is not written again, but gets one more name of its copy.
//!
//! The newest checkpoint and the one before it never share a copy, so that no damage takes both: a file that stays is
//! written twice, and its two copies serve every second checkpoint. Only what was read back whole since the run was taken up
//! is shared, and every checkpoint is read back, shared copies too, before an older one goes. The program's own files are
//! never linked: it may write to them in place.

use crate::copy::Looks;
use protocol::{Manifest, ManifestFile};
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The checkpoint whose copies may be shared, and the newest one, whose copies may not.
#[derive(Clone, Debug, Default)]
pub struct Earlier {
    shared: Stored,
    avoided: Stored,
}

/// A checkpoint's copies by what they were taken from.
#[derive(Clone, Debug, Default)]
struct Stored {
    number: u64,
    folder: PathBuf,
    /// By what they were taken from; what an engine has left has no such name.
    files: BTreeMap<PathBuf, ManifestFile>,
    /// What an engine has left, by its path within the checkpoint.
    left: BTreeMap<String, ManifestFile>,
}

impl Stored {
    fn new(manifest: Manifest, folder: PathBuf) -> Stored {
        let copies = manifest.files.into_iter().filter(|file| file.link.is_none());
        let (left, files): (Vec<_>, Vec<_>) = copies.partition(|file| file.original.as_os_str().is_empty());
        let files = files.into_iter().map(|file| (file.original.clone(), file)).collect();
        let left = left.into_iter().map(|file| (file.copy.clone(), file)).collect();
        Stored { number: manifest.number, folder, files, left }
    }

    /// Where a file is stored, and as which.
    fn copy(&self, original: &Path) -> Option<(PathBuf, (u64, u64))> {
        let at = self.folder.join(&self.files.get(original)?.copy);
        let which = which(&at)?;
        Some((at, which))
    }

    /// A file of this checkpoint as one more name of it has it in a manifest.
    fn named_again(&self, file: &ManifestFile) -> ManifestFile {
        ManifestFile { copied_for: file.copied_for.or(Some(self.number)), ..file.clone() }
    }
}

/// Which file has a name: device and inode.
fn which(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().filter(Metadata::is_file).map(|m| (m.dev(), m.ino()))
}

impl Earlier {
    /// Copies of the checkpoint before the newest, each with its folder.
    pub(crate) fn new(before: (Manifest, PathBuf), newest: (Manifest, PathBuf)) -> Earlier {
        Earlier { shared: Stored::new(before.0, before.1), avoided: Stored::new(newest.0, newest.1) }
    }

    /// Gives the stored copy of a file one more name, if the file looks as it did then; none if it has to be copied. A
    /// link that fails is no harm: what may stand under the name is not the copy's only one, and is not written to.
    pub(crate) fn share(&self, original: &Path, looks: &Looks, at: &Path) -> Option<ManifestFile> {
        let stored = self.shared.files.get(original)?;
        if stored.seen? != looks.recorded()? || stored.bytes != looks.bytes {
            return None;
        }
        let (copy, which) = self.shared.copy(original)?;
        if self.avoided.copy(original).is_some_and(|(_, newest)| newest == which) {
            return None;
        }
        fs::hard_link(&copy, at).ok()?;
        Some(self.shared.named_again(stored))
    }

    /// Folder of the checkpoint whose files an engine may give further names; none if the newest one has any of them.
    pub fn base(&self) -> Option<&Path> {
        let is_shared = |copy: &String| {
            let of = |stored: &Stored| which(&stored.folder.join(copy));
            of(&self.avoided).is_some_and(|newest| of(&self.shared) == Some(newest))
        };
        let has_any = self.avoided.left.iter().any(|(copy, file)| file.copied_for.is_some() && is_shared(copy));
        (!self.shared.left.is_empty() && !has_any).then_some(&self.shared.folder)
    }

    /// What the manifest says of a file to which an engine has given one more name, at the same path in its checkpoint.
    pub(crate) fn left(&self, copy: &str, at: &Path) -> Option<ManifestFile> {
        let stored = self.shared.left.get(copy)?;
        (which(&self.shared.folder.join(copy))? == which(at)?).then(|| self.shared.named_again(stored))
    }
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;

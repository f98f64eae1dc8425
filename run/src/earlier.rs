//! Copies of earlier checkpoints: a file that has not changed since is not written again, but gets one more name of its copy.
//!
//! The newest checkpoint and the one before it never share a copy, so that no damage takes both: a file that stays is
//! written twice, and its two copies serve every second checkpoint. Only what was read back whole since the run was taken up
//! is shared, and every checkpoint is read back, shared copies too, before an older one goes. The program's own files are
//! never linked: it may write to them in place.

use crate::copy::Looks;
use protocol::{Manifest, ManifestFile};
use std::collections::BTreeMap;
use std::fs;
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
    files: BTreeMap<String, ManifestFile>,
}

impl Stored {
    fn new(manifest: Manifest, folder: PathBuf) -> Stored {
        let copies = manifest.files.into_iter().filter(|file| file.link.is_none());
        let files = copies.map(|file| (file.original.clone(), file)).collect();
        Stored { number: manifest.number, folder, files }
    }

    /// Where a file is stored, and as which.
    fn copy(&self, original: &str) -> Option<(PathBuf, (u64, u64))> {
        let at = self.folder.join(&self.files.get(original)?.copy);
        let m = fs::symlink_metadata(&at).ok().filter(fs::Metadata::is_file)?;
        Some((at, (m.dev(), m.ino())))
    }
}

impl Earlier {
    /// Copies of the checkpoint before the newest, each with its folder.
    pub(crate) fn new(before: (Manifest, PathBuf), newest: (Manifest, PathBuf)) -> Earlier {
        Earlier { shared: Stored::new(before.0, before.1), avoided: Stored::new(newest.0, newest.1) }
    }

    /// Gives the stored copy of a file one more name, if the file looks as it did then; none if it has to be copied. A
    /// link that fails is no harm: what may stand under the name is not the copy's only one, and is not written to.
    pub(crate) fn share(&self, original: &str, looks: &Looks, at: &Path) -> Option<ManifestFile> {
        let stored = self.shared.files.get(original)?;
        if stored.seen? != looks.recorded()? || stored.bytes != looks.bytes {
            return None;
        }
        let (copy, which) = self.shared.copy(original)?;
        if self.avoided.copy(original).is_some_and(|(_, newest)| newest == which) {
            return None;
        }
        fs::hard_link(&copy, at).ok()?;
        Some(ManifestFile { copied_for: stored.copied_for.or(Some(self.shared.number)), ..stored.clone() })
    }
}

#[cfg(test)]
#[path = "earlier_tests.rs"]
mod tests;

//! The checkpoints of a run, or of one group of it: room for the next, complete with a manifest, verified, and pruned.

use crate::checkpoint::{self, DAMAGED, FORGOTTEN, MANIFEST, Read, State, Verdict};
use crate::owners::Owners;
use crate::seal::{self, Left};
use crate::storage::gone;
use crate::{Earlier, Error, Holder, Patience, Result, storage};
use protocol::Manifest;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A folder of checkpoints, and who may write there.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep: usize,
    holder: Holder,
    owners: Arc<Owners>,
    /// Numbers of those that were read back, or restored, since the run was taken up.
    verified: Arc<Mutex<BTreeSet<u64>>>,
    /// Numbers of those that stay, however many newer ones there are.
    held: Arc<Mutex<BTreeSet<u64>>>,
    patience: Patience,
}

impl Checkpoints {
    /// Opens a folder that belongs to no run.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(folder: PathBuf, keep: u32) -> Result<Checkpoints> {
        Checkpoints::of_run(folder, keep, Holder::alone(), Arc::default(), Patience::SHORT)
    }

    /// Opens a folder of a run for its holder.
    ///
    /// # Errors
    /// What the file system says.
    pub fn of_run(
        folder: PathBuf,
        keep: u32,
        holder: Holder,
        owners: Arc<Owners>,
        patience: Patience,
    ) -> Result<Checkpoints> {
        storage::make_folder(&folder, patience)?;
        let (keep, verified, held) = (keep.max(1) as usize, Arc::default(), Arc::default());
        Ok(Checkpoints { folder, keep, holder, owners, verified, held, patience })
    }

    /// The same with another patience towards the storage.
    pub fn patient(&self, patience: Patience) -> Checkpoints {
        Checkpoints { patience, ..self.clone() }
    }

    /// Shows that no newer holder has the run.
    ///
    /// # Errors
    /// One has, or nobody can tell.
    pub fn show(&self) -> Result<()> {
        self.holder.show()
    }

    /// These checkpoints stay, beside those that are kept anyway, and no others.
    pub fn hold(&self, numbers: impl IntoIterator<Item = u64>) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = numbers.into_iter().collect();
    }

    /// Whether a checkpoint was read back, or restored, since the run was taken up.
    pub fn is_verified(&self, number: u64) -> bool {
        self.verified().contains(&number)
    }

    /// Whether a checkpoint is complete, as far as that is known without reading it back.
    ///
    /// # Errors
    /// What the file system says; that it could not be restored; that some cannot be read now, if it is none of the others.
    pub fn is_complete(&self, number: u64) -> Result<bool> {
        let unread = self.unseal()?.unread;
        let is_complete = checkpoint::state(&self.path(number), self.patience)? == State::Complete;
        if is_complete && let Some(reason) = checkpoint::not_restored(&self.path(number), self.patience)? {
            return Err(Error::NotRestored(not_restored(number, &reason)));
        }
        if is_complete || unread.is_empty() { Ok(is_complete) } else { Err(Error::Unreadable(unread.join("; "))) }
    }

    /// Folder of a checkpoint.
    pub fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// The highest number that a checkpoint has had, complete or not; 0 if there was none.
    ///
    /// # Errors
    /// What the file system says.
    pub fn last(&self) -> Result<u64> {
        let sealed = seal::sealed(&self.folder, self.patience)?.into_iter().map(|(number, _)| number);
        let last = self.numbers()?.into_iter().chain(sealed).max().unwrap_or(0);
        Ok(last.max(self.owners.last_first().saturating_sub(1)))
    }

    /// Makes a new folder for the next checkpoint, and removes leftovers of failed tries.
    ///
    /// # Errors
    /// A newer holder has the run, or what the file system says.
    pub fn room(&self) -> Result<(u64, PathBuf)> {
        self.room_after(self.last()?)
    }

    /// Makes a new folder for a checkpoint that is part of one of several groups, and has its number.
    ///
    /// # Errors
    /// A newer holder has the run, the number was used, or what the file system says.
    pub fn room_of(&self, number: u64) -> Result<PathBuf> {
        self.holder.show()?;
        if let Err(e) = self.clear() {
            tracing::warn!(%e, "what a broken checkpoint left is still there");
        }
        let folder = self.path(number);
        self.patience.with(|| fs::create_dir(&folder)).map_err(Error::at(&folder))?;
        Ok(folder)
    }

    /// Like [`Checkpoints::room`], with a number above `last`.
    ///
    /// # Errors
    /// As there.
    pub fn room_after(&self, last: u64) -> Result<(u64, PathBuf)> {
        self.holder.show()?;
        if let Err(e) = self.clear() {
            tracing::warn!(%e, "what a broken checkpoint left is still there");
        }
        for number in last + 1.. {
            let folder = self.path(number);
            match self.patience.with(|| fs::create_dir(&folder)) {
                Ok(()) => return Ok((number, folder)),
                // An earlier holder took this number and did not finish: try the next.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::at(&folder)(e)),
            }
        }
        Err(Error::at(&self.folder)(io::Error::other("there is no number left")))
    }

    /// Removes incomplete checkpoints that were sealed: nobody can complete those any more.
    fn clear(&self) -> Result<()> {
        for number in self.numbers()? {
            if checkpoint::state(&self.path(number), self.patience)? == State::Incomplete {
                self.move_away(number)?;
            }
        }
        for path in self.unseal()?.incomplete {
            fs::remove_dir_all(&path).map_err(Error::at(&path))?;
        }
        Ok(())
    }

    /// Makes a checkpoint complete.
    ///
    /// # Errors
    /// A newer holder has the run: then the checkpoint counts for nothing, even if it looks complete. Or what the file system
    /// says: then it does not count.
    pub fn commit(&self, manifest: &Manifest) -> Result<()> {
        let folder = self.path(manifest.number);
        let (version, holder) = (manifest.needed_version(), self.holder.number());
        let manifest = Manifest { version, holder, ..manifest.clone() };
        let text = serde_json::to_vec_pretty(&manifest).map_err(|e| Error::at(&folder)(e.into()))?;
        self.holder.show()?;
        self.patience.with(|| storage::sync_tree(&folder)).map_err(Error::at(&folder))?;
        let written = self.patience.with(|| storage::write_durably(&folder.join(MANIFEST), &text));
        written.and_then(|()| self.patience.with(|| storage::sync_folder(&self.folder))).map_err(Error::at(&folder))?;
        // A newer holder may have sealed the run without this checkpoint.
        self.holder.show()
    }

    /// Verifies a checkpoint. If it is good, older ones beyond the number to keep are removed; if it is damaged, it
    /// is set aside.
    ///
    /// # Errors
    /// A newer holder has the run, or what the file system says.
    pub fn settle(&self, number: u64) -> Result<Verdict> {
        let folder = self.path(number);
        let verdict = match checkpoint::manifest(&folder, self.patience)? {
            Read::Manifest(manifest) => checkpoint::verify(&folder, &manifest, self.patience),
            Read::Damaged(reason) => Verdict::Damaged(reason),
            Read::Foreign(reason) => Verdict::Unread(reason),
        };
        match &verdict {
            Verdict::Good => {
                self.verified().insert(number);
                self.prune()?;
            }
            Verdict::Damaged(_) => {
                self.set_aside(number, DAMAGED)?;
                // A copy of an older one may be damaged with it: nothing is shared, or a reason to remove others, until it
                // has been read back again.
                self.verified().clear();
            }
            Verdict::Unread(_) => {}
        }
        Ok(verdict)
    }

    /// The copies that the next checkpoint may share: those of the one before the newest, if it was read back. None where
    /// only one checkpoint is kept, or where the storage does not tell.
    pub fn earlier(&self) -> Earlier {
        self.sharing().unwrap_or_default()
    }

    fn sharing(&self) -> Option<Earlier> {
        if self.keep < 2 {
            return None;
        }
        let complete = |number: &u64| match checkpoint::manifest(&self.path(*number), Patience::NONE) {
            Ok(Read::Manifest(manifest)) if self.owners.is_rightful(&manifest) => Some((*manifest, self.path(*number))),
            _ => None,
        };
        let mut numbers = self.numbers().ok()?;
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        let mut newest = numbers.iter().filter_map(complete);
        let (newest, before) = (newest.next()?, newest.next()?);
        self.verified().contains(&before.0.number).then(|| Earlier::new(before, newest))
    }

    /// Removes the oldest checkpoints, as many as there are beyond the verified ones to keep.
    fn prune(&self) -> Result<()> {
        let Some(oldest) = self.verified().iter().rev().nth(self.keep - 1).copied() else { return Ok(()) };
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for number in self.numbers()?.into_iter().filter(|n| *n < oldest && !held.contains(n)) {
            let path = self.path(number);
            let goes = match checkpoint::state(&path, self.patience)? {
                State::Complete => self.is_rightful(&path)?,
                State::SetAside => storage::is_there(&path.join(FORGOTTEN), self.patience)?,
                State::Incomplete => false,
            };
            if goes {
                // From here on, a newer holder finds the newer complete checkpoint.
                self.holder.show()?;
                // The manifest goes first: a half-removed checkpoint must not look complete.
                let removed = gone(fs::remove_file(path.join(MANIFEST))).and_then(|()| gone(fs::remove_dir_all(&path)));
                removed.map_err(Error::at(&path))?;
                self.verified().remove(&number);
            }
        }
        Ok(())
    }

    fn is_rightful(&self, path: &Path) -> Result<bool> {
        let read = checkpoint::manifest(path, self.patience)?;
        Ok(matches!(read, Read::Manifest(manifest) if self.owners.is_rightful(&manifest)))
    }

    /// The newest checkpoint that is complete, unchanged, and of the holder to whom its number belongs, and that has not turned
    /// out to be one that cannot be restored; with sentences on those that are not used.
    ///
    /// # Errors
    /// A newer holder has the run; or there are complete checkpoints and none can be read or restored: nobody may begin anew then.
    pub fn newest(&self) -> Result<(Option<Manifest>, Vec<String>)> {
        self.holder.show()?;
        let mut unread = self.unseal()?.unread;
        let (mut notes, mut unrestored) = (Vec::new(), Vec::new());
        let mut numbers = self.numbers()?;
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        for number in numbers {
            match self.look(number) {
                Ok(Found::Good(manifest)) => {
                    // A newer holder may have newer checkpoints, and have removed older ones.
                    self.holder.show()?;
                    self.verified().insert(number);
                    notes.extend(unrestored.into_iter().chain(unread));
                    return Ok((Some(*manifest), notes));
                }
                Ok(Found::None) => {}
                Ok(Found::Damaged(reason)) => {
                    notes.push(format!("checkpoint {number} is damaged and not used: {reason}"));
                    self.set_aside(number, DAMAGED)?;
                }
                // Its files may be as they were: it stays, and counts for none that is good.
                Ok(Found::NotRestored(reason)) => {
                    self.verified().remove(&number);
                    unrestored.push(not_restored(number, &reason));
                }
                Ok(Found::NotRightful) => {
                    let away = self.move_away(number)?;
                    notes.push(format!(
                        "checkpoint {number} was completed by a wrapper after another had taken the run up; it is kept in \
                         {} and not used",
                        away.display()
                    ));
                }
                Ok(Found::Unread(reason)) => unread.push(format!("checkpoint {number} cannot be read: {reason}")),
                Err(e) if e.is_superseded() => return Err(e),
                Err(e) => unread.push(format!("checkpoint {number} cannot be read: {e}")),
            }
        }
        self.holder.show()?;
        match (unrestored.is_empty(), unread.is_empty()) {
            (true, true) => Ok((None, notes)),
            (false, true) => Err(Error::NotRestored(unrestored.join("; "))),
            (_, false) => Err(Error::Unreadable([unrestored, unread].concat().join("; "))),
        }
    }

    fn look(&self, number: u64) -> Result<Found> {
        let path = self.path(number);
        if checkpoint::state(&path, self.patience)? != State::Complete {
            return Ok(Found::None);
        }
        let manifest = match checkpoint::manifest(&path, self.patience)? {
            Read::Foreign(reason) => return Ok(Found::Unread(reason)),
            Read::Damaged(reason) => return Ok(Found::Damaged(reason)),
            Read::Manifest(manifest) if !self.owners.is_rightful(&manifest) => return Ok(Found::NotRightful),
            Read::Manifest(manifest) => manifest,
        };
        Ok(match checkpoint::not_restored(&path, self.patience)? {
            Some(reason) => Found::NotRestored(reason),
            None => match checkpoint::verify(&path, &manifest, self.patience) {
                Verdict::Good => Found::Good(manifest),
                Verdict::Damaged(reason) => Found::Damaged(reason),
                Verdict::Unread(reason) => Found::Unread(reason),
            },
        })
    }

    /// Checkpoints from a number on are never used any more.
    ///
    /// # Errors
    /// A newer holder has the run, or what the file system says.
    pub fn forget_from(&self, number: u64) -> Result<()> {
        self.numbers()?.into_iter().filter(|n| *n >= number).try_for_each(|late| self.forget(late))
    }

    /// A checkpoint is never used any more.
    ///
    /// # Errors
    /// A newer holder has the run, or what the file system says.
    pub fn forget(&self, number: u64) -> Result<()> {
        match checkpoint::state(&self.path(number), self.patience)? {
            State::Complete => self.set_aside(number, FORGOTTEN),
            State::SetAside | State::Incomplete => Ok(()),
        }
    }

    /// Renames the manifest of a checkpoint, so that it is not used.
    fn set_aside(&self, number: u64, name: &str) -> Result<()> {
        self.holder.show()?;
        let path = self.path(number);
        self.verified().remove(&number);
        let moved = self.patience.with(|| gone(fs::rename(path.join(MANIFEST), path.join(name))));
        moved.and_then(|()| self.patience.with(|| storage::sync_folder(&path))).map_err(Error::at(&path))
    }

    /// Moves a checkpoint out of the way. A superseded holder must not do that: the checkpoints of its successor look
    /// wrong to it.
    fn move_away(&self, number: u64) -> Result<PathBuf> {
        self.holder.show()?;
        seal::move_away(&self.folder, number, self.holder.number().unwrap_or(0), self.patience)
    }

    fn unseal(&self) -> Result<Left> {
        seal::unseal(&self.folder, &self.owners, self.patience)
    }

    fn numbers(&self) -> Result<Vec<u64>> {
        seal::numbers(&self.folder, self.patience)
    }

    fn verified(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was found under a number.
enum Found {
    Good(Box<Manifest>),
    None,
    Damaged(String),
    NotRestored(String),
    NotRightful,
    Unread(String),
}

fn not_restored(number: u64, reason: &str) -> String {
    format!("checkpoint {number} could not be restored and stays as it is: {reason}")
}

#[cfg(test)]
#[path = "checkpoints_tests.rs"]
mod tests;

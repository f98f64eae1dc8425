//! Waits until a program has finished writing its checkpoint: it says so, or its files are new, still, and nobody of the
//! job can write to them any more.

use super::files::{Announced, Files, States};
use host::mail::Try;
use job::writers::{Ask, Holder, Seen};
use protocol::ManifestFile;
use run::{Earlier, Looks, take, take_new, take_seen};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// How long files have to be unchanged before it is asked who may still write to them.
const REST: Duration = Duration::from_millis(100);

/// The shortest and the longest time between two looks; looks take no more than a tenth of the time.
const LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How long it is waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In all.
    pub whole: Duration,
    /// For files that stand still and are held open.
    pub held: Duration,
    /// Until the program is asked again, if nothing is new yet; each time twice as long.
    pub again: Duration,
}

/// What is known of files before a program is asked.
pub(super) struct Before {
    pub states: States,
    /// How often the program had announced something.
    pub announced: u64,
}

/// A checkpoint that is finished.
#[derive(Debug)]
pub(super) struct Finished {
    pub files: Vec<PathBuf>,
    /// When the program had written it.
    pub at: Instant,
    /// What its files look like; absent where the program has said that it is finished.
    pub states: Option<States>,
}

/// Why a checkpoint is not finished.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotFinished {
    #[error("given up")]
    GivenUp,
    #[error(
        "{0}, and has stayed so for a minute: a file that is written in place by a program that keeps it open cannot be \
         protected. Let the program write under another name and rename, or close the file, or announce it on \
         $FT_ENERGY_DONE_FD"
    )]
    Held(Holder),
    #[error("nobody can tell whether the checkpoint is finished: {0}")]
    Unknown(String),
    #[error("{0}")]
    Storage(#[from] std::io::Error),
    #[error("{0}")]
    Copy(#[from] run::Error),
    #[error(
        "{} has not been written anew; a program that alternates between names needs one pattern for them, as \
         state.[ab]", .0.join(", ")
    )]
    Missing(Vec<String>),
    #[error("the program keeps writing to its files")]
    Changing,
}

/// Waits for a checkpoint.
pub(super) fn wait(
    one: &Try,
    files: &Files,
    announced: &Announced,
    before: &Before,
    writers: &Ask,
    ask_again: &dyn Fn(),
    limit: Limits,
) -> Result<Finished, NotFinished> {
    let (begun, mut again) = (Instant::now(), limit.again);
    let (mut last, mut since) = (States::new(), Instant::now());
    let mut asked = Instant::now();
    let mut pause = LOOK;
    loop {
        if !one.is_current() {
            return Err(NotFinished::GivenUp);
        }
        let (count, named) = announced.get();
        if count > before.announced && !named.is_empty() {
            return Ok(Finished { files: named, at: Instant::now(), states: None });
        }
        let looked = Instant::now();
        let now = files.now()?;
        let is_new = now.iter().any(|(path, looks)| before.states.get(path) != Some(looks));
        if now != last {
            (last, since, asked, pause) = (now, Instant::now(), Instant::now(), LOOK);
        } else if is_new && since.elapsed() >= REST && asked.elapsed() >= pause {
            let missing = stale(files, before)?;
            if missing.is_empty() {
                let names: Vec<PathBuf> = now.keys().cloned().collect();
                let seen = writers(&names);
                if seen.is_nobody() && files.now()? == now {
                    return Ok(Finished { files: names, at: since, states: Some(now) });
                }
                if since.elapsed() > limit.held.min(limit.whole) {
                    return Err(not_finished(seen));
                }
            } else if begun.elapsed() > limit.whole {
                return Err(NotFinished::Missing(missing));
            }
            (asked, pause) = (Instant::now(), (pause * 2).min(LONGEST_LOOK));
        } else if !is_new && begun.elapsed() > again && again < limit.whole {
            again = begun.elapsed() + again.saturating_mul(2);
            ask_again();
        } else if begun.elapsed() > limit.whole {
            return Err(if is_new { NotFinished::Changing } else { NotFinished::Missing(files.patterns.clone()) });
        }
        thread::sleep((looked.elapsed() * 9).clamp(LOOK, LONGEST_LOOK));
    }
}

fn not_finished(seen: Seen) -> NotFinished {
    let unknown = seen.unknown.join("; ");
    seen.holders.into_iter().next().map_or(NotFinished::Unknown(unknown), NotFinished::Held)
}

/// Patterns none of whose files is new.
fn stale(files: &Files, before: &Before) -> Result<Vec<String>, NotFinished> {
    let mut stale = Vec::new();
    for pattern in &files.patterns {
        let now = files.of(std::slice::from_ref(pattern))?;
        if !now.iter().any(|(path, looks)| before.states.get(path) != Some(looks)) {
            stale.push(pattern.clone());
        }
    }
    Ok(stale)
}

impl Finished {
    /// Copies it, if it is the same before and after; none if the program has gone on with it meanwhile. What has not
    /// changed shares copies of an earlier checkpoint, but for files that were announced: nobody looked who writes to them.
    pub(super) fn copy(
        &self,
        files: &Files,
        writers: &Ask,
        into: &Path,
        earlier: &Earlier,
    ) -> Result<Option<Vec<ManifestFile>>, NotFinished> {
        let taken = match self.only_file() {
            // Of several, each has to be of the same moment as the others; of one, any moment is as good.
            Some((path, seen)) => take_seen(path, seen, into).map(|file| vec![file]),
            None if self.states.is_none() => take(&self.files, into),
            None => match take_new(&self.files, into, earlier) {
                Ok(_) if !self.is_still(files, writers)? => return Ok(None),
                taken => taken,
            },
        };
        match taken {
            Ok(taken) => Ok(Some(taken)),
            Err(run::Error::Changing(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    fn only_file(&self) -> Option<(&PathBuf, &Looks)> {
        let states = self.states.as_ref().filter(|states| states.len() == 1)?;
        states.first_key_value().filter(|(path, _)| !path.is_symlink())
    }

    /// Whether files are still what was copied, and nobody has begun to write to them meanwhile.
    fn is_still(&self, files: &Files, writers: &Ask) -> Result<bool, NotFinished> {
        let Some(states) = &self.states else { return Ok(true) };
        Ok(files.now()? == *states && writers(&self.files).is_nobody())
    }
}

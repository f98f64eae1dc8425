//! Takes a run up: claims the next holder's number, and seals what earlier holders left.

use crate::history::{self, Part};
use crate::line::{Claim, Mark, Seal, encode};
use crate::{Error, History, Holder, Patience, Result, holder, journal::Journal, seal, storage};
use fencing::Token;
use protocol::Event;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Most tries for a number that somebody else took first.
const TRIES: u32 = 100;

/// A run that this process has taken up.
pub struct TakenUp {
    /// Its holder.
    pub holder: Holder,
    /// The holder's journal.
    pub journal: Journal,
    /// The run's history before.
    pub history: History,
}

/// Takes up the run in a folder. From then on nothing that an earlier holder writes counts.
///
/// # Errors
/// A later life of the job has the run, or the file system says no.
pub fn take_up(run: &Path, me: &Claim, patience: Patience) -> Result<TakenUp> {
    storage::make_folder(run, patience)?;
    let (number, length) = claim(run, me, patience)?;
    let holder = Holder::new(run, number, patience);
    tell(run, number, patience)?;
    // Stop if a newer holder took the run up meanwhile.
    holder.show()?;
    let before = history::parts(run, patience)?.into_iter().filter(|part| part.holder < number).collect();
    let mut history = history::merge(before);
    let last_checkpoint = seal::seal(run, &history.owners, number, patience)?;
    let after = history.records.last().map_or(0, |r| r.seq);
    let own = holder::journal(run, number);
    // Events that cannot be written now wait for the next call.
    let mut journal = Journal::of(&own, holder.patient(Patience::NONE), length, after + 1);
    let mut line = Vec::new();
    let seal = Seal { after, first_checkpoint: last_checkpoint + 1 };
    encode(&Mark::Seal(seal), &mut line).map_err(Error::at(run))?;
    holder.show()?;
    journal.write(line)?;
    history.owners.add(number, seal.first_checkpoint);
    Ok(TakenUp { holder, journal, history })
}

/// Claims the next number; also returns the length of the journal that says so.
fn claim(run: &Path, me: &Claim, patience: Patience) -> Result<(u64, u64)> {
    for _ in 0..TRIES {
        storage::refresh(run);
        let parts = history::parts(run, patience)?;
        if let Some(newer) = later_life(&parts, me) {
            return Err(Error::Superseded { newer });
        }
        let number = parts.iter().map(|part| part.holder).chain(told(run, patience)?).max().unwrap_or(0) + 1;
        if let Some(gone) = gone(&parts, number) {
            return Err(Error::NoJournal(holder::journal(run, gone)));
        }
        let mut line = Vec::new();
        let claim = Claim { holder: number, ..me.clone() };
        encode(&Mark::Claim(claim), &mut line).map_err(Error::at(run))?;
        if create(run, number, &line, patience)? {
            return Ok((number, line.len() as u64));
        }
    }
    Err(Error::Storage { path: run.to_path_buf(), source: io::Error::other("others take the run up all the time") })
}

/// Holders of earlier versions had one journal in common, and numbers from the clock.
const FROM_CLOCK: u64 = 1_000_000_000_000;

/// The first holder before `number` whose journal was there and is not.
fn gone(parts: &[Part], number: u64) -> Option<u64> {
    let counted = parts.iter().map(|part| part.holder).filter(|holder| *holder < FROM_CLOCK);
    let newest = counted.max().unwrap_or(holder::FIRST);
    (holder::FIRST..number.min(newest + 1)).find(|n| parts.iter().all(|part| part.holder != *n))
}

/// A holder that belongs to a later start of the same job: an earlier start never takes over from a later one. Nodes end lives by
/// these numbers, too, so that one which slurmctld gives again, since it has forgotten a requeue, is let in no more than an
/// earlier one: the controller has its job requeued until the number is new.
fn later_life(parts: &[Part], me: &Claim) -> Option<u64> {
    let last = parts.last()?;
    let started = |part: &Part| {
        part.records().iter().rev().find_map(|record| match record.event {
            Event::Started { job, restart_count, .. } => Some((Some(job), restart_count)),
            _ => None,
        })
    };
    let (job, restart_count) =
        last.claim.as_ref().map(|claim| (claim.job, claim.restart_count)).or_else(|| started(last))?;
    (me.job.is_some() && job == me.job && restart_count > me.restart_count).then_some(last.holder)
}

/// Holders named by the tokens.
fn told(run: &Path, patience: Patience) -> Result<Vec<u64>> {
    let mut holders = Vec::new();
    for name in [fencing::FILE, fencing::OLDER_FILE] {
        let content = storage::read_if_there(&run.join(name), patience)?;
        holders.extend(content.and_then(|text| serde_json::from_slice::<Token>(&text).ok()).map(|token| token.holder));
    }
    Ok(holders)
}

/// Creates a holder's journal with its first line atomically, also on network file systems. Returns whether it is
/// new.
fn create(run: &Path, number: u64, line: &[u8], patience: Patience) -> Result<bool> {
    let journal = holder::journal(run, number);
    let beside = run.join(format!(".claim-{number}-{}", unique()));
    let written = patience.with(|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&beside)?;
        file.write_all(line)?;
        file.sync_all()
    });
    written.map_err(Error::at(&beside))?;
    let linked = patience.with(|| match fs::hard_link(&beside, &journal) {
        Ok(()) => Ok(true),
        // The server may have done it while its answer was lost: the second try then finds the file.
        Err(e) => match is_same(&beside, &journal) {
            Ok(true) => Ok(true),
            _ if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            _ => Err(e),
        },
    });
    let created = match linked {
        Err(e) if has_no_links(&e) => create_alone(&journal, line),
        other => other,
    };
    let _ = fs::remove_file(&beside);
    let created = created.map_err(Error::at(&journal))?;
    patience.with(|| storage::sync_folder(run)).map_err(Error::at(run))?;
    Ok(created)
}

/// As [`create`], on file systems without hard links.
fn create_alone(journal: &Path, line: &[u8]) -> io::Result<bool> {
    match OpenOptions::new().write(true).create_new(true).open(journal) {
        Ok(mut file) => file.write_all(line).and_then(|()| file.sync_all()).map(|()| true),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

fn has_no_links(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS | libc::EMLINK | libc::EXDEV))
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let key = |path: &Path| fs::symlink_metadata(path).map(|m| (m.dev(), m.ino()));
    Ok(key(one)? == key(other)?)
}

/// A unique name. Host name and process id do not suffice: containers and reboots repeat them.
fn unique() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let chance = RandomState::new().build_hasher().finish();
    format!("{}-{}-{:x}-{chance:x}", name.to_string_lossy().replace('/', "_"), std::process::id(), since.as_nanos())
}

/// Writes the token, for the processes of earlier holders.
fn tell(run: &Path, holder: u64, patience: Patience) -> Result<()> {
    let token = Token { version: protocol::VERSION, holder, ..Token::default() };
    write_token(run, fencing::FILE, &token, patience)?;
    // Relays and sandboxes of earlier versions read the older file.
    if storage::is_there(&run.join(fencing::OLDER_FILE), patience)? {
        write_token(run, fencing::OLDER_FILE, &token, patience)?;
    }
    Ok(())
}

/// Writes a token; of two holders that write at once, each has a temporary name of its own.
pub(crate) fn write_token(run: &Path, name: &str, token: &Token, patience: Patience) -> Result<()> {
    let (file, beside) = (run.join(name), run.join(format!("{name}.{}.partial", token.holder)));
    let text = serde_json::to_vec(token).map_err(|e| Error::at(&file)(e.into()))?;
    patience.with(|| storage::write_by(&file, &beside, &text)).map_err(Error::at(&file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn claim_of(restart_count: u32) -> Claim {
        Claim { job: Some(7), restart_count, node: "n1".into(), at_s: 1.0, ..Claim::default() }
    }

    fn taken(run: &Path, restart_count: u32) -> Result<TakenUp> {
        take_up(run, &claim_of(restart_count), Patience::NONE)
    }

    fn event(reason: &str) -> Vec<(f64, Event)> {
        vec![(1.0, Event::CheckpointFailed { reason: reason.into() })]
    }

    #[test]
    fn each_holder_goes_on_where_the_one_before_was_and_the_one_before_stops() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("c/7.1");
        let mut first = taken(&run, 0).unwrap();
        assert_eq!((first.holder.number(), first.history.records.len()), (Some(1), 0));
        first.journal.append(event("one")).unwrap();
        let mut second = taken(&run, 0).unwrap();
        assert_eq!((second.holder.number(), second.history.records.len()), (Some(2), 1));
        assert!(first.journal.append(event("late")).unwrap_err().is_superseded());
        assert_eq!(second.journal.append(event("two")).unwrap()[0].seq, 2);
        let third = taken(&run, 1).unwrap();
        assert_eq!(third.history.records.iter().map(|r| r.seq).collect::<Vec<_>>(), [1, 2]);
        assert!(run.join("journal.3").exists() && third.history.conflicts.is_empty());
    }

    #[test]
    fn what_is_left_of_an_earlier_life_of_the_job_never_follows_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let first = taken(dir.path(), 0).unwrap();
        let second = taken(dir.path(), 1).unwrap();
        assert!(matches!(taken(dir.path(), 0), Err(Error::Superseded { newer: 2 })));
        assert!(first.holder.show().is_err());
        second.holder.show().unwrap();
        // Another job, or a command outside Slurm, may.
        let other = Claim { job: None, ..claim_of(0) };
        assert_eq!(take_up(dir.path(), &other, Patience::NONE).unwrap().holder.number(), Some(3));
    }

    #[test]
    fn of_many_that_take_a_run_up_at_once_each_has_a_number_of_its_own_and_one_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        let mut taken_up: Vec<TakenUp> = thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| taken(run, 0))).collect();
            all.into_iter().filter_map(|one| one.join().unwrap().ok()).collect()
        });
        let mut numbers: Vec<_> = taken_up.iter().map(|t| t.holder.number().unwrap()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), taken_up.len());
        let left = taken_up.iter_mut().filter_map(|t| t.journal.append(event("I am")).ok()).count();
        assert_eq!(left, 1, "of {numbers:?}");
    }

    #[test]
    fn a_run_without_the_journal_of_an_earlier_holder_is_not_taken_up() {
        for gone in [1, 2] {
            let dir = tempfile::tempdir().unwrap();
            for _ in 0..2 {
                take_up(dir.path(), &Claim::default(), Patience::NONE).unwrap();
            }
            fs::remove_file(holder::journal(dir.path(), gone)).unwrap();
            let again = take_up(dir.path(), &Claim::default(), Patience::NONE);
            // Of the last one nobody can tell whether it ever was there, but by its token.
            assert_eq!(matches!(again, Err(Error::NoJournal(_))), gone == 1, "{gone}");
        }
        let dir = tempfile::tempdir().unwrap();
        take_up(dir.path(), &Claim::default(), Patience::NONE).unwrap();
        fs::remove_file(holder::journal(dir.path(), 1)).unwrap();
        assert!(matches!(take_up(dir.path(), &Claim::default(), Patience::NONE), Err(Error::NoJournal(_))));
    }

    #[test]
    fn the_run_of_a_version_before_is_taken_up_and_its_processes_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path();
        let mut lines = Vec::new();
        encode(&protocol::Record { seq: 1, at_s: 1.0, event: event("old").remove(0).1 }, &mut lines).unwrap();
        fs::write(run.join("journal"), &lines).unwrap();
        fs::write(run.join("turns"), r#"{"version":1,"holder":1790000000000,"over":{"g0":2}}"#).unwrap();
        fs::create_dir_all(run.join("checkpoints/4")).unwrap();
        fs::write(run.join("checkpoints/4/manifest.json"), "{}").unwrap();
        let mut new = taken(run, 1).unwrap();
        let number = new.holder.number().unwrap();
        assert_eq!(number, 1_790_000_000_001);
        assert_eq!(new.journal.append(event("new")).unwrap()[0].seq, 2);
        for name in ["turns", "fencing-token"] {
            let token = Token::read(&run.join(name)).unwrap();
            assert_eq!((token.holder, token.over.len()), (number, 0), "{name}");
        }
        let manifest = |number, holder| protocol::Manifest { number, holder, ..Default::default() };
        assert!(new.history.owners.is_rightful(&manifest(4, None)));
        assert!(!new.history.owners.is_rightful(&manifest(5, None)));
        // One of that version that goes on after all numbers itself by the clock.
        fs::write(run.join("turns"), r#"{"version":1,"holder":1790000000002,"over":{}}"#).unwrap();
        assert!(new.holder.show().unwrap_err().is_superseded());
    }

    #[test]
    fn where_a_file_has_one_name_only_a_number_is_given_once_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("journal");
        assert!(create_alone(&journal, b"mine").unwrap());
        assert!(!create_alone(&journal, b"yours").unwrap());
        assert_eq!(fs::read(&journal).unwrap(), b"mine");
    }
}

//! What a run remembers of its script's `srun` calls: which ended and how, and what a recovery line makes of that.
//!
//! `RUN/calls/` holds one file for each call, named by what tells calls apart and by how many alike came before it.
//! The wrapper opens and settles the folder, the stand-in for `srun` ([`crate::srun`]) reads and writes it.

mod left;
mod outputs;
mod stand_ins;
#[cfg(test)]
mod tests;

pub use left::{NodeLeft, Present};
pub use stand_ins::LAUNCHERS;
pub(crate) use stand_ins::{function, is_of_function};

use left::Known;
use run::{Patience, storage, storage::gone, write_durably};
use serde::{Deserialize, Serialize};
use stand_ins::stand_in;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::Xxh3;

/// Tells the stand-in where the folder is, and for which job: `4711:/folder`.
pub const VARIABLE: &str = "JOULEPOINT_CALLS";

/// File that tells the script's beginnings apart.
const LIFE: &str = "life";

/// File that is there once a step was told to have other words than before.
const TOLD: &str = "other-words";

/// Where programs are looked for if nothing says so.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A storage that fails is waited for: what cannot be read is not absent.
const PATIENCE: Patience = Patience::LONG;

/// How long a run must be seen to go on after a call that ended with an error, s: a node that dies fails its step
/// before anybody says why.
pub const DOUBT_S: f64 = 60.0;

/// Largest file of a command that is looked into to notice a change, bytes.
const SCRIPT_LIMIT_BYTES: u64 = 16 << 20;

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Place among all calls of the script, from 1.
    pub number: usize,
    /// What tells it from others: words, folder, input, output; the same for calls that are alike.
    pub key: String,
    /// The words, for people.
    pub command: String,
    /// When it began for the first time.
    pub begun_s: f64,
    /// How it ended; absent while it is to be run.
    pub ended: Option<End>,
    /// Where it writes while it runs.
    #[serde(default)]
    pub targets: Vec<Target>,
}

/// A file that the script had opened for a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Descriptor: 1 or 2.
    pub descriptor: i32,
    /// The file.
    #[serde(with = "protocol::name")]
    pub path: PathBuf,
    /// First byte of the call.
    pub start: u64,
    /// First byte of what the call writes since it was started last.
    pub from: u64,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at_s: f64,
    /// Exit code.
    pub code: i32,
    /// What it wrote to files that the script had opened for it.
    pub outputs: Vec<Output>,
}

/// What a call wrote to one file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Descriptor: 1 or 2.
    pub descriptor: i32,
    /// First byte.
    pub start: u64,
    /// Byte after the last.
    pub end: u64,
    /// File with a copy beside the record; absent if it was too large.
    pub saved: Option<String>,
}

/// The folder of a run's calls.
#[derive(Clone, Debug)]
pub struct Calls {
    folder: PathBuf,
    /// The beginning of the script to which a stand-in belongs.
    life: Option<String>,
}

/// What a recovery line means for a script that is started again.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// Whether the line is to be brought back: not if all that ran when it was made has ended since.
    pub line_is_needed: bool,
    /// End of the last call that is not run again.
    pub kept_until_s: Option<f64>,
    /// Sentences on calls that had ended and are run again, since what they left is not here.
    pub again: Vec<String>,
}

impl Calls {
    /// Opens the folder of a run and puts the stand-in into it; what another script left is forgotten.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(run: &Path, argv: &[String]) -> io::Result<Calls> {
        let calls = Calls { folder: run.join("calls"), life: None };
        for folder in [calls.folder.clone(), calls.claims(), calls.bin(), calls.unsettled_folder()] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        stand_in(&stand_ins::us()?, &calls.bin().join("srun"), true)?;
        let script = fingerprint(argv);
        let known = calls.folder.join("script");
        match fs::read_to_string(&known) {
            Ok(before) if before == script => {}
            Ok(before) if before == fingerprint_of_old(argv) => write_durably(&known, script.as_bytes())?,
            Ok(_) => {
                protocol::say!("joulepoint: the script has changed, so all of its steps are run again");
                calls.forget_all()?;
                write_durably(&known, script.as_bytes())?;
            }
            Err(_) => write_durably(&known, script.as_bytes())?,
        }
        Ok(calls)
    }

    /// The folder that the environment names, if it is this job's and the script has not begun anew since: what is left
    /// of its last life, on a node that Slurm has not ended yet, must not speak for this one.
    pub fn of_environment() -> Option<Calls> {
        let value = std::env::var_os(VARIABLE)?.into_vec();
        let mut words = value.splitn(3, |b| *b == b':').map(|word| OsString::from_vec(word.to_vec()));
        let (job, life, folder) = (words.next()?, words.next()?.into_string().ok()?, PathBuf::from(words.next()?));
        let calls = Calls { folder, life: Some(life) };
        let is_of_job = job == std::env::var_os("SLURM_JOB_ID").unwrap_or_default();
        // Unknown is yes: a step would be in no record.
        let is_ours = is_of_job && storage::is_there(&calls.folder, PATIENCE).unwrap_or(true);
        (is_ours && !calls.is_over(PATIENCE)).then_some(calls)
    }

    /// What the script must see so that its calls are remembered.
    pub fn variables(&self) -> Vec<(String, String)> {
        let job = std::env::var("SLURM_JOB_ID").unwrap_or_default();
        let path = std::env::var("PATH").unwrap_or_else(|_| PATH.to_string());
        vec![
            ("PATH".to_string(), format!("{}:{path}", self.bin().display())),
            (
                VARIABLE.to_string(),
                format!("{job}:{}:{}", self.now_living(PATIENCE).unwrap_or_default(), self.folder.display()),
            ),
        ]
    }

    /// The script begins again from its top.
    ///
    /// # Errors
    /// What the file system says.
    pub fn begin(&self) -> io::Result<()> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        fs::write(self.folder.join(LIFE), format!("{}.{}", now.as_nanos(), std::process::id()))?;
        for claim in storage::names(&self.claims(), PATIENCE).map_err(io::Error::other)? {
            gone(PATIENCE.with(|| fs::remove_file(self.claims().join(&claim))))?;
        }
        self.note_outputs()?;
        gone(fs::remove_file(self.folder.join(TOLD)))?;
        gone(fs::remove_file(self.closed()))
    }

    /// From now on nothing counts as ended: the script is being stopped.
    pub fn close(&self) {
        if let Err(e) = fs::write(self.closed(), "") {
            tracing::warn!(%e, "steps that are stopped now may count as ended");
        }
    }

    /// Whether the script is being stopped, or has begun anew. Asked often, by who has signals to hear, too.
    pub fn is_closed(&self) -> bool {
        self.is_closed_by(Patience::NONE)
    }

    /// The same before something is written down for good.
    pub fn is_closed_for_certain(&self) -> bool {
        self.is_closed_by(PATIENCE)
    }

    fn is_closed_by(&self, patience: Patience) -> bool {
        storage::is_there(&self.closed(), patience).unwrap_or(false) || self.is_over(patience)
    }

    /// Unknown is no: who is left of an earlier beginning is rare, and a storage that fails is not.
    fn is_over(&self, patience: Patience) -> bool {
        self.life.as_ref().is_some_and(|life| self.now_living(patience).is_some_and(|now| now != *life))
    }

    /// The present beginning of the script; none if it cannot be read.
    fn now_living(&self, patience: Patience) -> Option<String> {
        let read = storage::read_if_there(&self.folder.join(LIFE), patience);
        let read = read.inspect_err(|e| tracing::warn!(%e, "which beginning of the script this is"));
        Some(String::from_utf8_lossy(&read.ok()?.unwrap_or_default()).into_owned())
    }

    /// Takes the next number for a call; tells it, and how many calls with this key came before.
    ///
    /// # Errors
    /// What the file system says.
    pub fn claim(&self, key: &str) -> io::Result<(usize, usize)> {
        let made = storage::names(&self.claims(), PATIENCE).map_err(io::Error::other)?;
        let mut before = 0;
        for name in &made {
            before += usize::from(self.key_of_claim(name)?.is_some_and(|of| of == key));
        }
        let claim = |number: usize| self.claims().join(format!("{key}.{number}"));
        // A link that was made though the storage said that it was not is known again.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let own = format!("{key}/{}.{}", now.as_nanos(), std::process::id());
        let is_own =
            |number: usize| PATIENCE.with(|| fs::read_link(claim(number))).is_ok_and(|to| to == Path::new(&own));
        // Making a link is one act: no two calls with one key get one number.
        loop {
            match PATIENCE.with(|| symlink(&own, claim(before + 1))) {
                Ok(()) => break,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && is_own(before + 1) => break,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => before += 1,
                Err(e) => return Err(e),
            }
        }
        Ok((made.len() + 1, before))
    }

    /// The key of a claim, `KEY.NUMBER`; those of a version before have the number alone, and lead to their keys.
    fn key_of_claim(&self, name: &OsStr) -> io::Result<Option<OsString>> {
        if let Some((key, _)) = name.to_str().and_then(|name| name.rsplit_once('.')) {
            return Ok(Some(key.into()));
        }
        match PATIENCE.with(|| fs::read_link(self.claims().join(name))) {
            Ok(to) => Ok(to.iter().next().map(OsStr::to_os_string)),
            // One of an earlier life came late.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// A call of an earlier life that this one has not made, and that differs from `command` in some of its words only; told once in
    /// a life, and only while no other call runs, which might be it.
    pub fn alike(&self, command: &str) -> Option<String> {
        if self.folder.join(TOLD).exists() {
            return None;
        }
        let made = storage::names(&self.claims(), Patience::NONE).ok()?;
        let known = storage::names(&self.folder, Patience::NONE).ok()?;
        // In a script's first life nothing is known of what it has not called.
        if known.iter().filter(|name| name.to_string_lossy().ends_with(".json")).count() < made.len() {
            return None;
        }
        let keys: Vec<OsString> = made.iter().filter_map(|claim| self.key_of_claim(claim).ok().flatten()).collect();
        let is_made = |name: &str| {
            let (key, number) = name.rsplit_once('.').unwrap_or((name, "1"));
            let times = keys.iter().filter(|of| *of == key).count();
            number.parse().is_ok_and(|number: usize| number <= times)
        };
        let (made, others): (Vec<_>, Vec<_>) = self.all().ok()?.into_iter().partition(|(name, _)| is_made(name));
        let mut alike = others.into_iter().map(|(_, call)| call.command).filter(|before| are_alike(before, command));
        let before = alike.next().filter(|_| made.iter().all(|(_, call)| call.ended.is_some()))?;
        fs::File::create_new(self.folder.join(TOLD)).is_ok().then_some(before)
    }

    /// What is known of a call; nothing of one whose record is torn.
    ///
    /// # Errors
    /// What the file system says for as long as it is tried: then nobody knows whether it has ended.
    pub fn read(&self, name: &str) -> io::Result<Option<Call>> {
        let text = storage::read_if_there(&self.folder.join(format!("{name}.json")), PATIENCE);
        Ok(text.map_err(io::Error::other)?.and_then(|text| serde_json::from_slice(&text).ok()))
    }

    /// Notes that a call begins: whole or not at all, but not synced, since a step must not wait for the disk.
    ///
    /// # Errors
    /// What the file system says.
    pub fn note(&self, name: &str, call: &Call) -> io::Result<()> {
        let beside = self.folder.join(format!("{name}.partial"));
        fs::write(&beside, serde_json::to_vec(call)?)?;
        fs::rename(beside, self.folder.join(format!("{name}.json")))
    }

    /// Remembers a call durably.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, name: &str, call: &Call) -> io::Result<()> {
        write_durably(&self.folder.join(format!("{name}.json")), &serde_json::to_vec(call)?)
    }

    /// Whether these calls were made in this very life of the job, on these nodes; it is the next one's to know, too.
    ///
    /// # Errors
    /// What the file system says.
    pub fn is_same_life(&self, life: &str) -> io::Result<bool> {
        let file = self.folder.join("record");
        let before = match fs::read_to_string(&file) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            read => read?,
        };
        if before != life {
            write_durably(&file, life.as_bytes())?;
        }
        Ok(before == life)
    }

    /// A call has ended, and it is not known yet what it has left on its nodes.
    ///
    /// # Errors
    /// What the file system says.
    pub fn unsettle(&self, name: &str) -> io::Result<()> {
        fs::write(self.unsettled_folder().join(name), "")
    }

    /// Calls that have ended, and of which it is not known yet what they have left on their nodes.
    ///
    /// # Errors
    /// What the file system says.
    pub fn unsettled(&self) -> io::Result<Vec<String>> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        fs::read_dir(self.unsettled_folder())?.map(name).collect()
    }

    /// Keeps what a call that ended then has left on which nodes; nothing is kept if nobody can know.
    ///
    /// # Errors
    /// What the file system says.
    pub fn keep_left(&self, name: &str, at_s: f64, nodes: Option<Vec<NodeLeft>>) -> io::Result<()> {
        if let Some(nodes) = nodes {
            write_durably(&self.left_file(name), &serde_json::to_vec(&Known { at_s, nodes })?)?;
        }
        gone(fs::remove_file(self.unsettled_folder().join(name)))
    }

    /// What a call has left, if that is known.
    fn left(&self, name: &str, call: &Call) -> Option<Vec<NodeLeft>> {
        let text = storage::read_if_there(&self.left_file(name), PATIENCE).ok()??;
        let known: Known = serde_json::from_slice(&text).ok()?;
        call.ended.as_ref().filter(|end| end.at_s == known.at_s).map(|_| known.nodes)
    }

    fn left_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.left"))
    }

    fn unsettled_folder(&self) -> PathBuf {
        self.folder.join("unsettled")
    }

    /// The folder itself, with the copies of outputs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a copy of an output is kept.
    pub fn output(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Whether other calls have written to a file of this one's since it began, or may yet.
    pub fn has_output_in_common(&self, name: &str) -> bool {
        let (all, Ok(Some(own))) = (self.all().unwrap_or_default(), self.read(name)) else { return true };
        let is_own = |target: &Target| own.targets.iter().any(|mine| mine.path == target.path);
        let writes = |other: &Call| other.ended.as_ref().is_none_or(|end| end.at_s >= own.begun_s);
        all.iter().any(|(of, call)| of != name && writes(call) && call.targets.iter().any(is_own))
    }

    /// The files that calls write to; those of which nothing can be read are left out.
    pub fn targets(&self) -> Vec<PathBuf> {
        let all = self.all().unwrap_or_default();
        all.into_iter().flat_map(|(_, call)| call.targets).map(|target| target.path).collect()
    }

    /// Makes the record agree with the recovery line that was begun at `line_s`, for a run that was last seen well
    /// at `alive_s` and goes on at `present`, which is absent outside Slurm.
    ///
    /// # Errors
    /// What the file system says.
    pub fn settle(&self, line_s: Option<f64>, alive_s: f64, present: Option<&Present>) -> io::Result<Settled> {
        let mut calls = self.all()?;
        let before: Vec<Call> = calls.iter().map(|(_, c)| c.clone()).collect();
        let mut after = before.clone();
        let lacks = |(name, call): &(String, Call)| {
            let ended = present.filter(|_| call.ended.is_some());
            ended.and_then(|present| present.lacks(self.left(name, call).as_deref()))
        };
        let lacking: Vec<Option<String>> = calls.iter().map(lacks).collect();
        let line_is_needed = settle(&mut after, line_s, alive_s, |i| lacking[i].is_some());
        let sentence = |(call, why): (&Call, &Option<String>)| {
            let Call { number, command, .. } = call;
            why.as_ref().map(|why| format!("step {number} ({command}) is run again: {why}"))
        };
        let again = before.iter().zip(&lacking).filter_map(sentence).collect();
        for ((name, call), new) in calls.iter_mut().zip(&after) {
            if line_is_needed && line_s.is_some_and(|s| new.begun_s > s) {
                self.forget(name)?;
            } else if call != new {
                PATIENCE.with(|| self.write(name, new))?;
            }
        }
        let kept_until_s = after.iter().filter_map(|c| c.ended.as_ref()).map(|e| e.at_s).reduce(f64::max);
        Ok(Settled { line_is_needed, kept_until_s, again })
    }

    fn all(&self) -> io::Result<Vec<(String, Call)>> {
        let mut all = Vec::new();
        for name in storage::names(&self.folder, PATIENCE).map_err(io::Error::other)? {
            let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) else { continue };
            all.extend(self.read(name)?.map(|call| (name.to_string(), call)));
        }
        Ok(all)
    }

    /// Forgets a call.
    ///
    /// # Errors
    /// What the file system says.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        gone(PATIENCE.with(|| fs::remove_file(self.folder.join(format!("{name}.json")))))
    }

    fn forget_all(&self) -> io::Result<()> {
        self.folder.parent().map_or(Ok(()), crate::fallback::forget)?;
        self.all()?.iter().try_for_each(|(name, _)| self.forget(name))
    }

    fn claims(&self) -> PathBuf {
        self.folder.join("claims")
    }

    fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }

    fn closed(&self) -> PathBuf {
        self.folder.join("closed")
    }
}

/// Takes back what cannot count as ended, and of what has ended that which `lacks` what it left; tells whether the line is
/// needed.
fn settle(calls: &mut [Call], line_s: Option<f64>, alive_s: f64, lacks: impl Fn(usize) -> bool) -> bool {
    for call in calls.iter_mut() {
        call.ended.take_if(|e| e.code != 0 && e.at_s + DOUBT_S > alive_s);
    }
    take_back_indistinct(calls);
    let end_s = |c: &Call| c.ended.as_ref().map_or(f64::INFINITY, |e| e.at_s);
    let ran = |c: &Call| line_s.is_some_and(|line_s| c.begun_s <= line_s && end_s(c) > line_s);
    let ran_at_line: Vec<bool> = calls.iter().map(ran).collect();
    for (i, call) in calls.iter_mut().enumerate() {
        call.ended.take_if(|_| lacks(i));
    }
    take_back_indistinct(calls);
    let Some(line_s) = line_s else { return true };
    let mut running = calls.iter().zip(ran_at_line).filter(|(_, ran)| *ran).map(|(c, _)| c).peekable();
    if running.peek().is_some() && running.all(|c| c.ended.is_some()) {
        return false;
    }
    for call in calls.iter_mut() {
        call.ended.take_if(|e| e.at_s > line_s);
    }
    true
}

/// Calls that are alike and ran at the same time cannot be told apart: they have ended only when all of them have.
fn take_back_indistinct(calls: &mut [Call]) {
    loop {
        let open: Vec<Call> = calls.iter().filter(|c| c.ended.is_none()).cloned().collect();
        let indistinct = |c: &Call, end: &End| open.iter().any(|other| other.key == c.key && other.begun_s < end.at_s);
        let next = calls.iter_mut().find(|c| c.ended.as_ref().is_some_and(|e| indistinct(c, e)));
        let Some(call) = next else { return };
        call.ended = None;
    }
}

/// What a script is: its content, and its arguments. Its path is not part of it, since every node has its own copy of a batch script;
/// nor is what stands in files that its arguments name, which it may write to. Of a program that is no script the first file that
/// its arguments name may be one, for an interpreter.
pub fn fingerprint(argv: &[String]) -> String {
    let mut has_script = false;
    hash_of(argv, |word| {
        let content = if has_script { None } else { content(word) };
        has_script |= content.as_ref().is_some_and(|text| !text.starts_with(ELF));
        content
    })
}

/// The same as earlier versions have it, for runs that outlive an upgrade: with the content of all files that are named.
fn fingerprint_of_old(argv: &[String]) -> String {
    hash_of(argv, content)
}

/// The hash of words, each with what stands for it, if anything does.
fn hash_of(argv: &[String], mut instead: impl FnMut(&str) -> Option<Vec<u8>>) -> String {
    let mut hash = Xxh3::new();
    for word in argv {
        hash.update(instead(word).as_deref().unwrap_or(word.as_bytes()));
        hash.update(&[0]);
    }
    format!("{:032x}", hash.digest128())
}

/// What stands in a file that is small enough for a script.
fn content(word: &str) -> Option<Vec<u8>> {
    let is_small = fs::metadata(word).is_ok_and(|m| m.is_file() && m.len() <= SCRIPT_LIMIT_BYTES);
    is_small.then(|| fs::read(word).ok()).flatten()
}

/// How a program begins that is no script.
const ELF: &[u8] = b"\x7fELF";

/// Whether two commands of a launcher are of as many words, and have more than half of those behind its name in common.
fn are_alike(one: &str, other: &str) -> bool {
    let (one, other): (Vec<&str>, Vec<&str>) = (one.split(' ').collect(), other.split(' ').collect());
    let same = one.iter().zip(&other).skip(1).filter(|(a, b)| a == b).count();
    one.len() == other.len() && one.first() == other.first() && 2 * same > one.len() - 1
}

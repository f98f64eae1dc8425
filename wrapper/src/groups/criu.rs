//! Engine `criu` for groups that do not talk: the tasks of each below wardens of its own, dumped into its own lines.
//!
//! All groups write to the script's standard output, where nothing of one of them can be taken back when it goes back.
//! So each writes to files of its own, and what they have is printed when a line has it, or the call is over: nothing
//! is printed that will be written again.

use super::board::{Seat, Seats, Way, Within, tell};
use super::words::{Outputs, Told};
use crate::app::interval_variables;
use crate::checkpoints::Checkpoints;
use crate::criu::is_own;
use crate::criu_steps::length_from;
use crate::groups::split;
use crate::mail::{Post, Tries};
use crate::ports::{Engine, Happening};
use crate::sandboxes::fit;
use crate::wardens::{Dump, Standing, Wardens};
use protocol::Manifest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use xxhash_rust::xxh3::xxh3_128;

/// Names the line from which a group starts.
const LINE: &str = "JOULEPOINT_LINE";

/// File in a line that tells what it knows of the script's calls.
const CALLS: &str = "calls.json";

/// What a line knows of the calls, by name.
type Known = BTreeMap<String, Of>;

/// What a line knows of one call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Of {
    /// Whether the group's share of it had ended well.
    has_ended: bool,
    /// What it had written to standard output and standard error, bytes.
    written_bytes: [u64; 2],
}

/// A call, as lines know it.
#[derive(Clone, Debug)]
pub struct DumpedCall {
    name: String,
    words: String,
    /// Why its tasks are in no sandbox, if so.
    outside: Option<String>,
}

/// A call in which a group has a step, and what its output files had when that was started, bytes.
type Open = (DumpedCall, [u64; 2]);

/// What puts the tasks of all groups into sandboxes.
#[derive(Clone)]
pub struct Dumped {
    criu: PathBuf,
    run: PathBuf,
    limit_s: f64,
    /// How many calls there were of the same words.
    alike: Arc<Mutex<BTreeMap<String, u32>>>,
    /// The shares that have ended well, by group.
    over: Arc<Mutex<BTreeMap<usize, Known>>>,
}

fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Dumped {
    /// Sandboxes below this command, for the run in this folder; a dump or restore takes `limit_s` at most.
    pub fn new(criu: &Path, run: &Path, limit_s: f64) -> Dumped {
        let (criu, run) = (criu.to_path_buf(), run.to_path_buf());
        Dumped { criu, run, limit_s, alike: Arc::default(), over: Arc::default() }
    }

    /// The next call of these words: alike after every beginning of the script.
    pub fn call(&self, args: &[String]) -> DumpedCall {
        let words = args.join(" ");
        let key = format!("{:032x}", xxh3_128(args.join("\0").as_bytes()));
        let mut alike = locked(&self.alike);
        let count = alike.entry(key.clone()).or_default();
        *count += 1;
        let outside = of_groups(args).err();
        if let Some(why) = &outside {
            protocol::say!("joulepoint: no checkpoint while srun {words} runs: {why}");
        }
        DumpedCall { name: format!("{key}.{count}"), words, outside }
    }

    /// The folder in which the wardens of a group find its engine.
    fn folder(&self, group: usize) -> PathBuf {
        self.run.join("groups").join(format!("g{group}"))
    }

    fn outputs(&self, group: usize, of: &DumpedCall) -> Outputs {
        ["out", "err"].map(|stream| self.folder(group).join(format!("{}.{stream}", of.name)))
    }

    /// How a group's share is started; none if it had ended before the line.
    pub(super) fn way(
        &self,
        group: usize,
        of: &DumpedCall,
        tasks: usize,
        environment: &[(String, String)],
    ) -> Option<Way> {
        let line = environment.iter().find(|(name, _)| name == LINE).map(|(_, line)| Path::new(line));
        let known = line.and_then(|line| known(line).remove(&of.name));
        if let Some(ended) = known.filter(|k| k.has_ended) {
            protocol::say!("joulepoint: srun {} had ended in group {group} before; not run again there", of.words);
            locked(&self.over).entry(group).or_default().insert(of.name.clone(), ended);
            return None;
        }
        let outputs = self.outputs(group, of);
        let mut from_bytes = known.map_or([0; 2], |k| k.written_bytes);
        for (path, bytes) in outputs.iter().zip(&mut from_bytes) {
            *bytes = cut(path, *bytes).unwrap_or_else(|e| {
                protocol::say!("joulepoint: what group {group} wrote is not put back: {}: {e}", path.display());
                0
            });
        }
        let words = self.words(group, of, tasks, line.filter(|_| known.is_some()));
        Some(Way { words, outputs: Some(outputs), from_bytes, ..Way::default() })
    }

    /// The words that go before a program's.
    fn words(&self, group: usize, of: &DumpedCall, tasks: usize, line: Option<&Path>) -> Vec<String> {
        let us = match (std::env::current_exe(), &of.outside) {
            (Ok(us), None) => us,
            _ => return Vec::new(),
        };
        let path = |p: &Path| p.to_string_lossy().into_owned();
        let mut words = vec![path(&us), "warden".to_string()];
        let pairs = [("--criu", path(&self.criu)), ("--run", path(&self.folder(group))), ("--call", of.name.clone())];
        let pairs = pairs.into_iter().chain(line.map(|line| ("--restore", path(line))));
        // The ranks and numbers that a task sees are those of all groups.
        let pairs = pairs.chain([("--tasks", tasks.to_string()), ("--limit-s", self.limit_s.to_string())]);
        words.extend(pairs.flat_map(|(name, value)| [name.to_string(), value]));
        words.push("--".to_string());
        words
    }

    /// A share has ended well.
    pub(super) fn over(&self, group: usize, of: &DumpedCall) {
        let written_bytes = self.outputs(group, of).map(|path| fs::metadata(path).map_or(0, |m| m.len()));
        let ended = Of { has_ended: true, written_bytes };
        locked(&self.over).entry(group).or_default().insert(of.name.clone(), ended);
    }

    /// Has what a group wrote printed, up to so many bytes.
    pub(super) fn print(&self, group: usize, of: &DumpedCall, upto_bytes: [u64; 2], to: &UnixStream) {
        tell(to, &Told::Print { outputs: self.outputs(group, of), upto_bytes });
    }

    /// Keeps in a line what it knows of the calls, when all tasks of a group stand still or have ended.
    fn keep(&self, group: usize, open: &[Open], all: &[Standing], into: &Path) -> Result<(), String> {
        let mut known = locked(&self.over).get(&group).cloned().unwrap_or_default();
        for (of, from_bytes) in open {
            let mut tasks = all.iter().filter(|s| s.member.call == of.name).peekable();
            if tasks.peek().is_none() {
                return Err(format!("srun {} has not started its tasks yet", of.words));
            }
            let add = |[out, err]: [u64; 2], s: &Standing| [out + s.carried_bytes[0], err + s.carried_bytes[1]];
            let carried = tasks.fold(*from_bytes, add);
            let mut written_bytes = [0; 2];
            for ((path, carried), written) in self.outputs(group, of).iter().zip(carried).zip(&mut written_bytes) {
                *written = File::open(path)
                    .and_then(|file| length_from(&file, carried))
                    .map_err(|e| format!("{}: {e}", path.display()))?;
            }
            known.insert(of.name.clone(), Of { has_ended: false, written_bytes });
        }
        let path = into.join(CALLS);
        let text = serde_json::to_vec(&known).map_err(|e| e.to_string())?;
        fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
    }
}

/// Whether sandboxes can hold the tasks of a call of groups.
fn of_groups(args: &[String]) -> Result<(), String> {
    fit(args)?;
    let (options, _) = split::options(args)?;
    let is_file =
        |(name, value): &&split::Named| matches!(name.as_str(), "output" | "error") && value.as_deref() != Some("none");
    match options.iter().find(is_file) {
        // Its tasks are numbered anew in each group, and Slurm numbers its step anew after a restart.
        Some((name, _)) => Err(format!("it writes by --{name}; write 'srun ... > FILE'")),
        None => Ok(()),
    }
}

/// What a line knows of the calls.
fn known(line: &Path) -> Known {
    fs::read(line.join(CALLS)).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// Forgets what was written to a file beyond so many bytes; how many it has then.
fn cut(path: &Path, bytes: u64) -> io::Result<u64> {
    let file = File::options().write(true).create(true).truncate(false).open(path)?;
    let bytes = bytes.min(file.metadata()?.len());
    file.set_len(bytes).map(|()| bytes)
}

impl Seats {
    /// The open calls in which a group has a step.
    fn open_of(&self, group: usize) -> Vec<Open> {
        let open = |seat: &Seat| Some((seat.dumped.clone()?, seat.running.get(&group)?.from_bytes));
        self.with(|all| all.values().filter_map(open).collect())
    }

    /// Ends the steps of a group.
    fn stop_all_of(&self, group: usize) {
        self.with(|all| {
            let running = all.values().filter(|s| s.running.contains_key(&group));
            running.for_each(|s| tell(&s.to, &Told::Stop { group }));
        });
    }

    /// Has printed what a line of a group has: it will not be written again.
    pub fn print(&self, group: usize, line: &Path) {
        let Within::Dumped(within) = &self.within else { return };
        let known = known(line);
        self.with(|all| {
            for seat in all.values() {
                if let Some((of, known)) = seat.dumped.as_ref().and_then(|of| Some((of, known.get(&of.name)?))) {
                    within.print(group, of, known.written_bytes, &seat.to);
                }
            }
        });
    }
}

/// The engine of one group.
pub struct GroupCriu {
    group: usize,
    post: Post,
    checkpoints: Checkpoints,
    seats: Seats,
    within: Dumped,
    wardens: Wardens,
    dumps: config::Criu,
    tries: Tries,
}

impl GroupCriu {
    /// An engine that listens for the tasks of a group on this host, which other nodes know as `host`.
    ///
    /// # Errors
    /// What the file system or the network says.
    pub fn listen(
        group: usize,
        post: Post,
        checkpoints: Checkpoints,
        seats: &Seats,
        within: &Dumped,
        host: &str,
        dumps: &config::Criu,
    ) -> io::Result<GroupCriu> {
        let folder = within.folder(group);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let ending = seats.clone();
        let lost = move |member: &::criu::line::Member| {
            protocol::say!(
                "joulepoint: task {} on {} was killed or is missing; group {group} goes back",
                member.rank,
                member.node
            );
            ending.stop_all_of(group);
        };
        let wardens = Wardens::listen(&folder, host, Box::new(lost))?;
        let (seats, within, dumps) = (seats.clone(), within.clone(), dumps.clone());
        Ok(GroupCriu { group, post, checkpoints, seats, within, wardens, dumps, tries: Tries::default() })
    }
}

impl Engine for GroupCriu {
    fn name(&self) -> &str {
        "criu"
    }

    fn on_demand(&self) -> bool {
        true
    }

    fn prepare(&mut self, from: Option<&Manifest>, interval_s: f64) -> Result<Vec<(String, String)>, String> {
        is_own(&self.within.run)?;
        self.wardens.forget();
        let mut environment = interval_variables(interval_s);
        let line = from.map(|manifest| self.checkpoints.path(manifest.number));
        environment.extend(line.map(|line| (LINE.to_string(), line.to_string_lossy().into_owned())));
        Ok(environment)
    }

    fn begin(&mut self, into: PathBuf) {
        let one = self.tries.begin();
        let (group, post, wardens) = (self.group, self.post.clone(), self.wardens.clone());
        let (seats, within, dumps) = (self.seats.clone(), self.within.clone(), self.dumps.clone());
        thread::spawn(move || {
            let open = seats.open_of(group);
            let outside = open.iter().find_map(|(of, _)| Some((of, of.outside.as_ref()?)));
            let files = match outside {
                Some((of, why)) => Err(format!("srun {} runs in no sandbox: {why}", of.words)),
                None => {
                    wardens.forget_ended(&|name| open.iter().any(|(of, _)| of.name == name));
                    let still = |all: &[Standing]| within.keep(group, &seats.open_of(group), all, &into);
                    let (limit_s, wanted) = (within.limit_s, || one.is_current());
                    wardens.dump(&Dump { into: &into, limit_s, dumps: &dumps, wanted: &wanted, still: &still })
                }
            };
            post.tell_of(&one, Happening::Checkpointed(files));
        });
    }

    fn give_up(&mut self) {
        self.tries.void();
    }
}

impl Drop for GroupCriu {
    fn drop(&mut self) {
        self.tries.void();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::criu::line::Member;

    fn args(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    fn standing(of: &DumpedCall, rank: u32, carried_bytes: [u64; 2]) -> Standing {
        let member = Member { call: of.name.clone(), rank, tasks: 2, node: "n".into(), step: None };
        Standing { member, carried_bytes }
    }

    #[test]
    fn what_a_group_wrote_after_its_line_is_forgotten_and_what_had_ended_is_not_run_again() {
        let (run, line) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dumped = || Dumped::new(Path::new("/criu"), run.path(), 9.0);
        let first = dumped();
        fs::create_dir_all(first.folder(1)).unwrap();
        let [one, two, other] = ["prog 1", "prog 2", "prog 2"].map(|line| first.call(&args(line)));
        assert_ne!(two.name, other.name, "calls of the same words are told apart");
        let way = first.way(1, &two, 2, &[]).unwrap();
        let words = way.words.join(" ");
        assert!(words.contains(" --tasks 2 ") && !words.contains("--restore"), "{words}");
        let [out, err] = way.outputs.unwrap();
        first.over(1, &one);
        let open = [(two.clone(), way.from_bytes)];
        assert!(first.keep(1, &open, &[], line.path()).unwrap_err().contains("has not started its tasks"));
        fs::write(&out, "before\n").unwrap();
        first.keep(1, &open, &[standing(&two, 2, [4, 0]), standing(&two, 3, [3, 0])], line.path()).unwrap();
        fs::write(&out, "before\nlater\n").unwrap();
        fs::write(&err, "later\n").unwrap();

        // The next wrapper.
        let next = dumped();
        let [one, two, other] = ["prog 1", "prog 2", "prog 2"].map(|line| next.call(&args(line)));
        let from = [(LINE.to_string(), line.path().to_string_lossy().into_owned())];
        assert!(next.way(1, &one, 2, &from).is_none(), "it had ended");
        let way = next.way(1, &two, 2, &from).unwrap();
        assert_eq!((way.from_bytes, fs::read_to_string(&out).unwrap().as_str()), ([7, 0], "before\n"));
        assert!(fs::read_to_string(&err).unwrap().is_empty());
        let restore = format!(" --restore {} ", line.path().display());
        assert!(way.words.join(" ").contains(&restore), "{:?}", way.words);
        let way = next.way(1, &other, 2, &from).unwrap();
        assert!(!way.words.join(" ").contains("--restore"), "the line has it not");
    }

    #[test]
    fn a_call_that_no_sandbox_of_a_group_can_hold_is_told_why() {
        let run = tempfile::tempdir().unwrap();
        let dumped = Dumped::new(Path::new("/criu"), run.path(), 9.0);
        for (line, why) in
            [("-o out.%t prog", "srun ... > FILE"), ("--label prog", "labels"), ("-i data prog", "--input")]
        {
            let of = dumped.call(&args(line));
            assert!(of.outside.as_ref().is_some_and(|said| said.contains(why)), "{line}: {of:?}");
            assert!(dumped.words(0, &of, 1, None).is_empty(), "{line} runs as it is");
        }
        assert_eq!(dumped.call(&args("-o none prog")).outside, None);
    }
}

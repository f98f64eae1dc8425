//! What belongs to a checkpoint beside CRIU's images, saved while the program stands still and put back before it
//! goes on: shared memory, temporary files, the sizes of the files it writes.

use crate::dumping::flush::{self, Failed, waiting};
use crate::inputs::{self, Missed};
use crate::relay::Relay;
use crate::sandbox::{self, Clocks};
use crate::task::Task;
use able::{peers, unshared};
use archive::{Archive, Commons, unpack};
use gpu::Suspended;
use increments::{Stop, Stoppable};
use leftovers::{LeftOut, Place};
use openfiles::by_size::{self, NotBack, Written};
use openfiles::held::{self, COMMON, InHand, SHARED_MEMORY, Writing};
use openfiles::patiently::{is_there, patiently};
use openfiles::read::{self, Folder, Read};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;
use turn::Turn;

pub mod place;
mod turn;

pub use turn::for_all;

const RECORD: &str = "sandbox.json";

/// Archive of the open files that are kept whole.
const OPEN: &str = "open.tar";

/// Archive of files that are only read.
const READ: &str = "read.tar";

/// The part of what is kept of files that are written over that is kept of those that are read.
const OF_OVERWRITTEN: u64 = 8;

/// Archive of the files that it made in folders that all programs of the node share.
const LOCAL: &str = "local.tar";

/// Archive of the program's temporary folder.
const TMP: &str = "tmp.tar";

/// Archive of a temporary folder that other jobs of the user may use, too: only what is missing is put back.
const SHARED: &str = "tmp-shared.tar";

/// How files in the run's folder begin that say where files of a node were put back.
const PUT_BACK: &str = "put-back";

/// Most files that are named in one line.
const MOST_NAMED: usize = 10;

/// Where a program has temporary files, which are lost with its node.
#[derive(Clone, Debug, Default)]
pub struct Temporaries {
    /// Its own temporary folder, if it has one.
    pub own: Option<PathBuf>,
    /// Whether other jobs of its user may have files there, too.
    pub is_shared: bool,
    /// When the job began to change files: its first life, as far as its checkpoints go back.
    pub began: Option<SystemTime>,
    /// Files made there after this moment, or after `began`, belong to the program; absent if other tasks of its job make
    /// files there too.
    pub since: Option<SystemTime>,
    /// Folders in which it may make files that are lost with its node.
    pub places: Vec<Place>,
    /// Whether `/dev/shm` is the node's.
    pub memory_is_shared: bool,
    /// When this sandbox began, or another task of its step.
    pub here_since: Option<SystemTime>,
    /// Whether the dump holds what was made in `places` since: of the tasks of a step one on each node does.
    pub keeps: bool,
    /// Files of its own that the restore put back there.
    pub local: Vec<PathBuf>,
    /// Where it is noted what was put back there for all tasks of its step on this node.
    pub for_all: Option<PathBuf>,
    /// Folders that stay out of the checkpoint.
    pub others: Vec<PathBuf>,
}

impl Temporaries {
    /// Whether something else of the checkpoint has a file of `/dev/shm`: the copy of one that is the sandbox's own, or the first
    /// task of the step, which keeps what was made there since it began.
    fn has_elsewhere(&self, path: &Path) -> bool {
        let is_new = || {
            let made = fs::symlink_metadata(path).map(|metadata| leftovers::made(&metadata));
            made.ok().zip(self.here_since).is_some_and(|(made, since)| made >= since)
        };
        !self.memory_is_shared || !self.keeps && is_new()
    }
}

/// The record of one dump.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Frozen {
    /// Process id of the program within its namespace.
    pub program: i32,
    /// The process id that the namespace gave out last.
    pub last_pid: i32,
    /// Pipes that carry standard output and error, by their numbers.
    pub pipes: Vec<Pipe>,
    /// Files that were open for writing.
    pub written: Vec<Written>,
    /// The node's name.
    #[serde(default)]
    pub host: String,
    /// Files that were only read.
    #[serde(default)]
    pub read: Vec<Read>,
    /// When the job began to change files.
    #[serde(default)]
    pub began: Option<SystemTime>,
    /// Folders that it needs, the outer ones first.
    #[serde(default)]
    pub needed: Vec<Folder>,
    /// Folders in which its processes worked.
    #[serde(default, with = "protocol::name::all")]
    pub folders: BTreeSet<PathBuf>,
    /// Where the file systems of these and of its files were mounted.
    #[serde(default, with = "protocol::name::all")]
    pub mounts: BTreeSet<PathBuf>,
    /// The clocks that count from the node's start; absent in a dump of an earlier version.
    #[serde(default)]
    pub clocks: Option<Clocks>,
    /// Whether user and group had their own ids in the sandbox; false in a dump of an earlier version, where both
    /// were 0.
    #[serde(default)]
    pub own_numbers: bool,
    /// What it had made in folders that all programs share: entries of these folders.
    #[serde(default, with = "protocol::name::all")]
    pub local: Vec<PathBuf>,
    /// Those folders.
    #[serde(default = "of_before")]
    pub places: Vec<Place>,
    /// What of it is not in the dump.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// Whether `/dev/shm` was the node's.
    #[serde(default)]
    pub memory_is_shared: bool,
    /// What it had on GPUs, if anything: that is in its images.
    #[serde(default)]
    pub gpus: Option<Suspended>,
    /// Whether it had a temporary folder of its own; of a dump of an earlier version that is taken for granted.
    #[serde(default = "is_granted")]
    pub has_tmp: bool,
}

fn is_granted() -> bool {
    true
}

/// The folders of dumps that name none.
fn of_before() -> Vec<Place> {
    leftovers::common(false)
}

/// A pipe of the program's output.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipe {
    /// Number of the pipe.
    pub inode: u64,
    /// Size of the output file behind the pipe, bytes; absent if it is no regular file.
    pub kept_bytes: Option<u64>,
    /// That file.
    #[serde(default, with = "protocol::name::option")]
    pub file: Option<PathBuf>,
    /// An incomplete line that was not passed on yet.
    #[serde(default)]
    pub held: Vec<u8>,
    /// What the output file has not taken yet, as one on a full disk.
    #[serde(default)]
    pub waiting: Vec<u8>,
}

/// Passes on all output of a stopped program; returns the pipes, which are empty then.
///
/// # Errors
/// A sentence.
pub fn pipes(relays: &mut [Relay]) -> Result<Vec<Pipe>, String> {
    let one = |relay: &mut Relay| {
        relay.drain().map_err(|e| format!("the output cannot be read: {e}"))?;
        relay.rest();
        let (inode, kept_bytes, file) = (relay.inode(), relay.kept_bytes(), relay.file());
        Ok(Pipe { inode, kept_bytes, file, held: relay.held().to_vec(), waiting: relay.waiting().to_vec() })
    };
    relays.iter_mut().map(one).collect()
}

/// Saves all that CRIU's images lack, until told to stop. Files that may be written over are kept whole up to
/// `overwritten_bytes`.
///
/// # Errors
/// A sentence naming the file.
pub fn save(
    program: i32,
    pipes: Vec<Pipe>,
    gpus: Option<Suspended>,
    temporaries: &Temporaries,
    overwritten_bytes: u64,
    into: &Path,
    stop: &Stop,
) -> Result<(), String> {
    let tree = tree(program);
    unshared::refuse(&tree).map_err(|e| e.to_string())?;
    let unseen = |e: io::Error| format!("open files: {e}");
    let mut open: BTreeSet<InHand> = held::of(&tree).map_err(unseen)?;
    let shared_memory = Path::new(SHARED_MEMORY);
    let is_elsewhere = |file: &InHand| file.path.starts_with(shared_memory) && temporaries.has_elsewhere(&file.path);
    open.retain(|file| !is_elsewhere(file));
    // If the temporary folder contained the run's folder, the archive would contain itself.
    let tmp = temporaries.own.as_deref().filter(|t| is_own_folder(t) && !into.starts_with(t));
    let is_in_tmp = |f: &InHand| !temporaries.is_shared && tmp.is_some_and(|t| f.path.starts_with(t));
    let whole = held::kept_whole(open.iter().filter(|f| !is_in_tmp(f)), overwritten_bytes);
    let written_over = open.iter().filter(|f| f.writing > Writing::Adds && !is_in_tmp(f)).map(|f| f.path.as_path());
    let stay: BTreeSet<&Path> = written_over.filter(|path| !whole.contains(path)).collect();
    let is_whole = |f: &InHand| whole.contains(&*f.path) || tmp.is_some_and(|t| f.path.starts_with(t));
    let written = by_size::written(&open, &is_whole, &|f| stay.contains(&*f.path)).map_err(unseen)?;
    let told = |what: &Path| {
        let what = what.display().to_string();
        move |e: io::Error| format!("{what}: {e}")
    };
    let pack = |name: &str, fill: &dyn Fn(&mut Archive<Stoppable>) -> io::Result<()>| {
        stop.create(&into.join(name)).and_then(|file| archive::pack(file, fill))
    };
    if !temporaries.memory_is_shared {
        pack("shm.tar", &|tar| tar.append_below(shared_memory)).map_err(told(shared_memory))?;
    }
    if let Some(tmp) = tmp {
        // What an earlier life has made may be there still, or have been put back.
        let since = temporaries.since.map(|here| temporaries.began.unwrap_or(here));
        match temporaries.is_shared {
            true => pack(SHARED, &|tar| tar.append_newer(tmp, since)),
            false => pack(TMP, &|tar| tar.append_below(tmp)),
        }
        .map_err(told(tmp))?;
    }
    let not: Vec<&Path> = temporaries.others.iter().map(PathBuf::as_path).chain([into]).chain(tmp).collect();
    let (local, left_out) = pack_local(&tree, temporaries, &not, &whole, &pack)?;
    pack(OPEN, &|tar| whole.iter().try_for_each(|path| tar.append(path))).map_err(told(Path::new("open files")))?;
    // What is in the temporary folder comes back with it. In groups other programs go on meanwhile, and nothing is kept whole.
    let most_bytes = read::MOST_KEPT_BYTES.min(overwritten_bytes / OF_OVERWRITTEN);
    let began = temporaries.began.unwrap_or_else(SystemTime::now);
    let mut read = read::read(&tree, &open, most_bytes, began).map_err(unseen)?;
    read.retain(|file| !tmp.is_some_and(|t| file.path.starts_with(t)));
    if read.iter().any(|file| file.is_kept) {
        let file = stop.create(&into.join(READ)).map_err(told(Path::new(READ)))?;
        pack_read(file, &mut read).map_err(told(Path::new("files that are read")))?;
    }
    let mut needed = read::folders(&tree, &open).map_err(unseen)?;
    needed.retain(|folder| !tmp.is_some_and(|t| folder.path().starts_with(t)));
    let last_pid = sandbox::last_pid().map_err(|e| e.to_string())?;
    let clocks = Some(Clocks::now().map_err(|e| e.to_string())?);
    let folders = tree.iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok());
    let shared = tmp.filter(|_| temporaries.is_shared).map(Path::to_path_buf);
    let folders: BTreeSet<PathBuf> = folders.filter(|path| !held::is_lost(path)).chain(shared).collect();
    let mounts =
        place::mounts_of(folders.iter().chain(written.iter().map(|f| &f.path)).chain(read.iter().map(|f| &f.path)));
    let frozen = Frozen {
        program,
        last_pid,
        pipes,
        written,
        host: host(),
        began: temporaries.began,
        read,
        needed,
        folders,
        mounts,
        clocks,
        own_numbers: !nix::unistd::getuid().is_root(),
        local,
        places: temporaries.places.clone(),
        left_out,
        memory_is_shared: temporaries.memory_is_shared,
        gpus,
        has_tmp: tmp.is_some(),
    };
    let text = serde_json::to_vec_pretty(&frozen).map_err(|e| e.to_string())?;
    let record = into.join(RECORD);
    fs::write(&record, text).map_err(told(&record))
}

/// Packs into an archive of this name what is filled in.
type Pack<'a> = dyn Fn(&str, &dyn Fn(&mut Archive<Stoppable>) -> io::Result<()>) -> io::Result<()> + 'a;

/// Packs what was made where only the node has it, but `not`, and but files of `whole`; its entries, and what is left out.
fn pack_local(
    tree: &[i32],
    of: &Temporaries,
    not: &[&Path],
    whole: &BTreeSet<&Path>,
    pack: &Pack<'_>,
) -> Result<(Vec<PathBuf>, Vec<LeftOut>), String> {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    let Some(since) = of.since.or(of.here_since).filter(|_| of.keeps) else { return Ok((Vec::new(), Vec::new())) };
    // Who has put files back for all may have ended.
    let noted = of.for_all.as_deref().map_or(Ok(BTreeSet::new()), |file| patiently(|| leftovers::noted(file)));
    let mut before = noted.map_err(|e| format!("files of the node: {e}"))?;
    before.extend(of.local.iter().cloned());
    let found = leftovers::made_since(&of.places, since, &before, not).map_err(|e| e.to_string())?;
    let of_sockets = leftovers::folders_of(&of.places, &peers::bound(tree));
    let all = of_sockets.iter().filter(|path| !found.all.contains(path)).chain(&found.all);
    let all: Vec<&PathBuf> = all.filter(|path| !whole.contains(path.as_path())).collect();
    let packed = pack(LOCAL, &|tar| all.iter().try_for_each(|path| tar.append_padded(path)));
    packed.map_err(|e| format!("files of the node: {e}"))?;
    if !found.left_out.is_empty() && !IS_SAID.swap(true, Ordering::Relaxed) {
        found.left_out.iter().for_each(|left| protocol::say!("joulepoint: not in the checkpoint: {left}"));
    }
    Ok((found.entries, found.left_out))
}

/// Packs the files that are to be kept. One that another program takes away or cuts meanwhile is not.
fn pack_read(file: Stoppable, read: &mut [Read]) -> io::Result<()> {
    archive::pack(file, |tar| {
        for file in read.iter_mut().filter(|file| file.is_kept) {
            match file.content() {
                Some((found, content)) => tar.append_content(&file.path, &found, &content)?,
                None => file.is_kept = false,
            }
        }
        Ok(())
    })
}

/// The record of a dump.
///
/// # Errors
/// Why it cannot be read.
pub fn read(from: &Path) -> Result<Frozen, Failed> {
    let record = from.join(RECORD);
    let read = patiently(|| flush::read(&record)).and_then(|text| Ok(serde_json::from_slice(&text)?));
    read.map_err(Failed::at(&record))
}

/// Has the folders be there that a program needs, and looks whether all of its files can be had. A checkpoint that cannot be gone
/// on from changes nothing: files that have come to their end since are worth more than it.
fn look(frozen: &Frozen) -> Result<Missed<'_>, NotBack> {
    let mut back = Vec::new();
    let are_there = frozen.needed.iter().try_for_each(|folder| folder.be_there().map(|is| back.extend(is)));
    let looked = are_there
        .and_then(|()| frozen.written.iter().try_for_each(Written::check))
        .and_then(|()| inputs::look(&frozen.read));
    match looked.is_ok() {
        true => back.iter().for_each(|folder| protocol::say!("joulepoint: {folder}")),
        false => back.iter().rev().for_each(|folder| drop(folder.undo())),
    }
    looked
}

impl Frozen {
    /// The folders in which another user of this node may have made what the program has there.
    fn commons(&self) -> Commons {
        Commons::default().and(self.places.iter().map(|place| place.path.clone()))
    }

    /// Files that are left as they are.
    fn left(&self) -> BTreeSet<&Path> {
        self.written.iter().filter(|file| file.is_left()).map(|file| file.path.as_path()).collect()
    }

    /// What is known before all is unpacked of what other users have made there where the program had its own, and whose it is,
    /// which nobody within a sandbox can tell.
    pub(crate) fn in_the_way(&self) -> Vec<String> {
        let (commons, all) = (self.commons(), self.local.iter().chain(self.written.iter().map(|file| &file.path)));
        let others = all.filter_map(|path| commons.look(path).err());
        let told = others.filter(|e| e.kind() == io::ErrorKind::AlreadyExists).map(|e| e.to_string());
        let told: BTreeSet<String> = told.take(MOST_NAMED).collect();
        told.into_iter().collect()
    }
}

/// Looks whether other users have anything in the way of what is put back; nothing is changed.
fn look_for_others(from: &Path, frozen: &Frozen, commons: &Commons) -> Result<(), Failed> {
    let left = frozen.left();
    frozen.needed.iter().try_for_each(|folder| commons.look(folder.path())).map_err(Failed::at(from))?;
    for name in [TMP, SHARED, OPEN] {
        let path = from.join(name);
        if is_there(&path).map_err(Failed::at(&path))? {
            let stays = |target: &Path| left.contains(target) || name == SHARED && fs::symlink_metadata(target).is_ok();
            archive::look(&path, commons, &stays).map_err(Failed::at(&path))?;
        }
    }
    Ok(())
}

/// Reads the record of a task's dump and puts back what it saved. What is cut off of files is kept in a folder.
///
/// # Errors
/// Which file is not back, and why.
pub fn put_back(from: &Path, cut_off: &Path, task: &Task) -> Result<Frozen, Failed> {
    let frozen = read(from)?;
    let commons = frozen.commons();
    waiting(|| look_for_others(from, &frozen, &commons))?;
    let missed = waiting(|| {
        // Other tasks of the step may need the same folders. Not every file system has locks.
        let _one_by_one = by_size::lock(cut_off).ok();
        look(&frozen)
    })?;
    let left = frozen.left();
    let mut kept = Vec::new();
    put_local_back(&from.join(LOCAL), &frozen, task)?;
    for name in ["shm.tar", TMP, SHARED, OPEN] {
        let path = from.join(name);
        if is_there(&path).map_err(Failed::at(&path))? {
            if name == OPEN {
                let of = waiting(|| archive::keep_changed(&path, cut_off, &left).map_err(Failed::at(&path)))?;
                of.lost.iter().for_each(|lost| protocol::say!("joulepoint: {lost}"));
                kept = of.paths;
            }
            // What other jobs have there stays, too, and what another step has written that is back already.
            let turn =
                (name == TMP).then(|| waiting(|| Turn::take(task, &path).map_err(Failed::at(&path)))).transpose()?;
            let fills = name == SHARED || turn.as_ref().is_some_and(|turn| !turn.is_first);
            let stays = |target: &Path| left.contains(target) || fills && fs::symlink_metadata(target).is_ok();
            waiting(|| unpack(&path, &commons, &stays).map_err(Failed::at(&path)))?;
            turn.map_or(Ok(()), Turn::done).map_err(Failed::at(&path))?;
        }
    }
    let archive = from.join(READ);
    waiting(|| {
        let _one_by_one = by_size::lock(cut_off).ok();
        inputs::put_back(&archive, &missed, &commons).map_err(Failed::at(&archive))
    })?;
    for file in &frozen.written {
        let back = waiting(|| file.go_back(cut_off))?;
        kept.extend(back.kept);
        back.remark.iter().for_each(|remark| protocol::say!("joulepoint: {remark}"));
    }
    // Whether it was written over is not always seen: what goes through a mapping changes no time of a file.
    for file in frozen.written.iter().filter(|file| file.stays) {
        protocol::say!(
            "joulepoint: {} is larger than what is kept of files that are written over: what was written over within its first {} bytes \
             since the checkpoint stays; check what comes of it",
            file.path.display(),
            file.bytes
        );
    }
    if !frozen.host.is_empty() && frozen.host != host() {
        protocol::say!(
            "joulepoint: the name of the host is {} now and was {}: what bears that name (X's authority, lock files of editors and of Mercurial) \
             the program does not take for its own",
            host(),
            frozen.host
        );
    }
    if !kept.is_empty() {
        let names: Vec<_> = kept.iter().filter_map(|path| path.file_name()).map(|n| n.to_string_lossy()).collect();
        protocol::say!(
            "joulepoint: what was added to files since the checkpoint is cut off, as the program adds its own again; it is kept \
             in {}: {}",
            cut_off.display(),
            names.join(", ")
        );
    }
    Ok(frozen)
}

/// Puts back what the program had made where only its node has it.
fn put_local_back(local: &Path, frozen: &Frozen, task: &Task) -> Result<(), Failed> {
    if !is_there(local).map_err(Failed::at(local))? {
        return Ok(());
    }
    let anew = leftovers::made_anew(&task.whole_run().join(PUT_BACK));
    if let Some(file) = for_all(task) {
        waiting(|| leftovers::note(&file, &frozen.local).map_err(Failed::at(&file)))?;
    }
    let not = waiting(|| {
        let mut not = leftovers::put_back(local, &frozen.places, anew);
        let is_of_node = |(_, e): &(PathBuf, io::Error)| is_full(e) || e.kind() == io::ErrorKind::AlreadyExists;
        match not.missed.iter().position(is_of_node).map(|at| not.missed.swap_remove(at)) {
            Some((path, e)) => Err(Failed::at(if is_full(&e) { &path } else { local })(e)),
            None => Ok(not),
        }
    })?;
    // Not fatal: the program may not need them, and the checkpoint stays valid.
    say(&not);
    if frozen.host != host() {
        frozen.left_out.iter().for_each(|left| protocol::say!("joulepoint: not in the checkpoint: {left}"));
    }
    Ok(())
}

/// Whether a storage has no room; whoever may not write there at all does not wait for that.
fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Says what of the files of the node is not as it was.
fn say(not: &leftovers::NotBack) {
    let missed: Vec<String> = not.missed.iter().map(|(path, e)| format!("{}: {e}", path.display())).collect();
    if !missed.is_empty() {
        protocol::say!("joulepoint: not all that the program had made on its node is back: {}", missed.join("; "));
    }
    let other: Vec<String> = not.other.iter().take(MOST_NAMED).map(|path| path.display().to_string()).collect();
    if !other.is_empty() {
        protocol::say!(
            "joulepoint: there already, and not as at the checkpoint: {}; if they are this job's, check its result",
            other.join(", ")
        );
    }
}

/// The name of this node.
pub(crate) fn host() -> String {
    nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Whether a folder is the user's alone, not one that all programs of a node share.
pub fn is_own_folder(path: &Path) -> bool {
    let own = fs::metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == nix::unistd::getuid().as_raw());
    own && path.is_absolute() && !COMMON.iter().any(|c| path == Path::new(c)) && path != Path::new("/")
}

/// A process that a signal has stopped, among these.
pub fn stopped(pids: &[i32]) -> Option<i32> {
    let is_stopped = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    };
    pids.iter().copied().find(is_stopped)
}

/// A process and all below it.
pub fn tree(root: i32) -> Vec<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Fields after the name: state, parent.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
        children.entry(parent.unwrap_or(0)).or_default().push(pid);
    }
    let mut found = vec![root];
    let mut next = 0;
    while next < found.len() {
        found.extend(children.remove(&found[next]).unwrap_or_default());
        next += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_found() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(tree(std::process::id() as i32).contains(&(child.id() as i32)));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

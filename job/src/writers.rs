//! Says who may still write to the files of a program: processes of the job, on any of its nodes.

use crate::frequency::Services;
use crate::nodes::ask_all;
use config::Runs;
use openfiles::FileId;
use protocol::{FileWriter, SharedFile, WritersRequest};
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest look at this node's own processes.
const LIMIT: Duration = Duration::from_secs(5);

/// Most files in one question.
const MOST_FILES: usize = 10_000;

/// Somebody who may still write to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The file.
    pub path: PathBuf,
    /// Name of the program, and its process id.
    pub process: String,
    /// Its process id.
    pub pid: i32,
    /// Its node; empty if it is this one.
    pub node: String,
    /// Whether it maps the file.
    pub is_mapped: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Holder { path, process, pid, node, is_mapped } = self;
        let how = if *is_mapped { "mapped" } else { "open" };
        write!(f, "{} is {how} for writing by {process} (process {pid}", path.display())?;
        if node.is_empty() { f.write_str(")") } else { write!(f, " on {node})") }
    }
}

/// What is known of some files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who may still write to them.
    pub holders: Vec<Holder>,
    /// Where nobody can tell, and why.
    pub unknown: Vec<String>,
}

impl Seen {
    /// Whether nobody writes to them any more.
    pub fn is_nobody(&self) -> bool {
        self.holders.is_empty() && self.unknown.is_empty()
    }
}

/// Asks who may still write to files.
pub type Ask = Arc<dyn Fn(&[PathBuf]) -> Seen + Send + Sync>;

/// A file with what it is known by.
type Known = (PathBuf, FileId);

/// Looks at the processes of this user on this node: for commands outside Slurm, where there are no others.
pub fn here() -> Ask {
    Arc::new(|paths| {
        let (files, mut seen) = known(paths);
        own(&files, &mut seen);
        seen
    })
}

/// The nodes of a job and the ways to their services.
pub struct Nodes {
    /// Slurm job id.
    pub job: u32,
    /// Names of the nodes that are not known to be dead.
    pub nodes: Box<dyn Fn() -> Vec<String> + Send>,
    /// This one's.
    pub here: Option<String>,
    /// The ways.
    pub services: Services,
    /// Which file systems the nodes share.
    pub runs: Runs,
}

/// Looks at the processes of a job on all of its nodes; on those that share a file, if it is another than this.
pub fn of_job(nodes: Nodes) -> Ask {
    let nodes = Arc::new(std::sync::Mutex::new(nodes));
    Arc::new(move |paths| {
        let nodes = nodes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (files, mut seen) = known(paths);
        let shared: Vec<Known> =
            files.iter().filter(|(path, id)| nodes.runs.is_shared(path, &id.fs)).cloned().collect();
        let names = (nodes.nodes)();
        let is_here = |node: &&String| Some(*node) == nodes.here.as_ref();
        let here: Vec<&String> = names.iter().filter(is_here).collect();
        // The service sees more of this node's processes than a user may.
        if here.is_empty() || !nodes.ask(&here, &files, &mut seen).is_empty() {
            own(&files, &mut seen);
        }
        let others: Vec<&String> = names.iter().filter(|node| !is_here(node)).collect();
        if !shared.is_empty() {
            let silent = nodes.ask(&others, &shared, &mut seen);
            seen.unknown.extend(silent);
        }
        seen
    })
}

/// What files are known by; those of which nobody can tell are noted.
fn known(paths: &[PathBuf]) -> (Vec<Known>, Seen) {
    let (mut files, mut seen) = (Vec::new(), Seen::default());
    for path in paths {
        match id(path) {
            Ok(id) => files.push((path.clone(), id)),
            Err(e) => seen.unknown.push(format!("{}: {e}", path.display())),
        }
    }
    (files, seen)
}

fn id(path: &Path) -> io::Result<FileId> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    openfiles::id_of(&OpenOptions::new().read(true).custom_flags(flags).open(path)?)
}

/// This user's processes on this node.
fn own(files: &[Known], seen: &mut Seen) {
    let proc_root = Path::new("/proc");
    let ids: Vec<FileId> = files.iter().map(|(_, id)| id.clone()).collect();
    let pids = match openfiles::processes_of(proc_root, nix::unistd::geteuid().as_raw()) {
        Ok(pids) => pids,
        Err(e) => return seen.unknown.push(format!("the processes of this node: {e}")),
    };
    let look = openfiles::writers(proc_root, &pids, &ids, Instant::now() + LIMIT);
    let holder = |w: openfiles::Writer| Holder {
        path: files[w.file].0.clone(),
        process: w.process,
        pid: w.pid,
        node: String::new(),
        is_mapped: w.is_mapped,
    };
    seen.holders.extend(look.writers.into_iter().map(holder));
}

impl Nodes {
    /// Asks the services of nodes; sentences on those that do not answer.
    fn ask(&self, nodes: &[&String], files: &[Known], seen: &mut Seen) -> Vec<String> {
        let mut silent = Vec::new();
        let path = format!("/v1/jobs/{}/writers", self.job);
        for files in files.chunks(MOST_FILES) {
            let shared = |(_, id): &Known| SharedFile { inode: id.inode, fs: id.fs.clone() };
            let question = || WritersRequest { version: protocol::VERSION, files: files.iter().map(shared).collect() };
            let answers = ask_all::<_, protocol::Writers>(&self.services, nodes, &path, question);
            for (node, answer) in nodes.iter().zip(answers) {
                match answer {
                    None => silent.push(format!("the node service of {node} does not answer")),
                    Some(answer) => {
                        if answer.unseen > 0 {
                            seen.unknown.push(format!("{} processes on {node} cannot be looked into", answer.unseen));
                        }
                        let of = |w: FileWriter| holder(files, node, w);
                        seen.holders.extend(answer.writers.into_iter().filter_map(of));
                    }
                }
            }
        }
        silent
    }
}

fn holder(files: &[Known], node: &str, w: FileWriter) -> Option<Holder> {
    let (path, _) = files.get(w.file as usize)?;
    let (process, pid, is_mapped) = (w.process, w.pid, w.is_mapped);
    Some(Holder { path: path.clone(), process, pid, node: node.to_string(), is_mapped })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn nodes(names: &[&str], shared: &Path) -> Ask {
        let names: Vec<String> = names.iter().map(|n| n.to_string()).collect();
        of_job(Nodes {
            job: 7,
            nodes: Box::new(move || names.clone()),
            here: Some("n1".into()),
            services: Box::new(|_| Vec::new()),
            runs: Runs { shared: vec![shared.to_path_buf()], ..Runs::default() },
        })
    }

    #[test]
    fn a_file_that_is_open_here_is_told_with_its_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        let file = fs::File::create(&path).unwrap();
        let seen = here()(std::slice::from_ref(&path));
        let mine = seen.holders.iter().find(|h| h.pid == std::process::id() as i32).unwrap();
        assert!(mine.to_string().contains("state is open for writing by"), "{mine}");
        drop(file);
        assert!(here()(std::slice::from_ref(&path)).is_nobody());
        assert!(!here()(&[dir.path().join("absent")]).is_nobody());
    }

    #[test]
    fn a_node_service_that_does_not_answer_is_not_taken_for_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        fs::write(&path, "x").unwrap();
        let shared = nodes(&["n1", "n2"], dir.path())(std::slice::from_ref(&path));
        assert_eq!(shared.unknown, ["the node service of n2 does not answer"]);
        // Only this node has the file.
        assert!(nodes(&["n1", "n2"], Path::new("/elsewhere"))(std::slice::from_ref(&path)).is_nobody());
        assert!(nodes(&["n1"], dir.path())(std::slice::from_ref(&path)).is_nobody());
    }
}

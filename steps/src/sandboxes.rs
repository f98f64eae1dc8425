//! Puts the tasks of an `srun` call into sandboxes, where the engine `criu` can dump and restore them.
//!
//! `srun OPTIONS PROGRAM` becomes `srun OPTIONS joulepoint warden ... PROGRAM`: the wardens call the driver, and go on
//! from the folder of their task if the recovery line has their call.

use crate::calls::Output;
use crate::gathered::{Gathered, Native, Place};
use crate::groups::split::{self, Call, Unsplit};
use crate::mpirun;
use crate::redirects::{Input, LABELS, MODES, Redirects, is_label};
use crate::streams::Inode;
use ::criu::line::{self, Hello, Line};
use host::linked;
use host::unsuited::{self, Me, Unsuited};
use run::{Patience, storage};
use serde::{Deserialize, Serialize};
use slurm::Slurm;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use worlds::kinds;

/// Tells the stand-in for `srun` that and how tasks are put into sandboxes.
pub const VARIABLE: &str = "JOULEPOINT_SANDBOXES";

/// Why MPI programs that `srun` starts as they are cannot be dumped.
const MPI_STEPS: &str =
    "an MPI program under srun is connected to Slurm and to its other tasks, which no sandbox holds";

/// What to do instead.
const MPI_CURE: &str = "use --ft-energy-engine=app, hook or scr";

/// The same of a call of an MPI launcher.
pub(crate) const LAUNCHER_CURE: &str = "'srun --mpi=...' or --ft-energy-engine=app, hook or scr may do";

/// Why labels cannot be.
const LABELLED: &str = "it labels its output (--label), so that nobody knows how much of it has arrived";

/// What to do instead of naming files by options, which Slurm numbers anew when a group starts again.
const ELSEWHERE: &str = "write 'srun ... > FILE', or have each task write a file named by its $SLURM_PROCID";

/// What the stand-in must know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sandboxes {
    /// CRIU's command.
    pub criu: PathBuf,
    /// Folder of the run.
    pub run: PathBuf,
    /// Until when the tasks are wanted.
    #[serde(default)]
    pub placement: Option<String>,
    /// Folder of the recovery line, if there is one.
    pub restore: Option<PathBuf>,
    /// Longest time of a restore, s.
    pub limit_s: f64,
    /// The job's own output files, which its steps share.
    #[serde(default)]
    pub common: Vec<Inode>,
    /// Whether `srun` keeps what an output file has where a call does not say it, if that is known.
    #[serde(default)]
    pub appends: Option<bool>,
    /// The job whose steps these are: one that its script submits inherits the variable.
    #[serde(default)]
    pub job: String,
}

/// The job in which this process runs; empty if it is none.
pub fn own_job() -> String {
    std::env::var("SLURM_JOB_ID").unwrap_or_default()
}

/// Whether `srun` keeps what an output file has (`JobFileAppend`), if Slurm says it.
pub fn appends(slurm: &Slurm) -> Option<bool> {
    let asked = slurm.config_value("JobFileAppend").inspect_err(|e| tracing::warn!(%e, "JobFileAppend is unknown"));
    asked.ok().flatten().and_then(|value| match value.as_str() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

/// Name of a call's record within a recovery line.
pub fn record(call: &str) -> String {
    format!("{call}.json")
}

/// Whether sandboxes can hold the tasks of a call whose streams its group carries; `is_world` if those of an MPI program
/// are started in them, and talk through relays.
///
/// # Errors
/// A sentence: they cannot.
pub fn fit(words: &[String], is_world: bool) -> Result<usize, String> {
    streams(words).map_err(|why| why.to_string())?;
    program(words, is_world)
}

/// Whether a group can carry the streams of a call.
///
/// # Errors
/// It cannot.
fn streams(words: &[String]) -> Result<(), Together> {
    let (names, _) = split::options(words).map_err(Together::Unfit)?;
    let unfit = |(name, value): &split::Named| match name.as_str() {
        name if is_label(name) => Some(LABELLED.to_string()),
        "input" => (value.as_deref() != Some("none")).then(|| "it reads an input (--input)".to_string()),
        "output" | "error" => (value.as_deref() != Some("none")).then(|| format!("it writes by --{name}; {ELSEWHERE}")),
        _ => None,
    };
    if let Some(reason) = names.iter().find_map(unfit) {
        return Err(Together::Unfit(reason));
    }
    if let Some(name) = MODES.iter().find(|name| std::env::var_os(name).is_some()) {
        return Err(Together::Unfit(format!("{name} is set; {ELSEWHERE}")));
    }
    if LABELS.iter().any(|name| std::env::var_os(name).is_some()) {
        return Err(Together::Unfit(LABELLED.to_string()));
    }
    Ok(())
}

/// Where the program stands among the words of a call whose tasks sandboxes can hold, whatever its streams are.
///
/// # Errors
/// A sentence: they cannot.
fn program(words: &[String], is_world: bool) -> Result<usize, String> {
    let (names, at) = split::options(words)?;
    // What stands in a container does not see our program, and has namespaces of its own.
    let contained = |name: &str| name == "container" || name.starts_with("container-");
    let unfit = |name: &&split::Named| ["multi-prog", "pty", "bcast"].contains(&name.0.as_str()) || contained(&name.0);
    if let Some((name, _)) = names.iter().find(unfit) {
        return Err(format!("it uses --{name}"));
    }
    let folder = std::env::current_dir().map_err(|e| e.to_string())?;
    if words[at..].iter().any(|w| w == ":") {
        return Err("it starts several programs at once".to_string());
    }
    let libraries = linked::libraries_of(&words[at..=at], &folder);
    if !is_world && libraries.iter().any(|l| kinds::is_mpi(l)) {
        return Err(format!("{MPI_STEPS}; {MPI_CURE}"));
    }
    unsuited(&words[at..], &libraries, &folder).map_or(Ok(at), Err)
}

/// Why tasks on several nodes that are no MPI program go back together.
const COMMON: &str = "it is no MPI program, and what its tasks on several nodes have in common is not known";

/// Why the tasks of a call could not go back node by node.
#[derive(Debug, thiserror::Error)]
enum Together {
    /// Sandboxes of groups cannot hold them, or it is not to be split.
    #[error("{0}")]
    Unfit(String),
    /// The job's nodes are not known.
    #[error(transparent)]
    Nodes(#[from] slurm::Error),
}

/// Whether the tasks of a call, of which sandboxes can hold the program, could go back node by node, each node a recovery group;
/// `is_world` if they are one MPI program.
///
/// # Errors
/// They could not.
fn alone(words: &[String], is_world: bool, variable: impl Fn(&str) -> Option<String>) -> Result<(), Together> {
    streams(words)?;
    let list = variable("SLURM_JOB_NODELIST").unwrap_or_default();
    let nodes = slurm::expand_nodelist(&list)?.len().max(1);
    let call = Call::read(words, &vec![1; nodes], variable);
    let gathered = call.and_then(|mut call| match is_world {
        true => call.gather().map_err(Unsplit::Whole),
        // Nobody knows what they have in common.
        false if call.groups().len() > 1 => Err(Unsplit::Whole(COMMON.to_string())),
        false => Ok(()),
    });
    match gathered {
        Err(Unsplit::Whole(why) | Unsplit::Refused(why)) => Err(Together::Unfit(why)),
        Ok(()) | Err(Unsplit::Answer) => Ok(()),
    }
}

/// What stands against a sandbox for a program, if something does.
fn unsuited(program: &[String], libraries: &BTreeSet<String>, folder: &Path) -> Option<String> {
    let Unsuited { containers, fails, .. } =
        unsuited::look(program, &linked::read(program, folder), libraries, folder, &Me::now());
    containers.or(fails)
}

/// A call whose tasks are one MPI program, as one task on each node; none for another call.
///
/// # Errors
/// Why no sandbox can hold its ranks.
fn gathered(call: &Redirects, at: usize) -> Result<Option<Gathered>, Native> {
    let folder = std::env::current_dir().map_err(|e| Native::Unfit(e.to_string()))?;
    Gathered::of_call(call, at, &folder, |name| std::env::var(name).ok())
}

/// What its user is told of a call whose ranks no sandbox can hold.
fn unheld(why: Native) -> String {
    format!("{MPI_STEPS}, and it is not started otherwise: {why}; {MPI_CURE}")
}

/// A call whose tasks sandboxes can hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    /// Its words and streams.
    pub call: Redirects,
    /// Where the program stands among the words.
    at: usize,
    /// How it is started, if its tasks are one MPI program.
    gathered: Option<Gathered>,
    /// Why they could not go back one by one, as groups of one node do, if so.
    pub together: Option<String>,
}

/// A file that all tasks of a call read, and where they begin in it.
pub type Read = (PathBuf, u64);

impl Sandboxes {
    /// What the environment says, if anything.
    pub fn of_environment() -> Option<Sandboxes> {
        let sandboxes: Option<Sandboxes> = serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok();
        sandboxes.filter(|sandboxes| sandboxes.job == own_job())
    }

    /// What the script must see.
    pub fn variable(&self) -> (String, String) {
        (VARIABLE.to_string(), serde_json::to_string(self).unwrap_or_default())
    }

    /// A call of `srun` whose tasks sandboxes can hold.
    ///
    /// # Errors
    /// A sentence: they cannot.
    pub fn place(&self, words: &[OsString]) -> Result<Placed, String> {
        let plain: Option<Vec<String>> = words.iter().map(|w| w.to_str().map(str::to_string)).collect();
        let plain = plain.ok_or("its words are no plain text")?;
        let folder = std::env::current_dir().map_err(|e| e.to_string())?;
        let call = Redirects::read(&plain, &folder, self.appends, |name| std::env::var(name).ok())?;
        let at = program(&call.words, true)?;
        let gathered = gathered(&call, at).map_err(unheld)?;
        let variable = |name: &str| std::env::var(name).ok();
        let together = alone(&plain, gathered.is_some(), variable).err().map(|why| why.to_string());
        Ok(Placed { call, at, gathered, together })
    }

    /// A call of an MPI launcher, `real`, whose ranks sandboxes can hold.
    ///
    /// # Errors
    /// They cannot.
    pub fn place_of_launcher(&self, real: &Command, words: &[OsString]) -> Result<Placed, mpirun::Native> {
        let (program, gathered) = mpirun::gathered(real, words)?;
        let libraries = linked::libraries_of(&program[..1], &gathered.folder);
        if let Some(why) = unsuited(&program, &libraries, &gathered.folder) {
            return Err(mpirun::Native::Unsuited(why));
        }
        let call = Redirects::of_launcher(program);
        let together = Some("an MPI launcher starts it, and not 'srun --mpi=...'".to_string());
        Ok(Placed { call, at: 0, gathered: Some(gathered), together })
    }

    /// Tells the driver that a step begins; it has ended when the line is closed. `outside` says why its tasks are in
    /// no sandbox, `together` why those that are could not go back one by one.
    ///
    /// # Errors
    /// A sentence.
    pub fn begin(
        &self,
        call: &str,
        words: &str,
        outside: Option<String>,
        together: Option<String>,
    ) -> Result<Line, String> {
        let goes_on = !call.is_empty() && self.outputs(call).map_or(true, |outputs| outputs.is_some());
        let (call, words) = (call.to_string(), words.to_string());
        let line = line::call(&self.run, &Hello::Step { call, words, outside, together, goes_on })?;
        line.says_for_us();
        Ok(line)
    }

    /// What a call had written at the recovery line, with the folder of the copies; none if the line has it not.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn outputs(&self, call: &str) -> io::Result<Option<(Vec<Output>, &Path)>> {
        let Some(folder) = self.restore.as_deref() else { return Ok(None) };
        let text = storage::read_if_there(&folder.join(record(call)), Patience::LONG).map_err(io::Error::other)?;
        let outputs = text.map(|text| serde_json::from_slice(&text)).transpose()?;
        Ok(outputs.map(|outputs| (outputs, folder)))
    }

    /// The words of a call whose tasks run in sandboxes, go on from a recovery `line` and read `input`; what it wrote `before`
    /// stays.
    ///
    /// # Errors
    /// A sentence: they cannot.
    pub fn words(
        &self,
        of: &Placed,
        call: &str,
        line: Option<&Path>,
        before: bool,
        input: Option<Read>,
    ) -> Result<Vec<String>, String> {
        let Placed { call: of, at, gathered, .. } = of;
        let (words, at) = (&of.words, *at);
        let place = Place { run: &self.run, call, life: self.placement.as_deref().unwrap_or_default() };
        let us = std::env::current_exe().map_err(|e| e.to_string())?;
        let end = if at > 0 && words[at - 1] == "--" { at - 1 } else { at };
        let mut all = gathered.as_ref().map_or_else(|| words[..end].to_vec(), |g| g.options.clone());
        if of.input != Input::Apart {
            all.push("--input=none".to_string());
        }
        if before || of.files.iter().any(Option::is_some) {
            all.push("--open-mode=append".to_string());
        }
        let path = |p: &Path| p.to_string_lossy().into_owned();
        all.extend([path(&us), "warden".to_string(), "--criu".to_string(), path(&self.criu)]);
        all.extend(["--run".to_string(), path(&self.run), "--call".to_string(), call.to_string()]);
        all.extend(self.placement.iter().flat_map(|one| ["--placement".to_string(), one.clone()]));
        all.extend(line.iter().flat_map(|line| ["--restore".to_string(), path(line)]));
        if let Some((file, at)) = input {
            all.extend(["--stdin".to_string(), path(&file), "--stdin-at".to_string(), at.to_string()]);
        }
        all.extend(of.labels.then(|| "--labels".to_string()));
        all.extend(["--limit-s".to_string(), self.limit_s.to_string()]);
        all.extend(gathered.iter().flat_map(|g| g.of_supervisor(&place, &Slurm::new(None))));
        all.push("--".to_string());
        all.extend(gathered.iter().flat_map(|g| [path(&us)].into_iter().chain(g.of_ranks(&place))));
        all.extend_from_slice(&words[at..]);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn sandboxes(restore: Option<PathBuf>) -> Sandboxes {
        Sandboxes {
            criu: "/criu".into(),
            run: "/run/1".into(),
            placement: Some("5:0:steps:/run/1/fencing-token".into()),
            restore,
            limit_s: 9.0,
            common: vec![(1, 2)],
            appends: None,
            job: String::new(),
        }
    }

    fn words(line: &str, restore: Option<PathBuf>, before: bool) -> Result<String, String> {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        let call = Redirects::read(&words, Path::new("/here"), Some(false), |_| None)?;
        let input = (call.input == Input::Standard).then(|| ("/in".into(), 3));
        let placed = Placed { at: program(&call.words, true)?, call, gathered: None, together: None };
        let sandboxes = sandboxes(restore);
        let line = sandboxes.outputs("a.1").map_err(|e| e.to_string())?.map(|(_, line)| line);
        let all = sandboxes.words(&placed, "a.1", line, before, input)?;
        let us = std::env::current_exe().unwrap();
        Ok(all.join(" ").replace(us.to_str().unwrap(), "US"))
    }

    #[test]
    fn a_warden_stands_before_the_program_and_goes_on_from_a_line_that_has_its_call() {
        let plain = "-i none US warden --criu /criu --run /run/1 --call a.1 --placement 5:0:steps:/run/1/fencing-token --limit-s 9 -- prog -n 7";
        assert_eq!(words("-n 6 -i none -- prog -n 7", None, false).unwrap(), format!("-n 6 {plain}"));
        let line = tempfile::tempdir().unwrap();
        let restore = || Some(line.path().to_path_buf());
        assert!(!words("prog", restore(), true).unwrap().contains("--restore"), "the line has not this call");
        fs::write(line.path().join(record("a.1")), "[]").unwrap();
        let again = words("prog", restore(), true).unwrap();
        assert!(again.starts_with("--input=none --open-mode=append US warden"), "{again}");
        assert!(again.contains(&format!("--restore {} ", line.path().display())), "{again}");
    }

    #[test]
    fn the_wardens_read_and_label_in_the_place_of_srun() {
        let all = words("-n2 -ul -o out prog", None, false).unwrap();
        assert!(all.starts_with("-n2 -u -o out --input=none --open-mode=append US"), "{all}");
        assert!(all.contains("--stdin /in --stdin-at 3 --labels --limit-s 9 -- prog"), "{all}");
    }

    #[test]
    fn a_call_that_no_sandbox_can_hold_is_told_why() {
        for (line, why) in [
            ("--pty bash", "--pty"),
            ("--container-image=ubuntu prog", "--container-image"),
            ("-n1 podman run x", "'podman' starts containers"),
            ("--multi-prog a.conf", "--multi-prog"),
            ("-i 0 prog", "--input=0"),
            ("-n1 a : -n2 b", "several programs"),
        ] {
            assert!(words(line, None, false).unwrap_err().contains(why), "{line}");
        }
        let of_group = |line: &str| fit(&line.split(' ').map(str::to_string).collect::<Vec<_>>(), false);
        for (line, why) in [
            ("-i data prog", "--input"),
            ("--label prog", "labels"),
            ("-n2 -ul prog", "labels"),
            ("-o out.%j prog", "srun ... > FILE"),
            ("-e out.%t prog", "its $SLURM_PROCID"),
            ("--pty prog", "--pty"),
        ] {
            assert!(of_group(line).unwrap_err().contains(why), "{line}");
        }
        assert!(of_group("-o none -i none -u --overlap prog -l").is_ok());
    }

    #[test]
    fn a_call_that_groups_of_one_node_could_not_have_is_told_why() {
        let list = |name: &str| (name == "SLURM_JOB_NODELIST").then(|| "n[1-3]".to_string());
        let alone = |line: &str, is_world: bool| {
            alone(&line.split(' ').map(str::to_string).collect::<Vec<_>>(), is_world, list)
        };
        for (line, is_world, why) in [
            ("-n3 -o out prog", false, "srun ... > FILE"),
            ("-n3 -i data prog", false, "--input"),
            ("-w n2 prog", false, "--nodelist"),
            ("--mpi=pmix -N2 -n4 prog", true, "it needs some of them"),
            ("--mpi=pmix -n3 --label prog", true, "labels"),
            ("-n2 prog", false, "what its tasks on several nodes have in common"),
        ] {
            let said = alone(line, is_world).unwrap_err().to_string();
            assert!(said.contains(why), "{line}: {said}");
        }
        for (line, is_world) in [("--mpi=pmix -n6 prog", true), ("--mpi=pmix -n1 prog", true), ("-n1 prog", false)] {
            assert!(alone(line, is_world).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_the_stand_in_must_know_comes_through_the_environment() {
        let one = sandboxes(Some("/line".into()));
        let (_, text) = one.variable();
        assert_eq!(serde_json::from_str::<Sandboxes>(&text).unwrap(), one);
        let older = text.replace(",\"appends\":null", "");
        assert_ne!(older, text);
        assert_eq!(serde_json::from_str::<Sandboxes>(&older).unwrap(), one, "what is not said is unknown");
    }

    #[test]
    fn what_slurm_says_of_output_files_is_read_and_nothing_is_made_up() {
        let dir = tempfile::tempdir().unwrap();
        for (said, expected) in [("0", Some(false)), ("1", Some(true)), ("maybe", None), ("1; exit 1", None)] {
            let line = format!("#!/bin/sh\necho JobFileAppend = {said}\n");
            let scontrol = dir.path().join("scontrol");
            fs::write(&scontrol, line).unwrap();
            fs::set_permissions(&scontrol, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            assert_eq!(appends(&Slurm::new(Some(dir.path().to_path_buf()))), expected, "{said}");
        }
    }
}

//! Makes of a call of an MPI launcher (`mpirun`, `mpiexec`) what the equivalent call of `srun` would be: one task on each node,
//! in a sandbox, which starts the ranks that this launcher would have put there.
//!
//! What is not known to mean the same then is left to the launcher itself.

use crate::gathered::{self, Gathered, Ranks};
use crate::groups::split;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use worlds::kinds;
use worlds::launchers::{self, Call, Unplaced, Unread};

/// Words with which a launcher starts nothing.
const QUESTIONS: [&str; 8] = ["-h", "-help", "--help", "-V", "-version", "--version", "-info", "--info"];

/// Why a call runs as the launcher itself does it, in no sandbox.
#[derive(Debug, thiserror::Error)]
pub enum Native {
    /// Its words are no text.
    #[error("its words are no plain text")]
    NoText,
    /// Whose launcher it is.
    #[error("{} is not known as a launcher of {all}", .0.display(), all = kinds::names())]
    Launcher(PathBuf),
    /// Its words are not understood.
    #[error(transparent)]
    Words(#[from] Unread),
    /// Its ranks cannot be placed.
    #[error(transparent)]
    Map(#[from] Unplaced),
    /// Its program is no part of a world.
    #[error(transparent)]
    World(#[from] gathered::Native),
    /// A sandbox breaks its program.
    #[error("{0}")]
    Unsuited(String),
    /// Its folder is not there.
    #[error("its folder: {0}")]
    Folder(#[from] io::Error),
}

/// Whether a launcher with these words only answers, and starts nothing.
pub fn only_answers(words: &[OsString]) -> bool {
    words.first().is_none_or(|first| QUESTIONS.iter().any(|question| first == question))
}

/// The words of the program of a call of the launcher `real`, and how its ranks are started.
///
/// # Errors
/// Why the launcher has to do it.
pub fn gathered(real: &Command, words: &[OsString]) -> Result<(Vec<String>, Gathered), Native> {
    let plain: Option<Vec<String>> = words.iter().map(|w| w.to_str().map(str::to_string)).collect();
    let plain = plain.ok_or(Native::NoText)?;
    let launcher = &kinds::called(Path::new(real.get_program()));
    let family = kinds::family(launcher).ok_or_else(|| Native::Launcher(launcher.clone()))?;
    let variable = |name: &str| std::env::var(name).ok();
    let folder = std::env::current_dir()?;
    let call = launchers::read(family, &plain)?;
    let folder = call.chdir.as_ref().map_or(folder.clone(), |chdir| folder.join(chdir));
    if !folder.is_dir() {
        // The launcher says it; `srun` would go elsewhere.
        return Err(io::Error::from(io::ErrorKind::NotADirectory).into());
    }
    let list = variable("SLURM_JOB_NODELIST").ok_or(gathered::Native::NoNodes)?;
    let nodes = slurm::expand_nodelist(&list).map_err(|e| gathered::Native::Unfit(e.to_string()))?;
    let placed = launchers::asked(family, launcher, real, &call)?;
    let (nodes, counts) = launchers::in_order(placed, &nodes)?;
    let Call { program, set, .. } = call;
    let cpus = variable(split::CPUS).and_then(|list| split::least_of(&list));
    let cpus_per_task = variable("SLURM_CPUS_PER_TASK").and_then(|cpus| cpus.parse().ok());
    let ranks = Ranks { nodes, counts, cpus, cpus_per_task, set };
    let gathered = Gathered::of_launcher(&program, &folder, launcher, ranks)?;
    Ok((program, gathered))
}

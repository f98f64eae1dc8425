//! What a program lets go before CRIU looks at it, since no image can hold it: MPI ranks their relay, a process its GPUs.

use super::staging::free_bytes;
use crate::seconds;
use crate::task::Task;
use crate::world::{self, Resting, World};
use gpu::{Patience, Suspended};
use increments::Stop;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// File in a run's folder that says why a program could not have its GPUs back: it is not asked for them again.
const LOST: &str = "gpus.lost";

/// How long, and with which pause, GPUs are asked for that others have filled meanwhile.
const TRIES_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_secs(5);

/// Why a program lets nothing go.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its ranks stay with their relay.
    #[error(transparent)]
    World(#[from] world::Error),
    /// It keeps its GPUs, or has lost them.
    #[error("its GPUs: {0}")]
    Gpus(#[from] gpu::Error),
    /// It has a connection to outside: its GPUs are left alone.
    #[error(transparent)]
    Outside(#[from] able::peers::Outside),
    /// It has a network connection, found here, and its GPUs are left alone.
    #[error("{0}: {1}")]
    Connected(String, &'static str),
    /// It has lost its GPUs once.
    #[error("its GPUs are not taken from it again: {0}")]
    LostBefore(String),
}

impl Error {
    /// Whether the program cannot go on.
    pub fn is_harm(&self) -> bool {
        matches!(self, Error::Gpus(e) if e.is_harm())
    }
}

/// What the processes of a program have that they must let go.
pub struct Holdings {
    world: Option<World>,
    /// NVIDIA's library.
    library: Option<PathBuf>,
}

impl Holdings {
    /// What these processes have; none if there is nothing to let go.
    pub fn of(task: &Task, tree: &[i32]) -> Option<Holdings> {
        let library = gpu::owner::library(Path::new("/proc"), tree);
        (task.world.is_some() || library.is_some()).then(|| Holdings { world: task.world.clone(), library })
    }

    /// Has them let it go, for the dump in `folder`.
    ///
    /// # Errors
    /// Why not: unless it is harm, they go on as before.
    pub fn release(&self, task: &Task, tree: &[i32], folder: &Path, stop: &Stop) -> Result<Released, Error> {
        let ranks = self.world.as_ref().map(|world| world.rest(folder, stop)).transpose()?;
        let gpus = match &self.library {
            Some(library) => suspend(task, tree, library)?,
            None => None,
        };
        let since = gpus.as_ref().and_then(|gpus| Instant::now().checked_sub(seconds(gpus.taken_s)));
        Ok(Released { ranks, since, gpus })
    }
}

/// Takes the GPUs from one process of a tree, if nothing else will keep CRIU from dumping it: what its user gains must be
/// worth it.
fn suspend(task: &Task, tree: &[i32], library: &Path) -> Result<Option<Suspended>, Error> {
    if let Ok(why) = fs::read_to_string(task.run.join(LOST)) {
        return Err(Error::LostBefore(why));
    }
    able::peers::refuse_outside(tree)?;
    // Over connections programs share GPUs, too, and the driver brings nothing shared back.
    let connection = || able::connection(Path::new("/proc"), tree);
    if let Some((found, limit)) = (!task.own_network).then(connection).flatten() {
        return Err(Error::Connected(found, limit.cure));
    }
    let suspended = gpu::suspend(library, tree, free_bytes(), Patience::default());
    Ok(suspended.inspect_err(|e| note(&task.run, e))?)
}

/// Keeps in mind that the program has lost its GPUs, if so.
fn note(run: &Path, error: &gpu::Error) {
    if error.is_harm() {
        // Without it the next dump may harm the program again, which goes back then.
        let _ = fs::write(run.join(LOST), error.to_string());
    }
}

/// What a program has let go. Ranks go back to their relay when it is dropped; GPUs must be [given back](give_back).
#[derive(Default)]
pub struct Released {
    /// Ranks without a relay.
    pub ranks: Option<Resting>,
    /// A process without its GPUs.
    pub gpus: Option<Suspended>,
    /// Since when it has none.
    pub since: Option<Instant>,
}

/// Gives GPUs back to a program of this run that stays.
///
/// # Errors
/// The program cannot go on. What was dumped of it can be restored where there is room on GPUs.
pub fn give_back(run: &Path, suspended: &Suspended) -> Result<(), gpu::Error> {
    let until = Instant::now() + TRIES_LIMIT;
    loop {
        match gpu::resume(suspended, Patience::default()) {
            Err(gpu::Error::Refused(_)) if Instant::now() < until => thread::sleep(PAUSE),
            outcome => return outcome.inspect_err(|e| note(run, e)),
        }
    }
}

/// Gives GPUs to a program that CRIU has just brought back.
///
/// # Errors
/// It is no program to go on with.
pub fn give_again(suspended: &Suspended) -> Result<(), gpu::Error> {
    gpu::resume(suspended, Patience::default())
}

//! The order in which a program is suspended and resumed, and whether a failure leaves it as it was.

use crate::driver::{self, Driver, Gpu, State};
use crate::memory;
use crate::owner::{self, FORKED, SEVERAL};
use nvml_wrapper::error::NvmlError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait until no call of the program is under way: one that waits for a kernel ends with it.
const LOCK_LIMIT: Duration = Duration::from_secs(20);

/// What the memory of a process takes beside what its GPUs hold, bytes.
const EXTRA_BYTES: u64 = 256 << 20;

/// A program whose GPUs were taken from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suspended {
    /// File of NVIDIA's library, as the program has it.
    pub library: PathBuf,
    /// The process that has used them.
    pub process: i32,
    /// All GPUs that it could use, in the order of the library.
    pub gpus: Vec<Gpu>,
    /// So much of the memory of each of them was its, bytes; 0 where that is not known.
    pub bytes: Vec<u64>,
    /// Time for which it stood still until it had none, s.
    pub taken_s: f64,
}

/// Why a program is not suspended or not resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Error {
    /// Nothing was done to the program, or all of it undone.
    #[error("{0}")]
    Refused(String),
    /// The driver has failed, and the program cannot go on.
    #[error("{0}")]
    Lost(String),
    /// The driver has not answered, or who asked it was killed: what has become of the program is not known.
    #[error("{0}")]
    Unanswered(String),
}

impl Error {
    /// Whether the program must be taken for one that cannot go on.
    pub fn is_harm(&self) -> bool {
        !matches!(self, Error::Refused(_))
    }
}

/// What stands in the way, before anything is done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error(transparent)]
    Driver(#[from] driver::Error),
    #[error("processes {0} and {1}: {SEVERAL}")]
    Several(i32, i32),
    #[error("process {0} has {path} open: {FORKED}", path = .1.display())]
    Holds(i32, PathBuf),
    #[error("how much memory its GPUs have in use is not known: {0}")]
    Unknown(#[from] NvmlError),
    #[error(
        "its GPUs hold up to {held} MiB, and there are {free} MiB of memory for them; ask for more (--mem)",
        held = .held_bytes >> 20, free = .free_bytes >> 20
    )]
    NoMemory { held_bytes: u64, free_bytes: u64 },
    #[error("it was on {was}, and there is {is} here", was = names(.was), is = names(.is))]
    OtherGpus { was: Vec<Gpu>, is: Vec<Gpu> },
    #[error(
        "it needs {needed} MiB on the GPU {name} ({uuid}), which has {free} MiB free",
        needed = .needed_bytes >> 20, free = .free_bytes >> 20, name = .gpu.name, uuid = .gpu.uuid
    )]
    NoRoom { gpu: Gpu, needed_bytes: u64, free_bytes: u64 },
}

impl From<Trouble> for Error {
    fn from(trouble: Trouble) -> Error {
        Error::Refused(trouble.to_string())
    }
}

fn names(gpus: &[Gpu]) -> String {
    let names: Vec<&str> = gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    if names.is_empty() { "no GPU".to_string() } else { names.join(", ") }
}

/// Suspends the process among `pids` that uses GPUs; none if none does. Its memory grows by what the GPUs hold, for which
/// `free_bytes` must be enough. `begins` is called before the program is touched.
///
/// # Errors
/// Why not, and whether it goes on.
pub(crate) fn suspend(
    root: &Path,
    library: &Path,
    pids: &[i32],
    free_bytes: u64,
    begins: impl FnOnce(u64),
) -> Result<Option<Suspended>, Error> {
    let driver = Driver::load(library).map_err(Trouble::from)?;
    let Some(process) = owner::find(&driver, root, pids)? else { return Ok(None) };
    let gpus = driver.initialize().and_then(|()| driver.gpus()).map_err(Trouble::from)?;
    // What is whose is not known before.
    let before = memory::of(library, &gpus).map_err(Trouble::from)?;
    let held_bytes = before.iter().map(|memory| memory.used_bytes).sum::<u64>();
    if held_bytes + EXTRA_BYTES > free_bytes {
        return Err(Trouble::NoMemory { held_bytes, free_bytes }.into());
    }
    begins(held_bytes);
    let begun = Instant::now();
    let suspended = driver.lock(process, LOCK_LIMIT).and_then(|()| driver.checkpoint(process));
    suspended.map_err(|e| undone(&driver, root, process, e))?;
    let after = memory::of(library, &gpus).unwrap_or_else(|_| before.clone());
    let bytes = before.iter().zip(&after).map(|(was, is)| was.used_bytes.saturating_sub(is.used_bytes)).collect();
    let taken_s = begun.elapsed().as_secs_f64();
    Ok(Some(Suspended { library: library.to_path_buf(), process, gpus, bytes, taken_s }))
}

/// Lets a process go on that could not be suspended: whether it can.
fn undone(driver: &Driver, root: &Path, process: i32, why: driver::Error) -> Error {
    let is_as_before = match driver.state(process) {
        // It ends by itself, and nobody is to bring it back.
        Err(_) if owner::is_ending(root, process) => true,
        Ok(State::Running) => true,
        Ok(State::Locked) => driver.unlock(process).is_ok(),
        Ok(State::Checkpointed) => driver.restore(process, &[]).and_then(|()| driver.unlock(process)).is_ok(),
        Ok(State::Failed) | Err(_) => false,
    };
    let why = Trouble::Driver(why).to_string();
    if is_as_before { Error::Refused(why) } else { Error::Lost(why) }
}

/// Resumes a program, here or where it was restored. `begins` is called before the program is touched.
///
/// # Errors
/// Why not; a program that is refused can be resumed once that has been cured.
pub(crate) fn resume(suspended: &Suspended, begins: impl FnOnce(u64)) -> Result<(), Error> {
    let driver = Driver::load(&suspended.library).map_err(Trouble::from)?;
    let here = driver.initialize().and_then(|()| driver.gpus()).map_err(Trouble::from)?;
    let moves = moves(&suspended.gpus, &here)?;
    // A driver that has found too little memory once does not bring the process back any more.
    let places: Vec<Gpu> = match moves.is_empty() {
        true => suspended.gpus.clone(),
        false => here.into_iter().take(moves.len()).collect(),
    };
    let memory = memory::of(&suspended.library, &places).map_err(Trouble::from)?;
    for ((needed_bytes, memory), gpu) in suspended.bytes.iter().copied().zip(memory).zip(places) {
        if needed_bytes > memory.free_bytes {
            return Err(Trouble::NoRoom { gpu, needed_bytes, free_bytes: memory.free_bytes }.into());
        }
    }
    begins(suspended.bytes.iter().sum());
    let moves = if driver.moves() { moves } else { Vec::new() };
    let resumed = driver.restore(suspended.process, &moves).and_then(|()| driver.unlock(suspended.process));
    resumed.map_err(|e| Error::Lost(Trouble::Driver(e).to_string()))
}

/// Which GPU takes the place of which, if others are here than there were: as many of the same kinds, in their order.
fn moves(was: &[Gpu], is: &[Gpu]) -> Result<Vec<(String, String)>, Trouble> {
    if was.iter().all(|gpu| is.contains(gpu)) {
        return Ok(Vec::new());
    }
    let is_alike = was.len() <= is.len() && was.iter().zip(is).all(|(old, new)| old.name == new.name);
    match is_alike {
        true => Ok(was.iter().zip(is).map(|(old, new)| (old.uuid.clone(), new.uuid.clone())).collect()),
        false => Err(Trouble::OtherGpus { was: was.to_vec(), is: is.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, number: u8) -> Gpu {
        Gpu { name: name.to_string(), uuid: format!("{number}") }
    }

    #[test]
    fn gpus_of_another_node_take_the_places_of_those_that_are_alike() {
        let was = [gpu("H100", 1), gpu("H100", 2)];
        assert_eq!(moves(&was, &[gpu("H100", 2), gpu("H100", 1)]).unwrap(), []);
        let moved = moves(&was, &[gpu("H100", 7), gpu("H100", 8), gpu("A100", 9)]).unwrap();
        assert_eq!(moved, [("1".to_string(), "7".to_string()), ("2".to_string(), "8".to_string())]);
        for (is, said) in
            [(vec![gpu("H100", 7)], "there is H100 here"), (vec![], "no GPU"), (vec![gpu("A100", 1); 2], "A100")]
        {
            let refused = moves(&was, &is).unwrap_err().to_string();
            assert!(refused.starts_with("it was on H100, H100, ") && refused.contains(said), "{refused}");
        }
    }
}

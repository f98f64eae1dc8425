//! NVIDIA's library, loaded at run time: the calls that suspend and resume another process.
//!
//! Signatures and structures are those of `cuda.h` of CUDA 12.8 (driver 570) and 13.0 (driver 580), which adds the pairs of
//! GPUs.

use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The first driver that suspends processes by this interface.
pub const FIRST_DRIVER: u32 = 570;

/// The first driver that resumes a process on other GPUs than it had.
const FIRST_MOVING_DRIVER: c_int = 13_000;

/// `CUDA_ERROR_NOT_INITIALIZED`: of another process it says that this one does not use CUDA.
const NOT_INITIALIZED: c_int = 3;

/// Longest name of a GPU, bytes.
const NAME_BYTES: usize = 128;

/// Result of a call of the library (`CUresult`); 0 is success.
type Code = c_int;

/// `CUuuid`.
type Uuid = [u8; 16];

/// `CUcheckpointLockArgs`.
#[repr(C)]
#[derive(Default)]
struct LockArgs {
    timeout_ms: c_uint,
    reserved0: c_uint,
    reserved1: [u64; 7],
}

/// `CUcheckpointGpuPair`: a GPU that the process had, and the one that it gets.
#[repr(C)]
struct Pair {
    old: Uuid,
    new: Uuid,
}

/// `CUcheckpointRestoreArgs`; all zero before CUDA 13.
#[repr(C)]
struct RestoreArgs {
    pairs: *const Pair,
    count: c_uint,
    reserved: [u8; 44],
    reserved1: u64,
}

/// Why the library does not do what is asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be loaded.
    #[error("{library}: {0}", library = .1.display())]
    Load(#[source] libloading::Error, PathBuf),
    /// It has no such calls.
    #[error("{library} has no {0}: NVIDIA's driver saves GPUs from {FIRST_DRIVER} on", library = .1.display())]
    Old(&'static str, PathBuf),
    /// A call has failed.
    #[error("{call}: {name}")]
    Call {
        /// Its name.
        call: &'static str,
        /// The library's name of the failure, such as `CUDA_ERROR_OUT_OF_MEMORY`.
        name: String,
    },
}

/// In which state the library holds a process (`CUprocessState`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It may call the library.
    Running,
    /// Its calls wait.
    Locked,
    /// What it had on GPUs is in its own memory.
    Checkpointed,
    /// It is lost, or in a state that nobody knows.
    Failed,
}

/// A GPU as the library shows it to this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its name, such as `NVIDIA H100 80GB HBM3`: it can be resumed on one of the same name only.
    pub name: String,
    /// Its number, in hexadecimal digits as groups of 8, 4, 4, 4 and 12.
    pub uuid: String,
}

/// The library.
pub struct Driver {
    library: Library,
    path: PathBuf,
}

impl Driver {
    /// Loads the library of this path.
    ///
    /// # Errors
    /// It is not there, or older than the interface.
    pub fn load(path: &Path) -> Result<Driver, Error> {
        // SAFETY: NVIDIA's library has no initializer that asks for anything of its caller.
        let library = unsafe { Library::new(path) }.map_err(|e| Error::Load(e, path.to_path_buf()))?;
        let driver = Driver { library, path: path.to_path_buf() };
        driver.symbol::<unsafe extern "C" fn()>("cuCheckpointProcessLock")?;
        Ok(driver)
    }

    fn symbol<F: Copy>(&self, name: &'static str) -> Result<F, Error> {
        // SAFETY: callers name the type that `cuda.h` declares.
        let found = unsafe { self.library.get::<F>(name.as_bytes()) };
        found.map(|symbol| *symbol).map_err(|_| Error::Old(name, self.path.clone()))
    }

    fn done(&self, call: &'static str, code: Code) -> Result<(), Error> {
        if code == 0 { Ok(()) } else { Err(Error::Call { call, name: self.name(code) }) }
    }

    /// The library's name of a result.
    fn name(&self, code: Code) -> String {
        let ask = self.symbol::<unsafe extern "C" fn(Code, *mut *const c_char) -> Code>("cuGetErrorName");
        let mut text = std::ptr::null();
        // SAFETY: it writes a pointer to a constant text.
        let known = ask.is_ok_and(|ask| unsafe { ask(code, &raw mut text) } == 0) && !text.is_null();
        // SAFETY: the text ends, as all of C do.
        if known { unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned() } else { format!("error {code}") }
    }

    /// Makes the library usable for this process; it takes no memory of a GPU.
    ///
    /// # Errors
    /// There is no driver, or no GPU.
    pub fn initialize(&self) -> Result<(), Error> {
        let init = self.symbol::<unsafe extern "C" fn(c_uint) -> Code>("cuInit")?;
        // SAFETY: a number alone.
        self.done("cuInit", unsafe { init(0) })
    }

    /// The GPUs that this process may use, in the library's order.
    ///
    /// # Errors
    /// What the library says.
    pub fn gpus(&self) -> Result<Vec<Gpu>, Error> {
        let count = self.symbol::<unsafe extern "C" fn(*mut c_int) -> Code>("cuDeviceGetCount")?;
        let mut number = 0;
        // SAFETY: it writes a number.
        self.done("cuDeviceGetCount", unsafe { count(&raw mut number) })?;
        (0..number).map(|index| self.gpu(index)).collect()
    }

    fn gpu(&self, index: c_int) -> Result<Gpu, Error> {
        let get = self.symbol::<unsafe extern "C" fn(*mut c_int, c_int) -> Code>("cuDeviceGet")?;
        let name_of = self.symbol::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Code>("cuDeviceGetName")?;
        let uuid_of = self.symbol::<unsafe extern "C" fn(*mut Uuid, c_int) -> Code>("cuDeviceGetUuid_v2")?;
        let (mut device, mut name, mut uuid) = (0, [0_u8; NAME_BYTES], Uuid::default());
        // SAFETY: each writes what it is given a place for; the name's length is that of its place, and one byte is kept.
        unsafe {
            self.done("cuDeviceGet", get(&raw mut device, index))?;
            self.done("cuDeviceGetName", name_of(name.as_mut_ptr().cast(), NAME_BYTES as c_int - 1, device))?;
            self.done("cuDeviceGetUuid", uuid_of(&raw mut uuid, device))?;
        }
        let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned());
        Ok(Gpu { name: name.unwrap_or_default(), uuid: written(&uuid) })
    }

    /// The thread of a process that serves the calls below; none if the process does not use CUDA. A process that was forked
    /// from one that does shares its thread.
    ///
    /// # Errors
    /// What the library says.
    pub fn thread(&self, pid: i32) -> Result<Option<i32>, Error> {
        let call = "cuCheckpointProcessGetRestoreThreadId";
        let ask = self.symbol::<unsafe extern "C" fn(c_int, *mut c_int) -> Code>(call)?;
        let mut thread = 0;
        // SAFETY: it writes a number.
        match unsafe { ask(pid, &raw mut thread) } {
            NOT_INITIALIZED => Ok(None),
            code => self.done(call, code).map(|()| Some(thread)),
        }
    }

    /// The state of a process that uses CUDA.
    ///
    /// # Errors
    /// What the library says.
    pub fn state(&self, pid: i32) -> Result<State, Error> {
        let call = "cuCheckpointProcessGetState";
        let ask = self.symbol::<unsafe extern "C" fn(c_int, *mut c_uint) -> Code>(call)?;
        let mut state = 0;
        // SAFETY: it writes a number.
        self.done(call, unsafe { ask(pid, &raw mut state) })?;
        Ok(match state {
            0 => State::Running,
            1 => State::Locked,
            2 => State::Checkpointed,
            _ => State::Failed,
        })
    }

    /// Has the calls of a process wait, as soon as none is under way.
    ///
    /// # Errors
    /// What the library says; after `limit` that it is not ready.
    pub fn lock(&self, pid: i32, limit: Duration) -> Result<(), Error> {
        let call = "cuCheckpointProcessLock";
        let lock = self.symbol::<unsafe extern "C" fn(c_int, *mut LockArgs) -> Code>(call)?;
        let mut args = LockArgs { timeout_ms: limit.as_millis().try_into().unwrap_or(0), ..LockArgs::default() };
        // SAFETY: the arguments are those of `cuda.h`, and live as long as the call.
        self.done(call, unsafe { lock(pid, &raw mut args) })
    }

    /// Copies what a locked process has on GPUs into its own memory, and takes the GPUs from it.
    ///
    /// # Errors
    /// What the library says.
    pub fn checkpoint(&self, pid: i32) -> Result<(), Error> {
        self.plain("cuCheckpointProcessCheckpoint", pid)
    }

    /// Copies it back. `moves` are pairs of a GPU that the process had and one that it gets; none if it has the same as before.
    ///
    /// # Errors
    /// What the library says.
    pub fn restore(&self, pid: i32, moves: &[(String, String)]) -> Result<(), Error> {
        let call = "cuCheckpointProcessRestore";
        let restore = self.symbol::<unsafe extern "C" fn(c_int, *mut RestoreArgs) -> Code>(call)?;
        let pairs: Vec<Pair> = moves.iter().map(|(old, new)| Pair { old: read(old), new: read(new) }).collect();
        let count = pairs.len().try_into().unwrap_or(0);
        let mut args = RestoreArgs { pairs: pairs.as_ptr(), count, reserved: [0; 44], reserved1: 0 };
        let args = if pairs.is_empty() { std::ptr::null_mut() } else { &raw mut args };
        // SAFETY: the arguments are those of `cuda.h`, and live as long as the call.
        self.done(call, unsafe { restore(pid, args) })
    }

    /// Lets the calls of a process go on.
    ///
    /// # Errors
    /// What the library says.
    pub fn unlock(&self, pid: i32) -> Result<(), Error> {
        self.plain("cuCheckpointProcessUnlock", pid)
    }

    fn plain(&self, call: &'static str, pid: i32) -> Result<(), Error> {
        let act = self.symbol::<unsafe extern "C" fn(c_int, *mut c_void) -> Code>(call)?;
        // SAFETY: no arguments beside the process (`cuda.h`: may be null).
        self.done(call, unsafe { act(pid, std::ptr::null_mut()) })
    }

    /// Whether it resumes a process on other GPUs than it had.
    pub fn moves(&self) -> bool {
        let ask = self.symbol::<unsafe extern "C" fn(*mut c_int) -> Code>("cuDriverGetVersion");
        let mut version = 0;
        // SAFETY: it writes a number.
        ask.is_ok_and(|ask| unsafe { ask(&raw mut version) } == 0) && version >= FIRST_MOVING_DRIVER
    }
}

/// The first number of the version of NVIDIA's driver on this node, from its file below `root`, which is `/proc`; none where
/// there is no driver.
pub fn version(root: &Path) -> Option<u32> {
    let text = fs::read_to_string(root.join("driver/nvidia/version")).ok()?;
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find_map(|word| word.split_once('.')?.0.parse().ok())
}

/// A number as NVIDIA's tools write it, without what kind of device it is.
fn written(uuid: &Uuid) -> String {
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// What [`written`] has written.
fn read(text: &str) -> Uuid {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    let mut uuid = Uuid::default();
    uuid.iter_mut().zip(digits.chunks_exact(2)).for_each(|(byte, pair)| *byte = pair[0] << 4 | pair[1]);
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structures_have_the_sizes_of_cuda_h() {
        assert_eq!((size_of::<LockArgs>(), size_of::<RestoreArgs>(), size_of::<Pair>()), (64, 64, 32));
    }

    #[test]
    fn the_number_of_a_gpu_is_read_as_it_is_written() {
        let uuid: Uuid = std::array::from_fn(|i| (i * 17) as u8);
        assert_eq!(written(&uuid), "00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(read(&written(&uuid)), uuid);
    }

    #[test]
    fn the_version_of_the_driver_is_read_as_it_writes_it() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(version(proc.path()), None);
        fs::create_dir_all(proc.path().join("driver/nvidia")).unwrap();
        for (said, expected) in [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct  8 03:22:07 UTC 2024\n", Some(550)),
            (
                "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 13.2",
                Some(580),
            ),
            ("GCC version: 13.2.0\n", None),
        ] {
            fs::write(proc.path().join("driver/nvidia/version"), said).unwrap();
            assert_eq!(version(proc.path()), expected, "{said}");
        }
    }
}

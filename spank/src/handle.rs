//! The handle that Slurm lends to a hook for the time of one call.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::host::host;
use crate::{Error, Result, guard};
use slurm_sys::v22_05 as sys;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::marker::PhantomData;
use std::os::raw::{c_char, c_int};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The process in which the plugin was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// `srun`.
    Local,
    /// `sbatch`, `salloc`, `scrontab`.
    Allocator,
    /// `slurmstepd`: beside the job on a node.
    Remote,
    /// `slurmd`.
    Slurmd,
    /// Prolog and epilog.
    JobScript,
    /// Slurm could not say.
    Unknown,
}

impl Context {
    /// The context of this process.
    pub fn current() -> Context {
        // SAFETY: `spank_context` takes nothing and reads a variable of the host.
        match host().context().map(|function| unsafe { function() }) {
            Ok(sys::S_CTX_LOCAL) => Context::Local,
            Ok(sys::S_CTX_ALLOCATOR) => Context::Allocator,
            Ok(sys::S_CTX_REMOTE) => Context::Remote,
            Ok(sys::S_CTX_SLURMD) => Context::Slurmd,
            Ok(sys::S_CTX_JOB_SCRIPT) => Context::JobScript,
            _ => Context::Unknown,
        }
    }
}

/// Which step of a job a process belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The batch script.
    Batch,
    /// The step that holds what is started from outside Slurm.
    Extern,
    /// `salloc`'s shell on a node.
    Interactive,
    /// A step that waits for its number.
    Pending,
    /// A step of `srun`.
    Number(u32),
}

impl From<u32> for Step {
    fn from(id: u32) -> Step {
        match id {
            sys::SLURM_BATCH_SCRIPT => Step::Batch,
            sys::SLURM_EXTERN_CONT => Step::Extern,
            sys::SLURM_INTERACTIVE_STEP => Step::Interactive,
            sys::SLURM_PENDING_STEP => Step::Pending,
            number => Step::Number(number),
        }
    }
}

/// Longest environment value that is read, bytes.
const LONGEST_VALUE: usize = 1 << 20;

/// Slurm's handle, borrowed for one hook; it owns nothing and cannot be kept.
#[derive(Debug)]
pub struct Handle<'a> {
    raw: sys::spank_t,
    hook: PhantomData<&'a mut sys::spank_handle>,
}

impl Handle<'_> {
    /// Lends the handle of the hook that is running now.
    ///
    /// # Safety
    /// `raw` is what Slurm passed to that hook, or NULL (which Slurm's functions refuse).
    pub unsafe fn new<'a>(raw: sys::spank_t) -> Handle<'a> {
        Handle { raw, hook: PhantomData }
    }

    pub(crate) fn raw(&self) -> sys::spank_t {
        self.raw
    }

    /// An item that Slurm writes as one `u32`; `None` where it says "no value".
    fn number(&self, item: sys::spank_item_t) -> Result<Option<u32>> {
        let function = host().get_item()?;
        let mut value = sys::NO_VAL;
        // SAFETY: every item passed here is documented to take one pointer to 32 bits.
        Error::check(unsafe { function(self.raw, item, &raw mut value) })?;
        Ok((value != sys::NO_VAL).then_some(value))
    }

    fn required(&self, item: sys::spank_item_t) -> Result<u32> {
        self.number(item)?.ok_or(Error::NotAvailable)
    }

    /// The job's number.
    pub fn job_id(&self) -> Result<u32> {
        self.required(sys::S_JOB_ID)
    }

    /// The step of the job.
    pub fn step(&self) -> Result<Step> {
        self.required(sys::S_JOB_STEPID).map(Step::from)
    }

    /// The user who owns the job; not to be trusted in `srun` of 24.11 and later, which says "nobody".
    pub fn uid(&self) -> Result<u32> {
        self.required(sys::S_JOB_UID)
    }

    /// The primary group of the job.
    pub fn gid(&self) -> Result<u32> {
        self.required(sys::S_JOB_GID)
    }

    /// How often the job was restarted.
    pub fn restart_count(&self) -> Result<u32> {
        Ok(self.number(sys::S_SLURM_RESTART_COUNT)?.unwrap_or(0))
    }

    fn raw_argv(&self) -> Result<(c_int, *mut *mut c_char)> {
        let function = host().get_item()?;
        let mut argc: c_int = 0;
        let mut argv: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: S_JOB_ARGV takes a pointer to int and a pointer to char**.
        Error::check(unsafe { function(self.raw, sys::S_JOB_ARGV, &raw mut argc, &raw mut argv) })?;
        if argv.is_null() || argc < 1 {
            return Err(Error::NotAvailable);
        }
        Ok((argc, argv))
    }

    /// The program that will be executed, and its arguments.
    pub fn argv(&self) -> Result<Vec<&OsStr>> {
        let (argc, argv) = self.raw_argv()?;
        // SAFETY: Slurm's own vector, which lives as long as the hook runs.
        Ok(unsafe { guard::arguments(argc, argv) })
    }

    /// Puts words in front of the task's own (Slurm 23.11 and later; from `task_init` only).
    ///
    /// # Errors
    /// [`Error::Missing`] in an older Slurm.
    pub fn prepend_argv(&self, words: &[CString]) -> Result<()> {
        let function = host().prepend_task_argv()?;
        let mut words: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        let count = c_int::try_from(words.len()).map_err(|_| Error::TooLarge)?;
        words.push(std::ptr::null());
        // SAFETY: `count` NUL-terminated words and a NULL; Slurm copies them. The handle types of the two
        // series are one opaque pointer.
        Error::check(unsafe { function(self.raw.cast(), count, words.as_mut_ptr()) })
    }

    /// Makes Slurm execute `program` instead of the task's own, with the arguments as they are (`task_init` only,
    /// in a Slurm that has no [`Handle::prepend_argv`]).
    ///
    /// The vector of Slurm's task has no room for another word, but its first word may be another. The text is
    /// leaked on purpose: the process is about to become that program.
    pub fn replace_program(&self, program: CString) -> Result<()> {
        let (_, argv) = self.raw_argv()?;
        // SAFETY: argc >= 1, so the first word exists; this is the forked task's private copy, which nobody
        // reads but the execve that follows, and the new text is never freed.
        unsafe { *argv = program.into_raw() };
        Ok(())
    }

    /// A variable of the job's environment.
    pub fn getenv(&self, name: &str) -> Result<OsString> {
        let function = host().getenv()?;
        let name = CString::new(name).map_err(|_| Error::Nul)?;
        let mut size = 4096;
        loop {
            let mut buffer = vec![0u8; size];
            let room = c_int::try_from(size).map_err(|_| Error::TooLarge)?;
            // SAFETY: a NUL-terminated name and a buffer of `room` bytes.
            let code = unsafe { function(self.raw, name.as_ptr(), buffer.as_mut_ptr().cast(), room) };
            match Error::check(code) {
                Err(Error::TooLarge) if size < LONGEST_VALUE => size = LONGEST_VALUE,
                Err(error) => return Err(error),
                Ok(()) => {
                    let text = CStr::from_bytes_until_nul(&buffer).map_err(|_| Error::TooLarge)?;
                    return Ok(OsString::from_vec(text.to_bytes().to_vec()));
                }
            }
        }
    }

    /// Sets a variable of the job's environment, over an older value if there is one.
    pub fn setenv(&self, name: &str, value: &OsStr) -> Result<()> {
        let function = host().setenv()?;
        let name = CString::new(name).map_err(|_| Error::Nul)?;
        let value = CString::new(value.as_bytes()).map_err(|_| Error::Nul)?;
        // SAFETY: two NUL-terminated texts, which Slurm copies.
        Error::check(unsafe { function(self.raw, name.as_ptr(), value.as_ptr(), 1) })
    }

    /// Removes a variable from the job's environment.
    pub fn unsetenv(&self, name: &str) -> Result<()> {
        let function = host().unsetenv()?;
        let name = CString::new(name).map_err(|_| Error::Nul)?;
        // SAFETY: a NUL-terminated name.
        Error::check(unsafe { function(self.raw, name.as_ptr()) })
    }

    /// The job's whole environment, one `NAME=value` each.
    pub fn environment(&self) -> Result<Vec<&OsStr>> {
        let function = host().get_item()?;
        let mut env: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: S_JOB_ENV takes one pointer to char**.
        Error::check(unsafe { function(self.raw, sys::S_JOB_ENV, &raw mut env) })?;
        // SAFETY: Slurm's own NULL-terminated vector, which lives as long as the hook runs.
        Ok(unsafe { guard::arguments(c_int::MAX, env) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_names() {
        assert_eq!(Step::from(0xffff_fffb), Step::Batch);
        assert_eq!(Step::from(0xffff_fffc), Step::Extern);
        assert_eq!(Step::from(7), Step::Number(7));
    }

    #[test]
    fn outside_slurm_nothing_is_known_and_nothing_breaks() {
        // SAFETY: NULL is never followed.
        let handle = unsafe { Handle::new(std::ptr::null_mut()) };
        assert_eq!(handle.uid(), Err(Error::Missing("spank_get_item")));
        assert_eq!(handle.getenv("HOME"), Err(Error::Missing("spank_getenv")));
        assert!(handle.prepend_argv(&[]).is_err());
        assert_eq!(Context::current(), Context::Unknown);
    }
}

//! Turns a user's options into a request and puts the wrapper around the job.
//!
//! This file holds what Slurm calls, and only that: each entry passes one guard and hands over to the file that
//! is named after the place where Slurm has loaded the plugin: `allocator` (`sbatch`, `salloc`, `scrontab`),
//! `local` (`srun`), `batch` (the batch script's task on its first node).
//!
//! Architecture invariants: beside a job (`slurmstepd`, `slurmd`) every entry answers 0, so nothing that goes
//! wrong here stops a job or drains a node; no policy, no thread, no RPC, no waiting (in `sbatch`
//! a script that comes by a pipe is waited for, as Slurm does); `job_prolog` and
//! `job_epilog` are not exported, because they would cost every job of the site a process per node.
// SPDX-License-Identifier: GPL-2.0-or-later

#![allow(non_upper_case_globals, reason = "Slurm looks these names up")]

mod allocator;
mod batch;
mod input;
mod launcher;
mod local;
mod option_values;
mod output;
mod prospect;
mod site;
mod submit;
mod wanted;

use spank::raw::spank_t;
use spank::{Context, Handle, Level, OnError, Step, guard, hook, log};
use std::os::raw::{c_char, c_int};
use std::sync::atomic::{AtomicU32, Ordering};

/// The name in Slurm's log and in the variables that carry the options.
#[unsafe(no_mangle)]
pub static plugin_name: [u8; 11] = *b"joulepoint\0";

/// Tells `joulepoint doctor` the version of this file.
#[used]
static VERSION: &str = concat!("joulepoint plugin ", env!("CARGO_PKG_VERSION"), "\0");

/// What Slurm accepts as a SPANK plugin.
#[unsafe(no_mangle)]
pub static plugin_type: [u8; 6] = *b"spank\0";

/// The Slurm version for which the plugin stands: that of the process that loads it, set before Slurm looks.
#[unsafe(no_mangle)]
pub static plugin_version: AtomicU32 = AtomicU32::new(0);

/// A plugin that cannot start costs the job, never the node (Slurm 25.05 and later; older ones do not look).
#[unsafe(no_mangle)]
pub static slurm_spank_init_failure_mode: c_int = spank::raw::JOB_FAILURE;

#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    guard("load", OnError::Continue, || {
        plugin_version.store(spank::plugin_version(), Ordering::Relaxed);
        Ok(())
    });
}

/// Registers the options; called in every process that loads the plugin.
///
/// # Safety
/// Called by Slurm with its own handle and arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init(spank: spank_t, argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: Slurm's own arguments of this hook.
    unsafe {
        hook("init", OnError::Continue, spank, argc, argv, |handle, words| {
            let (site, wrong) = site::Site::parse(words);
            option_values::register(handle, callback);
            if Context::current() == Context::Allocator {
                option_values::forget_inherited();
                output::add_to(&site);
            }
            site::keep(site);
            // The site's mistake stops nobody's job.
            wrong.unwrap_or_else(|reason| tell_who_can_mend(handle, &reason));
            Ok(())
        })
    }
}

/// Checks the whole request where a job is submitted.
///
/// # Safety
/// Called by Slurm with its own handle and arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_init_post_opt(spank: spank_t, argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: Slurm's own arguments of this hook.
    let answer = unsafe {
        hook("init_post_opt", at_submit(), spank, argc, argv, |_, _| {
            match Context::current() {
                Context::Allocator => allocator::init_post_opt(),
                Context::Local => local::init_post_opt(),
                _ => Ok(()),
            }
            .map_err(in_slurms_log)
        })
    };
    refuse_for_certain(answer)
}

/// Puts the wrapper in front of the batch script, as the job's user, just before it is executed.
///
/// # Safety
/// Called by Slurm with its own handle and arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slurm_spank_task_init(spank: spank_t, argc: c_int, argv: *mut *mut c_char) -> c_int {
    // SAFETY: Slurm's own arguments of this hook.
    unsafe {
        hook("task_init", OnError::Continue, spank, argc, argv, |handle: &Handle<'_>, _| {
            batch::task_init(handle).map_err(in_slurms_log)
        })
    }
}

/// Slurm's call for each option that a user wrote; a value may come several times, the last one counts.
unsafe extern "C" fn callback(id: c_int, value: *const c_char, remote: c_int) -> c_int {
    let on_error = if remote == 0 { at_submit() } else { OnError::Continue };
    guard("option callback", on_error, || {
        // SAFETY: Slurm passes NULL or a NUL-terminated text that lives during the call.
        let value = unsafe { spank::argument(value) };
        let place = if remote == 0 { Context::current() } else { Context::Remote };
        option_values::accept(id, value, place).map_err(in_slurms_log)
    })
}

/// Refusing what a user wrote is for the place where a job is submitted; a step inside a job, and all that runs beside it, goes on.
fn at_submit() -> OnError {
    match Context::current() {
        Context::Allocator => OnError::Refuse,
        Context::Local if !local::inside_a_job() => OnError::Refuse,
        _ => OnError::Continue,
    }
}

/// Leaves the command that was refused. An `optional` plugin's refusal in a hook is ignored by Slurm, and the job
/// would be submitted although its owner was told otherwise; `required` would stop all jobs of a site where
/// one node lacks the plugin.
fn refuse_for_certain(answer: c_int) -> c_int {
    if answer != 0 && at_submit() == OnError::Refuse {
        std::process::exit(1);
    }
    answer
}

/// Tells of a mistake in plugstack.conf those who can mend it: root at a terminal, and once a job the log of the node.
fn tell_who_can_mend(handle: &Handle<'_>, reason: &str) {
    // SAFETY: a system call without arguments that always succeeds.
    let is_root = unsafe { libc::geteuid() } == 0;
    let level = match Context::current() {
        Context::Allocator | Context::Local if is_root => Level::Error,
        Context::Remote if handle.step() == Ok(Step::Batch) => Level::Error,
        _ => Level::Debug,
    };
    log(level, &format!("joulepoint: {reason}; it is passed over, and the rest of the line counts"));
}

/// Errors of the plugin in Slurm's log say whose they are.
fn in_slurms_log(reason: String) -> String {
    format!("joulepoint: {reason}")
}

/// One line for the person who typed the command.
fn inform(message: &str) {
    log(Level::Info, &format!("joulepoint: {message}"));
}

//! Registering a plugin's options.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::host::host;
use crate::{Error, Handle, Result};
use slurm_sys::v22_05 as sys;
use std::ffi::CString;
use std::os::raw::{c_char, c_int};

/// Whether an option has a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Never.
    None,
    /// Always.
    Required,
    /// With or without.
    Optional,
}

/// One option as Slurm wants to know it.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec<'a> {
    /// Name without dashes in front.
    pub name: &'a str,
    /// Name of the value in `--help`.
    pub arginfo: &'a str,
    /// Line in `--help`.
    pub usage: &'a str,
    /// Whether it has a value.
    pub value: Value,
    /// The number by which the callback knows the option.
    pub id: c_int,
}

/// The callback: the option's number, its value or NULL, and whether it runs beside the job.
pub type Callback = unsafe extern "C" fn(c_int, *const c_char, c_int) -> c_int;

/// Registers one option; works only from the `init` hook.
///
/// # Errors
/// What Slurm said, or a text with a NUL byte.
pub fn register(handle: &Handle<'_>, option: &OptionSpec<'_>, callback: Callback) -> Result<()> {
    let function = host().option_register()?;
    let text = |text: &str| CString::new(text).map_err(|_| Error::Nul);
    let (name, arginfo, usage) = (text(option.name)?, text(option.arginfo)?, text(option.usage)?);
    let mut raw = sys::spank_option {
        name: name.as_ptr().cast_mut(),
        arginfo: if option.value == Value::None { std::ptr::null_mut() } else { arginfo.as_ptr().cast_mut() },
        usage: usage.as_ptr().cast_mut(),
        has_arg: match option.value {
            Value::None => 0,
            Value::Required => 1,
            Value::Optional => 2,
        },
        val: option.id,
        cb: Some(callback),
    };
    // SAFETY: Slurm copies the three texts before it returns (`_spank_plugin_option_create`), and the callback
    // lives in the plugin, which stays loaded as long as Slurm may call it.
    Error::check(unsafe { function(handle.raw(), &raw mut raw) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_slurm_registering_is_an_error() {
        unsafe extern "C" fn callback(_: c_int, _: *const c_char, _: c_int) -> c_int {
            0
        }
        let option = OptionSpec { name: "x", arginfo: "", usage: "", value: Value::None, id: 0 };
        // SAFETY: NULL is never followed.
        let handle = unsafe { Handle::new(std::ptr::null_mut()) };
        assert_eq!(register(&handle, &option, callback), Err(Error::Missing("spank_option_register")));
    }
}

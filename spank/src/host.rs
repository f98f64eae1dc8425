//! The functions of the process that loaded the plugin, looked up by name once.
// SPDX-License-Identifier: GPL-2.0-or-later

use crate::{Error, Result};
use slurm_sys::{v22_05 as sys, v24_11};
use std::ffi::CStr;
use std::os::raw::{c_char, c_int, c_long, c_void};
use std::sync::OnceLock;

/// Looks a symbol up in the whole process.
fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym with RTLD_DEFAULT and a NUL-terminated name has no other precondition.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Declares the table: for each function its field, its name in Slurm and its type; the type is compared with
/// the checked-in declaration when this is compiled.
macro_rules! host {
    ($($field:ident: $module:ident::$name:ident as $type:ty;)*) => {
        /// Function pointers into the host process; absent where this Slurm has no such function.
        pub(crate) struct Host { $($field: Option<$type>,)* }

        $(const _: $type = $module::$name;)*

        impl Host {
            fn find() -> Host {
                $(
                    const _: () = assert!(size_of::<$type>() == size_of::<*mut c_void>());
                )*
                Host { $(
                    $field: symbol(
                        CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap_or(c""),
                    )
                    // SAFETY: the symbol of that name in a Slurm process has the declared type, which is
                    // the same in every series (slurm-sys' tests), and a function pointer has its size.
                    .map(|found| unsafe { std::mem::transmute::<*mut c_void, $type>(found) }),
                )* }
            }

            $(
                pub(crate) fn $field(&self) -> Result<$type> {
                    self.$field.ok_or(Error::Missing(stringify!($name)))
                }
            )*
        }
    };
}

pub(crate) type LogFunction = unsafe extern "C" fn(*const c_char, ...);

host! {
    api_version: sys::slurm_api_version as unsafe extern "C" fn() -> c_long;
    context: sys::spank_context as unsafe extern "C" fn() -> sys::spank_context_t;
    get_item: sys::spank_get_item as
        unsafe extern "C" fn(sys::spank_t, sys::spank_item_t, ...) -> sys::spank_err_t;
    getenv: sys::spank_getenv as
        unsafe extern "C" fn(sys::spank_t, *const c_char, *mut c_char, c_int) -> sys::spank_err_t;
    setenv: sys::spank_setenv as
        unsafe extern "C" fn(sys::spank_t, *const c_char, *const c_char, c_int) -> sys::spank_err_t;
    unsetenv: sys::spank_unsetenv as unsafe extern "C" fn(sys::spank_t, *const c_char) -> sys::spank_err_t;
    option_register: sys::spank_option_register as
        unsafe extern "C" fn(sys::spank_t, *mut sys::spank_option) -> sys::spank_err_t;
    prepend_task_argv: v24_11::spank_prepend_task_argv as
        unsafe extern "C" fn(v24_11::spank_t, c_int, *mut *const c_char) -> v24_11::spank_err_t;
    log_error: sys::slurm_error as LogFunction;
    log_info: sys::slurm_info as LogFunction;
    log_verbose: sys::slurm_verbose as LogFunction;
    log_debug: sys::slurm_debug as LogFunction;
    log_user: sys::slurm_spank_log as LogFunction;
}

/// The host process' functions.
pub(crate) fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(Host::find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_slurm_every_function_is_missing_by_name() {
        assert_eq!(host().get_item().err(), Some(Error::Missing("spank_get_item")));
        assert_eq!(host().prepend_task_argv().err(), Some(Error::Missing("spank_prepend_task_argv")));
    }
}

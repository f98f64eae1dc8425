//! What can go wrong at Slurm's wall: its numbers end here and become one enum.
// SPDX-License-Identifier: GPL-2.0-or-later

use slurm_sys::v22_05 as sys;
use std::fmt;

/// Why Slurm did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The process that loaded the plugin does not offer this function.
    Missing(&'static str),
    /// A text for Slurm contains a NUL byte.
    Nul,
    /// An argument was refused.
    BadArgument,
    /// The variable does not exist.
    NoVariable,
    /// The variable exists and was not to be overwritten.
    VariableExists,
    /// The value is larger than this room reads.
    TooLarge,
    /// Not to be had in this context or at this moment.
    NotAvailable,
    /// Another number of Slurm.
    Other(u32),
}

/// A result with this room's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn check(code: sys::spank_err_t) -> Result<()> {
        Err(match code {
            sys::SLURM_SUCCESS => return Ok(()),
            sys::ESPANK_BAD_ARG => Error::BadArgument,
            sys::ESPANK_ENV_NOEXIST => Error::NoVariable,
            sys::ESPANK_ENV_EXISTS => Error::VariableExists,
            sys::ESPANK_NOSPACE => Error::TooLarge,
            sys::ESPANK_NOT_TASK
            | sys::ESPANK_NOT_REMOTE
            | sys::ESPANK_NOT_LOCAL
            | sys::ESPANK_NOT_EXECD
            | sys::ESPANK_NOT_AVAIL => Error::NotAvailable,
            other => Error::Other(other),
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Missing(name) => write!(f, "this Slurm has no {name}"),
            Error::Nul => write!(f, "the text contains a NUL byte"),
            Error::BadArgument => write!(f, "Slurm refused an argument"),
            Error::NoVariable => write!(f, "the variable is not set"),
            Error::VariableExists => write!(f, "the variable is set already"),
            Error::TooLarge => write!(f, "the value is too large"),
            Error::NotAvailable => write!(f, "not available in this context"),
            Error::Other(code) => write!(f, "Slurm error {code}"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_at_the_wall() {
        assert_eq!(Error::check(0), Ok(()));
        assert_eq!(Error::check(3004), Err(Error::NoVariable));
        assert_eq!(Error::check(u32::MAX), Err(Error::Other(u32::MAX)));
        assert_eq!(Error::Missing("spank_getenv").to_string(), "this Slurm has no spank_getenv");
    }
}

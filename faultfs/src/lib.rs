//! A network file system in memory that fails and lies on demand: one server, several mounts, each with caches of its own.
//!
//! Each mount behaves as a client of NFS does. It asks the server when a file is opened and writes back when it is closed;
//! between, it may show attributes, names and folders as they were up to a minute ago. Time stands still unless a test
//! advances it. A file that is removed while its own mount has it open gets another name; elsewhere it is stale. Rules say
//! which call fails, how often and how. What was not synced is lost when the server crashes.

mod attributes;
mod client;
mod content;
mod faults;
mod fuse;
mod script;
mod server;
mod shared;

pub use faults::{Fault, Op, Rule};
pub use script::{Command, Malformed};
pub use shared::{Cut, FaultFs, Mounted, Settings};

/// Number of a file on the server.
pub type Ino = u64;

/// An answer of the file system.
pub type Answer<T> = Result<T, nix::errno::Errno>;

//! How the parts speak to each other: HTTP and JSON, signed by munge over TCP, vouched for by the kernel on a socket.
//!
//! A request carries `Authorization: MUNGE <credential>` whose payload names the audience, the method, the path and
//! the body's hash, so that the credential is good for this request only, and munged refuses it a second time. An
//! answer carries a credential of the service over the request and the body, so that whoever takes the port while
//! the service is away cannot speak in its name (docs/decisions/munge.md). What a node says each second is signed by the key
//! of a session that munge has opened ([`session`]).

mod client;
mod local;
mod munge;
mod place;
#[cfg(feature = "private-munged")]
pub mod private;
mod proof;
pub mod session;

pub use client::{Client, Error, query};
/// The largest body of a request that a service takes, bytes: whoever has more to say says it in parts.
pub const LARGEST_BODY: usize = 4 << 20;

pub use munge::{Distrust, Munge, MungeError, Peer};
pub use proof::{CONTROLLER, Opened, PROOF, Refused, node_audience, prove};

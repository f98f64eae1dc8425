//! Which engine can carry out which protocol: the one place that a new engine changes.

use crate::Wanted;
use crate::alone::Together;
use options::{Engine, Log, Settings};
use policy::choice::{Hindrance, Protocol};

/// What can be carried out. A protocol that no row allows is estimated only.
pub const CAPABILITIES: &[(Engine, &[Protocol])] = &[
    (Engine::App, &[Protocol::Coordinated]),
    (Engine::Hook, &[Protocol::Coordinated]),
    (Engine::Criu, &[Protocol::Coordinated, Protocol::DiskLog]),
    (Engine::Scr, &[Protocol::Coordinated]),
    (Engine::Dmtcp, &[Protocol::Coordinated]),
    (Engine::Veloc, &[Protocol::Coordinated]),
];

/// A table such as [`CAPABILITIES`].
pub type Capabilities = [(Engine, &'static [Protocol])];

/// Whether the engine of a run can carry out a protocol; any engine, where none is asked for.
pub fn enacts(capabilities: &Capabilities, engine: Option<Engine>, protocol: Protocol) -> bool {
    let asked = |e: Engine| engine.is_none_or(|wanted| wanted == e);
    capabilities.iter().any(|(e, protocols)| asked(*e) && protocols.contains(&protocol))
}

/// What else is written for groups that recover alone by a protocol; nothing where they cannot be had.
fn with_groups(protocol: Protocol) -> Option<&'static str> {
    match protocol {
        Protocol::DiskLog => Some("--ft-energy-log=disk"),
        Protocol::MemoryLog => Some("--ft-energy-log=memory"),
        Protocol::DiskLogLent => Some("--ft-energy-log=disk --ft-energy-lend=yes"),
        Protocol::Coordinated | Protocol::MemoryLogLent | Protocol::Shadow => None,
    }
}

/// The protocol of groups that log messages, where they were asked for.
pub(crate) fn asked(settings: &Settings) -> Option<Protocol> {
    match (settings.log?, settings.lend) {
        (Log::Disk, false) => Some(Protocol::DiskLog),
        (Log::Disk, true) => Some(Protocol::DiskLogLent),
        (Log::Memory, _) => Some(Protocol::MemoryLog),
    }
}

/// Why a protocol is not open to the choice.
pub(crate) fn hindrance(capabilities: &Capabilities, wanted: &Wanted<'_>, protocol: Protocol) -> Option<Hindrance> {
    let settings = wanted.settings;
    let by_hand = with_groups(protocol)
        .map(|log| format!("only with --ft-energy-protocol=uncoordinated --ft-energy-groups=N {log}"));
    let why = match (is_enacted(capabilities, wanted, protocol), wanted.engine, by_hand) {
        (Ok(()), ..) => None,
        (Err(Closed::Together(why)), _, Some(by_hand)) => Some(format!("{by_hand}: {why}")),
        (Err(_), None | Some(Engine::App | Engine::Hook | Engine::Criu), Some(by_hand)) => Some(by_hand),
        (Err(_), Some(engine), _) => Some(format!("estimated only: the engine {} cannot enact it", engine.as_str())),
        (Err(_), None, None) => Some("estimated only: no engine can enact it yet".to_string()),
    };
    let unasked = match protocol {
        Protocol::Coordinated => None,
        _ if settings.protocol == Some(options::Protocol::Coordinated) => Some("coordinated was asked for"),
        Protocol::Shadow => Some("needs twice the nodes"),
        Protocol::DiskLogLent | Protocol::MemoryLogLent => Some("lending was not asked for"),
        Protocol::DiskLog | Protocol::MemoryLog => None,
    };
    match (why, unasked) {
        (None, None) => None,
        (Some(why), None) => Some(Hindrance::NotEnacted(why)),
        (None, Some(unasked)) => Some(Hindrance::NotAsked(unasked.to_string())),
        (Some(why), Some(unasked)) => Some(Hindrance::NotAsked(format!("{why}; {unasked}"))),
    }
}

/// Why a protocol is not carried out for a run that has not asked for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Closed {
    /// No engine that it may have can do it.
    #[error("no engine of the run can enact it")]
    Engine,
    /// Its nodes go back together.
    #[error(transparent)]
    Together(#[from] Together),
}

/// Whether a protocol can be carried out for a run that has not asked for it.
///
/// # Errors
/// Why not.
pub(crate) fn is_enacted(capabilities: &Capabilities, wanted: &Wanted<'_>, protocol: Protocol) -> Result<(), Closed> {
    if !enacts(capabilities, wanted.engine, protocol) {
        return Err(Closed::Engine);
    }
    match (&wanted.alone, protocol) {
        (Err(why), Protocol::DiskLog) => Err(why.clone().into()),
        _ => Ok(()),
    }
}

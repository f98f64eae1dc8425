//! Proves to another relay that this one knows the run's token, without sending it.
//!
//! A plain comparison of the token would give it to anyone who listens, or who sits at the address of a relay that
//! has gone. So each side answers the other's nonce with an HMAC-SHA-256. What follows is not encrypted, as MPI's is not.

use crate::{Error, system};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// Bytes of a token and of a nonce.
pub const SECRET_BYTES: usize = 32;

/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;

/// Most callers at a time that have not proved who they are.
pub const MOST_UNPROVEN: usize = 64;

/// Time after which an unproven caller may be closed to make room for another; a proof takes milliseconds.
pub const UNPROVEN_UNDISTURBED: Duration = Duration::from_secs(1);

/// Longest time in which a caller must prove who it is.
pub const PROOF_LIMIT: Duration = Duration::from_secs(5);

/// The run's secret.
#[derive(Clone)]
pub struct Token([u8; SECRET_BYTES]);

impl Token {
    /// Reads a run's token; the first relay to come makes it. Only the user may read the file.
    ///
    /// # Errors
    /// The file cannot be read or made, or others may read it.
    pub fn open(path: &Path) -> Result<Token, Error> {
        if !path.exists() {
            make(path)?;
        }
        let mut file = File::open(path).map_err(system(path.display()))?;
        let about = file.metadata().map_err(system(path.display()))?;
        if about.mode() & 0o077 != 0 || about.uid() != nix::unistd::geteuid().as_raw() {
            return Err(Error::Usage(format!("{}: others may read it; remove it, or chmod 600", path.display())));
        }
        let mut secret = [0; SECRET_BYTES];
        file.read_exact(&mut secret).map_err(system(path.display()))?;
        Ok(Token(secret))
    }

    /// The proof for this exchange.
    pub fn prove(&self, words: &Words) -> [u8; PROOF_BYTES] {
        self.mac(words).finalize().into_bytes().into()
    }

    /// Whether a proof is right; takes the same time for every wrong one.
    pub fn check(&self, words: &Words, proof: &[u8]) -> bool {
        self.mac(words).verify_slice(proof).is_ok()
    }

    fn mac(&self, words: &Words) -> Hmac<Sha256> {
        // A key of any length is taken; this one is shorter than the block, and so never hashed.
        let mut block = [0; 64];
        block[..SECRET_BYTES].copy_from_slice(&self.0);
        let mut mac = <Hmac<Sha256> as hmac::digest::KeyInit>::new(&block.into());
        mac.update(words.role);
        mac.update(&words.dialer.to_le_bytes());
        mac.update(&words.listener.to_le_bytes());
        mac.update(words.dialer_nonce);
        mac.update(words.listener_nonce);
        mac
    }
}

/// The exchange that a proof is bound to.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    /// Who proves it: [`DIALER`] or [`LISTENER`].
    pub role: &'static [u8],
    /// The group that called.
    pub dialer: u16,
    /// The group that was called.
    pub listener: u16,
    /// The caller's nonce.
    pub dialer_nonce: &'a [u8],
    /// The nonce of the one called.
    pub listener_nonce: &'a [u8],
}

/// The side that called.
pub const DIALER: &[u8] = b"joulepoint dialer 1";
/// The side that was called.
pub const LISTENER: &[u8] = b"joulepoint listener 1";

/// Random bytes of the system.
///
/// # Errors
/// What the system says.
pub fn random() -> Result<[u8; SECRET_BYTES], Error> {
    let mut bytes = [0; SECRET_BYTES];
    let read = File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
    read.map_err(system("/dev/urandom"))?;
    Ok(bytes)
}

/// Makes a token under a name of its own and links it to its place, so that all relays see one whole token.
fn make(path: &Path) -> Result<(), Error> {
    let own = path.with_extension(format!("{}.new", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&own)?;
        file.write_all(&random().map_err(std::io::Error::other)?)?;
        file.sync_all()?;
        match fs::hard_link(&own, path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(e),
            _ => Ok(()),
        }
    };
    let made = write();
    let removed = fs::remove_file(&own);
    made.and(removed).map_err(system(path.display()))
}

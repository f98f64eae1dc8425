//! What a credential says, and how the receiving side holds it against what it received.

use crate::{Munge, MungeError, Peer};
use sha2::{Digest, Sha256};

/// The header in which an answer carries the service's credential.
pub const PROOF: &str = "joulepoint-proof";

/// Marks our payloads, so that a credential made for another service is worth nothing here.
const MARK: &str = "joulepoint/1";

/// The audience of credentials for the controller.
pub const CONTROLLER: &str = "controller";

/// The audience of credentials for the service of a node: each host has a munged of its own, so that without it one
/// node's request could be passed on to another.
pub fn node_audience(node: &str) -> String {
    format!("node:{node}")
}

/// The longest credential that is handed to munged, bytes.
const LONGEST: usize = 8192;

/// Why a request was not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No `Authorization: MUNGE ...` header.
    #[error("this service wants 'Authorization: MUNGE <credential>'")]
    Missing,
    /// munged does not accept the credential.
    #[error("the credential is refused: {0}")]
    Credential(String),
    /// The credential was made for another request.
    #[error("the credential belongs to another request")]
    OtherRequest,
    /// munged of the service's host is away.
    #[error("the service cannot check credentials: {0}")]
    Unavailable(String),
}

impl Refused {
    /// The HTTP status that says so.
    pub fn status(&self) -> u16 {
        match self {
            Refused::Unavailable(_) => 503,
            _ => 401,
        }
    }
}

/// A credential that munged has accepted, made for this audience, method and path; its body is still to come.
///
/// The two steps let a service read bodies of known users only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Who made it.
    pub peer: Peer,
    body_digest: String,
}

impl Opened {
    /// Reads the credential of a request; `path` includes the query, as it stands in the request line.
    ///
    /// # Errors
    /// Why the request is refused. munged accepts a credential once, so one that is refused here is used up too.
    pub fn read(
        munge: &Munge,
        audience: &str,
        authorization: Option<&str>,
        method: &str,
        path: &str,
    ) -> Result<Opened, Refused> {
        let credential = authorization.and_then(|a| a.strip_prefix("MUNGE ")).map(str::trim).ok_or(Refused::Missing)?;
        if credential.len() > LONGEST {
            return Err(Refused::Credential("it is too long".into()));
        }
        let (payload, peer) = munge.decode(credential).map_err(|e| match e {
            MungeError::NoDaemon(_) => Refused::Unavailable(e.to_string()),
            _ => Refused::Credential(e.to_string()),
        })?;
        let payload = String::from_utf8(payload).map_err(|_| Refused::OtherRequest)?;
        let body_digest = payload.strip_prefix(&head(audience, method, path)).ok_or(Refused::OtherRequest)?;
        Ok(Opened { peer, body_digest: body_digest.to_owned() })
    }

    /// One within a session.
    pub(crate) fn of(peer: Peer, body_digest: &str) -> Opened {
        Opened { peer, body_digest: body_digest.to_owned() }
    }

    /// Who sent the request with this body.
    ///
    /// # Errors
    /// When the credential was made for another body.
    pub fn over(self, body: &[u8]) -> Result<Peer, Refused> {
        if digest(body) == self.body_digest { Ok(self.peer) } else { Err(Refused::OtherRequest) }
    }
}

/// The value of the [`PROOF`] header of an answer to the request with this `Authorization`.
pub fn prove(munge: &Munge, authorization: &str, status: u16, body: &[u8]) -> Result<String, MungeError> {
    munge.encode(answer_payload(authorization, status, body).as_bytes())
}

/// What a client signs.
pub(crate) fn request_payload(audience: &str, method: &str, path: &str, body: &[u8]) -> String {
    head(audience, method, path) + &digest(body)
}

/// What the HMAC of a request within a session is over: audience, method and path, and the body's hash.
pub(crate) fn session_payload(node: &str, number: u64, request: [&str; 3], body_digest: &str) -> String {
    let [audience, method, path] = request;
    format!("session {node} {number} {}{body_digest}", head(audience, method, path))
}

fn head(audience: &str, method: &str, path: &str) -> String {
    format!("{MARK} {audience} {method} {path} ")
}

pub(crate) fn answer_payload(authorization: &str, status: u16, body: &[u8]) -> String {
    format!("{MARK} answer {} {status} {}", digest(authorization.as_bytes()), digest(body))
}

/// The hash of a body.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut text, byte| {
        text.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        text.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_another_scheme_is_refused_without_asking_munged() {
        let munge = Munge::new(Some("/nonexistent".into()));
        for header in [None, Some(""), Some("Bearer x"), Some("munge x")] {
            assert_eq!(Opened::read(&munge, CONTROLLER, header, "GET", "/"), Err(Refused::Missing));
        }
    }

    #[test]
    fn audience_method_path_query_and_body_all_count() {
        let one = request_payload(CONTROLLER, "GET", "/v1/report?job=1", b"");
        for (audience, method, path, body) in [
            ("node:n1", "GET", "/v1/report?job=1", &b""[..]),
            (CONTROLLER, "POST", "/v1/report?job=1", b""),
            (CONTROLLER, "GET", "/v1/report?job=2", b""),
            (CONTROLLER, "GET", "/v1/report?job=1", b" "),
        ] {
            assert_ne!(one, request_payload(audience, method, path, body));
        }
    }

    #[test]
    fn the_hash_is_sha256() {
        assert!(digest(b"").starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
    }
}

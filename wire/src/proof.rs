//! What a credential says, and how the receiving side holds it against what it received.

use crate::{Munge, MungeError, Peer};
use sha2::{Digest, Sha256};

/// The header in which an answer carries the service's credential.
pub const PROOF: &str = "joulepoint-proof";

/// Marks our payloads, so that a credential made for another service is worth nothing here.
const MARK: &str = "joulepoint/1";

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

/// Who sent a request; `path` includes the query, as it stands in the request line.
pub fn verify(
    munge: &Munge,
    authorization: Option<&str>,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Peer, Refused> {
    let credential = authorization.and_then(|a| a.strip_prefix("MUNGE ")).map(str::trim).ok_or(Refused::Missing)?;
    if credential.len() > LONGEST {
        return Err(Refused::Credential("it is too long".into()));
    }
    let (payload, peer) = munge.decode(credential).map_err(|e| match e {
        MungeError::NoDaemon(_) => Refused::Unavailable(e.to_string()),
        _ => Refused::Credential(e.to_string()),
    })?;
    if payload != request_payload(method, path, body).as_bytes() {
        return Err(Refused::OtherRequest);
    }
    Ok(peer)
}

/// The value of the [`PROOF`] header of an answer to the request with this `Authorization`.
pub fn prove(munge: &Munge, authorization: &str, status: u16, body: &[u8]) -> Result<String, MungeError> {
    munge.encode(answer_payload(authorization, status, body).as_bytes())
}

pub(crate) fn request_payload(method: &str, path: &str, body: &[u8]) -> String {
    format!("{MARK} {method} {path} {}", hex(body))
}

pub(crate) fn answer_payload(authorization: &str, status: u16, body: &[u8]) -> String {
    format!("{MARK} answer {} {status} {}", hex(authorization.as_bytes()), hex(body))
}

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().fold(String::with_capacity(64), |mut text, byte| {
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
            assert_eq!(verify(&munge, header, "GET", "/", b""), Err(Refused::Missing));
        }
    }

    #[test]
    fn method_path_query_and_body_all_count() {
        let one = request_payload("GET", "/v1/report?job=1", b"");
        for (method, path, body) in [
            ("POST", "/v1/report?job=1", &b""[..]),
            ("GET", "/v1/report?job=2", b""),
            ("GET", "/v1/report?job=1", b" "),
        ] {
            assert_ne!(one, request_payload(method, path, body));
        }
    }

    #[test]
    fn the_hash_is_sha256() {
        assert!(hex(b"").starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
    }
}

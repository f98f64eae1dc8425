//! A key in place of credentials, for what a node says again and again.
//!
//! A node opens a session by a request that munge signs. The answer holds the key in a credential that only the munged of a
//! host of the site decodes, and only for the user who asked. From then on each request carries a number that grows and an
//! HMAC over it, the audience, method, path and body; the answer one over the request. A number counts once. Services keep
//! sessions in memory: a restart ends them, and munge signs the next request again.

use crate::proof::{answer_payload, digest, hex, session_payload};
use crate::{Client, Distrust, Error, Munge, MungeError, Opened, Peer, Refused};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::Sha256;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The scheme of `Authorization` of a request within a session.
pub const SCHEME: &str = "SESSION ";

/// Where sessions are opened.
pub const PATH: &str = "/v1/session";

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// What the credential that carries a key begins with.
const MARK: &str = "joulepoint/1 session-key";

/// How long a service that knows no sessions is not asked for one again.
const UNKNOWN_FOR: Duration = Duration::from_secs(600);

/// A node asks for a session: `POST /v1/session`, signed by munge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionRequest {
    /// Protocol version of the sender.
    pub version: u32,
    /// Node name as Slurm knows it.
    pub node: String,
    /// The kernel's number of its boot.
    pub boot_id: String,
}

/// What the service answers to a [`SessionRequest`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionReply {
    /// The key, in a credential for the user who asked.
    pub key: String,
}

/// What both sides of a session know.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

/// What a request within a session says of itself, before it is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Of which node's session it is.
    pub node: &'a str,
    /// Its number.
    pub number: u64,
    body_digest: &'a str,
    mac: &'a str,
}

impl<'a> Claim<'a> {
    /// Reads the header of a request, if it is of this scheme.
    pub fn read(authorization: &'a str) -> Option<Claim<'a>> {
        let words: Vec<&str> = authorization.strip_prefix(SCHEME)?.split(' ').collect();
        let [node, number, body_digest, mac] = words[..] else { return None };
        Some(Claim { node, number: number.parse().ok()?, body_digest, mac })
    }
}

impl Key {
    /// A key of these bytes, which nobody can guess.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Key {
        Key(bytes)
    }

    /// The credential that hands the key to a user, for one boot of a node.
    ///
    /// # Errors
    /// What munge says.
    pub fn sealed(&self, munge: &Munge, uid: u32, node: &str, boot_id: &str) -> Result<String, MungeError> {
        munge.encode_for(uid, format!("{MARK} {node} {boot_id} {}", hex(&self.0)).as_bytes())
    }

    /// The key in a credential of root's, or of one's own.
    ///
    /// # Errors
    /// Why the credential is not believed.
    pub fn unsealed(munge: &Munge, sealed: &str, node: &str, boot_id: &str) -> Result<Key, Distrust> {
        let (payload, peer) = munge.decode(sealed)?;
        peer.of_a_service()?;
        let payload = String::from_utf8(payload).map_err(|_| Distrust::NoKey)?;
        let text = payload.strip_prefix(&format!("{MARK} {node} {boot_id} ")).ok_or(Distrust::OtherSession)?;
        let key = unhex(text).and_then(|bytes| bytes.try_into().ok()).ok_or(Distrust::NoKey)?;
        Ok(Key(key))
    }

    /// The header of a request for audience, method and path.
    pub fn authorization(&self, node: &str, number: u64, request: [&str; 3], body: &[u8]) -> String {
        let digest = digest(body);
        let mac = hex(&self.mac(&session_payload(node, number, request, &digest)).finalize().into_bytes());
        format!("{SCHEME}{node} {number} {digest} {mac}")
    }

    /// Believes a claim that this key signed for audience, method and path; its body is still to come.
    ///
    /// # Errors
    /// That it was not.
    pub fn open(&self, claim: &Claim, request: [&str; 3], peer: Peer) -> Result<Opened, Refused> {
        let payload = session_payload(claim.node, claim.number, request, claim.body_digest);
        self.verify(&payload, claim.mac).then(|| Opened::of(peer, claim.body_digest)).ok_or(Refused::OtherRequest)
    }

    /// The value of the [`crate::PROOF`] header of an answer to the request with this `Authorization`.
    pub fn prove(&self, authorization: &str, status: u16, body: &[u8]) -> String {
        hex(&self.mac(&answer_payload(authorization, status, body)).finalize().into_bytes())
    }

    /// Whether an answer is of the service that knows the key.
    fn check(&self, proof: Option<&str>, authorization: &str, status: u16, body: &[u8]) -> Result<(), Distrust> {
        let proof = proof.ok_or(Distrust::NoProof)?;
        let is_ours = self.verify(&answer_payload(authorization, status, body), proof);
        is_ours.then_some(()).ok_or(Distrust::OtherSession)
    }

    fn verify(&self, payload: &str, mac: &str) -> bool {
        let bytes = Some(mac).filter(|mac| mac.len() == 64).and_then(unhex);
        bytes.is_some_and(|bytes| self.mac(payload).verify_slice(&bytes).is_ok())
    }

    fn mac(&self, payload: &str) -> Hmac<Sha256> {
        // HMAC fills a shorter key up with zeros.
        let mut block = [0_u8; 64];
        block[..KEY_BYTES].copy_from_slice(&self.0);
        let mut mac = <Hmac<Sha256> as KeyInit>::new(&block.into());
        mac.update(payload.as_bytes());
        mac
    }
}

/// What was written in hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(text.get(i..i + 2)?, 16).ok()).collect()
}

/// What is known of the session with a service.
#[derive(Debug)]
enum State {
    /// None: it is to be opened.
    Closed,
    /// It is open, and so many requests were sent in it.
    Open { key: Key, number: u64 },
    /// The service is of a version before sessions.
    Unknown { since: Instant },
}

/// A node's client of the controller, which opens a session where the controller knows them.
#[derive(Debug)]
pub struct SessionClient {
    client: Client,
    munge: Munge,
    request: SessionRequest,
    state: Mutex<State>,
}

impl SessionClient {
    /// For one boot of a node.
    pub fn new(client: Client, munge: Munge, request: SessionRequest) -> SessionClient {
        SessionClient { client, munge, request, state: Mutex::new(State::Closed) }
    }

    /// `POST path` with a JSON body: within a session, or signed by munge where the service knows none.
    ///
    /// # Errors
    /// As [`Client::post`].
    pub fn post<B: Serialize + ?Sized, T: DeserializeOwned>(&self, path: &str, body: &B) -> Result<T, Error> {
        let mut state = self.state();
        if let Some(answer) = self.within(&mut state, path, body)? {
            return Ok(answer);
        }
        // The service has no such session, or not any more: another is opened, and used at once.
        self.open(&mut state)?;
        match self.within(&mut state, path, body)? {
            Some(answer) => Ok(answer),
            None => self.client.post(path, body),
        }
    }

    /// The answer within the session that is open; none if there is none, or the service does not take it.
    fn within<B: Serialize + ?Sized, T: DeserializeOwned>(
        &self,
        state: &mut State,
        path: &str,
        body: &B,
    ) -> Result<Option<T>, Error> {
        let State::Open { key, number } = state else { return Ok(None) };
        *number += 1;
        let (key, number) = (key.clone(), *number);
        let sign =
            |audience: &str, body: &[u8]| key.authorization(&self.request.node, number, [audience, "POST", path], body);
        let check = |proof: Option<&str>, of: &str, status, body: &[u8]| key.check(proof, of, status, body);
        match self.client.post_signed(path, body, sign, check) {
            Err(Error::Unproven { status: 401, .. }) => {
                *state = State::Closed;
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// Opens a session, unless the service is known not to know them.
    fn open(&self, state: &mut State) -> Result<(), Error> {
        if matches!(state, State::Unknown { since } if since.elapsed() < UNKNOWN_FOR) {
            return Ok(());
        }
        match self.client.post::<SessionRequest, SessionReply>(PATH, &self.request) {
            Ok(reply) => {
                let SessionRequest { node, boot_id, .. } = &self.request;
                let key = Key::unsealed(&self.munge, &reply.key, node, boot_id)
                    .map_err(|why| Error::Invalid { url: self.client.base_url().to_owned(), text: why.to_string() })?;
                *state = State::Open { key, number: 0 };
            }
            // Without a proof, since such a service asks nobody who they are before it says so.
            Err(Error::Unproven { status: 404, .. } | Error::Refused { status: 404, .. }) => {
                *state = State::Unknown { since: Instant::now() };
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: [&str; 3] = ["controller", "POST", "/v1/beats"];
    const PEER: Peer = Peer { uid: 0, gid: 0 };

    #[test]
    fn a_request_is_believed_with_its_own_key_number_path_and_body_only() {
        let (key, other) = (Key::new([7; KEY_BYTES]), Key::new([8; KEY_BYTES]));
        let header = key.authorization("n1", 3, REQUEST, b"beat");
        let claim = Claim::read(&header).expect("a claim");
        assert_eq!((claim.node, claim.number), ("n1", 3));
        let opened = key.open(&claim, REQUEST, PEER).expect("ours");
        assert_eq!(opened.clone().over(b"beat"), Ok(PEER));
        assert_eq!(opened.over(b"beaT"), Err(Refused::OtherRequest));
        assert!(other.open(&claim, REQUEST, PEER).is_err());
        assert!(key.open(&claim, ["controller", "POST", "/v1/records"], PEER).is_err());
        for forged in [Claim { number: 4, ..claim.clone() }, Claim { node: "n2", ..claim.clone() }] {
            assert!(key.open(&forged, REQUEST, PEER).is_err(), "{forged:?}");
        }
        for bad in ["", "MUNGE x", "SESSION n1 3 x", "SESSION n1 x d m", "SESSION n1 3 d m e"] {
            assert_eq!(Claim::read(bad), None, "{bad}");
        }
        assert!(key.open(&Claim { mac: "é", ..claim.clone() }, REQUEST, PEER).is_err());
    }

    #[test]
    fn an_answer_is_believed_for_its_own_request_only() {
        let key = Key::new([7; KEY_BYTES]);
        let proof = key.prove("SESSION n1 3 d m", 200, b"yes");
        assert_eq!(key.check(Some(&proof), "SESSION n1 3 d m", 200, b"yes"), Ok(()));
        for (request, status, body) in
            [("SESSION n1 4 d m", 200, b"yes"), ("SESSION n1 3 d m", 201, b"yes"), ("SESSION n1 3 d m", 200, b"yeS")]
        {
            assert!(key.check(Some(&proof), request, status, body).is_err());
        }
        assert!(key.check(None, "SESSION n1 3 d m", 200, b"yes").is_err());
    }
}

//! Sessions that nodes have opened: a key and the last number of each, in memory only.

use parking_lot::Mutex;
use rand::TryRngCore;
use rand::rngs::OsRng;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use wire::session::{Claim, KEY_BYTES, Key};
use wire::{Opened, Peer, Refused};

/// How old a session gets.
const LIFE: Duration = Duration::from_secs(3600);

/// Most sessions; one for each node.
const MOST: usize = 65_536;

/// Longest name of a node and of a boot, bytes.
const LONGEST_NAME: usize = 256;

/// Whose session a request came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfSession {
    /// Node name.
    pub node: String,
    /// The kernel's number of its boot.
    pub boot_id: String,
}

#[derive(Debug)]
struct Session {
    key: Key,
    boot_id: String,
    peer: Peer,
    number: u64,
    since: Instant,
}

/// The sessions of a service, which are good for one path.
#[derive(Debug)]
pub struct Sessions {
    path: &'static str,
    open: Mutex<HashMap<String, Session>>,
}

/// Why no session is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// A name that no node has.
    #[error("a session is of one node and one boot, each named in at most {LONGEST_NAME} bytes without spaces")]
    Name,
    /// There are too many.
    #[error("there are sessions of {MOST} nodes already")]
    TooMany,
    /// The system has no random numbers.
    #[error("there is no key to be had")]
    NoKey,
}

impl Sessions {
    /// None yet; they will be good for requests of this path.
    pub fn new(path: &'static str) -> Sessions {
        Sessions { path, open: Mutex::default() }
    }

    /// Opens a session of a node, which ends the one before.
    ///
    /// # Errors
    /// Why there is none.
    pub fn open(&self, peer: Peer, node: &str, boot_id: &str) -> Result<Key, NotOpened> {
        let is_name = |text: &str| text.len() <= LONGEST_NAME && !text.contains(char::is_whitespace);
        if node.is_empty() || !is_name(node) || !is_name(boot_id) {
            return Err(NotOpened::Name);
        }
        let mut bytes = [0; KEY_BYTES];
        OsRng.try_fill_bytes(&mut bytes).map_err(|_| NotOpened::NoKey)?;
        let key = Key::new(bytes);
        let mut open = self.open.lock();
        if open.len() >= MOST && !open.contains_key(node) {
            open.retain(|_, session| session.since.elapsed() < LIFE);
            if open.len() >= MOST {
                return Err(NotOpened::TooMany);
            }
        }
        let session = Session { key: key.clone(), boot_id: boot_id.to_owned(), peer, number: 0, since: Instant::now() };
        open.insert(node.to_owned(), session);
        Ok(key)
    }

    /// Who sends a request that claims to be of a session, and the key that signs its answer. The claim's number is used up.
    ///
    /// # Errors
    /// That there is no such session, or that it is not of it.
    pub(crate) fn admit(&self, claim: &Claim, request: [&str; 3]) -> Result<(Opened, Key, OfSession), Refused> {
        let none = || Refused::Credential("there is no such session: open one".into());
        if request[2] != self.path {
            return Err(none());
        }
        let mut open = self.open.lock();
        let session = open.get_mut(claim.node).filter(|s| s.since.elapsed() < LIFE).ok_or_else(none)?;
        let opened = session.key.open(claim, request, session.peer)?;
        if claim.number <= session.number {
            return Err(Refused::Credential("the request was sent before".into()));
        }
        session.number = claim.number;
        let of = OfSession { node: claim.node.to_owned(), boot_id: session.boot_id.clone() };
        Ok((opened, session.key.clone(), of))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { uid: 0, gid: 0 };
    const REQUEST: [&str; 3] = ["controller", "POST", "/v1/beats"];

    #[test]
    fn a_number_counts_once_and_a_new_session_ends_the_one_before() {
        let sessions = Sessions::new("/v1/beats");
        let key = sessions.open(PEER, "n1", "b1").expect("a session");
        let header = |key: &Key, number| key.authorization("n1", number, REQUEST, b"");
        let admit = |header: &str| sessions.admit(&Claim::read(header).expect("a claim"), REQUEST).map(|(_, _, of)| of);
        let of = OfSession { node: "n1".into(), boot_id: "b1".into() };
        assert_eq!(admit(&header(&key, 1)), Ok(of.clone()));
        assert!(admit(&header(&key, 1)).is_err(), "a replay");
        assert_eq!(admit(&header(&key, 5)), Ok(of));
        assert!(admit(&header(&key, 4)).is_err(), "an older number");
        let newer = sessions.open(PEER, "n1", "b2").expect("another");
        assert!(admit(&header(&key, 6)).is_err(), "the key before is worth nothing");
        assert_eq!(admit(&header(&newer, 1)).map(|of| of.boot_id), Ok("b2".into()));
    }

    #[test]
    fn a_session_is_good_for_its_path_and_of_a_node_with_a_name() {
        let sessions = Sessions::new("/v1/beats");
        let key = sessions.open(PEER, "n1", "b1").expect("a session");
        let other = ["controller", "POST", "/v1/records"];
        let header = key.authorization("n1", 1, other, b"");
        assert!(sessions.admit(&Claim::read(&header).expect("a claim"), other).is_err());
        for (node, boot_id) in [("", "b"), ("a b", "b"), ("n1", "b c"), (&*"n".repeat(257), "b")] {
            assert_eq!(sessions.open(PEER, node, boot_id), Err(NotOpened::Name));
        }
    }
}

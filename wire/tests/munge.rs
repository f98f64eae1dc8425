//! Credentials of a real munged: made, read, refused a second time, and not good for another request.

use wire::private::PrivateMunged;
use wire::{CONTROLLER, MungeError, Opened, Refused};

/// SAFETY of calling: geteuid takes nothing and cannot fail.
fn own_uid() -> u32 {
    // SAFETY: as above.
    unsafe { libc::geteuid() }
}

#[test]
fn a_credential_tells_who_made_it_and_is_good_once() {
    let dir = tempfile::tempdir().expect("folder");
    let munged = PrivateMunged::start(dir.path()).expect("munged");
    let credential = munged.munge().encode(b"hello").expect("credential");
    let (payload, peer) = munged.munge().decode(&credential).expect("first");
    assert_eq!((payload.as_slice(), peer.uid), (&b"hello"[..], own_uid()));
    assert_eq!(munged.munge().decode(&credential), Err(MungeError::Replayed));
}

#[test]
fn a_credential_is_good_for_its_request_only() {
    let dir = tempfile::tempdir().expect("folder");
    let munged = PrivateMunged::start(dir.path()).expect("munged");
    let munge = munged.munge();
    let read = |header: &str| Opened::read(&munge, CONTROLLER, Some(header), "GET", "/");
    let other = format!("MUNGE {}", munge.encode(b"made for slurmctld").expect("credential"));
    assert_eq!(read(&other), Err(Refused::OtherRequest));
    let forged = read("MUNGE MUNGE:AwQFAAAA:");
    assert!(matches!(forged, Err(Refused::Credential(_))), "{forged:?}");
    let long = format!("MUNGE {}", "x".repeat(100_000));
    assert!(matches!(read(&long), Err(Refused::Credential(_))));
}

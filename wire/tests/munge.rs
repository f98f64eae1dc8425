//! Credentials of a real munged: made, read, refused a second time, and not good for another request.

use wire::private::PrivateMunged;
use wire::{MungeError, Refused, verify};

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
    let other = format!("MUNGE {}", munge.encode(b"made for slurmctld").expect("credential"));
    assert_eq!(verify(&munge, Some(&other), "GET", "/", b""), Err(Refused::OtherRequest));
    let forged = verify(&munge, Some("MUNGE MUNGE:AwQFAAAA:"), "GET", "/", b"");
    assert!(matches!(forged, Err(Refused::Credential(_))), "{forged:?}");
    let long = format!("MUNGE {}", "x".repeat(100_000));
    assert!(matches!(verify(&munge, Some(&long), "GET", "/", b""), Err(Refused::Credential(_))));
}

//! Makes and reads munge credentials through libmunge.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

/// `MUNGE_OPT_CIPHER_TYPE` of munge.h.
const OPT_CIPHER: c_int = 0;
/// `MUNGE_OPT_UID_RESTRICTION`.
const OPT_FOR_UID: c_int = 9;
/// `MUNGE_CIPHER_AES128`, which every munged has.
const AES_128: c_int = 4;
/// `MUNGE_OPT_SOCKET`.
const OPT_SOCKET: c_int = 8;
/// `EMUNGE_SUCCESS`.
const SUCCESS: c_int = 0;
/// `EMUNGE_SOCKET`: munged cannot be reached.
const NO_DAEMON: c_int = 6;
/// `EMUNGE_CRED_EXPIRED`.
const EXPIRED: c_int = 15;
/// `EMUNGE_CRED_REWOUND`.
const REWOUND: c_int = 16;
/// `EMUNGE_CRED_REPLAYED`.
const REPLAYED: c_int = 17;

/// The opaque `struct munge_ctx`.
#[repr(C)]
struct RawContext {
    _opaque: [u8; 0],
}

#[link(name = "munge")]
unsafe extern "C" {
    fn munge_ctx_create() -> *mut RawContext;
    fn munge_ctx_destroy(ctx: *mut RawContext);
    fn munge_ctx_set(ctx: *mut RawContext, option: c_int, ...) -> c_int;
    fn munge_encode(cred: *mut *mut c_char, ctx: *mut RawContext, payload: *const c_void, length: c_int) -> c_int;
    fn munge_decode(
        cred: *const c_char,
        ctx: *mut RawContext,
        payload: *mut *mut c_void,
        length: *mut c_int,
        uid: *mut libc::uid_t,
        gid: *mut libc::gid_t,
    ) -> c_int;
    fn munge_strerror(error: c_int) -> *const c_char;
}

/// Who made a credential, as munged saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Peer {
    /// Accepts root, or this process's own user.
    pub(crate) fn of_a_service(self) -> Result<(), Distrust> {
        // SAFETY: geteuid takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        if self.uid == 0 || self.uid == own { Ok(()) } else { Err(Distrust::MadeBy(self.uid)) }
    }
}

/// Why munge made or accepted no credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MungeError {
    /// munged does not answer.
    #[error("munged does not answer at {0}")]
    NoDaemon(String),
    /// The credential was decoded before.
    #[error("the credential was used before")]
    Replayed,
    /// The clocks differ, or the credential is old.
    #[error("the credential's time is not accepted: {0}")]
    Time(String),
    /// Anything else.
    #[error("munge: {0}")]
    Other(String),
}

/// Why what a service sent is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Distrust {
    /// Whoever answered proves nothing.
    #[error("it carries no proof of the service")]
    NoProof,
    /// The proof is good, and for something else.
    #[error("its proof belongs to another answer")]
    OtherAnswer,
    /// A key or proof is of another session.
    #[error("it is of another session")]
    OtherSession,
    /// Neither root nor this user made it.
    #[error("it was made by user {0}, not by root")]
    MadeBy(u32),
    /// A credential that should hold a key holds none.
    #[error("it holds no key")]
    NoKey,
    /// munge made or accepted no credential.
    #[error(transparent)]
    Munge(#[from] MungeError),
}

/// The munged of this host.
#[derive(Clone, Debug, Default)]
pub struct Munge {
    socket: Option<PathBuf>,
}

/// One context of libmunge, freed when dropped.
struct Context(*mut RawContext);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the pointer came from munge_ctx_create, is not null and is destroyed only here.
        unsafe { munge_ctx_destroy(self.0) }
    }
}

impl Munge {
    /// munged at its socket, or at the one that libmunge was built with.
    pub fn new(socket: Option<PathBuf>) -> Self {
        Munge { socket }
    }

    /// The socket, where one was given.
    pub fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// A credential of this process's user over `payload`.
    pub fn encode(&self, payload: &[u8]) -> Result<String, MungeError> {
        self.encode_in(&self.context()?, payload)
    }

    /// The same, encrypted, and decoded for one user only.
    pub fn encode_for(&self, uid: u32, payload: &[u8]) -> Result<String, MungeError> {
        let context = self.context()?;
        // SAFETY: the context is alive; MUNGE_OPT_CIPHER_TYPE takes one int.
        self.check(unsafe { munge_ctx_set(context.0, OPT_CIPHER, AES_128) })?;
        // SAFETY: the context is alive; MUNGE_OPT_UID_RESTRICTION takes one uid_t.
        self.check(unsafe { munge_ctx_set(context.0, OPT_FOR_UID, uid as libc::uid_t) })?;
        self.encode_in(&context, payload)
    }

    fn encode_in(&self, context: &Context, payload: &[u8]) -> Result<String, MungeError> {
        let length = c_int::try_from(payload.len()).map_err(|_| MungeError::Other("the payload is too long".into()))?;
        let mut cred: *mut c_char = ptr::null_mut();
        // SAFETY: the context is alive; the payload outlives the call and has the stated length; libmunge writes
        // a string of its own into `cred`.
        let error = unsafe { munge_encode(&mut cred, context.0, payload.as_ptr().cast(), length) };
        let text = if cred.is_null() {
            String::new()
        } else {
            // SAFETY: a non-null `cred` is a NUL-terminated string of libmunge.
            unsafe { CStr::from_ptr(cred) }.to_string_lossy().into_owned()
        };
        // SAFETY: libmunge allocates the string with malloc and leaves it to the caller; free(NULL) does nothing.
        unsafe { libc::free(cred.cast()) };
        self.check(error).map(|()| text)
    }

    /// The payload of a credential and who made it. munged accepts each credential once.
    pub fn decode(&self, credential: &str) -> Result<(Vec<u8>, Peer), MungeError> {
        let context = self.context()?;
        let credential =
            CString::new(credential).map_err(|_| MungeError::Other("the credential holds a NUL".into()))?;
        let mut payload: *mut c_void = ptr::null_mut();
        let mut length: c_int = 0;
        let mut peer = Peer { uid: u32::MAX, gid: u32::MAX };
        // SAFETY: the context and the credential are alive; all other pointers are to variables of this frame.
        let error = unsafe {
            munge_decode(credential.as_ptr(), context.0, &mut payload, &mut length, &mut peer.uid, &mut peer.gid)
        };
        let bytes = match usize::try_from(length) {
            Ok(n) if n > 0 && !payload.is_null() => {
                // SAFETY: libmunge allocated `length` bytes at `payload`.
                unsafe { std::slice::from_raw_parts(payload.cast::<u8>(), n) }.to_vec()
            }
            _ => Vec::new(),
        };
        // SAFETY: libmunge allocates the payload with malloc and leaves it to the caller; free(NULL) does nothing.
        unsafe { libc::free(payload) };
        // Expired and replayed credentials are decoded as well: only success counts.
        self.check(error).map(|()| (bytes, peer))
    }

    fn context(&self) -> Result<Context, MungeError> {
        // SAFETY: takes nothing; null means that there is no memory.
        let raw = unsafe { munge_ctx_create() };
        if raw.is_null() {
            return Err(MungeError::Other("out of memory".into()));
        }
        let context = Context(raw);
        if let Some(socket) = &self.socket {
            let path = CString::new(socket.as_os_str().as_bytes())
                .map_err(|_| MungeError::Other("the socket's path holds a NUL".into()))?;
            // SAFETY: MUNGE_OPT_SOCKET takes one NUL-terminated string, which libmunge copies.
            self.check(unsafe { munge_ctx_set(context.0, OPT_SOCKET, path.as_ptr()) })?;
        }
        Ok(context)
    }

    fn check(&self, error: c_int) -> Result<(), MungeError> {
        if error == SUCCESS {
            return Ok(());
        }
        // SAFETY: munge_strerror answers every number with a static string.
        let text = unsafe { CStr::from_ptr(munge_strerror(error)) }.to_string_lossy().into_owned();
        Err(match error {
            NO_DAEMON => MungeError::NoDaemon(match &self.socket {
                Some(path) => path.display().to_string(),
                None => "its default socket".into(),
            }),
            REPLAYED => MungeError::Replayed,
            EXPIRED | REWOUND => MungeError::Time(text),
            _ => MungeError::Other(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_daemon_is_named() {
        let munge = Munge::new(Some("/nonexistent/munge.socket".into()));
        let e = munge.encode(b"x").expect_err("no daemon");
        assert_eq!(e, MungeError::NoDaemon("/nonexistent/munge.socket".into()));
    }
}

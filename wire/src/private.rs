//! A munged of its own key and socket, for tests that need real credentials.

use crate::Munge;
use std::io::{Error, Read, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A munged that ends with this value.
pub struct PrivateMunged {
    child: Child,
    socket: PathBuf,
}

impl PrivateMunged {
    /// Starts munged with everything it writes in `dir`, and waits until it answers.
    pub fn start(dir: &Path) -> Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let mut key = [0_u8; 128];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        let path = |name: &str| dir.join(name);
        std::fs::write(path("key"), key)?;
        std::fs::set_permissions(path("key"), PermissionsExt::from_mode(0o600))?;
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o755))?;
        let option = |name: &str, file: &str| format!("--{name}={}", path(file).display());
        let child = Command::new("munged")
            .args(["--foreground", "--force"])
            .arg(option("key-file", "key"))
            .arg(option("socket", "socket"))
            .arg(option("pid-file", "pid"))
            .arg(option("seed-file", "seed"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let started = PrivateMunged { child, socket: path("socket") };
        let deadline = Instant::now() + Duration::from_secs(10);
        while let Err(e) = started.munge().encode(b"ready?") {
            if Instant::now() > deadline {
                return Err(Error::other(e));
            }
            std::thread::yield_now();
        }
        Ok(started)
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.socket.clone()
    }

    /// A user of it.
    pub fn munge(&self) -> Munge {
        Munge::new(Some(self.socket()))
    }
}

impl Drop for PrivateMunged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

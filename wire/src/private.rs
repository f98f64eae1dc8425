//! A munged of its own key and socket, for tests that need real credentials.

use crate::Munge;
use std::io::{Error, Read, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for munged's first answer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let started = PrivateMunged { child: spawn(dir)?, socket: path("socket") };
        started.wait()?;
        Ok(started)
    }

    /// Ends it and starts it again with its key: it has forgotten which credentials it decoded.
    pub fn restart(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = spawn(self.socket.parent().unwrap_or(Path::new("/")))?;
        self.wait()
    }

    fn wait(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Err(e) = self.munge().encode(b"ready?") {
            if Instant::now() > deadline {
                return Err(Error::other(e));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
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

fn spawn(dir: &Path) -> Result<Child> {
    let option = |name: &str, file: &str| format!("--{name}={}", dir.join(file).display());
    Command::new("munged")
        .args(["--foreground", "--force"])
        .arg(option("key-file", "key"))
        .arg(option("socket", "socket"))
        .arg(option("pid-file", "pid"))
        .arg(option("seed-file", "seed"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

impl Drop for PrivateMunged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

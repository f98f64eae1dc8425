//! Runs a private MariaDB for tests that need no cluster: one user, data in a folder, gone with the test's process.

use crate::database::SYSTEM_TABLES;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for the server to answer.
const START_LIMIT: Duration = Duration::from_secs(90);

/// Its only user, who may do everything with databases whose names begin with `jp`.
const USER: &str = "joulepoint";
const PASSWORD: &str = "not-a-secret";

/// A MariaDB that ends with this value, or with the process that holds it.
#[derive(Debug)]
pub struct PrivateMariadb {
    /// A shell that ends the server when the pipe from us is closed.
    keeper: Child,
    socket: PathBuf,
}

impl PrivateMariadb {
    /// Starts a server with everything it writes in `dir`; it does not listen on the network.
    ///
    /// # Errors
    /// What the programs say; `mariadbd` is in Debian's package `mariadb-server-core`.
    pub fn start(dir: &Path) -> Result<PrivateMariadb> {
        fs::create_dir_all(dir.join("data"))?;
        fs::write(
            dir.join("begin.sql"),
            format!(
                "CREATE USER '{USER}'@'localhost' IDENTIFIED BY '{PASSWORD}';\n\
                 GRANT ALL PRIVILEGES ON `jp%`.* TO '{USER}'@'localhost';\n"
            ),
        )?;
        let tables = format!("(printf 'CREATE DATABASE mysql;\\nUSE mysql;\\n'; cat {SYSTEM_TABLES})");
        let begin = format!("--init-file={}", dir.join("begin.sql").display());
        keep(dir, &format!("{tables} | {} --bootstrap || exit 1", server(dir)), &begin)
    }

    /// Starts a server again on what an earlier one left.
    ///
    /// # Errors
    /// What the programs say.
    pub fn again(dir: &Path) -> Result<PrivateMariadb> {
        keep(dir, ":", "")
    }

    /// Makes an empty database, whose name begins with `jp`, and gives its URL.
    ///
    /// # Errors
    /// What MariaDB says.
    pub fn database(&self, name: &str) -> Result<String> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-u", USER, &format!("-p{PASSWORD}"), "-S"]).arg(&self.socket);
        let made = client.args(["-e", &format!("CREATE DATABASE {name}")]).output().context("mariadb")?;
        if !made.status.success() {
            bail!("database {name}: {}", String::from_utf8_lossy(&made.stderr));
        }
        Ok(format!("mysql://{USER}:{PASSWORD}@localhost/{name}?socket={}", self.socket.display()))
    }
}

/// Its words; a server that starts removes the temporary tables that it finds, so that each has a place of its own.
fn server(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "mariadbd --no-defaults --user=root --datadir={dir}/data --tmpdir={dir} --socket={dir}/socket --pid-file={dir}/pid \
         --skip-networking --skip-log-bin --skip-name-resolve --performance-schema=OFF --innodb-buffer-pool-size=64M \
         --innodb-log-file-size=16M --key-buffer-size=1M --aria-pagecache-buffer-size=8M"
    )
}

/// Runs the server below a shell that ends it when our end of a pipe is closed, by whatever cause.
fn keep(dir: &Path, before: &str, begin: &str) -> Result<PrivateMariadb> {
    let socket = dir.join("socket");
    let _ = fs::remove_file(&socket); // of a server that was killed
    let script = format!("{before}\n{} {begin} & server=$!\nread _\nkill -9 $server\nwait $server\n", server(dir));
    let log = File::create(dir.join("log"))?;
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    let mut started = PrivateMariadb { keeper: command.spawn().context("sh")?, socket };
    let deadline = Instant::now() + START_LIMIT;
    while UnixStream::connect(&started.socket).is_err() {
        if started.keeper.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("MariaDB does not start: {}", fs::read_to_string(dir.join("log"))?);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(started)
}

impl Drop for PrivateMariadb {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

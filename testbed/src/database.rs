//! Runs a private MariaDB for slurmdbd: no network, no users, data in memory, gone with the cluster.

use crate::keeper::Namespace;
use anyhow::{Context, Result, bail};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Debian's file with the server's own tables; slurmdbd needs those for stored procedures.
pub(crate) const SYSTEM_TABLES: &str = "/usr/share/mysql/mysql_system_tables.sql";

/// Where the server listens.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("db/mariadb.sock")
}

/// Shell lines that prepare the data folder inside the cluster's namespace.
pub(crate) fn setup(dir: &Path) -> String {
    format!("mount -t tmpfs -o mode=0700 tmpfs '{}'", dir.join("db/data").display())
}

/// Makes the system tables; then the server can be started.
pub(crate) fn make_tables(dir: &Path, inside: &Namespace) -> Result<()> {
    let bootstrap = dir.join("db/bootstrap.sh");
    let server = server_arguments(dir);
    let script = format!(
        "(printf 'CREATE DATABASE mysql;\\nUSE mysql;\\n'; cat {SYSTEM_TABLES}) | {} --bootstrap\n",
        server.join(" ")
    );
    std::fs::write(&bootstrap, script)?;
    let out = inside.enter("sh").arg(&bootstrap).output().context("nsenter sh")?;
    if !out.status.success() {
        bail!("MariaDB could not make its tables: {}", String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(())
}

/// Whether the server answers.
pub(crate) fn ready(dir: &Path) -> bool {
    UnixStream::connect(socket(dir)).is_ok()
}

/// The server's words.
pub(crate) fn server_arguments(dir: &Path) -> Vec<String> {
    let db = dir.join("db");
    let mut arguments = vec!["mariadbd".to_string(), "--no-defaults".into(), "--user=root".into()];
    arguments.push(format!("--datadir={}/data", db.display()));
    // A server that starts removes the temporary tables that it finds, whose ever they are.
    arguments.push(format!("--tmpdir={}", db.display()));
    arguments.push(format!("--socket={}", socket(dir).display()));
    arguments.push(format!("--pid-file={}/mariadb.pid", db.display()));
    // Whoever reaches the socket, in a folder of root's alone, is let in.
    for fixed in [
        "--skip-networking",
        "--skip-grant-tables",
        "--skip-log-bin",
        "--skip-name-resolve",
        "--performance-schema=OFF",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=0",
        "--innodb-buffer-pool-size=32M",
        "--innodb-log-file-size=16M",
        "--innodb-lock-wait-timeout=900",
        "--innodb-snapshot-isolation=OFF",
        "--key-buffer-size=1M",
        "--aria-pagecache-buffer-size=8M",
        "--max-connections=50",
    ] {
        arguments.push(fixed.into());
    }
    arguments
}

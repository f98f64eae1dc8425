//! Why the store cannot do something.

use std::io;

/// What the store says in place of an answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite's own word.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// MariaDB's own word, or the loss of the connection to it.
    #[error(transparent)]
    Mysql(#[from] mysql::Error),
    /// The file system's.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A document in it is not understood.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Another driver has taken the run up since.
    #[error("holder {newer} has taken the run up; new records of holder {holder} count for nothing")]
    Superseded {
        /// Who sends.
        holder: u64,
        /// Who has the run.
        newer: u64,
    },
    /// Another controller has taken the lead since.
    #[error("another controller leads now: what this one writes counts for nothing")]
    NotLeading,
    /// An error with what was being done.
    #[error("{what}: {cause}")]
    At {
        /// What, and to what.
        what: String,
        /// The error itself.
        cause: Box<Error>,
    },
    /// The file is damaged.
    #[error(
        "{place} is damaged: move it and its -wal and -shm files aside, put the last copy that 'joulepointd backup' made \
         in its place, and start again: {found}"
    )]
    Damaged {
        /// The file.
        place: String,
        /// What is wrong with it, in the database's words.
        found: String,
    },
    /// Its file was removed or replaced while it was open.
    #[error(
        "{0} was removed or replaced while the service runs: nothing is stored until it is restarted. Put the last copy in \
         its place first, if the file is gone; runs that go on bring what it lacks"
    )]
    Moved(String),
    /// Tables of a version that this service does not know.
    #[error("version {0} of the store is not known here")]
    Version(i64),
    /// A column of MariaDB's holds something else than is wanted.
    #[error("column {column} holds {found}, which is no {wanted}")]
    Column {
        /// From 0.
        column: usize,
        /// What stands there.
        found: String,
        /// What was wanted.
        wanted: &'static str,
    },
    /// There is no such row.
    #[error("the store has no such row")]
    NoRow,
    /// There is no such run.
    #[error("run {0} is not in the store")]
    NoRun(String),
    /// There is no store to connect to.
    #[error("there is no store at {0}")]
    NoStore(String),
    /// The URL of a MariaDB is none.
    #[error("controller.store is not a good URL: {0}")]
    Url(#[from] mysql::UrlError),
    /// The place of the store is a URL, and not that of a MariaDB.
    #[error(
        "the store cannot be {0}: name a SQLite file by its path, or a MariaDB as mysql://USER:PASSWORD@HOST/DATABASE"
    )]
    Scheme(String),
    /// Its folder is not there.
    #[error("there is no folder {0} for the store: make it, or name another place as controller.store")]
    NoFolder(String),
    /// An error before has ended the transaction.
    #[error("the transaction has failed before")]
    Transaction,
    /// A copy cannot have this name.
    #[error("the copy needs a name in UTF-8")]
    CopyName,
    /// MariaDB has tools of its own.
    #[error("the store is a MariaDB: use 'mariadb-dump --single-transaction', as for slurmdbd's")]
    CopyOfMariadb,
    /// Too many writes wait for the disk.
    #[error("{0} writes wait for the disk")]
    Busy(usize),
    /// A transaction of many writes was not committed.
    #[error("{0}")]
    NotWritten(String),
    /// The thread that writes is not there any more.
    #[error("the writing thread has ended")]
    NoWriter,
}

/// What the store answers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error itself, without what was being done.
    pub fn cause(&self) -> &Error {
        match self {
            Error::At { cause, .. } => cause.cause(),
            other => other,
        }
    }
}

/// Says what was being done when an error came.
pub(crate) trait At<T> {
    fn at(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> At<T> for Result<T, E> {
    fn at(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| Error::At { what: what(), cause: Box::new(e.into()) })
    }
}

/// A document of the store; one of another version, or a damaged one, is named, and hides no other.
pub(crate) fn understood<T: serde::de::DeserializeOwned>(what: &str, json: &str) -> Option<T> {
    let read = serde_json::from_str(json);
    let say = |e: &serde_json::Error| {
        let begins: String = json.chars().take(200).collect();
        tracing::warn!(%e, begins, "{what} in the store is not understood and left out");
    };
    read.inspect_err(say).ok()
}

//! `joulepoint-relay`: serves the message log of one group, and answers questions about it.

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use fencing::{Placement, SUCCESSION};
use mlog::book::Book;
use mlog::frame::{Frame, Kind};
use mlog::relay::{Config, Relay};
use mlog::{Error, Medium, connect, exchange};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Carries and logs the messages of one group of a run.
///
/// Start one relay for each group, outside the group's sandbox, before its program:
///
///   joulepoint-relay serve --run DIR --group 0 --groups 4 &
///   FT_ENERGY_RELAY=DIR/relays/0.sock ./program
///
/// The log outlives the program: when the program is started again from its checkpoint, it gets its messages again.
#[derive(Parser)]
#[command(name = "joulepoint-relay", version, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Serve a group until told to stop.
    Serve(Serve),
    /// Print what the relay on this host counts, as JSON.
    Status(Whose),
    /// Write the log into a folder from which another relay can serve it (--log-dir), and stop.
    Handover {
        #[command(flatten)]
        whose: Whose,
        /// The folder, on storage that the next host sees.
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
    },
    /// Have the program close its connection at its next call, so that it can be dumped, and wait for that.
    Rest {
        #[command(flatten)]
        whose: Whose,
        /// Longest wait [s]; after it the program goes on as before.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        limit: u64,
    },
    /// The program may connect again.
    Wake(Whose),
    /// Stop the relay. A log in memory is lost.
    Stop(Whose),
    /// Write the manual pages of this program and of its commands.
    #[command(hide = true)]
    Man {
        /// An existing folder.
        folder: PathBuf,
    },
}

#[derive(Args, Clone)]
struct Whose {
    /// The run's folder.
    #[arg(long, value_name = "DIR")]
    run: PathBuf,
    /// The group.
    #[arg(long, value_name = "N")]
    group: usize,
}

/// What becomes of a program that wants messages which are in no log any more.
#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Lost {
    /// It is told, and must end.
    End,
    /// It waits: whoever started this takes the sender back, which sends them again.
    Wait,
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    whose: Whose,
    /// Groups of the run.
    #[arg(long, value_name = "N")]
    groups: usize,
    /// Where the log is kept. In memory it is lost with the relay; the loss is reported when it matters.
    #[arg(long, value_enum, env = "FT_ENERGY_LOG", default_value = "memory")]
    log: Medium,
    /// Folder of the log and of the checkpoints' counters [default: DIR/relays/N.log].
    #[arg(long, value_name = "FOLDER")]
    log_dir: Option<PathBuf>,
    /// The most the log may take, bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    log_bytes: u64,
    /// Committed checkpoints to which the group must be able to go back.
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep: usize,
    /// What becomes of a program that wants messages which are in no log any more.
    #[arg(long, value_enum, default_value = "end")]
    lost: Lost,
    /// End when the run says that this placement is over, and wait for the relay before to end.
    #[arg(long, alias = "turn", value_name = "PLACEMENT", env = "JOULEPOINT_PLACEMENT", hide_env_values = true)]
    placement: Option<Placement>,
    /// Address and port for other relays; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:0")]
    listen: String,
    /// Host name for other relays [default: this host's, or the address listened on].
    #[arg(long, value_name = "HOST")]
    advertise: Option<String>,
    /// Write what `status` prints to DIR/relays/N.status.json, and touch DIR/relays/N.alive, this often [s].
    #[arg(long, value_name = "SECONDS")]
    status_every: Option<u64>,
    /// Unix socket for the program; @NAME is one that leaves no file behind [default: DIR/relays/N.sock].
    #[arg(long, value_name = "PATH|@NAME")]
    socket: Option<PathBuf>,
}

fn main() -> ExitCode {
    let level = tracing_subscriber::EnvFilter::try_from_env("JOULEPOINT_LOG");
    let level = level.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr).log_internal_errors(false).init();
    match act(Cli::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            protocol::say!("joulepoint-relay: {e}");
            ExitCode::from(if matches!(e, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn act(what: What) -> Result<(), Error> {
    match what {
        What::Serve(serve) => {
            let (whose, every) = (serve.whose.clone(), serve.status_every);
            let every = every.map(|s| Duration::from_secs(s.max(1)));
            if let Some(every) = every {
                // Also while the log of a relay before is read, which takes as long as the log is large; but not while
                // that one holds it.
                let folder = Book::open(&whose.run)?;
                let path = folder.path(&format!("{}.alive", whose.group));
                let held = if serve.placement.is_some() { SUCCESSION } else { Duration::ZERO };
                threads::start(move || beat(&path, held, every));
            }
            let mut relay = Relay::open(&config(serve))?;
            if let Some(every) = every {
                threads::start(move || publish(&whose, every));
            }
            relay.run()
        }
        What::Status(whose) => {
            let answer = ask(&whose, Frame::number(Kind::Status, 0))?;
            println!("{}", String::from_utf8_lossy(&answer.body));
            Ok(())
        }
        What::Handover { whose, to } => {
            let to = std::path::absolute(to).map_err(|e| Error::Usage(format!("--to: {e}")))?;
            let question = Frame::new(Kind::Handover, 0, 0, 0, to.as_os_str().as_bytes().to_vec());
            ask(&whose, question).map(drop)
        }
        What::Rest { whose, limit } => rest(&whose, Duration::from_secs(limit)),
        What::Wake(whose) => ask(&whose, Frame::number(Kind::Wake, 0)).map(drop),
        What::Stop(whose) => ask(&whose, Frame::number(Kind::Stop, 0)).map(drop),
        What::Man { folder } => write_pages(&folder),
    }
}

/// The pages come from the definitions of the help.
fn write_pages(folder: &Path) -> Result<(), Error> {
    // Without this each "help" has a page, too.
    let command = Cli::command().disable_help_subcommand(true);
    let failed = |source| Error::System { what: folder.display().to_string(), source };
    clap_mangen::generate_to(command, folder).map_err(failed)
}

fn rest(whose: &Whose, limit: Duration) -> Result<(), Error> {
    let begun = Instant::now();
    while ask(whose, Frame::number(Kind::Rest, 0))?.header.number == 0 {
        if begun.elapsed() >= limit {
            ask(whose, Frame::number(Kind::Wake, 0))?;
            return Err(Error::Usage(format!(
                "group {}: no call of mlog for {limit:?}, or it has not joined; try later",
                whose.group
            )));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Shows that the relay lives, whatever it is busy with and however full the file system is.
fn beat(path: &Path, first: Duration, every: Duration) {
    std::thread::sleep(first);
    loop {
        std::thread::sleep(every);
        let file = std::fs::File::options().create(true).append(true).open(path);
        if let Err(e) = file.and_then(|file| file.set_modified(SystemTime::now())) {
            tracing::warn!(path = %path.display(), "cannot be touched: {e}");
        }
    }
}

/// Writes the relay's status now and then, for those who cannot reach its socket.
fn publish(whose: &Whose, every: Duration) {
    loop {
        std::thread::sleep(every);
        let written = ask(whose, Frame::number(Kind::Status, 0)).and_then(|answer| {
            let path = Book::open(&whose.run)?.path(&format!("{}.status.json", whose.group));
            let new = path.with_extension("new");
            let write = std::fs::write(&new, &answer.body[..]).and_then(|()| std::fs::rename(&new, &path));
            write.map_err(|source| Error::System { what: path.display().to_string(), source })
        });
        if let Err(e) = written {
            tracing::warn!(group = whose.group, "the status cannot be written: {e}");
        }
    }
}

fn config(serve: Serve) -> Config {
    let any = serve.listen.starts_with("0.0.0.0:") || serve.listen.starts_with("[::]:");
    let name = || nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok());
    Config {
        run: serve.whose.run,
        group: serve.whose.group,
        groups: serve.groups,
        medium: serve.log,
        log_dir: serve.log_dir,
        limit_bytes: serve.log_bytes,
        keep: serve.keep,
        patient: serve.lost == Lost::Wait,
        placement: serve.placement,
        advertise: serve.advertise.or_else(|| any.then(name).flatten()),
        listen: serve.listen,
        socket: serve.socket,
    }
}

fn ask(whose: &Whose, question: Frame) -> Result<Frame, Error> {
    let socket = Book::open(&whose.run)?.read(whose.group)?.socket;
    let mut link = connect(&socket)?;
    let kind = question.header.kind;
    exchange(&mut link, question, kind)
}

//! `joulepoint-mpi-relay`: carries and logs the messages of one group of MPI ranks, and answers questions about it.

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use fencing::{Placement, SUCCESSION};
use mlog::book::Book;
use mlog::frame::{Frame, Kind};
use mlog::{Medium, connect, exchange};
use mpi_relay::heart::Rules;
use mpi_relay::relay::{Config, Relay};
use mpi_relay::{Error, Layout};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Carries and logs the messages of one group of an MPI program's ranks.
///
/// Start one relay for each group, outside the group's sandbox, before its ranks:
///
///   joulepoint-mpi-relay serve --run DIR --group 0 --groups 2 --ranks 0-1/2-3 &
///
/// The log outlives the ranks: when they are restored, they get their messages again.
#[derive(Parser)]
#[command(name = "joulepoint-mpi-relay", version, verbatim_doc_comment)]
struct Cli {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Serve a group until told to stop.
    Serve(Box<Serve>),
    /// Print what the relay on this host counts, as JSON.
    Status(Whose),
    /// Have all ranks of the group close their connections, so that they can be dumped, and wait for that.
    Rest {
        #[command(flatten)]
        whose: Whose,
        /// Number of the checkpoint that is about to be made: what the ranks have received is in it.
        #[arg(long, value_name = "N", default_value_t = 0)]
        checkpoint: u64,
        /// Longest wait [s]; after it the ranks go on as before.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        limit: u64,
    },
    /// The ranks may connect again.
    Wake(Whose),
    /// A checkpoint is safe: what no checkpoint will want again goes.
    Commit {
        #[command(flatten)]
        whose: Whose,
        /// Its number; that of a rest, or a new one for the newest rest without a number.
        #[arg(long, value_name = "N")]
        checkpoint: u64,
    },
    /// Write the log into a folder from which a relay can go on (`serve --line`), and go on: for a line of all groups.
    Save {
        #[command(flatten)]
        whose: Whose,
        /// The folder.
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
    },
    /// Write the log into a folder from which another relay can serve it (`serve --log-dir`), and stop.
    Handover {
        #[command(flatten)]
        whose: Whose,
        /// The folder, on storage that the next host sees.
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
    },
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

/// What becomes of a rank that cannot go on alone.
#[derive(Clone, Copy, ValueEnum, PartialEq)]
enum Lost {
    /// It is told, and must end.
    End,
    /// It waits: whoever started this takes back whom it must.
    Wait,
}

#[derive(Args)]
struct Serve {
    #[command(flatten)]
    whose: Whose,
    /// Groups of the run.
    #[arg(long, value_name = "N")]
    groups: usize,
    /// World ranks of each group: 0-1,4/2-3 are two groups, of three ranks and of two.
    #[arg(long, value_name = "RANKS", env = "JOULEPOINT_MPI_RANKS")]
    ranks: String,
    /// Where the log is kept. In memory it is lost with the relay; the loss is reported when it matters.
    #[arg(long, value_enum, env = "FT_ENERGY_LOG", default_value = "memory")]
    log: Medium,
    /// Folder of the logs, the marks of checkpoints and the outcomes [default: DIR/relays/N.ranks].
    #[arg(long, value_name = "FOLDER")]
    log_dir: Option<PathBuf>,
    /// Go on from a log that was saved with a checkpoint of all groups, instead of from the newest one.
    #[arg(long, value_name = "FOLDER")]
    line: Option<PathBuf>,
    /// The most the log may take, bytes; at it those who send wait for checkpoints of other groups.
    #[arg(long, value_name = "BYTES", default_value_t = 4 << 30)]
    log_bytes: u64,
    /// Committed checkpoints to which the group must be able to go back.
    #[arg(long, value_name = "N", default_value_t = 1)]
    keep: usize,
    /// What becomes of a rank that wants messages which are in no log any more, or that does not repeat itself.
    #[arg(long, value_enum, default_value = "end")]
    lost: Lost,
    /// Accept messages that are sent again with other contents.
    #[arg(long)]
    deterministic: bool,
    /// All groups go back together, each to what its relay saved: nothing else is kept on disk, and nothing that has arrived.
    #[arg(long)]
    together: bool,
    /// End when the run says that this placement is over, and wait for the relay before to end.
    #[arg(long, value_name = "PLACEMENT", env = "JOULEPOINT_PLACEMENT", hide_env_values = true)]
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
    /// Unix socket for the ranks [default: DIR/relays/N.sock]. A file beside it, .rest, keeps them away.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

fn main() -> ExitCode {
    let level = tracing_subscriber::EnvFilter::try_from_env("JOULEPOINT_LOG");
    let level = level.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(level).with_writer(std::io::stderr).log_internal_errors(false).init();
    match act(Cli::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            protocol::say!("joulepoint-mpi-relay: {e}");
            ExitCode::from(if matches!(e, Error::Usage(_)) { 2 } else { 1 })
        }
    }
}

fn act(what: What) -> Result<(), Error> {
    match what {
        What::Serve(one) => serve(*one),
        What::Status(whose) => {
            let answer = ask(&whose, Frame::number(Kind::Status, 0))?;
            println!("{}", String::from_utf8_lossy(&answer.body));
            Ok(())
        }
        What::Rest { whose, checkpoint, limit } => rest(&whose, checkpoint, Duration::from_secs(limit)),
        What::Wake(whose) => ask(&whose, Frame::number(Kind::Wake, 0)).map(drop),
        What::Commit { whose, checkpoint } => ask(&whose, Frame::number(Kind::Commit, checkpoint)).map(drop),
        What::Save { whose, to } => write_log(&whose, Kind::Save, &to),
        What::Handover { whose, to } => write_log(&whose, Kind::Handover, &to),
        What::Stop(whose) => ask(&whose, Frame::number(Kind::Stop, 0)).map(drop),
        What::Man { folder } => {
            // Without this each "help" has a page, too.
            let command = Cli::command().disable_help_subcommand(true);
            clap_mangen::generate_to(command, &folder).map_err(|e| mlog::system(folder.display())(e).into())
        }
    }
}

fn serve(serve: Serve) -> Result<(), Error> {
    let (whose, every) = (serve.whose.clone(), serve.status_every);
    let every = every.map(|s| Duration::from_secs(s.max(1)));
    let config = config(serve)?;
    if let Some(every) = every {
        // Also while the log of a relay before is read, which takes as long as the log is large; but not while that one
        // holds it.
        let path = Book::open(&whose.run)?.path(&format!("{}.alive", whose.group));
        let held = if config.placement.is_some() { SUCCESSION } else { Duration::ZERO };
        threads::start(move || beat(&path, held, every));
    }
    let mut relay = Relay::open(&config)?;
    if let Some(every) = every {
        threads::start(move || publish(&whose, every));
    }
    relay.run()
}

fn write_log(whose: &Whose, kind: Kind, to: &Path) -> Result<(), Error> {
    let to = std::path::absolute(to).map_err(|e| Error::Usage(format!("--to: {e}")))?;
    ask(whose, Frame::new(kind, 0, 0, 0, to.as_os_str().as_bytes().to_vec())).map(drop)
}

fn rest(whose: &Whose, checkpoint: u64, limit: Duration) -> Result<(), Error> {
    let begun = Instant::now();
    while ask(whose, Frame::number(Kind::Rest, checkpoint))?.header.number == 0 {
        if begun.elapsed() >= limit {
            ask(whose, Frame::number(Kind::Wake, 0))?;
            let group = whose.group;
            return Err(Error::Usage(format!("group {group}: a rank has not left within {limit:?}; try later")));
        }
        std::thread::sleep(Duration::from_millis(5));
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
            Ok(write.map_err(mlog::system(path.display()))?)
        });
        if let Err(e) = written {
            tracing::warn!(group = whose.group, "the status cannot be written: {e}");
        }
    }
}

fn config(serve: Serve) -> Result<Config, Error> {
    let layout = Layout::parse(&serve.ranks)?;
    if layout.groups() != serve.groups {
        return Err(Error::Usage(format!("--ranks {}: other than {} groups", serve.ranks, serve.groups)));
    }
    let any = serve.listen.starts_with("0.0.0.0:") || serve.listen.starts_with("[::]:");
    let name = || nix::unistd::gethostname().ok().and_then(|n| n.into_string().ok());
    Ok(Config {
        run: serve.whose.run,
        group: serve.whose.group,
        layout,
        rules: Rules { patient: serve.lost == Lost::Wait, deterministic: serve.deterministic },
        medium: serve.log,
        log_dir: serve.log_dir,
        line: serve.line,
        limit_bytes: serve.log_bytes,
        together: serve.together,
        keep: serve.keep,
        placement: serve.placement,
        advertise: serve.advertise.or_else(|| any.then(name).flatten()),
        listen: serve.listen,
        socket: serve.socket,
    })
}

fn ask(whose: &Whose, question: Frame) -> Result<Frame, Error> {
    let socket = Book::open(&whose.run)?.read(whose.group)?.socket;
    let mut link = connect(&socket)?;
    let kind = question.header.kind;
    Ok(exchange(&mut link, question, kind)?)
}

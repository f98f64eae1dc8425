//! `joulepoint`: one command for people, thin over the other rooms.

mod able;
mod calibrate;
mod capabilities;
mod clean;
mod confirm_off;
mod doctor;
mod loans;
mod log;
mod man;
mod out;
mod pages;
mod plan;
mod report;
mod simulate;
mod status;
mod steer;

use clap::{FromArgMatches, Parser, Subcommand};
use protocol::Verb;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use worlds::arguments::Arguments;

/// Longest wait for an answer of the controller.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Energy-aware fault tolerance for Slurm.
///
/// Protect a job:      sbatch --ft-energy=energy --ft-energy-done='run.cpt' job.sh
/// See what it costs:  joulepoint report -j JOBID
/// See why:            joulepoint plan --option ft-energy=energy -N 8
#[derive(Parser)]
#[command(name = "joulepoint", version, verbatim_doc_comment)]
struct Cli {
    /// Site file.
    #[arg(long, env = "JOULEPOINT_CONF", default_value = config::DEFAULT_PATH, global = true, value_name = "FILE")]
    conf: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tell what would be done for a job, and why: six lines, or all of it with --full.
    ///
    /// The table has every protocol, also those that no engine can enact yet, as
    /// `joulepoint plan --full -N 8 --work 2-0 -o ft-energy-memory=64G -o ft-energy-messages=1000000:4T`
    Plan(plan::PlanArgs),
    /// Compute a published model: JSON in, JSON out.
    Model(ModelArgs),
    /// Replay failures against checkpoint policies.
    Simulate(Box<simulate::SimulateArgs>),
    /// Measure once what operations cost on this cluster; show, carry and compare it.
    Calibrate(calibrate::CalibrateArgs),
    /// Tell what runs cost: energy and time by phase.
    Report(Box<report::ReportArgs>),
    /// Tell how a run is doing now, and how far it is protected.
    ///
    ///   joulepoint status 4711 --wait-protected    go on once a failure would cost a part of the work only
    ///
    /// Exit status: 0; with --wait-protected 3 if the job is known not to be protected or has ended, 4 after --timeout;
    /// 1 no such run; 2 wrong usage.
    #[command(verbatim_doc_comment)]
    Status(status::StatusArgs),
    /// Say what is wrong with the installation on this host, and how to mend it.
    ///
    /// Exit status: 0 all is well, 1 a fault was found, 3 only warnings.
    Doctor(doctor::DoctorArgs),
    /// Make a checkpoint of a running job now
    ///
    /// Waits until the checkpoint is complete, and prints its folder, duration, volume and energy.
    ///
    ///   joulepoint checkpoint 4711
    ///   joulepoint checkpoint --json 4711_3
    ///
    /// Exit status: 0 done, or ordered with --no-wait; 1 refused or failed; 2 wrong usage.
    #[command(verbatim_doc_comment)]
    Checkpoint(steer::SteerArgs),
    /// Make a checkpoint of a running job now, then put the job back into the queue: its nodes are free.
    ///
    /// The job resumes from this checkpoint when Slurm starts it again. If the checkpoint fails, the job goes on as
    /// it was. A job that was submitted with --no-requeue is refused. Exit status as for `checkpoint`.
    Vacate(steer::VacateArgs),
    /// Start a running job's program again from its newest checkpoint, on the same nodes.
    ///
    /// For a program that hangs or went wrong. What it did since that checkpoint is done again; without a checkpoint it
    /// begins anew. The job keeps its place and its time limit. Exit status as for `checkpoint`.
    Restart(steer::SteerArgs),
    /// Tell which idle nodes of recovering runs were lent, to whom, and what they would have drawn idle
    ///
    ///   joulepoint loans                      those of today, live and past
    ///   joulepoint loans -S now-7days -A physics --json
    #[command(verbatim_doc_comment)]
    Loans(loans::LoansArgs),
    /// Let a running job make checkpoints again, after `disable`.
    Enable(steer::SteerArgs),
    /// Let a running job make no further checkpoints, not even before its time limit, until `enable`.
    ///
    /// It stays so when the job is requeued. `checkpoint` and `vacate` are refused meanwhile.
    Disable(steer::SteerArgs),
    /// Say whether a running program can be dumped, and if not, what stands in the way
    ///
    /// Looks at all processes of a job on this node, or at some processes, before the first
    /// checkpoint: GPU and RDMA devices, sockets to outside, TCP in the node's network, io_uring,
    /// containers, terminals, removed files that are mapped, tracers, System V shared memory, file
    /// systems in user space. Says what to use instead.
    ///
    ///   srun --overlap --jobid=4711 joulepoint able 4711
    ///   joulepoint able -- 12345 12346
    ///
    /// Exit status: 0 nothing stands in the way; 1 something does; 2 wrong usage, or no such process.
    #[command(verbatim_doc_comment)]
    Able(able::AbleArgs),
    /// Tell which checkpoint engines the nodes have.
    Capabilities(capabilities::CapabilitiesArgs),
    /// Remove what your ended runs have left: checkpoints first, records later
    ///
    /// The ages are the site's (runs.keep_completed_days, keep_failed_days, keep_records_days), and
    /// each of your protected jobs does the same when it begins. A job that Slurm knows, in whatever
    /// state, keeps everything.
    ///
    ///   joulepoint clean --dry-run
    ///   joulepoint clean --older-than=7-0
    ///
    /// Exit status: 0 done; 1 something could not be removed; 2 wrong usage.
    #[command(verbatim_doc_comment)]
    Clean(clean::CleanArgs),
    /// Say that silent nodes have no power, so that the runs which wait for them go on; for operators
    ///
    /// A run begins again only when its old nodes are known to have stopped. Where neither a lease nor a power
    /// controller shows it, its output says so and it waits. Cut the power of the node by hand first: one that is only
    /// cut off still runs the job, and two of it would then write the same files. A node that is heard, or that
    /// the controller or a witness reaches, is refused. Slurm is told that the node is down: nothing there goes on,
    /// whoever's it is. Where about half of all nodes are silent and this makes them fewer, those that nobody
    /// reaches are found dead as well. A controller that is restarted has to be told again.
    ///
    ///   joulepoint confirm-off n3 n4
    ///
    /// Exit status: 0 done; 1 a node was refused; 2 wrong usage.
    #[command(verbatim_doc_comment)]
    ConfirmOff(confirm_off::ConfirmOffArgs),
    /// Run a command under protection, without sbatch.
    ///
    /// The same command in the same folder takes up its newest checkpoint when `--resume` is given.
    ///
    /// Exit status: that of the command; 126 it cannot be started; 127 it is not there; 2 wrong usage.
    Run(RunArgs),
    /// Run a batch script under protection; the plugin calls this.
    #[command(hide = true)]
    Wrap(WrapArgs),
    /// Run a program in a sandbox in which CRIU can dump and restore it; the engine criu calls this.
    #[command(hide = true)]
    Warden(WardenArgs),
    /// Take the GPUs from a program, or give them back; a sandbox calls this.
    #[command(hide = true)]
    Gpus,
    /// Start the ranks of one group of an MPI program (used by the wrapper)
    #[command(hide = true)]
    Ranks(Arguments),
    /// Run one rank of an MPI program; what starts the ranks of a group calls this.
    #[command(hide = true)]
    Rank {
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
    /// Dump a group's program on its node while its nodes are to be lent; the wrapper calls this.
    #[command(hide = true)]
    Park(ParkArgs),
    /// Print a completion script for a shell.
    Completion {
        /// Which shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page of this command, or of a subcommand.
    Man {
        /// Subcommand, such as `report` or `simulate tables`; the command itself if absent.
        subcommand: Vec<String>,
        /// Write all pages into a folder.
        #[arg(long, value_name = "FOLDER", conflicts_with = "subcommand")]
        all: Option<PathBuf>,
    },
}

#[derive(clap::Args)]
struct ModelArgs {
    /// young_daly, aupy, aupy_eval, meneses, ecofit_*, elsayed, bouteiller, bouteiller_eval, balladini_*, shadow.
    name: String,
    /// Parameters as a JSON object, or an array of them; read from standard input if absent.
    #[arg(long, value_name = "JSON")]
    json: Option<String>,
}

#[derive(clap::Args)]
struct RunArgs {
    /// An option of sbatch, such as ft-energy=time or ft-energy-done='*.cpt'; may be repeated.
    #[arg(short = 'o', long = "option", value_name = "NAME[=VALUE]")]
    options: Vec<String>,
    /// Take up the newest checkpoint of an earlier run.
    #[arg(long)]
    resume: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct WrapArgs {
    /// What the user asked for, as the plugin writes it.
    #[arg(long, value_name = "JSON")]
    request: String,
    /// The batch script and its arguments.
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct WardenArgs {
    /// CRIU's command.
    #[arg(long, value_name = "FILE")]
    criu: PathBuf,
    /// Folder of the run; the sandbox listens there.
    #[arg(long, value_name = "FOLDER")]
    run: PathBuf,
    /// Until when it is wanted.
    #[arg(long, alias = "turn", value_name = "PLACEMENT")]
    placement: Option<fencing::Placement>,
    /// Checkpoint to go on from.
    #[arg(long, env = engines::criu::RESTORE, value_name = "FOLDER")]
    restore: Option<PathBuf>,
    /// Longest time of a restore, s.
    #[arg(long, default_value_t = 600.0, value_name = "SECONDS")]
    limit_s: f64,
    /// Give it a network of its own, with nothing but the loopback interface.
    #[arg(long)]
    own_network: bool,
    /// It has ranks of an MPI program; those of each task, such as `0-1/2-3`.
    #[arg(long, value_name = "RANKS")]
    ranks: Option<String>,
    /// The program that carries messages to those of other tasks.
    #[arg(long, value_name = "FILE", requires_all = ["ranks", "meeting", "sockets"])]
    relay: Option<PathBuf>,
    /// Folder in which the relays find each other.
    #[arg(long, value_name = "FOLDER")]
    meeting: Option<PathBuf>,
    /// How the names of their sockets begin.
    #[arg(long, value_name = "FILE")]
    sockets: Option<PathBuf>,
    /// Where the node of each task is reached.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',')]
    addresses: Vec<String>,
    /// File that the program reads.
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// Where in that file it begins, bytes.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    stdin_at: u64,
    /// Begin each line of its output with its rank.
    #[arg(long)]
    labels: bool,
    /// The program is a task of this `srun` call: the driver of the job is told of it, and has it dumped.
    #[arg(long, value_name = "CALL")]
    call: Option<String>,
    /// Number of tasks that its `srun` starts.
    #[arg(long, env = "SLURM_STEP_NUM_TASKS", default_value_t = 1, value_name = "TASKS")]
    tasks: u32,
    /// Rank of the task among those of the call.
    #[arg(long, env = "SLURM_PROCID", default_value_t = 0, value_name = "RANK")]
    rank: u32,
    /// Node of the task.
    #[arg(long, env = "SLURMD_NODENAME", default_value = "", value_name = "NODE")]
    node: String,
    /// Number of its step.
    #[arg(long, env = "SLURM_STEP_ID", value_name = "STEP")]
    step: Option<u32>,
    /// The program and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
struct ParkArgs {
    /// Folder of the run.
    #[arg(long, value_name = "FOLDER")]
    run: PathBuf,
    /// The group, from 0.
    #[arg(long, value_name = "N")]
    group: usize,
    /// Folder of the sandbox in which the program runs.
    #[arg(long, value_name = "FOLDER")]
    sandbox: PathBuf,
    /// An empty folder for the image.
    #[arg(long, value_name = "FOLDER")]
    into: PathBuf,
    /// Longest time, s.
    #[arg(long, value_name = "SECONDS")]
    limit_s: f64,
}

impl WardenArgs {
    fn task(self) -> criu::task::Task {
        let WardenArgs { criu, run, restore, limit_s, own_network, command, .. } = self;
        let WardenArgs { call, tasks, rank, node, step, ranks, .. } = self;
        let WardenArgs { stdin, stdin_at, labels, placement, relay, meeting, sockets, addresses, .. } = self;
        let world = relay.zip(meeting).zip(sockets).map(|((relay, meeting), sockets)| criu::world::World {
            relay,
            meeting,
            socket: criu::world::socket(&sockets, rank),
            ranks: ranks.clone().unwrap_or_default(),
            place: rank,
            address: addresses.get(rank as usize).cloned(),
        });
        let member = call.map(|call| criu::line::Member { call, rank, tasks, node, step, ranks });
        let stdin = stdin.map(|file| (file, stdin_at));
        let task =
            criu::task::Task { criu, run, member, placement, restore, limit_s, own_network, ..Default::default() };
        criu::task::Task { world, stdin, labels, command, ..task }
    }
}

fn main() -> ExitCode {
    if let Some(name) = steps::srun::names().find(|name| called_as(name)) {
        return exit(steps::srun::run(name));
    }
    let level = tracing_subscriber::EnvFilter::try_from_env("JOULEPOINT_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(|| log::Writes)
        .log_internal_errors(false)
        .event_format(log::Lines)
        .init();
    let cli = match pages::command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Err(e) => {
            let mut words = std::env::args_os().skip(1);
            let request: Vec<_> = words.by_ref().take_while(|word| word != "--").collect();
            let script: Vec<_> = words.collect();
            if script.is_empty() || request.first().is_none_or(|word| word != "wrap") {
                e.exit()
            }
            // The plugin's words, of another version: no reason for a job to fail.
            return exit(wrapper::launch::misunderstood(&e.to_string(), &request, &script));
        }
        Ok(cli) => cli,
    };
    match run(cli) {
        Ok(code) => exit(code),
        Err(Failure::Usage(text)) => complain(&text, 2),
        Err(Failure::Other(e)) => complain(&format!("{e:#}"), 1),
    }
}

/// Says why the command ends, to whoever still listens.
fn complain(text: &str, code: u8) -> ExitCode {
    protocol::say!("joulepoint: {}", ::report::sheet::printable_lines(text));
    ExitCode::from(code)
}

/// Whether we were started under another name.
fn called_as(name: &str) -> bool {
    let first = std::env::args_os().next().unwrap_or_default();
    std::path::Path::new(&first).file_name().is_some_and(|n| n == name)
}

fn exit(code: i32) -> ExitCode {
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}

/// What ends a command early.
pub(crate) enum Failure {
    Usage(String),
    Other(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(e: E) -> Failure {
        Failure::Other(e.into())
    }
}

impl Failure {
    /// Wrong input, unless Slurm, a service or standard output failed.
    fn of_input(e: anyhow::Error) -> Failure {
        let failed = e.chain().any(|c| c.is::<wire::Error>() || c.is::<slurm::Error>() || c.is::<out::Unwritten>());
        if failed { Failure::Other(e) } else { Failure::Usage(format!("{e:#}")) }
    }
}

fn run(cli: Cli) -> Result<i32, Failure> {
    match cli.command {
        Command::Model(args) => return run_model(&args),
        Command::Warden(args) => return Ok(criu::supervisor::run(&args.task()).leave(host::supervise::end_by)),
        Command::Gpus => gpu::isolated::run().map_err(|e| Failure::Other(e.into()))?,
        Command::Ranks(args) => return Ok(args.start()),
        Command::Rank { command } => return Ok(worlds::rank::stand_before(&command)),
        Command::Wrap(args) => return Ok(wrap(&cli.conf, &args.request, &args.command)),
        Command::Park(ParkArgs { run, group, sandbox, into, limit_s }) => {
            let dumped = groups::park::here(&run, group, &sandbox, &into, limit_s);
            dumped.map_err(|reason| Failure::Other(anyhow::anyhow!(reason)))?;
        }
        Command::Run(args) => return run_command(&cli.conf, &args),
        Command::Simulate(args) => simulate::run(*args).map_err(Failure::of_input)?,
        Command::Completion { shell } => {
            out::print(pages::completion(shell)?)?;
        }
        Command::Man { all: Some(folder), .. } => man::write_all(pages::command(), &folder)?,
        Command::Man { subcommand, all: None } => {
            out::print(man::page(pages::command(), &subcommand).map_err(Failure::of_input)?)?;
        }
        Command::Plan(args) => {
            plan::run(&args, &site(&cli.conf)?).map_err(Failure::of_input)?;
        }
        Command::Calibrate(args) => calibrate::run(&args, &site(&cli.conf)?, &cli.conf)?,
        Command::Report(args) => report::run(&args, &cli.conf)?,
        Command::Doctor(args) => return Ok(doctor::run(&args, &cli.conf)?),
        Command::Able(args) => return able::run(&args, &site(&cli.conf)?),
        Command::Capabilities(args) => capabilities::run(&args, &cli.conf)?,
        Command::Clean(args) => return clean::run(&args, &site(&cli.conf)?),
        Command::ConfirmOff(args) => return confirm_off::run(&args, &client(&cli.conf)?),
        Command::Status(args) => return status::run(&args, &cli.conf),
        Command::Loans(args) => return loans::run(&args, &cli.conf),
        Command::Checkpoint(args) => return steer::run(Verb::Checkpoint, &args, &client(&cli.conf)?),
        Command::Vacate(args) => return steer::vacate(&args, &client(&cli.conf)?),
        Command::Restart(args) => return steer::run(Verb::Restart, &args, &client(&cli.conf)?),
        Command::Enable(args) => return steer::run(Verb::Enable, &args, &client(&cli.conf)?),
        Command::Disable(args) => return steer::run(Verb::Disable, &args, &client(&cli.conf)?),
    }
    Ok(0)
}

fn site(conf: &std::path::Path) -> Result<config::Site, Failure> {
    config::read(conf).map_err(|e| Failure::Usage(e.to_string()))
}

fn client(conf: &std::path::Path) -> Result<wire::Client, Failure> {
    let site = site(conf)?;
    Ok(wire::Client::new(&site.controller.url, site.munge_socket, ANSWER_LIMIT))
}

fn run_model(args: &ModelArgs) -> Result<i32, Failure> {
    let input = match &args.json {
        Some(json) => Ok(json.clone()),
        None => std::io::read_to_string(std::io::stdin()).map_err(|e| {
            let refusal = format!("the standard input cannot be read: {e}; JSON as UTF-8 text is needed");
            serde_json::json!({ "error": refusal }).to_string()
        }),
    };
    let (json, code) = match input.and_then(|input| model::run(&args.name, &input)) {
        Ok(json) => (json, 0),
        Err(json) => (json, 2),
    };
    out::print(json + "\n")?;
    Ok(code)
}

fn wrap(conf: &std::path::Path, request: &str, command: &[OsString]) -> i32 {
    let request = match serde_json::from_str(request) {
        Ok(understood) => understood,
        Err(e) => return wrapper::launch::misunderstood(&e.to_string(), &[request.into()], command),
    };
    let attempt = std::env::var(steps::script::ATTEMPT).ok().and_then(|a| a.parse().ok());
    wrapper::launch::wrap(&request, command, conf, attempt)
}

fn run_command(conf: &std::path::Path, args: &RunArgs) -> Result<i32, Failure> {
    let mut request = plan::request(&args.options).map_err(Failure::Usage)?;
    let on = || protocol::Setting { value: String::new(), source: protocol::Source::Option };
    request.settings.entry("ft-energy".to_string()).or_insert_with(on);
    options::resolve(&request, &Default::default()).map_err(|r| Failure::Usage(r.to_string()))?;
    if args.resume {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var(job::identity::RESUME, "1") };
    }
    let attempt = std::env::var(steps::script::ATTEMPT).ok().and_then(|a| a.parse().ok());
    Ok(wrapper::launch::wrap(&request, &args.command, conf, attempt))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        pages::command().debug_assert();
    }
}

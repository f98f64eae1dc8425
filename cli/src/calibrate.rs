//! `joulepoint calibrate`: measure the cluster, show what is known of it, carry it, and compare.

/// A size; an error names the forms.
fn size(text: &str) -> Result<u64, String> {
    options::parse_size(text).map_err(|why| format!("{why}; accepted: {}", options::Form::Size.accepted()))
}

fn gigahertz(text: &str) -> Result<f64, String> {
    let ghz = text.parse().ok().filter(|ghz: &f64| ghz.is_finite() && *ghz > 0.0);
    ghz.ok_or_else(|| format!("'{text}' is no frequency; accepted: 2.4"))
}

/// A percentage, as a fraction.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|p: &f64| *p > 0.0 && *p <= 100.0);
    percent.map(|p| p / 100.0).ok_or_else(|| format!("'{text}' is no percentage above 0; accepted: 5"))
}

mod predict;
mod show;

use crate::{Failure, out};
use anyhow::{Context, anyhow, bail};
use calibration::campaign::{self, Progress};
use calibration::wish::Wish;
use calibration::{conduct, differences};
use clap::{Args, Subcommand};
use config::Site;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use options::Engine;
use protocol::{Calibration, Storage, StoredCalibration};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::Client;

/// Longest wait for the controller.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Arguments of `joulepoint calibrate`.
#[derive(Args)]
pub struct CalibrateArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure the cluster: submits one exclusive job for each type of node, and stores what it finds.
    Run(RunArgs),
    /// Show calibrations: idle power, points, fits and R², and whether they still hold.
    Show(ShowArgs),
    /// Predict duration and energy of a checkpoint, with 95 % intervals: for any volume, and any CPU frequency where
    /// several were measured.
    Predict(PredictArgs),
    /// Write a calibration to a file, or to standard output.
    Export(ExportArgs),
    /// Store a calibration from a file; for operators.
    Import {
        /// File that `export` or `run` wrote.
        file: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Name what changed between two calibrations beyond their errors.
    Diff {
        /// File, or number in the store (`show --history`).
        old: String,
        /// File, or number in the store.
        new: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    #[command(hide = true)]
    Facts(InJob),
    #[command(hide = true)]
    Conduct(InJob),
    #[command(hide = true)]
    Worker(InStep),
    #[command(hide = true)]
    Rank(InStep),
}

#[derive(Args)]
struct RunArgs {
    /// A few points in three minutes instead of the whole method in an hour or more.
    #[arg(long)]
    fast: bool,
    /// Pause before each checkpoint, as a run makes them: 3s, and with --fast none, for which checkpoints in a run may
    /// take longer than planned.
    #[arg(long, value_name = "TIME", value_parser = options::time_argument)]
    apart: Option<Duration>,
    /// How narrow the 95 % intervals are to be on each side, in percent of the mean: 5, and with --fast 10.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    within: Option<f64>,
    /// Most repetitions of a point, if its interval does not become narrow before: 30, and with --fast 4.
    #[arg(long, value_name = "N")]
    most: Option<usize>,
    /// Measure the nodes of this partition only.
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Nodes of each type that measure; the others tell their idle power only. All by default.
    #[arg(long, value_name = "N")]
    nodes_per_type: Option<u32>,
    /// Where checkpoints are written: memory,local,shared unless said.
    #[arg(long, value_delimiter = ',', value_parser = storage)]
    storage: Option<Vec<Storage>>,
    /// Go on where an interrupted calibration stopped, with its options; what could not be measured is tried again.
    #[arg(long)]
    resume: bool,
    /// Print the calibrations as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ShowArgs {
    /// Type of node; all by default.
    node_type: Option<String>,
    /// Show this file instead of the store.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["node_type", "history"])]
    file: Option<PathBuf>,
    /// List all that are stored, not only the newest.
    #[arg(long)]
    history: bool,
    /// Do not ask the nodes whether they have changed since.
    #[arg(long)]
    no_check: bool,
    /// Draw points, fits and R² as SVG; of one type.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The same as a page of HTML.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct PredictArgs {
    /// Volume of the checkpoint on all nodes, such as 512M.
    #[arg(value_name = "SIZE", value_parser = size)]
    bytes: u64,
    /// Nodes.
    #[arg(short = 'N', long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Processes on each node.
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    processes: u32,
    /// Engine: with app and hook one node copies the files of all.
    #[arg(long, default_value = "app", value_parser = engine)]
    engine: Engine,
    /// Where it is written: memory, local or shared; where runs write theirs if absent.
    #[arg(long, value_parser = storage)]
    storage: Option<Storage>,
    /// CPU frequency that is set, GHz; the nodes' own if absent.
    #[arg(long, value_parser = gigahertz)]
    ghz: Option<f64>,
    /// Type of node; may be left out where there is only one.
    #[arg(long, value_name = "NAME")]
    node_type: Option<String>,
    /// Predict by this file instead of the store.
    #[arg(long, value_name = "FILE", conflicts_with = "node_type")]
    file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ExportArgs {
    /// Type of node; may be left out where there is only one.
    node_type: Option<String>,
    /// File; standard output if absent.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Parts of a calibration that run within its jobs.
#[derive(Args)]
struct InJob {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    only_idle: bool,
}

/// And within their steps.
#[derive(Args)]
struct InStep {
    #[arg(long)]
    dir: PathBuf,
    #[arg(long)]
    orders: PathBuf,
}

fn storage(text: &str) -> Result<Storage, String> {
    let known = Storage::ALL.map(Storage::as_str);
    Storage::ALL.into_iter().find(|s| s.as_str() == text).ok_or_else(|| format!("'{text}' is not one of {known:?}"))
}

fn engine(text: &str) -> Result<Engine, String> {
    let known = Engine::ALL.map(Engine::as_str);
    planner::engine_named(text).ok_or_else(|| format!("'{text}' is not one of {known:?}"))
}

/// Does it.
pub fn run(args: &CalibrateArgs, site: &Site, conf: &Path) -> Result<(), Failure> {
    let client = Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
    let bad = |e: anyhow::Error| Failure::Usage(format!("{e:#}"));
    match &args.verb {
        Verb::Run(args) => measure(args, site, conf, &client)?,
        Verb::Show(args) => {
            let all = match &args.file {
                Some(file) => vec![of_file(file).map_err(bad)?],
                None => stored(&client, args.node_type.as_deref(), args.history)?,
            };
            show::show(args, &all, site, conf)?;
        }
        Verb::Predict(args) => {
            let stored = match &args.file {
                Some(file) => of_file(file).map_err(bad)?,
                None => only(&client, args.node_type.as_deref())?,
            };
            predict::predict(args, &stored)?;
        }
        Verb::Export(args) => export(args, &client)?,
        Verb::Import { file, json } => {
            let kept = keep(&client, &read(file).map_err(bad)?)?;
            match json {
                true => out::json(&kept)?,
                false => {
                    out::print(format!("stored as number {} of '{}'\n", kept.id, kept.calibration.node_type))?;
                }
            }
        }
        Verb::Diff { old, new, json } => {
            let [old, new] = [find(&client, old).map_err(bad)?, find(&client, new).map_err(bad)?];
            diff(&old, &new, *json)?;
        }
        Verb::Facts(job) => {
            let facts = conduct::own_facts(site, &job.dir)?;
            out::print(serde_json::to_string(&facts)? + "\n")?;
        }
        Verb::Conduct(job) => conduct::conduct(site, conf, &job.dir, job.only_idle)?,
        Verb::Worker(step) => conduct::work(site, &step.dir, &step.orders)?,
        Verb::Rank(step) => conduct::rank(site, &step.dir, &step.orders)?,
    }
    Ok(())
}

fn measure(args: &RunArgs, site: &Site, conf: &Path, client: &Client) -> anyhow::Result<()> {
    let wish = Wish {
        fast: args.fast,
        apart_s: args.apart.map(|t| t.as_secs_f64()),
        within: args.within,
        most: args.most,
        partition: args.partition.clone(),
        nodes_per_type: args.nodes_per_type,
        storage: args.storage.clone(),
        resume: args.resume,
    };
    let (mut measured, mut failed) = (Vec::new(), Vec::new());
    for done in campaign::run(site, conf, &wish, &mut *progress()?)? {
        let (calibration, file) = match done {
            Ok(done) => done,
            Err(e) => {
                failed.push(e);
                continue;
            }
        };
        let stored = keep(client, &calibration);
        if !args.json {
            out::print(show::describe(&calibration))?;
        }
        match stored {
            Ok(stored) if !args.json => {
                out::print(format!("stored as number {}, and in {}\n", stored.id, file.display()))?;
            }
            Ok(_) => {}
            Err(e) => {
                let cure = format!("not stored; an operator can: `joulepoint calibrate import {}`", file.display());
                failed.push(e.context(cure));
            }
        }
        measured.push(calibration);
    }
    if args.json {
        out::json(&measured)?;
    }
    // Types that could be measured are stored, whatever became of the others.
    let last = failed.pop();
    failed.iter().for_each(|e| protocol::say!("{e:#}"));
    last.map_or(Ok(()), Err)
}

/// Is told how far a calibration is.
type Show = Box<dyn FnMut(&Progress)>;

/// Bars on a terminal, else a line for each tenth.
fn progress() -> anyhow::Result<Show> {
    if !std::io::stderr().is_terminal() {
        let mut told: BTreeMap<String, usize> = BTreeMap::new();
        return Ok(Box::new(move |p: &Progress| {
            let tenth = 10 * p.done / p.all.max(1);
            if told.insert(p.node_type.clone(), tenth) != Some(tenth) {
                protocol::say!("{}: {} of {} points, {}", p.node_type, p.done, p.all, left(p));
            }
        }));
    }
    let (all, mut bars) = (MultiProgress::new(), BTreeMap::new());
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} points, {elapsed} past, {msg}")?;
    Ok(Box::new(move |p: &Progress| {
        let bar = bars.entry(p.node_type.clone()).or_insert_with(|| {
            all.add(ProgressBar::new(p.all as u64).with_style(style.clone()).with_prefix(p.node_type.clone()))
        });
        bar.set_position(p.done as u64);
        bar.set_message(left(p));
    }))
}

/// How long the rest takes, in words.
fn left(p: &Progress) -> String {
    let minutes = |s: f64| format!("{:.0}", (s / 60.0).ceil());
    let (least, most) = (minutes(p.left_s.0), minutes(p.left_s.1));
    if least == most { format!("{most} min left") } else { format!("{least} to {most} min left") }
}

fn keep(client: &Client, calibration: &Calibration) -> anyhow::Result<StoredCalibration> {
    Ok(client.post("/v1/calibrations", calibration)?)
}

fn stored(client: &Client, node_type: Option<&str>, history: bool) -> anyhow::Result<Vec<StoredCalibration>> {
    let all: Vec<StoredCalibration> = client.get(&format!("/v1/calibrations?history={history}"))?;
    let Some(wanted) = node_type else { return Ok(all) };
    let (found, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|s| s.calibration.node_type == wanted);
    let names: BTreeSet<&str> = others.iter().map(|s| s.calibration.node_type.as_str()).collect();
    match found.is_empty() && !names.is_empty() {
        true => bail!("type '{wanted}' is not calibrated, only {}", names.into_iter().collect::<Vec<_>>().join(", ")),
        false => Ok(found),
    }
}

/// An exported calibration.
pub fn read(file: &Path) -> anyhow::Result<Calibration> {
    let name = file.display();
    let text = fs::read_to_string(file).with_context(|| name.to_string())?;
    let calibration = serde_json::from_str(&text).with_context(|| format!("{name}: not an exported calibration"))?;
    planner::sound::check(&calibration).map_err(|why| anyhow!("{name}: {why}"))?;
    Ok(calibration)
}

/// A file as if it were stored.
fn of_file(file: &Path) -> anyhow::Result<StoredCalibration> {
    Ok(StoredCalibration { id: 0, calibration: read(file)?, corrections: Vec::new(), stale: Vec::new() })
}

/// A calibration by its number in the store, or its file.
fn find(client: &Client, name: &str) -> anyhow::Result<Calibration> {
    let Ok(id) = name.parse::<u64>() else { return read(Path::new(name)) };
    let found = stored(client, None, true)?.into_iter().find(|s| s.id == id);
    Ok(found
        .with_context(|| format!("the store has no calibration number {id}; see `calibrate show --history`"))?
        .calibration)
}

/// The newest calibration of a type, or of the only one.
fn only(client: &Client, node_type: Option<&str>) -> anyhow::Result<StoredCalibration> {
    let mut all = stored(client, node_type, false)?;
    match (all.pop(), all.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => bail!("nothing is calibrated{}; see `calibrate run`", of_type(node_type)),
        (Some(last), false) => {
            let names: Vec<&str> = all.iter().chain([&last]).map(|s| s.calibration.node_type.as_str()).collect();
            bail!("{} types are calibrated; name one of: {}", names.len(), names.join(", "))
        }
    }
}

fn of_type(node_type: Option<&str>) -> String {
    node_type.map_or(String::new(), |t| format!(" of type '{t}'"))
}

fn export(args: &ExportArgs, client: &Client) -> anyhow::Result<()> {
    let one = only(client, args.node_type.as_deref())?;
    let text = serde_json::to_string_pretty(&one.calibration)? + "\n";
    match &args.output {
        Some(file) => fs::write(file, text).with_context(|| file.display().to_string()),
        None => Ok(out::print(text)?),
    }
}

fn diff(old: &Calibration, new: &Calibration, json: bool) -> anyhow::Result<()> {
    let found = differences::differences(old, new);
    if json {
        return out::json(&found);
    }
    let mut text: String = found.fingerprint.iter().map(|c| format!("{c}\n")).collect();
    for c in &found.changes {
        let percent = if c.old == 0.0 { String::new() } else { format!(" ({:+.0} %)", 100.0 * (c.new / c.old - 1.0)) };
        text += &format!("{}: {:.4} is now {:.4} {}{percent}, error {:.4}\n", c.what, c.old, c.new, c.unit, c.error);
    }
    text += &format!(
        "{} of {} figures changed beyond their errors; {} points are only in the old one, {} only in the new one\n",
        found.changes.len(),
        found.compared,
        found.only_old,
        found.only_new
    );
    Ok(out::print(text)?)
}

//! `joulepoint calibrate`: measure the cluster, show what is known of it, carry it, and compare.

use crate::{Failure, out};
use anyhow::{Context, bail};
use calibration::campaign::{self, Progress, Wish};
use calibration::{conduct, differences, plot};
use clap::{Args, Subcommand};
use config::Site;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use planner::calibrated::stale;
use protocol::{CALIBRATION_VERSION, Calibration, Storage, StoredCalibration};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
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
    #[arg(long, value_name = "TIME", value_parser = options::parse_time)]
    apart: Option<Duration>,
    /// Measure the nodes of this partition only.
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Nodes of each type that measure; the others tell their idle power only. All by default.
    #[arg(long, value_name = "N")]
    nodes_per_type: Option<u32>,
    /// Where checkpoints are written.
    #[arg(long, value_delimiter = ',', default_value = "memory,local,shared", value_parser = storage)]
    storage: Vec<Storage>,
    /// Go on where an interrupted calibration stopped.
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

/// Does it.
pub fn run(args: &CalibrateArgs, site: &Site, conf: &Path) -> Result<(), Failure> {
    let client = Client::new(&site.controller.url, site.munge_socket.clone(), ANSWER_LIMIT);
    let bad = |e: anyhow::Error| Failure::Usage(format!("{e:#}"));
    match &args.verb {
        Verb::Run(args) => measure(args, site, conf, &client)?,
        Verb::Show(args) => {
            let all = match &args.file {
                Some(file) => {
                    let calibration = read(file).map_err(bad)?;
                    vec![StoredCalibration { id: 0, calibration, corrections: Vec::new(), stale: Vec::new() }]
                }
                None => stored(&client, args.node_type.as_deref(), args.history)?,
            };
            show(args, &all, site, conf)?;
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
        partition: args.partition.clone(),
        nodes_per_type: args.nodes_per_type,
        storage: args.storage.clone(),
        resume: args.resume,
    };
    let (all, mut bars) = (MultiProgress::new(), BTreeMap::new());
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len} points, {elapsed} of about {duration}")?;
    let done = campaign::run(site, conf, &wish, &mut |p: &Progress| {
        let bar = bars.entry(p.node_type.clone()).or_insert_with(|| {
            all.add(ProgressBar::new(p.all as u64).with_style(style.clone()).with_prefix(p.node_type.clone()))
        });
        bar.set_position(p.done as u64);
    })?;
    for (calibration, file) in &done {
        let stored = keep(client, calibration);
        if !args.json {
            out::print(describe(calibration))?;
        }
        let cure = || format!("not stored; an operator can: `joulepoint calibrate import {}`", file.display());
        let stored = stored.with_context(cure)?;
        if !args.json {
            out::print(format!("stored as number {}, and in {}\n", stored.id, file.display()))?;
        }
    }
    if args.json {
        out::json(&done.iter().map(|(c, _)| c).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn keep(client: &Client, calibration: &Calibration) -> anyhow::Result<StoredCalibration> {
    Ok(client.post("/v1/calibrations", calibration)?)
}

fn stored(client: &Client, node_type: Option<&str>, history: bool) -> anyhow::Result<Vec<StoredCalibration>> {
    let all: Vec<StoredCalibration> = client.get(&format!("/v1/calibrations?history={history}"))?;
    Ok(all.into_iter().filter(|s| node_type.is_none_or(|t| t == s.calibration.node_type)).collect())
}

fn read(file: &Path) -> anyhow::Result<Calibration> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let calibration: Calibration = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    if calibration.version != CALIBRATION_VERSION {
        bail!("{}: version {} is not known here, only {CALIBRATION_VERSION}", file.display(), calibration.version);
    }
    Ok(calibration)
}

/// A calibration by its number in the store, or its file.
fn find(client: &Client, name: &str) -> anyhow::Result<Calibration> {
    let Ok(id) = name.parse::<u64>() else { return read(Path::new(name)) };
    let found = stored(client, None, true)?.into_iter().find(|s| s.id == id);
    Ok(found
        .with_context(|| format!("the store has no calibration number {id}; see `calibrate show --history`"))?
        .calibration)
}

fn show(args: &ShowArgs, all: &[StoredCalibration], site: &Site, conf: &Path) -> anyhow::Result<()> {
    if all.is_empty() && !args.json {
        bail!(nothing(args.node_type.as_deref()));
    }
    if args.plot.is_some() || args.html.is_some() {
        let [one] = all else { bail!("{} calibrations: name one type for a picture", all.len()) };
        for (file, draw) in [(&args.plot, plot::svg as fn(&Calibration) -> String), (&args.html, plot::html)] {
            if let Some(file) = file {
                fs::write(file, draw(&one.calibration)).with_context(|| file.display().to_string())?;
            }
        }
        return Ok(());
    }
    if args.json {
        return out::json(&all);
    }
    if args.history {
        let line = |s: &StoredCalibration| {
            let c = &s.calibration;
            format!("{:<6}{:<40}{:<12.0}{}\n", s.id, c.node_type, c.at_s, if c.fast { "fast" } else { "full" })
        };
        return Ok(out::print(all.iter().map(line).collect::<String>())?);
    }
    let now = match args.no_check || args.file.is_some() {
        true => BTreeMap::new(),
        false => campaign::ask_again(site, conf, &all.iter().map(|s| &s.calibration).collect::<Vec<_>>())?,
    };
    let mut text = String::new();
    for s in all {
        text += &describe(&s.calibration);
        for c in &s.corrections {
            let at = c.storage.map_or(String::new(), |t| format!(" ({})", t.as_str()));
            text += &format!(
                "corrected   {}{at} takes {:.3} of the estimate, by {} runs\n",
                c.operation.as_str(),
                c.factor,
                c.count
            );
        }
        let asked = now.get(&s.calibration.node_type);
        let told = asked.map(|facts| stale(&s.calibration.fingerprint, &facts.fingerprint));
        let changes = told.unwrap_or_else(|| s.stale.clone());
        let holds = match (changes.is_empty(), asked) {
            (false, _) => "no, it is stale",
            (true, Some(_)) => "yes",
            (true, None) => "not asked",
        };
        text += &format!("holds       {holds}\n");
        changes.iter().for_each(|c| text += &format!("            {c}\n"));
        text += "\n";
    }
    Ok(out::print(text)?)
}

/// That nothing is calibrated, and the cure.
fn nothing(node_type: Option<&str>) -> String {
    let of = node_type.map_or(String::new(), |t| format!(" of type '{t}'"));
    format!("nothing is calibrated{of}; see `calibrate run`")
}

/// A calibration in words.
fn describe(c: &Calibration) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| text.push_str(&format!("{name:<12}{value}\n"));
    line("node type", format!("{} of {}", c.node_type, c.cluster));
    line("measured", format!("{:.0} s after 1970, {}", c.at_s, if c.fast { "in a hurry" } else { "in full" }));
    let f = &c.fingerprint;
    line("on", format!("{}, {} CPUs, kernel {}, {}", f.cpu, f.cores, f.kernel, f.mpi.as_deref().unwrap_or("no MPI")));
    f.storage.iter().for_each(|(target, kind)| line("storage", format!("{:<8}{kind}", target.as_str())));
    line("energy by", c.energy_source.clone());
    let idle: Vec<String> = c.power.idle_w.iter().map(|(node, w)| format!("{node} {w:.1}")).collect();
    line("idle W", idle.join(", "));
    line("noise", format!("{:.1} % of a duration, {:.1} W", 100.0 * c.noise.time_fraction, c.noise.delta_w));
    for m in &c.measured {
        let target = m.storage.map_or(String::new(), |s| format!(" ({})", s.as_str()));
        let _ = writeln!(text, "{}{target}", m.operation.as_str());
        let _ = writeln!(
            text,
            "{:>6}{:>5}{:>11}{:>6}{:>6}{:>14}{:>9}{:>9}{:>8}{:>6}",
            "N", "p", "MiB", "%", "GHz", "time s", "+-", "extra W", "+-", "times"
        );
        for p in &m.points {
            let ghz = p.frequency_hz.map_or("-".into(), |f| format!("{:.2}", f / 1e9));
            let ci = p.delta_ci_w.map_or("-".into(), |w| format!("{w:.1}"));
            let _ = writeln!(
                text,
                "{:>6}{:>5}{:>11.3}{:>6.0}{:>6}{:>14.9}{:>8.1}%{:>9.1}{:>8}{:>6}",
                p.nodes,
                p.processes,
                p.bytes / 1_048_576.0,
                100.0 * p.intensity,
                ghz,
                p.time_s,
                100.0 * p.time_ci_s / p.time_s.max(f64::MIN_POSITIVE),
                p.delta_w,
                ci,
                p.count
            );
        }
        for fit in &m.fits {
            let p = &m.points[fit.at.min(m.points.len() - 1)];
            let (over, at) = match fit.over {
                protocol::Axis::Bytes => ("volume", format!("N={} p={}", p.nodes, p.processes)),
                protocol::Axis::Processes => ("p", format!("N={} {:.3} MiB", p.nodes, p.bytes / 1_048_576.0)),
                protocol::Axis::Nodes => ("N", format!("p={} {:.3} MiB", p.processes, p.bytes / 1_048_576.0)),
            };
            let of = if fit.of == protocol::Quantity::TimeS { "time" } else { "extra power" };
            let _ = writeln!(
                text,
                "  {of} over {over} at {at}: {} a={:.4e} b={:.4e}, R2 {:.4}{}, residual {:.3e}",
                fit.curve,
                fit.alpha,
                fit.beta,
                fit.r2,
                if fit.degenerate { " (constant)" } else { "" },
                fit.residual
            );
        }
    }
    for s in &c.skipped {
        let target = s.storage.map_or(String::new(), |t| format!(" ({})", t.as_str()));
        let _ = writeln!(text, "not measured: {}{target}: {}", s.operation.as_str(), s.why);
    }
    text
}

fn export(args: &ExportArgs, client: &Client) -> anyhow::Result<()> {
    let all = stored(client, args.node_type.as_deref(), false)?;
    if all.is_empty() {
        bail!(nothing(args.node_type.as_deref()));
    }
    let [one] = &all[..] else {
        let names: Vec<&str> = all.iter().map(|s| s.calibration.node_type.as_str()).collect();
        bail!("{} calibrations fit; name one type of: {}", all.len(), names.join(", "));
    };
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

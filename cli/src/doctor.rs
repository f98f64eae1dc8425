//! `joulepoint doctor`: what is wrong with the installation, one line a check.

use crate::out;
use ::doctor::{Level, Patient, Side, examine, guess_side};
use std::path::Path;

/// Arguments of `joulepoint doctor`.
#[derive(clap::Args)]
pub struct DoctorArgs {
    /// What this host is; guessed if absent.
    #[arg(long, value_enum)]
    side: Option<Host>,
    /// Leave out what is as it should be.
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Kinds of hosts.
#[derive(clap::ValueEnum, Clone, Copy)]
enum Host {
    /// Where people submit jobs.
    Login,
    /// Where the controller service runs.
    Controller,
    /// Where jobs run.
    Node,
}

/// Examines and prints; the exit status.
pub fn run(args: &DoctorArgs, conf: &Path) -> anyhow::Result<i32> {
    let side = match args.side {
        Some(Host::Login) => Side::Login,
        Some(Host::Controller) => Side::Controller,
        Some(Host::Node) => Side::Node,
        None => guess_side(conf),
    };
    let findings = examine(&Patient { conf: conf.to_owned(), side, version: env!("CARGO_PKG_VERSION") });
    let worst = findings.iter().map(|f| f.level).max().unwrap_or(Level::Ok);
    if args.json {
        out::json(&serde_json::json!({ "side": side, "findings": findings }))?;
        return Ok(status(worst));
    }
    let mut text = String::new();
    for finding in findings.iter().filter(|f| !args.quiet || f.level > Level::Ok) {
        text += &format!("{:<8} {:<20} {}\n", finding.level, finding.check, finding.found);
        if !finding.cure.is_empty() {
            text += &format!("{:<29} -> {}\n", "", finding.cure);
        }
    }
    out::print(text)?;
    Ok(status(worst))
}

fn status(worst: Level) -> i32 {
    match worst {
        Level::Skipped | Level::Ok => 0,
        Level::Fault => 1,
        Level::Warning => 3,
    }
}

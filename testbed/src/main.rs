//! Starts a test cluster by hand, runs one command on it and stops it; or gives orders to one that runs.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use testbed::{Cluster, Options};

const USAGE: &str = "usage: testbed [--nodes N] [--cred-expire SECONDS] [--slurmd-timeout SECONDS] [--no-accounting] [--own-clocks] [--conf LINE]... DIR -- COMMAND...\n\
    Starts a private Slurm in DIR (an empty folder), runs COMMAND with SLURM_CONF set, and stops the cluster.\n\
    usage: testbed at DIR ORDER...\n\
    Does something to the cluster that runs in DIR:";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(e) => {
            eprintln!("testbed: {e:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [at, dir, order @ ..] = words.as_slice()
        && at == "at"
    {
        let said = testbed::order(Path::new(dir), order)?;
        if !said.is_empty() {
            println!("{said}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let Some((dir, options, command)) = parse(words.into_iter())? else {
        println!("{USAGE}\n{}", testbed::ORDERS);
        return Ok(ExitCode::SUCCESS);
    };
    let begin = Instant::now();
    let cluster = Cluster::start(&dir, &options, &mut |what| {
        eprintln!("testbed: {:5.2} s {what}", begin.elapsed().as_secs_f32());
    })?;
    let status = cluster.command(&command[0]).args(&command[1..]).status().context(command[0].clone())?;
    cluster.stop();
    Ok(ExitCode::from(status.code().unwrap_or(1) as u8))
}

fn number(word: Option<String>) -> Result<u32> {
    word.context(USAGE)?.parse().context(USAGE)
}

/// The folder, the options and the command; `None` is a call for help.
fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<(PathBuf, Options, Vec<String>)>> {
    let mut options = Options::default();
    let mut dir = None;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--help" | "-h" => return Ok(None),
            "--nodes" => options.nodes = number(words.next())?,
            "--cred-expire" => options.cred_expire_s = number(words.next())?,
            "--slurmd-timeout" => options.slurmd_timeout_s = number(words.next())?,
            "--conf" => {
                options.extra_conf += &words.next().context(USAGE)?;
                options.extra_conf.push('\n');
            }
            "--no-accounting" => options.accounting = false,
            "--own-clocks" => options.own_clocks = true,
            "--" => break,
            path if dir.is_none() && !path.starts_with('-') => dir = Some(PathBuf::from(path)),
            other => bail!("{other:?} is not understood\n{USAGE}"),
        }
    }
    let command: Vec<String> = words.collect();
    if command.is_empty() {
        bail!("no command\n{USAGE}");
    }
    Ok(Some((dir.context(USAGE)?, options, command)))
}

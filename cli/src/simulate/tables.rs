//! `simulate tables`: the papers' figures beside ours.

use std::fmt::Write as _;

use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use simulator::published::{Cell, Paper, Source, System, Verdict, cells};
use simulator::trace::Trace;

use super::{forms, traces::TraceArgs};

/// Which papers, on which failure logs.
#[derive(clap::Args, Debug)]
#[command(mut_args = forms::numbers)]
pub struct TablesArgs {
    #[command(flatten)]
    traces: TraceArgs,
    /// Papers; all if none is given.
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = names())]
    paper: Vec<String>,
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print CSV.
    #[arg(long)]
    csv: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(Paper::ALL.map(Paper::name))
}

/// Prints the cells. ElSayed14's need `--trace system-N.csv`, one for each system.
pub fn run(args: &TablesArgs) -> anyhow::Result<()> {
    let given = !args.traces.trace.is_empty() || args.traces.synthetic.is_some();
    let traces = if given { args.traces.load()? } else { Vec::new() };
    let systems = traces.into_iter().map(system).collect::<anyhow::Result<Vec<_>>>()?;
    let wanted = |paper: &Paper| args.paper.is_empty() || args.paper.iter().any(|name| name == paper.name());
    let mut all = Vec::new();
    for paper in Paper::ALL.into_iter().filter(wanted) {
        all.extend(cells(paper, &systems)?);
    }
    if args.json {
        crate::out::print(format!("{}\n", json!({ "cells": all.iter().map(cell_json).collect::<Vec<_>>() })))?;
    } else if args.csv {
        crate::out::print(csv(&all)?)?;
    } else {
        crate::out::print(table(&all)?)?;
        if systems.is_empty() && wanted(&Paper::ElSayed14) {
            crate::out::print("ElSayed14's tables need failure logs: --trace system-2.csv system-20.csv ...\n")?;
        } else if !systems.is_empty() {
            crate::out::print("Failure records: Los Alamos National Laboratory, LA-UR-05-7318.\n")?;
        }
    }
    Ok(())
}

/// The system that the name of a trace ends with.
fn system(trace: Trace) -> anyhow::Result<System> {
    let id = trace.name.rsplit_once("system").and_then(|(_, id)| id.trim_start_matches('-').parse().ok());
    let id = id.ok_or_else(|| anyhow::anyhow!("{:?} names no system; call the file system-N.csv", trace.name))?;
    Ok(System { id, trace })
}

fn verdict(cell: &Cell) -> (&'static str, Option<String>) {
    match cell.verdict() {
        Verdict::Yes => ("yes", None),
        Verdict::No(why) => ("no", Some(why)),
        Verdict::Cannot(why) => ("cannot", Some(why)),
    }
}

fn source(cell: &Cell) -> Option<&'static str> {
    cell.published.map(|_| match cell.source {
        Source::Printed => "printed",
        Source::Mended => "mended",
    })
}

fn cell_json(cell: &Cell) -> Value {
    let (verdict, why) = verdict(cell);
    json!({
        "paper": cell.paper.name(), "place": cell.place, "quantity": cell.quantity,
        "printed": cell.published, "source": source(cell), "ours": cell.ours, "difference": cell.difference(),
        "tolerance": cell.tolerance, "verdict": verdict, "why": why,
    })
}

fn csv(cells: &[Cell]) -> anyhow::Result<String> {
    let mut text = String::from("paper,place,quantity,printed,source,ours,difference,tolerance,verdict,why\n");
    let quoted = |s: &str| format!("\"{}\"", s.replace('"', "\"\""));
    let number = |x: Option<f64>| x.map_or_else(String::new, |x| x.to_string());
    for cell in cells {
        let (verdict, why) = verdict(cell);
        writeln!(
            text,
            "{},{},{},{},{},{},{},{},{verdict},{}",
            cell.paper.name(),
            quoted(&cell.place),
            quoted(&cell.quantity),
            number(cell.published),
            source(cell).unwrap_or(""),
            number(cell.ours),
            number(cell.difference()),
            cell.tolerance,
            quoted(&why.unwrap_or_default())
        )?;
    }
    Ok(text)
}

fn table(cells: &[Cell]) -> anyhow::Result<String> {
    let mut text = String::new();
    let width = |text: fn(&Cell) -> &str| cells.iter().map(|c| text(c).chars().count()).max().unwrap_or(0);
    let (places, quantities) = (width(|c| &c.place), width(|c| &c.quantity));
    for paper in Paper::ALL {
        let mut of_paper = cells.iter().filter(|c| c.paper == paper).peekable();
        if of_paper.peek().is_none() {
            continue;
        }
        writeln!(
            text,
            "{:<places$}  {:<quantities$}  {:>11} {:>11} {:>10} {:>9}  reproduces",
            paper.name(),
            "quantity",
            "printed",
            "ours",
            "difference",
            "tolerance"
        )?;
        for cell in of_paper {
            let mended = if source(cell) == Some("mended") { "*" } else { "" };
            let (verdict, why) = verdict(cell);
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            writeln!(
                text,
                "{:<places$}  {:<quantities$}  {:>11} {:>11} {:>10} {:>9}  {verdict}{why}",
                cell.place,
                cell.quantity,
                figure(cell.published) + mended,
                figure(cell.ours),
                figure(cell.difference()),
                figure(Some(cell.tolerance).filter(|_| cell.published.is_some()))
            )?;
        }
        text.push('\n');
    }
    let count = |name| cells.iter().filter(|c| verdict(c).0 == name).count();
    writeln!(text, "{} yes, {} no, {} cannot be said.", count("yes"), count("no"), count("cannot"))?;
    writeln!(text, "* not as printed: recomputed from the paper's model with its errata mended (docs/models.md).")?;
    Ok(text)
}

/// A figure in a few characters; a dash if there is none.
fn figure(x: Option<f64>) -> String {
    match x {
        None => "-".to_owned(),
        Some(0.0) => "0".to_owned(),
        Some(x) if x.abs() >= 1e5 || x.abs() < 1e-3 => format!("{x:.2e}"),
        Some(x) => {
            let text = format!("{x:.5}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

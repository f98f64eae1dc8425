//! `simulate tables`: printed figures beside ours.

use serde_json::json;
use simulator::published::elsayed_cells;
use simulator::trace::Trace;

use super::traces::TraceArgs;

/// On which traces.
#[derive(clap::Args, Debug)]
pub struct TablesArgs {
    #[command(flatten)]
    traces: TraceArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the cells.
pub fn run(args: &TablesArgs) -> anyhow::Result<()> {
    tables(args, &args.traces.load()?)
}

fn tables(args: &TablesArgs, traces: &[Trace]) -> anyhow::Result<()> {
    let mut cells = Vec::new();
    for trace in traces {
        let id = trace.name.rsplit(['-', ' ']).next().and_then(|id| id.parse().ok()).unwrap_or(0);
        cells.extend(elsayed_cells(id, trace)?.into_iter().map(|c| (trace.name.clone(), c)));
    }
    anyhow::ensure!(!cells.is_empty(), "no printed figure is known for these traces; name them system-2, -20 or -21");
    if args.json {
        let cells: Vec<_> = cells
            .iter()
            .map(|(trace, c)| {
                json!({
                    "trace": trace, "place": c.place, "quantity": c.quantity, "printed": c.printed,
                    "found": c.found, "tolerance": c.tolerance, "reproduced": c.reproduced(),
                })
            })
            .collect();
        println!("{}", json!({ "cells": cells }));
        return Ok(());
    }
    println!("{:<12} {:<20} {:<26} {:>9} {:>9}  reproduced", "trace", "place", "quantity", "printed", "found");
    for (trace, c) in &cells {
        let verdict = if c.reproduced() { "yes" } else { "no" };
        println!("{trace:<12} {:<20} {:<26} {:>9.2} {:>9.2}  {verdict}", c.place, c.quantity, c.printed, c.found);
    }
    println!("Failure records: Los Alamos National Laboratory, LA-UR-05-7318.");
    Ok(())
}

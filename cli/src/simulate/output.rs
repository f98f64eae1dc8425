//! What the simulations print and draw.

use crate::out;
use std::path::PathBuf;

use serde::Serialize;
use simulator::comparison::Row;
use simulator::replay::Setting;
use simulator::{chart, figure};

use super::objective_name;

/// The form of the answer.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// Print JSON.
    #[arg(long, conflicts_with = "csv", help_heading = "Output")]
    pub json: bool,
    /// Print CSV.
    #[arg(long, help_heading = "Output")]
    pub csv: bool,
    /// Draw it.
    #[arg(long, value_name = "FILE.svg", help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Write the drawing and the table as one page.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

impl Output {
    /// Draws energy against time, where asked.
    pub fn draw(&self, rows: &[Row], table: &str) -> anyhow::Result<()> {
        self.write("Policies against Young", || figure::energy_against_time(rows), table)
    }

    /// Writes a drawing and the page, where asked.
    pub fn write(&self, title: &str, draw: impl FnOnce() -> String, table: &str) -> anyhow::Result<()> {
        if self.plot.is_none() && self.html.is_none() {
            return Ok(());
        }
        let svg = draw();
        if let Some(path) = &self.plot {
            out::file(path, &svg)?;
        }
        if let Some(path) = &self.html {
            out::file(path, &page(title, &svg, table))?;
        }
        Ok(())
    }
}

fn page(title: &str, svg: &str, table: &str) -> String {
    let (title, table) = (chart::escape(title), table.split('\n').map(chart::escape).collect::<Vec<_>>().join("\n"));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Joulepoint: {title}</title>\n<style>\n\
         :root{{color-scheme:light dark}}body{{font-family:system-ui,sans-serif;margin:2em auto;max-width:90em;\
         padding:0 1em}}\nsvg{{max-width:100%;height:auto}}pre{{overflow-x:auto}}\n</style>\n\
         <h1>{title}</h1>\n{svg}\n<pre>{table}</pre>\n</html>\n"
    )
}

/// One policy on one trace, as JSON and CSV have it.
#[derive(Debug, Serialize)]
pub struct Record<'a> {
    trace: &'a str,
    policy: &'a str,
    objective: &'static str,
    checkpoint_s: f64,
    ratio: f64,
    runtime_bound: Option<f64>,
    io_bound: Option<f64>,
    wasted_time_vs_young: f64,
    wasted_energy_vs_young: f64,
    /// Wasted time, s.
    wasted_time_s: f64,
    /// Wasted energy: seconds at idle power.
    wasted_energy_idle_s: f64,
    io_share: f64,
    checkpoints: f64,
    failures: f64,
}

impl<'a> Record<'a> {
    /// The record of a row.
    pub fn of(setting: &Setting, row: &'a Row) -> Record<'a> {
        Record {
            trace: &row.trace,
            policy: &row.policy,
            objective: objective_name(row.objective),
            checkpoint_s: setting.checkpoint_s,
            ratio: setting.ratio,
            runtime_bound: setting.runtime_bound,
            io_bound: setting.io_bound,
            wasted_time_vs_young: row.time,
            wasted_energy_vs_young: row.energy,
            wasted_time_s: row.outcome.wasted_s(),
            wasted_energy_idle_s: row.outcome.wasted_energy(setting.ratio),
            io_share: row.outcome.io_share(),
            checkpoints: row.outcome.checkpoints,
            failures: row.outcome.failures,
        }
    }
}

/// One row as a JSON object.
pub fn row_json(setting: &Setting, row: &Row) -> serde_json::Value {
    serde_json::json!(Record::of(setting, row))
}

/// Prints records as CSV with a heading.
pub fn print_csv(records: impl Iterator<Item = impl Serialize>) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for record in records {
        writer.serialize(record)?;
    }
    Ok(crate::out::print(String::from_utf8(writer.into_inner()?)?)?)
}

/// A setting in words, for headings.
pub fn setting_words(setting: &Setting) -> String {
    let bound = |name: &str, bound: Option<f64>| match bound {
        Some(bound) => format!(", {name} bound {} %", (1e6 * bound).round() / 1e4),
        None => String::new(),
    };
    format!(
        "C {} s, compute at {} times idle power{}{}",
        setting.checkpoint_s,
        setting.ratio,
        bound("runtime", setting.runtime_bound),
        bound("I/O", setting.io_bound)
    )
}

//! What the simulations print and draw.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;
use simulator::chart;
use simulator::comparison::Row;
use simulator::replay::Setting;

use super::objective_name;

/// The form of the answer.
#[derive(clap::Args, Debug)]
pub struct Output {
    /// Print JSON.
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print CSV.
    #[arg(long)]
    pub csv: bool,
    /// Draw wasted energy against wasted time.
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Write the table and the drawing as one page.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Output {
    /// Writes the drawing and the page, where asked.
    pub fn draw(&self, rows: &[Row], table: &str) -> anyhow::Result<()> {
        let svg = chart::energy_against_time(rows);
        if let Some(path) = &self.plot {
            std::fs::write(path, &svg).with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.html {
            let page = format!(
                "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Joulepoint: policies against Young</title>\n\
             <h1>Policies against Young</h1>\n{svg}\n<pre>{}</pre>\n",
                chart::escape(table)
            );
            std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

/// One row as a JSON object.
pub fn row_json(setting: &Setting, row: &Row) -> serde_json::Value {
    json!({
        "trace": row.trace,
        "policy": row.policy,
        "objective": objective_name(row.objective),
        "checkpoint_s": setting.checkpoint_s,
        "ratio": setting.ratio,
        "wasted_time_vs_young": row.time,
        "wasted_energy_vs_young": row.energy,
        "wasted_time_s": row.outcome.wasted_s(),
        "wasted_energy_idle_s": row.outcome.wasted_energy(setting.ratio),
        "io_share": row.outcome.io_share(),
        "checkpoints": row.outcome.checkpoints,
        "failures": row.outcome.failures,
    })
}

/// The mean and the half width of its 95 % confidence interval.
pub fn mean_and_confidence(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return (mean, 0.0);
    }
    let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / (n - 1.0);
    // Student's t at 97.5 %, within 1 % from two degrees of freedom on.
    let f = n - 1.0;
    let t = if f < 2.0 { 12.706 } else { 1.96 + 2.372 / f + 2.82 / (f * f) + 2.56 / (f * f * f) };
    (mean, t * (variance / n).sqrt())
}

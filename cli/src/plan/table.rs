//! The table of protocols in a plan, for people.

use protocol::{ProtocolChoice, ProtocolFigures, ProtocolRow, Range};
use std::collections::BTreeMap;

/// Parts in the order of columns; the rest of a run is work.
const PARTS: [&str; 8] = ["checkpoint", "coordination", "logging", "lost_work", "restart", "idle", "lent", "replica"];

/// The protocols with their figures; the one that nothing stands against is marked.
pub fn table(choice: &ProtocolChoice) -> String {
    let mut text = format!(
        "protocols, for {} of work (from: {}), {} groups, {}\n",
        options::format_time(choice.work_s.value),
        choice.work_s.from,
        choice.groups,
        match &choice.node_type {
            Some(node_type) => format!("calibration of '{node_type}'"),
            None => "no calibration".to_string(),
        }
    );
    text.push_str(&format!(
        "  {:<26} {:>10} {:>8} {:>22} {:>26} {:>9} {:>9}\n",
        "", "interval", "ckpts", "time (95 %)", "energy (95 %)", "n* energy", "n* time"
    ));
    for row in &choice.rows {
        text.push_str(&line(row));
        if let Some(figures) = &row.figures {
            text.push_str(&format!("      energy: {}\n", shares(&figures.energy_parts_j)));
            text.push_str(&format!("      time:   {}\n", shares(&figures.time_parts_s)));
        }
        if let Some(why) = &row.refused {
            text.push_str(&format!("      not taken: {why}\n"));
        }
    }
    text
}

fn line(row: &ProtocolRow) -> String {
    let mark = if row.refused.is_none() { "*" } else { " " };
    let Some(figures) = &row.figures else { return format!("{mark} {:<26} not estimated\n", row.protocol) };
    let ProtocolFigures { interval_s, checkpoints, time_s, energy_j, break_even_energy, break_even_time, .. } = figures;
    let number = |n: &Option<f64>| n.map_or("-".to_string(), |n| format!("{n:.1}"));
    format!(
        "{mark} {:<26} {:>10} {:>8.1} {:>22} {:>26} {:>9} {:>9}\n",
        row.protocol,
        interval_s.map_or("-".to_string(), |s| format!("{s:.0} s")),
        checkpoints,
        range(time_s, &[(1.0, "s"), (3600.0, "h")]),
        range(energy_j, &[(1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ")]),
        number(break_even_energy),
        number(break_even_time),
    )
}

/// A figure and half its interval, in the largest unit that leaves it above ten.
fn range(range: &Range, units: &[(f64, &str)]) -> String {
    let fits = |(size, _): &&(f64, &str)| range.value >= 10.0 * size;
    let Some((size, unit)) = units.iter().rfind(fits).or(units.first()) else { return String::new() };
    if range.value / size >= 1e6 {
        return format!("{:.0e} {unit}", range.value / size);
    }
    let half = (range.high - range.low) / 2.0;
    let sure = if half > 0.0 { format!(" ± {:.3}", half / size) } else { String::new() };
    format!("{:.3}{sure} {unit}", range.value / size)
}

/// The parts beyond work, as shares of the whole.
fn shares(parts: &BTreeMap<String, f64>) -> String {
    let total: f64 = parts.values().sum();
    let share = |name: &&str| parts.get(*name).copied().unwrap_or(0.0) / total;
    let shown: Vec<String> = PARTS
        .iter()
        .filter(|n| share(n) > 0.0)
        .map(|n| format!("{} {}", n.replace('_', " "), percent(share(n))))
        .collect();
    if shown.is_empty() { "work alone".to_string() } else { shown.join(", ") }
}

fn percent(share: f64) -> String {
    if share < 5e-6 { "<0.001%".to_string() } else { format!("{:.3}%", 100.0 * share) }
}

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
        "  {:<25} {:>7} {:>7} {:>16} {:>18}\n",
        "", "interval", "ckpts", "time (95 %)", "energy (95 %)"
    ));
    for row in &choice.rows {
        text.push_str(&line(row));
        if let Some(figures) = &row.figures {
            text.push_str(&format!("      energy: {}\n", shares(&figures.energy_parts_j)));
            text.push_str(&format!("      time:   {}\n", shares(&figures.time_parts_s)));
            text.push_str(&even(figures));
        }
        if let Some(why) = &row.refused {
            text.push_str(&format!("      not taken: {why}\n"));
        }
    }
    text
}

/// At most as wide as a terminal is at least.
fn line(row: &ProtocolRow) -> String {
    let mark = if row.refused.is_none() { "*" } else { " " };
    let Some(figures) = &row.figures else { return format!("{mark} {:<25} not estimated\n", row.protocol) };
    format!(
        "{mark} {:<25} {:>7} {:>7.1} {:>16} {:>18}\n",
        row.protocol,
        figures.interval_s.map_or("-".to_string(), |s| format!("{s:.0} s")),
        figures.checkpoints,
        range(&figures.time_s, &[(1.0, "s"), (3600.0, "h")]),
        range(&figures.energy_j, &[(1e3, "kJ"), (1e6, "MJ"), (1e9, "GJ")]),
    )
}

/// n* and its time twin.
fn even(figures: &ProtocolFigures) -> String {
    let found = [(figures.break_even_energy, "n* energy"), (figures.break_even_time, "n* time")];
    let told: Vec<String> = found.iter().filter_map(|(n, name)| Some(format!("{name} {:.1}", (*n)?))).collect();
    if told.is_empty() { String::new() } else { format!("      even at checkpoints: {}\n", told.join(", ")) }
}

/// A figure and half its interval, in the largest unit that leaves it above ten.
fn range(range: &Range, units: &[(f64, &str)]) -> String {
    let fits = |(size, _): &&(f64, &str)| range.value >= 10.0 * size;
    let Some((size, unit)) = units.iter().rfind(fits).or(units.first()) else { return String::new() };
    if range.value / size >= 1e6 {
        return format!("{:.0e} {unit}", range.value / size);
    }
    let half = (range.high - range.low) / 2.0;
    let value = range.value / size;
    let digits = if value >= 1000.0 { 1 } else { 3 };
    let told = format!("{:.digits$}", half / size);
    // An interval that shows as zero would claim to be certain.
    let sure = if told.contains(|c| ('1'..='9').contains(&c)) { format!(" ± {told}") } else { String::new() };
    format!("{value:.digits$}{sure} {unit}")
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

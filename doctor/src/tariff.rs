//! Whether the prices by time can be read, and how far they reach.

use crate::Findings;
use std::fs;
use std::time::SystemTime;
use tariff::Tariff;

const CURE: &str =
    "what writes the file must write it anew in time, and rename it into place; docs/reports.md has its form";

/// The file of the site's tariff, if it has one.
pub(crate) fn examine(accounting: &config::Accounting, findings: &mut Findings) {
    let Some(path) = &accounting.tariff else { return };
    let text = fs::read_to_string(path).map_err(|e| e.to_string());
    let tariff = text.and_then(|text| Tariff::parse(&text, accounting.rates()).map_err(|wrong| wrong.to_string()));
    let tariff = match tariff {
        Ok(tariff) => tariff,
        Err(why) => return findings.fault("tariff", format!("{}: {why}", path.display()), CURE),
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now_s = now.map_or(0.0, |since| since.as_secs_f64());
    match tariff.until_s().map(|until_s| until_s - now_s).filter(|left_s| *left_s > 0.0) {
        Some(left_s) => findings.ok("tariff", format!("reaches for another {}", options::spoken(left_s))),
        None => findings.warning("tariff", format!("{} says nothing of now and later", path.display()), CURE),
    }
}

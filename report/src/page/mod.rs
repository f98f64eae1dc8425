//! The report as one page that needs nothing else: no network, no other file.

mod chart;
mod run;
mod timeline;
mod window;

use crate::accounted::Joined;
use crate::words::energy;
use base64::Engine;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("sort.js");

/// The page: of one run if one job was asked for, else of all runs of the window.
pub fn page(lines: &[Joined], by_job: bool, window: (Option<f64>, Option<f64>), now_s: f64) -> String {
    match lines {
        [line] if by_job => framed(&format!("Job {} · Joulepoint", line.run.job_id), run::body(line, now_s), now_s),
        _ => framed("Energy of resilience · Joulepoint", window::body(lines, window, now_s), now_s),
    }
}

/// Head and foot around a body. The policy lets the browser load nothing, and run only this script and style.
fn framed(title: &str, body: Markup, now_s: f64) -> String {
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
        digest(STYLE),
        digest(SCRIPT)
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main { (body) }
                footer {
                    "Written by joulepoint report on " (super::moment::shown(now_s))
                    ". Resilience is all energy but that of compute whose work counted: checkpoints, restarts, lost \
                     work and idle nodes. Every figure is in the unit beside it; 1 kWh is 3.6 MJ."
                }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

fn digest(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// Energy in words, where it is known.
fn known_energy(joules: Option<f64>) -> String {
    joules.map_or_else(|| "not yet known".to_string(), energy)
}

/// A number with one decimal and its thousands apart: `2 617 640.0`.
fn grouped(value: f64) -> String {
    let text = format!("{value:.1}");
    let (whole, decimal) = text.split_once('.').unwrap_or((&text, "0"));
    let (sign, digits) = whole.split_at(whole.find(|c: char| c.is_ascii_digit()).unwrap_or(0));
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    format!("{sign}{}.{decimal}", groups.join("\u{202f}"))
}

/// A figure of a page's head.
fn tile(value: &str, what: &str) -> Markup {
    html! { li { b { (value) } span { (what) } } }
}

/// Something wide that scrolls by itself, by keyboard too.
fn scrolled(label: &str, content: Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(label) { (content) } }
}

/// How a column is set.
#[derive(Clone, Copy, PartialEq)]
enum Set {
    /// A short word, on one line.
    Word,
    /// A text that may need several lines.
    Text,
    /// A number, to the right.
    Number,
}

/// A table: headings, rows of cells.
struct Table {
    caption: String,
    head: Vec<(&'static str, Set)>,
    rows: Vec<Vec<Cell>>,
    foot: Option<Vec<Cell>>,
    sorts: bool,
}

/// What a cell shows, and the value by which it sorts.
struct Cell {
    shown: String,
    value: String,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        let shown = text.into();
        Cell { value: shown.clone(), shown }
    }

    fn number(value: f64, shown: impl Into<String>) -> Cell {
        Cell { shown: shown.into(), value: value.to_string() }
    }

    fn joules(value: f64) -> Cell {
        Cell::number(value, grouped(value))
    }

    /// The same; what is not known sorts before all that is.
    fn known_joules(value: Option<f64>) -> Cell {
        value.map_or_else(|| Cell::number(-1e300, "-"), Cell::joules)
    }

    fn count(value: u32) -> Cell {
        Cell::number(value.into(), value.to_string())
    }

    /// A fraction as a percentage; what is unknown sorts before all that is known.
    fn percent(fraction: Option<f64>) -> Cell {
        Cell::number(fraction.unwrap_or(-1e300), super::columns::percent(fraction))
    }

    fn moment(at_s: f64) -> Cell {
        Cell::text(super::moment::shown(at_s).replace('T', " "))
    }
}

impl Table {
    fn markup(&self) -> Markup {
        let class = |n: usize| match self.head[n].1 {
            Set::Word => None,
            Set::Text => Some("w"),
            Set::Number => Some("n"),
        };
        let content = html! {
            table {
                caption { (self.caption) }
                thead { tr {
                    @for (n, (name, _)) in self.head.iter().enumerate() {
                        th scope="col" class=[class(n)] {
                            @if self.sorts { button type="button" { (name) } } @else { (name) }
                        }
                    }
                } }
                tbody { @for row in &self.rows { tr {
                    @for (n, cell) in row.iter().enumerate() {
                        td class=[class(n)] data-v=[self.sorts.then_some(&cell.value)] { (cell.shown) }
                    }
                } } }
                @if let Some(foot) = &self.foot {
                    tfoot { tr { @for (n, cell) in foot.iter().enumerate() { td class=[class(n)] { (cell.shown) } } } }
                }
            }
        };
        scrolled(&self.caption, content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energies_are_readable() {
        let shown = [0.0, 999.96, 2_617_640.04, -12_345.0].map(grouped).map(|s| s.replace('\u{202f}', "_"));
        assert_eq!(shown, ["0.0", "1_000.0", "2_617_640.0", "-12_345.0"]);
    }
}

//! Tables in the forms that people and programs read: aligned, with separators, or as CSV of plain numbers.

use crate::moment;
use serde::Serialize;

/// How a table is printed.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Columns of fixed width.
    Aligned,
    /// Fields with this between them, and behind the last one if so wanted.
    Parsable(String, bool),
    /// Fields with commas between them, quoted where needed.
    Csv,
}

/// What stands in a place of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A text, in a file that a spreadsheet may open never a formula.
    Text(String),
    /// A whole number.
    Count(u32),
    /// A number with so many decimals; absent where nobody knows it.
    Number(Option<f64>, usize),
    /// A fraction, told in per cent.
    Percent(Option<f64>),
    /// A duration, s.
    Time(Option<f64>),
    /// A moment, s since the epoch.
    Moment(Option<f64>),
}

impl Cell {
    /// Energy, J.
    pub fn joules(joules: Option<f64>) -> Cell {
        Cell::Number(joules, 1)
    }

    fn text(&self, form: &Form) -> String {
        let is_plain = *form == Form::Csv;
        let absent = || if *form == Form::Aligned { "-" } else { "" }.to_string();
        match self {
            Cell::Text(text) => printable(text),
            Cell::Count(count) => count.to_string(),
            Cell::Number(value, decimals) => value.map_or_else(absent, |v| format!("{v:.decimals$}")),
            Cell::Percent(value) if is_plain => value.map_or_else(absent, |f| format!("{:.2}", 100.0 * f)),
            Cell::Percent(value) => value.map_or_else(absent, |f| format!("{:.2}%", 100.0 * f)),
            Cell::Time(seconds) if is_plain => seconds.map_or_else(absent, |s| format!("{s:.1}")),
            Cell::Time(seconds) => seconds.map_or_else(absent, options::format_time),
            Cell::Moment(None) if is_plain => String::new(),
            Cell::Moment(at_s) => at_s.map_or_else(|| "Unknown".to_string(), moment::shown),
        }
    }
}

/// What stands above a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// Its name.
    pub name: String,
    /// The unit that a CSV's name has beside it, since its cells have none.
    pub csv_unit: &'static str,
    /// Width where columns are aligned.
    pub width: usize,
    /// Whether cells stand to the left then.
    pub left: bool,
}

/// A table: headings and rows.
#[derive(Default)]
pub struct Sheet {
    /// Headings.
    pub head: Vec<Head>,
    /// As many cells each as there are headings.
    pub rows: Vec<Vec<Cell>>,
}

impl Sheet {
    /// The table as text.
    pub fn text(&self, form: &Form, header: bool) -> String {
        let mut text = String::new();
        if header {
            let name = |h: &Head| match form {
                Form::Csv if !h.csv_unit.is_empty() => format!("{}({})", h.name, h.csv_unit),
                _ => h.name.clone(),
            };
            text += &self.line(form, self.head.iter().map(|h| quoted_for(form, name(h), false)));
            if *form == Form::Aligned {
                text += &self.line(form, self.head.iter().map(|h| "-".repeat(h.width)));
            }
        }
        for row in &self.rows {
            let cells = row.iter().map(|c| quoted_for(form, c.text(form), matches!(c, Cell::Text(_))));
            text += &self.line(form, cells);
        }
        text
    }

    fn line(&self, form: &Form, cells: impl Iterator<Item = String>) -> String {
        let line = match form {
            Form::Aligned => {
                cells.zip(&self.head).map(|(c, h)| fitted(&c, h.width, h.left)).collect::<Vec<_>>().join(" ")
            }
            Form::Parsable(between, last) => {
                let line = cells.collect::<Vec<_>>().join(between);
                if *last { line + between } else { line }
            }
            Form::Csv => cells.collect::<Vec<_>>().join(","),
        };
        line.trim_end_matches(' ').to_string() + "\n"
    }
}

/// A cell as the form needs it; `is_free` is a text that anybody may have written.
fn quoted_for(form: &Form, cell: String, is_free: bool) -> String {
    match form {
        Form::Aligned => cell,
        Form::Parsable(between, _) => cell.replace(between.as_str(), " "),
        Form::Csv => quoted(&cell, is_free),
    }
}

/// A cell in its width; what is cut ends with `+`, as sacct has it. A number is never cut: it would be read as a smaller one.
fn fitted(cell: &str, width: usize, left: bool) -> String {
    let is_number = cell.starts_with(|c: char| c.is_ascii_digit())
        && cell.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | '_' | '%'));
    let cut: String = match !is_number && cell.chars().count() > width {
        true => cell.chars().take(width - 1).chain(['+']).collect(),
        false => cell.to_string(),
    };
    if left { format!("{cut:<width$}") } else { format!("{cut:>width$}") }
}

/// Whether a character speaks to a terminal, or turns what stands beside it.
fn speaks(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A user's text fit for somebody else's terminal.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if speaks(c) { '?' } else { c }).collect()
}

/// Lines, in which there may be users' texts, fit for a terminal.
pub fn printable_lines(text: &str) -> String {
    text.chars().map(|c| if speaks(c) && !matches!(c, '\n' | '\t') { '?' } else { c }).collect()
}

/// A document as JSON that a terminal may show, with a line's end: what would speak to it is escaped.
///
/// # Errors
/// That it is none.
pub fn json(content: &impl Serialize) -> Result<String, serde_json::Error> {
    let text = serde_json::to_string_pretty(content)? + "\n";
    let escaped = |c: char| match c {
        '\n' => c.to_string(),
        c if speaks(c) => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    Ok(if text.contains(|c: char| c != '\n' && speaks(c)) { text.chars().map(escaped).collect() } else { text })
}

/// A cell of a file that a spreadsheet may open: a text that it would take for a formula has a quote in front. Numbers stay.
fn quoted(cell: &str, is_free: bool) -> String {
    let formula = is_free && cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && !is_number(cell);
    let guarded = if formula { format!("'{cell}") } else { cell.to_string() };
    let cell = guarded.as_str();
    if cell.contains([',', '"', '\n']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell.to_string() }
}

/// Whether a cell with a sign is a number, a share, a time or nothing.
fn is_number(cell: &str) -> bool {
    let digits = cell.strip_prefix(['+', '-']).unwrap_or("=");
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | ':' | '%');
    cell.parse::<f64>().is_ok()
        || cell == "-"
        || (digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_of_a_csv_is_a_formula_and_numbers_stay_numbers() {
        for (cell, safe) in [
            ("=HYPERLINK(\"http://x\",1)", "\"'=HYPERLINK(\"\"http://x\"\",1)\""),
            ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
            ("-2+3", "'-2+3"),
            ("@SUM(1)", "'@SUM(1)"),
            ("\tx", "'\tx"),
            ("\rx", "'\rx"),
            ("-5", "-5"),
            ("-1.5e-7", "-1.5e-7"),
            ("+3.25%", "+3.25%"),
            ("-00:01:57", "-00:01:57"),
            ("-", "-"),
            ("heat=1", "heat=1"),
        ] {
            assert_eq!(quoted(cell, true), safe, "{cell}");
        }
    }

    fn head(name: &str, csv_unit: &'static str, width: usize, left: bool) -> Head {
        Head { name: name.to_string(), csv_unit, width, left }
    }

    #[test]
    fn every_form_keeps_its_separators_whole() {
        let head = vec![head("Name", "", 6, false), head("N", "", 3, true)];
        let sheet = Sheet { head, rows: vec![vec![Cell::Text("a,b|\"c\u{1b}[2J".into()), Cell::Count(1)]] };
        let text = |form: Form| sheet.text(&form, false);
        assert_eq!(text(Form::Csv), "\"a,b|\"\"c?[2J\",1\n");
        assert_eq!(text(Form::Parsable("|".into(), false)), "a,b \"c?[2J|1\n");
        assert_eq!(text(Form::Parsable("|".into(), true)), "a,b \"c?[2J|1|\n");
        assert_eq!(text(Form::Aligned), "a,b|\"+ 1\n");
        assert_eq!(sheet.text(&Form::Aligned, true), "  Name N\n------ ---\na,b|\"+ 1\n");
    }

    #[test]
    fn no_text_speaks_to_a_terminal_and_json_keeps_what_it_holds() {
        let hostile = "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r\n\tb\u{7f}";
        assert_eq!(printable(hostile), "a?]0;x??31m????b?");
        assert_eq!(printable_lines(hostile), "a?]0;x??31m??\n\tb?");
        let text = json(&[hostile]).unwrap();
        assert!(text.chars().all(|c| c == '\n' || !speaks(c)) && text.contains("\\u009b31m\\u202e"), "{text:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&text).unwrap(), [hostile]);
        assert_eq!(json(&["\u{e4}"]).unwrap(), "[\n  \"\u{e4}\"\n]\n");
    }

    #[test]
    fn a_csv_holds_plain_numbers_and_its_heading_their_units() {
        let names = [("Share", "%"), ("Elapsed", "s"), ("Energy(J)", "")];
        let head: Vec<Head> = names.map(|(name, unit)| head(name, unit, 9, false)).into();
        let row = |share, elapsed, joules| vec![Cell::Percent(share), Cell::Time(elapsed), Cell::joules(joules)];
        let rows = vec![row(Some(0.2276), Some(117.0), Some(5.0)), row(None, None, None)];
        let sheet = Sheet { head, rows };
        assert_eq!(sheet.text(&Form::Csv, true), "Share(%),Elapsed(s),Energy(J)\n22.76,117.0,5.0\n,,\n");
        let aligned = sheet.text(&Form::Aligned, true);
        assert!(aligned.contains("   22.76%  00:01:57       5.0\n        -         -         -\n"), "{aligned}");
        assert_eq!(sheet.text(&Form::Parsable("|".into(), false), false), "22.76%|00:01:57|5.0\n||\n");
    }
}

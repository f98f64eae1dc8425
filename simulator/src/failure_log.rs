//! Reads failure logs: CSV, Los Alamos' published form and `sacct -P`, told apart by their headings.

use std::collections::BTreeMap;

use csv::StringRecord;
use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;

use crate::Error;
use crate::trace::Trace;

/// Headings of the column that says when a failure began: Joulepoint's, plain, LA-UR-05-7318's, sacct's.
const TIME_HEADINGS: [&str; 5] = ["failure_start", "time", "prob started", "problem started", "end"];

/// Seconds since 1970 beyond which a number is no time: thirty thousand years.
const LATEST_S: f64 = 1e12;

/// What a time may look like.
const TIME_FORMS: &str = "seconds, 1996-12-31T23:59[:59], or 12/31/1996 23:59";

/// `sacct`'s end of a job that still runs.
const STILL_RUNS: &str = "Unknown";

/// The longest piece of a log that a refusal repeats, in characters.
const SHOWN: usize = 40;

/// What a log told.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// One trace, or one for each system.
    pub traces: Vec<Trace>,
    /// Systems of which there is no trace, and why.
    pub left_out: Vec<(u32, Error)>,
}

/// Where a log says what.
struct Columns {
    time: usize,
    system: Option<usize>,
    /// Whether the time is the end of a job, which may still run.
    of_jobs: bool,
}

/// Reads a log: one trace, or, where a column `System` is there, one for each system that has at least two gaps,
/// called `system-N`; with `system`, that one alone. Fields are split at commas, or at `|` if the first line has one.
/// Rows may come in any order, and equal times count once, whatever the node. Without a heading the first column is
/// the time. A job that `sacct` shows without an end has not failed, and is passed over.
///
/// Times are seconds since 1970, ISO 8601 (1996-12-31T23:59), or month/day/year hour:minute; without a zone they are
/// taken as they are, so that an hour may be lost or doubled where clocks are changed.
///
/// # Errors
/// The line that cannot be read; a log with too few failures, or without the wanted system.
pub fn read(name: &str, text: &str, system: Option<u32>) -> Result<Log, Error> {
    let mut rows = rows(text)?;
    let columns = columns(&mut rows)?;
    let mut times_s: BTreeMap<Option<u32>, Vec<f64>> = BTreeMap::new();
    let ended = |row: &&StringRecord| !columns.of_jobs || row.get(columns.time) != Some(STILL_RUNS);
    for row in rows.iter().filter(ended) {
        let of = columns.system.map(|column| system_of(row, column)).transpose()?;
        times_s.entry(of).or_default().push(row_time_s(row, columns.time)?);
    }
    match system {
        None => traces(name, times_s),
        Some(wanted) => match times_s.remove(&Some(wanted)) {
            Some(times_s) => {
                let trace = Trace::from_times(&format!("system-{wanted}"), times_s)?;
                Ok(Log { traces: vec![trace], left_out: Vec::new() })
            }
            None => Err(Error::System { known: times_s.into_keys().flatten().collect() }),
        },
    }
}

/// All systems with enough failures; the refusal of the last if there is none.
fn traces(name: &str, times_s: BTreeMap<Option<u32>, Vec<f64>>) -> Result<Log, Error> {
    let (mut traces, mut left_out) = (Vec::new(), Vec::new());
    let mut refusal = Error::TooShort { gaps: 0 };
    for (system, times_s) in times_s {
        let name = system.map_or_else(|| name.to_owned(), |system| format!("system-{system}"));
        match Trace::from_times(&name, times_s) {
            Ok(trace) => traces.push(trace),
            Err(e) => {
                left_out.extend(system.map(|system| (system, e.clone())));
                refusal = e;
            }
        }
    }
    if traces.is_empty() { Err(refusal) } else { Ok(Log { traces, left_out }) }
}

fn rows(text: &str) -> Result<Vec<StringRecord>, Error> {
    let first = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#')).unwrap_or_default();
    let delimiter = if first.contains('|') { b'|' } else { b',' };
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let refuse =
        |e: csv::Error| Error::Line { number: e.position().map_or(0, |p| p.line() as usize), problem: e.to_string() };
    let rows: Vec<_> = reader.records().collect::<Result<_, _>>().map_err(refuse)?;
    Ok(rows.into_iter().filter(|row| row.iter().any(|field| !field.is_empty())).collect())
}

/// Finds the columns and takes the heading, of one line or two, off the rows.
fn columns(rows: &mut Vec<StringRecord>) -> Result<Columns, Error> {
    let first = rows.first().ok_or(Error::Empty)?;
    let headings: Vec<String> = first.iter().map(heading).collect();
    let Some(time) = headings.iter().position(|h| TIME_HEADINGS.contains(&h.as_str())) else {
        if first.get(0).and_then(time_s).is_some() {
            return Ok(Columns { time: 0, system: None, of_jobs: false });
        }
        let found = shown(&first.iter().collect::<Vec<_>>().join(","));
        let headings = TIME_HEADINGS.join(", ");
        let problem = format!("{found} is no time ({TIME_FORMS}) and no heading with one of {headings}");
        return Err(Error::Line { number: line_of(first), problem });
    };
    let system = headings.iter().position(|h| h == "system");
    let columns = Columns { time, system, of_jobs: headings[time] == "end" };
    rows.remove(0);
    let is_text =
        |row: &StringRecord, column| row.get(column).is_none_or(|f| !f.contains(|c: char| c.is_ascii_digit()));
    if let (Some(second), Some(system)) = (rows.first(), columns.system)
        && is_text(second, system)
        && is_text(second, time)
    {
        rows.remove(0);
    }
    Ok(columns)
}

/// A heading without its unit: `Prob Started (mm/dd/yy hh:mm)` is `prob started`.
fn heading(field: &str) -> String {
    let name = field.split('(').next().unwrap_or_default();
    name.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}').to_lowercase()
}

/// The start of a text, without what a terminal cannot show.
fn shown(text: &str) -> String {
    let printable = text.chars().filter(|c| !c.is_control() && *c != char::REPLACEMENT_CHARACTER);
    let start: String = printable.take(SHOWN).collect();
    format!("\"{start}\"")
}

fn line_of(row: &StringRecord) -> usize {
    row.position().map_or(0, |p| p.line() as usize)
}

fn system_of(row: &StringRecord, column: usize) -> Result<u32, Error> {
    let field = row.get(column).unwrap_or_default();
    field
        .parse()
        .map_err(|_| Error::Line { number: line_of(row), problem: format!("{} is no system number", shown(field)) })
}

fn row_time_s(row: &StringRecord, column: usize) -> Result<f64, Error> {
    let field = row.get(column).unwrap_or_default();
    time_s(field).ok_or_else(|| Error::Line {
        number: line_of(row),
        problem: format!("{} is no time; valid: {TIME_FORMS}", shown(field)),
    })
}

/// Seconds since 1970 of a number of them, an ISO 8601 moment, or month/day/year hour:minute.
pub(crate) fn time_s(field: &str) -> Option<f64> {
    if let Ok(seconds) = field.parse::<f64>() {
        return (seconds.abs() <= LATEST_S).then_some(seconds);
    }
    if let Ok(moment) = field.parse::<jiff::Timestamp>() {
        return Some(moment.as_second() as f64);
    }
    let american = |format| strtime::parse(format, field).ok()?.to_datetime().ok();
    let civil =
        field.parse::<DateTime>().ok().or_else(|| american("%m/%d/%y %H:%M")).or_else(|| american("%m/%d/%Y %H:%M"));
    Some(civil?.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second() as f64)
}

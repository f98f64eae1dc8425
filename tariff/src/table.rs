//! A tariff as its file has it: CSV with a line of names, `start`, and `end`, `price_per_kwh` and `co2_g_per_kwh` as there are.

use crate::{Rates, Stretch, Tariff};
use csv::{ReaderBuilder, StringRecord, Trim};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

/// What is wrong with a tariff.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// It is no table.
    #[error("{0}")]
    Csv(#[from] csv::Error),
    /// It has not the columns.
    #[error("its first line must name the columns: start, and price_per_kwh or co2_g_per_kwh or both")]
    Columns,
    /// A field cannot be read.
    #[error("line {line}: {column} = '{text}' is not {wanted}")]
    Field {
        /// Its line, from 1.
        line: u64,
        /// Its column.
        column: &'static str,
        /// What stands there.
        text: String,
        /// What ought to.
        wanted: &'static str,
    },
    /// Rows are not in order of time.
    #[error("line {0} begins before the one above it has ended")]
    Order(u64),
    /// It cannot be known when the last row ends.
    #[error("a single line needs a column 'end'")]
    Endless,
}

const MOMENT: &str = "a moment, such as 2026-12-01T18:00+01:00, or without +01:00 in local time";
const RATE: &str = "a number";

struct Line {
    line: u64,
    start_s: f64,
    end_s: Option<f64>,
    rates: Rates,
}

impl Tariff {
    /// Reads a table; `otherwise` are the rates of all times that it does not have, and of empty fields and columns that it lacks.
    ///
    /// A row without `end` holds until the next begins, and the last as long as the one before it. Prices may be below zero.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, otherwise: Rates) -> Result<Tariff, Wrong> {
        let text = text.trim_start_matches('\u{feff}');
        let mut reader = ReaderBuilder::new().trim(Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
        let names = reader.headers()?.clone();
        let place = |name: &str| names.iter().position(|n| n == name);
        let [start, end, price, co2] = ["start", "end", "price_per_kwh", "co2_g_per_kwh"].map(place);
        let (Some(start), true) = (start, price.or(co2).is_some()) else { return Err(Wrong::Columns) };
        let mut lines = Vec::new();
        for record in reader.records() {
            let record = record?;
            let line = record.position().map_or(0, csv::Position::line);
            let rates = Rates {
                price_per_kwh: rate(&record, line, "price_per_kwh", price)?.or(otherwise.price_per_kwh),
                co2_g_per_kwh: rate(&record, line, "co2_g_per_kwh", co2)?.or(otherwise.co2_g_per_kwh),
            };
            let end_s = end.map(|end| moment(&record, line, "end", end)).transpose()?;
            lines.push(Line { line, start_s: moment(&record, line, "start", start)?, end_s, rates });
        }
        Ok(Tariff { stretches: stretches(&lines)?, otherwise })
    }
}

fn stretches(lines: &[Line]) -> Result<Vec<Stretch>, Wrong> {
    let mut stretches: Vec<Stretch> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let last_s = || stretches.last().map(|last| line.start_s + (last.end_s - last.start_s));
        let end_s = line.end_s.or_else(|| lines.get(at + 1).map(|next| next.start_s)).or_else(last_s);
        let end_s = end_s.ok_or(Wrong::Endless)?;
        if stretches.last().is_some_and(|last| line.start_s < last.end_s) {
            return Err(Wrong::Order(line.line));
        }
        if end_s <= line.start_s {
            return Err(Wrong::Order(lines.get(at + 1).map_or(line.line, |next| next.line)));
        }
        stretches.push(Stretch { start_s: line.start_s, end_s, rates: line.rates });
    }
    Ok(stretches)
}

fn rate(record: &StringRecord, line: u64, column: &'static str, place: Option<usize>) -> Result<Option<f64>, Wrong> {
    let Some(text) = place.and_then(|place| record.get(place)).filter(|text| !text.is_empty()) else { return Ok(None) };
    let number = text.parse().ok().filter(|number: &f64| number.is_finite());
    number.map(Some).ok_or_else(|| Wrong::Field { line, column, text: text.to_owned(), wanted: RATE })
}

fn moment(record: &StringRecord, line: u64, column: &'static str, place: usize) -> Result<f64, Wrong> {
    let text = record.get(place).unwrap_or_default();
    let absolute = || text.parse::<Zoned>().map(|zoned| zoned.timestamp()).or_else(|_| text.parse::<Timestamp>()).ok();
    let local = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::system()).ok().map(|zoned| zoned.timestamp());
    let at = absolute().or_else(local);
    at.map(|at| at.as_duration().as_secs_f64()).ok_or_else(|| Wrong::Field {
        line,
        column,
        text: text.to_owned(),
        wanted: MOMENT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Tariff, String> {
        Tariff::parse(text, Rates::default()).map_err(|e| e.to_string())
    }

    #[test]
    fn a_table_is_read_with_the_columns_that_it_has() {
        let text =
            "\u{feff}start, price_per_kwh\n# from the market\n2026-12-01T00:00Z, 0.30\n2026-12-01T02:00+01:00, -0.01\n";
        let tariff = parsed(text).unwrap();
        let begin_s = 1_796_083_200.0;
        let mean = |from_s: f64, until_s: f64| tariff.mean(begin_s + from_s, begin_s + until_s).0.price_per_kwh;
        assert_eq!(mean(0.0, 3600.0), Some(0.3));
        assert_eq!(mean(3600.0, 7200.0), Some(-0.01), "as long as the one before");
        assert_eq!(mean(7200.0, 7300.0), None);
        let text = "co2_g_per_kwh,end,start,zone\n300,2026-12-01T01:00Z,2026-12-01T00:00Z,FR\n,2026-12-01T09:00Z,2026-12-01T08:00Z,FR\n";
        let tariff = parsed(text).unwrap();
        let mean = |from_s: f64| tariff.mean(begin_s + from_s, begin_s + from_s + 60.0).0.co2_g_per_kwh;
        assert_eq!([mean(0.0), mean(3600.0), mean(8.0 * 3600.0)], [Some(300.0), None, None]);
        let otherwise = Rates { price_per_kwh: Some(0.5), co2_g_per_kwh: Some(400.0) };
        let with_flat = Tariff::parse(text, otherwise).unwrap();
        let flat = with_flat.mean(begin_s + 8.0 * 3600.0, begin_s + 8.5 * 3600.0).0;
        assert_eq!((flat.price_per_kwh, flat.co2_g_per_kwh), (Some(0.5), Some(400.0)), "an empty field, and no column");
        let local = parsed("start,end,price_per_kwh\n2026-12-01T00:00,2026-12-02T00:00:00,1\n").unwrap();
        assert_eq!(local.stretches[0].end_s - local.stretches[0].start_s, 86_400.0);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, word) in [
            ("", "first line"),
            ("price_per_kwh\n1\n", "first line"),
            ("start,price\n2026-12-01T00:00Z,1\n", "first line"),
            ("start,price_per_kwh\n2026-12-01T00:00Z,1\n", "needs a column 'end'"),
            ("start,price_per_kwh\nsoon,1\n2026-12-01T00:00Z,1\n", "line 2: start = 'soon' is not a moment"),
            ("start,price_per_kwh\n2026-12-01T00:00Z,cheap\n", "line 2: price_per_kwh = 'cheap' is not a number"),
            ("start,price_per_kwh\n2026-12-01T00:00Z,inf\n", "line 2: price_per_kwh = 'inf'"),
            ("start,price_per_kwh\n2026-12-01T01:00Z,1\n2026-12-01T00:00Z,1\n", "line 3 begins before"),
            ("start,end,price_per_kwh\n2026-12-01T01:00Z,2026-12-01T01:00Z,1\n", "line 2 begins before"),
            ("start,price_per_kwh\n2026-12-01T01:00Z,1,2\n", "line"),
        ] {
            let wrong = parsed(text).unwrap_err();
            assert!(wrong.contains(word), "{text}: {wrong}");
        }
    }
}

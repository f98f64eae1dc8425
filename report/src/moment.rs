//! Moments as sacct takes them (sacct(1), "Valid time formats"), in local time.

use jiff::civil::{Date, Time};
use jiff::{Span, Zoned};

/// What is accepted.
const ACCEPTED: &str = "now[{+|-}N[seconds|minutes|hours|days|weeks]], today, midnight, noon, fika, teatime, \
                        HH:MM[:SS][AM|PM], MMDD[YY], MM/DD[/YY], MM.DD[.YY] (each with [-HH:MM[:SS]]), \
                        YYYY-MM-DD[THH:MM[:SS]]";

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Wrong {
    /// It names no moment.
    #[error("'{0}' is not a time; accepted: {ACCEPTED}")]
    NoTime(String),
    /// It names one that has passed.
    #[error("'{0}' has passed")]
    Passed(String),
}

/// The moment that a text names, s since the epoch.
///
/// # Errors
/// That it names none.
pub fn parse(text: &str, now: &Zoned) -> Result<f64, Wrong> {
    let moment = relative(text, now).or_else(|| absolute(text, now));
    let moment = moment.ok_or_else(|| Wrong::NoTime(text.to_owned()))?;
    Ok(moment.timestamp().as_millisecond() as f64 / 1000.0)
}

/// The next moment that a text names, as `sbatch --begin` takes it: a time of the day that has passed is tomorrow's.
///
/// # Errors
/// That it names none, or one that has passed.
pub fn parse_next(text: &str, now: &Zoned) -> Result<f64, Wrong> {
    let (at_s, now_s) = (parse(text, now)?, now.timestamp().as_millisecond() as f64 / 1000.0);
    let names_a_day = text.eq_ignore_ascii_case("today")
        || text.contains(['-', '/', '.'])
        || text.len() > 2 && text.bytes().all(|b| b.is_ascii_digit());
    let tomorrow = || now.tomorrow().map_or(Ok(at_s), |tomorrow| parse(text, &tomorrow));
    match at_s >= now_s {
        true => Ok(at_s),
        false if names_a_day || text.starts_with("now") => Err(Wrong::Passed(text.to_owned())),
        false => tomorrow(),
    }
}

/// Midnight of today.
pub fn today(now: &Zoned) -> Option<Zoned> {
    now.start_of_day().ok()
}

/// A moment as sacct prints it: local, without a zone.
pub fn shown(at_s: f64) -> String {
    let moment = jiff::Timestamp::from_millisecond((at_s * 1000.0) as i64);
    let local = |t: jiff::Timestamp| t.to_zoned(jiff::tz::TimeZone::system());
    moment.map_or_else(|_| "Unknown".to_string(), |t| local(t).strftime("%Y-%m-%dT%H:%M:%S").to_string())
}

/// `now`, `now-7days`, `uts1700000000`.
fn relative(text: &str, now: &Zoned) -> Option<Zoned> {
    if let Some(seconds) = text.strip_prefix("uts") {
        return Some(jiff::Timestamp::from_second(seconds.parse().ok()?).ok()?.to_zoned(now.time_zone().clone()));
    }
    let rest = text.strip_prefix("now")?;
    if rest.is_empty() {
        return Some(now.clone());
    }
    let (sign, rest) = match rest.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let count = rest.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number = sign * i64::from(count.parse::<u32>().ok()?);
    let seconds = match rest[count.len()..].to_ascii_lowercase().trim_end_matches('s') {
        "" | "second" => number,
        "minute" => number * 60,
        "hour" => number * 3600,
        "day" => return now.checked_add(Span::new().try_days(number).ok()?).ok(),
        "week" => return now.checked_add(Span::new().try_weeks(number).ok()?).ok(),
        _ => return None,
    };
    now.checked_add(Span::new().try_seconds(seconds).ok()?).ok()
}

fn absolute(text: &str, now: &Zoned) -> Option<Zoned> {
    let at = |date: Date, time: Time| date.to_datetime(time).to_zoned(now.time_zone().clone()).ok();
    let hour = |hour| Time::new(hour, 0, 0, 0).ok();
    let today = now.date();
    match text.to_ascii_lowercase().as_str() {
        "today" | "midnight" => return at(today, Time::midnight()),
        "tomorrow" => return at(today.tomorrow().ok()?, Time::midnight()),
        "noon" => return at(today, hour(12)?),
        "fika" => return at(today, hour(15)?),
        "teatime" => return at(today, hour(16)?),
        _ => {}
    }
    if let Some((date, time)) = text.split_once('T') {
        return at(long_date(date)?, clock(time)?);
    }
    if let Some(date) = long_date(text) {
        return at(date, Time::midnight());
    }
    let (date, time) = text.split_once('-').map_or((text, None), |(date, time)| (date, Some(time)));
    match short_date(date, today) {
        Some(date) => at(date, time.map_or(Some(Time::midnight()), clock)?),
        None if time.is_none() => at(today, clock(text)?),
        None => None,
    }
}

/// `2026-11-20`.
fn long_date(text: &str) -> Option<Date> {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts[..] else { return None };
    Date::new(digits(year, 4..=4)?, digits(month, 1..=2)? as i8, digits(day, 1..=2)? as i8).ok()
}

/// `1120`, `112026`, `11/20`, `11/20/26`, `11.20`: without a year, the latest that is not in the future.
fn short_date(text: &str, today: Date) -> Option<Date> {
    let parts: Vec<&str> = match text.split_once(['/', '.']) {
        Some(_) => text.split(['/', '.']).collect(),
        None if text.is_ascii() && text.len() == 4 => vec![&text[..2], &text[2..]],
        None if text.is_ascii() && text.len() == 6 => vec![&text[..2], &text[2..4], &text[4..]],
        None => return None,
    };
    let in_year = |year| Date::new(year, digits(parts[0], 1..=2)? as i8, digits(parts[1], 1..=2)? as i8).ok();
    match parts.len() {
        2 => in_year(today.year()).filter(|d| *d <= today).or_else(|| in_year(today.year() - 1)),
        3 => in_year(2000 + digits(parts[2], 2..=2)?),
        _ => None,
    }
}

/// `10:00`, `10:00:30`, `3:00PM`.
fn clock(text: &str) -> Option<Time> {
    let upper = text.to_ascii_uppercase();
    let (time, noon) = match (upper.strip_suffix("AM"), upper.strip_suffix("PM")) {
        (Some(time), _) => (time, Some(0)),
        (_, Some(time)) => (time, Some(12)),
        _ => (upper.as_str(), None),
    };
    let parts: Vec<&str> = time.trim_end().split(':').collect();
    let number = |n: usize| parts.get(n).map_or(Some(0), |p| digits(p, 1..=2)).map(|v| v as i8);
    let hour = match (number(0)?, noon) {
        (hour @ 1..=12, Some(noon)) => hour % 12 + noon,
        (_, Some(_)) => return None,
        (hour, None) => hour,
    };
    matches!(parts.len(), 2 | 3).then(|| Time::new(hour, number(1)?, number(2)?, 0).ok())?
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<i16> {
    (length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-11-20T10:30:15[Europe/Berlin]".parse().expect("a moment")
    }

    #[test]
    fn a_time_of_the_day_that_has_passed_is_tomorrows() {
        let now = now();
        for (text, same) in [
            ("11:00", "2026-11-20T11:00"),
            ("10:00", "2026-11-21T10:00"),
            ("midnight", "2026-11-21T00:00"),
            ("noon", "2026-11-20T12:00"),
            ("tomorrow", "2026-11-21T00:00"),
            ("now+2hours", "2026-11-20T12:30:15"),
            ("2026-12-01", "2026-12-01T00:00"),
        ] {
            assert_eq!(parse_next(text, &now), parse(same, &now), "{text}");
        }
        for past in ["2026-11-20T10:00", "now-1hour", "1119", "11/19", "today"] {
            assert!(parse_next(past, &now).is_err_and(|e| e.to_string().contains("has passed")), "{past}");
        }
        assert!(parse_next("soon", &now).is_err_and(|e| e.to_string().contains("accepted")));
    }

    #[test]
    fn sacct_s_forms_are_accepted() {
        for (text, expected) in [
            ("now", "2026-11-20T10:30:15"),
            ("now-90", "2026-11-20T10:28:45"),
            ("now-1day", "2026-11-19T10:30:15"),
            ("now+2hours", "2026-11-20T12:30:15"),
            ("now-2weeks", "2026-11-06T10:30:15"),
            ("now-30days", "2026-10-21T10:30:15"),
            ("today", "2026-11-20T00:00"),
            ("midnight", "2026-11-20T00:00"),
            ("NOON", "2026-11-20T12:00"),
            ("fika", "2026-11-20T15:00"),
            ("teatime", "2026-11-20T16:00"),
            ("tomorrow", "2026-11-21T00:00"),
            ("2026-11-20T10:00", "2026-11-20T10:00"),
            ("2026-11-20T10:00:07", "2026-11-20T10:00:07"),
            ("2026-02-01", "2026-02-01T00:00"),
            ("09:15", "2026-11-20T09:15"),
            ("9:15:30", "2026-11-20T09:15:30"),
            ("12:05AM", "2026-11-20T00:05"),
            ("3:00pm", "2026-11-20T15:00"),
            ("1119", "2026-11-19T00:00"),
            ("1231", "2025-12-31T00:00"),
            ("0101", "2026-01-01T00:00"),
            ("010224", "2024-01-02T00:00"),
            ("11/19", "2026-11-19T00:00"),
            ("11.19.25", "2025-11-19T00:00"),
            ("11/19/25-08:30", "2025-11-19T08:30"),
            ("1119-08:30:05", "2026-11-19T08:30:05"),
            ("uts1795166400", "2026-11-20T10:20"),
        ] {
            let expected: Zoned = format!("{expected}[Europe/Berlin]").parse().expect("a moment");
            assert_eq!(parse(text, &now()), Ok(expected.timestamp().as_second() as f64), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_time_is_refused_with_the_forms() {
        for text in ["", "yesterdayish", "now-x", "now*2", "2026-13-01", "25:00", "1:2:3:4", "13:00PM", "1340", "ü0"] {
            let refused = parse(text, &now()).expect_err(text).to_string();
            assert!(refused.contains(text) && refused.contains("YYYY-MM-DD"), "{refused}");
        }
    }
}

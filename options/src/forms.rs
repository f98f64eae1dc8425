//! Slurm's own forms of time, size and percentage, and signals by name.

use crate::wrong::{Wrong, WrongArgument};
use std::time::Duration;

/// A signal and, optionally, how long before the end it is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Signal number.
    pub number: i32,
    /// Time before the end of the walltime, if given.
    pub before_end: Option<Duration>,
}

/// The forms of a time, for messages: the one place where they are listed.
macro_rules! times {
    () => {
        "minutes, mm:ss, hh:mm:ss, d-hh, d-hh:mm, d-hh:mm:ss, or with a unit: 30s, 5min, 2h, 3d"
    };
}
pub(crate) use times;

/// The forms of a time that [`parse_time`] takes.
pub const TIMES: &str = times!();

/// The units that a time may have behind it, s.
const UNITS: [(&str, u64); 4] = [("min", 60), ("s", 1), ("h", 3600), ("d", 86_400)];

/// Parses Slurm's time forms: `minutes`, `mm:ss`, `hh:mm:ss`, `d-hh`, `d-hh:mm`, `d-hh:mm:ss`; and ours with a unit:
/// `30s`, `5min`, `2h`, `3d`.
///
/// # Errors
/// What is wrong.
pub fn parse_time(text: &str) -> Result<Duration, Wrong> {
    const WRONG: Wrong = Wrong::Form("a time");
    let number = |part: &str| -> Result<u64, Wrong> {
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) || part.len() > 9 {
            return Err(WRONG);
        }
        part.parse().map_err(|_| WRONG)
    };
    for (unit, unit_s) in UNITS {
        if let Some(digits) = text.strip_suffix(unit) {
            return nonzero(number(digits.trim_end())? * unit_s);
        }
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts = rest.split(':').map(number).collect::<Result<Vec<_>, _>>()?;
    let seconds = match (days, parts.as_slice()) {
        (None, [m]) => m * 60,
        (None, [m, s]) if *s < 60 => m * 60 + s,
        (None, [h, m, s]) if *m < 60 && *s < 60 => h * 3600 + m * 60 + s,
        (Some(d), [h]) if *h < 24 => d * 86400 + h * 3600,
        (Some(d), [h, m]) if *h < 24 && *m < 60 => d * 86400 + h * 3600 + m * 60,
        (Some(d), [h, m, s]) if *h < 24 && *m < 60 && *s < 60 => d * 86400 + h * 3600 + m * 60 + s,
        _ => return Err(WRONG),
    };
    nonzero(seconds)
}

/// Parses hours, or a time with its unit or in one of Slurm's longer forms: `8`, `12h`, `90min`, `1-12`.
///
/// # Errors
/// What is wrong.
pub fn parse_hours(text: &str) -> Result<Duration, Wrong> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { parse_time(&format!("{text}h")) } else { parse_time(text) }
}

fn nonzero(seconds: u64) -> Result<Duration, Wrong> {
    if seconds == 0 {
        return Err(Wrong::Range("is no time at all"));
    }
    Ok(Duration::from_secs(seconds))
}

/// The same for arguments of commands: an error names the forms.
///
/// # Errors
/// What is wrong, and what is accepted.
pub fn time_argument(text: &str) -> Result<Duration, WrongArgument> {
    parse_time(text).map_err(|wrong| WrongArgument { wrong, accepted: TIMES })
}

/// A number of things, in the singular or the plural: `1 failure`, `2 failures`, `3 processes`.
pub fn counted(number: impl TryInto<u64>, one: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let ending = match (number, one.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {one}{ending}")
}

/// Prints seconds as Slurm does: `[d-]hh:mm:ss`.
pub fn format_time(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "unknown".to_string();
    }
    let s = seconds.round() as u64;
    let (d, h, m, s) = (s / 86400, s / 3600 % 24, s / 60 % 60, s % 60);
    if d > 0 { format!("{d}-{h:02}:{m:02}:{s:02}") } else { format!("{h:02}:{m:02}:{s:02}") }
}

/// Seconds as a person says them: `45 s`, `4 min`, `1 h 10 min`, `3 days`, `3 years`.
pub fn spoken(seconds: f64) -> String {
    const DAY_S: f64 = 86_400.0;
    const YEAR_S: f64 = 365.25 * DAY_S;
    let pair = |whole: f64, unit: &str, rest: f64, part: &str| match rest as u64 {
        0 => format!("{whole:.0} {unit}"),
        rest => format!("{whole:.0} {unit} {rest} {part}"),
    };
    match seconds {
        s if !s.is_finite() || s < 0.0 => "an unknown time".to_string(),
        s if s > 1e6 * YEAR_S => "more than a million years".to_string(),
        s if s >= 2.0 * YEAR_S => format!("{} years", format!("{:.1}", s / YEAR_S).trim_end_matches(".0")),
        s if s >= 2.0 * DAY_S => pair((s / DAY_S).floor(), "days", s % DAY_S / 3600.0, "h"),
        s if s >= 3600.0 => pair((s / 3600.0).floor(), "h", s % 3600.0 / 60.0, "min"),
        s if s >= 600.0 => format!("{:.0} min", s / 60.0),
        s if s >= 90.0 => pair((s / 60.0).floor(), "min", s % 60.0, "s"),
        s if s >= 9.95 || s == s.round() => format!("{s:.0} s"),
        s => format!("{s:.1} s"),
    }
}

/// Parses a percentage (`10%` or `10`) into a fraction (0.1).
///
/// # Errors
/// What is wrong.
pub fn parse_percent(text: &str) -> Result<f64, Wrong> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(Wrong::Form("a percentage"));
    }
    let value: f64 = digits.parse().map_err(|_| Wrong::Form("a percentage"))?;
    if value <= 0.0 {
        return Err(Wrong::Range("would allow nothing at all"));
    }
    if value > 1000.0 {
        return Err(Wrong::Range("is above 1000%"));
    }
    Ok(value / 100.0)
}

/// Parses Slurm's size form: a number with K, M, G or T, as `64G`, `64GB` or `64GiB` (powers of 1024); megabytes if no
/// unit is given.
///
/// # Errors
/// What is wrong.
pub fn parse_size(text: &str) -> Result<u64, Wrong> {
    const WRONG: Wrong = Wrong::Form("a size");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(WRONG);
    }
    let number: u64 = digits.parse().map_err(|_| WRONG)?;
    let shift = match unit.trim_end_matches('B').trim_end_matches('I') {
        "K" => 10,
        "" | "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(Wrong::Unit(unit)),
    };
    match number.checked_mul(1 << shift) {
        Some(0) => Err(Wrong::Range("is no size at all")),
        Some(bytes) => Ok(bytes),
        None => Err(Wrong::Range("is too large")),
    }
}

/// Parses a whole number of things.
///
/// # Errors
/// What is wrong.
pub fn parse_count(text: &str) -> Result<u32, Wrong> {
    text.parse().map_err(|_| Wrong::Form("a whole number"))
}

/// Parses `COUNT:SIZE` into a number of messages and their volume, bytes.
///
/// # Errors
/// What is wrong.
pub fn parse_messages(text: &str) -> Result<(u64, u64), Wrong> {
    let (count, size) = text.split_once(':').ok_or(Wrong::Part("has no ':'"))?;
    let count = count.parse().map_err(|_| Wrong::Part("has a count that is not a number"))?;
    Ok((count, parse_size(size)?))
}

const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("USR1", 10),
    ("USR2", 12),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("URG", 23),
    ("XCPU", 24),
    ("VTALRM", 26),
    ("WINCH", 28),
];

/// Parses `SIG[@TIME]` as `sbatch --signal` does: name with or without `SIG`, or number; TIME in seconds.
///
/// # Errors
/// What is wrong.
pub fn parse_signal(text: &str) -> Result<Signal, Wrong> {
    const WRONG: Wrong = Wrong::Form("a signal that a program can take as a request");
    let (name, time) = match text.split_once('@') {
        Some((name, time)) => (name, Some(time)),
        None => (text, None),
    };
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let number = match bare.parse::<i32>() {
        Ok(n) if SIGNALS.iter().any(|(_, k)| *k == n) => n,
        Ok(_) => return Err(WRONG),
        Err(_) => SIGNALS.iter().find(|(k, _)| *k == bare).map(|(_, n)| *n).ok_or(WRONG)?,
    };
    let before_end = match time {
        None => None,
        Some(t) => match t.parse::<u64>() {
            Ok(s) if (1..=65535).contains(&s) => Some(Duration::from_secs(s)),
            _ => return Err(Wrong::Part("has a time that is not 1 to 65535 seconds")),
        },
    };
    Ok(Signal { number, before_end })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_slurms() {
        let s = |t| parse_time(t).map(|d| d.as_secs());
        assert_eq!(s("10"), Ok(600));
        assert_eq!(s("1:30"), Ok(90));
        assert_eq!(s("1:00:00"), Ok(3600));
        assert_eq!(s("1-0"), Ok(86400));
        assert_eq!(s("1-02:30"), Ok(95400));
        assert_eq!(s("1-02:30:05"), Ok(95405));
        assert_eq!(s("30s"), Ok(30));
        assert_eq!(
            (s("5min"), s("2h"), s("24h"), s("3d"), s("90 s")),
            (Ok(300), Ok(7200), Ok(86400), Ok(259_200), Ok(90))
        );
        for wrong in
            ["", "0", "1:99", "-5", "1-", "1-24", "a", "1:2:3:4", "1.5", "s", "99999999999", "h", "0h", "2m", "1-2h"]
        {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_number_alone_is_hours_where_hours_are_meant() {
        let s = |t| parse_hours(t).map(|d| d.as_secs());
        assert_eq!((s("8"), s("8h"), s("90min"), s("1-12")), (Ok(28_800), Ok(28_800), Ok(5400), Ok(129_600)));
        assert!(s("0").is_err() && s("").is_err() && s("8x").is_err());
    }

    #[test]
    fn every_form_of_a_time_that_messages_name_is_taken() {
        let forms = TIMES.replace("or with a unit: ", "");
        for form in forms.split(", ") {
            let example = form.replace("minutes", "10").replace(['m', 's', 'h', 'd'], "1");
            let with_unit = form.starts_with(|c: char| c.is_ascii_digit());
            let text = if with_unit { form } else { example.as_str() };
            assert!(parse_time(text).is_ok(), "{form}: {text}");
        }
        assert!(time_argument("soon").is_err_and(|e| e.to_string().contains("is not a time; accepted: minutes,")));
    }

    #[test]
    fn times_are_told_as_people_say_them() {
        for (seconds, said) in [
            (94_672_800.0, "3 years"),
            (110_000_000.0, "3.5 years"),
            (300.0, "5 min"),
            (3600.0, "1 h"),
            (5400.0, "1 h 30 min"),
            (200_000.0, "2 days 7 h"),
            (1e43 * 3600.0, "more than a million years"),
            (f64::NAN, "an unknown time"),
            (1.5, "1.5 s"),
        ] {
            assert_eq!(spoken(seconds), said, "{seconds}");
        }
    }

    #[test]
    fn one_of_a_thing_is_not_told_in_the_plural() {
        assert_eq!(counted(1_u32, "process"), "1 process");
        assert_eq!(counted(2_usize, "process"), "2 processes");
        assert_eq!(counted(0_u32, "failure"), "0 failures");
    }

    #[test]
    fn percentages() {
        assert_eq!(parse_percent("10%"), Ok(0.1));
        assert_eq!(parse_percent("2.5"), Ok(0.025));
        for wrong in ["", "%", "-1", "0", "nan", "inf", "1e3", "1.2.3", "1001%"] {
            assert!(parse_percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size("1"), Ok(1 << 20));
        assert_eq!(parse_size("4G"), Ok(4 << 30));
        assert_eq!(parse_size("4gb"), Ok(4 << 30));
        for wrong in ["", "G", "0", "1X", "99999999999T", "1.5G"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn signals() {
        assert_eq!(parse_signal("USR1").map(|s| s.number), Ok(10));
        assert_eq!(parse_signal("sigterm@120"), Ok(Signal { number: 15, before_end: Some(Duration::from_secs(120)) }));
        for wrong in ["", "KILL", "9", "FOO", "USR1@", "USR1@x", "USR1@0"] {
            assert!(parse_signal(wrong).is_err(), "{wrong}");
        }
    }
}
